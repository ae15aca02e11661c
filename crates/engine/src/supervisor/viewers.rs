//! The clients that are attached to a box, and the connection to the screen process that draws for them.
//!
//! The box never waits for a client. Its output goes into a bounded queue; the oldest output is dropped
//! when the screen process is too slow. The screen process deals with slow clients.

use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::net::UnixStream;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use belljar_init::wire;
use rustix::process::Signal;
use rustix::termios::Winsize;

use super::connection::{receive_small, send};
use super::listener::refused;
use super::protocol::{FromSupervisor, ToSupervisor};
use super::session::BoxSession;
use crate::screen::Screen;
use crate::screen::protocol::{Answer, MAX_OUTPUT, Size, ToScreen};

/// The most output that waits for the screen process.
const BACKLOG: usize = 8 << 20; // bytes
/// The most clients that are attached at once.
const MOST: usize = 32;
/// The time that the screen process has to draw the end of the output.
const FAREWELL: Duration = Duration::from_secs(2);
/// The screen process is started again after a crash, at most so often.
const SCREENS: u32 = 100;

/// The supervisor's side of a box's screen.
#[derive(Debug)]
pub(super) struct ScreenFeed {
    /// The terminal of the box.
    terminal: OwnedFd,
    state: Mutex<State>,
    /// Signalled when the queue has something new, or the box ended.
    news: Condvar,
}

#[derive(Debug, Default)]
struct State {
    queue: VecDeque<Item>,
    /// The number of bytes of output in the queue.
    waiting: usize,
    viewers: BTreeMap<u64, Viewer>,
    next: u64,
    size: Option<Size>,
    /// The program ended.
    is_closed: bool,
    /// The screen process has drawn everything.
    is_over: bool,
    /// The process that keeps the screen.
    process: Option<OwnedFd>,
}

#[derive(Debug)]
struct Viewer {
    line: UnixStream,
    size: Size,
}

#[derive(Debug)]
enum Item {
    Output(Vec<u8>),
    Word(ToScreen),
    /// This screen ended, and the next one must be started.
    Lost(u32),
}

impl ScreenFeed {
    pub(super) fn new(terminal: OwnedFd) -> Self {
        Self { terminal, state: Mutex::default(), news: Condvar::new() }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes output of the box. Never waits.
    pub(super) fn output(&self, chunk: &[u8]) {
        let mut state = self.state();
        if state.waiting + chunk.len() > BACKLOG {
            state.queue.retain(|item| !matches!(item, Item::Output(_)));
            state.queue.push_back(Item::Word(ToScreen::Gap));
            state.waiting = 0;
        }
        state.waiting += chunk.len();
        match state.queue.back_mut() {
            Some(Item::Output(last)) if last.len() + chunk.len() <= MAX_OUTPUT => {
                last.extend_from_slice(chunk);
            }
            _ => {
                let pieces = chunk.chunks(MAX_OUTPUT).map(|piece| Item::Output(piece.to_vec()));
                state.queue.extend(pieces);
            }
        }
        drop(state);
        self.news.notify_one();
    }

    fn tell(&self, state: &mut State, word: ToScreen) {
        state.queue.push_back(Item::Word(word));
        self.news.notify_one();
    }

    /// Adds a client. `None`: too many are attached, or the program ended.
    fn join(&self, line: UnixStream, size: Size) -> Option<u64> {
        let mut state = self.state();
        if state.viewers.len() >= MOST || state.is_closed {
            return None;
        }
        let id = state.next;
        state.next += 1;
        state.viewers.insert(id, Viewer { line, size });
        self.fit(&mut state);
        self.tell(&mut state, ToScreen::Viewer { id });
        Some(id)
    }

    fn resize(&self, id: u64, size: Size) {
        let mut state = self.state();
        if let Some(viewer) = state.viewers.get_mut(&id) {
            viewer.size = size;
        }
        self.fit(&mut state);
        self.tell(&mut state, ToScreen::Redraw { id });
    }

    fn scroll(&self, id: u64, lines: Option<i32>) {
        self.tell(&mut self.state(), ToScreen::Scroll { id, lines });
    }

    fn leave(&self, id: u64) {
        let mut state = self.state();
        state.viewers.remove(&id);
        self.fit(&mut state);
        self.tell(&mut state, ToScreen::Gone { id });
    }

    /// The number of attached clients.
    pub(super) fn viewers(&self) -> usize {
        self.state().viewers.len()
    }

    /// Sets the terminal to the largest size that fits into the terminals of all clients.
    fn fit(&self, state: &mut State) {
        let sizes = state.viewers.values().map(|viewer| viewer.size);
        let Some(size) = sizes.reduce(Size::within) else { return };
        if state.size == Some(size) {
            return;
        }
        state.size = Some(size);
        // The screen first: what the program draws for the new size comes after.
        self.tell(state, ToScreen::Size(size));
        let (ws_row, ws_col) = (size.rows, size.columns);
        let size = Winsize { ws_row, ws_col, ws_xpixel: 0, ws_ypixel: 0 };
        rustix::termios::tcsetwinsize(&self.terminal, size).ok(); // the box may be gone
    }

    /// Runs screen processes until the box ends. Called on a thread of its own.
    pub(super) fn run(&self, session: &Arc<BoxSession>) {
        for count in 0..SCREENS {
            let Ok(screen) = Screen::start(session.run) else { break };
            tracing::debug!(count, "screen started");
            let lost = self.show(&screen, count, session).is_err();
            if !lost {
                self.farewell(screen);
                break;
            }
        }
        let mut state = self.state();
        (state.is_over, state.is_closed) = (true, true);
        for viewer in state.viewers.values() {
            viewer.line.shutdown(std::net::Shutdown::Both).ok(); // or they have left
        }
        state.queue.clear();
        drop(state);
        self.news.notify_all();
    }

    /// Sends everything to one screen process until the box ends. An error: the screen process ended.
    fn show(&self, screen: &Screen, count: u32, session: &Arc<BoxSession>) -> io::Result<()> {
        self.listen(screen, count, session)?;
        self.introduce(screen)?;
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
                    state = self.news.wait(state).unwrap_or_else(PoisonError::into_inner);
                }
            };
            match item {
                Item::Lost(which) if which == count => return Err(io::ErrorKind::BrokenPipe.into()),
                Item::Lost(_) => {} // we know
                item @ (Item::Output(_) | Item::Word(_)) => self.pass(screen, item)?,
            }
        }
    }

    fn pass(&self, screen: &Screen, item: Item) -> io::Result<()> {
        let line = screen.line.as_fd();
        match item {
            Item::Lost(_) => Ok(()),
            Item::Output(output) => {
                {
                    let mut state = self.state();
                    state.waiting = state.waiting.saturating_sub(output.len());
                }
                wire::send(line, &ToScreen::Output(output), &[])
            }
            Item::Word(word @ ToScreen::Viewer { id }) => {
                let viewer = self.state().viewers.get(&id).map(|it| it.line.try_clone());
                match viewer.transpose()? {
                    Some(viewer) => wire::send(line, &word, &[viewer.as_fd()]),
                    None => Ok(()), // gone before they were seen
                }
            }
            Item::Word(word) => wire::send(line, &word, &[]),
        }
    }

    /// Sends size and clients to a new screen process. What the last one showed is lost.
    fn introduce(&self, screen: &Screen) -> io::Result<()> {
        let (size, viewers) = {
            let mut state = self.state();
            state.process = Some(screen.pidfd()?);
            state.queue.retain(|item| match item {
                Item::Output(_) => true,
                Item::Word(_) | Item::Lost(_) => false,
            });
            let viewers: io::Result<Vec<_>> =
                state.viewers.iter().map(|(id, it)| Ok((*id, it.line.try_clone()?))).collect();
            (state.size, viewers?)
        };
        let line = screen.line.as_fd();
        if let Some(size) = size {
            wire::send(line, &ToScreen::Size(size), &[])?;
        }
        for (id, viewer) in viewers {
            wire::send(line, &ToScreen::Viewer { id }, &[viewer.as_fd()])?;
        }
        Ok(())
    }

    /// Passes on the answers of the terminal to the program, on a thread of its own.
    fn listen(&self, screen: &Screen, count: u32, session: &Arc<BoxSession>) -> io::Result<()> {
        let (line, session) = (screen.line.try_clone()?, Arc::clone(session));
        crate::logging::spawn(move || {
            while let Ok(Some((Answer(answer), _))) =
                wire::receive::<Answer>(line.as_fd(), wire::MAX_SMALL_MESSAGE)
            {
                session.type_answer(&answer);
            }
            if let Some(feed) = session.screen() {
                feed.state().queue.push_back(Item::Lost(count));
                feed.news.notify_one();
            }
        });
        Ok(())
    }

    /// Lets the screen process draw the end of the output.
    fn farewell(&self, screen: Screen) {
        rustix::net::shutdown(&screen.line, rustix::net::Shutdown::Write).ok(); // or it is gone
        let mut rest = [0; 64];
        // It ends by itself, which ends the line.
        while rustix::net::recv(&screen.line, &mut rest, rustix::net::RecvFlags::empty())
            .is_ok_and(|(read, _)| read > 0)
        {}
        drop(screen);
    }

    /// The program ended: waits a short time until the screen process has drawn everything.
    pub(super) fn close(&self) {
        let until = Instant::now() + FAREWELL;
        let mut state = self.state();
        state.is_closed = true;
        self.news.notify_all();
        while !state.is_over {
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                if let Some(process) = &state.process {
                    rustix::process::pidfd_send_signal(process, Signal::KILL).ok(); // or it ended
                }
                return;
            }
            let waited = self.news.wait_timeout(state, left);
            state = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
    }
}

/// Serves an attached client until it disconnects.
pub(super) fn attach(
    client: &UnixStream,
    session: &BoxSession,
    size: Size,
    read_only: bool,
) -> io::Result<()> {
    let Some(feed) = session.screen() else {
        let why = "it has no terminal to attach to; `belljar logs` shows what it wrote";
        return send(client, &refused(session, why));
    };
    if feed.viewers() >= MOST {
        let why = format!("{MOST} viewers are attached already");
        return send(client, &refused(session, &why));
    }
    client.set_read_timeout(None)?;
    send(client, &FromSupervisor::Ok)?;
    let Some(id) = feed.join(client.try_clone()?, size.sane()) else { return Ok(()) };
    tracing::info!(viewer = id, read_only, "viewer attached");
    let ended = take_input(client, session, feed, id, read_only);
    feed.leave(id);
    tracing::info!(viewer = id, "viewer left");
    ended
}

fn take_input(
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
            feed.resize(id, size.sane());
        } else if let ToSupervisor::Scroll(lines) = message {
            feed.scroll(id, lines);
        } else {
            return Err(io::ErrorKind::InvalidData.into()); // no other message is expected here
        }
    }
    Ok(())
}
