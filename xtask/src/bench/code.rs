//! `code` and `warm`: one more box from a server that runs, over MCP on its standard streams.
//!
//! Goals: a typed one-liner in at most 0.2 × what Deno takes for the same file, then 0.05 ×; a box for
//! `/bin/true` in at most 0.5 × bubblewrap, then 0.2 ×.

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
/// A slow peer takes part in every third round.
const DENO_EVERY: usize = 3;
/// What a model may well need to think about the last answer; boxes are made ready meanwhile.
const BETWEEN: Duration = Duration::from_millis(50);
const ONE_LINER: &str = "const answer: number = 6 * 7; console.log(answer);";

/// `execute_code` of a typed one-liner, the round trip.
pub(super) fn code(lab: &Lab, budget: Option<Duration>) -> Result<Report> {
    let file = lab.scratch.join("one.ts");
    std::fs::write(&file, ONE_LINER).context("write the program")?;
    let deno = lab.peers.join("node_modules/.bin/deno");
    let cold = || {
        let mut command = as_from_a_shell(&deno);
        command.args(["run", "--quiet"]).arg(&file).env("DENO_NO_UPDATE_CHECK", "1");
        command.env("DENO_DIR", lab.scratch.join("deno"));
        command
    };
    let mut server = Server::start(lab)?;
    let arguments = json!({ "code": ONE_LINER });
    let ask = |server: &mut Server| server.call("execute_code", &arguments, "42\n");
    let mut back_to_back = Server::start(lab)?;
    let mut rows: [Result<Vec<f64>, String>; 3] =
        [Ok(Vec::new()), super::peers::try_once(cold()).map(|()| Vec::new()), Ok(Vec::new())];
    for _ in 0..WARM_UP {
        ask(&mut server)?;
        ask(&mut back_to_back)?;
        std::thread::sleep(BETWEEN);
    }
    let (started, budget) = (Instant::now(), budget.unwrap_or(BUDGET));
    let mut round = 0;
    while round < MIN_ROUNDS || started.elapsed() < budget {
        let [ours, theirs, at_once] = &mut rows;
        if let Ok(samples) = ours {
            samples.push(ask(&mut server)?);
        }
        std::thread::sleep(BETWEEN);
        if let (Ok(samples), true) = (theirs, round % DENO_EVERY == 0) {
            samples.push(timed(&mut cold())?);
        }
        if let (Ok(samples), true) = (at_once, round % DENO_EVERY == 0) {
            for _ in 0..5 {
                samples.push(ask(&mut back_to_back)?);
            }
            // Its boxes are made ready too, which is nobody else's business.
            std::thread::sleep(BETWEEN);
        }
        round += 1;
    }
    let [ours, theirs, at_once] = rows;
    Ok(Report {
        bench: "code",
        what: format!("execute_code of a typed one-liner over MCP, the round trip, {round} rounds"),
        unit: "ms",
        reference: "deno",
        goal: Goal::AtMost { first: 0.2, moonshot: 0.05 },
        rows: vec![
            Row { name: Peer::Belljar.name(), samples: ours },
            Row { name: "deno", samples: theirs },
            Row { name: "no pause", samples: at_once },
        ],
        also: &[],
        notes: vec![
            format!(
                "{} ms between calls; `no pause`: five calls at a time without",
                BETWEEN.as_millis()
            ),
            versions(),
        ],
        broken: Vec::new(),
    })
}

/// `/bin/true` in one more box of a server that runs.
pub(super) fn warm(lab: &Lab, budget: Option<Duration>) -> Result<Report> {
    let mut server = Server::start(lab)?;
    let arguments = json!({ "command": ["/bin/true"] });
    let ask = |server: &mut Server| server.call("run_command", &arguments, "");
    let bwrap = Peer::Bwrap.try_out(lab);
    let mut rows: [Result<Vec<f64>, String>; 2] = [Ok(Vec::new()), bwrap.map(|()| Vec::new())];
    for _ in 0..WARM_UP {
        ask(&mut server)?;
        std::thread::sleep(BETWEEN);
    }
    let (started, budget) = (Instant::now(), budget.unwrap_or(BUDGET));
    let mut round = 0;
    while round < MIN_ROUNDS || started.elapsed() < budget {
        let [ours, theirs] = &mut rows;
        if let Ok(samples) = ours {
            samples.push(ask(&mut server)?);
        }
        std::thread::sleep(BETWEEN);
        if let Ok(samples) = theirs {
            samples.push(timed(&mut Peer::Bwrap.command(lab, &["/bin/true"])?)?);
        }
        round += 1;
    }
    let [ours, theirs] = rows;
    Ok(Report {
        bench: "warm",
        what: format!(
            "/bin/true in one more box of a running server, the round trip, {round} rounds"
        ),
        unit: "ms",
        reference: Peer::Bwrap.name(),
        goal: Goal::AtMost { first: 0.5, moonshot: 0.2 },
        rows: vec![
            Row { name: Peer::Belljar.name(), samples: ours },
            Row { name: Peer::Bwrap.name(), samples: theirs },
        ],
        also: &[],
        notes: vec![format!("{} ms between calls", BETWEEN.as_millis()), versions()],
        broken: Vec::new(),
    })
}

/// One call of `execute_code` after another, each with a pause before it; its milliseconds.
pub(super) fn code_calls(lab: &Lab) -> Result<impl FnMut() -> Result<f64>> {
    calls(lab, "execute_code", json!({ "code": ONE_LINER }), "42\n")
}

/// One call of `run_command` after another, each with a pause before it; its milliseconds.
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
        std::thread::sleep(BETWEEN);
        server.call(tool, &arguments, expected)
    })
}

/// `belljar mcp` and a client of it.
#[derive(Debug)]
struct Server {
    process: Child,
    input: Option<ChildStdin>,
    output: BufReader<ChildStdout>,
    asked: u64,
}

impl Server {
    fn start(lab: &Lab) -> Result<Self> {
        let mut command: Command = as_from_a_shell(&lab.belljar);
        command.arg("mcp").env("BELLJAR_HOME", &lab.state).current_dir(&lab.workspace);
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut process = command.spawn().context("start belljar mcp")?;
        let input = process.stdin.take();
        let output = BufReader::new(process.stdout.take().context("its output")?);
        let mut server = Self { process, input, output, asked: 0 };
        let client = json!({ "name": "bench", "version": "1" });
        let hello =
            json!({ "protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": client });
        server.ask("initialize", &hello)?;
        server.say(&json!({ "jsonrpc": "2.0", "method": "notifications/initialized" }))?;
        server.ask("tools/list", &json!({}))?;
        Ok(server)
    }

    /// Milliseconds until a tool has answered, with this on its standard output.
    fn call(&mut self, tool: &str, arguments: &Value, expected: &str) -> Result<f64> {
        let started = Instant::now();
        let answer = self.ask("tools/call", &json!({ "name": tool, "arguments": arguments }))?;
        let took = started.elapsed().as_secs_f64() * 1e3;
        let stdout = answer.pointer("/result/structuredContent/stdout").and_then(Value::as_str);
        if stdout != Some(expected) {
            bail!("an unexpected answer: {answer}");
        }
        Ok(took)
    }

    fn ask(&mut self, method: &str, params: &Value) -> Result<Value> {
        self.asked += 1;
        let id = self.asked;
        self.say(&json!({ "jsonrpc": "2.0", "id": id, "method": method, "params": params }))?;
        loop {
            let mut line = String::new();
            if self.output.read_line(&mut line)? == 0 {
                bail!("belljar mcp ended");
            }
            let answer: Value = serde_json::from_str(&line).context("an answer")?;
            if answer.get("id").and_then(Value::as_u64) == Some(id) {
                return Ok(answer);
            }
        }
    }

    fn say(&mut self, message: &Value) -> Result<()> {
        let input = self.input.as_mut().context("its input")?;
        writeln!(input, "{message}").context("speak to belljar mcp")
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        drop(self.input.take());
        self.process.wait().ok(); // it ends with its input
    }
}
