//! A pseudo-terminal on which a test types keys and reads the output of a program.

use std::fs::File;
use std::io::Read;
use std::os::fd::{AsFd, OwnedFd};
use std::process::ExitStatus;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::fs::OFlags;
use rustix::pty::OpenptFlags;
use rustix::termios::{Termios, Winsize};

use crate::program::{Owned, Program};
use crate::{DEADLINE, eventually};

/// A pseudo-terminal and the program that runs on it.
#[derive(Debug)]
pub struct Terminal {
    master: OwnedFd,
    slave: OwnedFd,
    child: Owned,
    /// All output so far.
    screen: Vec<u8>,
    /// The number of output bytes before the end of the last text that [`Self::wait_for`] found.
    consumed: usize,
}

impl Terminal {
    /// Starts a program in a new session on a new terminal of this size.
    pub fn start(program: Program, rows: u16, columns: u16) -> Self {
        let flags = OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC;
        let master = rustix::pty::openpt(flags).expect("cannot open a terminal");
        rustix::pty::grantpt(&master).expect("cannot call grantpt");
        rustix::pty::unlockpt(&master).expect("cannot call unlockpt");
        let name = rustix::pty::ptsname(&master, Vec::new()).expect("cannot call ptsname");
        let flags = OFlags::RDWR | OFlags::NOCTTY | OFlags::CLOEXEC;
        let slave = rustix::fs::open(name, flags, rustix::fs::Mode::empty())
            .expect("cannot open the slave side of the terminal");
        set_size(&master, rows, columns);
        // The terminal becomes the controlling terminal of the program, as in a login.
        let mut command = program.through(["setsid", "--ctty"]).command();
        let end = || slave.try_clone().expect("a descriptor");
        command.stdin(end()).stdout(end()).stderr(end());
        let child = command.spawn().expect("cannot start a program on the terminal");
        Self { master, slave, child: Owned(child), screen: Vec::new(), consumed: 0 }
    }

    pub fn pid(&self) -> i32 {
        i32::try_from(self.child.0.id()).expect("a pid")
    }

    /// Types keys on the terminal. `\r` is the return key.
    pub fn type_keys(&mut self, keys: &str) {
        let mut rest = keys.as_bytes();
        while !rest.is_empty() {
            let wrote =
                rustix::io::write(&self.master, rest).expect("cannot write to the terminal");
            rest = rest.get(wrote..).unwrap_or_default();
        }
    }

    /// Reads the output of the terminal until `text` appears. Returns the output before it since
    /// the last call.
    #[track_caller]
    pub fn wait_for(&mut self, text: &str) -> String {
        let until = Instant::now() + DEADLINE;
        loop {
            let new = self.screen.get(self.consumed..).unwrap_or_default();
            let found = new.windows(text.len()).position(|window| window == text.as_bytes());
            if let Some(at) = found {
                let before = String::from_utf8_lossy(new.get(..at).unwrap_or_default());
                let before = before.into_owned();
                self.consumed += at + text.len();
                return before;
            }
            let unread = String::from_utf8_lossy(new).into_owned();
            assert!(
                self.read_once(until),
                "{text:?} did not appear on the screen; new output: {unread:?}"
            );
        }
    }

    pub fn resize(&self, rows: u16, columns: u16) {
        set_size(&self.master, rows, columns);
    }

    /// Closes the terminal and waits until the program ends.
    #[track_caller]
    pub fn close_terminal(self) -> ExitStatus {
        let Self { master, slave, mut child, .. } = self;
        drop((master, slave));
        let mut status = None;
        eventually("the program ends with its terminal", || {
            status = child.0.try_wait().expect("a child process");
            status.is_some()
        });
        status.expect("the program ended")
    }

    /// Returns the terminal settings (termios).
    pub fn settings(&self) -> Termios {
        rustix::termios::tcgetattr(&self.slave).expect("the settings of the terminal")
    }

    /// Waits until the program on the terminal ends. Returns its exit status and all output.
    #[track_caller]
    pub fn end(&mut self) -> (ExitStatus, Vec<u8>) {
        let until = Instant::now() + DEADLINE;
        let status = loop {
            if let Some(status) = self.child.0.try_wait().expect("a child process") {
                break status;
            }
            assert!(Instant::now() < until, "program does not end; output: {:?}", self.text());
            self.read_once(Instant::now() + Duration::from_millis(10));
        };
        while self.read_once(Instant::now()) {}
        (status, self.screen.clone())
    }

    /// Reads the output of the terminal that is available now. Returns all output so far.
    pub fn read_available(&mut self) -> &[u8] {
        let mut pieces = 0..1000; // the program can print forever
        while pieces.next().is_some() && self.read_once(Instant::now() + Duration::from_millis(5)) {
        }
        &self.screen
    }

    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.screen).into_owned()
    }

    /// Waits for output and reads it with one system call. Returns false if there is no output
    /// before the deadline.
    fn read_once(&mut self, until: Instant) -> bool {
        let left = until.saturating_duration_since(Instant::now());
        let timeout = Timespec::try_from(left).expect("a short time");
        let mut polled = [PollFd::from_borrowed_fd(self.master.as_fd(), PollFlags::IN)];
        if rustix::event::poll(&mut polled, Some(&timeout)).expect("cannot poll") == 0 {
            return false;
        }
        let mut buffer = [0; 4096];
        let mut master = File::from(self.master.try_clone().expect("a descriptor"));
        let read = master.read(&mut buffer).unwrap_or(0);
        self.screen.extend_from_slice(buffer.get(..read).unwrap_or_default());
        read > 0
    }
}

fn set_size(terminal: &OwnedFd, ws_row: u16, ws_col: u16) {
    let size = Winsize { ws_row, ws_col, ws_xpixel: 0, ws_ypixel: 0 };
    rustix::termios::tcsetwinsize(terminal, size).expect("cannot set the size of the terminal");
}
