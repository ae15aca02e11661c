//! The rules of the state machine, one by one.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use belljar_ledger::Digest;
use belljar_model::plan::{Check, Executor, ForEach, OnCrash, Plan, Task, Test, Text, When};
use belljar_model::spec::Argv;
use serde_json::{Value as Json, json};

use super::plans::{edge, gate, output_of, plan, task};
use super::sim::{RUN, person};
use crate::runs::budget::{Amounts, Limits, Owner, Spent, Unit};
use crate::runs::gate::Sender;
use crate::runs::graph::Graph;
use crate::runs::machine::{
    Checks, Command, End, Evidence, Fact, FactKind, FailReason, GateAnswer, GateVerdict, Grant,
    Input, InputKind, Moment, Outcome, Output, Phase, RunState, Settled, Status, TaskRef, Try,
    Verdict, advance,
};
use crate::runs::taint::PlanTaint;

/// A run whose inputs a test gives one by one.
pub(super) struct Lab {
    pub(super) state: RunState,
    pub(super) now: Moment,
    pub(super) commands: Vec<Command>,
}

/// Parses `id` or `id[n]`, with the number of the attempt.
pub(super) fn attempt(of: &str, attempt: u32) -> Try {
    let TaskRef { task, item } = of.parse().unwrap();
    Try { task, item, attempt }
}

impl Lab {
    pub(super) fn new(tasks: Vec<Task>) -> Self {
        Self::of(&plan(tasks))
    }

    pub(super) fn of(plan: &Plan) -> Self {
        Self::tainted(plan, &PlanTaint::new())
    }

    /// Creates a run whose boxes have these labels and marked grants.
    pub(super) fn tainted(plan: &Plan, taint: &PlanTaint) -> Self {
        let state = RunState::new(Arc::new(Graph::with_taint(plan, taint)), RUN);
        let mut lab = Self { state, now: Moment(1000), commands: Vec::new() };
        let accepted =
            InputKind::Accepted { plan: Digest::of(&[b"plan"]), policy: Digest::of(&[b"policy"]) };
        lab.give(accepted);
        lab
    }

    pub(super) fn give(&mut self, kind: InputKind) -> Vec<Fact> {
        let input = Input { at: self.now, random: u32::MAX, kind };
        let (facts, commands) = advance(&mut self.state, &input);
        self.commands = commands;
        facts
    }

    pub(super) fn start(&mut self, of: &str, number: u32) -> Vec<Fact> {
        let lease = Limits::default().with(Unit::Tokens, Some(100));
        let grant = Grant { lease, box_run: None, epoch: self.state.epoch() };
        self.give(InputKind::Lease(attempt(of, number), Ok(grant)))
    }

    pub(super) fn output(&self, of: &str, content: &Json) -> Output {
        output_of(self.state.graph(), &attempt(of, 1).task, content, BTreeSet::new())
    }

    pub(super) fn done(&mut self, of: &str, number: u32, content: &Json) -> Vec<Fact> {
        let end = End::Done(self.output(of, content));
        self.give(InputKind::Ended(attempt(of, number), end, Some(Amounts::default())))
    }

    pub(super) fn fail(&mut self, of: &str, number: u32, reason: FailReason) -> Vec<Fact> {
        let end = End::Failed { reason, text: "it failed".to_owned() };
        self.give(InputKind::Ended(attempt(of, number), end, None))
    }

    pub(super) fn lose(&mut self, of: &str, number: u32, evidence: Evidence) -> Vec<Fact> {
        self.give(InputKind::Lost(attempt(of, number), evidence))
    }

    pub(super) fn status(&self, of: &str) -> &'static str {
        self.state.status(&of.parse().unwrap()).map_or("unknown", Status::name)
    }

    pub(super) fn wait(&mut self, millis: u64) -> Vec<Fact> {
        self.now = self.now.after(millis);
        self.give(InputKind::Time)
    }

    pub(super) fn answer(&mut self, digest: Digest, by: Sender) -> Vec<Fact> {
        let output = self.output("gate", &json!("yes"));
        let verdict = GateVerdict::Approve(output);
        self.give(InputKind::Answered(GateAnswer { digest, by, verdict }))
    }

    pub(super) fn digest(&self) -> Digest {
        *self.state.gates().next().unwrap()
    }
}

fn needs(id: &str, edges: &[&str]) -> Task {
    Task { needs: edges.iter().map(|text| edge(text)).collect(), ..task(id) }
}

#[test]
fn task_is_reserved_started_and_done_and_then_its_dependent_is_ready() {
    let mut lab = Lab::new(vec![task("a"), needs("b", &["a"])]);
    assert_eq!(lab.commands, [Command::Reserve(attempt("a", 1))]);
    assert_eq!((lab.status("a"), lab.status("b")), ("ready", "waiting"));
    lab.start("a", 1);
    assert_eq!(
        (lab.status("a"), &lab.commands[..]),
        ("running", &[Command::Start(attempt("a", 1))][..])
    );
    lab.done("a", 1, &Json::Null);
    assert_eq!((lab.status("a"), lab.status("b")), ("done", "ready"));
    assert!(
        matches!(&lab.commands[..], [Command::Settle(..), Command::Reserve(of)] if *of == attempt("b", 1))
    );
    lab.start("b", 1);
    lab.done("b", 1, &Json::Null);
    assert_eq!(lab.state.outcome(), Some(Outcome::Succeeded));
}

#[test]
fn failed_input_stops_its_dependents_and_nothing_else() {
    let mut lab = Lab::new(vec![
        task("a"),
        needs("b", &["a"]),
        needs("c", &["b"]),
        task("d"),
        needs("e", &["a?", "d"]),
    ]);
    lab.start("a", 1);
    lab.start("d", 1);
    lab.fail("a", 1, FailReason::Refused);
    assert_eq!(
        ["a", "b", "c", "d"].map(|id| lab.status(id)),
        ["failed", "stopped", "stopped", "running"]
    );
    assert_eq!(lab.status("e"), "waiting");
    lab.done("d", 1, &Json::Null);
    assert_eq!(lab.status("e"), "stopped", "no input with `?` is done");
    assert_eq!(lab.state.outcome(), Some(Outcome::Failed));
}

#[test]
fn optional_inputs_accept_failures_if_at_least_one_is_done() {
    let mut lab = Lab::new(vec![task("a"), task("b"), needs("c", &["a?", "b?"])]);
    lab.start("a", 1);
    lab.start("b", 1);
    lab.fail("a", 1, FailReason::Refused);
    assert_eq!(lab.status("c"), "waiting");
    lab.done("b", 1, &Json::Null);
    assert_eq!(lab.status("c"), "ready");
}

#[test]
fn false_condition_skips_a_task_and_its_dependents_except_over_optional_edges() {
    let when = |test| Some(When { of: "a".parse().unwrap(), at: "/go".to_owned(), test });
    let mut lab = Lab::new(vec![
        task("a"),
        Task { when: when(Test::Equals(json!(true))), ..task("b") },
        needs("c", &["b"]),
        Task { when: when(Test::Exists(true)), ..task("d") },
        needs("e", &["b?", "d?"]),
    ]);
    lab.start("a", 1);
    lab.done("a", 1, &json!({ "go": false }));
    assert_eq!(
        ["b", "c", "d", "e"].map(|id| lab.status(id)),
        ["skipped", "skipped", "ready", "waiting"]
    );
    lab.start("d", 1);
    lab.done("d", 1, &Json::Null);
    assert_eq!(lab.status("e"), "ready");
    lab.start("e", 1);
    lab.done("e", 1, &Json::Null);
    assert_eq!(lab.state.outcome(), Some(Outcome::Succeeded), "a skipped task is no failure");
}

#[test]
fn list_in_an_output_creates_one_instance_per_item() {
    let list = ForEach::Output { of: "a".parse().unwrap(), at: "/list".to_owned(), max: 3 };
    let tasks =
        || vec![task("a"), Task { for_each: Some(list.clone()), ..task("b") }, needs("c", &["b"])];
    let with = |content: Json| {
        let mut lab = Lab::new(tasks());
        lab.start("a", 1);
        lab.done("a", 1, &content);
        lab
    };
    let mut lab = with(json!({ "list": [7, 8] }));
    assert_eq!(lab.state.instances(&"b".parse().unwrap()), Some(2));
    for of in ["b[1]", "b[0]"] {
        lab.start(of, 1);
        assert_eq!(lab.status("c"), "waiting");
        lab.done(of, 1, &Json::Null);
    }
    assert_eq!((lab.status("b"), lab.status("c")), ("done", "ready"));
    let lab = with(json!({ "list": [] }));
    assert_eq!((lab.status("b"), lab.status("c")), ("done", "ready"), "no items, no instances");
    let lab = with(json!({ "list": [1, 2, 3, 4] }));
    assert_eq!((lab.status("b"), lab.status("c")), ("failed", "stopped"), "too many items");
    let lab = with(json!({ "list": 4 }));
    assert_eq!((lab.status("b"), lab.status("c")), ("failed", "stopped"), "not a list");
}

#[test]
fn failed_instance_stops_dependents_at_once_and_other_instances_go_on() {
    let for_each = Some(ForEach::Values(vec![json!(1), json!(2)]));
    let mut lab = Lab::new(vec![
        Task { for_each, ..task("a") },
        needs("b", &["a"]),
        Task { data: vec![edge("a?")], ..task("c") },
    ]);
    lab.start("a[0]", 1);
    lab.start("a[1]", 1);
    lab.fail("a[0]", 1, FailReason::Refused);
    assert_eq!(["b", "c", "a[1]"].map(|id| lab.status(id)), ["stopped", "waiting", "running"]);
    lab.done("a[1]", 1, &Json::Null);
    assert_eq!((lab.status("a"), lab.status("c")), ("failed", "ready"));
}

#[test]
fn failed_attempts_wait_twice_as_long_each_time_up_to_five_minutes() {
    let a = Task { attempts: 10, backoff: Duration::from_secs(2), ..task("a") };
    let mut lab = Lab::new(vec![a]);
    let mut pauses = Vec::new();
    for number in 1..10 {
        lab.start("a", number);
        let facts = lab.fail("a", number, FailReason::Exit);
        let Some(FactKind::TaskRetrying { due, jitter, .. }) = facts.last().map(|fact| &fact.kind)
        else {
            panic!("{facts:?}");
        };
        assert_eq!(lab.status("a"), "backoff");
        pauses.push((due.0 + jitter - lab.now.0) / 1000);
        assert!(*jitter * 4 <= due.0 + jitter - lab.now.0);
        assert_eq!(lab.start("a", number + 1), [], "the next attempt is not due");
        lab.now = *due;
        assert_eq!(lab.state.startable(lab.now).collect::<Vec<_>>(), [attempt("a", number + 1)]);
    }
    assert_eq!(pauses, [2, 4, 8, 16, 32, 64, 128, 256, 300]);
    lab.start("a", 10);
    lab.fail("a", 10, FailReason::Exit);
    assert_eq!(lab.status("a"), "failed");
}

#[test]
fn failures_without_hope_are_not_repeated() {
    for reason in FailReason::ALL {
        let mut lab = Lab::new(vec![Task { attempts: 2, ..task("a") }]);
        lab.start("a", 1);
        lab.fail("a", 1, *reason);
        assert_eq!(
            lab.status("a"),
            if reason.is_retried() { "backoff" } else { "failed" },
            "{reason:?}"
        );
    }
}

#[test]
fn next_tier_follows_after_all_attempts_of_a_tier() {
    let executor = Executor::Model {
        tier: "cheap".parse().unwrap(),
        escalate: vec!["capable".parse().unwrap()],
        prompt: Text::Inline(String::new()),
        max_tokens: None,
        overflow: Default::default(),
        tools: None,
    };
    let mut lab = Lab::new(vec![Task { executor, attempts: 2, ..task("a") }]);
    let mut tiers = Vec::new();
    for number in 1..=4 {
        let facts = lab.start("a", number);
        tiers.extend(facts.iter().filter_map(|fact| match &fact.kind {
            FactKind::TaskStarted { tier, .. } => Some(*tier),
            _ => None,
        }));
        lab.fail("a", number, FailReason::Invalid);
        lab.wait(10_000);
    }
    assert_eq!((tiers, lab.status("a")), (vec![0, 0, 1, 1], "failed"));
}

#[test]
fn rejected_output_is_repeated_and_never_reaches_dependents() {
    let checks = vec![Check::Schema("schema.json".into())];
    let mut lab = Lab::new(vec![Task { checks, attempts: 2, ..task("a") }, needs("b", &["a"])]);
    lab.start("a", 1);
    lab.done("a", 1, &Json::Null);
    assert_eq!((lab.status("a"), lab.status("b")), ("judging", "waiting"));
    assert!(lab.commands.contains(&Command::Judge(attempt("a", 1))));
    let rejected = Verdict::Rejected { check: 0, text: "no tests".to_owned() };
    lab.give(InputKind::Judged(attempt("a", 1), rejected, None, Checks::default()));
    assert_eq!(lab.status("a"), "backoff");
    lab.wait(2000);
    lab.start("a", 2);
    lab.done("a", 2, &Json::Null);
    lab.give(InputKind::Judged(attempt("a", 2), Verdict::Passed, None, Checks::default()));
    assert_eq!((lab.status("a"), lab.status("b")), ("done", "ready"));
}

#[test]
fn lost_attempt_is_repeated_by_evidence_at_most_three_times_and_does_not_count() {
    let check = |on_crash, evidence, expect: &str| {
        let mut lab = Lab::new(vec![Task { on_crash, ..task("a") }]);
        lab.start("a", 1);
        lab.lose("a", 1, evidence);
        assert_eq!(lab.status("a"), expect, "{on_crash:?} {evidence:?}");
        lab
    };
    for on_crash in [OnCrash::Evidence, OnCrash::Rerun, OnCrash::Ask] {
        check(on_crash, Evidence::NotStarted, "ready");
    }
    check(OnCrash::Evidence, Evidence::NoEffect, "ready");
    check(OnCrash::Evidence, Evidence::MayHaveEffect, "attention");
    check(OnCrash::Rerun, Evidence::NoEffect, "ready");
    check(OnCrash::Rerun, Evidence::MayHaveEffect, "ready");
    check(OnCrash::Ask, Evidence::NoEffect, "attention");
    check(OnCrash::Ask, Evidence::MayHaveEffect, "attention");
    let mut lab = Lab::new(vec![task("a")]);
    for number in 1..=4 {
        lab.start("a", number);
        lab.lose("a", number, Evidence::NoEffect);
        assert_eq!(lab.status("a"), if number < 4 { "ready" } else { "attention" });
    }
    assert_eq!(lab.state.phase(), Phase::Attention);
}

#[test]
fn person_settles_a_lost_attempt_as_rerun_done_or_failed() {
    let settle = |how: fn(&Lab) -> Settled| {
        let mut lab = Lab::new(vec![task("a"), needs("b", &["a"])]);
        lab.start("a", 1);
        lab.lose("a", 1, Evidence::MayHaveEffect);
        let agent = Sender::outside("agent:x".parse().unwrap());
        let how = how(&lab);
        assert_eq!(lab.give(InputKind::Settled(attempt("a", 1), how.clone(), agent)), []);
        lab.give(InputKind::Settled(attempt("a", 1), how, Sender::outside(person())));
        (lab.status("a"), lab.status("b"))
    };
    assert_eq!(settle(|_| Settled::Rerun), ("ready", "waiting"));
    assert_eq!(settle(|lab| Settled::Done(lab.output("a", &Json::Null))), ("done", "ready"));
    assert_eq!(settle(|_| Settled::Failed), ("failed", "stopped"));
}

#[test]
fn output_of_an_earlier_run_is_taken_only_before_the_first_attempt() {
    let given = |lab: &Lab, number| {
        let how = Settled::Done(lab.output("a", &Json::Null));
        let kind =
            FactKind::AttentionSettled { of: attempt("a", number), how: how.clone(), by: person() };
        (Fact { at: lab.now, kind }, how)
    };
    let mut lab = Lab::new(vec![task("a"), needs("b", &["a"])]);
    let (fact, how) = given(&lab, 1);
    // Only the start of a run can record it: a person cannot give the output of a task that can run.
    assert_eq!(lab.give(InputKind::Settled(attempt("a", 1), how, Sender::outside(person()))), []);
    lab.state.apply(&fact);
    assert_eq!((lab.status("a"), lab.status("b")), ("done", "ready"));
    let mut lab = Lab::new(vec![task("a"), needs("b", &["a"])]);
    let (fact, _) = given(&lab, 2);
    lab.state.apply(&fact);
    assert_eq!(lab.status("a"), "ready", "the number of the attempt is wrong");
    lab.start("a", 1);
    let (fact, _) = given(&lab, 1);
    lab.state.apply(&fact);
    assert_eq!((lab.status("a"), lab.status("b")), ("running", "waiting"));
}

#[test]
fn missing_input_of_a_ready_task_needs_attention_and_a_rerun_makes_it_ready_again() {
    let mut lab = Lab::new(vec![task("a")]);
    lab.lose("a", 1, Evidence::InputMissing);
    assert_eq!(lab.status("a"), "attention");
    assert_eq!(lab.state.attention().collect::<Vec<_>>(), [attempt("a", 1)]);
    lab.give(InputKind::Settled(attempt("a", 1), Settled::Rerun, Sender::outside(person())));
    assert_eq!(
        (lab.status("a"), &lab.commands[..]),
        ("ready", &[Command::Reserve(attempt("a", 1))][..])
    );
}

#[test]
fn run_without_a_budget_left_is_over_budget() {
    let mut lab = Lab::new(vec![task("a"), needs("b", &["a"])]);
    let spent = Spent { owner: Owner::Run(RUN), unit: Unit::Tokens, cap: 5, renews: None };
    lab.give(InputKind::Lease(attempt("a", 1), Err(spent)));
    assert_eq!((lab.status("a"), lab.status("b")), ("stopped", "stopped"));
    assert_eq!(lab.state.outcome(), Some(Outcome::OverBudget));
}

#[test]
fn cancelled_run_kills_its_hosts_and_ends_after_their_reports() {
    let mut lab = Lab::new(vec![task("a"), needs("b", &["a"]), task("c"), gate("gate")]);
    lab.start("a", 1);
    lab.give(InputKind::Cancel { of: None, by: person() });
    assert_eq!(lab.commands, [Command::Kill(attempt("a", 1))]);
    assert_eq!(
        ["a", "b", "c", "gate"].map(|id| lab.status(id)),
        ["running", "cancelled", "cancelled", "cancelled"]
    );
    assert_eq!(lab.give(InputKind::Cancel { of: None, by: person() }), []);
    lab.done("a", 1, &Json::Null);
    assert_eq!((lab.status("a"), lab.state.outcome()), ("cancelled", Some(Outcome::Cancelled)));
}

#[test]
fn cancelled_task_stops_its_dependents_and_nothing_else() {
    let mut lab = Lab::new(vec![task("a"), needs("b", &["a"]), task("c")]);
    let of = Some("a".parse().unwrap());
    lab.give(InputKind::Cancel { of, by: person() });
    assert_eq!(["a", "b", "c"].map(|id| lab.status(id)), ["cancelled", "stopped", "ready"]);
}

#[test]
fn gate_is_asked_answered_once_and_refused_at_its_deadline() {
    let after = || Task { data: vec![edge("gate")], ..task("b") };
    let mut lab = Lab::new(vec![gate("gate"), after()]);
    assert_eq!((lab.status("gate"), lab.state.phase()), ("gated", Phase::Waiting));
    let digest = lab.digest();
    assert!(lab.commands.contains(&Command::Notify(digest)));
    lab.answer(digest, Sender::outside(person()));
    assert_eq!((lab.status("gate"), lab.status("b")), ("done", "ready"));
    assert_eq!(lab.answer(digest, Sender::outside(person())), [], "an answer counts once");
    let mut lab = Lab::new(vec![gate("gate"), after()]);
    lab.wait(119_999);
    assert_eq!(lab.status("gate"), "gated");
    lab.wait(1);
    assert_eq!((lab.status("gate"), lab.status("b")), ("failed", "stopped"));
    let mut lab = Lab::new(vec![gate("gate"), after()]);
    let (digest, by) = (lab.digest(), Sender::outside(person()));
    lab.give(InputKind::Answered(GateAnswer { digest, by, verdict: GateVerdict::Reject(None) }));
    assert_eq!((lab.status("gate"), lab.status("b")), ("failed", "stopped"));
}

#[test]
fn lease_that_remains_after_the_work_pays_for_the_checks() {
    let checks = vec![Check::Schema("schema.json".into())];
    let mut lab = Lab::new(vec![Task { checks, ..task("a") }]);
    let used = |tokens| Some(Amounts::default().with(Unit::Tokens, tokens));
    let settled = |lab: &Lab| {
        let parts = lab.commands.iter().find_map(|command| match command {
            Command::Settle(_, parts) => Some(*parts),
            _ => None,
        });
        let parts = parts.unwrap();
        (parts.spent.get(Unit::Tokens), parts.released.get(Unit::Tokens))
    };
    lab.start("a", 1);
    let end = End::Done(lab.output("a", &Json::Null));
    lab.give(InputKind::Ended(attempt("a", 1), end, used(30)));
    assert_eq!(settled(&lab), (30, 0));
    lab.give(InputKind::Judged(attempt("a", 1), Verdict::Passed, used(20), Checks::default()));
    assert_eq!(settled(&lab), (20, 50));
}

#[test]
fn extension_of_a_lease_reaches_the_check_of_an_attempt_and_is_settled_with_it() {
    let checks = vec![Check::Verify(Argv::new(["prove"]).unwrap())];
    let mut lab = Lab::new(vec![Task { checks, ..task("a") }]);
    lab.start("a", 1);
    let used = |tokens| Some(Amounts::default().with(Unit::Tokens, tokens));
    let end = End::Done(lab.output("a", &Json::Null));
    lab.give(InputKind::Ended(attempt("a", 1), end, used(90)));
    let more = Limits::default().with(Unit::Tokens, Some(50));
    lab.give(InputKind::More(attempt("a", 1), more));
    assert_eq!(lab.commands, [Command::Extend(attempt("a", 1), more)]);
    assert_eq!(lab.state.judging().next().unwrap().1.get(Unit::Tokens), Some(60));
    lab.give(InputKind::Judged(attempt("a", 1), Verdict::Passed, used(55), Checks::default()));
    let settled = lab.commands.iter().find_map(|command| match command {
        Command::Settle(_, parts) => Some(*parts),
        _ => None,
    });
    let settled = settled.unwrap();
    assert_eq!((settled.spent.get(Unit::Tokens), settled.released.get(Unit::Tokens)), (55, 5));
}

#[test]
fn extension_of_a_lease_reaches_the_host_and_is_settled_with_it() {
    let mut lab = Lab::new(vec![task("a")]);
    lab.start("a", 1);
    let more = Limits::default().with(Unit::Tokens, Some(50));
    lab.give(InputKind::More(attempt("a", 1), more));
    assert_eq!(lab.commands, [Command::Extend(attempt("a", 1), more)]);
    assert_eq!(lab.state.running().next().unwrap().1.get(Unit::Tokens), Some(150));
}

#[test]
fn new_driver_repeats_the_commands_of_open_tasks() {
    let checks = vec![Check::Schema("schema.json".into())];
    let tasks = vec![
        task("a"),
        Task { checks, ..task("b") },
        gate("gate"),
        Task { attempts: 2, ..task("d") },
    ];
    let mut lab = Lab::new(tasks);
    lab.start("b", 1);
    lab.done("b", 1, &Json::Null);
    lab.start("d", 1);
    let facts = lab.fail("d", 1, FailReason::Exit);
    let Some(FactKind::TaskRetrying { due, .. }) = facts.last().map(|fact| &fact.kind) else {
        panic!()
    };
    assert_eq!(
        lab.state.resume(lab.now),
        [
            Command::Reserve(attempt("a", 1)),
            Command::Judge(attempt("b", 1)),
            Command::Notify(lab.digest()),
            Command::Wake(*due),
        ]
    );
    assert!(lab.state.resume(*due).contains(&Command::Reserve(attempt("d", 2))));
}

#[test]
fn references_to_tasks_are_parsed_from_one_spelling() {
    for text in ["a", "a[0]", "fix-1[4294967295]"] {
        assert_eq!(text.parse::<TaskRef>().unwrap().to_string(), text);
    }
    for text in ["", "A", "a[", "a]", "a[]", "a[01]", "a[+1]", "a[4294967296]", "a[0][1]", "[0]"] {
        assert!(text.parse::<TaskRef>().is_err(), "{text}");
    }
}

#[test]
fn plan_without_tasks_succeeds() {
    assert_eq!(Lab::new(Vec::new()).state.outcome(), Some(Outcome::Succeeded));
}
