//! The network of a box that runs, as far as it can be moved.

use belljar_model::boxes::NetworkChange;
use belljar_model::{Config, Template};

use crate::network::broker::Lever;

#[derive(Debug)]
pub(super) struct Wires {
    pub(super) lever: Lever,
    /// What the box was made from, without what was said about its network since.
    pub(super) base: Template,
    /// The configuration as it was when the box was started.
    pub(super) config: Config,
}

impl Wires {
    /// Puts other rules into force; when this returns, they are.
    pub(super) fn change(&self, said: &NetworkChange) -> anyhow::Result<()> {
        let policy = said.onto(self.base.clone()).policy(&self.config)?;
        self.lever.change(&policy)
    }
}
