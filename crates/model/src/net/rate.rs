//! Rate and size limits of a rule.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::by_text;
use crate::size::ByteSize;

/// A number of requests per time unit: `60/min`, `5/s`, `1000/h`, `10000/day`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Rate {
    pub count: u32,
    pub per: Duration,
}

/// The reason why a text is not a valid rate.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum RateError {
    #[error("invalid rate; write for example \"60/min\", \"5/s\", \"1000/h\" or \"10000/day\"")]
    Malformed,
    #[error("a rate of zero allows no request; remove the rule instead")]
    Zero,
    #[error("the number in the rate is too large")]
    TooMany,
}

/// The time units of a rate, their other spellings and their milliseconds; the largest unit first.
const UNITS: [(&str, &[&str], u64); 5] = [
    ("day", &["d"], 86_400_000),
    ("h", &["hour"], 3_600_000),
    ("min", &["m", "minute"], 60_000),
    ("s", &["sec", "second"], 1_000),
    ("ms", &[], 1),
];

impl FromStr for Rate {
    type Err = RateError;

    fn from_str(text: &str) -> Result<Self, RateError> {
        let (count, per) = text.split_once('/').ok_or(RateError::Malformed)?;
        let split = per.find(|c: char| !c.is_ascii_digit()).unwrap_or(per.len());
        let (times, unit) = per.split_at(split);
        let (.., millis) = UNITS
            .iter()
            .find(|(name, others, _)| *name == unit || others.contains(&unit))
            .ok_or(RateError::Malformed)?;
        let times = if times.is_empty() { 1 } else { whole(times)? };
        let millis = millis.checked_mul(u64::from(times)).ok_or(RateError::TooMany)?;
        Ok(Self { count: whole(count)?, per: Duration::from_millis(millis) })
    }
}

fn whole(digits: &str) -> Result<u32, RateError> {
    if digits.is_empty() || !digits.bytes().all(|byte| byte.is_ascii_digit()) {
        return Err(RateError::Malformed);
    }
    match digits.parse() {
        Ok(0) => Err(RateError::Zero),
        Ok(number) => Ok(number),
        Err(_) => Err(RateError::TooMany),
    }
}

impl fmt::Display for Rate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let millis = u64::try_from(self.per.as_millis()).unwrap_or(u64::MAX).max(1);
        let unit = UNITS.iter().find(|(.., scale)| millis.is_multiple_of(*scale));
        let (name, times) = unit.map_or(("ms", millis), |(name, _, scale)| (*name, millis / scale));
        match times {
            1 => write!(f, "{}/{name}", self.count),
            times => write!(f, "{}/{times}{name}", self.count),
        }
    }
}

by_text!(Rate);

/// The limits of one rule; a missing value means no limit.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RuleLimits {
    pub requests: Option<Rate>,
    /// Maximum size of a request body.
    pub upload: Option<ByteSize>,
    /// Maximum number of bytes in both directions during the whole run.
    pub total: Option<ByteSize>,
}

impl RuleLimits {
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}
