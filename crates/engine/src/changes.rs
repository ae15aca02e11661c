//! The changes of a box in its overlay: reads them and applies them to the workspace on the host.

use std::collections::BTreeSet;
use std::os::unix::ffi::OsStrExt as _;

use anyhow::{Context as _, anyhow};
use belljar_ledger::{Body, WorkspaceApplied};
use belljar_model::permission::Permissions;
use belljar_model::{Review, RunState, WorkspaceAt, display};
use belljar_workspace::{
    ApplyOutcome as Applied, ApplyPlan, ApplySession, Changes, Choice, EntryStatus, Layers, Pick,
    RelPath, RunPaths, SealLimits, plan_apply,
};

use crate::error::{EngineError, ErrorKind, WithKind as _, invalid};
use crate::layer_image;
use crate::notice::Notice;
use crate::record::{Applying, LedgerHandle};
use crate::scope::Scoped;
use crate::store::{Run, is_empty};

/// Returns the hash of the run's `changes.json`, the list of files that the box changed.
pub fn sealed_changes(run: &Run) -> Option<Body> {
    let list = std::fs::read(run.dir.join("changes.json")).ok()?;
    Body::hash_of(&list).ok()
}

/// Seals the changes of a run that ended, keeps the original files and returns the number of changes.
pub fn count_changes(run: &mut Run, state: &Scoped, disk: u64) -> u64 {
    if is_empty(&run.dir.join("upper")) {
        return 0;
    }
    run.record.review = Review::Pending;
    let Some(at) = &run.record.workspace else { return 0 };
    let paths = RunPaths { workspace: &at.path, state: state.home(), run: &run.dir };
    // A sparse file costs the box no disk space, but takes time to read. So the limit is twice the
    // disk limit of the box.
    let limits =
        SealLimits { upper_bytes: disk.saturating_mul(2).max(1 << 30), ..SealLimits::default() };
    let sealed = Layers::open(&paths)
        .map_err(anyhow::Error::from)
        .and_then(|layers| Ok(belljar_workspace::seal(&layers, at.clock, &limits)?));
    match sealed {
        Ok(changes) if changes.is_empty() => {
            run.record.review = Review::None;
            0
        }
        Ok(changes) => changes.entries().len() as u64,
        Err(error) => {
            state.notice(&Notice::ChangesUnreadable(format!("{error:#}")));
            0
        }
    }
}

/// Applies the harmless changes of a run in direct mode. Sends a notice for each change held back.
pub fn apply_in_direct_mode(
    run: &mut Run,
    state: &Scoped,
    ledger: &LedgerHandle,
    permissions: &Permissions,
) {
    match apply_harmless(state, run, ledger, permissions) {
        Ok((review, held_back)) => {
            run.record.review = review;
            for line in held_back {
                state.notice(&Notice::HeldBack(line));
            }
        }
        Err(error) => state.notice(&Notice::Failed(format!(
            "cannot apply the changes of the run: {error:#}; to retry, use `belljar apply`"
        ))),
    }
}

/// Applies planned changes to the workspace, and records the start and the result in the ledger.
pub fn apply(
    state: &Scoped,
    ledger: &LedgerHandle,
    run: &Run,
    session: &mut ApplySession<'_>,
    plan: ApplyPlan<'_>,
) -> Result<Applied, EngineError> {
    let applying = Applying::begin(ledger, run.id(), plan.len() as u64)?;
    let recorded = match session.apply(plan, &mut |_| {}).kind(ErrorKind::Broken) {
        Ok(applied) => {
            let count = |is: fn(&EntryStatus) -> bool| {
                applied.entries.iter().filter(|entry| is(&entry.status)).count() as u64
            };
            let taken =
                count(|status| matches!(status, EntryStatus::Applied | EntryStatus::AlreadyThere));
            let held_back = applied.entries.len() as u64 - taken;
            (applying.done(WorkspaceApplied { taken, held_back, error: None }), Ok(applied))
        }
        Err(failure) => (applying.failed(failure.inner()), Err(failure)),
    };
    if let (Err(error), _) = &recorded {
        state.notice(&Notice::NotRecorded(format!(
            "cannot record the result of the apply: {error}; `belljar runs` shows that the run needs attention"
        )));
    }
    recorded.1
}

/// Applies the harmless changes of a run: sources and documents that only the box changed.
///
/// Returns the new review state of the run, and a text for each change that was held back.
pub fn apply_harmless(
    state: &Scoped,
    run: &Run,
    ledger: &LedgerHandle,
    permissions: &Permissions,
) -> Result<(Review, Vec<String>), EngineError> {
    let (layers, changes) = layers_of(state, run)?;
    let mut session = ApplySession::begin(&layers).kind(ErrorKind::Broken)?;
    let observed = session.observe(&changes).kind(ErrorKind::Broken)?;
    let denied = denied(permissions, &changes);
    let choice = Choice { ours: Pick::All, denied, only_inert: true, ..Choice::everything() };
    let plan = plan_apply(&observed, &choice).settle();
    let conflict = |_| anyhow!("the box and the host changed the same file");
    let plan = plan.map_err(conflict).kind(ErrorKind::Broken)?;
    let applied = apply(state, ledger, run, &mut session, plan)?;
    let mut held_back = Vec::new();
    for entry in &applied.entries {
        let path = display::safe(entry.path.as_bytes());
        match &entry.status {
            EntryStatus::Applied | EntryStatus::AlreadyThere | EntryStatus::NotChosen => {}
            EntryStatus::KeptOurs => {
                held_back.push(format!("{path}: changed by the box and on the host"));
            }
            EntryStatus::LeftOut(why) => held_back.push(format!("{path}: {}", why.message())),
            EntryStatus::Conflict(why) => held_back.push(format!("{path}: {}", why.message())),
            EntryStatus::Failed { doing, cause } => {
                held_back.push(format!("{path}: {doing}: {cause}"));
            }
            EntryStatus::NotReached => {
                held_back.push(format!("{path}: not applied because an earlier change failed"));
            }
        }
    }
    let review = if held_back.is_empty() { Review::Applied } else { Review::PartlyApplied };
    Ok((review, held_back))
}

/// Opens the layers of a run that ended, and returns them with the sealed changes.
pub fn open(state: &Scoped, run: &Run) -> Result<(Layers, Changes), EngineError> {
    if run.record.state == RunState::Running {
        return Err(invalid(format!("run {} is still running; wait until it ends", run.id())));
    }
    layers_of(state, run)
}

/// Reads the changes of a run. If the box is running (`is_up`), reads the changes made so far.
pub fn read_current(
    state: &Scoped,
    run: &Run,
    is_up: bool,
) -> Result<(Layers, Changes), EngineError> {
    if !is_up {
        return layers_of(state, run);
    }
    let (layers, at) = open_layers(state, run)?;
    let changes = belljar_workspace::read_changes(&layers, at.clock, &SealLimits::default())
        .context("cannot read the changes of the running box")
        .kind(ErrorKind::Broken)?;
    Ok((layers, changes))
}

fn layers_of(state: &Scoped, run: &Run) -> Result<(Layers, Changes), EngineError> {
    let (layers, at) = open_layers(state, run)?;
    let changes = belljar_workspace::seal(&layers, at.clock, &SealLimits::default())
        .context("cannot read the changes of the box")
        .kind(ErrorKind::Broken)?;
    Ok((layers, changes))
}

fn open_layers<'r>(state: &Scoped, run: &'r Run) -> Result<(Layers, &'r WorkspaceAt), EngineError> {
    let no_workspace = || anyhow!("run {} had no workspace, so it has no changes", run.id());
    let at = run.record.workspace.as_ref().ok_or_else(no_workspace).kind(ErrorKind::Invalid)?;
    layer_image::recover(&run.dir).kind(ErrorKind::Broken)?;
    let paths = RunPaths { workspace: &at.path, state: state.home(), run: &run.dir };
    let layers = Layers::open(&paths).kind(ErrorKind::Invalid)?;
    let inode = layers.workspace_inode().context("cannot read the inode of the workspace");
    let (_, inode) = inode.kind(ErrorKind::Broken)?;
    if inode != at.ino {
        let path = display::safe(at.path.as_os_str().as_bytes());
        return Err(invalid(format!(
            "{path} is not the directory that the box used as its workspace: it was replaced"
        )));
    }
    Ok((layers, at))
}

/// Returns the changed paths that a current `Edit` rule denies, whether or not they existed (threat C01).
pub fn denied(permissions: &Permissions, changes: &Changes) -> BTreeSet<RelPath> {
    let paths = changes.entries().iter().map(|change| &change.path);
    paths.filter(|path| permissions.denies_edit(path.as_bytes()).is_some()).cloned().collect()
}
