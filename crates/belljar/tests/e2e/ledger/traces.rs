//! Export of the ledger for other tools, and import of traces: `export` and `import-trace`.

use std::fs;

use serde_json::json;

use super::*;
use crate::lab;

/// The trace id of all spans.
const TRACE_ID: &str = "5b8efff798038103d269b633813fc60c";

/// Returns a span in OTLP JSON, with control characters in its attribute and its status.
fn span(id: u64, parent: Option<u64>, name: &str) -> Value {
    let mut span = json!({
        "traceId": TRACE_ID, "spanId": format!("{id:016x}"), "name": name, "kind": 1,
        "startTimeUnixNano": "1544712660000000000", "endTimeUnixNano": "1544712661000000000",
        "attributes": [{ "key": "text", "value": { "stringValue": "\u{1b}]0;evil\u{7}\u{2028}\0" } }],
        "status": { "code": 2, "message": "it \u{202e}broke" },
    });
    if let Some(parent) = parent {
        span["parentSpanId"] = json!(format!("{parent:016x}"));
    }
    span
}

/// Returns an OTLP JSON document that contains these spans.
fn otlp(spans: &[Value]) -> String {
    json!({ "resourceSpans": [{
        "resource": { "attributes": [] },
        "scopeSpans": [{ "scope": { "name": "lib" }, "spans": spans }],
    }]})
    .to_string()
}

/// Runs an export and returns the spans of all lines of its output.
#[track_caller]
fn spans(program: Program) -> Vec<Value> {
    let lines = objects(program).into_iter();
    lines
        .flat_map(|line| {
            let spans = &line["resourceSpans"][0]["scopeSpans"][0]["spans"];
            spans.as_array().expect("spans").clone()
        })
        .collect()
}

#[test]
fn ledger_export_writes_one_json_object_per_event() {
    let lab = lab();
    let (first, second) = (run(&lab, &["--name", "first"], "true"), run(&lab, &[], "exit 2"));
    let all = objects(ledger(&lab, ["export"]));
    assert_eq!(all, objects(ledger(&lab, ["log", "--json"])));
    assert_eq!(all, objects(ledger(&lab, ["export", "--jsonl"])));
    let event = all.iter().find(|event| event["kind"] == "run.created").unwrap();
    for key in ["index", "hash", "run", "sequence", "kind", "actor", "cause", "time", "fields"] {
        assert!(event.get(key).is_some(), "{key}");
    }
    let of_first = objects(ledger(&lab, ["export", "--run", "first"]));
    assert!(!of_first.is_empty() && of_first.iter().all(|event| event["run"] == first.as_str()));
    let file = lab.dir().join("out.jsonl");
    ledger(&lab, ["export", "--run", &second, "-o", file.to_str().unwrap()]).succeed();
    let lines = fs::read_to_string(&file).unwrap();
    assert_eq!(lines.lines().count(), objects(ledger(&lab, ["export", "--run", &second])).len());
    for (args, about) in [
        (&["--run", "no-such-run"][..], "--run"),
        (&["--otel", "--jsonl"], "--jsonl"),
        (&["--tiles", "x", "--run", "first"], "--run"),
    ] {
        ledger(&lab, ["export"]).args(args).run().fails_with(2, about);
    }
    ledger(&lab, ["export", "-o", "/no/such/dir/x"]).run().fails_with(1, "-o");
    let script = "\"$BELLJAR\" ledger export | head -c 10 > /dev/null; echo ${PIPESTATUS[0]}";
    assert_eq!(lab.program("bash").args(["-c", script]).succeed(), "0");
}

#[test]
fn ledger_export_otel_writes_each_run_as_a_trace() {
    let lab = lab();
    let id = run(&lab, &["--name", "traced"], "echo x > f");
    lab.belljar(["apply", "--yes", &id]).run().expect(0);
    let all = spans(ledger(&lab, ["export", "--otel", "--run", "traced"]));
    let names: Vec<&str> = all.iter().map(|span| span["name"].as_str().unwrap()).collect();
    assert_eq!(names, ["run traced", "workspace.applying"]);
    let (root, apply) = (&all[0], &all[1]);
    assert_eq!(apply["parentSpanId"], root["spanId"]);
    assert_eq!(apply["traceId"], root["traceId"]);
    assert_eq!((&root["status"]["code"], &apply["status"]["code"]), (&json!(1), &json!(1)));
    assert!(!root["events"].as_array().unwrap().is_empty());
    for span in &all {
        let digits = |key: &str| span[key].as_str().unwrap().len();
        assert_eq!((digits("traceId"), digits("spanId")), (32, 16));
        let nanos = |key: &str| span[key].as_str().unwrap().parse::<u64>().unwrap();
        assert!(nanos("startTimeUnixNano") <= nanos("endTimeUnixNano"));
    }
    run(&lab, &[], "true");
    assert_eq!(objects(ledger(&lab, ["export", "--otel"])).len(), 2, "one line per run");
}

#[test]
fn ledger_export_tiles_writes_a_static_transparency_log() {
    let lab = lab();
    run(&lab, &[], "true");
    let dir = lab.dir().join("static");
    ledger(&lab, ["export", "--tiles", dir.to_str().unwrap()]).run().fails_with(0, "root");
    let checkpoint = fs::read_to_string(dir.join("checkpoint")).unwrap();
    let size: u64 = checkpoint.lines().nth(1).unwrap().parse().unwrap();
    let tile = fs::read(dir.join(format!("tile/0/000.p/{size}"))).unwrap();
    assert_eq!(tile.len() as u64, 32 * size);
    assert!(dir.join(format!("tile/entries/000.p/{size}")).exists());
    ledger(&lab, ["export", "--tiles", "/proc/no"]).run().fails_with(1, "--tiles");
}

#[test]
fn imported_trace_is_recorded_and_can_be_exported_again() {
    let lab = lab();
    let file =
        lab.write("trace.json", otlp(&[span(2, Some(1), "child"), span(1, None, "root\u{1b}")]));
    // The import creates the ledger, because none exists yet.
    let report = object(ledger(&lab, ["import-trace", "--json", file.to_str().unwrap()]));
    assert_eq!(report["spans"], 2);
    let events = objects(ledger(&lab, ["log", "--json", "--kind", "trace.span"]));
    assert_eq!(events.len(), 2);
    let (root, child) = (&events[0], &events[1]);
    assert_eq!(root["fields"]["name"], "root\u{1b}", "parents come first");
    assert_eq!((&root["actor"], &child["cause"]), (&json!("importer"), &root["index"]));
    assert_eq!(child["fields"]["parent"], "0000000000000001");
    assert_eq!(root["fields"]["status"], "error: it \u{202e}broke");
    assert_eq!(root["fields"]["attributes"]["kept"], false);
    assert_printable(&ledger(&lab, ["log"]).run().stdout);
    let all = spans(ledger(&lab, ["export", "--otel"]));
    assert_eq!(all.len(), 2);
    assert_eq!(
        (&all[0]["traceId"], &all[0]["spanId"]),
        (&json!(TRACE_ID), &json!("0000000000000001"))
    );
    assert_eq!(all[1]["parentSpanId"], "0000000000000001");
    assert_eq!(all[0]["status"], json!({ "code": 2, "message": "it \u{202e}broke" }));
    // Import of several lines from a pipe, into an existing run, with their bodies.
    let id = run(&lab, &["--name", "agent"], "true");
    let lines = format!("{}\n{}\n", otlp(&[span(7, Some(9), "a")]), otlp(&[span(8, Some(7), "b")]));
    let import = ledger(&lab, ["import-trace", "--run", "agent", "--bodies", "-"]).input(lines);
    import.run().fails_with(0, "recorded 2 spans");
    let events = objects(ledger(&lab, ["log", "--json", "--run", &id, "--kind", "trace.span"]));
    assert_eq!((events.len(), &events[1]["cause"]), (2, &events[0]["index"]));
    let hash = events[0]["fields"]["attributes"]["hash"].as_str().unwrap();
    let kept: Value = serde_json::from_str(&ledger(&lab, ["get", hash]).succeed()).unwrap();
    assert_eq!(kept["span"], span(7, Some(9), "a"));
    assert_eq!(kept["scope"]["name"], "lib");
    ledger(&lab, ["verify", "--deep"]).succeed();
    ledger(&lab, ["verify-receipt", "-"])
        .input(ledger(&lab, ["receipt", &id]).run().stdout)
        .succeed();
}

#[test]
fn import_trace_records_nothing_when_any_span_is_invalid() {
    let lab = lab();
    let import = |text: &[u8]| ledger(&lab, ["import-trace", "-"]).input(text).run();
    let mut bad = span(2, None, "bad");
    bad["traceId"] = json!("zz");
    let duplicate = otlp(&[span(1, None, "a"), span(1, None, "b")]);
    let cycle = otlp(&[span(1, Some(2), "a"), span(2, Some(1), "b")]);
    for (text, about) in [
        (&b""[..], "empty"),
        (b"{", "line 1"),
        (b"\0\xff", "cannot parse as OTLP"),
        (b"{}", "resourceSpans"),
        (otlp(&[span(1, None, "good"), bad]).as_bytes(), "spans[1].traceId"),
        (duplicate.as_bytes(), "twice"),
        (cycle.as_bytes(), "is its own ancestor"),
    ] {
        let ended = import(text);
        ended.fails_with(2, about);
        ended.fails_with(2, "FILE: -");
    }
    ledger(&lab, ["import-trace", "/no/such/file"])
        .run()
        .fails_with(2, "FILE: cannot read /no/such/file");
    ledger(&lab, ["import-trace", "/dev/zero"]).run().fails_with(2, "larger than 64.0 MiB");
    ledger(&lab, ["import-trace"]).run().fails_with(2, "FILE");
    assert!(!lab.state().join("ledger").exists(), "a failed import creates no ledger");
    run(&lab, &[], "true");
    let size = objects(ledger(&lab, ["log", "--json"])).len();
    import(duplicate.as_bytes()).expect(2);
    let file = lab.write("good.json", otlp(&[span(1, None, "a")]));
    let file = file.to_str().unwrap();
    ledger(&lab, ["import-trace", file, "--run", "no-such-run"]).run().fails_with(2, "--run");
    assert_eq!(objects(ledger(&lab, ["log", "--json"])).len(), size);
}
