//! Detects whether any process of a box has run since the last look.
//!
//! Memory, processes and files of a box change only while one of its processes runs, and a process that runs
//! uses CPU time. Reading the CPU clocks of the known processes costs less than a microsecond each, so a box
//! that is idle costs almost nothing to watch.

use std::time::Duration;

use belljar_sys::process;

use crate::processes;

/// The processes of a box and their CPU times at the last look.
#[derive(Debug, Default)]
pub(crate) struct Activity {
    /// `None` if the list may lack a process, so that the box counts as active.
    known: Option<Vec<(i32, Duration)>>,
}

impl Activity {
    /// Whether a process of the box may have run since the last look.
    pub(crate) fn look(&mut self, init: i32) -> bool {
        let is_idle = self.known.as_ref().is_some_and(|known| {
            known.iter().all(|(pid, time)| process::cpu_time(*pid).is_ok_and(|now| now == *time))
        });
        if is_idle {
            return false;
        }
        let before = processes::descendants(init);
        let times: Option<Vec<_>> =
            before.iter().map(|pid| Some((*pid, process::cpu_time(*pid).ok()?))).collect();
        // A process that was created between the two lists could run without being known. One that is
        // created later costs its parent CPU time.
        self.known = times.filter(|_| processes::descendants(init) == before);
        true
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;
    use std::process::{Command, Stdio};

    use super::*;

    #[test]
    #[expect(clippy::disallowed_methods, reason = "the test watches a program")]
    fn activity_is_seen_only_after_a_process_ran() {
        let mut cat =
            Command::new("cat").stdin(Stdio::piped()).stdout(Stdio::null()).spawn().unwrap();
        let pid = i32::try_from(cat.id()).unwrap();
        let mut input = cat.stdin.take().unwrap();
        let mut activity = Activity::default();
        assert!(activity.look(pid), "the first look knows nothing");
        // `cat` needs some time to start; then it waits for its input.
        while activity.look(pid) {}
        for _ in 0..3 {
            input.write_all(b"x").unwrap();
            while !activity.look(pid) {}
            while activity.look(pid) {}
        }
        drop(input);
        cat.wait().unwrap();
        assert!(activity.look(pid), "a process that has ended ran");
    }
}
