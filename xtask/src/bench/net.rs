//! What the network benches share: the server, the client, and the ways between them.
//!
//! Both ends are `crates/testkit/examples/net_bench`. The client runs on the host toward the server
//! and toward mitmproxy, and inside a box toward the broker; always the same program, the same
//! requests over HTTP/1.1 and TLS 1.3, and secrets of the same shape.

use std::fmt::Write as _;
use std::io::{BufRead as _, BufReader, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail, ensure};
use serde_json::{Value, json};

use super::lab::Lab;
use super::peers::mitmdump;
use super::procs;
use crate::dist;
use crate::shell::{as_from_a_shell, run};

const PROGRAM: &str = "net_bench";
const HOST: &str = "bench.example";
const PATIENCE: Duration = Duration::from_secs(60);

/// The upstream, and what everybody needs to reach it.
pub(super) struct Stage<'a> {
    lab: &'a Lab,
    server: Ended,
    address: SocketAddr,
    program: PathBuf,
    dir: PathBuf,
    secrets: usize,
}

/// The ways from the client to the server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Way {
    Belljar,
    Mitmproxy,
    Direct,
}

impl Way {
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Belljar => "belljar",
            Self::Mitmproxy => "mitmproxy",
            Self::Direct => "direct",
        }
    }
}

impl<'a> Stage<'a> {
    /// Builds both ends and starts the server; the client will send this many secrets.
    pub(super) fn new(lab: &'a Lab, secrets: usize) -> Result<Self> {
        dist::build(&["--package", "belljar-testkit", "--example", PROGRAM])?;
        let program = dist::built()?.join("examples").join(PROGRAM);
        // A box sees its workspace, and the target directory is none of it.
        std::fs::copy(&program, lab.workspace.join(PROGRAM)).context("copy the client")?;
        let dir = lab.scratch.join(format!("net-{}", lab.fresh()));
        std::fs::create_dir_all(&dir)?;
        let mut command = as_from_a_shell(&program);
        command.arg("serve").arg(&dir).stdin(Stdio::null()).stdout(Stdio::piped());
        let mut server = Ended(command.spawn().context("start the server")?);
        let out = server.0.stdout.take().context("its output")?;
        let mut line = String::new();
        BufReader::new(out).read_line(&mut line)?;
        let address = line.trim().parse().context("the server tells its address")?;
        Ok(Self { lab, server, address, program, dir, secrets })
    }

    /// Opens one way. What is said when it cannot be had is for a person to read.
    pub(super) fn open(&self, way: Way, path: &str) -> Result<Open> {
        match way {
            Way::Direct => {
                let ca = self.dir.join("ca.pem");
                Ok(Open { client: self.outside(path, self.address, &ca)?, between: None })
            }
            Way::Mitmproxy => {
                let (proxy, address, ca) = self.mitmproxy()?;
                let client = self.outside(path, address, &ca)?;
                Ok(Open { client, between: Some(Between::Process(proxy)) })
            }
            Way::Belljar => {
                let client = self.inside(path)?;
                Ok(Open { client, between: Some(Between::Box) })
            }
        }
    }

    fn headers(&self) -> impl Iterator<Item = (String, String)> {
        let many = self.secrets > 1;
        (0..self.secrets).map(move |number| {
            let header = if many { format!("x-s{number}") } else { "authorization".to_owned() };
            (header, format!("S{number}"))
        })
    }

    fn outside(&self, path: &str, address: SocketAddr, ca: &Path) -> Result<Client> {
        let mut command = as_from_a_shell(&self.program);
        command.args(["ask", "--path", path, "--connect", &address.to_string(), "--ca"]).arg(ca);
        for (header, name) in self.headers() {
            command.arg("--header").arg(format!("{header}={}", placeholder(&name)));
        }
        Client::start(command)
    }

    fn inside(&self, path: &str) -> Result<Client> {
        let config = self.dir.join("belljar.toml");
        std::fs::write(&config, self.config())?;
        let home = self.dir.join("home");
        let belljar = || {
            let mut command = as_from_a_shell(&self.lab.belljar);
            command.env("BELLJAR_HOME", &home).current_dir(&self.lab.workspace);
            command.arg("--config").arg(&config);
            command
        };
        if !home.exists() {
            for (_, name) in self.headers() {
                let file = self.dir.join("value");
                std::fs::write(&file, value(&name))?;
                let name = name.to_lowercase();
                run(belljar()
                    .args(["secret", "set", &name, "--from-file"])
                    .arg(&file)
                    .stdout(Stdio::null()))?;
            }
        }
        let mut command = belljar();
        command.args(["run", "--"]).arg(Path::new("/workspace").join(PROGRAM));
        command.args(["ask", "--path", path]);
        for (header, name) in self.headers() {
            command.arg("--header-env").arg(format!("{header}={name}"));
        }
        Client::start(command)
    }

    fn config(&self) -> String {
        let names: Vec<String> = self.headers().map(|(_, name)| name.to_lowercase()).collect();
        let mut text = format!("[tls]\nroots = [{:?}]\n", self.dir.join("ca.pem"));
        for (header, name) in self.headers() {
            let lower = name.to_lowercase();
            // Writing to a string does not fail.
            write!(
                text,
                "\n[secret.{lower}]\nhosts = [\"{HOST}\"]\nslots = [\"header:{header}\"]\nenv = \"{name}\"\n"
            )
            .ok();
        }
        write!(
            text,
            "\n[template.default]\nnet = \"restricted\"\nsecrets = {names:?}\n\n[[template.default.allow]]\nhost = \"{HOST}\"\n\
             methods = [\"GET\"]\npaths = [\"/small\", \"/big/*\"]\nsecrets = {names:?}\nconnect = \"{}\"\n",
            self.address
        )
        .ok();
        text
    }

    /// mitmproxy in its fastest mode, where the client needs no `CONNECT`.
    fn mitmproxy(&self) -> Result<(Ended, SocketAddr, PathBuf)> {
        let program = mitmdump(self.lab);
        ensure!(program.exists(), "not installed");
        let secrets: Vec<Value> = self
            .headers()
            .map(|(header, name)| {
                json!({ "header": header, "placeholder": placeholder(&name), "value": value(&name) })
            })
            .collect();
        let conf = self.dir.join("mitmproxy.json");
        let words = json!({
            "host": HOST, "port": self.address.port(), "log": self.dir.join("mitmproxy.log"), "secrets": secrets,
        });
        std::fs::write(&conf, words.to_string())?;
        let addon = self.dir.join("addon.py");
        std::fs::write(&addon, include_str!("mitmproxy.py"))?;
        // Free a moment ago.
        let address = TcpListener::bind("127.0.0.1:0")?.local_addr()?;
        let confdir = self.dir.join("mitmproxy");
        let mut command = as_from_a_shell(program);
        command.arg("-q").arg("-s").arg(addon).env("BENCH_CONF", conf);
        command.args(["--mode", &format!("reverse:https://{HOST}:{}", self.address.port())]);
        command.args(["--listen-host", "127.0.0.1", "--listen-port", &address.port().to_string()]);
        let ca = self.dir.join("ca.pem");
        for (name, value) in [
            ("confdir", confdir.display().to_string()),
            ("keep_host_header", "true".to_owned()),
            ("ssl_verify_upstream_trusted_ca", ca.display().to_string()),
        ] {
            command.args(["--set", &format!("{name}={value}")]);
        }
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::inherit());
        let mut proxy = Ended(command.spawn().context("start mitmproxy")?);
        let started = Instant::now();
        while TcpStream::connect(address).is_err() {
            ensure!(proxy.0.try_wait()?.is_none(), "it ended at once");
            ensure!(started.elapsed() < PATIENCE, "it does not listen");
            std::thread::sleep(Duration::from_millis(50));
        }
        Ok((proxy, address, confdir.join("mitmproxy-ca-cert.pem")))
    }

    /// The server must still be there, or nothing that was measured counts.
    pub(super) fn end(mut self) -> Result<()> {
        ensure!(self.server.0.try_wait()?.is_none(), "the server ended early");
        Ok(())
    }
}

fn value(name: &str) -> String {
    format!("sk-bench-{name}-0123456789abcdefghijklmnopqrstuvwxyz")
}

fn placeholder(name: &str) -> String {
    format!("bj_{name}_zyxwvutsrqponmlkjihgfedcba9876543210")
}

/// The ways that are open, each with what is measured on it, or why it is not.
pub(super) type Table<T> = Vec<(Way, Result<(Open, T), String>)>;

/// A way that is open.
pub(super) struct Open {
    client: Client,
    between: Option<Between>,
}

/// Who stands between client and server.
enum Between {
    Process(Ended),
    /// Everything of `belljar run` that is not in the box.
    Box,
}

impl Open {
    pub(super) fn round(&mut self, connections: u32, seconds: u64) -> Result<Round> {
        self.client.round(connections, seconds)
    }

    /// The processes between the two ends; none on the direct way.
    fn processes(&self) -> Result<Vec<u32>> {
        let all = procs::all()?;
        Ok(match &self.between {
            None => Vec::new(),
            Some(Between::Process(proxy)) => {
                let mut found = procs::below(&all, proxy.0.id());
                found.push(proxy.0.id());
                found
            }
            Some(Between::Box) => {
                let outermost = self.client.process.0.id();
                let mut found = procs::below(&all, outermost);
                found.retain(|pid| procs::shares_our_pids(*pid));
                found.push(outermost);
                found
            }
        })
    }

    /// Processor time that they have used, in microseconds.
    pub(super) fn cpu(&self) -> Result<f64> {
        Ok(self.processes()?.into_iter().filter_map(procs::cpu_micros).sum())
    }

    /// Their resident memory in KiB.
    pub(super) fn resident(&self) -> Result<u64> {
        Ok(self.processes()?.into_iter().filter_map(procs::resident_kib).sum())
    }

    /// The same while a round runs: the most that was seen.
    pub(super) fn round_watched(&mut self, connections: u32, seconds: u64) -> Result<(Round, u64)> {
        self.client.begin(connections, seconds)?;
        let pids = self.processes()?;
        let done = std::sync::atomic::AtomicBool::new(false);
        std::thread::scope(|scope| {
            let most = scope.spawn(|| {
                let mut most = 0;
                while !done.load(std::sync::atomic::Ordering::Relaxed) {
                    let now = pids.iter().copied().filter_map(procs::resident_kib).sum::<u64>();
                    most = most.max(now);
                    std::thread::sleep(Duration::from_millis(5));
                }
                most
            });
            let round = self.client.finish();
            done.store(true, std::sync::atomic::Ordering::Relaxed);
            let most = most.join().unwrap_or(u64::MAX);
            Ok((round?, most))
        })
    }
}

/// What the client saw in one round.
#[derive(Debug, Clone, Copy)]
pub(super) struct Round {
    pub(super) requests: f64,
    pub(super) mib: f64,
    pub(super) seconds: f64,
    pub(super) p50_micros: f64,
}

struct Client {
    process: Ended,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
}

impl Client {
    fn start(mut command: Command) -> Result<Self> {
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::inherit());
        let mut process = Ended(command.spawn().context("start the client")?);
        let input = process.0.stdin.take().context("its input")?;
        let output = BufReader::new(process.0.stdout.take().context("its output")?);
        let mut client = Self { process, input, output };
        let said = client.line()?;
        ensure!(said == "ready", "the client said {said:?}");
        Ok(client)
    }

    fn line(&mut self) -> Result<String> {
        let mut line = String::new();
        if self.output.read_line(&mut line)? == 0 {
            bail!("the client ended: {}", self.process.0.wait()?);
        }
        Ok(line.trim().to_owned())
    }

    fn begin(&mut self, connections: u32, seconds: u64) -> Result<()> {
        writeln!(self.input, "{connections} {seconds}")?;
        Ok(self.input.flush()?)
    }

    fn finish(&mut self) -> Result<Round> {
        let told: Value = serde_json::from_str(&self.line()?).context("what the client tells")?;
        let number =
            |name: &str| told.get(name).and_then(Value::as_f64).context("a figure is missing");
        Ok(Round {
            requests: number("requests")?,
            mib: number("bytes")? / f64::from(1 << 20),
            seconds: number("seconds")?,
            p50_micros: number("p50_us")?,
        })
    }

    fn round(&mut self, connections: u32, seconds: u64) -> Result<Round> {
        self.begin(connections, seconds)?;
        self.finish()
    }
}

/// A process that ends with this value.
struct Ended(Child);

impl Drop for Ended {
    fn drop(&mut self) {
        // It may have ended by itself.
        self.0.kill().ok();
        self.0.wait().ok();
    }
}
