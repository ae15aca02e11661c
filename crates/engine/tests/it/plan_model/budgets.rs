//! Budgets of runs, tasks and secrets, which the broker enforces for each box.

use belljar_engine::runs::budget::Unit;
use belljar_engine::runs::host;
use belljar_engine::runs::machine::{Outcome, Status};
use belljar_engine::runs::view;
use belljar_testkit::{Reply, Upstream, eventually};
use serde_json::{Value, json};

use super::{Lab, answer, stream};
use crate::plan_code::{events, finish, output, reason, run, task, try_submit};
use crate::test_engine::TestEngine;

/// Returns a plan with a budget and tasks that ask a model one after the other.
fn plan(budget: &str, tasks: usize) -> String {
    let mut text = format!("[run]\nbudget = {{ {budget} }}\n");
    for number in 0..tasks {
        let needs = if number == 0 { String::new() } else { format!("'t{}'", number - 1) };
        text += &format!(
            "[task.t{number}]\ndo = {{ model = 'cheap', prompt = 'x', max_tokens = 100 }}\nneeds = [{needs}]\n"
        );
    }
    text
}

#[test]
fn h16_run_ends_over_budget_when_its_tokens_are_used_up_and_nothing_more_is_sent() {
    // Each answer uses 5,000 of 9,000 tokens. The usage is above the estimate of the second request.
    let usage = json!({"input_tokens": 3000, "output_tokens": 2000});
    let lab = Lab::new(vec![stream("x", "end_turn", &usage)]);
    let view = run(&lab.engine, &plan("tokens = 9000", 4));
    assert_eq!(view.outcome, Some(Outcome::OverBudget), "{view:#?}");
    assert_eq!(lab.requests().len(), 2, "{view:#?}");
    // Control: without the limit, all four are sent.
    let view = run(&lab.engine, &plan("boxes = 1", 4));
    assert_eq!(view.outcome, Some(Outcome::Succeeded), "{view:#?}");
    assert_eq!(lab.requests().len(), 6);
}

#[test]
fn h16_money_is_reserved_before_a_request_and_a_request_that_could_cost_more_is_not_sent() {
    let lab = Lab::new(vec![answer("x")]);
    // 1,000,000 tokens of output can cost 5 USD.
    let text = |money: &str| {
        format!(
            "[run]\nbudget = {{ money = '{money}' }}\n[task.a]\ndo = {{ model = 'cheap', prompt = 'x', max_tokens = 1000000 }}"
        )
    };
    let view = run(&lab.engine, &text("1 USD"));
    assert_eq!(view.outcome, Some(Outcome::OverBudget), "{view:#?}");
    assert!(reason(&view, "a").starts_with("over_budget: "), "{view:#?}");
    assert!(lab.requests().is_empty());
    // Control: enough money.
    let view = run(&lab.engine, &text("6 USD"));
    assert_eq!(view.outcome, Some(Outcome::Succeeded), "{view:#?}");
    assert_eq!(task(&view, "a").usage.get(Unit::Money), 17);
}

#[test]
fn h16_retries_count_and_a_limit_of_calls_holds_for_all_attempts() {
    let error = Reply::new(500, "no").header("retry-after", "0");
    let lab = Lab::new(vec![error]);
    let text = "[run]\nbudget = { calls = 4 }\n[task.a]\ndo = { model = 'cheap', prompt = 'x' }\nattempts = 3\nbackoff = '1s'";
    let view = run(&lab.engine, text);
    assert_eq!(view.outcome, Some(Outcome::OverBudget), "{view:#?}");
    assert_eq!(lab.requests().len(), 4);
    assert_eq!(task(&view, "a").usage.get(Unit::Calls), 4);
}

#[test]
fn h16_budget_of_a_task_and_of_a_secret_holds_beside_that_of_the_run() {
    let lab = Lab::new(vec![answer("x")]);
    let by_task = "[run]\nbudget = { calls = 100 }\n[task.a]\ndo = { model = 'cheap', prompt = 'x' }\nfor_each = { values = [1, 2, 3] }\nbudget = { calls = 2 }";
    let view = run(&lab.engine, by_task);
    assert_eq!(view.outcome, Some(Outcome::OverBudget), "{view:#?}");
    assert_eq!(lab.requests().len(), 2);
    let secret = |limit: u32| plan(&format!("secrets.models.requests = {limit}"), 3);
    let view = run(&lab.engine, &secret(2));
    assert_eq!(view.outcome, Some(Outcome::OverBudget), "{view:#?}");
    assert_eq!(lab.requests().len(), 4);
    let view = run(&lab.engine, &secret(3));
    assert_eq!(view.outcome, Some(Outcome::Succeeded), "control: {view:#?}");
}

#[test]
fn h16_plan_with_a_money_limit_and_an_unpriced_tier_is_not_accepted() {
    let engine = TestEngine::new();
    engine.lab.configure(
        "[tier.local]\nprovider = 'openai-chat'\nmodel = 'm'\nurl = 'http://localhost:1/v1'\n",
    );
    let plan = |budget: &str| {
        format!("[run]\n{budget}\n[task.a]\ndo = {{ model = 'local', prompt = 'x' }}")
    };
    let (config, _) = engine.state.load_config(None).unwrap();
    let ceiling = belljar_engine::runs::plans::ceiling(engine.state.host(), &config).unwrap();
    let check = |text: &str| belljar_engine::runs::plans::check(text, "plan.toml", &ceiling);
    let faults = check(&plan("budget.money = '1 USD'")).unwrap_err().to_string();
    assert!(faults.contains("the price of tier `local` is unknown"), "{faults}");
    assert!(check(&plan("")).is_ok(), "control");
}

#[test]
fn h16_command_that_exceeds_its_bytes_or_calls_is_over_budget_and_not_an_error() {
    let authority = belljar_testkit::Authority::new();
    let upstream =
        Upstream::tls(&authority, &["api.example.com"], |_| Reply::new(200, vec![b'x'; 2000]));
    let engine = TestEngine::new();
    engine.lab.configure_for(&authority, &format!(
        "[template.default]\nnet = 'restricted'\n[[template.default.allow]]\nhost = 'api.example.com'\nconnect = '{}'\n",
        upstream.address()
    ));
    let plan = |budget: &str| {
        format!(
            "[run]\nbudget = {{ {budget} }}\n[task.a]\ndo = {{ command = ['bash', '-c', 'for i in 1 2 3 4; do curl -fsS -o /dev/null https://api.example.com/ || exit 7; done; echo fine'] }}"
        )
    };
    for budget in ["calls = 2", "bytes = '5000B'"] {
        let before = upstream.received().len();
        let view = run(&engine, &plan(budget));
        assert_eq!(view.outcome, Some(Outcome::OverBudget), "{budget} {view:#?}");
        assert!(reason(&view, "a").starts_with("over_budget: exit status 7"), "{view:#?}");
        assert!((2..4).contains(&(upstream.received().len() - before)), "{budget}");
    }
    let view = run(&engine, &plan("calls = 4, bytes = '1MiB'"));
    assert_eq!(view.outcome, Some(Outcome::Succeeded), "control: {view:#?}");
    assert_eq!(output(&engine, &view, "a"), "fine\n");
    let leases: Vec<Value> = events(&engine, view.run, "task.started");
    assert!(leases[0]["fields"].to_string().contains("calls"), "{leases:?}");
}

/// A script that waits for a file in its inputs and then sends four requests.
const FOUR: &str = "echo waiting >&2; until [ -e /run/task/in/go ]; do sleep 0.02; done; for i in 1 2 3 4; do curl -fsS -o /dev/null https://api.example.com/ || exit 7; done; echo fine";

#[test]
fn h16_lease_grows_only_after_the_extension_is_on_record_and_never_above_the_budget() {
    let authority = belljar_testkit::Authority::new();
    let upstream = Upstream::tls(&authority, &["api.example.com"], |_| Reply::new(200, "x"));
    let engine = TestEngine::new();
    let template = format!(
        "[template.default]\nnet = 'restricted'\n[[template.default.allow]]\nhost = 'api.example.com'\nconnect = '{}'\n",
        upstream.address()
    );
    engine.lab.configure_for(&authority, &template);
    // Both tasks are ready, so each gets a part of the calls. The second one needs none and returns them.
    let plan = |calls: usize| {
        format!(
            "[run]\nbudget = {{ calls = {calls} }}\n[task.many]\ndo = {{ command = ['bash', '-c', '{FOUR}'] }}\n[task.none]\ndo = {{ command = ['true'] }}"
        )
    };
    for (calls, outcome) in [(4, Outcome::Succeeded), (3, Outcome::OverBudget)] {
        let before = upstream.received().len();
        let started = try_submit(&engine, &plan(calls)).unwrap();
        let mut many = None;
        eventually("one task waits and the other one is done", || {
            let view = view::run(&engine.state, started).unwrap();
            many = task(&view, "many").box_run;
            let waits = many.is_some_and(|id| !host::tail(&engine.state, id, 1).is_empty());
            waits && task(&view, "none").status == Status::Done
        });
        let many = many.unwrap();
        let inputs = engine.lab.state().join(format!("plans/{started}/work/{many}"));
        std::fs::write(inputs.join("go"), "").unwrap();
        let view = finish(&engine, started);
        assert_eq!(view.outcome, Some(outcome), "{view:#?}");
        let sent = upstream.received().len() - before;
        assert_eq!(sent, calls, "all of the budget is used and no more");
        // The first request beyond the first lease follows the record of the extension.
        let lease = events(&engine, started, "task.started")[0]["fields"].clone();
        let leased = events(&engine, started, "budget.leased");
        let mut decided = events(&engine, many, "request.decided");
        decided.retain(|event| event["fields"]["verdict"] == "allow");
        let first = calls / 2;
        assert!(lease.to_string().contains(&format!("calls={first}")), "{lease}");
        assert!(leased[0]["index"].as_u64() < decided[first]["index"].as_u64(), "{leased:?}");
    }
}
