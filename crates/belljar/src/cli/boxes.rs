//! Arguments of the commands for named boxes.

pub(crate) mod terminals;
pub(crate) mod transfer;

use std::ffi::OsString;
use std::path::PathBuf;

use belljar_model::Identity;
use belljar_model::agent::AgentName;
use belljar_model::boxes::BoxName;
use clap::{Args, ValueHint};

use super::BoxArgs;
use crate::cli::when::When;

#[derive(Debug, Args)]
#[command(after_help = "Examples:
  belljar up dev
  belljar up task-1 task-2 --agent claude --repo .")]
pub(crate) struct UpArgs {
    /// Name of the box; several names create several equal boxes
    #[arg(required = true, value_name = "NAME")]
    pub(crate) names: Vec<BoxName>,
    #[command(flatten)]
    pub(crate) options: UpOptions,
    /// Program and its arguments [default: a shell, or the agent]
    #[arg(last = true, value_name = "CMD", value_hint = ValueHint::CommandWithArguments)]
    pub(crate) command: Vec<OsString>,
}

/// Options of `up` that are stored and used at every start.
#[derive(Debug, Args)]
pub(crate) struct UpOptions {
    /// Use this template of belljar.toml
    #[arg(long, value_name = "NAME", default_value = belljar_model::DEFAULT_TEMPLATE)]
    pub(crate) template: String,
    /// Prepare the box for this agent: program, settings, rules and secrets; see `belljar agent list`
    #[arg(long, value_name = "AGENT")]
    pub(crate) agent: Option<AgentName>,
    /// Directory to show at /workspace in the box [default: the current directory]
    #[arg(long, value_name = "DIR", value_hint = ValueHint::DirPath)]
    pub(crate) workspace: Option<PathBuf>,
    /// Start the box without a workspace
    #[arg(long, conflicts_with = "workspace")]
    pub(crate) no_workspace: bool,
    /// Use a private clone of this git repository as the workspace; `belljar apply` writes its commits to a branch
    #[arg(long, value_name = "DIR", conflicts_with_all = ["workspace", "no_workspace", "mode"], value_hint = ValueHint::DirPath)]
    pub(crate) repo: Option<PathBuf>,
    /// With --repo: check out this branch, tag or commit [default: the current one]
    #[arg(long, value_name = "B", requires = "repo")]
    pub(crate) branch: Option<String>,
    /// With --repo: include uncommitted changes
    #[arg(long, requires = "repo")]
    pub(crate) uncommitted: bool,
    /// Author of commits in the box, as `NAME <EMAIL>` [default: your git configuration]
    #[arg(long, value_name = "WHO")]
    pub(crate) git_identity: Option<Identity>,
    #[command(flatten)]
    pub(crate) box_options: BoxArgs,
    /// Shell command that checks the health of the box every 30 seconds; `belljar status` shows the result
    #[arg(long, value_name = "CMD")]
    pub(crate) health: Option<String>,
    /// Give the program pipes instead of a terminal; `belljar attach` is then not possible
    #[arg(long)]
    pub(crate) no_tty: bool,
}

/// Argument that selects a box.
#[derive(Debug, Args)]
pub(crate) struct BoxSelector {
    /// Name of the box
    #[arg(value_name = "NAME")]
    pub(crate) name: BoxName,
}

#[derive(Debug, Args)]
#[command(after_help = "Examples:
  belljar list
  belljar list --json")]
pub(crate) struct ListArgs {
    /// Print one JSON object per line
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
#[command(after_help = "Examples:
  belljar status dev")]
pub(crate) struct StatusArgs {
    #[command(flatten)]
    pub(crate) which: BoxSelector,
    /// Print one JSON object
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
#[command(after_help = "Examples:
  belljar stop dev
  belljar stop task-1 task-2 --now")]
pub(crate) struct StopArgs {
    /// Names of the boxes
    #[arg(required = true, value_name = "NAME")]
    pub(crate) names: Vec<BoxName>,
    /// Kill the program at once instead of asking it to end
    #[arg(long)]
    pub(crate) now: bool,
}

#[derive(Debug, Args)]
#[command(after_help = "Examples:
  belljar start dev")]
pub(crate) struct StartArgs {
    /// Names of the boxes
    #[arg(required = true, value_name = "NAME")]
    pub(crate) names: Vec<BoxName>,
}

#[derive(Debug, Args)]
#[command(
    after_help = "The box keeps its home, its changes and its snapshots, and gets a new broker and new placeholders.

Examples:
  belljar restart dev"
)]
pub(crate) struct RestartArgs {
    /// Names of the boxes
    #[arg(required = true, value_name = "NAME")]
    pub(crate) names: Vec<BoxName>,
    /// Kill the program at once instead of asking it to end
    #[arg(long)]
    pub(crate) now: bool,
}

#[derive(Debug, Args)]
#[command(after_help = "Examples:
  belljar down dev
  belljar down task-1 task-2 --discard-work")]
pub(crate) struct DownArgs {
    /// Names of the boxes
    #[arg(required = true, value_name = "NAME")]
    pub(crate) names: Vec<BoxName>,
    /// Continue even if the box has changes that were not applied
    #[arg(long)]
    pub(crate) discard_work: bool,
}

#[derive(Debug, Args)]
#[command(after_help = "Examples:
  belljar restore
  belljar restore dev --as dev-2")]
pub(crate) struct RestoreArgs {
    /// Name of a box, or id or id prefix of an entry of the trash [default: list the trash]
    #[arg(value_name = "NAME|ID")]
    pub(crate) which: Option<String>,
    /// Restore the box under this name
    #[arg(long = "as", value_name = "NEW", requires = "which")]
    pub(crate) new: Option<BoxName>,
    /// Print one JSON object per line
    #[arg(long, conflicts_with = "which")]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
#[command(after_help = "Examples:
  belljar snapshot dev before-upgrade
  belljar snapshot dev --list")]
pub(crate) struct SnapshotArgs {
    #[command(flatten)]
    pub(crate) which: BoxSelector,
    /// Tag of the snapshot [default: the time]
    #[arg(value_name = "TAG", conflicts_with = "list")]
    pub(crate) tag: Option<BoxName>,
    /// List the snapshots of the box
    #[arg(long)]
    pub(crate) list: bool,
    /// With --list: print one JSON object per line
    #[arg(long, requires = "list")]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
#[command(after_help = "Examples:
  belljar fork dev dev-2
  belljar fork dev@before-upgrade try-1 try-2")]
pub(crate) struct ForkArgs {
    /// Box to copy in its current state, or one of its snapshots
    #[arg(value_name = "NAME[@TAG]")]
    pub(crate) from: String,
    /// Names of the new boxes
    #[arg(required = true, value_name = "NEW")]
    pub(crate) names: Vec<BoxName>,
}

#[derive(Debug, Args)]
#[command(after_help = "Examples:
  belljar reset dev
  belljar reset dev before-upgrade --keep-work")]
pub(crate) struct ResetArgs {
    #[command(flatten)]
    pub(crate) which: BoxSelector,
    /// Snapshot to go back to [default: the state at creation]
    #[arg(value_name = "TAG")]
    pub(crate) tag: Option<BoxName>,
    /// Reset only the home directory; keep the changes in the workspace
    #[arg(long, conflicts_with = "discard_work")]
    pub(crate) keep_work: bool,
    /// Continue even if the box has changes that were not applied
    #[arg(long)]
    pub(crate) discard_work: bool,
}

#[derive(Debug, Args)]
#[command(after_help = "Examples:
  belljar gc --dry-run
  belljar gc --older-than 30d")]
pub(crate) struct GcArgs {
    /// Print what would be removed, and remove nothing
    #[arg(long)]
    pub(crate) dry_run: bool,
    /// Remove only what was not used for this time, for example 30d
    #[arg(long, value_name = "AGE", default_value = "14d")]
    pub(crate) older_than: When,
    /// Also remove boxes with changes that were not applied
    #[arg(long)]
    pub(crate) discard_work: bool,
}
