//! Review of boxes whose workspace is a private clone: applies commits on a branch instead of files.

use std::os::unix::ffi::OsStrExt as _;

use belljar_ledger::{BoxDiscarded, WorkspaceApplied};
use belljar_model::boxes::BoxWorkspace;
use belljar_model::{RepoAt, RunId};

use crate::box_store::trash::{TrashKind, TrashNote};
use crate::box_store::{NamedBox, parts};
use crate::boxes::{clone_again, unapplied};
use crate::clones::{self, Work};
use crate::error::{EngineError, ErrorKind, WithKind as _, invalid};
use crate::notice::Notice;
use crate::record::{self, Applying};
use crate::scope::Scoped;
use crate::supervisor::setup;

/// Reads the work of a box in its private clone. Marks files that the current `Edit` rules deny.
pub fn read<'b>(
    state: &Scoped,
    named_box: &'b NamedBox,
) -> Result<(&'b RepoAt, Option<Work>), EngineError> {
    let BoxWorkspace::Repo(at) = &named_box.record.ground else {
        return Err(invalid(format!("box {} has no private clone", named_box.name())));
    };
    let mut work = clones::read_work(state, named_box.name(), at, &named_box.dir.join("repo"))?;
    let permissions = setup::permissions(state, named_box)?;
    if let Some(work) = &mut work {
        work.deny(&|path| {
            let rule = permissions.denies_edit(path.as_os_str().as_bytes())?;
            Some(format!("the rule {rule} denies changes of this file"))
        });
    }
    Ok((at, work))
}

/// Copies the work of a box to a branch of the user's repository, and records that in the ledger.
pub fn apply(
    state: &Scoped,
    named_box: &NamedBox,
    at: &RepoAt,
    work: &Work,
    branch: &str,
) -> Result<(), EngineError> {
    let run = named_box.run().map(|run| run.id());
    let run = run.ok_or_else(|| {
        invalid(format!("box {} was never started, so it has no work", named_box.name()))
    })?;
    let ledger = record::open(state).kind(ErrorKind::Unrecorded)?;
    let files = work.files.len() as u64;
    let applying = Applying::begin(&ledger, run, files)?;
    let applied =
        clones::save_work(at, work, named_box.name()).and_then(|()| clones::branch(work, branch));
    let recorded = match &applied {
        Ok(()) => applying.done(WorkspaceApplied { taken: files, held_back: 0, error: None }),
        Err(failure) => applying.failed(failure.inner()),
    };
    if let Err(error) = recorded {
        state.notice(&Notice::NotRecorded(format!(
            "cannot record the result of the apply: {error}; `belljar runs` shows that the run needs attention"
        )));
    }
    applied?;
    settle(state, run, "the operator applied its work")
}

fn settle(state: &Scoped, run: RunId, why: &str) -> Result<(), EngineError> {
    let ledger = record::open(state).kind(ErrorKind::Unrecorded)?;
    record::settle(&ledger, state, run, why).kind(ErrorKind::Broken)
}

/// Moves the private clone to the trash and creates a new one. Returns false if the clone has no work.
pub fn discard(
    state: &Scoped,
    named_box: &NamedBox,
    discard_work: bool,
) -> Result<bool, EngineError> {
    let name = named_box.name();
    let _lock = named_box.lock_while_stopped("discard")?;
    let BoxWorkspace::Repo(at) = &named_box.record.ground else { return Ok(false) };
    let unapplied = unapplied::guard(state, named_box, "discard", discard_work)?;
    if unapplied.is_none() {
        return Ok(false);
    }
    let note = TrashNote::new(state, name, TrashKind::Changes, "discard", unapplied)?;
    let event = BoxDiscarded {
        name: name.to_string(),
        trash: note.directory_name(),
        unapplied: note.unapplied.clone(),
    };
    record::fact(state, event)?;
    let next = parts::prepare(named_box)?;
    clone_again(state, named_box, at, &next)?;
    parts::exchange(named_box, &["repo"], note)?;
    if let Some(run) = named_box.run() {
        settle(state, run.id(), "the operator discarded its work")?;
    }
    Ok(true)
}
