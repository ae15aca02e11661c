//! Decides why a run ended, from its exit status and the kernel's counters. No side effects.

use std::time::Duration;

use belljar_model::{CpuTime, LayerState, OutputBytes, Reason};

use crate::cgroup::Counts;

/// The end of a box: reason, exit status and used resources.
#[derive(Debug)]
pub struct BoxEnd {
    pub reason: Reason,
    pub exit: Option<i32>,
    pub signal: Option<i32>,
    /// The time from the start of the program to its end.
    pub wall: Duration,
    pub cpu: CpuTime,
    pub peak_memory: Option<u64>,
    pub stdin_bytes: u64,
    pub output: OutputBytes,
    /// Whether standard output ended with a newline or was empty.
    pub ended_in_newline: bool,
    /// Error because of which output of the program was lost on the host, such as a full disk.
    pub lost_output: Option<std::io::Error>,
    pub layers: Vec<LayerState>,
    /// The error of `execve`, if the program could not be executed.
    pub exec_error: Option<std::io::Error>,
}

/// The supervisor's observations of the payload's end.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Observed {
    /// The reason why the supervisor killed the box, if it did.
    pub(crate) killed: Option<Reason>,
    pub(crate) exec_errno: Option<i32>,
    pub(crate) exit: Option<i32>,
    pub(crate) signal: Option<i32>,
}

/// Returns why a run ended. Limits that the kernel enforced appear only in its counters.
pub(crate) fn reason(seen: Observed, counts: Counts) -> Reason {
    if let Some(reason) = seen.killed {
        return reason;
    }
    if let Some(errno) = seen.exec_errno {
        let missing = errno == rustix::io::Errno::NOENT.raw_os_error();
        return if missing { Reason::NotFound } else { Reason::NotExecutable };
    }
    // A successful program did not end for lack of memory, even if the kernel killed one of its children.
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
    fn end_reason_follows_from_exit_status_and_counters() {
        let none = Counts::default();
        let oom = Counts { memory_kills: 1, ..none };
        let seen = Observed::default();
        let check = |seen: Observed, counts: Counts, expect: Reason| {
            assert_eq!(reason(seen, counts), expect, "{seen:?} {counts:?}");
        };
        check(Observed { exit: Some(0), ..seen }, none, Reason::Exited);
        check(Observed { exit: Some(0), ..seen }, oom, Reason::Exited);
        check(Observed { exit: Some(137), ..seen }, oom, Reason::Memory);
        check(Observed { signal: Some(9), ..seen }, oom, Reason::Memory);
        check(Observed { signal: Some(9), ..seen }, none, Reason::Signaled);
        check(seen, oom, Reason::Memory);
        check(seen, none, Reason::Interrupted);
        check(Observed { killed: Some(Reason::Timeout), ..seen }, oom, Reason::Timeout);
        check(Observed { exec_errno: Some(2), ..seen }, none, Reason::NotFound);
        check(Observed { exec_errno: Some(13), ..seen }, none, Reason::NotExecutable);
    }
}
