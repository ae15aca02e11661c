//! Tests that need private items of the writer: lock timeouts and clocks that go back.

#![expect(
    clippy::disallowed_methods,
    reason = "one test starts itself as a second process and passes the path of the ledger to it"
)]

use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use rustix::process::{Pid, Signal, WaitOptions};
use tempfile::TempDir;

use super::*;
use crate::entry::{Entry, Moment};
use crate::event::{RunCreated, RunExec, RunLimit, WorkspaceChanged};
use crate::index::Query;
use crate::reader::Reader;
use crate::verify::sample::{SECOND, Sample, run};
use crate::verify::{Code, Severity, VerifyOptions, verify};

const HOME: &str = "BELLJAR_TEST_STOPPED";

fn exec(program: &str) -> Draft {
    Draft::new(RunExec { program: program.into() })
}

/// Takes the lock, stops itself and appends once it is continued; without the variable it only
/// appends.
#[test]
fn child_process_that_stops_while_it_holds_the_lock() {
    let own = TempDir::new().unwrap();
    let given = std::env::var_os(HOME);
    let paths = LedgerPaths::under(given.as_deref().map_or(own.path(), Path::new));
    let ledger = Ledger::open(&paths).unwrap();
    let mut tip = ledger.tip();
    let held = tip.lock.take().unwrap();
    if given.is_some() {
        rustix::process::kill_process(rustix::process::getpid(), Signal::STOP).unwrap();
        // The kernel may stop another thread first: this one must not release the lock meanwhile.
        std::io::read_to_string(std::io::stdin()).unwrap();
    }
    tip.record(&paths, vec![exec("/bin/late")]).map(drop).unwrap();
    drop(held);
}

#[test]
fn h04_record_reports_the_holder_when_a_stopped_process_keeps_the_lock() {
    let home = TempDir::new().unwrap();
    let paths = LedgerPaths::under(home.path());
    let ledger = Ledger::open(&paths).unwrap();
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "ledger::tests::child_process_that_stops_while_it_holds_the_lock"])
        .env(HOME, home.path())
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    let pid = Pid::from_child(&child);
    let (_, status) = rustix::process::waitpid(Some(pid), WaitOptions::UNTRACED).unwrap().unwrap();
    assert!(status.stopped());

    let timeout = ledger.tip().lock.timeout;
    assert_eq!(timeout, Duration::from_secs(30));
    ledger.tip().lock.timeout = Duration::from_millis(200);
    let error = ledger.record(exec("/bin/early")).unwrap_err();
    let RecordError::Busy { holder, .. } = &error else { panic!("{error:?}") };
    assert_eq!(holder, &format!("pid {}", child.id()));
    // The verifier does not wait for the lock and reports no alarm.
    let report = verify(&paths, VerifyOptions::default()).unwrap();
    assert!(report.findings.iter().all(|finding| finding.severity == Severity::Note));

    rustix::process::kill_process(pid, Signal::CONT).unwrap();
    drop(child.stdin.take());
    assert!(child.wait().unwrap().success());
    ledger.tip().lock.timeout = timeout;
    let receipt = ledger.record(exec("/bin/early")).unwrap();
    assert_eq!((receipt.index(), receipt.sequence()), (2, 2));
    assert!(verify(&paths, VerifyOptions::default()).unwrap().findings.is_empty());
}

/// Records an event after an event of the year 2100: the order stays that of the indexes, without
/// damage.
#[test]
fn h13_clock_that_goes_back_does_not_change_the_order_of_events() {
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
    // An event counts as old only by its own time, not because an earlier event has a future time.
    assert_eq!(ledger.would_prune(1).unwrap(), 0);
    assert_eq!(ledger.would_prune(LATE).unwrap(), 1);
    assert_eq!(ledger.prune(LATE).unwrap().contents, 1);
    let report = verify(&paths, VerifyOptions { deep: true, ..VerifyOptions::default() }).unwrap();
    assert!(report.is_sound(), "{:#?}", report.findings);
}

/// The clock was once ahead: bodies of events behind that one are pruned, its own body is not.
#[test]
fn h13_event_with_a_time_in_the_future_does_not_block_prune() {
    const LATE: u64 = 4_102_444_800 * SECOND;
    let home = TempDir::new().unwrap();
    let mut sample = Sample::empty();
    sample.batch(|it| it.begin(run(1)));
    let mut entry = Entry::decode(&sample.batches[0][0]).unwrap();
    let event = Event::from(WorkspaceChanged { files: 1, changes: sample.body(b"late", true) });
    entry.moment = Moment { time: LATE, uptime: LATE, boot: [3; 16] };
    entry.previous = Some(Digest::leaf(&sample.batches[0][0]));
    entry.sequence = 1;
    (entry.kind, entry.fields) = (event.kind().to_owned(), event.fields());
    sample.batch(|it| it.add_entry(&entry));
    let paths = sample.write(home.path());
    let ledger = Ledger::open(&paths).unwrap();
    keep_all(&ledger, 0..3);
    assert_eq!(ledger.would_prune(LATE).unwrap(), 4);
    assert_eq!(ledger.prune(LATE).unwrap().contents, 4);
    let late = sample.bodies[1].0.hash();
    assert!(Bodies::open(&paths).has(late));
    let deep = || verify(&paths, VerifyOptions { deep: true, ..VerifyOptions::default() }).unwrap();
    assert!(deep().is_sound(), "{:#?}", deep().findings);
    // The event about the drop does not excuse the body that stays.
    Bodies::open(&paths).remove(late).unwrap();
    assert!(deep().findings.iter().any(|it| it.code == Code::BodyMissing));
}

/// A cause must be earlier than its effect, even if the caller names a later event.
#[test]
fn h07_an_event_cannot_be_caused_by_a_later_one() {
    let home = TempDir::new().unwrap();
    let ledger = Ledger::open(&LedgerPaths::under(home.path())).unwrap();
    let error = ledger.record(exec("/bin/x").because_of_index(Some(1))).unwrap_err();
    assert!(matches!(error, RecordError::Cause { cause: 1, index: 1 }), "{error:?}");
    ledger.record(exec("/bin/x").because_of_index(Some(0))).map(drop).unwrap();
}

/// Two processes that sign the same events must not both use the next generation of the head.
#[test]
fn h12_head_is_signed_after_another_process_signed_the_same_events() {
    let home = TempDir::new().unwrap();
    let paths = LedgerPaths::under(home.path());
    let (first, second) = (Ledger::open(&paths).unwrap(), Ledger::open(&paths).unwrap());
    for _ in 0..3 {
        second.tip().sign_durably().unwrap();
    }
    first.tip().sign_durably().unwrap();
    let head = first.tip().anchor.newest().unwrap();
    assert_eq!(head.generation, first.tip().generation);
}

fn scope() -> Digest {
    Digest::of(&[b"policy"])
}

/// Stores contents and records one event for each.
fn keep_all(ledger: &Ledger, contents: impl Iterator<Item = u32>) -> Vec<Digest> {
    let changed = |number: u32| {
        let body = ledger.keep(scope(), &mut number.to_be_bytes().as_slice()).unwrap();
        let hash = body.hash();
        let draft = Draft::new(WorkspaceChanged { files: 1, changes: body });
        ledger.record(draft).map(drop).unwrap();
        hash
    };
    contents.map(changed).collect()
}

fn check_deep(paths: &LedgerPaths) {
    let report = verify(paths, VerifyOptions { deep: true, ..VerifyOptions::default() }).unwrap();
    assert!(report.findings.is_empty(), "{:#?}", report.findings);
}

#[test]
fn h04_prune_releases_the_lock_between_batches() {
    let home = TempDir::new().unwrap();
    let paths = LedgerPaths::under(home.path());
    let (ledger, other) = (Ledger::open(&paths).unwrap(), Ledger::open(&paths).unwrap());
    other.tip().lock.timeout = Duration::from_millis(200);
    keep_all(&ledger, 0..10);
    let mut left = Vec::new();
    let between = || {
        other.record(exec("/bin/between")).map(drop).unwrap();
        left.push(Bodies::open(&paths).list().unwrap().len());
    };
    let dropped = ledger.prune_in_batches(u64::MAX, 4, between).unwrap();
    assert_eq!((dropped.contents, dropped.salts, left), (10, 10, vec![6, 2, 0]));
    check_deep(&paths);
}

/// A recorder shares a stored content, and `prune` runs before the recorder has written its event.
#[test]
fn h11_content_that_is_about_to_be_recorded_is_not_pruned() {
    let home = TempDir::new().unwrap();
    let paths = LedgerPaths::under(home.path());
    let (recorder, pruner) = (Ledger::open(&paths).unwrap(), Ledger::open(&paths).unwrap());
    let stored = keep_all(&recorder, 0..2);
    let shared = recorder.keep(scope(), &mut 0_u32.to_be_bytes().as_slice()).unwrap();
    let new = recorder.keep(scope(), &mut b"new".as_slice()).unwrap();
    assert_eq!(shared.hash(), stored[0], "the recorder shares the content");
    assert_eq!(pruner.would_prune(u64::MAX).unwrap(), 1);
    assert_eq!(pruner.prune(u64::MAX).unwrap().contents, 1, "control: the other content");
    let drafts = [shared.clone(), new.clone()]
        .map(|changes| Draft::new(WorkspaceChanged { files: 1, changes }));
    recorder.record_all(drafts.to_vec()).map(drop).unwrap();
    check_deep(&paths);
    // Control: nobody uses the contents any more.
    drop((shared, new, drafts));
    assert_eq!(pruner.prune(u64::MAX).unwrap().contents, 2);
    check_deep(&paths);
}

#[test]
fn h09_redaction_removes_a_content_that_is_about_to_be_recorded() {
    let home = TempDir::new().unwrap();
    let paths = LedgerPaths::under(home.path());
    let ledger = Ledger::open(&paths).unwrap();
    let stored = keep_all(&ledger, 0..1);
    let shared = ledger.keep(scope(), &mut 0_u32.to_be_bytes().as_slice()).unwrap();
    assert_eq!(ledger.redact(&stored, "private").unwrap(), Dropped { contents: 1, salts: 1 });
    let changed = |changes| Draft::new(WorkspaceChanged { files: 1, changes });
    let error = ledger.record(changed(shared.clone())).unwrap_err();
    assert!(matches!(error, RecordError::BodyGone { hash } if hash == stored[0]), "{error:?}");
    ledger.record(changed(shared.hash_only())).map(drop).unwrap();
    check_deep(&paths);
}

/// The files that a killed process leaves are those of a process that forgets its bodies.
#[test]
fn h12_contents_of_killed_recorders_are_pruned() {
    let home = TempDir::new().unwrap();
    let paths = LedgerPaths::under(home.path());
    let ledger = Ledger::open(&paths).unwrap();
    let stored = keep_all(&ledger, 0..1);
    drop(ledger.keep(scope(), &mut b"never recorded".as_slice()).unwrap());
    let unfinished = paths.bodies().join(format!("new-{}", "0".repeat(32)));
    std::fs::write(&unfinished, b"half").unwrap();
    let foreign = paths.bodies().join("notes");
    std::fs::write(&foreign, b"mine").unwrap();
    assert_eq!(ledger.prune(1).unwrap().contents, 0, "control: the files are newer");
    assert!(unfinished.exists());
    assert_eq!(ledger.would_prune(u64::MAX).unwrap(), 3);
    assert_eq!(ledger.prune(u64::MAX).unwrap().contents, 3);
    assert!(!unfinished.exists() && !Bodies::open(&paths).has(stored[0]));
    assert!(foreign.exists(), "files that Belljar did not create stay");
}

/// The process dies after it erased the salts of a batch and before it removed the contents.
#[test]
fn h12_interrupted_prune_is_completed_by_the_next_one() {
    let home = TempDir::new().unwrap();
    let paths = LedgerPaths::under(home.path());
    let ledger = Ledger::open(&paths).unwrap();
    let hashes = keep_all(&ledger, 0..6);
    let died = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        ledger.prune_in_batches(u64::MAX, 2, || panic!("the process dies here"))
    }));
    died.unwrap_err();
    drop(ledger);
    assert_eq!(Bodies::open(&paths).list().unwrap().len(), 4);
    let left: Vec<Digest> =
        hashes.into_iter().filter(|hash| Bodies::open(&paths).has(*hash)).collect();
    crate::salts::erase(&paths.salts(), &left[..2]).unwrap();
    let ledger = Ledger::open(&paths).unwrap();
    assert_eq!(ledger.would_prune(u64::MAX).unwrap(), 4);
    assert_eq!(ledger.prune(u64::MAX).unwrap(), Dropped { contents: 4, salts: 2 });
    assert_eq!(ledger.would_prune(u64::MAX).unwrap(), 0);
    check_deep(&paths);
}

// ---- Fencing

fn created() -> RunCreated {
    RunCreated {
        name: None,
        template: "default".into(),
        mode: "overlay".into(),
        net: "none".into(),
        policy: Digest::of(&[b"policy"]),
        workspace: None,
        record: "hashes".into(),
        command: Body::hash_of(b"true").unwrap(),
        environment: Vec::new(),
        limits: Vec::new(),
        purpose: None,
        principal: None,
        tenant: None,
        session: None,
        writable: None,
    }
}

/// Opens a ledger with one run of two events, and returns it with the run.
fn with_a_run(home: &TempDir) -> (Ledger, RunId) {
    let ledger = Ledger::open(&LedgerPaths::under(home.path())).unwrap();
    let run = run(1);
    let drafts = vec![Draft::new(created()).of_run(run), exec("/bin/true").of_run(run)];
    let receipts = ledger.record_all(drafts).unwrap();
    assert_eq!(receipts.last().map(Receipt::sequence), Some(1));
    (ledger, run)
}

#[test]
fn h15_append_after_an_older_event_is_refused_when_another_writer_moved_the_chain() {
    let home = TempDir::new().unwrap();
    let (old, run) = with_a_run(&home);
    let new = Ledger::open(&LedgerPaths::under(home.path())).unwrap();
    let draft = |program| exec(program).of_run(run).by(Actor::Driver);
    // Control: both writers can continue the chain that they know.
    old.record(draft("/bin/old").after(1)).map(drop).unwrap();
    new.record(draft("/bin/new").after(2)).map(drop).unwrap();
    let batch = vec![draft("/bin/zombie").after(2), draft("/bin/zombie")];
    let error = old.record_all(batch).unwrap_err();
    let RecordError::Moved { run: of, expected: 2, found: 3 } = &error else { panic!("{error:?}") };
    assert_eq!(*of, Some(run));
    // Without the condition, the old writer would be recorded; nothing of its batch was.
    let receipt = old.record(draft("/bin/old")).unwrap();
    assert_eq!(receipt.sequence(), 4, "no event of the refused batch was recorded");
    assert!(verify(old.paths(), VerifyOptions::default()).unwrap().findings.is_empty());
}

#[test]
fn of_two_writers_that_append_after_the_same_event_exactly_one_succeeds() {
    let home = TempDir::new().unwrap();
    let (first, run) = with_a_run(&home);
    let second = Ledger::open(&LedgerPaths::under(home.path())).unwrap();
    for sequence in 1..30 {
        let record = |ledger: &Ledger| {
            ledger.record(exec("/bin/next").of_run(run).by(Actor::Driver).after(sequence)).is_ok()
        };
        let [one, other] = std::thread::scope(|scope| {
            [&first, &second]
                .map(|ledger| scope.spawn(move || record(ledger)))
                .map(|thread| thread.join().unwrap())
        });
        assert!(one != other, "after {sequence}: {one} {other}");
    }
}

#[test]
fn h15_second_first_event_of_a_run_is_refused_also_from_a_writer_that_does_not_know_the_first() {
    let home = TempDir::new().unwrap();
    let (one, known) = with_a_run(&home);
    let other = Ledger::open(&LedgerPaths::under(home.path())).unwrap();
    let new = run(9);
    let batch = || vec![Draft::new(created()).of_new_run(new), exec("/bin/x").of_run(new)];
    // Control: the first writer succeeds.
    assert_eq!(one.record_all(batch()).unwrap().len(), 2);
    for ledger in [&one, &other] {
        let error = ledger.record_all(batch()).unwrap_err();
        assert!(matches!(error, RecordError::Exists { run } if run == new), "{error:?}");
        let error = ledger.record(Draft::new(created()).of_new_run(known)).unwrap_err();
        assert!(matches!(error, RecordError::Exists { run } if run == known), "{error:?}");
    }
    let receipt = other.record(exec("/bin/y").of_run(new)).unwrap();
    assert_eq!(receipt.sequence(), 2, "nothing of the refused batches was recorded");
    assert!(verify(one.paths(), VerifyOptions::default()).unwrap().findings.is_empty());
}

#[test]
fn after_needs_an_earlier_event_of_the_run() {
    let home = TempDir::new().unwrap();
    let (ledger, _) = with_a_run(&home);
    let unknown = run(9);
    let error = ledger.record(exec("/bin/x").of_run(unknown).after(0)).unwrap_err();
    assert!(matches!(error, RecordError::NoRun { run } if run == unknown), "{error:?}");
    let error = ledger.record(Draft::new(created()).of_run(unknown).after(0)).unwrap_err();
    assert!(matches!(error, RecordError::NoRun { run } if run == unknown), "{error:?}");
}
