//! The agent of a task: its description and its secrets, fixed when the plan is submitted.
//!
//! A plan runs for hours. A description that changes meanwhile, or a secret that is stored meanwhile,
//! changes nothing about its tasks.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use anyhow::Context as _;
use belljar_model::agent::{Agent, AgentName};
use belljar_model::net::SecretName;
use belljar_model::permission::Permissions;
use belljar_model::{Config, Overrides};
use serde::{Deserialize, Serialize};

use super::outfit::{Outfit, OutfitRequest, outfit};
use super::program::AgentProgram;
use super::{AgentSource, program};
use crate::error::{EngineError, ErrorKind, WithKind as _, invalid};
use crate::scope::Scoped;

/// An agent as the tasks of one run use it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TaskAgent {
    name: AgentName,
    /// The text of the agent's file.
    text: String,
    /// The secrets that the boxes get.
    secrets: Vec<SecretName>,
    /// The agent's program, as the person who submitted the plan calls it.
    program: Option<AgentProgram>,
}

impl TaskAgent {
    /// Fixes an agent for the tasks of a run.
    ///
    /// Fails if plans cannot use the agent: its file has no `[task]`, its program is missing, or no secret
    /// of it is set. `has_host_programs` tells whether the boxes use the programs of the host.
    pub(crate) fn fix(
        state: &Scoped,
        source: &AgentSource,
        has_host_programs: bool,
    ) -> Result<Self, EngineError> {
        let AgentSource { agent, text, file } = source;
        let name = &agent.name;
        if agent.task.is_none() {
            let file = file.as_ref().map(|file| file.display().to_string());
            return Err(invalid(format!(
                "agent {name} cannot run tasks; add `[task]` with `argv = [\"{}\", …]` to {}",
                agent.program,
                file.as_deref().unwrap_or("its file")
            )));
        }
        let program = program::find(state.host(), &agent.program).filter(|_| has_host_programs);
        let made = outfit(&OutfitRequest {
            agent: Some(agent),
            permissions: &Permissions::default(),
            state,
            workspace: None,
            has_host_programs,
            runs_agent: true,
            found: program.as_ref(),
        })?;
        let secrets = made.overrides.secrets;
        if secrets.is_empty() && !agent.secrets.is_empty() {
            let names: Vec<&str> = agent.secrets.iter().map(SecretName::as_str).collect();
            return Err(invalid(format!(
                "agent {name} has no credentials: none of the secrets {} is set; use `belljar secret set {}`",
                names.join(", "),
                names.first().unwrap_or(&"")
            )));
        }
        Ok(Self { name: name.clone(), text: text.clone(), secrets, program })
    }

    /// Returns the description of the agent, with the fixed secrets.
    fn agent(&self) -> Result<Agent, EngineError> {
        let file = PathBuf::from(format!("{}.toml", self.name));
        let agent = Config::agent(&self.name, &self.text, &file);
        let agent = agent.context("cannot read the stored description of an agent");
        Ok(Agent { secrets: self.secrets.clone(), ..agent.kind(ErrorKind::Damaged)? })
    }

    /// Computes the outfit of the box of a task. `workspace` is the private clone, if it exists yet.
    pub(crate) fn outfit(
        &self,
        state: &Scoped,
        permissions: &Permissions,
        workspace: Option<&Path>,
        has_host_programs: bool,
    ) -> Result<TaskOutfit, EngineError> {
        let agent = self.agent()?;
        let made = outfit(&OutfitRequest {
            agent: Some(&agent),
            permissions,
            state,
            workspace,
            has_host_programs,
            runs_agent: true,
            found: self.program.as_ref(),
        })?;
        let argv = argv(&agent, &made, permissions)?;
        Ok(TaskOutfit { argv, made: fixed(made, &agent) })
    }
}

/// The outfit of the box of a task.
#[derive(Debug)]
pub(crate) struct TaskOutfit {
    /// The program and the arguments of the task.
    pub(crate) argv: Vec<OsString>,
    pub(crate) made: Outfit,
}

/// Removes the rules that the agent's file does not have: the permissions of the configuration can only
/// restrict a task, because they are not fixed when the plan is submitted.
fn fixed(made: Outfit, agent: &Agent) -> Outfit {
    let overrides = Overrides { allow: agent.allow.clone(), ..made.overrides };
    Outfit { overrides, ..made }
}

/// Returns the program of a task and its arguments.
fn argv(
    agent: &Agent,
    made: &Outfit,
    permissions: &Permissions,
) -> Result<Vec<OsString>, EngineError> {
    let task = agent.task.as_ref();
    let task = task.ok_or_else(|| invalid(format!("agent {} cannot run tasks", agent.name)))?;
    let mut words: Vec<OsString> = task.argv.iter().map(OsString::from).collect();
    if task.argv.first() == Some(&agent.program) {
        if let (Some(first), Some(program)) = (words.first_mut(), made.argv.first()) {
            first.clone_from(program);
        }
        if permissions.skips_all() {
            words.extend(agent.skip_all.iter().map(OsString::from));
        }
    }
    Ok(words)
}
