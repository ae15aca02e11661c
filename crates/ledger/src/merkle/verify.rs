//! Verifies proofs about the Merkle tree with the algorithms of RFC 9162, sections 2.1.3.2 and
//! 2.1.4.2.
//!
//! A proof must have exactly the length that the sizes require. A proof does not authenticate the
//! roots: they must come from a verified checkpoint.

use super::empty_root;
use crate::digest::Digest;

/// Why a proof is invalid.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ProofError {
    #[error("entry {index} cannot be in a tree of {size} entries")]
    OutOfTree { index: u64, size: u64 },
    #[error("a tree of {old} entries cannot have grown into one of {new}")]
    Shrunk { old: u64, new: u64 },
    #[error("the length of the proof does not match the sizes of the trees")]
    Length,
    #[error("the proof does not lead to the root of the tree")]
    Root,
    #[error("the proof does not lead to the root of the old tree")]
    OldRoot,
}

/// Checks that `leaf` is the hash of entry `index` in the tree of `size` entries with this root.
pub fn verify_inclusion(
    leaf: &Digest,
    index: u64,
    size: u64,
    proof: &[Digest],
    root: &Digest,
) -> Result<(), ProofError> {
    if index >= size {
        return Err(ProofError::OutOfTree { index, size });
    }
    let mut path = Path { node: index, last: size - 1 };
    let mut hash = *leaf;
    for other in proof {
        hash = match path.step()? {
            Side::Left => Digest::node(other, &hash),
            Side::Right => Digest::node(&hash, other),
        };
    }
    path.end()?;
    if hash == *root { Ok(()) } else { Err(ProofError::Root) }
}

/// Checks that the tree of `new_size` entries starts with all entries of the tree of `old_size`.
///
/// Equal sizes need equal roots and an empty proof. Every tree starts with the empty tree: its
/// proof must be empty too, and its root must be the root of an empty tree. (Implementations differ
/// in this case: transparency-dev accepted any old root, and now refuses an empty old tree.)
pub fn verify_consistency(
    old_size: u64,
    old_root: &Digest,
    new_size: u64,
    new_root: &Digest,
    proof: &[Digest],
) -> Result<(), ProofError> {
    if old_size > new_size {
        return Err(ProofError::Shrunk { old: old_size, new: new_size });
    }
    if old_size == 0 && *old_root != empty_root() {
        return Err(ProofError::OldRoot);
    }
    if old_size == 0 || old_size == new_size {
        return match proof {
            [_, ..] => Err(ProofError::Length),
            [] if old_size == new_size && old_root != new_root => Err(ProofError::Root),
            [] => Ok(()),
        };
    }
    // The hash of the last complete subtree of the old tree, or the old root if that is the whole
    // tree.
    let (first, rest) = match proof {
        _ if old_size.is_power_of_two() => (old_root, proof),
        [first, rest @ ..] => (first, rest),
        [] => return Err(ProofError::Length),
    };
    let level = old_size.trailing_zeros();
    let mut path = Path { node: (old_size - 1) >> level, last: (new_size - 1) >> level };
    let (mut old, mut new) = (*first, *first);
    for other in rest {
        match path.step()? {
            Side::Left => {
                old = Digest::node(other, &old);
                new = Digest::node(other, &new);
            }
            Side::Right => new = Digest::node(&new, other),
        }
    }
    path.end()?;
    if old != *old_root {
        return Err(ProofError::OldRoot);
    }
    if new == *new_root { Ok(()) } else { Err(ProofError::Root) }
}

/// A position on the path to the root: the index of the node and of the last node of its level.
struct Path {
    node: u64,
    last: u64,
}

/// The side of the node on which the next hash of the proof belongs.
enum Side {
    Left,
    Right,
}

impl Path {
    /// Moves up to the next node that has two children.
    fn step(&mut self) -> Result<Side, ProofError> {
        if self.last == 0 {
            return Err(ProofError::Length);
        }
        let mut up = 1;
        let side = if self.node % 2 == 1 {
            Side::Left
        } else if self.node == self.last {
            // A node at the right edge has no sibling until the node is a right child. Both indexes
            // are above 0 here, so a set bit exists.
            up += self.node.trailing_zeros();
            Side::Left
        } else {
            Side::Right
        };
        self.node = self.node.checked_shr(up).unwrap_or(0);
        self.last = self.last.checked_shr(up).unwrap_or(0);
        Ok(side)
    }

    /// Checks that the used-up proof reached the root.
    const fn end(&self) -> Result<(), ProofError> {
        if self.last == 0 { Ok(()) } else { Err(ProofError::Length) }
    }
}
