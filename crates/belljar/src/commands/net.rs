//! `belljar net`: lists network requests, explains rules and makes rules from requests.

mod explain;
mod learn;
mod log;

use belljar_ledger::Reader;
use belljar_model::RunId;

use super::ledger::LedgerHome;
use crate::cli::Cli;
use crate::cli::net::{NetArgs, NetCommand};
use crate::exit::Outcome;
use belljar_engine::error::{EngineError, invalid};
use belljar_engine::record::runs::{self, Purposes};

/// Runs `belljar net`.
pub(crate) fn run(cli: &Cli, args: &NetArgs) -> Outcome {
    match &args.command {
        NetCommand::Log(args) => log::run(args),
        NetCommand::Explain(args) => explain::run(cli, args),
        NetCommand::Learn(args) => learn::run(cli, args),
    }
}

/// Returns the id of the named run, or of the newest run with one of the purposes.
fn find_run(
    home: &LedgerHome,
    reader: &Reader,
    named: Option<&str>,
    purposes: Option<&Purposes>,
) -> Result<RunId, EngineError> {
    if let Some(name) = named {
        return home.run(reader, "RUN", name);
    }
    let (found, advice) = match purposes {
        Some(purposes) => {
            (runs::newest(reader, purposes)?, "the ledger has no run of this purpose")
        }
        None => (
            runs::newest(reader, &Purposes::default())?,
            "there are no runs yet; start a run with `belljar run`",
        ),
    };
    found.ok_or_else(|| invalid(advice))
}
