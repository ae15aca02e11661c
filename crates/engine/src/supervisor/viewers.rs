//! The clients that are attached to a box (viewers), and the connection to the screen process that draws
//! for them.
//!
//! The box never waits for a viewer. Its output goes into a bounded queue. If the screen process is too
//! slow, queued output is dropped. The screen process handles slow viewers.

use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use belljar_init::wire;
use rustix::process::Signal;
use rustix::termios::Winsize;

use super::connection::{receive_small, send};
use super::output_log::OutputLog;
use super::protocol::{FromSupervisor, ToSupervisor};
use super::session::BoxSession;
use crate::screen::protocol::{MAX_OUTPUT, Size, TerminalReply, ToScreen};
use crate::screen::{Screen, log_lines};

/// The maximum amount of output that waits for the screen process, in bytes.
const MAX_QUEUED_OUTPUT: usize = 8 << 20;
/// The maximum number of viewers that are attached to a box at once.
const MAX_VIEWERS: usize = 32;
/// The time that the screen process has to draw the last output after the program ended.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(2);
/// The maximum number of times that the screen process of a box is started, including restarts after a
/// crash.
const MAX_SCREEN_STARTS: u32 = 100;

/// Passes the output of a box and the sockets of its viewers to the screen process.
#[derive(Debug)]
pub(super) struct ScreenFeed {
    /// The terminal of the box.
    terminal: OwnedFd,
    /// The output log of the box, which also has the sizes of its terminal.
    log: Arc<Mutex<OutputLog>>,
    state: Mutex<FeedState>,
    /// Notified when an item is queued or the box ends.
    changed: Condvar,
}

/// The queue and the viewers of a [`ScreenFeed`].
#[derive(Debug, Default)]
struct FeedState {
    queue: VecDeque<QueueItem>,
    /// The number of bytes of output in the queue.
    queued_bytes: usize,
    viewers: BTreeMap<u64, Viewer>,
    /// The id of the next viewer.
    next_id: u64,
    size: Option<Size>,
    /// Whether the program ended.
    is_closed: bool,
    /// Whether the screen process has drawn the last output.
    is_finished: bool,
    /// A handle of the current screen process.
    process: Option<OwnedFd>,
}

/// An attached client.
#[derive(Debug)]
struct Viewer {
    socket: UnixStream,
    /// The size of the client's terminal.
    size: Size,
}

/// An item in the queue for the screen process.
#[derive(Debug)]
enum QueueItem {
    Output(Vec<u8>),
    Message(ToScreen),
    /// Reports that the screen process with this number exited, and that the next one must be started.
    ScreenExited(u32),
}

impl ScreenFeed {
    pub(super) fn new(terminal: OwnedFd, log: Arc<Mutex<OutputLog>>) -> Self {
        Self { terminal, log, state: Mutex::default(), changed: Condvar::new() }
    }

    fn state(&self) -> MutexGuard<'_, FeedState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Puts output of the box into the queue, without blocking. A full queue drops its output.
    pub(super) fn output(&self, chunk: &[u8]) {
        let mut state = self.state();
        if state.queued_bytes + chunk.len() > MAX_QUEUED_OUTPUT {
            state.queue.retain(|item| !matches!(item, QueueItem::Output(_)));
            state.queue.push_back(QueueItem::Message(ToScreen::Gap));
            state.queued_bytes = 0;
        }
        state.queued_bytes += chunk.len();
        match state.queue.back_mut() {
            Some(QueueItem::Output(last)) if last.len() + chunk.len() <= MAX_OUTPUT => {
                last.extend_from_slice(chunk);
            }
            _ => {
                let pieces =
                    chunk.chunks(MAX_OUTPUT).map(|piece| QueueItem::Output(piece.to_vec()));
                state.queue.extend(pieces);
            }
        }
        drop(state);
        self.changed.notify_one();
    }

    /// Puts a message for the screen process into the queue.
    fn enqueue(&self, state: &mut FeedState, message: ToScreen) {
        state.queue.push_back(QueueItem::Message(message));
        self.changed.notify_one();
    }

    /// Adds a viewer and returns its id, or `None` if too many viewers are attached or the program ended.
    fn add_viewer(&self, socket: UnixStream, size: Size) -> Option<u64> {
        let mut state = self.state();
        if state.viewers.len() >= MAX_VIEWERS || state.is_closed {
            return None;
        }
        let id = state.next_id;
        state.next_id += 1;
        state.viewers.insert(id, Viewer { socket, size });
        self.update_size(&mut state);
        self.enqueue(&mut state, ToScreen::Viewer { id });
        Some(id)
    }

    /// Changes the size of a viewer's terminal.
    fn resize(&self, id: u64, size: Size) {
        let mut state = self.state();
        if let Some(viewer) = state.viewers.get_mut(&id) {
            viewer.size = size;
        }
        self.update_size(&mut state);
        self.enqueue(&mut state, ToScreen::Redraw { id });
    }

    fn scroll(&self, id: u64, lines: Option<i32>) {
        self.enqueue(&mut self.state(), ToScreen::Scroll { id, lines });
    }

    /// Removes a viewer that disconnected.
    fn remove_viewer(&self, id: u64) {
        let mut state = self.state();
        state.viewers.remove(&id);
        self.update_size(&mut state);
        self.enqueue(&mut state, ToScreen::Gone { id });
    }

    /// Returns the number of attached viewers.
    pub(super) fn viewers(&self) -> usize {
        self.state().viewers.len()
    }

    /// Sets the box's terminal to the largest size that fits into the terminals of all viewers.
    fn update_size(&self, state: &mut FeedState) {
        let sizes = state.viewers.values().map(|viewer| viewer.size);
        let Some(size) = sizes.reduce(Size::within) else { return };
        if state.size == Some(size) {
            return;
        }
        // `belljar logs` renders the log at the size that the program wrote it for.
        if state.size.unwrap_or(Size::DEFAULT) != size {
            let mut log = self.log.lock().unwrap_or_else(PoisonError::into_inner);
            log.write(&log_lines::size_mark(size));
        }
        state.size = Some(size);
        // The screen process gets the new size before the output that the program writes for this size.
        self.enqueue(state, ToScreen::Size(size));
        let (ws_row, ws_col) = (size.rows, size.columns);
        let size = Winsize { ws_row, ws_col, ws_xpixel: 0, ws_ypixel: 0 };
        rustix::termios::tcsetwinsize(&self.terminal, size).ok(); // the box may have ended
    }

    /// Runs a screen process until the box ends, and restarts it after a crash. Needs its own thread.
    pub(super) fn run(&self, session: &Arc<BoxSession>) {
        for count in 0..MAX_SCREEN_STARTS {
            // A supervisor is a process of the program that handles the roles.
            let program = Path::new("/proc/self/exe");
            let Ok(screen) = Screen::start(program, session.target.run) else { break };
            tracing::debug!(count, "screen started");
            let has_crashed = self.serve(&screen, count, session).is_err();
            if !has_crashed {
                self.finish(screen);
                break;
            }
        }
        let mut state = self.state();
        (state.is_finished, state.is_closed) = (true, true);
        for viewer in state.viewers.values() {
            viewer.socket.shutdown(std::net::Shutdown::Both).ok(); // the viewer may have disconnected
        }
        state.queue.clear();
        drop(state);
        self.changed.notify_all();
    }

    /// Sends queued items to one screen process until the box ends. Returns an error if the screen process
    /// exits before that.
    fn serve(&self, screen: &Screen, count: u32, session: &Arc<BoxSession>) -> io::Result<()> {
        self.forward_replies(screen, count, session)?;
        self.send_current_state(screen)?;
        loop {
            let item = {
                let mut state = self.state();
                loop {
                    if let Some(item) = state.queue.pop_front() {
                        break item;
                    }
                    if state.is_closed {
                        return Ok(());
                    }
                    state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
                }
            };
            match item {
                QueueItem::ScreenExited(exited) if exited == count => {
                    return Err(io::ErrorKind::BrokenPipe.into());
                }
                QueueItem::ScreenExited(_) => {} // an earlier screen process, which was already replaced
                item @ (QueueItem::Output(_) | QueueItem::Message(_)) => {
                    self.send_item(screen, item)?;
                }
            }
        }
    }

    /// Sends one queued item to the screen process.
    fn send_item(&self, screen: &Screen, item: QueueItem) -> io::Result<()> {
        let socket = screen.socket.as_fd();
        match item {
            QueueItem::ScreenExited(_) => Ok(()),
            QueueItem::Output(output) => {
                {
                    let mut state = self.state();
                    state.queued_bytes = state.queued_bytes.saturating_sub(output.len());
                }
                wire::send(socket, &ToScreen::Output(output), &[])
            }
            QueueItem::Message(message @ ToScreen::Viewer { id }) => {
                let viewer = self.state().viewers.get(&id).map(|it| it.socket.try_clone());
                match viewer.transpose()? {
                    Some(viewer) => wire::send(socket, &message, &[viewer.as_fd()]),
                    None => Ok(()), // the viewer has disconnected
                }
            }
            QueueItem::Message(message) => wire::send(socket, &message, &[]),
        }
    }

    /// Sends the size of the terminal and all viewers to a new screen process. The content that an earlier
    /// screen process showed is lost.
    fn send_current_state(&self, screen: &Screen) -> io::Result<()> {
        let (size, viewers) = {
            let mut state = self.state();
            state.process = Some(screen.pidfd()?);
            state.queue.retain(|item| match item {
                QueueItem::Output(_) => true,
                QueueItem::Message(_) | QueueItem::ScreenExited(_) => false,
            });
            let viewers: io::Result<Vec<_>> =
                state.viewers.iter().map(|(id, it)| Ok((*id, it.socket.try_clone()?))).collect();
            (state.size, viewers?)
        };
        let socket = screen.socket.as_fd();
        if let Some(size) = size {
            wire::send(socket, &ToScreen::Size(size), &[])?;
        }
        for (id, viewer) in viewers {
            wire::send(socket, &ToScreen::Viewer { id }, &[viewer.as_fd()])?;
        }
        Ok(())
    }

    /// Starts a thread that passes the terminal's replies from the screen process to the program. When the
    /// screen process exits, the thread puts [`QueueItem::ScreenExited`] into the queue.
    fn forward_replies(
        &self,
        screen: &Screen,
        count: u32,
        session: &Arc<BoxSession>,
    ) -> io::Result<()> {
        let (socket, session) = (screen.socket.try_clone()?, Arc::clone(session));
        crate::logging::spawn(move || {
            while let Ok(Some((TerminalReply(reply), _))) =
                wire::receive::<TerminalReply>(socket.as_fd(), wire::MAX_SMALL_MESSAGE)
            {
                session.type_reply(&reply);
            }
            if let Some(feed) = session.screen() {
                feed.state().queue.push_back(QueueItem::ScreenExited(count));
                feed.changed.notify_one();
            }
        });
        Ok(())
    }

    /// Waits until the screen process has drawn the last output and exited.
    fn finish(&self, screen: Screen) {
        rustix::net::shutdown(&screen.socket, rustix::net::Shutdown::Write).ok(); // it may have exited
        let mut rest = [0; 64];
        // The screen process exits after the last drawing, which closes the socket.
        while rustix::net::recv(&screen.socket, &mut rest, rustix::net::RecvFlags::empty())
            .is_ok_and(|(read, _)| read > 0)
        {}
        drop(screen);
    }

    /// Closes the feed after the program ended. Waits a short time until the screen process has drawn the
    /// last output, then kills it.
    pub(super) fn close(&self) {
        let deadline = Instant::now() + CLOSE_TIMEOUT;
        let mut state = self.state();
        state.is_closed = true;
        self.changed.notify_all();
        while !state.is_finished {
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                if let Some(process) = &state.process {
                    // An error means that the process has exited.
                    rustix::process::pidfd_send_signal(process, Signal::KILL).ok();
                }
                return;
            }
            let waited = self.changed.wait_timeout(state, left);
            state = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
    }
}

/// Attaches a client to the screen of a box, and serves the client until it disconnects.
pub(super) fn attach(
    client: &UnixStream,
    session: &BoxSession,
    size: Size,
    read_only: bool,
) -> io::Result<()> {
    let Some(feed) = session.screen() else {
        let why = "cannot attach: the box has no terminal; use `belljar logs` to see its output";
        return send(client, &session.target.refused(why));
    };
    if feed.viewers() >= MAX_VIEWERS {
        let why =
            format!("cannot attach: the maximum of {MAX_VIEWERS} attached clients is reached");
        return send(client, &session.target.refused(&why));
    }
    client.set_read_timeout(None)?;
    send(client, &FromSupervisor::Ok)?;
    let Some(id) = feed.add_viewer(client.try_clone()?, size.clamped()) else { return Ok(()) };
    tracing::info!(viewer = id, read_only, "viewer attached");
    let result = read_input(client, session, feed, id, read_only);
    feed.remove_viewer(id);
    tracing::info!(viewer = id, "viewer disconnected");
    result
}

/// Carries out the messages of an attached client until it disconnects.
fn read_input(
    client: &UnixStream,
    session: &BoxSession,
    feed: &ScreenFeed,
    id: u64,
    read_only: bool,
) -> io::Result<()> {
    while let Some(message) = receive_small(client)? {
        if let ToSupervisor::Keys(keys) = message {
            if !read_only {
                session.type_keys(&keys, client)?;
            }
        } else if let ToSupervisor::Resize(size) = message {
            feed.resize(id, size.clamped());
        } else if let ToSupervisor::Scroll(lines) = message {
            feed.scroll(id, lines);
        } else {
            return Err(io::ErrorKind::InvalidData.into()); // an unexpected message
        }
    }
    Ok(())
}
