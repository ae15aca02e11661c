//! Changes to a text that move nothing, and a few that do and are remembered.

use oxc::span::Span;

/// What was put in: where in the text before, and how long it is.
pub(super) type PutIn = Vec<(u32, u32)>;

#[derive(Debug)]
pub(super) struct Edits<'s> {
    source: &'s str,
    blanks: Vec<Span>,
    /// One letter in place of another.
    letters: Vec<(u32, u8)>,
    inserts: Vec<(u32, String)>,
}

impl<'s> Edits<'s> {
    pub(super) fn new(source: &'s str) -> Self {
        Self { source, blanks: Vec::new(), letters: Vec::new(), inserts: Vec::new() }
    }

    /// Spaces in place of what is there; lines stay lines.
    pub(super) fn blank(&mut self, start: u32, end: u32) {
        if start < end {
            self.blanks.push(Span::new(start, end));
        }
    }

    /// A letter in place of one of a range that is blanked, or of a parenthesis.
    pub(super) fn letter(&mut self, at: u32, letter: u8) {
        self.letters.push((at, letter));
    }

    /// More text, without lines of its own. At one place, in the order of the calls.
    pub(super) fn insert(&mut self, at: u32, text: impl Into<String>) {
        self.inserts.push((at, text.into()));
    }

    pub(super) fn apply(mut self) -> (String, PutIn) {
        let mut bytes = self.source.as_bytes().to_vec();
        for span in &self.blanks {
            for byte in bytes.get_mut(index(span.start)..index(span.end)).unwrap_or_default() {
                if !matches!(byte, b'\n' | b'\r') {
                    *byte = b' ';
                }
            }
        }
        for &(at, letter) in &self.letters {
            if let Some(byte) = bytes.get_mut(index(at)) {
                *byte = letter;
            }
        }
        self.inserts.sort_by_key(|&(at, _)| at);
        let mut put_in = Vec::with_capacity(self.inserts.len());
        let mut code = Vec::with_capacity(bytes.len() + 64);
        let mut done = 0;
        for (at, text) in self.inserts {
            code.extend_from_slice(bytes.get(done..index(at)).unwrap_or_default());
            code.extend_from_slice(text.as_bytes());
            put_in.push((at, u32::try_from(text.len()).unwrap_or(u32::MAX)));
            done = index(at);
        }
        code.extend_from_slice(bytes.get(done..).unwrap_or_default());
        // Whole characters became spaces, and whole characters were put in.
        let code = String::from_utf8(code)
            .unwrap_or_else(|broken| String::from_utf8_lossy(broken.as_bytes()).into_owned());
        (code, put_in)
    }
}

/// A place in a text, which is no longer than the parser takes.
pub(super) fn index(at: u32) -> usize {
    usize::try_from(at).unwrap_or(usize::MAX)
}
