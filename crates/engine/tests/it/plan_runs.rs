//! Tests of the driver: real plans, boxes and processes, with drivers that are killed.

use std::fs;

use belljar_engine::error::{EngineError, ErrorKind};
use belljar_engine::runs::control::{self, Settlement};
use belljar_engine::runs::driver;
use belljar_engine::runs::fence::DriverLock;
use belljar_engine::runs::machine::{Outcome, Status, TaskRef, Try};
use belljar_engine::runs::submit::{SubmitKey, submit};
use belljar_engine::runs::view::{self, RunView, TaskView};
use belljar_engine::runs::{host, plans};
use belljar_model::RunId;
use belljar_model::plan::CheckedPlan;
use belljar_testkit::{Signal, eventually};
use serde_json::Value;

use crate::test_engine::TestEngine;

/// A script whose first attempt waits for a file in its inputs.
pub(crate) const GO: &str = "echo waiting >&2; until [ -e /run/task/in/go ] || [ $BELLJAR_ATTEMPT = 2 ]; do sleep 0.02; done";

pub(crate) fn checked(engine: &TestEngine, text: &str) -> CheckedPlan {
    let (config, _) = engine.state.load_config(None).unwrap();
    let ceiling = plans::ceiling(engine.state.host(), &config).unwrap();
    plans::check(text, "plan.toml", &ceiling).unwrap_or_else(|faults| panic!("{faults}"))
}

pub(crate) fn try_submit(
    engine: &TestEngine,
    text: &str,
    key: Option<&str>,
) -> Result<RunId, EngineError> {
    let key = key.map(|key| SubmitKey::new(key).unwrap());
    submit(&engine.state, &checked(engine, text), &engine.lab.workspace(), key.as_ref())
}

#[track_caller]
pub(crate) fn start(engine: &TestEngine, text: &str) -> RunId {
    try_submit(engine, text, None).unwrap()
}

pub(crate) fn view(engine: &TestEngine, run: RunId) -> RunView {
    view::run(&engine.state, run).unwrap()
}

/// Waits until a run has ended and its driver has exited.
#[track_caller]
pub(crate) fn finish(engine: &TestEngine, run: RunId) -> RunView {
    let log = engine.lab.state().join("plans/driver.log");
    belljar_testkit::eventually_shows(
        "the run ends",
        || {
            let view = view(engine, run);
            let log = fs::read_to_string(&log).unwrap_or_default();
            if view.outcome.is_some() { String::new() } else { format!("{view:#?}\n{log}") }
        },
        str::is_empty,
    );
    eventually("the driver exits", || !DriverLock::is_held(engine.state.store()));
    view(engine, run)
}

#[track_caller]
pub(crate) fn run(engine: &TestEngine, text: &str) -> RunView {
    finish(engine, start(engine, text))
}

pub(crate) fn of(task: &str) -> TaskRef {
    task.parse().unwrap()
}

#[track_caller]
pub(crate) fn task<'v>(view: &'v RunView, name: &str) -> &'v TaskView {
    let found = view.tasks.iter().find(|task| task.of == of(name));
    found.unwrap_or_else(|| panic!("no task {name}: {view:#?}"))
}

#[track_caller]
pub(crate) fn output(engine: &TestEngine, view: &RunView, task: &str) -> String {
    let bytes = view::output(&engine.state, view.run, &of(task));
    String::from_utf8(bytes.unwrap_or_else(|error| panic!("{error:?} {view:#?}"))).unwrap()
}

/// Returns the events of a kind in the chain of a run.
pub(crate) fn events(engine: &TestEngine, run: RunId, kind: &str) -> Vec<Value> {
    let id = run.to_string();
    let mut events = engine.events();
    events.retain(|event| event["run"] == id.as_str() && event["kind"] == kind);
    events
}

/// Returns how often each task was started, from the ledger.
pub(crate) fn starts(engine: &TestEngine, run: RunId, task: &str) -> usize {
    let started = events(engine, run, "task.started");
    started.iter().filter(|event| event["fields"]["task"] == task).count()
}

/// Kills the process that has a file of the state directory open.
#[track_caller]
pub(crate) fn kill_holder(engine: &TestEngine, file: &str) {
    let file = engine.lab.state().join(file);
    let has_open = |pid: &u32| {
        let open = fs::read_dir(format!("/proc/{pid}/fd")).into_iter().flatten().flatten();
        open.filter_map(|fd| fs::read_link(fd.path()).ok()).any(|path| path == file)
    };
    let own = std::process::id();
    let pids = fs::read_dir("/proc").unwrap().flatten();
    let pids = pids.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    let found: Vec<u32> = pids.filter(|pid| *pid != own).filter(has_open).collect();
    let [pid] = found.as_slice() else { panic!("one process has {file:?} open: {found:?}") };
    let pid = rustix::process::Pid::from_raw((*pid).try_into().unwrap()).unwrap();
    rustix::process::kill_process(pid, Signal::KILL).unwrap();
}

#[track_caller]
pub(crate) fn kill_driver(engine: &TestEngine) {
    kill_holder(engine, "driver.lock");
    eventually("the lock of the driver is free", || !DriverLock::is_held(engine.state.store()));
}

/// Waits until the program of a task has written the line of [`GO`], and returns its box run.
#[track_caller]
pub(crate) fn wait_for_program(engine: &TestEngine, run: RunId, name: &str) -> RunId {
    let mut box_run = None;
    eventually("the program of the task waits", || {
        box_run = task(&view(engine, run), name).box_run;
        box_run.is_some_and(|id| host::tail(&engine.state, id, 9).contains(&"waiting".to_owned()))
    });
    box_run.unwrap()
}

/// Lets a program of [`GO`] continue.
pub(crate) fn release(engine: &TestEngine, run: RunId, box_run: RunId) {
    let inputs = engine.lab.state().join(format!("plans/{run}/work/{box_run}"));
    fs::write(inputs.join("go"), "").unwrap();
}

// ---- Shapes

#[test]
fn chain_runs_in_order_and_each_output_is_the_standard_input_of_the_next_task() {
    let engine = TestEngine::new();
    engine.lab.write("issue.md", "one");
    let text = r#"
        [run]
        input.issue = { file = "issue.md", labels = ["untrusted"] }
        answer = "c"
        [task.a]
        do = { command = ["sed", "s/$/ two/"] }
        data = ["input.issue"]
        [task.b]
        do = { command = ["sed", "s/$/ three/"] }
        data = ["a"]
        [task.c]
        do = { command = ["sed", "s/$/ four/"] }
        data = ["b"]
    "#;
    let view = run(&engine, text);
    assert_eq!(view.outcome, Some(Outcome::Succeeded), "{view:#?}");
    assert_eq!(output(&engine, &view, "c"), "one two three four");
    let started = events(&engine, view.run, "task.started");
    let order: Vec<&str> =
        started.iter().filter_map(|event| event["fields"]["task"].as_str()).collect();
    assert_eq!(order, ["a", "b", "c"]);
    let ended = events(&engine, view.run, "task.ended");
    assert!(ended.iter().all(|event| event["fields"]["labels"].to_string().contains("untrusted")));
    assert_eq!(view::list(&engine.state).unwrap()[0].id, view.run);
}

#[test]
fn diamond_joins_the_outputs_of_both_branches() {
    let engine = TestEngine::new();
    let text = r#"
        [task.top]
        do = { stub = "t" }
        [task.left]
        do = { command = ["bash", "-c", "cat; echo -n l"] }
        data = ["top"]
        [task.right]
        do = { command = ["bash", "-c", "cat; echo -n r"] }
        data = ["top"]
        [task.join]
        do = { command = ["bash", "-c", "cat /run/task/in/left /run/task/in/right"] }
        data = ["left", "right"]
    "#;
    let view = run(&engine, text);
    assert_eq!(view.outcome, Some(Outcome::Succeeded), "{view:#?}");
    assert_eq!(output(&engine, &view, "join"), "tltr");
    for task in ["top", "left", "right", "join"] {
        assert_eq!(starts(&engine, view.run, task), 1, "{task}");
    }
}

#[test]
fn for_each_over_an_output_makes_one_instance_per_item() {
    let engine = TestEngine::new();
    let text = r#"
        [task.list]
        do = { stub = { names = ["x", "y", "z"] } }
        output = { type = "json" }
        [task.each]
        do = { command = ["cat", "/run/task/in/item.json"] }
        for_each = { of = "list", at = "/names" }
        needs = ["list"]
        [task.join]
        do = { command = ["bash", "-c", "cat /run/task/in/each*"] }
        data = ["each"]
    "#;
    let view = run(&engine, text);
    assert_eq!(view.outcome, Some(Outcome::Succeeded), "{view:#?}");
    assert_eq!(output(&engine, &view, "each[1]"), "\"y\"");
    assert_eq!(output(&engine, &view, "join"), "\"x\"\"y\"\"z\"");
}

#[test]
fn task_with_a_false_condition_is_skipped_and_one_with_a_true_condition_runs() {
    let engine = TestEngine::new();
    let text = r#"
        [task.triage]
        do = { command = ["echo", '{"severity": "high"}'] }
        output = { type = "json" }
        [task.fix]
        do = { stub = "fixed" }
        when = { of = "triage", at = "/severity", equals = "high" }
        needs = ["triage"]
        [task.wait]
        do = { stub = "waited" }
        when = { of = "triage", at = "/severity", equals = "low" }
        needs = ["triage"]
    "#;
    let view = run(&engine, text);
    assert_eq!(view.outcome, Some(Outcome::Succeeded), "{view:#?}");
    assert_eq!(output(&engine, &view, "fix"), "fixed");
    assert_eq!(task(&view, "wait").status, Status::Skipped);
    assert_eq!(starts(&engine, view.run, "wait"), 0);
}

// ---- Failures

#[test]
fn failing_task_stops_its_dependents_and_nothing_else() {
    let engine = TestEngine::new();
    let text = r#"
        [task.bad]
        do = { command = ["bash", "-c", "echo broken >&2; exit 3"] }
        [task.after]
        do = { stub = 1 }
        needs = ["bad"]
        [task.other]
        do = { command = ["echo", "fine"] }
        [task.end]
        do = { command = ["cat"] }
        data = ["other"]
    "#;
    let view = run(&engine, text);
    assert_eq!(view.outcome, Some(Outcome::Failed), "{view:#?}");
    assert_eq!(task(&view, "bad").reason.as_deref(), Some("exit: exit status 3: broken"));
    assert_eq!(task(&view, "after").status, Status::Stopped);
    assert_eq!(starts(&engine, view.run, "after"), 0);
    assert_eq!(output(&engine, &view, "end"), "fine\n");
}

#[test]
fn failed_attempt_is_repeated_after_its_backoff_with_the_same_idempotency_key() {
    let engine = TestEngine::new();
    let text = r#"
        [task.flaky]
        do = { command = ["bash", "-c", "echo $BELLJAR_IDEMPOTENCY_KEY $BELLJAR_ATTEMPT; [ $BELLJAR_ATTEMPT = 2 ]"] }
        attempts = 3
        backoff = "1s"
    "#;
    let view = run(&engine, text);
    assert_eq!(view.outcome, Some(Outcome::Succeeded), "{view:#?}");
    assert_eq!(task(&view, "flaky").attempt, 2);
    assert_eq!(output(&engine, &view, "flaky"), format!("{}/flaky 2\n", view.run));
    let retrying = events(&engine, view.run, "task.retrying");
    let second = &events(&engine, view.run, "task.started")[1];
    assert!(second["fields"]["at"].as_u64() >= retrying[0]["fields"]["due"].as_u64());
}

#[test]
fn output_of_the_wrong_type_or_size_fails_with_a_named_reason() {
    let engine = TestEngine::new();
    let text = r#"
        [task.json]
        do = { command = ["echo", "{"] }
        output = { type = "json" }
        [task.large]
        do = { command = ["head", "-c", "3000", "/dev/zero"] }
        output = { type = "bytes", max = "2 KiB" }
    "#;
    let view = run(&engine, text);
    assert_eq!(view.outcome, Some(Outcome::Failed), "{view:#?}");
    assert!(task(&view, "json").reason.as_ref().unwrap().starts_with("invalid: "), "{view:#?}");
    assert!(task(&view, "large").reason.as_ref().unwrap().starts_with("too_large: "), "{view:#?}");
}

#[test]
fn executors_and_limits_that_are_not_supported_are_refused_before_anything_is_recorded() {
    let engine = TestEngine::new();
    let plans = [(
        "[task.a]\ndo = { approval = 'Go?' }\noutput = 'json'\ncheck = [{ schema = 's.json' }]",
        "a check of an approval",
    )];
    for (text, expected) in plans {
        let error = try_submit(&engine, text, None).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Invalid);
        let text = format!("{error:#}");
        assert!(text.contains(expected) && text.contains("not supported yet"), "{text}");
    }
    assert!(view::list(&engine.state).unwrap().is_empty());
}

#[test]
fn second_submission_with_a_key_returns_the_first_run_and_another_plan_is_refused() {
    let engine = TestEngine::new();
    let (one, two) = ("[task.a]\ndo = { stub = 1 }", "[task.a]\ndo = { stub = 2 }");
    let first = try_submit(&engine, one, Some("k")).unwrap();
    assert_eq!(try_submit(&engine, one, Some("k")).unwrap(), first);
    let error = try_submit(&engine, two, Some("k")).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Conflict);
    let other = try_submit(&engine, one, Some("other")).unwrap();
    assert_ne!(other, first, "control: another key");
    finish(&engine, first);
    finish(&engine, other);
}

// ---- Crashes

#[test]
fn h11_killed_driver_is_resumed_its_hosts_are_adopted_and_finished_tasks_are_not_repeated() {
    let engine = TestEngine::new();
    let text = format!(
        r#"
        [task.first]
        do = {{ command = ["echo", "one"] }}
        [task.second]
        do = {{ command = ["bash", "-c", "{GO}; cat; echo two"] }}
        data = ["first"]
        [task.third]
        do = {{ command = ["cat"] }}
        data = ["second"]
    "#
    );
    let run = start(&engine, &text);
    let box_run = wait_for_program(&engine, run, "second");
    kill_driver(&engine);
    assert!(host::is_running(&engine.state, box_run), "the host outlives the driver");
    let is_box = |run| run == box_run;
    let unsettled = belljar_engine::record::needs_attention(&engine.state, is_box).unwrap();
    assert!(unsettled.is_empty(), "a new driver continues the run: {unsettled:?}");
    driver::wake(&engine.state).unwrap();
    eventually("another driver opens the run", || events(&engine, run, "driver.opened").len() == 2);
    release(&engine, run, box_run);
    let view = finish(&engine, run);
    assert_eq!(view.outcome, Some(Outcome::Succeeded), "{view:#?}");
    assert_eq!(output(&engine, &view, "third"), "one\ntwo\n");
    for task in ["first", "second", "third"] {
        assert_eq!(starts(&engine, run, task), 1, "{task}");
    }
    assert_eq!(task(&view, "second").box_run, Some(box_run), "the host was adopted");
}

#[test]
fn h11_result_of_a_host_that_ended_without_a_driver_is_taken() {
    let engine = TestEngine::new();
    let text = format!(
        r#"
        [task.a]
        do = {{ command = ["bash", "-c", "{GO}; echo done"] }}
    "#
    );
    let run = start(&engine, &text);
    let box_run = wait_for_program(&engine, run, "a");
    kill_driver(&engine);
    release(&engine, run, box_run);
    eventually("the host ends", || !host::is_running(&engine.state, box_run));
    driver::wake(&engine.state).unwrap();
    let view = finish(&engine, run);
    assert_eq!(view.outcome, Some(Outcome::Succeeded), "{view:#?}");
    assert_eq!(output(&engine, &view, "a"), "done\n");
    assert_eq!(starts(&engine, run, "a"), 1);
}

#[test]
fn h11_lost_attempt_without_an_effect_is_repeated_and_does_not_count() {
    let engine = TestEngine::new();
    let text = format!(
        r#"
        [task.a]
        do = {{ command = ["bash", "-c", "{GO}; echo done"] }}
    "#
    );
    let run = start(&engine, &text);
    let box_run = wait_for_program(&engine, run, "a");
    kill_holder(&engine, &format!("runs/{box_run}/lock"));
    let view = finish(&engine, run);
    assert_eq!(view.outcome, Some(Outcome::Succeeded), "{view:#?}");
    assert_eq!(task(&view, "a").attempt, 2);
    assert_eq!(events(&engine, run, "task.ended")[0]["fields"]["result"], "lost");
}

#[test]
fn h11_lost_attempt_of_a_task_that_asks_waits_for_a_person() {
    let engine = TestEngine::new();
    let text = format!(
        r#"
        [task.a]
        do = {{ command = ["bash", "-c", "{GO}; echo done"] }}
        on_crash = "ask"
    "#
    );
    let run = start(&engine, &text);
    let box_run = wait_for_program(&engine, run, "a");
    kill_holder(&engine, &format!("runs/{box_run}/lock"));
    eventually("the task needs attention", || task(&view(&engine, run), "a").lost.is_some());
    let lost = Try { task: "a".parse().unwrap(), item: None, attempt: 1 };
    let wrong = Try { attempt: 2, ..lost.clone() };
    let error = control::settle(&engine.state, run, &wrong, Settlement::Rerun).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::WrongState);
    control::settle(&engine.state, run, &lost, Settlement::Rerun).unwrap();
    let view = finish(&engine, run);
    assert_eq!(view.outcome, Some(Outcome::Succeeded), "{view:#?}");
    assert_eq!(starts(&engine, run, "a"), 2);
}

#[test]
fn h15_second_driver_exits_and_starts_nothing() {
    let engine = TestEngine::new();
    let text = format!(
        r#"
        [task.a]
        do = {{ command = ["bash", "-c", "{GO}"] }}
    "#
    );
    let run = start(&engine, &text);
    let box_run = wait_for_program(&engine, run, "a");
    driver::run(&engine.state).unwrap();
    assert!(DriverLock::is_held(engine.state.store()), "the first driver goes on");
    release(&engine, run, box_run);
    let view = finish(&engine, run);
    assert_eq!(view.outcome, Some(Outcome::Succeeded), "{view:#?}");
    assert_eq!(starts(&engine, run, "a"), 1);
    assert_eq!(events(&engine, run, "driver.opened").len(), 1);
}

#[test]
fn changed_output_is_not_used_and_the_next_task_waits_for_a_person() {
    let engine = TestEngine::new();
    let text = format!(
        r#"
        [task.a]
        do = {{ command = ["echo", "true"] }}
        [task.wait]
        do = {{ command = ["bash", "-c", "{GO}"] }}
        [task.b]
        do = {{ command = ["cat"] }}
        data = ["a"]
        needs = ["wait"]
    "#
    );
    let run = start(&engine, &text);
    let box_run = wait_for_program(&engine, run, "wait");
    eventually("a is done", || task(&view(&engine, run), "a").status == Status::Done);
    let file = engine.lab.state().join(format!("plans/{run}/out/a"));
    fs::write(file, "forged").unwrap();
    release(&engine, run, box_run);
    eventually("b needs attention", || task(&view(&engine, run), "b").lost.is_some());
    assert_eq!(starts(&engine, run, "b"), 0);
    control::cancel(&engine.state, run, None).unwrap();
    assert_eq!(finish(&engine, run).outcome, Some(Outcome::Cancelled));
}

// ---- Cancel

#[test]
fn cancelled_run_kills_its_boxes_and_starts_nothing_more() {
    let engine = TestEngine::new();
    let text = r#"
        [task.a]
        do = { command = ["bash", "-c", "echo waiting >&2; sleep 1000"] }
        [task.stub]
        do = { stub = 1, delay = "1h" }
        [task.b]
        do = { stub = 1 }
        needs = ["a"]
    "#;
    let run = start(&engine, text);
    let box_run = wait_for_program(&engine, run, "a");
    control::cancel(&engine.state, run, None).unwrap();
    let view = finish(&engine, run);
    assert_eq!(view.outcome, Some(Outcome::Cancelled), "{view:#?}");
    assert!(!host::is_running(&engine.state, box_run));
    assert_eq!(starts(&engine, run, "b"), 0);
    let error = control::cancel(&engine.state, run, None).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::WrongState);
}

#[test]
fn cancelled_task_ends_and_other_tasks_go_on() {
    let engine = TestEngine::new();
    let text = r#"
        [run]
        answer = "b"
        [task.a]
        do = { command = ["bash", "-c", "echo waiting >&2; sleep 1000"] }
        [task.b]
        do = { command = ["echo", "fine"] }
    "#;
    let run = start(&engine, text);
    wait_for_program(&engine, run, "a");
    control::cancel(&engine.state, run, Some(&of("a"))).unwrap();
    let view = finish(&engine, run);
    assert_eq!(view.outcome, Some(Outcome::Succeeded), "{view:#?}");
    assert_eq!(task(&view, "a").status, Status::Cancelled);
    assert_eq!(output(&engine, &view, "b"), "fine\n");
}
