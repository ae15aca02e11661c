//! The arguments of `belljar schedule`.

use clap::{Args, Subcommand};

#[derive(Debug, Args)]
#[command(after_help = "A schedule is a section [schedule.NAME] of belljar.toml.
Its slots fire only while a driver runs.

Examples:
  belljar schedule list
  belljar schedule pause nightly")]
pub(crate) struct ScheduleArgs {
    #[command(subcommand)]
    pub(crate) command: ScheduleCommand,
}

#[derive(Debug, Subcommand)]
pub(crate) enum ScheduleCommand {
    /// List the schedules with their next and their last slot
    #[command(after_help = "The exit code is 2 if a schedule has a fault.

Examples:
  belljar schedule list
  belljar schedule list --json")]
    List {
        /// Print one JSON object per line
        #[arg(long)]
        json: bool,
    },
    /// Start the plan of a schedule now; its slots do not change
    #[command(after_help = "Examples:
  belljar schedule run nightly
  belljar schedule run nightly --json")]
    Run(ScheduleName),
    /// Fire no slot of a schedule until it is resumed
    #[command(after_help = "Examples:
  belljar schedule pause nightly")]
    Pause(ScheduleName),
    /// Fire the slots of a schedule again, from now on
    #[command(after_help = "Examples:
  belljar schedule resume nightly")]
    Resume(ScheduleName),
}

#[derive(Debug, Args)]
pub(crate) struct ScheduleName {
    /// Name of the schedule
    #[arg(value_name = "SCHEDULE")]
    pub(crate) name: String,
    /// Print one JSON object
    #[arg(long)]
    pub(crate) json: bool,
}
