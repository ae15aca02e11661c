//! Attacks by someone who can write every file of the ledger but does not have its key.

use super::super::sample::{SECOND, Sample, framed, key, run};
use super::*;
use crate::digest::Digest;
use crate::entry::Entry;
use crate::event::*;
use crate::frame::{HEADER, LOG_MAGIC, header};

const DAMAGE: Severity = Severity::Damage;

/// Returns a longer sample with one event per batch.
fn long() -> Sample {
    let mut sample = Sample::empty();
    sample.batch(|it| it.add(None, LedgerCreated { version: "1".into(), reason: None }));
    for number in 1..4 {
        sample.batch(|it| it.begin(run(number)));
    }
    for limit in ["a", "b", "c"] {
        for number in 1..4 {
            let event = RunLimit { limit: limit.into() };
            sample.batch(|it| it.add(Some(run(number)), event));
        }
    }
    sample
}

/// Verifies the unchanged anchor with a log of changed batches that have valid checksums and
/// numbers.
fn relaid(change: impl FnOnce(&mut Vec<Vec<Vec<u8>>>)) -> VerifyReport {
    let sample = long();
    let mut batches = sample.batches.clone();
    change(&mut batches);
    let relay = |paths: &LedgerPaths| {
        let mut log = header(LOG_MAGIC, sample.id).to_vec();
        let mut first = 0;
        for batch in &batches {
            log.extend(framed(first, batch));
            first += batch.len() as u64;
        }
        fs::write(paths.log(), log).unwrap();
    };
    verify_changed_with(&sample, relay, VerifyOptions::default())
}

/// Verifies the unchanged anchor with rearranged batches that keep their numbers.
fn reordered(change: impl FnOnce(&mut Vec<Vec<u8>>)) -> VerifyReport {
    let sample = long();
    let mut batches: Vec<Vec<u8>> =
        (0..).zip(&sample.batches).map(|(first, batch)| framed(first, batch)).collect();
    change(&mut batches);
    let log = [header(LOG_MAGIC, sample.id).to_vec(), batches.concat()].concat();
    let relay = |paths: &LedgerPaths| fs::write(paths.log(), log).unwrap();
    verify_changed_with(&sample, relay, VerifyOptions::default())
}

#[test]
fn h02_removed_event_is_reported() {
    let report = relaid(|batches| drop(batches.remove(5)));
    check(&report, &[(DAMAGE, Code::EventMissing), (DAMAGE, Code::LogTruncated)]);
    let finding = &report.findings[0];
    assert!(finding.text.contains(&run(2).to_string()), "{}", finding.text);
    assert!(finding.text.contains("number 1 to 1"), "{}", finding.text);
    assert_eq!(finding.since, Some((1_700_000_000 + 8) * SECOND));
}

#[test]
fn h07_duplicate_event_is_reported() {
    let report = relaid(|batches| {
        let copy = batches[5].clone();
        batches.insert(6, copy);
    });
    check(&report, &[(DAMAGE, Code::EventRepeated), (DAMAGE, Code::LogRewritten)]);
}

#[test]
fn h07_reordered_events_are_reported() {
    // Both events are of one run, so their numbers show the change.
    let report = relaid(|batches| batches.swap(5, 8));
    check_has(&report, DAMAGE, Code::EventReordered);
    check_has(&report, DAMAGE, Code::LogRewritten);
    // The events are of two runs, so only the tree shows the change.
    let report = relaid(|batches| batches.swap(5, 6));
    check(&report, &[(DAMAGE, Code::LogRewritten)]);
}

#[test]
fn h07_replaced_event_is_reported() {
    let change = |batches: &mut Vec<Vec<Vec<u8>>>| {
        let mut entry = Entry::decode(&batches[5][0]).unwrap();
        entry.fields.set("limit", crate::Value::Text("z".into()));
        batches[5][0] = entry.encode().unwrap();
    };
    let report = relaid(change);
    check(&report, &[(DAMAGE, Code::EventUnchained), (DAMAGE, Code::LogRewritten)]);
    // No later event of the run links to its last event.
    let report = relaid(|batches| {
        let mut entry = Entry::decode(&batches[12][0]).unwrap();
        entry.fields.set("limit", crate::Value::Text("z".into()));
        batches[12][0] = entry.encode().unwrap();
    });
    check(&report, &[(DAMAGE, Code::LogRewritten)]);
    assert_eq!(report.findings[0].since, Some((1_700_000_000 + 12) * SECOND));
}

#[test]
fn h02_removed_run_is_reported() {
    let report = relaid(|batches| {
        let name = run(2).to_string();
        batches.retain(|batch| !batch[0].windows(name.len()).any(|bytes| bytes == name.as_bytes()));
    });
    check(&report, &[(DAMAGE, Code::LogTruncated)]);
}

#[test]
fn h02_run_without_a_start_or_with_two_starts_is_reported() {
    let report = relaid(|batches| drop(batches.remove(2)));
    check(&report, &[(DAMAGE, Code::RunWithoutStart), (DAMAGE, Code::LogTruncated)]);
    let report = relaid(|batches| {
        let copy = batches[2].clone();
        batches.insert(9, copy);
    });
    check(&report, &[(DAMAGE, Code::RunRepeated), (DAMAGE, Code::LogRewritten)]);
}

#[test]
fn h07_event_in_non_canonical_encoding_is_reported() {
    let report = relaid(|batches| batches[12][0].push(0));
    check(&report, &[(DAMAGE, Code::EventMalformed), (DAMAGE, Code::LogRewritten)]);
}

#[test]
fn cause_that_is_not_earlier_than_its_effect_is_reported() {
    let mut sample = Sample::empty();
    sample.batch(|it| it.add(None, LedgerCreated { version: "1".into(), reason: None }));
    sample.batch(|it| {
        it.add_because(None, AlarmRaised { alarm: "a".into(), detail: "b".into() }, Some(1));
    });
    let report = verify_changed(&sample, |_| {});
    check(&report, &[(DAMAGE, Code::CauseAfterEffect)]);
}

#[test]
fn h07_removed_duplicate_and_swapped_batches_have_different_codes() {
    let report = reordered(|batches| drop(batches.remove(5)));
    check(&report, &[(DAMAGE, Code::BatchMissing)]);
    assert!(report.findings[0].text.contains("from 5 to 5"), "{}", report.findings[0].text);
    let report = reordered(|batches| {
        let copy = batches[5].clone();
        batches.insert(7, copy);
    });
    check(&report, &[(DAMAGE, Code::BatchRepeated)]);
    let report = reordered(|batches| batches.swap(5, 6));
    check_has(&report, DAMAGE, Code::BatchReordered);
    assert!(!report.findings.iter().any(|finding| finding.code == Code::BatchMissing));
}

#[test]
fn events_after_damage_are_still_checked() {
    let sample = long();
    let spoil = |paths: &LedgerPaths| {
        let mut log = fs::read(paths.log()).unwrap();
        let offset = |batch: usize| -> usize {
            let before = &sample.batches[..batch];
            HEADER + before.iter().map(|batch| framed(0, batch).len()).sum::<usize>()
        };
        for batch in [4, 9] {
            log[offset(batch) + 60] ^= 1;
        }
        fs::write(paths.log(), log).unwrap();
    };
    let report = verify_changed_with(&sample, spoil, VerifyOptions::default());
    check(&report, &[(DAMAGE, Code::BatchDamaged)]);
    let lost: Vec<_> = report.findings.iter().map(|finding| finding.text.as_str()).collect();
    assert_eq!(lost.len(), 2);
    assert!(lost[0].contains("from 4 to 4") && lost[1].contains("from 9 to 9"), "{lost:?}");
    assert_eq!((report.events, report.root), (11, None));
}

#[test]
fn h01_log_truncated_at_any_length_is_reported() {
    // If the removed part contains a rotation, every seventh length is enough.
    for (sample, step) in [(Sample::tiny(), 1), (Sample::small(), 7)] {
        let home = TempDir::new().unwrap();
        let paths = sample.write(home.path());
        let whole = fs::read(paths.log()).unwrap();
        for length in (0..whole.len()).step_by(step) {
            fs::write(paths.log(), &whole[..length]).unwrap();
            let report = verify(&paths, VerifyOptions::default()).unwrap();
            let truncated = report.findings.iter().find(|it| it.code == Code::LogTruncated);
            let truncated = truncated.unwrap_or_else(|| panic!("{length}: {:#?}", report.findings));
            assert_eq!(truncated.severity, DAMAGE);
            assert_eq!(truncated.at, Location::File(paths.log()));
            assert_eq!(truncated.since.is_some(), report.events > 0, "{length}");
        }
    }
}

#[test]
fn h02_missing_log_or_head_is_reported() {
    let sample = Sample::small();
    let report = verify_changed(&sample, |paths| fs::remove_file(paths.log()).unwrap());
    check_has(&report, DAMAGE, Code::LogMissing);
    let report = verify_changed(&sample, |paths| fs::remove_file(paths.head()).unwrap());
    check(&report, &[(DAMAGE, Code::HeadMissing)]);
    let report = verify_changed(&sample, |paths| fs::write(paths.head(), [0; 8192]).unwrap());
    check(&report, &[(DAMAGE, Code::HeadMissing)]);
    let report = verify_changed(&sample, |paths| fs::write(paths.head(), [1; 8192]).unwrap());
    check(&report, &[(DAMAGE, Code::HeadDamaged)]);
}

#[test]
fn torn_append_is_not_damage() {
    let sample = Sample::small();
    let batch = framed(9, &[b"some event".to_vec()]);
    for length in 1..batch.len() {
        let report = verify_changed(&sample, |paths| {
            let log = [sample.log(), batch[..length].to_vec()].concat();
            fs::write(paths.log(), log).unwrap();
        });
        check(&report, &[(Severity::Warning, Code::LogUnfinished)]);
        assert!(report.is_sound());
    }
}

#[test]
fn events_after_the_head_are_reported_as_unsigned() {
    let sample = Sample::small();
    let mut longer = Sample::small();
    longer.batch(|it| it.begin(run(3)));
    let report = verify_changed(&sample, |paths| {
        fs::write(paths.log(), longer.log()).unwrap();
        fs::write(paths.salts(), fs::read(paths.salts()).unwrap()).unwrap();
    });
    check_has(&report, Severity::Warning, Code::LogUnsigned);
    assert_eq!((report.events, report.signed), (10, Some(9)));
}

#[test]
fn h03_ledger_rewritten_with_another_key_is_detected_by_the_old_key() {
    let forged = {
        let mut forged = Sample::small();
        forged.key = key(9);
        forged.keys = vec![key(9).verifying().to_string()];
        forged.batches.truncate(5); // without the rotation
        forged.erased.clear();
        forged
    };
    let options = VerifyOptions::default();
    let report = verify_changed_with(&forged, |_| {}, options);
    check(&report, &[]); // control: no file on the host shows it
    let trusted = key(1).verifying();
    let options = VerifyOptions { key: Some(&trusted), ..VerifyOptions::default() };
    let report = verify_changed_with(&forged, |_| {}, options);
    check(&report, &[(DAMAGE, Code::KeyNotOfLedger), (DAMAGE, Code::HeadUnknownKey)]);
    let kept = [Sample::small().checkpoint_after(4)];
    let options = VerifyOptions { checkpoints: &kept, ..VerifyOptions::default() };
    let report = verify_changed_with(&forged, |_| {}, options);
    check(&report, &[(DAMAGE, Code::CheckpointUnknownKey)]);
}

#[test]
fn h03_rewritten_log_does_not_match_the_old_head() {
    let report = relaid(|batches| {
        *batches = {
            let mut other = Sample::empty();
            other.turn_clock_back(3600 * SECOND);
            for batch in long().batches {
                let entry = Entry::decode(&batch[0]).unwrap();
                let event = Event::read(&entry.kind, &entry.fields).unwrap();
                other.batch(|it| it.add(entry.run, event));
            }
            other.batches
        };
    });
    check(&report, &[(DAMAGE, Code::LogRewritten)]);
}

#[test]
fn h03_given_checkpoint_covers_the_events_of_its_size() {
    let sample = Sample::small();
    for batches in 0..=sample.batches.len() {
        let kept = [sample.checkpoint_after(batches)];
        let events = sample.batches[..batches].iter().map(Vec::len).sum::<usize>();
        let options = VerifyOptions { checkpoints: &kept, ..VerifyOptions::default() };
        let report = verify_changed_with(&sample, |_| {}, options);
        check(&report, &[]);
        assert_eq!(report.anchored, Some(events as u64));
    }
}

#[test]
fn h04_restored_older_copy_is_detected_by_a_checkpoint() {
    let kept = [Sample::small().checkpoint_after(8)];
    let mut older = Sample::small();
    older.batches.truncate(7);
    let report = verify_changed_with(&older, |_| {}, VerifyOptions::default());
    check(&report, &[]); // control: an older copy of everything is consistent
    let options = VerifyOptions { checkpoints: &kept, ..VerifyOptions::default() };
    let report = verify_changed_with(&older, |_| {}, options);
    check(&report, &[(DAMAGE, Code::CheckpointAhead)]);
    assert_eq!(report.anchored, None);
}

#[test]
fn h04_second_ledger_of_the_same_key_is_detected_by_a_checkpoint() {
    let kept = [Sample::small().checkpoint_after(8)];
    let mut fork = Sample::small();
    fork.batches.truncate(7);
    fork.batch(|it| it.add(Some(run(2)), RunLimit { limit: "memory".into() }));
    let options = VerifyOptions { checkpoints: &kept, ..VerifyOptions::default() };
    let report = verify_changed_with(&fork, |_| {}, options);
    check_has(&report, DAMAGE, Code::CheckpointForked);
}

#[test]
fn h04_malformed_forged_and_foreign_checkpoints_have_different_codes() {
    let sample = Sample::small();
    let good = sample.checkpoint_after(8);
    let mut other = Sample::small();
    other.id = crate::LedgerId::new([8; 16]);
    let forged = good.replacen("\n9\n", "\n8\n", 1);
    for (text, code) in [
        (other.checkpoint_after(8), Code::CheckpointOfAnotherLedger),
        (forged, Code::CheckpointForged),
        ("nonsense".to_owned(), Code::CheckpointMalformed),
    ] {
        let given = [good.clone(), text];
        let options = VerifyOptions { checkpoints: &given, ..VerifyOptions::default() };
        let report = verify_changed_with(&sample, |_| {}, options);
        check(&report, &[(DAMAGE, code)]);
        assert_eq!(report.findings[0].at, Location::Checkpoint(1));
        assert_eq!(report.anchored, Some(9));
    }
}

#[test]
fn head_of_another_key_or_with_changed_content_is_reported() {
    let sample = Sample::small();
    let count = sample.batches.len();
    let write = |paths: &LedgerPaths, head: &crate::head::Head| {
        let file = fs::File::create(paths.head()).unwrap();
        file.set_len(8192).unwrap();
        head.write(&file).unwrap();
    };
    let mut stranger = Sample::small();
    stranger.key = key(9);
    let report = verify_changed(&sample, |paths| write(paths, &stranger.head(count, 4)));
    check(&report, &[(DAMAGE, Code::HeadUnknownKey)]);
    let mut head = sample.head(count, 4);
    head.note = head.note.replacen("\n9\n", "\n7\n", 1);
    let report = verify_changed(&sample, |paths| write(paths, &head));
    check(&report, &[(DAMAGE, Code::HeadForged)]);
    let mut head = sample.head(count, 4);
    head.end += 1;
    let report = verify_changed(&sample, |paths| write(paths, &head));
    check(&report, &[(DAMAGE, Code::HeadContradicts)]);
    let mut head = sample.head(count, 4);
    head.own = Some((0, Digest::of(&[b"x"])));
    let report = verify_changed(&sample, |paths| write(paths, &head));
    check(&report, &[(DAMAGE, Code::HeadContradicts)]);
    let mut retired = Sample::small();
    retired.key = key(1);
    let report = verify_changed(&sample, |paths| write(paths, &retired.head(count, 4)));
    check(&report, &[(Severity::Warning, Code::HeadRetiredKey)]);
}

#[test]
fn mismatched_keys_are_reported() {
    let sample = Sample::small();
    let keys = |texts: &[String]| texts.join("\n") + "\n";
    let stranger = key(9).verifying().to_string();
    let added = keys(&[&sample.keys[..], &[stranger]].concat());
    let report = verify_changed(&sample, |paths| fs::write(paths.keys(), &added).unwrap());
    check(&report, &[(DAMAGE, Code::KeysContradict), (DAMAGE, Code::KeyMismatch)]);
    let first = keys(&sample.keys[..1]);
    let report = verify_changed(&sample, |paths| fs::write(paths.keys(), &first).unwrap());
    check(&report, &[(Severity::Warning, Code::RotationUnfinished)]);
    let report = verify_changed(&sample, |paths| {
        fs::write(paths.key(), key(9).to_text() + "\n").unwrap();
    });
    check(&report, &[(DAMAGE, Code::KeyMismatch)]);
    let report = verify_changed(&sample, |paths| fs::remove_file(paths.keys()).unwrap());
    check_has(&report, DAMAGE, Code::KeysMissing);
}

#[test]
fn rotation_without_endorsement_by_the_old_key_is_reported() {
    let mut sample = Sample::empty();
    sample.batch(|it| it.add(None, LedgerCreated { version: "1".into(), reason: None }));
    sample.rotate(2);
    let mut entry = Entry::decode(&sample.batches[1][0]).unwrap();
    entry.fields.set("endorsement", crate::Value::Bytes(vec![7; 64]));
    sample.batches[1][0] = entry.encode().unwrap();
    let report = verify_changed(&sample, |_| {});
    check_has(&report, DAMAGE, Code::RotationInvalid);
    check_has(&report, DAMAGE, Code::HeadUnknownKey);
}

#[test]
fn h13_clock_that_went_back_is_only_a_note() {
    let mut sample = Sample::small();
    sample.turn_clock_back(3600 * SECOND);
    sample.batch(|it| it.begin(run(3)));
    let report = verify_changed(&sample, |_| {});
    check(&report, &[(Severity::Note, Code::ClockWentBack)]);
    assert!(report.is_sound());
}
