//! Creates receipts of plans from the log. Every receipt is verified before it is returned.

use std::collections::HashMap;

use belljar_model::RunId;

use super::{Chain, PlanReceipt, box_runs, commitments, extent_line, verify_plan_receipt};
use crate::anchor::{public_keys, read_key};
use crate::body::{Committing, Salt};
use crate::checkpoint::{self, Checkpoint};
use crate::digest::Digest;
use crate::entry::{Entry, EntryView};
use crate::frame::HEADER;
use crate::log::Log;
use crate::merkle::inclusion;
use crate::paths::LedgerPaths;
use crate::receipt::make::{
    Gathered, MAX_DISCLOSED, Tree, disclosed, gather, newest_head, path_to,
};
use crate::receipt::{Disclosed, MAX_RECEIPT, ReceiptError};
use crate::salts::{self, Kept};

/// A content that is stored outside of the ledger, such as the output of a task.
#[derive(Debug, Clone)]
pub struct Disclosure {
    /// The commitment that an event names.
    pub hash: Digest,
    /// The salt of the commitment, unless the ledger has it.
    pub salt: Option<Salt>,
    pub content: Vec<u8>,
}

/// The events of a run with their indexes, in order.
type Indexed = Vec<(u64, Vec<u8>)>;

impl PlanReceipt {
    /// Creates the receipt of the signed events of a plan and of its boxes.
    ///
    /// It discloses the stored bodies and the contents in `more` that match a commitment of the events;
    /// nothing if `more` is absent.
    pub fn make(
        paths: &LedgerPaths,
        run: RunId,
        more: Option<Vec<Disclosure>>,
    ) -> Result<Self, ReceiptError> {
        let head = newest_head(paths)?.note;
        let mut keys = public_keys(paths).map_err(ReceiptError::Anchor)?;
        let (signed, _) = checkpoint::open(&head, &keys).map_err(ReceiptError::Checkpoint)?;
        let log = Log::open(&paths.log()).map_err(ReceiptError::Log)?;
        let Gathered { tree, events, rotations } = gather(&log, signed.size(), run)?;
        let signer = read_key(&paths.key()).map_err(ReceiptError::Anchor)?;
        let key = signer.verifying();
        let boxes = box_runs(run, &entries(&events))?;
        let mut of_boxes = events_of(&log, signed.size(), &boxes)?;
        let all = boxes.into_iter().map(|id| (id, of_boxes.remove(&id).unwrap_or_default()));
        let chains: Vec<Chain> = [(run, events)]
            .into_iter()
            .chain(all)
            .map(|(run, events)| Chain::prove(&tree, run, events, signed.size()))
            .collect::<Result<_, _>>()?;
        let checkpoint = Checkpoint::new(key.name(), signed.size(), signed.root())
            .and_then(|checkpoint| checkpoint.with_extensions(vec![extent_line(run, &chains)]))
            .map_err(ReceiptError::Checkpoint)?;
        let mut receipt = Self {
            run,
            rotations: path_to(&key, &rotations),
            checkpoint: checkpoint.sign(&[&signer]),
            key: key.clone(),
            chains,
            bodies: Vec::new(),
        };
        keys.push(key); // an interrupted rotation has not listed it yet
        if let Some(more) = more {
            receipt.bodies = receipt.disclosed(paths, more)?;
        }
        let text = receipt.to_text();
        if text.len() > MAX_RECEIPT {
            return Err(ReceiptError::TooLong);
        }
        verify_plan_receipt(&text, &keys)?;
        Ok(receipt)
    }

    /// Returns the bodies whose content is still stored and the matching contents of `more`, by hash.
    fn disclosed(
        &self,
        paths: &LedgerPaths,
        more: Vec<Disclosure>,
    ) -> Result<Vec<Disclosed>, ReceiptError> {
        let chains: Vec<(RunId, Vec<Entry>)> = self
            .chains
            .iter()
            .map(|chain| (chain.run, decode(chain.events.iter().map(Vec::as_slice))))
            .collect();
        let mut left = MAX_DISCLOSED;
        let all = chains.iter().flat_map(|(_, entries)| entries.iter().cloned());
        let mut bodies = disclosed(paths, all, &mut left)?;
        let named = commitments(&chains);
        let path = paths.salts();
        let salts = salts::all(&path).map_err(|source| ReceiptError::Read { path, source })?;
        for Disclosure { hash, salt, content } in more {
            let kept = || match salts.get(&hash) {
                Some(Kept::Salt(salt)) => Some(*salt),
                _ => None,
            };
            let Some(salt) = salt.or_else(kept) else { continue };
            let mut committing = Committing::new(salt);
            committing.update(&content);
            let made = committing.finish();
            // A content that was changed or redacted later is not part of the receipt.
            if made.hash() == hash && named.get(&hash) == Some(&made.size()) {
                left = left.checked_sub(made.size()).ok_or(ReceiptError::TooLong)?;
                bodies.push(Disclosed { hash, salt, content });
            }
        }
        bodies.sort_by_key(|body| body.hash);
        bodies.dedup_by_key(|body| body.hash);
        Ok(bodies)
    }
}

impl Chain {
    /// Creates the chain of a run with the inclusion proof of its last event.
    fn prove(tree: &Tree, run: RunId, events: Indexed, size: u64) -> Result<Self, ReceiptError> {
        let last = events.last().map(|(index, _)| *index);
        let proof = match last {
            Some(index) => inclusion(tree, index, size).ok().flatten(),
            None => Some(Vec::new()),
        };
        let proof = proof.ok_or(ReceiptError::NoHead)?;
        let events = events.into_iter().map(|(_, entry)| entry).collect();
        Ok(Self { run, index: last.unwrap_or(0), proof, events })
    }
}

/// Reads the events of these runs among the first `size` events of the log.
fn events_of(
    log: &Log,
    size: u64,
    runs: &[RunId],
) -> Result<HashMap<RunId, Indexed>, ReceiptError> {
    let names: HashMap<String, RunId> = runs.iter().map(|run| (run.to_string(), *run)).collect();
    let mut found: HashMap<RunId, Indexed> = HashMap::new();
    let mut scan = log.scan(HEADER as u64, 0);
    while let Some(batch) = scan.next().map_err(ReceiptError::Log)? {
        for event in batch.events().filter(|event| event.index < size) {
            let Ok(view) = EntryView::parse(event.bytes) else { continue };
            if let Some(run) = names.get(view.run) {
                found.entry(*run).or_default().push((event.index, event.bytes.to_vec()));
            }
        }
        if batch.end() >= size {
            break;
        }
    }
    Ok(found)
}

fn entries(events: &Indexed) -> Vec<Entry> {
    decode(events.iter().map(|(_, bytes)| bytes.as_slice()))
}

/// Decodes events; the verification of the receipt reports those that cannot be read.
fn decode<'a>(events: impl Iterator<Item = &'a [u8]>) -> Vec<Entry> {
    events.filter_map(|bytes| Entry::decode(bytes).ok()).collect()
}
