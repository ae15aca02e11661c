//! Arguments of `init` and `demo`.

use belljar_model::RunName;
use belljar_model::agent::AgentName;
use clap::Args;

#[derive(Debug, Args)]
#[command(
    after_help = "The rules allow the registries of the languages that the project uses, and fetches from its
repository on GitHub, GitLab, Codeberg or Bitbucket. Hosts that only files of the project name
become comments.

Examples:
  belljar init
  belljar init --yes
  belljar init --yes --agent claude
  belljar init --print --template shop"
)]
pub(crate) struct InitArgs {
    /// Ask nothing: allow what was found, and choose the first agent that is installed
    #[arg(long, short)]
    pub(crate) yes: bool,
    /// Name of the template [default: the name of the current directory]
    #[arg(long, value_name = "NAME")]
    pub(crate) template: Option<RunName>,
    /// Agent that gets a template of its own; `none` for no agent
    #[arg(long, value_name = "NAME", value_parser = parse_agent)]
    pub(crate) agent: Option<AgentChoice>,
    /// Print the text instead of writing the file
    #[arg(long)]
    pub(crate) print: bool,
    /// Print one JSON object; needs --yes
    #[arg(long, requires = "yes", conflicts_with = "print")]
    pub(crate) json: bool,
}

/// The agent that the user names, or no agent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum AgentChoice {
    None,
    Named(AgentName),
}

/// Parses the name of an agent or `none`.
pub(crate) fn parse_agent(text: &str) -> Result<AgentChoice, String> {
    match text {
        "none" => Ok(AgentChoice::None),
        name => name
            .parse()
            .map(AgentChoice::Named)
            .map_err(|error: <AgentName as std::str::FromStr>::Err| error.to_string()),
    }
}

#[derive(Debug, Args)]
#[command(
    after_help = "The demonstration uses a temporary directory with files, a key and a ledger of its own. It needs no
network, and removes the directory at its end.

Examples:
  belljar demo
  belljar demo --keep"
)]
pub(crate) struct DemoArgs {
    /// Keep the temporary directory, to look at its ledger
    #[arg(long)]
    pub(crate) keep: bool,
}
