//! `belljar ledger show`: one event whole, with what led to it and what came of it.

use std::fmt::Write as _;
use std::io;

use anyhow::anyhow;
use belljar_ledger::{Body, Digest, Entry, Event, Query, Reader, Row, Value};
use belljar_model::display;
use serde_json::json;

use super::{Home, each, log, read};
use crate::cli::ledger::ShowArgs;
use crate::exit::Outcome;
use crate::print;
use belljar_engine::error::{EngineError, ErrorKind, WithKind as _};
use belljar_engine::moment;
use belljar_engine::record::{json, sentences};

/// How it stands with the content of a body.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Standing {
    Kept,
    HashOnly,
    Redacted {
        by: u64,
    },
    Pruned {
        by: u64,
    },
    /// It should be there.
    Lost {
        why: String,
    },
}

/// A chain of causes is this long at most: further up it is asked for again.
const CAUSES: usize = 64;
/// So many effects are shown, and the rest is counted.
const EFFECTS: usize = 100;
/// Contents up to this size are shown along with their hash.
const PREVIEW: u64 = 512;

pub(crate) fn run(args: &ShowArgs) -> Outcome {
    let home = Home::open()?;
    let reader = home.reader()?;
    let row = home.event(&reader, &args.id)?;
    let entry = read(&reader, &row)?;
    let causes = causes(&reader, &entry)?;
    let effects = reader.effects_of(row.index).kind(ErrorKind::Broken)?;
    let mut bodies = Vec::new();
    for body in entry.fields.bodies() {
        bodies.push((*body, standing(&reader, body)?));
    }
    if args.json.json {
        let mut told = json::event(row.index, &row.leaf, &entry);
        let indices = |rows: &[Row]| rows.iter().map(|row| row.index).collect::<Vec<_>>();
        if let Some(told) = told.as_object_mut() {
            told.insert("causes".to_owned(), json!(indices(&causes)));
            told.insert("effects".to_owned(), json!(indices(&effects)));
            let bodies: Vec<_> = bodies
                .iter()
                .map(|(body, standing)| json!({ "hash": body.hash(), "size": body.size(), "state": standing.name() }))
                .collect();
            told.insert("bodies".to_owned(), json!(bodies));
        }
        print::json(&told).kind(ErrorKind::Broken)?;
        return Ok(0);
    }
    let mut text = head(&row, &entry);
    for (name, value) in entry.fields.iter() {
        let told = match value {
            Value::Body(body) => told_body(&reader, body, &bodies),
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
        writeln!(text, "  {name:<14} {told}").ok(); // a String takes everything
    }
    tell(&reader, &mut text, "caused by", &causes)?;
    let shown = effects.get(..effects.len().min(EFFECTS)).unwrap_or_default();
    tell(&reader, &mut text, "led to", shown)?;
    if effects.len() > EFFECTS {
        writeln!(text, "  and {} more", effects.len() - EFFECTS).ok();
    }
    print::page(&text).kind(ErrorKind::Broken)?;
    Ok(0)
}

fn head(row: &Row, entry: &Entry) -> String {
    let run = match entry.run {
        Some(run) => format!("{run}, event {} of it", entry.sequence),
        None => format!("none; event {} of the ledger's own", entry.sequence),
    };
    let about = Event::KINDS.iter().find(|(kind, _)| *kind == entry.kind);
    let about =
        about.map_or("of a kind that this version does not know", |(_, about)| about.trim());
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

fn tell(reader: &Reader, text: &mut String, title: &str, rows: &[Row]) -> Result<(), EngineError> {
    if rows.is_empty() {
        return Ok(());
    }
    writeln!(text, "\n{title}").ok();
    for row in rows {
        let entry = read(reader, row)?;
        text.push_str(&log::one_line(row.index, &entry, print::colour()));
    }
    Ok(())
}

/// From the nearest cause upwards.
fn causes(reader: &Reader, entry: &Entry) -> Result<Vec<Row>, EngineError> {
    let mut causes: Vec<Row> = Vec::new();
    let mut next = entry.cause;
    while let Some(index) = next.filter(|_| causes.len() < CAUSES) {
        let row = reader.event(index).kind(ErrorKind::Broken)?;
        let row = row
            .ok_or_else(|| anyhow!("event {index}, a cause, is not there"))
            .kind(ErrorKind::Broken)?;
        next = row.cause.filter(|cause| *cause < index);
        causes.push(row);
    }
    Ok(causes)
}

fn told_body(reader: &Reader, body: &Body, standings: &[(Body, Standing)]) -> String {
    let standing = standings.iter().find(|(known, _)| known.hash() == body.hash());
    let standing = standing.map_or(&Standing::HashOnly, |(_, standing)| standing);
    let mut told =
        format!("{}  {}, {}", body.hash(), sentences::size(body.size()), standing.words());
    if *standing == Standing::Kept && body.size() <= PREVIEW {
        let mut content = Vec::new();
        if reader.body(body.hash(), &mut content).is_ok() {
            write!(told, "\n  {:<14} {}", "", display::safe(&content)).ok();
        }
    }
    told
}

fn standing(reader: &Reader, body: &Body) -> Result<Standing, EngineError> {
    standing_of(reader, body.hash(), body.is_kept())
}

/// What became of a body, by what the ledger says of it.
pub(super) fn standing_of(
    reader: &Reader,
    hash: Digest,
    was_kept: bool,
) -> Result<Standing, EngineError> {
    if let Some(by) = redacted_by(reader, hash)? {
        return Ok(Standing::Redacted { by });
    }
    if !was_kept {
        return Ok(Standing::HashOnly);
    }
    match reader.body(hash, &mut io::sink()) {
        Ok(_) => Ok(Standing::Kept),
        Err(error) => match pruned_by(reader, hash)? {
            Some(by) => Ok(Standing::Pruned { by }),
            None => Ok(Standing::Lost { why: format!("{:#}", anyhow!(error)) }),
        },
    }
}

fn redacted_by(reader: &Reader, hash: Digest) -> Result<Option<u64>, EngineError> {
    let mut found = None;
    each(reader, of_kind("ledger.redacted"), &mut |row| {
        let entry = read(reader, row)?;
        if let Ok(Event::LedgerRedacted(redacted)) = Event::read(&entry.kind, &entry.fields)
            && redacted.bodies.contains(&hash)
        {
            found = Some(row.index);
        }
        Ok(found.is_none())
    })?;
    Ok(found)
}

fn pruned_by(reader: &Reader, hash: Digest) -> Result<Option<u64>, EngineError> {
    let named = reader.find_bodies(&hash.to_string()).kind(ErrorKind::Broken)?;
    let last = named.iter().map(|naming| naming.index).max().unwrap_or(0);
    let mut found = None;
    each(reader, of_kind("ledger.pruned"), &mut |row| {
        let entry = read(reader, row)?;
        if let Ok(Event::LedgerPruned(pruned)) = Event::read(&entry.kind, &entry.fields)
            && pruned.before_index > last
        {
            found = Some(row.index);
        }
        Ok(found.is_none())
    })?;
    Ok(found)
}

fn of_kind(kind: &str) -> Query {
    Query { kind: Some(kind.to_owned()), ..Query::default() }
}

impl Standing {
    pub(super) const fn name(&self) -> &'static str {
        match self {
            Self::Kept => "kept",
            Self::HashOnly => "hash only",
            Self::Redacted { .. } => "redacted",
            Self::Pruned { .. } => "pruned",
            Self::Lost { .. } => "lost",
        }
    }

    pub(super) fn words(&self) -> String {
        match self {
            Self::Kept => "kept".to_owned(),
            Self::HashOnly => "only its hash was kept".to_owned(),
            Self::Redacted { by } => format!("redacted by event {by}"),
            Self::Pruned { by } => format!("dropped for its age by event {by}"),
            Self::Lost { why } => {
                format!(
                    "not to be had: {}; see `belljar ledger verify --deep`",
                    display::safe_line(why)
                )
            }
        }
    }
}
