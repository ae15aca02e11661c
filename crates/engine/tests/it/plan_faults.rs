//! Faults of other task runners that must not occur here, with real plans and boxes.

use belljar_engine::runs::machine::{Outcome, Status};
use belljar_engine::runs::view::{self, RunView};
use belljar_engine::runs::{evidence, plans};
use belljar_model::RunId;
use serde_json::Value;

use crate::plan_runs::run;
use crate::test_engine::TestEngine;

fn output(engine: &TestEngine, view: &RunView, task: &str) -> String {
    let bytes = view::output(&engine.state, view.run, &task.parse().unwrap());
    String::from_utf8(bytes.unwrap_or_else(|error| panic!("{error:?} {view:#?}"))).unwrap()
}

fn status(view: &RunView, task: &str) -> Status {
    view.tasks.iter().find(|of| of.of == task.parse().unwrap()).unwrap().status
}

#[test]
fn task_of_a_plan_reads_its_manifest_or_its_only_input_and_not_the_input_of_the_driver() {
    let engine = TestEngine::new();
    let text = r#"
        [task.none]
        do = { command = ["cat"] }
        [task.word]
        do = { stub = "12345" }
        [task.one]
        do = { command = ["cat"] }
        data = ["word"]
    "#;
    let view = run(&engine, text);
    let manifest: Value = serde_json::from_str(&output(&engine, &view, "none")).unwrap();
    assert!(manifest.is_object(), "{manifest}");
    assert_eq!(output(&engine, &view, "one"), "12345", "control");
}

#[test]
fn input_above_the_limit_of_arguments_reaches_a_task_by_file_and_standard_input() {
    let engine = TestEngine::new();
    // Linux limits one argument to 128 KiB.
    engine.lab.write("large", "x".repeat(300_000));
    let text = r#"
        [run]
        input.large = { file = "large" }
        [task.count]
        do = { command = ["bash", "-c", "wc -c; wc -c < /run/task/in/input.large"] }
        data = ["input.large"]
    "#;
    let view = run(&engine, text);
    let counts = output(&engine, &view, "count");
    let counts: Vec<&str> = counts.split_whitespace().collect();
    assert_eq!(counts, ["300000", "300000"]);
}

#[test]
fn h16_task_does_not_start_after_another_task_used_the_time_of_the_run() {
    let engine = TestEngine::new();
    let plan = |time: &str, command: &str| {
        format!(
            "[run]\nbudget = {{ time = \"{time}\", boxes = 1 }}\n[task.a]\ndo = {{ command = [{command}] }}\n[task.b]\ndo = {{ command = [\"true\"] }}\nneeds = [\"a?\", \"c?\"]\n[task.c]\ndo = {{ stub = 1 }}\n"
        )
    };
    let view = run(&engine, &plan("1s", "\"sleep\", \"1000\""));
    assert_eq!(view.outcome, Some(Outcome::OverBudget), "{view:#?}");
    let boxes = view.tasks.iter().filter(|task| task.box_run.is_some()).count();
    assert_eq!(boxes, 1, "b was not started: {view:#?}");
    let view = run(&engine, &plan("1h", "\"true\""));
    assert_eq!(view.outcome, Some(Outcome::Succeeded), "control: {view:#?}");
    assert_eq!(status(&view, "b"), Status::Done);
}

#[test]
fn h14_task_of_a_plan_gets_no_more_network_than_the_operator_allows() {
    let engine = TestEngine::new();
    engine.lab.configure("[template.default]\nnet = \"none\"\n");
    let (config, _) = engine.state.load_config(None).unwrap();
    let ceiling = plans::ceiling(engine.state.host(), &config).unwrap();
    let plan = |net: &str| {
        format!("[task.a]\ndo = {{ command = [\"true\"] }}\nbox = {{ net = \"{net}\" }}\n")
    };
    let faults = plans::check(&plan("full"), "plan.toml", &ceiling).unwrap_err().to_string();
    assert!(faults.starts_with("plan.toml:3: "), "{faults}");
    assert!(view::list(&engine.state).unwrap().is_empty(), "nothing is recorded");
    let view = run(&engine, &plan("none"));
    assert_eq!(view.outcome, Some(Outcome::Succeeded), "control: {view:#?}");
    let box_run: RunId = view.tasks[0].box_run.unwrap();
    let effects = evidence::of_run(&engine.state, box_run, &[]).unwrap();
    assert_eq!(effects, evidence::Evidence::NoEffect);
}
