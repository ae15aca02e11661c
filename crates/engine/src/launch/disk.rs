//! Limits the disk usage of a box.

use std::io;
use std::os::fd::{AsFd as _, OwnedFd};
use std::path::{Path, PathBuf};

use anyhow::Context as _;
use belljar_box::{DiskLimiter, DiskUse};
use belljar_workspace::UsageCap;
use rustix::fs::{Mode as FileMode, OFlags};

/// The number of bytes that each file counts at least against a disk limit.
const BYTES_PER_FILE: u64 = 4096;

/// The disk limit of a box: where its files are, and what limits their size.
#[derive(Clone, Debug)]
pub struct DiskLimit {
    /// The directory on the file system that the box writes to.
    pub dir: PathBuf,
    /// The directories whose size is measured. `None` if the kernel enforces the limit.
    pub measured: Option<Vec<PathBuf>>,
}

impl DiskLimit {
    /// Returns a disk limit that measures the upper layer of an overlay in `dir`.
    pub fn of_layers(dir: PathBuf) -> Self {
        Self { measured: Some(vec![dir.join("upper")]), dir }
    }

    /// Returns a disk limit that the kernel enforces, for an image in `dir`.
    pub const fn of_image(dir: PathBuf) -> Self {
        Self { dir, measured: None }
    }

    pub(super) fn limiter(self) -> anyhow::Result<(PathBuf, DiskLimiter)> {
        let limiter = match self.measured {
            None => DiskLimiter::Kernel,
            Some(dirs) => DiskLimiter::Counter(Box::new(disk_counter(&dirs)?)),
        };
        Ok((self.dir, limiter))
    }
}

/// Returns a function that measures the disk usage of host directories, such as the upper layer of an overlay.
///
/// The argument of the function is the number of bytes after which the measurement may stop.
fn disk_counter(
    dirs: &[PathBuf],
) -> anyhow::Result<impl FnMut(u64) -> std::io::Result<DiskUse> + use<>> {
    let open =
        |dir: &PathBuf| open_dir(dir).with_context(|| format!("cannot open {}", dir.display()));
    let descriptors: Vec<OwnedFd> = dirs.iter().map(open).collect::<Result<_, _>>()?;
    Ok(move |cap: u64| {
        let mut sum = DiskUse { bytes: 0, complete: true };
        for descriptor in &descriptors {
            let limit = UsageCap { bytes: cap, inodes: cap / BYTES_PER_FILE };
            let usage = belljar_workspace::usage(descriptor.as_fd(), limit)?;
            let exceeded = usage.inodes > limit.inodes;
            sum.bytes = sum.bytes.saturating_add(if exceeded { u64::MAX } else { usage.bytes });
            sum.complete &= usage.unseen == 0;
        }
        Ok(sum)
    })
}

/// Returns the number of bytes by which the files in a directory exceed a disk limit, or 0.
///
/// No box may write to the directory at the same time, or the result includes what that box writes.
pub fn excess(dir: &Path, cap: u64) -> io::Result<u64> {
    let dir = open_dir(dir)?;
    let limit = UsageCap { bytes: cap, inodes: cap / BYTES_PER_FILE };
    if !belljar_workspace::usage(dir.as_fd(), limit)?.exceeds(&limit) {
        return Ok(0);
    }
    let all = UsageCap { bytes: u64::MAX, inodes: u64::MAX };
    let usage = belljar_workspace::usage(dir.as_fd(), all)?;
    let counted = usage.bytes.max(usage.inodes.saturating_mul(BYTES_PER_FILE));
    Ok(counted.saturating_sub(cap))
}

/// Returns a limiter that does not count the `excess` that was there before the box started. So the box
/// can run, and is stopped only if it writes more.
pub fn without_excess(limiter: DiskLimiter, excess: u64) -> DiskLimiter {
    match limiter {
        DiskLimiter::Counter(mut counter) if excess > 0 => {
            DiskLimiter::Counter(Box::new(move |cap| {
                let used = counter(cap.saturating_add(excess))?;
                Ok(DiskUse { bytes: used.bytes.saturating_sub(excess), ..used })
            }))
        }
        // The kernel counts only the files of this box.
        limiter @ (DiskLimiter::Kernel | DiskLimiter::Counter(_)) => limiter,
    }
}

fn open_dir(dir: &Path) -> io::Result<OwnedFd> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    Ok(rustix::fs::open(dir, flags, FileMode::empty())?)
}

#[cfg(test)]
mod tests {
    use std::fs;

    use belljar_box::DiskCounter;

    use super::*;

    const CAP: u64 = 64 << 10;

    /// Returns whether a counter reports more than the limit.
    fn is_exceeded(counter: &mut DiskCounter) -> bool {
        counter(CAP).unwrap().bytes > CAP
    }

    #[test]
    fn d16_excess_from_before_does_not_count_but_any_growth_does() {
        for name in ["large", "many"] {
            let dir = tempfile::tempdir().unwrap();
            let counter = || disk_counter(&[dir.path().to_owned()]).unwrap();
            assert_eq!(excess(dir.path(), CAP).unwrap(), 0);
            match name {
                "large" => fs::write(dir.path().join("f"), vec![7; 300 << 10]).unwrap(),
                // Empty files use few bytes, but too many inodes.
                _ => (0..100).for_each(|at| {
                    fs::write(dir.path().join(at.to_string()), "").unwrap();
                }),
            }
            let before = excess(dir.path(), CAP).unwrap();
            assert!(before > 0, "{name}");
            assert!(is_exceeded(&mut counter()), "control: {name} without the excess");
            let limiter = DiskLimiter::Counter(Box::new(counter()));
            let DiskLimiter::Counter(mut counter) = without_excess(limiter, before) else {
                panic!("the limiter is still a counter");
            };
            assert!(!is_exceeded(&mut *counter), "{name}");
            // Enough for one limit or the other, whichever was reached.
            for at in 0..4 {
                fs::write(dir.path().join(format!("new{at}")), vec![7; 8 << 10]).unwrap();
            }
            assert!(is_exceeded(&mut *counter), "{name}");
        }
    }
}
