//! `belljar ledger`: reads, verifies, exports and repairs the ledger.
//!
//! Commands that only read take no lock, and do not create a ledger if there is none.

mod check;
mod export;
mod get;
mod import;
mod input;
mod keys;
pub(crate) mod log;
mod mend;
mod plan_receipt;
mod progress;
mod proof;
mod receipt;
mod redact;
mod replay;
mod show;

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, anyhow};
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
use progress::Progress;

/// The maximum number of retries while another process may be creating the ledger.
const MAX_OPEN_RETRIES: u32 = 50;
/// The error if there is no ledger.
const NO_LEDGER: &str = "there is no ledger yet; `belljar run` creates it";

/// Runs `belljar ledger`.
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

/// The state directory of Belljar and the paths of its ledger.
pub(crate) struct LedgerHome {
    state: Scoped,
    paths: LedgerPaths,
}

impl LedgerHome {
    /// Opens the state directory.
    pub(crate) fn open() -> Result<Self, EngineError> {
        let state = scope::open(None)?;
        let paths = LedgerPaths::under(state.home());
        Ok(Self { state, paths })
    }

    /// Opens the ledger for reading; returns `None` if no ledger was ever created.
    fn try_reader(&self) -> Result<Option<Reader>, EngineError> {
        let mut retries = 0;
        let reader = loop {
            let mut progress = Progress::new("indexed");
            let opened = Reader::open_showing(&self.paths, &mut |at, of| progress.update(at, of));
            progress.clear();
            match opened {
                Ok(reader) => break reader,
                Err(ReaderError::None { .. }) if !exists(self.paths.anchor())? => return Ok(None),
                // Keys without a log: the ledger is being created, or its log was deleted.
                Err(ReaderError::None { .. }) if retries < MAX_OPEN_RETRIES => retries += 1,
                Err(ReaderError::None { path }) => {
                    let missing =
                        anyhow!("the ledger {} is missing, but its keys exist", path.display());
                    return Err(damaged(&missing));
                }
                Err(error) => {
                    return Err(damaged(&anyhow!(error).context("cannot read the ledger")));
                }
            }
            std::thread::sleep(Duration::from_millis(20));
        };
        warn_if_damaged(reader).map(Some)
    }

    /// Returns the opened engine.
    pub(crate) fn state(&self) -> &Scoped {
        &self.state
    }

    /// Opens the ledger for reading; it is an error if there is no ledger.
    pub(crate) fn reader(&self) -> Result<Reader, EngineError> {
        self.try_reader()?.ok_or_else(|| invalid(NO_LEDGER))
    }

    /// Returns whether a ledger was ever created in this state directory.
    fn exists(&self) -> Result<bool, EngineError> {
        Ok(exists(&self.paths.log())? || exists(self.paths.anchor())?)
    }

    /// Opens an existing ledger for recording.
    fn writer(&self) -> Result<Arc<Ledger>, EngineError> {
        if !self.exists()? {
            return Err(invalid(NO_LEDGER));
        }
        Ok(self.open_or_create()?.ledger())
    }

    /// Opens the ledger for recording, and creates it if there is none.
    fn open_or_create(&self) -> Result<LedgerHandle, EngineError> {
        record::open(&self.state).kind(ErrorKind::Broken)
    }

    /// Returns the id of the run with this id, id prefix or name.
    pub(crate) fn run(
        &self,
        reader: &Reader,
        flag: &str,
        name: &str,
    ) -> Result<RunId, EngineError> {
        find_run(self.state.store(), reader, flag, name)
    }

    /// Returns the event with this index, or with this RUN/SEQUENCE.
    fn event(&self, reader: &Reader, id: &str) -> Result<Row, EngineError> {
        let not_found = || {
            invalid(format!("there is no event {id:?}; the ledger has {} events", reader.size()))
        };
        let found = match id.rsplit_once('/') {
            Some((run, sequence)) => {
                let sequence = number(sequence).ok_or_else(|| invalid_id(id))?;
                let run = self.run(reader, "ID", run)?;
                reader.find(run, sequence).kind(ErrorKind::Broken)?
            }
            None => {
                reader.event(number(id).ok_or_else(|| invalid_id(id))?).kind(ErrorKind::Broken)?
            }
        };
        found.ok_or_else(not_found)
    }

    /// Returns the public keys of this machine; the list can be empty.
    fn keys(&self) -> Result<Vec<VerifyingKey>, EngineError> {
        match exists(self.paths.anchor())? {
            true => belljar_ledger::public_keys(&self.paths).kind(ErrorKind::Broken),
            false => Ok(Vec::new()),
        }
    }
}

/// Prints a warning if the ledger is damaged or truncated, which a reader would not notice.
fn warn_if_damaged(mut reader: Reader) -> Result<Reader, EngineError> {
    let advice = "`belljar ledger verify` shows details";
    if let Some(damage) = reader.damage() {
        let size = reader.size();
        print::note(&format!(
            "the ledger is damaged after its first {size} events: {damage}; {advice}"
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
                    "the ledger was truncated: it had {events} events, and now has {size}; {advice}"
                ));
            }
        }
        Err(error) => {
            let error = anyhow!(error);
            print::note(&format!("the ledger has no valid signed checkpoint: {error:#}; {advice}"));
        }
    }
    Ok(reader)
}

/// Returns whether a file exists; a file that cannot be looked up is not taken for a missing one.
fn exists(path: &Path) -> Result<bool, EngineError> {
    let found = path.try_exists();
    found.with_context(|| format!("cannot read {}", path.display())).kind(ErrorKind::Broken)
}

/// Returns the error for an invalid event id.
fn invalid_id(id: &str) -> EngineError {
    invalid(format!(
        "invalid event id {id:?}; use the index of an event, such as 17, or RUN/SEQUENCE"
    ))
}
