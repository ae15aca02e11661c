//! Tests that every damage of a ledger has a way on, and that a refused ledger is not changed.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use belljar_ledger::{
    AnchorError, Code, Digest, Draft, Ledger, Mended, OpenError, Reader, RecordError,
    WorkspaceChanged, mend,
};

use crate::fixture::{Acknowledged, Home, copy_tree, created, damages, event, run_id, spans};

/// Damages the file at a path.
type Damage = fn(&Path);

/// Returns the bytes of all files of a directory.
fn files(dir: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    let entries = fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().path());
    entries.map(|path| (path.clone(), fs::read(path).unwrap())).collect()
}

fn flip(path: &Path, at: usize) {
    let mut bytes = fs::read(path).unwrap();
    bytes[at] ^= 1;
    fs::write(path, bytes).unwrap();
}

fn remove_index(home: &Home) {
    for name in ["index.db", "index.db-wal", "index.db-shm"] {
        fs::remove_file(home.paths().ledger().join(name)).ok();
    }
}

#[test]
fn h12_mend_begins_a_new_ledger_after_damage_before_the_head() {
    let home = Home::with_events(3);
    let run = run_id();
    home.open().record(Draft::new(created()).of_run(run)).map(drop).unwrap();
    let second = spans(&fs::read(home.log()).unwrap())[1].0;
    flip(&home.log(), second + 60);
    // Recording reads only the end of the log.
    home.open().record(Draft::new(event(1))).map(drop).unwrap();
    remove_index(&home);
    let ledger = home.open();
    let error = ledger.record(Draft::new(event(2)).of_run(run)).unwrap_err();
    let RecordError::Index(index) = &error else { panic!("{error:?}") };
    assert!(index.is_log_damage(), "{error:?}");
    let error = ledger.prune(u64::MAX).unwrap_err();
    assert!(matches!(error, RecordError::Changed(_)), "{error:?}");

    let damaged = fs::read(home.log()).unwrap();
    let Mended::SetAside { ledger, anchor } = mend(&home.paths(), "rot").unwrap() else { panic!() };
    assert_eq!(fs::read(ledger.join("events.log")).unwrap(), damaged, "nothing is deleted");
    assert!(anchor.join("key").exists());
    home.check(&Acknowledged::default());
    let ledger = home.open();
    let run = run_id();
    ledger.record(Draft::new(created()).of_run(run)).map(drop).unwrap();
    ledger.record(Draft::new(event(1)).of_run(run)).map(drop).unwrap();
    ledger.prune(u64::MAX).unwrap();
    assert_eq!(mend(&home.paths(), "again").unwrap(), Mended::Sound);
    assert_eq!(damages(&home.verify()), []);
}

/// A changed log can be consistent in itself: only the signed head contradicts it.
#[test]
fn h12_mend_begins_a_new_ledger_if_the_log_contradicts_its_head() {
    let (home, other) = (Home::with_events(3), Home::with_events(3));
    home.open().record(Draft::new(event(7))).map(drop).unwrap();
    assert_eq!(mend(&home.paths(), "control").unwrap(), Mended::Sound);
    let (mut log, foreign) = (fs::read(home.log()).unwrap(), fs::read(other.log()).unwrap());
    let places: Vec<_> = spans(&log).iter().map(|(at, bytes)| (*at, bytes.len())).collect();
    let (at, length) = places[1];
    let (from, same) = spans(&foreign).iter().map(|(at, bytes)| (*at, bytes.len())).nth(1).unwrap();
    assert_eq!(length, same);
    log[at..at + length].copy_from_slice(&foreign[from..from + length]);
    fs::write(home.log(), log).unwrap();
    assert!(matches!(mend(&home.paths(), "changed").unwrap(), Mended::SetAside { .. }));
    home.check(&Acknowledged::default());
}

#[test]
fn h12_mend_restores_salts_whose_header_is_damaged() {
    let salts = |home: &Home| home.paths().ledger().join("salts");
    let cases: [(&str, Damage, &[Code]); 3] = [
        ("changed header", |path| flip(path, 20), &[]),
        ("missing file", |path| fs::remove_file(path).unwrap(), &[Code::SaltMissing]),
        ("incomplete header", |path| fs::write(path, [0; 10]).unwrap(), &[Code::SaltMissing]),
    ];
    for (case, damage, expected) in cases {
        let home = Home::with_events(1);
        let ledger = home.open();
        let body = ledger.keep(Digest::of(&[b"policy"]), &mut b"kept".as_slice()).unwrap();
        let hash = body.hash();
        let changed = WorkspaceChanged { files: 1, changes: body };
        ledger.record(Draft::new(changed)).map(drop).unwrap();
        drop(ledger);
        damage(&salts(&home));
        let old = fs::read(salts(&home)).ok();
        let error = Ledger::open(&home.paths()).unwrap_err();
        assert!(matches!(error, OpenError::Salts { .. }), "{case}: {error:?}");
        let mended = mend(&home.paths(), "rot").unwrap();
        let Mended::SaltsRestored { old: kept, records } = mended else { panic!("{mended:?}") };
        assert_eq!(fs::read(kept).ok(), old, "{case}: nothing is deleted");
        assert_eq!(records, u64::from(expected.is_empty()), "{case}");
        home.open().record(Draft::new(event(1))).map(drop).unwrap();
        assert_eq!(damages(&home.verify()), expected, "{case}");
        let mut content = Vec::new();
        let read = Reader::open(&home.paths()).unwrap().body(hash, &mut content);
        assert_eq!(read.is_ok(), expected.is_empty(), "{case}: {read:?}");
        assert_eq!(mend(&home.paths(), "again").unwrap(), Mended::Sound);
    }
}

#[test]
fn h12_mend_restores_a_damaged_list_of_public_keys() {
    let home = Home::with_events(1);
    home.open().rotate_key().unwrap();
    home.open().rotate_key().unwrap();
    let keys = home.paths().anchor().join("keys");
    let list = fs::read(&keys).unwrap();
    let check = |case: &str| {
        let refused = Ledger::open(&home.paths()).unwrap_err();
        assert!(matches!(refused, OpenError::Anchor(AnchorError::Keys { .. })), "{case}");
        let mended = mend(&home.paths(), "rot").unwrap();
        assert!(matches!(mended, Mended::KeysRestored { .. }), "{case}: {mended:?}");
        assert_eq!(fs::read(&keys).unwrap(), list, "{case}");
        assert_eq!(damages(&home.verify()), [], "{case}");
    };
    for at in (0..list.len()).step_by(37) {
        flip(&keys, at);
        check(&format!("byte {at}"));
    }
    fs::write(&keys, b"\xff\xfe\n").unwrap();
    check("not UTF-8");
    fs::remove_file(&keys).unwrap();
    check("missing");
    // Several faults at once.
    flip(&keys, 1);
    flip(&home.paths().ledger().join("salts"), 1);
    fs::remove_file(home.paths().anchor().join("head")).unwrap();
    assert!(!matches!(mend(&home.paths(), "rot").unwrap(), Mended::SetAside { .. }));
    assert_eq!(fs::read(&keys).unwrap(), list);
    home.check(&Acknowledged::default());
}

#[test]
fn h03_refused_open_does_not_change_the_anchor() {
    let (home, other) = (Home::with_events(2), Home::with_events(2));
    let key = |home: &Home| home.paths().anchor().join("key");
    let retired = fs::read(key(&home)).unwrap();
    home.open().rotate_key().unwrap();
    let own = fs::read(key(&home)).unwrap();
    for wrong in [fs::read(key(&other)).unwrap(), retired] {
        fs::write(key(&home), &wrong).unwrap();
        let before = files(home.paths().anchor());
        let error = Ledger::open(&home.paths()).unwrap_err();
        let is_refused = matches!(
            error,
            OpenError::Foreign { .. } | OpenError::Anchor(AnchorError::Retired { .. })
        );
        assert!(is_refused, "{error:?}");
        assert_eq!(files(home.paths().anchor()), before);
        fs::write(key(&home), &own).unwrap();
        home.open().record(Draft::new(event(1))).map(drop).unwrap();
        assert_eq!(damages(&home.verify()), [], "the right key is back");
    }
}

#[test]
fn h03_retired_key_does_not_sign_after_an_old_anchor_is_restored() {
    let home = Home::with_events(2);
    let old = tempfile::tempdir().unwrap();
    copy_tree(home.paths().anchor(), old.path());
    let open = home.open();
    open.record(Draft::new(event(1))).map(drop).unwrap();
    home.open().rotate_key().unwrap();
    let new = tempfile::tempdir().unwrap();
    copy_tree(home.paths().anchor(), new.path());
    let restore = |from: &Path| {
        fs::remove_dir_all(home.paths().anchor()).unwrap();
        fs::create_dir(home.paths().anchor()).unwrap();
        copy_tree(from, home.paths().anchor());
    };
    restore(old.path());
    let is_retired = |error: &AnchorError| matches!(error, AnchorError::Retired { .. });
    let error = Ledger::open(&home.paths()).unwrap_err();
    assert!(matches!(&error, OpenError::Anchor(error) if is_retired(error)), "{error:?}");
    let error = open.record(Draft::new(event(1))).unwrap_err();
    assert!(matches!(&error, RecordError::Anchor(error) if is_retired(error)), "{error:?}");
    // Control: the newest anchor is restored.
    restore(new.path());
    home.open().record(Draft::new(event(1))).map(drop).unwrap();
    assert_eq!(damages(&home.verify()), []);
    // The newest anchor is lost.
    restore(old.path());
    assert!(matches!(mend(&home.paths(), "lost").unwrap(), Mended::SetAside { .. }));
    home.check(&Acknowledged::default());
}
