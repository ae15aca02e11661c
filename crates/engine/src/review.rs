//! Finding the run whose changes are reviewed.

use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

use anyhow::Context as _;

use crate::boxes;
use crate::error::{EngineError, ErrorKind, WithKind as _, invalid};
use crate::scope::Scoped;
use crate::store::Run;

/// What was named, first among the boxes, or the newest run of this workspace whose changes wait.
pub fn find(state: &Scoped, here: &Path, which: Option<&str>) -> Result<Run, EngineError> {
    if let Some(run) = which.map(|name| boxes::run_named(state, name)).transpose()?.flatten() {
        return Ok(run);
    }
    let mut runs = state.store().runs().kind(ErrorKind::Broken)?;
    runs.extend(boxes::runs(state));
    runs.sort_by_key(|run| std::cmp::Reverse(run.record.id));
    match which {
        Some(name) => named(runs, name),
        None => newest_here(runs, here),
    }
}

fn named(runs: Vec<Run>, name: &str) -> Result<Run, EngineError> {
    let mut found: Vec<Run> = runs
        .into_iter()
        .filter(|run| {
            run.record.name.as_ref().is_some_and(|own| own.as_str() == name)
                || (name.len() >= 4 && run.record.id.to_string().starts_with(name))
        })
        .collect();
    match found.len() {
        0 => Err(invalid(format!("there is no run {name:?}; `belljar runs --all` lists them"))),
        1 => Ok(found.remove(0)),
        // A name may be used again; an id that is cut short must say which.
        _ if found
            .iter()
            .all(|run| run.record.name.as_ref().is_some_and(|own| own.as_str() == name)) =>
        {
            Ok(found.remove(0))
        }
        many => {
            Err(invalid(format!("{name:?} is the beginning of {many} run ids; write more of it")))
        }
    }
}

fn newest_here(runs: Vec<Run>, here: &Path) -> Result<Run, EngineError> {
    let here =
        fs::metadata(here).context("look at the current directory").kind(ErrorKind::Broken)?;
    let here = (here.dev(), here.ino());
    let of_here =
        |run: &Run| run.record.workspace.as_ref().is_some_and(|at| (at.dev, at.ino) == here);
    let newest = runs.into_iter().filter(of_here).find(|run| run.record.review.waits());
    newest.ok_or_else(|| {
        invalid("no run of this directory waits for review; `belljar runs --all` lists the others")
    })
}
