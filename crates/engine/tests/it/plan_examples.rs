//! Carries out the plans of `examples/plans` with the real driver and a scripted model on loopback.
//!
//! The plan with two agents needs their programs: `example_plan_with_two_agents_returns_two_branches`.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};

use belljar_engine::approvals::{ApprovalId, ApprovalKind, ApprovalQuery, Verdict};
use belljar_engine::runs::gates::approvals;
use belljar_engine::runs::machine::Outcome;
use belljar_engine::runs::plans;
use belljar_engine::runs::submit::submit;
use belljar_engine::runs::view::RunView;
use belljar_model::RunId;
use belljar_testkit::{Reply, Upstream, eventually};
use serde_json::{Value, json};

use crate::plan_runs::{finish, output, starts, task};
use crate::test_engine::TestEngine;

fn directory() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/plans")
}

/// Submits an example as `belljar submit` does: relative paths refer to the directory of the plan.
#[track_caller]
fn start(engine: &TestEngine, file: &str) -> RunId {
    let text = fs::read_to_string(directory().join(file)).unwrap();
    let (config, _) = engine.state.load_config(None).unwrap();
    let ceiling = plans::ceiling(engine.state.host(), &config).unwrap();
    let plan = plans::check(&text, file, &ceiling).unwrap_or_else(|faults| panic!("{faults}"));
    submit(&engine.state, &plan, &directory(), None).unwrap()
}

/// Approves the only gate that waits.
#[track_caller]
fn approve(engine: &TestEngine) {
    let query = ApprovalQuery { kind: Some(ApprovalKind::Gate), closed: false, name: None };
    let mut open = Vec::new();
    eventually("the gate is asked", || {
        open = approvals(&engine.state).list(&query).unwrap();
        !open.is_empty()
    });
    assert_eq!(open.len(), 1, "{open:?}");
    let digest = open.remove(0).about.unwrap().digest;
    let answered =
        approvals(&engine.state).answer(&ApprovalId::Gate(digest), &digest, Verdict::Allow);
    answered.unwrap();
}

#[track_caller]
fn finish_well(engine: &TestEngine, run: RunId) -> RunView {
    let view = finish(engine, run);
    assert_eq!(view.outcome, Some(Outcome::Succeeded), "{view:#?}");
    view
}

/// Returns a complete answer of a model in the format of OpenAI chat.
fn answer(text: &str) -> Reply {
    let usage = json!({"prompt_tokens": 50, "completion_tokens": 20});
    let chunks = [
        json!({"model": "scripted", "choices": [{"index": 0, "delta": {"content": text}, "finish_reason": null}]}),
        json!({"model": "scripted", "choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]}),
        json!({"model": "scripted", "choices": [], "usage": usage}),
    ];
    let text: String = chunks.iter().map(|chunk| format!("data: {chunk}\n\n")).collect();
    Reply::new(200, text + "data: [DONE]\n\n").header("content-type", "text/event-stream")
}

#[test]
fn examples_are_the_five_plans_that_tests_carry_out() {
    let mut found: Vec<String> = fs::read_dir(directory())
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.is_file())
        .map(|path| path.file_name().unwrap().to_string_lossy().into_owned())
        .collect();
    found.sort();
    let tested =
        ["announcement.toml", "fan-out.json", "release.toml", "report.toml", "two-agents.toml"];
    assert_eq!(found, tested);
}

#[test]
fn example_plan_of_an_announcement_corrects_the_draft_and_waits_for_a_person() {
    let drafts = [
        // Not the form of the schema: the worker asks the model to correct it.
        json!({"title": "Faster"}),
        // The command rejects it.
        json!({"title": "Faster", "text": "TODO"}),
        json!({"title": "Faster", "text": "It starts at once."}),
    ];
    let next = AtomicUsize::new(0);
    let upstream = Upstream::plain(move |_| {
        let at = next.fetch_add(1, Ordering::SeqCst).min(drafts.len() - 1);
        answer(&drafts[at].to_string())
    });
    let engine = TestEngine::new();
    engine.lab.configure(&format!(
        "[tier.cheap]\nprovider = 'openai-chat'\nmodel = 'scripted'\nurl = 'http://localhost:{}/v1'\n",
        upstream.address().port()
    ));
    let run = start(&engine, "announcement.toml");
    approve(&engine);
    let view = finish_well(&engine, run);
    assert_eq!(output(&engine, &view, "publish"), "\"Faster: It starts at once.\"");
    assert_eq!((starts(&engine, run, "draft"), starts(&engine, run, "publish")), (2, 1));
    let requests = upstream.received();
    assert_eq!(requests.len(), 3);
    let last = String::from_utf8_lossy(&requests[2].body).into_owned();
    assert!(last.contains("The draft has a TODO."), "the reason is in the prompt: {last}");
    assert!(last.contains("a log for each task"), "the input is in the request: {last}");
}

#[test]
fn example_plan_that_fans_out_adds_the_squares_of_a_list() {
    let engine = TestEngine::new();
    let run = start(&engine, "fan-out.json");
    let view = finish_well(&engine, run);
    assert_eq!(output(&engine, &view, "list").trim(), "[1, 2, 3]");
    let square: Value = serde_json::from_str(&output(&engine, &view, "square[2]")).unwrap();
    assert_eq!(square, json!(9));
    assert_eq!(output(&engine, &view, "sum"), "14\n");
}

#[test]
fn example_plan_of_a_release_publishes_after_the_approval() {
    let engine = TestEngine::new();
    let run = start(&engine, "release.toml");
    approve(&engine);
    let view = finish_well(&engine, run);
    assert_eq!(output(&engine, &view, "publish"), "https://example.com/releases/1");
    assert!(task(&view, "review[1]").of.item == Some(1), "{view:#?}");
}

#[test]
fn example_plan_of_a_report_counts_words() {
    let engine = TestEngine::new();
    let run = start(&engine, "report.toml");
    let view = finish_well(&engine, run);
    assert_eq!(output(&engine, &view, "report"), "count[0]:4\ncount[1]:2\ncount[2]:2\n");
}
