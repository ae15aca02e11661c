//! The files of the skill store.
//!
//! ```text
//! $BELLJAR_HOME/skills/               0700
//!                      NAME/          0700
//!                           index     active version, waiting version, approvals, history; JSON
//!                           VERSION   one version: JSON, named by its SHA-256
//! ```
//!
//! All files are opened relative to the directory, and symbolic links are never followed. A file is
//! replaced atomically, after its content is synced to disk. Readers hold a shared lock on the
//! directory and writers an exclusive lock.

use std::fs::File;
use std::io::{self, Read as _, Write as _};
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

use belljar_model::code::SkillName;
use rustix::fs::{AtFlags, Dir, FileType, FlockOperation, Mode, OFlags};
use rustix::io::Errno;

use super::index::Index;
use super::{Skill, SkillError, Version};

const DIR: &str = "skills";
const INDEX: &str = "index";
const NEW: &str = "new";
/// The maximum size of a file in the skill store. JSON needs at most six bytes for one byte of
/// code.
const MAX_FILE: u64 = 8 << 20;

/// The reason why a file of the skill store cannot be read or written.
#[derive(Debug, thiserror::Error)]
pub enum FileError {
    #[error("cannot {doing} {file} of the skill store", file = path.display())]
    File { doing: &'static str, path: PathBuf, source: io::Error },
    #[error("the directory {} belongs to another user or is writable by others", path.display())]
    NotPrivate { path: PathBuf },
}

#[derive(Debug)]
pub(super) struct Files {
    dir: OwnedFd,
    path: PathBuf,
}

/// A held lock on the skill store. Its methods read and write the files.
#[derive(Debug)]
pub(super) struct StoreLock<'a> {
    files: &'a Files,
    _lock: OwnedFd,
}

impl Files {
    pub(super) fn open(home: &Path) -> Result<Self, FileError> {
        let path = home.join(DIR);
        match rustix::fs::mkdir(&path, Mode::RWXU) {
            Ok(()) | Err(Errno::EXIST) => {}
            Err(errno) => return Err(failed("create", &path, errno)),
        }
        let dir = rustix::fs::open(&path, DIRECTORY, Mode::empty());
        let dir = dir.map_err(|errno| failed("open", &path, errno))?;
        let stat = rustix::fs::fstat(&dir).map_err(|errno| failed("stat", &path, errno))?;
        let own = stat.st_uid == rustix::process::geteuid().as_raw();
        if !own || stat.st_mode & 0o022 != 0 {
            return Err(FileError::NotPrivate { path });
        }
        Ok(Self { dir, path })
    }

    /// Waits for the exclusive lock on the skill store.
    pub(super) fn lock(&self) -> Result<StoreLock<'_>, FileError> {
        self.acquire(FlockOperation::LockExclusive)
    }

    /// Waits for the shared lock on the skill store.
    pub(super) fn shared_lock(&self) -> Result<StoreLock<'_>, FileError> {
        self.acquire(FlockOperation::LockShared)
    }

    fn acquire(&self, how: FlockOperation) -> Result<StoreLock<'_>, FileError> {
        // A new descriptor, because flock locks belong to the open file and `self.dir` stays open.
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let lock = rustix::fs::openat(&self.dir, ".", flags, Mode::empty()).and_then(|lock| {
            rustix::io::retry_on_intr(|| rustix::fs::flock(&lock, how))?;
            Ok(lock)
        });
        let lock = lock.map_err(|errno| failed("lock", &self.path, errno))?;
        Ok(StoreLock { files: self, _lock: lock })
    }
}

const DIRECTORY: OFlags =
    OFlags::RDONLY.union(OFlags::DIRECTORY).union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);

impl StoreLock<'_> {
    /// Returns the names of all skills, sorted, including removed ones.
    pub(super) fn names(&self) -> Result<Vec<SkillName>, FileError> {
        let failed = |errno| failed("list", &self.files.path, errno);
        let mut names = Vec::new();
        for entry in Dir::read_from(&self.files.dir).map_err(failed)? {
            let entry = entry.map_err(failed)?;
            let name = entry.file_name().to_str().ok().and_then(|name| name.parse().ok());
            let is_dir = matches!(entry.file_type(), FileType::Directory | FileType::Unknown);
            names.extend(name.filter(|_| is_dir));
        }
        names.sort();
        Ok(names)
    }

    pub(super) fn index(&self, name: &SkillName) -> Result<Option<Index>, SkillError> {
        let Some(dir) = self.dir(name)? else { return Ok(None) };
        // A missing index means that the first save was interrupted, so there is no skill yet.
        let Some(bytes) = self.read(name, &dir, INDEX)? else { return Ok(None) };
        let index = serde_json::from_slice(&bytes);
        index.map(Some).map_err(|error| SkillError::Damaged {
            name: name.clone(),
            what: format!("index: {error}"),
        })
    }

    pub(super) fn put_index(&self, name: &SkillName, index: &Index) -> Result<(), FileError> {
        let bytes = serde_json::to_vec(index).map_err(|error| self.failed("write", name, error))?;
        let dir = self.create_dir(name)?;
        self.replace(name, &dir, INDEX, &bytes)
    }

    pub(super) fn version(&self, name: &SkillName, version: &Version) -> Result<Skill, SkillError> {
        let gone = || SkillError::NoVersion { name: name.clone(), version: version.to_string() };
        let dir = self.dir(name)?.ok_or_else(gone)?;
        let bytes = self.read(name, &dir, version.as_str())?.ok_or_else(gone)?;
        let damaged = |what| SkillError::Damaged { name: name.clone(), what };
        Skill::parse(name, version, &bytes).map_err(damaged)
    }

    pub(super) fn has_version(&self, name: &SkillName, version: &Version) -> bool {
        let found = self.dir(name).ok().flatten().map(|dir| {
            rustix::fs::statat(dir, version.as_str(), AtFlags::SYMLINK_NOFOLLOW).is_ok()
        });
        found.unwrap_or(false)
    }

    pub(super) fn put_version(&self, skill: &Skill) -> Result<Version, SkillError> {
        let bytes = skill.bytes().map_err(|error| self.failed("write", &skill.name, error))?;
        let dir = self.create_dir(&skill.name)?;
        let is_whole =
            self.read(&skill.name, &dir, skill.version.as_str())?.is_some_and(|old| old == bytes);
        if !is_whole {
            self.replace(&skill.name, &dir, skill.version.as_str(), &bytes)?;
        }
        Ok(skill.version.clone())
    }

    /// Deletes unused versions of a skill. A failure is ignored, because a leftover file only uses
    /// disk space.
    pub(super) fn drop_versions(&self, name: &SkillName, versions: &[Version]) {
        let Ok(Some(dir)) = self.dir(name) else { return };
        for version in versions {
            rustix::fs::unlinkat(&dir, version.as_str(), AtFlags::empty()).ok();
        }
    }

    /// Deletes the directory of a skill; returns false if it is missing. Returns false if it is
    /// missing.
    pub(super) fn forget(&self, name: &SkillName) -> Result<bool, FileError> {
        let Some(dir) = self.dir(name)? else { return Ok(false) };
        let failed = |errno| self.failed("remove", name, errno);
        // The index goes first: without it there is no skill, even if other files remain.
        match rustix::fs::unlinkat(&dir, INDEX, AtFlags::empty()) {
            Ok(()) | Err(Errno::NOENT) => {}
            Err(errno) => return Err(failed(errno)),
        }
        for entry in Dir::read_from(&dir).map_err(failed)? {
            let entry = entry.map_err(failed)?;
            if !matches!(entry.file_name().to_bytes(), b"." | b"..") {
                rustix::fs::unlinkat(&dir, entry.file_name(), AtFlags::empty()).map_err(failed)?;
            }
        }
        rustix::fs::unlinkat(&self.files.dir, name.as_str(), AtFlags::REMOVEDIR).map_err(failed)?;
        rustix::fs::fsync(&self.files.dir).map_err(failed)?;
        Ok(true)
    }

    /// Makes space for one more skill by deleting a removed skill without approvals, if needed.
    pub(super) fn make_room(&self, name: &SkillName, most: usize) -> Result<(), SkillError> {
        let names = self.names()?;
        if names.len() < most || names.contains(name) {
            return Ok(());
        }
        for old in &names {
            let idle = |index: &Index| index.is_removed && index.approved.is_empty();
            if self.index(old).is_ok_and(|index| index.as_ref().is_none_or(idle)) {
                self.forget(old)?;
                return Ok(());
            }
        }
        Err(SkillError::TooMany)
    }

    /// Returns whether the skill store uses less than `most` bytes.
    pub(super) fn has_room(&self, most: u64) -> Result<bool, FileError> {
        let mut total = 0_u64;
        for name in self.names()? {
            let Some(dir) = self.dir(&name)? else { continue };
            let failed = |errno| self.failed("list", &name, errno);
            for entry in Dir::read_from(&dir).map_err(failed)? {
                let entry = entry.map_err(failed)?;
                let stat = rustix::fs::statat(&dir, entry.file_name(), AtFlags::SYMLINK_NOFOLLOW);
                let size = stat.map(|stat| u64::try_from(stat.st_size).unwrap_or(0));
                total = total.saturating_add(size.unwrap_or(0));
            }
        }
        Ok(total < most)
    }

    fn dir(&self, name: &SkillName) -> Result<Option<OwnedFd>, FileError> {
        match rustix::fs::openat(&self.files.dir, name.as_str(), DIRECTORY, Mode::empty()) {
            Ok(dir) => Ok(Some(dir)),
            Err(Errno::NOENT) => Ok(None),
            Err(errno) => Err(self.failed("open", name, errno)),
        }
    }

    fn create_dir(&self, name: &SkillName) -> Result<OwnedFd, FileError> {
        match rustix::fs::mkdirat(&self.files.dir, name.as_str(), Mode::RWXU) {
            Ok(()) => {
                let synced = rustix::fs::fsync(&self.files.dir);
                synced.map_err(|errno| self.failed("sync", name, errno))?;
            }
            Err(Errno::EXIST) => {}
            Err(errno) => return Err(self.failed("create", name, errno)),
        }
        self.dir(name)?.ok_or_else(|| self.failed("open", name, Errno::NOENT))
    }

    fn read(
        &self,
        name: &SkillName,
        dir: &OwnedFd,
        file: &str,
    ) -> Result<Option<Vec<u8>>, FileError> {
        // A symbolic link must not be followed, and a pipe must not block.
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let opened = match rustix::fs::openat(dir, file, flags, Mode::empty()) {
            Err(Errno::NOENT) => return Ok(None),
            opened => File::from(opened.map_err(|errno| self.failed("open", name, errno))?),
        };
        let mut bytes = Vec::new();
        let read = opened.take(MAX_FILE).read_to_end(&mut bytes);
        read.map_err(|error| self.failed("read", name, error))?;
        Ok(Some(bytes))
    }

    fn replace(
        &self,
        name: &SkillName,
        dir: &OwnedFd,
        file: &str,
        bytes: &[u8],
    ) -> Result<(), FileError> {
        // A killed writer can leave a temporary file behind. Usually there is none.
        rustix::fs::unlinkat(dir, NEW, AtFlags::empty()).ok();
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
        let written = rustix::fs::openat(dir, NEW, flags, Mode::RUSR | Mode::WUSR)
            .map_err(io::Error::from)
            .and_then(|opened| {
                let mut opened = File::from(opened);
                opened.write_all(bytes)?;
                opened.sync_all()?;
                rustix::fs::renameat(dir, NEW, dir, file)?;
                Ok(rustix::fs::fsync(dir)?)
            });
        written.map_err(|error| self.failed("write", name, error))
    }

    fn failed(
        &self,
        doing: &'static str,
        name: &SkillName,
        source: impl Into<io::Error>,
    ) -> FileError {
        failed(doing, &self.files.path.join(name.as_str()), source)
    }
}

fn failed(doing: &'static str, path: &Path, source: impl Into<io::Error>) -> FileError {
    FileError::File { doing, path: path.to_owned(), source: source.into() }
}
