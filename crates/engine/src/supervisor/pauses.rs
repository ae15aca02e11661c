//! Pauses of a named box: short ones, which end when the connection of a client is closed, and a kept one,
//! which lasts until the box is resumed or stopped.
//!
//! The kept pause belongs to the supervisor, so it outlives the client that requested it. An empty file in
//! the directory of the box shows it to commands that list boxes. The limits of a box continue during a
//! pause: a box that exceeds its timeout while it is paused is killed.

use std::io;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock, Weak};

use belljar_box::{ExecChannel, Paused};
use rustix::fs::{CWD, Mode, OFlags};

use crate::box_store::PAUSED_FILE;

/// The pauses of one box. The box is paused as long as at least one of them exists.
#[derive(Debug, Default)]
pub(super) struct Pauses {
    state: Mutex<State>,
    /// Held for reading while a program starts: init would not report its start during a pause.
    starts: RwLock<()>,
}

#[derive(Debug, Default)]
struct State {
    /// The pause that all requests share, because init knows only one.
    current: Weak<Paused>,
    kept: Option<Arc<Paused>>,
}

impl Pauses {
    /// Pauses the box until the returned value is dropped.
    pub(super) fn pause(&self, channel: &ExecChannel) -> io::Result<Arc<Paused>> {
        let _no_start = self.starts.write().unwrap_or_else(PoisonError::into_inner);
        let mut state = self.lock();
        if let Some(current) = state.current.upgrade() {
            return Ok(current);
        }
        let paused = Arc::new(channel.pause()?);
        state.current = Arc::downgrade(&paused);
        Ok(paused)
    }

    /// Pauses the box until [`Self::resume`]. Does nothing if the box is paused so already. `dir` is the
    /// directory of the box.
    pub(super) fn keep(&self, channel: &ExecChannel, dir: &Path) -> io::Result<()> {
        let paused = self.pause(channel)?;
        let mut state = self.lock();
        if state.kept.is_none() {
            create_file(dir)?;
            state.kept = Some(paused);
        }
        Ok(())
    }

    /// Ends the kept pause. Does nothing if there is none.
    pub(super) fn resume(&self, dir: &Path) -> io::Result<()> {
        let mut state = self.lock();
        if state.kept.is_some() {
            remove_file(dir)?;
            state.kept = None;
        }
        Ok(())
    }

    /// Ends the kept pause because the box is stopped or has ended.
    pub(super) fn end(&self, dir: &Path) {
        let mut state = self.lock();
        remove_file(dir).ok(); // the next start of the box removes it
        state.kept = None;
    }

    /// Returns whether the box is paused until it is resumed.
    pub(super) fn is_kept(&self) -> bool {
        self.lock().kept.is_some()
    }

    /// Calls a function that starts a program in the box. Returns `None` if the box is paused until it is
    /// resumed. A short pause delays the start.
    pub(super) fn start_program<T>(&self, start: impl FnOnce() -> T) -> Option<T> {
        let _starting = self.starts.read().unwrap_or_else(PoisonError::into_inner);
        (!self.is_kept()).then(start)
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn create_file(dir: &Path) -> io::Result<()> {
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    rustix::fs::openat(CWD, dir.join(PAUSED_FILE), flags, Mode::from_raw_mode(0o600))?;
    Ok(())
}

/// Removes the file that shows a kept pause.
pub(super) fn remove_file(dir: &Path) -> io::Result<()> {
    match std::fs::remove_file(dir.join(PAUSED_FILE)) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        Ok(()) | Err(_) => Ok(()),
    }
}
