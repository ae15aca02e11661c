//! The network of a run: which rules, which secrets, and what was said of it in the end.

pub mod broker;

use std::ffi::OsString;
use std::net::SocketAddr;
use std::path::PathBuf;

use anyhow::Context as _;
use belljar_box::{BuiltBox, NetRequest, Trust};
use belljar_broker::rules::Rules;
use belljar_broker::setup::{Hello, Placeholder};
use belljar_ledger::Digest;
use belljar_model::net::{Policy, Tls};
use belljar_model::{Config, Net, RunId, Template};
use serde::{Deserialize, Serialize};
use tracing::Span;

use crate::approvals::requests::BoxRequests;
use crate::clock::Clock;
use crate::error::{EngineError, ErrorKind, WithKind as _};
use crate::host::HostEnv;
use crate::notice::Notice;
use crate::record::LedgerHandle;
use crate::scope::Scoped;
use broker::{
    Broker, BrokerControl, BrokerRecorder, NetworkSummary, SealedSecrets, UpstreamConfig,
};

/// The network of a box as the configuration describes it. It names no open file, so that it can be sent to
/// the process that supervises the box.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NetworkSpec {
    policy: Policy,
    /// Files of certificates that the broker trusts beside those of the host.
    roots: Vec<PathBuf>,
    name_servers: Vec<SocketAddr>,
    /// The command that prints the key of the vault, if the key is not in a file.
    key_command: Option<Vec<String>>,
}

impl NetworkSpec {
    /// The network that a template asks for. `None`: it asks for none.
    pub fn of(
        template: &Template,
        config: &Config,
        host: &HostEnv,
    ) -> Result<Option<Self>, EngineError> {
        let spec = Self::with_rules(template, config, host)?;
        Ok((template.net != Net::None).then_some(spec))
    }

    /// The network of a box whose rules can change, which is there even if it has no rule yet.
    fn with_rules(
        template: &Template,
        config: &Config,
        host: &HostEnv,
    ) -> Result<Self, EngineError> {
        Ok(Self {
            policy: template.policy(config).kind(ErrorKind::Invalid)?,
            roots: config.roots(host.user_home().as_deref()),
            name_servers: config.name_servers().to_vec(),
            key_command: config.key_command().map(<[String]>::to_vec),
        })
    }

    /// Opens the files of its secrets and checks that its certificates exist.
    pub fn open(self, state: &Scoped) -> Result<NetworkConfig, EngineError> {
        NetworkConfig::new(self, state, false)
    }
}

/// What a broker is started with.
#[derive(Debug)]
pub struct NetworkConfig {
    policy: Policy,
    beyond: UpstreamConfig,
    sealed: Option<SealedSecrets>,
    /// Whether the rules may change while the box runs.
    changes: bool,
    clock: Clock,
    /// What a broker is started from.
    program: PathBuf,
}

/// A broker that gets ready, and the box's side of it.
#[derive(Debug)]
pub struct BrokerHandle {
    broker: Broker,
    policy: Digest,
    ports: Vec<u16>,
    any_port: bool,
    trust_host_cas: bool,
}

impl NetworkConfig {
    /// What the template asks for; none without a network.
    pub fn of(
        template: &Template,
        config: &Config,
        state: &Scoped,
    ) -> Result<Option<Self>, EngineError> {
        let spec = NetworkSpec::of(template, config, state.host())?;
        spec.map(|spec| spec.open(state)).transpose()
    }

    /// What a named box has: always a broker, also one that knows no rule yet.
    pub fn of_box(
        template: &Template,
        config: &Config,
        state: &Scoped,
    ) -> Result<Self, EngineError> {
        Self::new(NetworkSpec::with_rules(template, config, state.host())?, state, true)
    }

    fn new(spec: NetworkSpec, state: &Scoped, changes: bool) -> Result<Self, EngineError> {
        let NetworkSpec { policy, roots, name_servers, key_command } = spec;
        let sealed = SealedSecrets::open(state.home(), &policy, key_command.as_deref())?;
        for path in &roots {
            std::fs::metadata(path)
                .with_context(|| format!("[tls] roots: {}", path.display()))
                .kind(ErrorKind::Invalid)?;
        }
        let beyond = UpstreamConfig { roots, name_servers };
        let (clock, program) = (state.clock(), state.host().role_program().to_owned());
        Ok(Self { policy, beyond, sealed, changes, clock, program })
    }

    /// Starts the broker, which gets ready while the box is prepared.
    pub fn open(self, run: RunId) -> anyhow::Result<BrokerHandle> {
        let Self { policy, beyond, sealed, changes, clock, program } = self;
        // The presets and declarations that the template only names are part of this.
        let hash = Digest::of(&[&serde_json::to_vec(&policy)?]);
        let ports = Rules::new(&policy).ports().into_iter().collect();
        let full = policy.net == Net::Full;
        let any_port = full || changes;
        let passes = policy.allow.iter().chain(&policy.ask).filter_map(|rule| rule.http());
        let trust_host_cas =
            any_port || passes.into_iter().any(|http| http.tls == Tls::Passthrough);
        let sealed = sealed.as_ref();
        let broker = Broker::start(&program, run, policy, beyond, sealed, changes, clock)?;
        Ok(BrokerHandle { broker, policy: hash, ports, any_port, trust_host_cas })
    }
}

impl BrokerHandle {
    /// The hash of what it may.
    pub const fn policy(&self) -> Digest {
        self.policy
    }

    /// What the box is told, once the broker is ready; placeholders go into its environment.
    pub fn request(
        &self,
        state: &Scoped,
        env: &mut Vec<(OsString, OsString)>,
    ) -> Result<NetRequest, EngineError> {
        self.request_with(state, env, &mut [])
    }

    /// The same, with files of the box that placeholders go into as well.
    pub fn request_with(
        &self,
        state: &Scoped,
        env: &mut Vec<(OsString, OsString)>,
        files: &mut [(PathBuf, Vec<u8>)],
    ) -> Result<NetRequest, EngineError> {
        let Hello { certificate, java, placeholders, remarks } =
            self.broker.hello().context("prepare the broker").kind(ErrorKind::CannotStart)?;
        for remark in remarks {
            state.notice(&Notice::Broker(remark));
        }
        fill(files, &placeholders);
        for placeholder in placeholders {
            if let Some(name) = placeholder.env {
                env.retain(|(known, _)| *known != *name);
                env.push((name.into(), placeholder.text.into()));
            }
        }
        let (ports, any_port) = (self.ports.clone(), self.any_port);
        let trust = Trust { ca_pem: certificate, trust_host_cas: self.trust_host_cas, jks: java };
        Ok(NetRequest { ports, any_port, trust })
    }

    /// What changes the rules and answers the questions of this box from now on.
    pub fn control(&self, requests: BoxRequests) -> BrokerControl {
        self.broker.control(requests)
    }

    /// Hands the sockets of a box that stands to the broker.
    pub fn connect(&self, running: &mut BuiltBox) -> anyhow::Result<()> {
        let sockets = running.take_sockets().context("a box without its sockets")?;
        self.broker.open(sockets)
    }
}

/// Lets `work` happen while what the broker says goes on record.
pub fn during<T>(
    outside: Option<&BrokerHandle>,
    ledger: &LedgerHandle,
    run: RunId,
    work: impl FnOnce() -> T,
) -> (T, Option<NetworkSummary>) {
    let Some(BrokerHandle { broker, .. }) = outside else { return (work(), None) };
    std::thread::scope(|scope| {
        let span = Span::current();
        let recording = |recorder: BrokerRecorder| {
            scope.spawn(move || span.in_scope(|| recorder.work(ledger, run)))
        };
        let recorder = broker.recorder().map(recording);
        let done = work();
        broker.dismiss();
        (done, recorder.ok().and_then(|recorder| recorder.join().ok()))
    })
}

/// Reports what was refused, and how to allow it.
pub fn report(state: &Scoped, account: &NetworkSummary) {
    let note = |text: String| state.notice(&Notice::Network(text));
    let NetworkSummary { denied, more, alarms, is_dark, unrecorded, .. } = account;
    for line in alarms {
        note(format!("alarm: {line}"));
    }
    for line in denied {
        note(format!("denied: {line}"));
    }
    if *more > 0 {
        note(format!("and {more} more were denied; `belljar net log --denied` lists them"));
    }
    if *is_dark {
        note("the broker ended before the box did: from then on it had no network".to_owned());
    }
    if let Some(error) = unrecorded {
        note(format!("requests could not be recorded, and were not made: {error}"));
    }
}

/// Puts placeholders into the files of a box: `{{placeholder:NAME}}`.
fn fill(files: &mut [(PathBuf, Vec<u8>)], placeholders: &[Placeholder]) {
    for (_, content) in files {
        let Ok(text) = std::str::from_utf8(content) else { continue };
        if !text.contains("{{placeholder:") {
            continue;
        }
        let filled = placeholders.iter().fold(text.to_owned(), |text, placeholder| {
            text.replace(&format!("{{{{placeholder:{}}}}}", placeholder.secret), &placeholder.text)
        });
        *content = filled.into_bytes();
    }
}
