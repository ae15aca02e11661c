//! The receipt of one run: a file that proves the events of the run without the ledger.
//!
//! [`RunReceipt`] has the events of one run. [`PlanReceipt`] has the events of a run of a plan and of all
//! its boxes.
//!
//! A receipt has exactly one valid spelling, so every changed byte is detected. Its checkpoint names
//! the number of events of the run and the hash of the last one (see [`Extent`]), so removed events
//! are detected at the end as well.
//!
//! **Invariant:** a [`Verified`] exists only for a receipt that passed all checks.

mod extent;
mod make;
mod plan;
mod verified;

#[cfg(test)]
mod tests;

use std::collections::HashMap;
use std::io;
use std::path::PathBuf;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use belljar_model::RunId;
use serde::{Deserialize, Serialize};

use crate::anchor::{AnchorError, endorsed};
use crate::bodies::BodyError;
use crate::body::{Committing, Salt};
use crate::checkpoint::{self, Checkpoint, CheckpointError};
use crate::digest::Digest;
use crate::entry::{Entry, EntryError};
use crate::log::LogError;
use crate::merkle::{ProofError, verify_inclusion};
use crate::note::VerifyingKey;

use extent::Extent;
pub use make::Disclose;
pub use plan::{
    Disclosure, PlanReceipt, ProvedTask, VerifiedPlan, is_plan_receipt, verify_plan_receipt,
};
pub use verified::Verified;

/// The parsed parts of a receipt, which are not trusted before [`verify_receipt`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RunReceipt {
    format: Format,
    run: RunId,
    key: VerifyingKey,
    rotations: Vec<Rotation>,
    checkpoint: String,
    events: Vec<Proved>,
    bodies: Vec<Disclosed>,
}

/// The version of the format of a receipt.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Format {
    /// The checkpoint does not name the events of the run, so events can be missing at the end.
    One,
    /// The checkpoint names the events of the run.
    Two,
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct Rotation {
    old: VerifyingKey,
    new: VerifyingKey,
    endorsement: Vec<u8>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct Proved {
    index: u64,
    entry: Vec<u8>,
    proof: Vec<Digest>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct Disclosed {
    hash: Digest,
    salt: Salt,
    content: Vec<u8>,
}

/// Why a receipt cannot be created or is not trusted.
#[derive(Debug, thiserror::Error)]
pub enum ReceiptError {
    #[error(transparent)]
    Body(BodyError),
    #[error("the receipt is longer than {MAX_RECEIPT} bytes")]
    TooLong,
    #[error("the file is not a receipt")]
    Json(#[source] serde_json::Error),
    #[error("the receipt has a format that this version of Belljar does not support")]
    Format,
    #[error("the receipt is not in canonical form; it was changed")]
    Spelling,
    #[error("the field `{what}` of the receipt is malformed")]
    Value { what: &'static str },
    #[error("a key of the receipt is not endorsed by the key before it")]
    Rotation,
    #[error("the checkpoint of the receipt is invalid")]
    Checkpoint(#[source] CheckpointError),
    #[error("the receipt has no event")]
    NoEvents,
    #[error("event {index} of the receipt cannot be read")]
    Entry { index: u64, source: EntryError },
    #[error("event {index} is not the next event of run {run}")]
    Chain { index: u64, run: RunId },
    #[error(
        "the signed checkpoint does not name exactly the events of the receipt; some were cut off"
    )]
    Extent,
    #[error("event {index} is not in the tree of the checkpoint")]
    Proof { index: u64, source: ProofError },
    #[error("run {run} is not a run of a plan")]
    NotPlan { run: RunId },
    #[error("the receipt lacks the events of box run {run}, which the plan started")]
    ChainMissing { run: RunId },
    #[error("the receipt has events of run {run}, which the plan did not start, or has them twice")]
    ChainUnnamed { run: RunId },
    #[error("event {sequence} of run {run} cannot be read")]
    Unreadable { run: RunId, sequence: u64, source: EntryError },
    #[error("event {sequence} of run {run} was changed, removed, added or moved")]
    Link { run: RunId, sequence: u64 },
    #[error("the events of run {run} are not in the tree of the checkpoint")]
    ChainProof { run: RunId, source: ProofError },
    #[error("body {hash} is not referenced by the run, or is out of order")]
    BodyUnnamed { hash: Digest },
    #[error("the content of body {hash} does not match its commitment")]
    BodyContent { hash: Digest },
    /// All other checks passed.
    #[error("the receipt is valid, but no given key endorses its signing key {key}")]
    UntrustedKey { key: Box<VerifyingKey> },
    #[error("run {run} is not in the ledger")]
    NoRun { run: RunId },
    #[error("no event of run {run} is signed yet")]
    NotSigned { run: RunId },
    #[error("there is no signed checkpoint")]
    NoHead,
    #[error("cannot use the keys of the ledger")]
    Anchor(#[source] AnchorError),
    #[error("cannot read the log")]
    Log(#[source] LogError),
    #[error("read {}", path.display())]
    Read { path: PathBuf, source: io::Error },
}

/// The maximum length of a receipt in bytes.
pub const MAX_RECEIPT: usize = 256 << 20;
const FORMAT_1: &str = "belljar receipt 1";
const FORMAT_2: &str = "belljar receipt 2";

/// The JSON object of a receipt file, with its keys in order.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Raw {
    format: String,
    run: String,
    key: String,
    rotations: Vec<RawRotation>,
    checkpoint: String,
    events: Vec<RawEvent>,
    bodies: Vec<RawBody>,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct RawRotation {
    old: String,
    new: String,
    endorsement: String,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct RawEvent {
    index: u64,
    entry: String,
    proof: Vec<String>,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct RawBody {
    hash: String,
    salt: String,
    content: String,
}

/// Verifies a receipt and that its signing key is trusted or endorsed from a trusted key.
///
/// A receipt of format 1 can lack the last events of its run: see [`Verified::is_complete`].
pub fn verify_receipt(text: &str, trusted: &[VerifyingKey]) -> Result<Verified, ReceiptError> {
    let receipt = RunReceipt::parse(text)?;
    let key = receipt.key.clone();
    let (checkpoint, _) = checkpoint::open(&receipt.checkpoint, std::slice::from_ref(&key))
        .map_err(ReceiptError::Checkpoint)?;
    check_rotations(&receipt.rotations, &key)?;
    let events = receipt.check_events(&checkpoint)?;
    receipt.check_extent(&checkpoint)?;
    receipt.check_bodies(&events)?;
    check_trust(&receipt.rotations, &key, trusted)?;
    let bodies = receipt.bodies.into_iter().map(|body| (body.hash, body.content));
    let is_complete = receipt.format == Format::Two;
    Ok(Verified::new(receipt.run, events, checkpoint, key, bodies.collect(), is_complete))
}

impl RunReceipt {
    /// Parses the parts of a receipt and checks only its spelling.
    pub fn parse(text: &str) -> Result<Self, ReceiptError> {
        if text.len() > MAX_RECEIPT {
            return Err(ReceiptError::TooLong);
        }
        let raw: Raw = serde_json::from_str(text).map_err(ReceiptError::Json)?;
        let format = match &*raw.format {
            FORMAT_1 => Format::One,
            FORMAT_2 => Format::Two,
            _ => return Err(ReceiptError::Format),
        };
        let receipt = Self::from_raw(format, raw)?;
        if receipt.to_text() != text {
            return Err(ReceiptError::Spelling);
        }
        Ok(receipt)
    }

    /// Returns the text of the receipt file: one line of JSON.
    pub fn to_text(&self) -> String {
        let raw = Raw {
            format: self.format.name().to_owned(),
            run: self.run.to_string(),
            key: self.key.to_string(),
            rotations: self.rotations.iter().map(Rotation::to_raw).collect(),
            checkpoint: self.checkpoint.clone(),
            events: self.events.iter().map(Proved::to_raw).collect(),
            bodies: self.bodies.iter().map(Disclosed::to_raw).collect(),
        };
        let mut text =
            serde_json::to_string(&raw).expect("strings and numbers always serialize to JSON");
        text.push('\n');
        text
    }

    fn from_raw(format: Format, raw: Raw) -> Result<Self, ReceiptError> {
        let value = |what| move || ReceiptError::Value { what };
        Ok(Self {
            format,
            run: raw.run.parse().map_err(|_| value("run")())?,
            key: raw.key.parse().map_err(|_| value("key")())?,
            rotations: raw
                .rotations
                .into_iter()
                .map(|raw| Rotation::from_raw(&raw).ok_or_else(value("rotations")))
                .collect::<Result<_, _>>()?,
            checkpoint: raw.checkpoint,
            events: raw
                .events
                .into_iter()
                .map(|raw| Proved::from_raw(&raw).ok_or_else(value("events")))
                .collect::<Result<_, _>>()?,
            bodies: raw
                .bodies
                .into_iter()
                .map(|raw| Disclosed::from_raw(&raw).ok_or_else(value("bodies")))
                .collect::<Result<_, _>>()?,
        })
    }

    fn check_events(&self, checkpoint: &Checkpoint) -> Result<Vec<(u64, Entry)>, ReceiptError> {
        let mut checked: Vec<(u64, Entry)> = Vec::with_capacity(self.events.len());
        let mut previous = None;
        for (sequence, event) in (0..).zip(&self.events) {
            let index = event.index;
            let entry = Entry::decode(&event.entry)
                .map_err(|source| ReceiptError::Entry { index, source })?;
            let follows = entry.run == Some(self.run)
                && entry.sequence == sequence
                && entry.previous == previous
                && (sequence > 0 || entry.kind == "run.created")
                && checked.last().is_none_or(|(before, _)| *before < index)
                && entry.cause.is_none_or(|cause| cause < index);
            if !follows {
                return Err(ReceiptError::Chain { index, run: self.run });
            }
            let leaf = Digest::leaf(&event.entry);
            verify_inclusion(&leaf, index, checkpoint.size(), &event.proof, &checkpoint.root())
                .map_err(|source| ReceiptError::Proof { index, source })?;
            previous = Some(leaf);
            checked.push((index, entry));
        }
        if checked.is_empty() {
            return Err(ReceiptError::NoEvents);
        }
        Ok(checked)
    }

    fn check_extent(&self, checkpoint: &Checkpoint) -> Result<(), ReceiptError> {
        let events = self.events.iter().map(|event| event.entry.as_slice());
        let expected = match self.format {
            Format::One => Vec::new(),
            Format::Two => vec![Extent::of(self.run, events).to_line()],
        };
        if checkpoint.extensions() == expected { Ok(()) } else { Err(ReceiptError::Extent) }
    }

    fn check_bodies(&self, events: &[(u64, Entry)]) -> Result<(), ReceiptError> {
        let bodies = events.iter().flat_map(|(_, entry)| entry.fields.bodies());
        let named = bodies.map(|body| (body.hash(), body.size())).collect();
        check_disclosed(&self.bodies, &named)
    }
}

/// Returns the chain of keys from the first one to the signing key.
fn keys<'a>(
    rotations: &'a [Rotation],
    key: &'a VerifyingKey,
) -> impl Iterator<Item = &'a VerifyingKey> {
    rotations.iter().map(|rotation| &rotation.old).chain([key])
}

/// Checks that each key is endorsed by the key before it.
fn check_rotations(rotations: &[Rotation], key: &VerifyingKey) -> Result<(), ReceiptError> {
    let followers = keys(rotations, key).skip(1);
    for (rotation, next) in rotations.iter().zip(followers) {
        let holds = rotation.new == *next
            && rotation.old.name() == rotation.new.name()
            && rotation.old.verify_bytes(&endorsed(&rotation.new), &rotation.endorsement);
        if !holds {
            return Err(ReceiptError::Rotation);
        }
    }
    Ok(())
}

/// Checks that one of the keys of a receipt is trusted.
fn check_trust(
    rotations: &[Rotation],
    key: &VerifyingKey,
    trusted: &[VerifyingKey],
) -> Result<(), ReceiptError> {
    match keys(rotations, key).any(|key| trusted.contains(key)) {
        true => Ok(()),
        false => Err(ReceiptError::UntrustedKey { key: Box::new(key.clone()) }),
    }
}

/// Checks disclosed bodies against the commitments and sizes that events name.
fn check_disclosed(bodies: &[Disclosed], named: &HashMap<Digest, u64>) -> Result<(), ReceiptError> {
    let mut last = None;
    for Disclosed { hash, salt, content } in bodies {
        let hash = *hash;
        let size = named.get(&hash).filter(|_| last < Some(hash));
        let size = size.ok_or(ReceiptError::BodyUnnamed { hash })?;
        last = Some(hash);
        let mut committing = Committing::new(*salt);
        committing.update(content);
        let made = committing.finish();
        if made.hash() != hash || made.size() != *size {
            return Err(ReceiptError::BodyContent { hash });
        }
    }
    Ok(())
}

impl Format {
    const fn name(self) -> &'static str {
        match self {
            Self::One => FORMAT_1,
            Self::Two => FORMAT_2,
        }
    }
}

impl Rotation {
    fn to_raw(&self) -> RawRotation {
        RawRotation {
            old: self.old.to_string(),
            new: self.new.to_string(),
            endorsement: STANDARD.encode(&self.endorsement),
        }
    }

    fn from_raw(raw: &RawRotation) -> Option<Self> {
        Some(Self {
            old: raw.old.parse().ok()?,
            new: raw.new.parse().ok()?,
            endorsement: STANDARD.decode(&raw.endorsement).ok()?,
        })
    }
}

impl Proved {
    fn to_raw(&self) -> RawEvent {
        RawEvent {
            index: self.index,
            entry: STANDARD.encode(&self.entry),
            proof: self.proof.iter().map(|hash| STANDARD.encode(hash.as_bytes())).collect(),
        }
    }

    fn from_raw(raw: &RawEvent) -> Option<Self> {
        let proof: Option<_> =
            raw.proof.iter().map(|hash| Some(Digest::new(array(hash)?))).collect();
        Some(Self { index: raw.index, entry: STANDARD.decode(&raw.entry).ok()?, proof: proof? })
    }
}

impl Disclosed {
    fn to_raw(&self) -> RawBody {
        RawBody {
            hash: self.hash.to_string(),
            salt: STANDARD.encode(self.salt.as_bytes()),
            content: STANDARD.encode(&self.content),
        }
    }

    fn from_raw(raw: &RawBody) -> Option<Self> {
        Some(Self {
            hash: raw.hash.parse().ok()?,
            salt: Salt::new(array(&raw.salt)?),
            content: STANDARD.decode(&raw.content).ok()?,
        })
    }
}

fn array(text: &str) -> Option<[u8; 32]> {
    STANDARD.decode(text).ok()?.try_into().ok()
}
