//! Removing what nobody needs any more. Work that nobody applied stays.

use std::fs;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::Context as _;

use super::{snapshot, unapplied};
use crate::approvals;
use crate::box_store::{self, NamedBox, trash};
use crate::error::{EngineError, ErrorKind, WithKind as _};
use crate::notice::Notice;
use crate::scope::Scoped;

/// Nobody takes so long to make a box.
const MAKING: Duration = Duration::from_hours(1);

/// What is collected.
#[derive(Clone, Copy, Debug)]
pub struct Collect {
    pub older_than: Duration,
    /// Removes nothing and reports what would be removed.
    pub dry_run: bool,
    /// Also removes boxes with work that nobody applied.
    pub discard_work: bool,
}

/// Removes what is older than the given age. `removed` is called for each with a description.
pub fn collect(
    state: &Scoped,
    what: Collect,
    removed: &mut dyn FnMut(&str) -> Result<(), EngineError>,
) -> Result<(), EngineError> {
    let old = trash::older_than(state, what.older_than)?;
    if !what.dry_run {
        trash::empty(state, &old)?;
    }
    for entry in &old {
        let (kind, name) = (entry.note.what.name(), &entry.note.name);
        removed(&format!("{kind} {name} ({}) from the trash, for good", entry.note.id))?;
    }
    for dir in unfinished(state)? {
        if !what.dry_run {
            belljar_workspace::remove_tree(&dir)
                .context("remove a box that was never made")
                .kind(ErrorKind::Broken)?;
        }
        removed("what a box that was never finished left")?;
    }
    for one in NamedBox::all(state)? {
        if let Some(text) = old_box(state, &one, what)? {
            removed(&text)?;
        }
    }
    let approvals = approvals::remove_old(state, approvals::KEPT, what.dry_run)?;
    if approvals > 0 {
        removed(&format!("{approvals} approvals that ended more than 14 days ago"))?;
    }
    Ok(())
}

/// Directories of boxes whose making broke off.
fn unfinished(state: &Scoped) -> Result<Vec<PathBuf>, EngineError> {
    let Ok(entries) = fs::read_dir(box_store::place(state)) else { return Ok(Vec::new()) };
    let now = state.clock().now();
    let is_old = |path: &PathBuf| {
        let made = path.symlink_metadata().and_then(|meta| meta.modified());
        made.is_ok_and(|made| now.duration_since(made).is_ok_and(|age| age > MAKING))
    };
    let entries = entries.filter_map(Result::ok);
    let hidden = entries.filter(|entry| entry.file_name().as_encoded_bytes().starts_with(b"."));
    Ok(hidden.map(|entry| entry.path()).filter(is_old).collect())
}

/// Puts a box that was not used for so long into the trash; what that was.
fn old_box(state: &Scoped, one: &NamedBox, what: Collect) -> Result<Option<String>, EngineError> {
    let last = one.run().map_or(one.record.created, |run| {
        let took = run.record.result.map_or(0, |result| result.wall_micros / 1000);
        run.record.created.saturating_add(took)
    });
    let now = state.clock().millis();
    if one.is_up() || u128::from(now.saturating_sub(last)) <= what.older_than.as_millis() {
        return Ok(None);
    }
    let _turn = one.turn()?;
    if one.is_up() {
        return Ok(None);
    }
    snapshot::remove_unfinished(one);
    let name = one.name();
    let unapplied = unapplied::work(state, one)?;
    if let Some(unapplied) = unapplied.as_ref().filter(|_| !what.discard_work) {
        state.notice(&Notice::Kept(format!(
            "box {name} is old, and stays: it holds {} that nobody took over (--discard-work takes it along)",
            unapplied.words()
        )));
        return Ok(None);
    }
    if !what.dry_run {
        trash::put(state, one, "gc", unapplied.map(|unapplied| unapplied.words().to_owned()))?;
    }
    Ok(Some(format!("box {name}; `belljar restore {name}` brings it back for 14 days")))
}
