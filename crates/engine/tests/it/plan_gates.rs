//! Tests of gates with the real driver: people answer, drivers are killed, and nothing counts twice.

use std::fs;
use std::path::PathBuf;
use std::process::Command;

use belljar_engine::approvals::gates::GateQuestion;
use belljar_engine::approvals::{
    Approval, ApprovalId, ApprovalKind, ApprovalQuery, ApprovalState, Verdict,
};
use belljar_engine::error::{EngineError, ErrorKind};
use belljar_engine::runs::gates::approvals;
use belljar_engine::runs::machine::{Outcome, Status};
use belljar_engine::runs::submit::submit;
use belljar_engine::runs::{control, driver};
use belljar_engine::scope::Scoped;
use belljar_ledger::Digest;
use belljar_model::RunId;
use belljar_model::caller::{Caller, Principal};
use belljar_model::plan::CheckedPlan;
use belljar_testkit::eventually;
use serde_json::{Value, json};

use crate::plan_runs::{checked, events, finish, kill_driver, output, start, starts, task, view};
use crate::test_engine::{TestEngine, open_engine_with_old_clock};

/// A plan with one gate between two tasks.
const ONE: &str = r#"
    [task.notes]
    do = { stub = "all fine" }
    [task.gate]
    do = { approval = "Publish?" }
    data = ["notes"]
    [task.publish]
    do = { command = ["bash", "-c", "cat; echo ' published'"] }
    data = ["gate"]
"#;

fn list(state: &Scoped, closed: bool) -> Vec<Approval> {
    let query = ApprovalQuery { kind: Some(ApprovalKind::Gate), closed, name: None };
    approvals(state).list(&query).unwrap()
}

/// Waits until gates wait for an answer, and returns them.
#[track_caller]
fn open_gates(engine: &TestEngine, count: usize) -> Vec<(Digest, GateQuestion)> {
    let mut open = Vec::new();
    eventually("the gates are asked", || {
        open = list(&engine.state, false);
        open.len() == count
    });
    let gates = open.into_iter().map(|approval| {
        assert_eq!(approval.state, ApprovalState::Open);
        let about = approval.about.unwrap();
        (about.digest, *about.gate.unwrap())
    });
    gates.collect()
}

#[track_caller]
fn open_gate(engine: &TestEngine) -> (Digest, GateQuestion) {
    open_gates(engine, 1).remove(0)
}

fn answer(state: &Scoped, digest: Digest, verdict: Verdict) -> Result<(), EngineError> {
    approvals(state).answer(&ApprovalId::Gate(digest), &digest, verdict)
}

#[track_caller]
fn assert_fails(answered: Result<(), EngineError>, kind: ErrorKind, part: &str) {
    let error = answered.unwrap_err();
    assert!(error.kind() == kind && format!("{error:#}").contains(part), "{error:?}");
}

fn file(engine: &TestEngine, digest: &Digest, kind: &str) -> PathBuf {
    engine.lab.state().join(format!("approvals/gate-{digest}.{kind}"))
}

/// The content of an answer, as a client writes it.
fn claim(digest: &Digest, by: &Principal) -> String {
    let claim = json!({
        "version": 1, "digest": digest.to_string(), "outcome": "allowed", "by": by.to_string(),
        "at": 1, "reason": null, "edit": null,
    });
    claim.to_string()
}

fn own_principal() -> Principal {
    Principal::user(rustix::process::geteuid().as_raw())
}

fn given(engine: &TestEngine, run: RunId) -> Vec<Value> {
    events(engine, run, "approval.given")
}

// ---- Answers

#[test]
fn approved_gate_passes_its_input_on_and_shows_what_will_happen() {
    let engine = TestEngine::new();
    engine.lab.write("issue.md", "text");
    let text = r#"
        [run]
        input.issue = { file = "issue.md", labels = ["untrusted"] }
        [task.notes]
        do = { command = ["cat"] }
        data = ["input.issue"]
        [task.gate]
        do = { approval = "Publish?", deadline = "1h" }
        data = ["notes"]
        [task.publish]
        do = { command = ["bash", "-c", "cat; echo ' published'"] }
        data = ["gate"]
        [task.later]
        do = { stub = 1 }
        needs = ["publish"]
    "#;
    let run = start(&engine, text);
    let (digest, gate) = open_gate(&engine);
    assert_eq!((gate.plan.as_str(), gate.task.as_str()), ("plan", "gate"));
    assert_eq!((gate.question.as_str(), gate.run), ("Publish?", run.to_string()));
    let [input] = gate.inputs.as_slice() else { panic!("{:?}", gate.inputs) };
    assert_eq!((input.name.as_str(), input.size, input.preview.as_str()), ("notes", 4, "text"));
    assert_eq!(input.digest, Digest::of(&[b"text"]).to_string());
    assert_eq!(gate.labels, ["untrusted"]);
    let [after] = gate.dependents.as_slice() else { panic!("{:?}", gate.dependents) };
    assert_eq!(after.task, "publish");
    assert_eq!(after.does, "command bash -c 'cat; echo '\\'' published'\\'''");
    assert_eq!(task(&view(&engine, run), "gate").status, Status::Gated);
    assert_eq!(starts(&engine, run, "publish"), 0);
    answer(&engine.state, digest, Verdict::Allow).unwrap();
    let view = finish(&engine, run);
    assert_eq!(view.outcome, Some(Outcome::Succeeded), "{view:#?}");
    assert_eq!(output(&engine, &view, "publish"), "text published\n");
    let [event] = &given(&engine, run)[..] else { panic!("one answer") };
    assert_eq!(event["fields"]["by"], own_principal().to_string());
    assert_eq!(event["fields"]["bound_to"], digest.to_string());
    assert!(list(&engine.state, false).is_empty());
    assert_eq!(list(&engine.state, true)[0].state.name(), "allowed");
}

#[test]
fn edited_output_replaces_the_input_if_its_size_and_type_fit() {
    let engine = TestEngine::new();
    let text = r#"
        [task.notes]
        do = { stub = { n = 1 } }
        [task.gate]
        do = { approval = "Publish?" }
        data = ["notes"]
        output = { type = "json", max = "1 KiB" }
        [task.publish]
        do = { command = ["cat"] }
        data = ["gate"]
        when = { of = "gate", at = "/n", equals = 2 }
    "#;
    let run = start(&engine, text);
    let (digest, gate) = open_gate(&engine);
    assert_eq!((gate.output.as_str(), gate.max_output), ("json", 1024));
    let edit = |content: &[u8]| answer(&engine.state, digest, Verdict::Edit(content.to_vec()));
    assert_fails(edit(b"{"), ErrorKind::Invalid, "not JSON");
    assert_fails(edit(&[b' '; 1025]), ErrorKind::Invalid, "1025 bytes");
    assert!(given(&engine, run).is_empty() && !file(&engine, &digest, "claim").exists());
    edit(b"{\"n\": 2}").unwrap();
    let view = finish(&engine, run);
    assert_eq!(view.outcome, Some(Outcome::Succeeded), "{view:#?}");
    assert_eq!(output(&engine, &view, "publish"), "{\"n\": 2}", "the condition reads the edit");
    assert_eq!(given(&engine, run)[0]["fields"]["verdict"], "edit");
    let left = fs::read_dir(engine.lab.state().join("approvals")).unwrap().flatten();
    let left: Vec<_> = left.map(|entry| entry.file_name()).collect();
    assert!(!left.iter().any(|name| name.to_string_lossy().contains("edit")), "{left:?}");
}

#[test]
fn input_that_does_not_fit_the_gate_can_be_edited_or_rejected_but_not_approved() {
    let engine = TestEngine::new();
    let text = r#"
        [task.notes]
        do = { stub = "no json" }
        [task.gate]
        do = { approval = "Publish?" }
        data = ["notes"]
        output = "json"
    "#;
    let run = start(&engine, text);
    let (digest, gate) = open_gate(&engine);
    assert!(gate.obstacle.unwrap().contains("not JSON"));
    assert_fails(answer(&engine.state, digest, Verdict::Allow), ErrorKind::WrongState, "not JSON");
    answer(&engine.state, digest, Verdict::Edit(b"[]".to_vec())).unwrap();
    assert_eq!(output(&engine, &finish(&engine, run), "gate"), "[]");
}

#[test]
fn rejected_gate_stops_its_dependents_and_nothing_else() {
    let engine = TestEngine::new();
    let text = format!("{ONE}\n[task.other]\ndo = {{ stub = 1 }}");
    let run = start(&engine, &text);
    let (digest, _) = open_gate(&engine);
    let reason = Verdict::DenyBecause("not on a Friday".to_owned());
    answer(&engine.state, digest, reason).unwrap();
    let view = finish(&engine, run);
    assert_eq!(view.outcome, Some(Outcome::Failed), "{view:#?}");
    let gate = task(&view, "gate");
    assert_eq!(gate.reason.as_deref(), Some("rejected: not on a Friday"));
    assert_eq!(gate.by, Some(own_principal().to_string()));
    assert_eq!(task(&view, "publish").status, Status::Stopped);
    assert_eq!(task(&view, "other").status, Status::Done);
    assert_eq!(events(&engine, run, "approval.refused")[0]["fields"]["text"], "not on a Friday");
}

#[test]
fn cancelled_run_withdraws_its_gates() {
    let engine = TestEngine::new();
    let run = start(&engine, ONE);
    let (digest, _) = open_gate(&engine);
    control::cancel(&engine.state, run, None).unwrap();
    assert_eq!(finish(&engine, run).outcome, Some(Outcome::Cancelled));
    assert_fails(answer(&engine.state, digest, Verdict::Allow), ErrorKind::WrongState, "cancelled");
    assert_eq!(list(&engine.state, true)[0].state.name(), "withdrawn");
}

// ---- Attacks

#[test]
fn g05_two_gates_are_answered_one_by_one_and_each_answer_counts_once() {
    let engine = TestEngine::new();
    let text = r#"
        [task.one]
        do = { approval = "One?" }
        [task.two]
        do = { approval = "Two?" }
        [task.after-one]
        do = { stub = 1 }
        needs = ["one"]
        [task.after-two]
        do = { stub = 1 }
        needs = ["two"]
    "#;
    let run = start(&engine, text);
    let gates = open_gates(&engine, 2);
    let find = |name: &str| gates.iter().find(|(_, gate)| gate.task == name).unwrap().0;
    let (one, two) = (find("one"), find("two"));
    let crossed = approvals(&engine.state).answer(&ApprovalId::Gate(two), &one, Verdict::Allow);
    assert_fails(crossed, ErrorKind::Conflict, "does not match");
    let unknown = Digest::of(&[b"other"]);
    assert_fails(answer(&engine.state, unknown, Verdict::Allow), ErrorKind::NotFound, "");
    answer(&engine.state, one, Verdict::Allow).unwrap();
    let seen = view(&engine, run);
    assert_eq!(task(&seen, "one").status, Status::Done, "control: its own gate opens");
    assert_eq!(task(&seen, "two").status, Status::Gated);
    assert_eq!(starts(&engine, run, "after-two"), 0);
    let again = answer(&engine.state, one, Verdict::Allow);
    assert_fails(again, ErrorKind::WrongState, "already answered by");
    let again = answer(&engine.state, one, Verdict::Deny);
    assert_fails(again, ErrorKind::WrongState, "already answered by");
    assert_eq!(open_gates(&engine, 1)[0].0, two);
    answer(&engine.state, two, Verdict::Allow).unwrap();
    assert_eq!(finish(&engine, run).outcome, Some(Outcome::Succeeded));
    assert_eq!(given(&engine, run).len(), 2);
}

#[test]
fn g05_many_answers_at_once_count_as_one() {
    let engine = TestEngine::new();
    let run = start(&engine, ONE);
    let (digest, _) = open_gate(&engine);
    let accepted: usize = std::thread::scope(|scope| {
        let clients: Vec<_> = (0..8)
            .map(|number| {
                let verdict = if number % 2 == 0 { Verdict::Allow } else { Verdict::Deny };
                let state = &engine.state;
                scope.spawn(move || answer(state, digest, verdict).is_ok())
            })
            .collect();
        clients.into_iter().map(|client| usize::from(client.join().unwrap())).sum()
    });
    assert_eq!(accepted, 1);
    finish(&engine, run);
    let answers = given(&engine, run).len() + events(&engine, run, "approval.refused").len();
    assert_eq!(answers, 1);
}

#[test]
fn g05_h14_answer_of_an_agent_or_a_service_is_refused_also_in_a_file() {
    let engine = TestEngine::new();
    let run = start(&engine, ONE);
    let (digest, _) = open_gate(&engine);
    for name in ["agent:claude", "service:ci", "schedule:nightly"] {
        let principal: Principal = name.parse().unwrap();
        let caller = Caller { principal: principal.clone(), ..engine.state.caller().clone() };
        let state = engine.state.for_caller(caller).unwrap();
        assert_fails(answer(&state, digest, Verdict::Allow), ErrorKind::Refused, "only a person");
        // The same answer in a file, without the check of the client.
        fs::write(file(&engine, &digest, "claim"), claim(&digest, &principal)).unwrap();
        driver::wake(&engine.state).unwrap();
        eventually("the driver refuses it", || !file(&engine, &digest, "claim").exists());
    }
    // A file that names another user of this machine.
    let other = Principal::user(rustix::process::geteuid().as_raw() + 1);
    fs::write(file(&engine, &digest, "claim"), claim(&digest, &other)).unwrap();
    driver::wake(&engine.state).unwrap();
    let is_damaged = || list(&engine.state, false)[0].state.name() == "damaged";
    eventually("the file is damaged", is_damaged);
    fs::remove_file(file(&engine, &digest, "claim")).unwrap();
    assert!(given(&engine, run).is_empty());
    // Control: the file of a person counts.
    fs::write(file(&engine, &digest, "claim"), claim(&digest, &own_principal())).unwrap();
    driver::wake(&engine.state).unwrap();
    assert_eq!(finish(&engine, run).outcome, Some(Outcome::Succeeded));
    assert_eq!(given(&engine, run).len(), 1);
}

#[test]
fn g07_h14_task_of_a_run_cannot_answer_the_gate_of_its_run() {
    let engine = TestEngine::new();
    let approvals = engine.lab.state().join("approvals");
    let socket = engine.lab.state().join("plans/socket");
    let script = format!(
        "ls {0} && echo reached; echo x > {0}/gate-x.claim && echo wrote; test -e {1} && echo socket; echo end",
        approvals.display(),
        socket.display()
    );
    let text = format!(
        r#"
        [task.gate]
        do = {{ approval = "Publish?", deadline = "1h" }}
        [task.attack]
        do = {{ command = ["bash", "-c", "{script}"] }}
        [task.after]
        do = {{ stub = 1 }}
        needs = ["gate"]
    "#
    );
    let run = start(&engine, &text);
    let (digest, _) = open_gate(&engine);
    let mut seen = view(&engine, run);
    eventually("the attack ends", || {
        seen = view(&engine, run);
        task(&seen, "attack").status.is_final()
    });
    assert_eq!(output(&engine, &seen, "attack"), "end\n");
    assert_eq!(task(&seen, "gate").status, Status::Gated);
    // Control: the host sees the directory and the socket, and its person can answer.
    assert!(approvals.is_dir() && socket.exists());
    answer(&engine.state, digest, Verdict::Allow).unwrap();
    assert_eq!(finish(&engine, run).outcome, Some(Outcome::Succeeded));
}

#[test]
fn g03_changed_input_of_a_gate_cannot_be_approved() {
    let engine = TestEngine::new();
    // The output of a stub would be written again from the plan.
    let command = r#"do = { command = ["printf", "all fine"] }"#;
    let run = start(&engine, &ONE.replace(r#"do = { stub = "all fine" }"#, command));
    let (digest, _) = open_gate(&engine);
    let out = engine.lab.state().join(format!("plans/{run}/out/notes"));
    let content = fs::read(&out).unwrap();
    fs::write(&out, "forged").unwrap();
    let answered = answer(&engine.state, digest, Verdict::Allow);
    assert_fails(answered, ErrorKind::WrongState, "was changed");
    // Also not by an answer that skips the check of the client.
    fs::write(file(&engine, &digest, "claim"), claim(&digest, &own_principal())).unwrap();
    driver::wake(&engine.state).unwrap();
    eventually("the driver refuses it", || !file(&engine, &digest, "claim").exists());
    assert!(given(&engine, run).is_empty());
    fs::write(&out, content).unwrap();
    answer(&engine.state, digest, Verdict::Allow).unwrap();
    let view = finish(&engine, run);
    assert_eq!(output(&engine, &view, "publish"), "all fine published\n", "control");
}

// ---- Crashes and time

#[test]
fn h11_answer_given_while_the_driver_is_dead_takes_effect_once() {
    let engine = TestEngine::new();
    let run = start(&engine, ONE);
    let (digest, _) = open_gate(&engine);
    kill_driver(&engine);
    assert_eq!(open_gate(&engine).0, digest, "the gate waits without a driver");
    answer(&engine.state, digest, Verdict::Allow).unwrap();
    let view = finish(&engine, run);
    assert_eq!(view.outcome, Some(Outcome::Succeeded), "{view:#?}");
    assert_eq!((given(&engine, run).len(), starts(&engine, run, "publish")), (1, 1));
}

#[test]
fn h11_answer_of_a_client_that_was_killed_takes_effect_with_the_next_driver() {
    let engine = TestEngine::new();
    let run = start(&engine, ONE);
    let (digest, _) = open_gate(&engine);
    kill_driver(&engine);
    fs::write(file(&engine, &digest, "claim"), claim(&digest, &own_principal())).unwrap();
    assert_eq!(list(&engine.state, false)[0].state.name(), "claimed");
    driver::wake(&engine.state).unwrap();
    assert_eq!(finish(&engine, run).outcome, Some(Outcome::Succeeded));
    assert_eq!(given(&engine, run).len(), 1);
}

#[test]
fn h11_outcome_that_a_killed_driver_did_not_store_comes_from_the_ledger() {
    let engine = TestEngine::new();
    let run = start(&engine, ONE);
    let (digest, _) = open_gate(&engine);
    answer(&engine.state, digest, Verdict::Allow).unwrap();
    finish(&engine, run);
    // The state of the files after a crash between the record and the file.
    fs::rename(file(&engine, &digest, "answer"), file(&engine, &digest, "claim")).unwrap();
    let again = answer(&engine.state, digest, Verdict::Deny);
    assert_fails(again, ErrorKind::WrongState, "already answered by");
    assert_eq!(list(&engine.state, true)[0].state.name(), "allowed");
    assert_eq!(given(&engine, run).len(), 1);
}

#[test]
fn g06_deadline_that_passes_without_a_driver_denies_also_an_answer_with_an_old_clock() {
    let engine = TestEngine::new();
    // The test kills the driver before the deadline, also on a slow machine.
    let run = start(&engine, &ONE.replace("\"Publish?\"", "\"Publish?\", deadline = \"8s\""));
    // The driver records the question before it stores it, so the record alone is too early for the kill.
    eventually("the question is stored, or its deadline has passed", || {
        !list(&engine.state, false).is_empty()
            || !events(&engine, run, "approval.refused").is_empty()
    });
    kill_driver(&engine);
    let asked = &events(&engine, run, "approval.asked")[0]["fields"];
    let deadline = asked["deadline"].as_u64().unwrap();
    let digest: Digest = asked["bound_to"].as_str().unwrap().parse().unwrap();
    eventually("the deadline passes", || engine.state.clock().millis() > deadline);
    if events(&engine, run, "approval.refused").is_empty() {
        let late = answer(&engine.state, digest, Verdict::Allow);
        assert_fails(late, ErrorKind::WrongState, "deadline");
        // The clock of this client was set back, so the client cannot know that it is late.
        let early = open_engine_with_old_clock(&engine.lab);
        answer(&early, digest, Verdict::Allow).unwrap_err();
    }
    driver::wake(&engine.state).unwrap();
    let view = finish(&engine, run);
    assert_eq!(view.outcome, Some(Outcome::Failed), "{view:#?}");
    assert_eq!(task(&view, "gate").reason.as_deref(), Some("expired"));
    assert!(given(&engine, run).is_empty());
    assert_eq!(starts(&engine, run, "publish"), 0);
}

#[test]
fn g06_deadline_denies_while_the_driver_runs() {
    let engine = TestEngine::new();
    let run = start(&engine, &ONE.replace("\"Publish?\"", "\"Publish?\", deadline = \"1s\""));
    let view = finish(&engine, run);
    assert_eq!(view.outcome, Some(Outcome::Failed), "{view:#?}");
    assert_eq!(events(&engine, run, "approval.refused")[0]["fields"]["why"], "timeout");
    assert_eq!(list(&engine.state, true)[0].state.name(), "expired");
}

// ---- Branches

#[track_caller]
fn git(engine: &TestEngine, args: &[&str]) -> String {
    let mut git = Command::new("git");
    git.current_dir(engine.lab.workspace());
    git.args(["-c", "user.name=t", "-c", "user.email=t@example.com"]).args(args);
    let output = git.output().unwrap();
    assert!(output.status.success(), "{args:?}: {output:?}");
    String::from_utf8(output.stdout).unwrap().trim().to_owned()
}

/// Starts a plan whose task `fix` has made a branch, and whose gate puts it into the repository.
///
/// A stub takes the place of the agent: its output is that of an agent.
#[track_caller]
fn start_with_branch(engine: &TestEngine, commit: &str, base: &str) -> RunId {
    let text = r#"
        [run]
        name = "fix-login"
        [task.fix]
        do = { agent = "claude", prompt = "Fix it.", repo = "." }
        [task.merge]
        do = { approval = "Take it?", apply = "fix" }
        needs = ["fix"]
        [task.after]
        do = { command = ["cat", ".git/refs/heads/belljar/fix-login"], workspace = "." }
        needs = ["merge"]
    "#;
    let plan = checked(engine, text);
    let mut stored: Value = serde_json::from_str(&plan.canonical()).unwrap();
    let fix = stored["tasks"].as_array_mut().unwrap();
    let fix = fix.iter_mut().find(|task| task["id"] == "fix").unwrap();
    let delay = json!({"secs": 0, "nanos": 0});
    let output = json!({"commit": commit, "base": base});
    fix["executor"] = json!({"stub": {"output": output, "delay": delay, "fail": null}});
    let plan = CheckedPlan::stored(&stored.to_string()).unwrap();
    submit(&engine.state, &plan, &engine.lab.workspace(), None).unwrap()
}

/// Creates a repository, and returns its first and second commit.
fn repository(engine: &TestEngine) -> (String, String) {
    git(engine, &["init", "-q", "-b", "main"]);
    let mut commits = ["a.txt", "b.txt"].into_iter().map(|name| {
        engine.lab.write(name, "1\n2\n");
        git(engine, &["add", "-A"]);
        git(engine, &["commit", "-q", "-m", name]);
        git(engine, &["rev-parse", "HEAD"])
    });
    let (base, tip) = (commits.next().unwrap(), commits.next().unwrap());
    git(engine, &["reset", "-q", "--hard", &base]);
    (base, tip)
}

#[test]
fn approved_branch_is_moved_after_the_intent_is_recorded_and_before_dependents_start() {
    let engine = TestEngine::new();
    let (base, tip) = repository(&engine);
    let run = start_with_branch(&engine, &tip, &base);
    let (digest, gate) = open_gate(&engine);
    let apply = gate.apply.unwrap();
    assert_eq!((apply.branch.as_str(), &apply.commit), ("belljar/fix-login", &tip));
    assert_eq!((apply.files, apply.added_lines, apply.removed_lines), (1, 2, 0));
    assert_eq!(git(&engine, &["branch", "--list", "belljar/*"]), "");
    answer(&engine.state, digest, Verdict::Allow).unwrap();
    let view = finish(&engine, run);
    assert_eq!(view.outcome, Some(Outcome::Succeeded), "{view:#?}");
    assert_eq!(output(&engine, &view, "after").trim(), tip);
    assert_eq!(git(&engine, &["rev-parse", "main"]), base, "no other branch moved");
    let order: Vec<String> = engine
        .events()
        .iter()
        .filter(|event| event["run"] == run.to_string().as_str())
        .map(|event| event["kind"].as_str().unwrap().to_owned())
        .filter(|kind| kind.starts_with("workspace.") || kind.starts_with("approval."))
        .collect();
    let expected = ["approval.asked", "workspace.applying", "workspace.applied", "approval.given"];
    assert_eq!(order, expected);
    let applying = &events(&engine, run, "workspace.applying")[0]["fields"];
    assert_eq!(applying["bound_to"], digest.to_string());
    assert_eq!(applying["commit"], tip);
}

#[test]
fn branch_that_would_lose_commits_stays_and_the_gate_stays_open() {
    let engine = TestEngine::new();
    let (base, tip) = repository(&engine);
    git(&engine, &["checkout", "-q", "-b", "belljar/fix-login"]);
    engine.lab.write("c.txt", "mine");
    git(&engine, &["add", "-A"]);
    git(&engine, &["commit", "-q", "-m", "mine"]);
    let mine = git(&engine, &["rev-parse", "HEAD"]);
    git(&engine, &["checkout", "-q", "main"]);
    let run = start_with_branch(&engine, &tip, &base);
    let (digest, gate) = open_gate(&engine);
    assert!(gate.obstacle.unwrap().contains("not based on"));
    let answered = answer(&engine.state, digest, Verdict::Allow);
    assert_fails(answered, ErrorKind::WrongState, "not based on");
    // Also not by an answer that skips the check of the client.
    fs::write(file(&engine, &digest, "claim"), claim(&digest, &own_principal())).unwrap();
    driver::wake(&engine.state).unwrap();
    eventually("the driver refuses it", || !file(&engine, &digest, "claim").exists());
    assert_eq!(git(&engine, &["rev-parse", "belljar/fix-login"]), mine);
    git(&engine, &["branch", "-q", "-m", "belljar/fix-login", "kept"]);
    answer(&engine.state, digest, Verdict::Allow).unwrap();
    assert_eq!(finish(&engine, run).outcome, Some(Outcome::Succeeded), "control");
    assert_eq!(git(&engine, &["rev-parse", "belljar/fix-login"]), tip);
}

#[test]
fn h11_branch_whose_move_has_no_outcome_is_completed_by_the_next_driver() {
    use belljar_ledger::{Actor, Draft, WorkspaceApplying};

    let engine = TestEngine::new();
    let (base, tip) = repository(&engine);
    let run = start_with_branch(&engine, &tip, &base);
    let (digest, _) = open_gate(&engine);
    kill_driver(&engine);
    // The state after a driver was killed between the intent and the end of the answer.
    fs::write(file(&engine, &digest, "claim"), claim(&digest, &own_principal())).unwrap();
    let applying = WorkspaceApplying {
        files: 1,
        branch: Some("belljar/fix-login".to_owned()),
        commit: Some(tip.clone()),
        bound_to: Some(digest),
        by: Some(own_principal().to_string()),
    };
    let ledger = belljar_engine::record::open(&engine.state).unwrap();
    drop(ledger.record(Draft::new(applying).of_run(run).by(Actor::Driver)).unwrap());
    drop(ledger);
    git(&engine, &["branch", "belljar/fix-login", &tip]);
    driver::wake(&engine.state).unwrap();
    let view = finish(&engine, run);
    assert_eq!(view.outcome, Some(Outcome::Succeeded), "{view:#?}");
    assert_eq!(events(&engine, run, "workspace.applying").len(), 1);
    assert_eq!(events(&engine, run, "workspace.applied").len(), 1);
    assert_eq!(given(&engine, run).len(), 1);
    assert_eq!(git(&engine, &["rev-parse", "belljar/fix-login"]), tip);
}
