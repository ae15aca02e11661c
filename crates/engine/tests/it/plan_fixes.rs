//! 20 small repositories with a bug, which a scripted model repairs with real tools in real boxes.
//!
//! The scripted model is an agent that decides by the results of its calls; see `agent`. Its changes are held
//! back, reviewed and applied. The tests of the repository and a verification that the model never sees
//! decide whether a repair is right. Both fail before the repair.

mod agent;
mod cases;
mod protocol;

use std::collections::BTreeSet;
use std::fs;

use belljar_engine::runs::machine::Status;
use belljar_engine::runs::view::RunView;
use belljar_engine::secrets::Secrets;
use belljar_engine::{changes, record, review};
use belljar_testkit::{Authority, Received, Reply, Upstream};
use belljar_workspace::{ApplySession, Choice, EntryStatus, plan_apply};
use serde_json::{Value, json};

use self::cases::{Case, LookUp};
use self::protocol::{Done, Protocol};
use crate::plan_code::{events, output, run, task};
use crate::test_engine::TestEngine;

const TOOLS: [&str; 8] =
    ["shell", "read", "write", "edit", "glob", "grep", "fetch", "execute_code"];
/// The value of the key of the model server.
const KEY: &str = "sk-belljar-test-0a1b2c3d4e5f60718293a4b5c6d7e8f9";

/// An engine with the repositories of one protocol and a scripted model.
struct Lab {
    engine: TestEngine,
    upstream: Upstream,
    protocol: Protocol,
    _authority: Authority,
}

/// Returns the case that a request to the model is about.
fn case_of(received: &Received) -> Option<&'static Case> {
    let body = String::from_utf8_lossy(&received.body);
    let (_, rest) = body.split_once("the repository `")?;
    let (name, _) = rest.split_once('`')?;
    Case::all().find(|case| case.name == name)
}

fn body(received: &Received) -> Value {
    serde_json::from_slice(&received.body).unwrap()
}

/// Answers as the model server, or as the server with pages.
fn respond(protocol: Protocol, received: &Received) -> Reply {
    if received.sni.as_deref() == Some("docs.example.com") {
        let case = Case::all().find(|case| received.path == format!("/{}", case.name));
        return match case.and_then(|case| case.look_up) {
            Some(LookUp::Page(text)) => Reply::new(200, text),
            Some(LookUp::Code(_)) | None => Reply::new(404, ""),
        };
    }
    let Some(case) = case_of(received) else { return Reply::new(400, "unknown repository") };
    let history = protocol.history(&body(received));
    protocol.answer(&agent::next(case, &history), history.len())
}

impl Lab {
    fn new(protocol: Protocol) -> Self {
        let (engine, authority) = (TestEngine::new(), Authority::new());
        let hosts = ["models.example.com", "docs.example.com"];
        let upstream =
            Upstream::tls(&authority, &hosts, move |received| respond(protocol, received));
        let (to, provider) = (upstream.address(), protocol.provider());
        let config = format!(
            "[secret.models]\nhosts = [\"models.example.com\"]\nslots = [\"header:x-api-key\", \"header:authorization\"]\nenv = \"MODEL_KEY\"\n\
             [tier.scripted]\nprovider = \"{provider}\"\nmodel = \"m\"\nsecret = \"models\"\nurl = \"https://models.example.com\"\nconnect = \"{to}\"\n\
             [template.default]\nnet = \"restricted\"\n\
             [[template.default.allow]]\nhost = \"docs.example.com\"\nconnect = \"{to}\"\n"
        );
        engine.lab.configure_for(&authority, &config);
        let secrets = Secrets::open(&engine.state).unwrap();
        let writer = secrets.writer().unwrap();
        writer.set(&"models".parse().unwrap(), KEY.as_bytes().to_vec().into()).unwrap();
        let lab = Self { engine, upstream, protocol, _authority: authority };
        for case in lab.cases() {
            for (path, content) in case.repository() {
                lab.engine.lab.write(&format!("{}/{path}", case.name), content);
            }
        }
        lab
    }

    fn cases(&self) -> impl Iterator<Item = &'static Case> + use<> {
        let protocol = self.protocol;
        Case::all().filter(move |case| case.protocol == protocol)
    }

    /// Carries out a plan with one task for each case.
    fn run(&self, task: impl Fn(&Case) -> String) -> RunView {
        let tasks = self.cases().map(|case| format!("[task.{}]\n{}\n", case.name, task(case)));
        run(&self.engine, &tasks.collect::<String>())
    }

    /// Runs the tests and the hidden verification of each repository. Returns whether both pass for each.
    fn verify(&self) -> Vec<(bool, bool)> {
        let view = self.run(|case| {
            let Case { name, tests, hidden, .. } = case;
            let script = format!("({tests}) >&2; a=$?; ({hidden}) >&2; echo $a $?");
            format!(
                "do = {{ command = [\"sh\", \"-c\", {}], workspace = \"{name}\" }}",
                json!(script)
            )
        });
        let statuses = self.cases().map(|case| {
            let text = output(&self.engine, &view, case.name);
            let (tests, hidden) = text.trim_end().split_once(' ').unwrap();
            (tests == "0", hidden == "0")
        });
        statuses.collect()
    }

    /// Returns the calls that the model made for a case, from its last request.
    fn history(&self, case: &Case) -> Vec<Done> {
        let all = self.upstream.received();
        let is_of_case = |it: &&Received| case_of(it).is_some_and(|it| it.name == case.name);
        let last = all.iter().rev().find(is_of_case).expect("the model was asked");
        self.protocol.history(&body(last))
    }

    /// Reviews the changes of a case and applies them. Returns the changed paths.
    fn apply(&self, view: &RunView, case: &Case) -> Vec<String> {
        let state = &self.engine.state;
        let workspace = self.engine.lab.workspace().join(case.name);
        for (path, content) in case.repository() {
            let now = fs::read_to_string(workspace.join(&path)).unwrap();
            assert_eq!(now, content, "{}: {path} changes only after the review", case.name);
        }
        let id = task(view, case.name).box_run.unwrap().to_string();
        let held = review::find(state, &workspace, Some(&id)).unwrap();
        let (layers, changed) = changes::open(state, &held).unwrap();
        let ledger = record::open(state).unwrap();
        let mut session = ApplySession::begin(&layers).unwrap();
        let observed = session.observe(&changed).unwrap();
        let plan = plan_apply(&observed, &Choice::everything()).settle().unwrap();
        let applied = changes::apply(state, &ledger, &held, &mut session, plan).unwrap();
        let is_applied = |status: &EntryStatus| matches!(status, EntryStatus::Applied);
        assert!(applied.entries.iter().all(|it| is_applied(&it.status)), "{:?}", applied.entries);
        let path = |path: &[u8]| String::from_utf8(path.to_vec()).unwrap();
        let mut paths: Vec<String> =
            changed.entries().iter().map(|it| path(it.path.as_bytes())).collect();
        paths.sort();
        paths
    }
}

/// Repairs all repositories of a protocol.
#[track_caller]
fn check(protocol: Protocol) {
    let lab = Lab::new(protocol);
    // Control: each repository is broken, and its tests and the verification show it.
    for (case, found) in lab.cases().zip(lab.verify()) {
        assert_eq!(found, (false, false), "{}", case.name);
    }
    let view = lab.run(|case| {
        let (name, tools) = (case.name, json!(TOOLS));
        format!(
            "do = {{ model = \"scripted\", prompt = \"Make the tests of the repository `{name}` pass.\", \
             tools = {tools}, workspace = \"{name}\", overlay = true, \
             deny = [\"Edit(tests/**)\", \"Bash(git push:*)\"] }}"
        )
    });
    let mut used = BTreeSet::new();
    for case in lab.cases() {
        let done = task(&view, case.name);
        assert_eq!(done.status, Status::Done, "{}: {done:#?}", case.name);
        let history = lab.history(case);
        assert_eq!(output(&lab.engine, &view, case.name), agent::FIXED, "{history:#?}");
        used.extend(history.iter().map(|done| done.name.clone()));
        if let Some(mistake) = case.mistake {
            let has_failed = history.iter().any(|it| it.result.contains(mistake.result()));
            assert!(has_failed, "{}: {history:#?}", case.name);
        }
        // The broker recorded each answer with its tokens.
        let called = events(&lab.engine, done.box_run.unwrap(), "model.called");
        assert_eq!(called.len(), history.len() + 1, "{}", case.name);
        for event in called.iter().map(|event| &event["fields"]) {
            let found = (&event["input"], &event["output"], &event["complete"]);
            assert_eq!(found, (&json!(7), &json!(2), &json!(true)), "{}: {event}", case.name);
        }
        assert_eq!(lab.apply(&view, case), case.changed, "{}", case.name);
    }
    let unused: Vec<&str> = TOOLS.into_iter().filter(|tool| !used.contains(*tool)).collect();
    assert!(unused.is_empty(), "{unused:?}");
    for (case, found) in lab.cases().zip(lab.verify()) {
        assert_eq!(found, (true, true), "{}", case.name);
    }
}

#[test]
fn model_repairs_repositories_with_the_messages_protocol() {
    check(Protocol::Anthropic);
}

#[test]
fn model_repairs_repositories_with_the_chat_protocol() {
    check(Protocol::Chat);
}

#[test]
fn model_repairs_repositories_with_the_responses_protocol() {
    check(Protocol::Responses);
}

#[test]
fn there_are_twenty_different_repositories_and_every_mistake_is_made() {
    let names: BTreeSet<&str> = Case::all().map(|case| case.name).collect();
    assert_eq!((names.len(), Case::all().count()), (20, 20));
    let mistakes = Case::all().filter_map(|case| case.mistake).map(|it| format!("{it:?}"));
    assert_eq!(mistakes.collect::<BTreeSet<_>>().len(), 9);
    for protocol in Protocol::ALL {
        assert!(Case::all().filter(|case| case.protocol == protocol).count() >= 6);
    }
}
