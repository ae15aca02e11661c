//! The supervisor's side of a broker: starts it, tells it what it may, and records what it says.
//!
//! Secrets go from their files to the broker by descriptor: no value is ever in the memory of this
//! process.

pub mod control;
mod host_addresses;
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
pub use recorder::BrokerRecorder;
use renewals::Renewals;
pub use summary::{NetworkSummary, RequestSummary};

/// How the broker's process is called, and what tells our program to be one.
pub const ROLE: &str = "belljar-broker";

/// What a broker gets to say its last words.
const FAREWELL: Duration = Duration::from_secs(5);

/// A broker at work. It ends when this is dropped.
#[derive(Debug)]
pub struct Broker {
    process: Spawned,
    socket: OwnedFd,
    /// Its end is no surprise any more.
    dismissed: Arc<AtomicBool>,
    control: BrokerControl,
    renewals: Option<Arc<Renewals>>,
    clock: Clock,
}

/// How the world beyond the box is found and known.
#[derive(Debug)]
pub struct UpstreamConfig {
    pub roots: Vec<PathBuf>,
    pub name_servers: Vec<SocketAddr>,
}

/// The files of the vault that a broker is to open, by descriptor.
#[derive(Debug)]
pub struct SealedSecrets {
    source: KeySource,
    key: OwnedFd,
    secrets: Vec<(SecretName, OwnedFd)>,
    renewals: Arc<Renewals>,
}

impl Broker {
    /// Starts a broker for this policy. It prepares itself while we do something else.
    pub fn start(
        program: &Path,
        run: RunId,
        policy: Policy,
        UpstreamConfig { roots, name_servers }: UpstreamConfig,
        sealed: Option<&SealedSecrets>,
        changes: bool,
        clock: Clock,
    ) -> anyhow::Result<Self> {
        let flags = OFlags::RDONLY | OFlags::CLOEXEC;
        let program = rustix::fs::open(program, flags, Mode::empty())
            .with_context(|| format!("open {}", program.display()))?;
        let null = rustix::fs::open("/dev/null", OFlags::RDWR | OFlags::CLOEXEC, Mode::empty())
            .context("open /dev/null")?;
        let (socket, theirs) = rustix::net::socketpair(
            AddressFamily::UNIX,
            SocketType::SEQPACKET,
            SocketFlags::CLOEXEC,
            None,
        )
        .context("make a socket pair")?;
        let variables = logging::environment(run);
        let environment: Vec<&CStr> = variables.iter().map(CString::as_c_str).collect();
        let beside = Spawn::without_namespaces(
            program.as_fd(),
            c"belljar-broker",
            theirs.as_fd(),
            null.as_fd(),
        );
        let beside = Spawn { environment: &environment, ..beside };
        let process = clone::spawn(&beside).context("start the broker")?;
        let control = BrokerControl::new(&policy).context("make a control")?;
        let renewals = sealed.map(|sealed| Arc::clone(&sealed.renewals));
        let broker = Self { process, socket, dismissed: Arc::default(), control, renewals, clock };
        let key = sealed.map_or(KeySource::File, |sealed| sealed.source);
        let named = sealed.into_iter().flat_map(|sealed| &sealed.secrets);
        let secrets = named.map(|(name, _)| name.clone()).collect();
        let own = host_addresses::addresses();
        let setup = Setup { policy, roots, name_servers, key, secrets, own, changes };
        let descriptors: Vec<BorrowedFd<'_>> = sealed
            .into_iter()
            .flat_map(|sealed| {
                let files = sealed.secrets.iter().map(|(_, file)| file.as_fd());
                std::iter::once(sealed.key.as_fd()).chain(files)
            })
            .collect();
        wire::send(broker.socket.as_fd(), &setup, &descriptors).context("set up the broker")?;
        tracing::debug!(pid = broker.process.pid, "broker started");
        Ok(broker)
    }

    /// Waits until the broker is prepared: what the box is to be given.
    pub fn hello(&self) -> anyhow::Result<Hello> {
        match self.reply()? {
            Reply::Hello(hello) => Ok(hello),
            Reply::Ready | Reply::Failed(_) => Err(anyhow!("the broker spoke out of turn")),
        }
    }

    /// Hands over the sockets of the box, and waits until they are served.
    pub fn open(&self, sockets: Sockets) -> anyhow::Result<()> {
        let Sockets { tcp, dns_udp, dns_tcp, any } = sockets;
        let send = |door: SocketKind, socket: &OwnedFd| {
            wire::send(self.socket.as_fd(), &door, &[socket.as_fd()])
                .context("hand a socket to the broker")
        };
        for socket in tcp.iter().map(|(_, socket)| socket).chain(&any) {
            send(SocketKind::Tcp, socket)?;
        }
        send(SocketKind::DnsDatagrams, &dns_udp)?;
        send(SocketKind::DnsStreams, &dns_tcp)?;
        wire::send(self.socket.as_fd(), &SocketKind::Open, &[]).context("open the broker")?;
        match self.reply()? {
            Reply::Ready => Ok(()),
            Reply::Hello(_) | Reply::Failed(_) => Err(anyhow!("the broker spoke out of turn")),
        }
    }

    /// The recorder for what this broker says from now on.
    pub fn recorder(&self) -> anyhow::Result<BrokerRecorder> {
        let socket = self.socket.try_clone().context("share the broker's socket")?;
        let renewals = self.renewals.clone();
        Ok(BrokerRecorder::new(
            socket,
            Arc::clone(&self.dismissed),
            self.control.clone(),
            renewals,
            self.clock,
        ))
    }

    /// What moves its rules. Its questions wait for answers in the store.
    pub fn control(&self, requests: BoxRequests) -> BrokerControl {
        self.control.attend(requests);
        self.control.clone()
    }

    /// The box is over: the broker says its last words and ends.
    pub fn dismiss(&self) {
        self.dismissed.store(true, Ordering::Release);
        tracing::debug!(pid = self.process.pid, "broker is told to end");
        rustix::net::shutdown(&self.socket, Shutdown::Write).ok(); // one that is gone needs no word
        let until = Instant::now() + FAREWELL;
        while !self.is_gone(until.saturating_duration_since(Instant::now())) {
            if Instant::now() >= until {
                tracing::warn!(pid = self.process.pid, "broker does not end and is killed");
                rustix::process::pidfd_send_signal(&self.process.pidfd, Signal::KILL).ok(); // or it ended
                return;
            }
        }
    }

    fn is_gone(&self, within: Duration) -> bool {
        let mut polled = [PollFd::from_borrowed_fd(self.process.pidfd.as_fd(), PollFlags::IN)];
        rustix::event::poll(&mut polled, Some(&timespec(within))).is_ok_and(|ready| ready > 0)
    }

    fn reply(&self) -> anyhow::Result<Reply> {
        let mut buffer = vec![0; wire::MAX_MESSAGE];
        let received = wire::receive_raw(self.socket.as_fd(), &mut buffer);
        let Some((length, _)) = received.context("hear from the broker")? else {
            bail!("the broker ended without a word");
        };
        let bytes = buffer.get(..length).unwrap_or_default();
        if let Some((step, source)) = clone::SpawnStep::from_report(bytes).filter(|_| length == 5) {
            return Err(anyhow::Error::new(source).context(format!("start the broker: {step:?}")));
        }
        match wire::decode(bytes).context("understand the broker")? {
            Reply::Failed(why) => Err(anyhow!(why)),
            reply @ (Reply::Hello(_) | Reply::Ready) => Ok(reply),
        }
    }
}

impl Drop for Broker {
    fn drop(&mut self) {
        rustix::process::pidfd_send_signal(&self.process.pidfd, Signal::KILL).ok(); // or it ended
        belljar_sys::process::wait(self.process.pid, true).ok(); // reaped, now or before
    }
}

impl SealedSecrets {
    /// Opens the files of the secrets that a policy names, and the key; none if it names none.
    pub fn open(
        home: &Path,
        policy: &Policy,
        key_command: Option<&[String]>,
    ) -> Result<Option<Self>, EngineError> {
        let names: BTreeSet<&SecretName> =
            policy.secrets.iter().flat_map(SecretDecl::needs).collect();
        let Some(first) = names.first() else { return Ok(None) };
        let unset = |name: &SecretName| {
            invalid(format!("--secret {name}: not set; `belljar secret set {name}` does that"))
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
