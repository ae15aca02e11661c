//! Finds unapplied work: changes and commits that exist only in a box and would be lost with it.

use belljar_model::boxes::BoxWorkspace;
use belljar_model::{RepoAt, display};
use belljar_workspace::{Change, unapplied};

use crate::box_store::NamedBox;
use crate::changes;
use crate::clones;
use crate::error::{EngineError, ErrorKind, WithKind as _, invalid};
use crate::scope::Scoped;
use crate::store::is_empty;

/// The maximum number of changed paths in a description.
const MAX_PATHS: usize = 5;

/// A description of the unapplied work of a box.
#[derive(Debug)]
pub struct Unapplied {
    description: String,
}

impl Unapplied {
    /// Returns the description, such as `2 changes (a.txt, b.txt)`.
    pub fn description(&self) -> &str {
        &self.description
    }

    /// Returns the error of a command that would lose the unapplied work.
    pub fn refusal(&self, named_box: &NamedBox, command: &str) -> EngineError {
        let name = named_box.name();
        invalid(format!(
            "`belljar {command}` would discard the unapplied work of box {name}: {}; show it with `belljar diff {name}`, apply it with `belljar apply {name}`, or use --discard-work (`belljar restore` can restore it for 14 days)",
            self.description
        ))
    }
}

/// Returns the work of a box that is not on the host. For a running box, this is the work so far.
pub fn find(state: &Scoped, named_box: &NamedBox) -> Result<Option<Unapplied>, EngineError> {
    match &named_box.record.ground {
        BoxWorkspace::Nothing => Ok(None),
        BoxWorkspace::Directory { .. } => Ok(overlay(state, named_box)),
        BoxWorkspace::Repo(at) => Ok(cloned(state, named_box, at)),
    }
}

/// Fails if a box has unapplied work, unless `discard_work` is true.
///
/// Returns a description of the unapplied work for the ledger, or `None` if there is none.
pub fn guard(
    state: &Scoped,
    named_box: &NamedBox,
    command: &str,
    discard_work: bool,
) -> Result<Option<String>, EngineError> {
    match find(state, named_box)? {
        Some(unapplied) if !discard_work => Err(unapplied.refusal(named_box, command)),
        unapplied => Ok(unapplied.map(|unapplied| unapplied.description)),
    }
}

fn overlay(state: &Scoped, named_box: &NamedBox) -> Option<Unapplied> {
    if is_empty(&named_box.dir.join("upper")) {
        return None;
    }
    let read = || -> Result<Option<Unapplied>, EngineError> {
        let run =
            named_box.run().ok_or_else(|| invalid("the record of the latest run is missing"))?;
        let (layers, changes) = changes::read_current(state, &run, named_box.is_up())?;
        let left = unapplied(&layers, &changes).kind(ErrorKind::Broken)?;
        let too_long: u64 = changes.too_long().iter().map(|directory| directory.names).sum();
        let count = left.len() as u64 + too_long;
        Ok((count > 0).then(|| Unapplied { description: describe(&left, count) }))
    };
    // Unreadable changes count as unapplied work.
    read().unwrap_or_else(|failure| {
        let why = display::safe_line(format!("{failure:#}")).to_string();
        Some(Unapplied { description: format!("changes that cannot be read ({why})") })
    })
}

/// Describes the commits and files of a private clone that the user's repository does not have.
fn cloned(state: &Scoped, named_box: &NamedBox, at: &RepoAt) -> Option<Unapplied> {
    match clones::read_work(state, named_box.name(), at, &named_box.dir.join("repo")) {
        Ok(work) => {
            work.and_then(|work| work.would_lose()).map(|description| Unapplied { description })
        }
        Err(failure) => {
            let why = display::safe_line(format!("{failure:#}")).to_string();
            Some(Unapplied { description: format!("a clone that cannot be read ({why})") })
        }
    }
}

fn describe(left: &[&Change], count: u64) -> String {
    let paths = left.iter().take(MAX_PATHS);
    let paths: Vec<String> =
        paths.map(|change| display::safe(change.path.as_bytes()).to_string()).collect();
    let more = usize::try_from(count).unwrap_or(usize::MAX).saturating_sub(paths.len());
    let more = if more > 0 { format!(" and {more} more") } else { String::new() };
    let changed = if count == 1 { "1 change" } else { &format!("{count} changes") };
    format!("{changed} ({}{more})", paths.join(", "))
}
