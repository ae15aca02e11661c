//! Measures the memory and the processes of a box on systems without a usable cgroup.
//!
//! The processes of a box are the descendants of init, which adopts orphans. Their resident sizes are
//! added up. Only if the sum exceeds the limit, shared pages are counted exactly, which costs more.
//! Between two measurements a box can exceed its limit; `--require cgroup` refuses this fallback.

use std::collections::HashSet;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;

use crate::processes;

const PAGE: u64 = 4096; // on both supported architectures; statm counts pages

/// Returns the memory use of a box in bytes. Above `limit` the measurement is exact, but slower.
pub(crate) fn memory_of(init: i32, limit: u64) -> u64 {
    let processes = processes::descendants(init);
    let unmapped = anonymous_files(&processes);
    let resident: u64 = processes.iter().filter_map(|pid| resident_of(*pid)).sum();
    if resident.saturating_add(unmapped) <= limit || unmapped > limit {
        return resident.saturating_add(unmapped);
    }
    processes
        .iter()
        .map(|pid| proportional_of(*pid).or_else(|| resident_of(*pid)).unwrap_or(0))
        .sum()
}

/// Returns the total size of memory files (memfd) of processes, which resident sizes do not
/// include.
fn anonymous_files(processes: &[i32]) -> u64 {
    let mut seen = HashSet::new();
    let mut bytes = 0;
    for pid in processes {
        let Ok(entries) = fs::read_dir(format!("/proc/{pid}/fd")) else { continue };
        for link in entries.flatten().map(|entry| entry.path()) {
            let is_memory = fs::read_link(&link)
                .is_ok_and(|to| to.as_os_str().as_bytes().starts_with(b"/memfd:"));
            let Some(meta) = is_memory.then(|| fs::metadata(&link).ok()).flatten() else {
                continue;
            };
            if seen.insert(meta.ino()) {
                bytes += meta.blocks() * 512;
            }
        }
    }
    bytes
}

/// Returns the number of processes in the box, without init.
pub(crate) fn processes_of(init: i32) -> usize {
    processes::descendants(init).len() - 1
}

fn resident_of(pid: i32) -> Option<u64> {
    let statm = fs::read_to_string(format!("/proc/{pid}/statm")).ok()?;
    Some(statm.split(' ').nth(1)?.parse::<u64>().ok()? * PAGE)
}

fn proportional_of(pid: i32) -> Option<u64> {
    let rollup = fs::read_to_string(format!("/proc/{pid}/smaps_rollup")).ok()?;
    let line = rollup.lines().find_map(|line| line.strip_prefix("Pss:"))?;
    Some(line.trim().strip_suffix(" kB")?.trim().parse::<u64>().ok()? * 1024)
}
