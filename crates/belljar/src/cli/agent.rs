//! What can be typed after `belljar agent` and `belljar policy`.

use std::path::PathBuf;

use belljar_model::agent::AgentName;
use clap::{Args, Subcommand, ValueHint};

#[derive(Debug, Args)]
#[command(after_help = "Try:  belljar agent list
      belljar agent show claude
      belljar up my-task --agent claude --repo .

Agents of your own are files in ~/.config/belljar/agents/NAME.toml.")]
pub(crate) struct AgentArgs {
    #[command(subcommand)]
    pub(crate) command: AgentCommand,
}

#[derive(Debug, Subcommand)]
pub(crate) enum AgentCommand {
    /// List the agents that are known, and which of them are on this machine
    List {
        /// One JSON object per line
        #[arg(long)]
        json: bool,
    },
    /// Show what a box for an agent gets, and what was found of it here
    Show {
        name: AgentName,
        /// One JSON object
        #[arg(long)]
        json: bool,
    },
    /// Take the login of an agent into the vault; boxes get placeholders, and it is renewed on the host
    Login {
        name: AgentName,
        /// The agent's token file [default: where the agent keeps it]
        #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
        from: Option<PathBuf>,
    },
}

#[derive(Debug, Args)]
pub(crate) struct PolicyArgs {
    #[command(subcommand)]
    pub(crate) command: PolicyCommand,
}

#[derive(Debug, Subcommand)]
pub(crate) enum PolicyCommand {
    /// Show for each permission who keeps it: the box, its broker, `apply`, or the agent alone
    Explain(ExplainArgs),
}

#[derive(Debug, Args)]
pub(crate) struct ExplainArgs {
    /// The template of belljar.toml
    #[arg(long, value_name = "NAME", default_value = belljar_model::DEFAULT_TEMPLATE)]
    pub(crate) template: String,
    /// The agent that is told the rest
    #[arg(long, value_name = "NAME")]
    pub(crate) agent: Option<AgentName>,
    /// One JSON object per rule
    #[arg(long)]
    pub(crate) json: bool,
}
