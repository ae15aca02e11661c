//! What needs a look inside: who waits how long for whom, and clocks that go back.

#![expect(
    clippy::disallowed_methods,
    reason = "one test starts a second process of itself and tells it where the ledger is"
)]

use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use rustix::process::{Pid, Signal, WaitOptions};
use tempfile::TempDir;

use super::*;
use crate::entry::{Entry, Moment};
use crate::event::{RunExec, RunLimit};
use crate::reader::Reader;
use crate::verify::sample::{SECOND, Sample, run};
use crate::verify::{Code, Severity, VerifyOptions, verify};

const HOME: &str = "BELLJAR_TEST_STOPPED";

fn exec(program: &str) -> Draft {
    Draft::new(RunExec { program: program.into() })
}

/// Takes the turn, stops, and when it may go on appends. Alone it only appends.
#[test]
fn a_process_that_stops_in_its_turn() {
    let own = TempDir::new().unwrap();
    let told = std::env::var_os(HOME);
    let paths = LedgerPaths::under(told.as_deref().map_or(own.path(), Path::new));
    let ledger = Ledger::open(&paths).unwrap();
    let mut tip = ledger.tip();
    let turn = tip.lock.take().unwrap();
    if told.is_some() {
        rustix::process::kill_process(rustix::process::getpid(), Signal::STOP).unwrap();
    }
    tip.record(&paths, vec![exec("/bin/late")]).map(drop).unwrap();
    drop(turn);
}

#[test]
fn h04_a_stopped_process_keeps_its_turn_and_others_are_told() {
    let home = TempDir::new().unwrap();
    let paths = LedgerPaths::under(home.path());
    let ledger = Ledger::open(&paths).unwrap();
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "ledger::tests::a_process_that_stops_in_its_turn"])
        .env(HOME, home.path())
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    let pid = Pid::from_child(&child);
    let (_, status) = rustix::process::waitpid(Some(pid), WaitOptions::UNTRACED).unwrap().unwrap();
    assert!(status.stopped());

    let patience = ledger.tip().lock.patience;
    assert_eq!(patience, Duration::from_secs(30));
    ledger.tip().lock.patience = Duration::from_millis(200);
    let error = ledger.record(exec("/bin/early")).unwrap_err();
    let RecordError::Busy { holder, .. } = &error else { panic!("{error:?}") };
    assert_eq!(holder, &format!("pid {}", child.id()));
    // A verifier waits for nobody for ever, and raises no alarm.
    let report = verify(&paths, VerifyOptions::default()).unwrap();
    assert!(report.findings.iter().all(|finding| finding.severity == Severity::Note));

    rustix::process::kill_process(pid, Signal::CONT).unwrap();
    assert!(child.wait().unwrap().success());
    ledger.tip().lock.patience = patience;
    let receipt = ledger.record(exec("/bin/early")).unwrap();
    assert_eq!((receipt.index(), receipt.sequence()), (2, 2));
    assert!(verify(&paths, VerifyOptions::default()).unwrap().findings.is_empty());
}

/// The last event is of the year 2100: the order is that of the places, and nothing is damaged.
#[test]
fn h13_a_clock_that_goes_back_changes_no_order() {
    const LATE: u64 = 4_102_444_800 * SECOND;
    let home = TempDir::new().unwrap();
    let mut sample = Sample::empty();
    sample.batch(|it| it.begin(run(1)));
    let mut entry = Entry::decode(&sample.batches[0][0]).unwrap();
    entry.previous = Some(Digest::leaf(&sample.batches[0][0]));
    entry.sequence = 1;
    entry.moment = Moment { time: LATE, uptime: LATE, boot: [3; 16] };
    let event = Event::from(RunLimit { limit: "memory".into() });
    (entry.kind, entry.fields) = (event.kind().to_owned(), event.fields());
    sample.batch(|it| it.add_entry(&entry));
    let paths = sample.write(home.path());

    let ledger = Ledger::open(&paths).unwrap();
    let receipt = ledger.record(exec("/bin/now").of_run(run(1))).unwrap();
    assert_eq!((receipt.index(), receipt.sequence()), (2, 2));
    let reader = Reader::open(&paths).unwrap();
    let rows = reader.events(&Query { run: Some(run(1)), ..Query::default() }).unwrap();
    let order: Vec<u64> = rows.iter().map(|row| row.sequence).collect();
    assert_eq!(order, [0, 1, 2]);
    assert!(rows[1].time > rows[2].time);
    let report = verify(&paths, VerifyOptions { deep: true, ..VerifyOptions::default() }).unwrap();
    let found: Vec<_> = report.findings.iter().map(|it| (it.severity, it.code)).collect();
    assert_eq!(found, [(Severity::Note, Code::ClockWentBack)]);
    // Nothing is taken for old because something before it is from the future.
    assert_eq!(ledger.would_prune(1).unwrap(), 0);
    assert_eq!(ledger.would_prune(LATE).unwrap(), 1);
    assert_eq!(ledger.prune(LATE).unwrap().contents, 1);
    let report = verify(&paths, VerifyOptions { deep: true, ..VerifyOptions::default() }).unwrap();
    assert!(report.is_sound(), "{:#?}", report.findings);
}

/// A cause is before its effect, also when somebody says otherwise.
#[test]
fn h07_an_event_cannot_be_caused_by_a_later_one() {
    let home = TempDir::new().unwrap();
    let ledger = Ledger::open(&LedgerPaths::under(home.path())).unwrap();
    let error = ledger.record(exec("/bin/x").because_of_index(Some(1))).unwrap_err();
    assert!(matches!(error, RecordError::Cause { cause: 1, index: 1 }), "{error:?}");
    ledger.record(exec("/bin/x").because_of_index(Some(0))).map(drop).unwrap();
}
