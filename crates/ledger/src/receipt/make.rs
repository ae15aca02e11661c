//! Creates receipts from the log.
//!
//! The index is not used: the key of the ledger signs that a receipt has all events of its run, and
//! only the log shows that. Every receipt is verified before it is returned.

use std::fs::File;

use belljar_model::RunId;

use super::extent::Extent;
use super::{
    Disclosed, Format, MAX_RECEIPT, Proved, ReceiptError, Rotation, RunReceipt, verify_receipt,
};
use crate::anchor::{public_keys, read_key};
use crate::bodies::{Bodies, BodyError, Wanted};
use crate::body::Body;
use crate::checkpoint::{self, Checkpoint};
use crate::digest::Digest;
use crate::entry::{Entry, EntryView};
use crate::event::{Event, KeyRotated};
use crate::frame::HEADER;
use crate::head::{self, Head};
use crate::log::{Located, Log};
use crate::merkle::{Hashes, inclusion};
use crate::note::VerifyingKey;
use crate::paths::LedgerPaths;
use crate::salts::{self, Kept};

/// Which bodies a receipt discloses to its reader.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Disclose {
    /// Commitments only, from which no content can be guessed.
    Nothing,
    /// The stored contents with their salts.
    Bodies,
}

/// The index of an event, its bytes and its inclusion proof.
type WithProof = (u64, Vec<u8>, Vec<Digest>);

/// The data that one pass over the log collects.
pub(super) struct Gathered {
    pub(super) tree: Tree,
    pub(super) events: Vec<(u64, Vec<u8>)>,
    pub(super) rotations: Vec<Vec<u8>>,
}

/// All hashes of the tree: for each level those of its complete subtrees.
#[derive(Default)]
pub(super) struct Tree(Vec<Vec<Digest>>);

/// The tree does not have the requested subtree.
pub(super) struct Incomplete;

impl RunReceipt {
    /// Creates the receipt of the signed events of a run.
    pub fn make(paths: &LedgerPaths, run: RunId, disclose: Disclose) -> Result<Self, ReceiptError> {
        let head = newest_head(paths)?.note;
        let mut keys = public_keys(paths).map_err(ReceiptError::Anchor)?;
        let (signed, _) = checkpoint::open(&head, &keys).map_err(ReceiptError::Checkpoint)?;
        let log = Log::open(&paths.log()).map_err(ReceiptError::Log)?;
        let Gathered { tree, events, rotations } = gather(&log, signed.size(), run)?;
        let signer = read_key(&paths.key()).map_err(ReceiptError::Anchor)?;
        let key = signer.verifying();
        let extent = Extent::of(run, events.iter().map(|(_, entry)| entry.as_slice()));
        let checkpoint = Checkpoint::new(key.name(), signed.size(), signed.root())
            .and_then(|checkpoint| checkpoint.with_extensions(vec![extent.to_line()]))
            .map_err(ReceiptError::Checkpoint)?;
        let events = prove(&tree, events, signed.size())?;
        let proved = |(index, entry, proof)| Proved { index, entry, proof };
        let mut receipt = Self {
            format: Format::Two,
            run,
            rotations: path_to(&key, &rotations),
            events: events.into_iter().map(proved).collect(),
            checkpoint: checkpoint.sign(&[&signer]),
            key: key.clone(),
            bodies: Vec::new(),
        };
        keys.push(key); // an interrupted rotation has not listed it yet
        if disclose == Disclose::Bodies {
            receipt.bodies = receipt.disclosed(paths)?;
        }
        let text = receipt.to_text();
        if text.len() > MAX_RECEIPT {
            return Err(ReceiptError::TooLong);
        }
        verify_receipt(&text, &keys)?;
        Ok(receipt)
    }

    /// Returns the bodies whose content is still stored, sorted by hash.
    fn disclosed(&self, paths: &LedgerPaths) -> Result<Vec<Disclosed>, ReceiptError> {
        let entries = self.events.iter().filter_map(|event| Entry::decode(&event.entry).ok());
        disclosed(paths, entries, &mut { MAX_DISCLOSED })
    }
}

/// The maximum size of all disclosed bodies: the rest is for base64 and the other parts.
pub(super) const MAX_DISCLOSED: u64 = MAX_RECEIPT as u64 / 2;

/// Returns the bodies of events whose content the ledger still stores, sorted by hash.
///
/// `left` is the size that bodies may still have.
pub(super) fn disclosed(
    paths: &LedgerPaths,
    entries: impl Iterator<Item = Entry>,
    left: &mut u64,
) -> Result<Vec<Disclosed>, ReceiptError> {
    let path = paths.salts();
    let salts = salts::all(&path).map_err(|source| ReceiptError::Read { path, source })?;
    let mut named: Vec<Body> =
        entries.flat_map(|entry| entry.fields.bodies().cloned().collect::<Vec<_>>()).collect();
    named.sort_by_key(|body| (body.hash(), !body.is_kept()));
    named.dedup_by_key(|body| body.hash());
    // A salt without its content would only help to guess the content.
    named.retain(Body::is_kept);
    let mut disclosed = Vec::new();
    for body in named {
        let hash = body.hash();
        let Some(Kept::Salt(salt)) = salts.get(&hash).copied() else { continue };
        *left = left.checked_sub(body.size()).ok_or(ReceiptError::TooLong)?;
        let wanted = Wanted { hash, size: body.size(), salt };
        let Some(content) = content_of(paths, &wanted)? else { continue };
        disclosed.push(Disclosed { hash, salt, content });
    }
    Ok(disclosed)
}

/// Returns a stored content, or `None` if it was dropped.
fn content_of(paths: &LedgerPaths, wanted: &Wanted) -> Result<Option<Vec<u8>>, ReceiptError> {
    let mut content = Vec::new();
    match Bodies::open(paths).read(wanted, &mut content) {
        Ok(()) => Ok(Some(content)),
        Err(BodyError::Missing { .. }) => Ok(None),
        Err(error) => Err(ReceiptError::Body(error)),
    }
}

pub(super) fn newest_head(paths: &LedgerPaths) -> Result<Head, ReceiptError> {
    let path = paths.head();
    let head = File::open(&path).and_then(|file| head::settled(&file));
    head.map_err(|source| ReceiptError::Read { path, source })?.ok_or(ReceiptError::NoHead)
}

/// Reads the log up to `size` events.
pub(super) fn gather(log: &Log, size: u64, run: RunId) -> Result<Gathered, ReceiptError> {
    let name = run.to_string();
    let mut gathered =
        Gathered { tree: Tree::default(), events: Vec::new(), rotations: Vec::new() };
    let mut later = false;
    let mut scan = log.scan(HEADER as u64, 0);
    while let Some(batch) = scan.next().map_err(ReceiptError::Log)? {
        for event in batch.events() {
            if event.index < size {
                gathered.take(&event, &name);
            } else {
                later |= EntryView::parse(event.bytes).is_ok_and(|view| view.run == name);
            }
        }
        if batch.end() >= size && (later || !gathered.events.is_empty()) {
            break;
        }
    }
    match (gathered.events.is_empty(), later) {
        (false, _) => Ok(gathered),
        (true, true) => Err(ReceiptError::NotSigned { run }),
        (true, false) => Err(ReceiptError::NoRun { run }),
    }
}

impl Gathered {
    fn take(&mut self, event: &Located<'_>, run: &str) {
        self.tree.push(event.leaf);
        // Unreadable bytes are not an event of the run; the verifier reports them.
        let Ok(view) = EntryView::parse(event.bytes) else { return };
        if view.run == run {
            self.events.push((event.index, event.bytes.to_vec()));
        }
        if view.run.is_empty() && view.kind == "key.rotated" {
            self.rotations.push(event.bytes.to_vec());
        }
    }
}

fn rotation(bytes: &[u8]) -> Option<Rotation> {
    let entry = Entry::decode(bytes).ok()?;
    let Event::KeyRotated(rotated) = Event::read(&entry.kind, &entry.fields).ok()? else {
        return None;
    };
    let KeyRotated { old, new, endorsement } = rotated;
    Some(Rotation { old: old.parse().ok()?, new: new.parse().ok()?, endorsement })
}

/// Returns the rotations among these events that lead from the first key to this key.
pub(super) fn path_to(key: &VerifyingKey, rotations: &[Vec<u8>]) -> Vec<Rotation> {
    let mut rotations: Vec<Rotation> = rotations.iter().filter_map(|it| rotation(it)).collect();
    let mut path: Vec<Rotation> = Vec::new();
    loop {
        let wanted = path.last().map_or(key, |rotation| &rotation.old);
        let Some(place) = rotations.iter().rposition(|rotation| rotation.new == *wanted) else {
            path.reverse();
            return path;
        };
        // Later rotations cannot lead to this key, so the loop ends.
        let found = rotations.drain(place..).next();
        path.extend(found);
    }
}

fn prove(
    tree: &Tree,
    events: Vec<(u64, Vec<u8>)>,
    size: u64,
) -> Result<Vec<WithProof>, ReceiptError> {
    let proved = events.into_iter().map(|(index, entry)| {
        let proof = inclusion(tree, index, size).ok().flatten();
        proof.map(|proof| (index, entry, proof)).ok_or(ReceiptError::NoHead)
    });
    proved.collect()
}

impl Tree {
    fn push(&mut self, leaf: Digest) {
        let mut hash = leaf;
        for level in 0.. {
            if self.0.len() == level {
                self.0.push(Vec::new());
            }
            let Some(hashes) = self.0.get_mut(level) else { return };
            hashes.push(hash);
            let [.., left, right] = hashes.as_slice() else { return };
            if hashes.len() % 2 == 1 {
                return;
            }
            hash = Digest::node(left, right);
        }
    }
}

impl Hashes for Tree {
    type Error = Incomplete;

    fn hash(&self, level: u8, index: u64) -> Result<Digest, Incomplete> {
        let index = usize::try_from(index).map_err(|_| Incomplete)?;
        let hashes = self.0.get(usize::from(level)).ok_or(Incomplete)?;
        hashes.get(index).copied().ok_or(Incomplete)
    }
}
