//! Tests with failing system calls: acknowledged events are in the log, failed ones were not
//! acknowledged.

use std::fs;
use std::path::PathBuf;

use crate::child::{Ended, Process};
use crate::fixture::Home;

/// Runs `act` with these faults in the files of the ledger, and returns the number of injected
/// faults.
fn with_faults(home: &Home, act: &str, files: &[&str], faults: &[String]) -> (Ended, usize) {
    let trace = home.path().join("trace");
    let mut words: Vec<String> = ["strace", "-f", "-qq", "-o"].map(str::to_owned).to_vec();
    words.push(trace.to_str().unwrap().to_owned());
    for file in files {
        let path: PathBuf = home.path().join(file);
        words.extend(["-P".to_owned(), path.to_str().unwrap().to_owned()]);
    }
    for fault in faults {
        words.extend(["-e".to_owned(), format!("inject={fault}")]);
    }
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let ended = Process::start(&words, act, home.path()).end();
    let injected = fs::read_to_string(&trace).unwrap().matches("(INJECTED)").count();
    fs::remove_file(&trace).unwrap();
    (ended, injected)
}

/// Makes the first, second, third … call of this kind fail, each time with a new ledger.
#[track_caller]
fn check_every(
    act: &str,
    files: &[&str],
    call: &str,
    error: &str,
    must_print: Option<&str>,
) -> u32 {
    for when in 1.. {
        let home = Home::with_events(1);
        let fault = format!("{call}:error={error}:when={when}");
        let (ended, injected) = with_faults(&home, act, files, std::slice::from_ref(&fault));
        assert!(ended.status.success(), "{fault}: {ended:?}");
        if let Some(words) = must_print.filter(|_| injected > 0) {
            assert!(ended.errors.contains(words), "{fault} in {files:?}: {ended:?}");
        }
        home.check(&ended.acknowledged);
        if injected == 0 {
            assert!(!ended.errors.contains("error"), "{ended:?}");
            return when - 1;
        }
    }
    0
}

const CODES: [(&str, &str); 2] = [("EIO", "code: 5,"), ("ENOSPC", "code: 28,")];

#[test]
fn h12_log_write_errors_are_reported_and_lose_no_event() {
    for (error, text) in CODES {
        for call in ["write", "fdatasync"] {
            let injected = check_every("insist", &["ledger/events.log"], call, error, Some(text));
            assert_eq!(injected, 3, "{call}");
        }
    }
}

#[test]
fn h12_salt_write_errors_are_reported_and_lose_no_event() {
    for (error, text) in CODES {
        for call in ["write", "fdatasync"] {
            let injected = check_every("record", &["ledger/salts"], call, error, Some(text));
            assert_eq!(injected, 1, "{call}");
        }
    }
}

/// The head only repeats facts of the log, so a failure to write it loses nothing and blocks no
/// writer.
#[test]
fn h12_failed_head_writes_lose_no_event() {
    for (error, _) in CODES {
        for act in ["record", "redact"] {
            assert!(check_every(act, &["anchor/head"], "pwrite64", error, None) >= 3);
        }
    }
}

#[test]
fn h12_key_file_errors_lose_no_event() {
    let files = ["anchor/key", "anchor/key.new", "anchor/keys", "anchor/keys.new", "anchor"];
    for (error, text) in CODES {
        for call in ["write", "fsync", "rename"] {
            assert!(check_every("rotate", &files, call, error, Some(text)) >= 2, "{call}");
        }
    }
}

/// After a fault during creation, the ledger exists completely or was never created.
#[test]
fn h12_faults_during_creation_are_reported() {
    for (error, text) in CODES {
        for call in ["write", "pwrite64", "fsync", "ftruncate", "rename", "mkdir", "openat"] {
            for when in 1.. {
                let home = Home::new();
                let names = [
                    "anchor",
                    "anchor/key",
                    "anchor/key.new",
                    "anchor/keys",
                    "anchor/keys.new",
                    "anchor/head",
                    "ledger",
                    "ledger/events.log",
                    "ledger/events.new",
                    "ledger/salts",
                    "ledger/salts.new",
                    "ledger/lock",
                ];
                let fault = format!("{call}:error={error}:when={when}");
                let (ended, injected) =
                    with_faults(&home, "open", &names, std::slice::from_ref(&fault));
                let harmless = ["pwrite64", "openat", "mkdir"].contains(&call);
                assert!(
                    injected == 0 || harmless || ended.errors.contains(text),
                    "{fault}: {ended:?}"
                );
                home.check(&ended.acknowledged);
                if injected == 0 {
                    break;
                }
            }
        }
    }
}

/// If undoing an append fails too, the ledger stops, and the next opening decides.
#[test]
fn h12_append_that_cannot_be_undone_stops_the_ledger() {
    for call in ["write", "fdatasync"] {
        let home = Home::with_events(1);
        let faults = [format!("{call}:error=EIO:when=2"), "ftruncate:error=EIO".to_owned()];
        let (ended, injected) = with_faults(&home, "insist", &["ledger/events.log"], &faults);
        assert_eq!(injected, 2, "{ended:?}");
        assert_eq!(ended.acknowledged.events.len(), 1, "{ended:?}");
        assert!(ended.errors.contains("Broken"), "{ended:?}");
        home.check(&ended.acknowledged);
    }
}

/// A write that reports more bytes than it wrote is detected before the event is acknowledged.
#[test]
fn h12_short_write_reported_as_complete_is_not_acknowledged() {
    for claimed in [1, 30, 100] {
        let home = Home::with_events(1);
        let fault = format!("write:retval={claimed}:when=2");
        let (ended, injected) = with_faults(&home, "insist", &["ledger/events.log"], &[fault]);
        assert_eq!(injected, 1);
        assert_eq!(ended.acknowledged.events.len(), 1, "{ended:?}");
        assert!(ended.errors.contains("Broken"), "{ended:?}");
        home.check(&ended.acknowledged);
    }
}

/// A read error is not damage, and never leads to a truncation.
#[test]
fn h12_read_errors_are_not_treated_as_damage() {
    for when in 1..8 {
        let home = Home::with_events(3);
        let log = fs::read(home.log()).unwrap();
        let fault = format!("pread64:error=EIO:when={when}");
        let files = ["ledger/events.log", "ledger/salts", "anchor/head"];
        let (ended, injected) = with_faults(&home, "record", &files, &[fault]);
        assert!(fs::read(home.log()).unwrap().starts_with(&log));
        assert!(injected == 0 || ended.errors.contains("code: 5,"), "{when}: {ended:?}");
        home.check(&ended.acknowledged);
    }
}
