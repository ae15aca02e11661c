//! Formats the changes of a box for people.
//!
//! The layout follows `git diff`, but the output is not a patch. Every byte that a box could have
//! chosen passes the sanitizer of `belljar-model` (threat F13); colors are added around the
//! sanitized text. A line with content of a box always starts with one of ` +-\@`, so a line that
//! starts with `!` comes from Belljar. Large and binary files are summarized.

use std::io::{self, Write};

use serde::Serialize;

use crate::change::{Change, ChangeKind, Changes, TooLong};
use crate::choice::Pick;
use crate::layers::Layers;

mod body;
mod hunks;
mod lines;
mod text;
mod three_way;

use body::Body;
pub use hunks::{FileHunk, FileHunks, HunkError, HunkLine, LineKind, choose_hunks, hunks};
use text::Totals;
pub use three_way::three_way;

/// Whether the output contains color sequences.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Colour {
    Never,
    Always,
}

/// The selected changes with counts and diffs, for JSON output.
#[derive(Debug, Serialize)]
pub struct DiffReport<'c> {
    pub changed: usize,
    pub insertions: usize,
    pub deletions: usize,
    /// The number of changes that `apply` skips unless they are named.
    pub marked: usize,
    pub entries: Vec<DiffReportEntry<'c>>,
    pub too_long: &'c [TooLong],
}

/// One change of a run with its diff and notes.
#[derive(Debug, Serialize)]
pub struct DiffReportEntry<'c> {
    #[serde(flatten)]
    pub change: &'c Change,
    /// Warnings about the change, as text for people.
    pub notes: Vec<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub insertions: Option<usize>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub deletions: Option<usize>,
    /// The diff of the changed lines, sanitized for a terminal.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub diff: Option<String>,
}

/// Returns the changes that `pick` matches as unified diffs with warnings.
pub fn unified(layers: &Layers, changes: &Changes, pick: &Pick, colour: Colour) -> String {
    text::in_memory(|out| write_unified(layers, changes, pick, (colour, out)))
}

/// Writes the output of [`unified`] one change at a time, so that memory use stays small.
pub fn write_unified(
    layers: &Layers,
    changes: &Changes,
    pick: &Pick,
    (colour, out): (Colour, &mut dyn Write),
) -> io::Result<()> {
    for change in shown(changes, pick) {
        text::entry(change, &Body::load(layers, change), colour, out)?;
    }
    text::too_long(changes, colour, out)
}

/// Returns one line of text per change and a total, as `--stat` shows. Reads no file content, so it
/// is fast.
pub fn stat(changes: &Changes, pick: &Pick, colour: Colour) -> String {
    stat_text(changes, pick, colour, |_| Body::Nothing)
}

/// Returns the output of [`stat`] with the numbers of added and removed lines.
pub fn stat_with_lines(layers: &Layers, changes: &Changes, pick: &Pick, colour: Colour) -> String {
    stat_text(changes, pick, colour, |change| Body::load(layers, change))
}

/// Returns the changes that `pick` matches with their diffs, for JSON output.
pub fn report<'c>(layers: &Layers, changes: &'c Changes, pick: &Pick) -> DiffReport<'c> {
    let mut totals = Totals::default();
    let mut entries = Vec::new();
    for change in changes.entries().iter().filter(|change| pick.matches(&change.path)) {
        let body = Body::load(layers, change);
        totals.add(change, &body);
        let lines = body.lines();
        entries.push(DiffReportEntry {
            change,
            notes: text::notes(change, &body),
            insertions: lines.map(|lines| lines.added),
            deletions: lines.map(|lines| lines.removed),
            diff: lines.map(text::hunks_as_string),
        });
    }
    let Totals { changed, insertions, deletions, marked } = totals;
    DiffReport { changed, insertions, deletions, marked, entries, too_long: changes.too_long() }
}

fn stat_text(
    changes: &Changes,
    pick: &Pick,
    colour: Colour,
    load: impl Fn(&Change) -> Body,
) -> String {
    text::in_memory(|out| {
        let mut totals = Totals::default();
        for change in shown(changes, pick) {
            let body = load(change);
            text::stat_line(change, &body, colour, out)?;
            totals.add(change, &body);
        }
        text::totals(&totals, colour, out)?;
        text::too_long(changes, colour, out)
    })
}

/// Returns the changes that `pick` matches. The old path of a moved file is shown with its new
/// path.
fn shown<'c>(changes: &'c Changes, pick: &'c Pick) -> impl Iterator<Item = &'c Change> {
    let shown_with_rename = |change: &Change| {
        let to = change.moved_to.as_ref().filter(|_| change.kind == ChangeKind::Deleted);
        to.is_some_and(|to| pick.matches(to))
    };
    let entries = changes.entries().iter();
    entries.filter(move |change| pick.matches(&change.path) && !shown_with_rename(change))
}
