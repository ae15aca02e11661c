//! Measures what a running box uses, on a thread of its own, and reports the limit that it exceeds.
//!
//! Only limits without a notification of the kernel are measured. The supervisor waits for the report in
//! its `poll` loop, so streams, signals and deadlines never wait for a measurement. A box whose processes do
//! not run is looked at less often, and nothing is measured ([`Activity`]).

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use belljar_model::{Limits, Reason};
use belljar_sys::time::timespec;
use rustix::event::{PollFd, PollFlags};
use rustix::pipe::PipeFlags;

use crate::activity::Activity;
use crate::cgroup::Cgroup;
use crate::disk::DiskWatch;
use crate::held::{self, Held};
use crate::job::Job;
use crate::standin::{self, HiddenMemory};

/// Interval between two looks at a box.
const TICK: Duration = Duration::from_millis(100);
/// Interval between two looks at a box that is idle.
const IDLE_TICK: Duration = Duration::from_millis(500);
/// Interval between two looks at a box that has been idle for about a minute.
const LONG_IDLE_TICK: Duration = Duration::from_millis(1500);
/// Interval between two looks at an idle box whose memory, processes and files the kernel limits.
const ENFORCED_IDLE_TICK: Duration = Duration::from_secs(2);
/// Number of looks without activity after which a box is idle.
const IDLE_LOOKS: u32 = 10;
/// Number of looks without activity after which a box has been idle for long.
const LONG_IDLE_LOOKS: u32 = 130;
/// Consecutive looks at the process limit after which a box without a cgroup is a fork bomb.
const FULL_LOOKS: u32 = 10;
/// Duration after which a measurement of held files counts as impossible.
const SLOW: Duration = Duration::from_secs(1);
/// Refused forks above which a box is a fork bomb. A busy build causes fewer.
const FORK_BOMB: u64 = 256;

/// What the thread reports to the supervisor.
#[derive(Debug, Default)]
struct Report {
    exceeded: OnceLock<Reason>,
    /// Highest measured memory use, in a box without a cgroup.
    peak: AtomicU64,
}

/// The supervisor's side of a thread that measures a box. Dropping it ends the thread.
#[derive(Debug)]
pub(crate) struct Meter {
    report: Arc<Report>,
    /// Becomes readable when a limit is exceeded.
    alarm: OwnedFd,
    _stop: OwnedFd,
}

/// The box that a thread measures.
pub(crate) struct Measured {
    pub(crate) init: i32,
    pub(crate) cgroup: Option<Cgroup>,
    pub(crate) limits: Limits,
    pub(crate) disk: Option<DiskWatch>,
}

impl Meter {
    /// Starts a thread that measures a box until the returned value is dropped.
    pub(crate) fn start(of: Measured) -> io::Result<Self> {
        let (alarm, ring) = rustix::pipe::pipe_with(PipeFlags::CLOEXEC)?;
        let (stopped, stop) = rustix::pipe::pipe_with(PipeFlags::CLOEXEC)?;
        let report = Arc::new(Report::default());
        let thread_report = Arc::clone(&report);
        std::thread::Builder::new().name("meter".to_owned()).stack_size(256 << 10).spawn(
            move || {
                let mut state = State::new(of);
                while !is_closed(stopped.as_fd(), state.pause()) {
                    if let Some(reason) = state.look(&thread_report.peak) {
                        thread_report.exceeded.set(reason).ok(); // set only once, here
                        drop(ring); // wakes the supervisor
                        return;
                    }
                }
            },
        )?;
        Ok(Self { report, alarm, _stop: stop })
    }

    /// Returns the descriptor to poll for the report, or `None` after the report.
    pub(crate) fn interest(&self) -> Option<PollFd<'_>> {
        let is_done = self.report.exceeded.get().is_some();
        (!is_done).then(|| PollFd::new(&self.alarm, PollFlags::IN))
    }

    /// Returns the limit that the box exceeds.
    pub(crate) fn exceeded(&self) -> Option<Reason> {
        self.report.exceeded.get().copied()
    }

    pub(crate) fn peak(&self) -> u64 {
        self.report.peak.load(Ordering::Relaxed)
    }
}

/// Waits until the other end of a pipe is closed. Returns false after the timeout.
fn is_closed(pipe: BorrowedFd<'_>, timeout: Duration) -> bool {
    let mut polled = [PollFd::from_borrowed_fd(pipe, PollFlags::IN)];
    rustix::event::poll(&mut polled, Some(&timespec(timeout))).is_ok_and(|ready| ready > 0)
}

/// The state between two looks at a box.
struct State {
    of: Measured,
    activity: Activity,
    scan: Job<Held>,
    /// The last result of `scan`.
    held: Held,
    hidden: HiddenMemory,
    full_looks: u32,
    /// Number of consecutive looks without activity.
    idle: u32,
}

impl State {
    fn new(of: Measured) -> Self {
        let (activity, held) = (Activity::default(), Held::default());
        let hidden = HiddenMemory::default();
        Self { of, activity, scan: Job::new(), held, hidden, full_looks: 0, idle: 0 }
    }

    fn pause(&self) -> Duration {
        if self.idle <= IDLE_LOOKS {
            TICK
        } else if self.of.cgroup.is_some() && !self.counts_files() {
            ENFORCED_IDLE_TICK
        } else if self.idle <= LONG_IDLE_LOOKS {
            IDLE_TICK
        } else {
            LONG_IDLE_TICK
        }
    }

    /// Whether a stand-in measures the files of the box.
    fn counts_files(&self) -> bool {
        self.of.disk.as_ref().is_some_and(DiskWatch::is_stand_in)
    }

    /// Returns the limit that the box exceeds.
    fn look(&mut self, peak: &AtomicU64) -> Option<Reason> {
        let is_active = self.activity.look(self.of.init);
        let init = self.of.init;
        let mut is_pending = false;
        let has_scan = self.counts_files() || self.of.cgroup.is_none();
        let held = self.scan.finished();
        self.held = held.unwrap_or(self.held);
        if is_active {
            self.scan.note_due();
        }
        if let Some(disk) = &mut self.of.disk {
            if is_active {
                disk.note_activity();
            }
            if disk.is_exceeded(held.as_ref(), self.scan.is_slower_than(SLOW), TICK) {
                return Some(Reason::Disk);
            }
            is_pending = disk.is_pending();
        }
        if has_scan {
            // Without a cgroup, memory files are part of the memory, which can grow fast.
            let is_early = self.of.cgroup.is_none()
                || self.of.disk.as_ref().is_some_and(DiskWatch::shrank_since_scan);
            if self.scan.start_if_due(is_early, TICK, move || held::measure(init))
                && let Some(disk) = &mut self.of.disk
            {
                disk.note_scan();
            }
            is_pending |= self.scan.is_pending();
        }
        self.idle = if is_active || is_pending { 0 } else { self.idle.saturating_add(1) };
        if !is_active {
            return None;
        }
        match &self.of.cgroup {
            Some(cgroup) => {
                let counts = cgroup.counts();
                if counts.refused_forks > FORK_BOMB {
                    return Some(Reason::Pids);
                }
                // The kernel (v1) kills single processes; the limit is for the whole box.
                (counts.memory_kills > 0).then_some(Reason::Memory)
            }
            None => {
                let limit = self.of.limits.memory.as_u64();
                let hidden = self.hidden.look(self.held.hides_memory);
                let unmapped = self.held.memory_bytes.saturating_add(hidden);
                let used = standin::memory_of(init, unmapped, limit);
                peak.fetch_max(used, Ordering::Relaxed);
                if used > limit {
                    return Some(Reason::Memory);
                }
                let is_full = standin::tasks_of(init) >= self.of.limits.pids as usize;
                self.full_looks = if is_full { self.full_looks + 1 } else { 0 };
                (self.full_looks > FULL_LOOKS).then_some(Reason::Pids)
            }
        }
    }
}
