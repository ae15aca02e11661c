//! Garbage collection: removes old boxes, entries of the trash, files that `apply` replaced, and approvals.
//! Keeps unapplied work.

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
use crate::store::lock::{self, Rank};
use crate::store::{Run, is_empty};

/// The maximum time for the creation of a box. Older unfinished boxes are removed.
const CREATION_TIMEOUT: Duration = Duration::from_hours(1);

/// The options for removing old boxes and old entries of the trash.
#[derive(Clone, Copy, Debug)]
pub struct GcOptions {
    pub older_than: Duration,
    /// Removes nothing and reports what would be removed.
    pub dry_run: bool,
    /// Also removes boxes with unapplied work.
    pub discard_work: bool,
}

/// Removes boxes and entries of the trash that are older than the given age.
///
/// Calls `removed` with a description of each removed object.
pub fn collect(
    state: &Scoped,
    options: GcOptions,
    removed: &mut dyn FnMut(&str) -> Result<(), EngineError>,
) -> Result<(), EngineError> {
    let old = trash::older_than(state, options.older_than)?;
    if !options.dry_run {
        trash::delete(state, &old)?;
    }
    for entry in &old {
        let (kind, name) = (entry.note.what.name(), &entry.note.name);
        removed(&format!("{kind} {name} ({}) permanently from the trash", entry.note.id))?;
    }
    for dir in unfinished(state)? {
        if !options.dry_run {
            belljar_workspace::remove_tree(&dir)
                .context("cannot remove an unfinished box")
                .kind(ErrorKind::Broken)?;
        }
        removed("the files of an unfinished box")?;
    }
    for named_box in NamedBox::all(state)? {
        if let Some(text) = remove_old_box(state, &named_box, options)? {
            removed(&text)?;
        }
    }
    for run in runs_with_old_trash(state, options.older_than)? {
        let id = run.id();
        if !options.dry_run {
            let review = lock::acquire(&run.dir.join("review"), Rank::Review, Duration::ZERO);
            let Ok(Some(_review)) = review else { continue }; // a command is reviewing the run
            belljar_workspace::empty_trash(&run.dir)
                .with_context(|| format!("cannot empty the trash of run {id}"))
                .kind(ErrorKind::Broken)?;
        }
        removed(&format!("the files that `belljar apply {id}` replaced"))?;
    }
    let approvals = approvals::remove_old(state, approvals::RETENTION, options.dry_run)?;
    if approvals > 0 {
        removed(&format!("{approvals} approvals that were closed more than 14 days ago"))?;
    }
    Ok(())
}

/// Returns the old directories of boxes whose creation did not finish.
fn unfinished(state: &Scoped) -> Result<Vec<PathBuf>, EngineError> {
    let Ok(entries) = fs::read_dir(box_store::boxes_dir(state)) else { return Ok(Vec::new()) };
    let now = state.clock().now();
    let is_old = |path: &PathBuf| {
        let modified = path.symlink_metadata().and_then(|meta| meta.modified());
        let age = modified.ok().and_then(|modified| now.duration_since(modified).ok());
        age.is_some_and(|age| age > CREATION_TIMEOUT)
    };
    let entries = entries.filter_map(Result::ok);
    let hidden = entries.filter(|entry| entry.file_name().as_encoded_bytes().starts_with(b"."));
    Ok(hidden.map(|entry| entry.path()).filter(is_old).collect())
}

/// Returns the runs whose trash has files, the last of which was put there long ago by `apply`.
fn runs_with_old_trash(state: &Scoped, age: Duration) -> Result<Vec<Run>, EngineError> {
    let mut runs = state.store().runs().kind(ErrorKind::Broken)?;
    runs.extend(box_store::runs(state));
    let now = state.clock().now();
    runs.retain(|run| {
        let trash = run.dir.join("trash");
        let modified = trash.symlink_metadata().and_then(|meta| meta.modified()).ok();
        let is_old = modified.is_some_and(|it| now.duration_since(it).is_ok_and(|it| it > age));
        is_old && !is_empty(&trash)
    });
    Ok(runs)
}

/// Moves a stopped box to the trash if its last use is long ago. Returns a description of the box.
fn remove_old_box(
    state: &Scoped,
    named_box: &NamedBox,
    options: GcOptions,
) -> Result<Option<String>, EngineError> {
    let last_use = named_box.run().map_or(named_box.record.created, |run| {
        let took = run.record.result.map_or(0, |result| result.wall_micros / 1000);
        run.record.created.saturating_add(took)
    });
    let now = state.clock().millis();
    if named_box.is_up()
        || u128::from(now.saturating_sub(last_use)) <= options.older_than.as_millis()
    {
        return Ok(None);
    }
    let _lock = named_box.lock_for_change()?;
    if named_box.is_up() {
        return Ok(None);
    }
    snapshot::remove_unfinished(named_box);
    let name = named_box.name();
    let unapplied = unapplied::find(state, named_box)?;
    if let Some(unapplied) = unapplied.as_ref().filter(|_| !options.discard_work) {
        state.notice(&Notice::Kept(format!(
            "box {name} is old, but is not removed: it has unapplied work: {}; to remove it, use --discard-work",
            unapplied.description()
        )));
        return Ok(None);
    }
    if !options.dry_run {
        let unapplied = unapplied.map(|unapplied| unapplied.description().to_owned());
        trash::move_box(state, named_box, "gc", unapplied)?;
    }
    Ok(Some(format!("box {name}; `belljar restore {name}` can restore it for 14 days")))
}
