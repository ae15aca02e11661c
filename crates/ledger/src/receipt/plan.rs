//! The receipt of a run of a plan: the events of the plan and of all its boxes.
//!
//! The events of one run are a hash chain, so one inclusion proof for the last event of each chain proves
//! all its events. The events of the plan name the box runs. The checkpoint names the number of chains and
//! events and the hash of all [`Extent`]s, so a missing, cut, swapped or additional chain is detected. The
//! chain of a box that never started is empty.
//!
//! **Invariant:** a [`VerifiedPlan`] exists only for a receipt that passed all checks.

mod make;
mod verified;

#[cfg(test)]
mod tests;

use std::collections::{HashMap, HashSet};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use belljar_model::RunId;
use serde::{Deserialize, Serialize};

use super::extent::Extent;
use super::{
    Disclosed, MAX_RECEIPT, RawBody, RawRotation, ReceiptError, Rotation, array, check_disclosed,
    check_rotations, check_trust,
};
use crate::checkpoint::{self, Checkpoint};
use crate::digest::Digest;
use crate::entry::Entry;
use crate::field::Value;
use crate::merkle::verify_inclusion;
use crate::note::VerifyingKey;

pub use make::Disclosure;
pub use verified::{ProvedTask, VerifiedPlan};

const FORMAT_3: &str = "belljar receipt 3";
/// The first bytes of every receipt of a plan.
const START: &str = "{\"format\":\"belljar receipt 3\",";
/// The field of an event of a plan that names a box run.
const BOX_RUN: &str = "box_run";
/// The field of an event of a plan that names the box runs of checks.
const BOX_RUNS: &str = "box_runs";

/// The parsed parts of the receipt of a plan, which are not trusted before [`verify_plan_receipt`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PlanReceipt {
    run: RunId,
    key: VerifyingKey,
    rotations: Vec<Rotation>,
    checkpoint: String,
    /// The chain of the plan, and then those of its boxes in the order of their first mention.
    chains: Vec<Chain>,
    bodies: Vec<Disclosed>,
}

/// The events of one run.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Chain {
    run: RunId,
    /// The index of the last event; 0 without events.
    index: u64,
    /// The inclusion proof of the last event.
    proof: Vec<Digest>,
    events: Vec<Vec<u8>>,
}

/// The JSON object of a receipt file, with its keys in order.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Raw {
    format: String,
    run: String,
    key: String,
    rotations: Vec<RawRotation>,
    checkpoint: String,
    chains: Vec<RawChain>,
    bodies: Vec<RawBody>,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct RawChain {
    run: String,
    index: u64,
    proof: Vec<String>,
    events: Vec<String>,
}

/// Returns whether a text is the receipt of a plan, and not of a single run. The text is not verified.
pub fn is_plan_receipt(text: &str) -> bool {
    text.starts_with(START)
}

/// Verifies the receipt of a plan and that its signing key is trusted or endorsed from a trusted key.
pub fn verify_plan_receipt(
    text: &str,
    trusted: &[VerifyingKey],
) -> Result<VerifiedPlan, ReceiptError> {
    let receipt = PlanReceipt::parse(text)?;
    let key = receipt.key.clone();
    let (checkpoint, _) = checkpoint::open(&receipt.checkpoint, std::slice::from_ref(&key))
        .map_err(ReceiptError::Checkpoint)?;
    check_rotations(&receipt.rotations, &key)?;
    let chains: Vec<(RunId, Vec<Entry>)> = receipt
        .chains
        .iter()
        .map(|chain| Ok((chain.run, chain.check(&checkpoint)?)))
        .collect::<Result<_, ReceiptError>>()?;
    receipt.check_names(&chains)?;
    if checkpoint.extensions() != [extent_line(receipt.run, &receipt.chains)] {
        return Err(ReceiptError::Extent);
    }
    check_disclosed(&receipt.bodies, &commitments(&chains))?;
    check_trust(&receipt.rotations, &key, trusted)?;
    let bodies = receipt.bodies.into_iter().map(|body| (body.hash, body.content)).collect();
    Ok(VerifiedPlan::new(chains, checkpoint, key, bodies))
}

impl PlanReceipt {
    /// Parses the parts of a receipt and checks only its spelling.
    pub fn parse(text: &str) -> Result<Self, ReceiptError> {
        if text.len() > MAX_RECEIPT {
            return Err(ReceiptError::TooLong);
        }
        let raw: Raw = serde_json::from_str(text).map_err(ReceiptError::Json)?;
        if raw.format != FORMAT_3 {
            return Err(ReceiptError::Format);
        }
        let receipt = Self::from_raw(raw)?;
        if receipt.to_text() != text {
            return Err(ReceiptError::Spelling);
        }
        Ok(receipt)
    }

    /// Returns the text of the receipt file: one line of JSON.
    pub fn to_text(&self) -> String {
        let raw = Raw {
            format: FORMAT_3.to_owned(),
            run: self.run.to_string(),
            key: self.key.to_string(),
            rotations: self.rotations.iter().map(Rotation::to_raw).collect(),
            checkpoint: self.checkpoint.clone(),
            chains: self.chains.iter().map(Chain::to_raw).collect(),
            bodies: self.bodies.iter().map(Disclosed::to_raw).collect(),
        };
        let mut text =
            serde_json::to_string(&raw).expect("strings and numbers always serialize to JSON");
        text.push('\n');
        text
    }

    fn from_raw(raw: Raw) -> Result<Self, ReceiptError> {
        let value = |what| move || ReceiptError::Value { what };
        Ok(Self {
            run: raw.run.parse().map_err(|_| value("run")())?,
            key: raw.key.parse().map_err(|_| value("key")())?,
            rotations: raw
                .rotations
                .iter()
                .map(|raw| Rotation::from_raw(raw).ok_or_else(value("rotations")))
                .collect::<Result<_, _>>()?,
            checkpoint: raw.checkpoint,
            chains: raw
                .chains
                .iter()
                .map(|raw| Chain::from_raw(raw).ok_or_else(value("chains")))
                .collect::<Result<_, _>>()?,
            bodies: raw
                .bodies
                .iter()
                .map(|raw| Disclosed::from_raw(raw).ok_or_else(value("bodies")))
                .collect::<Result<_, _>>()?,
        })
    }

    /// Checks that the chains are those of the plan and of exactly the boxes that its events name.
    fn check_names(&self, chains: &[(RunId, Vec<Entry>)]) -> Result<(), ReceiptError> {
        let run = self.run;
        let Some(((_, plan), boxes)) = chains.split_first().filter(|((id, _), _)| *id == run)
        else {
            return Err(ReceiptError::ChainMissing { run });
        };
        let first = plan.first().ok_or(ReceiptError::NoEvents)?;
        if first.fields.get("purpose") != Some(&Value::Text("plan".to_owned())) {
            return Err(ReceiptError::NotPlan { run });
        }
        let named = box_runs(run, plan)?;
        let has = |id: &RunId| boxes.iter().any(|(run, _)| run == id);
        if let Some(run) = named.iter().copied().find(|id| !has(id)) {
            return Err(ReceiptError::ChainMissing { run });
        }
        let mut expected = named.iter();
        match boxes.iter().find(|(id, _)| expected.next() != Some(id)) {
            Some((run, _)) => Err(ReceiptError::ChainUnnamed { run: *run }),
            None => Ok(()),
        }
    }
}

impl Chain {
    /// Checks that the events are the beginning of a run, and that the last one is in the tree.
    fn check(&self, checkpoint: &Checkpoint) -> Result<Vec<Entry>, ReceiptError> {
        let run = self.run;
        let mut checked: Vec<Entry> = Vec::with_capacity(self.events.len());
        let mut previous = None;
        for (sequence, bytes) in (0..).zip(&self.events) {
            let entry = Entry::decode(bytes).map_err(|source| ReceiptError::Unreadable {
                run,
                sequence,
                source,
            })?;
            let follows = entry.run == Some(run)
                && entry.sequence == sequence
                && entry.previous == previous
                && (sequence > 0 || entry.kind == "run.created")
                && entry.cause.is_none_or(|cause| cause < self.index);
            if !follows {
                return Err(ReceiptError::Link { run, sequence });
            }
            previous = Some(Digest::leaf(bytes));
            checked.push(entry);
        }
        let Some(last) = previous else {
            let is_empty = self.index == 0 && self.proof.is_empty();
            return if is_empty {
                Ok(checked)
            } else {
                Err(ReceiptError::Value { what: "chains" })
            };
        };
        verify_inclusion(&last, self.index, checkpoint.size(), &self.proof, &checkpoint.root())
            .map_err(|source| ReceiptError::ChainProof { run, source })?;
        Ok(checked)
    }

    fn to_raw(&self) -> RawChain {
        RawChain {
            run: self.run.to_string(),
            index: self.index,
            proof: self.proof.iter().map(|hash| STANDARD.encode(hash.as_bytes())).collect(),
            events: self.events.iter().map(|event| STANDARD.encode(event)).collect(),
        }
    }

    fn from_raw(raw: &RawChain) -> Option<Self> {
        let proof: Option<_> =
            raw.proof.iter().map(|hash| Some(Digest::new(array(hash)?))).collect();
        let events: Option<_> =
            raw.events.iter().map(|event| STANDARD.decode(event).ok()).collect();
        Some(Self { run: raw.run.parse().ok()?, index: raw.index, proof: proof?, events: events? })
    }
}

/// Returns the box runs that the events of a plan name, in the order of their first mention.
fn box_runs(plan_run: RunId, plan: &[Entry]) -> Result<Vec<RunId>, ReceiptError> {
    let mut seen = HashSet::from([plan_run]);
    let mut runs = Vec::new();
    let mut add = |what: &'static str, text: &[u8]| -> Result<(), ReceiptError> {
        let text = str::from_utf8(text).ok();
        let run =
            text.and_then(|text| text.parse::<RunId>().ok()).ok_or(ReceiptError::Value { what })?;
        if seen.insert(run) {
            runs.push(run);
        }
        Ok(())
    };
    for entry in plan {
        match entry.fields.get(BOX_RUN) {
            None => {}
            Some(Value::Text(text)) => add(BOX_RUN, text.as_bytes())?,
            Some(_) => return Err(ReceiptError::Value { what: BOX_RUN }),
        }
        match entry.fields.get(BOX_RUNS) {
            None => {}
            Some(Value::List(all)) => all.iter().try_for_each(|text| add(BOX_RUNS, text))?,
            Some(_) => return Err(ReceiptError::Value { what: BOX_RUNS }),
        }
    }
    Ok(runs)
}

/// Returns the extension line of the checkpoint.
fn extent_line(run: RunId, chains: &[Chain]) -> String {
    let extents: Vec<Extent> = chains
        .iter()
        .map(|chain| Extent::of(chain.run, chain.events.iter().map(Vec::as_slice)))
        .collect();
    let lines: String = extents.iter().map(|extent| extent.to_line() + "\n").collect();
    let hash = Digest::of(&[b"belljar chains 1\0", lines.as_bytes()]);
    let events: u64 = extents.iter().map(Extent::events).sum();
    let state = extents.first().map_or("open", Extent::state);
    let hash = STANDARD.encode(hash.as_bytes());
    format!("belljar plan {run} {} {events} {hash} {state}", chains.len())
}

/// Returns the commitments that events name, with the sizes of the contents: bodies, and the outputs of
/// tasks, which are stored outside of the ledger.
fn commitments(chains: &[(RunId, Vec<Entry>)]) -> HashMap<Digest, u64> {
    let entries = chains.iter().flat_map(|(_, entries)| entries);
    let mut named = HashMap::new();
    for entry in entries {
        named.extend(entry.fields.bodies().map(|body| (body.hash(), body.size())));
        named.extend(output_of(entry));
    }
    named
}

/// Returns the commitment to the output of a task that an event names, and the size of the output.
fn output_of(entry: &Entry) -> Option<(Digest, u64)> {
    let (Value::Hash(hash), Value::Number(size)) =
        (entry.fields.get("output")?, entry.fields.get("output_bytes")?)
    else {
        return None;
    };
    Some((*hash, *size))
}
