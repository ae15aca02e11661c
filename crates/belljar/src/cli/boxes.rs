//! Named boxes: made once, started and stopped, kept until they are taken down.

pub(crate) mod terminals;

use std::ffi::OsString;
use std::path::PathBuf;

use belljar_model::Identity;
use belljar_model::agent::AgentName;
use belljar_model::boxes::BoxName;
use clap::{Args, ValueHint};

use super::BoxArgs;
use crate::cli::when::When;

#[derive(Debug, Args)]
pub(crate) struct UpArgs {
    /// What the box is called; several names make several boxes of the same kind
    #[arg(required = true, value_name = "NAME")]
    pub(crate) names: Vec<BoxName>,
    #[command(flatten)]
    pub(crate) options: UpOptions,
    /// The program and its arguments [default: a shell, or the agent]
    #[arg(last = true, value_name = "CMD", value_hint = ValueHint::CommandWithArguments)]
    pub(crate) command: Vec<OsString>,
}

/// What is remembered of `up`, and read again at every start.
#[derive(Debug, Args)]
pub(crate) struct UpOptions {
    /// Start from this template of belljar.toml
    #[arg(long, value_name = "NAME", default_value = belljar_model::DEFAULT_TEMPLATE)]
    pub(crate) template: String,
    /// Make it a home for this agent: its program, settings, rules and secrets (`belljar agent list`)
    #[arg(long, value_name = "AGENT")]
    pub(crate) agent: Option<AgentName>,
    /// The directory that the box sees at /workspace [default: the current directory]
    #[arg(long, value_name = "DIR", value_hint = ValueHint::DirPath)]
    pub(crate) workspace: Option<PathBuf>,
    /// Give the box no workspace
    #[arg(long, conflicts_with = "workspace")]
    pub(crate) no_workspace: bool,
    /// A private clone of this git repository as the workspace; the work comes back on a branch
    #[arg(long, value_name = "DIR", conflicts_with_all = ["workspace", "no_workspace", "mode"], value_hint = ValueHint::DirPath)]
    pub(crate) repo: Option<PathBuf>,
    /// With --repo: this branch, tag or commit instead of the one that is checked out
    #[arg(long, value_name = "B", requires = "repo")]
    pub(crate) branch: Option<String>,
    /// With --repo: take along what is not committed
    #[arg(long, requires = "repo")]
    pub(crate) uncommitted: bool,
    /// Who commits in the box, as `NAME <EMAIL>` [default: as git is configured for you]
    #[arg(long, value_name = "WHO")]
    pub(crate) git_identity: Option<Identity>,
    #[command(flatten)]
    pub(crate) furnish: BoxArgs,
    /// A line for the shell inside, run every half minute: `status` tells whether it succeeds
    #[arg(long, value_name = "CMD")]
    pub(crate) health: Option<String>,
    /// Give the program pipes instead of a terminal: nobody can attach then
    #[arg(long)]
    pub(crate) no_tty: bool,
}

/// Which box is meant.
#[derive(Debug, Args)]
pub(crate) struct OneBox {
    /// The name of a box
    #[arg(value_name = "NAME")]
    pub(crate) name: BoxName,
}

#[derive(Debug, Args)]
pub(crate) struct ListArgs {
    /// One JSON object per line
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct StatusArgs {
    #[command(flatten)]
    pub(crate) which: OneBox,
    /// One JSON object
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct StopArgs {
    /// The names of the boxes
    #[arg(required = true, value_name = "NAME")]
    pub(crate) names: Vec<BoxName>,
    /// Do not wait for the program to end by itself
    #[arg(long)]
    pub(crate) now: bool,
}

#[derive(Debug, Args)]
pub(crate) struct StartArgs {
    /// The names of the boxes
    #[arg(required = true, value_name = "NAME")]
    pub(crate) names: Vec<BoxName>,
}

#[derive(Debug, Args)]
pub(crate) struct DownArgs {
    /// The names of the boxes
    #[arg(required = true, value_name = "NAME")]
    pub(crate) names: Vec<BoxName>,
    /// Also if it holds work back that was not taken over
    #[arg(long)]
    pub(crate) discard_work: bool,
}

#[derive(Debug, Args)]
pub(crate) struct RestoreArgs {
    /// The name of a box, or the id (or its beginning) of something in the trash [default: list it]
    #[arg(value_name = "NAME|ID")]
    pub(crate) which: Option<String>,
    /// Give the box this name
    #[arg(long = "as", value_name = "NEW", requires = "which")]
    pub(crate) new: Option<BoxName>,
    /// One JSON object per line
    #[arg(long, conflicts_with = "which")]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct SnapshotArgs {
    #[command(flatten)]
    pub(crate) which: OneBox,
    /// What the snapshot is called [default: the time]
    #[arg(value_name = "TAG", conflicts_with = "list")]
    pub(crate) tag: Option<BoxName>,
    /// List the snapshots of the box
    #[arg(long)]
    pub(crate) list: bool,
    /// With --list: one JSON object per line
    #[arg(long, requires = "list")]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct ForkArgs {
    /// The box as it is now, or one of its snapshots
    #[arg(value_name = "NAME[@TAG]")]
    pub(crate) from: String,
    /// What the new boxes are called
    #[arg(required = true, value_name = "NEW")]
    pub(crate) names: Vec<BoxName>,
}

#[derive(Debug, Args)]
pub(crate) struct ResetArgs {
    #[command(flatten)]
    pub(crate) which: OneBox,
    /// The snapshot to go back to [default: what it was when it was made]
    #[arg(value_name = "TAG")]
    pub(crate) tag: Option<BoxName>,
    /// Only the home; what the box changed in its workspace stays
    #[arg(long, conflicts_with = "discard_work")]
    pub(crate) keep_work: bool,
    /// Also if it holds work back that was not taken over
    #[arg(long)]
    pub(crate) discard_work: bool,
}

#[derive(Debug, Args)]
pub(crate) struct GcArgs {
    /// Only say what would be removed
    #[arg(long)]
    pub(crate) dry_run: bool,
    /// How long something was not used, for example 30d
    #[arg(long, value_name = "AGE", default_value = "14d")]
    pub(crate) older_than: When,
    /// Also boxes that hold work back that was not taken over
    #[arg(long)]
    pub(crate) discard_work: bool,
}
