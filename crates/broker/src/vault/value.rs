//! The value of a secret, from the moment it is typed until it is wiped.
//!
//! Never printed, never serialised; read only inside this crate. What would break a header, or is so
//! short that scrubbing it would say more than it hides, is no value.

use std::fmt;

use belljar_model::net::SecretKind;
use zeroize::Zeroizing;

use super::sign::sigv4::Keys;

/// Shorter ones could be guessed through the scrubber, and would be found in ordinary text.
pub const MIN_VALUE: usize = 8;
/// Far above any real one.
pub const MAX_VALUE: usize = 64 << 10;

/// The value of a secret. Wiped when dropped.
pub struct Value(Zeroizing<Vec<u8>>);

/// Why bytes are no value. Says nothing about them but what is wrong.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum ValueError {
    #[error("the value is empty")]
    Empty,
    #[error(
        "the value has fewer than {MIN_VALUE} bytes; so short a text can be guessed, and appears by chance in answers"
    )]
    TooShort,
    #[error("the value has more than {} KiB", MAX_VALUE >> 10)]
    TooLong,
    #[error("the value has a line break or another control character inside; it must be one line")]
    Control,
    #[error("the value begins or ends with a blank")]
    Blank,
}

/// Why a value does not fit what its secret is declared as.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum KindError {
    #[error(
        "`kind = \"sigv4\"` needs a pair of keys, written ID:SECRET or ID:SECRET:SESSION-TOKEN"
    )]
    SigV4,
}

impl Value {
    /// Takes what was read, without the line break that ends it.
    pub fn new(mut bytes: Zeroizing<Vec<u8>>) -> Result<Self, ValueError> {
        if bytes.last() == Some(&b'\n') {
            bytes.pop();
            if bytes.last() == Some(&b'\r') {
                bytes.pop();
            }
        }
        let is_blank = |byte: Option<&u8>| matches!(byte, Some(b' ' | b'\t'));
        match bytes.len() {
            0 => Err(ValueError::Empty),
            length if length > MAX_VALUE => Err(ValueError::TooLong),
            _ if bytes.iter().any(|byte| byte.is_ascii_control()) => Err(ValueError::Control),
            length if length < MIN_VALUE => Err(ValueError::TooShort),
            _ if is_blank(bytes.first()) || is_blank(bytes.last()) => Err(ValueError::Blank),
            _ => Ok(Self(bytes)),
        }
    }

    /// Whether it can be what its secret is declared as.
    pub fn check(&self, kind: &SecretKind) -> Result<(), KindError> {
        match kind {
            SecretKind::SigV4 { .. } if Keys::parse(self).is_none() => Err(KindError::SigV4),
            SecretKind::SigV4 { .. }
            | SecretKind::Token
            | SecretKind::Hmac { .. }
            | SecretKind::OAuth2 { .. } => Ok(()),
        }
    }

    /// The bytes, for those who seal, inject and scrub.
    pub(crate) fn expose(&self) -> &[u8] {
        &self.0
    }
}

impl fmt::Debug for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Value(..)")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn value(bytes: &[u8]) -> Result<Vec<u8>, ValueError> {
        Value::new(Zeroizing::new(bytes.to_vec())).map(|value| value.expose().to_vec())
    }

    #[test]
    fn one_line_break_at_the_end_is_not_part_of_it() {
        for end in ["", "\n", "\r\n"] {
            assert_eq!(value(format!("canary-1234{end}").as_bytes()).unwrap(), b"canary-1234");
        }
        assert_eq!(value(b"canary-1234\n\n"), Err(ValueError::Control));
    }

    #[test]
    fn what_could_break_out_of_a_header_is_no_value() {
        for byte in (0..0x20).chain([0x7f]) {
            let bytes = [b"canary".as_slice(), &[byte], b"1234"].concat();
            assert_eq!(value(&bytes), Err(ValueError::Control), "{byte:#x}");
        }
        assert_eq!(value("schl\u{fc}ssel-1".as_bytes()).unwrap(), "schl\u{fc}ssel-1".as_bytes());
    }

    #[test]
    fn too_little_and_too_much_are_refused() {
        assert_eq!(value(b""), Err(ValueError::Empty));
        assert_eq!(value(b"\n"), Err(ValueError::Empty));
        assert_eq!(value(b"1234567"), Err(ValueError::TooShort));
        assert!(value(b"12345678").is_ok());
        assert!(value(&[b'a'; MAX_VALUE]).is_ok());
        assert_eq!(value(&[b'a'; MAX_VALUE + 1]), Err(ValueError::TooLong));
        assert_eq!(value(b" 12345678"), Err(ValueError::Blank));
        assert_eq!(value(b"12345678 "), Err(ValueError::Blank));
    }

    #[test]
    fn b16_a_value_is_not_printed() {
        let value = Value::new(Zeroizing::new(b"canary-1234".to_vec())).unwrap();
        assert_eq!(format!("{value:?}"), "Value(..)");
    }
}
