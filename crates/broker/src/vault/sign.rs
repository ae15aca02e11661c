//! Signs requests with keys that are never sent. The box signs with a placeholder or not at all,
//! and the broker signs again with the key (B22).

pub(super) mod hmac;
pub(super) mod sigv4;

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use jiff::Timestamp;

/// A signing time in the formats that AWS requires.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Stamp {
    /// The date and time, such as `20150830T123600Z`.
    pub(super) time: String,
}

impl Stamp {
    pub(super) fn at(now: SystemTime) -> Self {
        let since = now.duration_since(UNIX_EPOCH).unwrap_or(Duration::ZERO).as_secs();
        // A clock after the year 9999 is read as the latest time that jiff supports.
        let moment = i64::try_from(since).ok().and_then(|since| Timestamp::from_second(since).ok());
        let moment = moment.unwrap_or(Timestamp::MAX);
        Self { time: moment.strftime("%Y%m%dT%H%M%SZ").to_string() }
    }

    /// Returns the date, such as `20150830`.
    pub(super) fn date(&self) -> &str {
        self.time.get(..8).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn aws_time_stamp_has_the_format_that_aws_requires() {
        for (seconds, expect) in [
            (0, "19700101T000000Z"),
            (951_782_400, "20000229T000000Z"),
            (951_868_799, "20000229T235959Z"),
            (951_868_800, "20000301T000000Z"),
            (1_440_938_160, "20150830T123600Z"),
            (1_709_164_800, "20240229T000000Z"),
            (4_102_444_799, "20991231T235959Z"),
            // 2100 is not a leap year.
            (4_107_542_399, "21000228T235959Z"),
            (4_107_542_400, "21000301T000000Z"),
            (253_402_207_200, "99991230T220000Z"),
            (1 << 62, "99991230T220000Z"),
        ] {
            let stamp = Stamp::at(UNIX_EPOCH + Duration::from_secs(seconds));
            assert_eq!(stamp.time, expect);
            assert_eq!(stamp.date(), &expect[..8]);
        }
        assert_eq!(Stamp::at(UNIX_EPOCH - Duration::from_secs(1)).time, "19700101T000000Z");
    }
}
