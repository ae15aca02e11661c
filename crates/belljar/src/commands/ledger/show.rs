//! `belljar ledger show`: shows one event with its causes, effects and bodies.

use std::fmt::Write as _;

use anyhow::anyhow;
use belljar_ledger::{Body, Entry, Event, Reader, Row, Value};
use belljar_model::display;
use serde_json::json;

use super::{LedgerHome, log, read};
use crate::cli::ledger::ShowArgs;
use crate::exit::Outcome;
use crate::print;
use belljar_engine::error::{EngineError, ErrorKind, WithKind as _};
use belljar_engine::moment;
use belljar_engine::record::bodies::{self, BodyState};
use belljar_engine::record::{json, sentences};

/// The maximum number of causes that are shown.
const MAX_CAUSES: usize = 64;
/// The maximum number of effects that are shown; the others are counted.
const MAX_EFFECTS: usize = 100;
/// The maximum size of a body whose content is shown with its hash.
const MAX_PREVIEW_BYTES: u64 = 512;

/// Runs `belljar ledger show`.
pub(crate) fn run(args: &ShowArgs) -> Outcome {
    let home = LedgerHome::open()?;
    let reader = home.reader()?;
    let row = home.event(&reader, &args.id)?;
    let entry = read(&reader, &row)?;
    let causes = causes(&reader, &entry)?;
    let effects = reader.effects_of(row.index).kind(ErrorKind::Broken)?;
    let mut bodies = Vec::new();
    for body in entry.fields.bodies() {
        bodies.push((body.clone(), state_of(&reader, body)?));
    }
    if args.json.json {
        let mut report = json::event(row.index, &row.leaf, &entry);
        let indices = |rows: &[Row]| rows.iter().map(|row| row.index).collect::<Vec<_>>();
        if let Some(report) = report.as_object_mut() {
            report.insert("causes".to_owned(), json!(indices(&causes)));
            report.insert("effects".to_owned(), json!(indices(&effects)));
            let bodies: Vec<_> = bodies
                .iter()
                .map(|(body, state)| json!({ "hash": body.hash(), "size": body.size(), "state": state.name() }))
                .collect();
            report.insert("bodies".to_owned(), json!(bodies));
        }
        print::json(&report).kind(ErrorKind::Broken)?;
        return Ok(0);
    }
    let mut text = head(&row, &entry);
    for (name, value) in entry.fields.iter() {
        let text_of_value = match value {
            Value::Body(body) => body_text(&reader, body, &bodies),
            Value::List(items) if (entry.kind.as_str(), name) == ("ledger.redacted", "bodies") => {
                items.iter().map(hex::encode).collect::<Vec<_>>().join(", ")
            }
            Value::Text(_)
            | Value::Bytes(_)
            | Value::Number(_)
            | Value::Truth(_)
            | Value::List(_)
            | Value::Hash(_) => sentences::value(value),
        };
        writeln!(text, "  {name:<14} {text_of_value}").ok(); // writing to a String cannot fail
    }
    append_events(&reader, &mut text, "caused by", &causes)?;
    let shown = effects.get(..effects.len().min(MAX_EFFECTS)).unwrap_or_default();
    append_events(&reader, &mut text, "led to", shown)?;
    if effects.len() > MAX_EFFECTS {
        writeln!(text, "  and {} more", effects.len() - MAX_EFFECTS).ok();
    }
    print::page(&text).kind(ErrorKind::Broken)?;
    Ok(0)
}

/// Returns the first lines: kind, hash, run, actor and time of the event.
fn head(row: &Row, entry: &Entry) -> String {
    let run = match entry.run {
        Some(run) => format!("{run}, event {} of the run", entry.sequence),
        None => format!("none; event {} outside of runs", entry.sequence),
    };
    let about = Event::KINDS.iter().find(|(kind, _)| *kind == entry.kind);
    let about = about
        .map_or("this version of Belljar does not know this kind of event", |(_, about)| {
            about.trim()
        });
    let previous = entry.previous.map_or("none".to_owned(), |hash| hash.to_string());
    let up = moment::duration(entry.moment.uptime / 1000);
    let boot = hex::encode(entry.moment.boot);
    format!(
        "event {} {}\n{about}\n\n  hash           {}\n  previous       {previous}\n  run            {run}\n  actor          {}\n  time           {}\n  host up for    {up} (boot {boot})\n\n",
        row.index,
        entry.kind,
        row.leaf,
        entry.actor,
        moment::rfc3339(entry.moment.time),
    )
}

/// Appends a title and a line for each event.
fn append_events(
    reader: &Reader,
    text: &mut String,
    title: &str,
    rows: &[Row],
) -> Result<(), EngineError> {
    if rows.is_empty() {
        return Ok(());
    }
    writeln!(text, "\n{title}").ok();
    for row in rows {
        let entry = read(reader, row)?;
        text.push_str(&log::event_line(row.index, &entry, print::colour()));
    }
    Ok(())
}

/// Returns the causes of an event, nearest first.
fn causes(reader: &Reader, entry: &Entry) -> Result<Vec<Row>, EngineError> {
    let mut causes: Vec<Row> = Vec::new();
    let mut next = entry.cause;
    while let Some(index) = next.filter(|_| causes.len() < MAX_CAUSES) {
        let row = reader.event(index).kind(ErrorKind::Broken)?;
        let row = row
            .ok_or_else(|| {
                anyhow!("the ledger has no event {index}, which is a cause of this event")
            })
            .kind(ErrorKind::Broken)?;
        next = row.cause.filter(|cause| *cause < index);
        causes.push(row);
    }
    Ok(causes)
}

/// Returns the hash, size and state of a body, and its content if it is small.
fn body_text(reader: &Reader, body: &Body, states: &[(Body, BodyState)]) -> String {
    let state = states.iter().find(|(known, _)| known.hash() == body.hash());
    let state = state.map_or(&BodyState::HashOnly, |(_, state)| state);
    let mut text = format!("{}  {}, {}", body.hash(), sentences::size(body.size()), state.words());
    if *state == BodyState::Kept && body.size() <= MAX_PREVIEW_BYTES {
        let mut content = Vec::new();
        if reader.body(body.hash(), &mut content).is_ok() {
            write!(text, "\n  {:<14} {}", "", display::safe(&content)).ok();
        }
    }
    text
}

/// Returns the state of a body that an event names.
fn state_of(reader: &Reader, body: &Body) -> Result<BodyState, EngineError> {
    bodies::state(reader, body.hash(), body.is_kept())
}
