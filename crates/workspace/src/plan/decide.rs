//! Compares each change with the current state of the host.

use super::{Action, ConflictReason, LeftOut, Settle, Verdict, makes_directory, parents};
use crate::change::{Base, Change, ChangeKind, Changes, Side};
use crate::choice::Choice;
use crate::host::{Blocked, HostFile, HostState, Observed};
use crate::meta::FileKind;

/// A decision about a change before the user's choices for conflicts are considered.
enum Decision {
    Done,
    Do(Action),
    /// Host and box changed the path; the action applies the box's version, if that is possible.
    Conflict(ConflictReason, Option<Action>),
}

pub(super) fn all(observed: &Observed<'_>, choice: &Choice) -> Vec<Verdict> {
    let Observed { changes, states } = observed;
    let parents = parents(changes);
    let chosen = chosen(changes, choice, &parents);
    let mut verdicts: Vec<Verdict> = Vec::with_capacity(states.len());
    for (index, (change, state)) in changes.entries().iter().zip(states).enumerate() {
        let verdict = if chosen.get(index) == Some(&true) {
            let made = new_parent(changes, &parents, index);
            let above =
                made.and_then(|made| Some((changes.entries().get(made)?, verdicts.get(made)?)));
            verdict(change, state, above, choice)
        } else {
            Verdict::NotChosen
        };
        verdicts.push(verdict);
    }
    verdicts
}

/// Returns which changes are selected: the matching ones, the other half of each move, and new
/// parent directories.
fn chosen(changes: &Changes, choice: &Choice, parents: &[Option<usize>]) -> Vec<bool> {
    let entries = changes.entries();
    let mut chosen: Vec<bool> =
        entries.iter().map(|change| choice.paths.matches(&change.path)).collect();
    for change in entries.iter().filter(|change| choice.paths.matches(&change.path)) {
        let other = match &change.kind {
            ChangeKind::Renamed { from } => Some(from),
            ChangeKind::Added
            | ChangeKind::Modified
            | ChangeKind::Deleted
            | ChangeKind::ModeChanged
            | ChangeKind::TypeChanged => change.moved_to.as_ref(),
        };
        if let Some(other) = other.and_then(|path| changes.position(path))
            && let Some(other) = chosen.get_mut(other)
        {
            *other = true;
        }
    }
    // From the bottom up, so that a directory also selects its own parent.
    for (index, change) in entries.iter().enumerate().rev() {
        let needs = chosen.get(index) == Some(&true) && change.new.is_some();
        if needs
            && let Some(above) = parents.get(index).copied().flatten()
            && entries.get(above).is_some_and(|above| above.kind == ChangeKind::Added)
            && let Some(above) = chosen.get_mut(above)
        {
            *above = true;
        }
    }
    chosen
}

/// Returns the index of the nearest change at a parent directory, if it creates a directory.
fn new_parent(changes: &Changes, parents: &[Option<usize>], index: usize) -> Option<usize> {
    let above = parents.get(index).copied().flatten()?;
    makes_directory(changes.entries().get(above)?).then_some(above)
}

fn verdict(
    change: &Change,
    state: &HostState,
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
    let decision = match state_after_parents(state, change, above) {
        Ok(state) => decide(change, &state),
        Err(verdict) => return *verdict,
    };
    match decision {
        Decision::Done => Verdict::Done,
        _ if marked && !choice.include_executable.matches(&change.path) => {
            Verdict::LeftOut(LeftOut::marked(change))
        }
        _ if choice.only_inert && !change.is_inert() => Verdict::LeftOut(LeftOut::NotInert),
        Decision::Do(action) => Verdict::Do(action),
        Decision::Conflict(..) if choice.ours.matches(&change.path) => Verdict::Ours,
        Decision::Conflict(_, Some(action)) if choice.theirs.matches(&change.path) => {
            Verdict::Do(action)
        }
        Decision::Conflict(why, Some(_)) => Verdict::Conflict { why, settle: Settle::Either },
        Decision::Conflict(why, None) => Verdict::Conflict { why, settle: Settle::OursOnly },
    }
}

/// Returns the state of a path on the host after its parent directories are created.
fn state_after_parents(
    state: &HostState,
    change: &Change,
    above: Option<(&Change, &Verdict)>,
) -> Result<HostState, Box<Verdict>> {
    if !matches!(state, HostState::NoParent | HostState::Blocked(_)) {
        return Ok(state.clone());
    }
    match above {
        Some((_, Verdict::Do(_))) => Ok(HostState::Absent),
        Some((directory, Verdict::LeftOut(_) | Verdict::NotChosen | Verdict::Ours)) => {
            let directory = directory.path.clone();
            Err(Box::new(Verdict::LeftOut(LeftOut::NeedsDirectory { directory })))
        }
        // The entry shares the conflict of its directory; `theirs` for the directory resolves both.
        Some((_, Verdict::Conflict { why, settle })) if change.new.is_some() => {
            Err(Box::new(Verdict::Conflict { why: *why, settle: *settle }))
        }
        Some((_, Verdict::Conflict { .. } | Verdict::Done)) | None => Ok(state.clone()),
    }
}

fn decide(change: &Change, state: &HostState) -> Decision {
    match (&change.new, state) {
        (None, _) => deleted(change, state),
        (Some(_), HostState::Blocked(by)) => Decision::Conflict(blocked(*by), None),
        (Some(new), _) if new.kind == FileKind::Directory => directory(change, new, state),
        (Some(new), _) => leaf(change, new, state),
    }
}

fn deleted(change: &Change, state: &HostState) -> Decision {
    let found = match state {
        // A missing file is the goal of a deletion, no matter who deleted it.
        HostState::Absent | HostState::NoParent => return Decision::Done,
        HostState::Blocked(Blocked::NotDirectory | Blocked::Symlink) => return Decision::Done,
        HostState::Blocked(by @ Blocked::OtherFileSystem) => {
            return Decision::Conflict(blocked(*by), None);
        }
        HostState::Present(found) => found,
    };
    let was_dir = change.old_kind() == Some(FileKind::Directory);
    match (was_dir, found.kind == FileKind::Directory) {
        (true, true) => Decision::Do(Action::RemoveDir),
        (false, true) => Decision::Conflict(ConflictReason::HostTypeChanged, None),
        (true, false) => {
            let action = Action::Remove(found.clone());
            Decision::Conflict(ConflictReason::HostTypeChanged, Some(action))
        }
        (false, false) if found.is_original(change) => Decision::Do(Action::Remove(found.clone())),
        (false, false) => {
            Decision::Conflict(change_reason(change), Some(Action::Remove(found.clone())))
        }
    }
}

fn directory(change: &Change, new: &Side, state: &HostState) -> Decision {
    let found = match state {
        HostState::Present(found) => found,
        HostState::Absent | HostState::NoParent | HostState::Blocked(_) => {
            let action = Action::MakeDir;
            return match (state, &change.kind) {
                (HostState::NoParent, _) => {
                    Decision::Conflict(ConflictReason::DirectoryGone, Some(action))
                }
                (_, ChangeKind::ModeChanged) => {
                    Decision::Conflict(ConflictReason::HostDeleted, Some(action))
                }
                // A free path on the host cannot lose data.
                (
                    _,
                    ChangeKind::Added
                    | ChangeKind::TypeChanged
                    | ChangeKind::Modified
                    | ChangeKind::Deleted
                    | ChangeKind::Renamed { .. },
                ) => Decision::Do(action),
            };
        }
    };
    if found.kind != FileKind::Directory {
        let action = Action::ReplaceWithDir(found.clone());
        return match change.kind {
            ChangeKind::TypeChanged if found.is_original(change) => Decision::Do(action),
            ChangeKind::TypeChanged => Decision::Conflict(change_reason(change), Some(action)),
            ChangeKind::Added => Decision::Conflict(ConflictReason::AddedOnBoth, Some(action)),
            ChangeKind::Modified
            | ChangeKind::Deleted
            | ChangeKind::ModeChanged
            | ChangeKind::Renamed { .. } => {
                Decision::Conflict(ConflictReason::HostTypeChanged, Some(action))
            }
        };
    }
    let mode = found.mode & 0o777;
    let old = change.old.as_ref().map(|old| old.mode & 0o777);
    if change.kind != ChangeKind::ModeChanged || mode == new.mode {
        return Decision::Done;
    }
    let action = Action::SetDirMode { was: found.clone(), mode: new.mode };
    if Some(mode) == old {
        Decision::Do(action)
    } else {
        Decision::Conflict(ConflictReason::HostChanged, Some(action))
    }
}

fn leaf(change: &Change, new: &Side, state: &HostState) -> Decision {
    let found = match state {
        HostState::Present(found) => found,
        HostState::NoParent => {
            return Decision::Conflict(ConflictReason::DirectoryGone, Some(Action::Add));
        }
        HostState::Absent | HostState::Blocked(_) => return missing(change),
    };
    if found.holds(new) {
        return same_content(change, new, found);
    }
    if found.kind == FileKind::Directory {
        return if change.replaces_directory() {
            Decision::Do(Action::ReplaceDir)
        } else {
            Decision::Conflict(ConflictReason::HostTypeChanged, None)
        };
    }
    let replace = |mode| Action::Replace { was: found.clone(), mode };
    if change.old.is_none() {
        return Decision::Conflict(ConflictReason::AddedOnBoth, Some(replace(new.mode)));
    }
    if !found.is_original(change) {
        return Decision::Conflict(change_reason(change), Some(replace(new.mode)));
    }
    match (merged_mode(change, new, found), &change.kind) {
        (None, ChangeKind::ModeChanged) => {
            Decision::Conflict(ConflictReason::HostChanged, Some(set_mode(found, new.mode)))
        }
        (None, _) => Decision::Conflict(ConflictReason::HostChanged, Some(replace(new.mode))),
        // The modes differ only in bits that an apply never sets.
        (Some(mode), ChangeKind::ModeChanged)
            if mode == found.mode & 0o777 && found.mode <= 0o777 =>
        {
            Decision::Done
        }
        (Some(mode), ChangeKind::ModeChanged) => Decision::Do(set_mode(found, mode)),
        (Some(mode), _) => Decision::Do(replace(mode)),
    }
}

/// Decides about a file or link whose path is free on the host.
fn missing(change: &Change) -> Decision {
    let was_file = change.old_kind().is_some_and(|kind| kind != FileKind::Directory);
    if was_file {
        Decision::Conflict(ConflictReason::HostDeleted, Some(Action::Add))
    } else {
        Decision::Do(Action::Add)
    }
}

/// Decides about a file that has the same content on the host, possibly with another mode.
fn same_content(change: &Change, new: &Side, found: &HostFile) -> Decision {
    if new.kind != FileKind::File || found.mode & 0o777 == new.mode {
        return Decision::Done;
    }
    let action = set_mode(found, new.mode);
    let untouched = change.old.as_ref().is_some_and(|old| old.mode & 0o777 == found.mode & 0o777);
    match change.old {
        _ if untouched => Decision::Do(action),
        Some(_) => Decision::Conflict(ConflictReason::HostChanged, Some(action)),
        None => Decision::Conflict(ConflictReason::AddedOnBoth, Some(action)),
    }
}

/// Returns the action that sets the mode of the host's file. A file with further hard links is
/// replaced, so that they keep their mode.
fn set_mode(found: &HostFile, mode: u32) -> Action {
    let was = found.clone();
    if found.shared { Action::Replace { was, mode } } else { Action::SetMode { was, mode } }
}

/// Returns the merged file mode of both versions: the side that changed the mode wins. `None` if
/// both changed it.
fn merged_mode(change: &Change, new: &Side, found: &HostFile) -> Option<u32> {
    let host = found.mode & 0o777;
    let old = change.old.as_ref().filter(|old| old.kind == new.kind).map(|old| old.mode & 0o777);
    match old {
        Some(old) if new.mode == old => Some(host),
        Some(old) if host == old || host == new.mode => Some(new.mode),
        Some(_) => None,
        None => Some(new.mode),
    }
}

fn change_reason(change: &Change) -> ConflictReason {
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
