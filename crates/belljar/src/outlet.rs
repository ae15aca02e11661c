//! The network of a run: which rules, which secrets, and what was said of it in the end.

use std::ffi::OsString;
use std::path::PathBuf;

use anyhow::Context as _;
use belljar_box::{NetRequest, Running, Trust};
use belljar_broker::rules::Rules;
use belljar_broker::setup::Hello;
use belljar_ledger::{Digest, Ledger};
use belljar_model::net::{Policy, Tls};
use belljar_model::{Config, Net, RunId, Template};

use crate::agents;
use crate::broker::{Account, Beyond, Broker, Lever, Sealed};
use crate::config;
use crate::failure::{Code, Failure, NO_BOX, USAGE};
use crate::print;
use crate::state::State;

/// What a broker is started with.
#[derive(Debug)]
pub(crate) struct Outlet {
    policy: Policy,
    beyond: Beyond,
    sealed: Option<Sealed>,
    /// Whether the rules may change while the box runs.
    changes: bool,
}

/// A broker that gets ready, and the box's side of it.
#[derive(Debug)]
pub(crate) struct Outside {
    broker: Broker,
    policy: Digest,
    ports: Vec<u16>,
    any_port: bool,
    and_the_hosts: bool,
}

impl Outlet {
    /// What the template asks for; none without a network.
    pub(crate) fn of(
        template: &Template,
        config: &Config,
        state: &State,
    ) -> Result<Option<Self>, Failure> {
        if template.net == Net::None {
            template.policy(config).code(USAGE)?;
            return Ok(None);
        }
        Self::new(template, config, state, false).map(Some)
    }

    /// What a named box has: always a broker, also one that knows no rule yet.
    pub(crate) fn of_box(
        template: &Template,
        config: &Config,
        state: &State,
    ) -> Result<Self, Failure> {
        Self::new(template, config, state, true)
    }

    fn new(
        template: &Template,
        config: &Config,
        state: &State,
        changes: bool,
    ) -> Result<Self, Failure> {
        let policy = template.policy(config).code(USAGE)?;
        let sealed = Sealed::open(state.home(), &policy, config)?;
        let roots = config.roots(config::home().as_deref());
        for path in &roots {
            std::fs::metadata(path)
                .with_context(|| format!("[tls] roots: {}", path.display()))
                .code(USAGE)?;
        }
        let beyond = Beyond { roots, name_servers: config.name_servers().to_vec() };
        Ok(Self { policy, beyond, sealed, changes })
    }

    /// Starts the broker, which gets ready while the box is prepared.
    pub(crate) fn open(self) -> anyhow::Result<Outside> {
        let Self { policy, beyond, sealed, changes } = self;
        // The presets and declarations that the template only names are part of this.
        let hash = Digest::of(&[&serde_json::to_vec(&policy)?]);
        let ports = Rules::new(&policy).ports().into_iter().collect();
        let full = policy.net == Net::Full;
        let any_port = full || changes;
        let passes = policy.allow.iter().chain(&policy.ask).filter_map(|rule| rule.http());
        let and_the_hosts = any_port || passes.into_iter().any(|http| http.tls == Tls::Passthrough);
        let broker = Broker::start(policy, beyond, sealed.as_ref(), changes)?;
        Ok(Outside { broker, policy: hash, ports, any_port, and_the_hosts })
    }
}

impl Outside {
    /// The hash of what it may.
    pub(crate) const fn policy(&self) -> Digest {
        self.policy
    }

    /// What the box is told, once the broker is ready; placeholders go into its environment.
    pub(crate) fn request(
        &self,
        env: &mut Vec<(OsString, OsString)>,
    ) -> Result<NetRequest, Failure> {
        self.request_with(env, &mut [])
    }

    /// The same, with files of the box that placeholders go into as well.
    pub(crate) fn request_with(
        &self,
        env: &mut Vec<(OsString, OsString)>,
        files: &mut [(PathBuf, Vec<u8>)],
    ) -> Result<NetRequest, Failure> {
        let Hello { certificate, java, placeholders, remarks } =
            self.broker.hello().context("prepare the broker").code(NO_BOX)?;
        for remark in remarks {
            print::note(&remark);
        }
        agents::fill(files, &placeholders);
        for placeholder in placeholders {
            if let Some(name) = placeholder.env {
                env.retain(|(known, _)| *known != *name);
                env.push((name.into(), placeholder.text.into()));
            }
        }
        let (ports, any_port) = (self.ports.clone(), self.any_port);
        let trust = Trust { ca_pem: certificate, and_the_hosts: self.and_the_hosts, jks: java };
        Ok(NetRequest { ports, any_port, trust })
    }

    /// What changes the rules and answers the questions of this box from now on.
    pub(crate) fn lever(&self) -> Lever {
        self.broker.lever()
    }

    /// Hands the sockets of a box that stands to the broker.
    pub(crate) fn connect(&self, running: &mut Running) -> anyhow::Result<()> {
        let sockets = running.take_sockets().context("a box without its sockets")?;
        self.broker.open(sockets)
    }
}

/// Lets `work` happen while what the broker says goes on record.
pub(crate) fn during<T>(
    outside: Option<&Outside>,
    ledger: &Ledger,
    run: RunId,
    work: impl FnOnce() -> T,
) -> (T, Option<Account>) {
    let Some(Outside { broker, .. }) = outside else { return (work(), None) };
    std::thread::scope(|scope| {
        let clerk = broker.clerk().map(|clerk| scope.spawn(|| clerk.work(ledger, run)));
        let done = work();
        broker.dismiss();
        (done, clerk.ok().and_then(|clerk| clerk.join().ok()))
    })
}

/// Says what was refused, and how to allow it.
pub(crate) fn say(account: &Account) {
    let Account { denied, more, alarms, is_dark, unrecorded, .. } = account;
    for line in alarms {
        print::note(&format!("alarm: {line}"));
    }
    for line in denied {
        print::note(&format!("denied: {line}"));
    }
    if *more > 0 {
        print::note(&format!("and {more} more were denied; `belljar net log --denied` lists them"));
    }
    if *is_dark {
        print::note("the broker ended before the box did: from then on it had no network");
    }
    if let Some(error) = unrecorded {
        print::note(&format!("requests could not be recorded, and were not made: {error}"));
    }
}
