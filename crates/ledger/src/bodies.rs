//! Contents that were kept, each in a file named by its commitment.
//!
//! Names come from [`Digest`] alone and no link is followed, so nothing outside `bodies/` is ever
//! read, written or removed. Who may see a content is decided by whoever has its salt.

use std::fs::File;
use std::io::{self, Read, Write};
use std::path::PathBuf;

use rustix::fs::{AtFlags, Mode, OFlags};
use rustix::io::Errno;
use sha2::{Digest as _, Sha256};

use crate::body::{Body, Salt};
use crate::digest::Digest;
use crate::index::Index;
use crate::paths::LedgerPaths;
use crate::random;
use crate::salts::{Kept, Reading};

mod file;
mod list;

#[cfg(test)]
mod tests;

use file::{Unfit, Unwritten, WriteOut};
#[cfg(test)]
pub(crate) use list::Found;
pub use list::Usage;

/// The kept bodies of one ledger.
#[derive(Debug, Clone)]
pub(crate) struct Bodies {
    directory: PathBuf,
}

/// A body with everything that its content must fit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Wanted {
    pub(crate) hash: Digest,
    /// As the event says that names it.
    pub(crate) size: u64,
    pub(crate) salt: Salt,
}

/// How it stands with a body.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Condition {
    Whole,
    Missing,
    Damaged { why: &'static str },
}

/// Why a body was not kept, read or removed.
#[derive(Debug, thiserror::Error)]
pub enum BodyError {
    #[error("{doing} {}", path.display())]
    File { doing: &'static str, path: PathBuf, source: io::Error },
    #[error("read the content that is to be kept")]
    Content { source: io::Error },
    #[error("draw a random number")]
    Random { source: Errno },
    #[error("write the content of {hash}")]
    Out { hash: Digest, source: io::Error },
    #[error("the content of {hash} is not there")]
    Missing { hash: Digest },
    #[error("the kept content of {hash} is damaged: {why}")]
    Damaged { hash: Digest, why: &'static str },
}

const DIRECTORY: OFlags = OFlags::DIRECTORY.union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);
/// What an unfinished file is called: this and 32 digits.
const UNFINISHED: &str = "new-";
const CONTENT: &[u8] = b"belljar content 1\0";

impl Bodies {
    pub(crate) fn open(paths: &LedgerPaths) -> Self {
        Self { directory: paths.bodies() }
    }

    /// Keeps a content; on disk when this returns.
    pub(crate) fn keep(&self, content: &mut dyn Read, salt: Salt) -> Result<Body, BodyError> {
        let making = self.make(content, salt, None)?;
        making.finish()
    }

    /// Keeps a content unless the same was kept for the same scope already. Then the body that is
    /// named is that one; it has no salt here, because its salt is on record.
    ///
    /// The scope is everything that decides who may see the content: without it, somebody could
    /// learn from a shared commitment what another policy's run had sent.
    pub(crate) fn keep_once(
        &self,
        index: &Index,
        salts: &Reading,
        scope: Digest,
        content: &mut dyn Read,
    ) -> Result<Body, BodyError> {
        let salt = Salt::random().map_err(|source| BodyError::Random { source })?;
        // The index only saves space here: whatever is wrong with it, the content is kept.
        let Ok(secret) = index.secret() else { return self.keep(content, salt) };
        let mut name = Sha256::new_with_prefix(CONTENT);
        name.update(secret);
        let making = self.make(content, salt, Some(&mut name))?;
        let id = Digest::new(name.finalize().into());
        if let Ok(Some((hash, size))) = index.content(scope, id)
            && size == making.body.size()
            // A salt that is not on record, or not any more, is lost with whoever drew it.
            && let Ok(Some(Kept::Salt(salt))) = index.salt(salts, hash)
            && matches!(self.check(&Wanted { hash, size, salt }), Ok(Condition::Whole))
        {
            return Ok(Body::named(hash, size, true));
        }
        let body = making.finish()?;
        index.remember_content(scope, id, (body.hash(), body.size())).ok();
        Ok(body)
    }

    /// Writes a content; nothing of it before all of it was checked.
    pub(crate) fn read(&self, wanted: &Wanted, out: &mut dyn Write) -> Result<(), BodyError> {
        let hash = wanted.hash;
        let unfit = |unfit| match unfit {
            Unfit::File(source) => self.failed("read", hash, source),
            Unfit::Damaged(why) => BodyError::Damaged { hash, why },
        };
        let file = match self.find(hash)? {
            Finding::Body(file) => file,
            Finding::Missing => return Err(BodyError::Missing { hash }),
            Finding::Strange(why) => return Err(BodyError::Damaged { hash, why }),
        };
        let checked = file::check(&file, wanted).map_err(unfit)?;
        checked.write_to(wanted.size, out).map_err(|error| match error {
            WriteOut::Out(source) => BodyError::Out { hash, source },
            WriteOut::Unfit(error) => unfit(error),
        })
    }

    /// Reads a content through and tells how it stands with it.
    pub(crate) fn check(&self, wanted: &Wanted) -> Result<Condition, BodyError> {
        self.judge(wanted.hash, |file| file::check(file, wanted).map(drop))
    }

    /// The same without the salt: whether the file is what was written, not whether that is the body.
    pub(crate) fn check_outside(&self, hash: Digest, size: u64) -> Result<Condition, BodyError> {
        self.judge(hash, |file| file::check_outside(file, hash, size).map(drop))
    }

    fn judge(
        &self,
        hash: Digest,
        check: impl FnOnce(&File) -> Result<(), Unfit>,
    ) -> Result<Condition, BodyError> {
        let file = match self.find(hash)? {
            Finding::Body(file) => file,
            Finding::Missing => return Ok(Condition::Missing),
            Finding::Strange(why) => return Ok(Condition::Damaged { why }),
        };
        match check(&file) {
            Ok(()) => Ok(Condition::Whole),
            Err(Unfit::Damaged(why)) => Ok(Condition::Damaged { why }),
            Err(Unfit::File(source)) => Err(self.failed("read", hash, source)),
        }
    }

    /// Whether there is a content of this name, whatever is in it.
    pub(crate) fn has(&self, hash: Digest) -> bool {
        matches!(self.find(hash), Ok(Finding::Body(_)))
    }

    /// Removes a content and waits for the disk; whether it was there.
    pub(crate) fn remove(&self, hash: Digest) -> Result<bool, BodyError> {
        let removed = self.shelf(hash).and_then(|shelf| {
            rustix::fs::unlinkat(&shelf, name(hash), AtFlags::empty())?;
            shelf.sync_all()
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
        let directory = self.make_directory().map_err(failed("make"))?;
        let random: [u8; 16] = random::bytes().map_err(|source| BodyError::Random { source })?;
        let name = format!("{UNFINISHED}{:032x}", u128::from_be_bytes(random));
        let flags =
            OFlags::RDWR | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let file = rustix::fs::openat(&directory, &name, flags, Mode::RUSR | Mode::WUSR)
            .map_err(io::Error::from)
            .map_err(failed("make a file in"))?;
        let unfinished = Unfinished { directory, name };
        let file = File::from(file);
        let body = file::write(&file, content, salt, also).map_err(|error| match error {
            Unwritten::Content(source) => BodyError::Content { source },
            Unwritten::File(source) => failed("write to a file in")(source),
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

    /// The directory that holds the bodies whose hash begins as this one does.
    fn shelf(&self, hash: Digest) -> io::Result<File> {
        let top = self.top()?;
        Ok(rustix::fs::openat(&top, shelf_name(hash), DIRECTORY, Mode::empty())?.into())
    }

    fn find(&self, hash: Digest) -> Result<Finding, BodyError> {
        // A pipe in the place of a body must not be waited for.
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let opened = self.shelf(hash).and_then(|shelf| {
            let file = File::from(rustix::fs::openat(&shelf, name(hash), flags, Mode::empty())?);
            let is_file = file.metadata()?.is_file();
            Ok((file, is_file))
        });
        match opened {
            Ok((file, true)) => Ok(Finding::Body(file)),
            Ok((_, false)) => Ok(Finding::Strange("it is no file")),
            Err(error) => match Errno::from_io_error(&error) {
                Some(Errno::NOENT) => Ok(Finding::Missing),
                Some(Errno::LOOP | Errno::NOTDIR | Errno::NXIO) => {
                    Ok(Finding::Strange("it is no file, or stands in no directory"))
                }
                _ => Err(self.failed("open", hash, error)),
            },
        }
    }

    fn failed(&self, doing: &'static str, hash: Digest, source: io::Error) -> BodyError {
        let path = self.directory.join(shelf_name(hash)).join(name(hash));
        BodyError::File { doing, path, source }
    }
}

/// What stands where a body should.
enum Finding {
    Body(File),
    Missing,
    Strange(&'static str),
}

/// A body that has no name yet.
struct Making<'b> {
    bodies: &'b Bodies,
    file: File,
    unfinished: Unfinished,
    body: Body,
}

/// A file that goes away unless it gets its name.
struct Unfinished {
    directory: File,
    name: String,
}

impl Making<'_> {
    /// Waits for the disk and gives the file its name.
    fn finish(self) -> Result<Body, BodyError> {
        let hash = self.body.hash();
        self.name(hash).map_err(|source| self.bodies.failed("write", hash, source))?;
        Ok(self.body)
    }

    fn name(&self, hash: Digest) -> io::Result<()> {
        self.file.sync_all()?;
        let top = &self.unfinished.directory;
        match rustix::fs::mkdirat(top, shelf_name(hash), Mode::RWXU) {
            Ok(()) => top.sync_all()?,
            Err(Errno::EXIST) => {}
            Err(error) => return Err(error.into()),
        }
        let shelf = self.bodies.shelf(hash)?;
        rustix::fs::renameat(top, &self.unfinished.name, &shelf, name(hash))?;
        shelf.sync_all()
    }
}

impl Drop for Unfinished {
    fn drop(&mut self) {
        // Not there any more when the body got its name.
        rustix::fs::unlinkat(&self.directory, &self.name, AtFlags::empty()).ok();
    }
}

fn shelf_name(hash: Digest) -> String {
    hash.to_string().chars().take(2).collect()
}

fn name(hash: Digest) -> String {
    hash.to_string().chars().skip(2).collect()
}
