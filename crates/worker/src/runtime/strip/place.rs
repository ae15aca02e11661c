//! The way back from a position in what runs to the position in what was written.
//!
//! The engine counts columns in bytes, people and editors count them in units of UTF-16.

use super::edits::{PutIn, index};

/// Where things were.
#[derive(Debug)]
pub struct Places {
    source: String,
    put_in: PutIn,
    lowered: Option<Lowered>,
}

/// A text that was rewritten: the text, and which of its places came from where. In order; lines and
/// columns from nought, columns in units of UTF-16.
#[derive(Debug)]
pub(super) struct Lowered {
    pub(super) code: String,
    pub(super) tokens: Vec<((u32, u32), (u32, u32))>,
}

impl Places {
    pub(super) fn new(source: &str, put_in: PutIn) -> Self {
        Self { source: source.to_owned(), put_in, lowered: None }
    }

    pub(super) fn lowered(source: &str, put_in: PutIn, lowered: Lowered) -> Self {
        Self { source: source.to_owned(), put_in, lowered: Some(lowered) }
    }

    /// Line and column as the user counts them, from the engine's; both from one. None for what was
    /// put behind the end.
    pub fn origin(&self, line: u32, column: u32) -> Option<(u32, u32)> {
        let before = self.lowered.as_ref().map_or(self.source.as_str(), |lowered| &lowered.code);
        text(before, line)?;
        let column = undo(before, &self.put_in, line, column);
        let (line, column) = (line.saturating_sub(1), units(before, line, column));
        let (line, column) = self.lowered.as_ref().map_or((line, column), |lowered| {
            let behind = lowered.tokens.partition_point(|&(to, _)| to <= (line, column));
            let token = behind.checked_sub(1).and_then(|at| lowered.tokens.get(at));
            token.map_or((line, column), |&(_, from)| from)
        });
        Some((line + 1, column + 1))
    }

    /// The text of a line that the user wrote.
    pub fn line(&self, line: u32) -> Option<&str> {
        text(&self.source, line)
    }
}

/// The line and column of a place in a text, both from one.
pub(super) fn place(source: &str, offset: u32) -> (u32, u32) {
    let before = source.get(..index(offset)).unwrap_or(source);
    let line = before.bytes().filter(|&byte| byte == b'\n').count();
    let start = before.rfind('\n').map_or(0, |at| at + 1);
    let column = before.get(start..).unwrap_or_default().encode_utf16().count();
    (number(line) + 1, number(column) + 1)
}

pub(super) fn text(source: &str, line: u32) -> Option<&str> {
    source.lines().nth(index(line.checked_sub(1)?))
}

/// The column in bytes, from nought, before anything was put into its line.
fn undo(before: &str, put_in: &PutIn, line: u32, column: u32) -> u32 {
    let mut column = column.saturating_sub(1);
    if put_in.is_empty() {
        return column;
    }
    let Some(start) = start_of(before, line) else { return column };
    let length = number(text(before, line).map_or(0, str::len));
    for &(at, width) in put_in {
        let Some(at) = at.checked_sub(start).filter(|at| *at <= length) else { continue };
        if column <= at {
            break;
        }
        column = at.max(column.saturating_sub(width));
    }
    column
}

fn start_of(source: &str, line: u32) -> Option<u32> {
    let mut start = 0;
    for _ in 1..line {
        start += source.get(start..)?.find('\n')? + 1;
    }
    u32::try_from(start).ok()
}

/// A column in bytes as units of UTF-16.
fn units(source: &str, line: u32, column: u32) -> u32 {
    let Some(text) = text(source, line) else { return column };
    let end = text.floor_char_boundary(index(column).min(text.len()));
    number(text.get(..end).unwrap_or(text).encode_utf16().count())
}

fn number(count: usize) -> u32 {
    u32::try_from(count).unwrap_or(u32::MAX)
}
