//! Waits for the answer of a model, with a status line on a terminal. Ctrl-C cancels the run.

use std::io;
use std::os::fd::AsFd as _;
use std::time::{Duration, Instant};

use anyhow::Context as _;
use belljar_engine::error::{EngineError, ErrorKind, WithKind as _};
use belljar_engine::runs::author::Author;
use belljar_engine::runs::control;
use belljar_engine::runs::machine::Phase;
use belljar_engine::runs::view::FollowedRun;
use belljar_engine::scope::Scoped;
use belljar_model::RunId;
use belljar_sys::signal::{SIGHUP, SIGINT, SIGTERM, SignalFd};
use rustix::event::{PollFd, PollFlags, Timespec};

use crate::commands::watch::DriverCheck;
use crate::print;

/// The interval between two looks at the new events of the run.
const INTERVAL: Duration = Duration::from_millis(200);

/// Blocks the signals that cancel a run. The caller blocks them before it starts the run, so that no signal
/// ends the command and leaves the run behind.
pub(super) fn block_signals() -> Result<SignalFd, EngineError> {
    SignalFd::new(&[SIGHUP, SIGINT, SIGTERM])
        .context("cannot watch for signals")
        .kind(ErrorKind::Broken)
}

/// Waits until the run of a question has ended.
///
/// A signal cancels the run. A second signal ends the wait.
pub(super) fn wait(
    state: &Scoped,
    run: RunId,
    author: &Author<'_>,
    signals: &SignalFd,
) -> Result<(), EngineError> {
    let (number, of) = author.progress();
    let tier = author.tier();
    let what = format!("tier {tier} writes plan {number} of at most {of}, run {run}");
    if !print::has_status() {
        print::note(&what);
    }
    let ended = follow(state, run, signals, &what);
    print::end_status();
    ended
}

fn follow(state: &Scoped, run: RunId, signals: &SignalFd, what: &str) -> Result<(), EngineError> {
    let mut followed = FollowedRun::open(state, run)?;
    let mut driver = DriverCheck::new();
    let (started, mut is_cancelled) = (Instant::now(), false);
    loop {
        followed.refresh()?;
        if followed.outcome().is_some() {
            return Ok(());
        }
        if followed.view(state).phase == Phase::Attention {
            let text = format!("the question to the model was lost more than once, run {run}");
            return Err(EngineError::message(ErrorKind::Broken, text).advise(format!(
                "end it with `belljar runs settle {run}/write --failed`, and try again"
            )));
        }
        driver.look(state)?;
        let doing = if is_cancelled { "cancelling" } else { what };
        print::status(&format!("{doing}, {} s; Ctrl-C cancels", started.elapsed().as_secs()));
        if !pause(signals).context("cannot wait for the model").kind(ErrorKind::Broken)? {
            continue;
        }
        if is_cancelled {
            let text = format!("run {run} was cancelled and is still ending");
            return Err(EngineError::message(ErrorKind::Broken, text));
        }
        is_cancelled = true;
        cancel(state, run, &mut followed)?;
    }
}

/// Cancels a run, unless it has ended in the meantime.
fn cancel(state: &Scoped, run: RunId, followed: &mut FollowedRun) -> Result<(), EngineError> {
    let Err(error) = control::cancel(state, run, None) else { return Ok(()) };
    followed.refresh()?;
    if followed.outcome().is_some() { Ok(()) } else { Err(error) }
}

/// Waits for the next look. Returns whether a signal arrived.
fn pause(signals: &SignalFd) -> io::Result<bool> {
    let timeout = Timespec::try_from(INTERVAL).map_err(io::Error::other)?;
    let mut polled = [PollFd::from_borrowed_fd(signals.as_fd(), PollFlags::IN)];
    match rustix::event::poll(&mut polled, Some(&timeout)) {
        Ok(_) | Err(rustix::io::Errno::INTR) => {}
        Err(error) => return Err(error.into()),
    }
    Ok(signals.read()?.is_some())
}
