//! Budgets: limits for requests, bytes, tokens and money.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use super::by_text;
use crate::size::ByteSize;

/// An amount of money in millionths of a US dollar, since one token costs less than a cent.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct MicroUsd(pub u64);

/// The reason why a text is not a valid amount of money.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum MoneyError {
    #[error("invalid amount of money; write for example \"5 USD\" or \"$0.50\"")]
    Malformed,
    #[error("an amount of money can have at most six digits after the point")]
    TooFine,
    #[error("the amount of money is too large")]
    TooMuch,
}

impl FromStr for MicroUsd {
    type Err = MoneyError;

    fn from_str(text: &str) -> Result<Self, MoneyError> {
        let amount = match (text.strip_prefix('$'), text.strip_suffix("USD")) {
            (Some(amount), None) => amount,
            (None, Some(amount)) => amount.strip_suffix(' ').unwrap_or(amount),
            (Some(_), Some(_)) | (None, None) => return Err(MoneyError::Malformed),
        };
        let (whole, fraction) = amount.split_once('.').unwrap_or((amount, "0"));
        let digits = |part: &str| !part.is_empty() && part.bytes().all(|b| b.is_ascii_digit());
        if !digits(whole) || !digits(fraction) {
            return Err(MoneyError::Malformed);
        }
        let fraction = fraction.trim_end_matches('0');
        if fraction.len() > 6 {
            return Err(MoneyError::TooFine);
        }
        let micros = format!("{whole}{fraction:0<6}");
        micros.parse().map(Self).map_err(|_| MoneyError::TooMuch)
    }
}

impl fmt::Display for MicroUsd {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (whole, micros) = (self.0 / 1_000_000, self.0 % 1_000_000);
        match micros {
            0 => write!(f, "{whole} USD"),
            micros => {
                let fraction = format!("{micros:06}");
                // At least two digits, as prices are written.
                let fraction = fraction.trim_end_matches('0');
                write!(f, "{whole}.{fraction:0<2} USD")
            }
        }
    }
}

by_text!(MicroUsd);

/// The total limits of a run, or of one secret in a run; a missing value means no limit.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Budget {
    pub requests: Option<u64>,
    pub bytes: Option<ByteSize>,
    /// The maximum number of tokens of model APIs that report their token use.
    pub tokens: Option<u64>,
    pub money: Option<MicroUsd>,
}

impl Budget {
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// Returns this budget with its missing values taken from `base`.
    #[must_use]
    pub fn or(self, base: Self) -> Self {
        Self {
            requests: self.requests.or(base.requests),
            bytes: self.bytes.or(base.bytes),
            tokens: self.tokens.or(base.tokens),
            money: self.money.or(base.money),
        }
    }
}
