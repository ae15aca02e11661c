//! Builds boxes that run the probe, and a broker that reports the dialled address.

use std::fs::{self, File};
use std::hash::{BuildHasher, RandomState};
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, UdpSocket};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use belljar_box::{
    BuiltBox, NetRequest, Request, Sockets, StartError, Supervision, Trust, embedded,
};
use belljar_model::{Access, Mount, RunId, Template};
use tempfile::TempDir;

/// The directory, template and variables of one test.
pub(crate) struct Fixture {
    dir: TempDir,
    pub(crate) template: Template,
    pub(crate) env: Vec<(String, String)>,
}

/// The output and the exit status of a box.
#[derive(Debug)]
pub(crate) struct Output {
    pub(crate) out: String,
    pub(crate) exit: Option<i32>,
}

pub(crate) const CA: &str =
    "-----BEGIN CERTIFICATE-----\nYmVsbGphcg==\n-----END CERTIFICATE-----\n";
pub(crate) const JKS: &[u8] = b"\xfe\xed\xfe\xed key store";

/// Returns the request for a network with the given TCP ports.
pub(crate) fn net(ports: &[u16], any_port: bool) -> Option<NetRequest> {
    let trust = Trust { ca_pem: CA.into(), trust_host_cas: false, jks: JKS.into() };
    Some(NetRequest { ports: ports.to_vec(), any_port, trust })
}

impl Fixture {
    #[expect(clippy::disallowed_methods, reason = "the test runner sets the directory")]
    pub(crate) fn new() -> Self {
        let parent =
            std::env::var_os("BELLJAR_TEST_ROOT").map_or_else(std::env::temp_dir, PathBuf::from);
        let dir = tempfile::Builder::new().prefix("belljar-net-").tempdir_in(parent).unwrap();
        // Under root, the payload has another user id.
        fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o755)).unwrap();
        let probe = dir.path().join("probe");
        fs::write(&probe, embedded::PROBE).unwrap();
        fs::set_permissions(&probe, fs::Permissions::from_mode(0o755)).unwrap();
        let mut template = Template::default();
        template.mounts.push(Mount::new(probe, "/probe".into(), Access::ReadOnly).unwrap());
        Self { dir, template, env: Vec::new() }
    }

    pub(crate) fn path(&self) -> &std::path::Path {
        self.dir.path()
    }

    /// Builds a box without starting its payload.
    pub(crate) fn build(
        &self,
        net: Option<NetRequest>,
        argv: &[&str],
    ) -> Result<BuiltBox, StartError> {
        let env = [("PATH".to_owned(), "/usr/bin:/bin".to_owned())].into_iter();
        let request = Request {
            id: RunId::new(random().into(), random()),
            random: random(),
            template: self.template.clone(),
            argv: argv.iter().map(Into::into).collect(),
            program: None,
            env: env.chain(self.env.clone()).map(|(k, v)| (k.into(), v.into())).collect(),
            workspace: None,
            home: None,
            files: Vec::new(),
            data: None,
            masks: Vec::new(),
            exec_channel: false,
            hidden: Vec::new(),
            net,
            terminal: None,
            now: 1,
        };
        belljar_box::start(&request, |_| ()).map(|(running, ())| running)
    }

    /// Runs the payload of a built box until its end.
    pub(crate) fn run(&self, running: BuiltBox, input: &str) -> Output {
        let path = |name: &str| self.dir.path().join(name);
        fs::write(path("input"), input).unwrap();
        let output = File::create(path("output")).unwrap();
        let with = File::open(path("input")).unwrap();
        let supervision = Supervision {
            input: with.as_fd(),
            output: output.as_fd(),
            error: output.as_fd(),
            filter: None,
            disk: None,
            stop: None,
        };
        let (end, teardown) = running.supervise(supervision).unwrap();
        drop(teardown);
        let out = fs::read_to_string(path("output")).unwrap();
        Output { out: out.trim_end().to_owned(), exit: end.exit }
    }

    /// Runs operations of the probe in a box whose network the test serves, and returns their
    /// results.
    pub(crate) fn acts(&self, net: Option<NetRequest>, acts: &[&str]) -> Vec<String> {
        let mut running = self.build(net, &["/probe", "batch"]).unwrap();
        let broker = running.take_sockets().map(Broker::serve);
        let output = self.run(running, &(acts.join("\n") + "\n"));
        drop(broker);
        answers(&output.out, acts)
    }

    /// Runs one operation of the probe outside any box and returns its result.
    #[expect(clippy::disallowed_methods, reason = "the control is a program outside a box")]
    pub(crate) fn outside(&self, act: &str) -> String {
        let mut probe = std::process::Command::new(self.dir.path().join("probe"));
        let output = probe.args(act.split_whitespace()).output().unwrap();
        String::from_utf8(output.stdout).unwrap().trim_end().to_owned()
    }
}

/// Returns a random number for the run id, because boxes of parallel tests must not share a cgroup.
fn random() -> u32 {
    let hash = RandomState::new().hash_one(std::process::id());
    u32::try_from(hash >> 32).unwrap()
}

fn answers(out: &str, acts: &[&str]) -> Vec<String> {
    let lines: Vec<&str> = out.lines().collect();
    assert_eq!(lines.len(), acts.len(), "{out}");
    let results = lines.iter().zip(acts).map(|(line, act)| {
        let answer = line.strip_prefix(&format!("{act} => "));
        answer.unwrap_or_else(|| panic!("no answer to `{act}` in {out}")).to_owned()
    });
    results.collect()
}

/// A test broker that replies with the name of the accepting socket and the dialled address.
pub(crate) struct Broker {
    over: Arc<AtomicBool>,
    threads: Vec<JoinHandle<()>>,
}

impl Broker {
    pub(crate) fn serve(sockets: Sockets) -> Self {
        let mut broker = Self { over: Arc::default(), threads: Vec::new() };
        for (port, socket) in sockets.tcp {
            broker.accept(format!("port {port}"), socket);
        }
        broker.accept("dns".to_owned(), sockets.dns_tcp);
        if let Some(any) = sockets.any {
            broker.accept("any".to_owned(), any);
        }
        let udp = UdpSocket::from(sockets.dns_udp);
        let over = Arc::clone(&broker.over);
        broker.threads.push(std::thread::spawn(move || {
            let mut buffer = [0; 512];
            while !over.load(Ordering::Relaxed) {
                match udp.recv_from(&mut buffer) {
                    Ok((count, peer)) => {
                        let mut reply = b"dns got ".to_vec();
                        reply.extend(&buffer[..count]);
                        udp.send_to(&reply, peer).unwrap();
                    }
                    Err(error) => wait(&error),
                }
            }
        }));
        broker
    }

    fn accept(&mut self, name: String, socket: OwnedFd) {
        let listener = TcpListener::from(socket);
        let over = Arc::clone(&self.over);
        self.threads.push(std::thread::spawn(move || {
            while !over.load(Ordering::Relaxed) {
                match listener.accept() {
                    Ok((mut stream, _)) => {
                        stream.set_nonblocking(false).unwrap();
                        // The client can have disconnected; the test checks the output of the probe.
                        stream.read_to_end(&mut Vec::new()).ok();
                        let dialled = canonical(stream.local_addr().unwrap());
                        write!(stream, "{name} for {dialled}").ok();
                    }
                    Err(error) => wait(&error),
                }
            }
        }));
    }
}

impl Drop for Broker {
    fn drop(&mut self) {
        self.over.store(true, Ordering::Relaxed);
        for thread in self.threads.drain(..) {
            thread.join().unwrap();
        }
    }
}

fn wait(error: &std::io::Error) {
    assert_eq!(error.kind(), std::io::ErrorKind::WouldBlock, "{error}");
    std::thread::sleep(Duration::from_millis(2));
}

/// Converts an IPv4-mapped IPv6 address to IPv4.
fn canonical(address: SocketAddr) -> SocketAddr {
    SocketAddr::new(address.ip().to_canonical(), address.port())
}
