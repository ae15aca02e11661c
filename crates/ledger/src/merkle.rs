//! The Merkle tree over the entries (RFC 9162, section 2.1; the same tree as in RFC 6962).
//!
//! Does no input or output: an implementation of [`Hashes`] stores the hashes. The checks of proofs
//! are in `verify`. Sizes and indexes come from untrusted files and proofs, so the code does not
//! recurse and no size up to `u64::MAX` overflows.
//!
//! **Invariant:** a [`Frontier`] has one peak for each bit set in its size, and equal leaves give
//! equal roots however the root is computed.

#[cfg(test)]
mod tests;
mod verify;

pub use verify::{ProofError, verify_consistency, verify_inclusion};

use crate::digest::Digest;

/// The right edge of a Merkle tree, which suffices to append leaves and to compute the root.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Frontier {
    size: u64,
    peaks: Vec<Digest>,
}

/// A limit above the size of any real log, below which an append cannot overflow.
const MAX_SIZE: u64 = 1 << 63;

impl Frontier {
    /// Returns the frontier of a tree of this size from its complete subtrees, largest first.
    ///
    /// Returns `None` unless there is one peak for each bit set in `size`, and for a size above
    /// 2^63. The caller must check the resulting root against a trusted one.
    pub fn from_peaks(size: u64, peaks: Vec<Digest>) -> Option<Self> {
        let fits = usize::try_from(size.count_ones()).is_ok_and(|count| count == peaks.len());
        (fits && size <= MAX_SIZE).then_some(Self { size, peaks })
    }

    /// Appends a leaf, with one hash on average and at most one per level of the tree.
    pub fn push(&mut self, leaf: Digest) {
        let mut hash = leaf;
        // Each trailing set bit is a subtree that the new leaf completes.
        for _ in 0..self.size.trailing_ones() {
            let Some(left) = self.peaks.pop() else { break };
            hash = Digest::node(&left, &hash);
        }
        self.peaks.push(hash);
        self.size += 1;
    }

    pub const fn size(&self) -> u64 {
        self.size
    }

    /// Returns the hashes of the complete subtrees, largest first.
    pub fn peaks(&self) -> &[Digest] {
        &self.peaks
    }

    pub fn root(&self) -> Digest {
        let join = |right: Digest, left: Digest| Digest::node(&left, &right);
        self.peaks.iter().rev().copied().reduce(join).unwrap_or_else(empty_root)
    }
}

/// Returns the root of a tree without leaves, which is the hash of empty input.
pub fn empty_root() -> Digest {
    Digest::of(&[])
}

/// A store of the hashes of a tree.
pub trait Hashes {
    type Error;

    /// Returns the hash of the leaves from `index << level` up to but excluding `(index + 1) <<
    /// level`.
    ///
    /// It is called only for complete subtrees.
    fn hash(&self, level: u8, index: u64) -> Result<Digest, Self::Error>;
}

/// Returns the root of the first `size` leaves.
pub fn root_of<H: Hashes>(hashes: &H, size: u64) -> Result<Digest, H::Error> {
    range(hashes, 0, size)
}

/// Returns the proof that leaf `index` is in the tree of the first `size` leaves, lowest hash
/// first.
///
/// Returns `None` if the tree has no such leaf.
pub fn inclusion<H: Hashes>(
    hashes: &H,
    index: u64,
    size: u64,
) -> Result<Option<Vec<Digest>>, H::Error> {
    if index >= size {
        return Ok(None);
    }
    let mut proof = Vec::new();
    climb(hashes, 0, index, size, &mut proof)?;
    Ok(Some(proof))
}

/// Returns the proof that the tree of `new` leaves starts with the tree of `old` leaves.
///
/// The proof is empty for equal sizes and for an empty old tree. Returns `None` if `old` exceeds
/// `new`.
pub fn consistency<H: Hashes>(
    hashes: &H,
    old: u64,
    new: u64,
) -> Result<Option<Vec<Digest>>, H::Error> {
    if old > new {
        return Ok(None);
    }
    let mut proof = Vec::new();
    if old == 0 || old == new {
        return Ok(Some(proof));
    }
    // The proof starts at the last complete subtree of the old tree. If that subtree is the whole
    // old tree, its hash is the root, which the verifier has already.
    let level = old.trailing_zeros();
    let index = (old >> level) - 1;
    if index != 0 {
        proof.push(hashes.hash(narrow(level), index)?);
    }
    climb(hashes, level, index, new, &mut proof)?;
    Ok(Some(proof))
}

/// Appends the sibling hashes on the path from the node `index` of `level` up to the root.
fn climb<H: Hashes>(
    hashes: &H,
    mut level: u32,
    mut index: u64,
    size: u64,
    proof: &mut Vec<Digest>,
) -> Result<(), H::Error> {
    let mut last = (size - 1) >> level;
    while last != 0 {
        // A node at the right edge has no right sibling and moves up unchanged.
        if index % 2 == 1 || index < last {
            let begin = (index ^ 1) << level;
            let end = begin.saturating_add(1 << level).min(size);
            proof.push(range(hashes, begin, end)?);
        }
        (level, index, last) = (level + 1, index / 2, last / 2);
    }
    Ok(())
}

/// Returns the hash of the leaves from `begin` up to but excluding `end`.
///
/// The range is a node of the tree of `end` leaves or a complete subtree. Its complete subtrees are
/// joined from the right.
fn range<H: Hashes>(hashes: &H, begin: u64, end: u64) -> Result<Digest, H::Error> {
    let (mut rest, mut end) = (end - begin, end);
    let mut joined = None;
    while rest != 0 {
        let level = rest.trailing_zeros();
        let left = hashes.hash(narrow(level), (end >> level) - 1)?;
        joined = Some(match joined {
            Some(right) => Digest::node(&left, &right),
            None => left,
        });
        rest -= 1 << level;
        end -= 1 << level;
    }
    Ok(joined.unwrap_or_else(empty_root))
}

/// Converts a level, which is the position of a bit in a `u64`.
fn narrow(level: u32) -> u8 {
    u8::try_from(level).unwrap_or(u8::MAX)
}
