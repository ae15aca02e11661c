//! The CPU limit of a box.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::text;

/// A number of CPUs in thousandths, never zero: `0.5` is half a CPU.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Cpus(u32);

/// The reason why a text is not a valid number of CPUs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum CpusError {
    #[error("invalid number of CPUs; write for example \"2\" or \"0.5\"")]
    Malformed,
    #[error("a number of CPUs can have at most three digits after the point")]
    TooFine,
    #[error("the number of CPUs must be greater than zero")]
    Zero,
    #[error("the number of CPUs is too large")]
    TooMany,
}

impl Cpus {
    /// Creates a CPU limit from thousandths of a CPU, or returns `None` for zero.
    pub const fn from_millis(millis: u32) -> Option<Self> {
        if millis == 0 { None } else { Some(Self(millis)) }
    }

    /// Returns a CPU limit of `n` whole CPUs, or of one CPU if `n` is zero.
    pub const fn whole(n: u16) -> Self {
        Self(if n == 0 { 1000 } else { n as u32 * 1000 })
    }

    /// Returns the CPU limit in thousandths of a CPU.
    pub const fn millis(self) -> u32 {
        self.0
    }
}

impl FromStr for Cpus {
    type Err = CpusError;

    fn from_str(text: &str) -> Result<Self, CpusError> {
        let (whole, fraction) = text.split_once('.').unwrap_or((text, "0"));
        let digits = |part: &str| !part.is_empty() && part.bytes().all(|b| b.is_ascii_digit());
        if !digits(whole) || !digits(fraction) {
            return Err(CpusError::Malformed);
        }
        let fraction = fraction.trim_end_matches('0');
        if fraction.len() > 3 {
            return Err(CpusError::TooFine);
        }
        // Only digits are left, so the only possible failure is an overflow.
        let millis: u32 =
            format!("{whole}{fraction:0<3}").parse().map_err(|_| CpusError::TooMany)?;
        Self::from_millis(millis).ok_or(CpusError::Zero)
    }
}

impl fmt::Display for Cpus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (whole, millis) = (self.0 / 1000, self.0 % 1000);
        if millis == 0 {
            return write!(f, "{whole}");
        }
        write!(f, "{whole}.{}", format!("{millis:03}").trim_end_matches('0'))
    }
}

impl Serialize for Cpus {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Cpus {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        text::parse(deserializer)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(text: &str, expect: Result<u32, CpusError>) {
        assert_eq!(text.parse::<Cpus>().map(Cpus::millis), expect, "{text}");
    }

    #[test]
    fn number_of_cpus_has_at_most_three_decimal_places() {
        check("2", Ok(2000));
        check("0.5", Ok(500));
        check("1.250", Ok(1250));
        check("0.001", Ok(1));
        check("1.5000", Ok(1500));
        for text in ["", ".", "1.", ".5", "-1", "two", "1e3", "1,5", " 2", "٣"] {
            check(text, Err(CpusError::Malformed));
        }
        check("0.0001", Err(CpusError::TooFine));
        check("0", Err(CpusError::Zero));
        check("0.000", Err(CpusError::Zero));
        check("5000000", Err(CpusError::TooMany));
    }

    proptest::proptest! {
        #[test]
        fn every_number_of_cpus_survives_a_round_trip(millis in 1_u32..) {
            proptest::prop_assert_eq!(Cpus(millis).to_string().parse(), Ok(Cpus(millis)));
        }

        #[test]
        fn cpus_parser_never_panics(text in "[0-9]{0,12}\\.?[0-9]{0,12}|.*") {
            if let Ok(cpus) = text.parse::<Cpus>() {
                proptest::prop_assert_eq!(cpus.to_string().parse(), Ok(cpus));
            }
        }
    }
}
