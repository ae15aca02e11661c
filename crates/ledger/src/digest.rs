//! SHA-256 digests and the four ways in which the ledger computes them.
//!
//! Each use has its own prefix, so a digest of one kind never equals a digest of another kind.

use std::fmt;
use std::str::FromStr;

use sha2::{Digest as _, Sha256};

/// A SHA-256 digest, written as exactly 64 lower-case hexadecimal digits.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Digest([u8; Self::LENGTH]);

/// A text is not a digest.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("not a hash; a hash has 64 digits of 0-9 and a-f")]
pub struct DigestError;

impl Digest {
    pub const LENGTH: usize = 32;

    pub const fn new(bytes: [u8; Self::LENGTH]) -> Self {
        Self(bytes)
    }

    pub const fn as_bytes(&self) -> &[u8; Self::LENGTH] {
        &self.0
    }

    /// Returns the SHA-256 digest of the concatenated parts.
    pub fn of(parts: &[&[u8]]) -> Self {
        let mut hash = Sha256::new();
        for part in parts {
            hash.update(part);
        }
        Self(hash.finalize().into())
    }

    /// Returns the hash of a leaf of the Merkle tree (RFC 6962, section 2.1).
    pub fn leaf(entry: &[u8]) -> Self {
        Self::of(&[&[0], entry])
    }

    /// Returns the hash of an inner node of the Merkle tree (RFC 6962, section 2.1).
    pub fn node(left: &Self, right: &Self) -> Self {
        Self::of(&[&[1], &left.0, &right.0])
    }
}

impl fmt::Display for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&hex::encode(self.0))
    }
}

impl fmt::Debug for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Digest({self})")
    }
}

impl FromStr for Digest {
    type Err = DigestError;

    fn from_str(text: &str) -> Result<Self, DigestError> {
        // Upper case would allow a second spelling of the same digest.
        if text.bytes().any(|byte| byte.is_ascii_uppercase()) {
            return Err(DigestError);
        }
        let mut bytes = [0; Self::LENGTH];
        hex::decode_to_slice(text, &mut bytes).map_err(|_| DigestError)?;
        Ok(Self(bytes))
    }
}

impl serde::Serialize for Digest {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> serde::Deserialize<'de> for Digest {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        text.parse().map_err(serde::de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn h08_digest_parses_only_from_64_lower_case_hex_digits() {
        let text = Digest::of(&[b"x"]).to_string();
        assert_eq!(text.parse::<Digest>().map(|digest| digest.to_string()), Ok(text.clone()));
        let upper = text.to_uppercase();
        let long = format!("{text}0");
        let short = &text[1..];
        let one_upper = format!("{short}A");
        let path = format!("../{}", text.get(3..).unwrap());
        for bad in [
            "",
            "0",
            &upper,
            &one_upper,
            &long,
            short,
            &text[2..],
            &path,
            &"g".repeat(64),
            &"é".repeat(32),
        ] {
            assert_eq!(bad.parse::<Digest>(), Err(DigestError), "{bad}");
        }
    }
}
