//! Moments as people write and read them. Always UTC: a record has one clock.

use std::fmt;
use std::str::FromStr;
use std::time::{SystemTime, UNIX_EPOCH};

/// A moment that was typed: a date, a date with a time, or an age.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum When {
    /// Nanoseconds since 1970.
    At(u64),
    /// Nanoseconds before now.
    Ago(u64),
}

/// Why a text is no moment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct WhenError;

const SECOND: u64 = 1_000_000_000;
const DAY: u64 = 86_400;

impl When {
    /// In nanoseconds since 1970.
    pub(crate) fn nanos(self, now: u64) -> u64 {
        match self {
            Self::At(nanos) => nanos,
            Self::Ago(nanos) => now.saturating_sub(nanos),
        }
    }
}

/// Nanoseconds since 1970 by this machine's clock.
pub(crate) fn now() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_nanos()).unwrap_or(u64::MAX)
}

/// `2026-11-16 12:00:00.123Z`, for lines.
pub(crate) fn readable(nanos: u64) -> String {
    let Civil { year, month, day } = civil(nanos / SECOND / DAY);
    let (hour, minute, second) = time_of_day(nanos);
    let millis = nanos % SECOND / 1_000_000;
    format!("{year:04}-{month:02}-{day:02} {hour:02}:{minute:02}:{second:02}.{millis:03}Z")
}

/// `2026-11-16 12:00:00Z`, for short lines.
pub(crate) fn to_the_second(nanos: u64) -> String {
    let Civil { year, month, day } = civil(nanos / SECOND / DAY);
    let (hour, minute, second) = time_of_day(nanos);
    format!("{year:04}-{month:02}-{day:02} {hour:02}:{minute:02}:{second:02}Z")
}

/// `2026-11-16T12:00:00.123456789Z`, for machines.
pub(crate) fn rfc3339(nanos: u64) -> String {
    let Civil { year, month, day } = civil(nanos / SECOND / DAY);
    let (hour, minute, second) = time_of_day(nanos);
    let rest = nanos % SECOND;
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}.{rest:09}Z")
}

/// A span of time for people: `350 µs`, `1.25 s`, `3 min 4 s`.
pub(crate) fn span(micros: u64) -> String {
    match micros {
        0..1_000 => format!("{micros} \u{b5}s"),
        1_000..1_000_000 => format!("{} ms", micros / 1_000),
        1_000_000..60_000_000 => {
            format!("{}.{:02} s", micros / 1_000_000, micros % 1_000_000 / 10_000)
        }
        60_000_000..3_600_000_000 => {
            format!("{} min {} s", micros / 60_000_000, micros % 60_000_000 / 1_000_000)
        }
        _ => format!("{} h {} min", micros / 3_600_000_000, micros % 3_600_000_000 / 60_000_000),
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
            "neither a date (2026-11-16), nor a time (2026-11-16T12:00:00Z), nor an age (90s, 15m, 12h, 30d, 8w)",
        )
    }
}

impl std::error::Error for WhenError {}

/// `30d` and the like.
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

/// A date, or a date and a time as in RFC 3339.
fn moment(text: &str) -> Option<When> {
    let date = text.get(..10)?;
    let mut parts = date.split('-');
    let (year, month, day) = (digits(parts.next()?, 4)?, digits(parts.next()?, 2)?, parts.next()?);
    let days = days_since_1970(year, month, digits(day, 2)?)?;
    let rest = text.get(10..)?;
    if rest.is_empty() {
        return days.checked_mul(DAY * SECOND).map(When::At);
    }
    let (time, offset) = zone(rest.strip_prefix(['T', 't', ' '])?)?;
    let (clock, fraction) = time.split_once('.').unwrap_or((time, "0"));
    let mut parts = clock.split(':');
    let hour = digits(parts.next()?, 2).filter(|hour| *hour < 24)?;
    let minute = digits(parts.next()?, 2).filter(|minute| *minute < 60)?;
    // A leap second is the one after it.
    let second = digits(parts.next()?, 2).filter(|second| *second <= 60)?;
    if parts.next().is_some() || fraction.is_empty() || fraction.len() > 9 {
        return None;
    }
    let scale = 10_u64.checked_pow(u32::try_from(9 - fraction.len()).ok()?)?;
    let fraction = number(fraction)?.checked_mul(scale)?;
    let local = days.checked_mul(DAY)? + hour * 3600 + minute * 60 + second;
    let seconds = local.checked_add_signed(-offset)?;
    seconds.checked_mul(SECOND)?.checked_add(fraction).map(When::At)
}

/// The time without its zone, and the zone in seconds east of Greenwich.
fn zone(text: &str) -> Option<(&str, i64)> {
    if let Some(time) = text.strip_suffix(['Z', 'z']) {
        return Some((time, 0));
    }
    let at = text.rfind(['+', '-'])?;
    let (time, zone) = text.split_at_checked(at)?;
    let (hour, minute) = zone.get(1..)?.split_once(':')?;
    let hour = digits(hour, 2).filter(|hour| *hour < 24)?;
    let minute = digits(minute, 2).filter(|minute| *minute < 60)?;
    let seconds = i64::try_from(hour * 3600 + minute * 60).ok()?;
    Some((time, if zone.starts_with('-') { -seconds } else { seconds }))
}

/// So many digits and nothing else.
fn digits(text: &str, count: usize) -> Option<u64> {
    number(text).filter(|_| text.len() == count)
}

/// Digits and nothing else; `parse` alone would take a sign.
fn number(text: &str) -> Option<u64> {
    let plain = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    text.parse().ok().filter(|_| plain)
}

struct Civil {
    year: u64,
    month: u64,
    day: u64,
}

fn time_of_day(nanos: u64) -> (u64, u64, u64) {
    let rest = nanos / SECOND % DAY;
    (rest / 3600, rest % 3600 / 60, rest % 60)
}

/// Days to date as in Howard Hinnant's `civil_from_days`.
fn civil(days: u64) -> Civil {
    let days = days + 719_468;
    let (era, day_of_era) = (days / 146_097, days % 146_097);
    let year_of_era =
        (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let shifted = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * shifted + 2) / 5 + 1;
    let month = if shifted < 10 { shifted + 3 } else { shifted - 9 };
    Civil { year: year_of_era + era * 400 + u64::from(month <= 2), month, day }
}

/// Date to days, his `days_from_civil`; `None` for a day that no calendar has, or before 1970.
fn days_since_1970(year: u64, month: u64, day: u64) -> Option<u64> {
    if !(1..=12).contains(&month) || !(1..=31).contains(&day) || year < 1970 {
        return None;
    }
    let shifted_year = year - u64::from(month <= 2);
    let (era, year_of_era) = (shifted_year / 400, shifted_year % 400);
    let shifted = if month > 2 { month - 3 } else { month + 9 };
    let day_of_year = (153 * shifted + 2) / 5 + day - 1;
    let day_of_era = year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + day_of_year;
    let days = (era * 146_097 + day_of_era).checked_sub(719_468)?;
    let back = civil(days);
    (back.month == month && back.day == day).then_some(days)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(text: &str, expect: Option<&str>) {
        let now = 1_794_783_600 * SECOND;
        let told = text.parse::<When>().ok().map(|when| rfc3339(when.nanos(now)));
        assert_eq!(told.as_deref(), expect, "{text}");
    }

    #[test]
    fn dates_times_and_ages_are_moments() {
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
    fn what_no_calendar_has_is_no_moment() {
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

    #[test]
    fn moments_read_as_dates() {
        assert_eq!(readable(0), "1970-01-01 00:00:00.000Z");
        assert_eq!(readable(951_782_400_007_000_000), "2000-02-29 00:00:00.007Z");
        assert_eq!(readable(u64::MAX), "2554-07-21 23:34:33.709Z");
        assert_eq!(rfc3339(1), "1970-01-01T00:00:00.000000001Z");
    }

    #[test]
    fn spans_read_as_spans() {
        let told: Vec<String> =
            [0, 999, 1_000, 1_234_567, 61_000_000, 7_260_000_000].map(span).to_vec();
        assert_eq!(told, ["0 µs", "999 µs", "1 ms", "1.23 s", "1 min 1 s", "2 h 1 min"]);
    }
}
