//! `code` and `warm`: a new box of a running `belljar mcp` server, called over its standard streams.
//!
//! Goals: a typed one-line program takes at most 0.2 × the time of Deno for the same file, later 0.05 ×.
//! A box for `/bin/true` takes at most 0.5 × the time of bubblewrap, later 0.2 ×.

use std::io::{BufRead as _, BufReader, Write as _};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};
use serde_json::{Value, json};

use super::lab::{Lab, timed};
use super::peers::{Peer, versions};
use super::report::{Goal, Report, Row};
use crate::shell::as_from_a_shell;

const BUDGET: Duration = Duration::from_secs(30);
const WARM_UP: usize = 5;
const MIN_ROUNDS: usize = 20;
/// Deno is slow, so it takes part only in every third round.
const DENO_EVERY: usize = 3;
/// The pause between two calls, as when a model reads the last result. The server prepares boxes in
/// this time.
const PAUSE: Duration = Duration::from_millis(50);
const ONE_LINER: &str = "const answer: number = 6 * 7; console.log(answer);";

/// Measures the round trip of `execute_code` with a typed one-line program.
pub(super) fn code(lab: &Lab, budget: Option<Duration>) -> Result<Report> {
    let file = lab.scratch.join("one.ts");
    std::fs::write(&file, ONE_LINER).context("cannot write the program for Deno")?;
    let deno = lab.peers.join("node_modules/.bin/deno");
    let deno_run = || {
        let mut command = as_from_a_shell(&deno);
        command.args(["run", "--quiet"]).arg(&file).env("DENO_NO_UPDATE_CHECK", "1");
        command.env("DENO_DIR", lab.scratch.join("deno"));
        command
    };
    let mut server = Server::start(lab)?;
    let arguments = json!({ "code": ONE_LINER });
    let call = |server: &mut Server| server.call("execute_code", &arguments, "42\n");
    let mut back_to_back = Server::start(lab)?;
    let mut rows: [Result<Vec<f64>, String>; 3] =
        [Ok(Vec::new()), super::peers::try_once(deno_run()).map(|()| Vec::new()), Ok(Vec::new())];
    for _ in 0..WARM_UP {
        call(&mut server)?;
        call(&mut back_to_back)?;
        std::thread::sleep(PAUSE);
    }
    let (started, budget) = (Instant::now(), budget.unwrap_or(BUDGET));
    let mut round = 0;
    while round < MIN_ROUNDS || started.elapsed() < budget {
        let [belljar, deno, no_pause] = &mut rows;
        if let Ok(samples) = belljar {
            samples.push(call(&mut server)?);
        }
        std::thread::sleep(PAUSE);
        if let (Ok(samples), true) = (deno, round % DENO_EVERY == 0) {
            samples.push(timed(&mut deno_run())?);
        }
        if let (Ok(samples), true) = (no_pause, round % DENO_EVERY == 0) {
            for _ in 0..5 {
                samples.push(call(&mut back_to_back)?);
            }
            // Wait until this server has prepared its boxes, so that it does not slow down the next sample.
            std::thread::sleep(PAUSE);
        }
        round += 1;
    }
    let [belljar, deno, no_pause] = rows;
    Ok(Report {
        bench: "code",
        description: format!(
            "round trip of execute_code with a typed one-line program over MCP, {round} rounds"
        ),
        unit: "ms",
        reference: "deno",
        goal: Goal::AtMost { first: 0.2, moonshot: 0.05 },
        rows: vec![
            Row { name: Peer::Belljar.name(), samples: belljar },
            Row { name: "deno", samples: deno },
            Row { name: "no pause", samples: no_pause },
        ],
        also: &[],
        notes: vec![
            format!(
                "{} ms between calls; `no pause`: groups of five calls without a pause",
                PAUSE.as_millis()
            ),
            versions(),
        ],
        failures: Vec::new(),
    })
}

/// Measures the round trip of `/bin/true` in a new box of a running server.
pub(super) fn warm(lab: &Lab, budget: Option<Duration>) -> Result<Report> {
    let mut server = Server::start(lab)?;
    let arguments = json!({ "command": ["/bin/true"] });
    let call = |server: &mut Server| server.call("run_command", &arguments, "");
    let bwrap = Peer::Bwrap.try_out(lab);
    let mut rows: [Result<Vec<f64>, String>; 2] = [Ok(Vec::new()), bwrap.map(|()| Vec::new())];
    for _ in 0..WARM_UP {
        call(&mut server)?;
        std::thread::sleep(PAUSE);
    }
    let (started, budget) = (Instant::now(), budget.unwrap_or(BUDGET));
    let mut round = 0;
    while round < MIN_ROUNDS || started.elapsed() < budget {
        let [belljar, bwrap] = &mut rows;
        if let Ok(samples) = belljar {
            samples.push(call(&mut server)?);
        }
        std::thread::sleep(PAUSE);
        if let Ok(samples) = bwrap {
            samples.push(timed(&mut Peer::Bwrap.command(lab, &["/bin/true"])?)?);
        }
        round += 1;
    }
    let [belljar, bwrap] = rows;
    Ok(Report {
        bench: "warm",
        description: format!(
            "round trip of /bin/true in a new box of a running server, {round} rounds"
        ),
        unit: "ms",
        reference: Peer::Bwrap.name(),
        goal: Goal::AtMost { first: 0.5, moonshot: 0.2 },
        rows: vec![
            Row { name: Peer::Belljar.name(), samples: belljar },
            Row { name: Peer::Bwrap.name(), samples: bwrap },
        ],
        also: &[],
        notes: vec![format!("{} ms between calls", PAUSE.as_millis()), versions()],
        failures: Vec::new(),
    })
}

/// Returns a function that pauses, calls `execute_code`, and returns the duration in milliseconds.
pub(super) fn code_calls(lab: &Lab) -> Result<impl FnMut() -> Result<f64>> {
    calls(lab, "execute_code", json!({ "code": ONE_LINER }), "42\n")
}

/// Returns a function that pauses, calls `run_command`, and returns the duration in milliseconds.
pub(super) fn warm_calls(lab: &Lab) -> Result<impl FnMut() -> Result<f64>> {
    calls(lab, "run_command", json!({ "command": ["/bin/true"] }), "")
}

fn calls(
    lab: &Lab,
    tool: &'static str,
    arguments: Value,
    expected: &'static str,
) -> Result<impl FnMut() -> Result<f64> + use<>> {
    let mut server = Server::start(lab)?;
    Ok(move || {
        std::thread::sleep(PAUSE);
        server.call(tool, &arguments, expected)
    })
}

/// A running `belljar mcp` with its standard streams.
#[derive(Debug)]
struct Server {
    process: Child,
    input: Option<ChildStdin>,
    output: BufReader<ChildStdout>,
    last_id: u64,
}

impl Server {
    fn start(lab: &Lab) -> Result<Self> {
        let mut command: Command = as_from_a_shell(&lab.belljar);
        command.arg("mcp").env("BELLJAR_HOME", &lab.state).current_dir(&lab.workspace);
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut process = command.spawn().context("cannot start belljar mcp")?;
        let input = process.stdin.take();
        let output = BufReader::new(process.stdout.take().context("belljar mcp has no stdout")?);
        let mut server = Self { process, input, output, last_id: 0 };
        let client = json!({ "name": "bench", "version": "1" });
        let initialize =
            json!({ "protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": client });
        server.request("initialize", &initialize)?;
        server.send(&json!({ "jsonrpc": "2.0", "method": "notifications/initialized" }))?;
        server.request("tools/list", &json!({}))?;
        Ok(server)
    }

    /// Calls a tool, checks its stdout, and returns the duration in milliseconds.
    fn call(&mut self, tool: &str, arguments: &Value, expected: &str) -> Result<f64> {
        let started = Instant::now();
        let response =
            self.request("tools/call", &json!({ "name": tool, "arguments": arguments }))?;
        let took = started.elapsed().as_secs_f64() * 1e3;
        let stdout = response.pointer("/result/structuredContent/stdout").and_then(Value::as_str);
        if stdout != Some(expected) {
            bail!("unexpected response of belljar mcp: {response}");
        }
        Ok(took)
    }

    /// Sends a request and waits for its response.
    fn request(&mut self, method: &str, params: &Value) -> Result<Value> {
        self.last_id += 1;
        let id = self.last_id;
        self.send(&json!({ "jsonrpc": "2.0", "id": id, "method": method, "params": params }))?;
        loop {
            let mut line = String::new();
            if self.output.read_line(&mut line)? == 0 {
                bail!("belljar mcp closed its stdout");
            }
            let response: Value =
                serde_json::from_str(&line).context("cannot parse a response of belljar mcp")?;
            if response.get("id").and_then(Value::as_u64) == Some(id) {
                return Ok(response);
            }
        }
    }

    fn send(&mut self, message: &Value) -> Result<()> {
        let input = self.input.as_mut().context("the stdin of belljar mcp is closed")?;
        writeln!(input, "{message}").context("cannot write to belljar mcp")
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        drop(self.input.take());
        self.process.wait().ok(); // the server exits when its stdin is closed
    }
}
