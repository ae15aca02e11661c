//! Copies of boxes, and the way back.

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
use crate::box_store::trash::{Note, What};
use crate::box_store::{self, NamedBox, parts};
use crate::error::{EngineError, ErrorKind, WithKind as _};
use crate::record;
use crate::scope::Scoped;

/// Makes boxes that hold what another one holds, or held at a snapshot.
pub fn fork(
    state: &Scoped,
    from: &NamedBox,
    tag: Option<&Tag>,
    names: &[BoxName],
) -> Result<(), EngineError> {
    let _turn = from.turn()?;
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

/// Makes a box that holds what another one holds, or held.
fn copy(
    state: &Scoped,
    from: &NamedBox,
    tag: Option<&Tag>,
    name: &BoxName,
) -> Result<NamedBox, EngineError> {
    let source = tag.map(|tag| snapshot::find(from, tag)).transpose()?;
    let created = state.clock().millis();
    let ground = source.as_deref().and_then(|dir| snapshot::ground(state, dir));
    let ground = ground.unwrap_or_else(|| from.record.ground.clone());
    let record = BoxRecord { name: name.clone(), created, ground, ..from.record.clone() };
    let owner = box_store::owner_of(&from.dir.join("home"));
    box_store::create(state, record, owner, |new, _| {
        let _still = if tag.is_none() { snapshot::still(state, from)? } else { None };
        let copied = || -> anyhow::Result<()> {
            std::fs::remove_dir(new.join("home"))?;
            parts::copy(source.as_deref().unwrap_or(&from.dir), &parts::KEPT, new)?;
            parts::copy(&from.dir, &["first"], new)
        };
        copied().with_context(|| format!("copy box {}", from.name())).kind(ErrorKind::Broken)?;
        let Some(mut run) = run_in(new) else { return Ok(()) };
        (run.id, run.name) = (state.new_id()?.0, Some(name.clone()));
        parts::write_run(new, run).kind(ErrorKind::Broken)
    })
}

fn run_in(dir: &Path) -> Option<RunRecord> {
    serde_json::from_slice(&std::fs::read(dir.join("run.json")).ok()?).ok()
}

/// What a box is reset to, and what of it.
#[derive(Clone, Copy, Debug)]
pub struct Reset<'a> {
    /// `None`: as it was made.
    pub tag: Option<&'a Tag>,
    /// Resets only the home.
    pub keep_work: bool,
    /// Loses work that nobody applied.
    pub discard_work: bool,
}

/// Makes a stopped box as it was. What it held goes to the trash.
pub fn reset(state: &Scoped, one: &NamedBox, to: Reset<'_>) -> Result<(), EngineError> {
    let Reset { tag, keep_work, discard_work } = to;
    let name = one.name();
    let _turn = one.turn_while_down("reset")?;
    let source = tag.map(|tag| snapshot::find(one, tag)).transpose()?;
    let unapplied = match keep_work {
        true => None,
        false => unapplied::guard(state, one, "reset", discard_work)?,
    };
    let note = Note::new(state, name, What::Reset, "reset", unapplied)?;
    let event = BoxReset {
        name: name.to_string(),
        tag: tag.map(ToString::to_string),
        trash: note.place(),
        unapplied: note.unapplied.clone(),
    };
    record::fact(state, event)?;
    let next = parts::prepare(one)?;
    let made = make_ready(state, one, source.as_deref(), keep_work, &next);
    made.with_context(|| format!("make box {name} as it was")).kind(ErrorKind::Broken)?;
    if let (BoxWorkspace::Repo(at), None, false) = (&one.record.ground, tag, keep_work) {
        clone_again(state, one, at, &next)?;
    }
    let all = if keep_work { &["home"][..] } else { &parts::ALL[..] };
    parts::exchange(one, all, note)
}

/// What the box is to hold.
fn make_ready(
    state: &Scoped,
    one: &NamedBox,
    source: Option<&Path>,
    keep_work: bool,
    next: &Path,
) -> anyhow::Result<()> {
    let which = if keep_work { &["home"][..] } else { &parts::KEPT[..] };
    if let Some(source) = source {
        parts::copy(source, which, next)?;
        if let Some(ground) = snapshot::ground(state, source).filter(|_| !keep_work) {
            let record = BoxRecord { ground, ..one.record.clone() };
            box_store::write_whole(next, "box.json", &serde_json::to_vec_pretty(&record)?)?;
        }
    } else {
        first_home(one, next)?;
    }
    // A box that is as it was made was never started.
    let run = run_in(next).filter(|_| !keep_work);
    run.map_or(Ok(()), |run| parts::write_run(next, run))
}

/// The home as it was when the box was made.
fn first_home(one: &NamedBox, next: &Path) -> anyhow::Result<()> {
    let (first, home) = (one.dir.join("first"), next.join("home"));
    if first.is_dir() {
        belljar_workspace::copy_tree(&first, &home)?;
        return Ok(());
    }
    DirBuilder::new().mode(0o755).create(&home)?;
    box_store::give(&[&home], box_store::owner_of(&one.dir.join("home")))
}
