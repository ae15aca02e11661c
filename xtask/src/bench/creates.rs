//! `creates`: boxes that are created, run and removed per second, with two concurrent loops.
//!
//! Goal: at least 1.5 × the rate of bubblewrap in the same loops, later 4 ×. No process, mount or cgroup
//! is left behind.

use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};
use rustix::process::{WaitOptions, getpid, set_child_subreaper, wait};

use super::lab::{Lab, timed};
use super::peers::{Peer, versions};
use super::procs;
use super::report::{Goal, Report, Row};

const PAYLOAD: [&str; 1] = ["/bin/true"];
const TURN: Duration = Duration::from_secs(10);
const TURNS: usize = 3;
const LOOPS: usize = 2;
/// The time in which the kernel must remove mounts and cgroups after the last process has ended.
const CLEANUP_TIMEOUT: Duration = Duration::from_secs(5);

pub(super) fn run(lab: &Lab, budget: Option<Duration>) -> Result<Report> {
    // Orphans become children of this process, so that every process that is left behind is counted.
    set_child_subreaper(Some(getpid())).context("cannot become the reaper of orphans")?;
    let turn = budget.unwrap_or(TURN);
    let mut table: Vec<(Peer, Result<Vec<f64>, String>)> = [Peer::Belljar, Peer::Bwrap]
        .into_iter()
        .map(|peer| (peer, peer.try_out(lab).map(|()| Vec::new())))
        .collect();
    let mut failures = Vec::new();
    let mut created = 0;
    for _ in 0..TURNS {
        for (peer, samples) in &mut table {
            let Ok(samples) = samples else { continue };
            let before = Resources::count()?;
            let started = Instant::now();
            let count = in_parallel(lab, *peer, turn)?;
            let per_second = f64::from(count) / started.elapsed().as_secs_f64();
            samples.push(per_second);
            if *peer == Peer::Belljar {
                created += count;
                failures.extend(before.left_behind()?);
            }
        }
    }
    Ok(Report {
        bench: "creates",
        description: format!(
            "boxes per second, {LOOPS} concurrent loops, {TURNS} turns of {} s",
            turn.as_secs()
        ),
        unit: "boxes/s",
        reference: Peer::Bwrap.name(),
        goal: Goal::AtLeast { first: 1.5, moonshot: 4.0 },
        rows: table.into_iter().map(|(peer, samples)| Row { name: peer.name(), samples }).collect(),
        also: &[],
        notes: vec![
            format!(
                "checked that {created} boxes of Belljar left no processes, mounts and cgroups behind"
            ),
            versions(),
        ],
        failures,
    })
}

/// Returns the milliseconds per box if each loop runs `count` boxes.
pub(super) fn per_box(lab: &Lab, count: u32) -> Result<f64> {
    let started = Instant::now();
    std::thread::scope(|scope| {
        let boxes = || (0..count).try_for_each(|_| timed(&mut lab.box_for(&PAYLOAD)).map(drop));
        let loops: Vec<_> = (0..LOOPS).map(|_| scope.spawn(boxes)).collect();
        let mut ended = loops.into_iter().map(|handle| handle.join());
        ended.try_for_each(|result| result.unwrap_or_else(|_| bail!("a loop panicked")))
    })?;
    let boxes = f64::from(count) * f64::from(u32::try_from(LOOPS)?);
    Ok(started.elapsed().as_secs_f64() * 1e3 / boxes)
}

/// Runs boxes in all loops until the time is up, and returns the number of boxes.
fn in_parallel(lab: &Lab, peer: Peer, turn: Duration) -> Result<u32> {
    let end = Instant::now() + turn;
    std::thread::scope(|scope| {
        let loops: Vec<_> = (0..LOOPS).map(|_| scope.spawn(|| in_loop(lab, peer, end))).collect();
        let mut count = 0;
        for handle in loops {
            count += handle.join().unwrap_or_else(|_| bail!("a loop panicked"))?;
        }
        Ok(count)
    })
}

/// Runs boxes one after another until `end`, and returns their number.
fn in_loop(lab: &Lab, peer: Peer, end: Instant) -> Result<u32> {
    let mut count = 0;
    while Instant::now() < end {
        timed(&mut peer.command(lab, &PAYLOAD)?)?;
        count += 1;
    }
    Ok(count)
}

/// The numbers of processes, mounts and cgroups on the machine.
#[derive(Debug, Clone, Copy)]
struct Resources {
    processes: usize,
    mounts: usize,
    cgroups: usize,
}

impl Resources {
    fn count() -> Result<Self> {
        reap();
        let mounts = std::fs::read_to_string("/proc/self/mountinfo")
            .context("cannot read /proc/self/mountinfo")?;
        Ok(Self {
            processes: procs::descendants(&procs::all()?, std::process::id()).len(),
            mounts: mounts.lines().count(),
            cgroups: count_directories(Path::new("/sys/fs/cgroup")),
        })
    }

    /// Compares with the current numbers, after the kernel had time to clean up. Returns a message for
    /// each number that has grown.
    fn left_behind(self) -> Result<Vec<String>> {
        let end = Instant::now() + CLEANUP_TIMEOUT;
        loop {
            let now = Self::count()?;
            let counts = [
                ("processes", self.processes, now.processes),
                ("mounts", self.mounts, now.mounts),
                ("cgroups", self.cgroups, now.cgroups),
            ];
            let left: Vec<String> = counts
                .iter()
                .filter(|(_, before, after)| after > before)
                .map(|(kind, before, after)| {
                    format!("{kind} left behind: {before} before, {after} after")
                })
                .collect();
            if left.is_empty() || Instant::now() > end {
                return Ok(left);
            }
            std::thread::sleep(Duration::from_millis(50));
        }
    }
}

/// Reaps orphans that have ended.
fn reap() {
    while let Ok(Some(_)) = wait(WaitOptions::NOHANG) {}
}

/// Counts the directories below a directory.
fn count_directories(dir: &Path) -> usize {
    let Ok(entries) = std::fs::read_dir(dir) else { return 0 };
    let subdirectories =
        entries.flatten().filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()));
    subdirectories.map(|entry| 1 + count_directories(&entry.path())).sum()
}
