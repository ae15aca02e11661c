//! Detects moved files: one deleted and one added file with the same content. Pure.

use std::collections::HashMap;

use crate::change::{Change, ChangeKind, Changes};
use crate::content::ContentHash;
use crate::meta::FileKind;
use crate::path::RelPath;

/// The maximum number of deleted files with the same content that are considered as the source of a
/// move.
const MAX_ALIKE: usize = 64;

/// Marks pairs of deleted and added files with equal content as moves; equal names come first.
pub(crate) fn detect(changes: &mut Changes) {
    let mut gone: HashMap<ContentHash, Vec<usize>> = HashMap::new();
    for (index, change) in changes.entries().iter().enumerate() {
        if change.kind == ChangeKind::Deleted
            && let Some(hash) = moved_hash(change, change.old.as_ref())
        {
            gone.entry(hash).or_default().push(index);
        }
    }
    // Many files with the same content are ambiguous and slow to pair.
    gone.retain(|_, sources| sources.len() <= MAX_ALIKE);
    let mut pairs = HashMap::new();
    for same_name in [true, false] {
        for (index, change) in changes.entries().iter().enumerate() {
            if change.kind != ChangeKind::Added || pairs.contains_key(&index) {
                continue;
            }
            let Some(hash) = moved_hash(change, change.new.as_ref()) else { continue };
            let Some(sources) = gone.get_mut(&hash) else { continue };
            let fits = |&from: &usize| !same_name || name(changes, from) == name_of(&change.path);
            if let Some(at) = sources.iter().position(fits) {
                pairs.insert(index, sources.remove(at));
            }
        }
    }
    for (to, from) in pairs {
        link(changes.entries_mut(), from, to);
    }
}

/// Returns the hash of a file that can be part of a move. Empty files are excluded because they are
/// all equal.
fn moved_hash(change: &Change, side: Option<&crate::change::Side>) -> Option<ContentHash> {
    let side = side.filter(|side| side.kind == FileKind::File && side.size > 0)?;
    if change.unsupported.is_some() { None } else { side.hash }
}

fn name(changes: &Changes, index: usize) -> Option<&[u8]> {
    name_of(&changes.entries().get(index)?.path)
}

fn name_of(path: &RelPath) -> Option<&[u8]> {
    path.split().map(|(_, name)| name)
}

fn link(entries: &mut [Change], from: usize, to: usize) {
    let Ok([source, target]) = entries.get_disjoint_mut([from, to]) else { return };
    // A moved executable is not a new one.
    let was_program = source.old.as_ref().is_some_and(|side| side.mode & 0o111 != 0);
    target.new_executable &= !was_program;
    target.kind = ChangeKind::Renamed { from: source.path.clone() };
    source.moved_to = Some(target.path.clone());
}
