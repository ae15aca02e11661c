//! `belljar runs`: lists runs, and which of them wait for review. Its subcommands are about runs of plans.

mod budget;
pub(crate) mod checks;
mod decide;
mod plan_runs;
pub(crate) mod rows;
pub(crate) mod show;
mod single;
mod taint;

use std::os::unix::fs::MetadataExt;

use anyhow::Context;
use belljar_ledger::Row;
use belljar_model::{Purpose, RunId, RunRecord, RunState, display};
use serde::Serialize;
use serde_json::json;

use self::decide::Decision;
use crate::cli::purpose::PurposeChoice;
use crate::cli::runs::RunsCommand;
use crate::cli::{Cli, RunsArgs};
use crate::exit::Outcome;
use crate::print;
use crate::scope;
use belljar_engine::error::{EngineError, ErrorKind, WithKind as _};
use belljar_engine::moment;
use belljar_engine::runs::list::{self, ListQuery, ListedRun, Listing};
use belljar_engine::store::DamagedRun;

pub(crate) use self::budget::used_up;
pub(crate) use self::decide::cancel;

/// Runs `belljar runs` and its subcommands.
pub(crate) fn run(cli: &Cli, args: &RunsArgs) -> Outcome {
    match &args.command {
        None => list_runs(args),
        Some(RunsCommand::Show { target, taint: true, json }) => taint::show(target, *json),
        Some(RunsCommand::Show { target, taint: false, json }) => show::show(target, *json),
        Some(RunsCommand::Output { target }) => show::output(target),
        Some(RunsCommand::Budget { json }) => budget::show(cli, *json),
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
    let query = ListQuery {
        purposes: PurposeChoice::chosen(&args.purposes),
        directory: (!args.all).then(|| (current_dir.dev(), current_dir.ino())),
        pending: args.pending,
        after: args.after,
        limit: Some(args.limit.into()),
    };
    let with_purpose = query.purposes.is_some();
    let Listing { runs, next, other_intents, problems } = list::list(&state, &query)?;
    let mut count = runs.len();
    for run in &runs {
        match (run, args.json) {
            (ListedRun::Plan(run), _) => plan_runs::print(run, with_purpose, args.json)?,
            (_, true) => print_json(run)?,
            (_, false) => print::out(&text_line(run, with_purpose)).kind(ErrorKind::Broken)?,
        }
    }
    // These intents belong to runs without a directory, or to no run.
    for intent in other_intents.into_iter().map(OpenIntent::of) {
        count += 1;
        if args.json {
            print::json(&UnknownRunLine { needs_attention: [&intent] }).kind(ErrorKind::Broken)?;
        } else {
            print::out(&intent.text_line()).kind(ErrorKind::Broken)?;
        }
    }
    if args.after.is_none() {
        for damaged in state.store().damaged_runs().kind(ErrorKind::Broken)? {
            count += 1;
            print_damaged(&damaged, args.json)?;
        }
    }
    match next {
        Some(next) if args.json => {
            print::json(&json!({ "next": next.to_string() })).kind(ErrorKind::Broken)?;
        }
        Some(next) => {
            print::note(&format!("there are more runs; add `--after {next}` to list them"));
        }
        None if count == 0 && !args.json && args.after.is_none() => print::note(
            "there are no runs of this directory; `--all` lists the runs of all directories",
        ),
        None => {}
    }
    for problem in &problems {
        print::note("the list is not complete:");
        print::error(problem);
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
fn print_json(run: &ListedRun) -> Result<(), EngineError> {
    let purpose = run.purpose();
    let needs_attention = OpenIntent::all_of(run);
    let printed = match run {
        ListedRun::Plan(_) => Ok(()), // it has lines of its own
        ListedRun::Kept { run, .. } => {
            print::json(&KeptRunLine { record: &run.record, purpose, needs_attention })
        }
        ListedRun::Recorded { run, state, .. } => print::json(&LedgerRunLine {
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
    fn of(row: Row) -> Self {
        Self { event: row.index, run: row.run, kind: row.kind }
    }

    fn all_of(run: &ListedRun) -> Vec<Self> {
        let rows = match run {
            ListedRun::Kept { intents, .. } | ListedRun::Recorded { intents, .. } => {
                intents.clone()
            }
            ListedRun::Plan(_) => Vec::new(),
        };
        rows.into_iter().map(Self::of).collect()
    }

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

/// Returns a run as a line of text; all text that a box could have chosen is escaped.
fn text_line(run: &ListedRun, with_purpose: bool) -> String {
    let purpose = run.purpose().map_or("-", Purpose::name);
    let purpose = if with_purpose { format!("{purpose:<12}  ") } else { String::new() };
    let (created, name, end, review, command) = match run {
        ListedRun::Plan(_) => return String::new(), // it has lines of its own
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
        ListedRun::Recorded { run, state, .. } => (
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
    OpenIntent::all_of(run).iter().for_each(|intent| text.push_str(&intent.text_line()));
    text
}
