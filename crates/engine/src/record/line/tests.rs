use super::*;
use belljar_ledger::{Actor, Moment};

fn entry(event: impl Into<Event>) -> Entry {
    let event = event.into();
    Entry {
        kind: event.kind().to_owned(),
        run: Some("01kak3q5rzx2m4n6".parse().unwrap()),
        sequence: 3,
        previous: None,
        actor: Actor::Broker,
        cause: None,
        moment: Moment { time: 1_794_783_600_123_000_000, uptime: 0, boot: [0; 16] },
        fields: event.fields(),
    }
}

fn request(verdict: &str, rule: Option<&str>, reason: &str) -> RequestDecided {
    RequestDecided {
        method: "POST".to_owned(),
        scheme: "https".to_owned(),
        host: "api.example.com".to_owned(),
        port: 443,
        path: "/v1/x".to_owned(),
        verdict: verdict.to_owned(),
        rule: rule.map(str::to_owned),
        reason: reason.to_owned(),
        secrets: Vec::new(),
        body: None,
        upgrade: None,
    }
}

fn outcome(status: Option<u64>, error: Option<&str>) -> RequestFinished {
    RequestFinished {
        status,
        sent_bytes: 1234,
        received_bytes: 5 << 20,
        micros: 35_000,
        body: None,
        error: error.map(str::to_owned),
    }
}

fn dns(verdict: &str) -> DnsDecided {
    DnsDecided {
        name: "evil.example".to_owned(),
        query: "A".to_owned(),
        verdict: verdict.to_owned(),
        rule: None,
        reason: "no-rule: no rule names it".to_owned(),
    }
}

fn line(event: impl Into<Event>) -> LedgerLine {
    LedgerLine::of(7, &entry(event)).unwrap()
}

/// Checks the text of a line after its time and run id.
#[track_caller]
fn check(line: &LedgerLine, expect: &str) {
    let text = line.text(false);
    let start = "2026-11-15 23:00:00.123Z  01kak3q5rz  ";
    assert_eq!(text.strip_prefix(start), Some(format!("{expect}\n").as_str()), "{text}");
}

#[test]
fn log_line_shows_verdict_target_outcome_rule_and_secrets() {
    let allowed = RequestDecided {
        secrets: vec!["github".to_owned(), "npm".to_owned()],
        ..request("allow", Some("allow api.example.com"), "a rule allows it")
    };
    let open = line(allowed);
    let rule_and_secrets = r#"rule "allow api.example.com"  secret github, npm"#;
    let target = "POST https://api.example.com/v1/x";
    check(&open, &format!("allow  {target}  open  {rule_and_secrets}"));
    let with = |status, error| open.clone().finished(&entry(outcome(status, error)));
    let bytes = "out 1.2 KiB, in 5.0 MiB, 35 ms";
    check(&with(Some(200), None), &format!("allow  {target}  200  {bytes}  {rule_and_secrets}"));
    check(&with(None, None), &format!("allow  {target}  closed  {bytes}  {rule_and_secrets}"));
    check(
        &with(None, Some("late")),
        &format!("allow  {target}  late  {bytes}  {rule_and_secrets}"),
    );
    check(
        &with(Some(200), Some("cut")),
        &format!("allow  {target}  200, cut  {bytes}  {rule_and_secrets}"),
    );
    let denied = line(request("deny", None, "no-rule: no rule allows it"));
    check(&denied, &format!("deny   {target}  no-rule: no rule allows it"));
    let by_rule = line(request("deny", Some("no uploads"), "denied-by-rule: a rule denies it"));
    check(
        &by_rule,
        &format!("deny   {target}  denied-by-rule: a rule denies it  rule \"no uploads\""),
    );
    check(&line(dns("deny")), "deny   DNS A evil.example  no-rule: no rule names it");
    let alarm = AlarmRaised { alarm: "placeholder".to_owned(), detail: "in the body".to_owned() };
    check(&line(alarm), "ALARM  placeholder: in the body");
    let (budget, unit) = ("run".to_owned(), "requests".to_owned());
    check(
        &line(BudgetSpent { budget, unit, amount: 3, total: 9 }),
        "spent  run: 3 requests, 9 in total",
    );
}

#[test]
fn request_target_shows_the_port_unless_it_is_the_default_of_the_scheme() {
    let to = |scheme: &str, port, path: &str| {
        let (scheme, path) = (scheme.to_owned(), path.to_owned());
        target(&RequestDecided { scheme, port, path, ..request("allow", None, "") })
    };
    assert_eq!(to("http", 80, "/"), "POST http://api.example.com/");
    assert_eq!(to("http", 443, "/"), "POST http://api.example.com:443/");
    assert_eq!(to("https", 8443, "/"), "POST https://api.example.com:8443/");
    assert_eq!(to("tcp", 5432, ""), "POST tcp://api.example.com:5432");
}

#[test]
fn other_events_have_no_log_line_and_an_unknown_verdict_counts_as_denied() {
    assert_eq!(LedgerLine::of(7, &entry(dns("allow"))), None);
    assert_eq!(LedgerLine::of(7, &entry(outcome(Some(200), None))), None);
    assert!(line(request("perhaps", None, "")).is_denied());
    let alarm = line(AlarmRaised { alarm: String::new(), detail: String::new() });
    assert!(alarm.is_denied(), "`--denied` shows alarms");
    let untouched = alarm.clone().finished(&entry(outcome(Some(200), None)));
    assert_eq!(untouched, alarm);
}

#[test]
fn json_line_has_the_same_fields_for_every_outcome_of_a_request() {
    let open = line(request("allow", Some("api"), "a rule allows it"));
    let finished = open.clone().finished(&entry(outcome(Some(204), None)));
    let denied = line(request("deny", None, "no-rule: no rule allows it"));
    let keys = |line: &LedgerLine| -> Vec<String> {
        line.json().as_object().unwrap().keys().cloned().collect()
    };
    assert_eq!(keys(&open), keys(&finished));
    assert_eq!(keys(&open), keys(&denied));
    assert_eq!(
        finished.json(),
        json!({
            "type": "request", "index": 7, "run": "01kak3q5rzx2m4n6",
            "time": "2026-11-15T23:00:00.123000000Z", "verdict": "allow", "method": "POST",
            "scheme": "https", "host": "api.example.com", "port": 443, "path": "/v1/x",
            "rule": "api", "reason": "a rule allows it", "secrets": [], "state": "finished",
            "status": 204, "sent_bytes": 1234, "received_bytes": 5_242_880, "micros": 35_000,
            "error": null,
        })
    );
    assert_eq!(line(dns("deny")).json()["type"], "name");
    assert_eq!(open.json()["state"], "open");
    assert_eq!(denied.json()["state"], "denied");
}

#[test]
fn f13_log_line_escapes_control_characters_in_text_from_boxes_and_servers() {
    let evil = "\u{1b}]0;evil\u{7}\u{202e}\u{2028}\0\n".to_owned();
    let request = RequestDecided {
        method: evil.clone(),
        scheme: evil.clone(),
        host: evil.clone(),
        path: evil.clone(),
        rule: Some(evil.clone()),
        secrets: vec![evil.clone()],
        ..request("deny", None, &evil)
    };
    let allowed = RequestDecided { verdict: "allow".to_owned(), ..request.clone() };
    let lines = [
        line(request),
        line(allowed.clone()),
        line(allowed).finished(&entry(outcome(None, Some(&evil)))),
        line(DnsDecided {
            name: evil.clone(),
            query: evil.clone(),
            rule: Some(evil.clone()),
            reason: evil.clone(),
            ..dns("deny")
        }),
        line(AlarmRaised { alarm: evil.clone(), detail: evil.clone() }),
        line(BudgetSpent { budget: evil.clone(), unit: evil.clone(), amount: 0, total: 0 }),
    ];
    for line in lines {
        let text = line.text(false);
        let body = text.strip_suffix('\n').unwrap();
        assert!(body.bytes().all(|byte| matches!(byte, b' '..=b'~')), "{text}");
    }
}
