//! Measures the memory and the processes of a box on systems without a usable cgroup.
//!
//! The processes of a box are the descendants of init, which adopts orphans. Their resident sizes are
//! added up. Only if the sum exceeds the limit, shared pages are counted exactly, which costs more.
//! Between two measurements a box can exceed its limit; `--require cgroup` refuses this fallback.

use std::fs;

use crate::processes;

const PAGE: u64 = 4096; // on both supported architectures; statm counts pages

/// Returns the memory use of a box in bytes. Above `limit` the measurement is exact, but slower.
///
/// `unmapped` is the size of memory files, which are measured elsewhere because a box can make that slow.
pub(crate) fn memory_of(init: i32, unmapped: u64, limit: u64) -> u64 {
    let processes = processes::descendants(init);
    let resident: u64 = processes.iter().filter_map(|pid| resident_of(*pid)).sum();
    if resident.saturating_add(unmapped) <= limit || unmapped > limit {
        return resident.saturating_add(unmapped);
    }
    processes
        .iter()
        .map(|pid| proportional_of(*pid).or_else(|| resident_of(*pid)).unwrap_or(0))
        .sum()
}

/// Limits memory files that only a mapping holds, which a plain user cannot measure.
///
/// As long as a box has such mappings, all shared memory that the machine has gained since then counts as
/// the box's.
#[derive(Debug, Default)]
pub(crate) struct HiddenMemory {
    /// Shared memory of the machine when the box was last known to have no such mapping.
    before: Option<u64>,
}

impl HiddenMemory {
    /// Returns the memory that the box may hide, in bytes.
    pub(crate) fn look(&mut self, is_hiding: bool) -> u64 {
        let now = shared_memory().unwrap_or(0);
        match self.before {
            Some(before) if is_hiding => now.saturating_sub(before),
            _ => {
                self.before = Some(now);
                0
            }
        }
    }
}

/// Returns the shared memory of the whole machine in bytes, see proc_meminfo(5).
fn shared_memory() -> Option<u64> {
    let info = fs::read_to_string("/proc/meminfo").ok()?;
    let line = info.lines().find_map(|line| line.strip_prefix("Shmem:"))?;
    Some(line.trim().strip_suffix(" kB")?.trim().parse::<u64>().ok()? * 1024)
}

/// Returns the number of processes and of their threads in the box, without init. The kernel counts threads
/// too when it refuses a fork.
pub(crate) fn tasks_of(init: i32) -> usize {
    let threads = |pid: i32| fs::read_dir(format!("/proc/{pid}/task")).map_or(1, Iterator::count);
    processes::descendants(init).into_iter().filter(|pid| *pid != init).map(threads).sum()
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
