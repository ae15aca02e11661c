//! The Merkle tree over the entries (RFC 9162, section 2.1; the same tree as that of RFC 6962).
//!
//! Pure: where the hashes are kept is the business of whoever implements [`Hashes`]. Checking a
//! proof is in `verify`. Nothing here recurses, and no size up to `u64::MAX` overflows, because
//! sizes and indices come from files and proofs of others.
//!
//! **Invariant:** a [`Frontier`] has one peak for each bit that is set in its size, and the root of
//! the same leaves is the same, by whichever way it was reached.

#[cfg(test)]
mod tests;
mod verify;

pub use verify::{ProofError, verify_consistency, verify_inclusion};

use crate::digest::Digest;

/// The right edge of a tree: all that is needed to append to it and to know its root.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Frontier {
    size: u64,
    peaks: Vec<Digest>,
}

/// More leaves than any log will have; up to here an append cannot overflow.
const MAX_SIZE: u64 = 1 << 63;

impl Frontier {
    /// The edge of a tree of this size, from its complete subtrees, the largest first.
    ///
    /// `None` unless there is one for each bit of `size`, and for a size of more than 2^63. Whether
    /// these are the hashes of anything is for the caller to check, against a root that it trusts.
    pub fn from_peaks(size: u64, peaks: Vec<Digest>) -> Option<Self> {
        let fits = usize::try_from(size.count_ones()).is_ok_and(|count| count == peaks.len());
        (fits && size <= MAX_SIZE).then_some(Self { size, peaks })
    }

    /// Appends a leaf: one hash on average, as many as the tree is high at most.
    pub fn push(&mut self, leaf: Digest) {
        let mut hash = leaf;
        // Each low bit that is set is a subtree that the new one completes.
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

    /// The complete subtrees, the largest first.
    pub fn peaks(&self) -> &[Digest] {
        &self.peaks
    }

    pub fn root(&self) -> Digest {
        let join = |right: Digest, left: Digest| Digest::node(&left, &right);
        self.peaks.iter().rev().copied().reduce(join).unwrap_or_else(empty_root)
    }
}

/// The root of a tree without leaves: the hash of nothing.
pub fn empty_root() -> Digest {
    Digest::of(&[])
}

/// Where the hashes of a tree are kept.
pub trait Hashes {
    type Error;

    /// The hash of the leaves from `index << level` to before `(index + 1) << level`.
    ///
    /// Only subtrees that are complete are asked for.
    fn hash(&self, level: u8, index: u64) -> Result<Digest, Self::Error>;
}

/// The root of the first `size` leaves.
pub fn root_of<H: Hashes>(hashes: &H, size: u64) -> Result<Digest, H::Error> {
    range(hashes, 0, size)
}

/// The proof that leaf `index` is in the tree of the first `size` leaves, the lowest hash first.
///
/// `None` where there can be no proof: no such leaf is in that tree.
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

/// The proof that the first `old` of `new` leaves are the tree that had `old` leaves.
///
/// Empty for equal sizes and for an empty old tree; `None` where there can be no proof: `old` is
/// more than `new`.
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
    // The proof starts from the last complete subtree of the old tree; when that is the whole old
    // tree, its hash is the root that the verifier has already.
    let level = old.trailing_zeros();
    let index = (old >> level) - 1;
    if index != 0 {
        proof.push(hashes.hash(narrow(level), index)?);
    }
    climb(hashes, level, index, new, &mut proof)?;
    Ok(Some(proof))
}

/// The hashes beside the way from the node `index` of `level` up to the root.
fn climb<H: Hashes>(
    hashes: &H,
    mut level: u32,
    mut index: u64,
    size: u64,
    proof: &mut Vec<Digest>,
) -> Result<(), H::Error> {
    let mut last = (size - 1) >> level;
    while last != 0 {
        // A node at the right edge has no sibling on the right: it is lifted as it is.
        if index % 2 == 1 || index < last {
            let begin = (index ^ 1) << level;
            let end = begin.saturating_add(1 << level).min(size);
            proof.push(range(hashes, begin, end)?);
        }
        (level, index, last) = (level + 1, index / 2, last / 2);
    }
    Ok(())
}

/// The hash of the leaves from `begin` to before `end`, which is a node of the tree of `end` leaves
/// or a complete subtree: the complete subtrees in it, joined from the right.
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

/// A level is the place of a bit in a `u64`.
fn narrow(level: u32) -> u8 {
    u8::try_from(level).unwrap_or(u8::MAX)
}
