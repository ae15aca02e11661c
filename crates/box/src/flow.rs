//! Bytes on their way between the box and the host, one chunk at a time.
//!
//! The box never holds a descriptor of the host, so everything it reads and writes passes here. No
//! write may block, or a stopped reader of ours would keep us from enforcing the deadline: the host's
//! side is written only when it is ready, and then no more than a pipe surely takes.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::event::{PollFd, PollFlags};

/// Which of the payload's outputs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stream {
    Output,
    Error,
}

/// Rewrites what is about to reach the operator's terminal; appends to the buffer.
pub type Guard<'a> = dyn FnMut(Stream, &[u8], &mut Vec<u8>) + 'a;

/// The same for one stream.
pub(crate) type Filter<'a> = &'a mut dyn FnMut(&[u8], &mut Vec<u8>);

/// A pipe that is ready takes this much without blocking (PIPE_BUF).
const SURE: usize = 4096;
const CHUNK: usize = 64 * 1024;

/// One direction.
#[derive(Debug)]
pub(crate) struct Flow<'a> {
    /// `None`: nothing more comes.
    from: Option<Source<'a>>,
    /// `None`: nobody wants it any more.
    to: Option<Sink<'a>>,
    pending: Vec<u8>,
    sent: usize,
    /// Bytes read so far.
    pub(crate) total: u64,
    last: Option<u8>,
}

#[derive(Debug)]
enum Source<'a> {
    Host(BorrowedFd<'a>),
    /// Closed by dropping, which ends a payload that goes on writing.
    Box(OwnedFd),
}

#[derive(Debug)]
enum Sink<'a> {
    Host(BorrowedFd<'a>),
    /// Closed by dropping, which the payload sees as the end of its input.
    Box(OwnedFd),
}

impl<'a> Flow<'a> {
    /// From the operator into the box.
    pub(crate) fn inwards(from: BorrowedFd<'a>, to: OwnedFd) -> Self {
        Self::new(Source::Host(from), Sink::Box(to))
    }

    /// From the box to the operator.
    pub(crate) fn outwards(from: OwnedFd, to: BorrowedFd<'a>) -> Self {
        Self::new(Source::Box(from), Sink::Host(to))
    }

    fn new(from: Source<'a>, to: Sink<'a>) -> Self {
        Self { from: Some(from), to: Some(to), pending: Vec::new(), sent: 0, total: 0, last: None }
    }

    /// Whether nothing can come through any more.
    pub(crate) fn is_over(&self) -> bool {
        self.to.is_none() || (self.from.is_none() && !self.has_pending())
    }

    /// What to wait for next.
    pub(crate) fn interest(&self) -> Option<PollFd<'_>> {
        let to = self.to.as_ref()?;
        if self.has_pending() {
            return Some(PollFd::from_borrowed_fd(to.fd(), PollFlags::OUT));
        }
        let from = self.from.as_ref()?;
        Some(PollFd::from_borrowed_fd(from.fd(), PollFlags::IN))
    }

    /// Makes one step after the descriptor of [`Self::interest`] was ready.
    pub(crate) fn advance(&mut self, filter: Option<Filter<'_>>) -> io::Result<()> {
        if self.has_pending() { self.write() } else { self.read(filter) }
    }

    /// Whether what came through ends a line, or nothing came.
    pub(crate) fn ended_in_newline(&self) -> bool {
        self.last.is_none_or(|last| last == b'\n')
    }

    /// Stops reading; what was read still goes out.
    pub(crate) fn end_input(&mut self) {
        self.from = None;
        self.close_if_done();
    }

    fn has_pending(&self) -> bool {
        self.sent < self.pending.len()
    }

    fn read(&mut self, filter: Option<Filter<'_>>) -> io::Result<()> {
        let Some(from) = &self.from else { return Ok(()) };
        let mut chunk = vec![0; CHUNK];
        let read = match rustix::io::read(from.fd(), &mut chunk) {
            Ok(0) => 0,
            Ok(read) => read,
            Err(rustix::io::Errno::INTR | rustix::io::Errno::AGAIN) => return Ok(()),
            Err(rustix::io::Errno::IO) => 0, // a terminal whose other side is closed
            Err(error) => return Err(error.into()),
        };
        chunk.truncate(read);
        if read == 0 {
            self.from = None;
        }
        self.total += read as u64;
        self.last = chunk.last().copied().or(self.last);
        self.sent = 0;
        self.pending = match filter {
            Some(filter) if read > 0 => {
                let mut kept = Vec::with_capacity(read);
                filter(&chunk, &mut kept);
                kept
            }
            _ => chunk,
        };
        self.close_if_done();
        Ok(())
    }

    fn write(&mut self) -> io::Result<()> {
        let Some(to) = &self.to else { return Ok(()) };
        let end = self.pending.len().min(self.sent + SURE);
        let slice = self.pending.get(self.sent..end).unwrap_or_default();
        match rustix::io::write(to.fd(), slice) {
            Ok(wrote) => self.sent += wrote,
            Err(rustix::io::Errno::INTR | rustix::io::Errno::AGAIN) => {}
            Err(rustix::io::Errno::PIPE | rustix::io::Errno::IO) => self.to = None,
            Err(error) => return Err(error.into()),
        }
        self.close_if_done();
        Ok(())
    }

    fn close_if_done(&mut self) {
        if self.from.is_none() && !self.has_pending() {
            self.to = None;
        }
        if self.to.is_none() {
            self.from = None;
        }
    }
}

impl Source<'_> {
    fn fd(&self) -> BorrowedFd<'_> {
        match self {
            Self::Host(fd) => *fd,
            Self::Box(fd) => fd.as_fd(),
        }
    }
}

impl Sink<'_> {
    fn fd(&self) -> BorrowedFd<'_> {
        match self {
            Self::Host(fd) => *fd,
            Self::Box(fd) => fd.as_fd(),
        }
    }
}
