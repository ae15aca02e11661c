//! The files of skills.
//!
//! ```text
//! $BELLJAR_HOME/skills/               0700
//!                      NAME/          0700
//!                           index     what is in force, what waits, what was approved; JSON
//!                           VERSION   one version: JSON whose SHA-256 is its name
//! ```
//!
//! Everything is opened beneath the directory and never through a link. A file is replaced whole or
//! not at all, and only after it is on the disk. Who changes something holds a lock on the directory.

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
/// A version in JSON is longer than its code, by six at the very most.
const MAX_FILE: u64 = 8 << 20;

/// What went wrong with the files.
#[derive(Debug, thiserror::Error)]
pub enum FileError {
    #[error("{doing} {}", path.display())]
    File { doing: &'static str, path: PathBuf, source: io::Error },
    #[error("the directory {} belongs to another user, or others may write to it", path.display())]
    NotPrivate { path: PathBuf },
}

#[derive(Debug)]
pub(super) struct Files {
    dir: OwnedFd,
    path: PathBuf,
}

/// The lock on the directory, and with it the right to read or to change.
#[derive(Debug)]
pub(super) struct Turn<'a> {
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
        let stat = rustix::fs::fstat(&dir).map_err(|errno| failed("look at", &path, errno))?;
        let own = stat.st_uid == rustix::process::geteuid().as_raw();
        if !own || stat.st_mode & 0o022 != 0 {
            return Err(FileError::NotPrivate { path });
        }
        Ok(Self { dir, path })
    }

    /// Waits until nobody else reads or changes.
    pub(super) fn turn(&self) -> Result<Turn<'_>, FileError> {
        self.locked(FlockOperation::LockExclusive)
    }

    /// Waits until nobody changes.
    pub(super) fn read_turn(&self) -> Result<Turn<'_>, FileError> {
        self.locked(FlockOperation::LockShared)
    }

    fn locked(&self, how: FlockOperation) -> Result<Turn<'_>, FileError> {
        // Opened anew, since a lock belongs to what was opened, and `self.dir` stays.
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let lock = rustix::fs::openat(&self.dir, ".", flags, Mode::empty()).and_then(|lock| {
            rustix::io::retry_on_intr(|| rustix::fs::flock(&lock, how))?;
            Ok(lock)
        });
        let lock = lock.map_err(|errno| failed("lock", &self.path, errno))?;
        Ok(Turn { files: self, _lock: lock })
    }
}

const DIRECTORY: OFlags =
    OFlags::RDONLY.union(OFlags::DIRECTORY).union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);

impl Turn<'_> {
    /// All names that there are, sorted; those of deleted skills as well.
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
        // Without an index there is nothing yet: whoever made the directory was stopped.
        let Some(bytes) = self.read(name, &dir, INDEX)? else { return Ok(None) };
        let index = serde_json::from_slice(&bytes);
        index.map(Some).map_err(|error| SkillError::Damaged {
            name: name.clone(),
            what: format!("index: {error}"),
        })
    }

    pub(super) fn put_index(&self, name: &SkillName, index: &Index) -> Result<(), FileError> {
        let bytes = serde_json::to_vec(index).map_err(|error| self.failed("write", name, error))?;
        let dir = self.made_dir(name)?;
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
        let dir = self.made_dir(&skill.name)?;
        let is_whole =
            self.read(&skill.name, &dir, skill.version.as_str())?.is_some_and(|old| old == bytes);
        if !is_whole {
            self.replace(&skill.name, &dir, skill.version.as_str(), &bytes)?;
        }
        Ok(skill.version.clone())
    }

    /// Removes versions that nothing names any more; that one stays costs only room.
    pub(super) fn drop_versions(&self, name: &SkillName, versions: &[Version]) {
        let Ok(Some(dir)) = self.dir(name) else { return };
        for version in versions {
            rustix::fs::unlinkat(&dir, version.as_str(), AtFlags::empty()).ok(); // see above
        }
    }

    /// Removes all that is known of a skill; false if there is nothing.
    pub(super) fn forget(&self, name: &SkillName) -> Result<bool, FileError> {
        let Some(dir) = self.dir(name)? else { return Ok(false) };
        let failed = |errno| self.failed("remove", name, errno);
        // The index first: without it there is no skill, whatever else is left.
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

    /// Makes sure that one more name can be: of deleted skills, those go first for which nothing was
    /// ever approved.
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

    /// Whether less than so many bytes are taken up.
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

    fn made_dir(&self, name: &SkillName) -> Result<OwnedFd, FileError> {
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
        // Neither a link nor a pipe in its place may lead elsewhere or wait.
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
        // Whoever was killed while writing may have left one.
        rustix::fs::unlinkat(dir, NEW, AtFlags::empty()).ok(); // usually there is none
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
