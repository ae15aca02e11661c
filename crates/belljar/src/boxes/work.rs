//! What would be lost if a box went: what it changed and nobody took over.

use belljar_model::boxes::Ground;
use belljar_model::{RepoAt, display};
use belljar_workspace::{Change, unapplied};

use super::NamedBox;
use crate::commands::apply;
use crate::failure::{Code as _, FAILED, Failure, usage};
use crate::repo;
use crate::state::{State, is_empty};

/// So many paths are named.
const NAMED: usize = 5;

/// Work that only the box holds.
#[derive(Debug)]
pub(crate) struct Unapplied {
    words: String,
}

impl Unapplied {
    /// What it is, for a sentence.
    pub(crate) fn words(&self) -> &str {
        &self.words
    }

    /// Refuses to lose it.
    pub(crate) fn refuse(&self, of: &NamedBox, wanted: &str) -> Failure {
        let name = of.name();
        usage(format!(
            "box {name} holds {} that nobody took over, so {wanted} is refused: look with `belljar diff {name}`, take it with `belljar apply {name}`, or say --discard-work (`belljar restore` brings it back for 14 days)",
            self.words
        ))
    }
}

/// What the box holds that the host does not. A box that is at work is looked at as it is now.
pub(crate) fn work(state: &State, of: &NamedBox) -> Result<Option<Unapplied>, Failure> {
    match &of.record.ground {
        Ground::Nothing => Ok(None),
        Ground::Directory { .. } => Ok(overlay(state, of)),
        Ground::Repo(at) => Ok(cloned(state, of, at)),
    }
}

/// Refuses what would lose work, unless that was said. Returns what would be lost, for the record.
pub(crate) fn guard(
    state: &State,
    of: &NamedBox,
    wanted: &str,
    discard_work: bool,
) -> Result<Option<String>, Failure> {
    match work(state, of)? {
        Some(unapplied) if !discard_work => Err(unapplied.refuse(of, wanted)),
        unapplied => Ok(unapplied.map(|unapplied| unapplied.words)),
    }
}

fn overlay(state: &State, of: &NamedBox) -> Option<Unapplied> {
    if is_empty(&of.dir.join("upper")) {
        return None;
    }
    let read = || -> Result<Option<Unapplied>, Failure> {
        let run = of.run().ok_or_else(|| usage("the record of its run is gone"))?;
        let (layers, changes) = apply::look(state, &run, of.is_up())?;
        let left = unapplied(&layers, &changes).code(FAILED)?;
        let too_long: u64 = changes.too_long().iter().map(|it| it.names).sum();
        let count = left.len() as u64 + too_long;
        Ok((count > 0).then(|| Unapplied { words: words(&left, count) }))
    };
    // What cannot be read is not known to be nothing.
    read().unwrap_or_else(|failure| {
        let why = display::safe_line(format!("{:#}", failure.error)).to_string();
        Some(Unapplied { words: format!("changes that cannot be read ({why})") })
    })
}

/// Commits and files of a private clone that the user's repository does not have.
fn cloned(state: &State, of: &NamedBox, at: &RepoAt) -> Option<Unapplied> {
    match repo::has_work(state, of.name(), at, &of.dir.join("repo")) {
        Ok(work) => work.and_then(|work| work.would_lose()).map(|words| Unapplied { words }),
        Err(failure) => {
            let why = display::safe_line(format!("{:#}", failure.error)).to_string();
            Some(Unapplied { words: format!("a clone that cannot be read ({why})") })
        }
    }
}

fn words(left: &[&Change], count: u64) -> String {
    let paths = left.iter().take(NAMED);
    let paths: Vec<String> =
        paths.map(|change| display::safe(change.path.as_bytes()).to_string()).collect();
    let more = usize::try_from(count).unwrap_or(usize::MAX).saturating_sub(paths.len());
    let more = if more > 0 { format!(" and {more} more") } else { String::new() };
    let changed = if count == 1 { "1 change" } else { &format!("{count} changes") };
    format!("{changed} ({}{more})", paths.join(", "))
}
