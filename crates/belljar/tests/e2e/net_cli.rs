//! `belljar net log` and `net learn`: what a run did on the network, from the record.

use belljar_ledger::{
    Actor, AlarmRaised, BudgetSpent, DnsDecided, Draft, Event, Ledger, Places, Receipt,
    RequestDecided, RequestFinished, SecretUsed,
};
use belljar_model::RunId;
use belljar_testkit::{Lab, Program, Signal};
use serde_json::{Value, json};

use crate::lab;

/// The record of one run, written as the broker's clerk writes it.
struct Books {
    ledger: Ledger,
    run: RunId,
}

impl Books {
    fn of(lab: &Lab, run: &str) -> Self {
        let ledger = Ledger::open(&Places::under(&lab.state())).unwrap();
        Self { ledger, run: run.parse().unwrap() }
    }

    fn record(&self, event: impl Into<Event>) -> Receipt {
        self.ledger.record(Draft::new(event).of_run(self.run).by(Actor::Broker)).unwrap()
    }

    fn deny(&self, method: &str, url: (&str, u64, &str), reason: &str) {
        let _index = self.record(decided(method, url, "deny", None, reason)).index();
    }

    fn finish(&self, decided: &Receipt, outcome: RequestFinished) {
        let draft = Draft::new(outcome).of_run(self.run).by(Actor::Broker).because_of(decided);
        let _index = self.ledger.record(draft).unwrap().index();
    }
}

fn decided(
    method: &str,
    (host, port, path): (&str, u64, &str),
    verdict: &str,
    rule: Option<&str>,
    reason: &str,
) -> RequestDecided {
    let scheme = if port == 80 { "http" } else { "https" };
    RequestDecided {
        method: method.to_owned(),
        scheme: scheme.to_owned(),
        host: host.to_owned(),
        port,
        path: path.to_owned(),
        verdict: verdict.to_owned(),
        rule: rule.map(str::to_owned),
        reason: reason.to_owned(),
        secrets: Vec::new(),
        body: None,
    }
}

fn answered(status: u64) -> RequestFinished {
    RequestFinished {
        status: Some(status),
        sent_bytes: 1500,
        received_bytes: 20,
        micros: 35_000,
        body: None,
        error: None,
    }
}

fn dns(name: &str, verdict: &str, reason: &str) -> DnsDecided {
    DnsDecided {
        name: name.to_owned(),
        query: "A".to_owned(),
        verdict: verdict.to_owned(),
        rule: None,
        reason: reason.to_owned(),
    }
}

fn net<S: AsRef<std::ffi::OsStr>>(lab: &Lab, args: impl IntoIterator<Item = S>) -> Program {
    lab.belljar(["net"]).args(args)
}

/// A run that did nothing by itself; its id.
#[track_caller]
fn run(lab: &Lab, options: &[&str]) -> String {
    lab.json(options, "true").run().result()["run"].as_str().expect("an id").to_owned()
}

#[track_caller]
fn objects(program: Program) -> Vec<Value> {
    let out = program.succeed();
    out.lines().map(|line| serde_json::from_str(line).expect("one object per line")).collect()
}

/// One of everything.
fn record_a_day(books: &Books, hostile: &str) {
    let _index = books.record(dns("api.example.com", "allow", "a rule names it")).index();
    let asked = books.record(RequestDecided {
        secrets: vec!["github".to_owned()],
        ..decided("POST", ("api.example.com", 443, "/v1/x"), "allow", Some("allow api"), "so")
    });
    let used = SecretUsed {
        name: "github".to_owned(),
        slot: "header:authorization".to_owned(),
        host: "api.example.com".to_owned(),
    };
    let _index = books.record(used).index();
    let open = decided("GET", ("slow.example", 8443, "/"), "allow", Some("allow slow"), "so");
    let _index = books.record(open).index();
    books.finish(&asked, answered(201));
    let _index = books.record(dns(hostile, "deny", "no-rule: no rule names it")).index();
    books.deny("DELETE", ("api.example.com", 443, hostile), "method: not this one");
    let alarm =
        AlarmRaised { alarm: "placeholder-elsewhere".to_owned(), detail: hostile.to_owned() };
    let _index = books.record(alarm).index();
    let (budget, unit) = ("run".to_owned(), "tokens".to_owned());
    let _index = books.record(BudgetSpent { budget, unit, amount: 12, total: 30 }).index();
}

#[test]
fn every_request_has_one_line() {
    let lab = lab();
    net(&lab, ["log"]).run().complains(2, "no ledger yet");
    let other = run(&lab, &[]);
    let id = run(&lab, &["--name", "day"]);
    record_a_day(&Books::of(&lab, &id), "evil");
    // The newest run unless another is named, by its name, its id or the beginning of it.
    let ended = net(&lab, ["log"]).run();
    let text = ended.expect(0);
    let lines: Vec<&str> = text.lines().map(|line| &line[24..]).collect();
    let start = format!("  {}  ", &id[..10]);
    let expect = [
        r#"allow  POST https://api.example.com/v1/x  201  out 1.4 KiB, in 20 B, 35 ms  rule "allow api"  secret github"#,
        r#"allow  GET https://slow.example:8443/  open  rule "allow slow""#,
        "deny   DNS A evil  no-rule: no rule names it",
        "deny   DELETE https://api.example.comevil  method: not this one",
        "ALARM  placeholder-elsewhere: evil",
        "spent  run: 12 tokens, 30 in all",
    ]
    .map(|line| format!("{start}{line}"));
    assert_eq!(lines, expect);
    assert!(ended.err().contains(&format!("belljar net learn {id}")), "{}", ended.err());
    for named in ["day", &id, &id[..12]] {
        assert_eq!(net(&lab, ["log", named]).run().expect(0), text);
    }
    assert_eq!(net(&lab, ["log", "--all"]).run().expect(0), text);
    assert_eq!(net(&lab, ["log", &other]).run().expect(0), "");
    net(&lab, ["log", "no-such-run"]).run().complains(2, "no such run");
    net(&lab, ["log", "--since", "soon"]).run().complains(2, "--since");
    assert_eq!(net(&lab, ["log", "--since", "0s"]).run().expect(0), "");
    assert_eq!(net(&lab, ["log", "--since", "1h"]).run().expect(0), text);
    let denied = net(&lab, ["log", "--denied"]).run().expect(0);
    let denied: Vec<&str> = denied.lines().map(|line| &line[24..]).collect();
    assert_eq!(denied, expect[2..5]);
}

#[test]
fn programs_get_one_object_per_line() {
    let lab = lab();
    let id = run(&lab, &[]);
    record_a_day(&Books::of(&lab, &id), "evil");
    let told = objects(net(&lab, ["log", "--json"]));
    let kinds: Vec<(&Value, &Value)> =
        told.iter().map(|one| (&one["type"], &one["state"])).collect();
    let (request, none) = (json!("request"), Value::Null);
    let expect = [
        (&request, &json!("finished")),
        (&request, &json!("open")),
        (&json!("name"), &none),
        (&request, &json!("denied")),
        (&json!("alarm"), &none),
        (&json!("budget"), &none),
    ];
    assert_eq!(kinds, expect);
    let first = &told[0];
    assert_eq!((&first["run"], &first["status"]), (&json!(id), &json!(201)));
    assert_eq!((&first["secrets"], &first["sent_bytes"]), (&json!(["github"]), &json!(1500)));
    // The index leads to the event.
    let shown = lab.belljar(["ledger", "show", "--json", &first["index"].to_string()]);
    assert_eq!(shown.run().result()["fields"]["path"], "/v1/x");
    assert_eq!(objects(net(&lab, ["log", "--json", "--denied"])).len(), 3);
}

#[test]
fn f13_no_name_path_or_alarm_steers_a_terminal() {
    let lab = lab();
    let id = run(&lab, &[]);
    let hostile = "\u{1b}]0;evil\u{7}\u{202e}\u{2028}\0\n/x";
    record_a_day(&Books::of(&lab, &id), hostile);
    for args in [&["log"][..], &["log", "--json"], &["log", "--denied"]] {
        let ended = net(&lab, args).run();
        for byte in ended.expect(0).bytes().chain(ended.err().bytes()) {
            assert!(matches!(byte, b' '..=b'~' | b'\n'), "{args:?}: {byte:#x}");
        }
        assert!(ended.out().contains("evil"));
    }
}

#[test]
fn following_ends_with_the_run() {
    let lab = lab();
    let mut box_ = lab.json(&["--name", "live"], "read line").open_input().start();
    belljar_testkit::eventually("the run is on record", || {
        lab.belljar(["ledger", "log", "--kind", "run.exec"]).run().out().contains("run.exec")
    });
    let live = net(&lab, ["log", "live", "--follow"]).start();
    let all = net(&lab, ["log", "--all", "--follow", "--json"]).start();
    let id = lab.runs()[0].file_name().unwrap().to_str().unwrap().to_owned();
    let books = Books::of(&lab, &id);
    let asked =
        books.record(decided("GET", ("a.example", 443, "/1"), "allow", Some("allow a"), "so"));
    books.deny("GET", ("b.example", 443, "/2"), "no-rule: none");
    live.says("deny   GET https://b.example/2");
    // It takes long, and is shown before it is finished.
    live.says("GET https://a.example/1  open");
    books.finish(&asked, answered(204));
    live.says("GET https://a.example/1  204");
    let quick =
        books.record(decided("GET", ("a.example", 443, "/3"), "allow", Some("allow a"), "so"));
    books.finish(&quick, answered(200));
    live.says("GET https://a.example/3  200");
    let left = decided("GET", ("a.example", 443, "/left"), "allow", Some("allow a"), "so");
    let _index = books.record(left).index();
    drop(books);
    box_.signal(Signal::TERM);
    belljar_testkit::eventually("the run ended", || box_.ended());
    let shown = live.wait();
    assert_eq!(shown.expect(0).matches("a.example/3").count(), 1, "one line: {}", shown.out());
    assert!(shown.out().contains("a.example/left  open"), "{}", shown.out());
    all.says("\"/left\"");
    all.signal(Signal::INT);
    assert_eq!(all.wait().code(), 130);
    // Of a run that is over, everything is there at once.
    assert!(net(&lab, ["log", "live", "--follow"]).succeed().contains("a.example/3  200"));
}

#[test]
fn following_ends_when_the_run_was_killed() {
    let lab = lab();
    let box_ = lab.json(&[], "read line").open_input().start();
    belljar_testkit::eventually("the run is on record", || {
        lab.belljar(["ledger", "log", "--kind", "run.exec"]).run().out().contains("run.exec")
    });
    let live = net(&lab, ["log", "--follow"]).start();
    box_.signal(Signal::KILL);
    let _code = box_.wait().code();
    assert_eq!(live.wait().expect(0), "");
}
