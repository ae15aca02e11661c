//! Watches over a running box: passes bytes, enforces what the kernel does not, cleans up.
//!
//! One thread, one `poll`. The box is over when init says that nothing is left in it, or when init is
//! gone, because the kernel kills everything in its pid namespace with it.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;
use std::time::{Duration, Instant};

use belljar_init::plan::{Event, Order, Spent};
use belljar_init::wire;
use belljar_model::{CpuTime, OutputBytes, Reason};
use belljar_sys::process::{self, Usage};
use belljar_sys::signal::{SIGINT, SIGQUIT, SIGWINCH, SUPERVISED, SignalFd};
use belljar_sys::time::timespec;
use rustix::event::{PollFd, PollFlags};
use rustix::process::Signal;

use crate::cgroup::{Cgroup, Counts};
use crate::disk::{Count, DiskWatch};
use crate::flow::{Filter, Flow, Guard, Stream};
use crate::janitor::Janitor;
use crate::standin;
use crate::start::{Running, Streams};
use crate::verdict::{self, Finished, Seen};

/// What the caller lends us for one run.
pub struct Supervision<'a> {
    pub input: BorrowedFd<'a>,
    pub output: BorrowedFd<'a>,
    pub error: BorrowedFd<'a>,
    /// Stands before the operator's terminal, if that is where output goes.
    pub guard: Option<&'a mut Guard<'a>>,
    /// Where the overlay's layers are and how to count them, if the box has an overlay.
    pub disk: Option<(&'a Path, &'a mut Count<'a>)>,
    /// The box ends when this can be read from, or when its other end is gone.
    pub stop: Option<BorrowedFd<'a>>,
}

impl std::fmt::Debug for Supervision<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Supervision").finish_non_exhaustive()
    }
}

/// Why supervision itself failed. The box is gone by then.
#[derive(Debug, thiserror::Error)]
pub enum SuperviseError {
    #[error("the box could not be sealed before the program started: {what}")]
    Refused { what: String },
    #[error("{doing}")]
    Host { doing: &'static str, source: io::Error },
}

/// How often limits without a notification are looked at.
const TICK: Duration = Duration::from_millis(100);
/// What a program gets to end after it was asked to.
const GRACE: Duration = Duration::from_secs(10);
/// So many looks in a row at a box that is full of processes are a bomb, where nobody counts.
const FULL_TICKS: u32 = 10;
/// So many refused forks are a bomb and not a busy build that met its limit.
const FORK_BOMB: u64 = 256;

impl Running {
    /// Starts the payload and sees it to its end. The kernel takes down mounts and namespaces while the
    /// caller does something else; all that is left goes when [`Remains`] is dropped.
    pub fn supervise(
        mut self,
        with: Supervision<'_>,
    ) -> Result<(Finished, Remains), SuperviseError> {
        let streams = self.streams.take();
        match watch(&self, streams, with) {
            Ok((finished, init_is_gone)) => {
                tracing::debug!(init_is_gone, "box is over");
                Ok((finished, self.clean_up(init_is_gone)))
            }
            Err(error) => {
                tracing::warn!("box is taken down: it cannot be supervised");
                self.abandon();
                Err(error)
            }
        }
    }

    /// Takes the box down; if the payload was not started, it never will be.
    pub fn abandon(self) {
        kill(&self);
        process::wait(self.init.pid, true).ok(); // reaped already, or now
        drop(self.clean_up(true));
    }

    /// Lets the janitor remove the cgroups, if nobody is in them any more.
    fn clean_up(self, init_is_gone: bool) -> Remains {
        let init = (!init_is_gone).then_some(self.init.pid);
        if let (Some(janitor), None) = (&self.janitor, init) {
            janitor.leave();
        }
        Remains { init, cgroup: self.cgroup, janitor: self.janitor }
    }
}

/// What is left of a box that is over: its mounts, namespaces and cgroups. Gone when this is.
#[derive(Debug)]
#[must_use]
pub struct Remains {
    /// It has nothing more to do than to end.
    init: Option<i32>,
    cgroup: Option<Cgroup>,
    janitor: Option<Janitor>,
}

impl Drop for Remains {
    fn drop(&mut self) {
        if let Some(init) = self.init {
            process::wait(init, true).ok(); // nobody else reaps it
        }
        if let Some(janitor) = &self.janitor {
            janitor.leave();
            janitor.wait();
        }
        // There is nothing to do here, unless somebody killed the janitor.
        if let Some(cgroup) = &self.cgroup {
            cgroup.remove();
        }
    }
}

/// Everything that changes while the box runs.
struct Watch<'a> {
    running: &'a Running,
    seen: Seen,
    over: bool,
    /// What all of it took, as init says it when nothing else is left.
    spent: Option<Spent>,
    started: Option<Instant>,
    ended: Option<Instant>,
    deadline: Option<Instant>,
    grace: Option<Instant>,
    interrupts: u32,
    full_ticks: u32,
    /// The most memory that was seen where no cgroup keeps count.
    peak: u64,
    next_tick: Instant,
    refused: Option<String>,
    /// Init has closed its side; only its end is still to come.
    silent: bool,
}

fn watch(
    running: &Running,
    streams: Option<Streams>,
    mut with: Supervision<'_>,
) -> Result<(Finished, bool), SuperviseError> {
    let host =
        |doing: &'static str| move |source: io::Error| SuperviseError::Host { doing, source };
    let signals = SignalFd::new(&SUPERVISED).map_err(host("watch for signals"))?;
    if !running.launched {
        wire::send(running.control.as_fd(), &Order::Go, &[]).map_err(host("give init the word"))?;
    }
    let host_streams = [with.input, with.output, with.error];
    let (mut flows, terminal) =
        flows(streams, host_streams).map_err(host("prepare the streams"))?;
    let disk = with.disk.take().map(|(layers, count)| DiskWatch::new(layers, count)).transpose();
    let mut disk = disk.map_err(host("look at the free space"))?;
    process::trim_heap();
    let mut state = Watch::new(running);
    while !(state.over && flows.iter().skip(1).all(Flow::is_over)) {
        let ready = wait(&state, &signals, with.stop, &flows).map_err(host("wait for the box"))?;
        if ready.signal {
            while let Some(signal) = signals.read().map_err(host("read a signal"))? {
                state.signal(signal, with.input, terminal.as_ref());
            }
        }
        if ready.stop {
            state.kill(Reason::Interrupted);
        }
        if ready.control {
            state.hear().map_err(host("hear from init"))?;
            if state.spent.is_some() {
                state.end(&mut flows);
            }
        }
        for (index, flow) in flows.iter_mut().enumerate() {
            if ready.flows.get(index).copied().unwrap_or(false) {
                let stream = if index == 2 { Stream::Error } else { Stream::Output };
                let mut filter = with.guard.as_mut().filter(|_| index > 0).map(|guard| {
                    move |chunk: &[u8], kept: &mut Vec<u8>| guard(stream, chunk, kept)
                });
                let filter = filter.as_mut().map(|filter| filter as Filter<'_>);
                flow.advance(filter).map_err(host("pass bytes on"))?;
            }
        }
        if ready.gone {
            state.gone(&mut flows);
        }
        state.limits(&mut flows, disk.as_mut());
    }
    if let Some(what) = state.refused.take() {
        return Err(SuperviseError::Refused { what });
    }
    state.finish(&flows).map_err(host("wait for init"))
}

/// The flows of a run (into the box, its output, its error) and the terminal, if it has one.
fn flows(
    streams: Option<Streams>,
    [input, output, error]: [BorrowedFd<'_>; 3],
) -> io::Result<(Vec<Flow<'_>>, Option<OwnedFd>)> {
    match streams.ok_or(io::ErrorKind::InvalidInput)? {
        Streams::Pipes { input: into_box, output: from_box, error: errors } => {
            rustix::io::ioctl_fionbio(&into_box, true)?;
            let flows = vec![
                Flow::inwards(input, into_box),
                Flow::outwards(from_box, output),
                Flow::outwards(errors, error),
            ];
            Ok((flows, None))
        }
        Streams::Terminal(master) => {
            // A program that reads nothing would hold us up once its terminal is full.
            rustix::io::ioctl_fionbio(&master, true)?;
            let (from_box, terminal) = (master.try_clone()?, master.try_clone()?);
            let flows = vec![Flow::inwards(input, master), Flow::outwards(from_box, output)];
            Ok((flows, Some(terminal)))
        }
    }
}

struct Ready {
    control: bool,
    gone: bool,
    signal: bool,
    stop: bool,
    flows: Vec<bool>,
}

fn wait(
    state: &Watch<'_>,
    signals: &SignalFd,
    stop: Option<BorrowedFd<'_>>,
    flows: &[Flow<'_>],
) -> io::Result<Ready> {
    let mut polled = vec![PollFd::from_borrowed_fd(signals.as_fd(), PollFlags::IN)];
    if !state.over {
        polled.push(PollFd::from_borrowed_fd(state.running.init.pidfd.as_fd(), PollFlags::IN));
    }
    if !state.over && !state.silent {
        polled.push(PollFd::from_borrowed_fd(state.running.control.as_fd(), PollFlags::IN));
    }
    let fixed = polled.len();
    let stop = stop.filter(|_| state.seen.killed.is_none() && !state.over);
    polled.extend(stop.map(|stop| PollFd::from_borrowed_fd(stop, PollFlags::IN)));
    let interests: Vec<Option<PollFd<'_>>> = flows.iter().map(Flow::interest).collect();
    let present: Vec<bool> = interests.iter().map(Option::is_some).collect();
    polled.extend(interests.into_iter().flatten());
    let timeout = state.sleep().map(timespec);
    match rustix::event::poll(&mut polled, timeout.as_ref()) {
        Ok(_) | Err(rustix::io::Errno::INTR) => {}
        Err(error) => return Err(error.into()),
    }
    let is_ready = |index: usize| polled.get(index).is_some_and(|fd| !fd.revents().is_empty());
    let mut next = fixed + usize::from(stop.is_some());
    let flows = present.into_iter().map(|present| {
        let ready = present && is_ready(next);
        next += usize::from(present);
        ready
    });
    let flows = flows.collect();
    Ok(Ready {
        signal: is_ready(0),
        gone: fixed > 1 && is_ready(1),
        control: fixed > 2 && is_ready(2),
        stop: stop.is_some() && is_ready(fixed),
        flows,
    })
}

impl<'a> Watch<'a> {
    fn new(running: &'a Running) -> Self {
        let now = Instant::now();
        Self {
            running,
            seen: Seen::default(),
            over: false,
            spent: None,
            started: None,
            ended: None,
            deadline: running.template.limits.timeout.map(|timeout| now + timeout),
            grace: None,
            interrupts: 0,
            full_ticks: 0,
            peak: 0,
            next_tick: now + TICK,
            refused: None,
            silent: false,
        }
    }

    /// How long nothing needs to be looked at.
    fn sleep(&self) -> Option<Duration> {
        if self.over {
            return None;
        }
        let next = [self.deadline, self.grace, Some(self.next_tick)].into_iter().flatten().min()?;
        Some(next.saturating_duration_since(Instant::now()))
    }

    /// Takes what init says.
    fn hear(&mut self) -> io::Result<()> {
        match wire::receive::<Event>(self.running.control.as_fd(), wire::MAX_WORD)? {
            Some((Event::Started, _)) => self.started = Some(Instant::now()),
            Some((Event::ExecFailed { errno }, _)) => self.seen.exec_errno = Some(errno),
            Some((Event::Ended { exit, signal, spent }, _)) => {
                self.ended = Some(Instant::now());
                self.spent = spent;
                (self.seen.exit, self.seen.signal) = (exit, signal);
            }
            Some((Event::Failed { what, .. }, _)) => self.refused = Some(what),
            Some((Event::Sockets(_) | Event::Built { .. }, _)) => {}
            None => self.silent = true,
        }
        Ok(())
    }

    /// Init is gone, and with it everything in the box.
    fn gone(&mut self, flows: &mut [Flow<'_>]) {
        if self.over {
            return;
        }
        // Its last words may still be in the socket, which then ends.
        while !self.silent && self.hear().is_ok() {}
        self.end(flows);
    }

    /// Nothing runs in the box any more.
    fn end(&mut self, flows: &mut [Flow<'_>]) {
        self.over = true;
        self.ended.get_or_insert_with(Instant::now);
        if let Some(input) = flows.first_mut() {
            input.end_input();
        }
    }

    fn signal(&mut self, signal: i32, ours: BorrowedFd<'_>, theirs: Option<&OwnedFd>) {
        match signal {
            SIGWINCH => resize(ours, theirs),
            SIGINT | SIGQUIT => {
                self.interrupts += 1;
                if self.interrupts > 2 {
                    self.kill(Reason::Interrupted);
                } else {
                    self.forward(signal);
                }
            }
            _ => {
                self.forward(signal);
                self.grace.get_or_insert_with(|| Instant::now() + GRACE);
            }
        }
    }

    fn forward(&self, signal: i32) {
        wire::send(self.running.control.as_fd(), &Order::Signal(signal), &[]).ok(); // or it is gone
    }

    /// Enforces what has no event of its own.
    fn limits(&mut self, flows: &mut [Flow<'_>], disk: Option<&mut DiskWatch<'_>>) {
        let limits = &self.running.template.limits;
        let written: u64 = flows.iter().skip(1).map(|flow| flow.total).sum();
        if written > limits.output.as_u64() {
            self.kill(Reason::Output);
            if self.seen.killed == Some(Reason::Output) {
                // It goes on writing until the kernel has come round to killing it.
                flows.iter_mut().skip(1).for_each(Flow::end_input);
            }
        }
        let now = Instant::now();
        if self.deadline.is_some_and(|deadline| now >= deadline) {
            self.kill(Reason::Timeout);
        }
        if self.grace.is_some_and(|grace| now >= grace) {
            self.kill(Reason::Interrupted);
        }
        if self.over || now < self.next_tick {
            return;
        }
        self.next_tick = now + TICK;
        match &self.running.cgroup {
            Some(cgroup) => {
                let counts = cgroup.counts();
                if counts.refused_forks > FORK_BOMB {
                    self.kill(Reason::Pids);
                }
                // The kernel (v1) kills one process after the other; the box is one thing.
                if counts.memory_kills > 0 {
                    self.kill(Reason::Memory);
                }
            }
            None => {
                let (init, limit) = (self.running.init.pid, limits.memory.as_u64());
                let used = standin::memory_of(init, limit);
                self.peak = self.peak.max(used);
                if used > limit {
                    self.kill(Reason::Memory);
                }
                let full = standin::processes_of(init) >= limits.pids as usize;
                self.full_ticks = if full { self.full_ticks + 1 } else { 0 };
                if self.full_ticks > FULL_TICKS {
                    self.kill(Reason::Pids);
                }
            }
        }
        let (init, cap) = (self.running.init.pid, limits.disk.as_u64());
        if disk.is_some_and(|disk| disk.exceeded(init, cap, TICK)) {
            self.kill(Reason::Disk);
        }
    }

    fn kill(&mut self, reason: Reason) {
        if !self.over && self.ended.is_none() && self.seen.killed.is_none() {
            self.seen.killed = Some(reason);
            kill(self.running);
        }
    }

    /// The account, and whether init is gone by now.
    fn finish(self, flows: &[Flow<'_>]) -> io::Result<(Finished, bool)> {
        let usage = match self.spent {
            Some(Spent { user, system, max_rss_bytes }) => Usage { user, system, max_rss_bytes },
            None => {
                let reaped = process::wait(self.running.init.pid, true)?;
                reaped.map_or_else(Usage::default, |(_, _, usage)| usage)
            }
        };
        let counts = self.running.cgroup.as_ref().map_or_else(Counts::default, Cgroup::counts);
        let bytes = |index: usize| flows.get(index).map_or(0, |flow| flow.total);
        let micros = |time: Duration| u64::try_from(time.as_micros()).unwrap_or(u64::MAX);
        let wall = self.started.zip(self.ended).map_or(Duration::ZERO, |(from, to)| to - from);
        let finished = Finished {
            reason: verdict::reason(self.seen, counts),
            exit: self.seen.exit,
            signal: self.seen.signal,
            wall,
            cpu: CpuTime { user: micros(usage.user), system: micros(usage.system) },
            peak_memory: counts.peak_memory.or(Some(usage.max_rss_bytes.max(self.peak))),
            stdin_bytes: bytes(0),
            ended_in_newline: flows.get(1).is_none_or(Flow::ended_in_newline),
            output: OutputBytes { stdout: bytes(1), stderr: bytes(2) },
            layers: self.running.layers.clone(),
            exec_error: self.seen.exec_errno.map(io::Error::from_raw_os_error),
        };
        Ok((finished, self.spent.is_none()))
    }
}

/// Gives the payload's terminal the size of ours.
fn resize(ours: BorrowedFd<'_>, theirs: Option<&OwnedFd>) {
    if let (Some(theirs), Ok(size)) = (theirs, rustix::termios::tcgetwinsize(ours)) {
        rustix::termios::tcsetwinsize(theirs, size).ok(); // a size is never worth failing for
    }
}

fn kill(running: &Running) {
    // It fails only when init is gone, which is what was wanted.
    rustix::process::pidfd_send_signal(&running.init.pidfd, Signal::KILL).ok();
}
