//! `belljar approve` with gates of runs: it shows what will happen, and answers once.

use std::fs;
use std::sync::Arc;

use belljar_engine::clock::Clock;
use belljar_engine::host::{HostEnv, RoleProgram};
use belljar_engine::notice::Silent;
use belljar_engine::runs::plans;
use belljar_engine::runs::submit::submit;
use belljar_engine::scope::{Engine, EngineConfig, Scoped, local_caller};
use belljar_model::RunId;
use belljar_testkit::{Lab, Terminal, eventually};
use serde_json::Value;

use crate::lab;

const PLAN: &str = r#"
    [run]
    name = "release"
    input.notes = { text = "first line\nsecond line", labels = ["untrusted"] }
    [task.gate]
    do = { approval = "Publish this?", deadline = "1h" }
    data = ["input.notes"]
    [task.publish]
    do = { command = ["cat"] }
    data = ["gate"]
"#;

/// Opens the engine on the state directory of a lab. Its processes are those of the binary under test.
fn engine(lab: &Lab) -> Scoped {
    let path = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";
    let variables = [("PATH".into(), path.into()), ("HOME".into(), lab.home().into())];
    let binary = belljar_testkit::belljar(env!("CARGO_BIN_EXE_belljar"));
    let roles = RoleProgram::Path(binary.clone());
    let host = HostEnv { roles, ..HostEnv::new(variables, binary) };
    let config = EngineConfig { home: lab.state(), config_file: None, host };
    let clock = Clock::new(belljar_testkit::wall_clock);
    Engine::open(config, clock, Arc::new(Silent)).unwrap().of(&local_caller()).unwrap()
}

#[track_caller]
fn start(lab: &Lab, plan: &str) -> RunId {
    let state = engine(lab);
    let (config, _) = state.load_config(None).unwrap();
    let ceiling = plans::ceiling(state.host(), &config).unwrap();
    let plan = plans::check(plan, "plan.toml", &ceiling).unwrap_or_else(|it| panic!("{it}"));
    submit(&state, &plan, &lab.workspace(), None).unwrap()
}

fn objects(text: &str) -> Vec<Value> {
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

/// Waits for the open gate, and returns it as `belljar approve --json` prints it.
#[track_caller]
fn open_gate(lab: &Lab) -> Value {
    let mut open = Vec::new();
    eventually("the gate waits", || {
        open = objects(&lab.belljar(["approve", "--json"]).succeed());
        !open.is_empty()
    });
    let [gate] = open.as_slice() else { panic!("one gate: {open:?}") };
    gate.clone()
}

fn events(lab: &Lab, kind: &str) -> Vec<Value> {
    objects(&lab.belljar(["ledger", "log", "--json", "--kind", kind]).succeed())
}

#[track_caller]
fn wait_for_end(lab: &Lab) -> Value {
    eventually("the run ends", || !events(lab, "plan.ended").is_empty());
    events(lab, "plan.ended")[0]["fields"]["outcome"].clone()
}

#[test]
fn approve_shows_what_will_happen_and_answers_a_gate_by_the_beginning_of_its_digest() {
    let lab = lab();
    let run = start(&lab, PLAN);
    let gate = open_gate(&lab);
    assert_eq!((&gate["id"], &gate["kind"]), (&"release/gate".into(), &"gate".into()));
    assert_eq!(gate["gate"]["run"], run.to_string());
    assert_eq!(gate["gate"]["inputs"][0]["size"], 22);
    assert_eq!(gate["gate"]["dependents"][0]["does"], "command cat");
    let digest = gate["digest"].as_str().unwrap();
    let shown = lab.belljar(["approve"]).succeed();
    for part in [
        "release/gate",
        "Publish this?",
        "denied automatically at",
        &digest[..8],
        "input.notes, 22 bytes, sha256",
        "| second line",
        "publish: command cat",
        "labels    untrusted (input.notes)",
    ] {
        assert!(shown.contains(part), "no {part:?} in {shown}");
    }
    let prefix = &digest[..8];
    lab.belljar(["approve", prefix])
        .run()
        .fails_with(2, "add `--yes`, `--reject` or `--edit FILE`");
    let done = lab.belljar(["approve", prefix, "--yes"]).run();
    done.expect(0);
    let event = events(&lab, "approval.given")[0]["index"].clone();
    assert!(done.err().contains(&format!("allowed once, event {event}")), "{}", done.err());
    assert_eq!(wait_for_end(&lab), "succeeded");
    for answer in ["--yes", "--reject"] {
        lab.belljar(["approve", prefix, answer]).run().fails_with(2, "already answered by user:");
    }
    lab.belljar(["approve", prefix]).run().fails_with(2, "already answered by user:");
    lab.belljar(["approve", "00000000", "--yes"]).run().fails_with(2, "no question has a digest");
    let listed = objects(&lab.belljar(["approve", "--list", "--json"]).succeed());
    assert_eq!(listed[0]["state"], "allowed");
    assert_eq!(events(&lab, "approval.given").len(), 1);
}

#[test]
fn approve_rejects_with_a_reason_and_edits_with_a_file() {
    let lab = lab();
    start(&lab, PLAN);
    let digest = open_gate(&lab)["digest"].as_str().unwrap().to_owned();
    let large = lab.write("large", vec![b'x'; (1 << 20) + 1]);
    let edit = |file: &std::path::Path| lab.belljar(["approve", &digest, "--edit"]).arg(file).run();
    edit(&large).fails_with(2, "1048577 bytes");
    edit(&lab.workspace().join("missing")).fails_with(2, "cannot read");
    let wrong = lab.belljar(["approve", "--reason", "x", &digest]).run();
    assert_eq!(wrong.code(), 2, "a reason needs --reject: {}", wrong.err());
    edit(&lab.write("better", "better text")).expect(0);
    assert_eq!(wait_for_end(&lab), "succeeded");
    let plans = lab.state().join("plans");
    let run = events(&lab, "approval.given")[0]["run"].as_str().unwrap().to_owned();
    let output = fs::read_to_string(plans.join(run).join("out/publish")).unwrap();
    assert_eq!(output, "better text");

    let lab = crate::lab();
    start(&lab, PLAN);
    let digest = open_gate(&lab)["digest"].as_str().unwrap().to_owned();
    lab.belljar(["approve", &digest, "--reject", "--reason", "not now"]).succeed();
    assert_eq!(wait_for_end(&lab), "failed");
    assert_eq!(events(&lab, "approval.refused")[0]["fields"]["text"], "not now");
}

#[test]
fn g01_key_typed_before_a_gate_appears_does_not_answer_it() {
    let lab = lab();
    start(&lab, PLAN);
    open_gate(&lab);
    // Returns after the program has ended. Keys are typed until then: the program ignores the first ones.
    let session = |early: &str, keys: &str| {
        let mut terminal = Terminal::start(lab.belljar(["approve"]), 30, 120);
        terminal.type_keys(early);
        terminal.wait_for("q leave: ");
        let stat = format!("/proc/{}/stat", terminal.pid());
        eventually("the program ends", || {
            terminal.type_keys(keys);
            terminal.read_available();
            let stat = fs::read_to_string(&stat).unwrap_or_default();
            stat.is_empty() || stat.contains(") Z")
        });
        terminal.end().0
    };
    assert!(session("a\r", "q\r").success());
    assert_eq!(open_gate(&lab)["state"], "open");
    assert!(events(&lab, "approval.given").is_empty());
    // Control: the same key after the delay approves.
    assert!(session("", "a\r").success());
    assert_eq!(wait_for_end(&lab), "succeeded");
}

#[test]
fn runs_show_with_taint_names_the_source_of_a_label_and_the_gate_that_it_excludes() {
    let lab = lab();
    let plan = PLAN.replace("deadline = \"1h\"", "deny_when = [\"untrusted\"]");
    start(&lab, &plan);
    assert_eq!(wait_for_end(&lab), "failed");
    let shown: Value = serde_json::from_str(
        &lab.belljar(["runs", "show", "release", "--taint", "--json"]).succeed(),
    )
    .unwrap();
    let gate = &shown["tasks"][0];
    assert_eq!((&gate["task"], &gate["state"]), (&"gate".into(), &"failed".into()));
    let label = &gate["labels"][0];
    assert_eq!(label["label"], "untrusted");
    assert_eq!(label["origins"][0]["source"], "input.notes");
    assert_eq!(label["origins"][0]["path"][0], "gate");
    assert_eq!(gate["refused"], "untrusted (input.notes)");
    let text = lab.belljar(["runs", "show", "release/gate", "--taint"]).succeed();
    let expected = "gate  failed\n  untrusted  input.notes > gate\n  refused    because of untrusted (input.notes)";
    assert_eq!(text, expected);
    let refused = &events(&lab, "approval.refused")[0]["fields"];
    assert_eq!(
        (&refused["why"], &refused["text"]),
        (&"labels".into(), &"untrusted (input.notes)".into())
    );
}
