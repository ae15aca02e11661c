use belljar_ledger::{
    Actor, Body, Moment, RequestDecided, RequestFinished, RunCreated, RunEnded, RunExec, SecretUsed,
};

use super::*;

const RUN: &str = "0000000000000001";

fn recorded(index: u64, time: u64, cause: Option<u64>, event: impl Into<Event>) -> Recorded {
    let event = event.into();
    let entry = Entry {
        kind: event.kind().to_owned(),
        run: Some(RUN.parse().unwrap()),
        sequence: index,
        previous: None,
        actor: Actor::Supervisor,
        cause,
        moment: Moment { time, uptime: 0, boot: [0; 16] },
        fields: event.fields(),
    };
    Recorded { index, hash: Digest::of(&[&index.to_be_bytes()]), entry }
}

fn created() -> RunCreated {
    RunCreated {
        name: Some("fix".into()),
        template: "default".into(),
        mode: "overlay".into(),
        net: "restricted".into(),
        policy: Digest::of(&[]),
        workspace: Some(b"/tmp/\xff".to_vec()),
        record: "hashes".into(),
        command: Body::hash_of(b"bash").unwrap(),
        environment: vec!["HOME".into()],
        limits: Vec::new(),
        purpose: None,
        principal: None,
        tenant: None,
        session: None,
        writable: None,
    }
}

fn ended(exit: u64) -> RunEnded {
    RunEnded {
        reason: "exited".into(),
        exit: Some(exit),
        signal: None,
        wall_micros: 1,
        cpu_micros: 1,
        peak_memory: Some(u64::MAX),
        stdin_bytes: 0,
        stdout: None,
        stderr: None,
    }
}

fn request(verdict: &str) -> RequestDecided {
    RequestDecided {
        method: "GET".into(),
        scheme: "https".into(),
        host: "api.example.com".into(),
        port: 443,
        path: "/".into(),
        verdict: verdict.into(),
        rule: None,
        reason: "named".into(),
        secrets: Vec::new(),
        body: None,
        upgrade: None,
    }
}

fn finished() -> RequestFinished {
    RequestFinished {
        status: Some(200),
        sent_bytes: 1,
        received_bytes: 2,
        micros: 3,
        body: None,
        error: None,
    }
}

fn spans(events: &[Recorded]) -> Vec<Json> {
    let trace = trace(events).expect("a trace");
    trace["resourceSpans"][0]["scopeSpans"][0]["spans"].as_array().expect("spans").clone()
}

fn value<'a>(span: &'a Json, key: &str) -> &'a Json {
    let all = span["attributes"].as_array().expect("attributes");
    &all.iter().find(|attribute| attribute["key"] == key).expect(key)["value"]
}

#[test]
fn trace_has_a_root_span_for_the_run_and_a_child_span_for_each_intent() {
    let events = [
        recorded(10, 100, None, created()),
        recorded(11, 110, Some(10), RunExec { program: b"/bin/bash".to_vec() }),
        recorded(12, 120, Some(11), request("allow")),
        recorded(
            13,
            125,
            Some(12),
            SecretUsed { name: "token".into(), slot: "bearer".into(), host: "h".into() },
        ),
        recorded(14, 130, Some(12), finished()),
        recorded(15, 140, Some(10), request("deny")),
        recorded(16, 150, Some(10), ended(0)),
    ];
    let spans = spans(&events);
    assert_eq!(spans.len(), 2);
    let (root, child) = (&spans[0], &spans[1]);
    let trace = &Digest::of(&[RUN.as_bytes()]).to_string()[..32];
    assert_eq!((&root["traceId"], &child["traceId"]), (&json!(trace), &json!(trace)));
    assert_eq!(root["spanId"].as_str().unwrap().len(), 16);
    assert_eq!(root["parentSpanId"], Json::Null);
    assert_eq!(child["parentSpanId"], root["spanId"]);
    assert_eq!((&root["name"], &child["name"]), (&json!("run fix"), &json!("GET api.example.com")));
    assert_eq!(
        (&root["startTimeUnixNano"], &root["endTimeUnixNano"]),
        (&json!("100"), &json!("150"))
    );
    assert_eq!(
        (&child["startTimeUnixNano"], &child["endTimeUnixNano"]),
        (&json!("120"), &json!("130"))
    );
    assert_eq!((&root["kind"], &child["kind"]), (&json!(1), &json!(3)));
    assert_eq!(root["status"], json!({ "code": 1 }));
    let names = |span: &Json| -> Vec<String> {
        let events = span["events"].as_array().unwrap();
        events.iter().map(|event| event["name"].as_str().unwrap().to_owned()).collect()
    };
    assert_eq!(names(root), ["run.exec", "request.decided"], "a denied request is no span");
    assert_eq!(names(child), ["secret.used"]);
    assert_eq!(root["events"][0]["timeUnixNano"], "110");
    assert_eq!(value(child, "http.response.status_code"), &json!({ "intValue": "200" }));
    assert_eq!(value(root, "belljar.run.created.workspace"), &json!({ "bytesValue": "L3RtcC//" }));
    let environment = json!({ "arrayValue": { "values": [{ "stringValue": "HOME" }] } });
    assert_eq!(value(root, "belljar.run.created.environment"), &environment);
    assert_eq!(value(root, "belljar.run.created.command.size"), &json!({ "intValue": "4" }));
    let peak = json!({ "stringValue": u64::MAX.to_string() });
    assert_eq!(value(root, "belljar.run.ended.peak_memory"), &peak);
}

#[test]
fn spans_without_an_outcome_are_errors_and_no_span_ends_before_it_starts() {
    let events = [
        recorded(0, 100, None, created()),
        recorded(1, 90, Some(0), request("allow")),
        recorded(2, 80, Some(0), request("allow")),
        recorded(3, 70, Some(2), finished()),
    ];
    let spans = spans(&events);
    assert_eq!(spans.len(), 3);
    for span in &spans {
        let nano = |key: &str| span[key].as_str().unwrap().parse::<u64>().unwrap();
        assert!(nano("endTimeUnixNano") >= nano("startTimeUnixNano"), "{span}");
    }
    let codes: Vec<&Json> = spans.iter().map(|span| &span["status"]["code"]).collect();
    assert_eq!(codes, [&json!(2), &json!(2), &Json::Null]);
    assert_eq!(trace(&[]), None);
}

#[test]
fn imported_spans_are_exported_with_their_original_ids() {
    let span = TraceSpan {
        trace: "ab".repeat(16),
        span: "cd".repeat(8),
        parent: Some("ef".repeat(8)),
        name: "step".into(),
        start: 5,
        end: 9,
        status: "error: no \u{1b}".into(),
        attributes: Body::hash_of(b"{}").unwrap(),
    };
    let mut imported = recorded(4, 1, None, span);
    imported.entry.run = None;
    let spans = spans(&[imported]);
    assert_eq!(spans.len(), 1);
    assert_eq!(spans[0]["traceId"], "ab".repeat(16));
    assert_eq!(spans[0]["parentSpanId"], "ef".repeat(8));
    assert_eq!(spans[0]["status"], json!({ "code": 2, "message": "no \u{1b}" }));
    assert_eq!(
        (&spans[0]["startTimeUnixNano"], &spans[0]["endTimeUnixNano"]),
        (&json!("5"), &json!("9"))
    );
}
