//! Formats changes as text for a terminal.

use std::io::{self, Write};

use belljar_model::display::{safe, safe_multiline};
use similar::ChangeTag;

use super::Colour;
use super::body::Body;
use super::lines::{Hunk, Lines};
use crate::change::{Base, Change, ChangeKind, Changes, Side};
use crate::meta::FileKind;
use crate::path::RelPath;

const BOLD: &str = "\x1b[1m";
const RED: &str = "\x1b[31m";
const GREEN: &str = "\x1b[32m";
const CYAN: &str = "\x1b[36m";
const WARN: &str = "\x1b[1;33m";

/// The maximum number of `+` and `-` characters in a line of `--stat`.
const BAR: usize = 40;

const LINE_BYTES: usize = 4096;

/// The totals of `--stat`.
#[derive(Debug, Default)]
pub(super) struct Totals {
    pub changed: usize,
    pub insertions: usize,
    pub deletions: usize,
    pub marked: usize,
}

impl Totals {
    pub(super) fn add(&mut self, change: &Change, body: &Body) {
        self.changed += 1;
        self.insertions += body.lines().map_or(0, |lines| lines.added);
        self.deletions += body.lines().map_or(0, |lines| lines.removed);
        self.marked += usize::from(change.cautions().next().is_some());
    }
}

/// Writes the diff of one change: headers, notes and lines.
pub(super) fn entry(
    change: &Change,
    body: &Body,
    colour: Colour,
    out: &mut dyn Write,
) -> io::Result<()> {
    let path = show(&change.path);
    let from = match &change.kind {
        ChangeKind::Renamed { from } => show(from),
        ChangeKind::Added
        | ChangeKind::Modified
        | ChangeKind::Deleted
        | ChangeKind::ModeChanged
        | ChangeKind::TypeChanged => path.clone(),
    };
    line(out, colour, BOLD, &format!("diff --git a/{from} b/{path}"))?;
    for header in headers(change) {
        line(out, colour, BOLD, &header)?;
    }
    for note in notes(change, body) {
        line(out, colour, WARN, &format!("! {note}"))?;
    }
    match body {
        Body::Nothing => Ok(()),
        Body::Binary => line(out, colour, "", &format!("Binary file, {}", sizes(change))),
        Body::TooLarge | Body::Missing(_) => Ok(()),
        Body::Lines(lines) => {
            let is_file =
                |side: &Option<Side>| side.as_ref().is_some_and(|side| side.kind == FileKind::File);
            let name = |there, prefix: &str| {
                if there { format!("{prefix}/{path}") } else { "/dev/null".to_owned() }
            };
            let old = name(is_file(&change.old), "a");
            let new = name(is_file(&change.new), "b");
            hunks(lines, (&old, &new), colour, out)
        }
    }
}

/// Writes the two file headers and the changed lines (hunks) of a diff.
pub(super) fn hunks(
    lines: &Lines,
    (old, new): (&str, &str),
    colour: Colour,
    out: &mut dyn Write,
) -> io::Result<()> {
    if lines.hunks.is_empty() {
        return Ok(());
    }
    line(out, colour, BOLD, &format!("--- {old}"))?;
    line(out, colour, BOLD, &format!("+++ {new}"))?;
    lines.hunks.iter().try_for_each(|hunk| write_hunk(hunk, colour, out))
}

/// Returns the changed lines (hunks) of a diff as text without color.
pub(super) fn hunks_as_string(lines: &Lines) -> String {
    in_memory(|out| lines.hunks.iter().try_for_each(|hunk| write_hunk(hunk, Colour::Never, out)))
}

/// Returns the text that the closure `write` writes.
pub(super) fn in_memory(write: impl FnOnce(&mut dyn Write) -> io::Result<()>) -> String {
    let mut out = Vec::new();
    write(&mut out).expect("writing to memory cannot fail");
    String::from_utf8(out).expect("sanitized text is UTF-8")
}

fn write_hunk(hunk: &Hunk, colour: Colour, out: &mut dyn Write) -> io::Result<()> {
    let Hunk { old_start, old_len, new_start, new_len, lines } = hunk;
    let head = format!("@@ -{old_start},{old_len} +{new_start},{new_len} @@");
    line(out, colour, CYAN, &head)?;
    for content in lines {
        let (sign, paint) = match content.tag {
            ChangeTag::Equal => (' ', ""),
            ChangeTag::Delete => ('-', RED),
            ChangeTag::Insert => ('+', GREEN),
        };
        line(out, colour, paint, &format!("{sign}{}", display_line(&content.bytes)))?;
        if content.unterminated {
            line(out, colour, "", "\\ No newline at end of file")?;
        }
    }
    Ok(())
}

/// Sanitizes a line for the terminal and cuts a very long line.
fn display_line(line: &[u8]) -> String {
    match line.get(..LINE_BYTES) {
        Some(start) if line.len() > LINE_BYTES => {
            format!("{} … ({} bytes)", safe_multiline(start), line.len())
        }
        Some(_) | None => safe_multiline(line),
    }
}

/// Returns the extended headers of git's diff format.
fn headers(change: &Change) -> Vec<String> {
    let mut headers = Vec::new();
    match (&change.kind, &change.old, &change.new) {
        (ChangeKind::Renamed { from }, _, _) => {
            headers.push(format!("rename from {}", show(from)));
            headers.push(format!("rename to {}", show(&change.path)));
        }
        (_, None, Some(new)) => headers.push(format!("new {}", describe_side(new))),
        (_, Some(old), None) => headers.push(format!("deleted {}", describe_side(old))),
        (_, Some(old), Some(new)) if old.kind != new.kind => {
            headers.push(format!("deleted {}", describe_side(old)));
            headers.push(format!("new {}", describe_side(new)));
        }
        (_, Some(old), Some(new)) => {
            if old.target != new.target {
                headers.push(format!("old link to {}", target(old)));
                headers.push(format!("new link to {}", target(new)));
            } else if old.mode != new.mode {
                headers.push(format!("old mode {}", mode(old)));
                headers.push(format!("new mode {}", mode(new)));
            }
        }
        (_, None, None) => {}
    }
    headers
}

/// Returns the warnings about a change, as text for people.
pub(super) fn notes(change: &Change, body: &Body) -> Vec<String> {
    let mut notes: Vec<String> = change
        .cautions()
        .map(|caution| {
            format!(
                "{}; apply leaves it out unless it is named with --include-executable",
                caution.message()
            )
        })
        .collect();
    if let Some(why) = change.unsupported {
        notes.push(format!("{}; apply leaves it out", why.message()));
    }
    if change.stripped != 0 {
        notes.push(format!("the mode bits {:o} are not applied", change.stripped));
    }
    if change.base == Some(Base::Unknown) {
        notes.push("you changed this file since the box started; the diff compares with your current version".into());
    }
    if let Some(to) = &change.moved_to {
        notes.push(format!("the content was moved to {}", show(to)));
    }
    match body {
        Body::TooLarge => notes.push("too large to show".into()),
        Body::Missing(why) => notes.push((*why).into()),
        Body::Nothing | Body::Lines(_) | Body::Binary => {}
    }
    notes
}

pub(super) fn conflict_header(path: &str, colour: Colour, out: &mut dyn Write) -> io::Result<()> {
    line(out, colour, BOLD, &format!("! both sides changed {path}"))
}

/// Writes the line of one change in the output of `--stat`.
pub(super) fn stat_line(
    change: &Change,
    body: &Body,
    colour: Colour,
    out: &mut dyn Write,
) -> io::Result<()> {
    let name = match &change.kind {
        ChangeKind::Renamed { from } => format!("{} => {}", show(from), show(&change.path)),
        ChangeKind::Added
        | ChangeKind::Modified
        | ChangeKind::Deleted
        | ChangeKind::ModeChanged
        | ChangeKind::TypeChanged => show(&change.path),
    };
    let letter = match change.kind {
        ChangeKind::Added => 'A',
        ChangeKind::Modified => 'M',
        ChangeKind::Deleted => 'D',
        ChangeKind::ModeChanged | ChangeKind::TypeChanged => 'T',
        ChangeKind::Renamed { .. } => 'R',
    };
    let mark = if change.cautions().next().is_some() || change.unsupported.is_some() {
        paint(colour, WARN, "! ")
    } else {
        "  ".to_owned()
    };
    let tail = match body {
        Body::Lines(lines) => bar(lines, colour),
        Body::Binary => format!(" | Bin {}", sizes(change)),
        Body::TooLarge => format!(" | {}, too large to show", sizes(change)),
        Body::Missing(why) => format!(" | {why}"),
        Body::Nothing => match headers(change).as_slice() {
            [] => format!(" | {}", sizes(change)),
            headers => format!(" | {}", headers.join(", ")),
        },
    };
    writeln!(out, "{mark}{letter} {name}{tail}")
}

pub(super) fn totals(totals: &Totals, colour: Colour, out: &mut dyn Write) -> io::Result<()> {
    let Totals { changed, insertions, deletions, marked } = totals;
    writeln!(out, "{changed} changed, {insertions} insertions(+), {deletions} deletions(-)")?;
    if *marked > 0 {
        let text = format!(
            "! {marked} marked: apply leaves them out unless they are named with --include-executable"
        );
        line(out, colour, WARN, &text)?;
    }
    Ok(())
}

pub(super) fn too_long(changes: &Changes, colour: Colour, out: &mut dyn Write) -> io::Result<()> {
    for group in changes.too_long() {
        let text = format!(
            "! {} names in {} make paths that are too long; apply leaves them out",
            group.names,
            show(&group.within)
        );
        line(out, colour, WARN, &text)?;
    }
    Ok(())
}

/// Returns the bar of `+` and `-` in a line of `--stat`, such as `12 ++++++---`.
fn bar(lines: &Lines, colour: Colour) -> String {
    let (added, removed) = (lines.added, lines.removed);
    let total = added + removed;
    let scaled = |part: usize| {
        if total <= BAR { part } else { (part * BAR).div_ceil(total) }
    };
    let plus = paint(colour, GREEN, &"+".repeat(scaled(added)));
    let minus = paint(colour, RED, &"-".repeat(scaled(removed)));
    format!(" | {total} {plus}{minus}")
}

fn sizes(change: &Change) -> String {
    let size = |side: &Option<Side>| side.as_ref().map_or(0, |side| side.size);
    format!("{} -> {} bytes", size(&change.old), size(&change.new))
}

fn describe_side(side: &Side) -> String {
    match side.kind {
        FileKind::Symlink => format!("link to {}", target(side)),
        FileKind::File
        | FileKind::Directory
        | FileKind::Fifo
        | FileKind::Socket
        | FileKind::Device => format!("{} mode {}", side.kind.noun(), mode(side)),
    }
}

fn target(side: &Side) -> String {
    side.target.as_ref().map_or_else(String::new, |target| safe(&target.0))
}

/// Returns the mode of a file in git's notation, with the file type.
fn mode(side: &Side) -> String {
    let kind = match side.kind {
        FileKind::File => "100",
        FileKind::Directory => "040",
        FileKind::Symlink => "120",
        FileKind::Fifo | FileKind::Socket | FileKind::Device => "",
    };
    format!("{kind}{:03o}", side.mode & 0o777)
}

pub(super) fn show(path: &RelPath) -> String {
    safe(path.as_bytes())
}

pub(super) fn line(out: &mut dyn Write, colour: Colour, style: &str, text: &str) -> io::Result<()> {
    writeln!(out, "{}", paint(colour, style, text))
}

/// Adds a color sequence to text that is already sanitized.
fn paint(colour: Colour, style: &str, text: &str) -> String {
    match colour {
        Colour::Always if !style.is_empty() && !text.is_empty() => format!("{style}{text}\x1b[m"),
        Colour::Always | Colour::Never => text.to_owned(),
    }
}
