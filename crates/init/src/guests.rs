//! Programs that join a box after its first one, and pauses of all of them.
//!
//! The supervisor asks over the *line*, and sends a socket with each wish: over that one, and no other,
//! it hears of the wish again. So guests do not wait for each other, and a pause ends by itself when
//! whoever asked for it is gone. While the box is paused nothing is taken from the line.
//!
//! **Invariant:** nothing here waits for a process of the box, which may have been stopped by another.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};

use belljar_sys::process::{self, Ended, Fork};
use rustix::event::{PollFd, PollFlags};
use rustix::process::{Pid, Signal};

use crate::payload::{self, Streams};
use crate::plan::{Call, Guest, Order, Plan, Stdio, Word};
use crate::{Failure, wire};

/// So many at once.
const MAX_GUESTS: usize = 64;
/// What one gets to execute its program.
const PATIENCE: Duration = Duration::from_secs(10);

/// What the poll of init said about the line.
pub(crate) struct Ready {
    pub(crate) line: bool,
}

/// All guests of a box, and where they are asked for.
pub(crate) struct Guests<'a> {
    plan: &'a Plan,
    /// `None`: nobody can ask any more.
    line: Option<OwnedFd>,
    /// The terminals of the box, held open: in a root of the user's own, `/dev` can be renamed.
    terminals: OwnedFd,
    present: Vec<Present>,
    /// Who has asked for a pause.
    pause: Option<OwnedFd>,
}

/// One guest.
struct Present {
    pid: i32,
    /// `None`: nobody asks about it any more.
    line: Option<OwnedFd>,
    /// Closed by its exec; until then it may say here why there is none.
    report: Option<OwnedFd>,
    /// Our side of its terminal, on its way to the supervisor.
    master: Option<OwnedFd>,
    deadline: Instant,
}

impl<'a> Guests<'a> {
    pub(crate) fn new(plan: &'a Plan, line: Option<OwnedFd>, terminals: OwnedFd) -> Self {
        Self { plan, line, terminals, present: Vec::new(), pause: None }
    }

    /// What to wait for; the line, if it is listened to, comes first.
    pub(crate) fn interests(&self) -> Vec<PollFd<'_>> {
        let line = self.pause.as_ref().or(self.line.as_ref());
        let of_guests = self.present.iter().flat_map(|guest| [&guest.line, &guest.report]);
        let all = line.into_iter().chain(of_guests.flatten());
        all.map(|fd| PollFd::from_borrowed_fd(fd.as_fd(), PollFlags::IN)).collect()
    }

    /// Whether the first of [`Self::interests`] is the line or the pause.
    pub(crate) fn listens(&self) -> bool {
        self.pause.is_some() || self.line.is_some()
    }

    /// How long nothing needs to be looked at.
    pub(crate) fn sleep(&self) -> Option<Duration> {
        if self.pause.is_some() {
            return None;
        }
        let undecided = self.present.iter().filter(|guest| guest.report.is_some());
        let next = undecided.map(|guest| guest.deadline).min()?;
        Some(next.saturating_duration_since(Instant::now()))
    }

    /// Does what can be done now.
    pub(crate) fn attend(&mut self, ready: &Ready) {
        if self.pause.is_some() {
            self.end_pause(ready);
        } else if ready.line {
            self.hear();
        }
        let now = Instant::now();
        let is_paused = self.pause.is_some();
        for guest in &mut self.present {
            guest.obey();
            guest.learn();
            if guest.report.is_some() && !is_paused && now >= guest.deadline {
                deliver(guest.pid, Signal::KILL.as_raw());
            }
        }
    }

    /// A process was reaped; it may have been a guest.
    pub(crate) fn ended(&mut self, pid: i32, ended: Ended) {
        let Some(index) = self.present.iter().position(|guest| guest.pid == pid) else { return };
        let mut guest = self.present.swap_remove(index);
        guest.learn();
        guest.say(&match ended {
            Ended::Exited(code) => Word::Ended { exit: Some(code), signal: None },
            Ended::Signaled(signal) => Word::Ended { exit: None, signal: Some(signal) },
        });
    }

    /// Takes one wish from the line.
    fn hear(&mut self) {
        let Some(line) = &self.line else { return };
        match wire::receive(line.as_fd(), wire::MAX_MESSAGE) {
            Ok(Some((Call::Exec(guest), with))) => self.admit(&guest, with),
            Ok(Some((Call::Pause, with))) => self.begin_pause(with),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Ok(None) | Err(_) => self.line = None,
        }
    }

    fn admit(&mut self, guest: &Guest, with: Vec<OwnedFd>) {
        let mut with = with.into_iter();
        let Some(line) = with.next() else { return }; // we have no room for descriptors
        match self.start(guest, with.collect()) {
            Ok((pid, report, master)) => self.present.push(Present {
                pid,
                line: Some(line),
                report: Some(report),
                master,
                deadline: Instant::now() + PATIENCE,
            }),
            Err(Failure { what, errno, .. }) => {
                wire::send(line.as_fd(), &Word::Failed { what, errno }, &[]).ok();
            }
        }
    }

    /// Forks a guest. Returns where it says how that went, and our side of its terminal.
    fn start(
        &self,
        guest: &Guest,
        with: Vec<OwnedFd>,
    ) -> Result<(i32, OwnedFd, Option<OwnedFd>), Failure> {
        use crate::During as _;
        use crate::plan::Stage::Protocol;
        let doing = || "start one more program".to_owned();
        if self.present.len() >= MAX_GUESTS {
            return Err(rustix::io::Errno::AGAIN).during(Protocol, doing);
        }
        let (streams, master) = match guest.stdio {
            Stdio::Pipes => {
                let streams = Streams::from_plan(&mut { with });
                (streams.ok_or(rustix::io::Errno::MFILE).during(Protocol, doing)?, None)
            }
            Stdio::Terminal { rows, columns } => {
                let (master, terminal) = payload::open_terminal(&self.terminals, rows, columns)?;
                (Streams::Terminal(terminal), Some(master))
            }
        };
        let flags = rustix::pipe::PipeFlags::CLOEXEC | rustix::pipe::PipeFlags::NONBLOCK;
        let (answer, report) = rustix::pipe::pipe_with(flags).during(Protocol, doing)?;
        match process::fork().during(Protocol, doing)? {
            Fork::Child => {
                drop(answer);
                let word = payload::become_guest(self.plan, guest, &streams);
                let said = postcard::to_allocvec(&word).unwrap_or_default();
                rustix::io::write(&report, &said).ok();
                belljar_sys::exec::exit_now(125)
            }
            Fork::Parent { child } => Ok((child, answer, master)),
        }
    }

    fn begin_pause(&mut self, with: Vec<OwnedFd>) {
        let Some(asked) = with.into_iter().next() else { return };
        to_everybody(Signal::STOP);
        wire::send(asked.as_fd(), &Word::Stopped, &[]).ok(); // who is gone is noticed next
        self.pause = Some(asked);
    }

    /// Nothing is ever said over the socket of a pause, so what can be read is its end.
    fn end_pause(&mut self, ready: &Ready) {
        if !ready.line {
            return;
        }
        self.pause = None;
        to_everybody(Signal::CONT);
        let deadline = Instant::now() + PATIENCE;
        self.present.iter_mut().for_each(|guest| guest.deadline = deadline);
    }
}

impl Present {
    /// Delivers the signals that the supervisor has sent.
    fn obey(&mut self) {
        let Some(line) = &self.line else { return };
        loop {
            if !is_readable(line.as_fd()) {
                return;
            }
            match wire::receive(line.as_fd(), wire::MAX_WORD) {
                Ok(Some((Order::Signal(number), _))) => deliver(self.pid, number),
                Ok(Some(_)) => {}
                Ok(None) | Err(_) => break,
            }
        }
        self.line = None;
    }

    /// Looks whether it has executed its program, or has said why not.
    fn learn(&mut self) {
        let Some(report) = &self.report else { return };
        let mut said = [0; wire::MAX_WORD];
        // Less than a pipe takes at once, so all of it is there or nothing is.
        let length = match rustix::io::read(report, &mut said) {
            Err(rustix::io::Errno::AGAIN | rustix::io::Errno::INTR) => return,
            read => read.unwrap_or(0),
        };
        self.report = None;
        let said = said.get(..length).unwrap_or_default();
        if said.is_empty() {
            self.say(&Word::Started);
        } else {
            self.say(&wire::decode(said).unwrap_or(Word::ExecFailed { errno: 0 }));
            self.line = None;
        }
        self.master = None;
    }

    fn say(&self, word: &Word) {
        let Some(line) = &self.line else { return };
        let master = self.master.as_ref().filter(|_| *word == Word::Started);
        let with: Vec<BorrowedFd<'_>> = master.iter().map(|fd| fd.as_fd()).collect();
        wire::send(line.as_fd(), word, &with).ok(); // or nobody asks any more
    }
}

fn is_readable(fd: BorrowedFd<'_>) -> bool {
    let mut ready = [PollFd::from_borrowed_fd(fd, PollFlags::IN)];
    rustix::event::poll(&mut ready, Some(&rustix::event::Timespec::default())).unwrap_or(0) > 0
}

/// To every process of the box but this one, those that are being forked too: kill(2) with -1.
pub(crate) fn to_everybody(signal: Signal) {
    rustix::process::kill_process_group(Pid::INIT, signal).ok(); // there may be nobody
}

/// What a terminal would send goes to the whole group, as a terminal would send it.
pub(crate) fn deliver(pid: i32, number: i32) {
    let (Some(pid), Some(signal)) = (Pid::from_raw(pid), Signal::from_named_raw(number)) else {
        return;
    };
    let of_terminal = [Signal::INT, Signal::QUIT, Signal::HUP].contains(&signal);
    let sent = if of_terminal {
        rustix::process::kill_process_group(pid, signal)
    } else {
        rustix::process::kill_process(pid, signal)
    };
    sent.ok(); // it may be gone already
}
