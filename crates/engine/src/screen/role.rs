//! The main function of a screen process. It locks itself down, reads the output of the box, and draws the
//! screen for each viewer.

use std::collections::BTreeMap;
use std::io;
use std::os::fd::{AsFd as _, OwnedFd};
use std::time::{Duration, Instant};

use anyhow::Context as _;
use belljar_init::wire;
use belljar_sys::time::timespec;
use rustix::event::{PollFd, PollFlags};
use rustix::net::SendFlags;

use super::buffer::{ScreenBuffer, View};
use super::log_lines::LogLines;
use super::protocol::{LogText, MAX_OUTPUT, Size, TerminalReply, ToScreen};
use crate::error::{EngineError, ErrorKind, WithKind as _};
use crate::lockdown::{self, LockedRole};

/// The descriptor on which [`belljar_sys::clone::spawn`] puts the socket to the supervisor.
const CONTROL: i32 = belljar_sys::clone::CONTROL_FD;

/// The minimum time between two drawings of the screen.
const FRAME_INTERVAL: Duration = Duration::from_millis(20);
/// The time that viewers have to receive the last drawing after the box ended.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(1);

/// Runs this process as a screen process until its box ends.
pub fn main() -> Result<(), EngineError> {
    let adopted = belljar_sys::exec::adopt(CONTROL);
    let adopted = adopted.context("cannot use the inherited socket to the supervisor");
    let control = adopted.kind(ErrorKind::Broken)?;
    // Signals to the process group of the supervisor must not reach this process.
    rustix::process::setsid().ok();
    // If this fails, the supervisor notices that the connection is closed.
    lockdown::enter(LockedRole::Screen).kind(ErrorKind::Broken)?;
    tracing::debug!("screen process is locked down");
    let buffer = ScreenBuffer::new(Size::DEFAULT);
    let mut server = ScreenServer { control, buffer, viewers: BTreeMap::new(), log: None };
    server.run().context("cannot draw the screen of the box").kind(ErrorKind::Broken)
}

/// The screen of a box and the viewers that it is drawn for.
struct ScreenServer {
    /// The socket to the supervisor.
    control: OwnedFd,
    buffer: ScreenBuffer,
    viewers: BTreeMap<u64, Viewer>,
    /// The log that is rendered instead of a screen, and whether its text has colours.
    log: Option<(LogLines, bool)>,
}

/// A client that is attached to the screen.
struct Viewer {
    socket: OwnedFd,
    view: View,
    /// The bytes of the last drawing.
    drawing: Vec<u8>,
    /// The number of bytes of the last drawing that were sent to the viewer.
    sent: usize,
}

impl ScreenServer {
    /// Reads messages and draws the screen until the supervisor closes the connection.
    fn run(&mut self) -> io::Result<()> {
        let mut drawn = Instant::now();
        loop {
            let rest = FRAME_INTERVAL.saturating_sub(drawn.elapsed());
            let waits = self.viewers.values().any(|viewer| viewer.needs_data(&self.buffer));
            let has_message = self.wait(waits.then_some(rest))?;
            if has_message && !self.receive()? {
                break;
            }
            if !has_message || drawn.elapsed() >= FRAME_INTERVAL {
                self.draw();
                drawn = Instant::now();
            }
        }
        if let Some((lines, has_colours)) = self.log.take() {
            return self.send_text(lines.finish(has_colours).as_bytes());
        }
        let deadline = Instant::now() + CLOSE_TIMEOUT;
        self.draw();
        while Instant::now() < deadline
            && self.viewers.values().any(|it| it.needs_data(&self.buffer))
        {
            self.wait_for_viewers(deadline.saturating_duration_since(Instant::now()))?;
            self.draw();
        }
        Ok(())
    }

    /// Sends the text of a rendered log.
    fn send_text(&self, text: &[u8]) -> io::Result<()> {
        let mut pieces = text.chunks(MAX_OUTPUT);
        pieces.try_for_each(|piece| wire::send(self.control.as_fd(), &LogText(piece.to_vec()), &[]))
    }

    /// Waits until the supervisor sends a message, a slow viewer can receive data, or `timeout` has passed.
    /// Returns whether the supervisor sent a message.
    fn wait(&self, timeout: Option<Duration>) -> io::Result<bool> {
        let mut polled = vec![PollFd::from_borrowed_fd(self.control.as_fd(), PollFlags::IN)];
        let slow = self.viewers.values().filter(|viewer| viewer.has_pending());
        polled.extend(slow.map(|viewer| PollFd::new(&viewer.socket, PollFlags::OUT)));
        let has_drawable =
            self.viewers.values().any(|it| !it.has_pending() && it.needs_data(&self.buffer));
        let timeout = timeout.filter(|_| has_drawable).map(timespec);
        match rustix::event::poll(&mut polled, timeout.as_ref()) {
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
        Ok(polled.first().is_some_and(|control| !control.revents().is_empty()))
    }

    /// Waits until a slow viewer can receive data, for at most `timeout`.
    fn wait_for_viewers(&self, timeout: Duration) -> io::Result<()> {
        let slow = self.viewers.values().filter(|viewer| viewer.has_pending());
        let mut polled: Vec<PollFd<'_>> =
            slow.map(|viewer| PollFd::new(&viewer.socket, PollFlags::OUT)).collect();
        match rustix::event::poll(&mut polled, Some(&timespec(timeout))) {
            Ok(_) | Err(rustix::io::Errno::INTR) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    /// Receives and handles one message of the supervisor. Returns `false` if the supervisor closed the
    /// connection.
    fn receive(&mut self) -> io::Result<bool> {
        let received = wire::receive::<ToScreen>(self.control.as_fd(), wire::MAX_MESSAGE)?;
        let Some((message, mut descriptors)) = received else { return Ok(false) };
        match message {
            ToScreen::Log { has_colours } => self.log = Some((LogLines::new(), has_colours)),
            ToScreen::Output(output) if let Some((lines, _)) = &mut self.log => {
                lines.write(&output);
            }
            ToScreen::Output(output) => {
                tracing::trace!(bytes = output.len(), "output of the box");
                let reply = self.buffer.write(&output);
                if !reply.is_empty() {
                    wire::send(self.control.as_fd(), &TerminalReply(reply), &[])?;
                }
            }
            ToScreen::Gap => {
                tracing::debug!("output was skipped");
                self.buffer.skip();
            }
            ToScreen::Size(size) => {
                tracing::debug!(rows = size.rows, columns = size.columns, "new size");
                self.buffer.resize(size);
            }
            ToScreen::Viewer { id } => {
                tracing::info!(viewer = id, "viewer attached");
                if let Some(socket) = descriptors.pop() {
                    self.viewers.insert(id, Viewer::new(socket));
                }
            }
            ToScreen::Redraw { id } => self.change_view(id, View::redraw),
            ToScreen::Scroll { id, lines } => self.change_view(id, |view| view.scroll(lines)),
            ToScreen::Gone { id } => {
                tracing::info!(viewer = id, "viewer disconnected");
                self.viewers.remove(&id);
            }
        }
        Ok(true)
    }

    /// Changes the view of a viewer, if the viewer is still attached.
    fn change_view(&mut self, id: u64, change: impl FnOnce(&mut View)) {
        if let Some(viewer) = self.viewers.get_mut(&id) {
            change(&mut viewer.view);
        }
    }

    /// Draws the screen for each viewer that has received its last drawing completely. Removes viewers that
    /// cannot be written to.
    fn draw(&mut self) {
        let buffer = &mut self.buffer;
        self.viewers.retain(|_, viewer| {
            viewer
                .send()
                .and_then(|()| {
                    if !viewer.has_pending() {
                        viewer.drawing = buffer.draw(&mut viewer.view);
                        tracing::trace!(bytes = viewer.drawing.len(), "screen is drawn");
                        viewer.sent = 0;
                    }
                    viewer.send()
                })
                .is_ok()
        });
    }
}

impl Viewer {
    fn new(socket: OwnedFd) -> Self {
        Self { socket, view: View::new(), drawing: Vec::new(), sent: 0 }
    }

    /// Returns whether a part of the last drawing was not sent yet.
    fn has_pending(&self) -> bool {
        self.sent < self.drawing.len()
    }

    /// Returns whether the viewer's terminal does not show the current screen yet.
    fn needs_data(&self, buffer: &ScreenBuffer) -> bool {
        self.has_pending() || self.view.is_stale(buffer)
    }

    /// Sends as much of the last drawing as the socket accepts without blocking.
    fn send(&mut self) -> io::Result<()> {
        while self.has_pending() {
            let rest = self.drawing.get(self.sent..).unwrap_or_default();
            match rustix::net::send(&self.socket, rest, SendFlags::DONTWAIT | SendFlags::NOSIGNAL) {
                Ok(sent) => self.sent += sent,
                Err(rustix::io::Errno::AGAIN) => return Ok(()),
                Err(rustix::io::Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }
}
