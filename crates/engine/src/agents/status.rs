//! What this machine has for an agent: program, secrets, login and files.

use std::path::PathBuf;

use belljar_model::agent::Agent;
use belljar_model::net::SecretName;
use serde::Serialize;

use super::{copy, program};
use crate::error::EngineError;
use crate::scope::Scoped;
use crate::secrets;

/// What was found for an agent, without the contents of its files.
#[derive(Clone, Debug, Serialize)]
pub struct AgentStatus {
    pub program: Option<PathBuf>,
    /// What a box is shown for it, beside the system's own directories.
    pub shown: Vec<PathBuf>,
    pub secrets: Vec<SecretHere>,
    /// The agent's own token file, if it exists.
    pub login: Option<PathBuf>,
    /// Files of the user's home that go into a new box.
    pub copied: Vec<PathBuf>,
}

/// A secret of an agent.
#[derive(Clone, Debug, Serialize)]
pub struct SecretHere {
    pub name: SecretName,
    pub is_set: bool,
}

/// Looks for the program, the secrets, the login and the files of an agent.
pub fn status(state: &Scoped, agent: &Agent) -> Result<AgentStatus, EngineError> {
    let stored = secrets::stored(state)?;
    let secret = |name: &SecretName| SecretHere {
        name: name.clone(),
        is_set: stored.iter().any(|stored| stored.name == *name),
    };
    let home = state.host().user_home();
    let login = agent.login.as_ref().zip(home.as_ref()).map(|(login, home)| home.join(&login.file));
    let copied = home.as_ref().map(|home| copy::collect(home, &agent.copy).0);
    let found = program::find(state.host(), &agent.program);
    Ok(AgentStatus {
        program: found.as_ref().map(|found| found.path.clone()),
        shown: found.map(|found| found.shown).unwrap_or_default(),
        secrets: agent.secrets.iter().map(secret).collect(),
        login: login.filter(|file| file.is_file()),
        copied: copied.into_iter().flatten().map(|file| file.path).collect(),
    })
}
