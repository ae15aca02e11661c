//! The network of a run: its rules, its secrets, its broker and the summary of its requests.

pub mod broker;
pub(crate) mod own_server;
pub mod roots;

use std::ffi::OsString;
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;

use anyhow::Context as _;
use belljar_box::{BuiltBox, NetRequest, Trust};
use belljar_broker::rules::Rules;
use belljar_broker::setup::{Hello, Placeholder};
use belljar_ledger::Digest;
use belljar_model::net::{Budget, Policy, RemovedGrants, SecretDecl, Tls};
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
    Broker, BrokerControl, BrokerRecorder, LeaseWatch, NetworkSummary, SealedSecrets,
    UpstreamConfig,
};

/// Returns the IP addresses of this machine.
pub(crate) fn own_addresses() -> Vec<IpAddr> {
    broker::host_addresses::addresses()
}

/// The network of a box as the configuration describes it.
///
/// It contains no open file, so that it can be sent to the supervisor of the box.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NetworkSpec {
    policy: Policy,
    /// Files with certificates that the broker trusts in addition to those of the host.
    roots: Vec<PathBuf>,
    name_servers: Vec<SocketAddr>,
    /// The command that prints the key of the vault, if the key is not in a file.
    key_command: Option<Vec<String>>,
}

impl NetworkSpec {
    /// Returns the network that a template describes, or `None` for a template with `net = "none"`.
    pub fn of(
        template: &Template,
        config: &Config,
        host: &HostEnv,
    ) -> Result<Option<Self>, EngineError> {
        let spec = Self::with_rules(template, config, host)?;
        Ok((template.net != Net::None).then_some(spec))
    }

    /// Returns the network of a box whose rules can change. It exists even if there is no rule yet.
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

    /// Lowers the budget of the whole run to these limits.
    pub(crate) fn limit(&mut self, lease: Budget) {
        self.policy.budget = lowest(self.policy.budget, lease);
    }

    /// Removes grants from the network.
    pub(crate) fn remove(&mut self, removed: &RemovedGrants) {
        self.policy.remove(removed);
    }

    /// Returns the declarations of the secrets.
    pub(crate) fn secrets(&self) -> &[SecretDecl] {
        &self.policy.secrets
    }

    /// Replaces the declarations of the secrets.
    pub(crate) fn set_secrets(&mut self, secrets: Vec<SecretDecl>) {
        self.policy.secrets = secrets;
    }

    /// Opens the files of the secrets and checks that the certificate files exist.
    pub fn open(self, state: &Scoped) -> Result<NetworkConfig, EngineError> {
        NetworkConfig::new(self, state, false)
    }
}

/// Returns the lower limit of each unit.
pub(crate) fn lowest(one: Budget, other: Budget) -> Budget {
    fn lower<T: Ord>(one: Option<T>, other: Option<T>) -> Option<T> {
        match (one, other) {
            (Some(one), Some(other)) => Some(one.min(other)),
            (one, other) => one.or(other),
        }
    }
    Budget {
        requests: lower(one.requests, other.requests),
        bytes: lower(one.bytes, other.bytes),
        tokens: lower(one.tokens, other.tokens),
        money: lower(one.money, other.money),
    }
}

/// Everything that is needed to start a broker.
#[derive(Debug)]
pub struct NetworkConfig {
    policy: Policy,
    upstream: UpstreamConfig,
    sealed: Option<SealedSecrets>,
    /// Whether the rules may change while the box runs.
    changeable: bool,
    clock: Clock,
    /// The program file that the broker is started from.
    program: PathBuf,
    /// The lease that limits the box, if it belongs to a task of a run.
    lease: Option<LeaseWatch>,
}

/// A started broker, and the network settings of its box.
#[derive(Debug)]
pub struct BrokerHandle {
    broker: Broker,
    /// The hash of the network policy.
    policy: Digest,
    ports: Vec<u16>,
    any_port: bool,
    trust_host_cas: bool,
}

impl NetworkConfig {
    /// Opens the network that a template describes, or returns `None` for `net = "none"`.
    pub fn of(
        template: &Template,
        config: &Config,
        state: &Scoped,
    ) -> Result<Option<Self>, EngineError> {
        let spec = NetworkSpec::of(template, config, state.host())?;
        spec.map(|spec| spec.open(state)).transpose()
    }

    /// Opens the network of a named box. A named box always has a broker, even without any rule.
    pub fn of_box(
        template: &Template,
        config: &Config,
        state: &Scoped,
    ) -> Result<Self, EngineError> {
        Self::new(NetworkSpec::with_rules(template, config, state.host())?, state, true)
    }

    fn new(spec: NetworkSpec, state: &Scoped, changeable: bool) -> Result<Self, EngineError> {
        let NetworkSpec { mut policy, roots, name_servers, key_command } = spec;
        own_server::deny(&mut policy, state.engine_home());
        let sealed = SealedSecrets::open(state.home(), &policy, key_command.as_deref())?;
        for path in &roots {
            std::fs::metadata(path)
                .with_context(|| format!("[tls] roots: cannot open {}", path.display()))
                .kind(ErrorKind::Invalid)?;
        }
        let upstream = UpstreamConfig { roots, name_servers };
        let (clock, program) = (state.clock(), state.host().role_program().to_owned());
        let lease = None;
        Ok(Self { policy, upstream, sealed, changeable, clock, program, lease })
    }

    /// Lets the budget of the box follow a lease.
    pub(crate) fn follow(&mut self, lease: LeaseWatch) {
        self.lease = Some(lease);
    }

    /// Starts the broker. It prepares itself while the caller prepares the box.
    pub fn open(self, run: RunId) -> anyhow::Result<BrokerHandle> {
        let Self { policy, upstream, sealed, changeable, clock, program, lease } = self;
        // The hash covers the content of presets and declarations, not only their names.
        let hash = Digest::of(&[&serde_json::to_vec(&policy)?]);
        let ports = Rules::new(&policy).ports().into_iter().collect();
        let any_port = policy.net == Net::Full || changeable;
        let http_rules = policy.allow.iter().chain(&policy.ask).filter_map(|rule| rule.http());
        let trust_host_cas =
            any_port || http_rules.into_iter().any(|http| http.tls == Tls::Passthrough);
        let sealed = sealed.as_ref();
        let kind = (changeable, lease.is_some());
        let broker = Broker::start(&program, run, policy, upstream, sealed, kind, clock)?;
        if let Some(lease) = lease {
            broker.follow(lease);
        }
        Ok(BrokerHandle { broker, policy: hash, ports, any_port, trust_host_cas })
    }
}

impl BrokerHandle {
    /// Returns the hash of the network policy of the box.
    pub const fn policy(&self) -> Digest {
        self.policy
    }

    /// Waits for the broker and returns the network settings for the box.
    ///
    /// Adds the placeholders of secrets to the environment `env`.
    pub fn request(
        &self,
        state: &Scoped,
        env: &mut Vec<(OsString, OsString)>,
    ) -> Result<NetRequest, EngineError> {
        self.request_with(state, env, &mut [])
    }

    /// Waits for the broker and returns the network settings for the box.
    ///
    /// Adds the placeholders of secrets to the environment `env` and to the files of the box.
    pub fn request_with(
        &self,
        state: &Scoped,
        env: &mut Vec<(OsString, OsString)>,
        files: &mut [(PathBuf, Vec<u8>)],
    ) -> Result<NetRequest, EngineError> {
        let Hello { certificate, java, placeholders, remarks } = self
            .broker
            .hello()
            .context("cannot prepare the broker")
            .kind(ErrorKind::CannotStart)?;
        for remark in remarks {
            state.notice(&Notice::Broker(remark));
        }
        insert_placeholders(files, &placeholders);
        for placeholder in placeholders {
            if let Some(name) = placeholder.env {
                env.retain(|(existing, _)| *existing != *name);
                env.push((name.into(), placeholder.text.into()));
            }
        }
        let (ports, any_port) = (self.ports.clone(), self.any_port);
        let trust = Trust { ca_pem: certificate, trust_host_cas: self.trust_host_cas, jks: java };
        Ok(NetRequest { ports, any_port, trust })
    }

    /// Returns the handle that changes the rules of the box and answers its requests for approval.
    pub fn control(&self, requests: BoxRequests) -> BrokerControl {
        self.broker.control(requests)
    }

    /// Sends the listening sockets of a built box to the broker.
    pub fn connect(&self, built_box: &mut BuiltBox) -> anyhow::Result<()> {
        let sockets = built_box.take_sockets().context("the box has no sockets for the broker")?;
        self.broker.open(sockets)
    }
}

/// Runs `work`, and records the events of the broker in the ledger until `work` returns.
///
/// Stops the broker afterwards and returns the result of `work` with the summary of all requests.
pub fn record_during<T>(
    broker: Option<&BrokerHandle>,
    ledger: &LedgerHandle,
    run: RunId,
    work: impl FnOnce() -> T,
) -> (T, Option<NetworkSummary>) {
    let Some(BrokerHandle { broker, .. }) = broker else { return (work(), None) };
    std::thread::scope(|scope| {
        let span = Span::current();
        let spawn = |recorder: BrokerRecorder| {
            scope.spawn(move || span.in_scope(|| recorder.run(ledger, run)))
        };
        let recorder = broker.recorder().map(spawn);
        let result = work();
        broker.stop();
        (result, recorder.ok().and_then(|recorder| recorder.join().ok()))
    })
}

/// Sends notices about denied requests, with the way to allow them, and about alarms and failures.
pub fn report(state: &Scoped, summary: &NetworkSummary) {
    let note = |text: String| state.notice(&Notice::Network(text));
    let NetworkSummary { denied, more_denied, alarms, broker_gone, unrecorded, .. } = summary;
    for line in alarms {
        note(format!("alarm: {line}"));
    }
    for line in denied {
        note(format!("denied: {line}"));
    }
    if *more_denied > 0 {
        note(format!(
            "{more_denied} more requests were denied; `belljar net log --denied` lists them"
        ));
    }
    if *broker_gone {
        note("the broker ended before the box: from then on the box had no network".to_owned());
    }
    if let Some(error) = unrecorded {
        note(format!(
            "requests were refused because they could not be recorded in the ledger: {error}"
        ));
    }
}

/// Replaces `{{placeholder:NAME}}` in the files of a box by the placeholder of the secret NAME.
fn insert_placeholders(files: &mut [(PathBuf, Vec<u8>)], placeholders: &[Placeholder]) {
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
