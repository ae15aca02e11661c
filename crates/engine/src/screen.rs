//! The screen of a box: a separate process that interprets the terminal output of a named box.
//!
//! The output of a box is hostile, and a process that parses it may be exploited. So the supervisor only
//! passes the output on to the screen process, which is locked down like a broker and can only reach the
//! attached clients (viewers). It draws every screen from its own character cells. No escape sequence of
//! the box reaches a viewer.

mod allowed;
mod buffer;
pub mod guard;
pub(crate) mod log_lines;
pub mod protocol;
pub mod role;

use std::ffi::{CStr, CString};
use std::io;
use std::os::fd::{AsFd as _, OwnedFd};
use std::path::Path;

use belljar_init::wire;
use belljar_model::RunId;
use belljar_sys::clone::{self, Spawn, Spawned};
use rustix::fs::{Mode, OFlags};
use rustix::net::{AddressFamily, SocketFlags, SocketType};
use rustix::process::Signal;

use self::protocol::{LogText, MAX_OUTPUT, ToScreen};
use crate::logging;

/// The name of a screen process. Belljar acts as a screen process when `argv[0]` is this name.
pub const ROLE: &str = "belljar-screen";

/// A running screen process. Dropping this value kills the process.
#[derive(Debug)]
pub struct Screen {
    process: Spawned,
    /// The socket to the screen process.
    pub socket: OwnedFd,
}

impl Screen {
    /// Starts a screen process for a run. `program` handles the roles of the engine; see
    /// [`HostEnv::role_program`]. The process is killed when the calling thread ends.
    ///
    /// [`HostEnv::role_program`]: crate::host::HostEnv::role_program
    pub fn start(program: &Path, run: RunId) -> io::Result<Self> {
        let flags = OFlags::RDONLY | OFlags::CLOEXEC;
        let program = rustix::fs::open(program, flags, Mode::empty())?;
        let null = rustix::fs::open("/dev/null", OFlags::RDWR | OFlags::CLOEXEC, Mode::empty())?;
        let (socket, child_socket) = rustix::net::socketpair(
            AddressFamily::UNIX,
            SocketType::SEQPACKET,
            SocketFlags::CLOEXEC,
            None,
        )?;
        let variables = logging::environment(run);
        let environment: Vec<&CStr> = variables.iter().map(CString::as_c_str).collect();
        let spawn = Spawn::without_namespaces(
            program.as_fd(),
            c"belljar-screen",
            child_socket.as_fd(),
            null.as_fd(),
        );
        let spawn = Spawn { environment: &environment, ..spawn };
        Ok(Self { process: clone::spawn(&spawn)?, socket })
    }

    /// Returns another descriptor of the screen process, with which another thread can kill the process.
    pub fn pidfd(&self) -> io::Result<OwnedFd> {
        self.process.pidfd.try_clone()
    }
}

/// Renders the recorded output of a box's terminal as text, in a screen process of its own. `run` is the run
/// that the process logs for, and `program` that of [`Screen::start`].
pub fn render_log(
    program: &Path,
    run: RunId,
    log: &[u8],
    has_colours: bool,
) -> io::Result<Vec<u8>> {
    let screen = Screen::start(program, run)?;
    wire::send(screen.socket.as_fd(), &ToScreen::Log { has_colours }, &[])?;
    for piece in log.chunks(MAX_OUTPUT) {
        wire::send(screen.socket.as_fd(), &ToScreen::Output(piece.to_vec()), &[])?;
    }
    rustix::net::shutdown(&screen.socket, rustix::net::Shutdown::Write)?;
    let mut text = Vec::new();
    while let Some((LogText(piece), _)) = wire::receive(screen.socket.as_fd(), wire::MAX_MESSAGE)? {
        text.extend(piece);
    }
    Ok(text)
}

impl Drop for Screen {
    fn drop(&mut self) {
        // Errors mean that the process has exited or was reaped before.
        rustix::process::pidfd_send_signal(&self.process.pidfd, Signal::KILL).ok();
        belljar_sys::process::wait(self.process.pid, true).ok();
    }
}
