//! `belljar ui`: a full-screen view of all boxes, with keys that run commands on them.
//!
//! The view itself changes nothing. Each key starts the command that a person would type, with all its
//! questions and errors.

mod page;
mod rows;

use std::io;
use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::process::CommandExt as _;
use std::process::Command;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use anyhow::Context as _;
use belljar_sys::signal::SignalFd;
use rustix::event::{PollFd, PollFlags};

use self::page::Page;
use self::rows::Row;
use crate::exit::Outcome;
use crate::print;
use crate::scope;
use crate::terminal::{self, RawMode};
use belljar_engine::error::{ErrorKind, WithKind as _, invalid};
use belljar_engine::scope::Scoped;

/// The escape sequences that open an alternate screen without cursor and line wrapping.
pub(super) const ENTER_SCREEN: &str = "\x1b[?1049h\x1b[?25l\x1b[?7l";
/// The escape sequences that restore the normal screen.
pub(super) const LEAVE_SCREEN: &str = "\x1b[m\x1b[?7h\x1b[?25h\x1b[?1049l";

pub(super) const SIGWINCH: i32 = 28;
/// The signals that the view handles: HUP, INT, TERM and WINCH.
pub(super) const HANDLED_SIGNALS: [i32; 4] = [1, 2, 15, SIGWINCH];
/// The interval between two reads of the status of all boxes.
const REFRESH_INTERVAL: Duration = Duration::from_millis(500);

/// The action of a key in the view.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Action {
    Nothing,
    Quit,
    Up,
    Down,
    Help,
    /// Run a command on the selected box; if `waits`, wait for a key before the view returns.
    Run {
        command: Vec<&'static str>,
        waits: bool,
    },
    /// Run a command on the selected box after the user confirms it with `y`.
    Ask {
        command: Vec<&'static str>,
    },
}

/// Runs `belljar ui`.
pub(crate) fn run() -> Outcome {
    let (input, output) = (io::stdin(), io::stdout());
    if !rustix::termios::isatty(&input) || !rustix::termios::isatty(&output) {
        return Err(invalid(
            "ui needs a terminal for input and output; `belljar list` prints the boxes without one",
        ));
    }
    let state = scope::open(None)?;
    let signals = SignalFd::new(&HANDLED_SIGNALS)
        .context("cannot watch for signals")
        .kind(ErrorKind::Broken)?;
    let (updates, boxes) = watch(state)
        .context("cannot start the thread that reads the boxes")
        .kind(ErrorKind::Broken)?;
    let mut page = Page::new(print::colour());
    let raw = RawMode::enter(input.as_fd())
        .context("cannot switch the terminal to raw mode")
        .kind(ErrorKind::Broken)?;
    let ended = UiLoop { signals, updates, boxes }.run(&mut page, raw);
    write(LEAVE_SCREEN).ok(); // fails if the terminal was closed
    ended
        .context("cannot draw the boxes or read keys from the terminal")
        .kind(ErrorKind::Broken)?;
    Ok(0)
}

/// Starts a thread that reads the status of all boxes periodically.
///
/// A separate thread is used because a supervisor can take long to respond. The pipe becomes readable
/// after each update.
fn watch(state: Scoped) -> io::Result<(OwnedFd, Arc<Mutex<Vec<Row>>>)> {
    let (updates, notify) = rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC)?;
    let boxes: Arc<Mutex<Vec<Row>>> = Arc::default();
    let shared = Arc::clone(&boxes);
    std::thread::spawn(move || {
        loop {
            let rows = rows::all(&state);
            *shared.lock().unwrap_or_else(PoisonError::into_inner) = rows;
            if rustix::io::write(&notify, b"1").is_err() {
                return;
            }
            std::thread::sleep(REFRESH_INTERVAL);
        }
    });
    Ok((updates, boxes))
}

/// The event loop of the view and its inputs: signals, keys and updates of the boxes.
struct UiLoop {
    signals: SignalFd,
    updates: OwnedFd,
    boxes: Arc<Mutex<Vec<Row>>>,
}

impl UiLoop {
    /// Draws the view and handles events until the user quits.
    fn run(&self, page: &mut Page, raw: RawMode<'_>) -> io::Result<()> {
        let input = io::stdin();
        let mut raw = Some(raw);
        write(ENTER_SCREEN)?;
        loop {
            page.size = terminal::size(&input).unwrap_or((24, 80));
            write(&page.draw())?;
            let mut polled = [
                PollFd::from_borrowed_fd(self.signals.as_fd(), PollFlags::IN),
                PollFd::from_borrowed_fd(input.as_fd(), PollFlags::IN),
                PollFd::new(&self.updates, PollFlags::IN),
            ];
            match rustix::event::poll(&mut polled, None) {
                Ok(_) | Err(rustix::io::Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
            let [_, has_input, has_update] = polled.map(|it| !it.revents().is_empty());
            while let Some(signal) = self.signals.read()? {
                if signal != SIGWINCH {
                    return Ok(());
                }
            }
            if has_update {
                rustix::io::read(&self.updates, &mut [0_u8; 64])?;
                page.set_rows(self.boxes.lock().unwrap_or_else(PoisonError::into_inner).clone());
            }
            if !has_input {
                continue;
            }
            let mut keys = [0; 64];
            let read = match rustix::io::read(&input, &mut keys) {
                Ok(0) | Err(rustix::io::Errno::IO) => return Ok(()),
                Ok(read) => read,
                Err(_) => continue,
            };
            for action in page.handle_keys(keys.get(..read).unwrap_or_default()) {
                match action {
                    Action::Quit => return Ok(()),
                    Action::Run { command, waits } => {
                        drop(raw.take());
                        self.run_command(page, &command, waits)?;
                        raw = Some(RawMode::enter(input.as_fd())?);
                        write(ENTER_SCREEN)?;
                    }
                    Action::Nothing
                    | Action::Up
                    | Action::Down
                    | Action::Help
                    | Action::Ask { .. } => {}
                }
            }
        }
    }

    /// Runs a command on the selected box, with the terminal in its normal mode.
    fn run_command(&self, page: &mut Page, command: &[&str], waits: bool) -> io::Result<()> {
        write(LEAVE_SCREEN)?;
        let Some(name) = page.selected().map(|row| row.name.clone()) else { return Ok(()) };
        let words = command.iter().map(|word| if *word == "NAME" { name.as_str() } else { word });
        let words: Vec<&str> = words.collect();
        if let Err(error) = run_belljar(&self.signals, &words, waits)? {
            page.show_message(format!("cannot start belljar: {error}"));
        }
        Ok(())
    }
}

/// Runs a command of Belljar on the normal screen. If it fails or `waits` is set, waits for a key afterwards.
///
/// The inner error is that of a command that could not be started.
pub(super) fn run_belljar(
    signals: &SignalFd,
    words: &[&str],
    waits: bool,
) -> io::Result<io::Result<()>> {
    print::note(&format!("$ belljar {}", words.join(" ")));
    let result = Command::new("/proc/self/exe").arg0("belljar").args(words).status();
    while signals.read()?.is_some() {} // discard signals that were meant for the command
    match result {
        Ok(status) if status.success() && !waits => {}
        Ok(_) => wait_for_key()?,
        Err(error) => return Ok(Err(error)),
    }
    Ok(Ok(()))
}

/// Waits for a key, so that the user can read the output of a command.
fn wait_for_key() -> io::Result<()> {
    print::ask("\n-- press any key to return --");
    let input = io::stdin();
    let _raw = RawMode::enter(input.as_fd())?;
    rustix::io::read(&input, &mut [0_u8; 64]).ok(); // the end of the input also returns
    write("\r\n") // the next command begins on a new line
}

/// Writes all of a text to standard output without buffering.
pub(super) fn write(text: &str) -> io::Result<()> {
    let mut rest = text.as_bytes();
    while !rest.is_empty() {
        let written = rustix::io::write(io::stdout(), rest)?;
        rest = rest.get(written..).unwrap_or_default();
    }
    Ok(())
}
