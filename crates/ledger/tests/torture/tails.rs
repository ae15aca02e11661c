//! Tests of bytes after the last complete batch: torn appends are repaired, other bytes are
//! refused.

use std::fs::{self, OpenOptions};
use std::os::unix::fs::{FileExt as _, MetadataExt as _};

use belljar_ledger::{Code, Draft, Ledger, LogError, OpenError, Reader, Severity};
use belljar_model::RunId;

use crate::child::Process;
use crate::fixture::{
    Acknowledged, Home, batches, codes, created, damages, event, run_id, spans, verify_deep,
};

/// The verifier runs for one in this many cases; its own tests cover every byte.
const VERIFY_EVERY: usize = 16;

/// A ledger whose head is two batches older than its log, as after a power failure.
struct Behind {
    home: Home,
    run: RunId,
    log: Vec<u8>,
    head: Vec<u8>,
    /// The length of the log in the signed head.
    vouched: usize,
}

impl Behind {
    fn new() -> Self {
        let home = Home::new();
        let ledger = home.open();
        let run = run_id();
        ledger.record(Draft::new(created()).of_run(run)).map(drop).unwrap();
        ledger.record(Draft::new(event(1)).of_run(run)).map(drop).unwrap();
        let head = fs::read(home.paths().anchor().join("head")).unwrap();
        let vouched = fs::read(home.log()).unwrap().len();
        let both = vec![Draft::new(event(2)).of_run(run), Draft::new(event(3))];
        ledger.record_all(both).map(drop).unwrap();
        ledger.record(Draft::new(event(4)).of_run(run)).map(drop).unwrap();
        drop(ledger);
        // The index has all events, including those about to be lost.
        assert_eq!(Reader::open(&home.paths()).unwrap().size(), 6);
        let log = fs::read(home.log()).unwrap();
        Self { home, run, log, head, vouched }
    }

    /// Restores all files, with this log.
    fn restore_with(&self, log: &[u8]) {
        fs::write(self.home.log(), log).unwrap();
        fs::write(self.home.paths().anchor().join("head"), &self.head).unwrap();
    }

    fn ends(&self) -> Vec<usize> {
        spans(&self.log).into_iter().map(|(at, bytes)| at + bytes.len()).collect()
    }

    /// Opens this log, which is intact up to byte `intact`, and continues it.
    #[track_caller]
    fn check_repaired(&self, log: &[u8], intact: usize) {
        self.restore_with(log);
        let paths = self.home.paths();
        let is_verified = log.len().is_multiple_of(VERIFY_EVERY) || log.len() - intact < 2;
        if is_verified {
            let report = verify_deep(&paths);
            assert!(report.is_sound(), "{:#?}", report.findings);
            let unfinished = codes(&report).contains(&(Severity::Warning, Code::LogUnfinished));
            assert_eq!(unfinished, log.len() > intact);
        }
        let ledger = Ledger::open(&paths).unwrap();
        match (ledger.repairs(), log.len() > intact) {
            ([], false) => {}
            ([repair], true) => {
                assert_eq!(
                    (repair.offset, repair.bytes),
                    (intact as u64, (log.len() - intact) as u64)
                );
                assert_eq!(fs::read(&repair.kept).unwrap(), &log[intact..]);
            }
            (repairs, _) => panic!("{repairs:?}"),
        }
        ledger.record(Draft::new(event(9)).of_run(self.run)).map(drop).unwrap();
        drop(ledger);
        let after = fs::read(self.home.log()).unwrap();
        assert_eq!(after.get(..intact), log.get(..intact));
        let before = batches(&log[..intact]).concat().len();
        let more = if log.len() > intact { 2 } else { 1 };
        assert_eq!(batches(&after).concat().len(), before + more);
        if is_verified {
            assert_eq!(codes(&verify_deep(&paths)), []);
        }
    }

    #[track_caller]
    fn check_refused(&self, log: &[u8], why: impl Fn(&OpenError) -> bool) {
        self.restore_with(log);
        let error = Ledger::open(&self.home.paths()).unwrap_err();
        assert!(why(&error), "{error:?}");
        assert_eq!(fs::read(self.home.log()).unwrap(), log, "the log is unchanged");
    }

    #[track_caller]
    fn check_named(&self, codes: &[Code]) {
        let found = damages(&verify_deep(&self.home.paths()));
        assert!(found.iter().any(|code| codes.contains(code)), "{found:?}");
    }
}

/// Leaves half a batch at the end of the log, as a process killed during a write does.
pub(crate) fn leave_half_a_batch(home: &Home) {
    let log = fs::read(home.log()).unwrap();
    let (_, last) = *spans(&log).last().unwrap();
    let file = OpenOptions::new().write(true).open(home.log()).unwrap();
    file.write_all_at(&last[..last.len() / 2], log.len() as u64).unwrap();
}

#[test]
fn h12_log_truncated_after_its_head_is_repaired() {
    let behind = Behind::new();
    let ends = behind.ends();
    for length in behind.vouched..=behind.log.len() {
        let intact = ends.iter().copied().filter(|end| *end <= length).max().unwrap();
        behind.check_repaired(&behind.log[..length], intact);
    }
}

#[test]
fn h01_h05_log_truncated_before_its_head_is_refused() {
    let behind = Behind::new();
    for length in 0..behind.vouched {
        let lengths = (behind.vouched as u64, length as u64);
        behind.check_refused(&behind.log[..length], |error| {
            matches!(error, OpenError::CutShort { events: 3, vouched, length }
                if (*vouched, *length) == lengths)
                || length < 64 && matches!(error, OpenError::Damaged(LogError::Header { .. }))
        });
        if length.is_multiple_of(VERIFY_EVERY) {
            behind.check_named(&[Code::LogTruncated, Code::BatchDamaged, Code::LogHeaderDamaged]);
        }
    }
}

#[test]
fn h12_garbage_after_the_log_is_moved_to_a_file() {
    let behind = Behind::new();
    let end = behind.log.len();
    let last = spans(&behind.log).last().unwrap().1.to_vec();
    let mut damaged = last.clone();
    damaged[40] ^= 1;
    let rests: [&[u8]; 9] = [
        b"x",
        b"BJB1",
        b"BJB1BJB1BJB1BJB1BJB1BJB1BJB1BJB1BJB1BJB1BJB1BJB1BJB1BJB1BJB1BJB1BJB1BJB1BJB1BJB1",
        &[0; 1],
        &[0; 4096],
        &[0; 70_000],
        &[0xff; 3000],
        &last[..last.len() - 1],
        &damaged,
    ];
    for rest in rests {
        behind.check_repaired(&[&behind.log, rest].concat(), end);
    }
}

#[test]
fn h12_log_damaged_in_the_middle_is_refused_and_not_truncated() {
    let behind = Behind::new();
    let (first, last) = (behind.vouched, *behind.ends().last().unwrap());
    let second = spans(&behind.log).last().unwrap().0;
    let damaged = |error: &OpenError| matches!(error, OpenError::Damaged(LogError::Batch { .. }));
    for at in first..second {
        let mut log = behind.log.clone();
        log[at] ^= 0x10;
        behind.check_refused(&log, damaged);
        if at.is_multiple_of(VERIFY_EVERY) {
            behind.check_named(&[Code::BatchDamaged]);
        }
    }
    // Damage in the last batch alone cannot be distinguished from a torn append.
    for at in second..last {
        let mut log = behind.log.clone();
        log[at] ^= 0x10;
        behind.check_repaired(&log, second);
    }
    // A batch that repeats another one, leaves a gap or comes from elsewhere is not a torn append.
    let gap = |error: &OpenError| matches!(error, OpenError::Damaged(LogError::Gap { .. }));
    let log = &behind.log;
    behind.check_refused(&[log, &log[second..]].concat(), gap);
    behind.check_named(&[Code::BatchRepeated]);
    behind.check_refused(&[&log[..first], &log[second..]].concat(), gap);
    behind.check_named(&[Code::BatchMissing]);
    behind.check_refused(&[&log[..first], &log[second..], &log[first..second]].concat(), gap);
    behind.check_named(&[Code::BatchReordered]);
}

/// A file system can leave a long hole at the end of a log after a power failure.
#[test]
fn h12_sparse_tail_that_exceeds_the_memory_is_repaired() {
    const TAIL: u64 = 1 << 30;
    let home = Home::with_events(2);
    let log = OpenOptions::new().write(true).open(home.log()).unwrap();
    let end = log.metadata().unwrap().len();
    log.write_all_at(b"torn", end + TAIL - 4).unwrap();
    let ended = Process::start(&["prlimit", "--data=268435456"], "open", home.path()).end();
    assert!(ended.status.success(), "{ended:?}");
    assert!(!ended.errors.contains("error"), "{ended:?}");
    assert_eq!(batches(&fs::read(home.log()).unwrap()).concat().len(), 4);
    let kept =
        OpenOptions::new().read(true).open(home.paths().ledger().join(format!("torn-{end}")));
    let kept = kept.unwrap();
    let (mut last, meta) = ([0; 4], kept.metadata().unwrap());
    kept.read_exact_at(&mut last, TAIL - 4).unwrap();
    assert_eq!((meta.len(), &last), (TAIL, b"torn"));
    assert!(meta.blocks() * 512 < TAIL / 64, "the copy is sparse: {} blocks", meta.blocks());
    assert_eq!(codes(&home.verify()), []);
}

/// The salts of a batch that was never written do no harm, complete or torn.
#[test]
fn h12_torn_salts_are_repaired() {
    let home = Home::new();
    home.open();
    let salts = home.paths().ledger().join("salts");
    for rest in 0..72 {
        let file = OpenOptions::new().append(true).open(&salts).unwrap();
        let length = file.metadata().unwrap().len();
        file.write_all_at(&vec![7; rest], length).unwrap();
        let ledger = home.open();
        ledger.record(Draft::new(created()).of_run(run_id())).map(drop).unwrap();
        drop(ledger);
    }
    home.check(&Acknowledged::default());
}
