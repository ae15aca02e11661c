//! Decodes UTF-8 output that arrives in pieces, up to a limit.

/// Decodes one output stream of a program and truncates the text at a limit.
#[derive(Debug)]
pub(super) struct TextDecoder {
    /// An incomplete UTF-8 sequence at the end of the bytes so far.
    tail: Vec<u8>,
    /// The number of bytes until the limit is reached.
    left: u64,
    is_truncated: bool,
}

impl TextDecoder {
    pub(super) const fn new(limit: u64) -> Self {
        Self { tail: Vec::new(), left: limit, is_truncated: false }
    }

    /// Returns whether some text was dropped because of the limit.
    pub(super) const fn is_truncated(&self) -> bool {
        self.is_truncated
    }

    /// Decodes further bytes of the stream and returns all complete characters. Invalid UTF-8 becomes
    /// U+FFFD.
    pub(super) fn push(&mut self, bytes: &[u8]) -> String {
        let mut all = std::mem::take(&mut self.tail);
        all.extend_from_slice(bytes);
        let whole = match std::str::from_utf8(&all) {
            Ok(_) => all.len(),
            // Only an incomplete sequence that further bytes can complete is held back.
            Err(error) if error.error_len().is_none() => error.valid_up_to(),
            Err(_) => all.len() - incomplete_length(&all),
        };
        self.tail = all.split_off(whole);
        self.truncate(String::from_utf8_lossy(&all).into_owned())
    }

    /// Returns the remaining text after the stream has ended. An incomplete character becomes U+FFFD.
    pub(super) fn finish(&mut self) -> String {
        let tail = std::mem::take(&mut self.tail);
        self.truncate(String::from_utf8_lossy(&tail).into_owned())
    }

    /// Truncates decoded text at the limit of the stream, and counts it towards the limit.
    pub(super) fn truncate(&mut self, mut text: String) -> String {
        let left = usize::try_from(self.left).unwrap_or(usize::MAX);
        if text.len() > left {
            self.is_truncated = true;
            text.truncate(text.floor_char_boundary(left));
            self.left = 0;
        } else {
            self.left -= text.len() as u64;
        }
        text
    }
}

/// Returns the length of the incomplete UTF-8 sequence at the end of `bytes`, or 0 if there is none.
fn incomplete_length(bytes: &[u8]) -> usize {
    (1..=3.min(bytes.len()))
        .find(|&length| {
            let end = bytes.get(bytes.len() - length..).unwrap_or_default();
            std::str::from_utf8(end)
                .is_err_and(|error| error.valid_up_to() == 0 && error.error_len().is_none())
        })
        .unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_decoder_keeps_characters_that_are_split_between_two_pieces() {
        let bytes = "aä€😀z".as_bytes();
        for at in 0..=bytes.len() {
            let mut decoder = TextDecoder::new(100);
            let text = decoder.push(&bytes[..at]) + &decoder.push(&bytes[at..]) + &decoder.finish();
            assert_eq!(text, "aä€😀z", "split at {at}");
        }
    }

    #[test]
    fn d18_text_decoder_replaces_invalid_utf8_without_delaying_other_text() {
        let mut decoder = TextDecoder::new(100);
        assert_eq!(decoder.push(b"a\xff\xe2\x82"), "a\u{fffd}");
        assert_eq!(decoder.push(b"\xac!"), "\u{20ac}!");
        assert_eq!(decoder.push(b"\xf0\x9f"), "");
        assert_eq!(decoder.finish(), "\u{fffd}");
    }

    #[test]
    fn d18_text_decoder_truncates_at_the_limit_between_characters_and_reports_it() {
        let mut decoder = TextDecoder::new(4);
        assert_eq!(decoder.push("ab".as_bytes()), "ab");
        assert!(!decoder.is_truncated());
        assert_eq!(decoder.push("c€".as_bytes()), "c");
        assert!(decoder.is_truncated());
        assert_eq!(decoder.push(b"more"), "");
    }
}
