//! Changes the network rules of a running box.

use std::path::PathBuf;
use std::sync::{Mutex, MutexGuard, PoisonError};

use anyhow::Context as _;
use belljar_model::boxes::{BoxName, NetworkChange};
use belljar_model::net::{Policy, Rule, RuleTarget};
use belljar_model::{Config, Net, Template};

use super::setup::{self, BoxRules};
use crate::box_store::NamedBox;
use crate::network::broker::BrokerControl;
use crate::network::own_server;
use crate::policy::learn::no_rules;
use crate::scope::Scoped;

/// The current network rules of a running box, and the handle of the broker that applies them.
#[derive(Debug)]
pub(super) struct LiveRules {
    pub(super) control: BrokerControl,
    /// The configuration at the time when the box was started. The broker has its secrets.
    started: Config,
    current: Mutex<Current>,
    /// The state directory of the engine.
    home: PathBuf,
}

/// What the rules of a box are made from.
#[derive(Debug)]
struct Current {
    /// The template of the box, without the changes that `belljar network` made.
    base: Template,
    config: Config,
}

impl LiveRules {
    pub(super) fn new(
        control: BrokerControl,
        base: Template,
        config: Config,
        home: PathBuf,
    ) -> Self {
        let started = config.clone();
        Self { control, started, current: Mutex::new(Current { base, config }), home }
    }

    /// Changes the network rules of the box. The broker applies the new rules when this function returns.
    pub(super) fn change(&self, change: &NetworkChange) -> anyhow::Result<()> {
        let current = self.current();
        let mut policy = change.onto(current.base.clone()).policy(&current.config)?;
        own_server::deny(&mut policy, &self.home);
        self.control.change_rules(&policy)
    }

    /// Reads the configuration again. The broker applies the new rules when this function returns. If no
    /// rules can be made from the configuration, the box loses its network.
    pub(super) fn reload(&self, state: &Scoped, name: &BoxName) -> anyhow::Result<()> {
        let mut current = self.current();
        let read = || -> anyhow::Result<(BoxRules, Policy)> {
            let of = NamedBox::find(state, name).map_err(crate::error::EngineError::into_inner)?;
            let rules = setup::rules(&of, state).map_err(crate::error::EngineError::into_inner)?;
            let policy = rules.template.policy(&rules.config)?;
            Ok((rules, policy))
        };
        let (rules, mut policy) = match read() {
            Ok(read) => read,
            Err(error) => {
                let nothing = Policy { net: Net::None, ..no_rules() };
                self.control.change_rules(&nothing)?;
                current.base = Template::default(); // has no network
                return Err(error.context("the box has no network until its template is valid"));
            }
        };
        self.remove_other_secrets(&mut policy, &rules.config);
        own_server::deny(&mut policy, &self.home);
        self.control.change_rules(&policy).context("cannot change the rules of the box")?;
        *current = Current { base: rules.base, config: rules.config };
        Ok(())
    }

    /// Removes the secrets that the broker does not have, or has for other hosts. A broker gets secrets and
    /// their declarations only at its start.
    fn remove_other_secrets(&self, policy: &mut Policy, config: &Config) {
        let is_same = |name: &_| {
            self.control.has_secret(name) && self.started.secret(name) == config.secret(name)
        };
        policy.secrets.retain(|secret| is_same(&secret.name));
        for Rule { what, .. } in policy.allow.iter_mut().chain(&mut policy.ask) {
            if let RuleTarget::Http(http) = what {
                http.secrets.retain(is_same);
            }
        }
    }

    fn current(&self) -> MutexGuard<'_, Current> {
        self.current.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
