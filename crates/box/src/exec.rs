//! Starts more programs in a running box, connects to its ports, and pauses the box.
//!
//! Init starts each program under the restrictions of the box. No host process ever enters the
//! namespaces of a box, so no host process is ever half inside. Each request carries its own socket for
//! the responses: callers do not wait for each other, and a pause ends when its socket is closed, even
//! if the caller has crashed.

use std::ffi::OsString;
use std::io;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, TcpStream};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use belljar_init::plan::{ExecCommand, ExecEvent, ExecSpec, InitCommand, Stdio};
use belljar_init::wire;
use rustix::event::{PollFd, PollFlags};
use rustix::io::Errno;
use rustix::net::sockopt::Timeout;
use rustix::pipe::PipeFlags;

use crate::janitor::socket_pair;
use crate::processes;

/// The channel to the init of a running box, through which more programs are started. It starts
/// programs, connects to ports and pauses the box; threads can share it.
#[derive(Debug)]
pub struct ExecChannel {
    socket: OwnedFd,
    /// Process id of init. Its descendants are checked after a pause.
    init: i32,
    /// The environment of every program in the box, as `NAME=value`.
    env: Vec<Vec<u8>>,
}

/// The program that [`ExecChannel::exec`] starts in a running box.
#[derive(Clone, Debug, Default)]
pub struct Program {
    pub argv: Vec<OsString>,
    /// The environment variables in addition to those of the box. They override variables of the
    /// box.
    pub env: Vec<(OsString, OsString)>,
    /// The working directory inside the box, relative to that of the first program, which is the
    /// default.
    pub workdir: Option<PathBuf>,
    /// The rows and columns of the program's own terminal, if it gets one. `None`: the program gets
    /// pipes.
    pub terminal: Option<(u16, u16)>,
    /// The file of the program, if the program has no path in the box.
    pub file: Option<Arc<OwnedFd>>,
}

/// The host's ends of the standard streams of a program started by [`ExecChannel::exec`].
#[derive(Debug)]
pub enum ExecStreams {
    Pipes { input: OwnedFd, output: OwnedFd, error: OwnedFd },
    Terminal(OwnedFd),
}

/// A program that was started in a running box. Dropping this value does not stop the program.
///
/// Its descriptor becomes readable when the program has ended.
#[derive(Debug)]
pub struct ExecProcess {
    /// The standard streams of the program, which the caller takes. Closing the input is
    /// end-of-file for the program.
    pub streams: Option<ExecStreams>,
    socket: OwnedFd,
    ended: Mutex<Option<ExecEnd>>,
}

/// The exit status or signal of a program started by [`ExecChannel::exec`].
///
/// A program that ends together with its box has signal 9.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ExecEnd {
    pub exit: Option<i32>,
    pub signal: Option<i32>,
}

/// The reason why a program could not be started in a box.
#[derive(Debug, thiserror::Error)]
pub enum ExecError {
    #[error("the program does not exist in the box")]
    NotFound,
    #[error("the program cannot be executed in the box")]
    NotExecutable(#[source] io::Error),
    #[error("cannot enter the working directory inside the box")]
    Workdir(#[source] io::Error),
    #[error("the command line and its variables are longer than {} KiB; shorten them", MAX_BYTES / 1024)]
    TooLong,
    #[error("the box has ended")]
    Gone,
    #[error("{what}")]
    Refused { what: String, source: io::Error },
    #[error("{doing}")]
    Io { doing: &'static str, source: io::Error },
}

/// A pause of a box. All processes of the box stay stopped until this value is dropped.
#[derive(Debug)]
#[must_use]
pub struct Paused {
    _socket: OwnedFd,
}

/// The maximum size of the arguments and the environment in one message to init.
const MAX_BYTES: usize = wire::MAX_MESSAGE - 4096;
/// The maximum length of the encoded length prefix of a string in a message.
const LENGTH: usize = 8;
const KILLED: i32 = 9;
/// Timeout for a connection on the loopback of a box, whose queue of new connections can be full.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// Timeout for a pause. Only a process in an uninterruptible system call needs noticeable time.
const STOP_TIMEOUT: Duration = Duration::from_secs(10);

impl ExecChannel {
    pub(crate) fn new(socket: OwnedFd, init: i32, env: Vec<Vec<u8>>) -> Self {
        Self { socket, init, env }
    }

    /// Starts a program in the running box, under all its restrictions. The program ends with the
    /// box at the latest.
    ///
    /// Blocks while the box is paused.
    pub fn exec(&self, program: &Program) -> Result<ExecProcess, ExecError> {
        let spec = self.spec(program)?;
        let (socket, theirs) = socket_pair().map_err(failed("cannot create a socket pair"))?;
        let pipe =
            || rustix::pipe::pipe_with(PipeFlags::CLOEXEC).map_err(failed("cannot create a pipe"));
        let (input, output, error) = (pipe()?, pipe()?, pipe()?);
        let mut descriptors = vec![theirs.as_fd()];
        descriptors.extend(program.file.iter().map(|file| file.as_fd()));
        if program.terminal.is_none() {
            descriptors.extend([input.0.as_fd(), output.1.as_fd(), error.1.as_fd()]);
        }
        self.send(&ExecCommand::Exec(Box::new(spec)), &descriptors)?;
        drop(descriptors);
        drop(theirs);
        let mut terminal = receive_started(&socket)?;
        let streams = match program.terminal {
            None => ExecStreams::Pipes { input: input.1, output: output.0, error: error.0 },
            Some(_) => ExecStreams::Terminal(terminal.pop().ok_or(ExecError::Gone)?),
        };
        Ok(ExecProcess { streams: Some(streams), socket, ended: Mutex::new(None) })
    }

    /// Connects to a TCP port on the loopback of the box, by IPv4 or else by IPv6. The connection is made
    /// in the network of the box, so it reaches no other port and no other network.
    ///
    /// Blocks while the box is paused. The kind of the error is `ConnectionRefused` if no program listens.
    pub fn connect(&self, port: u16) -> io::Result<TcpStream> {
        let v4 = self.connect_to((Ipv4Addr::LOCALHOST, port).into());
        match v4 {
            Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => {
                let v6 = self.connect_to((Ipv6Addr::LOCALHOST, port).into());
                v6.map_err(|_| error) // the kernel can lack IPv6
            }
            connected => connected,
        }
    }

    fn connect_to(&self, address: SocketAddr) -> io::Result<TcpStream> {
        let (ours, theirs) = socket_pair()?;
        let command = ExecCommand::Socket { is_v6: address.is_ipv6() };
        wire::send(self.socket.as_fd(), &command, &[theirs.as_fd()])?;
        drop(theirs);
        let socket = match wire::receive(ours.as_fd(), wire::MAX_SMALL_MESSAGE)? {
            Some((ExecEvent::Socket, mut descriptors)) => descriptors.pop(),
            Some((ExecEvent::Failed { errno, .. }, _)) => {
                return Err(io::Error::from_raw_os_error(errno));
            }
            _ => None,
        };
        let socket = socket.ok_or(io::ErrorKind::BrokenPipe)?;
        // A program that accepts no connections must not block the caller for minutes.
        rustix::net::sockopt::set_socket_timeout(&socket, Timeout::Send, Some(CONNECT_TIMEOUT))?;
        rustix::net::connect(&socket, &address)?;
        rustix::net::sockopt::set_socket_timeout(&socket, Timeout::Send, None)?;
        Ok(TcpStream::from(socket))
    }

    /// Stops every process of the box until the returned value is dropped.
    ///
    /// A hostile process can set a timer that wakes it during the pause. So files that are read during a
    /// pause are consistent for honest programs, and still untrusted. The end of the pause also resumes
    /// processes that were stopped before it.
    pub fn pause(&self) -> io::Result<Paused> {
        let (socket, theirs) = socket_pair()?;
        wire::send(self.socket.as_fd(), &ExecCommand::Pause, &[theirs.as_fd()])?;
        drop(theirs);
        let stopped = wire::receive(socket.as_fd(), wire::MAX_SMALL_MESSAGE)?;
        let Some((ExecEvent::Stopped, _)) = stopped else {
            return Err(io::ErrorKind::BrokenPipe.into());
        };
        if self.wait_until_stopped() {
            Ok(Paused { _socket: socket })
        } else {
            Err(io::ErrorKind::TimedOut.into())
        }
    }

    /// Waits until every thread of the box is stopped. Returns false after [`STOP_TIMEOUT`].
    fn wait_until_stopped(&self) -> bool {
        let began = Instant::now();
        while began.elapsed() < STOP_TIMEOUT {
            // Twice: a list that is read while processes start and end can lack one of them.
            if (0..2).all(|_| processes::all_stopped_below(self.init)) {
                return true;
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        false
    }

    /// Converts a program to a message for init, with the variables of the box.
    fn spec(&self, program: &Program) -> Result<ExecSpec, ExecError> {
        let overridden = |entry: &[u8]| {
            let name = entry.split(|byte| *byte == b'=').next().unwrap_or_default();
            program.env.iter().any(|(own, _)| own.as_bytes() == name)
        };
        let own = program
            .env
            .iter()
            .map(|(name, value)| [name.as_bytes(), b"=", value.as_bytes()].concat());
        let inherited = self.env.iter().filter(|entry| !overridden(entry)).cloned();
        let spec = ExecSpec {
            argv: program.argv.iter().map(|arg| arg.as_bytes().to_vec()).collect(),
            env: own.chain(inherited).collect(),
            workdir: program.workdir.as_ref().map(|path| path.as_os_str().as_bytes().to_vec()),
            stdio: program
                .terminal
                .map_or(Stdio::Pipes, |(rows, columns)| Stdio::Terminal { rows, columns }),
            has_program_fd: program.file.is_some(),
        };
        let strings = spec.argv.iter().chain(&spec.env).chain(&spec.workdir);
        let bytes: usize = strings.map(|string| string.len() + LENGTH).sum();
        if bytes > MAX_BYTES { Err(ExecError::TooLong) } else { Ok(spec) }
    }

    fn send(&self, call: &ExecCommand, descriptors: &[BorrowedFd<'_>]) -> Result<(), ExecError> {
        wire::send(self.socket.as_fd(), call, descriptors).map_err(|source| {
            let gone = [io::ErrorKind::BrokenPipe, io::ErrorKind::ConnectionReset];
            if gone.contains(&source.kind()) {
                ExecError::Gone
            } else {
                ExecError::Io { doing: "cannot send the request to init", source }
            }
        })
    }
}

impl ExecProcess {
    /// Sends a signal to the program in the box. Does nothing if the program has ended.
    ///
    /// A program with a terminal receives SIGINT, SIGQUIT and similar signals as a process group.
    pub fn signal(&self, number: i32) -> io::Result<()> {
        match wire::send(self.socket.as_fd(), &InitCommand::Signal(number), &[]) {
            Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
            sent => sent,
        }
    }

    /// Waits until the program ends and returns its exit status or signal.
    pub fn wait(&self) -> io::Result<ExecEnd> {
        loop {
            if let Some(ended) = self.poll_end()? {
                return Ok(ended);
            }
            self.is_readable(true)?;
        }
    }

    /// Returns whether the program in the box has ended.
    pub fn is_over(&self) -> bool {
        !matches!(self.poll_end(), Ok(None))
    }

    /// Returns how the program ended if init has reported it, without waiting.
    fn poll_end(&self) -> io::Result<Option<ExecEnd>> {
        let mut ended = self.ended.lock().unwrap_or_else(PoisonError::into_inner);
        if ended.is_none() && self.is_readable(false)? {
            *ended = Some(match wire::receive(self.socket.as_fd(), wire::MAX_SMALL_MESSAGE)? {
                Some((ExecEvent::Ended { exit, signal }, _)) => ExecEnd { exit, signal },
                _ => ExecEnd { exit: None, signal: Some(KILLED) },
            });
        }
        Ok(*ended)
    }

    /// Returns whether a message from init can be read, optionally after waiting for one.
    fn is_readable(&self, wait: bool) -> io::Result<bool> {
        let mut polled = [PollFd::from_borrowed_fd(self.socket.as_fd(), PollFlags::IN)];
        let timeout = (!wait).then(rustix::event::Timespec::default);
        match rustix::event::poll(&mut polled, timeout.as_ref()) {
            Ok(ready) => Ok(ready > 0),
            Err(Errno::INTR) => Ok(false),
            Err(error) => Err(error.into()),
        }
    }
}

impl AsFd for ExecProcess {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

/// Waits until init reports the start of a program, and returns the descriptors of that message.
fn receive_started(socket: &OwnedFd) -> Result<Vec<OwnedFd>, ExecError> {
    let received = wire::receive(socket.as_fd(), wire::MAX_SMALL_MESSAGE)
        .map_err(failed("cannot read the response of init"))?;
    let os = io::Error::from_raw_os_error;
    Err(match received {
        Some((ExecEvent::Started, descriptors)) => return Ok(descriptors),
        Some((ExecEvent::NoWorkdir { errno }, _)) => ExecError::Workdir(os(errno)),
        Some((ExecEvent::ExecFailed { errno }, _)) if errno == Errno::NOENT.raw_os_error() => {
            ExecError::NotFound
        }
        Some((ExecEvent::ExecFailed { errno }, _)) => ExecError::NotExecutable(os(errno)),
        Some((ExecEvent::Failed { what, errno }, _)) => {
            ExecError::Refused { what, source: os(errno) }
        }
        Some((ExecEvent::Ended { .. } | ExecEvent::Stopped | ExecEvent::Socket, _)) | None => {
            ExecError::Gone
        }
    })
}

fn failed<E: Into<io::Error>>(doing: &'static str) -> impl Fn(E) -> ExecError {
    move |source| ExecError::Io { doing, source: source.into() }
}
