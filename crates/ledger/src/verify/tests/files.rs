//! Changes of single bytes of every file, and of bodies.

use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use super::super::sample::{Sample, body_path, run};
use super::*;
use crate::digest::Digest;
use crate::event::*;
use crate::tile::Tiles;

/// Flips a bit of every byte of a file; the verifier must report each change in that file.
fn flip_each_byte(
    sample: &Sample,
    file: impl Fn(&LedgerPaths) -> std::path::PathBuf,
    least: Severity,
) {
    let home = TempDir::new().unwrap();
    let paths = sample.write(home.path());
    let path = file(&paths);
    let whole = fs::read(&path).unwrap();
    for place in 0..whole.len() {
        // A sample of the bytes in long runs of zeros is enough.
        if place % 97 != 0 && whole[place.saturating_sub(50)..place + 1] == [0; 51] {
            continue;
        }
        let bit = 1_u8 << (place % 8);
        let mut bytes = whole.clone();
        bytes[place] ^= bit;
        fs::write(&path, bytes).unwrap();
        let report =
            verify(&paths, VerifyOptions { deep: true, ..VerifyOptions::default() }).unwrap();
        let named = report
            .findings
            .iter()
            .any(|finding| finding.severity >= least && finding.at.file() == Some(path.as_path()));
        assert!(named, "byte {place}, bit {bit}: {:#?}", report.findings);
    }
}

#[test]
fn h12_changed_byte_of_the_log_is_damage() {
    flip_each_byte(&Sample::tiny(), LedgerPaths::log, Severity::Damage);
}

#[test]
fn h12_changed_byte_of_the_head_is_reported() {
    // The unused rest of a slot is zeros, which are checked too.
    flip_each_byte(&Sample::tiny(), LedgerPaths::head, Severity::Warning);
}

#[test]
fn h12_changed_byte_of_the_keys_is_reported() {
    flip_each_byte(&Sample::small(), LedgerPaths::keys, Severity::Damage);
    flip_each_byte(&Sample::small(), LedgerPaths::key, Severity::Damage);
}

#[test]
fn h12_changed_byte_of_the_salts_is_reported() {
    flip_each_byte(&Sample::tiny(), LedgerPaths::salts, Severity::Warning);
}

#[test]
fn h12_changed_byte_of_a_body_is_damage() {
    let sample = Sample::tiny();
    let hash = sample.bodies[0].0.hash();
    flip_each_byte(&sample, |paths| body_path(paths, &hash), Severity::Damage);
}

#[test]
fn bodies_deleted_without_an_event_are_reported_as_missing() {
    let sample = Sample::small();
    let report = verify_changed(&sample, |paths| fs::remove_dir_all(paths.bodies()).unwrap());
    check(&report, &[(Severity::Damage, Code::BodyMissing)]);
    assert_eq!(report.findings.len(), 2);
    let report = verify_changed(&sample, |paths| fs::remove_file(paths.salts()).unwrap());
    check(&report, &[(Severity::Damage, Code::SaltsMissing)]);
}

#[test]
fn unsigned_redaction_does_not_excuse_a_missing_body() {
    let sample = Sample::small();
    let hashes: Vec<Digest> = sample.bodies.iter().map(|(body, _)| body.hash()).collect();
    let mut longer = Sample::small();
    longer.batch(|it| {
        it.add(None, LedgerRedacted { bodies: hashes.clone(), reason: "none".into() });
    });
    let delete = |paths: &LedgerPaths| {
        fs::remove_dir_all(paths.bodies()).unwrap();
        crate::salts::erase(&paths.salts(), &hashes).unwrap();
        fs::write(paths.log(), longer.log()).unwrap();
    };
    let report = verify_changed(&sample, delete);
    check_has(&report, Severity::Damage, Code::BodyMissing);
    check_has(&report, Severity::Damage, Code::SaltMissing);
    let report = verify_changed(&longer, delete);
    check(&report, &[]);
}

#[test]
fn h09_incomplete_redaction_is_reported() {
    let mut sample = Sample::small();
    sample.erased.clear();
    let report = verify_changed(&sample, |_| {});
    check(&report, &[(Severity::Warning, Code::RedactionUnfinished)]);
    let mut sample = Sample::small();
    let body = sample.body(b"still here", true);
    sample.batch(|it| it.add(Some(run(1)), WorkspaceChanged { files: 1, changes: body.clone() }));
    sample.erased.push(body.hash());
    sample.batch(|it| {
        it.add(None, LedgerRedacted { bodies: vec![body.hash()], reason: "r".into() });
    });
    let report = verify_changed(&sample, |_| {});
    check(&report, &[(Severity::Warning, Code::RedactionUnfinished)]);
}

#[test]
fn pruned_bodies_are_counted_and_not_reported_as_missing() {
    let mut sample = Sample::small();
    sample.batch(|it| it.add(None, LedgerPruned { before_index: 2, before_time: u64::MAX }));
    let dropped = sample.bodies.remove(0).0.hash();
    sample.erased.push(dropped);
    let report = verify_changed(&sample, |_| {});
    check(&report, &[]);
    assert_eq!(report.bodies.unwrap().pruned, 1);
    // An event at or after that index references the body of the second run.
    let report = verify_changed(&sample, |paths| fs::remove_dir_all(paths.bodies()).unwrap());
    check(&report, &[(Severity::Damage, Code::BodyMissing)]);
}

#[test]
fn unreferenced_salts_and_files_are_only_a_note() {
    let mut sample = Sample::small();
    sample.body(b"nobody's", true);
    let report = verify_changed(&sample, |_| {});
    check(&report, &[(Severity::Note, Code::SaltUnnamed), (Severity::Note, Code::BodyUnnamed)]);
}

#[test]
fn body_replaced_by_another_body_is_damage() {
    let sample = Sample::small();
    let [first, second] = [0, 1].map(|place| sample.bodies[place].0.hash());
    let report = verify_changed(&sample, |paths| {
        fs::copy(body_path(paths, &first), body_path(paths, &second)).unwrap();
    });
    check(&report, &[(Severity::Damage, Code::BodyDamaged)]);
}

#[test]
fn key_readable_by_other_users_is_reported() {
    let report = verify_changed(&Sample::small(), |paths| {
        fs::set_permissions(paths.key(), fs::Permissions::from_mode(0o640)).unwrap();
    });
    check(&report, &[(Severity::Warning, Code::KeyExposed)]);
    assert!(report.findings[0].text.contains("640"));
}

#[test]
fn log_of_another_version_is_reported() {
    let sample = Sample::small();
    let report = verify_changed(&sample, |paths| {
        let mut log = fs::read(paths.log()).unwrap();
        log[15] = 2;
        let check = Digest::of(&[&log[..32]]);
        log[32..64].copy_from_slice(check.as_bytes());
        fs::write(paths.log(), log).unwrap();
    });
    check_has(&report, Severity::Damage, Code::LogNewer);
    let report = verify_changed(&sample, |paths| fs::write(paths.log(), [b'x'; 200]).unwrap());
    check_has(&report, Severity::Damage, Code::LogForeign);
}

#[test]
fn log_of_another_ledger_is_reported() {
    let sample = Sample::small();
    let mut other = Sample::small();
    other.id = crate::LedgerId::new([8; 16]);
    let report = verify_changed(&sample, |paths| fs::write(paths.log(), other.log()).unwrap());
    check_has(&report, Severity::Damage, Code::LogOfAnotherLedger);
}

/// Verifies a ledger of six hundred events after a change of its tiles.
fn with_tiles(change: impl FnOnce(&Path)) -> VerifyReport {
    let mut sample = Sample::empty();
    sample.batch(|it| {
        for number in 0..600 {
            let alarm = AlarmRaised { alarm: number.to_string(), detail: String::new() };
            it.add(None, alarm);
        }
    });
    verify_changed(&sample, |paths| {
        let mut tiles = Tiles::open(paths.tiles()).unwrap();
        let leaves = sample.batches[0].iter().map(|entry| Digest::leaf(entry));
        tiles.extend(0, leaves).unwrap();
        tiles.publish(600).unwrap();
        change(paths.tiles());
    })
}

#[test]
fn tiles_that_contradict_the_log_are_reported() {
    check(&with_tiles(|_| {}), &[]);
    for name in ["tile/0/000", "tile/0/001", "tile/0/002.p/88", "tile/1/000.p/2"] {
        let report = with_tiles(|dir| {
            let path = dir.join(name);
            let mut bytes = fs::read(&path).unwrap();
            bytes[40] ^= 1;
            fs::write(path, bytes).unwrap();
        });
        check(&report, &[(Severity::Warning, Code::DerivedContradicts)]);
        assert!(report.findings[0].at.file().unwrap().ends_with(name));
        assert!(report.is_sound());
    }
    let report = with_tiles(|dir| drop(fs::copy(dir.join("tile/0/000"), dir.join("tile/0/002"))));
    check(&report, &[(Severity::Warning, Code::DerivedContradicts)]);
}

#[test]
fn h05_index_that_contradicts_the_log_is_reported_by_a_deep_check() {
    let changes = [
        "UPDATE meta SET salts = salts",
        "DELETE FROM event WHERE idx = 1",
        "DELETE FROM open_intent",
        "DELETE FROM body",
        "UPDATE run SET last = 1, run = run || 'x' WHERE id = 2",
        "UPDATE span SET earliest = latest + 1",
        "UPDATE event SET kind = 1 WHERE idx = 2",
    ];
    for (number, change) in changes.into_iter().enumerate() {
        let mut sample = Sample::small();
        sample.batch(|it| it.begin(run(3)));
        let report = verify_changed(&sample, |paths| {
            drop(crate::reader::Reader::open(paths).unwrap());
            let index = rusqlite::Connection::open(paths.index()).unwrap();
            assert!(index.execute(change, []).unwrap() > 0, "{change}");
        });
        let expected = [(Severity::Warning, Code::DerivedContradicts)];
        // The first change is the control: it changes nothing that is derived from the log.
        check(&report, if number == 0 { &[] } else { &expected });
    }
}
