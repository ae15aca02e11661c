//! The supervisor's side of a broker: starts the broker, sends it the policy, and records its events.
//!
//! The supervisor passes the files of secrets to the broker as descriptors: no secret is ever in the memory
//! of the supervisor.

pub mod control;
pub(super) mod host_addresses;
mod lease;
mod recorder;
mod renewals;
pub mod role;
mod summary;

use std::collections::BTreeSet;
use std::ffi::{CStr, CString};
use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context as _, anyhow, bail};
use belljar_box::Sockets;
use belljar_broker::setup::{Hello, Reply, Setup, SocketKind};
use belljar_broker::vault::sealed::KeySource;
use belljar_broker::vault::store::Store;
use belljar_init::wire;
use belljar_model::RunId;
use belljar_model::net::{Policy, SecretDecl, SecretName};
use belljar_sys::clone::{self, Spawn, Spawned};
use belljar_sys::time::timespec;
use rustix::event::{PollFd, PollFlags};
use rustix::fs::{Mode, OFlags};
use rustix::net::{AddressFamily, Shutdown, SocketFlags, SocketType};
use rustix::process::Signal;

use crate::approvals::requests::BoxRequests;
use crate::clock::Clock;
use crate::error::{EngineError, ErrorKind, WithKind as _, invalid};
use crate::logging;
use crate::secrets;

pub use control::BrokerControl;
pub use lease::LeaseWatch;
pub use recorder::BrokerRecorder;
use renewals::Renewals;
pub use summary::{NetworkSummary, NetworkUsage, RequestSummary};

/// The process name of a broker. As first argument, it makes the program run as a broker.
pub const ROLE: &str = "belljar-broker";

/// The time that a broker has to exit before it is killed.
const SHUTDOWN_TIMEOUT: Duration = Duration::from_secs(5);

/// A running broker process. Dropping the value kills the process.
#[derive(Debug)]
pub struct Broker {
    process: Spawned,
    socket: OwnedFd,
    /// Whether the broker was asked to exit, so that its exit raises no alarm.
    stopping: Arc<AtomicBool>,
    /// Whether this process killed the broker, because it did not exit in time.
    is_forced: Arc<AtomicBool>,
    control: BrokerControl,
    renewals: Option<Arc<Renewals>>,
    clock: Clock,
}

/// The certificates and name servers that a broker uses for connections to upstreams.
#[derive(Debug)]
pub struct UpstreamConfig {
    pub roots: Vec<PathBuf>,
    pub name_servers: Vec<SocketAddr>,
}

/// Descriptors of the encrypted secrets of a box and of the key that decrypts them.
#[derive(Debug)]
pub struct SealedSecrets {
    source: KeySource,
    key: OwnedFd,
    secrets: Vec<(SecretName, OwnedFd)>,
    renewals: Arc<Renewals>,
}

impl Broker {
    /// Starts a broker for a policy. The broker prepares itself in the background.
    pub fn start(
        program: &Path,
        run: RunId,
        policy: Policy,
        UpstreamConfig { roots, name_servers }: UpstreamConfig,
        sealed: Option<&SealedSecrets>,
        (changeable, leased): (bool, bool),
        clock: Clock,
    ) -> anyhow::Result<Self> {
        let flags = OFlags::RDONLY | OFlags::CLOEXEC;
        let program = rustix::fs::open(program, flags, Mode::empty())
            .with_context(|| format!("cannot open the program {}", program.display()))?;
        let null = rustix::fs::open("/dev/null", OFlags::RDWR | OFlags::CLOEXEC, Mode::empty())
            .context("cannot open /dev/null")?;
        let (socket, broker_socket) = rustix::net::socketpair(
            AddressFamily::UNIX,
            SocketType::SEQPACKET,
            SocketFlags::CLOEXEC,
            None,
        )
        .context("cannot create a socket pair for the broker")?;
        let variables = logging::environment(run);
        let environment: Vec<&CStr> = variables.iter().map(CString::as_c_str).collect();
        let spawn = Spawn::without_namespaces(
            program.as_fd(),
            c"belljar-broker",
            broker_socket.as_fd(),
            null.as_fd(),
        );
        let spawn = Spawn { environment: &environment, ..spawn };
        let process = clone::spawn(&spawn).context("cannot start the broker")?;
        let control =
            BrokerControl::new(&policy).context("cannot create the control of the broker")?;
        let renewals = sealed.map(|sealed| Arc::clone(&sealed.renewals));
        let broker = Self {
            process,
            socket,
            stopping: Arc::default(),
            is_forced: Arc::default(),
            control,
            renewals,
            clock,
        };
        let key = sealed.map_or(KeySource::File, |sealed| sealed.source);
        let files = sealed.into_iter().flat_map(|sealed| &sealed.secrets);
        let secrets = files.map(|(name, _)| name.clone()).collect();
        let own = host_addresses::addresses();
        let changes = changeable;
        let setup = Setup { policy, roots, name_servers, key, secrets, own, changes, leased };
        let descriptors: Vec<BorrowedFd<'_>> = sealed
            .into_iter()
            .flat_map(|sealed| {
                let files = sealed.secrets.iter().map(|(_, file)| file.as_fd());
                std::iter::once(sealed.key.as_fd()).chain(files)
            })
            .collect();
        wire::send(broker.socket.as_fd(), &setup, &descriptors)
            .context("cannot send the policy to the broker")?;
        tracing::debug!(pid = broker.process.pid, "broker started");
        Ok(broker)
    }

    /// Waits until the broker is prepared and returns its certificate and placeholders for the box.
    pub fn hello(&self) -> anyhow::Result<Hello> {
        match self.reply()? {
            Reply::Hello(hello) => Ok(hello),
            Reply::Ready | Reply::Failed(_) => {
                Err(anyhow!("the broker sent an unexpected message"))
            }
        }
    }

    /// Sends the listening sockets of the box to the broker and waits until the broker serves them.
    pub fn open(&self, sockets: Sockets) -> anyhow::Result<()> {
        let Sockets { tcp, dns_udp, dns_tcp, any } = sockets;
        let send = |kind: SocketKind, socket: &OwnedFd| {
            wire::send(self.socket.as_fd(), &kind, &[socket.as_fd()])
                .context("cannot send a socket to the broker")
        };
        for socket in tcp.iter().map(|(_, socket)| socket).chain(&any) {
            send(SocketKind::Tcp, socket)?;
        }
        send(SocketKind::DnsDatagrams, &dns_udp)?;
        send(SocketKind::DnsStreams, &dns_tcp)?;
        wire::send(self.socket.as_fd(), &SocketKind::Open, &[])
            .context("cannot tell the broker to serve its sockets")?;
        match self.reply()? {
            Reply::Ready => Ok(()),
            Reply::Hello(_) | Reply::Failed(_) => {
                Err(anyhow!("the broker sent an unexpected message"))
            }
        }
    }

    /// Returns the recorder for the events of this broker.
    pub fn recorder(&self) -> anyhow::Result<BrokerRecorder> {
        let socket =
            self.socket.try_clone().context("cannot duplicate the socket of the broker")?;
        let renewals = self.renewals.clone();
        let process = self.process.pidfd.try_clone().context("cannot duplicate a descriptor")?;
        Ok(BrokerRecorder::new(
            socket,
            (process, Arc::clone(&self.is_forced)),
            Arc::clone(&self.stopping),
            self.control.clone(),
            renewals,
            self.clock,
        ))
    }

    /// Lets the limits of the broker follow a lease.
    pub fn follow(&self, lease: LeaseWatch) {
        lease.connect(self.control.clone());
        self.control.follow(lease);
    }

    /// Returns the handle that changes the rules. Requests for approval wait for their answers in `requests`.
    pub fn control(&self, requests: BoxRequests) -> BrokerControl {
        self.control.accept_requests(requests);
        self.control.clone()
    }

    /// Asks the broker to exit, because the box ended, and kills it after `SHUTDOWN_TIMEOUT`.
    pub fn stop(&self) {
        // A broker that has ended by itself raises an alarm, also if its recorder has not noticed it yet.
        if !self.is_gone() {
            self.stopping.store(true, Ordering::Release);
        }
        tracing::debug!(pid = self.process.pid, "broker is asked to exit");
        rustix::net::shutdown(&self.socket, Shutdown::Write).ok(); // fails if the broker has already exited
        let deadline = Instant::now() + SHUTDOWN_TIMEOUT;
        while !self.has_exited(deadline.saturating_duration_since(Instant::now())) {
            if Instant::now() >= deadline {
                tracing::warn!(pid = self.process.pid, "broker did not exit in time and is killed");
                self.is_forced.store(true, Ordering::Release);
                rustix::process::pidfd_send_signal(&self.process.pidfd, Signal::KILL).ok(); // or it has exited
                return;
            }
        }
    }

    /// Returns whether the broker has closed its socket. The kernel may close the connections of the box
    /// first when it is killed; the recorder then finds the signal that ended it.
    fn is_gone(&self) -> bool {
        let mut polled = [PollFd::new(&self.socket, PollFlags::empty())];
        let ready = rustix::event::poll(&mut polled, Some(&timespec(Duration::ZERO)));
        ready.is_ok_and(|ready| ready > 0)
    }

    /// Waits for the exit of the broker and returns whether it exited in time.
    fn has_exited(&self, within: Duration) -> bool {
        let mut polled = [PollFd::from_borrowed_fd(self.process.pidfd.as_fd(), PollFlags::IN)];
        rustix::event::poll(&mut polled, Some(&timespec(within))).is_ok_and(|ready| ready > 0)
    }

    /// Receives the next message of the broker during its setup.
    fn reply(&self) -> anyhow::Result<Reply> {
        let mut buffer = vec![0; wire::MAX_MESSAGE];
        let received = wire::receive_raw(self.socket.as_fd(), &mut buffer);
        let Some((length, _)) = received.context("cannot receive a message of the broker")? else {
            bail!("the broker exited without reporting an error");
        };
        let bytes = buffer.get(..length).unwrap_or_default();
        if let Some((step, source)) = clone::SpawnStep::from_report(bytes).filter(|_| length == 5) {
            return Err(anyhow::Error::new(source)
                .context(format!("cannot start the broker: step {step:?} failed")));
        }
        match wire::decode(bytes).context("cannot decode a message of the broker")? {
            Reply::Failed(why) => Err(anyhow!(why)),
            reply @ (Reply::Hello(_) | Reply::Ready) => Ok(reply),
        }
    }
}

impl Drop for Broker {
    fn drop(&mut self) {
        // Both calls fail if the broker has already exited or was reaped.
        rustix::process::pidfd_send_signal(&self.process.pidfd, Signal::KILL).ok();
        belljar_sys::process::wait(self.process.pid, true).ok();
    }
}

impl SealedSecrets {
    /// Opens the files of the secrets that a policy names, and the key. Returns `None` if it names no secret.
    pub fn open(
        home: &Path,
        policy: &Policy,
        key_command: Option<&[String]>,
    ) -> Result<Option<Self>, EngineError> {
        let names: BTreeSet<&SecretName> =
            policy.secrets.iter().flat_map(SecretDecl::needs).collect();
        let Some(first) = names.first() else { return Ok(None) };
        let unset = |name: &SecretName| {
            invalid(format!(
                "--secret {name}: the secret is not set; set it with `belljar secret set {name}`"
            ))
        };
        let store = Store::open(home).kind(ErrorKind::Invalid)?.ok_or_else(|| unset(first))?;
        let mut secrets = Vec::new();
        for name in names {
            let file = store.file(name).kind(ErrorKind::Invalid)?.ok_or_else(|| unset(name))?;
            secrets.push((name.clone(), file.into()));
        }
        let (source, key) =
            secrets::key_descriptor(key_command, &store).kind(ErrorKind::Invalid)?;
        let renewals = Arc::new(Renewals::new(store, policy));
        Ok(Some(Self { source, key: key.into(), secrets, renewals }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::policy::learn::no_rules;
    use crate::{record, scope};

    #[test]
    fn a32_broker_killed_just_before_the_end_of_its_box_is_reported() {
        let home = tempfile::tempdir().unwrap();
        let state = scope::of_test(home.path());
        let ledger = record::open(&state).unwrap();
        let run = state.new_id().unwrap().0;
        // A program that runs until it is killed.
        let start = || {
            let upstream = UpstreamConfig { roots: Vec::new(), name_servers: Vec::new() };
            let program = Path::new("/usr/bin/yes");
            Broker::start(program, run, no_rules(), upstream, None, (false, false), state.clock())
                .unwrap()
        };
        // The recorder runs only after the end of the box, as on a busy machine.
        let killed = start();
        let recorder = killed.recorder().unwrap();
        rustix::process::pidfd_send_signal(&killed.process.pidfd, Signal::KILL).unwrap();
        assert!(killed.has_exited(belljar_testkit::DEADLINE));
        killed.stop();
        assert!(recorder.run(&ledger, run).broker_gone);
        // Control: a broker that ends because it is asked to raises no alarm.
        let stopped = start();
        let recorder = stopped.recorder().unwrap();
        stopped.stop();
        assert!(!recorder.run(&ledger, run).broker_gone);
    }
}
