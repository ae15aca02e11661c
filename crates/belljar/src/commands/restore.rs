//! `belljar restore`: brings back what was removed, as long as the trash has it.

use anyhow::Context as _;
use belljar_ledger::BoxRestored;
use belljar_model::RunRecord;
use belljar_model::boxes::{BoxName, BoxRecord};
use serde::Serialize;

use crate::cli::boxes::RestoreArgs;
use crate::exit::Outcome;
use crate::print;
use crate::scope;
use crate::when;
use belljar_engine::boxes::trash::{self, Entry, Note, What};
use belljar_engine::boxes::{self, NamedBox, parts, work};
use belljar_engine::error::{EngineError, ErrorKind, WithKind as _, invalid};
use belljar_engine::record;
use belljar_engine::scope::Scoped;

pub(crate) fn run(args: &RestoreArgs) -> Outcome {
    let state = scope::open(None)?;
    let Some(which) = &args.which else { return list(&state, args.json) };
    let entry = find(&state, which)?;
    match entry.note.what {
        What::Box => whole(&state, &entry, args.new.as_ref()),
        What::Changes | What::Reset if args.new.is_some() => Err(invalid(
            "--as names a whole box, and this is only a part of one; restore it without --as",
        )),
        What::Changes | What::Reset => part(&state, &entry, &taken(&entry)),
    }
}

fn list(state: &Scoped, json: bool) -> Outcome {
    #[derive(Serialize)]
    struct Line<'a> {
        #[serde(flatten)]
        note: &'a Note,
        /// Milliseconds since the Unix epoch.
        until: u64,
    }
    let all = trash::all(state)?;
    for Entry { note, .. } in &all {
        let kept = u64::try_from(trash::KEPT.as_millis()).unwrap_or(u64::MAX);
        if json {
            print::json(&Line { note, until: note.when.saturating_add(kept) })
                .kind(ErrorKind::Broken)?;
            continue;
        }
        let when = when::to_the_second(note.when.saturating_mul(1_000_000));
        let holds = note.unapplied.as_deref().unwrap_or("nothing that was not taken over");
        let (id, name, what) = (note.id, note.name.as_str(), note.what.name());
        let line = format!("{id}  {name:<20}  {what:<8}  {when}  {}: {holds}\n", note.by);
        print::out(&line).kind(ErrorKind::Broken)?;
    }
    if all.is_empty() && !json {
        print::note("the trash is empty");
    }
    Ok(0)
}

/// The newest thing in the trash that is called so, or the one with this id.
fn find(state: &Scoped, which: &str) -> Result<Entry, EngineError> {
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

fn whole(state: &Scoped, entry: &Entry, new: Option<&BoxName>) -> Outcome {
    let name = new.unwrap_or(&entry.note.name);
    let to = boxes::place(state).join(name.as_str());
    if to.symlink_metadata().is_ok() {
        return Err(invalid(format!(
            "there is a box {name}; `belljar restore {} --as NEW` gives the old one another name",
            entry.note.id
        )));
    }
    on_record(state, &entry.note, name)?;
    let restored = || -> anyhow::Result<()> {
        rename(entry, name)?;
        trash::make(&boxes::place(state))?;
        trash::shift(&entry.dir, &to)?;
        std::fs::remove_file(to.join("trash.json")).context("remove the note of the trash")
    };
    restored().with_context(|| format!("restore box {name}")).kind(ErrorKind::Broken)?;
    print::note(&format!("box {name} is back; `belljar start {name}` starts it"));
    Ok(0)
}

/// Writes the name that the box is to have into its files.
fn rename(entry: &Entry, name: &BoxName) -> anyhow::Result<()> {
    let read = |file: &str| std::fs::read(entry.dir.join(file));
    let mut record: BoxRecord = serde_json::from_slice(&read("box.json")?)?;
    if record.name == *name {
        return Ok(());
    }
    record.name = name.clone();
    boxes::write_whole(&entry.dir, "box.json", &serde_json::to_vec_pretty(&record)?)?;
    if let Ok(text) = read("run.json") {
        let mut run: RunRecord = serde_json::from_slice(&text)?;
        run.name = Some(name.clone());
        boxes::write_whole(&entry.dir, "run.json", &serde_json::to_vec_pretty(&run)?)?;
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
fn part(state: &Scoped, entry: &Entry, which: &[&str]) -> Outcome {
    let name = &entry.note.name;
    let one = NamedBox::find(state, name)?;
    let _turn = one.turn_while_down("restore")?;
    if let Some(unapplied) = work::work(state, &one)? {
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
    parts::exchange(&one, which, note)?;
    print::note(&format!(
        "the {} of box {name} is as it was",
        match entry.note.what {
            What::Changes => "work",
            What::Reset | What::Box => "content",
        }
    ));
    Ok(0)
}

fn on_record(state: &Scoped, note: &Note, name: &BoxName) -> Result<(), EngineError> {
    let event = BoxRestored {
        name: name.to_string(),
        trash: note.place(),
        what: note.what.name().to_owned(),
    };
    record::fact(state, event)
}
