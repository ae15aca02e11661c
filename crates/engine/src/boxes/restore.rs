//! Bringing back what was removed, as long as the trash has it.

use anyhow::Context as _;
use belljar_ledger::BoxRestored;
use belljar_model::RunRecord;
use belljar_model::boxes::BoxName;

use super::unapplied;
use crate::box_store::trash::{self, Entry, Note, What};
use crate::box_store::{self, NamedBox, parts};
use crate::error::{EngineError, ErrorKind, WithKind as _, invalid};
use crate::record;
use crate::scope::Scoped;

/// What was brought back.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Restored {
    /// A whole box, under this name.
    Box(BoxName),
    /// A part of a box that exists.
    Part(BoxName, What),
}

/// Brings back an entry of the trash. `new` is another name for a whole box.
pub fn restore(
    state: &Scoped,
    entry: &Entry,
    new: Option<&BoxName>,
) -> Result<Restored, EngineError> {
    match entry.note.what {
        What::Box => whole(state, entry, new).map(Restored::Box),
        What::Changes | What::Reset if new.is_some() => Err(invalid(
            "--as names a whole box, and this is only a part of one; restore it without --as",
        )),
        What::Changes | What::Reset => {
            part(state, entry, &taken(entry))?;
            Ok(Restored::Part(entry.note.name.clone(), entry.note.what))
        }
    }
}

/// The newest thing in the trash that is called so, or the one with this id.
pub fn find(state: &Scoped, which: &str) -> Result<Entry, EngineError> {
    let all = trash::all(state)?;
    let named = |entry: &Entry| entry.note.name.as_str() == which;
    let begins = |entry: &Entry| which.len() >= 4 && entry.note.id.to_string().starts_with(which);
    let many = all.iter().filter(|entry| begins(entry)).count();
    let is_name = all.iter().any(named);
    if !is_name && many > 1 {
        return Err(invalid(format!("{which:?} is the beginning of {many} ids; write more of it")));
    }
    let wanted = |entry: &Entry| if is_name { named(entry) } else { begins(entry) };
    all.into_iter().find(wanted).ok_or_else(|| {
        invalid(format!("the trash holds no {which:?}; `belljar restore` lists what it holds"))
    })
}

fn whole(state: &Scoped, entry: &Entry, new: Option<&BoxName>) -> Result<BoxName, EngineError> {
    let name = new.unwrap_or(&entry.note.name);
    let to = box_store::place(state).join(name.as_str());
    if to.symlink_metadata().is_ok() {
        return Err(invalid(format!(
            "there is a box {name}; `belljar restore {} --as NEW` gives the old one another name",
            entry.note.id
        )));
    }
    on_record(state, &entry.note, name)?;
    let restored = || -> anyhow::Result<()> {
        rename(state, entry, name)?;
        trash::make(&box_store::place(state))?;
        trash::shift(&entry.dir, &to)?;
        std::fs::remove_file(to.join("trash.json")).context("remove the note of the trash")
    };
    restored().with_context(|| format!("restore box {name}")).kind(ErrorKind::Broken)?;
    Ok(name.clone())
}

/// Writes the name that the box is to have into its files.
fn rename(state: &Scoped, entry: &Entry, name: &BoxName) -> anyhow::Result<()> {
    let read = |file: &str| std::fs::read(entry.dir.join(file));
    let home = state.host().user_home();
    let mut record = box_store::read_record(&read("box.json")?, home.as_deref())?;
    if record.name == *name {
        return Ok(());
    }
    record.name = name.clone();
    box_store::write_whole(&entry.dir, "box.json", &serde_json::to_vec_pretty(&record)?)?;
    if let Ok(text) = read("run.json") {
        let mut run: RunRecord = serde_json::from_slice(&text)?;
        run.name = Some(name.clone());
        box_store::write_whole(&entry.dir, "run.json", &serde_json::to_vec_pretty(&run)?)?;
    }
    Ok(())
}

/// What was taken out of the box. Its changes are several files that only make sense together.
fn taken(entry: &Entry) -> Vec<&'static str> {
    let is_there = |part: &&str| entry.dir.join(part).symlink_metadata().is_ok();
    let changes = parts::CHANGES.into_iter().any(|part| is_there(&part));
    let changes = parts::CHANGES.into_iter().filter(|_| changes);
    ["home", "repo"].into_iter().filter(is_there).chain(changes).collect()
}

/// Copies parts back into their box. What it has in their place goes to the trash, too.
fn part(state: &Scoped, entry: &Entry, which: &[&str]) -> Result<(), EngineError> {
    let name = &entry.note.name;
    let one = NamedBox::find(state, name)?;
    let _turn = one.turn_while_down("restore")?;
    if let Some(unapplied) = unapplied::work(state, &one)? {
        return Err(invalid(format!(
            "box {name} holds {} by now; apply or discard that first",
            unapplied.words()
        )));
    }
    on_record(state, &entry.note, name)?;
    let next = parts::prepare(&one)?;
    let copied = parts::copy(&entry.dir, which, &next).and_then(|()| {
        parts::copy(&entry.dir, &["box.json"], &next)?;
        let Ok(text) = std::fs::read(entry.dir.join("run.json")) else { return Ok(()) };
        parts::write_run(&next, serde_json::from_slice(&text)?)
    });
    copied
        .with_context(|| format!("restore {} of box {name}", entry.note.what.name()))
        .kind(ErrorKind::Broken)?;
    let note = Note::new(state, name, entry.note.what, "restore", None)?;
    parts::exchange(&one, which, note)
}

fn on_record(state: &Scoped, note: &Note, name: &BoxName) -> Result<(), EngineError> {
    let event = BoxRestored {
        name: name.to_string(),
        trash: note.place(),
        what: note.what.name().to_owned(),
    };
    record::fact(state, event)
}
