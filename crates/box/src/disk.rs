//! Enforces the disk limit of a box that writes through an overlay.
//!
//! The upper layer of an overlay is an ordinary directory, which the kernel does not limit. So the size of
//! its tree is measured while the box runs. Deleted files that are still open are measured through the
//! processes that hold them. If a directory cannot be read, the free space of the file system decides.
//! Between two measurements a box can exceed the limit.

use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rustix::fs::StatVfs;

use crate::processes;

/// The measured size of an overlay's upper layer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DiskUse {
    pub bytes: u64,
    /// Whether all directories of the layer could be read.
    pub complete: bool,
}

/// A function that measures the upper layer of an overlay, up to the given number of bytes.
pub type DiskCounter<'a> = dyn FnMut(u64) -> io::Result<DiskUse> + 'a;

/// The minimum free space that must stay on the disk, in bytes. Below it a box is stopped, even if
/// another program filled the disk.
const RESERVE: u64 = 256 << 20;
/// The ratio of pause to measurement time, so that a large tree does not keep a CPU busy.
const PAUSE_RATIO: u32 = 10;

/// The state between two measurements of the disk use of a box.
pub(crate) struct DiskWatch<'a> {
    layers: PathBuf,
    free_before: u64,
    count: &'a mut DiskCounter<'a>,
    next: Instant,
}

impl<'a> DiskWatch<'a> {
    pub(crate) fn new(layers: &Path, count: &'a mut DiskCounter<'a>) -> io::Result<Self> {
        let free_before = free(&rustix::fs::statvfs(layers)?);
        Ok(Self { layers: layers.to_owned(), free_before, count, next: Instant::now() })
    }

    /// Returns whether the box uses more than `cap` bytes of disk. Returns true if the use cannot
    /// be measured.
    pub(crate) fn exceeded(&mut self, init: i32, cap: u64, pause: Duration) -> bool {
        let began = Instant::now();
        if began < self.next {
            return false;
        }
        let verdict = self.measure(init, cap).unwrap_or(true);
        self.next = Instant::now() + pause.max(began.elapsed() * PAUSE_RATIO);
        verdict
    }

    fn measure(&mut self, init: i32, cap: u64) -> io::Result<bool> {
        let stat = rustix::fs::statvfs(&self.layers)?;
        if free(&stat) < RESERVE.min(self.free_before / 2) {
            return Ok(true);
        }
        let used = (self.count)(cap)?;
        if used.bytes > cap || used.bytes + unlinked(init) > cap {
            return Ok(true);
        }
        let consumed = self.free_before.saturating_sub(free(&stat));
        Ok(!used.complete && consumed > cap)
    }
}

fn free(stat: &StatVfs) -> u64 {
    stat.f_bavail * stat.f_frsize
}

/// Returns the total size of deleted files that processes of the box still hold open.
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
