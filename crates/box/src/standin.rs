//! Watches the memory of a box where no cgroup does.
//!
//! The processes of the box are the descendants of init, since orphans become its children. Their
//! resident sizes are added up; only when that is too much are shared pages counted properly, which
//! costs more. Between two looks a box can overshoot: `--require cgroup` refuses to rely on this.

use std::fs;

const PAGE: u64 = 4096; // both architectures that a box runs on; statm counts in it

/// Memory of the box whose init has this pid, in bytes; `limit` decides how closely to look.
pub(crate) fn memory_of(init: i32, limit: u64) -> u64 {
    let processes = descendants(init);
    let resident: u64 = processes.iter().filter_map(|pid| resident_of(*pid)).sum();
    if resident <= limit {
        return resident;
    }
    processes
        .iter()
        .map(|pid| proportional_of(*pid).or_else(|| resident_of(*pid)).unwrap_or(0))
        .sum()
}

/// A process and all below it.
fn descendants(root: i32) -> Vec<i32> {
    let mut found = vec![root];
    let mut next = 0;
    while let Some(pid) = found.get(next).copied() {
        next += 1;
        let Ok(threads) = fs::read_dir(format!("/proc/{pid}/task")) else { continue };
        for thread in threads.flatten() {
            let children = fs::read_to_string(thread.path().join("children")).unwrap_or_default();
            found.extend(children.split_whitespace().filter_map(|pid| pid.parse::<i32>().ok()));
        }
    }
    found
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
