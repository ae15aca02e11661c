//! What the boxes of a tenant used in a range of time, as their brokers and supervisors observed it.
//!
//! The database of runs has sums for each hour, so that the cost of a query depends on the range, and not on
//! the number of events. The usage of one run is in its row of the list of runs.

use std::collections::{BTreeMap, BTreeSet};

use belljar_model::caller::Principal;
use belljar_model::tenant::Period;

use super::budget::period::Day;
use super::index::RunIndex;
use super::machine::Moment;
pub use super::store::sqlite::usage::Observed;
use super::store::sqlite::usage::{UsageKey, UsageKind};
use crate::error::{EngineError, ErrorKind};
use crate::scope::Scoped;

/// One hour in milliseconds.
const HOUR: u64 = 3_600_000;
/// The maximum number of sums of hours that one query reads.
const MAX_READ: usize = 200_000;

/// The groups of a usage.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum UsageBy {
    /// One group.
    All,
    /// The principals that started the boxes.
    Principal,
    /// The models that answered.
    Model,
    /// The secrets that requests carried. A request with two secrets counts for both.
    Secret,
}

impl UsageBy {
    const fn kind(self) -> UsageKind {
        match self {
            Self::All | Self::Principal => UsageKind::All,
            Self::Model => UsageKind::Model,
            Self::Secret => UsageKind::Secret,
        }
    }
}

/// The length of the intervals of a usage, in UTC.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum UsageStep {
    Hour,
    Day,
    Month,
    /// One interval.
    Total,
}

/// The usage that a query asks for. Hours that begin before `to` and end after `from` count as a whole.
#[derive(Debug, Clone)]
pub struct UsageQuery {
    pub by: UsageBy,
    pub step: UsageStep,
    pub from: Moment,
    pub to: Moment,
    /// Only boxes that one of these principals started.
    pub makers: Option<BTreeSet<Principal>>,
}

/// The usage of a group in an interval.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UsageRow {
    /// The start of the interval.
    pub start: Moment,
    /// The principal, the model or the secret; empty for all together.
    pub name: String,
    pub observed: Observed,
}

impl UsageQuery {
    /// Returns the range of hours that count, in milliseconds since 1970.
    pub const fn range(&self) -> (Moment, Moment) {
        let (from, to) = (self.from.0 / HOUR, self.to.0.div_ceil(HOUR));
        (Moment(from.saturating_mul(HOUR)), Moment(to.saturating_mul(HOUR)))
    }

    /// Returns the start of the interval that contains a time.
    pub fn start(&self, at: Moment) -> Moment {
        let at = Moment(at.0 / HOUR * HOUR);
        match self.step {
            UsageStep::Hour => at,
            UsageStep::Day => Day::of(at).since(Period::Day).unwrap_or(at),
            UsageStep::Month => Day::of(at).since(Period::Month).unwrap_or(at),
            UsageStep::Total => self.range().0,
        }
    }
}

/// Returns the usage of the caller's tenant, in the order of time and name.
pub fn usage(
    state: &Scoped,
    index: &RunIndex,
    query: &UsageQuery,
) -> Result<Vec<UsageRow>, EngineError> {
    let (from, to) = query.range();
    let makers = query.makers.as_ref();
    let makers: Option<BTreeSet<String>> =
        makers.map(|makers| makers.iter().map(ToString::to_string).collect());
    let read = index.read(state, |database| {
        let (mut sums, mut count) = (BTreeMap::<(Moment, String), Observed>::new(), 0);
        let hours = from.0 / HOUR..to.0 / HOUR;
        database.usage(query.by.kind(), hours, &mut |key, observed| {
            count += 1;
            let UsageKey { hour, name, principal, .. } = key;
            if makers.as_ref().is_none_or(|makers| makers.contains(&principal)) {
                let name = if query.by == UsageBy::Principal { principal } else { name };
                let sum =
                    sums.entry((query.start(Moment(hour.saturating_mul(HOUR))), name)).or_default();
                *sum = sum.plus(observed);
            }
            count <= MAX_READ
        })?;
        Ok((count <= MAX_READ).then_some(sums))
    })?;
    let Some(sums) = read else { return Ok(Vec::new()) };
    let too_many = || {
        let text = format!("the range has more than {MAX_READ} sums of hours");
        EngineError::message(ErrorKind::Invalid, text).advise("choose a shorter range")
    };
    let rows = sums.ok_or_else(too_many)?.into_iter();
    Ok(rows.map(|((start, name), observed)| UsageRow { start, name, observed }).collect())
}
