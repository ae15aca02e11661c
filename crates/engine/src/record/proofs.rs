//! Proofs that an event is in the ledger, and that the ledger only grew.
//!
//! A proof is one JSON object, described in `docs/ledger-format.md`. To verify it, only the public key is
//! needed in addition.

use anyhow::anyhow;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use belljar_ledger::{Checkpoint, Digest, Note, Reader, Row};
use serde::{Deserialize, Serialize};

use super::reading::read;
use crate::error::{EngineError, ErrorKind, WithKind as _};

/// The content of a proof file.
#[derive(Debug, Serialize, Deserialize)]
#[serde(tag = "format", deny_unknown_fields)]
pub enum Proof {
    #[serde(rename = "belljar inclusion 1")]
    Inclusion {
        index: u64,
        /// The encoded event, in base64.
        entry: String,
        leaf: Digest,
        proof: Vec<Digest>,
        checkpoint: String,
    },
    #[serde(rename = "belljar consistency 1")]
    Consistency { old: TreeHead, new: TreeHead, proof: Vec<Digest> },
}

/// The size and the root hash of the ledger on one side of a consistency proof.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TreeHead {
    pub size: u64,
    pub root: Digest,
    /// The signed checkpoint for this size, if there is one.
    pub checkpoint: Option<String>,
}

/// Proves that the event of a row is in the tree of the newest checkpoint.
pub fn inclusion(reader: &Reader, row: &Row) -> Result<Proof, EngineError> {
    let entry = read(reader, row)?;
    let inclusion = reader.inclusion(row.index).kind(ErrorKind::Broken)?;
    Ok(Proof::Inclusion {
        index: inclusion.index,
        entry: STANDARD.encode(entry.encode().kind(ErrorKind::Broken)?),
        leaf: inclusion.leaf,
        proof: inclusion.proof,
        checkpoint: inclusion.checkpoint,
    })
}

/// A proof that an event is in the ledger, with the size and the root of its checkpoint.
#[derive(Debug)]
pub struct SignedProof {
    pub size: u64,
    pub root: Digest,
    pub proof: Proof,
}

/// As [`inclusion`], and returns the size and the root of the checkpoint.
pub fn signed(reader: &Reader, row: &Row) -> Result<SignedProof, EngineError> {
    let proof = inclusion(reader, row)?;
    let note = match &proof {
        Proof::Inclusion { checkpoint, .. } => checkpoint,
        Proof::Consistency { .. } => "",
    };
    let note = Note::parse(note).kind(ErrorKind::Broken)?;
    let checkpoint = Checkpoint::parse(note.text()).kind(ErrorKind::Broken)?;
    Ok(SignedProof { size: checkpoint.size(), root: checkpoint.root(), proof })
}

/// Returns the tree head of a size; without a size, that of the newest checkpoint. Only the newest tree head
/// has a checkpoint.
pub fn tree_head(reader: &Reader, size: Option<u64>) -> Result<TreeHead, EngineError> {
    let (newest, note) = reader.checkpoint().kind(ErrorKind::Broken)?;
    let size = size.unwrap_or(newest.size());
    if size > newest.size() {
        let text = format!(
            "the size {size} is too large, because the ledger has only {} signed events",
            newest.size()
        );
        return Err(EngineError::new(ErrorKind::WrongState, anyhow!(text)));
    }
    let checkpoint = (size == newest.size()).then_some(note);
    Ok(TreeHead { size, root: reader.root_at(size).kind(ErrorKind::Broken)?, checkpoint })
}

/// Proves that the ledger of the size `new` starts with the ledger of the size `old`.
pub fn consistency(reader: &Reader, old: TreeHead, new: TreeHead) -> Result<Proof, EngineError> {
    let proof = reader.consistency(old.size, new.size).kind(ErrorKind::Broken)?;
    Ok(Proof::Consistency { old, new, proof })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn format_page_lists_all_keys_of_both_proofs_in_their_order() {
        let page = include_str!("../../../../docs/ledger-format.md");
        let hash = Digest::leaf(b"x");
        let side = TreeHead { size: 1, root: hash, checkpoint: None };
        let proofs = [
            Proof::Inclusion {
                index: 1,
                entry: String::new(),
                leaf: hash,
                proof: vec![hash],
                checkpoint: String::new(),
            },
            Proof::Consistency { old: side.clone(), new: side, proof: vec![hash] },
        ];
        for proof in proofs {
            let text = serde_json::to_string(&proof).unwrap();
            let (format, keys) = text.split_once(',').unwrap();
            let (_, mut rest) = page.split_once(format).expect(format);
            for key in keys.split(['{', ',']).filter_map(|part| part.split_once(':')) {
                let (_, after) = rest.split_once(&format!("{}:", key.0)).expect(key.0);
                rest = after;
            }
        }
    }
}
