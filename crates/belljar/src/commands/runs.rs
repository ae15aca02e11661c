//! `belljar runs`: what ran here, and what still waits for review.

use std::os::unix::fs::MetadataExt;

use anyhow::Context;
use belljar_ledger::Row;
use belljar_model::{RunId, RunRecord, RunState, display};
use serde::Serialize;
use serde_json::json;

use crate::cli::RunsArgs;
use crate::exit::Outcome;
use crate::print;
use crate::scope;
use belljar_engine::error::{EngineError, ErrorKind, WithKind as _};
use belljar_engine::moment;
use belljar_engine::record;
use belljar_engine::scope::Scoped;
use belljar_engine::store::{Damaged, Run};

pub(crate) fn run(args: &RunsArgs) -> Outcome {
    let state = scope::open(None)?;
    let here =
        std::fs::metadata(".").context("look at the current directory").kind(ErrorKind::Broken)?;
    let here = (here.dev(), here.ino());
    let mut shown = 0;
    let runs = state.store().runs().kind(ErrorKind::Broken)?;
    let mut open = open_intents(&state, &runs);
    for run in &runs {
        let record = &run.record;
        let is_here = record.workspace.as_ref().is_none_or(|at| (at.dev, at.ino) == here);
        let needs_attention = take_open(&mut open, record.id);
        let waits = record.review.waits() || !needs_attention.is_empty();
        if !(args.all || is_here) || (args.pending && !waits) {
            continue;
        }
        shown += 1;
        if args.json {
            print::json(&Listed { record, needs_attention }).kind(ErrorKind::Broken)?;
        } else {
            print::out(&line(record, &needs_attention)).kind(ErrorKind::Broken)?;
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

/// A run as JSON.
#[derive(Serialize)]
struct Listed<'a> {
    #[serde(flatten)]
    record: &'a RunRecord,
    needs_attention: Vec<Intent>,
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
fn open_intents(state: &Scoped, runs: &[Run]) -> Vec<Intent> {
    let is_running = |id| {
        runs.iter().any(|run| run.record.id == id && run.record.state == RunState::Running)
            || state.store().is_call(id)
    };
    let rows = record::needs_attention(state, is_running).unwrap_or_else(|error| {
        print::note("what needs attention is not known, because the ledger cannot be read:");
        print::error(&EngineError::new(ErrorKind::Broken, error));
        Vec::new()
    });
    let intent = |row: Row| Intent { event: row.index, run: row.run, kind: row.kind };
    rows.into_iter().map(intent).collect()
}

/// Takes those of one run out of the list.
fn take_open(open: &mut Vec<Intent>, run: RunId) -> Vec<Intent> {
    let (own, others) = std::mem::take(open).into_iter().partition(|it| it.run == Some(run));
    *open = others;
    own
}

/// One run for people. Everything that a box or a file name could have chosen is made safe.
fn line(record: &RunRecord, needs_attention: &[Intent]) -> String {
    let name = record.name.as_ref().map_or("-", |name| name.as_str());
    let how = record.result.as_ref().map_or(record.state.name(), |result| result.reason.name());
    let review = if record.review.waits() { "waits for review" } else { record.review.name() };
    let argv: Vec<String> = record.argv.iter().map(display::safe).collect();
    let when = moment::to_the_second(record.created.saturating_mul(1_000_000));
    let mut text =
        format!("{}  {when}  {name:<12}  {how:<12}  {review:<16}  {}\n", record.id, argv.join(" "));
    needs_attention.iter().for_each(|intent| text.push_str(&intent.line()));
    text
}
