//! Watches what a box writes to the host's disk through its overlay.
//!
//! The overlay's upper layer is an ordinary directory, which the kernel does not limit. So its tree is
//! counted while the box runs, files that were deleted while open are counted through the processes
//! that hold them, and where a directory could not be looked into, the free space of the file system
//! decides. Between two looks a box can overshoot by what the disk takes in that time.

use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rustix::fs::StatVfs;

use crate::processes;

/// What was found beneath the upper layer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DiskUse {
    pub bytes: u64,
    /// False when some directory could not be looked into.
    pub complete: bool,
}

/// Counts the upper layer up to a cap.
pub type Count<'a> = dyn FnMut(u64) -> io::Result<DiskUse> + 'a;

/// Below this much free space a box is stopped, whoever filled the disk.
const RESERVE: u64 = 256 << 20;
/// A walk may take this part of the time, so that a large tree does not keep a CPU busy.
const SHARE: u32 = 10;

/// The state between two looks.
pub(crate) struct DiskWatch<'a> {
    layers: PathBuf,
    free_before: u64,
    count: &'a mut Count<'a>,
    next: Instant,
}

impl<'a> DiskWatch<'a> {
    pub(crate) fn new(layers: &Path, count: &'a mut Count<'a>) -> io::Result<Self> {
        let free_before = free(&rustix::fs::statvfs(layers)?);
        Ok(Self { layers: layers.to_owned(), free_before, count, next: Instant::now() })
    }

    /// Whether the box has used more than `cap`. An error counts as yes: a limit that cannot be
    /// checked does not hold.
    pub(crate) fn exceeded(&mut self, init: i32, cap: u64, pause: Duration) -> bool {
        let began = Instant::now();
        if began < self.next {
            return false;
        }
        let verdict = self.look(init, cap).unwrap_or(true);
        self.next = Instant::now() + pause.max(began.elapsed() * SHARE);
        verdict
    }

    fn look(&mut self, init: i32, cap: u64) -> io::Result<bool> {
        let stat = rustix::fs::statvfs(&self.layers)?;
        if free(&stat) < RESERVE.min(self.free_before / 2) {
            return Ok(true);
        }
        let counted = (self.count)(cap)?;
        if counted.bytes > cap || counted.bytes + unlinked(init) > cap {
            return Ok(true);
        }
        let gone = self.free_before.saturating_sub(free(&stat));
        Ok(!counted.complete && gone > cap)
    }
}

fn free(stat: &StatVfs) -> u64 {
    stat.f_bavail * stat.f_frsize
}

/// Bytes in files that have no name any more but are held open in the box, outside memory.
fn unlinked(init: i32) -> u64 {
    let mut seen = std::collections::HashSet::new();
    let mut bytes = 0;
    for pid in processes::descendants(init) {
        let Ok(entries) = fs::read_dir(format!("/proc/{pid}/fd")) else { continue };
        for link in entries.flatten().map(|entry| entry.path()) {
            let Ok(meta) = fs::metadata(&link) else { continue };
            let is_unlinked = meta.is_file() && meta.nlink() == 0 && !in_memory(&link);
            if is_unlinked && seen.insert((meta.dev(), meta.ino())) {
                bytes += meta.blocks() * 512;
            }
        }
    }
    bytes
}

fn in_memory(path: &Path) -> bool {
    const TMPFS: rustix::fs::FsWord = 0x0102_1994;
    rustix::fs::statfs(path).is_ok_and(|stat| stat.f_type == TMPFS)
}
