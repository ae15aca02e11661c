//! The arguments of the commands on runs of plans: `submit`, `watch`, `cancel`, `resume` and `runs`.

use std::path::PathBuf;
use std::str::FromStr;

use belljar_engine::runs::machine::TaskRef;
use belljar_model::plan::TaskId;
use clap::{Args, Subcommand, ValueHint};

/// The run of a plan, or one task of it: `RUN` or `RUN/TASK`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct RunTarget {
    /// The id, a prefix of the id, or the name of the plan.
    pub(crate) run: String,
    pub(crate) task: Option<TaskRef>,
}

impl FromStr for RunTarget {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (run, task) = match text.split_once('/') {
            Some((run, task)) => (run, Some(task.parse().map_err(|_| INVALID_TASK)?)),
            None => (text, None),
        };
        if run.is_empty() {
            return Err("the id of the run is missing".to_owned());
        }
        Ok(Self { run: run.to_owned(), task })
    }
}

const INVALID_TASK: &str = "invalid task; write RUN/TASK or RUN/TASK[NUMBER]";

/// One task of the run of a plan: `RUN/TASK`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct TaskTarget {
    pub(crate) run: String,
    pub(crate) task: TaskRef,
}

impl FromStr for TaskTarget {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text.parse()? {
            RunTarget { run, task: Some(task) } => Ok(Self { run, task }),
            RunTarget { task: None, .. } => Err(INVALID_TASK.to_owned()),
        }
    }
}

#[derive(Debug, Args)]
#[command(after_help = "Examples:
  belljar submit fix-login.toml
  belljar submit fix-login.toml --watch
  belljar submit plan.json --key nightly-2026-11-17 --json
  belljar submit fix-login.toml --dry-run")]
pub(crate) struct SubmitArgs {
    /// Plan in TOML or JSON, or - for standard input
    #[arg(value_name = "PLAN", value_hint = ValueHint::FilePath)]
    pub(crate) file: PathBuf,
    /// Start no second run for the same key; the first run is reported again
    #[arg(long, value_name = "KEY")]
    pub(crate) key: Option<String>,
    /// Follow the run until it ends
    #[arg(long, conflicts_with = "dry_run")]
    pub(crate) watch: bool,
    /// Start nothing; show what would be started and what it could reach
    #[arg(long, conflicts_with = "key")]
    pub(crate) dry_run: bool,
    /// Print one JSON object; with --watch, also one for each change
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
#[command(after_help = "The exit code is 0 if the run succeeded, and 1 if it did not.

Examples:
  belljar watch 06gy9arp
  belljar watch fix-login --json")]
pub(crate) struct WatchArgs {
    /// Id, id prefix or name of the run
    #[arg(value_name = "RUN")]
    pub(crate) run: String,
    /// Print one JSON object for each change
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
#[command(after_help = "Examples:
  belljar cancel 06gy9arp
  belljar cancel fix-login/fix[0]")]
pub(crate) struct CancelArgs {
    /// Id, id prefix or name of the run, or one of its tasks
    #[arg(value_name = "RUN[/TASK]")]
    pub(crate) target: RunTarget,
    /// Print one JSON object
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
#[command(after_help = "Examples:
  belljar resume
  belljar resume --json")]
pub(crate) struct ResumeArgs {
    /// Print one JSON object per line
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Subcommand)]
pub(crate) enum RunsCommand {
    /// Show the state of a run and of its tasks
    #[command(after_help = "Examples:
  belljar runs show 06gy9arp
  belljar runs show fix-login/fix[0]
  belljar runs show fix-login --json
  belljar runs show fix-login --taint")]
    Show {
        /// Id, id prefix or name of the run, or one of its tasks
        #[arg(value_name = "RUN[/TASK]")]
        target: RunTarget,
        /// Show where the labels of data come from, and the grants that they removed
        #[arg(long)]
        taint: bool,
        /// Print one JSON object
        #[arg(long)]
        json: bool,
    },
    /// Print the output of a task that is done
    #[command(after_help = "Examples:
  belljar runs output fix-login/triage
  belljar runs output fix-login/fix[0]")]
    Output {
        /// Task of a run
        #[arg(value_name = "RUN/TASK")]
        target: TaskTarget,
    },
    /// Show the budget of all runs together, and what they have used of it
    #[command(after_help = "Examples:
  belljar runs budget
  belljar runs budget --json")]
    Budget {
        /// Print one JSON object
        #[arg(long)]
        json: bool,
    },
    /// Decide about a task whose box was lost after it may have had an effect
    #[command(after_help = "Examples:
  belljar runs settle release/push --rerun
  belljar runs settle release/push --done result.json
  belljar runs settle release/push --failed")]
    #[command(group = clap::ArgGroup::new("how").required(true))]
    Settle {
        /// Task of a run
        #[arg(value_name = "RUN/TASK")]
        target: TaskTarget,
        /// Start the task again
        #[arg(long, group = "how")]
        rerun: bool,
        /// The task is done, and this file is its output; - is standard input
        #[arg(long, group = "how", value_name = "FILE", value_hint = ValueHint::FilePath)]
        done: Option<PathBuf>,
        /// The task failed
        #[arg(long, group = "how")]
        failed: bool,
        /// Print one JSON object
        #[arg(long)]
        json: bool,
    },
    /// Start a new run of the same plan that repeats a task and its dependents
    #[command(after_help = "Examples:
  belljar runs rerun fix-login --from pick
  belljar runs rerun 06gy9arp --from fix --watch")]
    Rerun {
        /// Id, id prefix or name of the run
        #[arg(value_name = "RUN")]
        run: String,
        /// First task that runs again; outputs of tasks that do not depend on it are reused
        #[arg(long, value_name = "TASK")]
        from: TaskId,
        /// Follow the new run until it ends
        #[arg(long)]
        watch: bool,
        /// Print one JSON object; with --watch, also one for each change
        #[arg(long)]
        json: bool,
    },
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(text: &str, expect: Option<(&str, Option<&str>)>) {
        let target = text.parse::<RunTarget>().ok();
        let target = target.map(|it| (it.run, it.task.map(|task| task.to_string())));
        let expect = expect.map(|(run, task)| (run.to_owned(), task.map(str::to_owned)));
        assert_eq!(target, expect, "{text}");
    }

    #[test]
    fn run_target_is_a_run_or_a_task_of_it() {
        check("06gy9", Some(("06gy9", None)));
        check("fix-login/fix[0]", Some(("fix-login", Some("fix[0]"))));
        for wrong in ["", "/fix", "a/", "a/b/c", "a/b[01]", "a/B"] {
            check(wrong, None);
        }
        assert!("06gy9".parse::<TaskTarget>().is_err());
    }
}
