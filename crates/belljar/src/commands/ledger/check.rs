//! `belljar ledger verify`: what is wrong, where, since when, and what to do.

use std::fmt::Write as _;
use std::path::Path;

use belljar_ledger::{
    Finding, Location, MAX_NOTE, Severity, VerifyOptions, VerifyReport, VerifyingKey, verify,
};
use belljar_model::display;
use serde_json::{Value as Json, json};

use super::progress::Progress;
use super::{Home, given_keys, read_input};
use crate::cli::ledger::VerifyArgs;
use crate::exit::{self, Outcome};
use crate::print;
use belljar_engine::error::{EngineError, ErrorKind, WithKind as _, invalid};
use belljar_engine::moment;
use belljar_engine::record::sentences;

pub(crate) fn run(args: &VerifyArgs) -> Outcome {
    let home = Home::open()?;
    if !home.exists() {
        return Err(invalid(super::NONE_YET));
    }
    let keys = args.key.as_deref().map(given_keys).transpose()?;
    let checkpoints: Result<Vec<String>, EngineError> =
        args.checkpoints.iter().map(|path| checkpoint(path)).collect();
    let checkpoints = checkpoints?;
    let mut progress = Progress::new("checked");
    let report = verify(
        &home.paths,
        VerifyOptions {
            deep: args.deep,
            key: keys.as_ref().and_then(|keys| keys.first()),
            checkpoints: &checkpoints,
            progress: Some(&mut |done, of| progress.tell(done, of)),
        },
    );
    progress.clear();
    let report = report.kind(ErrorKind::Broken)?;
    if args.json.json {
        print::json(&as_json(&report)).kind(ErrorKind::Broken)?;
    } else {
        print::out(&as_text(&report, args)).kind(ErrorKind::Broken)?;
    }
    Ok(if report.is_sound() { 0 } else { exit::FAILED })
}

/// The text of a checkpoint that was kept elsewhere.
fn checkpoint(path: &Path) -> Result<String, EngineError> {
    let bytes = read_input("--checkpoint", path, MAX_NOTE as u64)?;
    let name = display::safe_line(path.as_os_str().as_encoded_bytes());
    String::from_utf8(bytes)
        .map_err(|_| invalid(format!("--checkpoint {name}: not a checkpoint; it is text")))
}

fn as_text(report: &VerifyReport, args: &VerifyArgs) -> String {
    let mut text = String::new();
    for finding in &report.findings {
        let Finding { severity, code, at, since, text: what } = finding;
        let at = display::safe_line(at.to_string());
        writeln!(text, "{severity:<8} {code} at {at}").ok(); // a String takes everything
        writeln!(text, "         {}", display::safe_line(what)).ok();
        if let Some(since) = since {
            let since = moment::readable(*since);
            writeln!(text, "         the last event that is certainly good is of {since}").ok();
        }
    }
    if report.left_out > 0 {
        writeln!(text, "and {} findings more", report.left_out).ok();
    }
    let verdict = if report.is_sound() { "sound" } else { "DAMAGED" };
    let VerifyReport { events, runs, bytes, .. } = report;
    let size = sentences::size(*bytes);
    writeln!(text, "{verdict}: {events} events of {runs} runs, {size}").ok();
    let root = report.root.map_or("unknown".to_owned(), |root| root.to_string());
    writeln!(text, "root     {root}").ok();
    writeln!(text, "key      {}", told_key(report.key.as_ref())).ok();
    text.push_str(&vouched(report, args));
    if let Some(bodies) = report.bodies {
        writeln!(
            text,
            "bodies   {} kept, {} hash only, {} redacted, {} dropped for their age",
            bodies.kept, bodies.hash_only, bodies.redacted, bodies.pruned
        )
        .ok();
    }
    text
}

fn told_key(key: Option<&VerifyingKey>) -> String {
    key.map_or("none that can be trusted".to_owned(), |key| display::safe_line(key.to_string()))
}

/// Who vouches for which events.
fn vouched(report: &VerifyReport, args: &VerifyArgs) -> String {
    let here = "vouched for by this machine alone";
    match report.anchored {
        Some(anchored) if anchored >= report.events => {
            "anchored all events, by a checkpoint from elsewhere\n".to_owned()
        }
        Some(anchored) if anchored > 0 => format!(
            "anchored events 0 to {}, by a checkpoint from elsewhere; {anchored} to {} are {here}\n",
            anchored - 1,
            report.events.saturating_sub(1)
        ),
        _ if args.checkpoints.is_empty() => {
            format!(
                "anchored no event: all are {here}; `--checkpoint FILE` takes one that was kept elsewhere\n"
            )
        }
        _ => format!("anchored no event: all are {here}\n"),
    }
}

fn as_json(report: &VerifyReport) -> Json {
    let bodies = report.bodies.map(|bodies| {
        json!({
            "kept": bodies.kept, "hash_only": bodies.hash_only,
            "redacted": bodies.redacted, "pruned": bodies.pruned,
        })
    });
    json!({
        "sound": report.is_sound(),
        "events": report.events,
        "runs": report.runs,
        "bytes": report.bytes,
        "signed": report.signed,
        "root": report.root,
        "key": report.key.as_ref().map(ToString::to_string),
        "anchored": report.anchored,
        "bodies": bodies,
        "findings": report.findings.iter().map(finding).collect::<Vec<_>>(),
        "left_out": report.left_out,
    })
}

fn finding(finding: &Finding) -> Json {
    let Finding { severity, code, at, since, text } = finding;
    let severity = match severity {
        Severity::Note => "note",
        Severity::Warning => "warning",
        Severity::Damage => "damage",
    };
    let (event, offset) = match at {
        Location::Event { index, offset, .. } => (Some(index), Some(offset)),
        Location::Byte { offset, .. } => (None, Some(offset)),
        Location::File(_) | Location::Checkpoint(_) | Location::Key => (None, None),
    };
    json!({
        "severity": severity,
        "code": code.name(),
        "at": at.to_string(),
        "event": event,
        "offset": offset,
        "file": at.file().map(|file| file.to_string_lossy()),
        "since": since.map(moment::rfc3339),
        "text": text,
    })
}
