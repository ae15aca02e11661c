//! Tests of `code` tasks, which the worker runs.

use std::os::fd::AsFd as _;

use belljar_engine::runs::host::{
    self, TaskInputs, TaskOutcome, TaskResult, TaskRunSpec, TaskRunWorkspace, TaskWork,
};
use belljar_engine::supervisor::worker_program;
use belljar_wire::{Dialect, Job, Script};
use serde_json::{Value, json};

use super::{MAX_OUTPUT, events, output, spec, wait_for_line};
use crate::test_engine::TestEngine;

/// Returns the spec of a task that runs TypeScript.
fn code(engine: &TestEngine, overrides: Value, code: &str) -> TaskRunSpec {
    let job = Job::Script(Script {
        code: code.to_owned(),
        language: Dialect::Ts,
        file: "main.ts".to_owned(),
        input: Some("{\"a\":[1,2]}".to_owned()),
        modules: Vec::new(),
        apis: Vec::new(),
        tools: Vec::new(),
        memory: 256 << 20,
    });
    TaskRunSpec { work: TaskWork::Code(Box::new(job)), ..spec(engine, overrides, "true") }
}

fn start(engine: &TestEngine, spec: TaskRunSpec) -> host::Hosted {
    let worker = worker_program().unwrap();
    host::start(&engine.state, spec, Some(worker.as_fd())).unwrap()
}

#[track_caller]
fn run(engine: &TestEngine, spec: TaskRunSpec) -> TaskResult {
    let run = spec.run;
    start(engine, spec).wait();
    host::result(&engine.state, run).unwrap().expect("a result")
}

#[test]
fn code_task_stores_the_value_that_it_exports_as_json() {
    let engine = TestEngine::new();
    let script = "console.log('to the log'); const n: number = input.a[1]; export default { n };";
    let result = run(&engine, code(&engine, json!({}), script));
    assert_eq!(result.outcome, TaskOutcome::Exited { status: 0 });
    assert_eq!(output(&engine, &result), "{\"n\":2}");
    assert_eq!(host::tail(&engine.state, result.run, 5), ["to the log"]);
    let events = events(&engine, result.run);
    assert_eq!(events[0]["fields"]["purpose"], "task");
    assert_eq!(events.last().unwrap()["kind"], "run.ended");
    assert!(!engine.lab.run_dir().join("scratch").exists());
    let nothing = run(&engine, code(&engine, json!({}), "const x = 1;"));
    assert_eq!(output(&engine, &nothing), "null");
}

#[test]
fn failed_code_task_has_a_named_outcome() {
    let engine = TestEngine::new();
    let thrown = run(&engine, code(&engine, json!({}), "throw new TypeError('no')"));
    let TaskOutcome::Threw { error } = &thrown.outcome else { panic!("{thrown:?}") };
    assert!(error.starts_with("TypeError: no"), "{error}");
    let endless = run(&engine, code(&engine, json!({"timeout": "1s"}), "while (true) {}"));
    assert_eq!(endless.outcome, TaskOutcome::Timeout);
    let script = |size: u64| format!("export default 'x'.repeat({size});");
    let exact = run(&engine, code(&engine, json!({}), &script(MAX_OUTPUT - 2)));
    assert_eq!(exact.outcome, TaskOutcome::Exited { status: 0 }, "control: with quotes");
    let large = run(&engine, code(&engine, json!({}), &script(MAX_OUTPUT - 1)));
    assert_eq!(large.outcome, TaskOutcome::TooLarge);
    assert!(large.output.is_none() && !host::output(&engine.state, large.run).exists());
}

#[test]
fn code_task_reads_its_inputs_and_its_variables() {
    let engine = TestEngine::new();
    let script = "import { readFileSync } from 'node:fs';
        export default [readFileSync('/run/task/in/prompt', 'utf8'), process.env.BELLJAR_TASK];";
    let mut task = code(&engine, json!({}), script);
    let dir = engine.lab.dir().join("in");
    TaskInputs { prompt: Some("Do it.".to_owned()), ..TaskInputs::default() }.write(&dir).unwrap();
    task.inputs = Some(dir);
    let result = run(&engine, task);
    let log = host::tail(&engine.state, result.run, 50);
    assert_eq!(result.outcome, TaskOutcome::Exited { status: 0 }, "{log:?}");
    assert_eq!(output(&engine, &result), "[\"Do it.\",\"fix[0]\"]");
}

#[test]
fn killed_code_task_has_the_outcome_killed() {
    let engine = TestEngine::new();
    let task = code(&engine, json!({}), "console.log('waiting'); while (true) {}");
    let (run, hosted) = (task.run, start(&engine, task));
    wait_for_line(&engine, run, "waiting");
    assert!(host::kill(&engine.state, run).unwrap());
    hosted.wait();
    let result = host::result(&engine.state, run).unwrap().unwrap();
    assert_eq!(result.outcome, TaskOutcome::Killed);
}

#[test]
fn spec_that_no_host_can_carry_out_is_refused_before_anything_starts() {
    let engine = TestEngine::new();
    let task = code(&engine, json!({}), "1");
    let worker = worker_program().unwrap();
    let refused = [
        (None, task.clone(), "worker"),
        (
            Some(worker.as_fd()),
            TaskRunSpec {
                workspace: TaskRunWorkspace::ReadOnly(engine.lab.workspace()),
                ..task.clone()
            },
            "workspace",
        ),
        (None, TaskRunSpec { max_output: 1 << 30, ..spec(&engine, json!({}), "1") }, "at most"),
        (
            None,
            TaskRunSpec { stdin: Some("x".to_owned()), ..spec(&engine, json!({}), "1") },
            "input",
        ),
    ];
    for (worker, spec, expected) in refused {
        let error = host::start(&engine.state, spec, worker).unwrap_err();
        assert!(error.to_string().contains(expected), "{error}");
    }
    assert!(engine.runs().is_empty());
}
