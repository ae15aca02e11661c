//! `belljar ledger import-trace`: records the spans of an OpenTelemetry trace as events.

use std::collections::HashMap;
use std::os::unix::ffi::OsStrExt;

use anyhow::{Context, anyhow};
use belljar_ledger::{Actor, Body, Digest, Draft, TraceSpan};
use belljar_model::{RunId, display};
use serde_json::json;

use super::progress::Progress;
use super::{LedgerHome, read_input};
use crate::cli::ledger::ImportTraceArgs;
use crate::exit::Outcome;
use crate::print;
use belljar_engine::error::{ErrorKind, WithKind as _};
use belljar_engine::record::LedgerHandle;
use belljar_engine::record::otlp::{self, Span};

/// The maximum number of events in a batch: a name can have 4 KiB, and a batch 16 MiB.
const MAX_BATCH_EVENTS: usize = 1024;
/// The number of threads that write attributes to the disk.
const BODY_WRITER_THREADS: usize = 16;

/// Runs `belljar ledger import-trace`.
pub(crate) fn run(args: &ImportTraceArgs) -> Outcome {
    let text = read_input("FILE", &args.file, otlp::MAX_BYTES as u64)?;
    let name = display::safe(args.file.as_os_str().as_bytes());
    let read = otlp::read(&text).and_then(|spans| Ok((otlp::levels(&spans)?, spans)));
    let (levels, spans) = read
        .with_context(|| format!("FILE: {name} is not a valid trace"))
        .kind(ErrorKind::Invalid)?;
    let home = LedgerHome::open()?;
    let run = match args.run.as_deref() {
        Some(run) => Some(home.run(&home.reader()?, "--run", run)?),
        None => None,
    };
    let ledger = home.open_or_create()?;
    let target = ImportTarget { ledger: &ledger, run, keep_bodies: args.bodies };
    let mut progress = Progress::new("recorded");
    let mut event_indices: HashMap<usize, u64> = HashMap::with_capacity(spans.len());
    for level in &levels {
        for batch in level.chunks(MAX_BATCH_EVENTS) {
            record(&target, &spans, batch, &mut event_indices)
                .with_context(|| {
                    format!(
                        "cannot record all spans; {} of {} are recorded",
                        event_indices.len(),
                        spans.len()
                    )
                })
                .kind(ErrorKind::Broken)?;
            progress.update(event_indices.len() as u64, spans.len() as u64);
        }
    }
    progress.clear();
    let (first, last) = (event_indices.values().min(), event_indices.values().max());
    if args.json.json {
        let report = json!({ "spans": spans.len(), "first": first, "last": last });
        print::json(&report).kind(ErrorKind::Broken)?;
    } else {
        let span = first.zip(last);
        let span =
            span.map_or_else(String::new, |(first, last)| format!(", events {first} to {last}"));
        print::note(&format!("recorded {} spans{span}", spans.len()));
    }
    Ok(0)
}

/// The ledger and the run that spans are recorded in.
struct ImportTarget<'a> {
    ledger: &'a LedgerHandle,
    run: Option<RunId>,
    keep_bodies: bool,
}

/// Records a batch of spans, whose parents must already be recorded.
fn record(
    target: &ImportTarget<'_>,
    spans: &[Span<'_>],
    batch: &[usize],
    event_indices: &mut HashMap<usize, u64>,
) -> anyhow::Result<()> {
    let batch: Vec<(usize, &Span<'_>)> = batch
        .iter()
        .filter_map(|span_index| Some((*span_index, spans.get(*span_index)?)))
        .collect();
    let mut drafts = Vec::with_capacity(batch.len());
    for ((_, span), event) in batch.iter().zip(events(target, &batch)?) {
        let cause = span.parent_index.and_then(|parent| event_indices.get(&parent)).copied();
        let draft = Draft::new(event).of_run(target.run).by(Actor::Importer);
        drafts.push(draft.because_of_index(cause));
    }
    let receipts = target.ledger.record_all(drafts)?;
    let indices = receipts.iter().map(|receipt| receipt.index());
    event_indices.extend(batch.iter().map(|(span_index, _)| *span_index).zip(indices));
    Ok(())
}

/// Returns the events of a batch of spans, in order.
///
/// Several threads write the attributes, because each write waits for the disk.
fn events(
    target: &ImportTarget<'_>,
    batch: &[(usize, &Span<'_>)],
) -> anyhow::Result<Vec<TraceSpan>> {
    let share =
        batch.len().div_ceil(if target.keep_bodies { BODY_WRITER_THREADS } else { 1 }).max(1);
    let made: Vec<anyhow::Result<Vec<TraceSpan>>> = std::thread::scope(|scope| {
        let make = |part: &[(usize, &Span<'_>)]| -> anyhow::Result<Vec<TraceSpan>> {
            part.iter().map(|(_, span)| event(target, span)).collect()
        };
        let workers: Vec<_> =
            batch.chunks(share).map(|part| scope.spawn(move || make(part))).collect();
        let failed = |_| Err(anyhow!("the thread that writes the attributes panicked"));
        workers.into_iter().map(|worker| worker.join().unwrap_or_else(failed)).collect()
    });
    let parts: anyhow::Result<Vec<Vec<TraceSpan>>> = made.into_iter().collect();
    Ok(parts?.concat())
}

/// Returns the event of one span, and keeps its attributes if requested.
fn event(target: &ImportTarget<'_>, span: &Span<'_>) -> anyhow::Result<TraceSpan> {
    let content = span.content();
    let attributes = match target.keep_bodies {
        // The scope is the trace, so that equal attributes of two traces get different hashes.
        true => {
            let scope = Digest::of(&[b"trace", span.trace.as_bytes()]);
            target.ledger.keep(scope, &mut content.as_bytes())?
        }
        false => Body::hash_of(content.as_bytes())?,
    };
    Ok(TraceSpan {
        trace: span.trace.clone(),
        span: span.span.clone(),
        parent: span.parent.clone(),
        name: span.name.clone(),
        start: span.start,
        end: span.end,
        status: span.status.clone(),
        attributes,
    })
}
