//! Tests that the verifier raises no false alarm while writers are active.

use std::sync::atomic::{AtomicBool, Ordering};

use belljar_ledger::{
    Code, Digest, Draft, Query, Reader, Severity, VerifyOptions, verify, verify_inclusion,
};

use crate::child::Process;
use crate::fixture::{Home, created_with, damages, event, run_id, times};

#[test]
fn h06_verify_raises_no_alarm_while_writers_are_active() {
    let home = Home::with_events(1);
    let processes: Vec<Process> =
        (0..2).map(|_| Process::start(&[], "mixed", home.path())).collect();
    processes.iter().for_each(|process| process.wait_for(10));
    for round in 0..times(60) {
        let options = VerifyOptions { deep: round % 2 == 0, ..VerifyOptions::default() };
        let report = verify(&home.paths(), options).unwrap();
        let alarm = |code| code != Code::RedactionUnfinished;
        let alarms: Vec<_> = report
            .findings
            .iter()
            .filter(|finding| finding.severity > Severity::Note && alarm(finding.code))
            .collect();
        assert!(alarms.is_empty(), "round {round}: {alarms:#?}");
    }
    for process in processes {
        let ended = process.kill();
        assert!(!ended.errors.contains("error"), "{}", ended.errors);
    }
}

/// Control: active writers do not hide a missing body.
#[test]
fn h06_missing_body_is_reported_while_writers_are_active() {
    let home = Home::with_events(1);
    let ledger = home.open();
    let body = ledger.keep(Digest::of(&[b"policy"]), &mut b"kept".as_slice()).unwrap();
    drop(ledger.record(Draft::new(created_with(body.clone())).of_run(run_id())).unwrap());
    let hash = body.hash().to_string();
    let kept = home.path().join("ledger/bodies").join(&hash[..2]).join(&hash[2..]);
    std::fs::remove_file(kept).unwrap();
    let over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                let ledger = home.open();
                for number in (0..u32::MAX).take_while(|_| !over.load(Ordering::Relaxed)) {
                    drop(ledger.record(Draft::new(event(number))).unwrap());
                }
            });
        }
        let deep =
            |_| verify(&home.paths(), VerifyOptions { deep: true, ..VerifyOptions::default() });
        let reports: Vec<_> = (0..times(10)).map(deep).collect();
        over.store(true, Ordering::Relaxed);
        for report in reports {
            let report = report.unwrap();
            assert_eq!(damages(&report), [Code::BodyMissing], "{:#?}", report.findings);
        }
    });
}

#[test]
fn h06_proofs_are_valid_while_writers_are_active() {
    let home = Home::with_events(1);
    let processes: Vec<Process> =
        (0..2).map(|_| Process::start(&[], "mixed", home.path())).collect();
    let mut reader = Reader::open(&home.paths()).unwrap();
    for _ in 0..times(20) {
        let size = reader.refresh().unwrap();
        let query = Query { newest_first: true, limit: Some(3), ..Query::default() };
        for row in reader.events(&query).unwrap() {
            let entry = reader.read(&row).unwrap();
            assert_eq!((entry.run, entry.sequence), (row.run, row.sequence));
        }
        let (checkpoint, _) = reader.checkpoint().unwrap();
        let index = checkpoint.size().min(size) - 1;
        let proof = reader.inclusion(index).unwrap();
        let leaf = reader.event(index).unwrap().unwrap().leaf;
        assert_eq!(leaf, proof.leaf);
        let root = reader.root_at(proof.size).unwrap();
        verify_inclusion(&leaf, index, proof.size, &proof.proof, &root).unwrap();
    }
    for process in processes {
        let ended = process.kill();
        assert!(!ended.errors.contains("error"), "{}", ended.errors);
    }
}
