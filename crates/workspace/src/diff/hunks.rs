//! Single hunks of a change: shows them with numbers, and applies chosen ones to the host's text.
//!
//! The result of a choice is a list of changes whose files have the chosen hunks only. An apply treats these
//! changes as it treats those of the box: it replaces only the file that was read here.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::ops::Range;

use similar::{ChangeTag, DiffOp};

use super::body::{Body, Bytes, host_bytes, new_bytes, old_bytes};
use super::lines::{self, Hunk};
use crate::base::BaseStore;
use crate::change::{Base, Change, ChangeKind, Changes, Side};
use crate::content::{Content, ContentHash};
use crate::layers::Layers;
use crate::meta::FileKind;
use crate::path::RelPath;

/// The hunks of a changed file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FileHunks {
    pub hunks: Vec<FileHunk>,
    /// Whether single hunks can be applied.
    pub can_choose: bool,
    /// Why there are no hunks, as text for people.
    pub note: Option<&'static str>,
}

/// A group of changed lines with their context.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FileHunk {
    /// The first line in the host's version, from 1, and the number of lines.
    pub old: (usize, usize),
    /// The first line in the box's version, from 1, and the number of lines.
    pub new: (usize, usize),
    pub lines: Vec<HunkLine>,
}

/// A line of a hunk. A hostile box chose the bytes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HunkLine {
    pub kind: LineKind,
    /// The line without its line terminator.
    pub bytes: Vec<u8>,
    /// Whether the line is the last one and has no line terminator.
    pub unterminated: bool,
}

/// How a line of a hunk changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LineKind {
    Context,
    Removed,
    Added,
}

/// The reason why hunks cannot be chosen. Nothing was changed.
#[derive(Debug, thiserror::Error)]
pub enum HunkError {
    #[error("{path:?} is not a changed file of the box")]
    NoSuchFile { path: RelPath },
    #[error("{path:?} cannot be applied by hunks, only as a whole")]
    OnlyWhole { path: RelPath },
    #[error("{path:?} has no hunk {number}")]
    NoSuchHunk { path: RelPath, number: usize },
    #[error("the host changed the lines around a chosen hunk of {path:?}")]
    Conflict { path: RelPath },
    #[error("cannot store the chosen hunks of {path:?}")]
    Store { path: RelPath, source: io::Error },
}

/// Returns the hunks of a change. Their numbers are their positions, from 1, and are the same for every
/// caller as long as the changes are the same.
pub fn hunks(layers: &Layers, change: &Change) -> FileHunks {
    let none = |note| FileHunks { hunks: Vec::new(), can_choose: false, note: Some(note) };
    match Body::load(layers, change) {
        Body::Nothing => none("the content of the file did not change"),
        Body::Binary => none("the file is binary"),
        Body::TooLarge => none("the file is too large to show"),
        Body::Missing(why) => none(why),
        Body::Lines(lines) => FileHunks {
            can_choose: lines.is_exact && is_text_change(change),
            note: None,
            hunks: lines.hunks.into_iter().map(FileHunk::from).collect(),
        },
    }
}

/// Returns the changes with the chosen hunks only, for each path in `chosen`. Other changes stay as they are.
pub fn choose_hunks(
    layers: &Layers,
    changes: &Changes,
    chosen: &BTreeMap<RelPath, BTreeSet<usize>>,
) -> Result<Changes, HunkError> {
    let mut reduced = changes.clone();
    for (path, numbers) in chosen {
        let missing = || HunkError::NoSuchFile { path: path.clone() };
        let index = reduced.position(path).ok_or_else(missing)?;
        let change = reduced.entries_mut().get_mut(index).ok_or_else(missing)?;
        reduce(layers, change, numbers)?;
    }
    Ok(reduced)
}

/// Returns whether a file existed before and was changed as text, so that a part of its changes makes sense.
fn is_text_change(change: &Change) -> bool {
    let is_file = |side: &Option<Side>| side.as_ref().is_some_and(|it| it.kind == FileKind::File);
    change.kind == ChangeKind::Modified && is_file(&change.old) && is_file(&change.new)
}

/// Replaces the box's version of a change by the host's text with the chosen hunks.
fn reduce(
    layers: &Layers,
    change: &mut Change,
    numbers: &BTreeSet<usize>,
) -> Result<(), HunkError> {
    let path = change.path.clone();
    let only_whole = || HunkError::OnlyWhole { path: path.clone() };
    let (Some(old), Some(new)) = (&change.old, &change.new) else { return Err(only_whole()) };
    if !is_text_change(change) {
        return Err(only_whole());
    }
    let (Bytes::Have(old_text), Bytes::Have(new_text)) =
        (old_bytes(layers, change, old), new_bytes(layers, change, new))
    else {
        return Err(only_whole());
    };
    let conflict = || HunkError::Conflict { path: path.clone() };
    let Bytes::Have(host) = host_bytes(layers, &path) else { return Err(conflict()) };
    let compared = lines::compare_longer(&old_text, &new_text);
    if !compared.is_exact {
        return Err(only_whole());
    }
    let hunk = |number: &usize| {
        let found = number.checked_sub(1).and_then(|index| compared.hunks.get(index));
        found.ok_or_else(|| HunkError::NoSuchHunk { path: path.clone(), number: *number })
    };
    let hunks: Vec<&Hunk> = numbers.iter().map(hunk).collect::<Result<_, _>>()?;
    let merged = apply((&old_text, &new_text), &host, &hunks).ok_or_else(conflict)?;
    let stored = BaseStore::create(layers).and_then(|store| store.keep_bytes(&merged));
    let hash = stored.map_err(|source| HunkError::Store { path: path.clone(), source })?;
    let side = |hash, text: &[u8]| Side {
        hash: Some(hash),
        size: text.len() as u64,
        content: Some(Content::Text),
        // Hunks are lines: the change of a mode is left out.
        ..old.clone()
    };
    let was = side(ContentHash::of(&host), &host);
    let becomes = Side { mode: old.mode & 0o777, ..side(hash, &merged) };
    if was.hash != old.hash || change.base == Some(Base::Unknown) {
        // The host's current text is the original of this change: the apply checks that it stays so.
        (change.base, change.host) = (Some(Base::HashOnly), None);
    }
    (change.old, change.new) = (Some(was), Some(becomes));
    (change.new_executable, change.stripped, change.is_stored) = (false, 0, true);
    Ok(())
}

/// Applies hunks of the difference between `old` and `new` to the host's text. A hunk fits only if the host
/// has all its old lines, with their context, unchanged. A hunk that the host has already is left out. Pure.
fn apply((old, new): (&[u8], &[u8]), host: &[u8], hunks: &[&Hunk]) -> Option<Vec<u8>> {
    let host_lines = lines::split(host);
    let from_old = Mapping::new(old, host);
    let mut from_new = None;
    let mut merged = Vec::with_capacity(host.len());
    let mut done = 0;
    for hunk in hunks {
        let Some(place) = from_old.find(&range(hunk.old_start, hunk.old_len)) else {
            let from_new = from_new.get_or_insert_with(|| Mapping::new(new, host));
            from_new.find(&range(hunk.new_start, hunk.new_len))?;
            continue;
        };
        host_lines.get(done..place.start)?.iter().for_each(|line| merged.extend(*line));
        let ends_file = place.end == host_lines.len();
        for line in hunk.lines.iter().filter(|line| line.tag != ChangeTag::Delete) {
            merged.extend(&line.bytes);
            match line.unterminated {
                false => merged.push(b'\n'),
                // The host has lines after the end of the original.
                true if !ends_file => return None,
                true => {}
            }
        }
        done = place.end;
    }
    host_lines.get(done..)?.iter().for_each(|line| merged.extend(*line));
    Some(merged)
}

/// Returns the lines of a hunk, from 0. An empty side is written as the line before it.
fn range(start: usize, len: usize) -> Range<usize> {
    let start = if len == 0 { start } else { start.saturating_sub(1) };
    start..start + len
}

/// Where the lines of one text are in another one.
enum Mapping {
    Same,
    /// The ranges of equal lines.
    Equal(Vec<(Range<usize>, Range<usize>)>),
}

impl Mapping {
    fn new(from: &[u8], to: &[u8]) -> Self {
        if from == to {
            return Self::Same;
        }
        let equal = |op: DiffOp| {
            matches!(op, DiffOp::Equal { .. }).then(|| (op.old_range(), op.new_range()))
        };
        Self::Equal(lines::ops(from, to).into_iter().filter_map(equal).collect())
    }

    /// Returns the place of lines that are the same, in the same order, in the other text.
    fn find(&self, lines: &Range<usize>) -> Option<Range<usize>> {
        let equal = match self {
            Self::Same => return Some(lines.clone()),
            Self::Equal(equal) => equal,
        };
        let is_within = |from: &Range<usize>| from.start <= lines.start && lines.end <= from.end;
        let (from, to) = equal.iter().find(|(from, _)| is_within(from))?;
        let start = to.start + (lines.start - from.start);
        Some(start..start + lines.len())
    }
}

impl From<Hunk> for FileHunk {
    fn from(hunk: Hunk) -> Self {
        let Hunk { old_start, old_len, new_start, new_len, lines } = hunk;
        let line = |line: lines::Line| HunkLine {
            kind: match line.tag {
                ChangeTag::Equal => LineKind::Context,
                ChangeTag::Delete => LineKind::Removed,
                ChangeTag::Insert => LineKind::Added,
            },
            bytes: line.bytes,
            unterminated: line.unterminated,
        };
        let lines = lines.into_iter().map(line).collect();
        Self { old: (old_start, old_len), new: (new_start, new_len), lines }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns 30 numbered lines with replaced ones.
    fn text(replaced: &[(usize, &str)]) -> String {
        let line = |number: usize| {
            let found = replaced.iter().find(|(at, _)| *at == number);
            found.map_or_else(|| format!("{number}\n"), |(_, line)| (*line).to_owned())
        };
        (1..=30).map(line).collect()
    }

    #[track_caller]
    fn check(old: &str, new: &str, host: &str, numbers: &[usize], expect: Option<&str>) {
        let compared = lines::compare(old.as_bytes(), new.as_bytes());
        let hunks: Vec<&Hunk> = numbers.iter().map(|number| &compared.hunks[number - 1]).collect();
        let merged = apply((old.as_bytes(), new.as_bytes()), host.as_bytes(), &hunks);
        let merged = merged.map(|text| String::from_utf8(text).unwrap());
        assert_eq!(merged.as_deref(), expect);
    }

    #[test]
    fn chosen_hunks_are_applied_and_the_others_are_not() {
        let old = text(&[]);
        let new = text(&[(3, "three\n"), (15, ""), (28, "28\nmore\n")]);
        check(&old, &new, &old, &[], Some(&old));
        check(&old, &new, &old, &[2], Some(&text(&[(15, "")])));
        check(&old, &new, &old, &[1, 3], Some(&text(&[(3, "three\n"), (28, "28\nmore\n")])));
        check(&old, &new, &old, &[1, 2, 3], Some(&new));
    }

    #[test]
    fn hunk_fits_where_the_host_has_its_lines_and_context_and_nowhere_else() {
        let old = text(&[]);
        let new = text(&[(3, "three\n"), (20, "twenty\n")]);
        let elsewhere = format!("first\n{}", text(&[(10, "ten\n")]));
        let expected = format!("first\n{}", text(&[(10, "ten\n"), (20, "twenty\n")]));
        check(&old, &new, &elsewhere, &[2], Some(&expected));
        for host in [text(&[(20, "mine\n")]), text(&[(18, "mine\n")]), text(&[(23, "")])] {
            check(&old, &new, &host, &[2], None);
        }
        let applied = text(&[(3, "three\n")]);
        check(&old, &new, &applied, &[1], Some(&applied));
        check(&old, &new, &applied, &[1, 2], Some(&new));
    }

    #[test]
    fn hunk_at_the_end_of_a_file_without_a_line_terminator_is_applied_exactly() {
        check("a\nb", "a\nc", "a\nb", &[1], Some("a\nc"));
        check("a\nb\n", "a\nc", "a\nb\n", &[1], Some("a\nc"));
        check("a\nb\n", "a\nc", "a\nb\nmine\n", &[1], None);
        check("", "a", "", &[1], Some("a"));
        check("", "a", "mine", &[1], None);
        check("a", "", "a", &[1], Some(""));
    }

    proptest::proptest! {
        #[test]
        fn all_hunks_applied_to_the_original_make_the_text_of_the_box(
            old in "([ab]{0,2}\n){0,40}[a]{0,1}", new in "([ab]{0,2}\n){0,40}[a]{0,1}",
        ) {
            let compared = lines::compare(old.as_bytes(), new.as_bytes());
            let hunks: Vec<&Hunk> = compared.hunks.iter().collect();
            let merged = apply((old.as_bytes(), new.as_bytes()), old.as_bytes(), &hunks);
            proptest::prop_assert_eq!(merged, Some(new.clone().into_bytes()));
        }
    }
}
