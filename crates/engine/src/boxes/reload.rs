//! Applies a changed policy to the boxes of a tenant that run.

use belljar_model::boxes::BoxName;

use crate::box_store::NamedBox;
use crate::error::EngineError;
use crate::scope::Scoped;
use crate::supervisor::{self, protocol::ToSupervisor};

/// A running box that was told to read the policy again.
#[derive(Clone, Debug)]
pub struct Reloaded {
    pub name: BoxName,
    /// Why the box does not use the rules of the policy. If its template is invalid, it has no network.
    pub error: Option<String>,
}

/// Makes all running boxes of a tenant use the current network rules of their templates.
pub fn reload_rules(state: &Scoped) -> Result<Vec<Reloaded>, EngineError> {
    let running = NamedBox::all(state)?.into_iter().filter(NamedBox::is_up);
    let reload = |of: NamedBox| {
        let asked = supervisor::ask(state, &of, &ToSupervisor::ReloadRules);
        let error = asked.err().map(|error| format!("{error:#}"));
        Reloaded { name: of.name().clone(), error }
    };
    Ok(running.map(reload).collect())
}
