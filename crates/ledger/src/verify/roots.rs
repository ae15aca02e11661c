//! The tree of the log, and its roots at the sizes of signed checkpoints.

use std::collections::BTreeMap;

use crate::digest::Digest;
use crate::merkle::Frontier;

/// The state of the log at one size.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct At {
    pub(super) root: Digest,
    /// The end of the batch of the last event, if it is the last event of its batch.
    pub(super) end: Option<u64>,
    /// The last event of the ledger itself.
    pub(super) own: Option<(u64, Digest)>,
    /// The time of the last event.
    pub(super) time: Option<u64>,
}

/// The tree of all events up to the first unreadable one.
#[derive(Debug)]
pub(super) struct Roots {
    frontier: Frontier,
    wanted: BTreeMap<u64, Option<At>>,
    /// The next requested size.
    next: u64,
    is_broken: bool,
}

impl Roots {
    pub(super) fn of(sizes: impl IntoIterator<Item = u64>) -> Self {
        let wanted: BTreeMap<_, _> = sizes.into_iter().map(|size| (size, None)).collect();
        let next = wanted.keys().next().copied().unwrap_or(u64::MAX);
        Self { frontier: Frontier::default(), wanted, next, is_broken: false }
    }

    /// Adds the next event and returns whether a root is requested at the new size.
    pub(super) fn push(&mut self, leaf: Digest) -> bool {
        if self.is_broken {
            return false;
        }
        self.frontier.push(leaf);
        self.frontier.size() == self.next
    }

    /// Stores the current state of the log.
    pub(super) fn keep(&mut self, at: impl FnOnce(Digest) -> At) {
        if self.is_broken {
            return;
        }
        let size = self.frontier.size();
        self.wanted.insert(size, Some(at(self.frontier.root())));
        let later = self.wanted.range(size + 1..).next();
        self.next = later.map_or(u64::MAX, |(size, _)| *size);
    }

    /// Stops computing roots because an event could not be read.
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
