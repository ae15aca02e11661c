//! Extracts scalars from a stream of JSON with little memory.
//!
//! Not a validator: it tracks strings and brackets, so that text in a string is not mistaken for a
//! field, and discards everything else. Memory is bounded by [`MAX_DEPTH`] times [`MAX_TEXT`].

/// The maximum nesting depth of a JSON document; deeper values are skipped.
const MAX_DEPTH: usize = 16;
/// The maximum length of a JSON key or value; longer ones are ignored.
const MAX_TEXT: usize = 96;

/// A scalar value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Scalar<'a> {
    Text(&'a str),
    Number(u64),
}

#[derive(Debug, Default)]
pub(super) struct Json {
    /// The current key of each open JSON object; `None` for an array.
    levels: Vec<Option<String>>,
    /// The number of open JSON objects and arrays beyond the maximum depth.
    deeper: usize,
    token: Token,
    text: Vec<u8>,
    /// Whether the current token was truncated or contains escapes.
    inexact: bool,
    expects_key: bool,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Token {
    #[default]
    None,
    String,
    /// The parser is after a backslash in a string.
    Escape,
    /// A JSON number, `true`, `false` or `null`.
    Bare,
}

impl Json {
    /// Parses the next bytes of a JSON document and reports each scalar value to `found`. Calls
    /// `found` for each scalar with its keys, joined by dots.
    pub(super) fn push(&mut self, bytes: &[u8], found: &mut impl FnMut(&str, Scalar<'_>)) {
        for &byte in bytes {
            self.step(byte, found);
        }
    }

    /// Resets the parser for a new JSON document.
    pub(super) fn reset(&mut self) {
        *self = Self::default();
    }

    fn step(&mut self, byte: u8, found: &mut impl FnMut(&str, Scalar<'_>)) {
        match (self.token, byte) {
            (Token::Escape, _) => self.token = Token::String,
            (Token::String, b'\\') => {
                self.inexact = true;
                self.token = Token::Escape;
            }
            (Token::String, b'"') => self.end_string(found),
            (Token::String, _) => self.keep(byte),
            (Token::None | Token::Bare, b'"' | b'{' | b'}' | b'[' | b']' | b',' | b':') => {
                self.end_bare(found);
                self.punctuation(byte);
            }
            (Token::None | Token::Bare, b' ' | b'\t' | b'\r' | b'\n') => self.end_bare(found),
            (Token::None, _) => {
                self.begin(Token::Bare);
                self.keep(byte);
            }
            (Token::Bare, _) => self.keep(byte),
        }
    }

    fn punctuation(&mut self, byte: u8) {
        match byte {
            b'"' => self.begin(Token::String),
            b'{' => self.open(Some(String::new())),
            b'[' => self.open(None),
            b'}' | b']' => {
                if self.deeper > 0 {
                    self.deeper -= 1;
                } else {
                    self.levels.pop();
                }
                self.expects_key = false;
            }
            b',' => self.expects_key = matches!(self.levels.last(), Some(Some(_))),
            _ => self.expects_key = false,
        }
    }

    fn open(&mut self, level: Option<String>) {
        self.expects_key = level.is_some();
        if self.deeper > 0 || self.levels.len() == MAX_DEPTH {
            self.deeper += 1;
        } else {
            self.levels.push(level);
        }
    }

    fn begin(&mut self, token: Token) {
        self.token = token;
        self.text.clear();
        self.inexact = false;
    }

    fn keep(&mut self, byte: u8) {
        if self.text.len() < MAX_TEXT {
            self.text.push(byte);
        } else {
            self.inexact = true;
        }
    }

    fn end_string(&mut self, found: &mut impl FnMut(&str, Scalar<'_>)) {
        self.token = Token::None;
        if self.deeper > 0 {
            return;
        }
        let text = std::str::from_utf8(&self.text).ok().filter(|_| !self.inexact);
        if !self.expects_key {
            if let Some(text) = text {
                found(&self.path(), Scalar::Text(text));
            }
        } else if let Some(Some(key)) = self.levels.last_mut() {
            // A key that is too long must replace the previous key.
            key.clear();
            key.push_str(text.unwrap_or("\u{fffd}"));
        }
    }

    fn end_bare(&mut self, found: &mut impl FnMut(&str, Scalar<'_>)) {
        if self.token != Token::Bare {
            return;
        }
        self.token = Token::None;
        let number = std::str::from_utf8(&self.text).ok().and_then(|text| text.parse().ok());
        if let Some(number) = number.filter(|_| self.deeper == 0 && !self.inexact) {
            found(&self.path(), Scalar::Number(number));
        }
    }

    fn path(&self) -> String {
        let keys: Vec<&str> = self.levels.iter().flatten().map(String::as_str).collect();
        keys.join(".")
    }
}
