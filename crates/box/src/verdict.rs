//! How a run ended, decided from what was seen. Pure.

use std::time::Duration;

use belljar_model::{CpuTime, LayerState, OutputBytes, Reason};

use crate::cgroup::Counts;

/// The account of a run that is over.
#[derive(Debug)]
pub struct Finished {
    pub reason: Reason,
    pub exit: Option<i32>,
    pub signal: Option<i32>,
    /// From the start of the program to its end.
    pub wall: Duration,
    pub cpu: CpuTime,
    pub peak_memory: Option<u64>,
    pub stdin_bytes: u64,
    pub output: OutputBytes,
    /// Whether standard output is at the beginning of a line.
    pub ended_in_newline: bool,
    pub layers: Vec<LayerState>,
    /// Why the program could not be executed, when it could not.
    pub exec_error: Option<std::io::Error>,
}

/// What the supervisor saw of the payload's end.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Seen {
    /// Why we killed the box, if we did.
    pub(crate) killed: Option<Reason>,
    pub(crate) exec_errno: Option<i32>,
    pub(crate) exit: Option<i32>,
    pub(crate) signal: Option<i32>,
}

/// The reason of the end. Limits that the kernel enforced show only in its counters.
pub(crate) fn reason(seen: Seen, counts: Counts) -> Reason {
    if let Some(reason) = seen.killed {
        return reason;
    }
    if let Some(errno) = seen.exec_errno {
        let missing = errno == rustix::io::Errno::NOENT.raw_os_error();
        return if missing { Reason::NotFound } else { Reason::NotExecutable };
    }
    // A program that survived the kernel's kill of one of its children and succeeded is no victim.
    let failed = seen.exit != Some(0);
    match (seen.exit, seen.signal) {
        _ if failed && counts.memory_kills > 0 => Reason::Memory,
        (None, None) => Reason::Interrupted,
        (_, Some(_)) => Reason::Signaled,
        (Some(_), None) => Reason::Exited,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_reason_follows_from_what_was_seen() {
        let none = Counts::default();
        let oom = Counts { memory_kills: 1, ..none };
        let seen = Seen::default();
        let check = |seen: Seen, counts: Counts, expect: Reason| {
            assert_eq!(reason(seen, counts), expect, "{seen:?} {counts:?}");
        };
        check(Seen { exit: Some(0), ..seen }, none, Reason::Exited);
        check(Seen { exit: Some(0), ..seen }, oom, Reason::Exited);
        check(Seen { exit: Some(137), ..seen }, oom, Reason::Memory);
        check(Seen { signal: Some(9), ..seen }, oom, Reason::Memory);
        check(Seen { signal: Some(9), ..seen }, none, Reason::Signaled);
        check(seen, oom, Reason::Memory);
        check(seen, none, Reason::Interrupted);
        check(Seen { killed: Some(Reason::Timeout), ..seen }, oom, Reason::Timeout);
        check(Seen { exec_errno: Some(2), ..seen }, none, Reason::NotFound);
        check(Seen { exec_errno: Some(13), ..seen }, none, Reason::NotExecutable);
    }
}
