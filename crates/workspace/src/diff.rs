//! Shows what a box changed, for a person to read.
//!
//! The layout is git's, so that eyes and tools know it, but it is not a patch. Every byte that a box
//! could have chosen passes the one sanitiser of `belljar-model` (threat F13); colours are put around
//! the result, never taken from it. What a box wrote always stands behind one of ` +-\@`, so a line
//! that starts with `!` is ours. Files that are large or not text are summarised.

use std::io::{self, Write};

use serde::Serialize;

use crate::change::{Change, Changes, Kind, TooLong};
use crate::choice::Pick;
use crate::layers::Layers;

mod body;
mod lines;
mod text;
mod three_way;

use body::Body;
use text::Sums;
pub use three_way::three_way;

/// Whether to put colours around what is shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Colour {
    Never,
    Always,
}

/// All chosen changes in numbers, and each with its diff, as data.
#[derive(Debug, Serialize)]
pub struct Report<'c> {
    pub changed: usize,
    pub insertions: usize,
    pub deletions: usize,
    /// Entries that `apply` leaves out unless they are named.
    pub marked: usize,
    pub entries: Vec<ReportEntry<'c>>,
    pub too_long: &'c [TooLong],
}

/// One change and its diff.
#[derive(Debug, Serialize)]
pub struct ReportEntry<'c> {
    #[serde(flatten)]
    pub change: &'c Change,
    /// What to know before it is taken over, in plain words.
    pub notes: Vec<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub insertions: Option<usize>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub deletions: Option<usize>,
    /// The changed lines, safe to show.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub diff: Option<String>,
}

/// All changes that `pick` matches, as unified diffs with what a reader must know of each.
pub fn unified(layers: &Layers, changes: &Changes, pick: &Pick, colour: Colour) -> String {
    text::in_memory(|out| write_unified(layers, changes, pick, (colour, out)))
}

/// As [`unified`], one change at a time, so that a long diff needs no memory.
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

/// One line per change, and the sum. Reads no content, so it is quick.
pub fn stat(changes: &Changes, pick: &Pick, colour: Colour) -> String {
    summed_up(changes, pick, colour, |_| Body::Nothing)
}

/// As [`stat`], with the number of lines that came and went.
pub fn stat_with_lines(layers: &Layers, changes: &Changes, pick: &Pick, colour: Colour) -> String {
    summed_up(changes, pick, colour, |change| Body::load(layers, change))
}

/// All changes that `pick` matches with their diffs, as data.
pub fn report<'c>(layers: &Layers, changes: &'c Changes, pick: &Pick) -> Report<'c> {
    let mut sums = Sums::default();
    let mut entries = Vec::new();
    for change in changes.entries().iter().filter(|change| pick.matches(&change.path)) {
        let body = Body::load(layers, change);
        sums.add(change, &body);
        let lines = body.lines();
        entries.push(ReportEntry {
            change,
            notes: text::notes(change, &body),
            insertions: lines.map(|lines| lines.added),
            deletions: lines.map(|lines| lines.removed),
            diff: lines.map(text::hunks_as_string),
        });
    }
    let Sums { changed, insertions, deletions, marked } = sums;
    Report { changed, insertions, deletions, marked, entries, too_long: changes.too_long() }
}

fn summed_up(
    changes: &Changes,
    pick: &Pick,
    colour: Colour,
    load: impl Fn(&Change) -> Body,
) -> String {
    text::in_memory(|out| {
        let mut sums = Sums::default();
        for change in shown(changes, pick) {
            let body = load(change);
            text::stat_line(change, &body, colour, out)?;
            sums.add(change, &body);
        }
        text::sums(&sums, colour, out)?;
        text::too_long(changes, colour, out)
    })
}

/// What is chosen. The old place of a moved file is told with its new one.
fn shown<'c>(changes: &'c Changes, pick: &'c Pick) -> impl Iterator<Item = &'c Change> {
    let told_elsewhere = |change: &Change| {
        let to = change.moved_to.as_ref().filter(|_| change.kind == Kind::Deleted);
        to.is_some_and(|to| pick.matches(to))
    };
    let entries = changes.entries().iter();
    entries.filter(move |change| pick.matches(&change.path) && !told_elsewhere(change))
}
