//! Signers: keys that never travel. The box signs with what stands for the key, or not at all, and the
//! broker signs anew (B22).

pub(super) mod hmac;
pub(super) mod sigv4;

use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// A moment in the two spellings of AWS.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Stamp {
    /// `20150830T123600Z`
    pub(super) time: String,
}

impl Stamp {
    pub(super) fn at(now: SystemTime) -> Self {
        let since = now.duration_since(UNIX_EPOCH).unwrap_or(Duration::ZERO).as_secs();
        let (days, second) = (since / 86_400, since % 86_400);
        let (year, month, day) = civil(days);
        let (hour, minute, second) = (second / 3600, second / 60 % 60, second % 60);
        Self { time: format!("{year:04}{month:02}{day:02}T{hour:02}{minute:02}{second:02}Z") }
    }

    /// `20150830`
    pub(super) fn date(&self) -> &str {
        self.time.get(..8).unwrap_or_default()
    }
}

/// Year, month and day of so many days after 1970-01-01: Hinnant's `civil_from_days`, for days that are
/// not negative.
const fn civil(days: u64) -> (u64, u64, u64) {
    let days = days + 719_468;
    let (era, of_era) = (days / 146_097, days % 146_097);
    let year_of_era = (of_era - of_era / 1460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let shifted = (5 * of_year + 2) / 153;
    let day = of_year - (153 * shifted + 2) / 5 + 1;
    let month = if shifted < 10 { shifted + 3 } else { shifted - 9 };
    let year = year_of_era + era * 400;
    (if month <= 2 { year + 1 } else { year }, month, day)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn moments_are_spelled_as_aws_wants_them() {
        for (seconds, expect) in [
            (0, "19700101T000000Z"),
            (951_782_400, "20000229T000000Z"),
            (1_440_938_160, "20150830T123600Z"),
            (4_102_444_799, "20991231T235959Z"),
        ] {
            let stamp = Stamp::at(UNIX_EPOCH + Duration::from_secs(seconds));
            assert_eq!(stamp.time, expect);
            assert_eq!(stamp.date(), &expect[..8]);
        }
    }
}
