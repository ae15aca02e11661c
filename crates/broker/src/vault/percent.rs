//! Percent-encoding (RFC 3986 §2.1).

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, percent_decode, percent_encode};

/// The bytes that must be percent-encoded: all except the unreserved ones (RFC 3986 §2.3).
pub(super) const RESERVED: &AsciiSet =
    &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~');

/// The bytes that must be percent-encoded in a whole path: all except the unreserved ones and the
/// slash.
pub(super) const RESERVED_IN_PATH: &AsciiSet = &RESERVED.remove(b'/');

/// Appends bytes to a text, with those of the set encoded as `%XX`.
pub(super) fn encode(bytes: &[u8], set: &'static AsciiSet, into: &mut String) {
    into.extend(percent_encode(bytes, set));
}

/// Decodes each `%XX`. Keeps everything that is not a valid escape.
pub(super) fn decode(text: &[u8]) -> Vec<u8> {
    percent_decode(text).collect()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn percent_decode_keeps_invalid_escapes() {
        assert_eq!(decode(b"a%20b%2Fc%2fd"), b"a b/c/d");
        assert_eq!(decode(b"100%"), b"100%");
        assert_eq!(decode(b"100%4"), b"100%4");
        assert_eq!(decode(b"%2%zz%+1%%41"), b"%2%zz%+1%A");
        assert_eq!(decode(b"a+b%c3%FF"), b"a+b\xc3\xff");
    }

    #[test]
    fn percent_encode_escapes_all_reserved_bytes_in_upper_case() {
        let encoded = |set| {
            let mut text = String::new();
            encode(b"aZ09-._~/ *+%\0\x7f\xff", set, &mut text);
            text
        };
        assert_eq!(encoded(RESERVED), "aZ09-._~%2F%20%2A%2B%25%00%7F%FF");
        assert_eq!(encoded(RESERVED_IN_PATH), "aZ09-._~/%20%2A%2B%25%00%7F%FF");
    }

    proptest! {
        #[test]
        fn percent_decode_reverses_encode(bytes: Vec<u8>) {
            let mut text = String::new();
            encode(&bytes, RESERVED, &mut text);
            prop_assert!(text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-._~%".contains(&byte)));
            prop_assert_eq!(decode(text.as_bytes()), bytes);
        }
    }
}
