//! How much a box has written so far, while it is still writing.

use std::collections::HashSet;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use crate::at::{self, Name};
use crate::meta::FileKind;
use crate::walk::{self, Visit, WalkError};

/// Where counting may stop: more than this is too much, however much more it is.
#[derive(Debug, Clone, Copy)]
pub struct UsageCap {
    pub bytes: u64,
    pub inodes: u64,
}

/// What a tree holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Usage {
    /// Bytes allocated on disk; holes cost nothing and a file with many names costs once.
    pub bytes: u64,
    pub inodes: u64,
    /// Directories that could not be counted, because they were locked or moved away under us.
    /// When it is not zero the other numbers are a lower bound.
    pub unseen: u64,
}

impl Usage {
    pub fn exceeds(&self, cap: &UsageCap) -> bool {
        self.bytes > cap.bytes || self.inodes > cap.inodes
    }
}

/// Counts what is beneath `upper`, and stops as soon as `cap` is exceeded.
///
/// The box goes on writing meanwhile, so names come and go; only `upper` itself must be readable.
/// Files that were deleted while still open cost space but have no name: watch the free space of
/// the file system beside this.
pub fn usage(upper: BorrowedFd<'_>, cap: UsageCap) -> io::Result<Usage> {
    let root = at::child_dir(upper, b".")?;
    let mut count = Count { usage: Usage::default(), cap, linked: HashSet::new() };
    match walk::walk(root, b"", &mut count) {
        Ok(()) | Err(Stop::Cap) => {}
        // The walk lost its way: what it had not reached yet is not counted.
        Err(Stop::Lost) => count.usage.unseen += 1,
    }
    Ok(count.usage)
}

struct Count {
    usage: Usage,
    cap: UsageCap,
    /// Inodes with several names that were counted already.
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

impl Visit for Count {
    type Error = Stop;

    fn visit(&mut self, _path: &[u8], dir: BorrowedFd<'_>) -> Result<Vec<Name>, Stop> {
        let mut below = Vec::new();
        loop {
            let Ok(names) = at::some_names(dir) else {
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

impl Count {
    fn add(&mut self, dir: BorrowedFd<'_>, name: Name, below: &mut Vec<Name>) -> Result<(), Stop> {
        let meta = match at::stat(dir, &name) {
            Ok(Some(meta)) => meta,
            // Gone again.
            Ok(None) => return Ok(()),
            // A directory that can be listed but not searched hides what its names stand for.
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
    fn c23_holes_are_free_and_hard_links_count_once() {
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
    fn c23_counting_stops_at_the_cap() {
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
    fn a_locked_directory_is_reported_not_forgotten() {
        let dir = tempfile::tempdir().unwrap();
        let locked = dir.path().join("locked");
        fs::create_dir(&locked).unwrap();
        fs::write(locked.join("f"), "x").unwrap();
        fs::set_permissions(&locked, fs::Permissions::from_mode(0o0)).unwrap();
        let seen = count(dir.path(), NO_CAP);
        fs::set_permissions(&locked, fs::Permissions::from_mode(0o700)).unwrap();
        // Root looks inside all the same.
        let expected = if rustix::process::geteuid().is_root() { (2, 0) } else { (1, 1) };
        assert_eq!((seen.inodes, seen.unseen), expected);
    }
}
