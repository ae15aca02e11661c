//! Adjusts verdicts that depend on each other.

use super::{LeftOut, Verdict, makes_directory, parents};
use crate::change::{ChangeKind, Changes};
use crate::meta::FileKind;

/// Returns the decisions, with changes left out that depend on a left-out change.
pub(super) fn settle(changes: &Changes, mut verdicts: Vec<Verdict>) -> Vec<Verdict> {
    keep_old_names_of_skipped_moves(changes, &mut verdicts);
    replace_directories_completely_or_not_at_all(changes, &mut verdicts);
    keep_directories_that_stay_in_use(changes, &mut verdicts);
    skip_directories_that_would_be_empty(changes, &mut verdicts);
    verdicts
}

fn keep_old_names_of_skipped_moves(changes: &Changes, verdicts: &mut [Verdict]) {
    for (index, change) in changes.entries().iter().enumerate() {
        let Some(to) = &change.moved_to else { continue };
        let arrives = changes
            .position(to)
            .and_then(|place| verdicts.get(place))
            .is_some_and(Verdict::arrives);
        if !arrives && let Some(verdict @ Verdict::Do(_)) = verdicts.get_mut(index) {
            *verdict = Verdict::LeftOut(LeftOut::MoveLeftOut { to: to.clone() });
        }
    }
}

fn replace_directories_completely_or_not_at_all(changes: &Changes, verdicts: &mut [Verdict]) {
    for (index, change) in changes.entries().iter().enumerate() {
        if !change.replaces_directory() {
            continue;
        }
        let beneath = changes.beneath(index);
        let all_go = verdicts.get(beneath.clone()).unwrap_or_default().iter().all(Verdict::arrives);
        match verdicts.get_mut(index) {
            Some(Verdict::Do(_)) if all_go => continue,
            Some(verdict @ Verdict::Do(_)) => {
                *verdict = Verdict::LeftOut(LeftOut::DirectoryStays);
            }
            Some(Verdict::LeftOut(_) | Verdict::Conflict { .. } | Verdict::Ours) => {}
            // If the directory itself is not selected, selected files in it are simply deleted.
            Some(Verdict::NotChosen | Verdict::Done) | None => continue,
        }
        let directory = change.path.clone();
        for verdict in verdicts.get_mut(beneath).unwrap_or_default() {
            if matches!(verdict, Verdict::Do(_)) {
                let directory = directory.clone();
                *verdict = Verdict::LeftOut(LeftOut::NeedsDirectory { directory });
            }
        }
    }
}

fn keep_directories_that_stay_in_use(changes: &Changes, verdicts: &mut [Verdict]) {
    let mut stays = vec![false; verdicts.len()];
    let parents = parents(changes);
    for (index, change) in changes.entries().iter().enumerate().rev() {
        let deleted_dir =
            change.kind == ChangeKind::Deleted && change.old_kind() == Some(FileKind::Directory);
        let Some(verdict) = verdicts.get_mut(index) else { continue };
        let something_stays = stays.get(index) == Some(&true);
        if deleted_dir && something_stays && matches!(verdict, Verdict::Do(_)) {
            *verdict = Verdict::LeftOut(LeftOut::NotEmpty);
        }
        if (something_stays || !verdict.arrives())
            && let Some(above) = parents.get(index).copied().flatten()
            && let Some(stays) = stays.get_mut(above)
        {
            *stays = true;
        }
    }
}

fn skip_directories_that_would_be_empty(changes: &Changes, verdicts: &mut [Verdict]) {
    let mut holds = vec![false; verdicts.len()];
    let parents = parents(changes);
    for (index, change) in changes.entries().iter().enumerate().rev() {
        let Some(verdict) = verdicts.get_mut(index) else { continue };
        let was_empty = changes.beneath(index).is_empty();
        let pointless = makes_directory(change) && !was_empty && holds.get(index) != Some(&true);
        if pointless && change.kind == ChangeKind::Added && matches!(verdict, Verdict::Do(_)) {
            *verdict = Verdict::LeftOut(LeftOut::NothingInside);
        }
        if verdict.arrives()
            && let Some(above) = parents.get(index).copied().flatten()
            && let Some(holds) = holds.get_mut(above)
        {
            *holds = true;
        }
    }
}
