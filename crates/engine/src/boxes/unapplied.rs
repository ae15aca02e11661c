//! What would be lost if a box went: what it changed and nobody took over.

use belljar_model::boxes::BoxWorkspace;
use belljar_model::{RepoAt, display};
use belljar_workspace::{Change, unapplied};

use crate::box_store::NamedBox;
use crate::changes;
use crate::clones;
use crate::error::{EngineError, ErrorKind, WithKind as _, invalid};
use crate::scope::Scoped;
use crate::store::is_empty;

/// So many paths are named.
const NAMED: usize = 5;

/// Work that only the box holds.
#[derive(Debug)]
pub struct Unapplied {
    words: String,
}

impl Unapplied {
    /// What it is, for a sentence.
    pub fn words(&self) -> &str {
        &self.words
    }

    /// Refuses to lose it.
    pub fn refuse(&self, of: &NamedBox, wanted: &str) -> EngineError {
        let name = of.name();
        invalid(format!(
            "box {name} holds {} that nobody took over, so {wanted} is refused: look with `belljar diff {name}`, take it with `belljar apply {name}`, or say --discard-work (`belljar restore` brings it back for 14 days)",
            self.words
        ))
    }
}

/// What the box holds that the host does not. A box that is at work is looked at as it is now.
pub fn work(state: &Scoped, of: &NamedBox) -> Result<Option<Unapplied>, EngineError> {
    match &of.record.ground {
        BoxWorkspace::Nothing => Ok(None),
        BoxWorkspace::Directory { .. } => Ok(overlay(state, of)),
        BoxWorkspace::Repo(at) => Ok(cloned(state, of, at)),
    }
}

/// Refuses what would lose work, unless that was said. Returns what would be lost, for the record.
pub fn guard(
    state: &Scoped,
    of: &NamedBox,
    wanted: &str,
    discard_work: bool,
) -> Result<Option<String>, EngineError> {
    match work(state, of)? {
        Some(unapplied) if !discard_work => Err(unapplied.refuse(of, wanted)),
        unapplied => Ok(unapplied.map(|unapplied| unapplied.words)),
    }
}

fn overlay(state: &Scoped, of: &NamedBox) -> Option<Unapplied> {
    if is_empty(&of.dir.join("upper")) {
        return None;
    }
    let read = || -> Result<Option<Unapplied>, EngineError> {
        let run = of.run().ok_or_else(|| invalid("the record of its run is gone"))?;
        let (layers, changes) = changes::look(state, &run, of.is_up())?;
        let left = unapplied(&layers, &changes).kind(ErrorKind::Broken)?;
        let too_long: u64 = changes.too_long().iter().map(|it| it.names).sum();
        let count = left.len() as u64 + too_long;
        Ok((count > 0).then(|| Unapplied { words: words(&left, count) }))
    };
    // What cannot be read is not known to be nothing.
    read().unwrap_or_else(|failure| {
        let why = display::safe_line(format!("{failure:#}")).to_string();
        Some(Unapplied { words: format!("changes that cannot be read ({why})") })
    })
}

/// Commits and files of a private clone that the user's repository does not have.
fn cloned(state: &Scoped, of: &NamedBox, at: &RepoAt) -> Option<Unapplied> {
    match clones::has_work(state, of.name(), at, &of.dir.join("repo")) {
        Ok(work) => work.and_then(|work| work.would_lose()).map(|words| Unapplied { words }),
        Err(failure) => {
            let why = display::safe_line(format!("{failure:#}")).to_string();
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
