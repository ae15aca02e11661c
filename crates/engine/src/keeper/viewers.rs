//! Those who look at the screen of a box, and the line to the process that draws it for them.
//!
//! Nobody here is waited for: what the box writes goes into a queue of bounded length, of which the
//! oldest is skipped when the screen does not keep up; a viewer who does not keep up is the screen's
//! to care for.

use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::net::UnixStream;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use belljar_init::wire;
use rustix::process::Signal;
use rustix::termios::Winsize;

use super::hub::Hub;
use super::protocol::{self, Reply, ViewerSays};
use crate::screen::Screen;
use crate::screen::word::{Answer, MAX_OUTPUT, Size, ToScreen};

/// So much of what the box wrote may wait for the screen.
const BACKLOG: usize = 8 << 20; // bytes
/// So many may look at once.
const MOST: usize = 32;
/// How long the screen gets to show the last of it.
const FAREWELL: Duration = Duration::from_secs(2);
/// A screen that ends of itself so often is not started any more.
const SCREENS: u32 = 100;

/// The screen of a box, seen from its keeper.
#[derive(Debug)]
pub(super) struct Stage {
    /// The terminal of the box.
    terminal: OwnedFd,
    state: Mutex<State>,
    /// Something is to be told to the screen, or it is over.
    news: Condvar,
}

#[derive(Debug, Default)]
struct State {
    queue: VecDeque<Item>,
    /// How many bytes of output are in it.
    waiting: usize,
    viewers: BTreeMap<u64, Viewer>,
    next: u64,
    size: Option<Size>,
    /// No more will come.
    is_closed: bool,
    /// The screen has shown the last of it.
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

impl Stage {
    pub(super) fn new(terminal: OwnedFd) -> Self {
        Self { terminal, state: Mutex::default(), news: Condvar::new() }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The box wrote something. Never waits.
    pub(super) fn heard(&self, chunk: &[u8]) {
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

    /// Somebody looks from now on; none if too many do.
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

    /// How many look.
    pub(super) fn viewers(&self) -> usize {
        self.state().viewers.len()
    }

    /// Gives the terminal the largest size that everybody sees all of.
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

    /// Keeps a screen at work until the box is over. For a thread of its own.
    pub(super) fn run(&self, hub: &Arc<Hub>) {
        for count in 0..SCREENS {
            let Ok(screen) = Screen::start(hub.run) else { break };
            tracing::debug!(count, "screen started");
            let lost = self.show(&screen, count, hub).is_err();
            if !lost {
                self.farewell(screen);
                break;
            }
        }
        let mut state = self.state();
        (state.is_over, state.is_closed) = (true, true);
        // Nobody sees anything any more.
        for viewer in state.viewers.values() {
            viewer.line.shutdown(std::net::Shutdown::Both).ok(); // or they have left
        }
        state.queue.clear();
        drop(state);
        self.news.notify_all();
    }

    /// Tells one screen everything until the box is over. An error: the screen ended.
    fn show(&self, screen: &Screen, count: u32, hub: &Arc<Hub>) -> io::Result<()> {
        self.listen(screen, count, hub)?;
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

    /// Tells a new screen what the one before knew, but for what was on it.
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

    /// Passes on what the terminal of the box answers, on a thread of its own.
    fn listen(&self, screen: &Screen, count: u32, hub: &Arc<Hub>) -> io::Result<()> {
        let (line, hub) = (screen.line.try_clone()?, Arc::clone(hub));
        crate::logging::spawn(move || {
            while let Ok(Some((Answer(answer), _))) =
                wire::receive::<Answer>(line.as_fd(), wire::MAX_WORD)
            {
                hub.answer(&answer);
            }
            if let Some(stage) = hub.stage() {
                stage.state().queue.push_back(Item::Lost(count));
                stage.news.notify_one();
            }
        });
        Ok(())
    }

    /// Lets the screen draw the last of it.
    fn farewell(&self, screen: Screen) {
        rustix::net::shutdown(&screen.line, rustix::net::Shutdown::Write).ok(); // or it is gone
        let mut rest = [0; 64];
        // It ends by itself, which ends the line.
        while rustix::net::recv(&screen.line, &mut rest, rustix::net::RecvFlags::empty())
            .is_ok_and(|(read, _)| read > 0)
        {}
        drop(screen);
    }

    /// The box is over: waits until everybody has seen the last of it, but not for long.
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

/// Serves one viewer until they leave.
pub(super) fn attend(line: &UnixStream, hub: &Hub, size: Size, read_only: bool) -> io::Result<()> {
    let Some(stage) = hub.stage() else {
        let why = "it has no terminal to attach to; `belljar logs` shows what it wrote";
        return protocol::send(line, &Reply::Refused(why.to_owned()));
    };
    if stage.viewers() >= MOST {
        let why = format!("{MOST} viewers are attached already");
        return protocol::send(line, &Reply::Refused(why));
    }
    line.set_read_timeout(None)?;
    protocol::send(line, &Reply::Done)?;
    let Some(id) = stage.join(line.try_clone()?, size.sane()) else { return Ok(()) };
    tracing::info!(viewer = id, read_only, "viewer attached");
    let heard = listen(line, hub, stage, id, read_only);
    stage.leave(id);
    tracing::info!(viewer = id, "viewer left");
    heard
}

fn listen(line: &UnixStream, hub: &Hub, stage: &Stage, id: u64, read_only: bool) -> io::Result<()> {
    while let Some(says) = protocol::receive::<ViewerSays>(line)? {
        match says {
            ViewerSays::Keys(keys) if !read_only => hub.feed(&keys, line)?,
            ViewerSays::Keys(_) => {}
            ViewerSays::Size(size) => stage.resize(id, size.sane()),
            ViewerSays::Scroll(lines) => stage.scroll(id, lines),
        }
    }
    Ok(())
}
