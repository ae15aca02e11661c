//! `belljar attach`: connects this terminal to the screen and keyboard of a box.
//!
//! The locked-down screen process of the box redraws the output of the program. The result also passes
//! the terminal guard here.

use std::os::fd::AsFd as _;
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use anyhow::{Context as _, anyhow};
use belljar_sys::signal::SignalFd;
use rustix::event::{PollFd, PollFlags};
use rustix::net::SendFlags;

use crate::cli::boxes::terminals::AttachArgs;
use crate::exit::{self, Outcome};
use crate::print;
use crate::scope;
use crate::terminal::{self, RawMode};
use belljar_engine::box_store::NamedBox;
use belljar_engine::error::{EngineError, ErrorKind, WithKind as _, invalid};
use belljar_engine::scope::Scoped;
use belljar_engine::screen::guard::Guard;
use belljar_engine::screen::protocol::Size;
use belljar_engine::supervisor::{
    self,
    protocol::{FromSupervisor, ToSupervisor},
};

/// The escape sequences that open an alternate screen, so that the old content can be restored.
const ENTER_SCREEN: &[u8] = b"\x1b[?1049h\x1b[m\x1b[2J\x1b[H";
/// The escape sequences that switch off every terminal mode that the box can have switched on.
const LEAVE_SCREEN: &[u8] = b"\x1b[m\x1b[?25h\x1b[?1l\x1b>\x1b[?2004l\x1b[?9l\x1b[?1000l\x1b[?1002l\x1b[?1003l\x1b[?1005l\x1b[?1006l\x1b[0 q\x1b[?1049l";

const SIGWINCH: i32 = 28;
/// The handled signals: HUP, INT and TERM end the session, WINCH reports a new terminal size.
const HANDLED_SIGNALS: [i32; 4] = [1, 2, 15, SIGWINCH];

/// The maximum number of bytes that wait for the supervisor; further keys are dropped.
const MAX_PENDING_BYTES: usize = 1 << 20;
/// The time that the supervisor has to report the end of a box.
const END_REPORT_TIMEOUT: Duration = Duration::from_secs(30);

/// The bytes of Page Up with Alt or Shift, which scroll back in the output.
const SCROLL_UP_KEYS: [&[u8]; 2] = [b"\x1b[5;3~", b"\x1b[5;2~"];
/// The bytes of Page Down with Alt or Shift, which scroll forward in the output.
const SCROLL_DOWN_KEYS: [&[u8]; 2] = [b"\x1b[6;3~", b"\x1b[6;2~"];

/// A part of the typed bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Typed<'a> {
    ScrollUp,
    ScrollDown,
    Keys(&'a [u8]),
}

/// Splits typed bytes at the scroll keys. A key that repeats can arrive several times in one read.
fn split_scroll_keys(typed: &[u8]) -> Vec<Typed<'_>> {
    let mut parts = Vec::new();
    let (mut start, mut at) = (0, 0);
    while let Some(rest) = typed.get(at..).filter(|rest| !rest.is_empty()) {
        let length =
            |keys: [&[u8]; 2]| keys.iter().find(|key| rest.starts_with(key)).map(|key| key.len());
        let (part, length) = match (length(SCROLL_UP_KEYS), length(SCROLL_DOWN_KEYS)) {
            (Some(length), _) => (Typed::ScrollUp, length),
            (None, Some(length)) => (Typed::ScrollDown, length),
            (None, None) => {
                at += 1;
                continue;
            }
        };
        parts.extend(typed.get(start..at).filter(|keys| !keys.is_empty()).map(Typed::Keys));
        parts.push(part);
        at += length;
        start = at;
    }
    parts.extend(typed.get(start..).filter(|keys| !keys.is_empty()).map(Typed::Keys));
    parts
}

/// The reason why a session ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum SessionEnd {
    Detached,
    /// The box stopped, or its supervisor exited.
    Box,
    /// The terminal was closed, or a signal arrived.
    Terminal,
}

/// Runs `belljar attach`.
pub(crate) fn run(args: &AttachArgs) -> Outcome {
    let state = scope::open(None)?;
    let named_box = NamedBox::find(&state, &args.name)?;
    attach(&state, &named_box, args)
}

/// Connects this terminal to a box until the user detaches or the box stops.
pub(crate) fn attach(state: &Scoped, named_box: &NamedBox, args: &AttachArgs) -> Outcome {
    let (input, output) = (std::io::stdin(), std::io::stdout());
    let name = named_box.name();
    let size = terminal::size(&input).filter(|_| rustix::termios::isatty(&output));
    let Some(size) = size else {
        return Err(invalid(format!(
            "attach needs a terminal; `belljar logs {name}` prints the output of the box, and `belljar exec {name} -- CMD` runs a program in it"
        )));
    };
    let run = named_box.run().map(|run| run.id());
    let request = ToSupervisor::Attach { size: to_protocol_size(size), read_only: args.read_only };
    let (connection, response) = supervisor::call(state, named_box, &request, None)?;
    if !matches!(response, FromSupervisor::Ok) {
        let error = anyhow!("the supervisor of box {name} sent an unexpected message");
        return Err(EngineError::new(ErrorKind::Broken, error));
    }
    let signals = SignalFd::new(&HANDLED_SIGNALS)
        .context("cannot watch for signals")
        .kind(ErrorKind::Broken)?;
    let raw = RawMode::enter(input.as_fd())
        .context("cannot switch the terminal to raw mode")
        .kind(ErrorKind::Broken)?;
    let session = Session {
        connection,
        guard: Guard::default(),
        detach: &args.detach_keys.0,
        matched_keys: 0,
        page: size.0,
        is_scrolled: false,
        keys: Vec::new(),
        screen: ENTER_SCREEN.to_vec(),
    };
    let ended = session.run(&signals);
    restore_terminal();
    drop(raw);
    match ended.context("the connection to the box failed").kind(ErrorKind::Broken)? {
        SessionEnd::Detached => {
            print::note(&format!(
                "detached from box {name}, which keeps running; `belljar attach {name}` connects again"
            ));
            Ok(0)
        }
        SessionEnd::Terminal => Ok(exit::FAILED),
        SessionEnd::Box => report_end(named_box, run),
    }
}

/// The connection of this terminal to one box.
struct Session<'a> {
    connection: UnixStream,
    guard: Guard,
    detach: &'a [u8],
    /// The number of detach keys that were typed so far.
    matched_keys: usize,
    /// The number of rows of this terminal.
    page: u16,
    is_scrolled: bool,
    /// Encoded messages that wait to be sent to the supervisor.
    keys: Vec<u8>,
    /// Output that waits to be written to the terminal.
    screen: Vec<u8>,
}

impl Session<'_> {
    /// Copies keys and output until the session ends.
    fn run(mut self, signals: &SignalFd) -> std::io::Result<SessionEnd> {
        let (input, output) = (std::io::stdin(), std::io::stdout());
        let mut buffer = vec![0; 16 * 1024];
        loop {
            let connection_events = self.connection_interest();
            // A closed connection would make poll return at once, so it is left out.
            let waits = connection_events.is_empty();
            let connection = if waits { signals.as_fd() } else { self.connection.as_fd() };
            let mut polled = [
                PollFd::from_borrowed_fd(signals.as_fd(), PollFlags::IN),
                PollFd::from_borrowed_fd(input.as_fd(), PollFlags::IN),
                PollFd::from_borrowed_fd(connection, connection_events),
                PollFd::from_borrowed_fd(output.as_fd(), interest(&self.screen)),
            ];
            match rustix::event::poll(&mut polled, None) {
                Ok(_) | Err(rustix::io::Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
            let [signal, input_ready, connection, output_ready] = polled.map(|it| it.revents());
            if !signal.is_empty() && self.handle_signals(signals)? {
                return Ok(SessionEnd::Terminal);
            }
            if !input_ready.is_empty() {
                match rustix::io::read(&input, &mut buffer) {
                    Ok(0) | Err(rustix::io::Errno::IO) => return Ok(SessionEnd::Terminal),
                    Ok(read) => {
                        if self.handle_input(buffer.get(..read).unwrap_or_default())? {
                            return Ok(SessionEnd::Detached);
                        }
                    }
                    Err(rustix::io::Errno::INTR | rustix::io::Errno::AGAIN) => {}
                    Err(error) => return Err(error.into()),
                }
            }
            if !output_ready.is_empty() && !self.show()? {
                return Ok(SessionEnd::Terminal);
            }
            if !self.keys.is_empty() && !self.send()? {
                return Ok(SessionEnd::Box);
            }
            if connection.intersects(PollFlags::IN | PollFlags::HUP | PollFlags::ERR)
                && self.screen.is_empty()
            {
                match rustix::io::read(&self.connection, &mut buffer) {
                    Ok(0) | Err(rustix::io::Errno::CONNRESET) => return Ok(SessionEnd::Box),
                    Ok(read) => {
                        let bytes = buffer.get(..read).unwrap_or_default();
                        self.guard.pass(bytes, &mut self.screen);
                    }
                    Err(rustix::io::Errno::INTR | rustix::io::Errno::AGAIN) => {}
                    Err(error) => return Err(error.into()),
                }
            }
        }
    }

    /// Returns the poll events for the connection; output is read only when the terminal has taken all.
    fn connection_interest(&self) -> PollFlags {
        let read = if self.screen.is_empty() { PollFlags::IN } else { PollFlags::empty() };
        read | interest(&self.keys)
    }

    /// Handles signals; returns whether the session must end.
    fn handle_signals(&mut self, signals: &SignalFd) -> std::io::Result<bool> {
        while let Some(signal) = signals.read()? {
            if signal != SIGWINCH {
                return Ok(true);
            }
            let Some(size) = terminal::size(std::io::stdin()) else { return Ok(true) };
            self.page = size.0;
            self.queue_message(&ToSupervisor::Resize(to_protocol_size(size)))?;
        }
        Ok(false)
    }

    /// Handles typed bytes; returns true if the detach keys were typed.
    fn handle_input(&mut self, typed: &[u8]) -> std::io::Result<bool> {
        let half = i32::from(self.page / 2).max(1);
        for part in split_scroll_keys(typed) {
            let is_detached = match part {
                Typed::ScrollUp => self.scroll(half).map(|()| false)?,
                Typed::ScrollDown => self.scroll(-half).map(|()| false)?,
                Typed::Keys(keys) => self.handle_keys(keys)?,
            };
            if is_detached {
                return Ok(true);
            }
        }
        Ok(false)
    }

    fn scroll(&mut self, lines: i32) -> std::io::Result<()> {
        self.is_scrolled = true;
        self.queue_message(&ToSupervisor::Scroll(Some(lines)))
    }

    /// Handles typed bytes without scroll keys; returns true if the detach keys were typed.
    fn handle_keys(&mut self, typed: &[u8]) -> std::io::Result<bool> {
        if std::mem::take(&mut self.is_scrolled) {
            self.queue_message(&ToSupervisor::Scroll(None))?;
        }
        let mut keys = Vec::with_capacity(typed.len());
        for byte in typed {
            if self.detach.get(self.matched_keys) == Some(byte) {
                self.matched_keys += 1;
                if self.matched_keys == self.detach.len() {
                    return Ok(true);
                }
                continue;
            }
            keys.extend_from_slice(self.detach.get(..self.matched_keys).unwrap_or_default());
            self.matched_keys = usize::from(self.detach.first() == Some(byte));
            if self.matched_keys == 0 {
                keys.push(*byte);
            }
        }
        if !keys.is_empty() && self.keys.len() < MAX_PENDING_BYTES {
            self.queue_message(&ToSupervisor::Keys(keys))?;
        }
        Ok(false)
    }

    /// Queues a message for the supervisor.
    fn queue_message(&mut self, message: &ToSupervisor) -> std::io::Result<()> {
        self.keys.extend(supervisor::encode(message)?);
        Ok(())
    }

    /// Sends queued messages without blocking; returns false if the supervisor closed the connection.
    fn send(&mut self) -> std::io::Result<bool> {
        let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
        match rustix::net::send(&self.connection, &self.keys, flags) {
            Ok(sent) => {
                self.keys.drain(..sent);
                Ok(true)
            }
            Err(rustix::io::Errno::AGAIN | rustix::io::Errno::INTR) => Ok(true),
            Err(rustix::io::Errno::PIPE | rustix::io::Errno::CONNRESET) => Ok(false),
            Err(error) => Err(error.into()),
        }
    }

    /// Writes waiting output to the terminal; returns false if the terminal was closed.
    fn show(&mut self) -> std::io::Result<bool> {
        let piece = self.screen.get(..4096).unwrap_or(&self.screen);
        match rustix::io::write(std::io::stdout(), piece) {
            Ok(written) => {
                self.screen.drain(..written);
                Ok(true)
            }
            Err(rustix::io::Errno::AGAIN | rustix::io::Errno::INTR) => Ok(true),
            Err(rustix::io::Errno::IO | rustix::io::Errno::PIPE) => Ok(false),
            Err(error) => Err(error.into()),
        }
    }
}

/// Returns the poll event for writing if there are pending bytes.
fn interest(pending: &[u8]) -> PollFlags {
    if pending.is_empty() { PollFlags::empty() } else { PollFlags::OUT }
}

/// Converts a terminal size to the type of the supervisor protocol.
fn to_protocol_size((rows, columns): (u16, u16)) -> Size {
    Size { rows, columns }
}

/// Restores the normal screen and modes of the terminal.
fn restore_terminal() {
    let mut rest = LEAVE_SCREEN;
    while let Ok(written) = rustix::io::write(std::io::stdout(), rest) {
        rest = rest.get(written..).unwrap_or_default();
        if rest.is_empty() {
            break;
        }
    }
}

/// Waits until the end of a run is recorded, prints its reason and returns its exit code.
pub(crate) fn report_end(named_box: &NamedBox, run: Option<belljar_model::RunId>) -> Outcome {
    let name = named_box.name();
    let until = Instant::now() + END_REPORT_TIMEOUT;
    while named_box.is_up() && named_box.run().map(|run| run.id()) == run && Instant::now() < until
    {
        std::thread::sleep(Duration::from_millis(10));
    }
    let ended =
        named_box.run().filter(|latest| Some(latest.id()) == run).and_then(|run| run.record.result);
    match ended {
        Some(result) => {
            print::note(&format!(
                "box {name} stopped: {}; `belljar logs {name}` prints its output, `belljar start {name}` starts it again",
                result.reason.sentence()
            ));
            Ok(result.exit_code())
        }
        None => {
            let error = anyhow!(
                "the supervisor of box {name} exited without reporting the end of the box; `belljar status {name}` shows its state"
            );
            Err(EngineError::new(ErrorKind::Broken, error))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn split_scroll_keys_finds_every_repeated_key_and_keeps_all_other_bytes() {
        let split = |typed: &'static str| split_scroll_keys(typed.as_bytes());
        assert_eq!(split(""), []);
        assert_eq!(split("ls\r"), [Typed::Keys(b"ls\r")]);
        assert_eq!(split("\x1b[5;3~\x1b[5;2~"), [Typed::ScrollUp, Typed::ScrollUp]);
        let mixed = [Typed::Keys(b"a"), Typed::ScrollDown, Typed::Keys(b"\x1b[5~")];
        assert_eq!(split("a\x1b[6;3~\x1b[5~"), mixed);
    }
}
