//! Eight callers at once: none sees anything of another, and when they are gone nothing is left.
//!
//! `BELLJAR_CALLERS_SECONDS` says how long they call; a minute is what was promised.

use std::io::Write as _;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::time::{Duration, Instant};

use belljar_testkit::{Family, Lab, Live, Mcp, McpHttp, cgroups_of, eventually, mounts_naming};
use serde_json::{Value, json};

use crate::lab;

const SECONDS: u64 = 20;
/// So many over HTTP at one server; as many again have a server of their own on standard streams.
const HALF: usize = 4;

/// A session, however it is spoken to.
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

/// A server on HTTP, where it is, and its token.
fn serving(lab: &Lab) -> (Live, SocketAddr, String) {
    let free = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = free.local_addr().unwrap();
    drop(free);
    let file = lab.home().join("token");
    let live = lab.belljar(["mcp", "--http", &address.to_string(), "--token-file"]).arg(&file);
    let live = live.open_input().start();
    let mut token = String::new();
    eventually("it serves", || {
        let said = live.complaints();
        let line = said.lines().find_map(|line| line.split_once("shown only now: "));
        token = line.map_or_else(String::new, |(_, token)| token.trim().to_owned());
        !token.is_empty() && TcpStream::connect(address).is_ok()
    });
    (live, address, token)
}

/// What every program of a caller looks at: all that could be somebody else's.
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

/// One caller's calls until it is time; how many there were.
fn calls(session: &Session, mark: &str, others: &[String], until: Instant) -> u32 {
    let mut round = 0;
    while Instant::now() < until {
        let account = session.run(&program(mark, round));
        let text = account.to_string();
        for other in others {
            assert!(!text.contains(other.as_str()), "{mark} sees {other}: {account:#}");
        }
        assert_eq!(account["stdout"], format!("out {mark}\n"), "{account:#}");
        assert_eq!(account["stderr"], format!("err {mark}\n"), "{account:#}");
        if round % 5 == 4 {
            assert_eq!(account["error"]["message"], format!("error of {mark}"), "{account:#}");
        } else {
            let result = &account["result"];
            assert_eq!(result["mark"], mark, "{account:#}");
            assert_eq!(
                result["before"],
                json!({ "tmp": [], "global": null, "env": null }),
                "{account:#}"
            );
            assert_eq!(result["lines"], json!([mark]), "{account:#}");
            // Its own workspace is there from call to call.
            assert_eq!(result["count"], round + 1, "{account:#}");
        }
        if round % 6 == 5 {
            let script =
                format!("cat /workspace/mine | sort -u; ls /tmp; echo {mark} > /tmp/native");
            let told = session.call("run_command", &json!({ "command": script }));
            assert_eq!(told["structuredContent"]["stdout"], format!("{mark}\n"), "{told:#}");
        }
        round += 1;
    }
    round
}

/// Descriptors and resident memory of a process, in KiB.
fn holds(pid: i32) -> (usize, u64) {
    let descriptors = std::fs::read_dir(format!("/proc/{pid}/fd")).expect("a process").count();
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).expect("a process");
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap_or_default();
    (descriptors, line.split_whitespace().next().and_then(|it| it.parse().ok()).unwrap_or(0))
}

fn entries(dir: &Path) -> usize {
    std::fs::read_dir(dir).map_or(0, Iterator::count)
}

#[expect(clippy::disallowed_methods, reason = "whoever runs the test says how long")]
fn length() -> Duration {
    let said = std::env::var("BELLJAR_CALLERS_SECONDS").ok().and_then(|text| text.parse().ok());
    Duration::from_secs(said.unwrap_or(SECONDS))
}

#[test]
fn eight_concurrent_mcp_sessions_are_isolated_and_leave_nothing_behind() {
    let length = length();
    let lab = lab();
    let (mut live, address, token) = serving(&lab);
    let family = Family::watch(live.pid());
    // One session first, so that what a server keeps for good is there before it is measured.
    let first = McpHttp::start(address, &token);
    assert_eq!(first.run("1")["result"], 1);
    first.end();
    eventually("the first session is gone", || entries(&lab.state().join("sessions")) == 0);
    let (descriptors, memory) = holds(live.pid());

    let marks: Vec<String> = (0..2 * HALF).map(|at| format!("mark-of-caller-{at}")).collect();
    let until = Instant::now() + length;
    let counts: Vec<u32> = std::thread::scope(|scope| {
        let callers: Vec<_> = marks
            .iter()
            .enumerate()
            .map(|(at, mark)| {
                let others: Vec<String> = marks.iter().filter(|it| *it != mark).cloned().collect();
                let (lab, token) = (&lab, &token);
                scope.spawn(move || {
                    let session = if at < HALF {
                        Session::Http(McpHttp::start(address, token))
                    } else {
                        Session::Streams(Mcp::start(lab.belljar(["mcp"])))
                    };
                    let count = calls(&session, mark, &others, until);
                    session.end();
                    count
                })
            })
            .collect();
        callers.into_iter().map(|caller| caller.join().expect("a caller without trouble")).collect()
    });
    assert!(counts.iter().all(|count| *count > 0), "{counts:?}");

    // Everything that was theirs goes away by itself, while the server stays.
    eventually("no room is left", || entries(&lab.state().join("sessions")) == 0);
    eventually("no call is left", || entries(&lab.state().join("calls")) == 0);
    let mut now = holds(live.pid());
    eventually("descriptors are where they were", || {
        now = holds(live.pid());
        now.0 <= descriptors
    });
    // Pages that an allocator keeps are no leak; what grows with every call is.
    let grown = now.1.saturating_sub(memory);
    let calls: u64 = counts.iter().map(|count| u64::from(*count)).sum();
    assert!(grown < 48 << 10, "{grown} KiB more after {calls} calls");
    assert_eq!(mounts_naming(lab.dir()), Vec::<String>::new());
    live.signal(belljar_testkit::Signal::TERM);
    eventually("the server ends", || live.ended());
    family.is_gone();
    assert_eq!(cgroups_of(&lab.runs()), Vec::<std::path::PathBuf>::new());
    let log = lab.belljar(["ledger", "verify"]).run();
    log.expect(0);
    writeln!(
        std::io::stderr(),
        "{calls} calls of eight callers in {length:?}: {counts:?}; {grown} KiB more"
    )
    .unwrap();
}

/// Who a program was recorded for: principal, tenant and session.
#[track_caller]
fn recorded(lab: &Lab, run: &Value) -> (String, String, Option<String>) {
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
    let (_live, address, token) = serving(&lab);
    let (first, second) = (McpHttp::start(address, &token), McpHttp::start(address, &token));
    for session in [&first, &second, &first] {
        let run = session.run("1")["run"].clone();
        let expect = (user.clone(), tenant.clone(), session.session().map(str::to_owned));
        assert_eq!(recorded(&lab, &run), expect);
    }
    assert_ne!(first.session(), second.session());

    let streams = Mcp::start(lab.belljar(["mcp"]));
    let (_, _, session) = recorded(&lab, &streams.run("1")["run"]);
    assert!(
        session.is_some_and(|id| id.len() == 32),
        "a session on standard streams has an id too"
    );
}
