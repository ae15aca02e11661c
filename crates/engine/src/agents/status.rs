//! Finds the program, secrets, login and files of an agent on the host.

use std::path::PathBuf;

use belljar_model::agent::Agent;
use belljar_model::net::SecretName;
use serde::Serialize;

use super::{copy, program};
use crate::error::EngineError;
use crate::scope::Scoped;
use crate::secrets;

/// The program, secrets, login and files of an agent on the host, without the contents of files.
#[derive(Clone, Debug, Serialize)]
pub struct AgentStatus {
    pub program: Option<PathBuf>,
    /// The host directories that a box can read to run the program, in addition to system directories.
    pub shown: Vec<PathBuf>,
    pub secrets: Vec<AgentSecret>,
    /// The agent's token file in the user's home directory, if it exists.
    pub login: Option<PathBuf>,
    /// The files of the user's home directory that are copied into a new box.
    pub copied: Vec<PathBuf>,
}

/// A secret that an agent uses, and whether it is set.
#[derive(Clone, Debug, Serialize)]
pub struct AgentSecret {
    pub name: SecretName,
    pub is_set: bool,
}

/// Finds the program, the secrets, the login and the files of an agent on the host.
pub fn status(state: &Scoped, agent: &Agent) -> Result<AgentStatus, EngineError> {
    let stored = secrets::stored(state)?;
    let secret = |name: &SecretName| AgentSecret {
        name: name.clone(),
        is_set: stored.iter().any(|stored| stored.name == *name),
    };
    let home = state.host().user_home();
    let login = agent.login.as_ref().zip(home.as_ref()).map(|(login, home)| home.join(&login.file));
    let copied = home.as_ref().map(|home| copy::collect(home, &agent.copy).0);
    let found = program::find(state.host(), &agent.program);
    Ok(AgentStatus {
        program: found.as_ref().map(|found| found.path.clone()),
        shown: found.map(|found| found.mounted).unwrap_or_default(),
        secrets: agent.secrets.iter().map(secret).collect(),
        login: login.filter(|file| file.is_file()),
        copied: copied.into_iter().flatten().map(|file| file.path).collect(),
    })
}
