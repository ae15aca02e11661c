//! Reads the anchor and checks that its parts match each other.

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
    /// The slots of the head; `None` if the file is missing.
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

/// The signing key, of which only the public key is kept.
#[derive(Debug)]
pub(super) enum Key {
    Missing,
    /// The file belongs to another user and cannot be read, which is normal.
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

    /// Returns the valid heads.
    pub(super) fn heads(&self) -> impl Iterator<Item = &Head> {
        self.slots.iter().flatten().filter_map(|slot| match slot {
            Slot::Whole(head) => Some(&**head),
            Slot::Blank | Slot::Damaged => None,
        })
    }

    /// Returns whether the creation of the ledger was interrupted before it had a log.
    ///
    /// The key file comes last, and no head has an event.
    pub(super) fn was_not_begun(&self) -> bool {
        let has_key = !matches!(self.key, Key::Missing);
        let has_head = self.heads().next().is_some();
        self.heads().all(|head| head.frontier.size() == 0) && (has_head || !has_key)
    }

    /// Treats a damaged slot of the head as one that is being written.
    pub(super) fn pass_over_damage(&mut self) {
        if self.heads().next().is_some() {
            let slots = self.slots.iter_mut().flatten();
            slots.filter(|slot| **slot == Slot::Damaged).for_each(|slot| *slot = Slot::Blank);
        }
    }

    /// Checks the list of public keys and the signing key of the ledger.
    pub(super) fn check(
        &self,
        paths: &LedgerPaths,
        origin: Option<&str>,
        rotations: &Rotations,
        found: &mut Findings,
    ) {
        self.check_list(paths, origin, rotations, found);
        self.check_key(paths, rotations, found);
    }

    fn check_list(
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
                    "The list of public keys is missing, so no signature can be trusted. Restore \
                     it from a copy, or pass the trusted key.",
                );
            }
            Keys::Damaged => {
                return damage(
                    Code::KeysDamaged,
                    "The list of public keys has a line that is not a valid key. Restore it from \
                     a copy, or pass the trusted key.",
                );
            }
            Keys::Listed(listed) => listed,
        };
        if listed.iter().any(|key| Some(key.name()) != origin) && origin.is_some() {
            damage(Code::KeysContradict, "The list of public keys belongs to another ledger.");
        }
        let introduced = rotations.keys();
        let mut rest = introduced.iter();
        if !listed.iter().all(|key| rest.any(|known| known == key)) {
            if rotations.are_certain() {
                damage(
                    Code::KeysContradict,
                    "The list of public keys has a key that no earlier key endorsed, or is not in \
                     the order of the log. The list or the log was changed.",
                );
            }
        } else if let Some(unused) = introduced.iter().find(|key| !listed.contains(key)) {
            let text = format!(
                "The log has a rotation to the key {unused}, which is not in the list of public \
                 keys: the rotation was interrupted. Rotate the key again."
            );
            found.warn(Code::RotationUnfinished, at(), text);
        }
    }

    fn check_key(&self, paths: &LedgerPaths, rotations: &Rotations, found: &mut Findings) {
        let at = Location::File(paths.key());
        let (key, mode) = match &self.key {
            Key::Unreadable => return,
            Key::Missing => {
                let text = "There is no signing key, so this ledger can be read but not \
                            continued. This is normal for a copy.";
                return found.note(Code::KeyMissing, at, text.to_owned());
            }
            Key::Damaged => {
                let text = "The signing key is damaged, so no event can be recorded. Restore it \
                            from a copy.";
                found.add_since(Severity::Damage, Code::KeyDamaged, at, None, text.to_owned());
                return;
            }
            Key::Of { key, mode } => (&**key, mode),
        };
        if mode & 0o077 != 0 {
            let text = format!(
                "Other users can access the signing key (mode {:03o}) and can sign a forged \
                 ledger with it. Rotate the key and set the mode of its file to 600.",
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
            let text = "The newest signing key is not yet in the list of public keys: the \
                        rotation was interrupted. The next recorded event repairs this.";
            return found.warn(Code::RotationUnfinished, at, text.to_owned());
        }
        let text = "The signing key does not match the last public key of the list: one of the \
                    two was replaced.";
        found.add_since(Severity::Damage, Code::KeyMismatch, at, None, text.to_owned());
    }
}

/// Reads the slots of the head; a slot that is being written reads as damaged.
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

/// Returns `None` for a missing file.
pub(super) fn absent<T>(path: &Path, result: io::Result<T>) -> Result<Option<T>, VerifyError> {
    match result {
        Ok(value) => Ok(Some(value)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(VerifyError::reading(path)(error)),
    }
}
