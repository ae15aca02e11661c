//! Restores boxes and parts of boxes from the trash.

use anyhow::Context as _;
use belljar_ledger::BoxRestored;
use belljar_model::RunRecord;
use belljar_model::boxes::BoxName;

use super::unapplied;
use crate::box_store::trash::{self, TrashEntry, TrashKind, TrashNote};
use crate::box_store::{self, NamedBox, parts};
use crate::error::{EngineError, ErrorKind, WithKind as _, invalid};
use crate::record;
use crate::scope::Scoped;

/// The result of a restore from the trash: a whole box, or a part of a box.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Restored {
    /// A whole box with this name.
    Box(BoxName),
    /// A part of an existing box.
    Part(BoxName, TrashKind),
}

/// Restores an entry of the trash. `new` is a new name for a whole box.
pub fn restore(
    state: &Scoped,
    entry: &TrashEntry,
    new: Option<&BoxName>,
) -> Result<Restored, EngineError> {
    match entry.note.what {
        TrashKind::Box => restore_box(state, entry, new).map(Restored::Box),
        TrashKind::Changes | TrashKind::Reset if new.is_some() => Err(invalid(
            "--as is only for whole boxes, and this entry is a part of a box; restore it without --as",
        )),
        TrashKind::Changes | TrashKind::Reset => {
            restore_parts(state, entry, &parts_of(entry))?;
            Ok(Restored::Part(entry.note.name.clone(), entry.note.what))
        }
    }
}

/// Returns the newest entry of the trash with this box name, or the entry whose id starts with `which`.
pub fn find(state: &Scoped, which: &str) -> Result<TrashEntry, EngineError> {
    let all = trash::all(state)?;
    let has_name = |entry: &TrashEntry| entry.note.name.as_str() == which;
    let has_prefix =
        |entry: &TrashEntry| which.len() >= 4 && entry.note.id.to_string().starts_with(which);
    let matches = all.iter().filter(|entry| has_prefix(entry)).count();
    let is_name = all.iter().any(has_name);
    if !is_name && matches > 1 {
        return Err(invalid(format!(
            "id prefix {which:?} is ambiguous ({matches} matches); use a longer prefix"
        )));
    }
    let is_match = |entry: &TrashEntry| if is_name { has_name(entry) } else { has_prefix(entry) };
    all.into_iter().find(is_match).ok_or_else(|| {
        invalid(format!("the trash has no entry {which:?}; `belljar restore` lists all entries"))
    })
}

fn restore_box(
    state: &Scoped,
    entry: &TrashEntry,
    new: Option<&BoxName>,
) -> Result<BoxName, EngineError> {
    let name = new.unwrap_or(&entry.note.name);
    let to = box_store::boxes_dir(state).join(name.as_str());
    if to.symlink_metadata().is_ok() {
        return Err(invalid(format!(
            "there is a box {name} already; restore under another name with `belljar restore {} --as NEW`",
            entry.note.id
        )));
    }
    record_restore(state, &entry.note, name)?;
    let restored = || -> anyhow::Result<()> {
        rename(state, entry, name)?;
        trash::create_dir(&box_store::boxes_dir(state))?;
        trash::move_path(&entry.dir, &to)?;
        std::fs::remove_file(to.join("trash.json"))
            .context("cannot remove trash.json from the restored box")
    };
    restored().with_context(|| format!("cannot restore box {name}")).kind(ErrorKind::Broken)?;
    Ok(name.clone())
}

/// Writes a new name into the records of a box in the trash.
fn rename(state: &Scoped, entry: &TrashEntry, name: &BoxName) -> anyhow::Result<()> {
    let read = |file: &str| std::fs::read(entry.dir.join(file));
    let home = state.host().user_home();
    let mut record = box_store::read_record(&read("box.json")?, home.as_deref())?;
    if record.name == *name {
        return Ok(());
    }
    record.name = name.clone();
    box_store::write_atomically(&entry.dir, "box.json", &serde_json::to_vec_pretty(&record)?)?;
    if let Ok(text) = read("run.json") {
        let mut run: RunRecord = serde_json::from_slice(&text)?;
        run.name = Some(name.clone());
        box_store::write_atomically(&entry.dir, "run.json", &serde_json::to_vec_pretty(&run)?)?;
    }
    Ok(())
}

/// Returns the parts of a box that an entry of the trash contains.
///
/// The files of [`parts::CHANGES`] belong together: if one of them exists, all are returned.
fn parts_of(entry: &TrashEntry) -> Vec<&'static str> {
    let exists = |part: &&str| entry.dir.join(part).symlink_metadata().is_ok();
    let has_changes = parts::CHANGES.into_iter().any(|part| exists(&part));
    let changes = parts::CHANGES.into_iter().filter(|_| has_changes);
    ["home", "repo"].into_iter().filter(exists).chain(changes).collect()
}

/// Copies parts from the trash back into their box. The replaced parts go to the trash.
fn restore_parts(state: &Scoped, entry: &TrashEntry, which: &[&str]) -> Result<(), EngineError> {
    let name = &entry.note.name;
    let named_box = NamedBox::find(state, name)?;
    let _lock = named_box.lock_while_stopped("restore")?;
    if let Some(unapplied) = unapplied::find(state, &named_box)? {
        return Err(invalid(format!(
            "cannot restore parts of box {name}: it has unapplied work: {}; apply or discard this work first",
            unapplied.description()
        )));
    }
    record_restore(state, &entry.note, name)?;
    let next = parts::prepare(&named_box)?;
    let copied = parts::copy(&entry.dir, which, &next).and_then(|()| {
        parts::copy(&entry.dir, &["box.json"], &next)?;
        let Ok(text) = std::fs::read(entry.dir.join("run.json")) else { return Ok(()) };
        parts::write_run(&next, serde_json::from_slice(&text)?)
    });
    copied
        .with_context(|| format!("cannot restore the {} of box {name}", entry.note.what.name()))
        .kind(ErrorKind::Broken)?;
    let note = TrashNote::new(state, name, entry.note.what, "restore", None)?;
    parts::exchange(&named_box, which, note)
}

fn record_restore(state: &Scoped, note: &TrashNote, name: &BoxName) -> Result<(), EngineError> {
    let event = BoxRestored {
        name: name.to_string(),
        trash: note.directory_name(),
        what: note.what.name().to_owned(),
    };
    record::fact(state, event)
}
