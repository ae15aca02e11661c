//! What can be typed after `belljar net`.

pub(crate) mod explain;

use clap::{Args, Subcommand};

use crate::cli::purpose::PurposeChoice;
use crate::cli::when::When;

#[derive(Debug, Args)]
#[command(after_help = "Try:  belljar net log --follow
      belljar net log my-run --denied
      belljar net learn my-run")]
pub(crate) struct NetArgs {
    #[command(subcommand)]
    pub(crate) command: NetCommand,
}

#[derive(Debug, Subcommand)]
pub(crate) enum NetCommand {
    /// List every request of a run, and what became of it
    Log(LogArgs),
    /// Say which rule decides about a request, and why; nothing is sent
    Explain(Box<explain::ExplainArgs>),
    /// Turn what a run tried into the narrowest rules that allow it
    Learn(LearnArgs),
}

const LOG_HELP: &str =
    "A request has one line. Names that were not allowed, alarms and spent budgets have their
own. With --follow a request is shown once it is finished; one that takes longer is shown
as `open` before.";

const LOG_JSON: &str = "With --json each line is an object with `type`, `index` (its event in the ledger), `time`, `run`,
`purpose` (of the run), and
  request  verdict (allow, deny), method, scheme, host, port, path, rule, reason, secrets (names),
           state (denied, open, finished), status, sent_bytes, received_bytes, micros, error
  name     verdict (deny), name, query, rule, reason
  alarm    alarm, detail
  budget   budget, unit, amount, total
What is not known is null.";

#[derive(Debug, Args)]
#[command(after_help = LOG_HELP, after_long_help = format!("{LOG_HELP}\n\n{LOG_JSON}"))]
pub(crate) struct LogArgs {
    /// Id (or its beginning) or name of a run [default: the newest]
    #[arg(value_name = "RUN")]
    pub(crate) run: Option<String>,
    /// Requests of all runs of the chosen purposes
    #[arg(long, conflicts_with = "run")]
    pub(crate) all: bool,
    /// Runs of this purpose; may be repeated [default: what a user started: run, call and box]
    #[arg(long = "purpose", value_name = "PURPOSE", conflicts_with = "run")]
    pub(crate) purposes: Vec<PurposeChoice>,
    /// Only what was denied, and alarms
    #[arg(long)]
    pub(crate) denied: bool,
    /// Not before this time: 2026-11-16, 2026-11-16T12:00:00Z, or an age such as 2h or 30d
    #[arg(long, value_name = "TIME")]
    pub(crate) since: Option<When>,
    /// Go on with what happens from now on, until the run is over or interrupted
    #[arg(long, short)]
    pub(crate) follow: bool,
    /// One JSON object per line
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
#[command(
    after_help = "Rules come from requests and names that were denied for want of a rule, and from what a run with
`--net full` did. Methods are exact, and so are paths unless more than five differ below one
directory. Hosts are never wildcards. A request that raised an alarm is never learnt from.

Try:  belljar net learn
      belljar net learn my-run --template build --write"
)]
pub(crate) struct LearnArgs {
    /// Id (or its beginning) or name of a run [default: the newest]
    #[arg(value_name = "RUN")]
    pub(crate) run: Option<String>,
    /// The template of belljar.toml that gets the rules
    #[arg(long, value_name = "NAME", default_value = belljar_model::DEFAULT_TEMPLATE)]
    pub(crate) template: String,
    /// Append the rules to your belljar.toml; a project's file is never written
    #[arg(long)]
    pub(crate) write: bool,
}
