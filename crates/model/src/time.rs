//! Timeouts, parsed from text such as `1h30m`.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

/// A timeout of a run, or no timeout. Written `90s`, `1h30m`, `250ms` or `none`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Timeout(pub Option<Duration>);

/// The reason why a text is not a valid timeout.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum TimeoutError {
    #[error("invalid time; write for example \"90s\", \"10m\", \"1h30m\" or \"none\"")]
    Malformed,
    #[error("the time has no unit; write for example \"{0}s\" or \"{0}m\"")]
    NoUnit(u64),
    #[error("a timeout of zero would kill every program at once; write \"none\" for no timeout")]
    Zero,
    #[error("the timeout is longer than {} days; write \"none\" for no timeout", MAX.as_secs() / 86_400)]
    TooLong,
}

/// The longest timeout. A longer one is a mistake; kernel timers take this one without overflow.
const MAX: Duration = Duration::from_secs(10 * 365 * 86_400);

/// The time units and their milliseconds, in the order in which they must appear in a text.
const UNITS: [(&str, u64); 5] =
    [("d", 86_400_000), ("h", 3_600_000), ("m", 60_000), ("s", 1_000), ("ms", 1)];

impl Timeout {
    /// Returns whether this timeout permits a longer run than `other`.
    pub fn is_longer_than(self, other: Self) -> bool {
        match (self.0, other.0) {
            (Some(mine), Some(theirs)) => mine > theirs,
            (None, Some(_)) => true,
            (Some(_) | None, None) => false,
        }
    }
}

impl FromStr for Timeout {
    type Err = TimeoutError;

    fn from_str(text: &str) -> Result<Self, TimeoutError> {
        if text == "none" {
            return Ok(Self(None));
        }
        if !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit()) {
            return Err(match text.parse() {
                Ok(0) => TimeoutError::Zero,
                Ok(number) => TimeoutError::NoUnit(number),
                Err(_) => TimeoutError::TooLong,
            });
        }
        let total = Duration::from_millis(millis(text)?);
        match total {
            Duration::ZERO => Err(TimeoutError::Zero),
            total if total > MAX => Err(TimeoutError::TooLong),
            total => Ok(Self(Some(total))),
        }
    }
}

/// Adds up `1h30m`. Each unit occurs at most once, larger ones first, so `10m5m` is refused.
fn millis(text: &str) -> Result<u64, TimeoutError> {
    let mut rest = text;
    let mut units = UNITS.iter();
    let mut total = 0_u64;
    while !rest.is_empty() {
        let (digits, after) = split_where(rest, |c| !c.is_ascii_digit());
        let (unit, after) = split_where(after, |c| !c.is_ascii_alphabetic());
        let (_, scale) = units.find(|(name, _)| *name == unit).ok_or(TimeoutError::Malformed)?;
        if digits.is_empty() {
            return Err(TimeoutError::Malformed);
        }
        let number: u64 = digits.parse().map_err(|_| TimeoutError::TooLong)?;
        let part = number.checked_mul(*scale).ok_or(TimeoutError::TooLong)?;
        total = total.checked_add(part).ok_or(TimeoutError::TooLong)?;
        rest = after;
    }
    if text.is_empty() { Err(TimeoutError::Malformed) } else { Ok(total) }
}

fn split_where(text: &str, stop: impl Fn(char) -> bool) -> (&str, &str) {
    text.split_at(text.find(stop).unwrap_or(text.len()))
}

impl fmt::Display for Timeout {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Some(duration) = self.0 else { return f.write_str("none") };
        // Text has whole milliseconds only; rounding up avoids a timeout of zero.
        let mut left = u64::try_from(duration.as_nanos().div_ceil(1_000_000)).unwrap_or(u64::MAX);
        for (unit, scale) in UNITS {
            if left >= scale {
                write!(f, "{}{unit}", left / scale)?;
                left %= scale;
            }
        }
        Ok(())
    }
}

/// How long a request waits for the operator's answer before it is refused. Written `5m` or `30s`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct AskTimeout(Duration);

/// The reason why a text is not a valid time to wait for an answer.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum AskTimeoutError {
    #[error(transparent)]
    Time(TimeoutError),
    #[error("the wait for an answer needs a limit; write for example \"5m\"")]
    None,
    #[error("a wait of zero for an answer refuses every request; use `deny` instead")]
    Zero,
    #[error(
        "the wait for an answer is longer than 1h, and the program is blocked during that time"
    )]
    TooLong,
}

impl AskTimeout {
    const MAX: Duration = Duration::from_secs(60 * 60);

    pub const fn duration(self) -> Duration {
        self.0
    }
}

impl Default for AskTimeout {
    fn default() -> Self {
        Self(Duration::from_secs(5 * 60))
    }
}

impl FromStr for AskTimeout {
    type Err = AskTimeoutError;

    fn from_str(text: &str) -> Result<Self, AskTimeoutError> {
        match text.parse() {
            Ok(Timeout(None)) => Err(AskTimeoutError::None),
            Ok(Timeout(Some(time))) if time > Self::MAX => Err(AskTimeoutError::TooLong),
            Ok(Timeout(Some(time))) => Ok(Self(time)),
            Err(TimeoutError::Zero) => Err(AskTimeoutError::Zero),
            Err(error) => Err(AskTimeoutError::Time(error)),
        }
    }
}

impl fmt::Display for AskTimeout {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        Timeout(Some(self.0)).fmt(f)
    }
}

crate::net::by_text!(AskTimeout, Timeout);

/// Serde functions that write an `Option<Duration>` as the text of a [`Timeout`].
pub(crate) mod as_text {
    use std::time::Duration;

    use serde::{Deserializer, Serializer};

    use super::Timeout;

    #[expect(clippy::ref_option, reason = "the signature that serde's `with` calls")]
    pub(crate) fn serialize<S: Serializer>(
        timeout: &Option<Duration>,
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        serializer.collect_str(&Timeout(*timeout))
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(
        deserializer: D,
    ) -> Result<Option<Duration>, D::Error> {
        crate::text::parse::<D, Timeout>(deserializer).map(|Timeout(limit)| limit)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(text: &str, expect: Result<Option<u64>, TimeoutError>) {
        let expect = expect.map(|millis| Timeout(millis.map(Duration::from_millis)));
        assert_eq!(text.parse::<Timeout>(), expect, "{text}");
    }

    #[test]
    fn timeout_text_is_a_sum_of_larger_to_smaller_units() {
        check("10m", Ok(Some(600_000)));
        check("90s", Ok(Some(90_000)));
        check("1h30m", Ok(Some(5_400_000)));
        check("250ms", Ok(Some(250)));
        check("1d2h3m4s5ms", Ok(Some(93_784_005)));
        check("none", Ok(None));
    }

    #[test]
    fn invalid_timeout_is_refused_with_its_reason() {
        for text in
            ["", "m", "ten minutes", "10 m", "10m5m", "5s1h", "10min", "-5s", "1.5h", "None"]
        {
            check(text, Err(TimeoutError::Malformed));
        }
        check("0", Err(TimeoutError::Zero));
        check("0s", Err(TimeoutError::Zero));
        check("30", Err(TimeoutError::NoUnit(30)));
        check("3651d", Err(TimeoutError::TooLong));
        check("99999999999999999999h", Err(TimeoutError::TooLong));
        check("18446744073709551615d", Err(TimeoutError::TooLong));
        assert!(TimeoutError::Zero.to_string().contains("write \"none\""));
    }

    #[test]
    fn timeout_of_none_is_longer_than_any_other() {
        let [none, short, long] = ["none", "1s", "1h"].map(|text| text.parse::<Timeout>().unwrap());
        assert!(none.is_longer_than(long) && long.is_longer_than(short));
        assert!(!long.is_longer_than(none) && !none.is_longer_than(none));
        assert!(!short.is_longer_than(short));
    }

    #[test]
    fn ask_timeout_is_at_most_one_hour() {
        assert_eq!(AskTimeout::default().to_string(), "5m");
        for text in ["1ms", "30s", "1h"] {
            assert_eq!(text.parse::<AskTimeout>().map(|time| time.to_string()), Ok(text.into()));
        }
        let refused = |text: &str| text.parse::<AskTimeout>().unwrap_err();
        assert_eq!(refused("0"), AskTimeoutError::Zero);
        assert_eq!(refused("0s"), AskTimeoutError::Zero);
        assert_eq!(refused("none"), AskTimeoutError::None);
        assert_eq!(refused("1h1ms"), AskTimeoutError::TooLong);
        assert_eq!(refused("5"), AskTimeoutError::Time(TimeoutError::NoUnit(5)));
    }

    proptest::proptest! {
        #[test]
        fn every_timeout_survives_a_round_trip(millis in 1_u64..=315_360_000_000) {
            let timeout = Timeout(Some(Duration::from_millis(millis)));
            proptest::prop_assert_eq!(timeout.to_string().parse(), Ok(timeout));
        }

        #[test]
        fn timeout_parser_never_panics(text in "([0-9]{0,22}[dhms]{0,2}){0,4}|.*") {
            if let Ok(timeout) = text.parse::<Timeout>() {
                proptest::prop_assert!(timeout.0 != Some(Duration::ZERO));
                proptest::prop_assert_eq!(timeout.to_string().parse(), Ok(timeout));
            }
        }
    }
}
