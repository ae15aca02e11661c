//! `belljar runs`: lists runs, and which of them wait for review. Its subcommands are about runs of plans.

mod decide;
mod plan_runs;
pub(crate) mod rows;
pub(crate) mod show;
mod single;

use std::os::unix::fs::MetadataExt;

use anyhow::Context;
use belljar_ledger::Row;
use belljar_model::{Purpose, RunId, RunRecord, RunState, display};
use serde::Serialize;
use serde_json::json;

use self::decide::Decision;
use self::plan_runs::PlanRun;
use crate::cli::purpose::PurposeChoice;
use crate::cli::runs::RunsCommand;
use crate::cli::{Cli, RunsArgs};
use crate::exit::Outcome;
use crate::print;
use crate::scope;
use belljar_engine::box_store;
use belljar_engine::error::{EngineError, ErrorKind, WithKind as _};
use belljar_engine::moment;
use belljar_engine::record;
use belljar_engine::review::list::{self, ListedRun};
use belljar_engine::runs::view;
use belljar_engine::scope::Scoped;
use belljar_engine::store::DamagedRun;

pub(crate) use self::decide::cancel;

/// Runs `belljar runs` and its subcommands.
pub(crate) fn run(cli: &Cli, args: &RunsArgs) -> Outcome {
    match &args.command {
        None => list_runs(args),
        Some(RunsCommand::Show { target, json }) => show::show(target, *json),
        Some(RunsCommand::Output { target }) => show::output(target),
        Some(RunsCommand::Settle { target, rerun, done, failed: _, json }) => {
            let decision = match (done, rerun) {
                (Some(file), _) => Decision::Done(file),
                (None, true) => Decision::Rerun,
                (None, false) => Decision::Failed,
            };
            decide::settle(target, &decision, *json)
        }
        Some(RunsCommand::Rerun { run, from, watch, json }) => {
            decide::rerun(cli, run, from, *watch, *json)
        }
    }
}

/// Lists runs.
fn list_runs(args: &RunsArgs) -> Outcome {
    let state = scope::open(None)?;
    let current_dir = std::fs::metadata(".")
        .context("cannot read the metadata of the current directory")
        .kind(ErrorKind::Broken)?;
    let current_dir = (current_dir.dev(), current_dir.ino());
    let mut count = 0;
    let purposes = PurposeChoice::chosen(&args.purposes);
    let runs = list::list(&state, purposes.as_ref())?;
    let mut open = open_intents(&state)?;
    let mut plan_runs = plan_runs::list(&state, purposes.as_ref())?.into_iter().peekable();
    let print_plan = |run: &PlanRun| -> Result<usize, EngineError> {
        let is_shown = args.all || run.belongs_to_directory(current_dir);
        if !is_shown || args.pending && !run.waits() {
            return Ok(0);
        }
        run.print(purposes.is_some(), args.json).map(|()| 1)
    };
    for run in &runs {
        while let Some(plan_run) = plan_runs.next_if(|plan_run| plan_run.id >= run.id()) {
            count += print_plan(&plan_run)?;
        }
        if run.purpose() == Some(Purpose::Plan) && view::has_files(&state, run.id()) {
            continue;
        }
        let needs_attention = take_intents_of(&mut open, run.id());
        let waits = waits(run) || !needs_attention.is_empty();
        if !(args.all || belongs_to_directory(&state, run, current_dir)) || (args.pending && !waits)
        {
            continue;
        }
        count += 1;
        if args.json {
            print_json(run, needs_attention)?;
        } else {
            let with_purpose = purposes.is_some();
            print::out(&text_line(run, with_purpose, &needs_attention)).kind(ErrorKind::Broken)?;
        }
    }
    for plan_run in plan_runs {
        count += print_plan(&plan_run)?;
    }
    // The remaining intents belong to runs without a directory, or to no run.
    for intent in open {
        count += 1;
        if args.json {
            print::json(&UnknownRunLine { needs_attention: [&intent] }).kind(ErrorKind::Broken)?;
        } else {
            print::out(&intent.text_line()).kind(ErrorKind::Broken)?;
        }
    }
    for damaged in state.store().damaged_runs().kind(ErrorKind::Broken)? {
        count += 1;
        print_damaged(&damaged, args.json)?;
    }
    if count == 0 && !args.json {
        print::note(
            "there are no runs of this directory; `--all` lists the runs of all directories",
        );
    }
    state.store().prune(state.clock().now()).kind(ErrorKind::Broken)?;
    Ok(0)
}

/// Prints a run whose record cannot be read, and how to review its changes.
fn print_damaged(damaged: &DamagedRun, json: bool) -> Result<(), EngineError> {
    let DamagedRun { dir, why } = damaged;
    let (dir, id) = (display::safe(dir.as_os_str().as_encoded_bytes()), damaged.id());
    if json {
        let line = json!({ "damaged": dir, "why": why, "id": id });
        return print::json(&line).kind(ErrorKind::Broken);
    }
    let advice = match id {
        Some(id) => {
            format!("; `belljar diff {id}` shows its changes, `belljar apply {id}` applies them")
        }
        None => String::new(),
    };
    let line = display::safe_line(format!("the run record in {dir} is damaged: {why}{advice}"));
    print::out(&format!("{line}\n")).kind(ErrorKind::Broken)
}

/// Returns whether changes of a run wait for review.
fn waits(run: &ListedRun) -> bool {
    match run {
        ListedRun::Kept { run, .. } => run.record.review.is_pending(),
        ListedRun::Recorded { .. } => false,
    }
}

/// Returns whether a run used the current directory, a directory of Belljar, or no workspace.
fn belongs_to_directory(state: &Scoped, run: &ListedRun, current_dir: (u64, u64)) -> bool {
    match run {
        ListedRun::Kept { run, .. } => {
            run.record.workspace.as_ref().is_none_or(|at| (at.dev, at.ino) == current_dir)
        }
        ListedRun::Recorded { run, .. } => run.workspace.as_ref().is_none_or(|path| {
            path.starts_with(state.home())
                || path.metadata().is_ok_and(|it| (it.dev(), it.ino()) == current_dir)
        }),
    }
}

/// A run whose directory is kept, as JSON.
#[derive(Serialize)]
struct KeptRunLine<'a> {
    #[serde(flatten)]
    record: &'a RunRecord,
    /// The purpose of the run; missing for runs of version 0.1.
    #[serde(skip_serializing_if = "Option::is_none")]
    purpose: Option<Purpose>,
    needs_attention: Vec<OpenIntent>,
}

/// A run that is known only from the ledger, as JSON.
#[derive(Serialize)]
struct LedgerRunLine<'a> {
    id: RunId,
    name: Option<&'a str>,
    /// The start of the run in milliseconds since 1970.
    created: u64,
    mode: &'a str,
    template: &'a str,
    state: RunState,
    /// The reason why the run ended; null if the ledger has no end of the run.
    reason: Option<&'a str>,
    purpose: Option<Purpose>,
    needs_attention: Vec<OpenIntent>,
}

/// Prints a run as one line of JSON.
fn print_json(run: &ListedRun, needs_attention: Vec<OpenIntent>) -> Result<(), EngineError> {
    let purpose = run.purpose();
    let printed = match run {
        ListedRun::Kept { run, .. } => {
            print::json(&KeptRunLine { record: &run.record, purpose, needs_attention })
        }
        ListedRun::Recorded { run, state } => print::json(&LedgerRunLine {
            id: run.id,
            name: run.name.as_deref(),
            created: run.created / 1_000_000,
            mode: &run.mode,
            template: &run.template,
            state: *state,
            reason: run.end.as_deref(),
            purpose,
            needs_attention,
        }),
    };
    printed.kind(ErrorKind::Broken)
}

/// An intent whose run has no directory, as JSON.
#[derive(Serialize)]
struct UnknownRunLine<'a> {
    needs_attention: [&'a OpenIntent; 1],
}

/// An action that the ledger records as begun, but whose result it does not record.
#[derive(Serialize)]
struct OpenIntent {
    /// The index of the event in the ledger.
    event: u64,
    run: Option<RunId>,
    kind: String,
}

impl OpenIntent {
    /// Returns the intent as a line of text that says what to do.
    fn text_line(&self) -> String {
        let run = self.run.map_or_else(|| "-".repeat(16), |run| run.to_string());
        let Self { event, kind, .. } = self;
        let kind = display::safe_line(kind);
        format!(
            "{run}  needs attention: the result of `{kind}` is unknown; find it out and record it with `belljar ledger settle {event} --reason TEXT`\n"
        )
    }
}

/// Returns all intents without a result whose process has ended.
///
/// If the ledger cannot be read, prints the error and returns an empty list.
fn open_intents(state: &Scoped) -> Result<Vec<OpenIntent>, EngineError> {
    let mut kept = state.store().runs().kind(ErrorKind::Broken)?;
    kept.extend(box_store::runs(state));
    let is_running = |id| {
        kept.iter().any(|run| run.record.id == id && run.record.state == RunState::Running)
            || state.store().is_call_running(id)
    };
    let rows = record::needs_attention(state, is_running).unwrap_or_else(|error| {
        print::note(
            "cannot list the actions that need attention, because the ledger cannot be read:",
        );
        print::error(&EngineError::new(ErrorKind::Broken, error));
        Vec::new()
    });
    let intent = |row: Row| OpenIntent { event: row.index, run: row.run, kind: row.kind };
    Ok(rows.into_iter().map(intent).collect())
}

/// Removes the intents of one run from the list and returns them.
fn take_intents_of(open: &mut Vec<OpenIntent>, run: RunId) -> Vec<OpenIntent> {
    let (own, others) = std::mem::take(open).into_iter().partition(|it| it.run == Some(run));
    *open = others;
    own
}

/// Returns a run as a line of text; all text that a box could have chosen is escaped.
fn text_line(run: &ListedRun, with_purpose: bool, needs_attention: &[OpenIntent]) -> String {
    let purpose = run.purpose().map_or("-", Purpose::name);
    let purpose = if with_purpose { format!("{purpose:<12}  ") } else { String::new() };
    let (created, name, end, review, command) = match run {
        ListedRun::Kept { run, .. } => {
            let record = &run.record;
            let end = record.result.as_ref().map(|result| result.reason.name());
            let waits = record.review.is_pending();
            let argv: Vec<String> = record.argv.iter().map(display::safe).collect();
            (
                record.created.saturating_mul(1_000_000),
                record.name.as_ref().map(|name| name.as_str().to_owned()),
                end.unwrap_or_else(|| record.state.name()).to_owned(),
                if waits { "waits for review" } else { record.review.name() },
                argv.join(" "),
            )
        }
        ListedRun::Recorded { run, state } => (
            run.created,
            run.name.as_ref().map(display::safe),
            display::safe(run.end.as_deref().unwrap_or_else(|| state.name())),
            "-",
            format!("template {}", display::safe(&run.template)),
        ),
    };
    let when = moment::readable_seconds(created);
    let (id, name) = (run.id(), name.as_deref().unwrap_or("-"));
    let mut text =
        format!("{id}  {when}  {name:<12}  {purpose}{end:<12}  {review:<16}  {command}\n");
    needs_attention.iter().for_each(|intent| text.push_str(&intent.text_line()));
    text
}
