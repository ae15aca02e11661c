//! Failures of model servers: each has a named outcome, and each request is counted once.

use belljar_engine::runs::budget::Unit;
use belljar_engine::runs::machine::Outcome;
use belljar_testkit::Reply;
use serde_json::json;

use super::{Lab, answer, attempts, stream};
use crate::plan_code::{output, reason, run, task};

const PLAN: &str = "[task.a]\ndo = { model = 'cheap', prompt = 'x' }";

/// Runs a plan with one request, and expects that it fails with this reason after this number of requests.
/// Each request is in the ledger and in the usage once.
#[track_caller]
fn fails(replies: Vec<Reply>, expected: &str, requests: usize) -> Lab {
    let lab = Lab::new(replies);
    let view = run(&lab.engine, PLAN);
    assert_eq!(view.outcome, Some(Outcome::Failed), "{view:#?}");
    let reason = reason(&view, "a");
    assert!(reason.starts_with(&format!("{expected}: ")), "{reason}");
    assert_eq!(lab.requests().len(), requests, "{reason}");
    assert_eq!(attempts(&lab.engine, view.run, "a"), 1);
    let decided = lab.box_events(&view, "a", "request.decided");
    let finished = lab.box_events(&view, "a", "request.finished");
    assert_eq!((decided.len(), finished.len()), (requests, requests), "{decided:?} {finished:?}");
    assert_eq!(task(&view, "a").usage.get(Unit::Calls), requests as u64);
    lab
}

/// Returns a failure after which the client does not wait.
fn error(status: u16) -> Reply {
    Reply::new(status, json!({"error": {"message": "overloaded"}}).to_string())
        .header("content-type", "application/json")
        .header("retry-after", "0")
}

#[test]
fn empty_answer_is_invalid() {
    fails(vec![answer("")], "invalid", 1);
}

#[test]
fn refusal_is_final() {
    let usage = json!({"input_tokens": 7, "output_tokens": 1});
    fails(vec![stream("I cannot help.", "refusal", &usage)], "refused", 1);
}

#[test]
fn answer_at_the_token_limit_is_too_long() {
    let usage = json!({"input_tokens": 7, "output_tokens": 100});
    fails(vec![stream("unfinished", "max_tokens", &usage)], "too_long", 1);
}

#[test]
fn wrong_key_is_final_and_sent_once() {
    fails(vec![error(401)], "bad_key", 1);
}

#[test]
fn server_errors_are_tried_six_times_and_then_unavailable() {
    fails(vec![error(500)], "unavailable", 6);
}

#[test]
fn server_that_is_busy_is_asked_again_after_its_time() {
    let busy = Reply::new(429, "slow down").header("retry-after", "1");
    let lab = Lab::new(vec![busy, answer("later")]);
    let view = run(&lab.engine, PLAN);
    assert_eq!(view.outcome, Some(Outcome::Succeeded), "{view:#?}");
    assert_eq!(output(&lab.engine, &view, "a"), "later");
    let finished = lab.box_events(&view, "a", "request.finished");
    let statuses: Vec<u64> =
        finished.iter().filter_map(|event| event["fields"]["status"].as_u64()).collect();
    assert_eq!(statuses, [429, 200]);
    // Only the answer is charged.
    assert_eq!(task(&view, "a").usage.get(Unit::Tokens), 9);
}

#[test]
fn answer_that_is_cut_off_is_tried_again_and_its_first_half_is_discarded() {
    let whole = answer("never seen");
    let half = whole.chunks[0][..whole.chunks[0].len() / 2].to_vec();
    let half = Reply { chunks: vec![half], ..whole };
    let lab = Lab::new(vec![half, answer("complete")]);
    let view = run(&lab.engine, PLAN);
    assert_eq!(view.outcome, Some(Outcome::Succeeded), "{view:#?}");
    assert_eq!(output(&lab.engine, &view, "a"), "complete");
    let called = lab.box_events(&view, "a", "model.called");
    let complete: Vec<bool> =
        called.iter().filter_map(|event| event["fields"]["complete"].as_bool()).collect();
    assert_eq!(complete, [false, true]);
}

#[test]
fn endless_answer_ends_with_a_named_reason() {
    // 20 MiB of text without an end mark; an answer has at most 16 MiB.
    let piece = json!({"type": "content_block_delta", "delta": {"type": "text_delta", "text": "x".repeat(1 << 16)}});
    let piece = format!("data: {piece}\n\n").into_bytes();
    let mut reply = Reply::new(200, Vec::new()).header("content-type", "text/event-stream");
    reply.chunks = vec![piece; 320];
    fails(vec![reply], "too_long", 1);
}
