//! The vault on disk: a directory with a key and one sealed file per secret.
//!
//! ```text
//! $BELLJAR_HOME/vault/           0700
//!                     key        0600, 32 random bytes; missing if the operator has a `key-command`
//!                     NAME.sealed
//! ```
//!
//! Write-only for people: no function returns a value. Files are replaced atomically, after the new
//! file is synced to disk. A change of the vault needs the lock on its directory.

use std::fs::File;
use std::io::{self, Read as _, Write as _};
use std::os::fd::{AsFd as _, OwnedFd};
use std::path::{Path, PathBuf};

use belljar_ledger::Receipt;
use belljar_model::net::SecretName;
use rustix::fs::{AtFlags, FlockOperation, Mode, OFlags};
use rustix::io::Errno;

use super::private::{self, NotPrivate};
use super::sealed::{self, Header, Key, KeyError, KeySource, MAX_FILE};
use super::value::Value;

const DIR: &str = "vault";
const KEY: &str = "key";
const NEW: &str = ".new";
const SEALED: &str = ".sealed";
/// The number of bytes at the start of a secret's file that contain every possible header.
const HEAD: u64 = 512;

/// The vault files in a state directory.
#[derive(Debug)]
pub struct Store {
    dir: OwnedFd,
    path: PathBuf,
}

/// A secret in the vault, as listed: its name and the time at which it was stored. The time is not
/// authenticated before the secret is unsealed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Stored {
    pub name: SecretName,
    /// The time at which the secret was stored, in nanoseconds since 1970; `None` if the file is
    /// damaged.
    pub set_at: Option<u64>,
}

/// An error of reading or writing the files of the vault.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    #[error("cannot {doing} the vault file {file}", file = path.display())]
    File { doing: &'static str, path: PathBuf, source: io::Error },
    #[error("the vault directory {directory} is not private", directory = path.display())]
    NotPrivate { path: PathBuf, source: NotPrivate },
    #[error(transparent)]
    Key(#[from] KeyError),
    #[error(
        "the key {} is missing, and {} cannot be opened without it; restore the key, or remove these secrets with `belljar secret rm`",
        path.display(), names.join(", ")
    )]
    KeyGone { path: PathBuf, names: Vec<String> },
    #[error("the random number generator of the system failed")]
    Random,
    #[error("the secret {name} was set again or removed in the meantime")]
    Overtaken { name: SecretName },
    #[error("the new file of secret {name} is not a successor of the stored one")]
    NoSuccessor { name: SecretName },
}

/// An encrypted secret that is on disk but not yet in force. Dropping it removes the file.
#[derive(Debug)]
#[must_use]
pub struct Prepared<'a> {
    store: &'a Store,
    _lock: VaultLock,
    name: SecretName,
    is_placed: bool,
}

/// A lock on the vault's directory.
#[derive(Debug)]
struct VaultLock(#[expect(dead_code, reason = "closing the descriptor releases the lock")] OwnedFd);

impl Store {
    /// Opens the vault of a state directory; `None` if no secret was ever set.
    pub fn open(home: &Path) -> Result<Option<Self>, StoreError> {
        let path = home.join(DIR);
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let dir = match rustix::fs::open(&path, flags, Mode::empty()) {
            Err(Errno::NOENT) => return Ok(None),
            opened => opened.map_err(|errno| file("open", &path, errno))?,
        };
        let stat =
            rustix::fs::fstat(&dir).map_err(|errno| file("read the mode of", &path, errno))?;
        private::check_owner_and_mode(
            stat.st_uid,
            rustix::process::geteuid().as_raw(),
            stat.st_mode,
        )
        .map_err(|source| StoreError::NotPrivate { path: path.clone(), source })?;
        Ok(Some(Self { dir, path }))
    }

    /// Opens the vault, and creates it if it is missing.
    pub fn create(home: &Path) -> Result<Self, StoreError> {
        let path = home.join(DIR);
        match rustix::fs::mkdir(&path, Mode::RWXU) {
            Ok(()) | Err(Errno::EXIST) => {}
            Err(errno) => return Err(file("create", &path, errno)),
        }
        let missing = || file("open", &path, Errno::NOENT);
        Self::open(home)?.ok_or_else(missing)
    }

    /// Lists all secrets of the vault, sorted by name.
    pub fn list(&self) -> Result<Vec<Stored>, StoreError> {
        let failed = |errno| file("list", &self.path, errno);
        let mut stored = Vec::new();
        for entry in rustix::fs::Dir::read_from(&self.dir).map_err(failed)? {
            let entry = entry.map_err(failed)?;
            let name = entry.file_name().to_str().ok().and_then(|name| name.strip_suffix(SEALED));
            let Some(Ok(name)) = name.map(str::parse::<SecretName>) else { continue };
            let set_at = self.set_at(&name)?;
            stored.push(Stored { name, set_at });
        }
        stored.sort_by(|left, right| left.name.cmp(&right.name));
        Ok(stored)
    }

    fn set_at(&self, name: &SecretName) -> Result<Option<u64>, StoreError> {
        Ok(self.header(name)?.map(|header| header.set_at))
    }

    /// Returns the header of a secret's file; `None` if the file is missing or damaged.
    fn header(&self, name: &SecretName) -> Result<Option<Header>, StoreError> {
        let Some(opened) = self.file(name)? else { return Ok(None) };
        let mut head = Vec::new();
        let read = opened.take(HEAD).read_to_end(&mut head);
        read.map_err(|error| self.failed("read", &file_of(name), error))?;
        Ok(sealed::parse(name, &head).ok().map(|(header, _)| header))
    }

    /// Opens the file of an encrypted secret, if it exists.
    pub fn file(&self, name: &SecretName) -> Result<Option<File>, StoreError> {
        self.read(&file_of(name))
    }

    /// Opens the key file of the vault, if it exists.
    pub fn key_file(&self) -> Result<Option<File>, StoreError> {
        self.read(KEY)
    }

    /// Returns the vault key that the key file contains. Creates the key if the vault contains no
    /// secret yet.
    pub fn key(&self) -> Result<Key, StoreError> {
        let _lock = self.lock()?;
        if let Some(found) = self.key_file()? {
            return Ok(Key::read(KeySource::File, &found)?);
        }
        let sealed = self.list()?;
        if !sealed.is_empty() {
            let names = sealed.iter().map(|stored| stored.name.to_string()).collect();
            return Err(StoreError::KeyGone { path: self.path.join(KEY), names });
        }
        let key = Key::generate()?;
        self.write_new(KEY, key.bytes())?;
        self.place(KEY)?;
        Ok(key)
    }

    /// Encrypts a value and writes it to disk; the old file stays in force until
    /// [`Prepared::place`].
    pub fn prepare(
        &self,
        key: &Key,
        name: &SecretName,
        value: &Value,
        now: u64,
    ) -> Result<Prepared<'_>, StoreError> {
        let lock = self.lock()?;
        let bytes = sealed::seal(key, name, value, now).ok_or(StoreError::Random)?;
        self.write_new(&file_of(name), &bytes)?;
        Ok(Prepared { store: self, _lock: lock, name: name.clone(), is_placed: false })
    }

    /// Writes an already encrypted secret to disk, to replace the one that was stored at
    /// `replaces`.
    ///
    /// The secret was sealed from the old value. A secret that the operator set or removed since
    /// then stays as it is, and the new file must be sealed with the same key.
    pub fn prepare_sealed(
        &self,
        name: &SecretName,
        file: &[u8],
        replaces: u64,
    ) -> Result<Prepared<'_>, StoreError> {
        let lock = self.lock()?;
        let old = self.header(name)?.filter(|old| old.set_at == replaces);
        let old = old.ok_or_else(|| StoreError::Overtaken { name: name.clone() })?;
        let is_short = u64::try_from(file.len()).is_ok_and(|length| length <= MAX_FILE);
        let is_next = sealed::parse(name, file).is_ok_and(|(new, _)| new.follows(&old));
        if !(is_short && is_next) {
            return Err(StoreError::NoSuccessor { name: name.clone() });
        }
        self.write_new(&file_of(name), file)?;
        Ok(Prepared { store: self, _lock: lock, name: name.clone(), is_placed: false })
    }

    /// Removes a secret, after the removal is recorded; returns false if the secret is missing.
    pub fn remove(&self, name: &SecretName, _recorded: &Receipt) -> Result<bool, StoreError> {
        let _lock = self.lock()?;
        match rustix::fs::unlinkat(&self.dir, file_of(name), AtFlags::empty()) {
            Ok(()) => self.sync().map(|()| true),
            Err(Errno::NOENT) => Ok(false),
            Err(errno) => Err(self.failed("remove", &file_of(name), errno)),
        }
    }

    fn read(&self, name: &str) -> Result<Option<File>, StoreError> {
        // A symbolic link must not be followed, and a pipe must not block.
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        match rustix::fs::openat(&self.dir, name, flags, Mode::empty()) {
            Ok(opened) => Ok(Some(File::from(opened))),
            Err(Errno::NOENT) => Ok(None),
            Err(errno) => Err(self.failed("open", name, errno)),
        }
    }

    /// Waits for the exclusive lock of the vault.
    fn lock(&self) -> Result<VaultLock, StoreError> {
        // Opened again, because a lock belongs to the open file description, and `self.dir` stays
        // open.
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let locked = rustix::fs::openat(&self.dir, ".", flags, Mode::empty()).and_then(|dir| {
            rustix::fs::flock(&dir, FlockOperation::LockExclusive)?;
            Ok(VaultLock(dir))
        });
        locked.map_err(|errno| file("lock", &self.path, errno))
    }

    /// Writes the file `name.new` of the vault and syncs it to disk. The caller must hold the lock.
    fn write_new(&self, name: &str, bytes: &[u8]) -> Result<(), StoreError> {
        let new = format!("{name}{NEW}");
        // A process that was killed while writing can have left a file.
        self.remove_new(name);
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
        let written = rustix::fs::openat(&self.dir, &new, flags, Mode::RUSR | Mode::WUSR)
            .map_err(io::Error::from)
            .and_then(|opened| {
                let mut opened = File::from(opened);
                opened.write_all(bytes)?;
                opened.sync_all()
            });
        written.map_err(|error| {
            self.remove_new(name);
            self.failed("write", &new, error)
        })
    }

    fn remove_new(&self, name: &str) {
        let new = format!("{name}{NEW}");
        rustix::fs::unlinkat(&self.dir, new, AtFlags::empty()).ok(); // usually it does not exist
    }

    /// Renames the file `name.new` of the vault to `name`.
    fn place(&self, name: &str) -> Result<(), StoreError> {
        rustix::fs::renameat(&self.dir, format!("{name}{NEW}"), &self.dir, name)
            .map_err(|errno| self.failed("replace", name, errno))?;
        self.sync()
    }

    fn sync(&self) -> Result<(), StoreError> {
        rustix::fs::fsync(self.dir.as_fd()).map_err(|errno| file("sync", &self.path, errno))
    }

    fn failed(&self, doing: &'static str, name: &str, source: impl Into<io::Error>) -> StoreError {
        file(doing, &self.path.join(name), source)
    }
}

impl Prepared<'_> {
    /// Puts the prepared secret in force, after the change was recorded.
    pub fn place(mut self, _recorded: &Receipt) -> Result<(), StoreError> {
        self.store.place(&file_of(&self.name))?;
        self.is_placed = true;
        Ok(())
    }
}

impl Drop for Prepared<'_> {
    fn drop(&mut self) {
        if !self.is_placed {
            self.store.remove_new(&file_of(&self.name));
        }
    }
}

fn file_of(name: &SecretName) -> String {
    format!("{name}{SEALED}")
}

fn file(doing: &'static str, path: &Path, source: impl Into<io::Error>) -> StoreError {
    StoreError::File { doing, path: path.to_owned(), source: source.into() }
}

#[cfg(test)]
mod tests;
