//! Changes the network rules of a running box.

use std::path::PathBuf;

use belljar_model::boxes::NetworkChange;
use belljar_model::{Config, Template};

use crate::network::broker::BrokerControl;
use crate::network::own_server;

/// The current network rules of a running box, and the handle of the broker that applies them.
#[derive(Debug)]
pub(super) struct LiveRules {
    pub(super) control: BrokerControl,
    /// The template of the box, without the changes that `belljar network` made.
    pub(super) base: Template,
    /// The configuration at the time when the box was started.
    pub(super) config: Config,
    /// The state directory of the engine.
    pub(super) home: PathBuf,
}

impl LiveRules {
    /// Changes the network rules of the box. The broker applies the new rules when this function returns.
    pub(super) fn change(&self, change: &NetworkChange) -> anyhow::Result<()> {
        let mut policy = change.onto(self.base.clone()).policy(&self.config)?;
        own_server::deny(&mut policy, &self.home);
        self.control.change_rules(&policy)
    }
}
