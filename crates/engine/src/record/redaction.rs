//! Deletes the contents of bodies from the ledger of a tenant.

use anyhow::Context as _;
use belljar_ledger::{Digest, Reader};

use super::bodies::{self, Found};
use super::reading::read;
use crate::error::{EngineError, ErrorKind, WithKind as _};
use crate::scope::Scoped;

/// The number of deleted contents and salts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Redacted {
    pub contents: u64,
    pub salts: u64,
}

/// Returns the bodies of these events, and the bodies with these hashes, without duplicates.
pub fn bodies_of(
    reader: &Reader,
    events: &[u64],
    hashes: &[String],
) -> Result<Vec<Digest>, EngineError> {
    let mut found = Vec::new();
    for &index in events {
        let row = reader.event(index).kind(ErrorKind::Broken)?;
        let row = row.with_context(|| format!("the ledger has no event {index}"));
        let entry = read(reader, &row.kind(ErrorKind::NotFound)?)?;
        let before = found.len();
        found.extend(entry.fields.bodies().map(|body| body.hash()));
        if found.len() == before {
            let text = format!("event {index} has no body; an event itself cannot be changed");
            return Err(EngineError::message(ErrorKind::WrongState, text));
        }
    }
    for hash in hashes {
        match bodies::find(reader, hash)? {
            Found::One(reference) => found.push(reference.hash),
            Found::None | Found::Several => {
                let text = format!("the ledger has no body {hash}");
                return Err(EngineError::message(ErrorKind::NotFound, text));
            }
        }
    }
    found.sort_unstable();
    found.dedup();
    Ok(found)
}

/// Records the redaction of bodies with its reason, and then deletes their contents and salts.
pub fn redact(state: &Scoped, hashes: &[Digest], reason: &str) -> Result<Redacted, EngineError> {
    let ledger = super::open(state).kind(ErrorKind::Unrecorded)?.ledger();
    let deleted = ledger.redact(hashes, reason).kind(ErrorKind::Broken)?;
    Ok(Redacted { contents: deleted.contents, salts: deleted.salts })
}
