//! `belljar attach`: the very screen of a box on this terminal, and its keys.
//!
//! What comes from the box was drawn anew by a process that is locked in, and still passes the guard.

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
use crate::terminal::{self, Raw};
use belljar_engine::box_store::NamedBox;
use belljar_engine::error::{EngineError, ErrorKind, WithKind as _, invalid};
use belljar_engine::scope::Scoped;
use belljar_engine::screen::guard::Guard;
use belljar_engine::screen::protocol::Size;
use belljar_engine::supervisor::{
    self,
    protocol::{FromSupervisor, ToSupervisor},
};

/// A screen of its own, so that what was there before comes back afterwards.
const ENTER: &[u8] = b"\x1b[?1049h\x1b[m\x1b[2J\x1b[H";
/// Takes back everything that a screen can have switched on.
const LEAVE: &[u8] = b"\x1b[m\x1b[?25h\x1b[?1l\x1b>\x1b[?2004l\x1b[?9l\x1b[?1000l\x1b[?1002l\x1b[?1003l\x1b[?1005l\x1b[?1006l\x1b[0 q\x1b[?1049l";

const SIGWINCH: i32 = 28;
/// What ends us: a terminal that is gone, or somebody who asks.
const SIGNALS: [i32; 4] = [1, 2, 15, SIGWINCH];

/// Keys beyond so many bytes that the supervisor has not taken are lost, as at every terminal.
const MOST_KEYS: usize = 1 << 20;
/// The time that the supervisor has to report the end of a box.
const ENDING: Duration = Duration::from_secs(30);

/// Page up and down with Alt or Shift held.
const BACK: [&[u8]; 2] = [b"\x1b[5;3~", b"\x1b[5;2~"];
const FORTH: [&[u8]; 2] = [b"\x1b[6;3~", b"\x1b[6;2~"];

/// Why it is over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    Detached,
    /// The box is over, or its supervisor is gone.
    Box,
    /// Our own terminal is gone, or somebody ended us.
    Own,
}

pub(crate) fn run(args: &AttachArgs) -> Outcome {
    let state = scope::open(None)?;
    let of = NamedBox::find(&state, &args.name)?;
    attach(&state, &of, args)
}

pub(crate) fn attach(state: &Scoped, of: &NamedBox, args: &AttachArgs) -> Outcome {
    let (input, output) = (std::io::stdin(), std::io::stdout());
    let name = of.name();
    let size = terminal::size(&input).filter(|_| rustix::termios::isatty(&output));
    let Some(size) = size else {
        return Err(invalid(format!(
            "attach needs a terminal; `belljar logs {name}` shows what the box writes, and `belljar exec {name} -- CMD` runs something in it"
        )));
    };
    let run = of.run().map(|run| run.id());
    let request = ToSupervisor::Attach { size: of_terminal(size), read_only: args.read_only };
    let (line, answer) = supervisor::call(state, of, &request, None)?;
    if !matches!(answer, FromSupervisor::Ok) {
        let error = anyhow!("the supervisor of box {name} sent an unexpected message");
        return Err(EngineError::new(ErrorKind::Broken, error));
    }
    let signals = SignalFd::new(&SIGNALS).context("watch for signals").kind(ErrorKind::Broken)?;
    let raw = Raw::enter(input.as_fd())
        .context("put the terminal into raw mode")
        .kind(ErrorKind::Broken)?;
    let session = Session {
        line,
        guard: Guard::default(),
        detach: &args.detach_keys.0,
        matched: 0,
        page: size.0,
        looks_back: false,
        keys: Vec::new(),
        screen: ENTER.to_vec(),
    };
    let ended = session.work(&signals);
    leave();
    drop(raw);
    match ended.context("attach").kind(ErrorKind::Broken)? {
        End::Detached => {
            print::note(&format!("detached from box {name}; `belljar attach {name}` comes back"));
            Ok(0)
        }
        End::Own => Ok(exit::FAILED),
        End::Box => tell_end(of, run),
    }
}

/// One terminal at one box.
struct Session<'a> {
    line: UnixStream,
    guard: Guard,
    detach: &'a [u8],
    /// How many of the detach keys were typed so far.
    matched: usize,
    /// How many rows there are.
    page: u16,
    looks_back: bool,
    /// On their way to the supervisor.
    keys: Vec<u8>,
    /// On its way to the terminal.
    screen: Vec<u8>,
}

impl Session<'_> {
    fn work(mut self, signals: &SignalFd) -> std::io::Result<End> {
        let (input, output) = (std::io::stdin(), std::io::stdout());
        let mut buffer = vec![0; 16 * 1024];
        loop {
            let interest_in_line = self.line_interest();
            // One that hung up would wake us again and again.
            let waits = interest_in_line.is_empty();
            let line = if waits { signals.as_fd() } else { self.line.as_fd() };
            let mut polled = [
                PollFd::from_borrowed_fd(signals.as_fd(), PollFlags::IN),
                PollFd::from_borrowed_fd(input.as_fd(), PollFlags::IN),
                PollFd::from_borrowed_fd(line, interest_in_line),
                PollFd::from_borrowed_fd(output.as_fd(), interest(&self.screen)),
            ];
            match rustix::event::poll(&mut polled, None) {
                Ok(_) | Err(rustix::io::Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
            let [signal, typed, line, shown] = polled.map(|it| it.revents());
            if !signal.is_empty() && self.signalled(signals)? {
                return Ok(End::Own);
            }
            if !typed.is_empty() {
                match rustix::io::read(&input, &mut buffer) {
                    Ok(0) | Err(rustix::io::Errno::IO) => return Ok(End::Own),
                    Ok(read) => {
                        if self.typed(buffer.get(..read).unwrap_or_default())? {
                            return Ok(End::Detached);
                        }
                    }
                    Err(rustix::io::Errno::INTR | rustix::io::Errno::AGAIN) => {}
                    Err(error) => return Err(error.into()),
                }
            }
            if !shown.is_empty() && !self.show()? {
                return Ok(End::Own);
            }
            if !self.keys.is_empty() && !self.send()? {
                return Ok(End::Box);
            }
            if line.intersects(PollFlags::IN | PollFlags::HUP | PollFlags::ERR)
                && self.screen.is_empty()
            {
                match rustix::io::read(&self.line, &mut buffer) {
                    Ok(0) | Err(rustix::io::Errno::CONNRESET) => return Ok(End::Box),
                    Ok(read) => {
                        let drawn = buffer.get(..read).unwrap_or_default();
                        self.guard.pass(drawn, &mut self.screen);
                    }
                    Err(rustix::io::Errno::INTR | rustix::io::Errno::AGAIN) => {}
                    Err(error) => return Err(error.into()),
                }
            }
        }
    }

    /// More of the screen is taken when the terminal has what came before.
    fn line_interest(&self) -> PollFlags {
        let read = if self.screen.is_empty() { PollFlags::IN } else { PollFlags::empty() };
        read | interest(&self.keys)
    }

    /// Whether a signal ends us.
    fn signalled(&mut self, signals: &SignalFd) -> std::io::Result<bool> {
        while let Some(signal) = signals.read()? {
            if signal != SIGWINCH {
                return Ok(true);
            }
            let Some(size) = terminal::size(std::io::stdin()) else { return Ok(true) };
            self.page = size.0;
            self.say(&ToSupervisor::Resize(of_terminal(size)))?;
        }
        Ok(false)
    }

    /// Takes what was typed; true if it was the keys that detach.
    fn typed(&mut self, typed: &[u8]) -> std::io::Result<bool> {
        let half = i32::from(self.page / 2).max(1);
        if BACK.contains(&typed) || FORTH.contains(&typed) {
            self.looks_back = true;
            let lines = if BACK.contains(&typed) { half } else { -half };
            return self.say(&ToSupervisor::Scroll(Some(lines))).map(|()| false);
        }
        if std::mem::take(&mut self.looks_back) {
            self.say(&ToSupervisor::Scroll(None))?;
        }
        let mut keys = Vec::with_capacity(typed.len());
        for byte in typed {
            if self.detach.get(self.matched) == Some(byte) {
                self.matched += 1;
                if self.matched == self.detach.len() {
                    return Ok(true);
                }
                continue;
            }
            keys.extend_from_slice(self.detach.get(..self.matched).unwrap_or_default());
            self.matched = usize::from(self.detach.first() == Some(byte));
            if self.matched == 0 {
                keys.push(*byte);
            }
        }
        if !keys.is_empty() && self.keys.len() < MOST_KEYS {
            self.say(&ToSupervisor::Keys(keys))?;
        }
        Ok(false)
    }

    fn say(&mut self, message: &ToSupervisor) -> std::io::Result<()> {
        self.keys.extend(supervisor::encode(message)?);
        Ok(())
    }

    /// Sends what the supervisor takes now; false if it is gone.
    fn send(&mut self) -> std::io::Result<bool> {
        let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
        match rustix::net::send(&self.line, &self.keys, flags) {
            Ok(sent) => {
                self.keys.drain(..sent);
                Ok(true)
            }
            Err(rustix::io::Errno::AGAIN | rustix::io::Errno::INTR) => Ok(true),
            Err(rustix::io::Errno::PIPE | rustix::io::Errno::CONNRESET) => Ok(false),
            Err(error) => Err(error.into()),
        }
    }

    /// Shows what the terminal takes now; false if it is gone.
    fn show(&mut self) -> std::io::Result<bool> {
        let piece = self.screen.get(..4096).unwrap_or(&self.screen);
        match rustix::io::write(std::io::stdout(), piece) {
            Ok(wrote) => {
                self.screen.drain(..wrote);
                Ok(true)
            }
            Err(rustix::io::Errno::AGAIN | rustix::io::Errno::INTR) => Ok(true),
            Err(rustix::io::Errno::IO | rustix::io::Errno::PIPE) => Ok(false),
            Err(error) => Err(error.into()),
        }
    }
}

fn interest(pending: &[u8]) -> PollFlags {
    if pending.is_empty() { PollFlags::empty() } else { PollFlags::OUT }
}

fn of_terminal((rows, columns): (u16, u16)) -> Size {
    Size { rows, columns }
}

/// Gives the terminal back as it was.
fn leave() {
    let mut rest = LEAVE;
    while let Ok(wrote) = rustix::io::write(std::io::stdout(), rest) {
        rest = rest.get(wrote..).unwrap_or_default();
        if rest.is_empty() {
            break;
        }
    }
}

/// Says how the run of a box ended, once that is known; its exit code is ours.
pub(crate) fn tell_end(of: &NamedBox, run: Option<belljar_model::RunId>) -> Outcome {
    let name = of.name();
    let until = Instant::now() + ENDING;
    while of.is_up() && of.run().map(|run| run.id()) == run && Instant::now() < until {
        std::thread::sleep(Duration::from_millis(10));
    }
    let ended = of.run().filter(|now| Some(now.id()) == run).and_then(|run| run.record.result);
    match ended {
        Some(result) => {
            print::note(&format!(
                "box {name} ended: {}; `belljar logs {name}` shows what it wrote, `belljar start {name}` starts it again",
                result.reason.sentence()
            ));
            Ok(result.exit_code())
        }
        None => {
            let error = anyhow!(
                "the supervisor of box {name} is gone; `belljar status {name}` shows how the box is"
            );
            Err(EngineError::new(ErrorKind::Broken, error))
        }
    }
}
