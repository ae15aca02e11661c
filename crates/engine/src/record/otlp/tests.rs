use serde_json::{Value, json};

use super::*;

fn span(id: u64, parent: u64) -> Value {
    let mut span = json!({
        "traceId": "5B8EFFF798038103D269B633813FC60C",
        "spanId": format!("{id:016X}"),
        "name": format!("span {id}"),
        "kind": 2,
        "startTimeUnixNano": "1544712660000000000",
        "endTimeUnixNano": 1_544_712_661_000_000_000_u64,
        "attributes": [{ "key": "my", "value": { "stringValue": "\u{2028}\0" } }],
    });
    if parent > 0 {
        span["parentSpanId"] = json!(format!("{parent:016x}"));
    }
    span
}

fn file(spans: &[Value]) -> String {
    json!({ "resourceSpans": [{
        "resource": { "attributes": [] },
        "scopeSpans": [{ "scope": { "name": "lib" }, "spans": spans }],
    }]})
    .to_string()
}

#[track_caller]
fn refused(text: &str, expect: &str) {
    let error = read(text.as_bytes()).and_then(|spans| levels(&spans)).expect_err("an error");
    let message = error.to_string();
    assert!(message.contains(expect), "no {expect:?} in {message:?}");
}

#[test]
fn otlp_reader_accepts_one_object_or_one_object_per_line() {
    let one = file(&[span(1, 0), span(2, 1)]);
    let spans = read(one.as_bytes()).unwrap();
    assert_eq!(spans.len(), 2);
    assert_eq!(spans[0].trace, "5b8efff798038103d269b633813fc60c");
    assert_eq!(spans[1].span, "0000000000000002");
    assert_eq!(
        (spans[0].start, spans[0].end),
        (1_544_712_660_000_000_000, 1_544_712_661_000_000_000)
    );
    assert_eq!(
        (spans[0].status.as_str(), spans[0].parent_index, spans[1].parent_index),
        ("unset", None, Some(0))
    );
    let content: Value = serde_json::from_str(&spans[0].content()).unwrap();
    assert_eq!(content["scope"]["name"], "lib");
    assert_eq!(content["span"], span(1, 0));
    // The parent may be on a later line or missing from the file.
    let lines = format!("{}\n{}\n", file(&[span(2, 1), span(3, 9)]), file(&[span(1, 0)]));
    let spans = read(lines.as_bytes()).unwrap();
    assert_eq!(
        spans.iter().map(|span| span.parent_index).collect::<Vec<_>>(),
        [Some(2), None, None]
    );
    assert_eq!(levels(&spans), Ok(vec![vec![1, 2], vec![0]]));
    assert_eq!(spans[1].parent.as_deref(), Some("0000000000000009"));
}

#[test]
fn otlp_reader_accepts_every_spelling_of_a_status_code_and_rejects_unknown_codes() {
    let with = |status: Value| {
        let mut one = span(1, 0);
        one["status"] = status;
        let text = file(&[one]);
        read(text.as_bytes())
            .map(|spans| spans[0].status.clone())
            .map_err(|error| error.to_string())
    };
    assert_eq!(with(json!({})), Ok("unset".into()));
    assert_eq!(with(json!({ "code": 1 })), Ok("ok".into()));
    assert_eq!(
        with(json!({ "code": "STATUS_CODE_ERROR", "message": "no" })),
        Ok("error: no".into())
    );
    assert_eq!(with(json!({ "code": 2, "message": "é".repeat(5000) })).unwrap().len(), 7 + 1024);
    assert!(with(json!({ "code": 7 })).unwrap_err().ends_with("status.code: is not a status code"));
    assert!(with(json!({ "code": "OK" })).unwrap_err().contains("spans[0].status.code"));
}

#[test]
fn errors_in_an_otlp_file_name_the_problem_and_its_location() {
    refused("", "the file is empty");
    refused("\n \n", "the file is empty");
    refused("{", "line 1");
    refused("[]", "cannot parse as OTLP in JSON");
    refused("{}", "object 1: has no `resourceSpans`");
    refused(&format!("{}\n{{}}", file(&[])), "object 2: has no `resourceSpans`");
    refused(&format!("{}\nrubbish", file(&[])), "line 2");
    refused(&file(&[json!({})]), "startTimeUnixNano: is missing");
    refused(&file(&[json!(7)]), "spans[0]");
    let with = |key: &str, value: Value| {
        let mut bad = span(2, 0);
        bad[key] = value;
        file(&[span(1, 0), bad])
    };
    let location = "object 1, resourceSpans[0].scopeSpans[0].spans[1]";
    for (key, value) in [
        ("traceId", json!("0".repeat(32))),
        ("traceId", json!("ab")),
        ("traceId", Value::Null),
        ("spanId", json!("\u{1b}]52;c;\u{7}")),
        ("spanId", json!("é".repeat(8))),
        ("parentSpanId", json!("xyz")),
        ("startTimeUnixNano", json!("-1")),
        ("startTimeUnixNano", json!("+1")),
        ("endTimeUnixNano", json!("99999999999999999999")),
        ("name", json!("x".repeat(MAX_NAME + 1))),
    ] {
        refused(&with(key, value), &format!("{location}.{key}: is"));
    }
    refused(&with("name", json!(7)), location);
    refused(&with("startTimeUnixNano", json!(-1)), location);
    refused(&file(&[span(1, 0), span(1, 0)]), "span 0000000000000001 is in the file twice");
    refused(&file(&[span(1, 2), span(2, 1), span(3, 0)]), "is its own ancestor");
    refused(&file(&[span(1, 1)]), "is its own ancestor");
    let deep: Vec<Value> = (1..=1001).map(|id| span(id, id - 1)).collect();
    refused(&file(&deep), "nested more than 1000 levels deep");
    assert!(levels(&read(file(&deep[..1000]).as_bytes()).unwrap()).is_ok());
    let too_long = json!({ "resourceSpans": [{ "resource": "x".repeat(MAX_SHARED_OBJECT) }] });
    refused(&too_long.to_string(), "resourceSpans[0].resource: is longer");
    let nested = format!("{{\"resourceSpans\":{}", "[".repeat(100_000));
    refused(&nested, "cannot parse as OTLP in JSON");
}

#[test]
fn otlp_reader_rejects_a_file_with_too_many_spans() {
    let one = r#"{"traceId":"5b8efff798038103d269b633813fc60c","spanId":"00000000"#;
    let spans: Vec<String> = (1..=MAX_SPANS + 1)
        .map(|id| format!("{one}{id:08x}\",\"startTimeUnixNano\":\"1\"}}"))
        .collect();
    let text = |spans: &[String]| {
        format!(r#"{{"resourceSpans":[{{"scopeSpans":[{{"spans":[{}]}}]}}]}}"#, spans.join(","))
    };
    refused(&text(&spans), "more than 100000 spans");
    assert_eq!(read(text(&spans[..MAX_SPANS]).as_bytes()).unwrap().len(), MAX_SPANS);
}
