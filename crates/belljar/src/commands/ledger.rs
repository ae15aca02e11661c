//! `belljar ledger`: looking at the record, checking it, and handing it on.
//!
//! Commands that read make no ledger where none is, and take no lock.

mod check;
mod export;
mod get;
mod import;
mod input;
mod keys;
pub(crate) mod log;
mod mend;
mod progress;
mod proof;
mod receipt;
mod redact;
mod replay;
mod show;

use std::sync::Arc;
use std::time::Duration;

use anyhow::anyhow;
use belljar_ledger::{Ledger, LedgerPaths, Reader, ReaderError, Row, VerifyingKey};
use belljar_model::RunId;

use crate::cli::ledger::{LedgerArgs, LedgerCommand};
use crate::exit::Outcome;
use crate::print;
use crate::scope;
use belljar_engine::error::{EngineError, ErrorKind, WithKind as _, invalid};
use belljar_engine::record::reading::{damaged, each, find_run, newest, read};
use belljar_engine::record::{self, LedgerHandle};
use belljar_engine::scope::Scoped;
use input::{given_keys, number, read_input, trusted_keys, write_output};

/// So often it is looked again for a log that another process is about to begin.
const LOOKS: u32 = 50;
const NONE_YET: &str = "no ledger yet: `belljar run` begins one";

pub(crate) fn run(args: &LedgerArgs) -> Outcome {
    match &args.command {
        LedgerCommand::Log(args) => log::run(args),
        LedgerCommand::Show(args) => show::run(args),
        LedgerCommand::Get(args) => get::run(args),
        LedgerCommand::Replay(args) => replay::run(args),
        LedgerCommand::Verify(args) => check::run(args),
        LedgerCommand::Receipt(args) => receipt::make(args),
        LedgerCommand::VerifyReceipt(args) => receipt::verify(args),
        LedgerCommand::Checkpoint(args) => proof::checkpoint(args),
        LedgerCommand::Prove(args) => proof::prove(args),
        LedgerCommand::Consistency(args) => proof::consistency(args),
        LedgerCommand::VerifyProof(args) => proof::verify(args),
        LedgerCommand::Redact(args) => redact::redact(args),
        LedgerCommand::Prune(args) => redact::prune(args),
        LedgerCommand::Usage(args) => redact::show_usage(args),
        LedgerCommand::Key(args) => keys::run(args),
        LedgerCommand::Settle(args) => mend::settle(args),
        LedgerCommand::Mend(args) => mend::mend(args),
        LedgerCommand::Export(args) => export::run(args),
        LedgerCommand::ImportTrace(args) => import::run(args),
    }
}

/// The state directory, and where its ledger is.
pub(crate) struct Home {
    state: Scoped,
    paths: LedgerPaths,
}

impl Home {
    pub(crate) fn open() -> Result<Self, EngineError> {
        let state = scope::open(None)?;
        let paths = LedgerPaths::under(state.home());
        Ok(Self { state, paths })
    }

    /// The ledger for reading; `None` when none was begun.
    fn try_reader(&self) -> Result<Option<Reader>, EngineError> {
        let mut looks = 0;
        let reader = loop {
            match Reader::open(&self.paths) {
                Ok(reader) => break reader,
                Err(ReaderError::None { .. }) if !self.paths.anchor().exists() => return Ok(None),
                // Keys without a log: it is just being begun, or it is gone.
                Err(ReaderError::None { .. }) if looks < LOOKS => looks += 1,
                Err(ReaderError::None { path }) => {
                    let gone =
                        anyhow!("the ledger is gone from {}; its keys are there", path.display());
                    return Err(damaged(&gone));
                }
                Err(error) => return Err(damaged(&anyhow!(error).context("read the ledger"))),
            }
            std::thread::sleep(Duration::from_millis(20));
        };
        warn_if_short(reader).map(Some)
    }

    pub(crate) fn state(&self) -> &Scoped {
        &self.state
    }

    pub(crate) fn reader(&self) -> Result<Reader, EngineError> {
        self.try_reader()?.ok_or_else(|| invalid(NONE_YET))
    }

    /// Whether there ever was a ledger here.
    fn exists(&self) -> bool {
        self.paths.log().exists() || self.paths.anchor().exists()
    }

    /// The ledger for recording, which must have been begun.
    fn writer(&self) -> Result<Arc<Ledger>, EngineError> {
        if !self.exists() {
            return Err(invalid(NONE_YET));
        }
        Ok(self.begin()?.ledger())
    }

    /// The ledger for recording; it is begun if there is none.
    fn begin(&self) -> Result<LedgerHandle, EngineError> {
        record::open(&self.state).kind(ErrorKind::Broken)
    }

    /// The run of this id, beginning of an id, or name.
    pub(crate) fn run(
        &self,
        reader: &Reader,
        flag: &str,
        name: &str,
    ) -> Result<RunId, EngineError> {
        find_run(self.state.store(), reader, flag, name)
    }

    /// The event of this index, or of a run and its place there.
    fn event(&self, reader: &Reader, id: &str) -> Result<Row, EngineError> {
        let none =
            || invalid(format!("there is no event {id:?}; the ledger has {}", reader.size()));
        let found = match id.rsplit_once('/') {
            Some((run, sequence)) => {
                let sequence = number(sequence).ok_or_else(|| not_an_id(id))?;
                let run = self.run(reader, "ID", run)?;
                reader.find(run, sequence).kind(ErrorKind::Broken)?
            }
            None => {
                reader.event(number(id).ok_or_else(|| not_an_id(id))?).kind(ErrorKind::Broken)?
            }
        };
        found.ok_or_else(none)
    }

    /// This machine's own keys. There may be none.
    fn keys(&self) -> Result<Vec<VerifyingKey>, EngineError> {
        match self.paths.anchor().exists() {
            true => belljar_ledger::public_keys(&self.paths).kind(ErrorKind::Broken),
            false => Ok(Vec::new()),
        }
    }
}

/// What was cut off is not seen by who only reads: it must be said.
fn warn_if_short(mut reader: Reader) -> Result<Reader, EngineError> {
    let advice = "`belljar ledger verify` says more";
    if let Some(damage) = reader.damage() {
        let size = reader.size();
        print::note(&format!(
            "the ledger is damaged behind its first {size} events: {damage}; {advice}"
        ));
        return Ok(reader);
    }
    match reader.checkpoint() {
        Ok((signed, _)) => {
            // The log is read after the checkpoint, and only grows.
            let size = reader.refresh().kind(ErrorKind::Broken)?;
            if size < signed.size() {
                let events = signed.size();
                print::note(&format!(
                    "the ledger was cut short: it had {events} events, and has {size}; {advice}"
                ));
            }
        }
        Err(error) => {
            let error = anyhow!(error);
            print::note(&format!("nothing vouches for this ledger: {error:#}; {advice}"));
        }
    }
    Ok(reader)
}

fn not_an_id(id: &str) -> EngineError {
    invalid(format!("ID {id:?}: neither the index of an event, such as 17, nor RUN/SEQUENCE"))
}
