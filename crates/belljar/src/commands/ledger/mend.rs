//! `belljar ledger settle` and `mend`: what only a person can decide.

use anyhow::anyhow;
use belljar_ledger::{AttentionSettled, Draft, Mended};
use belljar_model::{RunId, RunState, display};
use serde_json::json;

use super::Home;
use crate::cli::ledger::{MendArgs, SettleArgs};
use crate::exit::Outcome;
use crate::print;
use belljar_engine::error::{EngineError, ErrorKind, WithKind as _, invalid};

pub(crate) fn settle(args: &SettleArgs) -> Outcome {
    let home = Home::open()?;
    let reader = home.reader()?;
    let intent = home.event(&reader, &args.id)?;
    let open = reader.unsettled(intent.run).kind(ErrorKind::Broken)?;
    if !open.iter().any(|row| row.index == intent.index) {
        return Err(invalid(format!(
            "event {} ({}) waits for no outcome; `belljar runs` lists what does",
            intent.index, intent.kind
        )));
    }
    if let Some(run) = intent.run.filter(|run| is_running(&home, *run)) {
        return Err(invalid(format!("run {run} is still running: its outcome is yet to come")));
    }
    let draft = Draft::new(AttentionSettled { reason: args.reason.clone() })
        .of_run(intent.run)
        .because_of_index(Some(intent.index));
    let recorded = home.writer()?.record(draft).kind(ErrorKind::Broken)?;
    if args.json.json {
        let told = json!({ "settled": intent.index, "by": recorded.index() });
        print::json(&told).kind(ErrorKind::Broken)?;
    } else {
        print::note(&format!("settled event {}, by event {}", intent.index, recorded.index()));
    }
    Ok(0)
}

fn is_running(home: &Home, run: RunId) -> bool {
    let runs = home.state.store().runs().unwrap_or_default();
    runs.iter().any(|known| known.id() == run && known.record.state == RunState::Running)
        || home.state.store().is_call(run)
}

pub(crate) fn mend(args: &MendArgs) -> Outcome {
    let home = Home::open()?;
    if !home.exists() {
        return Err(invalid(super::NONE_YET));
    }
    let question = "go on with this ledger, whatever is wrong with it? What is lost stays lost, and the record will say so";
    if !args.yes && !print::confirm(question).kind(ErrorKind::Broken)? {
        return Err(invalid("nothing was done; `--yes` answers the question"));
    }
    let mended = belljar_ledger::mend(&home.paths, &args.reason)
        .map_err(|error| EngineError::new(ErrorKind::Broken, anyhow!(error)))?;
    let (name, told) = match &mended {
        Mended::Sound => ("sound", "the ledger opens; there was nothing to decide".to_owned()),
        Mended::Continued { events, lost } => (
            "continued",
            format!("goes on after {events} events; {lost} that were vouched for are lost"),
        ),
        Mended::SetAside { ledger, anchor } => (
            "set_aside",
            format!(
                "a new ledger was begun; the old one is in {} and its keys in {}",
                ledger.display(),
                anchor.display()
            ),
        ),
    };
    if args.json.json {
        print::json(&json!({ "outcome": name, "text": told })).kind(ErrorKind::Broken)?;
    } else {
        print::note(&display::safe_line(told));
    }
    Ok(0)
}
