//! Receipts of real runs of plans.

use std::fs;

use belljar_engine::runs::machine::Outcome;
use belljar_engine::runs::{receipt, requests};
use belljar_ledger::{
    Disclose, LedgerPaths, Reader, ReceiptError, VerifiedPlan, is_plan_receipt, public_keys,
    verify_plan_receipt, verify_receipt,
};
use belljar_model::RunId;
use belljar_testkit::{Authority, Upstream};
use serde_json::json;

use crate::plan_runs;
use crate::test_engine::TestEngine;

const PLAN: &str = r#"
    [run]
    answer = "join"
    [task.a]
    do = { command = ["bash", "-c", "curl -sS https://api.example.com/v1/x > /dev/null; echo one"] }
    [task.b]
    do = { stub = "two" }
    [task.never]
    do = { stub = 1 }
    when = { of = "c", at = "/x", equals = 2 }
    needs = ["c"]
    [task.c]
    do = { stub = { x = 1 } }
    output = { type = "json" }
    [task.join]
    do = { command = ["bash", "-c", "cat /run/task/in/a /run/task/in/b"] }
    data = ["a", "b"]
    box = { net = "none" }
"#;

/// Runs a plan whose first task sends a request.
fn run_plan(engine: &TestEngine) -> RunId {
    run_text(engine, PLAN)
}

/// Runs a plan that can reach `api.example.com`.
fn run_text(engine: &TestEngine, text: &str) -> RunId {
    let authority = Authority::new();
    let upstream = Upstream::echo(&authority, &["api.example.com"]);
    let rule = format!(
        "[template.default]\nnet = \"restricted\"\n[[template.default.allow]]\nhost = \"api.example.com\"\nconnect = \"{}\"\n",
        upstream.address()
    );
    engine.lab.configure_for(&authority, &rule);
    let view = plan_runs::run(engine, text);
    assert_eq!(view.outcome, Some(Outcome::Succeeded), "{view:#?}");
    view.run
}

fn receipt_of(engine: &TestEngine, run: RunId, disclose: Disclose) -> String {
    let reader = Reader::open(&LedgerPaths::under(engine.state.home())).unwrap();
    receipt::of_run(&engine.state, &reader, run, disclose).unwrap()
}

fn verify(engine: &TestEngine, text: &str) -> Result<VerifiedPlan, ReceiptError> {
    let keys = public_keys(&LedgerPaths::under(engine.state.home())).unwrap();
    verify_plan_receipt(text, &keys)
}

#[test]
fn receipt_of_a_plan_proves_its_boxes_requests_and_outputs() {
    let engine = TestEngine::new();
    let run = run_plan(&engine);
    let text = receipt_of(&engine, run, Disclose::Nothing);
    let verified = verify(&engine, &text).unwrap();
    assert_eq!(verified.run(), Some(run));
    assert_eq!(verified.outcome(), Some("succeeded"));
    assert_eq!(verified.tasks().len(), 5, "{:?}", verified.tasks());
    assert_eq!(verified.boxes().len(), 2);
    for (_, events) in verified.boxes() {
        assert_eq!(events.last().map(|event| event.kind.as_str()), Some("run.ended"));
    }
    let requests = verified.events().filter(|event| event.kind == "request.decided").count();
    assert_eq!(requests, 1);
    let tasks = verified.tasks();
    let join = tasks.iter().find(|task| task.name == "join").unwrap();
    let (hash, size) = join.output.unwrap();
    assert_eq!((join.attempts, size), (1, 7));
    assert_eq!(verified.content(hash), None, "only a commitment");
    assert!(!text.contains("b25lCnR3bw"), "the output is not in the receipt");

    let shown = verify(&engine, &receipt_of(&engine, run, Disclose::Bodies)).unwrap();
    assert_eq!(shown.content(hash), Some(b"one\ntwo".as_slice()));
    let plan = shown.created().unwrap().command.hash();
    let plan = String::from_utf8(shown.content(plan).unwrap().to_vec()).unwrap();
    assert!(plan.contains("\"join\""), "{plan}");
    // An output that was deleted later is not disclosed, and the receipt is still valid.
    fs::remove_file(engine.lab.state().join(format!("plans/{run}/out/join"))).unwrap();
    let redacted = verify(&engine, &receipt_of(&engine, run, Disclose::Bodies)).unwrap();
    assert_eq!(redacted.content(hash), None);
    // Another ledger does not trust it.
    let other = TestEngine::new();
    other.run(json!({}), "true");
    let error = verify(&other, &text).unwrap_err();
    assert!(matches!(error, ReceiptError::UntrustedKey { .. }), "{error:?}");
}

#[test]
fn h02_receipt_of_a_plan_covers_the_boxes_of_its_checks() {
    let engine = TestEngine::new();
    let text = "[task.a]\ndo = { command = ['echo', 'good'] }\n\
                check = [{ command = ['grep', '-q', 'good'] }, { command = ['true'] }]\n";
    let run = plan_runs::run(&engine, text).run;
    let receipt = receipt_of(&engine, run, Disclose::Nothing);
    let verified = verify(&engine, &receipt).unwrap();
    assert_eq!(verified.outcome(), Some("succeeded"));
    assert_eq!(verified.boxes().len(), 3, "the task and two checks");
    for (_, events) in verified.boxes() {
        assert_eq!(events.last().map(|event| event.kind.as_str()), Some("run.ended"));
    }
    // A receipt without the box of a check is refused.
    let mut changed: serde_json::Value = serde_json::from_str(&receipt).unwrap();
    changed["chains"].as_array_mut().unwrap().pop();
    let changed = serde_json::to_string(&changed).unwrap() + "\n";
    let error = verify(&engine, &changed).unwrap_err();
    assert!(matches!(error, ReceiptError::ChainMissing { .. }), "{error:?}");
}

#[test]
fn receipts_of_plans_that_ran_at_the_same_time_have_only_their_own_events() {
    let engine = TestEngine::new();
    let start = |name: &str| {
        let text = format!("[task.{name}]\ndo = {{ command = [\"echo\", \"{name}\"] }}\n");
        plan_runs::start(&engine, &text)
    };
    let runs = [("one", start("one")), ("two", start("two"))];
    for (_, run) in runs {
        plan_runs::finish(&engine, run);
    }
    let events = engine.events();
    let position = |run: RunId, kind: &str| {
        let run = run.to_string();
        events.iter().position(|event| event["run"] == run.as_str() && event["kind"] == kind)
    };
    let (first, second) = (runs[0].1, runs[1].1);
    assert!(
        position(second, "plan.accepted") < position(first, "plan.ended"),
        "control: the plans ran at the same time"
    );
    for (name, run) in runs {
        let verified = verify(&engine, &receipt_of(&engine, run, Disclose::Nothing)).unwrap();
        let tasks: Vec<String> = verified.tasks().into_iter().map(|task| task.name).collect();
        assert_eq!(tasks, [name]);
        let boxes: Vec<RunId> = verified.boxes().iter().map(|(run, _)| *run).collect();
        assert_eq!(boxes.len(), 1);
        let is_own = |run_of_event: RunId| run_of_event == run || boxes.contains(&run_of_event);
        assert!(verified.events().all(|event| event.run.is_some_and(is_own)));
    }
}

#[test]
fn requests_of_a_run_are_counted_for_each_host_with_the_denied_ones() {
    let engine = TestEngine::new();
    let plan = PLAN.replace(
        "> /dev/null; echo one",
        "> /dev/null; curl -s https://other.example.org; curl -s https://api.example.com > /dev/null; echo one",
    );
    let run = run_text(&engine, &plan);
    let found = requests::of_run(&engine.state, run).unwrap();
    let found: Vec<(&str, u64, u64)> =
        found.iter().map(|it| (it.host.as_str(), it.allowed, it.denied)).collect();
    assert_eq!(found, [("api.example.com", 2, 0), ("other.example.org", 0, 1)]);
}

#[test]
fn receipt_of_a_single_run_keeps_its_format() {
    let engine = TestEngine::new();
    let run = engine.run(json!({}), "true").result.run;
    let text = receipt_of(&engine, run, Disclose::Nothing);
    assert!(!is_plan_receipt(&text), "{text}");
    let keys = public_keys(&LedgerPaths::under(engine.state.home())).unwrap();
    assert!(verify_receipt(&text, &keys).unwrap().is_complete());
}
