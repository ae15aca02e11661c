//! Eight MCP sessions at once: they are isolated from each other, and leave nothing behind.
//!
//! `BELLJAR_CALLERS_SECONDS` is the duration of the calls in seconds.

use std::io::Write as _;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::time::{Duration, Instant};

use belljar_testkit::{
    Lab, Live, Mcp, McpHttp, ProcessTree, cgroups_of, eventually, mounts_naming,
};
use serde_json::{Value, json};

use crate::lab;

/// The default duration of the calls in seconds.
const SECONDS: u64 = 20;
/// The number of sessions over HTTP, and of sessions over standard streams.
const SESSIONS_PER_TRANSPORT: usize = 4;

/// An MCP session over standard streams or over HTTP.
enum Session {
    Streams(Mcp),
    Http(McpHttp),
}

impl Session {
    fn call(&self, tool: &str, arguments: &Value) -> Value {
        match self {
            Self::Streams(mcp) => mcp.call(tool, arguments),
            Self::Http(mcp) => mcp.call(tool, arguments),
        }
    }

    /// Runs a JavaScript program and returns its structured response.
    fn run(&self, code: &str) -> Value {
        self.call("execute_code", &json!({ "code": code, "language": "js" }))["structuredContent"]
            .clone()
    }

    fn end(self) {
        match self {
            Self::Streams(mcp) => drop(mcp.end()),
            Self::Http(mcp) => mcp.end(),
        }
    }
}

/// Starts an MCP server on HTTP and returns the process, its address and its token.
fn start_http_server(lab: &Lab) -> (Live, SocketAddr, String) {
    let free = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = free.local_addr().unwrap();
    drop(free);
    let file = lab.home().join("token");
    let live = lab.belljar(["mcp", "--http", &address.to_string(), "--token-file"]).arg(&file);
    let live = live.open_input().start();
    let mut token = String::new();
    eventually("the server accepts connections", || {
        let output = live.error_output();
        let line = output.lines().find_map(|line| line.split_once("shown only once: "));
        token = line.map_or_else(String::new, |(_, token)| token.trim().to_owned());
        !token.is_empty() && TcpStream::connect(address).is_ok()
    });
    (live, address, token)
}

/// Returns a program that leaves a mark everywhere and reports the marks that it finds.
fn program(mark: &str, round: u32) -> String {
    format!(
        r#"
import fs from "node:fs";
const mark = {mark:?}, round = {round};
const before = {{ tmp: fs.readdirSync("/tmp"), global: globalThis.mark ?? null, env: process.env.MARK ?? null }};
globalThis.mark = mark;
process.env.MARK = mark;
Object.prototype.mark = mark;
fs.writeFileSync(`/tmp/${{mark}}`, mark);
fs.appendFileSync("/workspace/mine", `${{mark}}\n`);
fs.writeFileSync(`/workspace/${{mark}}-${{round % 3}}`, mark);
const files = fs.readdirSync("/workspace").sort();
const lines = fs.readFileSync("/workspace/mine", "utf8").trim().split("\n");
console.log(`out ${{mark}}`);
console.error(`err ${{mark}}`);
await new Promise((r) => setTimeout(r, round % 7));
if (round % 5 === 4) throw new Error(`error of ${{mark}}`);
({{ mark, before, files, lines: [...new Set(lines)], count: lines.length }});
"#
    )
}

/// Makes calls in a session until the deadline, checks the responses, and returns the number of calls.
fn make_calls(session: &Session, mark: &str, others: &[String], deadline: Instant) -> u32 {
    let mut round = 0;
    while Instant::now() < deadline {
        let response = session.run(&program(mark, round));
        let text = response.to_string();
        for other in others {
            assert!(!text.contains(other.as_str()), "{mark} sees {other}: {response:#}");
        }
        assert_eq!(response["stdout"], format!("out {mark}\n"), "{response:#}");
        assert_eq!(response["stderr"], format!("err {mark}\n"), "{response:#}");
        if round % 5 == 4 {
            assert_eq!(response["error"]["message"], format!("error of {mark}"), "{response:#}");
        } else {
            let result = &response["result"];
            assert_eq!(result["mark"], mark, "{response:#}");
            assert_eq!(
                result["before"],
                json!({ "tmp": [], "global": null, "env": null }),
                "{response:#}"
            );
            assert_eq!(result["lines"], json!([mark]), "{response:#}");
            // The workspace of the session keeps its files between calls.
            assert_eq!(result["count"], round + 1, "{response:#}");
        }
        if round % 6 == 5 {
            let script =
                format!("cat /workspace/mine | sort -u; ls /tmp; echo {mark} > /tmp/native");
            let response = session.call("run_command", &json!({ "command": script }));
            assert_eq!(
                response["structuredContent"]["stdout"],
                format!("{mark}\n"),
                "{response:#}"
            );
        }
        round += 1;
    }
    round
}

/// Returns the number of open descriptors and the resident memory in KiB of a process.
fn resource_usage(pid: i32) -> (usize, u64) {
    let descriptors = std::fs::read_dir(format!("/proc/{pid}/fd")).expect("a process").count();
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).expect("a process");
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap_or_default();
    (descriptors, line.split_whitespace().next().and_then(|it| it.parse().ok()).unwrap_or(0))
}

/// Returns the number of entries of a directory.
fn entries(dir: &Path) -> usize {
    std::fs::read_dir(dir).map_or(0, Iterator::count)
}

#[expect(clippy::disallowed_methods, reason = "the variable sets the duration of this test")]
fn duration() -> Duration {
    let seconds = std::env::var("BELLJAR_CALLERS_SECONDS").ok().and_then(|text| text.parse().ok());
    Duration::from_secs(seconds.unwrap_or(SECONDS))
}

#[test]
fn eight_concurrent_mcp_sessions_are_isolated_and_leave_nothing_behind() {
    let duration = duration();
    let lab = lab();
    let (mut live, address, token) = start_http_server(&lab);
    let family = ProcessTree::watch(live.pid());
    // The first session makes the server allocate what it keeps, before the measurement.
    let first = McpHttp::start(address, &token);
    assert_eq!(first.run("1")["result"], 1);
    first.end();
    eventually("the first session is gone", || entries(&lab.state().join("sessions")) == 0);
    let (descriptors, memory) = resource_usage(live.pid());

    let marks: Vec<String> =
        (0..2 * SESSIONS_PER_TRANSPORT).map(|at| format!("mark-of-caller-{at}")).collect();
    let deadline = Instant::now() + duration;
    let counts: Vec<u32> = std::thread::scope(|scope| {
        let callers: Vec<_> = marks
            .iter()
            .enumerate()
            .map(|(at, mark)| {
                let others: Vec<String> = marks.iter().filter(|it| *it != mark).cloned().collect();
                let (lab, token) = (&lab, &token);
                scope.spawn(move || {
                    let session = if at < SESSIONS_PER_TRANSPORT {
                        Session::Http(McpHttp::start(address, token))
                    } else {
                        Session::Streams(Mcp::start(lab.belljar(["mcp"])))
                    };
                    let count = make_calls(&session, mark, &others, deadline);
                    session.end();
                    count
                })
            })
            .collect();
        callers.into_iter().map(|caller| caller.join().expect("a session without errors")).collect()
    });
    assert!(counts.iter().all(|count| *count > 0), "{counts:?}");

    // The server removes all data of the sessions while it keeps running.
    eventually("no session directory is left", || entries(&lab.state().join("sessions")) == 0);
    eventually("no call directory is left", || entries(&lab.state().join("calls")) == 0);
    let mut now = resource_usage(live.pid());
    eventually("the server has as few descriptors as before", || {
        now = resource_usage(live.pid());
        now.0 <= descriptors
    });
    // The allocator may keep some pages; memory must not grow with every call.
    let growth = now.1.saturating_sub(memory);
    let calls: u64 = counts.iter().map(|count| u64::from(*count)).sum();
    assert!(growth < 48 << 10, "{growth} KiB more after {calls} calls");
    assert_eq!(mounts_naming(lab.dir()), Vec::<String>::new());
    live.signal(belljar_testkit::Signal::TERM);
    eventually("the server ends", || live.ended());
    family.wait_until_gone();
    assert_eq!(cgroups_of(&lab.runs()), Vec::<std::path::PathBuf>::new());
    let log = lab.belljar(["ledger", "verify"]).run();
    log.expect(0);
    writeln!(
        std::io::stderr(),
        "{calls} calls of eight callers in {duration:?}: {counts:?}; {growth} KiB more"
    )
    .unwrap();
}

/// Returns principal, tenant and session from the `run.created` event of a run.
#[track_caller]
fn recorded_caller(lab: &Lab, run: &Value) -> (String, String, Option<String>) {
    let run = run.as_str().expect("a run");
    let log = lab.belljar(["ledger", "log", "--json", "--kind", "run.created", "--run", run]);
    let event: Value = serde_json::from_str(&log.succeed()).expect("one event");
    let text = |name: &str| event["fields"][name].as_str().map(str::to_owned);
    (text("principal").expect("a principal"), text("tenant").expect("a tenant"), text("session"))
}

#[test]
fn every_code_mode_program_is_recorded_with_its_principal_tenant_and_session() {
    let lab = lab();
    let uid = rustix::process::getuid().as_raw();
    let (user, tenant) = (format!("user:{uid}"), "local".to_owned());
    let (_live, address, token) = start_http_server(&lab);
    let (first, second) = (McpHttp::start(address, &token), McpHttp::start(address, &token));
    for session in [&first, &second, &first] {
        let run = session.run("1")["run"].clone();
        let expect = (user.clone(), tenant.clone(), session.session().map(str::to_owned));
        assert_eq!(recorded_caller(&lab, &run), expect);
    }
    assert_ne!(first.session(), second.session());

    let streams = Mcp::start(lab.belljar(["mcp"]));
    let (_, _, session) = recorded_caller(&lab, &streams.run("1")["run"]);
    assert!(
        session.is_some_and(|id| id.len() == 32),
        "a session on standard streams has an id too"
    );
}
