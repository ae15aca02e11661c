//! The arguments of `belljar plan`.

use std::path::PathBuf;

use clap::{Args, Subcommand, ValueHint};

#[derive(Debug, Args)]
#[command(after_help = "Examples:
  belljar plan check fix-login.toml
  belljar plan show fix-login.toml")]
pub(crate) struct PlanArgs {
    #[command(subcommand)]
    pub(crate) command: PlanCommand,
}

#[derive(Debug, Subcommand)]
pub(crate) enum PlanCommand {
    /// Check a plan without running it, and list everything that is wrong
    #[command(after_help = "Examples:
  belljar plan check fix-login.toml
  belljar plan check plan.json --json")]
    Check {
        /// Plan in TOML or JSON, or - for standard input
        #[arg(value_name = "FILE", value_hint = ValueHint::FilePath)]
        file: PathBuf,
        /// Print one JSON object
        #[arg(long)]
        json: bool,
    },
    /// Show the tasks of a plan and their order as a tree
    #[command(after_help = "Examples:
  belljar plan show fix-login.toml
  belljar plan show fix-login.toml --mermaid")]
    Show {
        /// Plan in TOML or JSON, or - for standard input
        #[arg(value_name = "FILE", value_hint = ValueHint::FilePath)]
        file: PathBuf,
        /// Print a Mermaid flowchart
        #[arg(long, conflicts_with = "json")]
        mermaid: bool,
        /// Print one JSON object
        #[arg(long)]
        json: bool,
    },
}
