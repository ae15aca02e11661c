//! The network rules of a running box, which can change.

use belljar_model::boxes::NetworkChange;
use belljar_model::{Config, Template};

use crate::network::broker::BrokerControl;

#[derive(Debug)]
pub(super) struct LiveRules {
    pub(super) control: BrokerControl,
    /// The template of the box, without later changes of its network.
    pub(super) base: Template,
    /// The configuration as it was when the box was started.
    pub(super) config: Config,
}

impl LiveRules {
    /// Changes the rules. They are in force when this returns.
    pub(super) fn change(&self, change: &NetworkChange) -> anyhow::Result<()> {
        let policy = change.onto(self.base.clone()).policy(&self.config)?;
        self.control.change_rules(&policy)
    }
}
