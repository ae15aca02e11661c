//! Arguments of `belljar net`.

pub(crate) mod explain;

use clap::{Args, Subcommand};

use crate::cli::purpose::PurposeChoice;
use crate::cli::when::When;

#[derive(Debug, Args)]
#[command(after_help = "Examples:
  belljar net log --follow
  belljar net log my-run --denied
  belljar net learn my-run")]
pub(crate) struct NetArgs {
    #[command(subcommand)]
    pub(crate) command: NetCommand,
}

#[derive(Debug, Subcommand)]
pub(crate) enum NetCommand {
    /// List the network requests of a run and their results
    Log(LogArgs),
    /// Show which rule decides about a request, without sending it
    Explain(Box<explain::ExplainArgs>),
    /// Print the narrowest rules that allow the requests of a run
    Learn(LearnArgs),
}

const LOG_HELP: &str =
    "Each request is one line. Denied names, alarms and spent budgets are lines of their own. With --follow,
a request is printed when it is finished; a slow request is also printed as `open` before.

Examples:
  belljar net log my-run --denied
  belljar net log --all --since 2h --json";

const LOG_JSON: &str = "With --json each line is an object with `type`, `index` (its event in the ledger), `time`, `run`,
`purpose` (of the run), and
  request  verdict (allow, deny), method, scheme, host, port, path, rule, reason, secrets (names),
           state (denied, open, finished), status, sent_bytes, received_bytes, micros, error
  name     verdict (deny), name, query, rule, reason
  alarm    alarm, detail
  budget   budget, unit, amount, total
Unknown values are null.";

#[derive(Debug, Args)]
#[command(after_help = LOG_HELP, after_long_help = format!("{LOG_HELP}\n\n{LOG_JSON}"))]
pub(crate) struct LogArgs {
    /// Id, id prefix or name of a run [default: the newest]
    #[arg(value_name = "RUN")]
    pub(crate) run: Option<String>,
    /// List requests of all runs of the chosen purposes
    #[arg(long, conflicts_with = "run")]
    pub(crate) all: bool,
    /// Only runs of this purpose; can be repeated [default: run, call and box]
    #[arg(long = "purpose", value_name = "PURPOSE", conflicts_with = "run")]
    pub(crate) purposes: Vec<PurposeChoice>,
    /// List only denied requests and alarms
    #[arg(long)]
    pub(crate) denied: bool,
    /// Start at this time: 2026-11-16, 2026-11-16T12:00:00Z, or an age such as 2h or 30d
    #[arg(long, value_name = "TIME")]
    pub(crate) since: Option<When>,
    /// Print new requests until the run ends or Ctrl-C is pressed
    #[arg(long, short)]
    pub(crate) follow: bool,
    /// Print one JSON object per line
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
#[command(
    after_help = "Rules are made from requests and names that no rule allowed, and from all requests of a run with
`--net full`. A rule has exact methods and an exact host. It has exact paths, unless there are more than five
paths below one directory. Requests that raised an alarm are ignored.

Examples:
  belljar net learn
  belljar net learn my-run --template build --write"
)]
pub(crate) struct LearnArgs {
    /// Id, id prefix or name of a run [default: the newest]
    #[arg(value_name = "RUN")]
    pub(crate) run: Option<String>,
    /// Template of belljar.toml for the rules
    #[arg(long, value_name = "NAME", default_value = belljar_model::DEFAULT_TEMPLATE)]
    pub(crate) template: String,
    /// Append the rules to your own belljar.toml; the file of a project is never changed
    #[arg(long)]
    pub(crate) write: bool,
}
