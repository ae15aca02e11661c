//! Tells whoever waits that the operator wants an end, by Ctrl-C or a signal.
//!
//! Not by tokio: its signals make a socket in every runtime, and the broker's is built where none can
//! be made any more.

use std::os::fd::AsFd as _;

use anyhow::Context as _;
use belljar_sys::signal::{SIGINT, SIGTERM, SignalFd};
use rustix::event::{PollFd, PollFlags};
use tokio_util::sync::CancellationToken;

/// Cancels `stop` at the first signal, for as long as what it returns is kept. To be called before other
/// threads are started, which then leave the signals alone.
pub(crate) fn watch(stop: CancellationToken) -> anyhow::Result<SignalFd> {
    let signals = SignalFd::new(&[SIGINT, SIGTERM]).context("watch for signals")?;
    let watched = signals.as_fd().try_clone_to_owned().context("watch for signals")?;
    std::thread::spawn(move || {
        let mut polled = [PollFd::new(&watched, PollFlags::IN)];
        while let Err(rustix::io::Errno::INTR) = rustix::event::poll(&mut polled, None) {}
        // One that is not taken would end the process once nobody holds it back any more.
        rustix::io::read(&watched, &mut [0_u8; 128]).ok();
        stop.cancel();
    });
    Ok(signals)
}
