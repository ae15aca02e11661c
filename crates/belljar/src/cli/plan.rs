//! The arguments of `belljar plan`.

use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use belljar_engine::runs::author::MAX_ATTEMPTS;
use belljar_model::Timeout;
use belljar_model::net::MicroUsd;
use belljar_model::plan::{RunBudget, TierName};
use clap::{Args, Subcommand, ValueHint};

#[derive(Debug, Args)]
#[command(
    arg_required_else_help = true,
    override_usage = "belljar plan [OPTIONS] GOAL\n       belljar plan <COMMAND>",
    after_help = "A model writes the plan from the goal and from facts about the current directory: names of files,
usual commands, branch and size. The plan is checked, shown, and never started without you.
A plan with faults goes back to the model. The exit code is 1 if the last one has faults too.

Examples:
  belljar plan \"Fix the login and let me look at the result\"
  belljar plan \"Write release notes\" --output notes.toml --budget money=1USD
  belljar plan \"Make the tests pass\" --tier frontier --submit
  belljar plan check fix-login.toml
  belljar plan show fix-login.toml"
)]
pub(crate) struct PlanArgs {
    #[command(subcommand)]
    pub(crate) command: Option<PlanCommand>,
    #[command(flatten)]
    pub(crate) write: WriteArgs,
}

/// The arguments of `belljar plan GOAL`.
#[derive(Debug, Args)]
pub(crate) struct WriteArgs {
    /// Goal of a new plan: a sentence in quotes
    #[arg(value_name = "GOAL", conflicts_with = "goal")]
    pub(crate) sentence: Option<String>,
    /// Goal of a new plan; unlike GOAL, it can be a single word
    #[arg(long, value_name = "TEXT")]
    pub(crate) goal: Option<String>,
    /// Tier of the model [default: the first of frontier, capable, cheap]
    #[arg(long, value_name = "NAME")]
    pub(crate) tier: Option<TierName>,
    /// Template of the plan's boxes; the plan cannot widen it
    #[arg(long, value_name = "NAME")]
    pub(crate) template: Option<String>,
    /// Maximum number of plans that the model writes, from 1 to 3 [default: 3]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=i64::from(MAX_ATTEMPTS)))]
    pub(crate) attempts: Option<u32>,
    /// Limit for writing the plan: calls, tokens, money or time; repeatable
    #[arg(long, value_name = "KEY=VALUE")]
    pub(crate) budget: Vec<WriteLimit>,
    /// Write the plan to a file in the current directory
    #[arg(long, short, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(crate) output: Option<PathBuf>,
    /// Replace the file of --output if it exists
    #[arg(long, requires = "output")]
    pub(crate) force: bool,
    /// Submit the plan after you have confirmed it on the terminal
    #[arg(long, conflicts_with = "json")]
    pub(crate) submit: bool,
    /// Print one JSON object
    #[arg(long)]
    pub(crate) json: bool,
}

impl WriteArgs {
    /// Returns whether no argument is given.
    pub(crate) const fn is_empty(&self) -> bool {
        // Destructured without `..`, so that a new option cannot be forgotten.
        let Self { sentence, goal, tier, template, attempts, budget, output, force, submit, json } =
            self;
        sentence.is_none()
            && goal.is_none()
            && tier.is_none()
            && template.is_none()
            && attempts.is_none()
            && budget.is_empty()
            && output.is_none()
            && !*force
            && !*submit
            && !*json
    }
}

/// One limit of `--budget`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum WriteLimit {
    Calls(u64),
    Tokens(u64),
    Money(MicroUsd),
    Time(Duration),
}

impl WriteLimit {
    /// Returns all limits as a budget. Of two limits with the same key, the last one counts.
    pub(crate) fn budget(limits: &[Self]) -> RunBudget {
        let mut budget = RunBudget::default();
        for limit in limits {
            match *limit {
                Self::Calls(calls) => budget.calls = Some(calls),
                Self::Tokens(tokens) => budget.tokens = Some(tokens),
                Self::Money(money) => budget.money = Some(money),
                Self::Time(time) => budget.time = Some(time),
            }
        }
        budget
    }
}

impl FromStr for WriteLimit {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        const KEYS: &str = "write calls=NUMBER, tokens=NUMBER, money=AMOUNT such as 1USD, or time=TIME such as 10m";
        let (key, value) = text.split_once('=').ok_or(KEYS)?;
        let number = || value.parse().map_err(|_| format!("`{value}` is not a whole number"));
        match key {
            "calls" => number().map(Self::Calls),
            "tokens" => number().map(Self::Tokens),
            "money" => value
                .parse()
                .map(Self::Money)
                .map_err(|error: <MicroUsd as FromStr>::Err| error.to_string()),
            "time" => match value.parse() {
                Ok(Timeout(Some(time))) => Ok(Self::Time(time)),
                Ok(Timeout(None)) => Err("a time is needed, such as 10m".to_owned()),
                Err(error) => Err(error.to_string()),
            },
            _ => Err(KEYS.to_owned()),
        }
    }
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_are_parsed_and_the_last_one_of_a_key_counts() {
        let parse = |texts: &[&str]| {
            let limits: Vec<WriteLimit> = texts.iter().map(|text| text.parse().unwrap()).collect();
            WriteLimit::budget(&limits)
        };
        let budget = parse(&["calls=3", "tokens=5", "money=1.50 USD", "time=10m", "tokens=6"]);
        assert_eq!((budget.calls, budget.tokens), (Some(3), Some(6)));
        assert_eq!(budget.money, Some(MicroUsd(1_500_000)));
        assert_eq!(budget.time, Some(Duration::from_mins(10)));
    }

    #[test]
    fn limit_with_an_unknown_key_or_a_wrong_value_is_refused() {
        for text in ["tokens", "boxes=1", "tokens=many", "money=1", "time=none", "=1", ""] {
            assert!(text.parse::<WriteLimit>().is_err(), "{text}");
        }
    }
}
