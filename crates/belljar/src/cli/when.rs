//! Times on the command line. A time without a zone is in UTC.

use std::fmt;
use std::str::FromStr;

use jiff::Timestamp;
use jiff::civil::Date;
use jiff::tz::TimeZone;

/// A time on the command line: a date, a date with a time, or an age.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum When {
    /// Nanoseconds since 1970.
    At(u64),
    /// Nanoseconds before now.
    Ago(u64),
}

/// The error for a text that is neither a date, a time nor an age.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct WhenError;

const SECOND: u64 = 1_000_000_000;
const DAY: u64 = 86_400;

impl When {
    /// Returns the time in nanoseconds since 1970.
    pub(crate) fn nanos(self, now: u64) -> u64 {
        match self {
            Self::At(nanos) => nanos,
            Self::Ago(nanos) => now.saturating_sub(nanos),
        }
    }
}

impl FromStr for When {
    type Err = WhenError;

    fn from_str(text: &str) -> Result<Self, WhenError> {
        age(text).or_else(|| moment(text)).ok_or(WhenError)
    }
}

impl fmt::Display for WhenError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(
            "expected a date (2026-11-16), a time (2026-11-16T12:00:00Z) or an age (90s, 15m, 12h, 30d, 8w)",
        )
    }
}

impl std::error::Error for WhenError {}

/// Parses an age such as `30d`.
fn age(text: &str) -> Option<When> {
    let unit = text.chars().next_back()?;
    let seconds = match unit {
        's' => 1,
        'm' => 60,
        'h' => 3600,
        'd' => DAY,
        'w' => 7 * DAY,
        _ => return None,
    };
    let count = number(text.strip_suffix(unit)?)?;
    count.checked_mul(seconds)?.checked_mul(SECOND).map(When::Ago)
}

/// Parses a date, or a date and a time as in RFC 3339.
fn moment(text: &str) -> Option<When> {
    let timestamp = if has_shape(text, "0000-00-00") {
        text.parse::<Date>().ok()?.to_zoned(TimeZone::UTC).ok()?.timestamp()
    } else {
        time(text)?
    };
    u64::try_from(timestamp.as_nanosecond()).ok().map(When::At)
}

/// Parses a date and a time. jiff accepts more formats than RFC 3339, so the format is checked first.
fn time(text: &str) -> Option<Timestamp> {
    let (clock, rest) = text.split_at_checked("0000-00-00T00:00:00".len())?;
    let (fraction, zone) = rest.split_at(rest.find(['Z', 'z', '+', '-'])?);
    let is_fraction = fraction.is_empty() || fraction.starts_with('.');
    let is_zone = has_shape(zone, "Z") || has_shape(zone, "+00:00") && zone.get(1..3)? < "24";
    if !has_shape(clock, "0000-00-00T00:00:00") || !is_fraction || !is_zone {
        return None;
    }
    let timestamp: Timestamp = text.parse().ok()?;
    // A leap second counts as the second after it; jiff rounds it down to the second before.
    let leap = clock.ends_with("60");
    timestamp.checked_add(std::time::Duration::from_secs(leap.into())).ok()
}

/// Returns whether a text has digits, separators and signs at the positions of the pattern.
fn has_shape(text: &str, pattern: &str) -> bool {
    let fits = |(byte, pattern): (u8, u8)| match pattern {
        b'0' => byte.is_ascii_digit(),
        b'T' => matches!(byte, b'T' | b't' | b' '),
        b'Z' => matches!(byte, b'Z' | b'z'),
        b'+' => matches!(byte, b'+' | b'-'),
        other => byte == other,
    };
    text.len() == pattern.len() && text.bytes().zip(pattern.bytes()).all(fits)
}

/// Parses a number of digits only; `parse` alone also accepts a sign.
fn number(text: &str) -> Option<u64> {
    let plain = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    text.parse().ok().filter(|_| plain)
}

#[cfg(test)]
mod tests {
    use belljar_engine::moment::rfc3339;

    use super::*;

    #[track_caller]
    fn check(text: &str, expect: Option<&str>) {
        let now = 1_794_783_600 * SECOND;
        let parsed = text.parse::<When>().ok().map(|when| rfc3339(when.nanos(now)));
        assert_eq!(parsed.as_deref(), expect, "{text}");
    }

    #[test]
    fn time_option_accepts_dates_times_and_ages() {
        check("1970-01-01", Some("1970-01-01T00:00:00.000000000Z"));
        check("2000-02-29", Some("2000-02-29T00:00:00.000000000Z"));
        check("2026-11-16T01:02:03Z", Some("2026-11-16T01:02:03.000000000Z"));
        check("2026-11-16 01:02:03.5z", Some("2026-11-16T01:02:03.500000000Z"));
        check("2026-11-16T01:02:03.000000007+02:30", Some("2026-11-15T22:32:03.000000007Z"));
        check("2026-12-31T23:59:60-00:30", Some("2027-01-01T00:30:00.000000000Z"));
        check("60s", Some("2026-11-15T22:59:00.000000000Z"));
        check("1d", Some("2026-11-14T23:00:00.000000000Z"));
        check("0d", Some("2026-11-15T23:00:00.000000000Z"));
        check("999999w", None); // longer than 584 years
    }

    #[test]
    fn time_option_refuses_invalid_dates_times_and_ages() {
        for text in [
            "",
            "d",
            "-1d",
            "+1d",
            "1 d",
            "1y",
            "1969-12-31",
            "2026-02-29",
            "2026-13-01",
            "2026-00-01",
            "2026-11-31",
            "2026-11-16T",
            "2026-11-16T01:02:03",
            "2026-11-16T24:00:00Z",
            "2026-11-16T01:60:00Z",
            "2026-11-16T01:02Z",
            "2026-11-16T01:02:03.Z",
            "2026-11-16T01:02:03.0000000001Z",
            "2026-11-16T01:02:03+0200",
            "2026-11-16T01:02:03+02",
            "2026-11-16T01:02:03+24:00",
            "2026-11-16T01:02:03,5Z",
            "2026-11-16T01:02:03Z[UTC]",
            "+002026-11-16",
            "2026-1-6",
            "2026-11-16x",
            "１０d",
            "20261116",
            "9999-12-31",
            "99999999999999999999d",
            "2026-11-1é",
        ] {
            check(text, None);
        }
    }
}
