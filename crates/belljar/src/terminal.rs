//! The raw mode of the operator's terminal, while a program in a box uses the terminal.

use std::os::fd::{AsFd, BorrowedFd};

use rustix::termios::{OptionalActions, Termios};

/// A terminal in raw mode; its earlier settings are restored on drop.
#[derive(Debug)]
pub(crate) struct RawMode<'a> {
    terminal: BorrowedFd<'a>,
    saved: Termios,
}

impl<'a> RawMode<'a> {
    /// Switches a terminal to raw mode.
    pub(crate) fn enter(terminal: BorrowedFd<'a>) -> std::io::Result<Self> {
        let saved = rustix::termios::tcgetattr(terminal)?;
        let mut raw = saved.clone();
        raw.make_raw();
        rustix::termios::tcsetattr(terminal, OptionalActions::Now, &raw)?;
        Ok(Self { terminal, saved })
    }
}

impl Drop for RawMode<'_> {
    fn drop(&mut self) {
        let drain = OptionalActions::Drain;
        rustix::termios::tcsetattr(self.terminal, drain, &self.saved).ok(); // fails if the terminal was closed
    }
}

/// Returns the rows and columns of a terminal, or `None` if `terminal` is not a terminal.
///
/// A terminal that does not report its size counts as 24 rows and 80 columns.
pub(crate) fn size(terminal: impl AsFd) -> Option<(u16, u16)> {
    let size = rustix::termios::tcgetwinsize(terminal).ok()?;
    if size.ws_row == 0 || size.ws_col == 0 {
        Some((24, 80))
    } else {
        Some((size.ws_row, size.ws_col))
    }
}
