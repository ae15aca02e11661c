//! `belljar cancel`, `belljar runs settle` and `belljar runs rerun`.

use std::fs;
use std::io::Read as _;
use std::path::Path;

use anyhow::Context as _;
use belljar_engine::error::{EngineError, ErrorKind, WithKind as _};
use belljar_engine::runs::control::{self, Settlement};
use belljar_engine::runs::driver;
use belljar_engine::runs::machine::{TaskRef, Try};
use belljar_engine::runs::rerun;
use belljar_engine::runs::view;
use belljar_model::display;
use belljar_model::plan::TaskId;
use serde_json::json;

use crate::cli::Cli;
use crate::cli::runs::{CancelArgs, TaskTarget};
use crate::commands::{plan, watch};
use crate::exit::Outcome;
use crate::print;
use crate::scope;

/// The number of reused outputs that are named.
const MAX_NAMED: usize = 5;

/// Runs `belljar cancel`.
pub(crate) fn cancel(args: &CancelArgs) -> Outcome {
    let state = scope::open(None)?;
    let run = view::find(&state, &args.target.run)?;
    let of = args.target.task.as_ref();
    control::cancel(&state, run, of)?;
    if args.json {
        let task = of.map(ToString::to_string);
        print::json(&json!({ "run": run, "task": task, "cancelling": true }))
            .kind(ErrorKind::Broken)?;
    } else {
        let what = of.map_or_else(|| run.to_string(), |of| format!("{run}/{of}"));
        let text = format!("cancelling {what}; `belljar watch {run}` shows its end\n");
        print::out(&text).kind(ErrorKind::Broken)?;
    }
    Ok(0)
}

/// The decision of a person about a task, as it was typed.
#[derive(Debug)]
pub(crate) enum Decision<'a> {
    Rerun,
    Done(&'a Path),
    Failed,
}

/// Runs `belljar runs settle`.
pub(crate) fn settle(target: &TaskTarget, decision: &Decision<'_>, as_json: bool) -> Outcome {
    let state = scope::open(None)?;
    let run = view::find(&state, &target.run)?;
    let view = view::run(&state, run)?;
    let of = &target.task;
    let task = view.task(of).ok_or_else(|| control::no_task(run, of))?;
    let Some(attempt) = task.lost else {
        let text = format!(
            "task {of} of run {run} does not wait for a decision; its state is {}",
            task.status.name()
        );
        return Err(EngineError::message(ErrorKind::WrongState, text));
    };
    let (how, word) = match decision {
        Decision::Rerun => (Settlement::Rerun, "rerun"),
        Decision::Failed => (Settlement::Failed, "failed"),
        Decision::Done(file) => (Settlement::Done(read(file)?), "done"),
    };
    let TaskRef { task, item } = of.clone();
    control::settle(&state, run, &Try { task, item, attempt }, how)?;
    if as_json {
        print::json(&json!({ "run": run, "task": of.to_string(), "settled": word }))
            .kind(ErrorKind::Broken)?;
    } else {
        print::out(&format!("settled {run}/{of}: {word}\n")).kind(ErrorKind::Broken)?;
    }
    Ok(0)
}

/// Reads the file that becomes the output of a task.
fn read(file: &Path) -> Result<Vec<u8>, EngineError> {
    let mut content = Vec::new();
    let content = if file.as_os_str() == "-" {
        std::io::stdin().lock().read_to_end(&mut content).map(|_| content)
    } else {
        fs::read(file)
    };
    content.with_context(|| format!("cannot read {}", file.display())).kind(ErrorKind::Invalid)
}

/// Runs `belljar runs rerun`.
pub(crate) fn rerun(cli: &Cli, run: &str, from: &TaskId, watches: bool, as_json: bool) -> Outcome {
    let state = scope::open(cli.config.as_deref())?;
    let earlier = view::find(&state, run)?;
    let repeated = rerun::rerun(&state, &plan::configuration(cli)?, earlier, from)?;
    // The run is on disk. Its id is printed also if no driver starts.
    let woken = driver::wake(&state);
    let reused: Vec<String> = repeated.reused.iter().map(ToString::to_string).collect();
    let run = repeated.run;
    if as_json {
        print::json(&json!({ "run": run, "earlier": earlier, "from": from, "reused": reused }))
            .kind(ErrorKind::Broken)?;
    } else {
        let name = display::safe(view::run(&state, run)?.name);
        let reused = match reused.as_slice() {
            [] => "reuses no output".to_owned(),
            reused if reused.len() <= MAX_NAMED => {
                format!("reuses the outputs of {}", reused.join(", "))
            }
            reused => format!("reuses {} outputs", reused.len()),
        };
        let then = match woken {
            Ok(()) => "continues without this terminal",
            Err(_) => "not started",
        };
        let text =
            format!("{run} {name}: repeats {from} of {earlier}; {reused}\naccepted; {then}\n");
        print::out(&text).kind(ErrorKind::Broken)?;
    }
    woken?;
    if watches { watch::watch(&state, run, as_json) } else { Ok(0) }
}
