//! Every way of changing a ledger that we could think of, and that none goes unnoticed.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use tempfile::TempDir;

use super::sample::{Sample, body_path, framed, key, run};
use super::*;
use crate::entry::Entry;
use crate::event::*;
use crate::frame::{HEADER, LOG_MAGIC, header};

fn report_of(places: &Places) -> Report {
    verify(places, Asked { deep: true, ..Asked::default() }).unwrap()
}

fn codes(report: &Report) -> Vec<(Severity, Code)> {
    report.findings.iter().map(|finding| (finding.severity, finding.code)).collect()
}

/// Writes the sample, lets `change` spoil the files and tells what is found then.
fn spoilt(sample: &Sample, change: impl FnOnce(&Places)) -> Report {
    let home = TempDir::new().unwrap();
    let places = sample.write(home.path());
    change(&places);
    report_of(&places)
}

#[track_caller]
fn check(report: &Report, expected: &[(Severity, Code)]) {
    let mut found = codes(report);
    found.dedup();
    assert_eq!(found, expected, "{:#?}", report.findings);
}

#[test]
fn an_honest_ledger_has_no_finding() {
    for sample in [Sample::empty(), Sample::small()] {
        let report = spoilt(&sample, |_| {});
        check(&report, &[]);
        assert!(report.is_sound());
    }
    let report = spoilt(&Sample::small(), |_| {});
    assert_eq!((report.events, report.runs, report.signed), (9, 2, Some(9)));
    let counts = BodyCounts { kept: 2, hash_only: 2, redacted: 1, pruned: 0 };
    assert_eq!(report.bodies, Some(counts));
    assert_eq!(report.key, Some(key(2).verifying()));
    assert_eq!(report.anchored, None);
}
