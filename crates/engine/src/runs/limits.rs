//! Limits of a caller for new runs: open runs, and money that the caller may spend in a day.
//!
//! A limit of money holds without a record of single requests. A caller with such a limit can submit only plans
//! with a budget of money, which the driver enforces. The rest of the budgets of the caller's open runs counts
//! as reserved, so that today's usage and all reservations never exceed the limit.
//!
//! **Invariant:** the caller of `check` holds the returned lock until the new run is recorded. So two
//! submissions cannot both use the last place.

use std::fs::DirBuilder;
use std::os::unix::fs::DirBuilderExt as _;

use anyhow::Context as _;
use belljar_model::caller::Principal;
use belljar_model::net::MicroUsd;
use belljar_model::plan::RunBudget;
use belljar_model::quota::RunLimits;
use belljar_model::tenant::Period;

use super::budget::period::Day;
use super::budget::{Amounts, Unit};
use super::machine::{Moment, Outcome};
use super::rows::{self, RunRow, RunStatus, RunsQuery};
use super::view::Loaded;
use crate::error::{EngineError, ErrorKind, WithKind as _};
use crate::moment;
use crate::scope::Scoped;
use crate::store::lock::{self, LockGuard, Rank};

/// The usage that the limits of a caller concern.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RunUsage {
    /// The open runs of the whole tenant.
    pub runs: u64,
    /// The open runs of the principal.
    pub runs_of_principal: u64,
    /// The money that runs of the principal spent today.
    pub money_today: MicroUsd,
    /// The rest of the budgets of the principal's open runs.
    pub money_reserved: MicroUsd,
    /// The end of the day.
    pub renews: Option<Moment>,
}

/// Returns the usage of a principal of the caller's tenant.
pub fn usage(state: &Scoped, principal: &Principal) -> Result<RunUsage, EngineError> {
    Ok(measure(state, principal)?.0)
}

/// Returns the usage, and an open run of the principal that has no budget of money.
fn measure(
    state: &Scoped,
    principal: &Principal,
) -> Result<(RunUsage, Option<RunRow>), EngineError> {
    let now = Moment(state.clock().millis());
    let read = |database: &super::store::sqlite::RunDb| {
        let open = database.open_runs(&state.caller().tenant)?;
        Ok((open, database.used_by(principal, now)?))
    };
    let found = rows::up_to_date(state, &read)?;
    let (open, (day, used)) = found.unwrap_or((Vec::new(), (Day::of(now), Amounts::NONE)));
    let name = principal.to_string();
    let (mut reserved, mut unlimited, mut own) = (0_u64, None, 0);
    for run in &open {
        if run.principal != name {
            continue;
        }
        own += 1;
        match Loaded::read(state, run.run)?.submitted.plan.budget().money {
            Some(cap) => {
                let rest = cap.0.saturating_sub(run.spent.get(Unit::Money));
                reserved = reserved.saturating_add(rest);
            }
            None => unlimited = Some(run.clone()),
        }
    }
    let usage = RunUsage {
        runs: u64::try_from(open.len()).unwrap_or(u64::MAX),
        runs_of_principal: own,
        money_today: MicroUsd(used.get(Unit::Money)),
        money_reserved: MicroUsd(reserved),
        renews: day.renews(Period::Day),
    };
    Ok((usage, unlimited))
}

/// Checks that the caller may have another run with this budget.
pub(super) fn check(state: &Scoped, budget: &RunBudget) -> Result<LimitGuard, EngineError> {
    let limits = state.run_limits();
    if limits == RunLimits::default() {
        return Ok(LimitGuard(None));
    }
    let guard = LimitGuard(Some(lock(state)?));
    let (usage, unlimited) = measure(state, &state.caller().principal)?;
    let refused = |text: String| Err(EngineError::message(ErrorKind::LimitReached, text));
    let is_full = |count: u64, max: Option<u32>| max.is_some_and(|max| count >= u64::from(max));
    if is_full(usage.runs, limits.runs) {
        return refused(format!("the tenant has {} open runs, which is its limit", usage.runs));
    }
    if is_full(usage.runs_of_principal, limits.runs_per_principal) {
        let own = usage.runs_of_principal;
        return refused(format!("you have {own} open runs, which is your limit"));
    }
    let Some(MicroUsd(max)) = limits.money_per_day else { return Ok(guard) };
    let Some(MicroUsd(wanted)) = budget.money else {
        let text = format!("you may spend {} a day, so a plan needs a budget", MicroUsd(max));
        let error = EngineError::message(ErrorKind::Refused, text);
        return Err(
            error.advise("add `budget = { money = \"…\" }` to the section [run] of the plan")
        );
    };
    if let Some(run) = unlimited {
        return refused(format!("the open run {} has no budget of money", run.run));
    }
    let taken = usage.money_today.0.saturating_add(usage.money_reserved.0);
    let rest = max.saturating_sub(taken);
    if wanted <= rest {
        return Ok(guard);
    }
    let renews = usage.renews.map_or_else(String::new, |at| {
        format!("; it is renewed at {}", moment::readable_seconds(at.0.saturating_mul(1_000_000)))
    });
    refused(format!(
        "the plan may spend {}, and {} of your {} a day are left{renews}",
        MicroUsd(wanted),
        MicroUsd(rest),
        MicroUsd(max)
    ))
}

/// Keeps other submissions with limits waiting. Dropping the value lets them continue.
#[derive(Debug)]
#[must_use]
pub(super) struct LimitGuard(#[expect(dead_code, reason = "held until drop")] Option<LockGuard>);

/// Waits for other submissions with limits.
fn lock(state: &Scoped) -> Result<LockGuard, EngineError> {
    let dir = state.store().layout().plans();
    let open = || {
        DirBuilder::new().recursive(true).mode(0o700).create(&dir)?;
        lock::acquire(&dir.join("limits.lock"), Rank::Directory, lock::CHANGE_TIMEOUT)
    };
    let guard = open().context("cannot lock the submissions").kind(ErrorKind::Broken)?;
    let busy = || EngineError::message(ErrorKind::Busy, "another submission is running");
    guard.ok_or_else(busy)
}

/// The states of runs that have not ended.
const OPEN: [RunStatus; 3] = [RunStatus::Running, RunStatus::Waiting, RunStatus::Attention];

/// Returns the query for all open runs.
pub(super) fn open_runs() -> RunsQuery {
    RunsQuery { statuses: OPEN.to_vec(), limit: Some(usize::MAX), ..RunsQuery::default() }
}

// A new state must be added to `OPEN`, unless the run has ended in it.
const _: fn(RunStatus) -> bool = |status| match status {
    RunStatus::Running | RunStatus::Waiting | RunStatus::Attention => true,
    RunStatus::Ended(
        Outcome::Succeeded | Outcome::Failed | Outcome::OverBudget | Outcome::Cancelled,
    ) => false,
};

#[cfg(test)]
mod tests;
