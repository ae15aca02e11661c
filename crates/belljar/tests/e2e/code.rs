//! Code mode: `belljar code`, and the isolation between calls of `belljar mcp`.

use std::fs;

use belljar_testkit::{Mcp, eventually};
use serde_json::{Value, json};

use crate::lab;

/// Runs a program with `belljar code --json` and returns the JSON report and the exit code.
fn run_code(lab: &belljar_testkit::Lab, options: &[&str], code: &str) -> (Value, i32) {
    let ended = lab.belljar(["code", "--json"]).args(options).input(code).run();
    let value = serde_json::from_str(&ended.out()).unwrap_or_else(|_| panic!("{ended:?}"));
    (value, ended.code())
}

#[test]
fn code_result_is_the_default_export_return_value_or_last_expression() {
    let lab = lab();
    for (code, expected) in [
        ("export default { n: 6 * 7 };", json!({ "n": 42 })),
        ("export default async (input: { n: number }) => input.n + 1;", json!(42)),
        ("const n: number = 6;\nreturn n * 7;", json!(42)),
        ("const n: number = 6;\nn * 7", json!(42)),
        ("await Promise.resolve([1, 2])", json!([1, 2])),
        ("const n = 1;", json!(null)),
    ] {
        let (report, exit) = run_code(&lab, &["--input", r#"{"n":41}"#], code);
        assert_eq!((&report["result"], exit), (&expected, 0), "{code}: {report}");
        assert_eq!(report["ok"], true, "{code}: {report}");
    }
}

#[test]
fn code_reports_an_uncaught_error_with_its_line_and_exits_with_1() {
    let lab = lab();
    let code = "interface A { n: number }\nconst a: A = { n: 1 };\nconsole.log('before');\nthrow new RangeError(`bad ${a.n}`);\n";
    let (report, exit) = run_code(&lab, &[], code);
    assert_eq!(exit, 1);
    assert_eq!(report["error"]["name"], "RangeError", "{report}");
    assert_eq!(report["error"]["message"], "bad 1");
    assert_eq!(report["error"]["line"], 4, "{report}");
    assert_eq!(report["stdout"], "before\n", "output from before the error is kept");
    assert_eq!(report["ok"], false);
}

#[test]
fn code_prints_stdout_stderr_and_the_result_of_the_program() {
    let lab = lab();
    let ended = lab.belljar(["code"]).input("console.log('out'); console.error('err'); [1]").run();
    assert_eq!((ended.out().as_str(), ended.code()), ("out\n[\n  1\n]", 0), "{ended:?}");
    assert_eq!(ended.err(), "err");
}

#[test]
fn code_chooses_the_language_by_the_file_name_extension() {
    let lab = lab();
    let file = lab.write("sum.py", "import json, sys\nprint(sum(json.load(sys.stdin)))\n");
    let ended = lab.belljar(["code", "--input", "[1, 2, 3]"]).args([&file]).run();
    assert_eq!((ended.out().as_str(), ended.code()), ("6", 0), "{ended:?}");
    let script = lab.write("both.sh", "echo out; echo err >&2; exit 3\n");
    let ended = lab.belljar(["code"]).args([&script]).run();
    assert_eq!((ended.out().as_str(), ended.err().as_str(), ended.code()), ("out", "err", 3));
}

#[test]
fn code_names_invalid_options_and_exits_with_2() {
    let lab = lab();
    let state = lab.state().display().to_string();
    for (options, expected) in [
        (&["--timeout", "0"][..], "timeout"),
        (&["--timeout", "601"], "timeout"),
        (&["--lang", "cobol"], "cobol"),
        (&["--api", "nobody"], "nobody"),
        (&["--input", "{"], "--input"),
        (&["--workspace", "/nowhere"], "--workspace"),
        (&["--workspace", "/"], "root of the host"),
        (&["--workspace", state.as_str()], "own state"),
    ] {
        let ended = lab.belljar(["code"]).args(options).input("1").run();
        assert_eq!(ended.code(), 2, "{options:?}: {ended:?}");
        assert!(ended.err().contains(expected), "{options:?}: {}", ended.err());
    }
}

#[test]
fn code_kills_a_program_at_its_timeout_and_keeps_its_output() {
    let lab = lab();
    let (report, exit) = run_code(&lab, &["--timeout", "1"], "console.log('began'); for (;;) {}");
    assert_eq!((&report["reason"], exit), (&json!("timeout"), 124), "{report}");
    assert_eq!(report["stdout"], "began\n", "{report}");
}

#[test]
fn code_has_no_network_without_a_declared_api() {
    let lab = lab();
    let (report, exit) = run_code(&lab, &[], "await fetch('https://example.com/')");
    assert_eq!((&report["error"]["name"], exit), (&json!("TypeError"), 1), "{report}");
}

#[test]
fn code_with_yolo_reports_and_records_the_lifted_network_restriction() {
    let lab = lab();
    lab.configure("[code]\nyolo = true\n");
    let (report, _) = run_code(&lab, &[], "1");
    assert!(report["notes"].to_string().contains("every public host"), "{report}");
    let run = report["run"].as_str().unwrap();
    let log = lab.belljar(["ledger", "log", "--run", run]).run().expect(0);
    assert!(log.contains("every public host"), "{log}");
}

#[test]
fn mcp_run_resource_is_readable_only_by_its_own_session() {
    let lab = lab();
    let (client, other) = (Mcp::start(lab.belljar(["mcp"])), Mcp::start(lab.belljar(["mcp"])));
    let run = client.run("'mine'")["run"].as_str().unwrap().to_owned();
    let read = |client: &Mcp| {
        let params = json!({ "uri": format!("run://{run}") });
        client.wait_for_response(client.send_request("resources/read", &params)).to_string()
    };
    assert!(read(&client).contains("mine"), "control");
    let refused = read(&other);
    assert!(refused.contains("error") && !refused.contains("mine"), "{refused}");
    client.end();
    other.end();
}

#[test]
fn code_call_is_recorded_and_leaves_no_session_or_call_directory() {
    let lab = lab();
    let (report, _) = run_code(&lab, &[], "'proved'");
    let run = report["run"].as_str().unwrap();
    let shown = lab.belljar(["ledger", "log", "--run", run]).run();
    assert!(shown.out().contains("run.created") && shown.out().contains("run.ended"), "{shown:?}");
    assert_eq!(lab.belljar(["ledger", "verify"]).run().code(), 0);
    let runs = lab.belljar(["runs", "--all"]).run();
    assert!(!runs.out().contains("attention"), "{runs:?}");
    let entries = |name: &str| fs::read_dir(lab.state().join(name)).unwrap().count();
    eventually("the directories of sessions and calls are removed", || {
        (entries("sessions"), entries("calls")) == (0, 0)
    });
}

#[test]
fn mcp_calls_of_one_session_share_only_the_workspace() {
    let lab = lab();
    let client = Mcp::start(lab.belljar(["mcp"]));
    client.run(
        "import fs from 'node:fs/promises'; globalThis.kept = 1; await fs.writeFile('/workspace/a', 'A'); await fs.writeFile('/tmp/b', 'B');",
    );
    let seen = client.run(
        "import fs from 'node:fs'; [fs.readFileSync('/workspace/a', 'utf8'), fs.existsSync('/tmp/b'), typeof (globalThis as any).kept]",
    );
    assert_eq!(seen["result"], json!(["A", false, "undefined"]), "{seen}");
    let other = Mcp::start(lab.belljar(["mcp"]));
    let seen = other.run("import fs from 'node:fs'; fs.existsSync('/workspace/a')");
    assert_eq!(seen["result"], json!(false), "another session: {seen}");
    client.end();
    other.end();
}

#[test]
fn mcp_changes_to_a_user_directory_wait_for_review() {
    let lab = lab();
    lab.write("kept.txt", "old\n");
    let client = Mcp::start(lab.belljar(["mcp", "--workspace", "."]));
    let written = client.run(
        "import fs from 'node:fs'; fs.writeFileSync('kept.txt', 'new\\n'); fs.writeFileSync('more.txt', 'x'); fs.readFileSync('/workspace/kept.txt', 'utf8')",
    );
    assert_eq!(written["result"], "new\n", "{written}");
    let seen = client.run("import fs from 'node:fs'; fs.readFileSync('more.txt', 'utf8')");
    assert_eq!(seen["result"], "x", "the next call sees the new file: {seen}");
    client.end();
    assert_eq!(fs::read_to_string(lab.workspace().join("kept.txt")).unwrap(), "old\n");
    let diff = lab.belljar(["diff", "--stat"]).run();
    assert!(diff.out().contains("kept.txt") && diff.out().contains("more.txt"), "{diff:?}");
    assert_eq!(lab.belljar(["apply", "--yes"]).run().code(), 0);
    assert_eq!(fs::read_to_string(lab.workspace().join("kept.txt")).unwrap(), "new\n");
}

#[test]
fn mcp_concurrent_calls_on_a_user_directory_keep_all_changes() {
    let lab = lab();
    let client = Mcp::start(lab.belljar(["mcp", "--workspace", "."]));
    let code = |n: u32| format!("import fs from 'node:fs'; fs.appendFileSync('log', '{n}')");
    // Every second call has other APIs, needs a box of its own and waits for the prepared boxes.
    let arguments = |n: u32| match n % 2 {
        0 => json!({ "code": code(n) }),
        _ => json!({ "code": code(n), "apis": [] }),
    };
    let ids: Vec<u64> = (0..6).map(|n| client.start_call("execute_code", &arguments(n))).collect();
    for id in ids {
        let answer = client.wait_for_response(id);
        assert_eq!(answer["result"]["isError"], false, "{answer}");
    }
    let seen =
        client.run("import fs from 'node:fs'; [...fs.readFileSync('log', 'utf8')].sort().join('')");
    assert_eq!(seen["result"], "012345", "{seen}");
    client.end();
}

#[test]
fn code_in_read_only_mode_cannot_change_the_workspace() {
    let lab = lab();
    lab.write("kept.txt", "old\n");
    let options = ["--workspace", ".", "--mode", "read-only"];
    let code = "import fs from 'node:fs'; let error = ''; try { fs.writeFileSync('kept.txt', 'new'); } catch (e) { error = e.code; } [fs.readFileSync('kept.txt', 'utf8'), error]";
    let (report, _) = run_code(&lab, &options, code);
    assert_eq!(report["result"], json!(["old\n", "EROFS"]), "{report}");
}
