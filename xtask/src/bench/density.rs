//! `density`: private memory of one of 200 idle boxes.
//!
//! All processes of a box count, including the supervisor outside of the box. Goal: at most 2 × the
//! memory of bubblewrap with the same program, later 1 ×. Kernel memory of a box (mounts, namespaces,
//! cgroups) does not count.

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
const TIMEOUT: Duration = Duration::from_secs(120);

pub(super) fn run(lab: &Lab, _budget: Option<Duration>) -> Result<Report> {
    ensure!(
        uid()? == 0,
        "the benchmark `density` needs root, to read the memory of all processes of a box"
    );
    let mut table: Vec<(Peer, Result<Vec<f64>, String>)> = [Peer::Belljar, Peer::Bwrap]
        .into_iter()
        .map(|peer| (peer, peer.try_out(lab).map(|()| Vec::new())))
        .collect();
    let mut notes = Vec::new();
    for turn in 0..TURNS {
        for (peer, samples) in &mut table {
            let Ok(samples) = samples else { continue };
            let boxes = IdleBoxes::start(lab, *peer)?;
            let memory = boxes.memory()?;
            let processes: usize = memory.iter().map(|usage| usage.processes).sum();
            let shared: u64 = memory.iter().map(|usage| usage.kib.proportional).sum();
            if turn == 0 {
                notes.push(format!(
                    "{}: {:.1} processes per box, {:.0} KiB per box including its share of shared pages",
                    peer.name(),
                    per_box(processes as u64),
                    per_box(shared)
                ));
            }
            for usage in memory {
                samples.push(f64::from(u32::try_from(usage.kib.private)?));
            }
            boxes.end()?;
        }
    }
    notes.push(versions());
    Ok(Report {
        bench: "density",
        description: format!(
            "private memory per idle box, {BOXES} boxes of `{}`, {TURNS} turns",
            PAYLOAD.join(" ")
        ),
        unit: "KiB",
        reference: Peer::Bwrap.name(),
        goal: Goal::AtMost { first: 2.0, moonshot: 1.0 },
        rows: table.into_iter().map(|(peer, samples)| Row { name: peer.name(), samples }).collect(),
        also: &[],
        notes,
        failures: Vec::new(),
    })
}

/// Divides a sum by the number of boxes.
fn per_box(sum: u64) -> f64 {
    f64::from(u32::try_from(sum).unwrap_or(u32::MAX))
        / f64::from(u32::try_from(BOXES).unwrap_or(u32::MAX))
}

/// All idle boxes of one tool. They are killed on drop.
struct IdleBoxes(Vec<Child>);

/// The number of processes and the memory of one box.
struct BoxMemory {
    processes: usize,
    kib: procs::Memory,
}

impl IdleBoxes {
    /// Starts the boxes one after another and waits until the program runs in every box.
    fn start(lab: &Lab, peer: Peer) -> Result<Self> {
        let mut boxes = Self(Vec::new());
        for _ in 0..BOXES {
            let mut command = peer.command(lab, &PAYLOAD)?;
            command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
            boxes.0.push(command.spawn().with_context(|| format!("cannot start {}", peer.name()))?);
        }
        boxes.wait_for("all programs to run", |programs, _| programs == BOXES)?;
        Ok(boxes)
    }

    fn memory(&self) -> Result<Vec<BoxMemory>> {
        let all = procs::all()?;
        let of_box = |child: &Child| {
            let mut memory = BoxMemory { processes: 0, kib: procs::Memory::default() };
            for pid in std::iter::once(child.id()).chain(procs::descendants(&all, child.id())) {
                if let Some(more) = procs::memory(pid)? {
                    memory.processes += 1;
                    memory.kib.private += more.private;
                    memory.kib.proportional += more.proportional;
                }
            }
            Ok(memory)
        };
        self.0.iter().map(of_box).collect()
    }

    /// Kills the outermost process of each box, and waits until all other processes have ended, too.
    fn end(mut self) -> Result<()> {
        self.kill();
        self.wait_for("all processes to end", |_, processes| processes == 0)
    }

    fn kill(&mut self) {
        for child in &mut self.0 {
            // The process may already have ended.
            drop(child.kill());
            drop(child.wait());
        }
    }

    /// Waits until `ready` returns true for the numbers of running programs and of all processes.
    fn wait_for(&self, event: &str, ready: impl Fn(usize, usize) -> bool) -> Result<()> {
        let end = Instant::now() + TIMEOUT;
        loop {
            let all = procs::all()?;
            let descendants = procs::descendants(&all, std::process::id());
            let alive = || {
                let processes = descendants.iter().filter_map(|pid| all.get(pid));
                processes.filter(|process| process.state != 'Z')
            };
            let programs = alive().filter(|process| process.name == PAYLOAD_NAME).count();
            if ready(programs, alive().count()) {
                return Ok(());
            }
            if Instant::now() > end {
                bail!(
                    "timeout while waiting for {event}: {programs} programs and {} processes run",
                    alive().count()
                );
            }
            std::thread::sleep(Duration::from_millis(100));
        }
    }
}

impl Drop for IdleBoxes {
    fn drop(&mut self) {
        self.kill();
    }
}
