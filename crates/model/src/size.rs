//! Sizes in bytes, parsed from text such as `512MiB`.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::text;

/// A number of bytes, never zero: a limit of zero is nearly always a mistake for "no limit".
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ByteSize(u64);

/// The reason why a text is not a valid size.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum SizeError {
    #[error("invalid size; write for example \"512MiB\" or \"2GiB\"")]
    Malformed,
    #[error("the size must be a whole number; use a smaller unit, for example \"1536MiB\"")]
    Fraction,
    #[error("a size cannot be negative")]
    Negative,
    #[error("a size cannot be zero; write the intended size")]
    Zero,
    #[error("a size cannot be larger than 16 EiB")]
    TooLarge,
}

/// The binary units of sizes, largest first, as they are printed.
const UNITS: [(&str, u64); 4] =
    [("TiB", 1 << 40), ("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)];

impl ByteSize {
    /// The largest size, which means no limit.
    pub const MAX: Self = Self(u64::MAX);

    /// Creates a size in bytes, or returns `None` for zero.
    pub const fn new(bytes: u64) -> Option<Self> {
        if bytes == 0 { None } else { Some(Self(bytes)) }
    }

    /// Returns a size of `n` mebibytes, or of one mebibyte if `n` is zero.
    pub const fn mib(n: u32) -> Self {
        Self(if n == 0 { 1 << 20 } else { (n as u64) << 20 })
    }

    pub const fn as_u64(self) -> u64 {
        self.0
    }
}

impl FromStr for ByteSize {
    type Err = SizeError;

    fn from_str(text: &str) -> Result<Self, SizeError> {
        if text.starts_with('-') {
            return Err(SizeError::Negative);
        }
        let split = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
        let (digits, unit) = text.split_at(split);
        if digits.is_empty() {
            return Err(SizeError::Malformed);
        }
        if unit.starts_with(['.', ',']) {
            return Err(SizeError::Fraction);
        }
        let scale = scale_of(unit).ok_or(SizeError::Malformed)?;
        // Only digits are left, so the only possible failure is an overflow.
        let number: u64 = digits.parse().map_err(|_| SizeError::TooLarge)?;
        let bytes = number.checked_mul(scale).ok_or(SizeError::TooLarge)?;
        Self::new(bytes).ok_or(SizeError::Zero)
    }
}

/// Returns the factor of a unit: `K` and `KiB` are 1024, `KB` is 1000, as in `dd` and IEC 80000-13.
fn scale_of(unit: &str) -> Option<u64> {
    Some(match unit.to_ascii_lowercase().as_str() {
        "" | "b" => 1,
        "k" | "kib" => 1 << 10,
        "m" | "mib" => 1 << 20,
        "g" | "gib" => 1 << 30,
        "t" | "tib" => 1 << 40,
        "kb" => 1_000,
        "mb" => 1_000_000,
        "gb" => 1_000_000_000,
        "tb" => 1_000_000_000_000,
        _ => return None,
    })
}

impl fmt::Display for ByteSize {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match UNITS.iter().find(|(_, scale)| self.0.is_multiple_of(*scale)) {
            Some((unit, scale)) => write!(f, "{}{unit}", self.0 / scale),
            None => write!(f, "{}", self.0),
        }
    }
}

impl Serialize for ByteSize {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for ByteSize {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        text::parse(deserializer)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(text: &str, expect: Result<u64, SizeError>) {
        assert_eq!(text.parse::<ByteSize>().map(ByteSize::as_u64), expect, "{text}");
    }

    #[test]
    fn size_units_with_one_letter_or_ib_are_binary_and_units_with_b_are_decimal() {
        check("512", Ok(512));
        check("512B", Ok(512));
        check("64k", Ok(64 << 10));
        check("64KiB", Ok(64 << 10));
        check("64kB", Ok(64_000));
        check("2G", Ok(2 << 30));
        check("2g", Ok(2 << 30));
        check("2GiB", Ok(2 << 30));
        check("2GB", Ok(2_000_000_000));
        check("1T", Ok(1 << 40));
        check("18446744073709551615", Ok(u64::MAX));
    }

    #[test]
    fn invalid_size_is_refused_with_its_reason() {
        for text in ["", " ", "2 gigs", "gib", "2 GiB", "0x10", "+5", "2GiBs", "٣", "2е3", "none"]
        {
            check(text, Err(SizeError::Malformed));
        }
        check("1.5GiB", Err(SizeError::Fraction));
        check("-1", Err(SizeError::Negative));
        check("0", Err(SizeError::Zero));
        check("0GiB", Err(SizeError::Zero));
        check("18446744073709551616", Err(SizeError::TooLarge));
        check("16777216T", Err(SizeError::TooLarge));
    }

    #[test]
    fn size_is_printed_in_the_largest_exact_unit() {
        for (bytes, text) in
            [(2 << 30, "2GiB"), (1536 << 20, "1536MiB"), (1000, "1000"), (1 << 10, "1KiB")]
        {
            assert_eq!(ByteSize(bytes).to_string(), text);
        }
    }

    proptest::proptest! {
        #[test]
        fn every_size_survives_a_round_trip(bytes in 1_u64.., shift in 0_u32..40) {
            let size = ByteSize(((bytes >> shift) << shift).max(1));
            proptest::prop_assert_eq!(size.to_string().parse(), Ok(size));
        }

        #[test]
        fn size_parser_never_panics_and_never_returns_zero(text in "-?[0-9]{0,25}[ .]?[a-zA-Z]{0,4}|.*") {
            if let Ok(size) = text.parse::<ByteSize>() {
                proptest::prop_assert!(size.as_u64() > 0);
                proptest::prop_assert_eq!(size.to_string().parse(), Ok(size));
            }
        }
    }
}
