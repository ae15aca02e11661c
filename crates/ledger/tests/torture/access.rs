//! Tests that files without permission are reported as such, and not taken for missing files.

use std::fs::{self, Permissions};
use std::io;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use belljar_ledger::{AnchorError, Ledger, LogError, OpenError, Reader, ReaderError, mend};
use rustix::thread::{CapabilitySet, capabilities, set_capabilities};

use crate::fixture::{Acknowledged, Home};

/// A path without permissions, until the value is dropped.
struct Forbidden {
    path: PathBuf,
    mode: u32,
}

impl Forbidden {
    /// Takes the permissions of a path, and the right to ignore permissions from this thread.
    fn new(path: &Path) -> Self {
        let ignores = CapabilitySet::DAC_OVERRIDE | CapabilitySet::DAC_READ_SEARCH;
        let mut sets = capabilities(None).unwrap();
        sets.effective.remove(ignores);
        set_capabilities(None, sets).unwrap();
        let mode = fs::metadata(path).unwrap().permissions().mode();
        fs::set_permissions(path, Permissions::from_mode(0o0)).unwrap();
        Self { path: path.to_owned(), mode }
    }
}

impl Drop for Forbidden {
    fn drop(&mut self) {
        fs::set_permissions(&self.path, Permissions::from_mode(self.mode)).unwrap();
    }
}

#[test]
fn h12_reader_does_not_take_a_forbidden_ledger_for_a_missing_one() {
    let home = Home::with_events(2);
    let forbidden = Forbidden::new(home.paths().ledger());
    let error = Reader::open(&home.paths()).unwrap_err();
    let ReaderError::Log(LogError::Read { source, .. }) = &error else { panic!("{error:?}") };
    assert_eq!(source.kind(), io::ErrorKind::PermissionDenied);
    drop(forbidden);
    assert_eq!(Reader::open(&home.paths()).unwrap().size(), 3, "control");
}

#[test]
fn h12_forbidden_keys_are_an_error_and_mend_does_not_replace_their_ledger() {
    let home = Home::with_events(2);
    let forbidden = Forbidden::new(home.paths().anchor());
    for error in [Ledger::open(&home.paths()).unwrap_err(), mend(&home.paths(), "x").unwrap_err()] {
        let OpenError::Anchor(AnchorError::File { source, .. }) = &error else {
            panic!("{error:?}")
        };
        assert_eq!(source.kind(), io::ErrorKind::PermissionDenied);
    }
    drop(forbidden);
    home.check(&Acknowledged::default());
    assert_eq!(Reader::open(&home.paths()).unwrap().size(), 4, "control: the ledger continues");
}

#[test]
fn h12_mend_does_not_replace_a_ledger_with_a_forbidden_key_and_a_damaged_list_of_keys() {
    let home = Home::with_events(2);
    let anchor = home.paths().anchor().to_owned();
    fs::write(anchor.join("keys"), "damaged\n").unwrap();
    let forbidden = Forbidden::new(&anchor.join("key"));
    let error = mend(&home.paths(), "x").unwrap_err();
    assert!(
        matches!(&error, OpenError::Anchor(AnchorError::File { path, source })
        if path.ends_with("key") && source.kind() == io::ErrorKind::PermissionDenied),
        "{error:?}"
    );
    drop(forbidden);
    mend(&home.paths(), "x").unwrap();
    home.check(&Acknowledged::default());
}
