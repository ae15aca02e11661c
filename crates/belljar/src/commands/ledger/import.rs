//! `belljar ledger import-trace`: what another system recorded, as events of ours.

use std::collections::HashMap;
use std::os::unix::ffi::OsStrExt;

use anyhow::{Context, anyhow};
use belljar_ledger::{Actor, Body, Digest, Draft, TraceSpan};
use belljar_model::{RunId, display};
use serde_json::json;

use super::progress::Progress;
use super::{Home, read_input};
use crate::cli::ledger::ImportTraceArgs;
use crate::exit::Outcome;
use crate::print;
use belljar_engine::error::{ErrorKind, WithKind as _};
use belljar_engine::record::LedgerHandle;
use belljar_engine::record::otlp::{self, Span};

/// So many events at once: a name may have 4 KiB, and a batch 16 MiB.
const AT_ONCE: usize = 1024;
const KEPT_AT_ONCE: usize = 16;

pub(crate) fn run(args: &ImportTraceArgs) -> Outcome {
    let text = read_input("FILE", &args.file, otlp::MAX_BYTES as u64)?;
    let name = display::safe(args.file.as_os_str().as_bytes());
    let read = otlp::read(&text).and_then(|spans| Ok((otlp::levels(&spans)?, spans)));
    let (levels, spans) = read.with_context(|| format!("FILE {name}")).kind(ErrorKind::Invalid)?;
    let home = Home::open()?;
    let run = match args.run.as_deref() {
        Some(run) => Some(home.run(&home.reader()?, "--run", run)?),
        None => None,
    };
    let ledger = home.begin()?;
    let into = Into { ledger: &ledger, run, keeps: args.bodies };
    let mut progress = Progress::new("recorded");
    let mut places: HashMap<usize, u64> = HashMap::with_capacity(spans.len());
    for level in &levels {
        for some in level.chunks(AT_ONCE) {
            record(&into, &spans, some, &mut places)
                .with_context(|| format!("{} of {} spans are recorded", places.len(), spans.len()))
                .kind(ErrorKind::Broken)?;
            progress.tell(places.len() as u64, spans.len() as u64);
        }
    }
    progress.clear();
    let (first, last) = (places.values().min(), places.values().max());
    if args.json.json {
        let told = json!({ "spans": spans.len(), "first": first, "last": last });
        print::json(&told).kind(ErrorKind::Broken)?;
    } else {
        let span = first.zip(last);
        let span =
            span.map_or_else(String::new, |(first, last)| format!(", events {first} to {last}"));
        print::note(&format!("{} spans recorded{span}", spans.len()));
    }
    Ok(0)
}

/// Where spans go.
struct Into<'a> {
    ledger: &'a LedgerHandle,
    run: Option<RunId>,
    keeps: bool,
}

/// Records spans whose parents are recorded.
fn record(
    into: &Into<'_>,
    spans: &[Span<'_>],
    some: &[usize],
    places: &mut HashMap<usize, u64>,
) -> anyhow::Result<()> {
    let some: Vec<(usize, &Span<'_>)> =
        some.iter().filter_map(|place| Some((*place, spans.get(*place)?))).collect();
    let mut drafts = Vec::with_capacity(some.len());
    for ((_, span), event) in some.iter().zip(events(into, &some)?) {
        let cause = span.above.and_then(|above| places.get(&above)).copied();
        let draft = Draft::new(event).of_run(into.run).by(Actor::Importer);
        drafts.push(draft.because_of_index(cause));
    }
    let receipts = into.ledger.record_all(drafts)?;
    let indices = receipts.iter().map(|receipt| receipt.index());
    places.extend(some.iter().map(|(place, _)| *place).zip(indices));
    Ok(())
}

/// The events of these spans, in order. Contents are kept several at a time: each waits for the disk.
fn events(into: &Into<'_>, some: &[(usize, &Span<'_>)]) -> anyhow::Result<Vec<TraceSpan>> {
    let share = some.len().div_ceil(if into.keeps { KEPT_AT_ONCE } else { 1 }).max(1);
    let made: Vec<anyhow::Result<Vec<TraceSpan>>> = std::thread::scope(|scope| {
        let make = |part: &[(usize, &Span<'_>)]| -> anyhow::Result<Vec<TraceSpan>> {
            part.iter().map(|(_, span)| event(into, span)).collect()
        };
        let workers: Vec<_> =
            some.chunks(share).map(|part| scope.spawn(move || make(part))).collect();
        let failed = |_| Err(anyhow!("keeping the attributes broke off"));
        workers.into_iter().map(|worker| worker.join().unwrap_or_else(failed)).collect()
    });
    let parts: anyhow::Result<Vec<Vec<TraceSpan>>> = made.into_iter().collect();
    Ok(parts?.concat())
}

fn event(into: &Into<'_>, span: &Span<'_>) -> anyhow::Result<TraceSpan> {
    let content = span.content();
    let attributes = match into.keeps {
        // Not shared with anything else: whoever may see one trace need not know of another.
        true => {
            let scope = Digest::of(&[b"trace", span.trace.as_bytes()]);
            into.ledger.keep(scope, &mut content.as_bytes())?
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
