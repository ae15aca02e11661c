//! Formats points in time and durations as text. Points in time are always in UTC.

use jiff::Timestamp;

/// Formats a time in nanoseconds since 1970 with milliseconds: `2026-11-16 12:00:00.123Z`.
pub fn readable(nanos: u64) -> String {
    timestamp(nanos).strftime("%Y-%m-%d %H:%M:%S.%3fZ").to_string()
}

/// Formats a time in nanoseconds since 1970 without fractions of a second: `2026-11-16 12:00:00Z`.
pub fn readable_seconds(nanos: u64) -> String {
    timestamp(nanos).strftime("%Y-%m-%d %H:%M:%SZ").to_string()
}

/// Formats a time in nanoseconds since 1970 as RFC 3339: `2026-11-16T12:00:00.123456789Z`.
pub fn rfc3339(nanos: u64) -> String {
    format!("{:.9}", timestamp(nanos))
}

/// Parses a time in RFC 3339. Returns milliseconds since 1970; a time before 1970 is 0.
pub fn parse_rfc3339(text: &str) -> Option<u64> {
    let time: Timestamp = text.parse().ok()?;
    Some(u64::try_from(time.as_millisecond()).unwrap_or(0))
}

/// Formats a duration in microseconds for people: `350 µs`, `1.25 s`, `3 min 4 s`.
pub fn duration(micros: u64) -> String {
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

/// Converts nanoseconds since 1970. Every value is in range: the largest is in the year 2554.
fn timestamp(nanos: u64) -> Timestamp {
    Timestamp::from_nanosecond(i128::from(nanos)).unwrap_or(Timestamp::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_formatted_as_utc_dates() {
        assert_eq!(readable(0), "1970-01-01 00:00:00.000Z");
        assert_eq!(readable(951_782_400_007_000_000), "2000-02-29 00:00:00.007Z");
        assert_eq!(readable(u64::MAX), "2554-07-21 23:34:33.709Z");
        assert_eq!(readable_seconds(u64::MAX), "2554-07-21 23:34:33Z");
        assert_eq!(rfc3339(0), "1970-01-01T00:00:00.000000000Z");
        assert_eq!(rfc3339(1), "1970-01-01T00:00:00.000000001Z");
        assert_eq!(parse_rfc3339("1970-01-01T01:00:01.5+01:00"), Some(1_500));
        assert_eq!(parse_rfc3339("1969-12-31T23:59:59Z"), Some(0));
        assert_eq!(parse_rfc3339("yesterday"), None);
    }

    #[test]
    fn durations_are_formatted_with_a_unit_that_fits_their_size() {
        let formatted: Vec<String> =
            [0, 999, 1_000, 1_234_567, 61_000_000, 7_260_000_000].map(duration).to_vec();
        assert_eq!(formatted, ["0 µs", "999 µs", "1 ms", "1.23 s", "1 min 1 s", "2 h 1 min"]);
    }
}
