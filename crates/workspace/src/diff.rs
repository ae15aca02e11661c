//! Shows what a box changed, for a person to read.
//!
//! Every byte that a box could have chosen passes the one sanitiser of `belljar-model`; colours are put
//! around the result, never taken from it. Files that are large or not text are summarised.

use std::fmt::Write as _;
use std::fs::File;
use std::io;

use belljar_model::display;
use similar::{ChangeTag, TextDiff};

use crate::change::{Base, Change, Changes, Kind, Side};
use crate::choice::Pick;
use crate::content::{self, Content};
use crate::layers::Layers;
use crate::meta::FileKind;
use crate::tree::UpperFile;
use crate::{at, base};

/// How much of one file is compared; a person does not read more.
const SHOWN_BYTES: u64 = 4 << 20;
/// Lines around a change, as git shows them.
const CONTEXT: usize = 3;
/// A line that is longer is cut, or one file could fill the screen for ever.
const LINE_BYTES: usize = 4096;

/// Whether to put colours around what is shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Colour {
    Never,
    Always,
}

/// All changes that `pick` matches, as unified diffs with what a reader must know of each.
pub fn unified(layers: &Layers, changes: &Changes, pick: &Pick, colour: Colour) -> String {
    let mut out = String::new();
    for change in changes.entries().iter().filter(|change| pick.matches(&change.path)) {
        heading(&mut out, change, colour);
        if let Some((old, new)) = texts(layers, change) {
            body(&mut out, &old, &new, colour);
        }
    }
    out
}

/// One line per change, and the sum.
pub fn stat(changes: &Changes, pick: &Pick, colour: Colour) -> String {
    let mut out = String::new();
    let mut count = 0_usize;
    for change in changes.entries().iter().filter(|change| pick.matches(&change.path)) {
        count += 1;
        let path = display::safe(change.path.as_bytes());
        let size = change.new.as_ref().map_or(0, |side| side.size);
        let mark = if change.cautions().next().is_some() { "!" } else { " " };
        let line = format!("{mark} {:<9} {size:>10}  {path}", word(change));
        let shade = if mark == "!" { Shade::Warn } else { Shade::Plain };
        paint(&mut out, shade, &line, colour);
    }
    push(&mut out, format_args!("{count} changed"));
    out
}

/// A path where both sides changed: from what the box started with to the host's, and to the box's.
pub fn three_way(layers: &Layers, change: &Change, colour: Colour) -> String {
    let mut out = String::new();
    let path = display::safe(change.path.as_bytes());
    paint(&mut out, Shade::Head, &format!("conflict {path}"), colour);
    let Some(started) = original(layers, change) else {
        paint(
            &mut out,
            Shade::Note,
            "what the box started from is not known; host and box:",
            colour,
        );
        body(&mut out, &host(layers, change), &boxed(layers, change), colour);
        return out;
    };
    for (title, now) in
        [("the host has since:", host(layers, change)), ("the box:", boxed(layers, change))]
    {
        paint(&mut out, Shade::Note, title, colour);
        body(&mut out, &started, &now, colour);
    }
    out
}

/// What happened to the path, and why to look twice.
fn heading(out: &mut String, change: &Change, colour: Colour) {
    let path = display::safe(change.path.as_bytes());
    let mut line = format!("{} {path}", word(change));
    match &change.kind {
        Kind::Renamed { from } => {
            push_inline(&mut line, format_args!(" (from {})", display::safe(from.as_bytes())));
        }
        Kind::Deleted if change.moved_to.is_some() => line.push_str(" (moved)"),
        Kind::Added | Kind::Modified | Kind::Deleted | Kind::ModeChanged | Kind::TypeChanged => {}
    }
    paint(out, Shade::Head, &line, colour);
    for caution in change.cautions() {
        let text = format!("  ! {}", display::safe_line(caution.words()));
        paint(out, Shade::Warn, &text, colour);
    }
    if let Some(unsupported) = change.unsupported {
        paint(out, Shade::Warn, &format!("  ! {}", unsupported.words()), colour);
    }
    if change.stripped != 0 {
        let text = format!("  ! mode bits {:o} are not taken over", change.stripped);
        paint(out, Shade::Warn, &text, colour);
    }
    for note in notes(change) {
        paint(out, Shade::Note, &format!("  {note}"), colour);
    }
}

/// Mode, link target and size, where they tell something that the text does not.
fn notes(change: &Change) -> Vec<String> {
    let mut notes = Vec::new();
    if let (Some(old), Some(new)) = (&change.old, &change.new)
        && old.mode != new.mode
    {
        notes.push(format!("mode {:o} -> {:o}", old.mode, new.mode));
    }
    let target = |side: &Option<Side>| {
        let target = side.as_ref()?.target.as_ref()?;
        Some(display::safe(&target.0))
    };
    match (target(&change.old), target(&change.new)) {
        (Some(old), Some(new)) => notes.push(format!("link {old} -> {new}")),
        (None, Some(new)) => notes.push(format!("link to {new}")),
        (Some(old), None) => notes.push(format!("was a link to {old}")),
        (None, None) => {}
    }
    let is_binary = |side: &Option<Side>| {
        side.as_ref().is_some_and(|side| side.content == Some(Content::Binary))
    };
    let size = |side: &Option<Side>| side.as_ref().map_or(0, |side| side.size);
    if is_binary(&change.old) || is_binary(&change.new) {
        notes.push(format!("binary, {} -> {} bytes", size(&change.old), size(&change.new)));
    } else if size(&change.old).max(size(&change.new)) > SHOWN_BYTES {
        notes.push(format!(
            "{} -> {} bytes, too long to show",
            size(&change.old),
            size(&change.new)
        ));
    }
    if change.base == Some(Base::Unknown) {
        notes.push("the host changed this file while the box ran".to_owned());
    }
    notes
}

fn word(change: &Change) -> &'static str {
    match change.kind {
        Kind::Added => "added",
        Kind::Modified => "modified",
        Kind::Deleted => "deleted",
        Kind::ModeChanged => "mode",
        Kind::TypeChanged => "replaced",
        Kind::Renamed { .. } => "renamed",
    }
}

/// Both sides of a change of text, or nothing to show.
fn texts(layers: &Layers, change: &Change) -> Option<(Vec<u8>, Vec<u8>)> {
    let is_text = |side: &Side| {
        side.kind == FileKind::File
            && side.content == Some(Content::Text)
            && side.size <= SHOWN_BYTES
    };
    let fits = |side: &Option<Side>| side.as_ref().is_none_or(is_text);
    let any = change.old.as_ref().is_some_and(is_text) || change.new.as_ref().is_some_and(is_text);
    let has_text = any && fits(&change.old) && fits(&change.new) && change.unsupported.is_none();
    let same_content = matches!(change.kind, Kind::ModeChanged | Kind::Renamed { .. });
    if !has_text || same_content {
        return None;
    }
    let old = if change.old.is_some() {
        original(layers, change).unwrap_or_else(|| host(layers, change))
    } else {
        Vec::new()
    };
    Some((old, boxed(layers, change)))
}

/// What the box started from, if it was kept.
fn original(layers: &Layers, change: &Change) -> Option<Vec<u8>> {
    let hash = change.old.as_ref()?.hash?;
    base::load(layers.run(), hash, SHOWN_BYTES).ok()?
}

/// What the user's directory holds now; nothing where it cannot be read.
fn host(layers: &Layers, change: &Change) -> Vec<u8> {
    let read = || -> io::Result<Option<Vec<u8>>> {
        let (parent, name) = change.path.split().ok_or(io::ErrorKind::InvalidInput)?;
        let (file, _) = at::file(at::dir(layers.lower(), &parent)?, name)?;
        content::read_up_to(&mut File::from(file), SHOWN_BYTES)
    };
    read().ok().flatten().unwrap_or_default()
}

/// What the box left; nothing where it deleted the file.
fn boxed(layers: &Layers, change: &Change) -> Vec<u8> {
    let read = || -> io::Result<Option<Vec<u8>>> {
        let (parent, name) = change.path.split().ok_or(io::ErrorKind::InvalidInput)?;
        let directory = layers.upper().dir(&parent)?;
        let mut file = UpperFile::open(std::os::fd::AsFd::as_fd(&directory), name)?;
        content::read_up_to(file.file(), SHOWN_BYTES)
    };
    if change.new.is_none() {
        return Vec::new();
    }
    read().ok().flatten().unwrap_or_default()
}

fn body(out: &mut String, old: &[u8], new: &[u8], colour: Colour) {
    let (old, new) = (shown(old), shown(new));
    let diff = TextDiff::from_lines(&old, &new);
    for group in diff.grouped_ops(CONTEXT) {
        let (Some(first), Some(last)) = (group.first(), group.last()) else { continue };
        let (was, is) = (
            first.old_range().start..last.old_range().end,
            first.new_range().start..last.new_range().end,
        );
        let range =
            format!("@@ -{},{} +{},{} @@", was.start + 1, was.len(), is.start + 1, is.len());
        paint(out, Shade::Note, &range, colour);
        for line in group.iter().flat_map(|op| diff.iter_changes(op)) {
            let (sign, shade) = match line.tag() {
                ChangeTag::Equal => (' ', Shade::Plain),
                ChangeTag::Delete => ('-', Shade::Old),
                ChangeTag::Insert => ('+', Shade::New),
            };
            let text = line.value().trim_end_matches('\n');
            paint(out, shade, &format!("{sign}{text}"), colour);
            if line.missing_newline() {
                paint(out, Shade::Note, "\\ no line end at the end of the file", colour);
            }
        }
    }
}

/// Content as a person may see it, line by line, none of them endless.
fn shown(content: &[u8]) -> String {
    let mut safe = String::with_capacity(content.len());
    for line in content.split_inclusive(|byte| *byte == b'\n') {
        if line.len() > LINE_BYTES {
            let start = line.get(..LINE_BYTES).unwrap_or(line);
            push(
                &mut safe,
                format_args!("{} … {} bytes", display::safe_multiline(start), line.len()),
            );
        } else {
            safe.push_str(&display::safe_multiline(line));
        }
    }
    safe
}

#[derive(Clone, Copy)]
enum Shade {
    Plain,
    Head,
    Note,
    Warn,
    Old,
    New,
}

/// One line, in its colour.
fn paint(out: &mut String, shade: Shade, line: &str, colour: Colour) {
    let code = match shade {
        Shade::Plain => "",
        Shade::Head => "\u{1b}[1m",
        Shade::Note => "\u{1b}[36m",
        Shade::Warn => "\u{1b}[1;33m",
        Shade::Old => "\u{1b}[31m",
        Shade::New => "\u{1b}[32m",
    };
    if colour == Colour::Never || code.is_empty() {
        push(out, format_args!("{line}"));
    } else {
        push(out, format_args!("{code}{line}\u{1b}[0m"));
    }
}

fn push(out: &mut String, line: std::fmt::Arguments<'_>) {
    push_inline(out, line);
    out.push('\n');
}

fn push_inline(out: &mut String, text: std::fmt::Arguments<'_>) {
    out.write_fmt(text).expect("a String takes everything");
}
