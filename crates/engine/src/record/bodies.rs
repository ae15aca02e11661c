//! Bodies of events: whether the content of a body is available, and why not.

use std::io::{self, Write};

use anyhow::anyhow;
use belljar_ledger::{BodyReference, Digest, Event, Query, Reader};
use belljar_model::display;

use super::reading::{each, read};
use crate::error::{EngineError, ErrorKind, WithKind as _};

/// Whether the content of a recorded body is available, and if not, why.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum BodyState {
    Kept,
    HashOnly,
    Redacted {
        by: u64,
    },
    Pruned {
        by: u64,
    },
    /// The content should be available, but cannot be read.
    Lost {
        why: String,
    },
}

impl BodyState {
    /// Returns the name of the state for programs.
    pub const fn name(&self) -> &'static str {
        match self {
            Self::Kept => "kept",
            Self::HashOnly => "hash only",
            Self::Redacted { .. } => "redacted",
            Self::Pruned { .. } => "pruned",
            Self::Lost { .. } => "lost",
        }
    }

    /// Describes the state in a few words.
    pub fn words(&self) -> String {
        match self {
            Self::Kept => "kept".to_owned(),
            Self::HashOnly => "only the hash was recorded".to_owned(),
            Self::Redacted { by } => format!("redacted by event {by}"),
            Self::Pruned { by } => format!("pruned because of its age by event {by}"),
            Self::Lost { why } => {
                format!(
                    "not available: {}; see `belljar ledger verify --deep`",
                    display::safe_line(why)
                )
            }
        }
    }
}

/// Returns the state of the content of a body, according to the ledger. `was_kept` tells whether an event
/// says that the content is stored.
pub fn state(reader: &Reader, hash: Digest, was_kept: bool) -> Result<BodyState, EngineError> {
    copy(reader, hash, was_kept, &mut io::sink())
}

/// As [`state`], and writes the content if it is available. Nothing is written of a damaged content.
pub fn copy(
    reader: &Reader,
    hash: Digest,
    was_kept: bool,
    out: &mut dyn Write,
) -> Result<BodyState, EngineError> {
    if let Some(by) = redacted_by(reader, hash)? {
        return Ok(BodyState::Redacted { by });
    }
    if !was_kept {
        return Ok(BodyState::HashOnly);
    }
    match reader.body(hash, out) {
        Ok(_) => Ok(BodyState::Kept),
        Err(error) => match pruned_by(reader, hash)? {
            Some(by) => Ok(BodyState::Pruned { by }),
            None => Ok(BodyState::Lost { why: format!("{:#}", anyhow!(error)) }),
        },
    }
}

/// As [`state`], but looks only whether the content exists. A damaged content counts as kept.
pub fn unchecked_state(
    reader: &Reader,
    hash: Digest,
    was_kept: bool,
) -> Result<BodyState, EngineError> {
    if let Some(by) = redacted_by(reader, hash)? {
        return Ok(BodyState::Redacted { by });
    }
    match (was_kept, reader.has_body(hash)) {
        (false, _) => Ok(BodyState::HashOnly),
        (true, true) => Ok(BodyState::Kept),
        (true, false) => Ok(match pruned_by(reader, hash)? {
            Some(by) => BodyState::Pruned { by },
            None => BodyState::Lost { why: "the content is missing".to_owned() },
        }),
    }
}

/// The bodies that a prefix of a hash matches.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Found {
    None,
    One(BodyReference),
    Several,
}

/// Finds the body whose hash starts with this prefix of hexadecimal digits.
pub fn find(reader: &Reader, prefix: &str) -> Result<Found, EngineError> {
    let found = reader.find_bodies(prefix).kind(ErrorKind::Broken)?;
    let Some(first) = found.first().copied() else { return Ok(Found::None) };
    if found.iter().any(|reference| reference.hash != first.hash) {
        return Ok(Found::Several);
    }
    // The content was kept if at least one event says so.
    let is_kept = found.iter().any(|reference| reference.is_kept);
    Ok(Found::One(BodyReference { is_kept, ..first }))
}

/// Returns the index of the event that redacted a body, if any.
fn redacted_by(reader: &Reader, hash: Digest) -> Result<Option<u64>, EngineError> {
    let mut found = None;
    each(reader, query_for_kind("ledger.redacted"), &mut |row| {
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

/// Returns the index of the event that pruned a body, if any.
fn pruned_by(reader: &Reader, hash: Digest) -> Result<Option<u64>, EngineError> {
    let references = reader.find_bodies(&hash.to_string()).kind(ErrorKind::Broken)?;
    let last = references.iter().map(|reference| reference.index).max().unwrap_or(0);
    let mut found = None;
    each(reader, query_for_kind("ledger.pruned"), &mut |row| {
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

/// Returns a query for all events of one kind.
fn query_for_kind(kind: &str) -> Query {
    Query { kind: Some(kind.to_owned()), ..Query::default() }
}
