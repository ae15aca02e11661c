//! Tests that kill processes at any moment: acknowledged events survive, and the next process
//! continues.

use crate::child::Process;
use crate::fixture::{Acknowledged, Home, below, times, verify_deep};

/// The system calls that change, lock or print something.
const CALLS: [&str; 9] = [
    "write",
    "pwrite64",
    "ftruncate",
    "fsync",
    "fdatasync",
    "rename",
    "mkdir",
    "unlinkat",
    "flock",
];

impl Acknowledged {
    fn add(&mut self, more: Self) {
        for (index, hash) in more.events {
            let before = self.events.insert(index, hash);
            assert_eq!(before, None, "event {index} was acknowledged twice");
        }
        self.redacted.extend(more.redacted);
    }
}

/// Kills several processes with several threads each, all on one ledger.
#[test]
fn h04_h12_kills_during_concurrent_appends_lose_no_acknowledged_event() {
    let home = Home::on_disk();
    let start = || Process::start(&[], "mixed", home.path());
    let mut acknowledged = Acknowledged::default();
    let mut processes: Vec<Process> = (0..3).map(|_| start()).collect();
    let kills = times(100);
    for kill in 0..kills {
        let place = usize::try_from(below(3)).unwrap();
        let victim = std::mem::replace(&mut processes[place], start());
        // Sometimes immediately, so that the process dies while it opens the ledger.
        victim.wait_for(below(40));
        let ended = victim.kill();
        assert!(ended.was_killed(), "{ended:?}");
        acknowledged.add(ended.acknowledged);
        if kill % 25 == 0 {
            let report = verify_deep(&home.paths());
            assert!(report.is_sound(), "{:#?}", report.findings);
        }
    }
    for process in processes {
        acknowledged.add(process.kill().acknowledged);
    }
    assert!(acknowledged.events.len() as u64 > kills, "only {} events", acknowledged.events.len());
    home.check(&acknowledged);
}

/// Kills processes with a new ledger each time, so that many die during its creation.
#[test]
fn h12_kills_during_creation_lose_no_acknowledged_event() {
    for round in 0..times(25) {
        let home = Home::new();
        let processes: Vec<Process> =
            (0..2).map(|_| Process::start(&[], "mixed", home.path())).collect();
        processes[0].wait_for(1 + round % 5);
        let mut acknowledged = Acknowledged::default();
        for process in processes {
            acknowledged.add(process.kill().acknowledged);
        }
        home.check(&acknowledged);
    }
}

/// Kills a process before its first, second, third … system call of each kind.
#[track_caller]
fn check_killed_at_every_call(act: &str, prepare: impl Fn() -> Home) {
    let kills: u32 = CALLS.iter().map(|call| killed_at(call, act, &prepare)).sum();
    assert!(kills > 20, "only {kills} kills");
}

#[track_caller]
fn killed_at(call: &str, act: &str, prepare: impl Fn() -> Home) -> u32 {
    // SQLite makes many calls, so only every fourth later one is tested.
    for when in (1..12).chain((12..).step_by(4)) {
        let home = prepare();
        let (trace, inject) =
            (format!("trace={call}"), format!("inject={call}:signal=KILL:when={when}"));
        let strace = ["strace", "-f", "-qq", "-o", "/dev/null", "-e", &trace, "-e", &inject];
        let ended = Process::start(&strace, act, home.path()).end();
        home.check(&ended.acknowledged);
        if !ended.was_killed() {
            assert!(ended.status.success() && !ended.errors.contains("error"), "{ended:?}");
            return when - 1;
        }
    }
    0
}

#[test]
fn h05_h12_ledger_survives_a_kill_at_every_call_of_its_creation() {
    check_killed_at_every_call("open", Home::new);
}

#[test]
fn h12_ledger_survives_a_kill_at_every_call_of_recording() {
    check_killed_at_every_call("record", || Home::with_events(2));
}

#[test]
fn h12_ledger_survives_a_kill_at_every_call_of_a_key_rotation() {
    check_killed_at_every_call("rotate", || Home::with_events(1));
}

#[test]
fn h09_h12_ledger_survives_a_kill_at_every_call_of_a_redaction() {
    check_killed_at_every_call("redact", || Home::with_events(1));
}

#[test]
fn h12_ledger_survives_a_kill_at_every_call_of_pruning() {
    check_killed_at_every_call("prune", || Home::with_events(1));
}

/// Kills the process that repairs the torn append of another killed process.
#[test]
fn h12_ledger_survives_a_kill_at_every_call_of_a_repair() {
    check_killed_at_every_call("record", || {
        let home = Home::with_events(3);
        crate::tails::leave_half_a_batch(&home);
        home
    });
}
