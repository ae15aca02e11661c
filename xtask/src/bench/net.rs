//! Shared code of the network benchmarks: the server, the client, and the routes between them.
//!
//! Client and server are `crates/testkit/examples/net_bench`. The client runs on the host for the routes
//! direct and mitmproxy, and inside a box for the route through the broker. It always sends the same
//! requests over HTTP/1.1 and TLS 1.3, with secrets of the same length.

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
const TIMEOUT: Duration = Duration::from_secs(60);

/// The running upstream server, with everything that a client needs to reach it.
pub(super) struct TestServer<'a> {
    lab: &'a Lab,
    server: ChildGuard,
    address: SocketAddr,
    program: PathBuf,
    dir: PathBuf,
    secrets: usize,
}

/// A route from the client to the server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Route {
    Belljar,
    Mitmproxy,
    Direct,
}

impl Route {
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Belljar => "belljar",
            Self::Mitmproxy => "mitmproxy",
            Self::Direct => "direct",
        }
    }
}

impl<'a> TestServer<'a> {
    /// Builds client and server and starts the server. Clients will send this number of secrets.
    pub(super) fn start(lab: &'a Lab, secrets: usize) -> Result<Self> {
        dist::build(&["--package", "belljar-testkit", "--example", PROGRAM])?;
        let program = dist::output_dir()?.join("examples").join(PROGRAM);
        // Copy the client into the workspace, because a box cannot read the target directory.
        std::fs::copy(&program, lab.workspace.join(PROGRAM))
            .context("cannot copy the benchmark client into the workspace")?;
        let dir = lab.scratch.join(format!("net-{}", lab.unique_number()));
        std::fs::create_dir_all(&dir)?;
        let mut command = as_from_a_shell(&program);
        command.arg("serve").arg(&dir).stdin(Stdio::null()).stdout(Stdio::piped());
        let mut server = ChildGuard(command.spawn().context("cannot start the server")?);
        let stdout = server.0.stdout.take().context("the server has no stdout")?;
        let mut line = String::new();
        BufReader::new(stdout).read_line(&mut line)?;
        let address =
            line.trim().parse().context("the first line of the server is not its address")?;
        Ok(Self { lab, server, address, program, dir, secrets })
    }

    /// Starts a client and, if the route needs one, a proxy.
    pub(super) fn connect(&self, route: Route, path: &str) -> Result<Connection> {
        match route {
            Route::Direct => {
                let ca = self.dir.join("ca.pem");
                let client = self.host_client(path, self.address, &ca)?;
                Ok(Connection { client, middle: None })
            }
            Route::Mitmproxy => {
                let (proxy, address, ca) = self.mitmproxy()?;
                let client = self.host_client(path, address, &ca)?;
                Ok(Connection { client, middle: Some(Middle::Process(proxy)) })
            }
            Route::Belljar => {
                let client = self.box_client(path)?;
                Ok(Connection { client, middle: Some(Middle::Belljar) })
            }
        }
    }

    /// Returns the name of the header and the name of the secret for each secret.
    fn headers(&self) -> impl Iterator<Item = (String, String)> {
        let many = self.secrets > 1;
        (0..self.secrets).map(move |number| {
            let header = if many { format!("x-s{number}") } else { "authorization".to_owned() };
            (header, format!("S{number}"))
        })
    }

    /// Starts a client on the host.
    fn host_client(&self, path: &str, address: SocketAddr, ca: &Path) -> Result<Client> {
        let mut command = as_from_a_shell(&self.program);
        command.args(["ask", "--path", path, "--connect", &address.to_string(), "--ca"]).arg(ca);
        for (header, name) in self.headers() {
            command.arg("--header").arg(format!("{header}={}", placeholder(&name)));
        }
        Client::start(command)
    }

    /// Starts a client in a box.
    fn box_client(&self, path: &str) -> Result<Client> {
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

    /// Returns the `belljar.toml` for the box of the client.
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

    /// Starts mitmproxy in its fastest mode, in which the client needs no `CONNECT`. Returns its process,
    /// address and CA certificate.
    fn mitmproxy(&self) -> Result<(ChildGuard, SocketAddr, PathBuf)> {
        let program = mitmdump(self.lab);
        ensure!(program.exists(), "mitmproxy is not installed");
        let secrets: Vec<Value> = self
            .headers()
            .map(|(header, name)| {
                json!({ "header": header, "placeholder": placeholder(&name), "value": value(&name) })
            })
            .collect();
        let conf = self.dir.join("mitmproxy.json");
        let settings = json!({
            "host": HOST, "port": self.address.port(), "log": self.dir.join("mitmproxy.log"), "secrets": secrets,
        });
        std::fs::write(&conf, settings.to_string())?;
        let addon = self.dir.join("addon.py");
        std::fs::write(&addon, include_str!("mitmproxy.py"))?;
        // The listener is closed at once, so the port is most likely still free when mitmproxy starts.
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
        let mut proxy = ChildGuard(command.spawn().context("cannot start mitmproxy")?);
        let started = Instant::now();
        while TcpStream::connect(address).is_err() {
            ensure!(proxy.0.try_wait()?.is_none(), "mitmproxy exited during its start");
            ensure!(started.elapsed() < TIMEOUT, "mitmproxy does not listen on its port");
            std::thread::sleep(Duration::from_millis(50));
        }
        Ok((proxy, address, confdir.join("mitmproxy-ca-cert.pem")))
    }

    /// Fails if the server has exited, because then the measurements are not valid.
    pub(super) fn check_running(mut self) -> Result<()> {
        ensure!(self.server.0.try_wait()?.is_none(), "the server exited during the benchmark");
        Ok(())
    }
}

/// Returns the value of a secret.
fn value(name: &str) -> String {
    format!("sk-bench-{name}-0123456789abcdefghijklmnopqrstuvwxyz")
}

/// Returns the placeholder of a secret for mitmproxy.
fn placeholder(name: &str) -> String {
    format!("bj_{name}_zyxwvutsrqponmlkjihgfedcba9876543210")
}

/// The connection and the samples of each route, or the reason why the route does not work.
pub(super) type Table<T> = Vec<(Route, Result<(Connection, T), String>)>;

/// A client that is ready to send requests over one route.
pub(super) struct Connection {
    client: Client,
    middle: Option<Middle>,
}

/// The processes between client and server.
enum Middle {
    Process(ChildGuard),
    /// All processes of `belljar run` that are not in the box.
    Belljar,
}

impl Connection {
    /// Sends requests over this number of connections for this number of seconds.
    pub(super) fn round(&mut self, connections: u32, seconds: u64) -> Result<Round> {
        self.client.round(connections, seconds)
    }

    /// Returns the processes between client and server; an empty list for the direct route.
    fn processes(&self) -> Result<Vec<u32>> {
        let all = procs::all()?;
        Ok(match &self.middle {
            None => Vec::new(),
            Some(Middle::Process(proxy)) => {
                let mut pids = procs::descendants(&all, proxy.0.id());
                pids.push(proxy.0.id());
                pids
            }
            Some(Middle::Belljar) => {
                let outermost = self.client.process.0.id();
                let mut pids = procs::descendants(&all, outermost);
                pids.retain(|pid| procs::is_in_own_pid_namespace(*pid));
                pids.push(outermost);
                pids
            }
        })
    }

    /// Returns the CPU time of the processes between client and server, in microseconds.
    pub(super) fn cpu(&self) -> Result<f64> {
        Ok(self.processes()?.into_iter().filter_map(procs::cpu_micros).sum())
    }

    /// Returns the resident memory of the processes between client and server, in KiB.
    pub(super) fn resident(&self) -> Result<u64> {
        Ok(self.processes()?.into_iter().filter_map(procs::resident_kib).sum())
    }

    /// Runs a round, and returns its result and the peak resident memory in KiB.
    pub(super) fn round_with_peak_memory(
        &mut self,
        connections: u32,
        seconds: u64,
    ) -> Result<(Round, u64)> {
        self.client.begin(connections, seconds)?;
        let pids = self.processes()?;
        let done = std::sync::atomic::AtomicBool::new(false);
        std::thread::scope(|scope| {
            let peak = scope.spawn(|| {
                let mut peak = 0;
                while !done.load(std::sync::atomic::Ordering::Relaxed) {
                    let now = pids.iter().copied().filter_map(procs::resident_kib).sum::<u64>();
                    peak = peak.max(now);
                    std::thread::sleep(Duration::from_millis(5));
                }
                peak
            });
            let round = self.client.finish();
            done.store(true, std::sync::atomic::Ordering::Relaxed);
            let peak = peak.join().unwrap_or(u64::MAX);
            Ok((round?, peak))
        })
    }
}

/// The result of one round.
#[derive(Debug, Clone, Copy)]
pub(super) struct Round {
    pub(super) requests: f64,
    pub(super) mib: f64,
    pub(super) seconds: f64,
    pub(super) p50_micros: f64,
}

/// A running client, controlled over its standard streams.
struct Client {
    process: ChildGuard,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
}

impl Client {
    fn start(mut command: Command) -> Result<Self> {
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::inherit());
        let mut process = ChildGuard(command.spawn().context("cannot start the client")?);
        let input = process.0.stdin.take().context("the client has no stdin")?;
        let output = BufReader::new(process.0.stdout.take().context("the client has no stdout")?);
        let mut client = Self { process, input, output };
        let line = client.read_line()?;
        ensure!(line == "ready", "the client wrote {line:?} instead of \"ready\"");
        Ok(client)
    }

    fn read_line(&mut self) -> Result<String> {
        let mut line = String::new();
        if self.output.read_line(&mut line)? == 0 {
            bail!("the client exited: {}", self.process.0.wait()?);
        }
        Ok(line.trim().to_owned())
    }

    fn begin(&mut self, connections: u32, seconds: u64) -> Result<()> {
        writeln!(self.input, "{connections} {seconds}")?;
        Ok(self.input.flush()?)
    }

    fn finish(&mut self) -> Result<Round> {
        let result: Value = serde_json::from_str(&self.read_line()?)
            .context("cannot parse the result of the client")?;
        let number = |name: &str| {
            result
                .get(name)
                .and_then(Value::as_f64)
                .context("the result of the client is incomplete")
        };
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

/// A child process that is killed on drop.
struct ChildGuard(Child);

impl Drop for ChildGuard {
    fn drop(&mut self) {
        // The process may already have ended.
        self.0.kill().ok();
        self.0.wait().ok();
    }
}
