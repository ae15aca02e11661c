//! Enforces the disk limit of a box that writes through an overlay.
//!
//! If the layers are in an image ([`crate::LayerImage`]), the kernel limits them, and only the free space of
//! the host is checked. Otherwise the upper layer is an ordinary directory, which the kernel does not limit, so it is
//! measured while the box runs. This is a stand-in for a kernel limit: between two measurements a box can
//! exceed the limit. The tree and the deleted files that processes still hold ([`crate::held`]) are measured
//! on threads of their own, so a box that makes one measurement slow delays neither the other one, nor any
//! other limit.
//!
//! A box with holders that cannot be measured, or whose measurement is slow, is limited by the free space of
//! the file system: what is missing there, and is not in the tree, counts as the box's.

use std::io;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use rustix::fs::{Mode, OFlags};

use crate::held::Held;
use crate::job::Job;

/// The measured size of an overlay's upper layer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DiskUse {
    pub bytes: u64,
    /// Whether all directories of the layer could be read.
    pub complete: bool,
}

/// A function that measures the upper layer of an overlay, up to the given number of bytes.
pub type DiskCounter = dyn FnMut(u64) -> io::Result<DiskUse> + Send;

/// What limits the size of the files that a box writes to disk.
pub enum DiskLimiter {
    /// The kernel: the files are on a file system of limited size.
    Kernel,
    /// A stand-in: this function, which is called on another thread while the box runs.
    Counter(Box<DiskCounter>),
}

impl std::fmt::Debug for DiskLimiter {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Kernel => "Kernel",
            Self::Counter(_) => "Counter",
        })
    }
}

/// The minimum free space that must stay on the disk, in bytes. Below it a box is stopped, even if
/// another program filled the disk.
const RESERVE: u64 = 256 << 20;
/// Part of the limit by which the free space must shrink so that the next measurement starts early.
const EARLY: u64 = 16;

/// The state between two measurements of the disk use of a box.
pub(crate) struct DiskWatch {
    /// A directory on the file system of the box's files.
    dir: OwnedFd,
    cap: u64,
    free_before: u64,
    /// `None` if the kernel enforces the limit.
    counter: Option<Arc<Mutex<Box<DiskCounter>>>>,
    tree: Job<io::Result<DiskUse>>,
    /// The current free space, and the size of the tree at its last measurement.
    now: Space,
    /// The state when the last measurement of held files started.
    at_scan: Space,
    /// The state when the box was last known to hold no unmeasurable files.
    known: Space,
    /// Whether the last measurement of held files found unmeasurable holders.
    is_hiding: bool,
}

/// The free space of a file system, and the size of the box's tree in it.
#[derive(Clone, Copy, Debug)]
struct Space {
    free: u64,
    tree: u64,
}

impl DiskWatch {
    pub(crate) fn new(dir: &Path, limiter: DiskLimiter, cap: u64) -> io::Result<Self> {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let dir = rustix::fs::open(dir, flags, Mode::empty())?;
        let free_before = free(&dir)?;
        let now = Space { free: free_before, tree: 0 };
        let counter = match limiter {
            DiskLimiter::Kernel => None,
            DiskLimiter::Counter(counter) => Some(Arc::new(Mutex::new(counter))),
        };
        Ok(Self {
            dir,
            cap,
            free_before,
            counter,
            tree: Job::new(),
            now,
            at_scan: now,
            known: now,
            is_hiding: false,
        })
    }

    /// Notes that a process of the box ran, so that the tree must be measured again.
    pub(crate) fn note_activity(&mut self) {
        self.tree.note_due();
    }

    /// Whether files must be measured, because the kernel does not enforce the limit.
    pub(crate) const fn is_stand_in(&self) -> bool {
        self.counter.is_some()
    }

    /// Whether a measurement is running or must be repeated.
    pub(crate) const fn is_pending(&self) -> bool {
        self.is_stand_in() && self.tree.is_pending()
    }

    /// Collects and starts measurements, without waiting for one. Returns whether the box uses too much, or
    /// its use cannot be measured.
    ///
    /// `held` is a new measurement of held files; `is_slow` says that such a measurement takes too long.
    pub(crate) fn is_exceeded(
        &mut self,
        held: Option<&Held>,
        is_slow: bool,
        tick: Duration,
    ) -> bool {
        let Ok(free) = free(&self.dir) else { return true };
        self.now.free = free;
        if free < RESERVE.min(self.free_before / 2) {
            return true;
        }
        let Some(counter) = self.counter.clone() else { return false };
        if self.collect(held, is_slow) {
            return true;
        }
        let cap = self.cap;
        let is_early = self.shrank_since(self.tree.free);
        let started = self.tree.start_if_due(is_early, tick, move || {
            let mut count = counter.lock().map_err(|_| io::ErrorKind::Other)?;
            count(cap)
        });
        if started {
            self.tree.free = free;
        }
        false
    }

    /// Whether the free space shrank so much since the last measurement of held files that the next one
    /// starts early.
    pub(crate) fn shrank_since_scan(&self) -> bool {
        self.shrank_since(self.at_scan.free)
    }

    /// Notes that a measurement of held files started.
    pub(crate) fn note_scan(&mut self) {
        self.at_scan = self.now;
    }

    fn shrank_since(&self, free: u64) -> bool {
        free.saturating_sub(self.now.free) > self.cap / EARLY
    }

    fn collect(&mut self, held: Option<&Held>, is_slow: bool) -> bool {
        match self.tree.finished() {
            Some(Ok(used)) => {
                self.now.tree = used.bytes;
                let consumed = self.free_before.saturating_sub(self.now.free);
                if used.bytes > self.cap || (!used.complete && consumed > self.cap) {
                    return true;
                }
            }
            Some(Err(_)) => return true,
            None => {}
        }
        if let Some(held) = held {
            self.is_hiding = held.is_incomplete;
            if !held.is_incomplete {
                self.known = self.at_scan;
            }
            if self.now.tree.saturating_add(held.disk_bytes) > self.cap {
                return true;
            }
        }
        (self.is_hiding || is_slow) && unexplained(self.known, self.now) > self.cap
    }
}

/// Returns the space that is missing since `before` and that is not in the tree.
fn unexplained(before: Space, now: Space) -> u64 {
    let consumed = before.free.saturating_sub(now.free);
    consumed.saturating_sub(now.tree.saturating_sub(before.tree))
}

fn free(dir: &OwnedFd) -> io::Result<u64> {
    let stat = rustix::fs::fstatvfs(dir)?;
    Ok(stat.f_bavail * stat.f_frsize)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unexplained_space_is_missing_on_disk_and_not_in_the_tree() {
        for (before, now, expect) in [
            ((1000, 0), (1000, 0), 0),
            ((1000, 0), (900, 100), 0),
            ((1000, 0), (900, 0), 100),
            ((1000, 50), (900, 90), 60),
            ((1000, 0), (1200, 0), 0),
        ] {
            let space = |(free, tree)| Space { free, tree };
            assert_eq!(unexplained(space(before), space(now)), expect, "{before:?} {now:?}");
        }
    }
}
