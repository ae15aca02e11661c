//! Tests that change, replace or remove files of a ledger, each after a check that the ledger was
//! intact.

use std::fs;
use std::path::Path;

use belljar_ledger::{
    AnchorError, Code, Digest, Draft, HeaderError, Ledger, LedgerPaths, LogError, Mended,
    OpenError, Reader, RecordError, VerifyOptions, VerifyReport, mend, open_checkpoint,
    public_keys, verify, verify_consistency,
};

use crate::fixture::{
    Acknowledged, Home, codes, copy_tree, created, damages, event, run_id, verify_deep,
};

fn sound(count: u32) -> Home {
    let home = Home::with_events(count);
    assert_eq!(codes(&home.verify()), []);
    home
}

fn replace(from: &Path, to: &Path) {
    fs::remove_dir_all(to).unwrap();
    fs::create_dir(to).unwrap();
    copy_tree(from, to);
}

fn checkpoint(home: &Home) -> String {
    Reader::open(&home.paths()).unwrap().checkpoint().unwrap().1
}

fn verify_with_checkpoint(home: &Home, checkpoint: &str) -> VerifyReport {
    let checkpoints = [checkpoint.to_owned()];
    verify(&home.paths(), VerifyOptions { checkpoints: &checkpoints, ..VerifyOptions::default() })
        .unwrap()
}

#[track_caller]
fn check_refused(paths: &LedgerPaths, why: impl Fn(&OpenError) -> bool, code: Code) {
    let error = Ledger::open(paths).unwrap_err();
    assert!(why(&error), "{error:?}");
    let found = damages(&verify_deep(paths));
    assert!(found.contains(&code), "{found:?}");
}

#[test]
fn h01_h02_older_copy_of_the_ledger_is_refused() {
    let home = sound(3);
    let old = home.copy();
    home.open().record(Draft::new(event(1))).map(drop).unwrap();
    replace(old.paths().ledger(), home.paths().ledger());
    let why = |error: &OpenError| matches!(error, OpenError::CutShort { events: 5, .. });
    check_refused(&home.paths(), why, Code::LogTruncated);
}

#[test]
fn h02_missing_ledger_is_not_created_again() {
    let gone = |error: &OpenError| matches!(error, OpenError::Gone { events: 4, .. });
    let home = sound(3);
    fs::remove_dir_all(home.paths().ledger()).unwrap();
    check_refused(&home.paths(), gone, Code::LogMissing);
    // The same if the signing key is missing too: the head still has the number of events.
    fs::remove_file(home.paths().anchor().join("key")).unwrap();
    let head = fs::read(home.paths().anchor().join("head")).unwrap();
    check_refused(&home.paths(), gone, Code::LogMissing);
    assert_eq!(fs::read(home.paths().anchor().join("head")).unwrap(), head);
}

/// A copy of all files is consistent on this host; only a checkpoint from elsewhere contradicts it.
#[test]
fn h01_h03_older_copy_of_all_files_contradicts_a_given_checkpoint() {
    let home = sound(3);
    let old = home.copy();
    home.open().record(Draft::new(event(1))).map(drop).unwrap();
    let elsewhere = checkpoint(&home);
    assert_eq!(verify_with_checkpoint(&home, &elsewhere).anchored, Some(5));
    assert_eq!(damages(&verify_with_checkpoint(&home, &elsewhere)), []);
    assert_eq!(codes(&old.verify()), [], "the older copy alone is valid");
    assert_eq!(damages(&verify_with_checkpoint(&old, &elsewhere)), [Code::CheckpointAhead]);
    old.open().record(Draft::new(event(2))).map(drop).unwrap();
    assert_eq!(damages(&verify_with_checkpoint(&old, &elsewhere)), [Code::CheckpointForked]);
}

/// Two continuations of one ledger are each valid alone, and no proof connects them.
#[test]
fn h04_two_continuations_of_a_ledger_contradict_each_other() {
    let home = sound(3);
    let other = home.copy();
    let mut notes = Vec::new();
    for (number, home) in (7..).zip([&home, &other]) {
        home.open()
            .record_all(vec![Draft::new(event(number)), Draft::new(event(0))])
            .map(drop)
            .unwrap();
        assert_eq!(codes(&home.verify()), []);
        notes.push(checkpoint(home));
    }
    assert_eq!(damages(&verify_with_checkpoint(&home, &notes[1])), [Code::CheckpointForked]);
    assert_eq!(damages(&verify_with_checkpoint(&other, &notes[0])), [Code::CheckpointForked]);
    let keys = public_keys(&home.paths()).unwrap();
    let (theirs, _) = open_checkpoint(&notes[1], &keys).unwrap();
    home.open().record(Draft::new(event(1))).map(drop).unwrap();
    let reader = Reader::open(&home.paths()).unwrap();
    let (ours, _) = reader.checkpoint().unwrap();
    let proof = reader.consistency(theirs.size(), ours.size()).unwrap();
    let own = reader.root_at(theirs.size()).unwrap();
    let prove =
        |root: Digest| verify_consistency(theirs.size(), &root, ours.size(), &ours.root(), &proof);
    prove(own).unwrap();
    prove(theirs.root()).unwrap_err();
}

#[test]
fn h03_ledger_recreated_with_another_key_is_detected() {
    let home = sound(3);
    let key = public_keys(&home.paths()).unwrap().remove(0);
    let elsewhere = checkpoint(&home);
    let forged = sound(3);
    // Only the log and the files beside it are replaced: the anchor contradicts them.
    let both = home.copy();
    replace(forged.paths().ledger(), both.paths().ledger());
    let foreign = |error: &OpenError| matches!(error, OpenError::Foreign { .. });
    check_refused(&both.paths(), foreign, Code::LogOfAnotherLedger);
    // The anchor is replaced too: an earlier key or checkpoint contradicts it.
    replace(forged.paths().anchor(), both.paths().anchor());
    assert_eq!(codes(&both.verify()), [], "the forged ledger alone is valid");
    let options = VerifyOptions { key: Some(&key), ..VerifyOptions::default() };
    let found = damages(&verify(&both.paths(), options).unwrap());
    assert!(found.contains(&Code::KeyNotOfLedger), "{found:?}");
    let found = damages(&verify_with_checkpoint(&both, &elsewhere));
    assert_eq!(found, [Code::CheckpointOfAnotherLedger]);
}

#[test]
fn h02_h03_ledger_without_its_anchor_is_refused() {
    let no_anchor = |error: &OpenError| matches!(error, OpenError::NoAnchor { .. });
    let home = sound(3);
    fs::remove_dir_all(home.paths().anchor()).unwrap();
    check_refused(&home.paths(), no_anchor, Code::HeadMissing);

    let home = sound(3);
    fs::remove_file(home.paths().anchor().join("key")).unwrap();
    assert!(no_anchor(&Ledger::open(&home.paths()).unwrap_err()));
    assert_eq!(damages(&home.verify()), [], "a copy without the key can be verified");

    let home = sound(3);
    fs::remove_file(home.paths().anchor().join("head")).unwrap();
    let no_head = |error: &OpenError| matches!(error, OpenError::Anchor(AnchorError::File { .. }));
    check_refused(&home.paths(), no_head, Code::HeadMissing);

    let home = sound(3);
    fs::write(home.paths().anchor().join("head"), [0; 8192]).unwrap();
    let no_head =
        |error: &OpenError| matches!(error, OpenError::Anchor(AnchorError::NoHead { .. }));
    check_refused(&home.paths(), no_head, Code::HeadMissing);

    let home = sound(3);
    fs::remove_file(home.paths().anchor().join("keys")).unwrap();
    check_refused(&home.paths(), |error| matches!(error, OpenError::Anchor(_)), Code::KeysMissing);

    // A head signed by another key is not a head of this ledger.
    let (home, other) = (sound(3), sound(3));
    let head = |home: &Home| home.paths().anchor().join("head");
    fs::copy(head(&other), head(&home)).unwrap();
    let unsigned =
        |error: &OpenError| matches!(error, OpenError::Anchor(AnchorError::Unsigned { .. }));
    check_refused(&home.paths(), unsigned, Code::HeadUnknownKey);
}

/// A log of a future version with an intact header is not treated as damage.
#[test]
fn h08_h12_log_of_another_version_is_refused_with_its_version() {
    for (version, is_whole) in [(0, true), (2, true), (255, true), (2, false)] {
        let home = sound(2);
        let mut log = fs::read(home.log()).unwrap();
        log[15] = version;
        if is_whole {
            let check = Digest::of(&[&log[..32]]);
            log[32..64].copy_from_slice(check.as_bytes());
        }
        fs::write(home.log(), &log).unwrap();
        let named = if is_whole { HeaderError::Version(version) } else { HeaderError::Damaged };
        let why = |error: &OpenError| matches!(error, OpenError::Damaged(LogError::Header { source, .. }) if *source == named);
        let code = if is_whole { Code::LogNewer } else { Code::LogHeaderDamaged };
        check_refused(&home.paths(), why, code);
        assert_eq!(fs::read(home.log()).unwrap(), log);
    }
}

/// An open ledger detects that its files were removed or replaced.
#[test]
fn h02_h05_open_ledger_detects_removed_or_replaced_files() {
    let changed = |error: &RecordError| matches!(error, RecordError::Changed(_));
    let home = sound(3);
    let ledger = home.open();
    fs::rename(home.log(), home.log().with_extension("away")).unwrap();
    let error = ledger.record(Draft::new(event(1))).unwrap_err();
    assert!(changed(&error), "{error:?}");
    fs::rename(home.log().with_extension("away"), home.log()).unwrap();
    ledger.record(Draft::new(event(1))).map(drop).unwrap();

    // The files are replaced by an older copy while open.
    let home = sound(3);
    let old = home.copy();
    let ledger = home.open();
    ledger.record(Draft::new(event(1))).map(drop).unwrap();
    fs::remove_file(home.log()).unwrap();
    fs::copy(old.log(), home.log()).unwrap();
    let error = ledger.record(Draft::new(event(1))).unwrap_err();
    assert!(changed(&error), "{error:?}");

    // The log is truncated while open.
    let home = sound(3);
    let ledger = home.open();
    let log = fs::read(home.log()).unwrap();
    fs::OpenOptions::new().write(true).open(home.log()).unwrap().set_len(100).unwrap();
    let error = ledger.record(Draft::new(event(1))).unwrap_err();
    assert!(changed(&error), "{error:?}");
    assert_eq!(fs::read(home.log()).unwrap(), &log[..100], "nothing was written after the cut");

    // A second lock file does not let two writers append at once.
    let home = sound(3);
    let (first, second) = (home.open(), home.open());
    fs::remove_file(home.paths().ledger().join("lock")).unwrap();
    let third = home.open();
    std::thread::scope(|scope| {
        for ledger in [&first, &second, &third] {
            scope.spawn(move || {
                for number in 0..200 {
                    ledger.record(Draft::new(event(number))).map(drop).ok();
                }
            });
        }
    });
    assert_eq!(damages(&home.verify()), []);
}

/// Events recorded after a mended loss are not mistaken for a torn append.
#[test]
fn h05_open_ledger_detects_a_log_that_was_truncated_and_continued() {
    // One batch that extends beyond the old end, or several of which one starts at or before it.
    for (batches, events) in [(1, 30), (30, 1)] {
        let home = sound(3);
        let ledger = home.open();
        ledger.record(Draft::new(event(1))).map(drop).unwrap();
        let log = fs::read(home.log()).unwrap();
        let cut = crate::fixture::spans(&log)[1].0;
        fs::OpenOptions::new().write(true).open(home.log()).unwrap().set_len(cut as u64).unwrap();
        assert!(!ledger.is_current());
        mend(&home.paths(), "cut").unwrap();
        let other = home.open();
        for _ in 0..batches {
            let drafts = (0..events).map(|number| Draft::new(event(number))).collect();
            other.record_all(drafts).map(drop).unwrap();
        }
        let grown = fs::read(home.log()).unwrap();
        assert!(grown.len() > log.len(), "the old end is inside the new log");
        let error = ledger.record(Draft::new(event(1))).unwrap_err();
        assert!(matches!(error, RecordError::Changed(_)), "{error:?}");
        assert_eq!(fs::read(home.log()).unwrap(), grown, "the log is unchanged");
        assert!(!ledger.is_current());
        home.open().record(Draft::new(event(1))).map(drop).unwrap();
        assert_eq!(damages(&home.verify()), []);
    }
}

#[test]
fn is_current_is_false_after_the_log_is_replaced_and_true_beside_writers() {
    let home = sound(3);
    let ledger = home.open();
    let other = home.open();
    other.record(Draft::new(event(1))).map(drop).unwrap();
    other.rotate_key().unwrap();
    assert!(ledger.is_current());
    ledger.record(Draft::new(event(1))).map(drop).unwrap();
    assert!(other.is_current());
    let away = home.paths().ledger().with_extension("away");
    fs::rename(home.paths().ledger(), &away).unwrap();
    assert!(!ledger.is_current(), "the log was moved away");
    fs::rename(&away, home.paths().ledger()).unwrap();
    assert!(ledger.is_current(), "control: the log is back");
    let mut log = fs::read(home.log()).unwrap();
    log[40] ^= 1;
    fs::write(home.log(), &log).unwrap();
    assert!(matches!(mend(&home.paths(), "rot").unwrap(), Mended::SetAside { .. }));
    assert!(!ledger.is_current(), "another ledger is in its place");
}

#[test]
fn mend_continues_after_a_loss_and_records_the_repair() {
    // From the log, if only the head is lost.
    let home = sound(3);
    fs::remove_file(home.paths().anchor().join("head")).unwrap();
    assert_eq!(mend(&home.paths(), "lost").unwrap(), Mended::Continued { events: 4, lost: 0 });
    home.check(&Acknowledged::default());
    // From the rest of the log.
    let home = sound(3);
    let log = fs::read(home.log()).unwrap();
    let last = crate::fixture::spans(&log).last().unwrap().0;
    fs::write(home.log(), &log[..last]).unwrap();
    assert_eq!(mend(&home.paths(), "cut").unwrap(), Mended::Continued { events: 3, lost: 1 });
    home.check(&Acknowledged::default());
    // With a new ledger, while the old one is kept.
    let home = sound(3);
    let mut log = fs::read(home.log()).unwrap();
    log[40] ^= 1;
    fs::write(home.log(), &log).unwrap();
    let Mended::SetAside { ledger, .. } = mend(&home.paths(), "rot").unwrap() else { panic!() };
    assert_eq!(fs::read(ledger.join("events.log")).unwrap(), log);
    home.check(&Acknowledged::default());
    assert_eq!(mend(&home.paths(), "nothing").unwrap(), Mended::Sound);
}

/// Rows of the index beyond the end of the log are not used.
#[test]
fn h05_index_rows_beyond_the_log_are_ignored() {
    let home = Home::new();
    let run = run_id();
    let ledger = home.open();
    ledger.record(Draft::new(created()).of_run(run)).map(drop).unwrap();
    drop(ledger);
    let (before, head) = (fs::read(home.log()).unwrap(), home.paths().anchor().join("head"));
    let old_head = fs::read(&head).unwrap();
    home.open().record(Draft::new(event(1)).of_run(run)).map(drop).unwrap();
    assert_eq!(Reader::open(&home.paths()).unwrap().size(), 3);
    // A power failure: the index was on disk, the end of the log was not.
    fs::write(home.log(), before).unwrap();
    fs::write(head, old_head).unwrap();
    let ledger = home.open();
    let receipt = ledger.record(Draft::new(event(2)).of_run(run)).unwrap();
    assert_eq!((receipt.index(), receipt.sequence()), (2, 1));
    ledger.record(Draft::new(event(3)).of_run(run)).map(drop).unwrap();
    drop(ledger);
    assert_eq!(codes(&home.verify()), []);
}
