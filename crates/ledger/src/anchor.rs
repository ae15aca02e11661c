//! What vouches for the ledger and is kept apart from it: the keys and the newest signed checkpoint.

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

/// Why there is no usable anchor.
#[derive(Debug, thiserror::Error)]
pub enum AnchorError {
    #[error("read or write {}", path.display())]
    File { path: PathBuf, source: io::Error },
    #[error("{} is not a signing key of a ledger", path.display())]
    Key { path: PathBuf },
    #[error("{} has a line that is not a public key", path.display())]
    Keys { path: PathBuf },
    #[error("{} holds no signed checkpoint that is whole", path.display())]
    NoHead { path: PathBuf },
    #[error("{} holds a checkpoint that this ledger's key did not sign", path.display())]
    Unsigned { path: PathBuf },
}

const PREFIX: &str = "belljar/";

impl Anchor {
    /// Whether a ledger was ever begun here.
    pub(crate) fn exists(paths: &LedgerPaths) -> bool {
        paths.key().exists()
    }

    /// Makes keys and an empty head. The key gets its name last: without it nothing was begun.
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
        let anchor = Self { key, head, origin };
        anchor.list_key(paths)?;
        Ok(anchor)
    }

    /// The same when the head is missing or spoilt.
    pub(crate) fn open_without_head(paths: &LedgerPaths) -> Result<Self, AnchorError> {
        let path = paths.head();
        let mut options = OpenOptions::new();
        let made = options.write(true).create(true).truncate(false).mode(0o600).open(&path);
        made.map_err(|source| file_error(&path, source))?;
        Self::open(paths)
    }

    /// Writes a head over both slots; how many events the one before it had.
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

    /// The ledger that this is the anchor of.
    pub(crate) fn origin(&self) -> &str {
        &self.origin
    }

    pub(crate) fn verifying(&self) -> VerifyingKey {
        self.key.verifying()
    }

    /// The newest head that is whole and signed by us.
    pub(crate) fn head(&self, paths: &LedgerPaths) -> Result<Head, AnchorError> {
        let path = paths.head();
        let slots = head::read(&self.head).map_err(|source| file_error(&path, source))?;
        let head = head::newest(slots).ok_or_else(|| AnchorError::NoHead { path: path.clone() })?;
        // A rotation that was cut short leaves a head of the former key.
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

    /// The newest head that is whole, whoever wrote it.
    pub(crate) fn newest(&self) -> Option<Head> {
        head::newest(head::read(&self.head).ok()?)
    }

    /// How many events a head says there were, though its key is gone.
    pub(crate) fn events_without_key(paths: &LedgerPaths) -> u64 {
        let slots = File::open(paths.head()).and_then(|file| head::read(&file));
        slots.ok().and_then(head::newest).map_or(0, |head| head.frontier.size())
    }

    /// Signs what the ledger is now and writes it, without waiting for the disk.
    pub(crate) fn write(&self, head: &Head) -> io::Result<()> {
        head.write(&self.head)
    }

    pub(crate) fn sign(&self, frontier: &Frontier) -> Option<String> {
        sign(&self.key, &self.origin, frontier.size(), frontier.root())
    }

    /// Draws a new key, not yet in use, and the old key's word for it. It is kept aside before anybody
    /// hears of it, so that the ledger never names a key that is lost.
    pub(crate) fn successor(
        &self,
        paths: &LedgerPaths,
    ) -> Result<(SigningKey, Vec<u8>), AnchorError> {
        let key = new_key(paths, &self.origin)?;
        write_new(&paths.next_key(), &format!("{}\n", key.to_text()), 0o600)?;
        let endorsement = self.key.sign_bytes(&endorsed(&key.verifying())).to_vec();
        Ok((key, endorsement))
    }

    /// Puts a new key in place of the old one, which is forgotten.
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

    /// The key that was kept aside by a rotation that did not come to its end.
    pub(crate) fn next(&self, paths: &LedgerPaths) -> Option<SigningKey> {
        read_key(&paths.next_key()).ok()
    }

    /// Removes the key that was kept aside, once it is in use.
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

    /// Adds our key to the public ones, unless it is there: a rotation may have been cut short.
    fn list_key(&self, paths: &LedgerPaths) -> Result<(), AnchorError> {
        let path = paths.keys();
        let own = self.key.verifying();
        let known = fs::read_to_string(&path).map_err(|source| file_error(&path, source))?;
        if known.lines().last() == Some(own.to_string().as_str()) {
            return Ok(());
        }
        write_new(&path, &format!("{known}{own}\n"), 0o644)
    }

    /// Takes over the key that the log names as the newest, whoever exchanged it, and finishes the
    /// exchange if that process died over it.
    pub(crate) fn follow(&mut self, paths: &LedgerPaths, newest: &str) -> Result<(), AnchorError> {
        self.reload(paths)?;
        let is_newest = |key: &SigningKey| key.verifying().to_string() == newest;
        match self.next(paths).filter(|_| !is_newest(&self.key)).filter(is_newest) {
            Some(next) => self.replace(paths, next),
            None => Ok(()),
        }
    }

    /// Reads the key again.
    pub(crate) fn reload(&mut self, paths: &LedgerPaths) -> Result<(), AnchorError> {
        self.key = read_key(&paths.key())?;
        Ok(())
    }
}

/// The public keys of the ledger, oldest first.
pub fn public_keys(paths: &LedgerPaths) -> Result<Vec<VerifyingKey>, AnchorError> {
    let path = paths.keys();
    let text = fs::read_to_string(&path).map_err(|source| file_error(&path, source))?;
    let keys: Option<Vec<_>> = text.lines().map(|line| line.parse().ok()).collect();
    keys.filter(|keys| !keys.is_empty()).ok_or(AnchorError::Keys { path })
}

/// The bytes that an old key signs to hand over to a new one.
pub(crate) fn endorsed(new: &VerifyingKey) -> Vec<u8> {
    format!("belljar key rotation 1\0{new}").into_bytes()
}

/// The ledger that a key belongs to, by its name.
pub(crate) fn ledger_of(origin: &str) -> Option<LedgerId> {
    let mut bytes = [0; 16];
    hex::decode_to_slice(origin.strip_prefix(PREFIX)?, &mut bytes).ok()?;
    let id = LedgerId::new(bytes);
    (id.origin() == origin).then_some(id)
}

/// Makes a directory that only its owner can enter, and those above it.
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

fn read_key(path: &Path) -> Result<SigningKey, AnchorError> {
    let text = fs::read_to_string(path).map_err(|source| file_error(path, source))?;
    let key = text.strip_suffix('\n').and_then(|text| SigningKey::from_text(text).ok());
    key.ok_or_else(|| AnchorError::Key { path: path.to_owned() })
}

fn sign(key: &SigningKey, origin: &str, size: u64, root: Digest) -> Option<String> {
    let checkpoint = Checkpoint::new(origin, size, root).ok()?;
    Some(checkpoint.sign(&[key]))
}

/// Writes a file whole or not at all, and waits for the disk.
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
