//! `belljar ledger receipt` and `verify-receipt`: write and check a file that proves the events of a run.

use std::fmt::Write as _;

use anyhow::anyhow;
use belljar_ledger::{
    Body, Disclose, Event, MAX_RECEIPT, ReceiptError, RunLayers, Verified, VerifiedPlan,
    VerifyingKey, is_plan_receipt, verify_plan_receipt, verify_receipt,
};
use belljar_model::display;
use serde_json::{Value as Json, json};

use super::{LedgerHome, plan_receipt, read_input, write_output};
use crate::cli::ledger::{ReceiptArgs, VerifyReceiptArgs};
use crate::exit::{self, Outcome};
use crate::print;
use belljar_engine::error::{EngineError, ErrorKind, WithKind as _};
use belljar_engine::moment;
use belljar_engine::record::{json, sentences};
use belljar_engine::runs::receipt;

/// The maximum number of listed events per kind in the text output; `--json` lists all.
pub(super) const MAX_LISTED: usize = 50;

/// A receipt that passed all checks.
enum Checked {
    Run(Box<Verified>),
    Plan(Box<VerifiedPlan>),
}

/// Runs `belljar ledger receipt`.
pub(crate) fn make(args: &ReceiptArgs) -> Outcome {
    let home = LedgerHome::open()?;
    let reader = home.reader()?;
    let run = home.run(&reader, "RUN", &args.run)?;
    let disclose = if args.with_bodies { Disclose::Bodies } else { Disclose::Nothing };
    let text = receipt::of_run(home.state(), &reader, run, disclose)?;
    write_output(args.output.as_deref(), &text)?;
    if args.output.is_some() {
        print::note(&format!(
            "wrote the receipt of run {run}, {}; to verify it, others need your public key from `belljar ledger key export`",
            sentences::size(text.len() as u64)
        ));
    }
    Ok(0)
}

/// Runs `belljar ledger verify-receipt`.
pub(crate) fn verify(args: &VerifyReceiptArgs) -> Outcome {
    let bytes = read_input("FILE", &args.file, MAX_RECEIPT as u64)?;
    let keys = super::trusted_keys(&args.trust)?;
    let verified = match String::from_utf8(bytes) {
        Ok(text) => check(&text, &keys, args.accept_format_1),
        Err(_) => Err(anyhow!("the file is not a receipt, because it is not UTF-8 text")),
    };
    let verified = verified.map_err(|error| {
        let untrusted = matches!(error.downcast_ref(), Some(ReceiptError::UntrustedKey { .. }));
        let error = EngineError::new(ErrorKind::Broken, error);
        match untrusted && args.trust.key.is_none() {
            true => error.advise("pass the key that you trust with --key"),
            false => error,
        }
    });
    match verified {
        Ok(verified) if args.trust.json.json => {
            let value = match &verified {
                Checked::Run(verified) => as_json(verified),
                Checked::Plan(verified) => plan_receipt::as_json(verified),
            };
            print::json(&value).kind(ErrorKind::Broken)?;
            Ok(0)
        }
        Ok(verified) => {
            let text = match &verified {
                Checked::Run(verified) => as_text(verified),
                Checked::Plan(verified) => plan_receipt::as_text(verified),
            };
            print::out(&text).kind(ErrorKind::Broken)?;
            Ok(0)
        }
        Err(error) if args.trust.json.json => {
            let why = format!("{error:#}");
            print::json(&json!({ "holds": false, "text": why })).kind(ErrorKind::Broken)?;
            Ok(exit::FAILED)
        }
        Err(error) => Err(error.context("the receipt is invalid")),
    }
}

/// Verifies a receipt. One that does not prove that it has all events is refused, unless the user accepts
/// it.
fn check(
    text: &str,
    keys: &[VerifyingKey],
    accept_format_1: bool,
) -> Result<Checked, anyhow::Error> {
    if is_plan_receipt(text) {
        return Ok(Checked::Plan(Box::new(verify_plan_receipt(text, keys)?)));
    }
    let verified = verify_receipt(text, keys)?;
    if verified.is_complete() || accept_format_1 {
        return Ok(Checked::Run(Box::new(verified)));
    }
    Err(anyhow!(
        "its format 1 does not show whether events were cut off at the end; make it again with \
         `belljar ledger receipt`, or accept it with --accept-format-1"
    ))
}

/// Returns the content of a verified receipt as text.
fn as_text(verified: &Verified) -> String {
    let mut text = String::new();
    let mut add = |name: &str, what: &str| {
        writeln!(text, "{name:<10} {what}").ok(); // writing to a String cannot fail
    };
    let name = verified.created().and_then(|created| created.name);
    let name = name.map_or_else(String::new, |name| format!(", {}", display::safe(name)));
    add("run", &format!("{}{name}", verified.run()));
    if let Some(created) = verified.created() {
        let began = verified.events().first().map_or(0, |(_, entry)| entry.moment.time);
        add("began", &moment::readable(began));
        add("ran", &command(verified, &created.command));
        let workspace = created.workspace.map_or("none".to_owned(), display::safe);
        add("workspace", &format!("{workspace}, {}", display::safe(created.mode)));
        add("network", &display::safe(created.net));
        add("template", &display::safe(created.template));
        add("policy", &created.policy.to_string());
    }
    for layers in layers(verified) {
        add("layers", &display::safe_line(layers.in_force.join(", ")));
        if !layers.missing.is_empty() {
            add("missing", &display::safe_line(layers.missing.join(", ")));
        }
    }
    for (kind, title) in [
        ("run.weakened", "weakened"),
        ("policy.loaded", "rules"),
        ("dns.decided", "name"),
        ("request.decided", "request"),
        ("network.changed", "network"),
        ("approval.given", "approval"),
        ("approval.refused", "refusal"),
        ("alarm.raised", "ALARM"),
        ("run.limit", "limit"),
    ] {
        let all: Vec<String> = sentences_of_kind(verified, kind);
        for text_of_event in all.iter().take(MAX_LISTED) {
            add(title, text_of_event);
        }
        if all.len() > MAX_LISTED {
            add(title, &format!("and {} more", all.len() - MAX_LISTED));
        }
    }
    let secrets: Vec<String> = verified.secrets().into_iter().map(display::safe).collect();
    add("secrets", &if secrets.is_empty() { "none".to_owned() } else { secrets.join(", ") });
    for text_of_event in sentences_of_kind(verified, "workspace.changed") {
        add("changes", &text_of_event);
    }
    for kind in ["workspace.applied", "workspace.discarded"] {
        for text_of_event in sentences_of_kind(verified, kind) {
            add("then", &text_of_event);
        }
    }
    for (name, body) in verified.outputs() {
        let disclosed = if verified.content(&body).is_some() { ", disclosed" } else { "" };
        let size = sentences::size(body.size());
        add(name, &format!("{size} ({}{disclosed})", sentences::brief(&body.hash())));
    }
    let ends =
        [sentences_of_kind(verified, "run.ended"), sentences_of_kind(verified, "run.failed")]
            .concat();
    match ends.first() {
        Some(end) => add("ended", end),
        None => add("ended", "not yet when this receipt was created"),
    }
    let checkpoint = verified.checkpoint();
    let (events, size) = (verified.events().len(), checkpoint.size());
    add(
        "proof",
        &format!(
            "{events} events, all in the ledger of {size} events, root hash {}",
            checkpoint.root()
        ),
    );
    add("key", &display::safe_line(verified.key().to_string()));
    add(
        "valid",
        match verified.is_complete() {
            true => "no event of the run was changed, removed or added",
            false => {
                "no event of the run was changed or added; the last events may have been removed"
            }
        },
    );
    text
}

/// Returns the command of the run, or only its program if the arguments are not disclosed.
fn command(verified: &Verified, body: &Body) -> String {
    let Some(content) = verified.content(body) else {
        let program = sentences_of_kind(verified, "run.exec");
        let program = program.first().map_or("a command", String::as_str);
        return format!("{program} (arguments not disclosed, {})", sentences::brief(&body.hash()));
    };
    let words: Vec<String> = content.split(|byte| *byte == 0).map(display::safe).collect();
    words.join(" ")
}

/// Returns the recorded isolation layers of the run.
fn layers(verified: &Verified) -> Vec<RunLayers> {
    let read = |entry: &belljar_ledger::Entry| match Event::read(&entry.kind, &entry.fields) {
        Ok(Event::RunLayers(layers)) => Some(layers),
        _ => None,
    };
    verified.events().iter().filter_map(|(_, entry)| read(entry)).collect()
}

/// Returns the texts of all events of one kind.
fn sentences_of_kind(verified: &Verified, kind: &str) -> Vec<String> {
    let events = verified.events().iter().filter(|(_, entry)| entry.kind == kind);
    events.map(|(_, entry)| sentences::words(entry)).collect()
}

/// Returns the content of a verified receipt as JSON.
fn as_json(verified: &Verified) -> Json {
    let checkpoint = verified.checkpoint();
    let events: Vec<Json> = verified
        .events()
        .iter()
        .filter_map(|(index, entry)| {
            let hash = belljar_ledger::Digest::leaf(&entry.encode().ok()?);
            Some(json::event(*index, &hash, entry))
        })
        .collect();
    json!({
        "holds": true,
        "complete": verified.is_complete(),
        "run": verified.run().to_string(),
        "ended": verified.ended(),
        "policy": verified.policy(),
        "secrets": verified.secrets(),
        "checkpoint": { "origin": checkpoint.origin(), "size": checkpoint.size(), "root": checkpoint.root() },
        "key": verified.key().to_string(),
        "events": events,
    })
}
