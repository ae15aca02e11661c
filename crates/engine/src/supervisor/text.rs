//! Decodes UTF-8 that arrives in pieces, up to a limit.

/// The text of one stream of a program.
#[derive(Debug)]
pub(super) struct Text {
    /// An incomplete UTF-8 sequence at the end of the bytes so far.
    tail: Vec<u8>,
    left: u64,
    is_cut: bool,
}

impl Text {
    pub(super) const fn new(limit: u64) -> Self {
        Self { tail: Vec::new(), left: limit, is_cut: false }
    }

    pub(super) const fn is_cut(&self) -> bool {
        self.is_cut
    }

    /// Adds bytes and returns the text that is complete. Invalid UTF-8 becomes U+FFFD.
    pub(super) fn push(&mut self, bytes: &[u8]) -> String {
        let mut all = std::mem::take(&mut self.tail);
        all.extend_from_slice(bytes);
        let whole = match std::str::from_utf8(&all) {
            Ok(_) => all.len(),
            // Only a sequence that further bytes can complete is held back.
            Err(error) if error.error_len().is_none() => error.valid_up_to(),
            Err(_) => all.len() - unfinished(&all),
        };
        self.tail = all.split_off(whole);
        self.cut(String::from_utf8_lossy(&all).into_owned())
    }

    /// Returns the rest when the stream has ended.
    pub(super) fn finish(&mut self) -> String {
        let tail = std::mem::take(&mut self.tail);
        self.cut(String::from_utf8_lossy(&tail).into_owned())
    }

    /// Cuts a text at the limit.
    pub(super) fn cut(&mut self, mut text: String) -> String {
        let left = usize::try_from(self.left).unwrap_or(usize::MAX);
        if text.len() > left {
            self.is_cut = true;
            text.truncate(text.floor_char_boundary(left));
            self.left = 0;
        } else {
            self.left -= text.len() as u64;
        }
        text
    }
}

/// How many bytes at the end are the beginning of a character.
fn unfinished(bytes: &[u8]) -> usize {
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
    fn characters_survive_wherever_the_bytes_are_cut() {
        let bytes = "aä€😀z".as_bytes();
        for at in 0..=bytes.len() {
            let mut text = Text::new(100);
            let shown = text.push(&bytes[..at]) + &text.push(&bytes[at..]) + &text.finish();
            assert_eq!(shown, "aä€😀z", "cut at {at}");
        }
    }

    #[test]
    fn d18_what_is_no_utf8_is_shown_as_such_and_holds_nothing_up() {
        let mut text = Text::new(100);
        assert_eq!(text.push(b"a\xff\xe2\x82"), "a\u{fffd}");
        assert_eq!(text.push(b"\xac!"), "\u{20ac}!");
        assert_eq!(text.push(b"\xf0\x9f"), "");
        assert_eq!(text.finish(), "\u{fffd}");
    }

    #[test]
    fn d18_a_stream_is_cut_at_its_limit_between_characters_and_says_so() {
        let mut text = Text::new(4);
        assert_eq!(text.push("ab".as_bytes()), "ab");
        assert!(!text.is_cut());
        assert_eq!(text.push("c€".as_bytes()), "c");
        assert!(text.is_cut());
        assert_eq!(text.push(b"more"), "");
    }
}
