//! An independent verifier of proofs (RFC 9162, section 2.1) and signed notes (C2SP signed-note). It shares
//! no code with the ledger.

use aws_lc_rs::signature::{ED25519, UnparsedPublicKey};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use sha2::{Digest as _, Sha256};

pub(crate) type Hash = [u8; 32];

pub(crate) fn leaf(entry: &[u8]) -> Hash {
    Sha256::new().chain_update([0]).chain_update(entry).finalize().into()
}

pub(crate) fn node(left: &Hash, right: &Hash) -> Hash {
    Sha256::new().chain_update([1]).chain_update(left).chain_update(right).finalize().into()
}

/// Computes the root of a tree from all its leaves.
pub(crate) fn root(leaves: &[Hash]) -> Hash {
    match leaves {
        [] => Sha256::new().finalize().into(),
        [leaf] => *leaf,
        _ => {
            let half = leaves.len().next_power_of_two() / 2;
            let (left, right) = leaves.split_at(half);
            node(&root(left), &root(right))
        }
    }
}

pub(crate) fn hash(text: &str) -> Hash {
    hex::decode(text).unwrap().try_into().unwrap()
}

/// Verifies that a leaf is in a tree (section 2.1.3.2).
pub(crate) fn is_included(leaf: Hash, index: u64, size: u64, proof: &[Hash], root: Hash) -> bool {
    if index >= size {
        return false;
    }
    let (mut position, mut last, mut hash) = (index, size - 1, leaf);
    for sibling in proof {
        if last == 0 {
            return false;
        }
        if position % 2 == 1 || position == last {
            hash = node(sibling, &hash);
            while position % 2 == 0 && position != 0 {
                (position, last) = (position >> 1, last >> 1);
            }
        } else {
            hash = node(&hash, sibling);
        }
        (position, last) = (position >> 1, last >> 1);
    }
    last == 0 && hash == root
}

/// Verifies that a tree starts with another tree (section 2.1.4.2). Both are not empty.
pub(crate) fn is_consistent(old: (u64, Hash), new: (u64, Hash), proof: &[Hash]) -> bool {
    if old.0 == new.0 {
        return proof.is_empty() && old.1 == new.1;
    }
    let mut proof = proof.to_vec();
    if old.0.is_power_of_two() {
        proof.insert(0, old.1);
    }
    let (mut first, mut second) = (old.0 - 1, new.0 - 1);
    while first % 2 == 1 {
        (first, second) = (first >> 1, second >> 1);
    }
    let Some((start, rest)) = proof.split_first() else { return false };
    let (mut old_root, mut new_root) = (*start, *start);
    for sibling in rest {
        if second == 0 {
            return false;
        }
        if first % 2 == 1 || first == second {
            old_root = node(sibling, &old_root);
            new_root = node(sibling, &new_root);
            while first % 2 == 0 && first != 0 {
                (first, second) = (first >> 1, second >> 1);
            }
        } else {
            new_root = node(&new_root, sibling);
        }
        (first, second) = (first >> 1, second >> 1);
    }
    second == 0 && old_root == old.1 && new_root == new.1
}

/// A checkpoint whose signature was verified.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct SignedSize {
    pub(crate) size: u64,
    pub(crate) root: Hash,
}

/// Verifies the signature of a checkpoint with a key in the form `NAME+ID+BASE64`.
pub(crate) fn open(note: &str, key: &str) -> Option<SignedSize> {
    // The base64 part can contain `+`, too.
    let mut parts = key.splitn(3, '+');
    let (name, key_id, bytes) = (parts.next()?, parts.next()?, parts.next()?);
    let bytes = STANDARD.decode(bytes).ok()?;
    let (kind, public) = bytes.split_first()?;
    assert_eq!(*kind, 1, "Ed25519");
    let text_end = note.find("\n\n")? + 1;
    let (text, signatures) = note.split_at(text_end);
    let signed =
        signatures.lines().filter_map(|line| line.strip_prefix("\u{2014} ")?.split_once(' '));
    let mut own = signed.filter(|(signer, _)| *signer == name);
    let signature = STANDARD.decode(own.next()?.1).ok()?;
    let (id, signature) = signature.split_at(4);
    assert_eq!(hex::encode(id), key_id);
    UnparsedPublicKey::new(&ED25519, public).verify(text.as_bytes(), signature).ok()?;
    let mut lines = text.lines();
    assert_eq!(lines.next(), Some(name), "the origin is the name of the key");
    let size = lines.next()?.parse().ok()?;
    let root = STANDARD.decode(lines.next()?).ok()?.try_into().ok()?;
    Some(SignedSize { size, root })
}
