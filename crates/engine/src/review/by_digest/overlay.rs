//! Changes of a box in its overlay, which are applied to a directory of the host.

use std::collections::BTreeSet;

use anyhow::Context as _;
use belljar_model::{Review, display};
use belljar_workspace::{
    ApplyOutcome, ApplySession, Change, ChangeKind, Changes, Choice, Draft, EntryStatus, FileKind,
    HunkError, Layers, LeftOut, OutcomeEntry, Pattern, Pick, RelPath, choose_hunks, plan_apply,
    unapplied,
};

use super::{
    AppliedChange, AppliedResult, ApplyReport, ApplyRequest, ChangeHunks, ChangeList, ListedChange,
    ReviewError, WorkspaceKind, digest, nothing, nothing_to_apply, unknown_path,
};
use crate::box_store::NamedBox;
use crate::changes::{self, denied};
use crate::error::{EngineError, ErrorKind, WithKind as _};
use crate::record::{self, LedgerHandle};
use crate::review;
use crate::scope::Scoped;
use crate::store::{Run, is_empty};
use crate::supervisor::setup;

/// The changes of a box as they are on disk.
struct Read {
    layers: Layers,
    changes: Changes,
    /// The paths that a rule of the user protects.
    denied: BTreeSet<RelPath>,
}

pub(super) fn changes(state: &Scoped, named_box: &NamedBox) -> Result<ChangeList, EngineError> {
    let Some(Read { changes, denied, .. }) = read(state, named_box)? else {
        return Ok(nothing(WorkspaceKind::Overlay));
    };
    let too_long: u64 = changes.too_long().iter().map(|directory| directory.names).sum();
    let remark = format!("{too_long} names are too long to be applied");
    Ok(ChangeList {
        digest: digest_of(&changes)?,
        kind: WorkspaceKind::Overlay,
        changes: changes.entries().iter().map(|change| listed(change, &denied)).collect(),
        remarks: (too_long > 0).then_some(remark).into_iter().collect(),
    })
}

pub(super) fn hunks(
    state: &Scoped,
    named_box: &NamedBox,
    path: &RelPath,
) -> Result<Option<ChangeHunks>, EngineError> {
    let Some(Read { layers, changes, denied }) = read(state, named_box)? else { return Ok(None) };
    let Some(change) = changes.get(path) else { return Ok(None) };
    Ok(Some(ChangeHunks {
        digest: digest_of(&changes)?,
        change: listed(change, &denied),
        hunks: belljar_workspace::hunks(&layers, change),
    }))
}

/// Reads the changes of a box. `None` if it has none.
fn read(state: &Scoped, named_box: &NamedBox) -> Result<Option<Read>, EngineError> {
    let is_up = named_box.is_up();
    // A command can hold the lock of a running box for long. The review lock keeps readers apart.
    let _lock = if is_up { None } else { Some(named_box.lock_for_change()?) };
    let Some(run) = named_box.run().filter(|_| !is_empty(&named_box.dir.join("upper"))) else {
        return Ok(None);
    };
    let _reading = review::lock(&run)?;
    let (layers, changes) = changes::read_current(state, &run, is_up)?;
    let denied = denied(&setup::permissions(state, named_box)?, &changes);
    Ok(Some(Read { layers, changes, denied }))
}

fn digest_of(changes: &Changes) -> Result<String, EngineError> {
    let encoded = serde_json::to_vec(&(changes.entries(), changes.too_long()));
    let encoded = encoded.context("cannot encode the changes").kind(ErrorKind::Broken)?;
    Ok(digest([encoded.as_slice()]))
}

fn listed(change: &Change, denied: &BTreeSet<RelPath>) -> ListedChange {
    let (kind, from) = match &change.kind {
        ChangeKind::Added => ("added", None),
        ChangeKind::Modified => ("modified", None),
        ChangeKind::Deleted => ("deleted", None),
        ChangeKind::ModeChanged => ("mode-changed", None),
        ChangeKind::TypeChanged => ("type-changed", None),
        ChangeKind::Renamed { from } => ("renamed", Some(from.clone())),
    };
    let file = match change.file_kind() {
        FileKind::File => "file",
        FileKind::Directory => "directory",
        FileKind::Symlink => "symlink",
        FileKind::Fifo | FileKind::Socket | FileKind::Device => "special",
    };
    let is_denied = denied.contains(&change.path);
    let blocked = change.unsupported.map(|why| why.message().to_owned());
    ListedChange {
        path: change.path.clone(),
        kind,
        from,
        file: Some(file),
        size: change.new.as_ref().map(|side| side.size),
        executable: change
            .new
            .as_ref()
            .is_some_and(|side| side.kind == FileKind::File && side.mode & 0o111 != 0),
        marks: change.cautions().map(|caution| caution.message().to_owned()).collect(),
        blocked: blocked.or_else(|| is_denied.then(|| LeftOut::Denied.message())),
    }
}

pub(super) fn apply(
    state: &Scoped,
    named_box: &NamedBox,
    request: &ApplyRequest,
) -> Result<ApplyReport, ReviewError> {
    let _lock = named_box.lock_while_stopped("apply")?;
    let Some(run) = named_box.run().filter(|_| !is_empty(&named_box.dir.join("upper"))) else {
        return nothing_to_apply(request);
    };
    let _reviewing = review::lock(&run)?;
    let mut run = review::reload(state, &run)?;
    let (layers, changes) = changes::open(state, &run)?;
    if digest_of(&changes)? != request.digest {
        return Err(ReviewError::Changed);
    }
    let chosen = chosen(&layers, &changes, request)?;
    let mut choice = choice(&changes, request)?;
    choice.denied = denied(&setup::permissions(state, named_box)?, &changes);
    // Opened before any change: `begin` can complete an interrupted earlier apply.
    let ledger = record::open(state).kind(ErrorKind::Unrecorded)?;
    let applied = apply_chosen(state, &ledger, &run, (&layers, &chosen), &choice)?;
    let left = unapplied(&layers, &changes).kind(ErrorKind::Broken)?;
    let is_complete = left.is_empty() && changes.too_long().is_empty();
    run.record.review = if is_complete { Review::Applied } else { Review::PartlyApplied };
    run.save().kind(ErrorKind::Broken)?;
    record::settle(&ledger, state, run.id(), "a reviewer applied its changes")
        .kind(ErrorKind::Broken)?;
    if is_complete {
        // All changes are on the host now, so the box continues with an empty layer.
        belljar_workspace::discard(&run.dir)
            .context("cannot empty the layer of the box after all its changes were applied")
            .kind(ErrorKind::Broken)?;
    }
    let entries = applied.entries.into_iter().map(reported).collect();
    Ok(ApplyReport { entries, branch: None, has_more: !is_complete })
}

/// Returns the changes with the chosen hunks only.
fn chosen(
    layers: &Layers,
    changes: &Changes,
    request: &ApplyRequest,
) -> Result<Changes, ReviewError> {
    if let Some(path) = request.paths.iter().find(|path| request.hunks.contains_key(path)) {
        let text = format!("{path:?} is in `paths` and in `hunks`; name it once");
        return Err(EngineError::message(ErrorKind::Invalid, text).into());
    }
    choose_hunks(layers, changes, &request.hunks).map_err(|error| match error {
        HunkError::Conflict { path } => ReviewError::Conflict(vec![shown(&path)]),
        HunkError::NoSuchFile { .. } | HunkError::NoSuchHunk { .. } => {
            EngineError::new(ErrorKind::Invalid, error).into()
        }
        HunkError::OnlyWhole { .. } => EngineError::new(ErrorKind::WrongState, error).into(),
        HunkError::Store { .. } => EngineError::new(ErrorKind::Broken, error).into(),
    })
}

/// Converts a request to the choice of changes. A name in the box can look like a pattern, so each path is
/// taken literally.
fn choice(changes: &Changes, request: &ApplyRequest) -> Result<Choice, ReviewError> {
    let pick = |paths: &[&RelPath]| -> Result<Pick, EngineError> {
        let is_known =
            |path: &RelPath| changes.entries().iter().any(|change| change.path.is_within(path));
        if let Some(path) = paths.iter().find(|path| !is_known(path)) {
            return Err(unknown_path(path));
        }
        Ok(Pick::These(paths.iter().map(|path| Pattern::literal(path)).collect()))
    };
    let named: Vec<&RelPath> = request.paths.iter().chain(request.hunks.keys()).collect();
    let included: Vec<&RelPath> = request.include_executable.iter().collect();
    Ok(Choice {
        paths: if named.is_empty() { Pick::All } else { pick(&named)? },
        include_executable: pick(&included)?,
        ..Choice::everything()
    })
}

/// Applies the changes of a choice, unless the host changed one of them or one is marked and not named.
fn apply_chosen(
    state: &Scoped,
    ledger: &LedgerHandle,
    run: &Run,
    (layers, changes): (&Layers, &Changes),
    choice: &Choice,
) -> Result<ApplyOutcome, ReviewError> {
    let mut session = ApplySession::begin(layers).kind(ErrorKind::Broken)?;
    let observed = session.observe(changes).kind(ErrorKind::Broken)?;
    let draft = plan_apply(&observed, choice);
    let marked = marked(&draft);
    if !marked.is_empty() {
        return Err(ReviewError::Marked(marked));
    }
    let plan = draft.settle().map_err(|draft| ReviewError::Conflict(conflicts(&draft)))?;
    Ok(changes::apply(state, ledger, run, &mut session, plan)?)
}

fn marked(draft: &Draft<'_>) -> Vec<String> {
    let marked = |(change, why): (&Change, &LeftOut)| match why {
        LeftOut::Marked { why } => Some(format!("{} ({})", shown(&change.path), why.join(", "))),
        LeftOut::Denied
        | LeftOut::NotInert
        | LeftOut::Unsupported(_)
        | LeftOut::NeedsDirectory { .. }
        | LeftOut::NotEmpty
        | LeftOut::DirectoryStays
        | LeftOut::NothingInside
        | LeftOut::MoveLeftOut { .. } => None,
    };
    draft.left_out().filter_map(marked).collect()
}

fn conflicts(draft: &Draft<'_>) -> Vec<String> {
    let describe = |conflict: belljar_workspace::Conflict<'_>| {
        format!("{} ({})", shown(&conflict.change.path), conflict.why.message())
    };
    draft.conflicts().map(describe).collect()
}

fn shown(path: &RelPath) -> String {
    display::safe(path.as_bytes())
}

fn reported(entry: OutcomeEntry) -> AppliedChange {
    let OutcomeEntry { path, status } = entry;
    let (result, why) = match status {
        EntryStatus::Applied => (AppliedResult::Applied, None),
        EntryStatus::AlreadyThere => (AppliedResult::AlreadyThere, None),
        EntryStatus::NotChosen | EntryStatus::KeptOurs => (AppliedResult::NotChosen, None),
        EntryStatus::LeftOut(why) => (AppliedResult::LeftOut, Some(why.message())),
        EntryStatus::Conflict(why) => (AppliedResult::Conflict, Some(why.message())),
        EntryStatus::Failed { doing, cause } => {
            (AppliedResult::Failed, Some(display::safe_line(format!("{doing}: {cause}"))))
        }
        EntryStatus::NotReached => {
            (AppliedResult::Failed, Some("an earlier change failed; apply again".to_owned()))
        }
    };
    AppliedChange { path, result, why }
}
