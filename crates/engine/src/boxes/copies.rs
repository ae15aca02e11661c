//! Forks and resets named boxes.

use std::fs::DirBuilder;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::Path;

use anyhow::Context as _;
use belljar_ledger::{BoxForked, BoxReset};
use belljar_model::RunRecord;
use belljar_model::boxes::{BoxName, BoxRecord, BoxWorkspace};

use super::create::clone_again;
use super::snapshot::{self, Tag};
use super::unapplied;
use crate::box_store::trash::{TrashKind, TrashNote};
use crate::box_store::{self, NamedBox, parts};
use crate::error::{EngineError, ErrorKind, WithKind as _};
use crate::record;
use crate::scope::Scoped;

/// Creates boxes as copies of another box, or of one of its snapshots.
pub fn fork(
    state: &Scoped,
    from: &NamedBox,
    tag: Option<&Tag>,
    names: &[BoxName],
) -> Result<(), EngineError> {
    let _lock = from.lock_for_change()?;
    for new in names {
        let event = BoxForked {
            name: new.to_string(),
            from: from.name().to_string(),
            tag: tag.map(ToString::to_string),
        };
        record::fact(state, event)?;
        copy(state, from, tag, new)?;
    }
    Ok(())
}

/// Creates a box as a copy of another box, or of one of its snapshots.
fn copy(
    state: &Scoped,
    from: &NamedBox,
    tag: Option<&Tag>,
    name: &BoxName,
) -> Result<NamedBox, EngineError> {
    let source = tag.map(|tag| snapshot::find(from, tag)).transpose()?;
    let created = state.clock().millis();
    let ground = source.as_deref().and_then(|dir| snapshot::workspace_at_snapshot(state, dir));
    let ground = ground.unwrap_or_else(|| from.record.ground.clone());
    let maker = Some(state.caller().principal.clone());
    let record = BoxRecord { name: name.clone(), created, ground, maker, ..from.record.clone() };
    let owner = box_store::owner_of(&from.dir.join("home"));
    box_store::create(state, record, owner, |new, _| {
        let _paused = if tag.is_none() { snapshot::pause(state, from)? } else { None };
        let copied = || -> anyhow::Result<()> {
            std::fs::remove_dir(new.join("home"))?;
            parts::copy(source.as_deref().unwrap_or(&from.dir), &parts::COPIED, new)?;
            parts::copy(&from.dir, &["first"], new)
        };
        copied()
            .with_context(|| format!("cannot copy box {}", from.name()))
            .kind(ErrorKind::Broken)?;
        let Some(mut run) = read_run(new) else { return Ok(()) };
        (run.id, run.name) = (state.new_id()?.0, Some(name.clone()));
        parts::write_run(new, run).kind(ErrorKind::Broken)
    })
}

fn read_run(dir: &Path) -> Option<RunRecord> {
    serde_json::from_slice(&std::fs::read(dir.join("run.json")).ok()?).ok()
}

/// The options for resetting a named box.
#[derive(Clone, Copy, Debug)]
pub struct Reset<'a> {
    /// The snapshot to return to. `None` means the state after the creation of the box.
    pub tag: Option<&'a Tag>,
    /// Resets only the home directory, and keeps the work in the workspace.
    pub keep_work: bool,
    /// Resets the box even if it has unapplied work.
    pub discard_work: bool,
}

/// Resets a stopped box to its first state or to a snapshot. Its current contents go to the trash.
pub fn reset(state: &Scoped, named_box: &NamedBox, to: Reset<'_>) -> Result<(), EngineError> {
    let Reset { tag, keep_work, discard_work } = to;
    let name = named_box.name();
    let _lock = named_box.lock_while_stopped("reset")?;
    let source = tag.map(|tag| snapshot::find(named_box, tag)).transpose()?;
    let unapplied = match keep_work {
        true => None,
        false => unapplied::guard(state, named_box, "reset", discard_work)?,
    };
    let note = TrashNote::new(state, name, TrashKind::Reset, "reset", unapplied)?;
    let event = BoxReset {
        name: name.to_string(),
        tag: tag.map(ToString::to_string),
        trash: note.directory_name(),
        unapplied: note.unapplied.clone(),
    };
    record::fact(state, event)?;
    let next = parts::prepare(named_box)?;
    let written = write_next(state, named_box, source.as_deref(), keep_work, &next);
    written
        .with_context(|| format!("cannot prepare the reset of box {name}"))
        .kind(ErrorKind::Broken)?;
    if let (BoxWorkspace::Repo(at), None, false) = (&named_box.record.ground, tag, keep_work) {
        clone_again(state, named_box, at, &next)?;
    }
    let replaced = if keep_work { &["home"][..] } else { &parts::ALL[..] };
    parts::exchange(named_box, replaced, note)
}

/// Writes the contents that a box has after a reset to the directory `next`.
fn write_next(
    state: &Scoped,
    named_box: &NamedBox,
    source: Option<&Path>,
    keep_work: bool,
    next: &Path,
) -> anyhow::Result<()> {
    let which = if keep_work { &["home"][..] } else { &parts::COPIED[..] };
    if let Some(source) = source {
        parts::copy(source, which, next)?;
        if let Some(ground) = snapshot::workspace_at_snapshot(state, source).filter(|_| !keep_work)
        {
            let record = BoxRecord { ground, ..named_box.record.clone() };
            box_store::write_atomically(next, "box.json", &serde_json::to_vec_pretty(&record)?)?;
        }
    } else {
        write_first_home(named_box, next)?;
    }
    // A box in its first state was never started, so it has no run.
    let run = read_run(next).filter(|_| !keep_work);
    run.map_or(Ok(()), |run| parts::write_run(next, run))
}

/// Writes the home directory that the box had after its creation to the directory `next`.
fn write_first_home(named_box: &NamedBox, next: &Path) -> anyhow::Result<()> {
    let (first, home) = (named_box.dir.join("first"), next.join("home"));
    if first.is_dir() {
        belljar_workspace::copy_tree(&first, &home)?;
        return Ok(());
    }
    DirBuilder::new().mode(0o755).create(&home)?;
    box_store::set_owner(&[&home], box_store::owner_of(&named_box.dir.join("home")))
}
