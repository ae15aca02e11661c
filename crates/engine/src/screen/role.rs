//! The process that keeps a screen: locks itself in, takes what the box wrote, draws for who looks.

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
use super::protocol::{Answer, Size, ToScreen};
use crate::error::{EngineError, ErrorKind, WithKind as _};
use crate::lockdown::{self, LockedRole};

/// Where [`belljar_sys::clone::spawn`] puts the socket to the keeper.
const CONTROL: i32 = belljar_sys::clone::CONTROL_FD;

/// While a box writes on and on it is drawn so often.
const FRAME: Duration = Duration::from_millis(20);
/// How long viewers get to take the last of it.
const FAREWELL: Duration = Duration::from_secs(1);

/// Runs as a screen until its box is gone.
pub fn main() -> Result<(), EngineError> {
    let adopted = belljar_sys::exec::adopt(CONTROL).context("find the socket to the supervisor");
    let control = adopted.kind(ErrorKind::Broken)?;
    rustix::process::setsid().ok(); // what is sent to the keeper's group is not for us
    // On failure the supervisor sees the end of the connection.
    lockdown::enter(LockedRole::Screen).kind(ErrorKind::Broken)?;
    tracing::debug!("screen is locked in");
    let mut studio =
        ScreenServer { control, canvas: ScreenBuffer::new(Size::USUAL), viewers: BTreeMap::new() };
    studio.work().context("draw the screen").kind(ErrorKind::Broken)
}

/// A screen and those who look at it.
struct ScreenServer {
    control: OwnedFd,
    canvas: ScreenBuffer,
    viewers: BTreeMap<u64, Viewer>,
}

struct Viewer {
    line: OwnedFd,
    view: View,
    /// Drawn, and not taken yet.
    pending: Vec<u8>,
    taken: usize,
}

impl ScreenServer {
    fn work(&mut self) -> io::Result<()> {
        let mut drawn = Instant::now();
        loop {
            let rest = FRAME.saturating_sub(drawn.elapsed());
            let waits = self.viewers.values().any(|viewer| viewer.wants(&self.canvas));
            let heard = self.wait(waits.then_some(rest))?;
            if heard && !self.hear()? {
                break;
            }
            if !heard || drawn.elapsed() >= FRAME {
                self.draw();
                drawn = Instant::now();
            }
        }
        let until = Instant::now() + FAREWELL;
        self.draw();
        while Instant::now() < until && self.viewers.values().any(|it| it.wants(&self.canvas)) {
            self.wait_for_viewers(until.saturating_duration_since(Instant::now()))?;
            self.draw();
        }
        Ok(())
    }

    /// Waits for the keeper, or until it is time to draw; whether the keeper said something. What a
    /// viewer is slow to take is waited for too.
    fn wait(&self, rest: Option<Duration>) -> io::Result<bool> {
        let mut polled = vec![PollFd::from_borrowed_fd(self.control.as_fd(), PollFlags::IN)];
        let slow = self.viewers.values().filter(|viewer| viewer.has_pending());
        polled.extend(slow.map(|viewer| PollFd::new(&viewer.line, PollFlags::OUT)));
        let has_drawable =
            self.viewers.values().any(|it| !it.has_pending() && it.wants(&self.canvas));
        let rest = rest.filter(|_| has_drawable).map(timespec);
        match rustix::event::poll(&mut polled, rest.as_ref()) {
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
        Ok(polled.first().is_some_and(|control| !control.revents().is_empty()))
    }

    fn wait_for_viewers(&self, most: Duration) -> io::Result<()> {
        let slow = self.viewers.values().filter(|viewer| viewer.has_pending());
        let mut polled: Vec<PollFd<'_>> =
            slow.map(|viewer| PollFd::new(&viewer.line, PollFlags::OUT)).collect();
        match rustix::event::poll(&mut polled, Some(&timespec(most))) {
            Ok(_) | Err(rustix::io::Errno::INTR) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    /// Takes one word of the keeper; false at the last one.
    fn hear(&mut self) -> io::Result<bool> {
        let word = wire::receive::<ToScreen>(self.control.as_fd(), wire::MAX_MESSAGE)?;
        let Some((word, mut with)) = word else { return Ok(false) };
        match word {
            ToScreen::Output(output) => {
                tracing::trace!(bytes = output.len(), "output of the box");
                let answer = self.canvas.write(&output);
                if !answer.is_empty() {
                    wire::send(self.control.as_fd(), &Answer(answer), &[])?;
                }
            }
            ToScreen::Gap => {
                tracing::debug!("output was skipped");
                self.canvas.skip();
            }
            ToScreen::Size(size) => {
                tracing::debug!(rows = size.rows, columns = size.columns, "new size");
                self.canvas.resize(size);
            }
            ToScreen::Viewer { id } => {
                tracing::info!(viewer = id, "viewer attached");
                if let Some(line) = with.pop() {
                    self.viewers.insert(id, Viewer::new(line));
                }
            }
            ToScreen::Redraw { id } => self.look(id, View::redraw),
            ToScreen::Scroll { id, lines } => self.look(id, |view| view.scroll(lines)),
            ToScreen::Gone { id } => {
                tracing::info!(viewer = id, "viewer left");
                self.viewers.remove(&id);
            }
        }
        Ok(true)
    }

    fn look(&mut self, id: u64, act: impl FnOnce(&mut View)) {
        if let Some(viewer) = self.viewers.get_mut(&id) {
            act(&mut viewer.view);
        }
    }

    /// Draws for everybody who has taken all that was drawn before. The others get what is there when
    /// they have.
    fn draw(&mut self) {
        let canvas = &mut self.canvas;
        self.viewers.retain(|_, viewer| {
            viewer
                .send()
                .and_then(|()| {
                    if !viewer.has_pending() {
                        viewer.pending = canvas.draw(&mut viewer.view);
                        tracing::trace!(bytes = viewer.pending.len(), "screen is drawn");
                        viewer.taken = 0;
                    }
                    viewer.send()
                })
                .is_ok()
        });
    }
}

impl Viewer {
    fn new(line: OwnedFd) -> Self {
        Self { line, view: View::new(), pending: Vec::new(), taken: 0 }
    }

    fn has_pending(&self) -> bool {
        self.taken < self.pending.len()
    }

    fn wants(&self, canvas: &ScreenBuffer) -> bool {
        self.has_pending() || self.view.is_stale(canvas)
    }

    /// Sends what the line takes now.
    fn send(&mut self) -> io::Result<()> {
        while self.has_pending() {
            let rest = self.pending.get(self.taken..).unwrap_or_default();
            match rustix::net::send(&self.line, rest, SendFlags::DONTWAIT | SendFlags::NOSIGNAL) {
                Ok(sent) => self.taken += sent,
                Err(rustix::io::Errno::AGAIN) => return Ok(()),
                Err(rustix::io::Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }
}
