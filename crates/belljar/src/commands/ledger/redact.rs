//! `belljar ledger redact`, `prune` and `usage`: what is dropped for good, and what there is.

use std::fmt::Write as _;

use belljar_ledger::{BodyReference, Digest, DiskUsage, Reader};
use serde_json::{Value as Json, json};

use super::{Home, get};
use crate::cli::ledger::{PruneArgs, RedactArgs, UsageArgs};
use crate::exit::Outcome;
use crate::print;
use crate::scope::CLOCK;
use belljar_engine::error::{EngineError, ErrorKind, WithKind as _, invalid};
use belljar_engine::moment;
use belljar_engine::record::sentences;

/// So many events are named when it is asked whether a body shall go.
const NAMED: usize = 10;

pub(crate) fn redact(args: &RedactArgs) -> Outcome {
    let home = Home::open()?;
    let reader = home.reader()?;
    let mut hashes: Vec<Digest> = Vec::new();
    let mut summary = String::new();
    for hash in &args.hashes {
        let naming = get::named(&reader, hash)?;
        if !hashes.contains(&naming.hash) {
            hashes.push(naming.hash);
            summary.push_str(&told(&reader, &naming)?);
        }
    }
    if !args.yes {
        print::out(&summary).kind(ErrorKind::Broken)?;
        if !print::confirm("drop this for good?").kind(ErrorKind::Broken)? {
            return Err(invalid("nothing was redacted; `--yes` answers the question"));
        }
    }
    drop(reader);
    let dropped = home.writer()?.redact(&hashes, &args.reason).kind(ErrorKind::Broken)?;
    if args.json.json {
        let told = json!({
            "redacted": hashes, "contents": dropped.contents, "salts": dropped.salts,
        });
        print::json(&told).kind(ErrorKind::Broken)?;
    } else {
        print::note(&format!(
            "redacted {}: {} contents and {} salts are gone; the ledger still verifies",
            hashes.len(),
            dropped.contents,
            dropped.salts
        ));
    }
    Ok(0)
}

/// What would go, and which events name it.
fn told(reader: &Reader, naming: &BodyReference) -> Result<String, EngineError> {
    let all = reader.find_bodies(&naming.hash.to_string()).kind(ErrorKind::Broken)?;
    let kept = if naming.is_kept { "kept" } else { "only its hash was kept" };
    let mut text =
        format!("  drop     {}  {}, {kept}\n", naming.hash, sentences::size(naming.size));
    for named in all.iter().take(NAMED) {
        if let Some(row) = reader.event(named.index).kind(ErrorKind::Broken)? {
            let run = row.run.map_or_else(String::new, |run| format!(" of run {run}"));
            writeln!(text, "           of event {}, {}{run}", row.index, row.kind).ok(); // a String takes everything
        }
    }
    if all.len() > NAMED {
        writeln!(text, "           and {} events more", all.len() - NAMED).ok();
    }
    Ok(text)
}

pub(crate) fn prune(args: &PruneArgs) -> Outcome {
    let home = Home::open()?;
    let before = args.before.nanos(CLOCK.nanos());
    let ledger = home.writer()?;
    let count = ledger.would_prune(before).kind(ErrorKind::Broken)?;
    let used = home.reader()?.disk_usage().kind(ErrorKind::Broken)?;
    let moment = moment::readable(before);
    if args.dry_run || count == 0 {
        if args.json.json {
            let told = json!({ "would_drop": count, "before": moment::rfc3339(before), "usage": as_json(&used) });
            print::json(&told).kind(ErrorKind::Broken)?;
        } else {
            print::note(&format!("{count} bodies are of before {moment}; nothing was dropped"));
            print::out(&as_text(&used)).kind(ErrorKind::Broken)?;
        }
        return Ok(0);
    }
    let question = format!("drop {count} bodies of before {moment} for good?");
    if !args.yes && !print::confirm(&question).kind(ErrorKind::Broken)? {
        return Err(invalid("nothing was dropped; `--yes` answers the question"));
    }
    let dropped = ledger.prune(before).kind(ErrorKind::Broken)?;
    let left = home.reader()?.disk_usage().kind(ErrorKind::Broken)?;
    if args.json.json {
        let told = json!({
            "contents": dropped.contents, "salts": dropped.salts, "before": moment::rfc3339(before),
            "usage_before": as_json(&used), "usage": as_json(&left),
        });
        print::json(&told).kind(ErrorKind::Broken)?;
    } else {
        print::note(&format!(
            "dropped {} bodies; they used {}, and the rest uses {}",
            dropped.contents,
            sentences::size(used.bodies.disk_bytes.saturating_sub(left.bodies.disk_bytes)),
            sentences::size(total(&left))
        ));
    }
    Ok(0)
}

pub(crate) fn show_usage(args: &UsageArgs) -> Outcome {
    let home = Home::open()?;
    let used = home.reader()?.disk_usage().kind(ErrorKind::Broken)?;
    if args.json.json {
        print::json(&as_json(&used)).kind(ErrorKind::Broken)?;
    } else {
        print::out(&as_text(&used)).kind(ErrorKind::Broken)?;
    }
    Ok(0)
}

const fn total(used: &DiskUsage) -> u64 {
    used.log + used.salts + used.bodies.disk_bytes + used.derived
}

fn as_text(used: &DiskUsage) -> String {
    let line = |name: &str, bytes: u64, about: &str| {
        format!("{name:<8} {:>12}  {about}\n", sentences::size(bytes))
    };
    let bodies = used.bodies;
    let about = format!("{} bodies, of {}", bodies.count, sentences::size(bodies.content_bytes));
    [
        line("events", used.log, "the record itself; never dropped"),
        line("salts", used.salts, "of the bodies"),
        line("bodies", bodies.disk_bytes, &about),
        line("derived", used.derived, "index and tiles; made anew when missing"),
        line("in all", total(used), ""),
    ]
    .concat()
}

fn as_json(used: &DiskUsage) -> Json {
    let bodies = used.bodies;
    json!({
        "log": used.log,
        "salts": used.salts,
        "bodies": {
            "count": bodies.count, "disk_bytes": bodies.disk_bytes, "content_bytes": bodies.content_bytes,
        },
        "derived": used.derived,
        "total": total(used),
    })
}
