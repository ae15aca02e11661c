//! `creates`: boxes per second created, run and gone; two loops at once, ten seconds at a time.
//!
//! Goal: at least 1.5 × bubblewrap in the same loop, then 4 ×, and nothing is left behind: no
//! process, no mount, no cgroup.

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
/// The kernel takes down mounts and cgroups a moment after the last process.
const SETTLE: Duration = Duration::from_secs(5);

pub(super) fn run(lab: &Lab, budget: Option<Duration>) -> Result<Report> {
    // Whatever outlives its parent becomes our child and cannot hide among the machine's processes.
    set_child_subreaper(Some(getpid())).context("become the reaper of orphans")?;
    let turn = budget.unwrap_or(TURN);
    let mut table: Vec<(Peer, Result<Vec<f64>, String>)> = [Peer::Belljar, Peer::Bwrap]
        .into_iter()
        .map(|peer| (peer, peer.try_out(lab).map(|()| Vec::new())))
        .collect();
    let mut broken = Vec::new();
    let mut made = 0;
    for _ in 0..TURNS {
        for (peer, samples) in &mut table {
            let Ok(samples) = samples else { continue };
            let before = Traces::count()?;
            let started = Instant::now();
            let count = in_parallel(lab, *peer, turn)?;
            let per_second = f64::from(count) / started.elapsed().as_secs_f64();
            samples.push(per_second);
            if *peer == Peer::Belljar {
                made += count;
                broken.extend(before.left_behind()?);
            }
        }
    }
    Ok(Report {
        bench: "creates",
        what: format!(
            "boxes per second, {LOOPS} loops at once, {TURNS} turns of {} s",
            turn.as_secs()
        ),
        unit: "boxes/s",
        reference: Peer::Bwrap.name(),
        goal: Goal::AtLeast { first: 1.5, moonshot: 4.0 },
        rows: table.into_iter().map(|(peer, samples)| Row { name: peer.name(), samples }).collect(),
        also: &[],
        notes: vec![
            format!(
                "{made} boxes of ours were counted for processes, mounts and cgroups left behind"
            ),
            versions(),
        ],
        broken,
    })
}

/// Milliseconds per box when each loop runs this many.
pub(super) fn per_box(lab: &Lab, each: u32) -> Result<f64> {
    let started = Instant::now();
    std::thread::scope(|scope| {
        let boxes = || (0..each).try_for_each(|_| timed(&mut lab.box_for(&PAYLOAD)).map(drop));
        let loops: Vec<_> = (0..LOOPS).map(|_| scope.spawn(boxes)).collect();
        let mut ended = loops.into_iter().map(|each| each.join());
        ended.try_for_each(|result| result.unwrap_or_else(|_| bail!("a loop panicked")))
    })?;
    let boxes = f64::from(each) * f64::from(u32::try_from(LOOPS)?);
    Ok(started.elapsed().as_secs_f64() * 1e3 / boxes)
}

/// How many boxes all loops together ran until the time was up.
fn in_parallel(lab: &Lab, peer: Peer, turn: Duration) -> Result<u32> {
    let end = Instant::now() + turn;
    std::thread::scope(|scope| {
        let loops: Vec<_> = (0..LOOPS).map(|_| scope.spawn(|| in_loop(lab, peer, end))).collect();
        let mut count = 0;
        for each in loops {
            count += each.join().unwrap_or_else(|_| bail!("a loop panicked"))?;
        }
        Ok(count)
    })
}

fn in_loop(lab: &Lab, peer: Peer, end: Instant) -> Result<u32> {
    let mut count = 0;
    while Instant::now() < end {
        timed(&mut peer.command(lab, &PAYLOAD)?)?;
        count += 1;
    }
    Ok(count)
}

/// What a box leaves in the system while it lives.
#[derive(Debug, Clone, Copy)]
struct Traces {
    processes: usize,
    mounts: usize,
    cgroups: usize,
}

impl Traces {
    fn count() -> Result<Self> {
        reap();
        let mounts =
            std::fs::read_to_string("/proc/self/mountinfo").context("read the mount table")?;
        Ok(Self {
            processes: procs::below(&procs::all()?, std::process::id()).len(),
            mounts: mounts.lines().count(),
            cgroups: directories(Path::new("/sys/fs/cgroup")),
        })
    }

    /// What is there now and was not before, after giving the kernel time to clean up.
    fn left_behind(self) -> Result<Vec<String>> {
        let end = Instant::now() + SETTLE;
        loop {
            let now = Self::count()?;
            let more = [
                ("processes", self.processes, now.processes),
                ("mounts", self.mounts, now.mounts),
                ("cgroups", self.cgroups, now.cgroups),
            ];
            let left: Vec<String> = more
                .iter()
                .filter(|(_, before, after)| after > before)
                .map(|(what, before, after)| {
                    format!("{what} left behind: {before} before, {after} after")
                })
                .collect();
            if left.is_empty() || Instant::now() > end {
                return Ok(left);
            }
            std::thread::sleep(Duration::from_millis(50));
        }
    }
}

/// Orphans that ended are ours to wait for.
fn reap() {
    while let Ok(Some(_)) = wait(WaitOptions::NOHANG) {}
}

fn directories(dir: &Path) -> usize {
    let Ok(entries) = std::fs::read_dir(dir) else { return 0 };
    let inner = entries.flatten().filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()));
    inner.map(|entry| 1 + directories(&entry.path())).sum()
}
