//! The value of a secret, from input until it is wiped.
//!
//! A value is never printed or serialized, and only this crate reads it. Texts that would break a
//! header are refused, and so are short ones, because scrubbing them would reveal more than it
//! hides.

use std::fmt;

use belljar_model::net::SecretKind;
use zeroize::Zeroizing;

use super::sign::sigv4::Keys;

/// The minimum length of a secret value; shorter values could be guessed through the scrubber, and
/// appear in ordinary text.
pub const MIN_VALUE: usize = 8;
/// The maximum length of a secret value, far above any real value.
pub const MAX_VALUE: usize = 64 << 10;

/// The value of a secret. Wiped when dropped.
pub struct Value(Zeroizing<Vec<u8>>);

/// The reason why bytes are not a valid secret value. Contains nothing of the bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum ValueError {
    #[error("the value of the secret is empty")]
    Empty,
    #[error(
        "the value has fewer than {MIN_VALUE} bytes; such a short text can be guessed, and appears in responses by chance"
    )]
    TooShort,
    #[error("the value of the secret is longer than {} KiB", MAX_VALUE >> 10)]
    TooLong,
    #[error(
        "the value contains a line break or another control character; it must be a single line"
    )]
    Control,
    #[error("the value of the secret starts or ends with whitespace")]
    Blank,
}

/// The reason why a value does not fit the declared kind of its secret.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum KindError {
    #[error(
        "`kind = \"sigv4\"` needs a pair of keys, written ID:SECRET or ID:SECRET:SESSION-TOKEN"
    )]
    SigV4,
}

impl Value {
    /// Creates a secret value from input, without the line break at its end.
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

    /// Returns an error if the value does not fit the declared kind of its secret.
    pub fn check(&self, kind: &SecretKind) -> Result<(), KindError> {
        match kind {
            SecretKind::SigV4 { .. } if Keys::parse(self).is_none() => Err(KindError::SigV4),
            SecretKind::SigV4 { .. }
            | SecretKind::Token
            | SecretKind::Hmac { .. }
            | SecretKind::OAuth2 { .. } => Ok(()),
        }
    }

    /// Returns the bytes of the secret value, for encryption, insertion and scrubbing.
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
    fn secret_value_excludes_one_line_break_at_the_end() {
        for end in ["", "\n", "\r\n"] {
            assert_eq!(value(format!("canary-1234{end}").as_bytes()).unwrap(), b"canary-1234");
        }
        assert_eq!(value(b"canary-1234\n\n"), Err(ValueError::Control));
    }

    #[test]
    fn secret_value_with_control_characters_is_refused() {
        for byte in (0..0x20).chain([0x7f]) {
            let bytes = [b"canary".as_slice(), &[byte], b"1234"].concat();
            assert_eq!(value(&bytes), Err(ValueError::Control), "{byte:#x}");
        }
        assert_eq!(value("schl\u{fc}ssel-1".as_bytes()).unwrap(), "schl\u{fc}ssel-1".as_bytes());
    }

    #[test]
    fn secret_value_that_is_too_short_or_too_long_is_refused() {
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
    fn b16_debug_output_does_not_contain_the_secret_value() {
        let value = Value::new(Zeroizing::new(b"canary-1234".to_vec())).unwrap();
        assert_eq!(format!("{value:?}"), "Value(..)");
    }
}
