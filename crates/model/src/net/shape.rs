//! The format of placeholders.

use std::fmt;
use std::str::FromStr;

use super::by_text;

/// The format of a placeholder: literal text and runs of random letters and digits (`ghp_{36}`,
/// `sk-ant-api03-{93}AA`).
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Shape(Vec<ShapePart>);

/// One part of a placeholder's format.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ShapePart {
    Literal(String),
    /// A run of this number of random characters of `[A-Za-z0-9]`.
    Random(usize),
}

/// The reason why a text is not a valid format of placeholders.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum ShapeError {
    #[error(
        "invalid braces in the placeholder format; write a number in them, for example ghp_{{36}}"
    )]
    Brace,
    #[error(
        "at least {} random characters are needed, or the placeholder could be guessed",
        Shape::MIN_RANDOM
    )]
    TooFewRandom,
    #[error("the placeholder can have at most {} characters", Shape::MAX)]
    TooLong,
    #[error(
        "invalid character; use visible ASCII without quotes, `\\`, `%`, `:`, `&`, `=`, `,` and `;`"
    )]
    Character,
}

impl Shape {
    /// The minimum number of random characters of a placeholder, about 119 bits.
    pub const MIN_RANDOM: usize = 20;
    pub const MAX: usize = 1024;

    pub fn parts(&self) -> &[ShapePart] {
        &self.0
    }

    /// Returns the length of placeholders of this format.
    pub fn len(&self) -> usize {
        self.0.iter().map(ShapePart::len).sum()
    }

    /// Returns false, since every placeholder has random characters.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl ShapePart {
    fn len(&self) -> usize {
        match self {
            Self::Literal(text) => text.len(),
            Self::Random(count) => *count,
        }
    }
}

impl Default for Shape {
    fn default() -> Self {
        Self(vec![ShapePart::Literal("bj_".to_owned()), ShapePart::Random(40)])
    }
}

impl FromStr for Shape {
    type Err = ShapeError;

    fn from_str(text: &str) -> Result<Self, ShapeError> {
        let mut parts = Vec::new();
        let mut rest = text;
        while !rest.is_empty() {
            if let Some(inside) = rest.strip_prefix('{') {
                let (digits, after) = inside.split_once('}').ok_or(ShapeError::Brace)?;
                parts.push(ShapePart::Random(count(digits)?));
                rest = after;
                continue;
            }
            let (literal, after) = rest.split_at(rest.find('{').unwrap_or(rest.len()));
            if literal.contains('}') {
                return Err(ShapeError::Brace);
            }
            if !literal.bytes().all(is_plain) {
                return Err(ShapeError::Character);
            }
            parts.push(ShapePart::Literal(literal.to_owned()));
            rest = after;
        }
        let shape = Self(parts);
        if shape.len() > Self::MAX {
            return Err(ShapeError::TooLong);
        }
        let random = |part: &ShapePart| matches!(part, ShapePart::Random(_)).then(|| part.len());
        if shape.0.iter().filter_map(random).sum::<usize>() < Self::MIN_RANDOM {
            return Err(ShapeError::TooFewRandom);
        }
        Ok(shape)
    }
}

fn count(digits: &str) -> Result<usize, ShapeError> {
    let plain = !digits.starts_with('0') && digits.bytes().all(|byte| byte.is_ascii_digit());
    if digits.is_empty() || !plain {
        return Err(ShapeError::Brace);
    }
    // Only digits are left, so the only possible failure is an overflow.
    digits.parse().ok().filter(|count| *count <= Shape::MAX).ok_or(ShapeError::TooLong)
}

/// Returns whether a byte stays unchanged in a header, a query, a JSON string and in Basic
/// credentials.
fn is_plain(byte: u8) -> bool {
    byte.is_ascii_graphic() && !b"\"'\\%:&=,;{}<>#+?".contains(&byte)
}

impl fmt::Display for Shape {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|part| match part {
            ShapePart::Literal(text) => f.write_str(text),
            ShapePart::Random(count) => write!(f, "{{{count}}}"),
        })
    }
}

by_text!(Shape);
