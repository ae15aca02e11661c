//! Edits of a source text: blanks that keep all positions, and recorded insertions.

use oxc::span::Span;

/// The insertions into a source text: offset in the original and length of each.
pub(super) type Insertions = Vec<(u32, u32)>;

/// A set of edits of one source text.
#[derive(Debug)]
pub(super) struct Edits<'s> {
    source: &'s str,
    blanks: Vec<Span>,
    /// The replacements of single characters: offset and new character.
    letters: Vec<(u32, u8)>,
    inserts: Vec<(u32, String)>,
}

impl<'s> Edits<'s> {
    pub(super) fn new(source: &'s str) -> Self {
        Self { source, blanks: Vec::new(), letters: Vec::new(), inserts: Vec::new() }
    }

    /// Adds an edit that replaces a range with spaces and keeps its line breaks.
    pub(super) fn blank(&mut self, start: u32, end: u32) {
        if start < end {
            self.blanks.push(Span::new(start, end));
        }
    }

    /// Adds an edit that replaces one ASCII character, for example in a blanked range.
    pub(super) fn letter(&mut self, at: u32, letter: u8) {
        self.letters.push((at, letter));
    }

    /// Adds an edit that inserts text without line breaks. Insertions at one offset keep the order
    /// of the calls.
    pub(super) fn insert(&mut self, at: u32, text: impl Into<String>) {
        self.inserts.push((at, text.into()));
    }

    /// Applies all edits to the source text and returns the new text and its insertions.
    pub(super) fn apply(mut self) -> (String, Insertions) {
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
        let mut insertions = Vec::with_capacity(self.inserts.len());
        let mut code = Vec::with_capacity(bytes.len() + 64);
        let mut done = 0;
        for (at, text) in self.inserts {
            code.extend_from_slice(bytes.get(done..index(at)).unwrap_or_default());
            code.extend_from_slice(text.as_bytes());
            insertions.push((at, u32::try_from(text.len()).unwrap_or(u32::MAX)));
            done = index(at);
        }
        code.extend_from_slice(bytes.get(done..).unwrap_or_default());
        // Always valid UTF-8: blanks and insertions cover whole characters.
        let code = String::from_utf8(code)
            .unwrap_or_else(|broken| String::from_utf8_lossy(broken.as_bytes()).into_owned());
        (code, insertions)
    }
}

/// Converts a byte offset of the parser to an index.
pub(super) fn index(at: u32) -> usize {
    usize::try_from(at).unwrap_or(usize::MAX)
}
