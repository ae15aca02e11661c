//! A terminal with a person before it, who types and reads.

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

/// The person's side of a pseudo-terminal, and the program on its other side.
#[derive(Debug)]
pub struct Terminal {
    master: OwnedFd,
    slave: OwnedFd,
    child: Owned,
    /// Everything that came so far.
    screen: Vec<u8>,
    /// How much of it was read already.
    read: usize,
}

impl Terminal {
    /// Starts a program in a session of its own at a new terminal of this size.
    pub fn start(program: Program, rows: u16, columns: u16) -> Self {
        let flags = OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC;
        let master = rustix::pty::openpt(flags).expect("a terminal");
        rustix::pty::grantpt(&master).expect("grantpt");
        rustix::pty::unlockpt(&master).expect("unlockpt");
        let name = rustix::pty::ptsname(&master, Vec::new()).expect("ptsname");
        let flags = OFlags::RDWR | OFlags::NOCTTY | OFlags::CLOEXEC;
        let slave = rustix::fs::open(name, flags, rustix::fs::Mode::empty()).expect("its slave");
        set_size(&master, rows, columns);
        // The terminal becomes the controlling one of the program, as a login would make it.
        let mut command = program.through(["setsid", "--ctty"]).command();
        let end = || slave.try_clone().expect("a descriptor");
        command.stdin(end()).stdout(end()).stderr(end());
        let child = command.spawn().expect("start at the terminal");
        Self { master, slave, child: Owned(child), screen: Vec::new(), read: 0 }
    }

    pub fn pid(&self) -> i32 {
        i32::try_from(self.child.0.id()).expect("a pid")
    }

    /// Types something. `\r` is the return key.
    pub fn types(&mut self, keys: &str) {
        let mut rest = keys.as_bytes();
        while !rest.is_empty() {
            let wrote = rustix::io::write(&self.master, rest).expect("type");
            rest = rest.get(wrote..).unwrap_or_default();
        }
    }

    /// Reads on until `text` has appeared, and returns what stood before it.
    #[track_caller]
    pub fn sees(&mut self, text: &str) -> String {
        let until = Instant::now() + DEADLINE;
        loop {
            let new = self.screen.get(self.read..).unwrap_or_default();
            let found = new.windows(text.len()).position(|window| window == text.as_bytes());
            if let Some(at) = found {
                let before = String::from_utf8_lossy(new.get(..at).unwrap_or_default());
                let before = before.into_owned();
                self.read += at + text.len();
                return before;
            }
            let unread = String::from_utf8_lossy(new).into_owned();
            assert!(self.more(until), "no {text:?} on the screen; since the last: {unread:?}");
        }
    }

    pub fn resize(&self, rows: u16, columns: u16) {
        set_size(&self.master, rows, columns);
    }

    /// Closes the terminal, as a window is closed, and waits for the end of the program.
    #[track_caller]
    pub fn hang_up(self) -> ExitStatus {
        let Self { master, slave, mut child, .. } = self;
        drop((master, slave));
        let mut status = None;
        eventually("the program ends with its terminal", || {
            status = child.0.try_wait().expect("a child of ours");
            status.is_some()
        });
        status.expect("it ended")
    }

    /// How the terminal is set.
    pub fn settings(&self) -> Termios {
        rustix::termios::tcgetattr(&self.slave).expect("the settings of the terminal")
    }

    /// Waits for the end of the program; how it ended and everything that was on the screen.
    #[track_caller]
    pub fn end(&mut self) -> (ExitStatus, Vec<u8>) {
        let until = Instant::now() + DEADLINE;
        let status = loop {
            if let Some(status) = self.child.0.try_wait().expect("a child of ours") {
                break status;
            }
            assert!(Instant::now() < until, "hangs at the terminal: {:?}", self.text());
            self.more(Instant::now() + Duration::from_millis(10));
        };
        while self.more(Instant::now()) {}
        (status, self.screen.clone())
    }

    /// Everything that came so far, and what comes right now.
    pub fn look(&mut self) -> &[u8] {
        let mut pieces = 0..1000; // somebody may never stop
        while pieces.next().is_some() && self.more(Instant::now() + Duration::from_millis(5)) {}
        &self.screen
    }

    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.screen).into_owned()
    }

    /// Reads one piece of what is on the screen; false if nothing came in time.
    fn more(&mut self, until: Instant) -> bool {
        let left = until.saturating_duration_since(Instant::now());
        let timeout = Timespec::try_from(left).expect("a short time");
        let mut polled = [PollFd::from_borrowed_fd(self.master.as_fd(), PollFlags::IN)];
        if rustix::event::poll(&mut polled, Some(&timeout)).expect("poll") == 0 {
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
    rustix::termios::tcsetwinsize(terminal, size).expect("set the size of the terminal");
}
