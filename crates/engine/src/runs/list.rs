//! Lists all runs, those of plans and those of single commands together, in pages.
//!
//! The order is that of the first events of the runs in the ledger, so a clock that was set back changes
//! nothing. The runs of plans come from the database of runs. Of the files of a run, only those of an open
//! run of the page are read. Single commands have a directory until it is pruned, and their number is limited.
//!
//! A list of other purposes also has runs without a directory. Its page is read from the ledger, newest
//! first, until it is full.

use std::cmp::Reverse;
use std::collections::BTreeSet;
use std::os::unix::fs::MetadataExt as _;

use anyhow::Context as _;
use belljar_ledger::{LedgerPaths, Reader, ReaderError, Row};
use belljar_model::{Purpose, RunId, RunState};

use super::rows::{self, Cursor, RunRow, RunStatus, RunsQuery};
use super::store::page_size;
use super::view::{self, RunView};
use crate::box_store;
use crate::error::{EngineError, ErrorKind, WithKind as _};
use crate::record;
use crate::record::runs::{self, Purposes, RecordedRun};
use crate::scope::Scoped;
use crate::store::Run;

/// The runs that a list contains.
#[derive(Debug, Clone, Default)]
pub struct ListQuery {
    /// All recorded runs with one of these purposes. `None` lists the runs of plans, and the runs that a user
    /// started and that have a directory; runs of named boxes are not included.
    pub purposes: Option<Purposes>,
    /// Only runs of the directory with this device and inode number, and runs without a directory.
    pub directory: Option<(u64, u64)>,
    /// Only runs that wait for a person.
    pub pending: bool,
    /// Continue after the page with this cursor.
    pub after: Option<Cursor>,
    /// The number of runs of a page, from 1 to 1,000; 50 if it is not set.
    pub limit: Option<usize>,
}

/// A part of the list of runs.
#[derive(Debug)]
pub struct Listing {
    pub runs: Vec<ListedRun>,
    /// The cursor of the next page; `None` on the last page.
    pub next: Option<Cursor>,
    /// Recorded actions without a result that belong to no run of the list. Only the first page has them.
    pub other_intents: Vec<Row>,
    /// What could not be read. The list has the other runs.
    pub problems: Vec<EngineError>,
}

/// A run in the list of runs.
#[derive(Debug)]
pub enum ListedRun {
    /// A run with a directory. The purpose is `None` if the ledger has no purpose of the run.
    Kept { run: Box<Run>, purpose: Option<Purpose>, intents: Vec<Row> },
    /// A run without a directory that the ledger has: a call, a clone reader, or a pruned run.
    Recorded { run: RecordedRun, state: RunState, intents: Vec<Row> },
    /// The run of a plan.
    Plan(Box<PlanRun>),
}

/// The run of a plan in the list of runs.
#[derive(Debug)]
pub struct PlanRun {
    pub row: RunRow,
    /// The state of an open run with files here.
    pub open: Option<Result<RunView, EngineError>>,
}

impl ListedRun {
    pub const fn id(&self) -> RunId {
        match self {
            Self::Kept { run, .. } => run.record.id,
            Self::Recorded { run, .. } => run.id,
            Self::Plan(run) => run.row.run,
        }
    }

    pub const fn purpose(&self) -> Option<Purpose> {
        match self {
            Self::Kept { purpose, .. } => *purpose,
            Self::Recorded { run, .. } => run.purpose,
            Self::Plan(_) => Some(Purpose::Plan),
        }
    }

    /// Returns whether the run waits for a person.
    fn waits(&self) -> bool {
        match self {
            Self::Kept { run, intents, .. } => {
                run.record.review.is_pending() || !intents.is_empty()
            }
            Self::Recorded { intents, .. } => !intents.is_empty(),
            Self::Plan(_) => true, // the database selected it
        }
    }

    /// Returns whether the run used this directory, a directory of Belljar, or no workspace.
    fn belongs_to(&self, state: &Scoped, directory: (u64, u64)) -> bool {
        match self {
            Self::Kept { run, .. } => {
                run.record.workspace.as_ref().is_none_or(|at| (at.dev, at.ino) == directory)
            }
            Self::Recorded { run, .. } => run.workspace.as_ref().is_none_or(|path| {
                path.starts_with(state.home())
                    || path.metadata().is_ok_and(|it| (it.dev(), it.ino()) == directory)
            }),
            Self::Plan(_) => true, // the database selected it
        }
    }
}

/// Returns a page of runs, newest first.
pub fn list(state: &Scoped, query: &ListQuery) -> Result<Listing, EngineError> {
    let mut problems = Vec::new();
    // With explicit purposes the ledger decides which runs are listed. Otherwise the list is shown without
    // what cannot be read.
    let mut tolerate = |error: EngineError| match query.purposes {
        Some(_) => Err(error),
        None => {
            problems.push(error);
            Ok(())
        }
    };
    let mut plans = Vec::new();
    if query.purposes.as_ref().is_none_or(|purposes| purposes.include(Some(Purpose::Plan))) {
        match plan_rows(state, query) {
            Ok(rows) => plans = rows,
            Err(error) => tolerate(error)?,
        }
    }
    // A page with other purposes is read from the index of the ledger, which must be complete then.
    let is_counted = query.purposes.is_some();
    let reader = reader(state, is_counted).or_else(|error| tolerate(error).map(|()| None))?;
    let mut singles = Singles { state, query, reader, is_counted, intents: Vec::new() };
    singles.intents =
        singles.open_intents().or_else(|error| tolerate(error).map(|()| Vec::new()))?;
    let mut all = singles.kept()?;
    all.extend(singles.recorded(&all)?);
    all.retain(|(_, run)| {
        let belongs = query.directory.is_none_or(|directory| run.belongs_to(state, directory));
        belongs && (!query.pending || run.waits())
    });
    all.extend(plans);
    let (next, mut runs) = page(all, query);
    for run in &mut runs {
        if let ListedRun::Plan(run) = run
            && run.row.ended.is_none()
            && view::has_files(state, run.row.run)
        {
            run.open = Some(view::run(state, run.row.run));
        }
    }
    let other_intents = if query.after.is_none() { singles.intents } else { Vec::new() };
    Ok(Listing { runs, next, other_intents, problems })
}

/// Sorts runs and returns one page with the cursor of the next.
///
/// Runs without a position have no record in the ledger. They are on the first page and do not count.
fn page(
    mut all: Vec<(Option<u64>, ListedRun)>,
    query: &ListQuery,
) -> (Option<Cursor>, Vec<ListedRun>) {
    all.retain(|(position, _)| match (query.after, position) {
        (None, _) => true,
        (Some(after), position) => position.is_some_and(|position| position < after.index()),
    });
    // `None` is the lowest position; it comes first here.
    all.sort_by_key(|(position, run)| (position.is_some(), Reverse(*position), Reverse(run.id())));
    let free = all.iter().take_while(|(position, _)| position.is_none()).count();
    let end = free.saturating_add(page_size(query.limit));
    let has_more = all.len() > end;
    all.truncate(end);
    let last = all.last().and_then(|(position, _)| *position);
    (last.filter(|_| has_more).map(Cursor::before), all.into_iter().map(|(_, run)| run).collect())
}

/// Returns the runs of plans of one page and of the start of the next one.
fn plan_rows(
    state: &Scoped,
    query: &ListQuery,
) -> Result<Vec<(Option<u64>, ListedRun)>, EngineError> {
    let statuses = match query.pending {
        true => vec![RunStatus::Waiting, RunStatus::Attention],
        false => Vec::new(),
    };
    let limit = page_size(query.limit);
    let mut plans = RunsQuery {
        statuses,
        directory: query.directory,
        after: query.after,
        limit: Some(limit),
        ..RunsQuery::default()
    };
    let first = rows::runs(state, &plans)?;
    let mut found = first.rows;
    if first.next.is_some() {
        // One more row tells whether there is another page.
        (plans.after, plans.limit) = (first.next, Some(1));
        found.extend(rows::runs(state, &plans)?.rows);
    }
    let listed =
        |row: RunRow| (Some(row.sequence), ListedRun::Plan(Box::new(PlanRun { row, open: None })));
    Ok(found.into_iter().map(listed).collect())
}

/// Opens the ledger, without a check of its index in a time that does not depend on its size.
fn reader(state: &Scoped, is_counted: bool) -> Result<Option<Reader>, EngineError> {
    let open = if is_counted { Reader::open } else { Reader::open_uncounted };
    match open(&LedgerPaths::under(state.home())) {
        Err(ReaderError::None { .. }) => Ok(None),
        opened => opened.map(Some).context("cannot read the ledger").kind(ErrorKind::Broken),
    }
}

/// The runs that are not of plans.
struct Singles<'a> {
    state: &'a Scoped,
    query: &'a ListQuery,
    reader: Option<Reader>,
    /// Whether the index of the ledger is known to be complete.
    is_counted: bool,
    /// The recorded actions without a result that no run of the list has taken.
    intents: Vec<Row>,
}

impl Singles<'_> {
    /// Returns all intents without a result whose process has ended.
    fn open_intents(&self) -> Result<Vec<Row>, EngineError> {
        let store = self.state.store();
        let mut kept = store.runs().kind(ErrorKind::Broken)?;
        kept.extend(box_store::runs(self.state));
        let running = kept.iter().filter(|run| run.record.state == RunState::Running);
        let running: BTreeSet<RunId> = running.map(Run::id).collect();
        let is_running = |id: RunId| running.contains(&id) || store.is_call_running(id);
        record::needs_attention(self.state, is_running)
            .context("cannot list the actions that need attention")
            .kind(ErrorKind::Broken)
    }

    fn take_intents(&mut self, run: RunId) -> Vec<Row> {
        let (own, others) =
            std::mem::take(&mut self.intents).into_iter().partition(|it| it.run == Some(run));
        self.intents = others;
        own
    }

    /// Returns the runs with a directory.
    fn kept(&mut self) -> Result<Vec<(Option<u64>, ListedRun)>, EngineError> {
        let mut kept = self.state.store().runs().kind(ErrorKind::Broken)?;
        let purposes = match &self.query.purposes {
            None => Purposes::default(),
            Some(_) if self.reader.is_none() => return Ok(Vec::new()),
            Some(purposes) => {
                kept.extend(box_store::runs(self.state));
                purposes.clone()
            }
        };
        let mut seen = BTreeSet::new();
        kept.retain(|run| seen.insert(run.id())); // the copy of a box can have the same run id
        let mut all = Vec::new();
        for run in kept {
            let (position, purpose) = self.position(run.id());
            if purposes.include(purpose) {
                let intents = self.take_intents(run.id());
                all.push((position, ListedRun::Kept { run: Box::new(run), purpose, intents }));
            }
        }
        Ok(all)
    }

    /// Returns the position and the purpose of a run in the ledger.
    fn position(&mut self, run: RunId) -> (Option<u64>, Option<Purpose>) {
        let find = |reader: &Option<Reader>| {
            reader.as_ref().and_then(|reader| runs::position(reader, run).ok().flatten())
        };
        let mut found = find(&self.reader);
        if found.is_none() && self.reader.is_some() && !self.is_counted {
            // The index can have a gap. It is checked once, because a run may have no record.
            self.is_counted = true;
            if let Ok(Some(counted)) = reader(self.state, true) {
                self.reader = Some(counted);
                found = find(&self.reader);
            }
        }
        found.map_or((None, None), |(position, purpose)| (Some(position), purpose))
    }

    /// Returns the runs of one page that have no directory, and of the start of the next page.
    fn recorded(
        &mut self,
        kept: &[(Option<u64>, ListedRun)],
    ) -> Result<Vec<(Option<u64>, ListedRun)>, EngineError> {
        let query = self.query;
        let (Some(purposes), Some(reader)) = (&query.purposes, self.reader.take()) else {
            return Ok(Vec::new());
        };
        let kept: BTreeSet<RunId> = kept.iter().map(|(_, run)| run.id()).collect();
        let limit = page_size(query.limit);
        let mut all = Vec::new();
        let before = query.after.map(Cursor::index);
        runs::each_before(&reader, purposes, before, &mut |position, run| {
            if kept.contains(&run.id) || run.purpose == Some(Purpose::Plan) {
                return true; // the run is in another part of the list
            }
            let state = match &run.end {
                Some(_) => RunState::Finished,
                None if self.state.store().is_call_running(run.id) => RunState::Running,
                None => RunState::Interrupted,
            };
            let intents = self.take_intents(run.id);
            let listed = ListedRun::Recorded { run, state, intents };
            let is_in = |directory| listed.belongs_to(self.state, directory);
            if query.directory.is_none_or(is_in) && (!query.pending || listed.waits()) {
                all.push((Some(position), listed));
            }
            all.len() <= limit
        })?;
        Ok(all)
    }
}
