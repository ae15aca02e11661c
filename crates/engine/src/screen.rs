//! The screen of a box: what its terminal would show, kept by a process of its own.
//!
//! What a box writes is hostile, and whoever understands it may be taken over by it. So the keeper only
//! passes it on to this process, which is locked in as a broker is, and can reach nothing but those who
//! look. It draws every screen anew from its own cells: no sequence of the box ever reaches a viewer.

mod buffer;
pub mod guard;
pub mod protocol;
pub mod role;

use std::ffi::{CStr, CString};
use std::io;
use std::os::fd::{AsFd as _, OwnedFd};

use belljar_model::RunId;
use belljar_sys::clone::{self, Spawn, Spawned};
use rustix::fs::{Mode, OFlags};
use rustix::net::{AddressFamily, SocketFlags, SocketType};
use rustix::process::Signal;

use crate::logging;

/// How the process is called, and what tells our program to be one.
pub const ROLE: &str = "belljar-screen";

/// A screen at work. It ends when this is dropped.
#[derive(Debug)]
pub struct Screen {
    process: Spawned,
    pub line: OwnedFd,
}

impl Screen {
    /// Starts one. It ends with the thread that starts it.
    pub fn start(run: RunId) -> io::Result<Self> {
        let flags = OFlags::RDONLY | OFlags::CLOEXEC;
        let program = rustix::fs::open("/proc/self/exe", flags, Mode::empty())?;
        let null = rustix::fs::open("/dev/null", OFlags::RDWR | OFlags::CLOEXEC, Mode::empty())?;
        let (line, theirs) = rustix::net::socketpair(
            AddressFamily::UNIX,
            SocketType::SEQPACKET,
            SocketFlags::CLOEXEC,
            None,
        )?;
        let variables = logging::environment(run);
        let environment: Vec<&CStr> = variables.iter().map(CString::as_c_str).collect();
        let beside = Spawn::without_namespaces(
            program.as_fd(),
            c"belljar-screen",
            theirs.as_fd(),
            null.as_fd(),
        );
        let beside = Spawn { environment: &environment, ..beside };
        Ok(Self { process: clone::spawn(&beside)?, line })
    }

    /// Another handle of its process, for whoever must not wait for it.
    pub fn pidfd(&self) -> io::Result<OwnedFd> {
        self.process.pidfd.try_clone()
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        rustix::process::pidfd_send_signal(&self.process.pidfd, Signal::KILL).ok(); // or it ended
        belljar_sys::process::wait(self.process.pid, true).ok(); // reaped, now or before
    }
}
