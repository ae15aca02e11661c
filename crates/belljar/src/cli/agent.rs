//! Arguments of `belljar agent` and `belljar policy`.

use std::path::PathBuf;

use belljar_model::agent::AgentName;
use clap::{Args, Subcommand, ValueHint};

#[derive(Debug, Args)]
#[command(after_help = "Examples:
  belljar agent list
  belljar agent show claude
  belljar up my-task --agent claude --repo .

You can define more agents in ~/.config/belljar/agents/NAME.toml.")]
pub(crate) struct AgentArgs {
    #[command(subcommand)]
    pub(crate) command: AgentCommand,
}

#[derive(Debug, Subcommand)]
pub(crate) enum AgentCommand {
    /// List the supported agents, and which are installed here
    #[command(after_help = "Examples:
  belljar agent list")]
    List {
        /// Print one JSON object per line
        #[arg(long)]
        json: bool,
    },
    /// Show the program, files and rules that a box gets for an agent
    #[command(after_help = "Examples:
  belljar agent show claude")]
    Show {
        /// Name of the agent
        name: AgentName,
        /// Print one JSON object
        #[arg(long)]
        json: bool,
    },
    /// Store the login of an agent in the vault; boxes get placeholders
    #[command(after_help = "Examples:
  belljar agent login claude")]
    Login {
        /// Name of the agent
        name: AgentName,
        /// Token file of the agent [default: the agent's own location]
        #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
        from: Option<PathBuf>,
    },
}

#[derive(Debug, Args)]
#[command(after_help = "Examples:
  belljar policy explain
  belljar policy explain --template build --agent claude")]
pub(crate) struct PolicyArgs {
    #[command(subcommand)]
    pub(crate) command: PolicyCommand,
}

#[derive(Debug, Subcommand)]
pub(crate) enum PolicyCommand {
    /// Show for each permission what enforces it: box, broker, `apply` or agent
    Explain(ExplainArgs),
}

#[derive(Debug, Args)]
#[command(after_help = "Examples:
  belljar policy explain
  belljar policy explain --template build --agent claude")]
pub(crate) struct ExplainArgs {
    /// Template of belljar.toml whose permissions are explained
    #[arg(long, value_name = "NAME", default_value = belljar_model::DEFAULT_TEMPLATE)]
    pub(crate) template: String,
    /// Agent that enforces the permissions that a box cannot
    #[arg(long, value_name = "NAME")]
    pub(crate) agent: Option<AgentName>,
    /// Print one JSON object per permission and line
    #[arg(long)]
    pub(crate) json: bool,
}
