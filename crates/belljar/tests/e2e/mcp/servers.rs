//! Tool servers, each in a box of its own, and programs that call their tools.

use belljar_testkit::{Lab, Mcp, Program, descendants, eventually, is_alive, kill};
use serde_json::{Value, json};

use super::installed;
use crate::lab;

/// The source of a tool server for tests.
const SERVER_SOURCE: &str = include_str!("../../../../engine/src/tool_servers/tests/server.py");

/// Declares the tool server `odd` in the configuration.
fn declare_server(lab: &Lab) {
    declare_server_in_mode(lab, "");
}

/// Declares the tool server `odd`, which gets the mode as its last argument.
fn declare_server_in_mode(lab: &Lab, mode: &str) {
    lab.write("belljar-odd/server.py", SERVER_SOURCE);
    let dir = lab.workspace().join("belljar-odd");
    lab.configure(&format!(
        "[template.odd]\nmounts = [\"{}:/opt/odd\"]\n\n[mcp.odd]\ncommand = [\"python3\", \"/opt/odd/server.py\", \"/tmp\", \"{mode}\"]\ntemplate = \"odd\"\n",
        dir.display()
    ));
}

/// Runs a command and returns the JSON objects that it writes, one per line.
fn objects(program: Program) -> Vec<Value> {
    let out = program.run().out();
    out.lines().map(|line| serde_json::from_str(line).expect("an object")).collect()
}

/// Starts `belljar mcp`.
fn start_mcp(lab: &Lab) -> Mcp {
    Mcp::start(lab.belljar(["mcp"]))
}

/// Asserts that a program succeeded and returns its result.
#[track_caller]
fn value(answer: &Value) -> &Value {
    assert_eq!(answer["ok"], json!(true), "{answer}");
    &answer["result"]
}

#[test]
fn tool_server_is_listed_accepted_and_called_from_a_program() {
    let lab = lab();
    declare_server(&lab);
    let listed = objects(lab.belljar(["mcp", "servers", "--json"]));
    assert_eq!(
        (&listed[0]["name"], &listed[0]["is_there"]),
        (&json!("odd"), &json!(true)),
        "{listed:?}"
    );
    let standings = |listed: &[Value]| -> Vec<String> {
        let tools = listed[0]["tools"].as_array().unwrap().iter();
        tools.map(|tool| tool["standing"].as_str().unwrap().to_owned()).collect()
    };
    assert_eq!(standings(&listed), ["new"; 6]);
    lab.belljar(["mcp", "accept", "odd"]).run().fails_with(2, "nothing was accepted");
    let shown = lab.belljar(["mcp", "accept", "odd", "echo", "--yes"]).succeed();
    assert!(
        shown.contains("Says it again.")
            && shown.contains("echo(input: { text?: string }): Promise<unknown>"),
        "{shown}"
    );
    let listed = objects(lab.belljar(["mcp", "servers", "--json"]));
    assert_eq!(standings(&listed).iter().filter(|standing| *standing == "accepted").count(), 1);
    let log = lab.belljar(["ledger", "log", "--json", "--kind", "approval.given"]).succeed();
    assert_eq!(log.lines().count(), 1, "{log}");

    let mcp = start_mcp(&lab);
    let found = mcp.call("search_tools", &json!({ "query": "echo" }));
    assert!(found.to_string().contains("echo(input:"), "{found}");
    let answer = mcp.run("export default await tools.odd.echo({ text: 'hi' })");
    assert_eq!(value(&answer), "hi");
    let refused = mcp.run("export default await tools.odd.many({})");
    assert_eq!(refused["ok"], json!(false), "{refused}");
    mcp.end().expect(0);
    lab.belljar(["ledger", "verify"]).succeed();
}

#[test]
fn tool_server_runs_are_listed_only_when_their_purpose_is_requested() {
    let lab = lab();
    declare_server(&lab);
    lab.belljar(["run", "--name", "control", "--", "true"]).succeed();
    objects(lab.belljar(["mcp", "servers", "--json"]));
    let mcp = start_mcp(&lab);
    assert_eq!(value(&mcp.run("export default 1")), 1);
    mcp.end().expect(0);
    let listed = |args: &[&str]| -> Vec<(Value, Value)> {
        let runs = objects(lab.belljar(["runs", "--all", "--json"]).args(args)).into_iter();
        runs.map(|run| (run["purpose"].clone(), run["state"].clone())).collect()
    };
    let (run, server, call) = (json!("run"), json!("tool-server"), json!("call"));
    let finished = json!("finished");
    assert_eq!(listed(&[]), [(run.clone(), finished.clone())]);
    assert_eq!(listed(&["--purpose", "tool-server"]), [(server.clone(), finished.clone())]);
    assert_eq!(
        listed(&["--purpose", "all"]),
        [(call, finished.clone()), (server, finished.clone()), (run, finished)]
    );
    lab.belljar(["runs", "--purpose", "other"]).run().fails_with(2, "tool-server");
}

#[test]
fn f09_tool_that_changes_after_acceptance_is_not_called() {
    let lab = lab();
    declare_server(&lab);
    lab.belljar(["mcp", "accept", "odd", "--yes"]).succeed();
    let mcp = start_mcp(&lab);
    let echo = "export default await tools.odd.echo({ text: 'hi' })";
    assert_eq!(value(&mcp.run(echo)), "hi", "control");
    let within = "const before = await tools.odd.echo({ text: 'a' }); await tools.odd.shadow({}); export default await tools.odd.echo({ text: before }).catch((error) => error.message)";
    let changed = mcp.run(within);
    let message = value(&changed).as_str().unwrap();
    assert!(message.contains("changed since it was accepted"), "{changed}");
    // The next program cannot call the tool either.
    let refused = mcp.run(echo);
    assert!(refused.to_string().contains("changed since it was accepted"), "{refused}");
    let found = mcp.call("search_tools", &json!({ "query": "echo" }));
    assert!(!found.to_string().contains("keys"), "the changed description is not shown: {found}");
    mcp.end().expect(0);
}

#[test]
fn f14_program_that_calls_no_tool_does_not_wait_for_a_hung_tool_server() {
    let lab = lab();
    declare_server(&lab);
    lab.belljar(["mcp", "accept", "odd", "--yes"]).succeed();
    // From now on the server starts, but does not answer.
    declare_server_in_mode(&lab, "mute");
    let file = lab.home().join(".config/belljar/belljar.toml");
    let text = std::fs::read_to_string(&file).unwrap();
    std::fs::write(&file, format!("{text}timeout = \"1s\"\n")).unwrap();
    let starts = || {
        let log = lab.belljar(["ledger", "log", "--json", "--kind", "run.created"]).succeed();
        log.lines().filter(|line| line.contains("\"odd\"")).count()
    };
    let before = starts();
    assert!(before > 0, "control: a start of the server is recorded");
    let mcp = start_mcp(&lab);
    for code in [
        "// tools\nexport default 1",
        "/* tools.odd.echo({}) */ export default 1",
        "const text = 'tools.odd.echo({})'; export default text.length / text.length",
        "export default typeof tools.odd.echo === 'function' ? 1 : 0",
        "if (globalThis.never) await tools.odd.echo({ text: 'hi' }); export default 1",
    ] {
        assert_eq!(value(&mcp.run(code)), 1, "{code}");
        assert_eq!(starts(), before, "the server was started for {code}");
    }
    // Control: a call starts the server, and its error names the server.
    let answer = mcp.run("export default await tools.odd.echo({ text: 'hi' })");
    assert_eq!(answer["ok"], json!(false), "{answer}");
    assert!(answer.to_string().contains("within 1 s"), "{answer}");
    assert_eq!(starts(), before + 1);
    mcp.end().expect(0);
}

#[test]
fn f16_tool_server_runs_in_a_box_and_not_on_the_host() {
    let lab = lab();
    declare_server(&lab);
    lab.belljar(["mcp", "servers", "--json"]).succeed();
    let created = lab.belljar(["ledger", "log", "--json", "--kind", "run.created"]).succeed();
    let created: Value = serde_json::from_str(created.lines().next().unwrap()).unwrap();
    assert_eq!(created["fields"]["template"], "odd");
    assert_eq!(created["fields"]["net"], "none");
    // The server writes this file when it starts. It exists only in its box.
    assert!(!std::path::Path::new("/tmp/started").exists());
}

#[test]
fn d17_tool_server_ends_when_the_mcp_server_is_killed_or_stopped() {
    let lab = lab();
    declare_server_in_mode(&lab, "deaf");
    let mcp = Mcp::start(lab.belljar(["mcp"]));
    mcp.call("search_tools", &json!({ "query": "echo" }));
    let processes = descendants(mcp.pid());
    assert!(processes.len() > 2, "{processes:?}");
    kill(mcp.pid());
    eventually("all processes have ended", || !processes.iter().any(is_alive));
    // The tool server, which ignores the end of its input, also ends when the MCP server stops normally.
    let mcp = Mcp::start(lab.belljar(["mcp"]));
    mcp.call("search_tools", &json!({ "query": "echo" }));
    let processes = descendants(mcp.pid());
    mcp.end().expect(0);
    eventually("all processes have ended", || !processes.iter().any(is_alive));
}

#[test]
fn mcp_servers_lists_working_tool_servers_when_others_fail_to_start() {
    let lab = lab();
    declare_server(&lab);
    let file = lab.home().join(".config/belljar/belljar.toml");
    let text = std::fs::read_to_string(&file).unwrap();
    std::fs::write(&file, format!("{text}\n[mcp.none]\ncommand = [\"no-such-program\"]\n[mcp.mute]\ncommand = [\"sleep\", \"1000\"]\ntimeout = \"1s\"\n")).unwrap();
    let ended = lab.belljar(["mcp", "servers", "--json"]).run();
    assert_eq!(ended.code(), 1);
    let listed: Vec<Value> =
        ended.out().lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let error = |name: &str| {
        let server = listed.iter().find(|server| server["name"] == name).unwrap();
        server["trouble"].as_str().map(str::to_owned)
    };
    assert_eq!(error("odd"), None);
    assert!(error("none").unwrap().contains("was not found in the box"), "{listed:?}");
    assert!(error("mute").unwrap().contains("did not answer within 1 s"), "{listed:?}");
}

#[test]
fn third_party_tool_server_works_unmodified() {
    let lab = lab();
    let dir = installed("servers");
    lab.configure(&format!(
        "[template.everything]\nmounts = [\"{}:/opt/servers\"]\n\n[mcp.everything]\ncommand = [\"node\", \"/opt/servers/node_modules/@modelcontextprotocol/server-everything/dist/index.js\"]\ntemplate = \"everything\"\n",
        dir.display()
    ));
    let shown = lab.belljar(["mcp", "accept", "everything", "--yes"]).succeed();
    assert!(shown.contains("echo(input: {"), "{shown}");
    let mcp = start_mcp(&lab);
    let answer = mcp.run("export default [await tools.everything.echo({ message: 'hi' }), await tools.everything.get_sum({ a: 2, b: 40 })]");
    let text = value(&answer).to_string();
    assert!(text.contains("hi") && text.contains("42"), "{text}");
    mcp.end().expect(0);
}
