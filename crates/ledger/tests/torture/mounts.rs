//! Tests on full and read-only disks, each in its own mount namespace.

use std::error::Error;
use std::fs;
use std::process::Command;

use belljar_ledger::{Digest, Draft, Ledger, LedgerPaths, OpenError, Query, Reader, RecordError};

use crate::child;
use crate::fixture::{Home, created, event, run_id, verify_deep};

/// Runs `act` with a small disk of its own as state directory.
#[track_caller]
fn check_on_own_disk(act: &str) {
    let home = Home::new();
    let mount = "mount -t tmpfs -o size=256k none \"$0\" && exec \"$@\"";
    let path = home.path().to_str().unwrap();
    let before = ["unshare", "--map-root-user", "--mount", "sh", "-c", mount, path];
    let output = child::command(&before, act, home.path()).output().unwrap();
    let text = [output.stdout, output.stderr].concat();
    let text = String::from_utf8_lossy(&text);
    assert!(output.status.success() && !text.contains("error"), "{text}");
    assert!(text.contains("1 passed"), "{text}");
}

#[test]
fn h12_recording_stops_on_a_full_disk_and_resumes_with_free_space() {
    check_on_own_disk("full");
}

#[test]
fn h12_ledger_on_a_read_only_disk_can_be_read_but_not_opened_for_recording() {
    check_on_own_disk("read-only");
}

/// Fills the disk with events, frees space and continues.
pub(crate) fn on_a_full_disk(paths: &LedgerPaths) -> Result<(), Box<dyn Error>> {
    let ballast = paths.ledger().parent().unwrap().join("ballast");
    fs::write(&ballast, [1; 64 << 10])?;
    let ledger = Ledger::open(paths)?;
    let run = run_id();
    let mut acknowledged = vec![ledger.record(Draft::new(created()).of_run(run))?];
    let failed = loop {
        match ledger.record(Draft::new(event(1)).of_run(run)) {
            Ok(receipt) => acknowledged.push(receipt),
            Err(error) => break error,
        }
    };
    assert!(acknowledged.len() > 100, "{}", acknowledged.len());
    let RecordError::Io { source, .. } = &failed else { panic!("{failed:?}") };
    assert_eq!(source.raw_os_error(), Some(28), "{failed:?}");
    // While the disk is full, recording fails again, and no content is stored either.
    ledger.record(Draft::new(created()).of_run(run_id())).unwrap_err();
    let noise: Vec<u8> = (0..8000_u32)
        .flat_map(|n| Digest::of(&[&n.to_be_bytes()]).as_bytes()[..16].to_vec())
        .collect();
    ledger.keep(Digest::of(&[b"policy"]), &mut noise.as_slice()).unwrap_err();
    assert!(verify_deep(paths).is_sound());
    fs::remove_file(&ballast)?;
    for _ in 0..10 {
        acknowledged.push(ledger.record(Draft::new(event(2)).of_run(run))?);
    }
    drop(ledger);
    let report = verify_deep(paths);
    assert!(report.is_sound(), "{report:?}");
    let reader = Reader::open(paths)?;
    let rows = reader.events(&Query { run: Some(run), ..Query::default() })?;
    assert_eq!(rows.len(), acknowledged.len());
    for (row, receipt) in rows.iter().zip(&acknowledged) {
        assert_eq!((row.index, row.leaf), (receipt.index(), receipt.hash()));
    }
    Ok(())
}

pub(crate) fn on_a_read_only_disk(paths: &LedgerPaths) -> Result<(), Box<dyn Error>> {
    let home = paths.ledger().parent().unwrap();
    let remount = |how: &str| Command::new("mount").args(["-o", how]).arg(home).status();
    let first = Ledger::open(paths)?.record(Draft::new(event(1)))?;
    assert!(remount("remount,bind,ro")?.success());
    let OpenError::File { source, .. } = Ledger::open(paths).unwrap_err() else { panic!() };
    assert_eq!(source.raw_os_error(), Some(30), "{source:?}");
    assert!(verify_deep(paths).is_sound());
    let reader = Reader::open(paths)?;
    assert_eq!(reader.event(first.index())?.unwrap().leaf, first.hash());
    assert_eq!(reader.inclusion(first.index())?.leaf, first.hash());
    drop(reader);
    assert!(remount("remount,bind,rw")?.success());
    Ledger::open(paths)?.record(Draft::new(event(2))).map(drop)?;
    assert!(verify_deep(paths).is_sound());
    // A disk that never had a ledger.
    fs::remove_dir_all(paths.ledger())?;
    fs::remove_dir_all(paths.anchor())?;
    assert!(remount("remount,bind,ro")?.success());
    let OpenError::File { source, .. } = Ledger::open(paths).unwrap_err() else { panic!() };
    assert_eq!(source.raw_os_error(), Some(30), "{source:?}");
    Ok(())
}
