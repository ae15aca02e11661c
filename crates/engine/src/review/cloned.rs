//! Review of boxes that work on a private clone: commits on a branch, never files.

use std::os::unix::ffi::OsStrExt as _;

use belljar_ledger::{BoxDiscarded, WorkspaceApplied};
use belljar_model::boxes::BoxWorkspace;
use belljar_model::{RepoAt, RunId};

use crate::box_store::trash::{Note, What};
use crate::box_store::{NamedBox, parts};
use crate::boxes::{clone_again, unapplied};
use crate::clones::{self, Work};
use crate::error::{EngineError, ErrorKind, WithKind as _, invalid};
use crate::notice::Notice;
use crate::record::{self, Applying};
use crate::scope::Scoped;
use crate::supervisor::setup;

/// What the box did in its clone, with the marks of the rules in force now.
pub fn read<'b>(
    state: &Scoped,
    of: &'b NamedBox,
) -> Result<(&'b RepoAt, Option<Work>), EngineError> {
    let BoxWorkspace::Repo(at) = &of.record.ground else {
        return Err(invalid(format!("box {} has no clone", of.name())));
    };
    let mut work = clones::has_work(state, of.name(), at, &of.dir.join("repo"))?;
    let permissions = setup::permissions(state, of)?;
    if let Some(work) = &mut work {
        work.deny(&|path| {
            let rule = permissions.denies_edit(path.as_os_str().as_bytes())?;
            Some(format!("the rule {rule} keeps it as it is"))
        });
    }
    Ok((at, work))
}

/// Puts the work into the user's repository, once that is on record.
pub fn take(
    state: &Scoped,
    of: &NamedBox,
    at: &RepoAt,
    work: &Work,
    branch: &str,
) -> Result<(), EngineError> {
    let run = of.run().map(|run| run.id());
    let run = run.ok_or_else(|| invalid(format!("box {} was never started", of.name())))?;
    let ledger = record::open(state).kind(ErrorKind::Unrecorded)?;
    let files = work.files.len() as u64;
    let applying = Applying::begin(&ledger, run, files)?;
    let taken = clones::keep(at, work, of.name()).and_then(|()| clones::branch(at, work, branch));
    let recorded = match &taken {
        Ok(()) => applying.done(WorkspaceApplied { taken: files, held_back: 0, error: None }),
        Err(failure) => applying.failed(failure.inner()),
    };
    if let Err(error) = recorded {
        state.notice(&Notice::NotRecorded(format!(
            "what came of it is not on record; `belljar runs` will show it: {error}"
        )));
    }
    taken?;
    settle(state, run, "the operator applied its work")
}

fn settle(state: &Scoped, run: RunId, why: &str) -> Result<(), EngineError> {
    let ledger = record::open(state).kind(ErrorKind::Unrecorded)?;
    record::settle(&ledger, state, run, why).kind(ErrorKind::Broken)
}

/// Moves the clone to the trash and makes a new one. Returns false if there was nothing to discard.
pub fn discard(state: &Scoped, of: &NamedBox, discard_work: bool) -> Result<bool, EngineError> {
    let name = of.name();
    let _turn = of.turn_while_down("discard")?;
    let BoxWorkspace::Repo(at) = &of.record.ground else { return Ok(false) };
    let unapplied = unapplied::guard(state, of, "discard", discard_work)?;
    if unapplied.is_none() {
        return Ok(false);
    }
    let note = Note::new(state, name, What::Changes, "discard", unapplied)?;
    let event = BoxDiscarded {
        name: name.to_string(),
        trash: note.place(),
        unapplied: note.unapplied.clone(),
    };
    record::fact(state, event)?;
    let next = parts::prepare(of)?;
    clone_again(state, of, at, &next)?;
    parts::exchange(of, &["repo"], note)?;
    if let Some(run) = of.run() {
        settle(state, run.id(), "the operator discarded its work")?;
    }
    Ok(true)
}
