//! Tests of `code` tasks with the real driver, and functions for tests of other executors.

use belljar_engine::error::{EngineError, ErrorKind};
use belljar_engine::runs::fence::DriverLock;
use belljar_engine::runs::machine::{Outcome, TaskRef};
use belljar_engine::runs::plans;
use belljar_engine::runs::submit::submit;
use belljar_engine::runs::view::{self, RunView, TaskView};
use belljar_model::RunId;
use belljar_testkit::eventually;
use serde_json::Value;

use crate::test_engine::TestEngine;

/// Checks a plan and submits it.
pub(crate) fn try_submit(engine: &TestEngine, text: &str) -> Result<RunId, EngineError> {
    let (config, _) = engine.state.load_config(None).unwrap();
    let ceiling = plans::ceiling(engine.state.host(), &config).unwrap();
    let plan = plans::check(text, "plan.toml", &ceiling);
    let plan = plan.unwrap_or_else(|faults| panic!("{faults}"));
    submit(&engine.state, &plan, &engine.lab.workspace(), None)
}

/// Waits until a run has ended and its driver has exited.
#[track_caller]
pub(crate) fn finish(engine: &TestEngine, run: RunId) -> RunView {
    let log = engine.lab.state().join("plans/driver.log");
    belljar_testkit::eventually_shows(
        "the run ends",
        || {
            let view = view::run(&engine.state, run).unwrap();
            let log = std::fs::read_to_string(&log).unwrap_or_default();
            if view.outcome.is_some() { String::new() } else { format!("{view:#?}\n{log}") }
        },
        str::is_empty,
    );
    eventually("the driver exits", || !DriverLock::is_held(engine.state.store()));
    view::run(&engine.state, run).unwrap()
}

/// Carries out a plan until its run has ended.
#[track_caller]
pub(crate) fn run(engine: &TestEngine, text: &str) -> RunView {
    finish(engine, try_submit(engine, text).unwrap())
}

#[track_caller]
pub(crate) fn task<'v>(view: &'v RunView, name: &str) -> &'v TaskView {
    let of: TaskRef = name.parse().unwrap();
    let found = view.tasks.iter().find(|task| task.of == of);
    found.unwrap_or_else(|| panic!("no task {name}: {view:#?}"))
}

/// Returns the reason of a failed task.
#[track_caller]
pub(crate) fn reason<'v>(view: &'v RunView, name: &str) -> &'v str {
    task(view, name).reason.as_deref().unwrap_or_else(|| panic!("{name} has not failed: {view:#?}"))
}

#[track_caller]
pub(crate) fn output(engine: &TestEngine, view: &RunView, task: &str) -> String {
    let bytes = view::output(&engine.state, view.run, &task.parse().unwrap());
    String::from_utf8(bytes.unwrap_or_else(|error| panic!("{error:?} {view:#?}"))).unwrap()
}

/// Returns the events of a kind in the chain of a run.
pub(crate) fn events(engine: &TestEngine, run: RunId, kind: &str) -> Vec<Value> {
    let id = run.to_string();
    let mut events = engine.events();
    events.retain(|event| event["run"] == id.as_str() && event["kind"] == kind);
    events
}

#[test]
fn code_task_gets_its_inputs_as_a_variable_and_returns_its_default_export() {
    let engine = TestEngine::new();
    engine.lab.write("sum.ts", "export default input.reduce((a: number, b: number) => a + b);");
    let text = r#"
        [run]
        answer = "both"
        input.word = { text = "five" }
        [task.list]
        do = { code = "export default [1, 2, 39];" }
        [task.sum]
        do = { code_file = "sum.ts" }
        data = ["list"]
        [task.both]
        do = { code = "export default { sum: input.sum + 1, word: input['input.word'], task: process.env.BELLJAR_TASK };" }
        data = ["sum", "input.word"]
        [task.each]
        do = { code = "export default input.n * 2;" }
        for_each = { values = [{ n = 1 }, { n = 21 }] }
    "#;
    let view = run(&engine, text);
    assert_eq!(view.outcome, Some(Outcome::Succeeded), "{view:#?}");
    assert_eq!(output(&engine, &view, "sum"), "42");
    assert_eq!(output(&engine, &view, "both"), r#"{"sum":43,"word":"five","task":"both"}"#);
    assert_eq!(output(&engine, &view, "each[1]"), "42");
}

#[test]
fn failed_code_task_has_a_named_reason_and_an_exception_is_retried() {
    let engine = TestEngine::new();
    let text = r#"
        [task.flaky]
        do = { code = "if (process.env.BELLJAR_ATTEMPT === '1') throw new RangeError('first'); export default 1;" }
        attempts = 2
        backoff = "1s"
        [task.throws]
        do = { code = "\n\nthrow new TypeError('no');" }
        [task.endless]
        do = { code = "while (true) {}" }
        box = { timeout = "1s" }
        [task.large]
        do = { code = "export default 'x'.repeat(3000);" }
        output = { type = "json", max = "2 KiB" }
        [task.after]
        do = { code = "export default 1;" }
        needs = ["throws"]
    "#;
    let view = run(&engine, text);
    assert_eq!(view.outcome, Some(Outcome::Failed), "{view:#?}");
    assert_eq!((output(&engine, &view, "flaky").as_str(), task(&view, "flaky").attempt), ("1", 2));
    assert_eq!(reason(&view, "throws"), "throw: TypeError: no (line 3)");
    assert!(reason(&view, "endless").starts_with("timeout: "), "{view:#?}");
    assert!(reason(&view, "large").starts_with("too_large: "), "{view:#?}");
    let started = events(&engine, view.run, "task.started");
    assert!(started.iter().all(|event| event["fields"]["task"] != "after"), "{started:?}");
}

#[test]
fn program_file_is_copied_once_and_a_missing_one_is_refused_before_anything_is_recorded() {
    let engine = TestEngine::new();
    let text = "[task.a]\ndo = { code_file = 'main.ts' }\nneeds = ['wait']\n[task.wait]\ndo = { stub = 1, delay = '1s' }";
    let error = try_submit(&engine, text).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Invalid);
    assert!(format!("{error:#}").contains("task `a`: cannot read"), "{error:#}");
    assert!(view::list(&engine.state).unwrap().is_empty());
    engine.lab.write("main.ts", "export default 'as submitted';");
    let started = try_submit(&engine, text).unwrap();
    engine.lab.write("main.ts", "export default 'changed later';");
    let view = finish(&engine, started);
    assert_eq!(output(&engine, &view, "a"), "\"as submitted\"");
}
