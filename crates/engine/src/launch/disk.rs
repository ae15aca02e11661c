//! Measures the disk usage of a box.

use std::os::fd::{AsFd as _, OwnedFd};
use std::path::PathBuf;

use anyhow::Context as _;
use belljar_box::DiskUse;
use belljar_workspace::UsageCap;
use rustix::fs::{Mode as FileMode, OFlags};

/// Returns a function that measures the disk usage of host directories, such as the upper layer of an overlay.
///
/// The argument of the function is the number of bytes after which the measurement may stop.
pub fn disk_counter(
    dirs: &[PathBuf],
) -> anyhow::Result<impl FnMut(u64) -> std::io::Result<DiskUse> + use<>> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let open = |dir: &PathBuf| {
        let opened = rustix::fs::open(dir, flags, FileMode::empty());
        opened.with_context(|| format!("cannot open {}", dir.display()))
    };
    let descriptors: Vec<OwnedFd> = dirs.iter().map(open).collect::<Result<_, _>>()?;
    Ok(move |cap: u64| {
        let mut sum = DiskUse { bytes: 0, complete: true };
        for descriptor in &descriptors {
            let limit = UsageCap { bytes: cap, inodes: cap / 4096 };
            let usage = belljar_workspace::usage(descriptor.as_fd(), limit)?;
            let exceeded = usage.inodes > cap / 4096;
            sum.bytes = sum.bytes.saturating_add(if exceeded { u64::MAX } else { usage.bytes });
            sum.complete &= usage.unseen == 0;
        }
        Ok(sum)
    })
}
