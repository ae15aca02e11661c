//! Asks for something that must not appear on the screen.

use std::io::{self, IsTerminal as _};
use std::os::fd::{AsFd, BorrowedFd};

use belljar_sys::signal::SignalFd;
use rustix::event::{PollFd, PollFlags};
use rustix::process::Signal;
use rustix::termios::{InputModes, LocalModes, OptionalActions, SpecialCodeIndex, Termios};
use zeroize::Zeroizing;

use crate::print;

/// The terminal without echo; dropping it restores what was.
///
/// It also hands over every byte at once: by lines, the kernel would silently cut what is pasted at
/// 4095 bytes.
#[derive(Debug)]
struct Hidden<'a> {
    terminal: BorrowedFd<'a>,
    before: Termios,
}

impl<'a> Hidden<'a> {
    fn enter(terminal: BorrowedFd<'a>) -> io::Result<Self> {
        let before = rustix::termios::tcgetattr(terminal)?;
        let mut hidden = before.clone();
        hidden.local_modes.remove(LocalModes::ECHO | LocalModes::ECHONL | LocalModes::ICANON);
        hidden.local_modes.insert(LocalModes::ISIG);
        hidden.input_modes.insert(InputModes::ICRNL);
        hidden.special_codes[SpecialCodeIndex::VMIN] = 1;
        hidden.special_codes[SpecialCodeIndex::VTIME] = 0;
        rustix::termios::tcsetattr(terminal, OptionalActions::Flush, &hidden)?;
        Ok(Self { terminal, before })
    }
}

impl Drop for Hidden<'_> {
    fn drop(&mut self) {
        // What was pasted beyond the first line must not reach the shell, so it is dropped.
        let flush = OptionalActions::Flush;
        rustix::termios::tcsetattr(self.terminal, flush, &self.before).ok(); // the terminal may be gone
    }
}

/// What ends or stops a program at a terminal.
const SIGNALS: [Signal; 5] = [Signal::HUP, Signal::INT, Signal::QUIT, Signal::TERM, Signal::TSTP];

/// How one time at the terminal ended.
enum Ended {
    Line,
    Signal(Signal),
}

/// Reads one line that is not shown, of at most `limit` bytes. Whatever signal comes, the terminal is
/// given back first.
pub(crate) fn hidden(question: &str, limit: usize) -> io::Result<Zeroizing<Vec<u8>>> {
    let stdin = io::stdin();
    if !stdin.is_terminal() {
        return Err(io::Error::other("standard input is no terminal"));
    }
    // All at once, so that growing leaves no copies behind.
    let mut line = Zeroizing::new(Vec::with_capacity(limit + CHUNK + 1));
    loop {
        let ended = {
            let signals = SignalFd::new(&SIGNALS.map(Signal::as_raw))?;
            let hidden = Hidden::enter(stdin.as_fd())?;
            print::ask(question);
            let ended = read_line(hidden.terminal, &signals, limit, &mut line);
            print::ask("\n");
            drop(hidden);
            ended?
        };
        match ended {
            Ended::Line => return Ok(line),
            // Nothing blocks it any more: it ends this program, or stops it until it is continued.
            Ended::Signal(signal) => {
                line.clear();
                rustix::process::kill_process(rustix::process::getpid(), signal)?;
            }
        }
    }
}

const CHUNK: usize = 512;

fn read_line(
    terminal: BorrowedFd<'_>,
    signals: &SignalFd,
    limit: usize,
    line: &mut Zeroizing<Vec<u8>>,
) -> io::Result<Ended> {
    let mut chunk = Zeroizing::new([0; CHUNK]);
    loop {
        let both = [terminal, signals.as_fd()];
        let mut polled = both.map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::IN));
        match rustix::event::poll(&mut polled, None) {
            Err(rustix::io::Errno::INTR) => continue,
            polled => polled?,
        };
        if let Some(signal) = signals.read()?.and_then(Signal::from_named_raw) {
            return Ok(Ended::Signal(signal));
        }
        if polled.first().is_none_or(|terminal| terminal.revents().is_empty()) {
            continue;
        }
        let count = rustix::io::read(terminal, chunk.as_mut_slice())?;
        if count == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        if keys(chunk.get(..count).unwrap_or_default(), line)? {
            return Ok(Ended::Line);
        }
        if line.len() > limit {
            return Err(io::Error::other(format!("more than {limit} bytes")));
        }
    }
}

/// Takes keys as an editor of one line does; true at its end.
fn keys(keys: &[u8], line: &mut Zeroizing<Vec<u8>>) -> io::Result<bool> {
    const END: u8 = 0x04; // Ctrl-D
    const ERASE_ALL: u8 = 0x15; // Ctrl-U
    let mut keys = keys.iter();
    while let Some(key) = keys.next() {
        match *key {
            b'\n' if keys.len() > 0 => {
                return Err(io::Error::other("more than one line was pasted; nothing was taken"));
            }
            b'\n' => return Ok(true),
            END if line.is_empty() => return Err(io::Error::other("nothing was typed")),
            END => return Ok(true),
            0x08 | 0x7f => erase(line),
            ERASE_ALL => line.clear(),
            byte => line.push(byte),
        }
    }
    Ok(false)
}

/// Takes back the last character, not only its last byte.
fn erase(line: &mut Vec<u8>) {
    while line.pop().is_some_and(|byte| byte & 0xc0 == 0x80) {}
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(typed: &str, expect: Option<&str>) {
        let mut line = Zeroizing::new(Vec::new());
        let ended = keys(typed.as_bytes(), &mut line).unwrap();
        assert_eq!(ended.then(|| String::from_utf8(line.to_vec()).unwrap()).as_deref(), expect);
    }

    #[test]
    fn keys_edit_one_line() {
        check("abc\n", Some("abc"));
        check("abc", None);
        check("abx\x7fc\n", Some("abc"));
        check("a\u{fc}\x08b\n", Some("ab"));
        check("\x7f\x7fab\n", Some("ab"));
        check("wrong\x15right\n", Some("right"));
        check("abc\x04", Some("abc"));
    }

    #[test]
    fn more_than_a_line_or_nothing_is_refused() {
        for typed in ["one\ntwo", "one\n\n", "\x04"] {
            assert!(keys(typed.as_bytes(), &mut Zeroizing::new(Vec::new())).is_err(), "{typed:?}");
        }
    }
}
