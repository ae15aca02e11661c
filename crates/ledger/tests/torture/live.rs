//! Honest ledgers never raise an alarm, however busy they are.

use belljar_ledger::{Asked, Code, Query, Reader, Severity, verify, verify_inclusion};

use crate::child::Process;
use crate::fixture::{Home, times};

#[test]
fn h06_verifying_beside_live_writers_raises_no_alarm() {
    let home = Home::with_events(1);
    let processes: Vec<Process> =
        (0..2).map(|_| Process::start(&[], "mixed", home.path())).collect();
    processes.iter().for_each(|process| process.wait_for(10));
    for round in 0..times(60) {
        let asked = Asked { deep: round % 2 == 0, ..Asked::default() };
        let report = verify(&home.places(), asked).unwrap();
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
        assert!(!ended.said.contains("error"), "{}", ended.said);
    }
}

#[test]
fn h06_proofs_made_beside_live_writers_hold() {
    let home = Home::with_events(1);
    let processes: Vec<Process> =
        (0..2).map(|_| Process::start(&[], "mixed", home.path())).collect();
    let mut reader = Reader::open(&home.places()).unwrap();
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
        assert!(!ended.said.contains("error"), "{}", ended.said);
    }
}
