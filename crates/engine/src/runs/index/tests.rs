//! The index of runs on a real ledger: filters, pages, changes, and the cost of a page.

use std::path::Path;

use belljar_ledger::{
    Actor, Body, Digest, Draft, Event, LedgerPaths, ModelCalled, RequestDecided, RequestFinished,
    RunCreated, RunEnded, RunFailed,
};
use belljar_model::Purpose;

use super::*;
use crate::record;
use crate::runs::facts;
use crate::runs::machine::{Fact, FactKind, Outcome};
use crate::runs::store::sqlite::STEPS;
use crate::runs::usage::{self, Observed, UsageBy, UsageQuery, UsageStep};
use crate::scope::of_test;

fn record(state: &Scoped, run: RunId, event: impl Into<Event>, cause: Option<u64>) -> u64 {
    let draft = Draft::new(event).of_run(run).by(Actor::Driver).because_of_index(cause);
    record::open(state).unwrap().record(draft).unwrap().index()
}

fn create(state: &Scoped, number: u64, (purpose, name, maker): (Purpose, &str, &str)) -> RunId {
    let run = RunId::new(number, 7);
    let created = RunCreated {
        name: Some(name.to_owned()),
        template: "Small".to_owned(),
        mode: "read-only".to_owned(),
        net: "none".to_owned(),
        policy: Digest::of(&[]),
        workspace: None,
        record: "hashes".to_owned(),
        command: Body::hash_of(b"x").unwrap(),
        environment: Vec::new(),
        limits: Vec::new(),
        purpose: Some(purpose.to_string()),
        principal: Some(maker.to_owned()),
        tenant: Some("local".to_owned()),
        session: None,
        writable: None,
    };
    record(state, run, created, None);
    if purpose == Purpose::Plan {
        let plan = Digest::of(&[b"plan"]);
        fact(state, run, number, FactKind::PlanAccepted { plan, policy: plan });
    }
    run
}

fn fact(state: &Scoped, run: RunId, at: u64, kind: FactKind) {
    record(state, run, facts::event(&Fact { at: Moment(at), kind }), None);
}

fn end_plan(state: &Scoped, run: RunId, outcome: Outcome) {
    fact(state, run, 9, FactKind::PlanEnded { outcome });
}

fn end_run(state: &Scoped, run: RunId, reason: &str, exit: Option<u64>) {
    let ended = RunEnded {
        reason: reason.to_owned(),
        exit,
        signal: None,
        wall_micros: 1_500_000,
        cpu_micros: 0,
        peak_memory: None,
        stdin_bytes: 0,
        stdout: None,
        stderr: None,
    };
    record(state, run, ended, None);
}

fn search() -> RunSearch {
    let (makers, terms, texts) = (None, Vec::new(), Vec::new());
    RunSearch { makers, terms, texts, accepted: None, after: None, limit: 10 }
}

fn names(index: &RunIndex, state: &Scoped, search: &RunSearch) -> Vec<String> {
    let page = index.page(state, search).unwrap();
    page.runs.into_iter().map(|run| run.name).collect()
}

#[track_caller]
fn check(index: &RunIndex, state: &Scoped, search: &RunSearch, expect: &str) {
    assert_eq!(names(index, state, search).join(" "), expect, "{search:?}");
}

#[test]
fn index_has_runs_of_plans_and_single_runs_with_their_states() {
    let dir = tempfile::tempdir().unwrap();
    let state = of_test(dir.path());
    let index = RunIndex::default();
    check(&index, &state, &search(), "");
    let plan = create(&state, 1, (Purpose::Plan, "fix", "user:1"));
    let command = create(&state, 2, (Purpose::Run, "test", "user:1"));
    let lost = create(&state, 3, (Purpose::Call, "lost", "agent:a"));
    for purpose in [Purpose::Task, Purpose::CloneReader, Purpose::ToolServer] {
        create(&state, 4 + purpose as u64, (purpose, "hidden", "user:1"));
    }
    check(&index, &state, &search(), "lost test fix");
    let state_of = |run| {
        let found = index.find(&state, run).unwrap().unwrap();
        (found.kind, found.state, found.reason)
    };
    assert_eq!(state_of(plan), (RunKind::Plan, ListedState::Running, None));
    assert_eq!(state_of(lost), (RunKind::Call, ListedState::Interrupted, None));
    end_plan(&state, plan, Outcome::OverBudget);
    end_run(&state, command, "exited", Some(0));
    record(&state, lost, RunFailed { error: "no space".to_owned() }, None);
    assert_eq!(state_of(plan), (RunKind::Plan, ListedState::OverBudget, None));
    let (kind, ended, reason) = state_of(command);
    assert_eq!((kind, ended), (RunKind::Run, ListedState::Succeeded));
    assert_eq!(reason.as_deref(), Some("exited"));
    assert_eq!(state_of(lost).1, ListedState::Failed);
    assert_eq!(index.find(&state, RunId::new(99, 0)).unwrap(), None);
    let again = RunIndex::default();
    assert_eq!(
        again.page(&state, &search()).unwrap(),
        index.page(&state, &search()).unwrap(),
        "a new index has the same rows"
    );
    for (reason, exit, expect) in [
        ("exited", Some(3), "failed"),
        ("interrupted", None, "cancelled"),
        ("memory", None, "failed"),
    ] {
        assert_eq!(SingleStatus::ended(reason, exit).name(), expect, "{reason}");
    }
}

#[test]
fn f08_search_combines_its_conditions_and_has_only_visible_runs() {
    let dir = tempfile::tempdir().unwrap();
    let state = of_test(dir.path());
    let index = RunIndex::default();
    let ended = create(&state, 1, (Purpose::Plan, "fix-login", "user:1000"));
    end_plan(&state, ended, Outcome::Failed);
    create(&state, 2, (Purpose::Plan, "release", "service:ci"));
    let command = create(&state, 3, (Purpose::Run, "Login", "user:1000"));
    end_run(&state, command, "exited", Some(1));
    let term = |term, value: &str| RunSearch { terms: vec![(term, value.to_owned())], ..search() };
    let text = |texts: &[&str]| {
        let texts = texts.iter().map(|text| (*text).to_owned()).collect();
        RunSearch { texts, ..search() }
    };
    for (search, expect) in [
        (search(), "Login release fix-login"),
        (term(RunTerm::State, "failed"), "Login fix-login"),
        (term(RunTerm::State, "running"), "release"),
        (term(RunTerm::Kind, "plan"), "release fix-login"),
        (term(RunTerm::Maker, "ci"), "release"),
        (term(RunTerm::Maker, "user:1000"), "Login fix-login"),
        (term(RunTerm::Name, "login"), "Login"),
        (text(&["login"]), "Login fix-login"),
        (text(&["login", "fix"]), "fix-login"),
        (text(&["service:"]), "release"),
        (text(&["small"]), "Login release fix-login"),
        (text(&["absent"]), ""),
        (text(&[&ended.to_string()[..8]]), "Login release fix-login"),
        (text(&[&ended.to_string()]), "fix-login"),
        (RunSearch { accepted: Some((Moment(2), Moment(3))), ..search() }, "release"),
        (RunSearch { terms: term(RunTerm::Kind, "run").terms, ..text(&["fix"]) }, ""),
    ] {
        check(&index, &state, &search, expect);
    }
    let own = |maker: &str| RunSearch { makers: Some([maker.parse().unwrap()].into()), ..search() };
    check(&index, &state, &own("service:ci"), "release");
    check(&index, &state, &own("user:1"), "");
    check(&index, &state, &own("service:CI"), "");
    let runs = [ended, RunId::new(77, 0)];
    let makers = index.makers(&state, &runs).unwrap();
    assert_eq!(makers, [Some("user:1000".to_owned()), None]);
    let mut search = RunSearch { limit: 1, ..own("user:1000") };
    let first = index.page(&state, &search).unwrap();
    assert_eq!(first.runs.len(), 1);
    search.after = first.next;
    let second = index.page(&state, &search).unwrap();
    assert_eq!(second.runs[0].name, "fix-login");
    assert_eq!(second.next, None, "a hidden run is no further item");
}

#[test]
fn cost_of_a_page_does_not_depend_on_the_number_of_runs() {
    let dir = tempfile::tempdir().unwrap();
    let state = of_test(dir.path());
    let index = RunIndex::default();
    let mut number = 0;
    let mut submit = |count: u64| {
        for _ in 0..count {
            number += 1;
            let of = (Purpose::Plan, if number % 8 == 1 { "wanted" } else { "other" }, "user:1");
            let run = create(&state, number, of);
            end_plan(&state, run, Outcome::Succeeded);
        }
    };
    let cost = |search: &RunSearch| {
        index.page(&state, search).unwrap(); // reads the new runs
        STEPS.set(0);
        let page = index.page(&state, search).unwrap();
        (page.runs.len(), STEPS.get())
    };
    let limited = RunSearch { limit: 3, ..search() };
    let wanted = vec![(RunTerm::Name, "wanted".to_owned())];
    let searches = [
        limited.clone(),
        RunSearch { terms: wanted, ..limited.clone() },
        RunSearch { texts: vec!["absent".to_owned()], ..limited },
    ];
    submit(32);
    let few = searches.each_ref().map(cost);
    submit(480);
    assert_eq!(searches.each_ref().map(cost), few);
    assert_eq!(few.map(|(rows, _)| rows), [3, 3, 0]);
    assert!(few[0].1 > 0, "control: steps are counted: {few:?}");
    // One new event costs as much as few runs, whatever the number of runs.
    let open = create(&state, 10_000, (Purpose::Plan, "open", "user:1"));
    index.page(&state, &search()).unwrap();
    STEPS.set(0);
    end_plan(&state, open, Outcome::Failed);
    index.page(&state, &RunSearch { limit: 1, ..search() }).unwrap();
    assert!(STEPS.get() < 500, "{}", STEPS.get());
}

#[test]
fn index_is_made_again_when_the_database_is_deleted() {
    let dir = tempfile::tempdir().unwrap();
    let state = of_test(dir.path());
    let index = RunIndex::default();
    create(&state, 1, (Purpose::Plan, "one", "user:1"));
    check(&index, &state, &search(), "one");
    std::fs::remove_file(dir.path().join("runs.db")).unwrap();
    create(&state, 2, (Purpose::Plan, "two", "user:1"));
    check(&index, &state, &search(), "two one");
}

fn request(state: &Scoped, run: RunId, secrets: &[&str], verdict: &str) -> u64 {
    let decided = RequestDecided {
        method: "POST".to_owned(),
        scheme: "https".to_owned(),
        host: "api.example.com".to_owned(),
        port: 443,
        path: "/".to_owned(),
        verdict: verdict.to_owned(),
        rule: None,
        reason: "rule".to_owned(),
        secrets: secrets.iter().map(|name| (*name).to_owned()).collect(),
        body: None,
        upgrade: None,
    };
    record(state, run, decided, None)
}

fn finished(sent_bytes: u64) -> RequestFinished {
    RequestFinished {
        status: Some(200),
        sent_bytes,
        received_bytes: 1,
        micros: 5,
        body: None,
        error: None,
    }
}

fn model_called(model: &str, microusd: u64) -> ModelCalled {
    ModelCalled {
        provider: "anthropic".to_owned(),
        model: Some(model.to_owned()),
        input: 10,
        cache_read: 2,
        cache_write: 1,
        output: 7,
        microusd,
        complete: true,
    }
}

fn rows(
    index: &RunIndex,
    state: &Scoped,
    by: UsageBy,
    own: Option<&str>,
) -> Vec<(String, Observed)> {
    let makers = own.map(|maker| [maker.parse().unwrap()].into());
    let (from, to) = (Moment(0), Moment(state.clock().millis()));
    let query = UsageQuery { by, step: UsageStep::Total, from, to, makers };
    let rows = usage::usage(state, index, &query).unwrap();
    rows.into_iter().map(|row| (row.name, row.observed)).collect()
}

#[test]
fn usage_is_grouped_by_principal_model_and_secret_and_belongs_to_its_principal() {
    let dir = tempfile::tempdir().unwrap();
    let state = of_test(dir.path());
    let index = RunIndex::default();
    assert_eq!(rows(&index, &state, UsageBy::All, None), []);
    let ada = create(&state, 1, (Purpose::Run, "a", "user:1"));
    let bob = create(&state, 2, (Purpose::Task, "b", "service:ci"));
    let paid = request(&state, ada, &["anthropic"], "allow");
    record(&state, ada, model_called("haiku", 300), Some(paid));
    index.page(&state, &search()).unwrap(); // the request is known from another transaction then
    record(&state, ada, finished(99), Some(paid));
    request(&state, ada, &["anthropic"], "deny");
    let free = request(&state, bob, &[], "allow");
    record(&state, bob, finished(9), Some(free));
    end_run(&state, bob, "exited", Some(0));
    let of_ada = Observed { calls: 1, tokens: 20, money: 300, micros: 0, bytes: 100 };
    let of_bob = Observed { calls: 1, micros: 1_500_000, bytes: 10, ..Observed::default() };
    let named = |name: &str, observed| (name.to_owned(), observed);
    assert_eq!(rows(&index, &state, UsageBy::All, None), [named("", of_ada.plus(of_bob))]);
    let by_principal = [named("service:ci", of_bob), named("user:1", of_ada)];
    assert_eq!(rows(&index, &state, UsageBy::Principal, None), by_principal);
    let called = Observed { bytes: 0, ..of_ada };
    assert_eq!(rows(&index, &state, UsageBy::Model, None), [named("haiku", called)]);
    assert_eq!(rows(&index, &state, UsageBy::Secret, None), [named("anthropic", of_ada)]);
    for by in [UsageBy::Model, UsageBy::Secret] {
        assert_eq!(rows(&index, &state, by, Some("service:ci")), [], "{by:?} of another principal");
    }
    assert_eq!(rows(&index, &state, UsageBy::All, Some("service:ci")), [named("", of_bob)]);
    let found = index.find(&state, ada).unwrap().unwrap();
    assert_eq!(found.spent.get(crate::runs::budget::Unit::Money), 300);
    let (from, to) = (Moment(0), Moment(3_600_000));
    let query = UsageQuery { by: UsageBy::All, step: UsageStep::Hour, from, to, makers: None };
    assert_eq!(usage::usage(&state, &index, &query).unwrap(), [], "another time");
}

#[test]
fn log_that_was_replaced_gives_a_new_index() {
    let dir = tempfile::tempdir().unwrap();
    let state = of_test(dir.path());
    let index = RunIndex::default();
    create(&state, 1, (Purpose::Plan, "one", "user:1"));
    check(&index, &state, &search(), "one");
    let log = LedgerPaths::under(dir.path()).log();
    let copy = Path::new(&log).with_extension("copy");
    std::fs::copy(&log, &copy).unwrap();
    std::fs::rename(&copy, &log).unwrap();
    check(&index, &state, &search(), "one");
}
