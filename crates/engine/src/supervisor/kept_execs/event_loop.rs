//! The thread that owns all kept execs of a box. It waits for their programs and clients with `poll`, so an
//! idle exec costs no time.

use std::collections::BTreeMap;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::sync::mpsc::{Receiver, Sender};
use std::sync::{Arc, mpsc};
use std::time::Instant;

use belljar_sys::time::timespec;
use rustix::event::{PollFd, PollFlags};

use super::exec::{About, Ahead, KeptExec, Source};
use super::limits::{self, EndedExec};
use super::program::ExecProgram;
use crate::clock::Clock;
use crate::supervisor::exec_protocol::{ExecId, ExecStatus};

/// The number of bytes that are read at once.
const SCRATCH: usize = 64 * 1024;

/// A function that another thread sends to the thread of the execs.
pub(super) type Command = Box<dyn FnOnce(&mut Execs) + Send>;

/// The kept execs of a box.
#[derive(Debug)]
pub(super) struct Execs {
    all: BTreeMap<ExecId, KeptExec>,
    clock: Clock,
    /// The number of ended execs when the limits were last checked.
    checked: usize,
    /// Dropped when no exec runs and no client waits for output.
    idle: Option<Sender<()>>,
}

/// The result of a request to attach a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Attached {
    Yes,
    /// The exec does not exist.
    Unknown,
    /// The client has more output than the program wrote.
    Ahead,
}

impl Execs {
    pub(super) const fn new(clock: Clock) -> Self {
        Self { all: BTreeMap::new(), clock, checked: 0, idle: None }
    }

    /// Adds an exec that has just started. The id was unknown before the start.
    pub(super) fn insert(
        &mut self,
        about: About,
        program: ExecProgram,
        permit: Arc<()>,
    ) -> ExecStatus {
        let exec = KeptExec::new(about, program, permit);
        let status = exec.status();
        self.all.insert(status.id, exec);
        status
    }

    pub(super) fn status(&self, id: ExecId) -> Option<ExecStatus> {
        self.all.get(&id).map(KeptExec::status)
    }

    pub(super) fn list(&self) -> Vec<ExecStatus> {
        self.all.values().map(KeptExec::status).collect()
    }

    /// Sends a signal to an exec. Returns whether the exec exists.
    pub(super) fn signal(&self, id: ExecId, number: i32) -> bool {
        self.all.get(&id).map(|exec| exec.signal(number)).is_some()
    }

    pub(super) fn attach(&mut self, id: ExecId, socket: UnixStream, from: [u64; 2]) -> Attached {
        let Some(exec) = self.all.get_mut(&id) else { return Attached::Unknown };
        match exec.attach(socket, from) {
            Ok(()) => Attached::Yes,
            Err(Ahead) => Attached::Ahead,
        }
    }

    /// Drops a sender as soon as no exec runs and no client waits for output.
    pub(super) fn when_idle(&mut self, idle: Sender<()>) {
        self.idle = Some(idle);
    }

    /// Does what can be done without waiting. Returns the time of the next thing to do.
    fn advance(&mut self, scratch: &mut [u8]) -> Option<Instant> {
        let now = (Instant::now(), self.clock.millis());
        let room = self.all.values_mut().filter_map(|exec| exec.advance(now, scratch)).min();
        let oldest = self.remove_old(now.0);
        let is_idle = |exec: &KeptExec| exec.ended_at().is_some() && !exec.has_client();
        if self.all.values().all(is_idle) {
            self.idle = None;
        }
        [room, oldest].into_iter().flatten().min()
    }

    /// Enforces the limits of ended execs. Returns the time at which the next one is too old.
    fn remove_old(&mut self, now: Instant) -> Option<Instant> {
        let ended = self.ended();
        let next = limits::next_expiry(&ended);
        if ended.len() == self.checked && next.is_none_or(|next| next > now) {
            return next;
        }
        let excess = limits::excess(ended, now);
        for id in excess.removed {
            self.all.remove(&id);
        }
        for id in excess.without_output {
            self.all.get_mut(&id).map(KeptExec::discard_output);
        }
        let ended = self.ended();
        self.checked = ended.len();
        limits::next_expiry(&ended)
    }

    fn ended(&self) -> Vec<EndedExec> {
        let ended = |(id, exec): (&ExecId, &KeptExec)| {
            Some(EndedExec { id: *id, at: exec.ended_at()?, output: exec.kept_bytes() })
        };
        self.all.iter().filter_map(ended).collect()
    }

    /// Waits for an event, until `next` at the latest. Returns the execs that are ready.
    fn wait(&self, wake: &OwnedFd, next: Option<Instant>) -> Vec<(ExecId, Source)> {
        let (mut sources, mut polled) = (Vec::new(), vec![PollFd::new(wake, PollFlags::IN)]);
        for (id, exec) in &self.all {
            exec.interests(|source, fd| {
                sources.push((*id, source));
                polled.push(fd);
            });
        }
        let timeout = next.map(|next| timespec(next.saturating_duration_since(Instant::now())));
        if rustix::event::poll(&mut polled, timeout.as_ref()).is_err() {
            return Vec::new(); // interrupted by a signal
        }
        let ready = polled.iter().skip(1).map(|fd| !fd.revents().is_empty());
        sources.into_iter().zip(ready).filter(|(_, ready)| *ready).map(|(it, _)| it).collect()
    }
}

/// Runs the execs of a box until all senders of commands are gone. Each sender writes to `wake` after a command.
pub(super) fn run(mut execs: Execs, commands: &Receiver<Command>, wake: &OwnedFd) {
    let mut scratch = vec![0; SCRATCH];
    loop {
        let next = execs.advance(&mut scratch);
        let ready = execs.wait(wake, next);
        rustix::io::read(wake, &mut [0; 8]).ok(); // nothing to read without a command
        loop {
            match commands.try_recv() {
                Ok(command) => command(&mut execs),
                Err(mpsc::TryRecvError::Empty) => break,
                Err(mpsc::TryRecvError::Disconnected) => return,
            }
        }
        for (id, source) in ready {
            if let Some(exec) = execs.all.get_mut(&id) {
                exec.ready(source, &mut scratch);
            }
        }
    }
}
