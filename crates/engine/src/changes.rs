//! What a box changed in its overlay: read it, and apply it to the host.

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
use crate::notice::Notice;
use crate::record::{Applying, LedgerHandle};
use crate::scope::Scoped;
use crate::store::{Run, is_empty};

/// The hash of the list of what the box changed.
pub fn sealed_changes(run: &Run) -> Option<Body> {
    let list = std::fs::read(run.dir.join("changes.json")).ok()?;
    Body::hash_of(&list).ok()
}

/// Reads what the box changed and keeps the originals; how many files that are.
pub fn count_changes(run: &mut Run, state: &Scoped, disk: u64) -> u64 {
    if is_empty(&run.dir.join("upper")) {
        return 0;
    }
    run.record.review = Review::Pending;
    let Some(at) = &run.record.workspace else { return 0 };
    let paths = RunPaths { workspace: &at.path, state: state.home(), run: &run.dir };
    // Holes cost a box nothing and us the time to read them: twice what it may write is enough.
    let caps =
        SealLimits { upper_bytes: disk.saturating_mul(2).max(1 << 30), ..SealLimits::default() };
    let sealed = Layers::open(&paths)
        .map_err(anyhow::Error::from)
        .and_then(|layers| Ok(belljar_workspace::seal(&layers, at.clock, &caps)?));
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

/// Direct mode: takes over at once what is harmless; the rest waits, and is said.
pub fn take_over(run: &mut Run, state: &Scoped, ledger: &LedgerHandle, permissions: &Permissions) {
    match take_harmless(state, run, ledger, permissions) {
        Ok((review, held_back)) => {
            run.record.review = review;
            for line in held_back {
                state.notice(&Notice::HeldBack(line));
            }
        }
        Err(error) => state.notice(&Notice::Failed(format!(
            "nothing was taken over; `belljar apply` tries again: {error:#}"
        ))),
    }
}

/// Takes over what was planned, once that is on record, and records what came of it.
pub fn take(
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
                count(|taken| matches!(taken, EntryStatus::Applied | EntryStatus::AlreadyThere));
            let held_back = applied.entries.len() as u64 - taken;
            (applying.done(WorkspaceApplied { taken, held_back, error: None }), Ok(applied))
        }
        Err(failure) => (applying.failed(failure.inner()), Err(failure)),
    };
    if let (Err(error), _) = &recorded {
        state.notice(&Notice::NotRecorded(format!(
            "what came of it is not on record; `belljar runs` will show it: {error}"
        )));
    }
    recorded.1
}

/// Takes over everything that nothing on the host executes and that only the box changed. Returns
/// what that makes of the review, and what was held back and why.
pub fn take_harmless(
    state: &Scoped,
    run: &Run,
    ledger: &LedgerHandle,
    permissions: &Permissions,
) -> Result<(Review, Vec<String>), EngineError> {
    let (layers, changes) = layers_of(state, run)?;
    let mut session = ApplySession::begin(&layers).kind(ErrorKind::Broken)?;
    let observed = session.observe(&changes).kind(ErrorKind::Broken)?;
    let denied = denied(permissions, &changes);
    let choice = Choice { ours: Pick::All, denied, ..Choice::everything() };
    let plan = plan_apply(&observed, &choice).settle();
    let plan = plan.map_err(|_| anyhow!("both sides changed")).kind(ErrorKind::Broken)?;
    let applied = take(state, ledger, run, &mut session, plan)?;
    let mut held_back = Vec::new();
    for entry in &applied.entries {
        let path = display::safe(entry.path.as_bytes());
        match &entry.status {
            EntryStatus::Applied | EntryStatus::AlreadyThere | EntryStatus::NotChosen => {}
            EntryStatus::KeptOurs => held_back.push(format!("{path}: both sides changed it")),
            EntryStatus::LeftOut(why) => held_back.push(format!("{path}: {}", why.message())),
            EntryStatus::Conflict(why) => held_back.push(format!("{path}: {}", why.message())),
            EntryStatus::Failed { doing, cause } => {
                held_back.push(format!("{path}: {doing}: {cause}"));
            }
            EntryStatus::NotReached => held_back.push(format!("{path}: not reached")),
        }
    }
    let review = if held_back.is_empty() { Review::Applied } else { Review::PartlyApplied };
    Ok((review, held_back))
}

/// The layers of a run and what is sealed in them.
pub fn open(state: &Scoped, run: &Run) -> Result<(Layers, Changes), EngineError> {
    if run.record.state == RunState::Running {
        return Err(invalid(format!("run {} is still running", run.id())));
    }
    layers_of(state, run)
}

/// What a run changed; of one that is at work what it changed so far.
pub fn look(state: &Scoped, run: &Run, is_up: bool) -> Result<(Layers, Changes), EngineError> {
    if !is_up {
        return layers_of(state, run);
    }
    let (layers, at) = open_layers(state, run)?;
    let changes = belljar_workspace::read_changes(&layers, at.clock, &SealLimits::default())
        .context("read what the box has changed so far")
        .kind(ErrorKind::Broken)?;
    Ok((layers, changes))
}

fn layers_of(state: &Scoped, run: &Run) -> Result<(Layers, Changes), EngineError> {
    let (layers, at) = open_layers(state, run)?;
    let changes = belljar_workspace::seal(&layers, at.clock, &SealLimits::default())
        .context("read what the box changed")
        .kind(ErrorKind::Broken)?;
    Ok((layers, changes))
}

fn open_layers<'r>(state: &Scoped, run: &'r Run) -> Result<(Layers, &'r WorkspaceAt), EngineError> {
    let none = || anyhow!("run {} had no workspace", run.id());
    let at = run.record.workspace.as_ref().ok_or_else(none).kind(ErrorKind::Invalid)?;
    let paths = RunPaths { workspace: &at.path, state: state.home(), run: &run.dir };
    let layers = Layers::open(&paths).kind(ErrorKind::Invalid)?;
    let (_, inode) =
        layers.workspace_inode().context("look at the workspace").kind(ErrorKind::Broken)?;
    if inode != at.ino {
        let path = display::safe(at.path.as_os_str().as_bytes());
        return Err(invalid(format!(
            "{path} is another directory than the one that the box worked on"
        )));
    }
    Ok((layers, at))
}

/// The changed files that a rule in force now protects, whether or not they existed (threat C01).
pub fn denied(permissions: &Permissions, changes: &Changes) -> BTreeSet<RelPath> {
    let paths = changes.entries().iter().map(|change| &change.path);
    paths.filter(|path| permissions.denies_edit(path.as_bytes()).is_some()).cloned().collect()
}
