//! `belljar plan GOAL` with the real binary and a scripted model on loopback.

use std::fs;
use std::os::unix::fs::symlink;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{self, Receiver, Sender};

use belljar_testkit::{Lab, Reply, Terminal, Upstream, eventually};
use rustix::process::Signal;
use serde_json::{Value, json};

use crate::lab;

/// A plan that a model may write in any directory.
pub(crate) const PLAN: &str = r#"[run]
name = "count-files"
template = "default"
budget = { time = "10m" }

[task.count]
do = { command = ["sh", "-c", "ls | wc -l"], workspace = "." }
labels = ["untrusted"]
"#;

const GOAL: &str = "Count the files of this directory";

/// Returns the stream of a complete answer in the chat protocol of OpenAI.
fn chat_answer(text: &str) -> Reply {
    let usage = json!({"prompt_tokens": 5000, "completion_tokens": 200});
    let chunks = [
        json!({"model": "scripted", "choices": [{"index": 0, "delta": {"content": text}, "finish_reason": null}]}),
        json!({"model": "scripted", "choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]}),
        json!({"model": "scripted", "choices": [], "usage": usage}),
    ];
    let text: String = chunks.iter().map(|chunk| format!("data: {chunk}\n\n")).collect();
    Reply::new(200, text + "data: [DONE]\n\n").header("content-type", "text/event-stream")
}

/// Starts a model that sends one answer per request, and the last one again and again.
pub(crate) fn chat_model(answers: &[&str]) -> Upstream {
    let answers: Vec<Reply> = answers.iter().map(|answer| chat_answer(answer)).collect();
    let next = AtomicUsize::new(0);
    Upstream::plain(move |_| {
        let at = next.fetch_add(1, Ordering::SeqCst).min(answers.len() - 1);
        answers[at].clone()
    })
}

/// Starts a model that answers with [`PLAN`] when the returned sender sends or is dropped.
fn slow_model() -> (Upstream, Sender<()>) {
    let (sender, receiver): (Sender<()>, Receiver<()>) = mpsc::channel();
    let receiver = Mutex::new(receiver);
    let upstream = Upstream::plain(move |_| {
        receiver.lock().unwrap().recv().ok(); // an error: the sender was dropped
        chat_answer(PLAN)
    });
    (upstream, sender)
}

fn configure(lab: &Lab, model: &Upstream) {
    lab.configure(&format!(
        "[tier.capable]\nprovider = \"openai-chat\"\nmodel = \"scripted\"\nurl = \"http://{}/v1\"\n",
        model.address()
    ));
}

/// Returns the names of all runs of plans, oldest first.
fn runs(lab: &Lab) -> Vec<String> {
    let created = lab.belljar(["ledger", "log", "--json", "--kind", "run.created"]).succeed();
    let events = created.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    let plans = events.filter(|event| event["fields"]["purpose"] == "plan");
    plans.map(|event| event["fields"]["name"].as_str().unwrap().to_owned()).collect()
}

#[test]
fn plan_of_a_model_goes_to_standard_output_and_its_summary_to_standard_error() {
    let (lab, model) = (lab(), chat_model(&["[task.a]\n", PLAN]));
    configure(&lab, &model);
    let ended = lab.belljar(["plan", GOAL]).run();
    assert_eq!((ended.code(), ended.stdout.as_slice()), (0, PLAN.as_bytes()), "{}", ended.err());
    let errors = ended.err();
    let parts = [
        "belljar: tier capable writes plan 1 of at most 3, run ",
        "belljar: plan 1 of 3 has 1 fault; asking again\n",
        "belljar: tier capable writes plan 2 of at most 3, run ",
        "count-files: 1 task, 10m\n  count                       command sh\n",
        "  reads    . (workspace of task `count`)\n",
        "  written  by tier capable in 2 attempts, 10400 tokens",
    ];
    let mut rest = errors.as_str();
    for part in parts {
        let Some((_, after)) = rest.split_once(part) else { panic!("{part:?}\n{errors}") };
        rest = after;
    }
    // The text can be piped to `submit`, and nothing was submitted before.
    assert_eq!(runs(&lab), ["write-plan", "write-plan"]);
    lab.belljar(["submit", "-", "--watch"]).input(ended.stdout).succeed();
    let output = lab.belljar(["runs", "output", "count-files/count"]).succeed();
    assert_eq!(output.trim(), "0");
}

#[test]
fn output_writes_a_new_file_and_replaces_an_existing_one_only_with_force() {
    let (lab, model) = (lab(), chat_model(&[PLAN]));
    configure(&lab, &model);
    let file = lab.workspace().join("count.toml");
    let ended = lab.belljar(["plan", GOAL, "--output", "count.toml"]).run();
    assert_eq!((ended.code(), ended.out().as_str()), (0, ""), "{}", ended.err());
    let note = "belljar: wrote count.toml; read it, and start it with `belljar submit count.toml`";
    assert!(ended.err().ends_with(note), "{}", ended.err());
    assert_eq!(fs::read_to_string(&file).unwrap(), PLAN);
    fs::write(&file, "mine\n").unwrap();
    let again = lab.belljar(["plan", GOAL, "--output", "count.toml"]).run();
    again.fails_with(2, "count.toml exists and is not changed");
    assert_eq!(fs::read_to_string(&file).unwrap(), "mine\n");
    assert_eq!(model.received().len(), 1, "the file is checked before the model is asked");
    let forced = lab.belljar(["plan", GOAL, "--output", "./count.toml", "--force", "--json"]);
    let line: Value = serde_json::from_str(&forced.succeed()).unwrap();
    assert_eq!(fs::read_to_string(&file).unwrap(), PLAN);
    assert_eq!((&line["plan"], &line["file"]), (&json!(PLAN), &json!("count.toml")));
    assert_eq!((&line["valid"], &line["tokens"]), (&json!(true), &json!(5200)));
    let paths = json!([{"path": ".", "purpose": "workspace", "of": "task `count`"}]);
    assert_eq!(line["paths"], paths);
    // A link is never written through, and the file must be in the directory that paths refer to.
    symlink("/etc/passwd", lab.workspace().join("link.toml")).unwrap();
    fs::create_dir(lab.workspace().join("plans")).unwrap();
    for (name, message) in [
        ("link.toml", "not a regular file"),
        ("plans/count.toml", "the file must be in the current directory"),
        ("../count.toml", "the file must be in the current directory"),
        ("count.json", "the plan is TOML"),
    ] {
        lab.belljar(["plan", GOAL, "--force", "--output", name]).run().fails_with(2, message);
    }
}

#[test]
fn last_plan_with_faults_ends_the_command_and_stays_readable() {
    let (lab, model) = (lab(), chat_model(&["I cannot write TOML."]));
    configure(&lab, &model);
    let ended = lab.belljar(["plan", GOAL, "--attempts", "2", "--output", "p.toml"]).run();
    assert_eq!(ended.code(), 1, "{}", ended.err());
    let errors = ended.err();
    assert!(errors.contains("belljar: plan.toml:1: "), "{errors}");
    let (_, command) = errors.split_once("the model wrote 2 plans with faults; `belljar ").unwrap();
    let (command, _) = command.split_once('`').unwrap();
    assert_eq!(lab.belljar(command.split(' ')).succeed(), "I cannot write TOML.");
    assert!(!lab.workspace().join("p.toml").exists());
    assert_eq!(model.received().len(), 2);
    let ended = lab.belljar(["plan", GOAL, "--attempts", "1", "--json"]).run();
    let line: Value = serde_json::from_str(&ended.out()).unwrap();
    assert_eq!((ended.code(), &line["valid"]), (1, &json!(false)), "{line}");
    assert_eq!(line["faults"][0]["file"], "plan.toml");
}

#[test]
fn interrupt_cancels_the_run_of_the_question() {
    let (lab, (model, release)) = (lab(), slow_model());
    configure(&lab, &model);
    let live = lab.belljar(["plan", GOAL]).start();
    eventually("the model is asked", || !model.received().is_empty());
    live.signal(Signal::INT);
    let ended = live.wait();
    assert_eq!(ended.code(), 1, "{}", ended.err());
    assert!(ended.err().ends_with(" was cancelled"), "{}", ended.err());
    let log = lab.belljar(["ledger", "log", "--json", "--kind", "plan.ended"]).succeed();
    let event: Value = serde_json::from_str(log.trim()).unwrap();
    assert_eq!(event["fields"]["outcome"], "cancelled");
    drop(release);
}

#[test]
fn g01_g03_plan_is_submitted_only_after_a_person_saw_and_confirmed_it() {
    let (lab, (model, release)) = (lab(), slow_model());
    configure(&lab, &model);
    let error = lab.belljar(["plan", GOAL, "--submit"]).run();
    error.fails_with(2, "--submit asks you on a terminal, because a model wrote the plan");
    assert!(model.received().is_empty());
    // A key that was typed before the plan was shown does not count.
    let mut terminal = Terminal::start(lab.belljar(["plan", GOAL, "--submit"]), 50, 120);
    terminal.wait_for("tier capable writes plan 1 of at most 3");
    terminal.type_keys("y\r");
    release.send(()).unwrap();
    let before = terminal.wait_for("submit this plan? [y/N] ");
    for part in ["do = { command = [\"sh\", \"-c\", \"ls | wc -l\"]", "  reads    . (workspace"] {
        assert!(before.contains(part), "{part:?} {before}");
    }
    terminal.type_keys("\r");
    let (status, _) = terminal.end();
    assert_eq!(status.code(), Some(2), "{}", terminal.text());
    assert!(terminal.text().contains("was not submitted, because it was not confirmed"));
    assert_eq!(runs(&lab), ["write-plan"]);
    // Control: the same key after the question submits exactly the plan that was shown.
    drop(release);
    let mut terminal = Terminal::start(lab.belljar(["plan", GOAL, "--submit"]), 50, 120);
    terminal.wait_for("submit this plan? [y/N] ");
    terminal.type_keys("y\r");
    let (status, _) = terminal.end();
    assert_eq!(status.code(), Some(0), "{}", terminal.text());
    assert_eq!(runs(&lab), ["write-plan", "write-plan", "count-files"]);
    lab.belljar(["watch", "count-files"]).succeed();
}
