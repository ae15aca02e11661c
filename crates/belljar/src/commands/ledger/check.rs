//! `belljar ledger verify`: checks the ledger and reports damage and its position.

use std::fmt::Write as _;
use std::path::Path;

use belljar_ledger::{Finding, MAX_NOTE, VerifyOptions, VerifyReport, VerifyingKey, verify};
use belljar_model::display;

use super::progress::Progress;
use super::{LedgerHome, given_keys, read_input};
use crate::cli::ledger::VerifyArgs;
use crate::exit::{self, Outcome};
use crate::print;
use belljar_engine::error::{EngineError, ErrorKind, WithKind as _, invalid};
use belljar_engine::moment;
use belljar_engine::record::checking::LedgerReport;
use belljar_engine::record::sentences;

/// Runs `belljar ledger verify`.
pub(crate) fn run(args: &VerifyArgs) -> Outcome {
    let home = LedgerHome::open()?;
    if !home.exists()? {
        return Err(invalid(super::NO_LEDGER));
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
            progress: Some(&mut |done, of| progress.update(done, of)),
        },
    );
    progress.clear();
    let report = report.kind(ErrorKind::Broken)?;
    if args.json.json {
        print::json(&LedgerReport::of(&report)).kind(ErrorKind::Broken)?;
    } else {
        print::out(&as_text(&report, args)).kind(ErrorKind::Broken)?;
    }
    Ok(if report.is_sound() { 0 } else { exit::FAILED })
}

/// Reads a checkpoint file for `--checkpoint`.
fn checkpoint(path: &Path) -> Result<String, EngineError> {
    let bytes = read_input("--checkpoint", path, MAX_NOTE as u64)?;
    let name = display::safe_line(path.as_os_str().as_encoded_bytes());
    String::from_utf8(bytes).map_err(|_| {
        invalid(format!("--checkpoint: {name} is not a checkpoint, because it is not UTF-8 text"))
    })
}

/// Returns the report of the verification as text.
fn as_text(report: &VerifyReport, args: &VerifyArgs) -> String {
    let mut text = String::new();
    for finding in &report.findings {
        let Finding { severity, code, at, since, text: what } = finding;
        let at = display::safe_line(at.to_string());
        writeln!(text, "{severity:<8} {code} at {at}").ok(); // writing to a String cannot fail
        writeln!(text, "         {}", display::safe_line(what)).ok();
        if let Some(since) = since {
            let since = moment::readable(*since);
            writeln!(text, "         the last event that is certainly intact has the time {since}")
                .ok();
        }
    }
    if report.left_out > 0 {
        writeln!(text, "and {} more findings", report.left_out).ok();
    }
    let verdict = if report.is_sound() { "valid" } else { "DAMAGED" };
    let VerifyReport { events, runs, bytes, .. } = report;
    let size = sentences::size(*bytes);
    writeln!(text, "{verdict}: {events} events of {runs} runs, {size}").ok();
    let root = report.root.map_or("unknown".to_owned(), |root| root.to_string());
    writeln!(text, "root     {root}").ok();
    writeln!(text, "key      {}", key_text(report.key.as_ref())).ok();
    text.push_str(&anchor_text(report, args));
    if let Some(bodies) = report.bodies {
        writeln!(
            text,
            "bodies   {} kept, {} hash only, {} redacted, {} pruned because of their age",
            bodies.kept, bodies.hash_only, bodies.redacted, bodies.pruned
        )
        .ok();
    }
    text
}

/// Returns the key that signed the ledger, as text.
fn key_text(key: Option<&VerifyingKey>) -> String {
    key.map_or("no trusted key".to_owned(), |key| display::safe_line(key.to_string()))
}

/// Returns a line that says which events a checkpoint from another machine confirms.
fn anchor_text(report: &VerifyReport, args: &VerifyArgs) -> String {
    let local_only = "confirmed by this machine only";
    match report.anchored {
        Some(anchored) if anchored >= report.events => {
            "anchored all events, by a checkpoint from another machine\n".to_owned()
        }
        Some(anchored) if anchored > 0 => format!(
            "anchored events 0 to {}, by a checkpoint from another machine; events {anchored} to {} are {local_only}\n",
            anchored - 1,
            report.events.saturating_sub(1)
        ),
        _ if args.checkpoints.is_empty() => {
            format!(
                "anchored no event: all events are {local_only}; `--checkpoint FILE` compares with a checkpoint from another machine\n"
            )
        }
        _ => format!("anchored no event: all events are {local_only}\n"),
    }
}
