//! Tests of two hosts that use one ledger.

use std::fs::{self, File};

use belljar_ledger::{Ledger, OpenError, mend};
use rustix::fs::{FlockOperation, flock};

use crate::fixture::{Acknowledged, Home};

/// The file and its lock are those of a process on another host, which this host sees through a
/// network file system.
#[test]
fn h04_ledger_in_use_by_another_host_is_refused_and_a_moved_ledger_is_not() {
    let home = Home::with_events(2);
    let path = home.paths().ledger().join("host");
    fs::write(&path, format!("{} elsewhere\n", "0f".repeat(16))).unwrap();
    let theirs = File::open(&path).unwrap();
    flock(&theirs, FlockOperation::LockShared).unwrap();
    for error in [Ledger::open(&home.paths()).unwrap_err(), mend(&home.paths(), "x").unwrap_err()] {
        assert!(matches!(&error, OpenError::OtherHost { name, .. } if name == "elsewhere"));
        assert!(error.to_string().contains("in use by processes of the host"), "{error}");
    }
    drop(theirs);
    home.check(&Acknowledged::default());
    let (first, second) = (home.open(), home.open());
    drop((first, second));
}
