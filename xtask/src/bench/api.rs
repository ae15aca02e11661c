//! The API of `belljar serve`: `api`, `api-latency`, `api-run`, `api-events`, `api-terminals`, `api-boxes`
//! and `api-runs`.
//!
//! xtask links no HTTP client, so the clients and the reference server are an example of `belljar-gateway`.
//! wrk makes the load. The goals are in `docs/specification.md`.

use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::time::Duration;

use anyhow::{Context as _, Result, bail, ensure};

use super::lab::{Lab, timed};
use super::ledger::remove_dir;
use super::procs;
use super::report::{Goal, Report, Row};
use super::runs::RunsTool;
use crate::dist;
use crate::shell::{as_from_a_shell, program, read};

const CONNECTIONS: &str = "64";
const ROUNDS: usize = 5;
const LIST: &str = "/v1/boxes";
/// The boxes in the list that is requested under load: one page.
const LISTED: usize = 20;
const RUN: &str = r#"{"command":["/bin/true"],"network":{"mode":"none"}}"#;
const RUNS: usize = 40;
const LISTENERS: usize = 1000;
const TERMINALS: usize = 200;
const MANY_BOXES: usize = 10_000;
const MANY_RUNS: usize = 100_000;
const FEW: usize = 100;
const REQUESTS: &str = "300";

/// The built example.
struct Tool(PathBuf);

impl Tool {
    fn build() -> Result<Self> {
        dist::build(&["--package", "belljar-gateway", "--example", "bench_api"])?;
        Ok(Self(dist::output_dir()?.join("examples/bench_api")))
    }

    fn command(&self, args: &[&str]) -> Command {
        let mut command = program(&self.0);
        command.args(args);
        command
    }

    /// Starts an action that runs until its stdin is closed, and returns it with its first line.
    fn start(&self, args: &[&str]) -> Result<(Background, String)> {
        Background::start(self.command(args))
    }

    fn tokens(&self, server: &Server, count: usize, scopes: &[&str]) -> Result<Vec<String>> {
        let (home, count) = (server.home.display().to_string(), count.to_string());
        let args: Vec<&str> =
            ["tokens", &home, &count].into_iter().chain(scopes.to_vec()).collect();
        Ok(serde_json::from_str(&read(&mut self.command(&args))?)?)
    }

    /// Sends a request several times and returns the milliseconds of each.
    fn time(
        &self,
        server: &Server,
        token: &str,
        rounds: &str,
        request: &[&str],
    ) -> Result<Vec<f64>> {
        let start = ["time", &server.address, token, rounds];
        let args: Vec<&str> = start.into_iter().chain(request.iter().copied()).collect();
        Ok(serde_json::from_str(&read(&mut self.command(&args))?)?)
    }
}

/// A process that runs until its stdin is closed.
struct Background {
    child: Child,
    stdin: Option<ChildStdin>,
}

impl Background {
    fn start(mut command: Command) -> Result<(Self, String)> {
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
        let stdin = child.stdin.take();
        let mut line = String::new();
        let stdout = child.stdout.take().context("the process has no stdout")?;
        let background = Self { child, stdin };
        BufReader::new(stdout).read_line(&mut line)?;
        ensure!(!line.is_empty(), "the process ended before it was ready");
        Ok((background, line.trim().to_owned()))
    }
}

impl Drop for Background {
    fn drop(&mut self) {
        drop(self.stdin.take());
        self.child.wait().ok(); // the process ends with its stdin
    }
}

/// A running `belljar serve` with a state directory of its own.
struct Server {
    child: Child,
    home: PathBuf,
    address: String,
}

impl Server {
    /// Starts a server on a state directory, which is created if it does not exist.
    fn start(lab: &Lab, home: &Path) -> Result<Self> {
        let config = lab.scratch.join("serve.toml");
        let rates = "[serve]\nreads-per-second = 1000000\nwrites-per-second = 1000000\n";
        std::fs::write(&config, rates)?;
        let mut command = as_from_a_shell(&lab.belljar);
        command.args(["serve", "--listen", "127.0.0.1:0", "--config"]).arg(&config);
        command.env("BELLJAR_HOME", home).current_dir(&lab.workspace);
        let mut child = command.stdin(Stdio::null()).stderr(Stdio::piped()).spawn()?;
        let mut stderr = BufReader::new(child.stderr.take().context("the server has no stderr")?);
        let mut line = String::new();
        while !line.contains("serving at ") {
            line.clear();
            if stderr.read_line(&mut line)? == 0 {
                bail!("belljar serve ended before it was ready");
            }
        }
        // Later lines are not read, but the server must not wait for a reader.
        std::thread::spawn(move || std::io::copy(&mut stderr, &mut std::io::sink()));
        let (_, port) = line.trim().rsplit_once(':').context("the address has no port")?;
        Ok(Self { child, home: home.to_owned(), address: format!("127.0.0.1:{port}") })
    }

    /// Returns the private memory of the server in KiB.
    fn memory(&self) -> Result<f64> {
        let memory = procs::memory(self.child.id())?.context("the server has ended")?;
        Ok(f64::from(u32::try_from(memory.private)?))
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.child.kill().ok(); // its state directory is removed
        self.child.wait().ok();
    }
}

/// One measurement by wrk.
struct Load {
    requests_per_second: f64,
    /// The 99th percentile in milliseconds.
    p99: f64,
}

fn load(address: &str, token: &str, seconds: u64) -> Result<Load> {
    let mut wrk = program("wrk");
    wrk.args(["-t", "1", "-c", CONNECTIONS, "-d", &format!("{seconds}s"), "--latency", "-H"]);
    wrk.arg(format!("Authorization: Bearer {token}")).arg(format!("http://{address}{LIST}"));
    parse_load(&read(&mut wrk)?)
}

fn parse_load(text: &str) -> Result<Load> {
    ensure!(!text.contains("Non-2xx"), "the server refused requests:\n{text}");
    let value = |start: &str| {
        let line = text.lines().find_map(|line| line.trim().strip_prefix(start));
        line.map(str::trim).with_context(|| format!("no `{start}` in the output of wrk:\n{text}"))
    };
    let requests_per_second = value("Requests/sec:")?.parse()?;
    let p99 = value("99%")?;
    let at = p99.find(|c: char| c.is_ascii_alphabetic()).context("the latency has no unit")?;
    let (number, unit) = p99.split_at(at);
    let number: f64 = number.parse()?;
    let p99 = match unit {
        "us" => number / 1000.0,
        "ms" => number,
        "s" => number * 1000.0,
        _ => bail!("unknown unit of wrk: {unit}"),
    };
    Ok(Load { requests_per_second, p99 })
}

/// Creates a state directory for one measurement.
fn home(lab: &Lab, name: &str) -> Result<PathBuf> {
    let home = lab.scratch.join(name);
    remove_dir(&home)?;
    std::fs::create_dir_all(&home)?;
    Ok(home)
}

/// The loads on the server and on the bare handler, in turns.
fn loads(lab: &Lab, budget: Option<Duration>) -> Result<(Vec<Load>, Vec<Load>)> {
    let tool = Tool::build()?;
    let server = Server::start(lab, &home(lab, "api")?)?;
    let tokens = tool.tokens(&server, 1, &["boxes:read", "boxes:write"])?;
    let token = tokens.first().context("no token was made")?;
    read(&mut tool.command(&["create", &server.address, token, &LISTED.to_string()]))?;
    let curl = program("curl")
        .args(["-sSf", "-H"])
        .arg(format!("Authorization: Bearer {token}"))
        .arg(format!("http://{}{LIST}", server.address))
        .output()?;
    let body = lab.scratch.join("list.json");
    std::fs::write(&body, &curl.stdout)?;
    let (_bare, port) = tool.start(&["bare", &body.display().to_string()])?;
    let bare = format!("127.0.0.1:{port}");
    let seconds = budget.map_or(5, |budget| budget.as_secs().max(1));
    let (mut own, mut reference) = (Vec::new(), Vec::new());
    for _ in 0..ROUNDS {
        own.push(load(&server.address, token, seconds)?);
        reference.push(load(&bare, token, seconds)?);
    }
    Ok((own, reference))
}

/// `api`: the rate of requests for a list at 64 connections.
pub(super) fn rate(lab: &Lab, budget: Option<Duration>) -> Result<Report> {
    let (own, bare) = loads(lab, budget)?;
    let rates = |loads: Vec<Load>| Ok(loads.iter().map(|it| it.requests_per_second).collect());
    Ok(Report {
        bench: "api",
        description: format!("GET {LIST} with {LISTED} boxes at {CONNECTIONS} connections"),
        unit: "requests/s",
        reference: "bare axum",
        goal: Goal::AtLeast { first: 0.5, moonshot: 0.8 },
        rows: vec![
            Row { name: "belljar", samples: rates(own) },
            Row { name: "bare axum", samples: rates(bare) },
        ],
        also: &[],
        notes: vec!["bare axum: a handler that returns the same bytes".to_owned()],
        failures: Vec::new(),
    })
}

/// `api-latency`: the 99th percentile of the time of the same requests.
pub(super) fn latency(lab: &Lab, budget: Option<Duration>) -> Result<Report> {
    let (own, bare) = loads(lab, budget)?;
    let times = |loads: Vec<Load>| Ok(loads.iter().map(|it| it.p99).collect());
    Ok(Report {
        bench: "api-latency",
        description: format!("p99 of GET {LIST} with {LISTED} boxes at {CONNECTIONS} connections"),
        unit: "ms",
        reference: "bare axum",
        goal: Goal::AtMost { first: 2.0, moonshot: 1.3 },
        rows: vec![
            Row { name: "belljar", samples: times(own) },
            Row { name: "bare axum", samples: times(bare) },
        ],
        also: &[],
        notes: Vec::new(),
        failures: Vec::new(),
    })
}

/// `api-run`: a box, a run and its result in one request, compared with the command line.
pub(super) fn run(lab: &Lab, _: Option<Duration>) -> Result<Report> {
    let tool = Tool::build()?;
    let server = Server::start(lab, &home(lab, "api-run")?)?;
    let tokens = tool.tokens(&server, 1, &["runs:write", "boxes:write"])?;
    let token = tokens.first().context("no token was made")?;
    let (mut api, mut cli) = (Vec::new(), Vec::new());
    for _ in 0..RUNS {
        api.extend(tool.time(&server, token, "2", &["POST", "/v1/run", RUN])?.into_iter().skip(1));
        cli.push(timed(&mut lab.box_for(&["/bin/true"]))?);
    }
    Ok(Report {
        bench: "api-run",
        description: format!("a new box, /bin/true and its result, {RUNS} rounds"),
        unit: "ms",
        reference: "belljar run",
        goal: Goal::AtMost { first: 1.3, moonshot: 0.6 },
        rows: vec![
            Row { name: "POST run", samples: Ok(api) },
            Row { name: "belljar run", samples: Ok(cli) },
        ],
        also: &[],
        notes: vec!["POST run: POST /v1/run on an open connection".to_owned()],
        failures: Vec::new(),
    })
}

/// Measures the memory that open streams need in the server, in KiB for each stream.
fn stream_memory<T>(server: &Server, count: usize, open: impl Fn() -> Result<T>) -> Result<f64> {
    drop(open()?); // allocations that stay are no memory of the streams
    std::thread::sleep(Duration::from_secs(2));
    let before = server.memory()?;
    let streams = open()?;
    std::thread::sleep(Duration::from_secs(2));
    let used = server.memory()? - before;
    drop(streams);
    Ok(used.max(0.0) / f64::from(u32::try_from(count)?))
}

/// A report of memory, whose reference is the limit.
fn memory_report(bench: &'static str, description: String, used: Vec<f64>, limit: f64) -> Report {
    Report {
        bench,
        description,
        unit: "KiB",
        reference: "limit",
        goal: Goal::AtMost { first: 1.0, moonshot: 0.5 },
        rows: vec![
            Row { name: "belljar", samples: Ok(used) },
            Row { name: "limit", samples: Ok(vec![limit]) },
        ],
        also: &[],
        notes: vec![
            "private memory of the server, with its allocations for later streams".to_owned(),
        ],
        failures: Vec::new(),
    }
}

/// `api-events`: the memory of the server for each listener of events.
pub(super) fn events(lab: &Lab, _: Option<Duration>) -> Result<Report> {
    /// The limit of streams of events for one principal.
    const EACH: usize = 8;
    let tool = Tool::build()?;
    let mut used = Vec::new();
    for _ in 0..3 {
        let server = Server::start(lab, &home(lab, "api-events")?)?;
        let tokens = tool.tokens(&server, LISTENERS.div_ceil(EACH), &["boxes:read"])?;
        let count = LISTENERS.to_string();
        let start = ["events", &server.address, &count];
        let args: Vec<&str> = start.into_iter().chain(tokens.iter().map(String::as_str)).collect();
        used.push(stream_memory(&server, LISTENERS, || Ok(tool.start(&args)?.0))?);
    }
    let description = format!("memory of the server for each of {LISTENERS} listeners of events");
    Ok(memory_report("api-events", description, used, 32.0))
}

/// `api-terminals`: the memory of the server for each attached terminal.
pub(super) fn terminals(lab: &Lab, _: Option<Duration>) -> Result<Report> {
    /// The limit of WebSockets for one principal.
    const EACH: usize = 16;
    /// The limit of viewers of one box.
    const VIEWERS: usize = 32;
    let tool = Tool::build()?;
    let mut used = Vec::new();
    for _ in 0..3 {
        let server = Server::start(lab, &home(lab, "api-terminals")?)?;
        let scopes = ["boxes:read", "boxes:write"];
        let tokens = tool.tokens(&server, TERMINALS.div_ceil(EACH), &scopes)?;
        let token = tokens.first().context("no token was made")?;
        let groups = tokens.chunks(VIEWERS / EACH).enumerate();
        let groups: Vec<(String, &[String])> =
            groups.map(|(number, tokens)| (format!("screen-{number}"), tokens)).collect();
        for (name, _) in &groups {
            let new = format!(r#"{{"name":"{name}","program":["/bin/sleep","1000"]}}"#);
            tool.time(&server, token, "1", &["POST", LIST, &new])?;
        }
        let open = || {
            let mut left = TERMINALS;
            let mut viewers = Vec::new();
            for (name, tokens) in &groups {
                let count = left.min(VIEWERS);
                left -= count;
                let count = count.to_string();
                let start = ["screens", &server.address, name, &count];
                let tokens = tokens.iter().map(String::as_str);
                let args: Vec<&str> = start.into_iter().chain(tokens).collect();
                viewers.push(tool.start(&args)?.0);
            }
            Ok(viewers)
        };
        used.push(stream_memory(&server, TERMINALS, open)?);
        for (name, _) in &groups {
            let stop = ["POST", &format!("/v1/boxes/{name}/stop"), r#"{"now":true}"#];
            tool.time(&server, token, "1", &stop)?;
        }
    }
    let description = format!("memory of the server for each of {TERMINALS} attached terminals");
    Ok(memory_report("api-terminals", description, used, 64.0))
}

/// Measures pages of a list with many and with few items in turns, without and with a filter.
fn scale(
    bench: &'static str,
    description: String,
    servers: &[(&'static str, &Server, String); 2],
    paths: [&str; 2],
) -> Result<Report> {
    let tool = Tool::build()?;
    let mut rows: Vec<Row> = Vec::new();
    let mut samples = vec![Vec::new(); servers.len() * paths.len()];
    for _ in 0..ROUNDS {
        let mut all = samples.iter_mut();
        for path in paths {
            for (_, server, token) in servers {
                let times = tool.time(server, token, REQUESTS, &["GET", path])?;
                all.next().context("a row is missing")?.extend(times.into_iter().skip(1));
            }
        }
    }
    let names = ["many", "few", "many, q", "few, q"];
    for (name, samples) in names.into_iter().zip(samples) {
        rows.push(Row { name, samples: Ok(samples) });
    }
    let [(many, ..), (few, ..)] = servers;
    Ok(Report {
        bench,
        description,
        unit: "ms",
        reference: "few",
        goal: Goal::AtMost { first: 1.5, moonshot: 1.1 },
        rows,
        also: &["many, q"],
        notes: vec![format!("many: {many}; few: {few}; q: with the filter of {}", paths[1])],
        failures: Vec::new(),
    })
}

/// `api-boxes`: pages of 10,000 boxes, compared with 100.
pub(super) fn boxes(lab: &Lab, _: Option<Duration>) -> Result<Report> {
    let tool = Tool::build()?;
    let mut servers = Vec::new();
    for (name, count) in [("api-boxes-many", MANY_BOXES), ("api-boxes-few", FEW)] {
        let server = Server::start(lab, &home(lab, name)?)?;
        let tokens = tool.tokens(&server, 1, &["boxes:read", "boxes:write"])?;
        let token = tokens.first().context("no token was made")?.clone();
        read(&mut tool.command(&["create", &server.address, &token, &count.to_string()]))?;
        servers.push((server, token));
    }
    let [(many, many_token), (few, few_token)] = servers.as_slice() else { bail!("two servers") };
    let servers = [("10,000", many, many_token.clone()), ("100", few, few_token.clone())];
    let description = "a page of 50 boxes, without and with a filter".to_owned();
    scale("api-boxes", description, &servers, ["/v1/boxes", "/v1/boxes?q=00001%20template:default"])
}

/// `api-runs`: pages of 100,000 runs, compared with 100.
pub(super) fn runs(lab: &Lab, _: Option<Duration>) -> Result<Report> {
    let (tool, history) = (Tool::build()?, RunsTool::build(lab)?);
    let mut servers = Vec::new();
    for (name, count) in [("api-runs-many", MANY_RUNS), ("api-runs-few", FEW)] {
        let home = home(lab, name)?;
        history.run("history", &home, &[&count.to_string()])?;
        let server = Server::start(lab, &home)?;
        let tokens = tool.tokens(&server, 1, &["runs:read"])?;
        let token = tokens.first().context("no token was made")?.clone();
        tool.time(&server, &token, "1", &["GET", "/v1/runs"])?; // reads the ledger once
        servers.push((server, token));
    }
    let [(many, many_token), (few, few_token)] = servers.as_slice() else { bail!("two servers") };
    let servers = [("100,000", many, many_token.clone()), ("100", few, few_token.clone())];
    let description = "a page of 50 runs, without and with a filter".to_owned();
    scale("api-runs", description, &servers, ["/v1/runs", "/v1/runs?q=state:succeeded"])
}

#[cfg(test)]
mod tests {
    use super::*;

    const WRK: &str = "\
  1 threads and 64 connections
  Thread Stats   Avg      Stdev     Max   +/- Stdev
    Latency     1.20ms  500.00us   9.00ms   90.00%
  Latency Distribution
     50%    1.10ms
     99%  900.00us
  100000 requests in 5.00s, 30.00MB read
Requests/sec:  20000.50
";

    #[test]
    fn parse_load_reads_the_rate_and_the_99th_percentile() {
        let load = parse_load(WRK).unwrap();
        assert!((load.requests_per_second - 20000.5).abs() < 1e-9);
        assert!((load.p99 - 0.9).abs() < 1e-9);
        let in_ms = parse_load(&WRK.replace("900.00us", "1.50ms")).unwrap();
        assert!((in_ms.p99 - 1.5).abs() < 1e-9);
    }

    #[test]
    fn parse_load_rejects_refused_requests() {
        let refused = format!("{WRK}  Non-2xx or 3xx responses: 7\n");
        assert!(parse_load(&refused).is_err());
    }
}
