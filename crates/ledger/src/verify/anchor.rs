//! Reads the anchor, and judges whether its parts fit each other.

use std::fs::{self, File, Metadata};
use std::io;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use super::VerifyError;
use super::finding::{Code, Findings, Location, Severity};
use super::rotations::Rotations;
use crate::head::{self, Head, Slot};
use crate::note::{SigningKey, VerifyingKey};
use crate::paths::LedgerPaths;

/// The files of the anchor at one moment.
#[derive(Debug)]
pub(super) struct Snapshot {
    /// `None`: there is no such file.
    pub(super) slots: Option<[Slot; 2]>,
    pub(super) keys: Keys,
    pub(super) key: Key,
}

/// The list of public keys.
#[derive(Debug, Clone)]
pub(super) enum Keys {
    Missing,
    Damaged,
    Listed(Vec<VerifyingKey>),
}

/// The signing key, of which only the public half is kept.
#[derive(Debug)]
pub(super) enum Key {
    Missing,
    /// Another user's, as it should be.
    Unreadable,
    Damaged,
    Of {
        key: Box<VerifyingKey>,
        mode: u32,
    },
}

impl Snapshot {
    pub(super) fn read(paths: &LedgerPaths) -> Result<Self, VerifyError> {
        Ok(Self { slots: slots(&paths.head())?, keys: keys(paths)?, key: key(paths)? })
    }

    pub(super) fn first_key(&self) -> Option<VerifyingKey> {
        match &self.keys {
            Keys::Listed(keys) => keys.first().cloned(),
            Keys::Missing | Keys::Damaged => None,
        }
    }

    /// The heads that are whole.
    pub(super) fn heads(&self) -> impl Iterator<Item = &Head> {
        self.slots.iter().flatten().filter_map(|slot| match slot {
            Slot::Whole(head) => Some(&**head),
            Slot::Blank | Slot::Damaged => None,
        })
    }

    /// Whether this is what beginning a ledger leaves before there is a log: the key comes last, and
    /// no head has an event.
    pub(super) fn was_not_begun(&self) -> bool {
        let has_key = !matches!(self.key, Key::Missing);
        let has_head = self.heads().next().is_some();
        self.heads().all(|head| head.frontier.size() == 0) && (has_head || !has_key)
    }

    /// Takes a damaged half of the head for one that is being written.
    pub(super) fn pass_over_damage(&mut self) {
        if self.heads().next().is_some() {
            let slots = self.slots.iter_mut().flatten();
            slots.filter(|slot| **slot == Slot::Damaged).for_each(|slot| *slot = Slot::Blank);
        }
    }

    /// Judges the list of keys and the key; the head is judged with the log.
    pub(super) fn judge(
        &self,
        paths: &LedgerPaths,
        origin: Option<&str>,
        rotations: &Rotations,
        found: &mut Findings,
    ) {
        self.judge_list(paths, origin, rotations, found);
        self.judge_key(paths, rotations, found);
    }

    fn judge_list(
        &self,
        paths: &LedgerPaths,
        origin: Option<&str>,
        rotations: &Rotations,
        found: &mut Findings,
    ) {
        let at = || Location::File(paths.keys());
        let mut damage = |code, text: &str| {
            found.add_since(Severity::Damage, code, at(), None, text.to_owned());
        };
        let listed = match &self.keys {
            Keys::Missing => {
                return damage(
                    Code::KeysMissing,
                    "The list of public keys is gone, so nothing shows whose signatures to trust. \
                     Put it back from a copy, or give the key to trust.",
                );
            }
            Keys::Damaged => {
                return damage(
                    Code::KeysDamaged,
                    "The list of public keys has a line that is no key. Put it back from a copy, or \
                     give the key to trust.",
                );
            }
            Keys::Listed(listed) => listed,
        };
        if listed.iter().any(|key| Some(key.name()) != origin) && origin.is_some() {
            damage(Code::KeysContradict, "The list of public keys is that of another ledger.");
        }
        let introduced = rotations.keys();
        let mut rest = introduced.iter();
        if !listed.iter().all(|key| rest.any(|known| known == key)) {
            if rotations.are_certain() {
                damage(
                    Code::KeysContradict,
                    "The list of public keys has one that no earlier key endorsed, or not in the order of \
                 the log. Somebody changed the list or the log.",
                );
            }
        } else if let Some(unused) = introduced.iter().find(|key| !listed.contains(key)) {
            let text = format!(
                "The log says that the key was exchanged for {unused}, which is not in the list of \
                 public keys: the exchange was cut short. Exchange the key again."
            );
            found.warn(Code::RotationUnfinished, at(), text);
        }
    }

    fn judge_key(&self, paths: &LedgerPaths, rotations: &Rotations, found: &mut Findings) {
        let at = Location::File(paths.key());
        let (key, mode) = match &self.key {
            Key::Unreadable => return,
            Key::Missing => {
                let text = "There is no signing key here, so this ledger can be read but not \
                            continued; for a copy that is as it should be.";
                return found.note(Code::KeyMissing, at, text.to_owned());
            }
            Key::Damaged => {
                let text = "The signing key is damaged: nothing can be recorded with it. Put it \
                            back from a copy.";
                found.add_since(Severity::Damage, Code::KeyDamaged, at, None, text.to_owned());
                return;
            }
            Key::Of { key, mode } => (&**key, mode),
        };
        if mode & 0o077 != 0 {
            let text = format!(
                "Others than its owner can get at the signing key (mode {:03o}): whoever read it \
                 can sign a false ledger. Exchange the key, and let its file have mode 600.",
                mode & 0o777
            );
            found.warn(Code::KeyExposed, at.clone(), text);
        }
        let Keys::Listed(listed) = &self.keys else { return };
        if listed.last() == Some(key) {
            return;
        }
        let is_newest = rotations.keys().last() == Some(key) && rotations.are_certain();
        if is_newest && !listed.contains(key) {
            let text = "The newest signing key is not yet in the list of public keys: the exchange \
                        of keys was cut short. The next recording puts that right.";
            return found.warn(Code::RotationUnfinished, at, text.to_owned());
        }
        let text = "The signing key does not belong to the last of the public keys: one of the two \
                    was exchanged.";
        found.add_since(Severity::Damage, Code::KeyMismatch, at, None, text.to_owned());
    }
}

/// The slots of the head. One that is being written right now is read as damaged.
fn slots(path: &Path) -> Result<Option<[Slot; 2]>, VerifyError> {
    let Some(file) = absent(path, File::open(path))? else { return Ok(None) };
    head::read(&file).map(Some).map_err(VerifyError::reading(path))
}

fn keys(paths: &LedgerPaths) -> Result<Keys, VerifyError> {
    let path = paths.keys();
    let Some(bytes) = absent(&path, fs::read(&path))? else { return Ok(Keys::Missing) };
    let text = str::from_utf8(&bytes).ok().and_then(|text| text.strip_suffix('\n'));
    let keys = text.and_then(|text| text.split('\n').map(|line| line.parse().ok()).collect());
    Ok(keys.map_or(Keys::Damaged, Keys::Listed))
}

fn key(paths: &LedgerPaths) -> Result<Key, VerifyError> {
    let path = paths.key();
    let mode = |meta: Metadata| meta.permissions().mode();
    let read = fs::read_to_string(&path).and_then(|text| Ok((text, mode(fs::metadata(&path)?))));
    let (text, mode) = match read {
        Ok(read) => read,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Key::Missing),
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
            return Ok(Key::Unreadable);
        }
        Err(error) if error.kind() == io::ErrorKind::InvalidData => return Ok(Key::Damaged),
        Err(error) => return Err(VerifyError::reading(&path)(error)),
    };
    let key = text.strip_suffix('\n').and_then(|text| SigningKey::from_text(text).ok());
    Ok(key.map_or(Key::Damaged, |key| Key::Of { key: Box::new(key.verifying()), mode }))
}

/// `None` for a file that is not there.
pub(super) fn absent<T>(path: &Path, result: io::Result<T>) -> Result<Option<T>, VerifyError> {
    match result {
        Ok(value) => Ok(Some(value)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(VerifyError::reading(path)(error)),
    }
}
