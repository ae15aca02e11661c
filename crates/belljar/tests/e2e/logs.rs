//! The log of all processes: it is off by default, contains the ids of runs, and contains no secret.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, URL_SAFE};
use belljar_testkit::{Authority, Lab, Mcp, Program, Terminal, Upstream, eventually};
use serde_json::{Value, json};

use crate::lab;

/// The value of the secret that the broker puts into requests. Each encoding changes it.
const SECRET: &str = "real-secret/9f+4k=Zq~0123456789";
/// The value of an environment variable of a box.
const VARIABLE: &str = "value-of-a-variable/7d+2=1c0e5b";
/// The body of a request.
const BODY: &str = "body-of-a-request/5a+8=4e1b7c";
/// A query parameter of a request.
const QUERY: &str = "query-of-a-request.3c9d2f8a";
/// The value of a header of a request.
const HEADER: &str = "header-of-a-request/1b+6=9e0d4a";
/// The content of a file of the workspace.
const CONTENT: &str = "content-of-a-file/8e+3=7b2c6d";
/// A text that is typed at a terminal.
const TYPED: &str = "typed-at-a-terminal.6f1a9c3e";
/// An argument of a tool call.
const ARGUMENT: &str = "argument-of-a-tool/2c+9=5d8f1b";
/// All values that a log must not contain.
const PLANTED: [&str; 8] = [SECRET, VARIABLE, BODY, QUERY, HEADER, CONTENT, TYPED, ARGUMENT];

/// The source of a tool server for tests.
const TOOLS: &str = include_str!("../../../engine/src/tool_servers/tests/server.py");

/// The processes that write logs.
const ROLES: [&str; 4] = ["command", "supervisor", "broker", "screen"];

/// Creates the directory of the logs and returns its path.
fn log_dir(lab: &Lab) -> PathBuf {
    let dir = lab.dir().join("logs");
    fs::create_dir_all(&dir).expect("a directory");
    dir
}

/// Returns a `belljar` command that writes a log at this level, as do the processes that it starts.
fn logged(lab: &Lab, level: &str, args: &[&str]) -> Program {
    lab.belljar(args).env("BELLJAR_LOG", level).env("BELLJAR_LOG_DIR", log_dir(lab))
}

/// Returns a `belljar` command that writes a log at level trace.
fn traced(lab: &Lab, args: &[&str]) -> Program {
    logged(lab, "trace", args)
}

/// Returns the contents of all log files, by file name.
fn logs(dir: &Path) -> BTreeMap<String, Vec<u8>> {
    let entries = fs::read_dir(dir).expect("the directory of the logs").flatten();
    let file = |path: PathBuf| {
        let name = path.file_name().expect("a name").to_string_lossy().into_owned();
        (name, fs::read(path).expect("a log"))
    };
    entries.map(|entry| file(entry.path())).collect()
}

/// Returns the encodings in which a value may appear in a text: plain, hex, percent, bytes and base64.
fn forms(value: &str) -> Vec<String> {
    let bytes = value.as_bytes();
    let encode = |format: fn(&u8) -> String| bytes.iter().map(format).collect::<String>();
    let percent_reserved = |byte: &u8| match byte {
        b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' => {
            char::from(*byte).to_string()
        }
        other => format!("%{other:02X}"),
    };
    let mut forms = vec![
        value.to_owned(),
        encode(|byte| format!("{byte:02x}")),
        encode(|byte| format!("{byte:02X}")),
        encode(|byte| format!("%{byte:02x}")),
        encode(|byte| format!("%{byte:02X}")),
        encode(percent_reserved),
        encode(percent_reserved).to_lowercase(),
        format!("{bytes:?}").trim_matches(['[', ']']).to_owned(),
    ];
    // For each alignment, the part of the base64 text that does not depend on the bytes around the value.
    for offset in 0..3 {
        let shifted = [&vec![0; offset][..], bytes].concat();
        let (first, last) = ((offset * 8).div_ceil(6), shifted.len() * 8 / 6);
        for engine in [&STANDARD, &URL_SAFE] {
            forms.push(engine.encode(&shifted)[first..last].to_owned());
        }
    }
    forms
}

/// Returns the names of the log files that contain a value in any encoding.
fn files_with(logs: &BTreeMap<String, Vec<u8>>, value: &str) -> Vec<String> {
    let forms = forms(value);
    let has = |text: &[u8]| {
        let text = String::from_utf8_lossy(text);
        forms.iter().any(|form| text.contains(form.as_str()))
    };
    logs.iter().filter(|(_, text)| has(text)).map(|(name, _)| name.clone()).collect()
}

/// Returns the number of log lines of a role.
fn line_count(logs: &BTreeMap<String, Vec<u8>>, role: &str) -> usize {
    let of_role = logs.iter().filter(|(name, _)| name.starts_with(&format!("{role}-")));
    of_role.map(|(_, text)| text.split(|byte| *byte == b'\n').count() - 1).sum()
}

/// Creates a lab with an echo server that needs a secret, and with a tool server.
fn lab_with_upstream() -> (Lab, Upstream) {
    let (lab, authority) = (lab(), Authority::new());
    let upstream = Upstream::echo(&authority, &["api.example.com"]);
    lab.write("belljar-odd/server.py", TOOLS);
    let (connect, tools) = (upstream.address(), lab.workspace().join("belljar-odd"));
    lab.configure_for(
        &authority,
        &format!(
            r#"[template.default]
net = "restricted"
secrets = ["token"]
[[template.default.allow]]
host = "api.example.com"
connect = "{connect}"
secrets = ["token"]
[secret.token]
hosts = ["api.example.com"]
slots = ["header:authorization"]
env = "TOKEN"
[template.odd]
mounts = ["{}:/opt/odd"]
[mcp.odd]
command = ["python3", "/opt/odd/server.py", "/tmp"]
template = "odd"
"#,
            tools.display()
        ),
    );
    traced(&lab, &["secret", "set", "token"]).input(SECRET).run().expect(0);
    (lab, upstream)
}

/// Runs a program that makes 20 requests, and applies its changes.
fn use_network(lab: &Lab, upstream: &Upstream) {
    lab.write("read", CONTENT);
    let script = format!(
        "cat read > written; env > /dev/null; for at in $(seq 20); do \
         curl -sS -o /dev/null -H \"authorization: Bearer $TOKEN\" -H 'x-other: {HEADER}' \
         -d '{BODY}' \"https://api.example.com/item/$at?q={QUERY}\"; done; \
         curl -sS https://other.example.com/; true"
    );
    let variable = format!("PLANTED={VARIABLE}");
    traced(lab, &["run", "--env", &variable, "--", "bash", "-c", &script]).succeed();
    let received = upstream.received();
    assert_eq!(received.len(), 20);
    let bearer = format!("Bearer {SECRET}");
    assert!(received.iter().all(|it| it.header("authorization") == Some(bearer.as_str())));
    assert!(received.iter().all(|it| it.body == BODY.as_bytes() && it.path.contains(QUERY)));
    traced(lab, &["diff"]).run();
    traced(lab, &["apply", "--yes"]).succeed();
    assert_eq!(fs::read_to_string(lab.workspace().join("written")).unwrap(), CONTENT);
}

/// Uses a named box: starts programs in it, attaches a terminal, stops it and starts it again.
fn use_box(lab: &Lab) {
    let variable = format!("PLANTED={VARIABLE}");
    traced(lab, &["up", "task", "--env", &variable, "--", "bash", "--norc"]).succeed();
    for _ in 0..12 {
        let exec = traced(lab, &["exec", "--env", &variable, "task", "--", "sh", "-c"]);
        assert_eq!(exec.arg("echo $PLANTED").succeed(), VARIABLE);
    }
    let attach = traced(lab, &["attach", "task"]).env("TERM", "xterm-256color");
    let mut terminal = Terminal::start(attach, 24, 80);
    let mut shows = |keys: &str, text: &str| {
        terminal.type_keys(keys);
        eventually(text, || String::from_utf8_lossy(terminal.read_available()).contains(text));
    };
    shows(&format!("echo {TYPED}\r"), TYPED);
    let slow_output = "for at in $(seq 60); do echo line $at; sleep 0.03; done; echo all the''re\r";
    shows(slow_output, "all there");
    terminal.type_keys("\x1d");
    terminal.end();
    traced(lab, &["status", "task"]).succeed();
    traced(lab, &["network", "task", "--allow", "new.example.com"]).run();
    traced(lab, &["stop", "task"]).succeed();
    traced(lab, &["start", "task"]).succeed();
    traced(lab, &["stop", "--now", "task"]).succeed();
}

/// Calls a tool from programs over MCP, and runs a program with `belljar code`.
fn use_tools(lab: &Lab) {
    traced(lab, &["mcp", "accept", "odd", "--yes"]).succeed();
    let mcp = Mcp::start(traced(lab, &["mcp"]));
    let code = format!("export default await tools.odd.echo({{ text: '{ARGUMENT}' }})");
    for _ in 0..6 {
        let answer = mcp.run(&code);
        assert_eq!(
            (&answer["ok"], &answer["result"]),
            (&json!(true), &json!(ARGUMENT)),
            "{answer}"
        );
    }
    mcp.end().expect(0);
    let input = json!({ "value": ARGUMENT }).to_string();
    traced(lab, &["code", "--input", &input]).input("console.log(input.value); 1").run();
}

#[test]
fn logs_at_trace_level_have_100_lines_per_role_and_no_secret() {
    let (lab, upstream) = lab_with_upstream();
    use_network(&lab, &upstream);
    use_box(&lab);
    use_tools(&lab);
    let mut logs = logs(&log_dir(&lab));
    for role in ROLES {
        let lines = line_count(&logs, role);
        assert!(lines >= 100, "{role}: {lines} lines");
    }
    for value in PLANTED {
        assert_eq!(files_with(&logs, value), Vec::<String>::new(), "{value}");
    }
    let all: String = logs.values().map(|text| String::from_utf8_lossy(text)).collect();
    for line in all.lines() {
        let target = line.split_whitespace().find(|word| word.starts_with("belljar"));
        assert!(target.is_some(), "a library wrote the log line: {line}");
    }
    // Controls: permitted values are in the logs, and the search finds a secret that is added to a log.
    for named in ["api.example.com", "/item/12", "other.example.com", "token", "echo", "task"] {
        assert!(!files_with(&logs, named).is_empty(), "{named}");
    }
    let (name, text) = logs.iter_mut().next().expect("a log");
    let name = name.clone();
    text.extend(format!("TRACE x={}\n", STANDARD.encode(format!("ab{SECRET}cd"))).into_bytes());
    assert_eq!(files_with(&logs, SECRET), [name]);
}

#[test]
fn log_search_finds_each_encoded_form_of_a_value() {
    let encoded = |before: &str| STANDARD.encode(format!("{before}{SECRET} and more"));
    let hex: String = SECRET.bytes().map(|byte| format!("{byte:02x}")).collect();
    let percent = "real-secret%2F9f%2B4k%3DZq~0123456789".to_owned();
    let texts = [SECRET.to_owned(), encoded(""), encoded("a"), encoded("ab"), hex, percent];
    for text in texts {
        let log = |text: &str| BTreeMap::from([("x".to_owned(), format!("a {text} b\n").into())]);
        assert_eq!(files_with(&log(&text), SECRET), ["x"], "{text}");
        assert_eq!(files_with(&log("another text"), SECRET), Vec::<String>::new());
    }
}

#[test]
fn log_is_not_written_without_the_variable_belljar_log() {
    let lab = lab();
    let dir = log_dir(&lab);
    let quiet = |args: &[&str]| lab.belljar(args).without_env("BELLJAR_LOG");
    for run in [quiet(&["run", "--", "true"]), lab.bash("true").env("BELLJAR_LOG", "")] {
        let ended = run.env("BELLJAR_LOG_DIR", &dir).run();
        ended.expect(0);
        assert_eq!(ended.err(), "");
    }
    assert!(logs(&dir).is_empty());
    // Control: with the variable a log is written, to standard error if no directory is set.
    let logging = quiet(&["run", "--", "true"]).without_env("BELLJAR_LOG_DIR");
    let ended = logging.env("BELLJAR_LOG", "info").run();
    ended.expect(0);
    assert!(ended.err().contains("command ended"), "{}", ended.err());
    logged(&lab, "info", &["run", "--", "true"]).succeed();
    assert_eq!(logs(&dir).len(), 1);
}

#[test]
fn invalid_log_variables_are_named_with_exit_code_2() {
    let lab = lab();
    let run = |value: &str| lab.bash("true").env("BELLJAR_LOG", value).run();
    run("loud").fails_with(2, "use error, warn, info, debug or trace");
    run("info,xml").fails_with(2, "BELLJAR_LOG");
    let relative = lab.bash("true").env("BELLJAR_LOG", "info").env("BELLJAR_LOG_DIR", "logs").run();
    relative.fails_with(2, "BELLJAR_LOG_DIR must be an absolute path");
    let missing = lab.dir().join("missing");
    let missing = lab.bash("true").env("BELLJAR_LOG", "info").env("BELLJAR_LOG_DIR", missing).run();
    missing.fails_with(2, "(from BELLJAR_LOG_DIR)");
}

#[test]
fn json_log_contains_run_and_box_ids_and_is_readable_only_by_its_owner() {
    let lab = lab();
    logged(&lab, "trace,json", &["up", "task", "--", "sleep", "1000"]).succeed();
    logged(&lab, "trace,json", &["exec", "task", "--", "true"]).succeed();
    logged(&lab, "trace,json", &["stop", "--now", "task"]).succeed();
    let dir = log_dir(&lab);
    let run = |line: &Value| {
        let mut spans = line["spans"].as_array().expect("spans").iter();
        spans.find_map(|span| span["run"].as_str()).map(str::to_owned)
    };
    let mut runs: Vec<String> = Vec::new();
    for (name, text) in logs(&dir) {
        let mode = fs::metadata(dir.join(&name)).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600, "{name}");
        let text = String::from_utf8(text).expect("text");
        let lines =
            text.lines().map(|line| serde_json::from_str::<Value>(line).expect("an object"));
        let lines: Vec<Value> = lines.collect();
        assert!(!lines.is_empty(), "{name}");
        for line in &lines {
            for field in ["timestamp", "level", "target", "message"] {
                assert!(line[field].is_string(), "{name}: {line}");
            }
        }
        if ["broker-", "screen-"].iter().any(|role| name.starts_with(role)) {
            runs.extend(lines.iter().map(|line| run(line).unwrap_or_else(|| panic!("{line}"))));
        } else if name.starts_with("supervisor-") {
            let launched = lines.iter().skip_while(|line| run(line).is_none());
            let up = |line: &&Value| line["message"] == "box is up";
            let served: Vec<&Value> = launched.skip_while(|line| !up(line)).collect();
            assert!(served.len() > 10, "{served:?}");
            let last = served.len() - 1; // the last line is written after the run has ended
            for line in &served[..last] {
                runs.push(run(line).unwrap_or_else(|| panic!("{line}")));
                assert_eq!(line["spans"][0]["box"], "task", "{line}");
            }
        }
    }
    let first = runs.first().expect("ids").clone();
    assert!(runs.iter().all(|run| *run == first), "all lines belong to one run: {runs:?}");
}
