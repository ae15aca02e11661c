//! `belljar net`: what boxes reach, and what they tried to.

mod explain;
mod learn;
mod log;

use belljar_ledger::Reader;
use belljar_model::RunId;

use super::ledger::Home;
use crate::cli::Cli;
use crate::cli::net::{NetArgs, NetCommand};
use crate::exit::Outcome;
use belljar_engine::error::{EngineError, invalid};
use belljar_engine::record::runs::{self, Purposes};

pub(crate) fn run(cli: &Cli, args: &NetArgs) -> Outcome {
    match &args.command {
        NetCommand::Log(args) => log::run(args),
        NetCommand::Explain(args) => explain::run(cli, args),
        NetCommand::Learn(args) => learn::run(cli, args),
    }
}

/// The run that is meant: the newest of these purposes if none is named.
fn which(
    home: &Home,
    reader: &Reader,
    named: Option<&str>,
    purposes: Option<&Purposes>,
) -> Result<RunId, EngineError> {
    if let Some(name) = named {
        return home.run(reader, "RUN", name);
    }
    let (found, advice) = match purposes {
        Some(purposes) => (runs::newest(reader, purposes)?, "no run of this purpose is on record"),
        None => (
            runs::newest(reader, &Purposes::default())?,
            "there is no run yet: `belljar run` makes one",
        ),
    };
    found.ok_or_else(|| invalid(advice))
}
