//! Cancels a command when the operator presses Ctrl-C or a termination signal arrives.
//!
//! The signal support of tokio is not used: it creates a socket in every runtime, and the broker builds
//! its runtime after it has lost the right to create sockets.

use std::os::fd::AsFd as _;
use std::sync::Arc;

use anyhow::Context as _;
use belljar_sys::signal::{SIGHUP, SIGINT, SIGTERM, SignalFd};
use rustix::event::{PollFd, PollFlags};
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

/// Cancels `stop` at the first SIGINT or SIGTERM, until the returned value is dropped.
///
/// Call it before other threads are started: new threads inherit the blocked signals.
pub(crate) fn watch(stop: CancellationToken) -> anyhow::Result<SignalFd> {
    let signals = SignalFd::new(&[SIGINT, SIGTERM]).context("cannot watch for signals")?;
    let watched = signals.as_fd().try_clone_to_owned().context("cannot watch for signals")?;
    std::thread::spawn(move || {
        let mut polled = [PollFd::new(&watched, PollFlags::IN)];
        while let Err(rustix::io::Errno::INTR) = rustix::event::poll(&mut polled, None) {}
        // Consume the signal: a pending signal would kill the process when it is unblocked.
        rustix::io::read(&watched, &mut [0_u8; 128]).ok();
        stop.cancel();
    });
    Ok(signals)
}

/// Cancels `stop` at the first SIGINT or SIGTERM, and notifies `reload` at each SIGHUP.
///
/// Call it before other threads are started: new threads inherit the blocked signals.
pub(crate) fn watch_server(
    stop: CancellationToken,
    reload: Arc<Notify>,
) -> anyhow::Result<Arc<SignalFd>> {
    let signals = SignalFd::new(&[SIGHUP, SIGINT, SIGTERM]).context("cannot watch for signals")?;
    let signals = Arc::new(signals);
    let watched = Arc::clone(&signals);
    std::thread::spawn(move || {
        while !stop.is_cancelled() {
            let mut polled = [PollFd::new(&*watched, PollFlags::IN)];
            while let Err(rustix::io::Errno::INTR) = rustix::event::poll(&mut polled, None) {}
            match watched.read() {
                Ok(Some(SIGHUP)) => reload.notify_one(),
                Ok(Some(_)) | Err(_) => stop.cancel(),
                Ok(None) => {}
            }
        }
    });
    Ok(signals)
}
