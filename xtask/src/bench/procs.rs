//! Reads processes, their CPU time and their memory from `/proc`.

use std::collections::BTreeMap;

use anyhow::{Context as _, Result};

/// A process, as read from `/proc/PID/stat`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Process {
    pub(super) parent: u32,
    pub(super) name: String,
    pub(super) state: char,
}

/// Returns all processes that are visible in `/proc`, by pid.
pub(super) fn all() -> Result<BTreeMap<u32, Process>> {
    let mut found = BTreeMap::new();
    for entry in std::fs::read_dir("/proc").context("cannot read /proc")? {
        let entry = entry?;
        let Some(pid) = entry.file_name().to_str().and_then(|name| name.parse().ok()) else {
            continue;
        };
        // The process may have ended in the meantime.
        let Ok(stat) = std::fs::read_to_string(entry.path().join("stat")) else { continue };
        found.extend(parse(&stat).map(|process| (pid, process)));
    }
    Ok(found)
}

/// Parses `PID (name) state parent …`. The name may contain spaces and brackets.
fn parse(stat: &str) -> Option<Process> {
    let (_, rest) = stat.split_once('(')?;
    let (name, rest) = rest.rsplit_once(')')?;
    let mut fields = rest.split_whitespace();
    let state = fields.next()?.chars().next()?;
    Some(Process { parent: fields.next()?.parse().ok()?, name: name.to_owned(), state })
}

/// Returns the children of a process, their children and so on.
pub(super) fn descendants(all: &BTreeMap<u32, Process>, ancestor: u32) -> Vec<u32> {
    let mut found = vec![ancestor];
    let mut next = 0;
    while let Some(parent) = found.get(next).copied() {
        found.extend(
            all.iter().filter(|(_, process)| process.parent == parent).map(|(pid, _)| *pid),
        );
        next += 1;
    }
    found.remove(0);
    found
}

/// Returns the CPU time of a process with all its threads, in microseconds; `None` if it has ended.
pub(super) fn cpu_micros(pid: u32) -> Option<f64> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let (_, rest) = stat.rsplit_once(')')?;
    let mut times = rest.split_whitespace().skip(11).map(str::parse::<f64>);
    let ticks = times.next()?.ok()? + times.next()?.ok()?;
    Some(ticks * 1e6 / TICKS_PER_SECOND)
}

/// The unit of CPU time in `/proc`: 100 ticks per second on all architectures of Linux.
const TICKS_PER_SECOND: f64 = 100.0;

/// Returns the resident memory of a process in KiB; `None` if it has ended.
pub(super) fn resident_kib(pid: u32) -> Option<u64> {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
    line.split_whitespace().next()?.parse().ok()
}

/// Whether a process is in the pid namespace of xtask, and therefore not in a box.
pub(super) fn is_in_own_pid_namespace(pid: u32) -> bool {
    let namespace = |pid: &str| std::fs::read_link(format!("/proc/{pid}/ns/pid")).ok();
    let own = namespace("self");
    own.is_some() && own == namespace(&pid.to_string())
}

/// The memory of a process in KiB.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Memory {
    /// Pages that no other process shares.
    pub(super) private: u64,
    /// All pages, each divided by the number of processes that share it.
    pub(super) proportional: u64,
}

/// Returns the memory of a process; `None` if it has ended.
pub(super) fn memory(pid: u32) -> Result<Option<Memory>> {
    let path = format!("/proc/{pid}/smaps_rollup");
    match std::fs::read_to_string(&path) {
        Ok(text) => Ok(Some(parse_rollup(&text))),
        Err(error) if error.raw_os_error() == Some(ESRCH) => Ok(None),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error).with_context(|| format!("cannot read {path}")),
    }
}

/// The error "no such process", which reading from `/proc` returns for a zombie.
const ESRCH: i32 = 3;

fn parse_rollup(text: &str) -> Memory {
    let value =
        |line: &str| line.split_whitespace().nth(1).and_then(|number| number.parse::<u64>().ok());
    let sum =
        |prefix: &str| text.lines().filter(|line| line.starts_with(prefix)).filter_map(value).sum();
    Memory { private: sum("Private_"), proportional: sum("Pss:") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parse_accepts_a_process_name_with_brackets() {
        let expect = Process { parent: 7, name: "a) R (b".to_owned(), state: 'S' };
        assert_eq!(parse("42 (a) R (b) S 7 42 42 0"), Some(expect));
        assert_eq!(parse("42"), None);
    }

    #[test]
    fn descendants_finds_children_at_any_depth() {
        let process = |parent| Process { parent, name: String::new(), state: 'S' };
        let all = BTreeMap::from([
            (1, process(0)),
            (2, process(1)),
            (3, process(2)),
            (4, process(1)),
            (5, process(9)),
        ]);
        assert_eq!(descendants(&all, 1), [2, 4, 3]);
        assert_eq!(descendants(&all, 5), [0_u32; 0]);
    }

    #[test]
    fn private_memory_is_the_sum_of_clean_and_dirty_private_pages() {
        let text = "Rss:  100 kB\nPss:  50 kB\nPss_Dirty: 9 kB\nPrivate_Clean:  8 kB\nPrivate_Dirty: 32 kB\n";
        assert_eq!(parse_rollup(text), Memory { private: 40, proportional: 50 });
        assert!(memory(std::process::id()).unwrap().unwrap().private > 0);
        assert_eq!(memory(u32::MAX).unwrap(), None);
    }
}
