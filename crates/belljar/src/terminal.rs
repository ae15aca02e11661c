//! The operator's terminal while a box has it: raw, and given back whatever happens.

use std::os::fd::{AsFd, BorrowedFd};

use rustix::termios::{OptionalActions, Termios};

/// The terminal in raw mode; dropping it restores what was.
#[derive(Debug)]
pub(crate) struct Raw<'a> {
    terminal: BorrowedFd<'a>,
    before: Termios,
}

impl<'a> Raw<'a> {
    pub(crate) fn enter(terminal: BorrowedFd<'a>) -> std::io::Result<Self> {
        let before = rustix::termios::tcgetattr(terminal)?;
        let mut raw = before.clone();
        raw.make_raw();
        rustix::termios::tcsetattr(terminal, OptionalActions::Now, &raw)?;
        Ok(Self { terminal, before })
    }
}

impl Drop for Raw<'_> {
    fn drop(&mut self) {
        let now = OptionalActions::Drain;
        rustix::termios::tcsetattr(self.terminal, now, &self.before).ok(); // the terminal may be gone
    }
}

/// Rows and columns, when this is a terminal; an unknown size is the classic one.
pub(crate) fn size(terminal: impl AsFd) -> Option<(u16, u16)> {
    let size = rustix::termios::tcgetwinsize(terminal).ok()?;
    if size.ws_row == 0 || size.ws_col == 0 {
        Some((24, 80))
    } else {
        Some((size.ws_row, size.ws_col))
    }
}
