//! The rows of an index of runs, and the search in them.

use std::collections::BTreeSet;

use belljar_model::RunId;
use belljar_model::caller::{Principal, TenantId};

use super::words::{Containing, Word, Words};
use super::{ListedState, RunKind, RunSearch, RunTerm};
use crate::runs::machine::Moment;
use crate::runs::store::StoreError;
use crate::runs::store::sqlite::RunDb;
use crate::runs::store::sqlite::listed::ListedRow;

/// The minimum length of the start of a run id that a search finds.
const MIN_PREFIX: usize = 4;
/// The length of a run id.
const ID: usize = 16;

/// A run in the index.
#[derive(Debug, Clone)]
pub(super) struct IndexRow {
    pub(super) run: RunId,
    /// The index of the first event of the run. The rows are sorted by it.
    pub(super) sequence: u64,
    pub(super) kind: RunKind,
    /// The state as the ledger has it.
    state: ListedState,
    accepted: Moment,
    name: Word,
    maker: Word,
    template: Word,
}

/// All runs of a tenant, oldest first.
#[derive(Debug, Default)]
pub(super) struct IndexRows {
    rows: Vec<IndexRow>,
    /// The positions of runs whose state can change.
    open: Vec<usize>,
    words: Words,
}

/// Returns whether the supervisor of a single run is alive. The text is the name of the run.
type IsAlive<'a> = &'a dyn Fn(&IndexRow, &str) -> bool;

impl IndexRows {
    /// Reads new rows, and the rows of open runs again.
    pub(super) fn update(&mut self, database: &RunDb, tenant: &TenantId) -> Result<(), StoreError> {
        for at in std::mem::take(&mut self.open) {
            let Some(row) = self.rows.get_mut(at) else { continue };
            if let Some(state) = database.state(row.run, row.kind)? {
                row.state = state;
            }
            if row.state.is_open() {
                self.open.push(at);
            }
        }
        let last = self.rows.last().map(|row| row.sequence);
        for listed in database.listed_after(tenant, last)? {
            self.add(listed);
        }
        Ok(())
    }

    fn add(&mut self, listed: ListedRow) {
        let ListedRow { run, sequence, kind, state, accepted, name, maker, template } = listed;
        let [name, maker, template] = [name, maker, template].map(|text| self.words.add(&text));
        if state.is_open() {
            self.open.push(self.rows.len());
        }
        let accepted = Moment(accepted);
        let row = IndexRow { run, sequence, kind, state, accepted, name, maker, template };
        self.rows.push(row);
    }

    /// Returns the row of a run.
    pub(super) fn find(&self, run: RunId) -> Option<&IndexRow> {
        // Ids begin with the time, so that most runs are near the place where their id would be sorted.
        let near = self.rows.partition_point(|row| row.run < run);
        let found = self.rows.get(near).filter(|row| row.run == run);
        found.or_else(|| self.rows.iter().rev().find(|row| row.run == run))
    }

    /// Returns the principal that started a run, as text.
    pub(super) fn maker(&self, run: RunId) -> Option<&str> {
        Some(self.words.exact(self.find(run)?.maker))
    }

    /// Returns the rows of a page, newest first, and whether there are more.
    pub(super) fn search(
        &self,
        search: &RunSearch,
        is_alive: IsAlive<'_>,
    ) -> (Vec<IndexRow>, bool) {
        let before = search.after.map_or(u64::MAX, super::Cursor::index);
        let end = self.rows.partition_point(|row| row.sequence < before);
        let conditions = Conditions::new(search, &self.words);
        let rows = self.rows.get(..end).unwrap_or_default().iter().rev();
        let mut found = rows.filter(|row| conditions.hold(row, is_alive));
        let page: Vec<IndexRow> = found.by_ref().take(search.limit).cloned().collect();
        let has_more = found.next().is_some();
        (page, has_more)
    }
}

/// The conditions of a search, prepared for many rows.
struct Conditions<'s> {
    search: &'s RunSearch,
    words: &'s Words,
    /// The principals of visible runs; `None` if all runs are visible.
    makers: Option<BTreeSet<Word>>,
    texts: Vec<(Containing<'s>, Option<(RunId, RunId)>)>,
}

impl<'s> Conditions<'s> {
    fn new(search: &'s RunSearch, words: &'s Words) -> Self {
        // Subjects of an identity provider can differ in the case of a letter.
        let word = |maker: &Principal| words.find(&maker.to_string());
        let makers = search.makers.as_ref();
        let makers = makers.map(|makers| makers.iter().filter_map(word).collect());
        let texts = search.texts.iter();
        let texts = texts.map(|text| (words.containing(text), ids(text))).collect();
        Self { search, words, makers, texts }
    }

    fn hold(&self, row: &IndexRow, is_alive: IsAlive<'_>) -> bool {
        let is_visible = || self.makers.as_ref().is_none_or(|makers| makers.contains(&row.maker));
        let is_in_time =
            self.search.accepted.is_none_or(|(from, to)| from <= row.accepted && row.accepted < to);
        is_in_time
            && self.texts.iter().all(|(words, ids)| has_text(row, words, ids.as_ref()))
            && is_visible()
            && self.search.terms.iter().all(|(term, value)| self.has(row, *term, value, is_alive))
    }

    fn has(&self, row: &IndexRow, term: RunTerm, value: &str, is_alive: IsAlive<'_>) -> bool {
        match term {
            RunTerm::Kind => row.kind.name() == value,
            RunTerm::Name => self.words.text(row.name) == value,
            RunTerm::Maker => {
                let maker = self.words.text(row.maker);
                maker == value || maker.split_once(':').is_some_and(|(_, name)| name == value)
            }
            RunTerm::State if row.kind == RunKind::Plan || row.state != ListedState::Running => {
                row.state.name() == value
            }
            RunTerm::State if value == ListedState::Running.name() => {
                is_alive(row, self.words.text(row.name))
            }
            RunTerm::State => {
                let interrupted = ListedState::Interrupted.name();
                value == interrupted && !is_alive(row, self.words.text(row.name))
            }
        }
    }
}

fn has_text(row: &IndexRow, words: &Containing<'_>, ids: Option<&(RunId, RunId)>) -> bool {
    let is_id = ids.is_some_and(|(first, last)| *first <= row.run && row.run <= *last);
    is_id || [row.name, row.maker, row.template].into_iter().any(|word| words.has(word))
}

/// Returns the first and the last run id that begin with a text.
fn ids(text: &str) -> Option<(RunId, RunId)> {
    if text.len() < MIN_PREFIX || text.len() > ID {
        return None;
    }
    let filled = |digit: &str| format!("{text}{}", digit.repeat(ID - text.len())).parse().ok();
    Some((filled("0")?, filled("z")?))
}
