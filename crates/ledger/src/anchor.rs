//! The anchor of a ledger, stored apart from it: its keys and its newest signed checkpoint.

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use crate::checkpoint::Checkpoint;
use crate::digest::Digest;
use crate::frame::LedgerId;
use crate::head::{self, Head};
use crate::merkle::Frontier;
use crate::note::{SigningKey, VerifyingKey};
use crate::paths::LedgerPaths;
use crate::random;

/// The anchor of one ledger, open for signing.
#[derive(Debug)]
pub(crate) struct Anchor {
    key: SigningKey,
    head: File,
    origin: String,
}

/// Why the anchor is missing or unusable.
#[derive(Debug, thiserror::Error)]
pub enum AnchorError {
    #[error("cannot read or write {}", path.display())]
    File { path: PathBuf, source: io::Error },
    #[error("{} is not a valid signing key of a ledger", path.display())]
    Key { path: PathBuf },
    #[error("{} is missing or has a line that is not a valid public key", path.display())]
    Keys { path: PathBuf },
    #[error("{} has no intact signed checkpoint", path.display())]
    NoHead { path: PathBuf },
    #[error("{} is not a signing key of this ledger: its log does not name the key", path.display())]
    NotOfLedger { path: PathBuf },
    #[error("{} is a retired signing key: the log names its successor {newest}", path.display())]
    Retired { path: PathBuf, newest: String },
    #[error("{} has a checkpoint that the key of this ledger did not sign", path.display())]
    Unsigned { path: PathBuf },
}

const PREFIX: &str = "belljar/";

impl Anchor {
    /// Returns whether a ledger was ever created here.
    pub(crate) fn exists(paths: &LedgerPaths) -> Result<bool, AnchorError> {
        let path = paths.key();
        path.try_exists().map_err(|source| file_error(&path, source))
    }

    /// Creates the keys and an empty head.
    ///
    /// The key file gets its name last, so a ledger without a key file was never created
    /// completely.
    pub(crate) fn create(paths: &LedgerPaths) -> Result<(), AnchorError> {
        let bytes = random::bytes().map_err(|error| file_error(&paths.key(), error.into()))?;
        let id = LedgerId::new(bytes);
        let key = new_key(paths, &id.origin())?;
        write_new(&paths.keys(), &format!("{}\n", key.verifying()), 0o644)?;
        let head = Head {
            generation: 0,
            end: crate::frame::HEADER as u64,
            own: None,
            frontier: Frontier::default(),
            note: sign(&key, &id.origin(), 0, Frontier::default().root())
                .ok_or_else(|| AnchorError::Key { path: paths.key() })?,
        };
        let path = paths.head();
        let mut options = OpenOptions::new();
        let made = options.write(true).create(true).truncate(true).mode(0o600).open(&path);
        let file = made.map_err(|source| file_error(&path, source))?;
        let written = file.set_len(2 * head::SLOT as u64).and_then(|()| head.write(&file));
        written.and_then(|()| file.sync_all()).map_err(|source| file_error(&path, source))?;
        write_new(&paths.key(), &format!("{}\n", key.to_text()), 0o600)
    }

    pub(crate) fn open(paths: &LedgerPaths) -> Result<Self, AnchorError> {
        let key = read_key(&paths.key())?;
        let path = paths.head();
        let head = OpenOptions::new().read(true).write(true).open(&path);
        let head = head.map_err(|source| file_error(&path, source))?;
        let origin = key.verifying().name().to_owned();
        Ok(Self { key, head, origin })
    }

    /// Opens an anchor whose head is missing or damaged.
    pub(crate) fn open_without_head(paths: &LedgerPaths) -> Result<Self, AnchorError> {
        let path = paths.head();
        let mut options = OpenOptions::new();
        let made = options.write(true).create(true).truncate(false).mode(0o600).open(&path);
        made.map_err(|source| file_error(&path, source))?;
        Self::open(paths)
    }

    /// Replaces both slots by one head, and returns the number of events of the previous head.
    pub(crate) fn replace_head(
        &mut self,
        paths: &LedgerPaths,
        end: u64,
        own: Option<(u64, Digest)>,
        frontier: Frontier,
    ) -> Result<u64, AnchorError> {
        let path = paths.head();
        let before = head::read(&self.head).ok().and_then(head::newest);
        let note = self.sign(&frontier).ok_or_else(|| AnchorError::Key { path: paths.key() })?;
        let generation = before.as_ref().map_or(0, |head| head.generation) + 1;
        let head = Head { generation, end, own, frontier, note };
        let write = || -> io::Result<()> {
            self.head.set_len(0)?;
            self.head.set_len(2 * head::SLOT as u64)?;
            head.write(&self.head)?;
            self.head.sync_all()
        };
        write().map_err(|source| file_error(&path, source))?;
        Ok(before.map_or(0, |head| head.frontier.size()))
    }

    /// Returns the origin of the ledger, which contains its id.
    pub(crate) fn origin(&self) -> &str {
        &self.origin
    }

    pub(crate) fn verifying(&self) -> VerifyingKey {
        self.key.verifying()
    }

    /// Returns the newest valid head that a key of this ledger signed.
    pub(crate) fn head(&self, paths: &LedgerPaths) -> Result<Head, AnchorError> {
        let path = paths.head();
        let slots = head::read(&self.head).map_err(|source| file_error(&path, source))?;
        let head = head::newest(slots).ok_or_else(|| AnchorError::NoHead { path: path.clone() })?;
        // An interrupted rotation leaves a head signed by the previous key.
        let mut keys = public_keys(paths)?;
        keys.push(self.key.verifying());
        let signed = crate::checkpoint::open(&head.note, &keys).is_ok_and(|(checkpoint, _)| {
            checkpoint.size() == head.frontier.size() && checkpoint.root() == head.frontier.root()
        });
        if !signed {
            return Err(AnchorError::Unsigned { path });
        }
        Ok(head)
    }

    /// Returns the newest valid head without checking its signature.
    pub(crate) fn newest(&self) -> Option<Head> {
        head::newest(head::read(&self.head).ok()?)
    }

    /// Returns the number of events of the newest head, for a ledger whose key is missing.
    pub(crate) fn events_without_key(paths: &LedgerPaths) -> Result<u64, AnchorError> {
        let path = paths.head();
        match File::open(&path).and_then(|file| head::read(&file)) {
            Ok(slots) => Ok(head::newest(slots).map_or(0, |head| head.frontier.size())),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(0),
            Err(source) => Err(file_error(&path, source)),
        }
    }

    /// Writes a head without waiting for the disk.
    pub(crate) fn write(&self, head: &Head) -> io::Result<()> {
        head.write(&self.head)
    }

    pub(crate) fn sign(&self, frontier: &Frontier) -> Option<String> {
        sign(&self.key, &self.origin, frontier.size(), frontier.root())
    }

    /// Creates the next key and its endorsement by the current key.
    ///
    /// The next key is stored before an event names it, so the ledger never names a lost key.
    pub(crate) fn successor(
        &self,
        paths: &LedgerPaths,
    ) -> Result<(SigningKey, Vec<u8>), AnchorError> {
        let key = new_key(paths, &self.origin)?;
        write_new(&paths.next_key(), &format!("{}\n", key.to_text()), 0o600)?;
        let endorsement = self.key.sign_bytes(&endorsed(&key.verifying())).to_vec();
        Ok((key, endorsement))
    }

    /// Replaces the current key by a new one and deletes the old one.
    pub(crate) fn replace(
        &mut self,
        paths: &LedgerPaths,
        key: SigningKey,
    ) -> Result<(), AnchorError> {
        write_new(&paths.key(), &format!("{}\n", key.to_text()), 0o600)?;
        self.key = key;
        self.list_key(paths)?;
        self.forget_next(paths)
    }

    /// Returns the next key of a rotation that was interrupted.
    pub(crate) fn next(&self, paths: &LedgerPaths) -> Result<Option<SigningKey>, AnchorError> {
        match read_key(&paths.next_key()) {
            Ok(key) => Ok(Some(key)),
            Err(AnchorError::File { path, source }) if source.kind() != io::ErrorKind::NotFound => {
                Err(file_error(&path, source))
            }
            Err(_) => Ok(None),
        }
    }

    /// Removes the file of the next key once that key is in use.
    fn forget_next(&self, paths: &LedgerPaths) -> Result<(), AnchorError> {
        let path = paths.next_key();
        match fs::remove_file(&path) {
            Err(source) if source.kind() != io::ErrorKind::NotFound => {
                Err(file_error(&path, source))
            }
            _ => Ok(()),
        }
    }

    /// Waits until the head is on disk.
    pub(crate) fn sync(&self) -> io::Result<()> {
        self.head.sync_all()
    }

    /// Returns whether the current key is the newest of the list of public keys.
    pub(crate) fn is_listed_last(&self, paths: &LedgerPaths) -> Result<bool, AnchorError> {
        Ok(public_keys(paths)?.last() == Some(&self.key.verifying()))
    }

    /// Adds the current key to the list of public keys, unless an interrupted rotation listed it
    /// already. The log names the key.
    pub(crate) fn list_key(&self, paths: &LedgerPaths) -> Result<(), AnchorError> {
        let mut keys = public_keys(paths)?;
        if keys.last() == Some(&self.key.verifying()) {
            return Ok(());
        }
        keys.push(self.key.verifying());
        write_keys(paths, &keys)
    }

    /// Switches to the newest key that the log names, and completes an interrupted rotation to it.
    ///
    /// Fails if the newest key is not here: a key that the log retired must not sign again.
    pub(crate) fn follow(&mut self, paths: &LedgerPaths, newest: &str) -> Result<(), AnchorError> {
        self.reload(paths)?;
        let is_newest = |key: &SigningKey| key.verifying().to_string() == newest;
        match self.next(paths)?.filter(|_| !is_newest(&self.key)).filter(is_newest) {
            Some(next) => self.replace(paths, next),
            None if is_newest(&self.key) => Ok(()),
            None => Err(AnchorError::Retired { path: paths.key(), newest: newest.to_owned() }),
        }
    }

    /// Reads the key from disk again.
    pub(crate) fn reload(&mut self, paths: &LedgerPaths) -> Result<(), AnchorError> {
        self.key = read_key(&paths.key())?;
        Ok(())
    }
}

/// Returns the public keys of the ledger, oldest first.
pub fn public_keys(paths: &LedgerPaths) -> Result<Vec<VerifyingKey>, AnchorError> {
    let path = paths.keys();
    let bytes = match fs::read(&path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            return Err(AnchorError::Keys { path });
        }
        read => read.map_err(|source| file_error(&path, source))?,
    };
    let text = String::from_utf8(bytes).map_err(|_| AnchorError::Keys { path: path.clone() })?;
    let keys: Option<Vec<_>> = text.lines().map(|line| line.parse().ok()).collect();
    keys.filter(|keys| !keys.is_empty()).ok_or(AnchorError::Keys { path })
}

/// Writes the list of public keys.
pub(crate) fn write_keys(paths: &LedgerPaths, keys: &[VerifyingKey]) -> Result<(), AnchorError> {
    let lines: String = keys.iter().map(|key| format!("{key}\n")).collect();
    write_new(&paths.keys(), &lines, 0o644)
}

/// Returns the bytes that an old key signs to endorse a new key.
pub(crate) fn endorsed(new: &VerifyingKey) -> Vec<u8> {
    format!("belljar key rotation 1\0{new}").into_bytes()
}

/// Returns the ledger id in the name of a key.
pub(crate) fn ledger_of(origin: &str) -> Option<LedgerId> {
    let mut bytes = [0; 16];
    hex::decode_to_slice(origin.strip_prefix(PREFIX)?, &mut bytes).ok()?;
    let id = LedgerId::new(bytes);
    (id.origin() == origin).then_some(id)
}

/// Creates a directory that only its owner can enter, with its missing parents.
pub(crate) fn make_dir(path: &Path) -> Result<(), AnchorError> {
    let made = DirBuilder::new().recursive(true).mode(0o700).create(path);
    made.map_err(|source| file_error(path, source))
}

/// Waits until the entries of a directory are on disk.
pub(crate) fn sync_dir(path: &Path) -> Result<(), AnchorError> {
    let synced = File::open(path).and_then(|dir| dir.sync_all());
    synced.map_err(|source| file_error(path, source))
}

fn new_key(paths: &LedgerPaths, origin: &str) -> Result<SigningKey, AnchorError> {
    let path = paths.key();
    let bytes = random::bytes().map_err(|error| file_error(&path, error.into()))?;
    SigningKey::generate(origin, bytes).map_err(|_| AnchorError::Key { path })
}

pub(crate) fn read_key(path: &Path) -> Result<SigningKey, AnchorError> {
    let text = fs::read_to_string(path).map_err(|source| file_error(path, source))?;
    let key = text.strip_suffix('\n').and_then(|text| SigningKey::from_text(text).ok());
    key.ok_or_else(|| AnchorError::Key { path: path.to_owned() })
}

fn sign(key: &SigningKey, origin: &str, size: u64, root: Digest) -> Option<String> {
    let checkpoint = Checkpoint::new(origin, size, root).ok()?;
    Some(checkpoint.sign(&[key]))
}

/// Writes a file atomically and waits for the disk.
fn write_new(path: &Path, text: &str, mode: u32) -> Result<(), AnchorError> {
    let new = path.with_extension("new");
    let write = || -> io::Result<()> {
        fs::remove_file(&new).or_else(|error| {
            let is_gone = error.kind() == io::ErrorKind::NotFound;
            if is_gone { Ok(()) } else { Err(error) }
        })?;
        let mut file = OpenOptions::new().write(true).create_new(true).mode(mode).open(&new)?;
        file.write_all(text.as_bytes())?;
        file.sync_all()?;
        fs::rename(&new, path)?;
        match path.parent() {
            Some(parent) => File::open(parent)?.sync_all(),
            None => Ok(()),
        }
    };
    write().map_err(|source| file_error(path, source))
}

fn file_error(path: &Path, source: io::Error) -> AnchorError {
    AnchorError::File { path: path.to_owned(), source }
}
