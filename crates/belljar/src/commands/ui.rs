//! `belljar ui`: all boxes on one screen, with keys for what can be done with them.
//!
//! It decides nothing and changes nothing itself: every key starts the command that a person would
//! have typed, with all its questions and refusals.

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
use crate::terminal::{self, Raw};
use belljar_engine::error::{ErrorKind, WithKind as _, invalid};
use belljar_engine::scope::Scoped;

/// A screen of its own, without the cursor; lines that are too long are cut.
const ENTER: &str = "\x1b[?1049h\x1b[?25l\x1b[?7l";
const LEAVE: &str = "\x1b[m\x1b[?7h\x1b[?25h\x1b[?1049l";

const SIGWINCH: i32 = 28;
const SIGNALS: [i32; 4] = [1, 2, 15, SIGWINCH];
/// How often the boxes are looked at.
const PACE: Duration = Duration::from_millis(500);

/// What a key is for.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Wish {
    Nothing,
    Quit,
    Up,
    Down,
    Help,
    /// Run a command for the box that is chosen, and wait for a key afterwards if it only prints.
    Run {
        command: Vec<&'static str>,
        waits: bool,
    },
    /// The same, but only after a `y`.
    Ask {
        command: Vec<&'static str>,
    },
}

pub(crate) fn run() -> Outcome {
    let (input, output) = (io::stdin(), io::stdout());
    if !rustix::termios::isatty(&input) || !rustix::termios::isatty(&output) {
        return Err(invalid("ui needs a terminal; `belljar list` prints the boxes"));
    }
    let state = scope::open(None)?;
    let signals = SignalFd::new(&SIGNALS).context("watch for signals").kind(ErrorKind::Broken)?;
    let (news, seen) = watch(state).context("watch the boxes").kind(ErrorKind::Broken)?;
    let mut page = Page::new(print::colour());
    let raw = Raw::enter(input.as_fd())
        .context("put the terminal into raw mode")
        .kind(ErrorKind::Broken)?;
    let ended = UiLoop { signals, news, seen }.work(&mut page, raw);
    write(LEAVE).ok(); // the terminal may be gone
    ended.context("ui").kind(ErrorKind::Broken)?;
    Ok(0)
}

/// Looks at the boxes again and again on a thread of its own: a keeper may take its time.
fn watch(state: Scoped) -> io::Result<(OwnedFd, Arc<Mutex<Vec<Row>>>)> {
    let (news, tell) = rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC)?;
    let seen: Arc<Mutex<Vec<Row>>> = Arc::default();
    let shared = Arc::clone(&seen);
    std::thread::spawn(move || {
        loop {
            let rows = rows::all(&state);
            *shared.lock().unwrap_or_else(PoisonError::into_inner) = rows;
            if rustix::io::write(&tell, b"1").is_err() {
                return;
            }
            std::thread::sleep(PACE);
        }
    });
    Ok((news, seen))
}

/// Where everything comes in.
struct UiLoop {
    signals: SignalFd,
    news: OwnedFd,
    seen: Arc<Mutex<Vec<Row>>>,
}

impl UiLoop {
    fn work(&self, page: &mut Page, raw: Raw<'_>) -> io::Result<()> {
        let input = io::stdin();
        let mut raw = Some(raw);
        write(ENTER)?;
        loop {
            page.size = terminal::size(&input).unwrap_or((24, 80));
            write(&page.draw())?;
            let mut polled = [
                PollFd::from_borrowed_fd(self.signals.as_fd(), PollFlags::IN),
                PollFd::from_borrowed_fd(input.as_fd(), PollFlags::IN),
                PollFd::new(&self.news, PollFlags::IN),
            ];
            match rustix::event::poll(&mut polled, None) {
                Ok(_) | Err(rustix::io::Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
            let [_, typed, news] = polled.map(|it| !it.revents().is_empty());
            while let Some(signal) = self.signals.read()? {
                if signal != SIGWINCH {
                    return Ok(());
                }
            }
            if news {
                rustix::io::read(&self.news, &mut [0_u8; 64])?;
                page.take(self.seen.lock().unwrap_or_else(PoisonError::into_inner).clone());
            }
            if !typed {
                continue;
            }
            let mut keys = [0; 64];
            let read = match rustix::io::read(&input, &mut keys) {
                Ok(0) | Err(rustix::io::Errno::IO) => return Ok(()),
                Ok(read) => read,
                Err(_) => continue,
            };
            for wish in page.typed(keys.get(..read).unwrap_or_default()) {
                match wish {
                    Wish::Quit => return Ok(()),
                    Wish::Run { command, waits } => {
                        drop(raw.take());
                        self.start(page, &command, waits)?;
                        raw = Some(Raw::enter(input.as_fd())?);
                        write(ENTER)?;
                    }
                    Wish::Nothing | Wish::Up | Wish::Down | Wish::Help | Wish::Ask { .. } => {}
                }
            }
        }
    }

    /// Runs a command for the box that is chosen, on the terminal as it was.
    fn start(&self, page: &mut Page, command: &[&str], waits: bool) -> io::Result<()> {
        write(LEAVE)?;
        let Some(name) = page.chosen().map(|row| row.name.clone()) else { return Ok(()) };
        let words = command.iter().map(|word| if *word == "NAME" { name.as_str() } else { word });
        let words: Vec<&str> = words.collect();
        print::note(&format!("$ belljar {}", words.join(" ")));
        let started = Command::new("/proc/self/exe").arg0("belljar").args(&words).status();
        while self.signals.read()?.is_some() {} // those of its terminal were for the command
        match started {
            Ok(ended) if ended.success() && !waits => {}
            Ok(_) => wait_for_key()?,
            Err(error) => page.say(format!("could not start belljar: {error}")),
        }
        Ok(())
    }
}

/// Leaves what was printed there until somebody has read it.
fn wait_for_key() -> io::Result<()> {
    print::ask("\n-- any key goes back --");
    let input = io::stdin();
    let _raw = Raw::enter(input.as_fd())?;
    rustix::io::read(&input, &mut [0_u8; 64]).ok(); // an end is a key as well
    Ok(())
}

fn write(text: &str) -> io::Result<()> {
    let mut rest = text.as_bytes();
    while !rest.is_empty() {
        let wrote = rustix::io::write(io::stdout(), rest)?;
        rest = rest.get(wrote..).unwrap_or_default();
    }
    Ok(())
}
