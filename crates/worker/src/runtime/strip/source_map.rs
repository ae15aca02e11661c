//! Maps positions in the running code to positions in the original source.
//!
//! QuickJS counts columns in bytes, but editors count them in UTF-16 code units.

use super::edits::{Insertions, index};

/// The map from running code to one original source text.
#[derive(Debug)]
pub struct SourceMap {
    source: String,
    insertions: Insertions,
    lowered: Option<Lowered>,
}

/// JavaScript code that was rewritten, with pairs of new and original positions.
///
/// The pairs are sorted. Lines and columns count from zero, columns in UTF-16 code units.
#[derive(Debug)]
pub(super) struct Lowered {
    pub(super) code: String,
    pub(super) tokens: Vec<((u32, u32), (u32, u32))>,
}

impl SourceMap {
    pub(super) fn new(source: &str, insertions: Insertions) -> Self {
        Self { source: source.to_owned(), insertions, lowered: None }
    }

    pub(super) fn lowered(source: &str, insertions: Insertions, lowered: Lowered) -> Self {
        Self { source: source.to_owned(), insertions, lowered: Some(lowered) }
    }

    /// Returns the original line and column of a position in the running code.
    ///
    /// Lines and columns count from one. Returns `None` for text that was appended at the end.
    pub fn origin(&self, line: u32, column: u32) -> Option<(u32, u32)> {
        let before = self.lowered.as_ref().map_or(self.source.as_str(), |lowered| &lowered.code);
        line_text(before, line)?;
        let column = remove_insertions(before, &self.insertions, line, column);
        let (line, column) = (line.saturating_sub(1), utf16_column(before, line, column));
        let (line, column) = self.lowered.as_ref().map_or((line, column), |lowered| {
            let behind = lowered.tokens.partition_point(|&(to, _)| to <= (line, column));
            let token = behind.checked_sub(1).and_then(|at| lowered.tokens.get(at));
            token.map_or((line, column), |&(_, from)| from)
        });
        Some((line + 1, column + 1))
    }

    /// Returns the text of a line of the original source.
    pub fn line(&self, line: u32) -> Option<&str> {
        line_text(&self.source, line)
    }
}

/// Returns the line and column of a byte offset, counted from one.
pub(super) fn position(source: &str, offset: u32) -> (u32, u32) {
    let before = source.get(..index(offset)).unwrap_or(source);
    let line = before.bytes().filter(|&byte| byte == b'\n').count();
    let start = before.rfind('\n').map_or(0, |at| at + 1);
    let column = before.get(start..).unwrap_or_default().encode_utf16().count();
    (number(line) + 1, number(column) + 1)
}

/// Returns the text of a line, counted from one.
pub(super) fn line_text(source: &str, line: u32) -> Option<&str> {
    source.lines().nth(index(line.checked_sub(1)?))
}

/// Returns the original byte column of a position, without inserted text, counted from zero.
fn remove_insertions(before: &str, insertions: &Insertions, line: u32, column: u32) -> u32 {
    let mut column = column.saturating_sub(1);
    if insertions.is_empty() {
        return column;
    }
    let Some(start) = start_of(before, line) else { return column };
    let length = number(line_text(before, line).map_or(0, str::len));
    for &(at, width) in insertions {
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

/// Converts a byte column to a column in UTF-16 code units.
fn utf16_column(source: &str, line: u32, column: u32) -> u32 {
    let Some(text) = line_text(source, line) else { return column };
    let end = text.floor_char_boundary(index(column).min(text.len()));
    number(text.get(..end).unwrap_or(text).encode_utf16().count())
}

fn number(count: usize) -> u32 {
    u32::try_from(count).unwrap_or(u32::MAX)
}
