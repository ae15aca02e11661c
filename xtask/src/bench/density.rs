//! `density`: private memory of one idle box when there are 200 of them.
//!
//! All processes of a box count, the supervisor outside of it too. Goal: at most 2 × bubblewrap
//! with the same payload, then 1 ×. What the kernel keeps per box (mounts, namespaces, cgroups) is
//! not in this figure.

use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail, ensure};

use super::lab::Lab;
use super::peers::{Peer, versions};
use super::procs;
use super::report::{Goal, Report, Row};
use crate::shell::uid;

const BOXES: usize = 200;
const TURNS: usize = 2;
const PAYLOAD: [&str; 2] = ["/bin/sleep", "1000"];
const PAYLOAD_NAME: &str = "sleep";
const PATIENCE: Duration = Duration::from_secs(120);

pub(super) fn run(lab: &Lab, _budget: Option<Duration>) -> Result<Report> {
    ensure!(uid()? == 0, "only root may read the memory of every process of a box");
    let mut table: Vec<(Peer, Result<Vec<f64>, String>)> = [Peer::Belljar, Peer::Bwrap]
        .into_iter()
        .map(|peer| (peer, peer.try_out(lab).map(|()| Vec::new())))
        .collect();
    let mut notes = Vec::new();
    for turn in 0..TURNS {
        for (peer, samples) in &mut table {
            let Ok(samples) = samples else { continue };
            let crowd = Crowd::start(lab, *peer)?;
            let memory = crowd.memory()?;
            let processes: usize = memory.iter().map(|it| it.processes).sum();
            let shared: u64 = memory.iter().map(|it| it.kib.proportional).sum();
            if turn == 0 {
                notes.push(format!(
                    "{}: {:.1} processes per box, {:.0} KiB per box with its share of common pages",
                    peer.name(),
                    per_box(processes as u64),
                    per_box(shared)
                ));
            }
            for each in memory {
                samples.push(f64::from(u32::try_from(each.kib.private)?));
            }
            crowd.end()?;
        }
    }
    notes.push(versions());
    Ok(Report {
        bench: "density",
        what: format!(
            "private memory per idle box, {BOXES} boxes of `{}`, {TURNS} turns",
            PAYLOAD.join(" ")
        ),
        unit: "KiB",
        reference: Peer::Bwrap.name(),
        goal: Goal::AtMost { first: 2.0, moonshot: 1.0 },
        rows: table.into_iter().map(|(peer, samples)| Row { name: peer.name(), samples }).collect(),
        also: &[],
        notes,
        broken: Vec::new(),
    })
}

fn per_box(sum: u64) -> f64 {
    f64::from(u32::try_from(sum).unwrap_or(u32::MAX))
        / f64::from(u32::try_from(BOXES).unwrap_or(u32::MAX))
}

/// All boxes of one contender, idle. Killed when dropped.
struct Crowd(Vec<Child>);

/// One box.
struct Memory {
    processes: usize,
    kib: procs::Memory,
}

impl Crowd {
    /// Starts them one by one and waits until the payload runs in each.
    fn start(lab: &Lab, peer: Peer) -> Result<Self> {
        let mut crowd = Self(Vec::new());
        for _ in 0..BOXES {
            let mut command = peer.command(lab, &PAYLOAD)?;
            command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
            crowd.0.push(command.spawn().with_context(|| format!("start {}", peer.name()))?);
        }
        crowd.wait_for("every payload to run", |asleep, _| asleep == BOXES)?;
        Ok(crowd)
    }

    fn memory(&self) -> Result<Vec<Memory>> {
        let all = procs::all()?;
        let one = |child: &Child| {
            let mut memory = Memory { processes: 0, kib: procs::Memory::default() };
            for pid in std::iter::once(child.id()).chain(procs::below(&all, child.id())) {
                if let Some(more) = procs::memory(pid)? {
                    memory.processes += 1;
                    memory.kib.private += more.private;
                    memory.kib.proportional += more.proportional;
                }
            }
            Ok(memory)
        };
        self.0.iter().map(one).collect()
    }

    /// Kills the outermost process of each box; all others have to go with it.
    fn end(mut self) -> Result<()> {
        self.kill();
        self.wait_for("every process to be gone", |_, all| all == 0)
    }

    fn kill(&mut self) {
        for child in &mut self.0 {
            // It may have ended by itself; then there is nothing to kill.
            drop(child.kill());
            drop(child.wait());
        }
    }

    fn wait_for(&self, what: &str, ready: impl Fn(usize, usize) -> bool) -> Result<()> {
        let end = Instant::now() + PATIENCE;
        loop {
            let all = procs::all()?;
            let ours = procs::below(&all, std::process::id());
            let alive = || ours.iter().filter_map(|pid| all.get(pid)).filter(|it| it.state != 'Z');
            let asleep = alive().filter(|it| it.name == PAYLOAD_NAME).count();
            if ready(asleep, alive().count()) {
                return Ok(());
            }
            if Instant::now() > end {
                bail!(
                    "waited in vain for {what}: {asleep} payloads of {} processes",
                    alive().count()
                );
            }
            std::thread::sleep(Duration::from_millis(100));
        }
    }
}

impl Drop for Crowd {
    fn drop(&mut self) {
        self.kill();
    }
}
