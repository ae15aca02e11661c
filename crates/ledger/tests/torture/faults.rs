//! System calls that fail: what was acknowledged is there, what failed was not acknowledged.

use std::fs;
use std::path::PathBuf;

use crate::child::{Ended, Process};
use crate::fixture::Home;

/// Starts `act` with these faults in the files of the ledger; how often they struck.
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
    let struck = fs::read_to_string(&trace).unwrap().matches("(INJECTED)").count();
    fs::remove_file(&trace).unwrap();
    (ended, struck)
}

/// Makes the first, second, third … such call fail, each in a ledger of its own.
#[track_caller]
fn check_every(act: &str, files: &[&str], call: &str, error: &str, must_say: Option<&str>) -> u32 {
    for when in 1.. {
        let home = Home::with_events(1);
        let fault = format!("{call}:error={error}:when={when}");
        let (ended, struck) = with_faults(&home, act, files, std::slice::from_ref(&fault));
        assert!(ended.status.success(), "{fault}: {ended:?}");
        if let Some(words) = must_say.filter(|_| struck > 0) {
            assert!(ended.said.contains(words), "{fault} in {files:?}: {ended:?}");
        }
        home.check(&ended.told);
        if struck == 0 {
            assert!(!ended.said.contains("error"), "{ended:?}");
            return when - 1;
        }
    }
    0
}

const CODES: [(&str, &str); 2] = [("EIO", "code: 5,"), ("ENOSPC", "code: 28,")];

#[test]
fn h12_errors_of_the_log_are_told_and_nothing_is_lost() {
    for (error, said) in CODES {
        for call in ["write", "fdatasync"] {
            let struck = check_every("insist", &["ledger/events.log"], call, error, Some(said));
            assert_eq!(struck, 3, "{call}");
        }
    }
}

#[test]
fn h12_errors_of_the_salts_are_told_and_nothing_is_lost() {
    for (error, said) in CODES {
        for call in ["write", "fdatasync"] {
            let struck = check_every("record", &["ledger/salts"], call, error, Some(said));
            assert_eq!(struck, 1, "{call}");
        }
    }
}

/// The head only repeats what the log says: without it nothing is lost and nobody is stopped.
#[test]
fn h12_errors_of_the_head_lose_nothing() {
    for (error, _) in CODES {
        for act in ["record", "redact"] {
            assert!(check_every(act, &["anchor/head"], "pwrite64", error, None) >= 3);
        }
    }
}

#[test]
fn h12_errors_of_the_keys_lose_nothing() {
    let files = ["anchor/key", "anchor/key.new", "anchor/keys", "anchor/keys.new", "anchor"];
    for (error, said) in CODES {
        for call in ["write", "fsync", "rename"] {
            assert!(check_every("rotate", &files, call, error, Some(said)) >= 2, "{call}");
        }
    }
}

/// Everything at once, in the beginning of a ledger: it is there afterwards or was never begun.
#[test]
fn h12_errors_while_a_ledger_is_begun_are_told() {
    for (error, said) in CODES {
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
                let (ended, struck) =
                    with_faults(&home, "open", &names, std::slice::from_ref(&fault));
                let harmless = ["pwrite64", "openat", "mkdir"].contains(&call);
                assert!(struck == 0 || harmless || ended.said.contains(said), "{fault}: {ended:?}");
                home.check(&ended.told);
                if struck == 0 {
                    break;
                }
            }
        }
    }
}

/// When even taking back fails, the ledger stops, and the next opening decides.
#[test]
fn h12_an_append_that_cannot_be_taken_back_stops_the_ledger() {
    for call in ["write", "fdatasync"] {
        let home = Home::with_events(1);
        let faults = [format!("{call}:error=EIO:when=2"), "ftruncate:error=EIO".to_owned()];
        let (ended, struck) = with_faults(&home, "insist", &["ledger/events.log"], &faults);
        assert_eq!(struck, 2, "{ended:?}");
        assert_eq!(ended.told.events.len(), 1, "{ended:?}");
        assert!(ended.said.contains("Broken"), "{ended:?}");
        home.check(&ended.told);
    }
}

/// A write that says it did more than it did is found out before anybody is told.
#[test]
fn h12_a_write_that_lies_is_not_acknowledged() {
    for claimed in [1, 30, 100] {
        let home = Home::with_events(1);
        let fault = format!("write:retval={claimed}:when=2");
        let (ended, struck) = with_faults(&home, "insist", &["ledger/events.log"], &[fault]);
        assert_eq!(struck, 1);
        assert_eq!(ended.told.events.len(), 1, "{ended:?}");
        assert!(ended.said.contains("Broken"), "{ended:?}");
        home.check(&ended.told);
    }
}

/// Errors of reading are no damage, and nothing is cut off because of them.
#[test]
fn h12_errors_of_reading_are_no_damage() {
    for when in 1..8 {
        let home = Home::with_events(3);
        let log = fs::read(home.log()).unwrap();
        let fault = format!("pread64:error=EIO:when={when}");
        let files = ["ledger/events.log", "ledger/salts", "anchor/head"];
        let (ended, struck) = with_faults(&home, "record", &files, &[fault]);
        assert!(fs::read(home.log()).unwrap().starts_with(&log));
        assert!(struck == 0 || ended.said.contains("code: 5,"), "{when}: {ended:?}");
        home.check(&ended.told);
    }
}
