//! `belljar gc`: removes what nobody needs any more. Work that nobody took over stays.

use std::fs;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::Context as _;

use crate::cli::boxes::GcArgs;
use crate::exit::Outcome;
use crate::print;
use crate::scope;
use crate::when::{self, When};
use belljar_engine::boxes::{self, NamedBox, snapshot, trash, work};
use belljar_engine::error::{EngineError, ErrorKind, WithKind as _};
use belljar_engine::scope::Scoped;

/// Nobody takes so long to make a box.
const MAKING: Duration = Duration::from_hours(1);

pub(crate) fn run(args: &GcArgs) -> Outcome {
    let state = scope::open(None)?;
    let age = match args.older_than {
        When::Ago(nanos) => Duration::from_nanos(nanos),
        When::At(nanos) => Duration::from_nanos(when::now().saturating_sub(nanos)),
    };
    let said = |what: &str| {
        let would = if args.dry_run { "would remove" } else { "removed" };
        print::out(&format!("{would} {what}\n")).kind(ErrorKind::Broken)
    };
    let mut removed = 0_u64;
    let old = trash::older_than(&state, age)?;
    if !args.dry_run {
        trash::empty(&state, &old)?;
    }
    for entry in &old {
        removed += 1;
        let (what, name) = (entry.note.what.name(), &entry.note.name);
        said(&format!("{what} {name} ({}) from the trash, for good", entry.note.id))?;
    }
    for dir in unfinished(&state)? {
        if !args.dry_run {
            belljar_workspace::remove_tree(&dir)
                .context("remove a box that was never made")
                .kind(ErrorKind::Broken)?;
        }
        removed += 1;
        said("what a box that was never finished left")?;
    }
    for one in NamedBox::all(&state)? {
        if let Some(what) = old_box(&state, &one, age, args)? {
            removed += 1;
            said(&what)?;
        }
    }
    if removed == 0 {
        print::note("nothing is old enough to be removed");
    }
    Ok(0)
}

/// Directories of boxes whose making broke off.
fn unfinished(state: &Scoped) -> Result<Vec<PathBuf>, EngineError> {
    let Ok(entries) = fs::read_dir(boxes::place(state)) else { return Ok(Vec::new()) };
    let is_old = |path: &PathBuf| {
        let made = path.symlink_metadata().and_then(|meta| meta.modified());
        made.is_ok_and(|made| made.elapsed().is_ok_and(|age| age > MAKING))
    };
    let entries = entries.filter_map(Result::ok);
    let hidden = entries.filter(|entry| entry.file_name().as_encoded_bytes().starts_with(b"."));
    Ok(hidden.map(|entry| entry.path()).filter(is_old).collect())
}

/// Puts a box that was not used for so long into the trash; what that was.
fn old_box(
    state: &Scoped,
    one: &NamedBox,
    age: Duration,
    args: &GcArgs,
) -> Result<Option<String>, EngineError> {
    let last = one.run().map_or(one.record.created, |run| {
        let took = run.record.result.map_or(0, |result| result.wall_micros / 1000);
        run.record.created.saturating_add(took)
    });
    let now = state.clock().millis();
    if one.is_up() || u128::from(now.saturating_sub(last)) <= age.as_millis() {
        return Ok(None);
    }
    let _turn = one.turn()?;
    if one.is_up() {
        return Ok(None);
    }
    snapshot::remove_unfinished(one);
    let name = one.name();
    let unapplied = work::work(state, one)?;
    if let Some(unapplied) = unapplied.as_ref().filter(|_| !args.discard_work) {
        print::note(&format!(
            "box {name} is old, and stays: it holds {} that nobody took over (--discard-work takes it along)",
            unapplied.words()
        ));
        return Ok(None);
    }
    if !args.dry_run {
        trash::put(state, one, "gc", unapplied.map(|unapplied| unapplied.words().to_owned()))?;
    }
    Ok(Some(format!("box {name}; `belljar restore {name}` brings it back for 14 days")))
}
