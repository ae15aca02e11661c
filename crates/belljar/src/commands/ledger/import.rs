//! `belljar ledger import-trace`: what another system recorded, as events of ours.

use std::collections::HashMap;
use std::os::unix::ffi::OsStrExt;

use anyhow::Context;
use belljar_ledger::{Actor, Body, Digest, Draft, Ledger, TraceSpan};
use belljar_model::{RunId, display};
use serde_json::json;

use super::otlp::{self, Span};
use super::{Home, read_input};
use crate::cli::ledger::ImportTraceArgs;
use crate::failure::{Code, FAILED, Outcome, USAGE};
use crate::print;

/// So many events at once: a name may have 4 KiB, and a batch 16 MiB.
const AT_ONCE: usize = 1024;

pub(crate) fn run(args: &ImportTraceArgs) -> Outcome {
    let text = read_input("FILE", &args.file, otlp::MAX_BYTES as u64)?;
    let name = display::safe(args.file.as_os_str().as_bytes());
    let read = otlp::read(&text).and_then(|spans| Ok((otlp::levels(&spans)?, spans)));
    let (levels, spans) = read.with_context(|| format!("FILE {name}")).code(USAGE)?;
    let home = Home::open()?;
    let run = match args.run.as_deref() {
        Some(run) => Some(home.run(&home.reader()?, "--run", run)?),
        None => None,
    };
    let ledger = home.begin()?;
    let into = Into { ledger: &ledger, run, keeps: args.bodies };
    let mut places: HashMap<usize, u64> = HashMap::with_capacity(spans.len());
    for level in &levels {
        for some in level.chunks(AT_ONCE) {
            record(&into, &spans, some, &mut places)
                .with_context(|| format!("{} of {} spans are recorded", places.len(), spans.len()))
                .code(FAILED)?;
        }
    }
    let (first, last) = (places.values().min(), places.values().max());
    if args.json.json {
        let told = json!({ "spans": spans.len(), "first": first, "last": last });
        print::json(&told).code(FAILED)?;
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
    ledger: &'a Ledger,
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
    let mut drafts = Vec::with_capacity(some.len());
    for span in some.iter().filter_map(|place| spans.get(*place)) {
        let cause = span.above.and_then(|above| places.get(&above)).copied();
        let mut draft = Draft::new(event(into, span)?).by(Actor::Importer);
        if let Some(run) = into.run {
            draft = draft.of_run(run);
        }
        drafts.push(draft.because_of_index(cause));
    }
    let receipts = into.ledger.record_all(drafts)?;
    places.extend(some.iter().copied().zip(receipts.iter().map(|receipt| receipt.index())));
    Ok(())
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
