//! Percent-encoding (RFC 3986 §2.1).

/// What never needs to be encoded.
const fn is_unreserved(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.' | b'_' | b'~')
}

/// Every byte but the unreserved ones as `%XX`, except those in `keep`.
pub(super) fn encode(bytes: &[u8], keep: &[u8], into: &mut String) {
    for byte in bytes {
        if is_unreserved(*byte) || keep.contains(byte) {
            into.push(char::from(*byte));
        } else {
            into.push_str(&format!("%{byte:02X}"));
        }
    }
}

/// What `%XX` stands for; what is no encoding stays as it is.
pub(super) fn decode(text: &[u8]) -> Vec<u8> {
    let mut decoded = Vec::with_capacity(text.len());
    let mut rest = text;
    while let Some((first, after)) = rest.split_first() {
        match (first, hex(after)) {
            (b'%', Some(byte)) => {
                decoded.push(byte);
                rest = after.get(2..).unwrap_or_default();
            }
            _ => {
                decoded.push(*first);
                rest = after;
            }
        }
    }
    decoded
}

/// The byte of two hexadecimal digits.
fn hex(text: &[u8]) -> Option<u8> {
    let digit = |at: usize| char::from(*text.get(at)?).to_digit(16);
    u8::try_from(digit(0)? * 16 + digit(1)?).ok()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn what_is_no_encoding_stays() {
        assert_eq!(decode(b"a%20b%2Fc%2fd"), b"a b/c/d");
        assert_eq!(decode(b"100%"), b"100%");
        assert_eq!(decode(b"%2%zz%+1%%41"), b"%2%zz%+1%A");
    }

    proptest! {
        #[test]
        fn what_is_encoded_is_decoded(bytes: Vec<u8>) {
            let mut text = String::new();
            encode(&bytes, b"", &mut text);
            prop_assert!(text.bytes().all(|byte| is_unreserved(byte) || byte == b'%'));
            prop_assert_eq!(decode(text.as_bytes()), bytes);
        }
    }
}
