//! Tests of checks with the real driver: an output flows on only after its checks passed.

use std::fs;
use std::process::Command;

use belljar_engine::error::ErrorKind;
use belljar_engine::runs::machine::{Outcome, Status};
use belljar_engine::runs::submit::submit;
use belljar_engine::runs::view::RunView;
use belljar_engine::runs::{control, driver, host};
use belljar_model::RunId;
use belljar_model::plan::CheckedPlan;
use belljar_testkit::eventually;
use serde_json::{Value, json};

use crate::plan_runs::{
    checked, events, finish, kill_driver, kill_holder, output, run, start, starts, task,
    try_submit, view,
};
use crate::test_engine::TestEngine;

/// A check whose program waits until a file with this name is in its inputs.
const WAIT: &str =
    "echo waiting >&2; until [ -e /run/task/in/go ]; do sleep 0.02; done; grep -q good";

fn reason<'v>(view: &'v RunView, name: &str) -> &'v str {
    task(view, name).reason.as_deref().unwrap_or_default()
}

/// Returns the box of the check of an attempt, once its program waits.
#[track_caller]
fn waiting_check(engine: &TestEngine, run: RunId, name: &str, attempt: u32) -> RunId {
    let file = engine.lab.state().join(format!("plans/{run}/work/check-{name}-{attempt}.json"));
    let mut box_run = None;
    eventually("the program of the check waits", || {
        let text = fs::read(&file).unwrap_or_default();
        let progress: Value = serde_json::from_slice(&text).unwrap_or_default();
        box_run = progress["box_run"].as_str().and_then(|id| id.parse::<RunId>().ok());
        box_run.is_some_and(|id| host::tail(&engine.state, id, 9).contains(&"waiting".to_owned()))
    });
    box_run.unwrap()
}

/// Lets the program of a check continue.
fn release(engine: &TestEngine, run: RunId, box_run: RunId) {
    fs::write(engine.lab.state().join(format!("plans/{run}/work/{box_run}/go")), "").unwrap();
}

// ---- Schemas

#[test]
fn output_that_does_not_match_its_schema_fails_and_one_that_matches_flows_on() {
    let engine = TestEngine::new();
    let schema = json!({"type": "object", "required": ["severity"],
        "properties": {"severity": {"enum": ["high", "low"]}}});
    engine.lab.write("triage.json", schema.to_string());
    let text = r#"
        [task.bad]
        do = { command = ["echo", '{"severity": "huge"}'] }
        output = { type = "json", schema = "triage.json" }
        [task.checked]
        do = { command = ["echo", '{}'] }
        output = "json"
        check = [{ schema = "triage.json" }]
        [task.good]
        do = { command = ["echo", '{"severity": "high"}'] }
        output = { type = "json", schema = "triage.json" }
        check = [{ schema = "triage.json" }]
        [task.after]
        do = { command = ["cat"] }
        data = ["good"]
        [task.never]
        do = { stub = 1 }
        needs = ["checked"]
    "#;
    let view = run(&engine, text);
    assert_eq!(view.outcome, Some(Outcome::Failed), "{view:#?}");
    assert!(reason(&view, "bad").starts_with("invalid: "), "{view:#?}");
    assert!(reason(&view, "bad").contains("`/severity` is not one of"), "{view:#?}");
    let rejected = "rejected by check 0: the output does not match its schema: the value has no property `severity`";
    assert_eq!(reason(&view, "checked"), rejected);
    assert_eq!(task(&view, "checked").status, Status::Failed);
    assert_eq!(task(&view, "never").status, Status::Stopped);
    assert_eq!(output(&engine, &view, "after"), "{\"severity\": \"high\"}\n");
}

#[test]
fn schema_that_cannot_be_used_is_refused_before_anything_is_recorded() {
    let engine = TestEngine::new();
    engine.lab.write("regex.json", r#"{"pattern": "^a"}"#);
    engine.lab.write("broken.json", "{");
    let plan = |schema: &str| {
        format!("[task.a]\ndo = {{ stub = 1 }}\ncheck = [{{ schema = '{schema}' }}]")
    };
    for (schema, part) in [
        ("regex.json", "the keyword `pattern` of schemas is not supported"),
        ("broken.json", "not JSON"),
        ("missing.json", "cannot be read"),
    ] {
        let error = try_submit(&engine, &plan(schema), None).unwrap_err();
        let text = format!("{error:#}");
        assert!(error.kind() == ErrorKind::Invalid && text.contains(part), "{text}");
        assert!(text.contains(schema) && text.contains("task `a`"), "{text}");
    }
    assert!(!engine.lab.state().join("ledger").exists() || engine.events().len() <= 1);
}

// ---- Commands

#[test]
fn command_check_reads_the_output_and_its_rejection_stops_only_the_dependents() {
    let engine = TestEngine::new();
    let text = r#"
        [task.good]
        do = { command = ["echo", "all good"] }
        check = [{ command = ["grep", "-q", "good"] }, { command = ["grep", "-q", "all", "/run/task/in/output"] }]
        [task.bad]
        do = { command = ["echo", "all bad"] }
        check = [{ command = ["true"] }, { command = ["bash", "-c", "echo 'not good enough' >&2; grep -q good"] }]
        [task.after-good]
        do = { command = ["cat"] }
        data = ["good"]
        [task.after-bad]
        do = { command = ["cat"] }
        data = ["bad"]
    "#;
    let view = run(&engine, text);
    assert_eq!(view.outcome, Some(Outcome::Failed), "{view:#?}");
    assert_eq!(output(&engine, &view, "after-good"), "all good\n");
    assert_eq!(task(&view, "bad").status, Status::Failed);
    assert_eq!(reason(&view, "bad"), "rejected by check 1: exit status 1: not good enough");
    assert_eq!(task(&view, "after-bad").status, Status::Stopped);
    assert_eq!(starts(&engine, view.run, "after-bad"), 0);
    let judged = events(&engine, view.run, "task.judged");
    let verdict = |name: &str| {
        let event = judged.iter().find(|event| event["fields"]["task"] == name).unwrap();
        event["fields"]["verdict"].as_str().unwrap().to_owned()
    };
    assert_eq!((verdict("good").as_str(), verdict("bad").as_str()), ("passed", "rejected"));
}

#[test]
fn rejected_attempt_is_repeated_with_the_reason_and_then_fails() {
    let engine = TestEngine::new();
    let text = r#"
        [task.learns]
        do = { command = ["bash", "-c", "cat /run/task/in/reason.txt 2>/dev/null || echo first"] }
        attempts = 2
        backoff = "1s"
        check = [{ command = ["bash", "-c", "grep hint || { echo 'use the hint' >&2; exit 1; }"] }]
        [task.stubborn]
        do = { command = ["echo", "same"] }
        attempts = 2
        backoff = "1s"
        check = [{ command = ["false"] }]
    "#;
    let view = run(&engine, text);
    assert_eq!(task(&view, "learns").status, Status::Done, "{view:#?}");
    assert_eq!(task(&view, "learns").attempt, 2);
    let expected = "rejected by check 0: exit status 1: use the hint";
    assert_eq!(output(&engine, &view, "learns"), expected);
    assert_eq!(task(&view, "stubborn").status, Status::Failed);
    assert_eq!(starts(&engine, view.run, "stubborn"), 2);
}

#[test]
fn check_that_crashes_hangs_or_does_not_exist_rejects_with_a_named_reason() {
    let engine = TestEngine::new();
    let text = r#"
        [task.crash]
        do = { command = ["echo", "x"] }
        check = [{ command = ["bash", "-c", "kill -SEGV $$"] }]
        [task.hang]
        do = { command = ["echo", "x"] }
        check = [{ command = ["sleep", "1000"] }]
        box = { timeout = "1s" }
        [task.memory]
        do = { command = ["echo", "x"] }
        check = [{ command = ["bash", "-c", "x=$(head -c 200000000 /dev/zero | tr '\\0' x); echo ${#x}"] }]
        box = { memory = "64MiB" }
        [task.missing]
        do = { command = ["echo", "x"] }
        check = [{ command = ["/no/such/program"] }]
    "#;
    let view = run(&engine, text);
    assert_eq!(view.outcome, Some(Outcome::Failed), "{view:#?}");
    assert!(reason(&view, "crash").contains("killed by signal 11"), "{view:#?}");
    assert!(reason(&view, "hang").contains("the time limit was exceeded"), "{view:#?}");
    for name in ["memory", "missing"] {
        assert!(reason(&view, name).starts_with("rejected by check 0: "), "{view:#?}");
    }
}

#[test]
fn checks_that_cannot_be_carried_out_are_refused_at_submission() {
    let engine = TestEngine::new();
    for (text, part) in [
        ("do = { stub = 1 }\ncheck = [{ command = ['true'] }]", "without a box"),
        ("do = { stub = 1 }\ncheck = [{ verify = ['true'] }]", "without a box"),
        ("do = { approval = 'Go?' }\noutput = 'json'\ncheck = [{ schema = 'x' }]", "an approval"),
    ] {
        let error = try_submit(&engine, &format!("[task.a]\n{text}"), None).unwrap_err();
        assert!(format!("{error:#}").contains(part), "{error:#}");
    }
}

#[test]
fn h16_check_has_no_network_and_no_writable_mount_and_pays_from_the_budget() {
    let engine = TestEngine::new();
    let shared = engine.lab.workspace().join("shared");
    fs::create_dir(&shared).unwrap();
    fs::set_permissions(&shared, std::os::unix::fs::PermissionsExt::from_mode(0o777)).unwrap();
    let config = format!(
        "[template.open]\nnet = 'restricted'\nallow = ['GET example.com']\nmounts = ['{}:/shared:rw']\n",
        shared.display()
    );
    let file = engine.lab.home().join(".config/belljar/belljar.toml");
    fs::create_dir_all(file.parent().unwrap()).unwrap();
    fs::write(&file, config).unwrap();
    let probe = "touch /shared/FILE; true";
    let text = format!(
        r#"
        [run]
        template = "open"
        budget = {{ time = "1h" }}
        [task.a]
        do = {{ command = ["bash", "-c", "{}"] }}
        check = [{{ command = ["bash", "-c", "sleep 1.1; {}; exit 1"] }}]
    "#,
        probe.replace("FILE", "task"),
        probe.replace("FILE", "check")
    );
    let view = run(&engine, &text);
    assert_eq!(task(&view, "a").status, Status::Failed, "{view:#?}");
    assert!(shared.join("task").exists(), "control: the task itself can write");
    assert!(!shared.join("check").exists());
    assert!(reason(&view, "a").contains("Read-only file system"), "{view:#?}");
    let judged = &events(&engine, view.run, "task.judged")[0]["fields"];
    let seconds = judged["usage"][0].as_str().unwrap().strip_prefix("seconds=").unwrap();
    assert!(seconds.parse::<u64>().unwrap() >= 2, "{judged}");
    let nets: Vec<String> = engine
        .events()
        .iter()
        .filter(|event| event["kind"] == "run.created" && event["fields"]["purpose"] == "task")
        .map(|event| event["fields"]["net"].as_str().unwrap().to_owned())
        .collect();
    assert_eq!(nets, ["restricted", "none"]);
}

#[test]
fn h16_check_without_time_left_in_the_budget_is_not_started() {
    let engine = TestEngine::new();
    let text = r#"
        [task.a]
        do = { command = ["bash", "-c", "sleep 1.2; echo x"] }
        check = [{ command = ["true"] }]
        budget = { time = "2s" }
        [task.control]
        do = { command = ["echo", "x"] }
        check = [{ command = ["true"] }]
        budget = { time = "1h" }
    "#;
    let view = run(&engine, text);
    assert_eq!(task(&view, "a").status, Status::Failed, "{view:#?}");
    // On a slow machine, the task itself can exceed its time.
    let text = reason(&view, "a");
    assert!(text.contains("no time is left") || text.starts_with("timeout"), "{view:#?}");
    assert_eq!(task(&view, "control").status, Status::Done, "{view:#?}");
    let boxes = engine.events();
    let boxes = boxes.iter().filter(|event| event["fields"]["purpose"] == "task").count();
    assert_eq!(boxes, 3, "two tasks and the check of the control");
}

// ---- Verifiers

#[test]
fn verifier_confirms_refutes_or_is_undecided_and_only_a_confirmed_output_flows_on() {
    let engine = TestEngine::new();
    let text = r#"
        [task.confirmed]
        do = { command = ["echo", "good"] }
        check = [{ verify = ["grep", "-q", "good"] }]
        [task.refuted]
        do = { command = ["echo", "bad"] }
        check = [{ verify = ["bash", "-c", "echo 'not good' >&2; grep -q good"] }]
        [task.odd]
        do = { command = ["echo", "good"] }
        check = [{ verify = ["bash", "-c", "echo 'no solver' >&2; exit 2"] }]
        [task.killed]
        do = { command = ["echo", "good"] }
        check = [{ verify = ["bash", "-c", "kill -TERM $$"] }]
        [task.slow]
        do = { command = ["echo", "good"] }
        check = [{ verify = ["sleep", "1000"] }]
        box = { timeout = "1s" }
        [task.missing]
        do = { command = ["echo", "good"] }
        check = [{ verify = ["/no/such/program"] }]
        [task.after]
        do = { command = ["cat"] }
        data = ["confirmed"]
        [task.never]
        do = { stub = 1 }
        needs = ["odd"]
    "#;
    let view = run(&engine, text);
    assert_eq!(view.outcome, Some(Outcome::Failed), "{view:#?}");
    for (name, outcome) in [
        ("confirmed", "confirmed"),
        ("refuted", "refuted"),
        ("odd", "undecided"),
        ("killed", "undecided"),
        ("slow", "undecided"),
        ("missing", "undecided"),
    ] {
        let [result] = &task(&view, name).checks[..] else { panic!("{name}: {view:#?}") };
        assert_eq!((result.kind.name(), result.outcome.name()), ("verify", outcome), "{name}");
        let expected = if outcome == "confirmed" { Status::Done } else { Status::Failed };
        assert_eq!(task(&view, name).status, expected, "{name}: {view:#?}");
    }
    assert_eq!(output(&engine, &view, "after"), "good\n");
    assert_eq!(task(&view, "never").status, Status::Stopped);
    let refuted = "rejected by check 0: refuted: exit status 1: not good";
    assert_eq!(reason(&view, "refuted"), refuted);
    let undecided = "rejected by check 0: undecided: exit status 2: no solver";
    assert_eq!(reason(&view, "odd"), undecided);
    let judged = events(&engine, view.run, "task.judged");
    let odd = judged.iter().find(|event| event["fields"]["task"] == "odd").unwrap();
    assert_eq!(odd["fields"]["checks"], json!(["0 verify undecided"]));
}

// ---- Crashes

#[test]
fn h11_check_of_a_killed_driver_is_adopted() {
    let engine = TestEngine::new();
    let text = format!(
        r#"
        [task.a]
        do = {{ command = ["echo", "good"] }}
        check = [{{ command = ["bash", "-c", "{WAIT}"] }}]
        [task.b]
        do = {{ command = ["cat"] }}
        data = ["a"]
    "#
    );
    let run = start(&engine, &text);
    let box_run = waiting_check(&engine, run, "a", 1);
    assert_eq!(task(&view(&engine, run), "a").status, Status::Judging);
    kill_driver(&engine);
    assert!(host::is_running(&engine.state, box_run), "the host of the check goes on");
    driver::wake(&engine.state).unwrap();
    eventually("another driver opens the run", || events(&engine, run, "driver.opened").len() == 2);
    release(&engine, run, box_run);
    let view = finish(&engine, run);
    assert_eq!(view.outcome, Some(Outcome::Succeeded), "{view:#?}");
    assert_eq!(output(&engine, &view, "b"), "good\n");
    assert_eq!(events(&engine, run, "task.judged").len(), 1);
    assert_eq!(starts(&engine, run, "a"), 1, "the task is not repeated");
}

#[test]
fn h11_result_of_a_check_that_ended_without_a_driver_is_taken() {
    let engine = TestEngine::new();
    let text = format!(
        r#"
        [task.a]
        do = {{ command = ["echo", "bad"] }}
        check = [{{ command = ["bash", "-c", "{WAIT}"] }}]
    "#
    );
    let run = start(&engine, &text);
    let box_run = waiting_check(&engine, run, "a", 1);
    kill_driver(&engine);
    release(&engine, run, box_run);
    eventually("the check ends", || !host::is_running(&engine.state, box_run));
    driver::wake(&engine.state).unwrap();
    let view = finish(&engine, run);
    assert!(reason(&view, "a").starts_with("rejected by check 0: exit status 1"), "{view:#?}");
    let boxes = engine.events();
    let boxes = boxes.iter().filter(|event| event["fields"]["purpose"] == "task").count();
    assert_eq!(boxes, 2, "the check ran once");
}

#[test]
fn h11_check_whose_host_was_killed_runs_again() {
    let engine = TestEngine::new();
    let text = format!(
        r#"
        [task.a]
        do = {{ command = ["echo", "good"] }}
        check = [{{ command = ["bash", "-c", "{WAIT}"] }}]
    "#
    );
    let run = start(&engine, &text);
    let first = waiting_check(&engine, run, "a", 1);
    kill_holder(&engine, &format!("runs/{first}/lock"));
    let mut second = first;
    eventually("another check starts", || {
        second = waiting_check(&engine, run, "a", 1);
        second != first
    });
    release(&engine, run, second);
    let view = finish(&engine, run);
    assert_eq!(view.outcome, Some(Outcome::Succeeded), "{view:#?}");
    assert_eq!(starts(&engine, run, "a"), 1, "the task is not repeated");
}

#[test]
fn cancelled_run_kills_its_checks() {
    let engine = TestEngine::new();
    let text = format!(
        r#"
        [task.a]
        do = {{ command = ["echo", "good"] }}
        check = [{{ command = ["bash", "-c", "{WAIT}"] }}]
    "#
    );
    let run = start(&engine, &text);
    let box_run = waiting_check(&engine, run, "a", 1);
    control::cancel(&engine.state, run, None).unwrap();
    let view = finish(&engine, run);
    assert_eq!(view.outcome, Some(Outcome::Cancelled), "{view:#?}");
    assert!(!host::is_running(&engine.state, box_run));
    assert!(events(&engine, run, "task.judged").is_empty());
}

#[test]
fn changed_output_is_rejected_and_not_checked() {
    let engine = TestEngine::new();
    let text = format!(
        r#"
        [task.a]
        do = {{ command = ["echo", "good"] }}
        check = [{{ command = ["bash", "-c", "{WAIT}"] }}, {{ command = ["true"] }}]
    "#
    );
    let run = start(&engine, &text);
    let box_run = waiting_check(&engine, run, "a", 1);
    fs::write(engine.lab.state().join(format!("plans/{run}/out/a")), "forged").unwrap();
    release(&engine, run, box_run);
    let view = finish(&engine, run);
    assert_eq!(task(&view, "a").status, Status::Failed, "{view:#?}");
}

// ---- Branches

#[test]
fn check_of_a_branch_runs_on_the_files_of_its_commit_and_leaves_the_repository_alone() {
    let engine = TestEngine::new();
    let git = |args: &[&str]| {
        let mut git = Command::new("git");
        git.current_dir(engine.lab.workspace());
        git.args(["-c", "user.name=t", "-c", "user.email=t@example.com"]).args(args);
        let output = git.output().unwrap();
        assert!(output.status.success(), "{args:?}: {output:?}");
        String::from_utf8(output.stdout).unwrap().trim().to_owned()
    };
    git(&["init", "-q", "-b", "main"]);
    let commits = ["a.txt", "b.txt"].map(|name| {
        engine.lab.write(name, name);
        git(&["add", "-A"]);
        git(&["commit", "-q", "-m", name]);
        git(&["rev-parse", "HEAD"])
    });
    git(&["reset", "-q", "--hard", &commits[0]]);
    let script = "cat b.txt && echo changed > b.txt && test ! -e .git && cat b.txt";
    let text = format!(
        r#"
        [task.fix]
        do = {{ agent = "claude", prompt = "Fix it.", repo = "." }}
        check = [{{ command = ["bash", "-c", "{script}"] }}, {{ command = ["grep", "-q", "^b.txt", "b.txt"] }}]
    "#
    );
    // A stub cannot have a box, so a command takes the place of the agent.
    let plan = checked(&engine, &text);
    let mut stored: Value = serde_json::from_str(&plan.canonical()).unwrap();
    let output = json!({"commit": commits[1], "base": commits[0]}).to_string();
    stored["tasks"][0]["executor"] =
        json!({"command": {"argv": ["echo", output], "workspace": null}});
    let plan = CheckedPlan::stored(&stored.to_string()).unwrap();
    let run = submit(&engine.state, &plan, &engine.lab.workspace(), None).unwrap();
    let view = finish(&engine, run);
    assert_eq!(view.outcome, Some(Outcome::Succeeded), "{view:#?}");
    assert_eq!(git(&["status", "--porcelain"]), "");
    let work = engine.lab.state().join(format!("plans/{run}/work"));
    assert_eq!(fs::read_dir(work).unwrap().count(), 0, "nothing is left");
    let boxes = fs::read_dir(engine.lab.state().join("runs")).unwrap().flatten();
    let boxes: Vec<_> = boxes.map(|entry| entry.path()).collect();
    assert_eq!(boxes.len(), 3, "the task and two checks: {boxes:?}");
    for dir in boxes {
        for layer in ["upper", "work", "base"] {
            assert!(!dir.join(layer).exists(), "{layer} of {dir:?} is left");
        }
        let record = fs::read_to_string(dir.join("run.json")).unwrap();
        assert!(!record.contains("\"pending\""), "nothing waits for review: {record}");
    }
}
