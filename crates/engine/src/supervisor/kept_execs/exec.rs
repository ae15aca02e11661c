//! One kept exec: its program, its streams and its client. All functions return at once.

use std::os::fd::BorrowedFd;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::time::Instant;

use rustix::event::{PollFd, PollFlags};

use super::client::{Client, Content};
use super::input::InputQueue;
use super::output::OutputStream;
use super::program::ExecProgram;
use crate::supervisor::connection::encode;
use crate::supervisor::exec_protocol::{
    ExecEnding, ExecId, ExecStatus, FromExec, KeptRange, Stream, ToExec, Violation,
};
use crate::supervisor::protocol::FromSupervisor;

/// What is known about an exec when it starts.
#[derive(Debug)]
pub(super) struct About {
    pub(super) id: ExecId,
    /// The start of the command line.
    pub(super) argv: Vec<Vec<u8>>,
    pub(super) maker: String,
    /// The time of the start, in milliseconds since the epoch.
    pub(super) started: u64,
}

/// A program in the box that belongs to the supervisor.
#[derive(Debug)]
pub(super) struct KeptExec {
    about: About,
    program: ExecProgram,
    input: InputQueue,
    streams: [OutputStream; 2],
    client: Option<Client>,
    /// A client with a last frame that is not written yet.
    leaving: Option<Client>,
    /// How the exec ended, and when. No more output is read.
    end: Option<(ExecEnding, Instant)>,
    /// Counts the exec as running.
    permit: Option<Arc<()>>,
}

/// A descriptor that an exec waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Source {
    Process,
    Input,
    Output(usize),
    Client,
    Leaving,
}

/// An offset of a client is behind the end of the stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Ahead;

impl KeptExec {
    pub(super) fn new(about: About, program: ExecProgram, permit: Arc<()>) -> Self {
        Self {
            about,
            program,
            input: InputQueue::default(),
            streams: [OutputStream::new(), OutputStream::new()],
            client: None,
            leaving: None,
            end: None,
            permit: Some(permit),
        }
    }

    pub(super) fn status(&self) -> ExecStatus {
        let [stdout, stderr] = self.ranges();
        ExecStatus {
            id: self.about.id,
            argv: self.about.argv.clone(),
            has_terminal: self.program.has_terminal(),
            maker: self.about.maker.clone(),
            started: self.about.started,
            end: self.end.map(|(end, _)| end),
            stdin_offset: self.input.read_offset(),
            stdout,
            stderr,
        }
    }

    fn ranges(&self) -> [KeptRange; 2] {
        self.streams.each_ref().map(|stream| stream.ring.range())
    }

    /// Returns when the exec has ended.
    pub(super) fn ended_at(&self) -> Option<Instant> {
        self.end.map(|(_, at)| at)
    }

    pub(super) const fn has_client(&self) -> bool {
        self.client.is_some() || self.leaving.is_some()
    }

    /// Returns the number of kept bytes of output.
    pub(super) fn kept_bytes(&self) -> usize {
        self.streams.iter().map(|stream| stream.ring.len()).sum()
    }

    /// Discards the kept output.
    pub(super) fn discard_output(&mut self) {
        self.streams.iter_mut().for_each(|stream| stream.ring.clear());
    }

    pub(super) fn signal(&self, number: i32) {
        self.program.signal(number);
    }

    /// Attaches a client that has the bytes of each stream before these offsets. An earlier client is told
    /// that it was replaced.
    pub(super) fn attach(&mut self, socket: UnixStream, from: [u64; 2]) -> Result<(), Ahead> {
        if from.iter().zip(self.ranges()).any(|(from, range)| *from > range.end) {
            return Err(Ahead);
        }
        let stdin_offset = self.input.read_offset();
        let attached = FromSupervisor::ExecAttached { stdin_offset };
        let client = encode(&attached).and_then(|it| Client::new(socket, it, from, stdin_offset));
        // A client whose socket is broken is closed.
        let Ok(client) = client else { return Ok(()) };
        self.leave(FromExec::TakenOver);
        self.streams.iter_mut().zip(from).for_each(|(stream, from)| stream.attached(from));
        self.client = Some(client);
        Ok(())
    }

    /// Does what can be done without waiting: reads the last output of a program that has ended, and sends
    /// output to the client. Returns the time at which a full stream has room again.
    pub(super) fn advance(
        &mut self,
        (now, millis): (Instant, u64),
        scratch: &mut [u8],
    ) -> Option<Instant> {
        let next = self.streams.iter_mut().filter_map(|stream| stream.next_room(now)).min();
        if let (Some(ended), None) = (self.program.ended(), &self.end)
            && self.program.drain(&mut self.streams, scratch)
        {
            self.program.close(&mut self.input);
            self.streams.iter_mut().for_each(|stream| stream.ring.shrink());
            let end = ExecEnding { at: millis, exit: ended.exit, signal: ended.signal };
            (self.end, self.permit) = (Some((end, now)), None);
        }
        if let Some(client) = &mut self.client {
            let end = self.end.map(|(end, _)| end);
            let content = Content { streams: &self.streams, input: &self.input, end };
            match client.send(&content) {
                Ok(is_done) if !is_done => {}
                Ok(_) => self.client = None,
                Err(_) => self.detach(),
            }
        }
        next.filter(|_| self.end.is_none())
    }

    /// Passes the descriptors to wait for to a function.
    pub(super) fn interests<'a>(&'a self, mut add: impl FnMut(Source, PollFd<'a>)) {
        let mut wait = |source, fd: Option<BorrowedFd<'a>>, events| {
            if let Some(fd) = fd {
                add(source, PollFd::from_borrowed_fd(fd, events));
            }
        };
        wait(Source::Process, self.program.process(), PollFlags::IN);
        let as_fd = std::os::fd::AsFd::as_fd;
        wait(Source::Input, self.program.input(&self.input).map(as_fd), PollFlags::OUT);
        for (index, stream) in self.streams.iter().enumerate() {
            let output = self.program.output(index).filter(|_| stream.room() > 0);
            wait(Source::Output(index), output.map(as_fd), PollFlags::IN);
        }
        if let Some(client) = &self.client {
            wait(Source::Client, Some(client.as_fd()), client.interest());
        }
        wait(Source::Leaving, self.leaving.as_ref().map(Client::as_fd), PollFlags::OUT);
    }

    /// Handles a descriptor that is ready.
    pub(super) fn ready(&mut self, source: Source, scratch: &mut [u8]) {
        match source {
            Source::Process => self.program.wait(),
            Source::Input => self.program.write(&mut self.input),
            Source::Output(index) => {
                if let Some(stream) = self.streams.get_mut(index) {
                    self.program.read(index, stream, scratch);
                }
            }
            Source::Client => self.receive(scratch),
            Source::Leaving => {
                if let Some(leaving) = &mut self.leaving
                    && !matches!(leaving.flush(), Ok(false))
                {
                    self.leaving = None;
                }
            }
        }
    }

    /// Carries out the frames of the client.
    fn receive(&mut self, scratch: &mut [u8]) {
        let Some(mut client) = self.client.take() else { return };
        let received = client.receive(scratch, |client, frame| self.handle(client, frame));
        self.client = Some(client);
        match received {
            Ok(Ok(())) => {}
            Ok(Err(violation)) => {
                self.leave(FromExec::Refused(violation));
                self.detach();
            }
            Err(_) => self.detach(),
        }
    }

    fn handle(&mut self, client: &mut Client, frame: ToExec<'_>) -> Result<(), Violation> {
        match frame {
            ToExec::Input { offset, data } => self.input.accept(offset, data)?,
            ToExec::EndOfInput => self.input.end(),
            ToExec::Signal(number) => self.program.signal(number),
            ToExec::Resize(size) => self.program.resize(size),
            ToExec::Received { stream, offset } => {
                let index = match stream {
                    Stream::Stdout => 0,
                    Stream::Stderr => 1,
                };
                let has_progress = client.acknowledge(index, offset)?;
                if let Some(stream) = self.streams.get_mut(index).filter(|_| has_progress) {
                    stream.received(offset);
                }
            }
        }
        Ok(())
    }

    /// Sends a last frame to the client, if there is one. A slow client gets it later.
    fn leave(&mut self, last: FromExec<'_>) {
        let Some(mut client) = self.client.take() else { return };
        client.finish(last);
        if matches!(client.flush(), Ok(false)) {
            self.leaving = Some(client);
        }
    }

    /// The client has disconnected.
    fn detach(&mut self) {
        self.client = None;
        self.streams.iter_mut().for_each(OutputStream::detached);
    }
}
