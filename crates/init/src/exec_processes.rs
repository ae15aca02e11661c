//! Starts additional programs in a running box, pauses all its processes, and creates sockets for its
//! supervisor.
//!
//! The supervisor sends commands over the exec channel, each with a separate socket for its events. So
//! programs do not wait for each other, and a pause ends when the requester closes its socket. While the
//! box is paused, init reads no commands from the exec channel.
//!
//! **Invariant:** this module never waits for a process of the box, because another process can stop it.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};

use belljar_sys::process::{self, Ended, Fork};
use rustix::event::{PollFd, PollFlags};
use rustix::process::{Pid, Signal};

use crate::payload::{self, Streams};
use crate::plan::{ExecCommand, ExecEvent, ExecSpec, InitCommand, Plan, Stdio};
use crate::{Failure, wire};

/// The maximum number of additional programs that run at the same time.
const MAX_PROCESSES: usize = 64;
/// The timeout from fork to exec of an additional program.
const EXEC_TIMEOUT: Duration = Duration::from_secs(10);

/// The descriptors of this module that the poll of the main loop reported as ready.
pub(crate) struct Ready {
    /// Whether the exec channel, or during a pause its socket, is readable.
    pub(crate) channel: bool,
}

/// The additional programs of a box, and the channel through which they are started.
pub(crate) struct ExecProcesses<'a> {
    plan: &'a Plan,
    /// The exec channel. `None` if the supervisor closed it or the plan has none.
    channel: Option<OwnedFd>,
    /// The directory `/dev/pts`, kept open because a box with a writable root can rename `/dev`.
    terminals: OwnedFd,
    processes: Vec<ExecProcess>,
    /// The socket of the current pause, if the box is paused.
    pause: Option<OwnedFd>,
}

/// The first process of one additional program.
struct ExecProcess {
    pid: i32,
    /// The socket of the program for events and signals. `None` if the supervisor closed it.
    socket: Option<OwnedFd>,
    /// The pipe that a successful exec closes, and on which a failure is reported. If exec fails,
    /// the process writes an event to it first.
    report: Option<OwnedFd>,
    /// The master side of the program's terminal, until it is sent to the supervisor.
    master: Option<OwnedFd>,
    /// The time at which the process is killed if it has not called exec.
    deadline: Instant,
}

impl<'a> ExecProcesses<'a> {
    pub(crate) fn new(plan: &'a Plan, channel: Option<OwnedFd>, terminals: OwnedFd) -> Self {
        Self { plan, channel, terminals, processes: Vec::new(), pause: None }
    }

    /// Returns the descriptors of the exec channel and its programs to poll. The exec channel or
    /// the socket of a pause, if any, is the first.
    pub(crate) fn descriptors(&self) -> Vec<PollFd<'_>> {
        let channel = self.pause.as_ref().or(self.channel.as_ref());
        let of_processes =
            self.processes.iter().flat_map(|process| [&process.socket, &process.report]);
        let all = channel.into_iter().chain(of_processes.flatten());
        all.map(|fd| PollFd::from_borrowed_fd(fd.as_fd(), PollFlags::IN)).collect()
    }

    /// Returns whether the first of [`Self::descriptors`] is the exec channel or the socket of a pause.
    pub(crate) fn is_listening(&self) -> bool {
        self.pause.is_some() || self.channel.is_some()
    }

    /// Returns the time until the next exec deadline of an additional program, if any.
    pub(crate) fn timeout(&self) -> Option<Duration> {
        if self.pause.is_some() {
            return None;
        }
        let before_exec = self.processes.iter().filter(|process| process.report.is_some());
        let next = before_exec.map(|process| process.deadline).min()?;
        Some(next.saturating_duration_since(Instant::now()))
    }

    /// Handles messages on the exec channel and from all additional programs, without blocking.
    pub(crate) fn serve(&mut self, ready: &Ready) {
        if self.pause.is_some() {
            self.end_pause(ready);
        } else if ready.channel {
            self.receive_command();
        }
        let now = Instant::now();
        let is_paused = self.pause.is_some();
        for process in &mut self.processes {
            process.forward_signals();
            process.check_exec();
            if process.report.is_some() && !is_paused && now >= process.deadline {
                send_signal(process.pid, Signal::KILL.as_raw());
            }
        }
    }

    /// Reports the end of a reaped process if it was the first process of an additional program.
    pub(crate) fn ended(&mut self, pid: i32, ended: Ended) {
        let Some(index) = self.processes.iter().position(|process| process.pid == pid) else {
            return;
        };
        let mut process = self.processes.swap_remove(index);
        process.check_exec();
        process.send(&match ended {
            Ended::Exited(code) => ExecEvent::Ended { exit: Some(code), signal: None },
            Ended::Signaled(signal) => ExecEvent::Ended { exit: None, signal: Some(signal) },
        });
    }

    /// Receives one command of the supervisor from the exec channel and carries it out.
    fn receive_command(&mut self) {
        let Some(channel) = &self.channel else { return };
        match wire::receive(channel.as_fd(), wire::MAX_MESSAGE) {
            Ok(Some((ExecCommand::Exec(spec), descriptors))) => self.exec(&spec, descriptors),
            Ok(Some((ExecCommand::Pause, descriptors))) => self.begin_pause(descriptors),
            Ok(Some((ExecCommand::Socket { is_v6 }, descriptors))) => {
                send_socket(is_v6, descriptors);
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Ok(None) | Err(_) => self.channel = None,
        }
    }

    /// Starts a program. The first descriptor is the socket for its events.
    fn exec(&mut self, spec: &ExecSpec, descriptors: Vec<OwnedFd>) {
        let mut descriptors = descriptors.into_iter();
        let Some(socket) = descriptors.next() else { return }; // too many open descriptors
        match self.start(spec, descriptors.collect()) {
            Ok((pid, report, master)) => self.processes.push(ExecProcess {
                pid,
                socket: Some(socket),
                report: Some(report),
                master,
                deadline: Instant::now() + EXEC_TIMEOUT,
            }),
            Err(Failure { what, errno, .. }) => {
                wire::send(socket.as_fd(), &ExecEvent::Failed { what, errno }, &[]).ok();
            }
        }
    }

    /// Forks a process for an additional program. Returns its pid, its report pipe and the master
    /// side of its terminal.
    fn start(
        &self,
        spec: &ExecSpec,
        mut descriptors: Vec<OwnedFd>,
    ) -> Result<(i32, OwnedFd, Option<OwnedFd>), Failure> {
        use crate::Context as _;
        use crate::plan::Stage::Protocol;
        let doing = || "cannot start the program".to_owned();
        if self.processes.len() >= MAX_PROCESSES {
            return Err(rustix::io::Errno::AGAIN).context(Protocol, doing);
        }
        let (streams, master) = match spec.stdio {
            Stdio::Pipes => {
                let streams = Streams::take_last(&mut descriptors);
                (streams.ok_or(rustix::io::Errno::MFILE).context(Protocol, doing)?, None)
            }
            Stdio::Terminal { rows, columns } => {
                let (master, terminal) = payload::open_terminal(&self.terminals, rows, columns)?;
                (Streams::Terminal(terminal), Some(master))
            }
        };
        let program = spec.has_program_fd.then(|| descriptors.pop());
        let program = program.map(|fd| fd.ok_or(rustix::io::Errno::MFILE)).transpose();
        let program = program.context(Protocol, doing)?;
        let flags = rustix::pipe::PipeFlags::CLOEXEC | rustix::pipe::PipeFlags::NONBLOCK;
        let (reader, writer) = rustix::pipe::pipe_with(flags).context(Protocol, doing)?;
        match process::fork().context(Protocol, doing)? {
            Fork::Child => {
                drop(reader);
                let event =
                    payload::become_exec_program(self.plan, spec, &streams, program.as_ref());
                let report = postcard::to_allocvec(&event).unwrap_or_default();
                rustix::io::write(&writer, &report).ok();
                belljar_sys::exec::exit_now(125)
            }
            Fork::Parent { child } => Ok((child, reader, master)),
        }
    }

    /// Stops all processes of the box and keeps the socket of the requester, until it is closed.
    fn begin_pause(&mut self, descriptors: Vec<OwnedFd>) {
        let Some(socket) = descriptors.into_iter().next() else { return };
        signal_all(Signal::STOP);
        wire::send(socket.as_fd(), &ExecEvent::Stopped, &[]).ok(); // the next poll sees a closed socket
        self.pause = Some(socket);
    }

    /// Continues all processes of the box if the supervisor has closed the socket of the pause. The
    /// requester never sends on this socket, so it is readable only when it is closed.
    fn end_pause(&mut self, ready: &Ready) {
        if !ready.channel {
            return;
        }
        self.pause = None;
        signal_all(Signal::CONT);
        let deadline = Instant::now() + EXEC_TIMEOUT;
        self.processes.iter_mut().for_each(|process| process.deadline = deadline);
    }
}

impl ExecProcess {
    /// Forwards the signals that the supervisor has sent for this program to its process.
    fn forward_signals(&mut self) {
        let Some(socket) = &self.socket else { return };
        loop {
            if !is_readable(socket.as_fd()) {
                return;
            }
            match wire::receive(socket.as_fd(), wire::MAX_SMALL_MESSAGE) {
                Ok(Some((InitCommand::Signal(number), _))) => send_signal(self.pid, number),
                Ok(Some(_)) => {}
                Ok(None) | Err(_) => break,
            }
        }
        self.socket = None;
    }

    /// Reports to the supervisor whether exec succeeded, if this is known now.
    fn check_exec(&mut self) {
        let Some(report) = &self.report else { return };
        let mut buffer = [0; wire::MAX_SMALL_MESSAGE];
        // A write of this size to a pipe is atomic, so the event is complete. See pipe(7), PIPE_BUF.
        let length = match rustix::io::read(report, &mut buffer) {
            Err(rustix::io::Errno::AGAIN | rustix::io::Errno::INTR) => return,
            read => read.unwrap_or(0),
        };
        self.report = None;
        let event = buffer.get(..length).unwrap_or_default();
        if event.is_empty() {
            self.send(&ExecEvent::Started);
        } else {
            self.send(&wire::decode(event).unwrap_or(ExecEvent::ExecFailed { errno: 0 }));
            self.socket = None;
        }
        self.master = None;
    }

    /// Sends an event about an additional program to the supervisor. `Started` carries the master
    /// side of the terminal.
    fn send(&self, event: &ExecEvent) {
        let Some(socket) = &self.socket else { return };
        let master = self.master.as_ref().filter(|_| *event == ExecEvent::Started);
        let descriptors: Vec<BorrowedFd<'_>> = master.iter().map(|fd| fd.as_fd()).collect();
        wire::send(socket.as_fd(), event, &descriptors).ok(); // the supervisor can have closed it
    }
}

/// Creates a TCP socket in the network of the box and sends it to the supervisor.
fn send_socket(is_v6: bool, descriptors: Vec<OwnedFd>) {
    use rustix::net::{AddressFamily, SocketFlags, SocketType, socket_with};
    let Some(reply) = descriptors.into_iter().next() else { return }; // too many open descriptors
    let family = if is_v6 { AddressFamily::INET6 } else { AddressFamily::INET };
    let sent = match socket_with(family, SocketType::STREAM, SocketFlags::CLOEXEC, None) {
        Ok(socket) => wire::send(reply.as_fd(), &ExecEvent::Socket, &[socket.as_fd()]),
        Err(error) => {
            let what = "cannot create a socket in the box".to_owned();
            let event = ExecEvent::Failed { what, errno: error.raw_os_error() };
            wire::send(reply.as_fd(), &event, &[])
        }
    };
    sent.ok(); // the supervisor can have closed it
}

fn is_readable(fd: BorrowedFd<'_>) -> bool {
    let mut ready = [PollFd::from_borrowed_fd(fd, PollFlags::IN)];
    rustix::event::poll(&mut ready, Some(&rustix::event::Timespec::default())).unwrap_or(0) > 0
}

/// Sends a signal to every process of the box except init: kill(2) with the process id -1.
pub(crate) fn signal_all(signal: Signal) {
    rustix::process::kill_process_group(Pid::INIT, signal).ok(); // there can be no other process
}

/// Sends a signal to a process, or to its whole process group for the signals that a terminal sends.
pub(crate) fn send_signal(pid: i32, number: i32) {
    let (Some(pid), Some(signal)) = (Pid::from_raw(pid), Signal::from_named_raw(number)) else {
        return;
    };
    let from_terminal = [Signal::INT, Signal::QUIT, Signal::HUP].contains(&signal);
    let sent = if from_terminal {
        rustix::process::kill_process_group(pid, signal)
    } else {
        rustix::process::kill_process(pid, signal)
    };
    sent.ok(); // the process can have exited already
}
