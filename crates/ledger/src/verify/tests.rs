//! Tests that the verifier detects every kind of change to a ledger.

mod attacks;
mod files;
mod hostile;

use std::fs;

use tempfile::TempDir;

use super::sample::{Sample, key};
use super::*;

/// Writes the sample, applies `change` to its files and returns the report.
fn verify_changed(sample: &Sample, change: impl FnOnce(&LedgerPaths)) -> VerifyReport {
    verify_changed_with(sample, change, VerifyOptions { deep: true, ..VerifyOptions::default() })
}

fn verify_changed_with(
    sample: &Sample,
    change: impl FnOnce(&LedgerPaths),
    options: VerifyOptions<'_>,
) -> VerifyReport {
    let home = TempDir::new().unwrap();
    let paths = sample.write(home.path());
    change(&paths);
    verify(&paths, options).unwrap()
}

/// Checks that the report has exactly these codes, worst first.
#[track_caller]
fn check(report: &VerifyReport, expected: &[(Severity, Code)]) {
    let mut found: Vec<_> =
        report.findings.iter().map(|finding| (finding.severity, finding.code)).collect();
    found.dedup();
    assert_eq!(found, expected, "{:#?}", report.findings);
}

/// Checks that the report has this code among others.
#[track_caller]
fn check_has(report: &VerifyReport, severity: Severity, code: Code) {
    let has = report.findings.iter().any(|it| it.severity == severity && it.code == code);
    assert!(has, "no {code} in {:#?}", report.findings);
}

#[test]
fn unchanged_ledger_has_no_finding() {
    for sample in [Sample::empty(), Sample::small()] {
        let report = verify_changed(&sample, |_| {});
        check(&report, &[]);
        assert!(report.is_sound());
    }
    let report = verify_changed(&Sample::small(), |_| {});
    assert_eq!((report.events, report.runs, report.signed), (9, 2, Some(9)));
    let counts = BodyCounts { kept: 2, hash_only: 2, redacted: 1, pruned: 0 };
    assert_eq!(report.bodies, Some(counts));
    assert_eq!(report.key, Some(key(2).verifying()));
    assert_eq!(report.anchored, None);
}

#[test]
fn names_of_codes_are_lower_case_and_unique() {
    let mut names: Vec<_> = Code::ALL.iter().map(|code| code.name()).collect();
    assert!(names.iter().all(|name| name.bytes().all(|b| b.is_ascii_lowercase() || b == b'-')));
    names.sort_unstable();
    names.dedup();
    assert_eq!(names.len(), Code::ALL.len());
}

/// The verifier accepts the files of the writer, also while they are being written.
mod beside_the_writer {
    use std::sync::atomic::{AtomicBool, Ordering};

    use super::*;
    use crate::event::*;
    use crate::ledger::{Draft, Ledger};

    fn alarm(text: &str) -> Draft {
        Draft::new(AlarmRaised { alarm: text.to_owned(), detail: "x".repeat(300) })
    }

    #[test]
    fn ledger_of_the_writer_has_no_finding() {
        let home = TempDir::new().unwrap();
        let paths = LedgerPaths::under(home.path());
        let ledger = Ledger::open(&paths).unwrap();
        for number in 0..20 {
            drop(ledger.record(alarm(&number.to_string())).unwrap());
        }
        let first = crate::public_keys(&paths).unwrap().remove(0);
        let second = ledger.rotate_key().unwrap();
        // One slot of the head is still signed by the first key, which the second key does not
        // endorse.
        check(
            &verify(&paths, VerifyOptions { key: Some(&second), ..VerifyOptions::default() })
                .unwrap(),
            &[],
        );
        drop(ledger.record(alarm("after")).unwrap());
        let options = VerifyOptions { deep: true, key: Some(&first), ..VerifyOptions::default() };
        let report = verify(&paths, options).unwrap();
        check(&report, &[]);
        assert_eq!((report.events, report.signed), (23, Some(23)));
    }

    #[test]
    fn h06_live_writer_causes_no_false_alarm() {
        let home = TempDir::new().unwrap();
        let paths = LedgerPaths::under(home.path());
        let ledger = Ledger::open(&paths).unwrap();
        let done = AtomicBool::new(false);
        std::thread::scope(|scope| {
            for _ in 0..2 {
                scope.spawn(|| {
                    while !done.load(Ordering::Relaxed) {
                        drop(ledger.record(alarm("live")).unwrap());
                    }
                });
            }
            for _ in 0..20 {
                let report =
                    verify(&paths, VerifyOptions { deep: true, ..VerifyOptions::default() });
                let report = report.inspect_err(|_| done.store(true, Ordering::Relaxed)).unwrap();
                if !report.findings.is_empty() {
                    done.store(true, Ordering::Relaxed);
                }
                check(&report, &[]);
            }
            done.store(true, Ordering::Relaxed);
        });
    }

    #[test]
    fn h05_writer_refuses_a_log_that_the_verifier_reports_as_truncated() {
        let home = TempDir::new().unwrap();
        let paths = LedgerPaths::under(home.path());
        let ledger = Ledger::open(&paths).unwrap();
        drop(ledger.record(alarm("one")).unwrap());
        let length = fs::metadata(paths.log()).unwrap().len();
        drop(ledger.record(alarm("two")).unwrap());
        drop(ledger);
        let log = fs::OpenOptions::new().write(true).open(paths.log()).unwrap();
        log.set_len(length).unwrap();
        let report = verify(&paths, VerifyOptions::default()).unwrap();
        check(&report, &[(Severity::Damage, Code::LogTruncated)]);
        assert!(matches!(Ledger::open(&paths), Err(crate::OpenError::CutShort { events: 3, .. })));
    }
}
