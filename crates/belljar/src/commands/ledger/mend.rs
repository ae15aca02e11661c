//! `belljar ledger settle` and `mend`: record unknown results and repair a damaged ledger.

use std::collections::BTreeMap;

use anyhow::anyhow;
use belljar_ledger::{AttentionSettled, Draft, Mended, Reader, Row};
use belljar_model::{RunId, RunState, display};
use serde_json::json;

use super::LedgerHome;
use crate::cli::ledger::{MendArgs, SettleArgs};
use crate::exit::Outcome;
use crate::print;
use belljar_engine::error::{EngineError, ErrorKind, WithKind as _, invalid};
use belljar_engine::record;

/// The number of events that are recorded at once.
const AT_ONCE: usize = 1000;

/// Runs `belljar ledger settle`. Nothing is recorded if one of the given intents cannot be settled.
pub(crate) fn settle(args: &SettleArgs) -> Outcome {
    let home = LedgerHome::open()?;
    let reader = home.reader()?;
    let intents = selected(&home, &reader, args)?;
    if intents.is_empty() {
        print::note("no intent has an unknown result, so nothing was recorded");
        return Ok(0);
    }
    let ledger = home.writer()?;
    let mut settled = Vec::new();
    for some in intents.chunks(AT_ONCE) {
        let drafts = some.iter().map(|intent| {
            Draft::new(AttentionSettled::new(args.reason.clone()))
                .of_run(intent.run)
                .because_of_index(Some(intent.index))
        });
        let recorded = ledger.record_all(drafts.collect()).kind(ErrorKind::Broken)?;
        settled.extend(some.iter().zip(recorded).map(|(intent, by)| (intent.index, by.index())));
    }
    for (intent, by) in &settled {
        if args.json.json {
            print::json(&json!({ "settled": intent, "by": by })).kind(ErrorKind::Broken)?;
        } else {
            print::note(&format!("event {intent} is settled; event {by} records it"));
        }
    }
    Ok(0)
}

/// Returns the intents that the options select, by ascending index.
fn selected(
    home: &LedgerHome,
    reader: &Reader,
    args: &SettleArgs,
) -> Result<Vec<Row>, EngineError> {
    if args.all {
        return record::needs_attention(&home.state, |run| is_running(home, run))
            .kind(ErrorKind::Broken);
    }
    if let Some(name) = &args.run {
        let run = home.run(reader, "--run", name)?;
        refuse_running(home, run)?;
        return reader.unsettled(Some(run)).kind(ErrorKind::Broken);
    }
    let mut intents = BTreeMap::new();
    for id in &args.ids {
        let intent = home.event(reader, id)?;
        let open = reader.unsettled(intent.run).kind(ErrorKind::Broken)?;
        if !open.iter().any(|row| row.index == intent.index) {
            return Err(invalid(format!(
                "event {} ({}) is not an intent with an unknown result; `belljar runs` lists such events",
                intent.index, intent.kind
            )));
        }
        if let Some(run) = intent.run {
            refuse_running(home, run)?;
        }
        intents.insert(intent.index, intent);
    }
    Ok(intents.into_values().collect())
}

fn refuse_running(home: &LedgerHome, run: RunId) -> Result<(), EngineError> {
    if is_running(home, run) {
        return Err(invalid(format!(
            "run {run} is still running, so its result can still be recorded; try again when the run has ended"
        )));
    }
    Ok(())
}

/// Returns whether a run is still running.
fn is_running(home: &LedgerHome, run: RunId) -> bool {
    let runs = home.state.store().runs().unwrap_or_default();
    runs.iter().any(|known| known.id() == run && known.record.state == RunState::Running)
        || home.state.store().is_call_running(run)
}

/// Runs `belljar ledger mend`.
pub(crate) fn mend(args: &MendArgs) -> Outcome {
    let home = LedgerHome::open()?;
    if !home.exists()? {
        return Err(invalid(super::NO_LEDGER));
    }
    let question =
        "repair the ledger? Lost events cannot be restored, and the ledger records the repair";
    if !args.yes && !print::confirm(question).kind(ErrorKind::Broken)? {
        return Err(invalid(
            "nothing was repaired, because it was not confirmed; `--yes` skips the question",
        ));
    }
    let mended = belljar_ledger::mend(&home.paths, &args.reason)
        .map_err(|error| EngineError::new(ErrorKind::Broken, anyhow!(error)))?;
    let (name, text) = match &mended {
        Mended::Sound => ("sound", "the ledger can be opened; no repair was necessary".to_owned()),
        Mended::Continued { events, lost } => (
            "continued",
            format!("the ledger continues after {events} events; {lost} signed events are lost"),
        ),
        Mended::KeysRestored { old } => (
            "keys_restored",
            format!(
                "the list of public keys was restored from the log; the old list is in {}",
                old.display()
            ),
        ),
        Mended::SaltsRestored { old, records } => (
            "salts_restored",
            format!(
                "the file of salts was written again with {records} salts; the old file is in {}",
                old.display()
            ),
        ),
        Mended::SetAside { ledger, anchor } => (
            "set_aside",
            format!(
                "a new ledger was created; the old ledger is in {} and its keys are in {}",
                ledger.display(),
                anchor.display()
            ),
        ),
    };
    if args.json.json {
        print::json(&json!({ "outcome": name, "text": text })).kind(ErrorKind::Broken)?;
    } else {
        print::note(&display::safe_line(text));
    }
    Ok(0)
}
