use belljar_ledger::{
    Actor, AlarmRaised, LedgerRedacted, Moment, RequestDecided, RunCreated, RunEnded, RunExec,
    RunLayers, TraceSpan, WorkspaceApplied,
};

use super::*;

fn entry(event: impl Into<Event>) -> Entry {
    let event = event.into();
    Entry {
        kind: event.kind().to_owned(),
        run: None,
        sequence: 0,
        previous: None,
        actor: Actor::Operator,
        cause: None,
        moment: Moment { time: 0, uptime: 0, boot: [0; 16] },
        fields: event.fields(),
    }
}

#[track_caller]
fn check(event: impl Into<Event>, expect: &str) {
    assert_eq!(words(&entry(event)), expect);
}

fn body(content: &[u8]) -> Body {
    Body::hash_of(content).unwrap()
}

#[test]
fn ledger_events_are_described_on_one_line() {
    let created = RunCreated {
        name: Some("fix".into()),
        template: "default".into(),
        mode: "overlay".into(),
        net: "none".into(),
        policy: Digest::of(&[]),
        workspace: Some(b"/home/me/project".to_vec()),
        record: "hashes".into(),
        command: body(b"bash"),
        environment: Vec::new(),
        limits: Vec::new(),
        purpose: None,
        principal: None,
        tenant: None,
        session: None,
        writable: None,
    };
    check(created.clone(), "fix, template default, overlay, network none, in /home/me/project");
    check(
        RunCreated { name: None, workspace: None, ..created },
        "template default, overlay, network none, without a workspace",
    );
    let layers = RunLayers { in_force: vec!["a".into(), "b".into()], missing: Vec::new() };
    check(layers.clone(), "2 layers in force");
    check(RunLayers { missing: vec!["c".into()], ..layers }, "2 layers in force; missing: c");
    let ended = RunEnded {
        reason: "exited".into(),
        exit: Some(3),
        signal: None,
        wall_micros: 1_250_000,
        cpu_micros: 0,
        peak_memory: None,
        stdin_bytes: 0,
        stdout: Some(body(&[0; 2048])),
        stderr: None,
    };
    check(ended.clone(), "exited with 3 after 1.25 s, stdout 2.0 KiB");
    check(
        RunEnded { exit: None, signal: Some(9), reason: "signaled".into(), stdout: None, ..ended },
        "signaled (signal 9) after 1.25 s",
    );
    let applied = WorkspaceApplied { taken: 2, held_back: 1, error: Some("disk full".into()) };
    check(applied, "2 applied, 1 held back; disk full");
    let redacted = LedgerRedacted { bodies: vec![Digest::of(&[])], reason: "private".into() };
    check(redacted, "1 body dropped: private");
    let request = RequestDecided {
        method: "GET".into(),
        scheme: "https".into(),
        host: "api.example.com".into(),
        port: 443,
        path: "/v1".into(),
        verdict: "allow".into(),
        rule: Some("api".into()),
        reason: "named".into(),
        secrets: vec!["token".into()],
        body: None,
        upgrade: None,
    };
    check(request, "allow GET https://api.example.com:443/v1, with secret token (named, rule api)");
    let span = TraceSpan {
        trace: String::new(),
        span: String::new(),
        parent: None,
        name: "step".into(),
        start: 5_000_000,
        end: 7_000_000,
        status: "ok".into(),
        attributes: body(b""),
    };
    check(span.clone(), "step, 2 ms, ok");
    check(TraceSpan { start: 9, end: 1, ..span }, "step, 0 µs, ok"); // the clock was set back
}

#[test]
fn f13_description_of_an_event_contains_no_control_characters() {
    let hostile = b"\x1b[2J\0\xff\x9b\xe2\x80\xa8\xe2\x80\xae\r\nevil\xc2\x9d\xe2\x80\x8b\\";
    let expect = r"\x1b[2J\x00\xff\x9b\u{2028}\u{202e}\r\nevil\u{9d}\u{200b}\\";
    check(RunExec { program: hostile.to_vec() }, expect);
    let text = String::from_utf8_lossy(hostile).into_owned();
    let alarm = AlarmRaised { alarm: text.clone(), detail: text.clone() };
    let mut unknown = entry(RunExec { program: hostile.to_vec() });
    unknown.kind = "of.the.future".to_owned();
    unknown.fields.set("text", Value::Text(text));
    unknown.fields.set("list", Value::List(vec![hostile.to_vec(), Vec::new()]));
    unknown.fields.set("truth", Value::Truth(true));
    unknown.fields.set("none", Value::List(Vec::new()));
    for text in [words(&entry(alarm)), words(&unknown)] {
        assert_eq!(text, display::safe_line(&text), "nothing is left to escape");
        assert!(text.contains(r"\x1b[2J\x00"), "{text}");
    }
    assert!(words(&unknown).ends_with("truth=yes"), "{}", words(&unknown));
}

#[test]
fn description_of_an_event_cuts_a_long_text_between_two_characters() {
    for character in ["x", "é", "\u{2028}", "😀", "\u{1b}"] {
        for shift in 0..4 {
            let text =
                format!("{}{}", "a".repeat(shift), character.repeat(60_000 / character.len()));
            let shown = words(&entry(RunExec { program: text.clone().into_bytes() }));
            let kept = shown.strip_suffix('…').expect("an ellipsis");
            assert!(display::safe(&text).starts_with(kept), "{character} {shift}: {kept}");
            assert!(shown.len() < 1024, "{}", shown.len());
        }
    }
    let whole = "é".repeat(SHORT / 2);
    check(RunExec { program: whole.clone().into_bytes() }, &whole);
}

#[test]
fn size_formats_bytes_with_a_binary_unit() {
    let texts = [0, 1023, 1024, 1536, 1 << 20, (1 << 30) - 1, u64::MAX].map(size);
    assert_eq!(texts, ["0 B", "1023 B", "1.0 KiB", "1.5 KiB", "1.0 MiB", "1023.9 MiB", "15.9 EiB"]);
}
