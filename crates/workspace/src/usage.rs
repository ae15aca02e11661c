//! Measures the disk usage of a box while it runs.

use std::collections::HashSet;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use crate::at::{self, Name};
use crate::meta::FileKind;
use crate::walk::{self, Visit, WalkError};

/// The limit of disk usage at which counting stops.
#[derive(Debug, Clone, Copy)]
pub struct UsageCap {
    pub bytes: u64,
    pub inodes: u64,
}

/// The disk usage of a directory tree.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Usage {
    /// The number of bytes that are allocated on disk. Holes are free, and a file with several hard
    /// links counts once.
    pub bytes: u64,
    pub inodes: u64,
    /// The number of directories that were not counted because they were inaccessible or moved. If
    /// it is not zero, the other numbers are lower bounds.
    pub unseen: u64,
}

impl Usage {
    /// Returns whether the disk usage is above the limit.
    pub fn exceeds(&self, cap: &UsageCap) -> bool {
        self.bytes > cap.bytes || self.inodes > cap.inodes
    }
}

/// Counts the files and bytes beneath `upper` and stops as soon as `cap` is exceeded.
///
/// The box can write during the count, so names can appear and disappear; only `upper` itself must
/// be readable. Deleted files that are still open use space but have no name: monitor the free
/// space of the file system as well.
pub fn usage(upper: BorrowedFd<'_>, cap: UsageCap) -> io::Result<Usage> {
    let root = at::child_dir(upper, b".")?;
    let mut count = Counter { usage: Usage::default(), cap, linked: HashSet::new() };
    match walk::walk(root, b"", &mut count) {
        Ok(()) | Err(Stop::Cap) => {}
        // A directory was moved during the walk: the rest is not counted.
        Err(Stop::Lost) => count.usage.unseen += 1,
    }
    Ok(count.usage)
}

struct Counter {
    usage: Usage,
    cap: UsageCap,
    /// The inodes with several hard links that were already counted.
    linked: HashSet<(u64, u64)>,
}

enum Stop {
    Cap,
    Lost,
}

impl From<WalkError> for Stop {
    fn from(_: WalkError) -> Self {
        Self::Lost
    }
}

impl Visit for Counter {
    type Error = Stop;

    fn visit(&mut self, _path: &[u8], dir: BorrowedFd<'_>) -> Result<Vec<Name>, Stop> {
        let mut below = Vec::new();
        loop {
            let Ok(names) = at::next_names(dir) else {
                self.usage.unseen += 1;
                return Ok(below);
            };
            if names.is_empty() {
                return Ok(below);
            }
            for name in names {
                self.add(dir, name, &mut below)?;
            }
        }
    }

    fn open(
        &mut self,
        _path: &[u8],
        parent: BorrowedFd<'_>,
        name: &[u8],
    ) -> Result<Option<OwnedFd>, Stop> {
        match at::child_dir(parent.as_fd(), name) {
            Ok(fd) => Ok(Some(fd)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(_) => {
                self.usage.unseen += 1;
                Ok(None)
            }
        }
    }
}

impl Counter {
    fn add(&mut self, dir: BorrowedFd<'_>, name: Name, below: &mut Vec<Name>) -> Result<(), Stop> {
        let meta = match at::stat(dir, &name) {
            Ok(Some(meta)) => meta,
            // Deleted in the meantime.
            Ok(None) => return Ok(()),
            // Entries of a directory that can be listed but not searched have no visible metadata.
            Err(_) => {
                self.usage.unseen += 1;
                return Ok(());
            }
        };
        let is_dir = meta.kind == FileKind::Directory;
        if is_dir {
            below.push(name);
        } else if meta.nlink > 1 && !self.linked.insert(meta.inode()) {
            return Ok(());
        }
        self.usage.bytes = self.usage.bytes.saturating_add(meta.allocated);
        self.usage.inodes += 1;
        if self.usage.exceeds(&self.cap) { Err(Stop::Cap) } else { Ok(()) }
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    const NO_CAP: UsageCap = UsageCap { bytes: u64::MAX, inodes: u64::MAX };

    fn count(dir: &std::path::Path, cap: UsageCap) -> Usage {
        usage(at::open_root(dir).unwrap().as_fd(), cap).unwrap()
    }

    #[test]
    fn c23_disk_usage_ignores_holes_and_counts_hard_links_once() {
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir_all(dir.path().join("a/b")).unwrap();
        fs::write(dir.path().join("a/f"), vec![7; 100_000]).unwrap();
        fs::hard_link(dir.path().join("a/f"), dir.path().join("a/b/g")).unwrap();
        fs::File::create(dir.path().join("hole")).unwrap().set_len(1 << 40).unwrap();
        let seen = count(dir.path(), NO_CAP);
        assert_eq!(seen.inodes, 4, "{seen:?}");
        assert!((100_000..400_000).contains(&seen.bytes), "{seen:?}");
        assert_eq!(seen.unseen, 0);
    }

    #[test]
    fn c23_disk_usage_stops_counting_at_the_limit() {
        let dir = tempfile::tempdir().unwrap();
        for n in 0..100 {
            fs::write(dir.path().join(n.to_string()), "").unwrap();
        }
        let cap = UsageCap { bytes: u64::MAX, inodes: 10 };
        let seen = count(dir.path(), cap);
        assert!(seen.exceeds(&cap));
        assert_eq!(seen.inodes, 11);
    }

    #[test]
    fn disk_usage_reports_the_number_of_inaccessible_directories() {
        let dir = tempfile::tempdir().unwrap();
        let locked = dir.path().join("locked");
        fs::create_dir(&locked).unwrap();
        fs::write(locked.join("f"), "x").unwrap();
        fs::set_permissions(&locked, fs::Permissions::from_mode(0o0)).unwrap();
        let seen = count(dir.path(), NO_CAP);
        fs::set_permissions(&locked, fs::Permissions::from_mode(0o700)).unwrap();
        // Root can read the directory regardless of its mode.
        let expected = if rustix::process::geteuid().is_root() { (2, 0) } else { (1, 1) };
        assert_eq!((seen.inodes, seen.unseen), expected);
    }
}
