//! Tests that unusual contents are recorded and read back unchanged.

use std::fs;
use std::io::Read;

use belljar_ledger::{
    AlarmRaised, Body, Digest, Draft, Event, Query, Reader, RunExec, TraceSpan, WorkspaceChanged,
};

use crate::fixture::{Home, codes, created_with, run_id};

const HOSTILE: &[&[u8]] = &[
    b"",
    b"\0",
    b"a\0b\0\0",
    "\u{2028}\u{2029}\u{feff}\u{202e}".as_bytes(),
    b"\xff\xfe\x80\xc0\xaf\xed\xa0\x80",
    b"\x1b]52;c;ZXZpbA==\x07\x1b[2J\x9b31m\r\n\x08",
    b"{\"kind\":\"run.ended\",\"kind\":\"x\"}\n{\"a\":1,\"a\":2}",
    b"BJB1\0\0\0\x10\0\0\0\0\0\0\0\0\0\0\0\x01aaaaaaaa",
    b"' OR 1=1; DROP TABLE event; --",
    b"../../../etc/passwd",
];

#[test]
fn h07_unusual_contents_are_read_back_unchanged() {
    let home = Home::new();
    let ledger = home.open();
    let scope = Digest::of(&[b"policy"]);
    let mut kept = Vec::new();
    for content in HOSTILE {
        let run = run_id();
        let body = ledger.keep(scope, &mut { *content }).unwrap();
        let first = ledger.record(Draft::new(created_with(body.clone())).of_run(run)).unwrap();
        let exec = Event::from(RunExec { program: content.to_vec() });
        let second =
            ledger.record(Draft::new(exec.clone()).of_run(run).because_of(&first)).unwrap();
        let text = String::from_utf8_lossy(content).into_owned();
        let alarm = Event::from(AlarmRaised { alarm: text.clone(), detail: text });
        let third = ledger.record(Draft::new(alarm.clone()).of_run(run)).unwrap();
        kept.push((body.hash(), *content, [(second, exec), (third, alarm)]));
    }
    drop(ledger);
    let reader = Reader::open(&home.paths()).unwrap();
    for (hash, content, events) in kept {
        let mut out = Vec::new();
        reader.body(hash, &mut out).unwrap();
        assert_eq!(out, content);
        for (receipt, event) in events {
            let entry = reader.read(&reader.event(receipt.index()).unwrap().unwrap()).unwrap();
            assert_eq!(Event::read(&entry.kind, &entry.fields).unwrap(), event);
            assert_eq!(entry.encode().map(|bytes| Digest::leaf(&bytes)), Ok(receipt.hash()));
        }
    }
    assert_eq!(codes(&home.verify()), []);
}

/// The largest event, one that is too large, and the largest batch.
#[test]
fn h07_oversized_event_is_refused_without_affecting_others() {
    let home = Home::new();
    let ledger = home.open();
    let exec = |length: usize| Draft::new(RunExec { program: vec![b'x'; length] });
    let largest = (0..=65_535).rev().find(|length| ledger.record(exec(*length)).is_ok()).unwrap();
    assert!(largest > 65_000, "{largest}");
    ledger.record(exec(1 << 20)).unwrap_err();
    ledger.record_all((0..300).map(|_| exec(60_000)).collect()).unwrap_err();
    let receipts = ledger.record_all((0..250).map(|_| exec(60_000)).collect()).unwrap();
    assert_eq!(receipts.len(), 250);
    drop(ledger);
    let reader = Reader::open(&home.paths()).unwrap();
    assert_eq!(reader.events(&Query::default()).unwrap().len(), 2 + 250);
    assert_eq!(codes(&home.verify()), []);
}

/// The bytes of a forged batch or event inside a content are never read as a batch or event.
#[test]
fn h07_forged_batch_inside_an_event_is_ignored() {
    let home = Home::new();
    let ledger = home.open();
    ledger.record(Draft::new(RunExec { program: b"/bin/true".to_vec() })).map(drop).unwrap();
    let log = fs::read(home.log()).unwrap();
    let batch = log[64..].to_vec();
    ledger.record(Draft::new(RunExec { program: batch.clone() })).map(drop).unwrap();
    let span = TraceSpan {
        trace: "t".into(),
        span: "s".into(),
        parent: None,
        name: String::from_utf8_lossy(&batch).into_owned(),
        start: 0,
        end: 0,
        status: "ok".into(),
        attributes: Body::hash_of(&batch).unwrap(),
    };
    ledger.record(Draft::new(span)).map(drop).unwrap();
    drop(ledger);
    assert_eq!(Reader::open(&home.paths()).unwrap().size(), 4);
    assert_eq!(codes(&home.verify()), []);
}

/// 100 MB that are never in memory at once.
#[test]
fn large_body_is_stored_and_read_back_unchanged() {
    const SIZE: u64 = 100 << 20;
    struct Counted(u64);
    impl Read for Counted {
        fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
            let length = buffer.len().min(usize::try_from(SIZE - self.0).unwrap());
            for byte in &mut buffer[..length] {
                *byte = (self.0 >> 12).to_le_bytes()[0];
                self.0 += 1;
            }
            Ok(length)
        }
    }
    struct Compare(Counted, bool);
    impl std::io::Write for Compare {
        fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
            let mut expected = vec![0; bytes.len()];
            self.0.read_exact(&mut expected)?;
            self.1 &= expected == bytes;
            Ok(bytes.len())
        }
        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }
    let home = Home::new();
    let ledger = home.open();
    let body = ledger.keep(Digest::of(&[b"policy"]), &mut Counted(0)).unwrap();
    assert_eq!(body.size(), SIZE);
    let run = run_id();
    ledger.record(Draft::new(created_with(body.clone())).of_run(run)).map(drop).unwrap();
    let event = WorkspaceChanged { files: 1, changes: body.clone() };
    ledger.record(Draft::new(event).of_run(run)).map(drop).unwrap();
    drop(ledger);
    let reader = Reader::open(&home.paths()).unwrap();
    let mut compare = Compare(Counted(0), true);
    assert_eq!(reader.body(body.hash(), &mut compare).unwrap(), SIZE);
    assert!(compare.1 && compare.0.0 == SIZE);
    assert!(
        reader.disk_usage().unwrap().bodies.disk_bytes < SIZE / 10,
        "the content is compressed"
    );
}
