//! Paths of the files of a ledger.

use std::path::{Path, PathBuf};

/// Paths of the two directories of one ledger: the log with its bodies, and the anchor with its
/// keys.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LedgerPaths {
    ledger: PathBuf,
    anchor: PathBuf,
}

impl LedgerPaths {
    /// Returns the paths of the ledger in the state directory `home`.
    pub fn under(home: &Path) -> Self {
        Self { ledger: home.join("ledger"), anchor: home.join("anchor") }
    }

    pub fn new(ledger: PathBuf, anchor: PathBuf) -> Self {
        Self { ledger, anchor }
    }

    pub fn ledger(&self) -> &Path {
        &self.ledger
    }

    pub fn anchor(&self) -> &Path {
        &self.anchor
    }

    pub fn log(&self) -> PathBuf {
        self.ledger.join("events.log")
    }

    pub(crate) fn lock(&self) -> PathBuf {
        self.ledger.join("lock")
    }

    /// Returns the path of the file that processes lock while they wait for the lock.
    pub(crate) fn queue(&self) -> PathBuf {
        self.ledger.join("queue")
    }

    /// Returns the path of the file that names the host whose processes use the ledger.
    pub(crate) fn host(&self) -> PathBuf {
        self.ledger.join("host")
    }

    pub(crate) fn salts(&self) -> PathBuf {
        self.ledger.join("salts")
    }

    pub(crate) fn bodies(&self) -> PathBuf {
        self.ledger.join("bodies")
    }

    /// Returns the directory that contains `tile/`.
    pub(crate) fn tiles(&self) -> &Path {
        &self.ledger
    }

    pub(crate) fn index(&self) -> PathBuf {
        self.ledger.join("index.db")
    }

    pub(crate) fn key(&self) -> PathBuf {
        self.anchor.join("key")
    }

    /// Returns the path of a new signing key that is not in use yet.
    pub(crate) fn next_key(&self) -> PathBuf {
        self.anchor.join("key-next")
    }

    pub(crate) fn keys(&self) -> PathBuf {
        self.anchor.join("keys")
    }

    pub(crate) fn head(&self) -> PathBuf {
        self.anchor.join("head")
    }
}
