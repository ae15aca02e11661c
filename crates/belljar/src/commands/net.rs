//! `belljar net`: what boxes reach, and what they tried to.

mod explain;
mod learn;
mod log;

use belljar_ledger::{Query, Reader};
use belljar_model::RunId;

use super::ledger::Home;
use crate::cli::Cli;
use crate::cli::net::{NetArgs, NetCommand};
use crate::exit::Outcome;
use belljar_engine::error::{EngineError, ErrorKind, WithKind as _, invalid};
use belljar_engine::record::reading::newest;

pub(crate) fn run(cli: &Cli, args: &NetArgs) -> Outcome {
    match &args.command {
        NetCommand::Log(args) => log::run(args),
        NetCommand::Explain(args) => explain::run(cli, args),
        NetCommand::Learn(args) => learn::run(cli, args),
    }
}

/// The run that is meant: the newest if none is named.
fn which(home: &Home, reader: &Reader, named: Option<&str>) -> Result<RunId, EngineError> {
    if let Some(name) = named {
        return home.run(reader, "RUN", name);
    }
    let query = Query { kind: Some("run.created".to_owned()), ..newest(1) };
    let rows = reader.events(&query).kind(ErrorKind::Broken)?;
    let run = rows.first().and_then(|row| row.run);
    run.ok_or_else(|| invalid("there is no run yet: `belljar run` makes one"))
}
