//! How much of the disk a box has taken.

use std::os::fd::{AsFd as _, OwnedFd};
use std::path::PathBuf;

use anyhow::Context as _;
use belljar_box::DiskUse;
use belljar_workspace::UsageCap;
use rustix::fs::{Mode as FileMode, OFlags};

/// Counts what a box has written to directories of the host, such as the upper layer of its overlay.
pub fn counter(
    dirs: &[PathBuf],
) -> anyhow::Result<impl FnMut(u64) -> std::io::Result<DiskUse> + use<>> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let open = |dir: &PathBuf| {
        let opened = rustix::fs::open(dir, flags, FileMode::empty());
        opened.with_context(|| format!("open {}", dir.display()))
    };
    let places: Vec<OwnedFd> = dirs.iter().map(open).collect::<Result<_, _>>()?;
    Ok(move |cap: u64| {
        let mut sum = DiskUse { bytes: 0, complete: true };
        for place in &places {
            let most = UsageCap { bytes: cap, inodes: cap / 4096 };
            let usage = belljar_workspace::usage(place.as_fd(), most)?;
            let exceeded = usage.inodes > cap / 4096;
            sum.bytes = sum.bytes.saturating_add(if exceeded { u64::MAX } else { usage.bytes });
            sum.complete &= usage.unseen == 0;
        }
        Ok(sum)
    })
}
