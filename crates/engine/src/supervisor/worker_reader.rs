//! Reads the messages of a worker and passes them on to the client.
//!
//! All bytes come from inside a box. Bytes that are no frame end the program. A frame is output, a tool call
//! that the client decides on, or the result.

use std::io::Write as _;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;

use belljar_box::Stream as Pipe;
use belljar_wire::{
    self as wire, FrameDecoder, FrameError, FromWorker, Job, ProgramError, ProgramResult, Stream,
};

use super::protocol::FromSupervisor;
use super::text::Text;
use crate::launch::output::OutputRecorder;

/// The output of one worker.
#[derive(Debug)]
pub(super) struct WorkerReader {
    /// To the client.
    connection: UnixStream,
    /// Ends the box when it is written to.
    halt: OwnedFd,
    cutter: FrameDecoder,
    /// The largest result that is passed on.
    output: u64,
    /// The job replaces the worker by a program, whose output has no frames.
    becomes_program: bool,
    is_program: bool,
    stdout: Text,
    stderr: Text,
    pub(super) tape: OutputRecorder,
    pub(super) done: Option<ProgramResult>,
    /// Why a message of the worker could not be read.
    pub(super) broken: Option<FrameError>,
}

impl WorkerReader {
    pub(super) fn new(
        (connection, halt): (UnixStream, OwnedFd),
        job: &Job,
        output: u64,
        tape: OutputRecorder,
    ) -> Self {
        let becomes_program = matches!(job, Job::Program(_) | Job::Bridge(_));
        let (stdout, stderr) = (Text::new(output), Text::new(output));
        let cutter = FrameDecoder::default();
        Self {
            connection,
            halt,
            cutter,
            output,
            becomes_program,
            is_program: false,
            stdout,
            stderr,
            tape,
            done: None,
            broken: None,
        }
    }

    /// Whether more was written than was passed on, of each stream.
    pub(super) const fn cut(&self) -> (bool, bool) {
        (self.stdout.is_cut(), self.stderr.is_cut())
    }

    /// Takes bytes that the box wrote.
    pub(super) fn read(&mut self, pipe: Pipe, bytes: &[u8]) {
        tracing::trace!(?pipe, bytes = bytes.len(), "worker wrote");
        match pipe {
            Pipe::Error => {
                let text = self.stderr.push(bytes);
                self.show(Stream::Stderr, text);
            }
            Pipe::Output if self.is_program => {
                let text = self.stdout.push(bytes);
                self.show(Stream::Stdout, text);
            }
            // A program can write to the same pipe. After bytes that are no frame, nothing is kept.
            Pipe::Output if self.broken.is_some() => {}
            Pipe::Output => {
                self.cutter.push(bytes);
                self.frames();
            }
        }
    }

    /// The box ended.
    pub(super) fn finish(&mut self) {
        let (stdout, stderr) = (self.stdout.finish(), self.stderr.finish());
        self.show(Stream::Stdout, stdout);
        self.show(Stream::Stderr, stderr);
    }

    fn frames(&mut self) {
        while self.broken.is_none() {
            match self.cutter.take::<FromWorker>() {
                Ok(Some(said)) => self.take(said),
                Ok(None) => return,
                Err(error) => {
                    tracing::warn!("worker sent an invalid message and its box is ended");
                    self.broken = Some(error);
                    self.cutter = FrameDecoder::default();
                    rustix::io::write(&self.halt, b"1").ok(); // or it is gone already
                }
            }
        }
    }

    fn take(&mut self, said: FromWorker) {
        match said {
            FromWorker::Ready if self.becomes_program => {
                self.is_program = true;
                let rest = self.cutter.rest();
                self.read(Pipe::Output, &rest);
            }
            FromWorker::Ready => {}
            FromWorker::Output { stream: Stream::Stdout, text } => {
                let text = self.stdout.cut(text);
                self.show(Stream::Stdout, text);
            }
            FromWorker::Output { stream: Stream::Stderr, text } => {
                let text = self.stderr.cut(text);
                self.show(Stream::Stderr, text);
            }
            FromWorker::Call { id, server, tool, input } => {
                tracing::debug!(call = id, server, tool, "program calls a tool");
                self.send(&FromSupervisor::ToolCall { id, server, tool, input });
            }
            FromWorker::Done(done) => {
                tracing::debug!(failed = done.trouble.is_some(), "program is done");
                let done = self.bounded(done);
                self.done.get_or_insert(done);
            }
        }
    }

    /// Replaces a result above the limit by an error that names the limit.
    fn bounded(&self, done: ProgramResult) -> ProgramResult {
        let length = done.value.as_ref().map_or(0, |value| value.get().len() as u64);
        if length <= self.output {
            return done;
        }
        let most = self.output;
        let message = format!("the result has {length} bytes of JSON, where {most} are the most");
        let name = "RangeError".to_owned();
        let trouble = ProgramError { name, message, stack: None, line: None, column: None };
        ProgramResult { value: None, trouble: Some(trouble) }
    }

    fn show(&mut self, stream: Stream, text: String) {
        if text.is_empty() {
            return;
        }
        let pipe = match stream {
            Stream::Stdout => Pipe::Output,
            Stream::Stderr => Pipe::Error,
        };
        self.tape.write(pipe, text.as_bytes());
        self.send(&FromSupervisor::Output { stream, text });
    }

    fn send(&mut self, message: &FromSupervisor) {
        // A client that is gone has closed the connection, which ends the box.
        if let Ok(bytes) = wire::encode(message) {
            self.connection.write_all(&bytes).ok();
        }
    }
}
