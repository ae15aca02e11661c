//! `belljar net log` and `net learn`: what a run did on the network, from the record.

use std::fs;
use std::os::unix::fs::{PermissionsExt as _, symlink};

use belljar_ledger::{
    Actor, AlarmRaised, Body, BudgetSpent, Digest, DnsDecided, Draft, Event, Ledger, LedgerPaths,
    Receipt, RequestDecided, RequestFinished, RunCreated, SecretUsed,
};
use belljar_model::RunId;
use belljar_testkit::{Authority, Lab, Program, Signal, Upstream};
use serde_json::{Value, json};

use crate::lab;

/// The record of one run, written as the broker's clerk writes it.
struct Books {
    ledger: Ledger,
    run: RunId,
}

impl Books {
    fn of(lab: &Lab, run: &str) -> Self {
        let ledger = Ledger::open(&LedgerPaths::under(&lab.state())).unwrap();
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

/// The beginning of a tool server's run, as its supervisor records it.
fn created_for_a_tool_server() -> RunCreated {
    RunCreated {
        name: None,
        template: "default".to_owned(),
        mode: "overlay".to_owned(),
        net: "rules".to_owned(),
        policy: Digest::of(&[b"policy"]),
        workspace: None,
        record: "hashes".to_owned(),
        command: Body::hash_of(b"server").unwrap(),
        environment: Vec::new(),
        limits: Vec::new(),
        purpose: Some("tool-server".to_owned()),
        principal: None,
        tenant: None,
        session: None,
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
fn net_log_prints_one_line_per_request() {
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
fn net_log_json_prints_one_object_per_line() {
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
fn f13_net_log_escapes_control_characters_in_names_paths_and_alarms() {
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
fn net_log_follow_ends_with_the_run() {
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
fn net_log_follow_ends_when_the_run_is_killed() {
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

/// The operator's own file.
fn operators_file(lab: &Lab) -> std::path::PathBuf {
    lab.home().join(".config/belljar/belljar.toml")
}

fn write_operators(lab: &Lab, text: &str) -> std::path::PathBuf {
    let file = operators_file(lab);
    fs::create_dir_all(file.parent().unwrap()).unwrap();
    fs::write(&file, text).unwrap();
    file
}

/// A run that wanted things and had them refused.
fn record_wishes(books: &Books) {
    let none = "no-rule: no rule allows it";
    let _index = books.record(dns("api.example.com", "deny", none)).index();
    let _index = books.record(dns("only-a-name.example", "deny", none)).index();
    books.deny("GET", ("api.example.com", 443, "/repos/x"), none);
    books.deny("POST", ("api.example.com", 443, "/repos/x"), "method: not this one");
    for file in 0..6 {
        books.deny("GET", ("files.example", 443, &format!("/pool/{file}.deb")), none);
    }
    books.deny("GET", ("10.1.2.3", 8443, "/"), none);
    let alarm = AlarmRaised { alarm: "placeholder-elsewhere".to_owned(), detail: "x".to_owned() };
    let _index = books.record(alarm).index();
    books.deny("POST", ("evil.example", 443, "/steal"), "placeholder-elsewhere: not there");
    books.deny("POST", ("bad.example", 443, "/"), "denied-by-rule: so said");
}

const LEARNT: &str = r#"
# learnt from run ID of DAY
[[template.default.allow]]
host = "api.example.com"
methods = ["GET", "POST"]
paths = ["/repos/x"]

# learnt from run ID of DAY
[[template.default.allow]]
host = "files.example"
methods = ["GET"]
paths = ["/pool/*"]

# learnt from run ID of DAY
# only its name was asked for, so reading is allowed; run and learn again to narrow it
[[template.default.allow]]
host = "only-a-name.example"
methods = ["GET", "HEAD"]

# learnt from run ID of DAY
# PRIVATE: this opens a machine of your own network
[[template.default.allow]]
host = "10.1.2.3"
ports = [8443]
methods = ["GET"]
paths = ["/"]
"#;

#[test]
fn net_learn_turns_denied_requests_into_the_narrowest_rules() {
    let lab = lab();
    let old = "# mine\n[template.default]\nuser = 1000 # as at home\n";
    let file = write_operators(&lab, old);
    let id = run(&lab, &[]);
    record_wishes(&Books::of(&lab, &id));
    let shown = net(&lab, ["learn"]).run();
    let text = shown.expect(0);
    assert_eq!(fs::read_to_string(&file).unwrap(), old, "it is only shown");
    for part in [
        "--allow 'GET,POST api.example.com/repos/x'",
        "--allow 'GET files.example/pool/*'",
        "--allow 'GET 10.1.2.3:8443/'",
        "--allow 'GET,HEAD only-a-name.example'",
    ] {
        assert!(text.contains(part), "no {part} in {text}");
    }
    assert!(!text.contains("evil.example") && !text.contains("bad.example"), "{text}");
    for part in ["ALARMS: 1", "evil.example:443/steal: it raised an ALARM", "`deny` rule"] {
        assert!(shown.err().contains(part), "no {part} in {}", shown.err());
    }
    // The diff is one that `patch` takes, and gives what `--write` writes.
    let copy = lab.write("copy.toml", old);
    lab.program("patch").arg(&copy).input(text.clone()).succeed();
    net(&lab, ["learn", "--write"]).succeed();
    let written = fs::read_to_string(&file).unwrap();
    assert_eq!(fs::read_to_string(&copy).unwrap(), written);
    let learnt = written.strip_prefix(old).expect("everything else is kept");
    let day = learnt.split(" of ").nth(1).unwrap().get(..10).unwrap();
    assert_eq!(learnt, LEARNT.replace("ID", &id).replace("DAY", day));
    lab.belljar(["template", "check"]).succeed();
    // Once is enough.
    let again = net(&lab, ["learn", "--write"]).run();
    assert_eq!(again.expect(0), "");
    assert!(again.err().contains("allowed by now"), "{}", again.err());
    assert_eq!(fs::read_to_string(&file).unwrap(), written);
    let left: Vec<_> = fs::read_dir(file.parent().unwrap()).unwrap().collect();
    assert_eq!(left.len(), 1, "nothing is left beside it: {left:?}");
}

#[test]
fn net_learn_writes_rules_into_the_chosen_template_and_file() {
    let lab = lab();
    let id = run(&lab, &["--name", "wishes"]);
    let books = Books::of(&lab, &id);
    books.deny("GET", ("a.example", 443, "/x"), "no-rule: none");
    drop(books);
    // No file yet, and none is made without being asked.
    assert!(net(&lab, ["learn", "wishes"]).succeed().starts_with("--- /dev/null"));
    assert!(!operators_file(&lab).exists());
    net(&lab, ["learn", "wishes", "--template", "my.box", "--write"]).succeed();
    let text = fs::read_to_string(operators_file(&lab)).unwrap();
    assert!(text.contains(r#"[[template."my.box".allow]]"#), "{text}");
    // A list of rules gets more of them; a link stays a link, and keeps its mode.
    let real = lab.dir().join("real.toml");
    fs::write(&real, "[template.default]\nallow = [\n  \"pypi\", # for pip\n]\n").unwrap();
    fs::set_permissions(&real, fs::Permissions::from_mode(0o640)).unwrap();
    let link = lab.dir().join("link.toml");
    symlink(&real, &link).unwrap();
    let config = ["--config", link.to_str().unwrap()];
    lab.belljar(config).args(["net", "learn", "--write"]).succeed();
    let text = fs::read_to_string(&real).unwrap();
    assert!(text.contains("\"pypi\",\n    # learnt") && text.contains("# for pip"), "{text}");
    assert!(text.contains("    \"GET a.example/x\",\n"), "{text}");
    assert!(link.symlink_metadata().unwrap().is_symlink());
    assert_eq!(real.metadata().unwrap().permissions().mode() & 0o777, 0o640);
    lab.belljar(config).args(["template", "check"]).succeed();
}

#[test]
fn c08_net_learn_never_writes_the_file_of_a_project() {
    let lab = lab();
    let id = run(&lab, &[]);
    let books = Books::of(&lab, &id);
    books.deny("GET", ("a.example", 443, "/x"), "no-rule: none");
    drop(books);
    let project = lab.write("belljar.toml", "[template.default]\n");
    let config = ["--config", project.to_str().unwrap()];
    let learn = lab.belljar(config).args(["net", "learn", "--write"]);
    learn.run().complains(2, "a project's file");
    // Nor from elsewhere: the run knows whose workspace it had.
    let learn = lab.belljar(config).args(["net", "learn", "--write"]).cwd(lab.home());
    learn.run().complains(2, "a project's file");
    assert_eq!(fs::read_to_string(&project).unwrap(), "[template.default]\n");
    // The operator's own file gets them, and the project's stays as it is.
    net(&lab, ["learn", "--write"]).succeed();
    assert!(operators_file(&lab).exists());
    assert_eq!(fs::read_to_string(&project).unwrap(), "[template.default]\n");
}

#[test]
fn net_learn_turns_requests_of_a_full_network_run_into_rules() {
    let lab = lab();
    let id = run(&lab, &[]);
    let books = Books::of(&lab, &id);
    let full = |path: &str| decided("GET", ("a.example", 443, path), "allow", Some("net full"), "");
    let good = books.record(full("/good"));
    books.finish(&good, answered(200));
    let cut = books.record(full("/cut"));
    let error = Some("a placeholder in the body".to_owned());
    books.finish(&cut, RequestFinished { status: None, error, ..answered(0) });
    let ruled = decided("GET", ("b.example", 443, "/"), "allow", Some("allow b.example"), "");
    let ruled = books.record(ruled);
    books.finish(&ruled, answered(200));
    drop(books);
    let text = net(&lab, ["learn"]).succeed();
    assert!(text.contains("--allow 'GET a.example/good'"), "{text}");
    assert!(!text.contains("/cut") && !text.contains("b.example"), "{text}");
}

const TOKEN: &str = "tok-4f1dB7c0ffee4f1dB7c0ffee";

#[test]
fn net_log_and_net_learn_work_on_the_requests_of_a_real_run() {
    let (lab, authority) = (lab(), Authority::new());
    let upstream = Upstream::echo(&authority, &["api.example.com"]);
    let connect = upstream.address();
    lab.configure_for(
        &authority,
        &format!(
            "[secret.demo]\nhosts = [\"api.example.com\"]\nenv = \"DEMO_TOKEN\"\n\n\
             [[template.default.allow]]\nhost = \"api.example.com\"\nconnect = \"{connect}\"\n\
             methods = [\"GET\"]\npaths = [\"/public/**\"]\nsecrets = [\"demo\"]\n"
        ),
    );
    lab.belljar(["secret", "set", "demo"]).input(TOKEN).succeed();
    let script = "get() { curl -sS -o /dev/null -w '%{http_code}\n' \"$@\"; }
        get -H \"Authorization: Bearer $DEMO_TOKEN\" https://api.example.com/public/a
        get https://api.example.com/private
        get -X POST -d x https://api.example.com/public/b
        get -H \"x-other: $DEMO_TOKEN\" https://api.example.com/public/alarm
        get https://unknown.example/ || true";
    let ended = lab.bash(script).run();
    assert_eq!(ended.expect(0), "200\n403\n403\n403\n000", "{}", ended.err());
    assert_eq!(upstream.received().len(), 1);
    let told = objects(net(&lab, ["log", "--json"]));
    let requests: Vec<String> = told
        .iter()
        .filter(|one| one["type"] == "request")
        .map(|one| format!("{} {} {}", one["verdict"], one["path"], one["status"]).replace('"', ""))
        .collect();
    let expect = [
        "allow /public/a 200",
        "deny /private null",
        "deny /public/b null",
        "deny /public/alarm null",
    ];
    assert_eq!(requests, expect);
    let first = told.iter().find(|one| one["type"] == "request").unwrap();
    assert_eq!(first["secrets"], json!(["demo"]));
    assert!(first["received_bytes"].as_u64() > Some(0) && first["micros"].as_u64() > Some(0));
    let kinds = |kind: &str| told.iter().filter(|one| one["type"] == kind).count();
    assert!(kinds("name") > 0 && kinds("alarm") == 1, "{told:?}");
    let text = net(&lab, ["log"]).run().expect(0);
    assert!(text.contains("secret demo") && !text.contains(TOKEN), "{text}");
    // What it wanted is refused before the rules are learnt, and allowed with them.
    let wishes =
        [("GET", "https://api.example.com/private"), ("POST", "https://api.example.com/public/b")];
    let allowed = |method: &str, url: &str| {
        let explain = net(&lab, ["explain", url, "--method", method, "--json"]);
        explain.run().result()["verdict"] == "allow"
    };
    assert!(wishes.iter().all(|(method, url)| !allowed(method, url)));
    let learnt = net(&lab, ["learn", "--write"]).run();
    assert!(learnt.err().contains("ALARMS: 1"), "{}", learnt.err());
    assert!(!learnt.expect(0).contains("alarm"), "{}", learnt.out());
    assert!(wishes.iter().all(|(method, url)| allowed(method, url)));
    assert!(!allowed("DELETE", wishes[0].1) && !allowed("GET", "https://api.example.com/other"));
    assert!(
        allowed("GET", "https://unknown.example/") && !allowed("POST", "https://unknown.example/")
    );
}

#[test]
fn net_log_shows_tool_server_requests_by_purpose_and_otherwise_counts_them() {
    let lab = lab();
    let own = run(&lab, &[]);
    Books::of(&lab, &own).deny("GET", ("own.example", 443, "/"), "no-rule: no rule");
    let server = format!("{}ffff", &own[..own.len() - 4]);
    assert_ne!(server, own);
    let books = Books::of(&lab, &server);
    let _index = books.record(created_for_a_tool_server()).index();
    books.deny("GET", ("server.example", 443, "/"), "no-rule: no rule");

    let seen = |args: &[&str]| -> Vec<(Value, Value)> {
        let lines = objects(net(&lab, ["log", "--json"]).args(args)).into_iter();
        lines.map(|line| (line["host"].clone(), line["purpose"].clone())).collect()
    };
    let of_run = || (json!("own.example"), json!("run"));
    let of_server = || (json!("server.example"), json!("tool-server"));
    assert_eq!(seen(&["--all"]), [of_run()]);
    assert_eq!(seen(&["--all", "--purpose", "all"]), [of_run(), of_server()]);
    assert_eq!(seen(&["--all", "--purpose", "tool-server"]), [of_server()]);
    assert_eq!(seen(&[]), [of_run()], "the newest run of a user");
    assert_eq!(seen(&["--purpose", "tool-server"]), [of_server()], "the newest of them");
    assert_eq!(seen(&[&server]), [of_server()], "by its id");
    let counted = net(&lab, ["log", "--all"]).run();
    counted.expect(0);
    let note = "1 more of tool servers and clone readers; `--purpose all` shows them";
    assert!(counted.err().contains(note), "{}", counted.err());
    net(&lab, ["log", "--purpose", "clone-reader"])
        .run()
        .complains(2, "no run of this purpose is on record");
    net(&lab, ["log", &own, "--purpose", "run"]).run().complains(2, "cannot be used with");
}
