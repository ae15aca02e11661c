//! Limits of callers for new runs, with runs that no driver carries out.

use std::path::Path;

use belljar_ledger::Draft;
use belljar_model::{Caller, RunId};

use super::*;
use crate::record;
use crate::runs::facts;
use crate::runs::machine::{Ended, Evidence, Fact, FactKind, Try};
use crate::runs::{plans, submit};
use crate::scope::of_test_caller;

fn scope(dir: &Path, principal: &str, limits: RunLimits) -> Scoped {
    let caller = Caller { principal: principal.parse().unwrap(), ..Caller::local(1000) };
    of_test_caller(dir, caller).with_run_limits(limits)
}

/// Submits a plan with this budget of money.
fn submit(state: &Scoped, money: Option<&str>) -> Result<RunId, EngineError> {
    let budget = money.map(|money| format!("[run]\nbudget = {{ money = '{money}' }}\n"));
    let text = format!("{}[task.a]\ndo = {{ stub = '' }}\n", budget.unwrap_or_default());
    let (config, _) = state.load_config(None).unwrap();
    let ceiling = plans::ceiling(state.host(), &config).unwrap();
    let plan = plans::check(&text, "plan.toml", &ceiling).unwrap();
    submit::accept(state, &plan, state.home(), None)
}

/// Records that an attempt of the run spent this much.
fn spend(state: &Scoped, run: RunId, micros: u64) {
    let of = Try { task: "a".parse().unwrap(), item: None, attempt: 1 };
    let amounts = Amounts::NONE.with(Unit::Money, micros);
    let lease = super::super::budget::Limits::default().with(Unit::Money, Some(micros));
    let inputs = belljar_ledger::Digest::of(&[b"inputs"]);
    let started =
        FactKind::TaskStarted { of: of.clone(), box_run: None, epoch: 1, tier: 0, lease, inputs };
    let ended =
        FactKind::TaskEnded { of, end: Ended::Lost(Evidence::NotStarted), usage: Some(amounts) };
    record_facts(state, run, [started, ended]);
}

fn end(state: &Scoped, run: RunId) {
    record_facts(state, run, [FactKind::PlanEnded { outcome: Outcome::Succeeded }]);
}

fn record_facts(state: &Scoped, run: RunId, facts: impl IntoIterator<Item = FactKind>) {
    let at = Moment(state.clock().millis());
    let draft = |kind| Draft::new(facts::event(&Fact { at, kind })).of_run(run);
    let drafts = facts.into_iter().map(draft).collect();
    record::open(state).unwrap().record_all(drafts).map(drop).unwrap();
}

#[track_caller]
fn refused(result: Result<RunId, EngineError>, kind: ErrorKind, text: &str) {
    let error = result.unwrap_err();
    assert_eq!(error.kind(), kind, "{error:#}");
    assert!(format!("{error:#}").contains(text), "{error:#}");
}

#[test]
fn f14_open_runs_of_a_principal_and_of_the_tenant_are_limited() {
    let dir = tempfile::tempdir().unwrap();
    let limits = RunLimits { runs: Some(3), runs_per_principal: Some(2), money_per_day: None };
    let (ci, bot) =
        (scope(dir.path(), "service:ci", limits), scope(dir.path(), "agent:bot", limits));
    let first = submit(&ci, None).unwrap();
    submit(&ci, None).unwrap();
    refused(submit(&ci, None), ErrorKind::LimitReached, "you have 2 open runs");
    submit(&bot, None).expect("control: another principal");
    refused(submit(&bot, None), ErrorKind::LimitReached, "the tenant has 3 open runs");
    end(&ci, first);
    submit(&bot, None).expect("control: a run has ended");
    submit(&scope(dir.path(), "user:1000", RunLimits::default()), None).expect("no limits");
}

#[test]
fn h16_plan_is_refused_unless_its_budget_fits_into_the_money_of_the_day() {
    let dir = tempfile::tempdir().unwrap();
    let limits = RunLimits { money_per_day: Some(MicroUsd(5_000_000)), ..RunLimits::default() };
    let ci = scope(dir.path(), "service:ci", limits);
    refused(submit(&ci, None), ErrorKind::Refused, "a plan needs a budget");
    refused(submit(&ci, Some("5.01 USD")), ErrorKind::LimitReached, "5 USD of your 5 USD a day");
    let first = submit(&ci, Some("3 USD")).unwrap();
    refused(submit(&ci, Some("2.50 USD")), ErrorKind::LimitReached, "2 USD of your 5 USD a day");
    spend(&ci, first, 1_000_000);
    refused(submit(&ci, Some("2.50 USD")), ErrorKind::LimitReached, "2 USD of your 5 USD a day");
    end(&ci, first);
    let usage = usage(&ci, &ci.caller().principal).unwrap();
    assert_eq!((usage.money_today, usage.money_reserved), (MicroUsd(1_000_000), MicroUsd(0)));
    assert_eq!((usage.runs, usage.runs_of_principal), (0, 0));
    submit(&ci, Some("4 USD")).expect("control: the rest of an ended run is free again");
    refused(submit(&ci, Some("0.01 USD")), ErrorKind::LimitReached, "0 USD of your 5 USD a day");
    let other = scope(dir.path(), "agent:bot", limits);
    submit(&other, Some("5 USD")).expect("control: another principal has its own limit");
}

#[test]
fn h16_open_run_without_a_budget_blocks_plans_of_a_principal_with_a_limit() {
    let dir = tempfile::tempdir().unwrap();
    let before = scope(dir.path(), "service:ci", RunLimits::default());
    let run = submit(&before, None).unwrap();
    let limits = RunLimits { money_per_day: Some(MicroUsd(5_000_000)), ..RunLimits::default() };
    let limited = scope(dir.path(), "service:ci", limits);
    refused(submit(&limited, Some("1 USD")), ErrorKind::LimitReached, "has no budget of money");
    end(&before, run);
    submit(&limited, Some("1 USD")).expect("control");
}
