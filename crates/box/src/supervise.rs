//! Supervises a running box: copies its streams, enforces limits that the kernel does not, cleans up.
//!
//! One thread runs one `poll` loop, which only waits for events; [`Meter`] measures on other threads. A box has ended when init reports that no other process is left, or
//! when init has exited, because the kernel then kills all processes of its pid namespace.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::PathBuf;
use std::time::{Duration, Instant};

use belljar_init::plan::{Event, InitCommand, Spent};
use belljar_init::wire;
use belljar_model::{CpuTime, OutputBytes, Reason};
use belljar_sys::process::{self, Usage};
use belljar_sys::signal::{SIGINT, SIGQUIT, SIGWINCH, SUPERVISOR_SIGNALS, SignalFd};
use belljar_sys::time::timespec;
use rustix::event::{PollFd, PollFlags};
use rustix::process::Signal;

use crate::cgroup::{Cgroup, Counts};
use crate::disk::{DiskLimiter, DiskWatch};
use crate::flow::{Filter, Flow, OutputFilter, Stream};
use crate::janitor::Janitor;
use crate::meter::{Measured, Meter};
use crate::start::{BuiltBox, Streams};
use crate::verdict::{self, BoxEnd, Observed};

/// The streams and callbacks of the caller for the supervision of one box.
pub struct Supervision<'a> {
    pub input: BorrowedFd<'a>,
    pub output: BorrowedFd<'a>,
    pub error: BorrowedFd<'a>,
    /// The filter for output that goes to the operator's terminal.
    pub filter: Option<&'a mut OutputFilter<'a>>,
    /// A directory on the file system that stores the files of the box, and what limits their size. `None`
    /// if the box writes no file to disk.
    pub disk: Option<(PathBuf, DiskLimiter)>,
    /// The descriptor whose readability or closing kills the box.
    pub stop: Option<BorrowedFd<'a>>,
}

impl std::fmt::Debug for Supervision<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Supervision").finish_non_exhaustive()
    }
}

/// An error of supervising a box. The box has been killed.
#[derive(Debug, thiserror::Error)]
pub enum SuperviseError {
    #[error("init failed before it could start the program: {what}")]
    Refused { what: String },
    #[error("{doing}")]
    Host { doing: &'static str, source: io::Error },
}

/// Time between a termination signal and the kill of the box.
const GRACE: Duration = Duration::from_secs(10);

impl BuiltBox {
    /// Starts the payload and supervises it until its end.
    ///
    /// The kernel removes mounts and namespaces in the background. Dropping [`Teardown`] waits for that and
    /// removes the rest.
    pub fn supervise(
        mut self,
        with: Supervision<'_>,
    ) -> Result<(BoxEnd, Teardown), SuperviseError> {
        let streams = self.streams.take();
        match watch(&self, streams, with) {
            Ok((end, init_reaped)) => {
                tracing::debug!(init_reaped, "box has ended");
                Ok((end, self.clean_up(init_reaped)))
            }
            Err(error) => {
                tracing::warn!("supervision failed; the box is killed");
                self.abandon();
                Err(error)
            }
        }
    }

    /// Kills the box. A payload that was not started will never start.
    pub fn abandon(self) {
        kill(&self);
        process::wait(self.init.pid, true).ok(); // fails if init was already reaped
        drop(self.clean_up(true));
    }

    /// Tells the janitor to remove the cgroups, if they contain no process.
    fn clean_up(self, init_reaped: bool) -> Teardown {
        let init = (!init_reaped).then_some(self.init.pid);
        if let (Some(janitor), None) = (&self.janitor, init) {
            janitor.shut_down();
        }
        Teardown { init, cgroup: self.cgroup, janitor: self.janitor }
    }
}

/// The mounts, namespaces and cgroups of a box that has ended. Dropping this value removes them.
#[derive(Debug)]
#[must_use]
pub struct Teardown {
    /// The process id of init, if init is still exiting.
    init: Option<i32>,
    cgroup: Option<Cgroup>,
    janitor: Option<Janitor>,
}

impl Drop for Teardown {
    fn drop(&mut self) {
        if let Some(init) = self.init {
            process::wait(init, true).ok(); // no other code reaps init
        }
        if let Some(janitor) = &self.janitor {
            janitor.shut_down();
            janitor.wait();
        }
        // The directories exist only if the janitor was killed.
        if let Some(cgroup) = &self.cgroup {
            cgroup.remove();
        }
    }
}

/// The state of one box while it is supervised.
struct Watch<'a> {
    built: &'a BuiltBox,
    seen: Observed,
    over: bool,
    /// The resource use of the whole box, as init reports it at the end.
    spent: Option<Spent>,
    started: Option<Instant>,
    ended: Option<Instant>,
    deadline: Option<Instant>,
    grace: Option<Instant>,
    interrupts: u32,
    refused: Option<String>,
    /// Whether init has closed its socket, before it exits.
    closed: bool,
}

fn watch(
    built: &BuiltBox,
    streams: Option<Streams>,
    mut with: Supervision<'_>,
) -> Result<(BoxEnd, bool), SuperviseError> {
    let host =
        |doing: &'static str| move |source: io::Error| SuperviseError::Host { doing, source };
    let signals = SignalFd::new(&SUPERVISOR_SIGNALS).map_err(host("cannot watch for signals"))?;
    if !built.launched {
        wire::send(built.control.as_fd(), &InitCommand::Go, &[])
            .map_err(host("cannot tell init to start the program"))?;
    }
    let host_streams = [with.input, with.output, with.error];
    let (mut flows, terminal) =
        flows(streams, host_streams).map_err(host("cannot prepare the streams"))?;
    let cap = built.template.limits.disk.as_u64();
    let disk = with.disk.take().map(|(dir, limiter)| DiskWatch::new(&dir, limiter, cap));
    let disk = disk.transpose().map_err(host("cannot measure the free disk space"))?;
    process::trim_heap();
    let measured = Measured {
        init: built.init.pid,
        cgroup: built.cgroup.clone(),
        limits: built.template.limits.clone(),
        disk,
    };
    let meter = Meter::start(measured).map_err(host("cannot start a thread"))?;
    let mut state = Watch::new(built);
    while !(state.over && flows.iter().skip(1).all(Flow::is_over)) {
        let ready = wait(&state, &signals, with.stop, &meter, &flows)
            .map_err(host("cannot wait for the box"))?;
        if ready.signal {
            while let Some(signal) = signals.read().map_err(host("cannot read a signal"))? {
                state.signal(signal, with.input, terminal.as_ref());
            }
        }
        if ready.stop {
            state.kill(Reason::Interrupted);
        }
        if ready.control {
            state.receive().map_err(host("cannot read from init"))?;
            if state.spent.is_some() {
                state.end(&mut flows);
            }
        }
        for (index, flow) in flows.iter_mut().enumerate() {
            if ready.flows.get(index).copied().unwrap_or(false) {
                let stream = if index == 2 { Stream::Error } else { Stream::Output };
                let mut filter = with.filter.as_mut().filter(|_| index > 0).map(|filter| {
                    move |chunk: &[u8], filtered: &mut Vec<u8>| filter(stream, chunk, filtered)
                });
                let filter = filter.as_mut().map(|filter| filter as Filter<'_>);
                flow.advance(filter).map_err(host("cannot copy a stream"))?;
            }
        }
        if ready.exited {
            state.init_exited(&mut flows);
        }
        state.limits(&mut flows, &meter);
    }
    if let Some(what) = state.refused.take() {
        return Err(SuperviseError::Refused { what });
    }
    state.finish(&mut flows, meter.peak()).map_err(host("cannot wait for init"))
}

/// Returns the flows of a box (input, output, error) and its terminal, if it has one.
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
            // A program that reads nothing would block the supervisor once its terminal is full.
            rustix::io::ioctl_fionbio(&master, true)?;
            let (from_box, terminal) = (master.try_clone()?, master.try_clone()?);
            let flows = vec![Flow::inwards(input, master), Flow::outwards(from_box, output)];
            Ok((flows, Some(terminal)))
        }
    }
}

/// The descriptors that `poll` reported as ready.
struct Ready {
    control: bool,
    exited: bool,
    signal: bool,
    stop: bool,
    flows: Vec<bool>,
}

fn wait(
    state: &Watch<'_>,
    signals: &SignalFd,
    stop: Option<BorrowedFd<'_>>,
    meter: &Meter,
    flows: &[Flow<'_>],
) -> io::Result<Ready> {
    let mut polled = vec![PollFd::from_borrowed_fd(signals.as_fd(), PollFlags::IN)];
    if !state.over {
        polled.push(PollFd::from_borrowed_fd(state.built.init.pidfd.as_fd(), PollFlags::IN));
    }
    if !state.over && !state.closed {
        polled.push(PollFd::from_borrowed_fd(state.built.control.as_fd(), PollFlags::IN));
    }
    let fixed = polled.len();
    let stop = stop.filter(|_| state.seen.killed.is_none() && !state.over);
    polled.extend(stop.map(|stop| PollFd::from_borrowed_fd(stop, PollFlags::IN)));
    let interests: Vec<Option<PollFd<'_>>> = flows.iter().map(Flow::interest).collect();
    let present: Vec<bool> = interests.iter().map(Option::is_some).collect();
    polled.extend(interests.into_iter().flatten());
    // After all others: the report is read from the meter, not from the descriptor.
    polled.extend(meter.interest().filter(|_| !state.over));
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
        exited: fixed > 1 && is_ready(1),
        control: fixed > 2 && is_ready(2),
        stop: stop.is_some() && is_ready(fixed),
        flows,
    })
}

impl<'a> Watch<'a> {
    fn new(built: &'a BuiltBox) -> Self {
        let now = Instant::now();
        Self {
            built,
            seen: Observed::default(),
            over: false,
            spent: None,
            started: None,
            ended: None,
            deadline: built.template.limits.timeout.map(|timeout| now + timeout),
            grace: None,
            interrupts: 0,
            refused: None,
            closed: false,
        }
    }

    /// Returns the time until the next deadline.
    fn sleep(&self) -> Option<Duration> {
        if self.over {
            return None;
        }
        let next = [self.deadline, self.grace].into_iter().flatten().min()?;
        Some(next.saturating_duration_since(Instant::now()))
    }

    /// Receives one message of init and handles it.
    fn receive(&mut self) -> io::Result<()> {
        match wire::receive::<Event>(self.built.control.as_fd(), wire::MAX_SMALL_MESSAGE)? {
            Some((Event::Started, _)) => self.started = Some(Instant::now()),
            Some((Event::ExecFailed { errno }, _)) => self.seen.exec_errno = Some(errno),
            Some((Event::Ended { exit, signal, spent }, _)) => {
                self.ended = Some(Instant::now());
                self.spent = spent;
                (self.seen.exit, self.seen.signal) = (exit, signal);
            }
            Some((Event::Failed { what, .. }, _)) => self.refused = Some(what),
            Some((Event::Sockets(_) | Event::Built { .. }, _)) => {}
            None => self.closed = true,
        }
        Ok(())
    }

    /// Handles the exit of init, and with it of all processes of the box.
    fn init_exited(&mut self, flows: &mut [Flow<'_>]) {
        if self.over {
            return;
        }
        // The last messages of init can still be in the socket.
        while !self.closed && self.receive().is_ok() {}
        self.end(flows);
    }

    /// Records that no process of the box is left.
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
        wire::send(self.built.control.as_fd(), &InitCommand::Signal(signal), &[]).ok(); // init can have exited
    }

    /// Kills the box if it exceeds a limit of the box: output, time, and those
    /// that are measured on another thread.
    fn limits(&mut self, flows: &mut [Flow<'_>], meter: &Meter) {
        let limits = &self.built.template.limits;
        let written: u64 = flows.iter().skip(1).map(|flow| flow.total).sum();
        if written > limits.output.as_u64() {
            self.kill(Reason::Output);
            if self.seen.killed == Some(Reason::Output) {
                // The payload keeps writing until the kernel has killed it.
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
        if let Some(reason) = meter.exceeded() {
            self.kill(reason);
        }
    }

    fn kill(&mut self, reason: Reason) {
        if !self.over && self.ended.is_none() && self.seen.killed.is_none() {
            self.seen.killed = Some(reason);
            kill(self.built);
        }
    }

    /// Returns how the box ended, and whether init has been reaped.
    fn finish(self, flows: &mut [Flow<'_>], peak: u64) -> io::Result<(BoxEnd, bool)> {
        let usage = match self.spent {
            Some(Spent { user, system, max_rss_bytes }) => Usage { user, system, max_rss_bytes },
            None => {
                let reaped = process::wait(self.built.init.pid, true)?;
                reaped.map_or_else(Usage::default, |(_, _, usage)| usage)
            }
        };
        let counts = self.built.cgroup.as_ref().map_or_else(Counts::default, Cgroup::counts);
        let lost = flows.iter_mut().skip(1).find_map(Flow::take_lost);
        let bytes = |index: usize| flows.get(index).map_or(0, |flow| flow.total);
        let micros = |time: Duration| u64::try_from(time.as_micros()).unwrap_or(u64::MAX);
        let wall = self.started.zip(self.ended).map_or(Duration::ZERO, |(from, to)| to - from);
        let end = BoxEnd {
            reason: verdict::reason(self.seen, counts),
            exit: self.seen.exit,
            signal: self.seen.signal,
            wall,
            cpu: CpuTime { user: micros(usage.user), system: micros(usage.system) },
            peak_memory: counts.peak_memory.or(Some(usage.max_rss_bytes.max(peak))),
            stdin_bytes: bytes(0),
            lost_output: lost,
            ended_in_newline: flows.get(1).is_none_or(Flow::ended_in_newline),
            output: OutputBytes { stdout: bytes(1), stderr: bytes(2) },
            layers: self.built.layers.clone(),
            exec_error: self.seen.exec_errno.map(io::Error::from_raw_os_error),
        };
        Ok((end, self.spent.is_none()))
    }
}

/// Sets the size of the payload's terminal to the size of the operator's terminal.
fn resize(ours: BorrowedFd<'_>, theirs: Option<&OwnedFd>) {
    if let (Some(theirs), Ok(size)) = (theirs, rustix::termios::tcgetwinsize(ours)) {
        rustix::termios::tcsetwinsize(theirs, size).ok(); // a wrong size is not worth a failure
    }
}

fn kill(built: &BuiltBox) {
    // Fails only if init has already exited.
    rustix::process::pidfd_send_signal(&built.init.pidfd, Signal::KILL).ok();
}
