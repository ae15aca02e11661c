//! Agents: those that come with Belljar and those of the user, and what a box is given for one.

pub mod copy;
pub mod login;
pub mod masks;
mod outfit;
pub mod program;
pub mod settings;
mod status;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use anyhow::Context as _;
use belljar_model::Config;
use belljar_model::agent::{Agent, AgentName};

pub use outfit::HomeFile;
pub use outfit::{OutfitRequest, outfit};
pub use status::{AgentStatus, SecretHere, status};

use crate::error::{EngineError, ErrorKind, WithKind as _, invalid};
use crate::host::HostEnv;

const BUILT_IN: [(&str, &str); 5] = [
    ("aider", include_str!("../agents/aider.toml")),
    ("claude", include_str!("../agents/claude.toml")),
    ("codex", include_str!("../agents/codex.toml")),
    ("gemini", include_str!("../agents/gemini.toml")),
    ("opencode", include_str!("../agents/opencode.toml")),
];

/// Far above any real one.
const MAX_BYTES: u64 = 1 << 20;

/// An agent, and the user's file that describes it, if it is not one of ours.
#[derive(Debug)]
pub struct AgentSource {
    pub agent: Agent,
    pub file: Option<PathBuf>,
}

/// The agent of this name. A file of the user's beats the one that comes with Belljar.
pub fn find(host: &HostEnv, name: &AgentName) -> Result<Agent, EngineError> {
    let mut all = all(host)?;
    let names: Vec<String> = all.keys().map(ToString::to_string).collect();
    let unknown =
        || invalid(format!("--agent: there is no {name}; there are {}", names.join(", ")));
    all.remove(name).map(|known| known.agent).ok_or_else(unknown)
}

/// Every agent that is known.
pub fn all(host: &HostEnv) -> Result<BTreeMap<AgentName, AgentSource>, EngineError> {
    let mut all = BTreeMap::new();
    for (name, text) in BUILT_IN {
        let name: AgentName =
            name.parse().context("an agent of our own").kind(ErrorKind::Broken)?;
        let file = PathBuf::from(format!("{name}.toml"));
        let agent = Config::agent(&name, text, &file).kind(ErrorKind::Broken)?;
        all.insert(name, AgentSource { agent, file: None });
    }
    for file in users_files(host)? {
        let stem = file.file_stem().and_then(|stem| stem.to_str()).unwrap_or_default();
        let name: AgentName =
            stem.parse().with_context(|| file.display().to_string()).kind(ErrorKind::Invalid)?;
        let agent = Config::agent(&name, &read(&file)?, &file).kind(ErrorKind::Invalid)?;
        all.insert(name, AgentSource { agent, file: Some(file) });
    }
    Ok(all)
}

/// The files in the user's own directory of agents, beside belljar.toml.
fn users_files(host: &HostEnv) -> Result<Vec<PathBuf>, EngineError> {
    let Some(dir) = directory(host) else { return Ok(Vec::new()) };
    let entries = match std::fs::read_dir(&dir) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
        entries => {
            entries.with_context(|| format!("list {}", dir.display())).kind(ErrorKind::Invalid)?
        }
    };
    let paths = entries.filter_map(|entry| Some(entry.ok()?.path()));
    let mut files: Vec<PathBuf> =
        paths.filter(|path| path.extension().is_some_and(|it| it == "toml")).collect();
    files.sort();
    Ok(files)
}

/// Where the user's own agents are.
pub fn directory(host: &HostEnv) -> Option<PathBuf> {
    Some(host.config_file()?.parent()?.join("agents"))
}

fn read(file: &Path) -> Result<String, EngineError> {
    use std::io::Read as _;
    let mut text = String::new();
    let read = std::fs::File::open(file)
        .and_then(|opened| opened.take(MAX_BYTES).read_to_string(&mut text));
    read.with_context(|| format!("read {}", file.display())).kind(ErrorKind::Invalid)?;
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_agent_of_ours_can_be_read_and_its_rules_lead_to_its_secrets() {
        for (name, text) in BUILT_IN {
            let agent = Config::agent(&name.parse().unwrap(), text, Path::new(name)).unwrap();
            assert!(agent.install.is_some() && !agent.secrets.is_empty(), "{name}");
            let config = Config::built_in().with_secrets(agent.declared.clone());
            for secret in &agent.secrets {
                assert!(config.secret(secret).is_some(), "{name}: {secret}");
            }
        }
    }
}
