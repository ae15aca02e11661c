//! The tree of the log, and its root at the sizes that somebody vouched for.

use std::collections::BTreeMap;

use crate::digest::Digest;
use crate::merkle::Frontier;

/// What the log was at one size.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct At {
    pub(super) root: Digest,
    /// Where the batch of the last event ends, if that is the last of its batch.
    pub(super) end: Option<u64>,
    /// The ledger's own last event.
    pub(super) own: Option<(u64, Digest)>,
    /// When the last event was recorded.
    pub(super) time: Option<u64>,
}

/// The tree as far as every event of it was read.
#[derive(Debug)]
pub(super) struct Roots {
    frontier: Frontier,
    wanted: BTreeMap<u64, Option<At>>,
    /// The next size that is asked for.
    next: u64,
    is_broken: bool,
}

impl Roots {
    pub(super) fn of(sizes: impl IntoIterator<Item = u64>) -> Self {
        let wanted: BTreeMap<_, _> = sizes.into_iter().map(|size| (size, None)).collect();
        let next = wanted.keys().next().copied().unwrap_or(u64::MAX);
        Self { frontier: Frontier::default(), wanted, next, is_broken: false }
    }

    /// Takes the next event; whether its size is asked for.
    pub(super) fn push(&mut self, leaf: Digest) -> bool {
        if self.is_broken {
            return false;
        }
        self.frontier.push(leaf);
        self.frontier.size() == self.next
    }

    /// Keeps what the log is now.
    pub(super) fn keep(&mut self, at: impl FnOnce(Digest) -> At) {
        if self.is_broken {
            return;
        }
        let size = self.frontier.size();
        self.wanted.insert(size, Some(at(self.frontier.root())));
        let later = self.wanted.range(size + 1..).next();
        self.next = later.map_or(u64::MAX, |(size, _)| *size);
    }

    /// An event could not be read: from here on no root is known.
    pub(super) const fn break_off(&mut self) {
        self.is_broken = true;
    }

    pub(super) const fn is_broken(&self) -> bool {
        self.is_broken
    }

    pub(super) fn root(&self) -> Digest {
        self.frontier.root()
    }

    pub(super) fn at(&self, size: u64) -> Option<&At> {
        self.wanted.get(&size).and_then(Option::as_ref)
    }
}
