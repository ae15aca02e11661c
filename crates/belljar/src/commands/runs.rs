//! `belljar runs`: what ran here, and what still waits for review.

use std::os::unix::fs::MetadataExt;

use anyhow::Context;
use belljar_ledger::Row;
use belljar_model::{Purpose, RunId, RunRecord, RunState, display};
use serde::Serialize;
use serde_json::json;

use crate::cli::RunsArgs;
use crate::cli::purpose::PurposeChoice;
use crate::exit::Outcome;
use crate::print;
use crate::scope;
use belljar_engine::box_store;
use belljar_engine::error::{EngineError, ErrorKind, WithKind as _};
use belljar_engine::moment;
use belljar_engine::record;
use belljar_engine::review::list::{self, ListedRun};
use belljar_engine::scope::Scoped;
use belljar_engine::store::Damaged;

pub(crate) fn run(args: &RunsArgs) -> Outcome {
    let state = scope::open(None)?;
    let here =
        std::fs::metadata(".").context("look at the current directory").kind(ErrorKind::Broken)?;
    let here = (here.dev(), here.ino());
    let mut shown = 0;
    let purposes = PurposeChoice::chosen(&args.purposes);
    let runs = list::list(&state, purposes.as_ref())?;
    let mut open = open_intents(&state)?;
    for run in &runs {
        let needs_attention = take_open(&mut open, run.id());
        let waits = waits(run) || !needs_attention.is_empty();
        if !(args.all || is_of(&state, run, here)) || (args.pending && !waits) {
            continue;
        }
        shown += 1;
        if args.json {
            json_line(run, needs_attention)?;
        } else {
            let with_purpose = purposes.is_some();
            print::out(&line(run, with_purpose, &needs_attention)).kind(ErrorKind::Broken)?;
        }
    }
    // Of runs whose directory is gone, or of none.
    for intent in open {
        shown += 1;
        if args.json {
            print::json(&Unknown { needs_attention: [&intent] }).kind(ErrorKind::Broken)?;
        } else {
            print::out(&intent.line()).kind(ErrorKind::Broken)?;
        }
    }
    let now = state.clock().now();
    for Damaged { dir, why } in state.store().damaged_runs(now).kind(ErrorKind::Broken)? {
        shown += 1;
        let dir = display::safe(dir.as_os_str().as_encoded_bytes());
        if args.json {
            print::json(&json!({ "damaged": dir, "why": why })).kind(ErrorKind::Broken)?;
        } else {
            let line = display::safe_line(format!("damaged record in {dir}: {why}"));
            print::out(&format!("{line}\n")).kind(ErrorKind::Broken)?;
        }
    }
    if shown == 0 && !args.json {
        print::note("no runs; `--all` shows those of other directories");
    }
    state.store().prune(state.clock().now()).kind(ErrorKind::Broken)?;
    Ok(0)
}

fn waits(run: &ListedRun) -> bool {
    match run {
        ListedRun::Kept { run, .. } => run.record.review.is_pending(),
        ListedRun::Recorded { .. } => false,
    }
}

/// Whether a run worked on this directory, on one of Belljar's own, or on none.
fn is_of(state: &Scoped, run: &ListedRun, here: (u64, u64)) -> bool {
    match run {
        ListedRun::Kept { run, .. } => {
            run.record.workspace.as_ref().is_none_or(|at| (at.dev, at.ino) == here)
        }
        ListedRun::Recorded { run, .. } => run.workspace.as_ref().is_none_or(|path| {
            path.starts_with(state.home())
                || path.metadata().is_ok_and(|it| (it.dev(), it.ino()) == here)
        }),
    }
}

/// A run with a directory, as JSON.
#[derive(Serialize)]
struct Listed<'a> {
    #[serde(flatten)]
    record: &'a RunRecord,
    /// Missing for runs of 0.1.
    #[serde(skip_serializing_if = "Option::is_none")]
    purpose: Option<Purpose>,
    needs_attention: Vec<Intent>,
}

/// A run that only the ledger knows, as JSON.
#[derive(Serialize)]
struct Recorded<'a> {
    id: RunId,
    name: Option<&'a str>,
    /// Milliseconds since 1970.
    created: u64,
    mode: &'a str,
    template: &'a str,
    state: RunState,
    /// Why it ended; null if no end is recorded.
    reason: Option<&'a str>,
    purpose: Option<Purpose>,
    needs_attention: Vec<Intent>,
}

fn json_line(run: &ListedRun, needs_attention: Vec<Intent>) -> Result<(), EngineError> {
    let purpose = run.purpose();
    let printed = match run {
        ListedRun::Kept { run, .. } => {
            print::json(&Listed { record: &run.record, purpose, needs_attention })
        }
        ListedRun::Recorded { run, state } => print::json(&Recorded {
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

/// An intent whose run is not known here.
#[derive(Serialize)]
struct Unknown<'a> {
    needs_attention: [&'a Intent; 1],
}

/// Something that was begun, and nobody knows how it went.
#[derive(Serialize)]
struct Intent {
    /// Its place in the ledger.
    event: u64,
    run: Option<RunId>,
    kind: String,
}

impl Intent {
    fn line(&self) -> String {
        let run = self.run.map_or_else(|| "-".repeat(16), |run| run.to_string());
        let Self { event, kind, .. } = self;
        let kind = display::safe_line(kind);
        format!(
            "{run}  needs attention: `{kind}` has no outcome; look, then `belljar ledger settle {event} --reason TEXT`\n"
        )
    }
}

/// All intents without an outcome whose process is gone. A ledger that cannot be read is said.
fn open_intents(state: &Scoped) -> Result<Vec<Intent>, EngineError> {
    let mut kept = state.store().runs().kind(ErrorKind::Broken)?;
    kept.extend(box_store::runs(state));
    let is_running = |id| {
        kept.iter().any(|run| run.record.id == id && run.record.state == RunState::Running)
            || state.store().is_call(id)
    };
    let rows = record::needs_attention(state, is_running).unwrap_or_else(|error| {
        print::note("what needs attention is not known, because the ledger cannot be read:");
        print::error(&EngineError::new(ErrorKind::Broken, error));
        Vec::new()
    });
    let intent = |row: Row| Intent { event: row.index, run: row.run, kind: row.kind };
    Ok(rows.into_iter().map(intent).collect())
}

/// Takes those of one run out of the list.
fn take_open(open: &mut Vec<Intent>, run: RunId) -> Vec<Intent> {
    let (own, others) = std::mem::take(open).into_iter().partition(|it| it.run == Some(run));
    *open = others;
    own
}

/// One run for people. Everything that a box or a file name could have chosen is made safe.
fn line(run: &ListedRun, with_purpose: bool, needs_attention: &[Intent]) -> String {
    let purpose = run.purpose().map_or("-", Purpose::name);
    let purpose = if with_purpose { format!("{purpose:<12}  ") } else { String::new() };
    let (created, name, how, review, what) = match run {
        ListedRun::Kept { run, .. } => {
            let record = &run.record;
            let how = record.result.as_ref().map(|result| result.reason.name());
            let waits = record.review.is_pending();
            let argv: Vec<String> = record.argv.iter().map(display::safe).collect();
            (
                record.created.saturating_mul(1_000_000),
                record.name.as_ref().map(|name| name.as_str().to_owned()),
                how.unwrap_or_else(|| record.state.name()).to_owned(),
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
    let mut text = format!("{id}  {when}  {name:<12}  {purpose}{how:<12}  {review:<16}  {what}\n");
    needs_attention.iter().for_each(|intent| text.push_str(&intent.line()));
    text
}
