//! Checks proofs about the tree: the algorithms of RFC 9162, sections 2.1.3.2 and 2.1.4.2.
//!
//! A proof is refused unless it has exactly the length that the sizes ask for. A proof says nothing
//! about the roots themselves: these must come from a checkpoint that was checked.

use super::empty_root;
use crate::digest::Digest;

/// Why a proof proves nothing.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ProofError {
    #[error("entry {index} cannot be in a tree of {size} entries")]
    OutOfTree { index: u64, size: u64 },
    #[error("a tree of {old} entries cannot have become one of {new}")]
    Shrunk { old: u64, new: u64 },
    #[error("the proof is not of the length that the sizes ask for")]
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
    let mut way = Way { node: index, last: size - 1 };
    let mut hash = *leaf;
    for other in proof {
        hash = match way.step()? {
            Side::Left => Digest::node(other, &hash),
            Side::Right => Digest::node(&hash, other),
        };
    }
    way.end()?;
    if hash == *root { Ok(()) } else { Err(ProofError::Root) }
}

/// Checks that the tree of `new_size` entries begins with all of the tree of `old_size`.
///
/// Equal sizes need equal roots and an empty proof. An empty old tree is the beginning of every
/// tree: its proof must be empty too, and its root that of an empty tree. (There is nothing to
/// prove, and implementations differ: that of transparency-dev took any old root, and by now takes
/// no empty old tree at all.)
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
    // The hash of the last complete subtree of the old tree; when that is all of it, its root.
    let (first, rest) = match proof {
        _ if old_size.is_power_of_two() => (old_root, proof),
        [first, rest @ ..] => (first, rest),
        [] => return Err(ProofError::Length),
    };
    let level = old_size.trailing_zeros();
    let mut way = Way { node: (old_size - 1) >> level, last: (new_size - 1) >> level };
    let (mut old, mut new) = (*first, *first);
    for other in rest {
        match way.step()? {
            Side::Left => {
                old = Digest::node(other, &old);
                new = Digest::node(other, &new);
            }
            Side::Right => new = Digest::node(&new, other),
        }
    }
    way.end()?;
    if old != *old_root {
        return Err(ProofError::OldRoot);
    }
    if new == *new_root { Ok(()) } else { Err(ProofError::Root) }
}

/// On the way to the root: the index of the node in its level, and that of the last one there.
struct Way {
    node: u64,
    last: u64,
}

/// On which side of the node the next hash of the proof is.
enum Side {
    Left,
    Right,
}

impl Way {
    /// Goes up to the next node that has two children.
    fn step(&mut self) -> Result<Side, ProofError> {
        if self.last == 0 {
            return Err(ProofError::Length);
        }
        let mut up = 1;
        let side = if self.node % 2 == 1 {
            Side::Left
        } else if self.node == self.last {
            // At the right edge there is no sibling until the node is a right child. Both are more
            // than 0 here, so there is a bit to find.
            up += self.node.trailing_zeros();
            Side::Left
        } else {
            Side::Right
        };
        self.node = self.node.checked_shr(up).unwrap_or(0);
        self.last = self.last.checked_shr(up).unwrap_or(0);
        Ok(side)
    }

    /// The whole proof has been used; it must have led to the root.
    const fn end(&self) -> Result<(), ProofError> {
        if self.last == 0 { Ok(()) } else { Err(ProofError::Length) }
    }
}
