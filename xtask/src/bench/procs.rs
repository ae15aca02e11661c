//! The processes that descend from us, from `/proc`.

use std::collections::BTreeMap;

use anyhow::{Context as _, Result};

/// One process as `/proc/PID/stat` shows it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Process {
    pub(super) parent: u32,
    pub(super) name: String,
    pub(super) state: char,
}

/// Every process of the machine that can be seen.
pub(super) fn all() -> Result<BTreeMap<u32, Process>> {
    let mut found = BTreeMap::new();
    for entry in std::fs::read_dir("/proc").context("read /proc")? {
        let entry = entry?;
        let Some(pid) = entry.file_name().to_str().and_then(|name| name.parse().ok()) else {
            continue;
        };
        // It may have ended in between.
        let Ok(stat) = std::fs::read_to_string(entry.path().join("stat")) else { continue };
        found.extend(parse(&stat).map(|process| (pid, process)));
    }
    Ok(found)
}

/// `PID (name) state parent …`; the name may itself have spaces and brackets.
fn parse(stat: &str) -> Option<Process> {
    let (_, rest) = stat.split_once('(')?;
    let (name, rest) = rest.rsplit_once(')')?;
    let mut words = rest.split_whitespace();
    let state = words.next()?.chars().next()?;
    Some(Process { parent: words.next()?.parse().ok()?, name: name.to_owned(), state })
}

/// `ancestor`'s children, their children and so on, without itself.
pub(super) fn below(all: &BTreeMap<u32, Process>, ancestor: u32) -> Vec<u32> {
    let mut found = vec![ancestor];
    let mut at = 0;
    while let Some(parent) = found.get(at).copied() {
        found.extend(
            all.iter().filter(|(_, process)| process.parent == parent).map(|(pid, _)| *pid),
        );
        at += 1;
    }
    found.remove(0);
    found
}

/// Processor time that a process has used, all its threads, in microseconds; nothing if it ended.
pub(super) fn cpu_micros(pid: u32) -> Option<f64> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let (_, rest) = stat.rsplit_once(')')?;
    let mut times = rest.split_whitespace().skip(11).map(str::parse::<f64>);
    let ticks = times.next()?.ok()? + times.next()?.ok()?;
    Some(ticks * 1e6 / TICKS_PER_SECOND)
}

/// What `/proc` counts processor time in, on every Linux that there is.
const TICKS_PER_SECOND: f64 = 100.0;

/// Memory of a process that is in RAM, in KiB; nothing if it ended.
pub(super) fn resident_kib(pid: u32) -> Option<u64> {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
    line.split_whitespace().next()?.parse().ok()
}

/// Whether a process is in no other pid namespace than we, so in no box.
pub(super) fn shares_our_pids(pid: u32) -> bool {
    let namespace = |pid: &str| std::fs::read_link(format!("/proc/{pid}/ns/pid")).ok();
    let ours = namespace("self");
    ours.is_some() && ours == namespace(&pid.to_string())
}

/// Memory of a process in KiB.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Memory {
    /// Pages that it shares with none.
    pub(super) private: u64,
    /// Each page divided by the number of processes that share it.
    pub(super) proportional: u64,
}

/// What one process uses; nothing if it ended.
pub(super) fn memory(pid: u32) -> Result<Option<Memory>> {
    let path = format!("/proc/{pid}/smaps_rollup");
    match std::fs::read_to_string(&path) {
        Ok(text) => Ok(Some(parse_rollup(&text))),
        Err(error) if error.raw_os_error() == Some(ESRCH) => Ok(None),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error).with_context(|| format!("read {path}")),
    }
}

/// "No such process", which reading from `/proc` answers for a zombie.
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
    fn a_name_with_brackets_is_read_right() {
        let expect = Process { parent: 7, name: "a) R (b".to_owned(), state: 'S' };
        assert_eq!(parse("42 (a) R (b) S 7 42 42 0"), Some(expect));
        assert_eq!(parse("42"), None);
    }

    #[test]
    fn descendants_are_found_at_any_depth() {
        let process = |parent| Process { parent, name: String::new(), state: 'S' };
        let all = BTreeMap::from([
            (1, process(0)),
            (2, process(1)),
            (3, process(2)),
            (4, process(1)),
            (5, process(9)),
        ]);
        assert_eq!(below(&all, 1), [2, 4, 3]);
        assert_eq!(below(&all, 5), [0_u32; 0]);
    }

    #[test]
    fn private_memory_is_the_sum_of_its_kinds() {
        let text = "Rss:  100 kB\nPss:  50 kB\nPss_Dirty: 9 kB\nPrivate_Clean:  8 kB\nPrivate_Dirty: 32 kB\n";
        assert_eq!(parse_rollup(text), Memory { private: 40, proportional: 50 });
        assert!(memory(std::process::id()).unwrap().unwrap().private > 0);
        assert_eq!(memory(u32::MAX).unwrap(), None);
    }
}
