//! The two names of a run: the id from Belljar and the optional name from the user.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::text;

/// The id of one run: its start time and 32 random bits, so ids sort by time and do not collide.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RunId(u128);

/// The reason why a text is not a valid run id.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("invalid run id; a run id has 16 digits or lower-case letters, without i, l, o and u")]
pub struct RunIdError;

/// The digits of Crockford's base32, which has no letter that looks like a digit.
const ALPHABET: &[u8; 32] = b"0123456789abcdefghjkmnpqrstvwxyz";
const LENGTH: usize = 16; // 80 bits, 5 per character
const MAX_MILLIS: u64 = (1 << 48) - 1; // until the year 10889

impl RunId {
    /// Creates a run id from milliseconds since the Unix epoch, capped at 48 bits, and random bits.
    pub const fn new(millis: u64, random: u32) -> Self {
        let millis = if millis > MAX_MILLIS { MAX_MILLIS } else { millis };
        Self(((millis as u128) << 32) | random as u128)
    }

    /// Returns the start time of the run, in milliseconds since the Unix epoch.
    pub fn millis(self) -> u64 {
        u64::try_from(self.0 >> 32).unwrap_or(MAX_MILLIS)
    }
}

impl fmt::Display for RunId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text: String = (0..LENGTH)
            .rev()
            .filter_map(|place| ALPHABET.get(usize::try_from((self.0 >> (5 * place)) & 31).ok()?))
            .map(|byte| char::from(*byte))
            .collect();
        f.pad(&text)
    }
}

impl fmt::Debug for RunId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "RunId({self})")
    }
}

impl FromStr for RunId {
    type Err = RunIdError;

    fn from_str(text: &str) -> Result<Self, RunIdError> {
        if text.len() != LENGTH {
            return Err(RunIdError);
        }
        let mut bits = 0_u128;
        for byte in text.bytes() {
            let digit = ALPHABET.iter().position(|known| *known == byte).ok_or(RunIdError)?;
            bits = (bits << 5) | digit as u128;
        }
        Ok(Self(bits))
    }
}

impl Serialize for RunId {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for RunId {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        text::parse(deserializer)
    }
}

/// A user's name for a run or a template; safe as a file name and as a command-line argument.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RunName(String);

/// The reason why a text is not a valid name of a run or template.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NameError {
    #[error(
        "invalid name; use 1 to 63 characters of a-z, 0-9, `-`, `_` and `.`, and start with a letter or digit"
    )]
    Malformed,
    #[error("invalid name: it has the form of a run id; choose another name")]
    LooksLikeId,
}

const MAX_NAME: usize = 63; // as a DNS label and a host name

impl RunName {
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromStr for RunName {
    type Err = NameError;

    fn from_str(text: &str) -> Result<Self, NameError> {
        let plain = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
        let first = text.bytes().next().is_some_and(plain);
        let rest = text.bytes().all(|byte| plain(byte) || b"-_.".contains(&byte));
        if !first || !rest || text.len() > MAX_NAME {
            return Err(NameError::Malformed);
        }
        if text.parse::<RunId>().is_ok() {
            return Err(NameError::LooksLikeId);
        }
        Ok(Self(text.to_owned()))
    }
}

impl fmt::Display for RunName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.0)
    }
}

impl Serialize for RunName {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&self.0)
    }
}

impl<'de> Deserialize<'de> for RunName {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        text::parse(deserializer)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn run_ids_are_sixteen_characters_that_sort_by_time() {
        let (early, late) =
            (RunId::new(1_700_000_000_000, u32::MAX), RunId::new(1_700_000_000_001, 0));
        assert!(early < late && early.to_string() < late.to_string());
        assert_eq!(early.millis(), 1_700_000_000_000);
        assert_eq!(RunId::new(0, 0).to_string(), "0000000000000000");
        assert_eq!(RunId::new(u64::MAX, u32::MAX).to_string(), "zzzzzzzzzzzzzzzz");
        assert_eq!(format!("{:?}", RunId::new(0, 31)), "RunId(000000000000000z)");
    }

    #[test]
    fn run_id_in_another_spelling_is_refused() {
        for text in [
            "",
            "0",
            "000000000000000Z",
            "000000000000000i",
            "000000000000000",
            "00000000000000000",
            "../../../etc/pas",
            "000000000000000\u{0}",
        ] {
            assert_eq!(text.parse::<RunId>(), Err(RunIdError), "{text}");
        }
    }

    #[test]
    fn run_names_are_safe_as_file_names_and_arguments() {
        for text in ["a", "build-1", "v1.2_x", &"a".repeat(63)] {
            assert_eq!(text.parse::<RunName>().unwrap().as_str(), text);
        }
        for text in
            ["", "-rf", ".", "..", ".a", "_a", "A", "a b", "a/b", "é", "a\u{1b}", &"a".repeat(64)]
        {
            assert_eq!(text.parse::<RunName>(), Err(NameError::Malformed), "{text}");
        }
        assert_eq!("0123456789abcdef".parse::<RunName>(), Err(NameError::LooksLikeId));
    }

    #[test]
    fn run_ids_and_names_are_strings_in_json() {
        let id = RunId::new(1, 2);
        assert_eq!(serde_json::to_string(&id).unwrap(), format!("\"{id}\""));
        assert_eq!(serde_json::from_str::<RunId>(&format!("\"{id}\"")).unwrap(), id);
        assert!(serde_json::from_str::<RunName>("\"-x\"").is_err());
    }

    proptest::proptest! {
        #[test]
        fn every_run_id_survives_a_round_trip(millis in 0_u64..=MAX_MILLIS, random: u32) {
            let id = RunId::new(millis, random);
            proptest::prop_assert_eq!(id.to_string().parse(), Ok(id));
            proptest::prop_assert_eq!(id.millis(), millis);
        }

        #[test]
        fn run_id_and_name_parsers_never_panic(text in "[0-9a-z]{16}|.{0,70}") {
            if let Ok(id) = text.parse::<RunId>() {
                proptest::prop_assert_eq!(id.to_string(), &text[..]);
            }
            if let Ok(name) = text.parse::<RunName>() {
                proptest::prop_assert_eq!(name.as_str(), &text[..]);
            }
        }
    }
}
