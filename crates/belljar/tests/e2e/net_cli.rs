//! `belljar net log` and `belljar net learn`, which read the network events of runs from the ledger.

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

/// Writes network events of one run into the ledger, as the broker does.
struct RunRecorder {
    ledger: Ledger,
    run: RunId,
}

impl RunRecorder {
    /// Opens the ledger of the lab to record events of a run.
    fn of(lab: &Lab, run: &str) -> Self {
        let ledger = Ledger::open(&LedgerPaths::under(&lab.state())).unwrap();
        Self { ledger, run: run.parse().unwrap() }
    }

    /// Records an event of the run in the name of the broker.
    fn record(&self, event: impl Into<Event>) -> Receipt {
        self.ledger.record(Draft::new(event).of_run(self.run).by(Actor::Broker)).unwrap()
    }

    /// Records a denied request.
    fn deny(&self, method: &str, url: (&str, u64, &str), reason: &str) {
        let _index = self.record(decided(method, url, "deny", None, reason)).index();
    }

    /// Records the outcome of an allowed request.
    fn finish(&self, decided: &Receipt, outcome: RequestFinished) {
        let draft = Draft::new(outcome).of_run(self.run).by(Actor::Broker).because_of(decided);
        let _index = self.ledger.record(draft).unwrap().index();
    }
}

/// Returns the event of a decision about a request to a host, port and path.
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
        upgrade: None,
    }
}

/// Returns the event of a request that ended with this HTTP status.
fn finished(status: u64) -> RequestFinished {
    RequestFinished {
        status: Some(status),
        sent_bytes: 1500,
        received_bytes: 20,
        micros: 35_000,
        body: None,
        error: None,
    }
}

/// Returns the event of a decision about a DNS lookup.
fn dns(name: &str, verdict: &str, reason: &str) -> DnsDecided {
    DnsDecided {
        name: name.to_owned(),
        query: "A".to_owned(),
        verdict: verdict.to_owned(),
        rule: None,
        reason: reason.to_owned(),
    }
}

/// Returns the `run.created` event of the run of a tool server.
fn tool_server_created() -> RunCreated {
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
        writable: None,
    }
}

/// Returns the program `belljar net` with these arguments.
fn net<S: AsRef<std::ffi::OsStr>>(lab: &Lab, args: impl IntoIterator<Item = S>) -> Program {
    lab.belljar(["net"]).args(args)
}

/// Runs `true` in a box and returns the id of the run.
#[track_caller]
fn run(lab: &Lab, options: &[&str]) -> String {
    lab.json(options, "true").run().result()["run"].as_str().expect("an id").to_owned()
}

/// Runs a command that must succeed and returns the JSON objects that it writes, one per line.
#[track_caller]
fn objects(program: Program) -> Vec<Value> {
    let out = program.succeed();
    out.lines().map(|line| serde_json::from_str(line).expect("one object per line")).collect()
}

/// Records one network event of each kind. `hostile` is used as a name, a path and a text.
fn record_each_kind(recorder: &RunRecorder, hostile: &str) {
    let _index = recorder.record(dns("api.example.com", "allow", "a rule names it")).index();
    let allowed = recorder.record(RequestDecided {
        secrets: vec!["github".to_owned()],
        ..decided("POST", ("api.example.com", 443, "/v1/x"), "allow", Some("allow api"), "so")
    });
    let used = SecretUsed {
        name: "github".to_owned(),
        slot: "header:authorization".to_owned(),
        host: "api.example.com".to_owned(),
    };
    let _index = recorder.record(used).index();
    let open = decided("GET", ("slow.example", 8443, "/"), "allow", Some("allow slow"), "so");
    let _index = recorder.record(open).index();
    recorder.finish(&allowed, finished(201));
    let _index = recorder.record(dns(hostile, "deny", "no-rule: no rule names it")).index();
    recorder.deny("DELETE", ("api.example.com", 443, hostile), "method: not this one");
    let alarm =
        AlarmRaised { alarm: "placeholder-elsewhere".to_owned(), detail: hostile.to_owned() };
    let _index = recorder.record(alarm).index();
    let (budget, unit) = ("run".to_owned(), "tokens".to_owned());
    let _index = recorder.record(BudgetSpent { budget, unit, amount: 12, total: 30 }).index();
}

#[test]
fn net_log_prints_one_line_per_request() {
    let lab = lab();
    net(&lab, ["log"]).run().fails_with(2, "no ledger yet");
    let other = run(&lab, &[]);
    let id = run(&lab, &["--name", "day"]);
    record_each_kind(&RunRecorder::of(&lab, &id), "evil");
    // The newest run is shown unless a run is given by its name, its id or a prefix of its id.
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
        "spent  run: 12 tokens, 30 in total",
    ]
    .map(|line| format!("{start}{line}"));
    assert_eq!(lines, expect);
    assert!(ended.err().contains(&format!("belljar net learn {id}")), "{}", ended.err());
    for named in ["day", &id, &id[..12]] {
        assert_eq!(net(&lab, ["log", named]).run().expect(0), text);
    }
    assert_eq!(net(&lab, ["log", "--all"]).run().expect(0), text);
    assert_eq!(net(&lab, ["log", &other]).run().expect(0), "");
    net(&lab, ["log", "no-such-run"]).run().fails_with(2, "no such run");
    net(&lab, ["log", "--since", "soon"]).run().fails_with(2, "--since");
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
    record_each_kind(&RunRecorder::of(&lab, &id), "evil");
    let lines = objects(net(&lab, ["log", "--json"]));
    let kinds: Vec<(&Value, &Value)> =
        lines.iter().map(|line| (&line["type"], &line["state"])).collect();
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
    let first = &lines[0];
    assert_eq!((&first["run"], &first["status"]), (&json!(id), &json!(201)));
    assert_eq!((&first["secrets"], &first["sent_bytes"]), (&json!(["github"]), &json!(1500)));
    // The index is the index of the event in the ledger.
    let shown = lab.belljar(["ledger", "show", "--json", &first["index"].to_string()]);
    assert_eq!(shown.run().result()["fields"]["path"], "/v1/x");
    assert_eq!(objects(net(&lab, ["log", "--json", "--denied"])).len(), 3);
}

#[test]
fn f13_net_log_escapes_control_characters_in_names_paths_and_alarms() {
    let lab = lab();
    let id = run(&lab, &[]);
    let hostile = "\u{1b}]0;evil\u{7}\u{202e}\u{2028}\0\n/x";
    record_each_kind(&RunRecorder::of(&lab, &id), hostile);
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
    let mut boxed = lab.json(&["--name", "live"], "read line").open_input().start();
    belljar_testkit::eventually("the start of the program is recorded", || {
        lab.belljar(["ledger", "log", "--kind", "run.exec"]).run().out().contains("run.exec")
    });
    let live = net(&lab, ["log", "live", "--follow"]).start();
    let all = net(&lab, ["log", "--all", "--follow", "--json"]).start();
    let id = lab.runs()[0].file_name().unwrap().to_str().unwrap().to_owned();
    let recorder = RunRecorder::of(&lab, &id);
    let slow =
        recorder.record(decided("GET", ("a.example", 443, "/1"), "allow", Some("allow a"), "so"));
    recorder.deny("GET", ("b.example", 443, "/2"), "no-rule: none");
    live.wait_for_output("deny   GET https://b.example/2");
    // A request that takes long is shown before it has finished.
    live.wait_for_output("GET https://a.example/1  open");
    recorder.finish(&slow, finished(204));
    live.wait_for_output("GET https://a.example/1  204");
    let quick =
        recorder.record(decided("GET", ("a.example", 443, "/3"), "allow", Some("allow a"), "so"));
    recorder.finish(&quick, finished(200));
    live.wait_for_output("GET https://a.example/3  200");
    let unfinished = decided("GET", ("a.example", 443, "/left"), "allow", Some("allow a"), "so");
    let _index = recorder.record(unfinished).index();
    drop(recorder);
    boxed.signal(Signal::TERM);
    belljar_testkit::eventually("the run ended", || boxed.ended());
    let shown = live.wait();
    assert_eq!(shown.expect(0).matches("a.example/3").count(), 1, "one line: {}", shown.out());
    assert!(shown.out().contains("a.example/left  open"), "{}", shown.out());
    all.wait_for_output("\"/left\"");
    all.signal(Signal::INT);
    assert_eq!(all.wait().code(), 130);
    // For a run that has ended, all lines are printed at once.
    assert!(net(&lab, ["log", "live", "--follow"]).succeed().contains("a.example/3  200"));
}

#[test]
fn net_log_follow_ends_when_the_run_is_killed() {
    let lab = lab();
    let boxed = lab.json(&[], "read line").open_input().start();
    belljar_testkit::eventually("the start of the program is recorded", || {
        lab.belljar(["ledger", "log", "--kind", "run.exec"]).run().out().contains("run.exec")
    });
    let live = net(&lab, ["log", "--follow"]).start();
    boxed.signal(Signal::KILL);
    let _code = boxed.wait().code();
    assert_eq!(live.wait().expect(0), "");
}

/// Returns the path of the operator's configuration file.
fn operator_config_path(lab: &Lab) -> std::path::PathBuf {
    lab.home().join(".config/belljar/belljar.toml")
}

/// Writes the operator's configuration file and returns its path.
fn write_operator_config(lab: &Lab, text: &str) -> std::path::PathBuf {
    let file = operator_config_path(lab);
    fs::create_dir_all(file.parent().unwrap()).unwrap();
    fs::write(&file, text).unwrap();
    file
}

/// Records denied requests and lookups of all kinds, and one alarm.
fn record_denied_requests(recorder: &RunRecorder) {
    let none = "no-rule: no rule allows it";
    let _index = recorder.record(dns("api.example.com", "deny", none)).index();
    let _index = recorder.record(dns("only-a-name.example", "deny", none)).index();
    recorder.deny("GET", ("api.example.com", 443, "/repos/x"), none);
    recorder.deny("POST", ("api.example.com", 443, "/repos/x"), "method: not this one");
    for file in 0..6 {
        recorder.deny("GET", ("files.example", 443, &format!("/pool/{file}.deb")), none);
    }
    recorder.deny("GET", ("10.1.2.3", 8443, "/"), none);
    let alarm = AlarmRaised { alarm: "placeholder-elsewhere".to_owned(), detail: "x".to_owned() };
    let _index = recorder.record(alarm).index();
    recorder.deny("POST", ("evil.example", 443, "/steal"), "placeholder-elsewhere: not there");
    recorder.deny("POST", ("bad.example", 443, "/"), "denied-by-rule: so said");
}

/// The rules that `net learn` writes for [`record_denied_requests`].
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
# only the name was resolved, so the rule allows reading; run and learn again to narrow it
[[template.default.allow]]
host = "only-a-name.example"
methods = ["GET", "HEAD"]

# learnt from run ID of DAY
# PRIVATE: this rule opens a machine in your private network
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
    let file = write_operator_config(&lab, old);
    let id = run(&lab, &[]);
    record_denied_requests(&RunRecorder::of(&lab, &id));
    let shown = net(&lab, ["learn"]).run();
    let text = shown.expect(0);
    assert_eq!(fs::read_to_string(&file).unwrap(), old, "without --write the file is not changed");
    for part in [
        "--allow 'GET,POST api.example.com/repos/x'",
        "--allow 'GET files.example/pool/*'",
        "--allow 'GET 10.1.2.3:8443/'",
        "--allow 'GET,HEAD only-a-name.example'",
    ] {
        assert!(text.contains(part), "no {part} in {text}");
    }
    assert!(!text.contains("evil.example") && !text.contains("bad.example"), "{text}");
    for part in ["alarms: 1", "evil.example:443/steal: it raised an ALARM", "`deny` rule"] {
        assert!(shown.err().contains(part), "no {part} in {}", shown.err());
    }
    // `patch` accepts the diff and produces the same file as `--write`.
    let copy = lab.write("copy.toml", old);
    lab.program("patch").arg(&copy).input(text.clone()).succeed();
    net(&lab, ["learn", "--write"]).succeed();
    let written = fs::read_to_string(&file).unwrap();
    assert_eq!(fs::read_to_string(&copy).unwrap(), written);
    let learnt = written.strip_prefix(old).expect("the rest of the file is kept");
    let day = learnt.split(" of ").nth(1).unwrap().get(..10).unwrap();
    assert_eq!(learnt, LEARNT.replace("ID", &id).replace("DAY", day));
    lab.belljar(["template", "check"]).succeed();
    // A second time there is nothing to add.
    let again = net(&lab, ["learn", "--write"]).run();
    assert_eq!(again.expect(0), "");
    assert!(again.err().contains("the rules already allow"), "{}", again.err());
    assert_eq!(fs::read_to_string(&file).unwrap(), written);
    let entries: Vec<_> = fs::read_dir(file.parent().unwrap()).unwrap().collect();
    assert_eq!(entries.len(), 1, "no temporary file is left: {entries:?}");
}

#[test]
fn net_learn_writes_rules_into_the_chosen_template_and_file() {
    let lab = lab();
    let id = run(&lab, &["--name", "wishes"]);
    let recorder = RunRecorder::of(&lab, &id);
    recorder.deny("GET", ("a.example", 443, "/x"), "no-rule: none");
    drop(recorder);
    // The file does not exist yet, and it is not created without `--write`.
    assert!(net(&lab, ["learn", "wishes"]).succeed().starts_with("--- /dev/null"));
    assert!(!operator_config_path(&lab).exists());
    net(&lab, ["learn", "wishes", "--template", "my.box", "--write"]).succeed();
    let text = fs::read_to_string(operator_config_path(&lab)).unwrap();
    assert!(text.contains(r#"[[template."my.box".allow]]"#), "{text}");
    // Rules are added to an existing list. A symbolic link is kept, and so is the mode of its target.
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
    let recorder = RunRecorder::of(&lab, &id);
    recorder.deny("GET", ("a.example", 443, "/x"), "no-rule: none");
    drop(recorder);
    let project = lab.write("belljar.toml", "[template.default]\n");
    let config = ["--config", project.to_str().unwrap()];
    let learn = lab.belljar(config).args(["net", "learn", "--write"]);
    learn.run().fails_with(2, "it belongs to a project");
    // It is refused from another directory too, because the workspace of the run is recorded.
    let learn = lab.belljar(config).args(["net", "learn", "--write"]).cwd(lab.home());
    learn.run().fails_with(2, "it belongs to a project");
    assert_eq!(fs::read_to_string(&project).unwrap(), "[template.default]\n");
    // The rules are written into the operator's file, and the file of the project is not changed.
    net(&lab, ["learn", "--write"]).succeed();
    assert!(operator_config_path(&lab).exists());
    assert_eq!(fs::read_to_string(&project).unwrap(), "[template.default]\n");
}

#[test]
fn net_learn_turns_requests_of_a_full_network_run_into_rules() {
    let lab = lab();
    let id = run(&lab, &[]);
    let recorder = RunRecorder::of(&lab, &id);
    let allowed =
        |path: &str| decided("GET", ("a.example", 443, path), "allow", Some("net full"), "");
    let good = recorder.record(allowed("/good"));
    recorder.finish(&good, finished(200));
    let cut = recorder.record(allowed("/cut"));
    let error = Some("a placeholder in the body".to_owned());
    recorder.finish(&cut, RequestFinished { status: None, error, ..finished(0) });
    let ruled = decided("GET", ("b.example", 443, "/"), "allow", Some("allow b.example"), "");
    let ruled = recorder.record(ruled);
    recorder.finish(&ruled, finished(200));
    drop(recorder);
    let text = net(&lab, ["learn"]).succeed();
    assert!(text.contains("--allow 'GET a.example/good'"), "{text}");
    assert!(!text.contains("/cut") && !text.contains("b.example"), "{text}");
}

/// The value of the secret `demo`.
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
    let lines = objects(net(&lab, ["log", "--json"]));
    let requests: Vec<String> = lines
        .iter()
        .filter(|line| line["type"] == "request")
        .map(|line| {
            format!("{} {} {}", line["verdict"], line["path"], line["status"]).replace('"', "")
        })
        .collect();
    let expect = [
        "allow /public/a 200",
        "deny /private null",
        "deny /public/b null",
        "deny /public/alarm null",
    ];
    assert_eq!(requests, expect);
    let first = lines.iter().find(|line| line["type"] == "request").unwrap();
    assert_eq!(first["secrets"], json!(["demo"]));
    assert!(first["received_bytes"].as_u64() > Some(0) && first["micros"].as_u64() > Some(0));
    let kinds = |kind: &str| lines.iter().filter(|line| line["type"] == kind).count();
    assert!(kinds("name") > 0 && kinds("alarm") == 1, "{lines:?}");
    let text = net(&lab, ["log"]).run().expect(0);
    assert!(text.contains("secret demo") && !text.contains(TOKEN), "{text}");
    // The requests are denied before the rules are learnt, and allowed with the learnt rules.
    let requests =
        [("GET", "https://api.example.com/private"), ("POST", "https://api.example.com/public/b")];
    let allowed = |method: &str, url: &str| {
        let explain = net(&lab, ["explain", url, "--method", method, "--json"]);
        explain.run().result()["verdict"] == "allow"
    };
    assert!(requests.iter().all(|(method, url)| !allowed(method, url)));
    let learnt = net(&lab, ["learn", "--write"]).run();
    assert!(learnt.err().contains("alarms: 1"), "{}", learnt.err());
    assert!(!learnt.expect(0).contains("alarm"), "{}", learnt.out());
    assert!(requests.iter().all(|(method, url)| allowed(method, url)));
    assert!(!allowed("DELETE", requests[0].1) && !allowed("GET", "https://api.example.com/other"));
    assert!(
        allowed("GET", "https://unknown.example/") && !allowed("POST", "https://unknown.example/")
    );
}

#[test]
fn net_log_shows_tool_server_requests_by_purpose_and_otherwise_counts_them() {
    let lab = lab();
    let own = run(&lab, &[]);
    RunRecorder::of(&lab, &own).deny("GET", ("own.example", 443, "/"), "no-rule: no rule");
    let server = format!("{}ffff", &own[..own.len() - 4]);
    assert_ne!(server, own);
    let recorder = RunRecorder::of(&lab, &server);
    let _index = recorder.record(tool_server_created()).index();
    recorder.deny("GET", ("server.example", 443, "/"), "no-rule: no rule");

    let seen = |args: &[&str]| -> Vec<(Value, Value)> {
        let lines = objects(net(&lab, ["log", "--json"]).args(args)).into_iter();
        lines.map(|line| (line["host"].clone(), line["purpose"].clone())).collect()
    };
    let of_run = || (json!("own.example"), json!("run"));
    let of_server = || (json!("server.example"), json!("tool-server"));
    assert_eq!(seen(&["--all"]), [of_run()]);
    assert_eq!(seen(&["--all", "--purpose", "all"]), [of_run(), of_server()]);
    assert_eq!(seen(&["--all", "--purpose", "tool-server"]), [of_server()]);
    assert_eq!(seen(&[]), [of_run()], "the newest run of the user");
    assert_eq!(
        seen(&["--purpose", "tool-server"]),
        [of_server()],
        "the newest run of a tool server"
    );
    assert_eq!(seen(&[&server]), [of_server()], "a run given by its id");
    let counted = net(&lab, ["log", "--all"]).run();
    counted.expect(0);
    let note = "1 more requests of tool servers and clone readers; `--purpose all` shows them";
    assert!(counted.err().contains(note), "{}", counted.err());
    net(&lab, ["log", "--purpose", "clone-reader"])
        .run()
        .fails_with(2, "the ledger has no run of this purpose");
    net(&lab, ["log", &own, "--purpose", "run"]).run().fails_with(2, "cannot be used with");
}
