//! The full-screen view of a run on a terminal.

use std::collections::BTreeMap;
use std::io;
use std::os::fd::AsFd as _;
use std::time::Duration;

use anyhow::Context as _;
use belljar_engine::error::{EngineError, ErrorKind, WithKind as _};
use belljar_engine::runs::machine::{Moment, TaskRef};
use belljar_engine::runs::view::FollowedRun;
use belljar_engine::scope::Scoped;
use belljar_sys::signal::SignalFd;
use rustix::event::{PollFd, PollFlags, Timespec};

use super::DriverCheck;
use super::page::{Action, Page};
use crate::commands::runs::{rows, show};
use crate::commands::ui::{
    ENTER_SCREEN, HANDLED_SIGNALS, LEAVE_SCREEN, SIGWINCH, run_belljar, write,
};
use crate::print;
use crate::scope::CLOCK;
use crate::terminal::{self, RawMode};

/// The interval between two looks at the new events of the run and at the last lines of its programs.
const REFRESH_INTERVAL: Duration = Duration::from_millis(250);

/// Shows a run until it ends or the user leaves.
pub(super) fn follow(state: &Scoped, followed: &mut FollowedRun) -> Result<(), EngineError> {
    let signals = SignalFd::new(&HANDLED_SIGNALS)
        .context("cannot watch for signals")
        .kind(ErrorKind::Broken)?;
    let input = io::stdin();
    let raw = RawMode::enter(input.as_fd())
        .context("cannot switch the terminal to raw mode")
        .kind(ErrorKind::Broken)?;
    let screen = Screen { state, signals, outputs: BTreeMap::new() };
    let ended = screen.run(followed, raw);
    write(LEAVE_SCREEN).ok(); // fails if the terminal was closed
    ended
}

struct Screen<'a> {
    state: &'a Scoped,
    signals: SignalFd,
    /// The start of each output that was read.
    outputs: BTreeMap<TaskRef, String>,
}

impl Screen<'_> {
    fn run(mut self, followed: &mut FollowedRun, raw: RawMode<'_>) -> Result<(), EngineError> {
        let broken = |error: io::Error| {
            let error = anyhow::Error::new(error).context("cannot draw the run or read keys");
            EngineError::new(ErrorKind::Broken, error)
        };
        let input = io::stdin();
        let mut raw = Some(raw);
        let mut driver = DriverCheck::new();
        let mut page = Page::new(print::colour());
        write(ENTER_SCREEN).map_err(broken)?;
        loop {
            self.update(followed, &mut page)?;
            if followed.outcome().is_some() {
                return Ok(());
            }
            driver.look(self.state)?;
            page.size = terminal::size(&input).unwrap_or((24, 80));
            write(&page.draw()).map_err(broken)?;
            let Some(keys) = self.wait().map_err(broken)? else { return Ok(()) };
            for action in page.handle_keys(&keys) {
                match action {
                    Action::Quit => return Ok(()),
                    Action::Run { command, waits } => {
                        drop(raw.take());
                        write(LEAVE_SCREEN).map_err(broken)?;
                        let words: Vec<&str> = command.iter().map(String::as_str).collect();
                        let started = run_belljar(&self.signals, &words, waits).map_err(broken)?;
                        if let Err(error) = started {
                            page.show_message(format!("cannot start belljar: {error}"));
                        }
                        raw = Some(RawMode::enter(input.as_fd()).map_err(broken)?);
                        write(ENTER_SCREEN).map_err(broken)?;
                    }
                    Action::Nothing => {}
                }
            }
        }
    }

    /// Reads the new events of the run.
    fn update(&mut self, followed: &mut FollowedRun, page: &mut Page) -> Result<(), EngineError> {
        followed.refresh()?;
        let view = followed.view(self.state);
        let outputs = &mut self.outputs;
        let now = Moment(CLOCK.millis());
        let rows = rows::rows(&view, now, |of| {
            let read = || show::output_start(followed, of).unwrap_or_default();
            Some(outputs.entry(of.clone()).or_insert_with(read).clone())
        });
        page.set(&view, rows::title(&view, now), rows);
        Ok(())
    }

    /// Waits for keys, a signal or the next refresh. Returns the keys, or `None` if the view must close.
    fn wait(&self) -> io::Result<Option<Vec<u8>>> {
        let input = io::stdin();
        let timeout = Timespec::try_from(REFRESH_INTERVAL).map_err(io::Error::other)?;
        let mut polled = [
            PollFd::from_borrowed_fd(self.signals.as_fd(), PollFlags::IN),
            PollFd::from_borrowed_fd(input.as_fd(), PollFlags::IN),
        ];
        match rustix::event::poll(&mut polled, Some(&timeout)) {
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
        let [_, has_input] = polled.map(|it| !it.revents().is_empty());
        while let Some(signal) = self.signals.read()? {
            if signal != SIGWINCH {
                return Ok(None);
            }
        }
        if !has_input {
            return Ok(Some(Vec::new()));
        }
        let mut keys = [0; 64];
        Ok(match rustix::io::read(&input, &mut keys) {
            Ok(0) | Err(rustix::io::Errno::IO) => None,
            Ok(read) => Some(keys.get(..read).unwrap_or_default().to_vec()),
            Err(_) => Some(Vec::new()),
        })
    }
}
