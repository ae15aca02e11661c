//! Encodes bytes as text without loss: valid UTF-8 is kept, a backslash is doubled and every other
//! byte becomes `\xNN`. Plain names stay readable, and every name survives a round trip.

use std::fmt::Write as _;

/// The error for a text with an invalid escape sequence.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("invalid escape at byte {at}: expected `\\\\` or `\\xNN` with two hexadecimal digits")]
pub struct BadEscape {
    at: usize,
}

pub(crate) fn encode(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(bytes.len());
    for chunk in bytes.utf8_chunks() {
        text.push_str(&chunk.valid().replace('\\', "\\\\"));
        for byte in chunk.invalid() {
            write!(text, "\\x{byte:02x}").expect("writing to a String cannot fail");
        }
    }
    text
}

pub(crate) fn decode(text: &str) -> Result<Vec<u8>, BadEscape> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((&first, tail)) = rest.split_first() {
        if first != b'\\' {
            bytes.push(first);
            rest = tail;
            continue;
        }
        let (byte, tail) = unescape(tail)
            .ok_or_else(|| BadEscape { at: text.len().saturating_sub(rest.len()) })?;
        bytes.push(byte);
        rest = tail;
    }
    Ok(bytes)
}

/// Decodes the escape sequence after a backslash into one byte.
fn unescape(tail: &[u8]) -> Option<(u8, &[u8])> {
    match tail.split_first()? {
        (b'\\', rest) => Some((b'\\', rest)),
        (b'x', rest) => {
            let (digits, rest) = rest.split_at_checked(2)?;
            let mut byte = [0];
            hex::decode_to_slice(digits, &mut byte).ok()?;
            Some((u8::from_be_bytes(byte), rest))
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn path_encoder_keeps_plain_names_readable() {
        assert_eq!(encode("src/größe.rs".as_bytes()), "src/größe.rs");
        assert_eq!(encode(b"a\\b\xff\n"), "a\\\\b\\xff\n");
    }

    #[test]
    fn path_decoder_refuses_an_invalid_escape() {
        for text in ["\\", "\\x", "\\x4", "\\xg0", "\\x+1", "ok\\n"] {
            assert!(decode(text).is_err(), "{text}");
        }
        assert_eq!(decode("ok\\n").unwrap_err().at, 2);
    }

    #[test]
    fn path_decoder_accepts_hexadecimal_digits_of_either_case() {
        assert_eq!(decode("\\xfF\\x00"), Ok(vec![0xff, 0]));
    }

    proptest::proptest! {
        #[test]
        fn every_byte_string_survives_encoding_and_decoding(bytes: Vec<u8>) {
            proptest::prop_assert_eq!(decode(&encode(&bytes)), Ok(bytes));
        }
    }
}
