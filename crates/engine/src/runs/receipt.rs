//! Receipts of runs: a file that proves what happened, without the ledger.
//!
//! The receipt of a plan has the events of the plan and of all its boxes. The plan and the outputs of its
//! tasks are files of the run; a receipt that discloses bodies contains those that still match their
//! commitments.

use anyhow::Context as _;
use belljar_ledger::{Disclose, Disclosure, Event, LedgerPaths, MAX_RECEIPT, Reader};
use belljar_model::{Purpose, RunId};

use super::files::RunFiles;
use crate::error::{EngineError, ErrorKind, WithKind as _};
use crate::record::reading::read;
use crate::scope::Scoped;

/// Returns the text of the receipt of a run. The run of a plan is proved with all its boxes.
pub fn of_run(
    state: &Scoped,
    reader: &Reader,
    run: RunId,
    disclose: Disclose,
) -> Result<String, EngineError> {
    let Some(command) = plan_command(reader, run)? else {
        return reader.receipt(run, disclose).kind(ErrorKind::Broken);
    };
    let more = match disclose {
        Disclose::Nothing => None,
        Disclose::Bodies => Some(contents(state, run, command)?),
    };
    reader.plan_receipt(run, more).kind(ErrorKind::Broken)
}

/// Returns the text of the receipt of a run of the caller's tenant.
pub fn text(state: &Scoped, run: RunId, with_bodies: bool) -> Result<String, EngineError> {
    let reader = Reader::open(&LedgerPaths::under(state.home()));
    let reader = reader.context("cannot read the ledger").kind(ErrorKind::Broken)?;
    let disclose = if with_bodies { Disclose::Bodies } else { Disclose::Nothing };
    of_run(state, &reader, run, disclose)
}

/// Returns the commitment to the text of the plan, or `None` if the run is not a run of a plan.
fn plan_command(
    reader: &Reader,
    run: RunId,
) -> Result<Option<belljar_ledger::Digest>, EngineError> {
    let Some(row) = reader.find(run, 0).kind(ErrorKind::Broken)? else { return Ok(None) };
    let entry = read(reader, &row)?;
    let Ok(Event::RunCreated(created)) = Event::read(&entry.kind, &entry.fields) else {
        return Ok(None);
    };
    let is_plan = created.purpose == Some(Purpose::Plan.to_string());
    Ok(is_plan.then(|| created.command.hash()))
}

/// Reads the plan and the stored outputs of a run.
fn contents(
    state: &Scoped,
    run: RunId,
    command: belljar_ledger::Digest,
) -> Result<Vec<Disclosure>, EngineError> {
    let files = RunFiles::of(state.store().layout(), run);
    let mut all = Vec::new();
    // The salt of the plan is in the ledger.
    if let Ok(content) = std::fs::read(files.plan()) {
        all.push(Disclosure { hash: command, salt: None, content });
    }
    let outputs = files.outputs().context("cannot list the outputs of the run");
    let mut size = 0_u64;
    for (stored, path) in outputs.kind(ErrorKind::Broken)? {
        size = size.saturating_add(stored.size());
        if size > MAX_RECEIPT as u64 {
            let text = "the outputs of the run are too large for a receipt; make it without bodies";
            return Err(EngineError::message(ErrorKind::Invalid, text));
        }
        let (Ok(salt), Ok(content)) = (stored.salt(), std::fs::read(path)) else { continue };
        all.push(Disclosure { hash: stored.hash(), salt: Some(salt), content });
    }
    Ok(all)
}
