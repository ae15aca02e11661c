//! Tests of valid receipts and of every kind of change to a receipt.

use tempfile::TempDir;

use super::*;
use crate::event::*;
use crate::paths::LedgerPaths;
use crate::verify::sample::{Sample, key, run};

fn made(sample: &Sample, number: u32, disclose: Disclose) -> RunReceipt {
    let home = TempDir::new().unwrap();
    let paths = sample.write(home.path());
    RunReceipt::make(&paths, run(number), disclose).unwrap()
}

#[test]
fn receipt_verifies_without_the_ledger_and_lists_the_events() {
    let text = made(&Sample::small(), 1, Disclose::Bodies).to_text();
    let verified = verify_receipt(&text, &[key(1).verifying()]).unwrap();
    assert_eq!(verified.run(), run(1));
    let kinds: Vec<_> = verified.events().iter().map(|(_, entry)| entry.kind.as_str()).collect();
    assert_eq!(kinds, ["run.created", "run.exec", "run.ended"]);
    assert!(verified.ended());
    assert_eq!(verified.policy(), Some(Digest::of(&[b"policy"])));
    assert_eq!(verified.checkpoint().size(), 9);
    assert_eq!(verified.key(), &key(2).verifying());
    let command = verified.created().unwrap().command;
    assert_eq!(verified.content(&command), Some(format!("sh\0-c\0{}", run(1)).as_bytes()));
    let [(name, stdout)] = &verified.outputs()[..] else { panic!("one output") };
    assert_eq!((*name, verified.content(stdout)), ("stdout", None));
}

#[test]
fn receipt_discloses_bodies_only_on_request_and_no_salt_without_content() {
    assert_eq!(made(&Sample::small(), 1, Disclose::Nothing).bodies, []);
    // The second run has one stored, one redacted and one hashed body.
    let hashes: Vec<_> =
        made(&Sample::small(), 2, Disclose::Bodies).bodies.iter().map(|body| body.hash).collect();
    assert_eq!(hashes.len(), 1, "a salt alone would only help to guess the content");
    assert!(!hashes.contains(&Sample::small().erased[0]));
}

#[test]
fn receipt_is_trusted_by_any_key_that_endorses_the_signer() {
    let text = made(&Sample::small(), 1, Disclose::Nothing).to_text();
    for trusted in [1, 2] {
        verify_receipt(&text, &[key(9).verifying(), key(trusted).verifying()]).unwrap();
    }
    for trusted in [&[][..], &[key(9).verifying()]] {
        let error = verify_receipt(&text, trusted).unwrap_err();
        assert!(
            matches!(error, ReceiptError::UntrustedKey { key: signer } if *signer == key(2).verifying())
        );
    }
}

/// Returns a ledger with one run whose bodies all have content, so that all parts are checked.
fn closed() -> Sample {
    let mut sample = Sample::empty();
    sample.batch(|it| it.add(None, LedgerCreated { version: "1".into(), reason: None }));
    sample.batch(|it| it.begin(run(1)));
    sample.rotate(2);
    sample
}

#[test]
fn h07_verify_receipt_detects_every_changed_byte() {
    let text = made(&closed(), 1, Disclose::Bodies).to_text();
    let trusted = [key(1).verifying(), key(2).verifying()];
    verify_receipt(&text, &trusted).unwrap();
    for place in 0..text.len() {
        for bit in [1, 2, 4, 8, 16, 32, 64] {
            let mut bytes = text.clone().into_bytes();
            bytes[place] ^= bit;
            // A receipt is passed as text, so invalid UTF-8 cannot occur.
            let Ok(changed) = String::from_utf8(bytes) else { continue };
            let answer = verify_receipt(&changed, &trusted);
            assert!(answer.is_err(), "byte {place}, bit {bit}: {changed}");
        }
    }
}

#[test]
fn h07_receipt_in_another_spelling_is_refused() {
    let text = made(&closed(), 1, Disclose::Nothing).to_text();
    let trusted = [key(1).verifying()];
    let spaced = text.replacen("\"run\":", "\"run\": ", 1);
    let escaped = text.replacen("belljar receipt", "bell\\u006aar receipt", 1);
    let unended = text.trim_end().to_owned();
    for other in [spaced, escaped, unended, format!("{text}\n"), format!(" {text}")] {
        let error = verify_receipt(&other, &trusted).unwrap_err();
        assert!(matches!(error, ReceiptError::Spelling), "{error:?}");
    }
    let twice = text.replacen("{\"format\"", "{\"run\":\"x\",\"format\"", 1);
    assert!(matches!(verify_receipt(&twice, &trusted), Err(ReceiptError::Json(_))));
}

/// Changes the parts of a valid receipt and returns the error; the spelling stays canonical.
#[track_caller]
fn refused(change: impl FnOnce(&mut RunReceipt)) -> ReceiptError {
    let mut receipt = made(&Sample::small(), 1, Disclose::Bodies);
    change(&mut receipt);
    verify_receipt(&receipt.to_text(), &[key(1).verifying()]).unwrap_err()
}

#[test]
fn h02_receipt_with_removed_or_swapped_events_is_refused() {
    let error = refused(|receipt| drop(receipt.events.remove(1)));
    assert!(matches!(error, ReceiptError::Chain { index: 5, .. }), "{error:?}");
    let error = refused(|receipt| drop(receipt.events.remove(0)));
    assert!(matches!(error, ReceiptError::Chain { .. }), "{error:?}");
    let error = refused(|receipt| receipt.events.clear());
    assert!(matches!(error, ReceiptError::NoEvents), "{error:?}");
    let error = refused(|receipt| receipt.events.swap(1, 2));
    assert!(matches!(error, ReceiptError::Chain { .. }), "{error:?}");
    let error = refused(|receipt| receipt.events[2].index += 1);
    assert!(matches!(error, ReceiptError::Proof { .. }), "{error:?}");
    let error = refused(|receipt| receipt.events[1].proof.truncate(1));
    assert!(matches!(error, ReceiptError::Proof { .. }), "{error:?}");
    let error = refused(|receipt| receipt.run = run(2));
    assert!(matches!(error, ReceiptError::Chain { .. }), "{error:?}");
}

/// Cuts off the last events; what remains is a valid chain whose events are all in the tree.
#[test]
fn h02_receipt_whose_last_events_were_cut_off_is_refused() {
    for kept in 1..3 {
        let error = refused(|receipt| receipt.events.truncate(kept));
        assert!(matches!(error, ReceiptError::Extent), "{error:?}");
    }
    // A plain checkpoint of the ledger does not name the events of the run.
    let plain = Sample::small();
    let head = plain.head(plain.batches.len(), 1).note;
    let error = refused(|receipt| {
        receipt.events.truncate(1);
        receipt.checkpoint.clone_from(&head);
    });
    assert!(matches!(error, ReceiptError::Extent), "{error:?}");
    // The statement of another receipt names another run.
    let other = made(&Sample::small(), 2, Disclose::Nothing).checkpoint;
    let error = refused(|receipt| receipt.checkpoint = other);
    assert!(matches!(error, ReceiptError::Extent), "{error:?}");
}

/// Belljar 0.1 made receipts of format 1, which do not prove that the run has no later events.
#[test]
fn h02_receipt_of_format_1_is_not_complete() {
    let plain = Sample::small();
    let mut receipt = made(&plain, 1, Disclose::Nothing);
    receipt.format = Format::One;
    receipt.checkpoint = plain.head(plain.batches.len(), 1).note;
    let verified = verify_receipt(&receipt.to_text(), &[key(1).verifying()]).unwrap();
    assert!(!verified.is_complete());
    receipt.events.truncate(1);
    let verified = verify_receipt(&receipt.to_text(), &[key(1).verifying()]).unwrap();
    assert!(!verified.is_complete());
    // The statement about the events cannot be dropped from a receipt of format 2.
    let mut receipt = made(&plain, 1, Disclose::Nothing);
    receipt.format = Format::One;
    let error = verify_receipt(&receipt.to_text(), &[key(1).verifying()]).unwrap_err();
    assert!(matches!(error, ReceiptError::Extent), "{error:?}");
}

#[test]
fn receipt_states_whether_the_run_had_ended() {
    let mut open = Sample::empty();
    open.batch(|it| it.begin(run(1)));
    for (sample, state) in [(open, "open"), (Sample::small(), "ended")] {
        let receipt = made(&sample, 1, Disclose::Nothing);
        let trusted = [key(1).verifying(), key(2).verifying()];
        let verified = verify_receipt(&receipt.to_text(), &trusted).unwrap();
        assert!(verified.is_complete());
        assert_eq!(verified.ended(), state == "ended");
        let [line] = verified.checkpoint().extensions() else { panic!("one extension line") };
        assert!(line.ends_with(&format!(" {state}")), "{line}");
    }
}

#[test]
fn receipt_with_bodies_of_another_run_is_refused() {
    let error = refused(|receipt| {
        let again = receipt.bodies[0].clone();
        receipt.bodies.push(again);
    });
    assert!(matches!(error, ReceiptError::BodyUnnamed { .. }), "{error:?}");
    let error = refused(|receipt| receipt.bodies[0].hash = Digest::of(&[b"x"]));
    assert!(matches!(error, ReceiptError::BodyUnnamed { .. }), "{error:?}");
    let error = refused(|receipt| {
        receipt.bodies[0].content = b"other".to_vec();
    });
    assert!(matches!(error, ReceiptError::BodyContent { .. }), "{error:?}");
}

#[test]
fn receipt_with_an_unendorsed_signing_key_is_refused() {
    let error = refused(|receipt| receipt.rotations[0].endorsement[5] ^= 1);
    assert!(matches!(error, ReceiptError::Rotation), "{error:?}");
    let error = refused(|receipt| receipt.rotations[0].old = key(9).verifying());
    assert!(matches!(error, ReceiptError::Rotation), "{error:?}");
    let error = refused(|receipt| receipt.rotations.clear());
    assert!(matches!(error, ReceiptError::UntrustedKey { .. }), "{error:?}");
}

#[test]
fn h04_receipt_of_a_forged_tree_is_refused() {
    let error = refused(|receipt| {
        receipt.checkpoint = receipt.checkpoint.replacen("\n9\n", "\n8\n", 1);
    });
    assert!(matches!(error, ReceiptError::Checkpoint(_)), "{error:?}");
}

#[test]
fn receipt_of_an_unsigned_or_missing_run_is_refused() {
    let home = TempDir::new().unwrap();
    let paths: LedgerPaths = Sample::small().write(home.path());
    let error = RunReceipt::make(&paths, run(7), Disclose::Nothing).unwrap_err();
    assert!(matches!(error, ReceiptError::NoRun { .. }), "{error:?}");
    let mut longer = Sample::small();
    longer.batch(|it| it.begin(run(7)));
    std::fs::write(paths.log(), longer.log()).unwrap();
    let error = RunReceipt::make(&paths, run(7), Disclose::Nothing).unwrap_err();
    assert!(matches!(error, ReceiptError::NotSigned { .. }), "{error:?}");
}

proptest::proptest! {
    #[test]
    fn receipt_parser_never_panics(text in ".*", rest in "[\\[\\]{}\":,a-z0-9]*") {
        for text in [text, format!("{{\"format\":\"belljar receipt 1\",{rest}")] {
            proptest::prop_assert!(verify_receipt(&text, &[]).is_err());
        }
    }
}
