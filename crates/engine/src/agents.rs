//! Agents: the built-in agents, the agents that the user defines, and the outfit of a box for an agent.

pub mod copy;
pub mod login;
pub mod masks;
mod outfit;
pub mod program;
pub mod settings;
mod status;
mod task;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use anyhow::Context as _;
use belljar_model::Config;
use belljar_model::agent::{Agent, AgentName};

pub use outfit::HomeFile;
pub use outfit::{Outfit, OutfitRequest, outfit};
pub use status::{AgentSecret, AgentStatus, status};
pub use task::TaskAgent;

use crate::error::{EngineError, ErrorKind, WithKind as _, invalid};
use crate::host::HostEnv;

/// The names and descriptions of the agents that ship with Belljar.
const BUILT_IN: [(&str, &str); 5] = [
    ("aider", include_str!("../agents/aider.toml")),
    ("claude", include_str!("../agents/claude.toml")),
    ("codex", include_str!("../agents/codex.toml")),
    ("gemini", include_str!("../agents/gemini.toml")),
    ("opencode", include_str!("../agents/opencode.toml")),
];

/// The maximum size of an agent's description in bytes, far above the size of any real file.
const MAX_BYTES: u64 = 1 << 20;

/// An agent and the user's file that describes it. A built-in agent has no file.
#[derive(Debug)]
pub struct AgentSource {
    pub agent: Agent,
    /// The text of the description.
    pub text: String,
    pub file: Option<PathBuf>,
}

/// Returns the agent with this name. A file of the user replaces a built-in agent of the same name.
pub fn find(host: &HostEnv, name: &AgentName) -> Result<Agent, EngineError> {
    let mut all = all(host)?;
    let names: Vec<String> = all.keys().map(ToString::to_string).collect();
    let unknown = || {
        invalid(format!(
            "--agent: unknown agent {name}; the known agents are: {}",
            names.join(", ")
        ))
    };
    all.remove(name).map(|known| known.agent).ok_or_else(unknown)
}

/// Returns all agents: the built-in agents and the agents that the user defines.
pub fn all(host: &HostEnv) -> Result<BTreeMap<AgentName, AgentSource>, EngineError> {
    let mut all = BTreeMap::new();
    for (name, text) in BUILT_IN {
        let name: AgentName =
            name.parse().context("invalid name of a built-in agent").kind(ErrorKind::Broken)?;
        let file = PathBuf::from(format!("{name}.toml"));
        let agent = Config::agent(&name, text, &file).kind(ErrorKind::Broken)?;
        all.insert(name, AgentSource { agent, text: text.to_owned(), file: None });
    }
    for file in user_files(host)? {
        let stem = file.file_stem().and_then(|stem| stem.to_str()).unwrap_or_default();
        let invalid_name = || format!("the name of {} is not a valid agent name", file.display());
        let name: AgentName = stem.parse().with_context(invalid_name).kind(ErrorKind::Invalid)?;
        let text = read(&file)?;
        let agent = Config::agent(&name, &text, &file).kind(ErrorKind::Invalid)?;
        all.insert(name, AgentSource { agent, text, file: Some(file) });
    }
    Ok(all)
}

/// Returns the files of the user's `agents` directory, which is next to belljar.toml.
fn user_files(host: &HostEnv) -> Result<Vec<PathBuf>, EngineError> {
    let Some(dir) = directory(host) else { return Ok(Vec::new()) };
    let entries = match std::fs::read_dir(&dir) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
        entries => entries
            .with_context(|| format!("cannot list {}", dir.display()))
            .kind(ErrorKind::Invalid)?,
    };
    let paths = entries.filter_map(|entry| Some(entry.ok()?.path()));
    let mut files: Vec<PathBuf> =
        paths.filter(|path| path.extension().is_some_and(|suffix| suffix == "toml")).collect();
    files.sort();
    Ok(files)
}

/// Returns the directory of the agents that the user defines.
pub fn directory(host: &HostEnv) -> Option<PathBuf> {
    Some(host.config_file()?.parent()?.join("agents"))
}

fn read(file: &Path) -> Result<String, EngineError> {
    use std::io::Read as _;
    let mut text = String::new();
    let read = std::fs::File::open(file)
        .and_then(|opened| opened.take(MAX_BYTES).read_to_string(&mut text));
    read.with_context(|| format!("cannot read {}", file.display())).kind(ErrorKind::Invalid)?;
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn built_in_agents_parse_and_all_their_secrets_are_declared() {
        for (name, text) in BUILT_IN {
            let agent = Config::agent(&name.parse().unwrap(), text, Path::new(name)).unwrap();
            assert!(agent.install.is_some() && !agent.secrets.is_empty(), "{name}");
            assert_eq!(agent.task.unwrap().argv.first(), Some(&agent.program), "{name}");
            let config = Config::built_in().with_secrets(agent.declared.clone());
            for secret in &agent.secrets {
                assert!(config.secret(secret).is_some(), "{name}: {secret}");
            }
        }
    }
}
