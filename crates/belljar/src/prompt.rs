//! Reads a secret from the terminal without showing it.

use std::io::{self, IsTerminal as _};
use std::os::fd::{AsFd, BorrowedFd};

use belljar_sys::signal::SignalFd;
use rustix::event::{PollFd, PollFlags};
use rustix::process::Signal;
use rustix::termios::{InputModes, LocalModes, OptionalActions, SpecialCodeIndex, Termios};
use zeroize::Zeroizing;

use crate::print;

/// A terminal with echo turned off; its earlier settings are restored on drop.
///
/// The terminal is also taken out of line mode, because in line mode the kernel silently truncates
/// pasted text to 4095 bytes.
#[derive(Debug)]
struct HiddenInput<'a> {
    terminal: BorrowedFd<'a>,
    saved: Termios,
}

impl<'a> HiddenInput<'a> {
    /// Turns off echo and line mode.
    fn enter(terminal: BorrowedFd<'a>) -> io::Result<Self> {
        let saved = rustix::termios::tcgetattr(terminal)?;
        let mut modes = saved.clone();
        modes.local_modes.remove(LocalModes::ECHO | LocalModes::ECHONL | LocalModes::ICANON);
        // Without `NOFLSH`, Ctrl-C discards typed keys that `poll` has reported, and the read would block.
        modes.local_modes.insert(LocalModes::ISIG | LocalModes::NOFLSH);
        modes.input_modes.insert(InputModes::ICRNL);
        modes.special_codes[SpecialCodeIndex::VMIN] = 1;
        modes.special_codes[SpecialCodeIndex::VTIME] = 0;
        rustix::termios::tcsetattr(terminal, OptionalActions::Flush, &modes)?;
        Ok(Self { terminal, saved })
    }
}

impl Drop for HiddenInput<'_> {
    fn drop(&mut self) {
        // `Flush` discards pasted text after the first line, which must not reach the shell.
        let flush = OptionalActions::Flush;
        rustix::termios::tcsetattr(self.terminal, flush, &self.saved).ok(); // fails if the terminal was closed
    }
}

/// The signals that terminate or suspend a program at a terminal.
const TERMINAL_SIGNALS: [Signal; 5] =
    [Signal::HUP, Signal::INT, Signal::QUIT, Signal::TERM, Signal::TSTP];

/// The reason why reading from the terminal ended.
enum InputEnd {
    Line,
    Signal(Signal),
}

/// Asks a question and reads one line of at most `limit` bytes without showing it.
///
/// If a signal arrives, the settings of the terminal are restored before the signal takes effect.
pub(crate) fn read_hidden_line(question: &str, limit: usize) -> io::Result<Zeroizing<Vec<u8>>> {
    let stdin = io::stdin();
    if !stdin.is_terminal() {
        return Err(io::Error::other(
            "cannot ask for hidden input: standard input is not a terminal",
        ));
    }
    // Allocated once: growing the vector would leave copies of the secret in memory.
    let mut line = Zeroizing::new(Vec::with_capacity(limit + CHUNK_SIZE + 1));
    loop {
        let end = {
            let signals = SignalFd::new(&TERMINAL_SIGNALS.map(Signal::as_raw))?;
            let hidden_input = HiddenInput::enter(stdin.as_fd())?;
            print::ask(question);
            let end = read_line(hidden_input.terminal, &signals, limit, &mut line);
            print::ask("\n");
            drop(hidden_input);
            end?
        };
        match end {
            InputEnd::Line => return Ok(line),
            // The signal is not blocked here. It terminates this process, or suspends it until SIGCONT.
            InputEnd::Signal(signal) => {
                line.clear();
                rustix::process::kill_process(rustix::process::getpid(), signal)?;
            }
        }
    }
}

/// The number of bytes that one read from the terminal can return.
const CHUNK_SIZE: usize = 512;

/// Reads from the terminal into `line` until the line ends or a signal arrives.
fn read_line(
    terminal: BorrowedFd<'_>,
    signals: &SignalFd,
    limit: usize,
    line: &mut Zeroizing<Vec<u8>>,
) -> io::Result<InputEnd> {
    let mut chunk = Zeroizing::new([0; CHUNK_SIZE]);
    loop {
        let both = [terminal, signals.as_fd()];
        let mut polled = both.map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::IN));
        match rustix::event::poll(&mut polled, None) {
            Err(rustix::io::Errno::INTR) => continue,
            polled => polled?,
        };
        if let Some(signal) = signals.read()?.and_then(Signal::from_named_raw) {
            return Ok(InputEnd::Signal(signal));
        }
        if polled.first().is_none_or(|terminal| terminal.revents().is_empty()) {
            continue;
        }
        let count = rustix::io::read(terminal, chunk.as_mut_slice())?;
        if count == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        if apply_keys(chunk.get(..count).unwrap_or_default(), line)? {
            return Ok(InputEnd::Line);
        }
        if line.len() > limit {
            return Err(io::Error::other(format!("the input is longer than {limit} bytes")));
        }
    }
}

/// Applies typed keys to `line` as a line editor does; returns true when the line is complete.
fn apply_keys(keys: &[u8], line: &mut Zeroizing<Vec<u8>>) -> io::Result<bool> {
    const END: u8 = 0x04; // Ctrl-D
    const ERASE_ALL: u8 = 0x15; // Ctrl-U
    let mut keys = keys.iter();
    while let Some(key) = keys.next() {
        match *key {
            b'\n' if keys.len() > 0 => {
                return Err(io::Error::other(
                    "the pasted text has more than one line, so it was not used; paste a single line",
                ));
            }
            b'\n' => return Ok(true),
            END if line.is_empty() => {
                return Err(io::Error::other("no input: Ctrl-D was pressed on an empty line"));
            }
            END => return Ok(true),
            0x08 | 0x7f => erase_character(line),
            ERASE_ALL => line.clear(),
            byte => line.push(byte),
        }
    }
    Ok(false)
}

/// Removes the last UTF-8 character of the line, not only its last byte.
fn erase_character(line: &mut Vec<u8>) {
    while line.pop().is_some_and(|byte| byte & 0xc0 == 0x80) {}
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(typed: &str, expect: Option<&str>) {
        let mut line = Zeroizing::new(Vec::new());
        let end = apply_keys(typed.as_bytes(), &mut line).unwrap();
        assert_eq!(end.then(|| String::from_utf8(line.to_vec()).unwrap()).as_deref(), expect);
    }

    #[test]
    fn hidden_input_supports_erasing_characters_and_the_whole_line() {
        check("abc\n", Some("abc"));
        check("abc", None);
        check("abx\x7fc\n", Some("abc"));
        check("a\u{fc}\x08b\n", Some("ab"));
        check("\x7f\x7fab\n", Some("ab"));
        check("wrong\x15right\n", Some("right"));
        check("abc\x04", Some("abc"));
    }

    #[test]
    fn hidden_input_refuses_more_than_one_line_and_empty_input() {
        for typed in ["one\ntwo", "one\n\n", "\x04"] {
            assert!(
                apply_keys(typed.as_bytes(), &mut Zeroizing::new(Vec::new())).is_err(),
                "{typed:?}"
            );
        }
    }
}
