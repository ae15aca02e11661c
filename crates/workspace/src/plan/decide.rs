//! One entry against what the host holds at its path.

use super::{Act, ConflictReason, LeftOut, Settle, Verdict, makes_directory, parents};
use crate::change::{Base, Change, Changes, Kind, Side};
use crate::choice::Choice;
use crate::host::{Blocked, Here, Observed, Seen};
use crate::meta::FileKind;

/// A decision before `theirs` and `ours` are asked.
enum First {
    Done,
    Do(Act),
    /// Both sides changed; the act is what taking the box's side would be, if it is possible.
    Conflict(ConflictReason, Option<Act>),
}

pub(super) fn all(observed: &Observed<'_>, choice: &Choice) -> Vec<Verdict> {
    let Observed { changes, seen } = observed;
    let parents = parents(changes);
    let chosen = chosen(changes, choice, &parents);
    let mut verdicts: Vec<Verdict> = Vec::with_capacity(seen.len());
    for (index, (change, seen)) in changes.entries().iter().zip(seen).enumerate() {
        let verdict = if chosen.get(index) == Some(&true) {
            let made = making(changes, &parents, index);
            let above =
                made.and_then(|made| Some((changes.entries().get(made)?, verdicts.get(made)?)));
            one(change, seen, above, choice)
        } else {
            Verdict::NotChosen
        };
        verdicts.push(verdict);
    }
    verdicts
}

/// What is meant: what matches, the other half of each move, and the new directories above it.
fn chosen(changes: &Changes, choice: &Choice, parents: &[Option<usize>]) -> Vec<bool> {
    let entries = changes.entries();
    let mut chosen: Vec<bool> =
        entries.iter().map(|change| choice.paths.matches(&change.path)).collect();
    for change in entries.iter().filter(|change| choice.paths.matches(&change.path)) {
        let other = match &change.kind {
            Kind::Renamed { from } => Some(from),
            Kind::Added
            | Kind::Modified
            | Kind::Deleted
            | Kind::ModeChanged
            | Kind::TypeChanged => change.moved_to.as_ref(),
        };
        if let Some(other) = other.and_then(|path| changes.position(path))
            && let Some(other) = chosen.get_mut(other)
        {
            *other = true;
        }
    }
    // From the bottom up, so that a directory passes it on to the one above.
    for (index, change) in entries.iter().enumerate().rev() {
        let needs = chosen.get(index) == Some(&true) && change.new.is_some();
        if needs
            && let Some(above) = parents.get(index).copied().flatten()
            && entries.get(above).is_some_and(|above| above.kind == Kind::Added)
            && let Some(above) = chosen.get_mut(above)
        {
            *above = true;
        }
    }
    chosen
}

/// The nearest entry above that makes a directory.
fn making(changes: &Changes, parents: &[Option<usize>], index: usize) -> Option<usize> {
    let above = parents.get(index).copied().flatten()?;
    makes_directory(changes.entries().get(above)?).then_some(above)
}

fn one(
    change: &Change,
    seen: &Seen,
    above: Option<(&Change, &Verdict)>,
    choice: &Choice,
) -> Verdict {
    if let Some(why) = change.unsupported {
        return Verdict::LeftOut(LeftOut::Unsupported(why));
    }
    if choice.denied.contains(&change.path) {
        return Verdict::LeftOut(LeftOut::Denied);
    }
    let marked = change.cautions().next().is_some();
    let first = match place(seen, change, above) {
        Ok(seen) => first(change, &seen),
        Err(verdict) => return *verdict,
    };
    match first {
        First::Done => Verdict::Done,
        _ if marked && !choice.include_executable.matches(&change.path) => {
            Verdict::LeftOut(LeftOut::marked(change))
        }
        First::Do(act) => Verdict::Do(act),
        First::Conflict(..) if choice.ours.matches(&change.path) => Verdict::Ours,
        First::Conflict(_, Some(act)) if choice.theirs.matches(&change.path) => Verdict::Do(act),
        First::Conflict(why, Some(_)) => Verdict::Conflict { why, settle: Settle::Either },
        First::Conflict(why, None) => Verdict::Conflict { why, settle: Settle::OursOnly },
    }
}

/// What will be at the path once the directories above it are made.
fn place(
    seen: &Seen,
    change: &Change,
    above: Option<(&Change, &Verdict)>,
) -> Result<Seen, Box<Verdict>> {
    if !matches!(seen, Seen::NoParent | Seen::Blocked(_)) {
        return Ok(seen.clone());
    }
    match above {
        Some((_, Verdict::Do(_))) => Ok(Seen::Absent),
        Some((directory, Verdict::LeftOut(_) | Verdict::NotChosen | Verdict::Ours)) => {
            let directory = directory.path.clone();
            Err(Box::new(Verdict::LeftOut(LeftOut::NeedsDirectory { directory })))
        }
        // The same conflict, which `theirs` for the directory settles for all in it.
        Some((_, Verdict::Conflict { why, settle })) if change.new.is_some() => {
            Err(Box::new(Verdict::Conflict { why: *why, settle: *settle }))
        }
        Some((_, Verdict::Conflict { .. } | Verdict::Done)) | None => Ok(seen.clone()),
    }
}

fn first(change: &Change, seen: &Seen) -> First {
    match (&change.new, seen) {
        (None, _) => deleted(change, seen),
        (Some(_), Seen::Blocked(by)) => First::Conflict(blocked(*by), None),
        (Some(new), _) if new.kind == FileKind::Directory => directory(change, new, seen),
        (Some(new), _) => leaf(change, new, seen),
    }
}

fn deleted(change: &Change, seen: &Seen) -> First {
    let here = match seen {
        // Gone is what was asked for, whoever did it.
        Seen::Absent | Seen::NoParent => return First::Done,
        Seen::Blocked(Blocked::NotDirectory | Blocked::Symlink) => return First::Done,
        Seen::Blocked(by @ Blocked::OtherFileSystem) => {
            return First::Conflict(blocked(*by), None);
        }
        Seen::Here(here) => here,
    };
    let was_dir = change.old_kind() == Some(FileKind::Directory);
    match (was_dir, here.kind == FileKind::Directory) {
        (true, true) => First::Do(Act::RemoveDir),
        (false, true) => First::Conflict(ConflictReason::HostTypeChanged, None),
        (true, false) => {
            let act = Act::Remove(here.clone());
            First::Conflict(ConflictReason::HostTypeChanged, Some(act))
        }
        (false, false) if here.is_original(change) => First::Do(Act::Remove(here.clone())),
        (false, false) => First::Conflict(changed(change), Some(Act::Remove(here.clone()))),
    }
}

fn directory(change: &Change, new: &Side, seen: &Seen) -> First {
    let here = match seen {
        Seen::Here(here) => here,
        Seen::Absent | Seen::NoParent | Seen::Blocked(_) => {
            let act = Act::MakeDir;
            return match (seen, &change.kind) {
                (Seen::NoParent, _) => First::Conflict(ConflictReason::DirectoryGone, Some(act)),
                (_, Kind::ModeChanged) => First::Conflict(ConflictReason::HostDeleted, Some(act)),
                // Nothing of the host's is at stake where it has nothing.
                (
                    _,
                    Kind::Added
                    | Kind::TypeChanged
                    | Kind::Modified
                    | Kind::Deleted
                    | Kind::Renamed { .. },
                ) => First::Do(act),
            };
        }
    };
    if here.kind != FileKind::Directory {
        let act = Act::ReplaceWithDir(here.clone());
        return match change.kind {
            Kind::TypeChanged if here.is_original(change) => First::Do(act),
            Kind::TypeChanged => First::Conflict(changed(change), Some(act)),
            Kind::Added => First::Conflict(ConflictReason::AddedOnBoth, Some(act)),
            Kind::Modified | Kind::Deleted | Kind::ModeChanged | Kind::Renamed { .. } => {
                First::Conflict(ConflictReason::HostTypeChanged, Some(act))
            }
        };
    }
    let mode = here.mode & 0o777;
    let old = change.old.as_ref().map(|old| old.mode & 0o777);
    if change.kind != Kind::ModeChanged || mode == new.mode {
        return First::Done;
    }
    let act = Act::SetDirMode { was: here.clone(), mode: new.mode };
    if Some(mode) == old {
        First::Do(act)
    } else {
        First::Conflict(ConflictReason::HostChanged, Some(act))
    }
}

fn leaf(change: &Change, new: &Side, seen: &Seen) -> First {
    let here = match seen {
        Seen::Here(here) => here,
        Seen::NoParent => {
            return First::Conflict(ConflictReason::DirectoryGone, Some(Act::Add));
        }
        Seen::Absent | Seen::Blocked(_) => return missing(change),
    };
    if here.holds(new) {
        return same_content(change, new, here);
    }
    if here.kind == FileKind::Directory {
        return if change.replaces_directory() {
            First::Do(Act::ReplaceDir)
        } else {
            First::Conflict(ConflictReason::HostTypeChanged, None)
        };
    }
    let replace = |mode| Act::Replace { was: here.clone(), mode };
    if change.old.is_none() {
        return First::Conflict(ConflictReason::AddedOnBoth, Some(replace(new.mode)));
    }
    if !here.is_original(change) {
        return First::Conflict(changed(change), Some(replace(new.mode)));
    }
    match (merged_mode(change, new, here), &change.kind) {
        (None, Kind::ModeChanged) => {
            First::Conflict(ConflictReason::HostChanged, Some(set_mode(here, new.mode)))
        }
        (None, _) => First::Conflict(ConflictReason::HostChanged, Some(replace(new.mode))),
        // A mode that only differs in bits that are never taken over is there already.
        (Some(mode), Kind::ModeChanged) if mode == here.mode & 0o777 && here.mode <= 0o777 => {
            First::Done
        }
        (Some(mode), Kind::ModeChanged) => First::Do(set_mode(here, mode)),
        (Some(mode), _) => First::Do(replace(mode)),
    }
}

/// The host has nothing at the path of a file or link that the box left.
fn missing(change: &Change) -> First {
    let was_file = change.old_kind().is_some_and(|kind| kind != FileKind::Directory);
    if was_file {
        First::Conflict(ConflictReason::HostDeleted, Some(Act::Add))
    } else {
        First::Do(Act::Add)
    }
}

/// The host holds the same bytes, but perhaps with another mode.
fn same_content(change: &Change, new: &Side, here: &Here) -> First {
    if new.kind != FileKind::File || here.mode & 0o777 == new.mode {
        return First::Done;
    }
    let act = set_mode(here, new.mode);
    let untouched = change.old.as_ref().is_some_and(|old| old.mode & 0o777 == here.mode & 0o777);
    match change.old {
        _ if untouched => First::Do(act),
        Some(_) => First::Conflict(ConflictReason::HostChanged, Some(act)),
        None => First::Conflict(ConflictReason::AddedOnBoth, Some(act)),
    }
}

/// A file with other names is replaced: they keep their mode, as they did in the box.
fn set_mode(here: &Here, mode: u32) -> Act {
    let was = here.clone();
    if here.shared { Act::Replace { was, mode } } else { Act::SetMode { was, mode } }
}

/// The mode that both sides agree on: who did not change it follows the other.
fn merged_mode(change: &Change, new: &Side, here: &Here) -> Option<u32> {
    let host = here.mode & 0o777;
    let old = change.old.as_ref().filter(|old| old.kind == new.kind).map(|old| old.mode & 0o777);
    match old {
        Some(old) if new.mode == old => Some(host),
        Some(old) if host == old || host == new.mode => Some(new.mode),
        Some(_) => None,
        None => Some(new.mode),
    }
}

fn changed(change: &Change) -> ConflictReason {
    match change.base {
        Some(Base::Unknown) => ConflictReason::HostChangedDuringRun,
        Some(Base::Kept | Base::HashOnly | Base::IdentityOnly) | None => {
            ConflictReason::HostChanged
        }
    }
}

const fn blocked(by: Blocked) -> ConflictReason {
    match by {
        Blocked::NotDirectory => ConflictReason::BlockedByFile,
        Blocked::Symlink => ConflictReason::BlockedBySymlink,
        Blocked::OtherFileSystem => ConflictReason::BlockedByMount,
    }
}
