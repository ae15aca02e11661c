//! `belljar ledger redact`, `prune` and `usage`: delete recorded bodies and show the disk usage.

use std::fmt::Write as _;

use belljar_ledger::{BodyReference, Digest, DiskUsage, Reader};
use serde_json::{Value as Json, json};

use super::{LedgerHome, get};
use crate::cli::ledger::{PruneArgs, RedactArgs, UsageArgs};
use crate::exit::Outcome;
use crate::print;
use crate::scope::CLOCK;
use belljar_engine::error::{EngineError, ErrorKind, WithKind as _, invalid};
use belljar_engine::moment;
use belljar_engine::record::sentences;

/// The maximum number of events that are listed in the question before a body is deleted.
const MAX_NAMED_EVENTS: usize = 10;

/// Runs `belljar ledger redact`.
pub(crate) fn redact(args: &RedactArgs) -> Outcome {
    let home = LedgerHome::open()?;
    let reader = home.reader()?;
    let mut hashes: Vec<Digest> = Vec::new();
    let mut summary = String::new();
    for hash in &args.hashes {
        let reference = get::find_body(&reader, hash)?;
        if !hashes.contains(&reference.hash) {
            hashes.push(reference.hash);
            summary.push_str(&body_summary(&reader, &reference)?);
        }
    }
    if !args.yes {
        print::out(&summary).kind(ErrorKind::Broken)?;
        if !print::confirm("delete these bodies permanently?").kind(ErrorKind::Broken)? {
            return Err(invalid(
                "nothing was redacted, because it was not confirmed; `--yes` skips the question",
            ));
        }
    }
    drop(reader);
    let deleted = home.writer()?.redact(&hashes, &args.reason).kind(ErrorKind::Broken)?;
    if args.json.json {
        let report = json!({
            "redacted": hashes, "contents": deleted.contents, "salts": deleted.salts,
        });
        print::json(&report).kind(ErrorKind::Broken)?;
    } else {
        print::note(&format!(
            "redacted {} bodies: deleted {} contents and {} salts; the ledger can still be verified",
            hashes.len(),
            deleted.contents,
            deleted.salts
        ));
    }
    Ok(0)
}

/// Returns a summary of a body that would be deleted, and the events that name it.
fn body_summary(reader: &Reader, reference: &BodyReference) -> Result<String, EngineError> {
    let all = reader.find_bodies(&reference.hash.to_string()).kind(ErrorKind::Broken)?;
    let kept = if reference.is_kept { "kept" } else { "only the hash was recorded" };
    let mut text =
        format!("  delete   {}  {}, {kept}\n", reference.hash, sentences::size(reference.size));
    for named in all.iter().take(MAX_NAMED_EVENTS) {
        if let Some(row) = reader.event(named.index).kind(ErrorKind::Broken)? {
            let run = row.run.map_or_else(String::new, |run| format!(" of run {run}"));
            writeln!(text, "           of event {}, {}{run}", row.index, row.kind).ok(); // writing to a String cannot fail
        }
    }
    if all.len() > MAX_NAMED_EVENTS {
        writeln!(text, "           and {} more events", all.len() - MAX_NAMED_EVENTS).ok();
    }
    Ok(text)
}

/// Runs `belljar ledger prune`.
pub(crate) fn prune(args: &PruneArgs) -> Outcome {
    let home = LedgerHome::open()?;
    let before = args.before.nanos(CLOCK.nanos());
    let ledger = home.writer()?;
    let count = ledger.would_prune(before).kind(ErrorKind::Broken)?;
    let used = home.reader()?.disk_usage().kind(ErrorKind::Broken)?;
    let moment = moment::readable(before);
    if args.dry_run || count == 0 {
        if args.json.json {
            let report = json!({ "would_drop": count, "before": moment::rfc3339(before), "usage": as_json(&used) });
            print::json(&report).kind(ErrorKind::Broken)?;
        } else {
            print::note(&format!("{count} bodies are older than {moment}; nothing was deleted"));
            print::out(&as_text(&used)).kind(ErrorKind::Broken)?;
        }
        return Ok(0);
    }
    let question = format!("delete {count} bodies from before {moment} permanently?");
    if !args.yes && !print::confirm(&question).kind(ErrorKind::Broken)? {
        return Err(invalid(
            "nothing was deleted, because it was not confirmed; `--yes` skips the question",
        ));
    }
    let deleted = ledger.prune(before).kind(ErrorKind::Broken)?;
    let left = home.reader()?.disk_usage().kind(ErrorKind::Broken)?;
    if args.json.json {
        let report = json!({
            "contents": deleted.contents, "salts": deleted.salts, "before": moment::rfc3339(before),
            "usage_before": as_json(&used), "usage": as_json(&left),
        });
        print::json(&report).kind(ErrorKind::Broken)?;
    } else {
        print::note(&format!(
            "deleted {} bodies and freed {}; the ledger now uses {}",
            deleted.contents,
            sentences::size(used.bodies.disk_bytes.saturating_sub(left.bodies.disk_bytes)),
            sentences::size(total(&left))
        ));
    }
    Ok(0)
}

/// Runs `belljar ledger usage`.
pub(crate) fn show_usage(args: &UsageArgs) -> Outcome {
    let home = LedgerHome::open()?;
    let used = home.reader()?.disk_usage().kind(ErrorKind::Broken)?;
    if args.json.json {
        print::json(&as_json(&used)).kind(ErrorKind::Broken)?;
    } else {
        print::out(&as_text(&used)).kind(ErrorKind::Broken)?;
    }
    Ok(0)
}

/// Returns the total disk usage of the ledger in bytes.
const fn total(used: &DiskUsage) -> u64 {
    used.log + used.salts + used.bodies.disk_bytes + used.derived
}

/// Returns the disk usage as text.
fn as_text(used: &DiskUsage) -> String {
    let line = |name: &str, bytes: u64, about: &str| {
        format!("{name:<8} {:>12}  {about}\n", sentences::size(bytes))
    };
    let bodies = used.bodies;
    let about = format!(
        "{} bodies with a content of {}",
        bodies.count,
        sentences::size(bodies.content_bytes)
    );
    [
        line("events", used.log, "all events; never deleted"),
        line("salts", used.salts, "random values that protect the hashes of bodies"),
        line("bodies", bodies.disk_bytes, &about),
        line("derived", used.derived, "index and tiles; created again if missing"),
        line("total", total(used), ""),
    ]
    .concat()
}

/// Returns the disk usage as JSON.
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
