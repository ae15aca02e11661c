//! The store of body contents, each in a file named by its commitment.
//!
//! File names come from [`Digest`] alone and no symbolic link is followed, so no file outside
//! `bodies/` is ever read, written or removed. Access to a content requires its salt.

use std::fs::File;
use std::io::{self, Read, Write};
use std::path::PathBuf;

use rustix::fs::{AtFlags, Mode, OFlags};
use rustix::io::Errno;
use sha2::{Digest as _, Sha256};

use crate::body::{Body, Lease, Salt};
use crate::digest::Digest;
use crate::index::Index;
use crate::paths::LedgerPaths;
use crate::random;
use crate::salts::{Kept, Reading};

mod claim;
mod file;
mod list;

#[cfg(test)]
mod tests;

pub(crate) use claim::Claim;
use file::{CopyError, FileFault, WriteError};
pub(crate) use list::Found;
pub use list::Usage;

/// The stored bodies of one ledger.
#[derive(Debug, Clone)]
pub(crate) struct Bodies {
    directory: PathBuf,
}

/// A body with the commitment, size and salt that its content must match.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Wanted {
    pub(crate) hash: Digest,
    /// The size in the event that references the body.
    pub(crate) size: u64,
    pub(crate) salt: Salt,
}

/// The state of a stored body.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Condition {
    Whole,
    Missing,
    Damaged { why: &'static str },
}

/// Why a body was not stored, read or removed.
#[derive(Debug, thiserror::Error)]
pub enum BodyError {
    #[error("{doing} {}", path.display())]
    File { doing: &'static str, path: PathBuf, source: io::Error },
    #[error("cannot read the content to store")]
    Content { source: io::Error },
    #[error("cannot get random bytes from the kernel")]
    Random { source: Errno },
    #[error("cannot write the content of {hash}")]
    Out { hash: Digest, source: io::Error },
    #[error("the content of {hash} is missing")]
    Missing { hash: Digest },
    #[error("the stored content of {hash} is damaged: {why}")]
    Damaged { hash: Digest, why: &'static str },
}

const DIRECTORY: OFlags = OFlags::DIRECTORY.union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);
/// The prefix of the name of an unfinished file, before 32 digits.
const UNFINISHED: &str = "new-";
const CONTENT: &[u8] = b"belljar content 1\0";

impl Bodies {
    pub(crate) fn open(paths: &LedgerPaths) -> Self {
        Self { directory: paths.bodies() }
    }

    /// Stores a content and returns after it is on disk.
    pub(crate) fn keep(&self, content: &mut dyn Read, salt: Salt) -> Result<Body, BodyError> {
        let making = self.make(content, salt, None)?;
        making.finish()
    }

    /// Stores a content, or returns the existing body if the same content is stored for the same
    /// scope.
    ///
    /// The existing body has no salt here, because its salt is already recorded. The scope covers
    /// all settings that decide who can see the content: without the scope, a shared commitment
    /// would reveal to one run that a run with another policy had the same content.
    pub(crate) fn keep_once(
        &self,
        index: &Index,
        salts: &Reading,
        scope: Digest,
        content: &mut dyn Read,
    ) -> Result<Body, BodyError> {
        let salt = Salt::random().map_err(|source| BodyError::Random { source })?;
        // The index only saves space here: the content is stored even if the index fails.
        let Ok(secret) = index.secret() else { return self.keep(content, salt) };
        let mut name = Sha256::new_with_prefix(CONTENT);
        name.update(secret);
        let making = self.make(content, salt, Some(&mut name))?;
        let id = Digest::new(name.finalize().into());
        if let Ok(Some((hash, size))) = index.content(scope, id)
            && size == making.body.size()
            // A salt that is missing in the salt file cannot be recovered, so its body is not
            // shared.
            && let Ok(Some(Kept::Salt(salt))) = index.salt(salts, hash)
            && let Some(lease) = self.borrow(&Wanted { hash, size, salt })
        {
            return Ok(Body::named(hash, size, true).with_lease(lease));
        }
        let body = making.finish()?;
        index.remember_content(scope, id, (body.hash(), body.size())).ok();
        Ok(body)
    }

    /// Writes the content of a body to `out` after checking all of it.
    pub(crate) fn read(&self, wanted: &Wanted, out: &mut dyn Write) -> Result<(), BodyError> {
        let hash = wanted.hash;
        let fault = |fault| match fault {
            FileFault::File(source) => self.failed("read", hash, source),
            FileFault::Damaged(why) => BodyError::Damaged { hash, why },
        };
        let file = match self.find(hash)? {
            Finding::Body(file) => file,
            Finding::Missing => return Err(BodyError::Missing { hash }),
            Finding::Strange(why) => return Err(BodyError::Damaged { hash, why }),
        };
        let checked = file::check(&file, wanted).map_err(fault)?;
        checked.write_to(wanted.size, out).map_err(|error| match error {
            CopyError::Out(source) => BodyError::Out { hash, source },
            CopyError::FileFault(error) => fault(error),
        })
    }

    /// Reads and checks a whole content, and returns its state.
    pub(crate) fn check(&self, wanted: &Wanted) -> Result<Condition, BodyError> {
        self.condition_of(wanted.hash, |file| file::check(file, wanted).map(drop))
    }

    /// Checks the file of a body without its salt: the file is as written, but can be of another
    /// body.
    pub(crate) fn check_outside(&self, hash: Digest, size: u64) -> Result<Condition, BodyError> {
        self.condition_of(hash, |file| file::check_outside(file, hash, size).map(drop))
    }

    fn condition_of(
        &self,
        hash: Digest,
        check: impl FnOnce(&File) -> Result<(), FileFault>,
    ) -> Result<Condition, BodyError> {
        let file = match self.find(hash)? {
            Finding::Body(file) => file,
            Finding::Missing => return Ok(Condition::Missing),
            Finding::Strange(why) => return Ok(Condition::Damaged { why }),
        };
        match check(&file) {
            Ok(()) => Ok(Condition::Whole),
            Err(FileFault::Damaged(why)) => Ok(Condition::Damaged { why }),
            Err(FileFault::File(source)) => Err(self.failed("read", hash, source)),
        }
    }

    /// Returns whether a content of this name exists, without checking it.
    pub(crate) fn has(&self, hash: Digest) -> bool {
        matches!(self.find(hash), Ok(Finding::Body(_)))
    }

    /// Removes a content even if a process holds a lease, waits for the disk and returns whether the
    /// content existed.
    pub(crate) fn remove(&self, hash: Digest) -> Result<bool, BodyError> {
        let removed = self.subdirectory(hash).and_then(|subdirectory| {
            rustix::fs::unlinkat(&subdirectory, name(hash), AtFlags::empty())?;
            subdirectory.sync_all()
        });
        match removed {
            Ok(()) => Ok(true),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
            Err(source) => Err(self.failed("remove", hash, source)),
        }
    }

    fn make(
        &self,
        content: &mut dyn Read,
        salt: Salt,
        also: Option<&mut Sha256>,
    ) -> Result<Making<'_>, BodyError> {
        let failed =
            |doing| move |source| BodyError::File { doing, path: self.directory.clone(), source };
        let (file, unfinished) = loop {
            let directory = self.make_directory().map_err(failed("make"))?;
            let random: [u8; 16] =
                random::bytes().map_err(|source| BodyError::Random { source })?;
            let name = format!("{UNFINISHED}{:032x}", u128::from_be_bytes(random));
            let flags =
                OFlags::RDWR | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
            let file = rustix::fs::openat(&directory, &name, flags, Mode::RUSR | Mode::WUSR)
                .map_err(io::Error::from)
                .map_err(failed("create a file in"))?;
            let (file, unfinished) = (File::from(file), Unfinished { directory, name });
            // Another process can have removed the file before it was locked.
            if claim::share(&file).map_err(failed("lock a file in"))? {
                break (file, unfinished);
            }
        };
        let body = file::write(&file, content, salt, also).map_err(|error| match error {
            WriteError::Content(source) => BodyError::Content { source },
            WriteError::File(source) => failed("write to a file in")(source),
        })?;
        Ok(Making { bodies: self, file, unfinished, body })
    }

    fn make_directory(&self) -> io::Result<File> {
        match rustix::fs::mkdir(&self.directory, Mode::RWXU) {
            Ok(()) => {
                let parent = self.directory.parent().map(File::open).transpose()?;
                parent.map_or(Ok(()), |parent| parent.sync_all())?;
            }
            Err(Errno::EXIST) => {}
            Err(error) => return Err(error.into()),
        }
        self.top()
    }

    fn top(&self) -> io::Result<File> {
        Ok(rustix::fs::open(&self.directory, DIRECTORY, Mode::empty())?.into())
    }

    /// Opens the subdirectory for bodies whose hash has the same first digits.
    fn subdirectory(&self, hash: Digest) -> io::Result<File> {
        let top = self.top()?;
        Ok(rustix::fs::openat(&top, subdirectory_name(hash), DIRECTORY, Mode::empty())?.into())
    }

    fn find(&self, hash: Digest) -> Result<Finding, BodyError> {
        // A pipe in place of a body must not block.
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let opened = self.subdirectory(hash).and_then(|subdirectory| {
            let file =
                File::from(rustix::fs::openat(&subdirectory, name(hash), flags, Mode::empty())?);
            let is_file = file.metadata()?.is_file();
            Ok((file, is_file))
        });
        match opened {
            Ok((file, true)) => Ok(Finding::Body(file)),
            Ok((_, false)) => Ok(Finding::Strange("the path is not a regular file")),
            Err(error) => match Errno::from_io_error(&error) {
                Some(Errno::NOENT) => Ok(Finding::Missing),
                Some(Errno::LOOP | Errno::NOTDIR | Errno::NXIO) => Ok(Finding::Strange(
                    "the path is not a regular file, or its parent is not a directory",
                )),
                _ => Err(self.failed("open", hash, error)),
            },
        }
    }

    fn failed(&self, doing: &'static str, hash: Digest, source: io::Error) -> BodyError {
        let path = self.directory.join(subdirectory_name(hash)).join(name(hash));
        BodyError::File { doing, path, source }
    }
}

/// The kind of file found at the path of a body.
enum Finding {
    Body(File),
    Missing,
    Strange(&'static str),
}

/// A written body whose file has no final name yet.
struct Making<'b> {
    bodies: &'b Bodies,
    file: File,
    unfinished: Unfinished,
    body: Body,
}

/// A temporary file that is removed on drop unless it was renamed.
struct Unfinished {
    directory: File,
    name: String,
}

impl Making<'_> {
    /// Waits for the disk, renames the file to its final name and returns the body with a lease.
    fn finish(self) -> Result<Body, BodyError> {
        let hash = self.body.hash();
        self.name(hash).map_err(|source| self.bodies.failed("write", hash, source))?;
        Ok(self.body.with_lease(Lease::new(self.file)))
    }

    fn name(&self, hash: Digest) -> io::Result<()> {
        self.file.sync_all()?;
        let top = &self.unfinished.directory;
        match rustix::fs::mkdirat(top, subdirectory_name(hash), Mode::RWXU) {
            Ok(()) => top.sync_all()?,
            Err(Errno::EXIST) => {}
            Err(error) => return Err(error.into()),
        }
        let subdirectory = self.bodies.subdirectory(hash)?;
        rustix::fs::renameat(top, &self.unfinished.name, &subdirectory, name(hash))?;
        subdirectory.sync_all()
    }
}

impl Drop for Unfinished {
    fn drop(&mut self) {
        // Fails if the body got its final name, which is fine.
        rustix::fs::unlinkat(&self.directory, &self.name, AtFlags::empty()).ok();
    }
}

fn subdirectory_name(hash: Digest) -> String {
    hash.to_string().chars().take(2).collect()
}

fn name(hash: Digest) -> String {
    hash.to_string().chars().skip(2).collect()
}
