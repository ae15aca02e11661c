//! Reads scalars out of JSON as it flows by, keeping next to nothing.
//!
//! Not a validator: it follows strings and brackets, so that text which looks like a field is not
//! one, and forgets everything else. Memory is bounded by [`MAX_DEPTH`] times [`MAX_TEXT`].

/// What is nested deeper is skipped.
const MAX_DEPTH: usize = 16;
/// Longer keys and values are nothing that is looked for.
const MAX_TEXT: usize = 96;

/// A value at the end of a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Scalar<'a> {
    Text(&'a str),
    Number(u64),
}

#[derive(Debug, Default)]
pub(super) struct Json {
    /// The key in each open object; none for an array.
    levels: Vec<Option<String>>,
    /// How many levels are open beyond those.
    deeper: usize,
    token: Token,
    text: Vec<u8>,
    /// The token was longer than is kept, or has escapes in it.
    inexact: bool,
    expects_key: bool,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Token {
    #[default]
    None,
    String,
    /// The byte after a backslash.
    Escape,
    /// A number, `true`, `false` or `null`.
    Bare,
}

impl Json {
    /// Follows the next bytes; calls `found` with the keys on the way, joined by dots, and the value.
    pub(super) fn push(&mut self, bytes: &[u8], found: &mut impl FnMut(&str, Scalar<'_>)) {
        for &byte in bytes {
            self.step(byte, found);
        }
    }

    /// Forgets what was open.
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
            // A key that is not kept must not leave the one before it standing.
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
