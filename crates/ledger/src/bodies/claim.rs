//! Leases and claims: who may still use a stored content, and who may remove it.
//!
//! A process that stores or shares a content locks its file until an event references the content.
//! A process that removes a content claims the file with an exclusive lock first.
//!
//! **Invariant:** a lease exists only for a file that still has its name, and a claimed file loses its
//! name before the claim ends.

use std::collections::BTreeMap;
use std::fs::File;
use std::io;
use std::os::unix::fs::MetadataExt as _;

use rustix::fs::{AtFlags, FlockOperation, Mode, OFlags};
use rustix::io::Errno;

use super::{Bodies, BodyError, Finding, Wanted, file, name, subdirectory_name};
use crate::body::Lease;
use crate::digest::Digest;

/// A file of the body store that no process uses and that is about to be removed.
#[derive(Debug)]
pub(crate) struct Claim {
    /// The body; `None` for a content whose storing was interrupted.
    hash: Option<Digest>,
    subdirectory: String,
    name: String,
    file: File,
}

impl Bodies {
    /// Returns a lease of a stored content that matches its commitment; `None` if the content is
    /// unusable or is being removed.
    pub(super) fn borrow(&self, wanted: &Wanted) -> Option<Lease> {
        let Ok(Finding::Body(file)) = self.find(wanted.hash) else { return None };
        let is_usable =
            share(&file).is_ok_and(|is_named| is_named) && file::check(&file, wanted).is_ok();
        is_usable.then(|| Lease::new(file))
    }

    /// Claims a content for removal; `None` if the content is missing or a process uses it.
    pub(crate) fn claim(&self, hash: Digest) -> Result<Option<Claim>, BodyError> {
        let Finding::Body(file) = self.find(hash)? else { return Ok(None) };
        let claimed = exclude(&file).map_err(|source| self.failed("lock", hash, source))?;
        let (subdirectory, name) = (subdirectory_name(hash), name(hash));
        Ok(claimed.then_some(Claim { hash: Some(hash), subdirectory, name, file }))
    }

    /// Claims a content whose storing was interrupted; `None` if it is missing or in progress.
    pub(crate) fn claim_unfinished(&self, name: &str) -> Result<Option<Claim>, BodyError> {
        let failed = |source| {
            let path = self.directory.join(name);
            BodyError::File { doing: "lock", path, source }
        };
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let opened = self.top().map(|top| rustix::fs::openat(&top, name, flags, Mode::empty()));
        let file = match opened.map_err(failed)? {
            Ok(file) => File::from(file),
            Err(Errno::NOENT) => return Ok(None),
            Err(error) => return Err(failed(error.into())),
        };
        let (subdirectory, name) = (".".to_owned(), name.to_owned());
        let claimed = exclude(&file).map_err(failed)?;
        Ok(claimed.then_some(Claim { hash: None, subdirectory, name, file }))
    }

    /// Removes claimed files and waits for the disk, once per directory.
    pub(crate) fn remove_claimed(&self, claims: &[Claim]) -> Result<(), BodyError> {
        let mut by_directory: BTreeMap<&str, Vec<&Claim>> = BTreeMap::new();
        for claim in claims {
            by_directory.entry(&claim.subdirectory).or_default().push(claim);
        }
        for (subdirectory, claims) in by_directory {
            let remove = || -> io::Result<()> {
                let top = self.top()?;
                let directory =
                    rustix::fs::openat(&top, subdirectory, super::DIRECTORY, Mode::empty())?;
                for claim in claims {
                    match rustix::fs::unlinkat(&directory, &claim.name, AtFlags::empty()) {
                        Ok(()) | Err(Errno::NOENT) => {}
                        Err(error) => return Err(error.into()),
                    }
                }
                File::from(directory).sync_all()
            };
            let path = self.directory.join(subdirectory);
            remove().map_err(|source| BodyError::File {
                doing: "remove files in",
                path,
                source,
            })?;
        }
        Ok(())
    }
}

impl Claim {
    /// Returns the claimed body; `None` for a content whose storing was interrupted.
    pub(crate) const fn hash(&self) -> Option<Digest> {
        self.hash
    }

    /// Returns whether the file was last written before a time, in nanoseconds since 1970.
    pub(crate) fn is_older_than(&self, time: u64) -> bool {
        let Ok(meta) = self.file.metadata() else { return false };
        let seconds = u64::try_from(meta.mtime()).unwrap_or(0);
        let nanos = u64::try_from(meta.mtime_nsec()).unwrap_or(0);
        seconds.saturating_mul(1_000_000_000).saturating_add(nanos) < time
    }
}

/// Locks a file for a lease, and returns whether the file still has its name.
///
/// A claim is short, so this waits for it.
pub(super) fn share(file: &File) -> io::Result<bool> {
    rustix::io::retry_on_intr(|| rustix::fs::flock(file, FlockOperation::LockShared))?;
    Ok(file.metadata()?.nlink() > 0)
}

/// Locks a file for its removal, and returns whether no process has a lease of it.
fn exclude(file: &File) -> io::Result<bool> {
    match rustix::fs::flock(file, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => Ok(true),
        Err(Errno::WOULDBLOCK | Errno::INTR) => Ok(false),
        Err(error) => Err(error.into()),
    }
}
