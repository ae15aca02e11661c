//! Copies the standard streams between a box and the host, one chunk at a time.
//!
//! A box never holds a descriptor of the host, so all its input and output passes through this module.
//! No write blocks: a reader on the host that stopped reading would otherwise delay the enforcement of
//! the deadline. So the host's side is written only when it is ready, and with at most `PIPE_BUF` bytes.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::event::{PollFd, PollFlags};

/// An output stream of a payload: standard output or standard error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stream {
    Output,
    Error,
}

/// A function that filters output before it reaches the operator's terminal. It appends the
/// filtered bytes to the buffer.
pub type OutputFilter<'a> = dyn FnMut(Stream, &[u8], &mut Vec<u8>) + 'a;

/// An [`OutputFilter`] for a single stream.
pub(crate) type Filter<'a> = &'a mut dyn FnMut(&[u8], &mut Vec<u8>);

/// The size of a write that a ready pipe accepts without blocking (`PIPE_BUF`).
const ATOMIC_WRITE: usize = 4096;
const CHUNK: usize = 64 * 1024;

/// A copy in one direction, from a source to a sink.
#[derive(Debug)]
pub(crate) struct Flow<'a> {
    /// The source of the flow; `None` after the end of its input.
    from: Option<Source<'a>>,
    /// The sink of the flow; `None` after it was closed.
    to: Option<Sink<'a>>,
    pending: Vec<u8>,
    sent: usize,
    /// The number of bytes that the flow has read so far.
    pub(crate) total: u64,
    last: Option<u8>,
    /// Error of the host's side. The bytes after it are read and dropped, so that the program goes on.
    lost: Option<io::Error>,
}

#[derive(Debug)]
enum Source<'a> {
    Host(BorrowedFd<'a>),
    /// The descriptor of the box's output; dropping it ends a payload that continues to write.
    Box(OwnedFd),
}

#[derive(Debug)]
enum Sink<'a> {
    Host(BorrowedFd<'a>),
    /// The descriptor of the box's input; dropping it is end-of-file for the payload.
    Box(OwnedFd),
}

impl<'a> Flow<'a> {
    /// Creates a flow that copies input of the operator into the box.
    pub(crate) fn inwards(from: BorrowedFd<'a>, to: OwnedFd) -> Self {
        Self::new(Source::Host(from), Sink::Box(to))
    }

    /// Creates a flow that copies output of the box to the operator.
    pub(crate) fn outwards(from: OwnedFd, to: BorrowedFd<'a>) -> Self {
        Self::new(Source::Box(from), Sink::Host(to))
    }

    fn new(from: Source<'a>, to: Sink<'a>) -> Self {
        let (from, to, pending) = (Some(from), Some(to), Vec::new());
        Self { from, to, pending, sent: 0, total: 0, last: None, lost: None }
    }

    /// Returns whether the flow has ended, so that no more bytes can pass.
    pub(crate) fn is_over(&self) -> bool {
        self.to.is_none() || (self.from.is_none() && !self.has_pending())
    }

    /// Returns the descriptor and event that the flow waits for next, or `None` after its end.
    pub(crate) fn interest(&self) -> Option<PollFd<'_>> {
        let to = self.to.as_ref()?;
        if self.has_pending() {
            return Some(PollFd::from_borrowed_fd(to.fd(), PollFlags::OUT));
        }
        let from = self.from.as_ref()?;
        Some(PollFd::from_borrowed_fd(from.fd(), PollFlags::IN))
    }

    /// Performs one read or write of the flow after the descriptor of [`Self::interest`] became
    /// ready.
    pub(crate) fn advance(&mut self, filter: Option<Filter<'_>>) -> io::Result<()> {
        if self.has_pending() { self.write() } else { self.read(filter) }
    }

    /// Returns whether the last byte of the flow was a newline, or no byte was read.
    pub(crate) fn ended_in_newline(&self) -> bool {
        self.last.is_none_or(|last| last == b'\n')
    }

    /// Takes the error because of which output was lost, such as a full disk.
    pub(crate) const fn take_lost(&mut self) -> Option<io::Error> {
        self.lost.take()
    }

    /// Stops reading. Bytes that were already read are still written.
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
            Err(rustix::io::Errno::IO) => 0, // the other side of the terminal is closed
            // Input that cannot be read, such as a directory, is the operator's and ends.
            Err(_) if matches!(from, Source::Host(_)) => 0,
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
                let mut filtered = Vec::with_capacity(read);
                filter(&chunk, &mut filtered);
                filtered
            }
            _ => chunk,
        };
        if self.lost.is_some() {
            self.pending.clear();
        }
        self.close_if_done();
        Ok(())
    }

    fn write(&mut self) -> io::Result<()> {
        let Some(to) = &self.to else { return Ok(()) };
        let end = self.pending.len().min(self.sent + ATOMIC_WRITE);
        let slice = self.pending.get(self.sent..end).unwrap_or_default();
        match rustix::io::write(to.fd(), slice) {
            Ok(wrote) => self.sent += wrote,
            Err(rustix::io::Errno::INTR | rustix::io::Errno::AGAIN) => {}
            Err(rustix::io::Errno::PIPE | rustix::io::Errno::IO) => self.to = None,
            Err(error) if matches!(to, Sink::Host(_)) => {
                // The program has done its work, or is doing it: only its output is lost.
                self.lost = Some(error.into());
                self.pending.clear();
                self.sent = 0;
            }
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

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::io::Write as _;

    use super::*;

    #[test]
    fn output_that_cannot_be_written_is_read_to_its_end_and_reported() {
        let full = File::options().write(true).open("/dev/full").unwrap();
        let (from_box, payload) = rustix::pipe::pipe().unwrap();
        let mut flow = Flow::outwards(from_box, full.as_fd());
        let mut payload = File::from(payload);
        payload.write_all(b"some text\n").unwrap();
        flow.advance(None).unwrap(); // reads
        flow.advance(None).unwrap(); // fails to write
        for _ in 0..2 {
            payload.write_all(b"some text\n").unwrap();
            flow.advance(None).unwrap(); // reads and drops
        }
        assert!(!flow.is_over(), "the program can go on writing");
        drop(payload);
        flow.advance(None).unwrap();
        assert!(flow.is_over());
        assert_eq!(flow.total, 30);
        assert_eq!(flow.take_lost().unwrap().kind(), io::ErrorKind::StorageFull);
    }
}
