//! Reads the messages of a worker and passes them on to the client.
//!
//! All bytes come from inside a box and are untrusted. Bytes that are not a valid frame end the program. A
//! frame contains output, a tool call that the client checks, or the result.

use std::io::Write as _;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;

use belljar_box::Stream as Pipe;
use belljar_wire::{
    self as wire, FrameDecoder, FrameError, FromWorker, Job, ProgramError, ProgramResult, Stream,
};

use super::protocol::FromSupervisor;
use super::text_decoder::TextDecoder;
use crate::launch::output::OutputRecorder;

/// Reads the output of one worker and passes it on to the client.
#[derive(Debug)]
pub(super) struct WorkerReader {
    /// The connection to the client.
    connection: UnixStream,
    /// The writing end of the stop pipe. A byte that is written to this pipe kills the box.
    halt: OwnedFd,
    decoder: FrameDecoder,
    /// The maximum size of a result, in bytes.
    max_output: u64,
    /// Whether the worker will replace itself by a program whose output has no frames.
    becomes_program: bool,
    /// Whether the worker has replaced itself by a program.
    is_program: bool,
    stdout: TextDecoder,
    stderr: TextDecoder,
    pub(super) recorder: OutputRecorder,
    pub(super) done: Option<ProgramResult>,
    /// Whether the result of the program was larger than its limit.
    is_too_large: bool,
    /// The reason why a message of the worker could not be read.
    pub(super) frame_error: Option<FrameError>,
}

impl WorkerReader {
    pub(super) fn new(
        (connection, halt): (UnixStream, OwnedFd),
        job: &Job,
        max_output: u64,
        recorder: OutputRecorder,
    ) -> Self {
        let becomes_program = matches!(job, Job::Program(_) | Job::Bridge(_));
        let (stdout, stderr) = (TextDecoder::new(max_output), TextDecoder::new(max_output));
        let decoder = FrameDecoder::default();
        Self {
            connection,
            halt,
            decoder,
            max_output,
            becomes_program,
            is_program: false,
            stdout,
            stderr,
            recorder,
            done: None,
            is_too_large: false,
            frame_error: None,
        }
    }

    /// Returns whether standard output and standard error were truncated at the limit.
    pub(super) const fn is_truncated(&self) -> (bool, bool) {
        (self.stdout.is_truncated(), self.stderr.is_truncated())
    }

    /// Returns whether the program returned a result that is larger than the limit.
    pub(super) const fn is_result_too_large(&self) -> bool {
        self.is_too_large || matches!(self.frame_error, Some(FrameError::TooLong { .. }))
    }

    /// Processes bytes that the box wrote to one of its output pipes.
    pub(super) fn read(&mut self, pipe: Pipe, bytes: &[u8]) {
        tracing::trace!(?pipe, bytes = bytes.len(), "worker wrote");
        match pipe {
            Pipe::Error => {
                let text = self.stderr.push(bytes);
                self.send_output(Stream::Stderr, text);
            }
            Pipe::Output if self.is_program => {
                let text = self.stdout.push(bytes);
                self.send_output(Stream::Stdout, text);
            }
            // A program can write to the pipe of the worker. All bytes after an invalid frame are dropped.
            Pipe::Output if self.frame_error.is_some() => {}
            Pipe::Output => {
                self.decoder.push(bytes);
                self.read_frames();
            }
        }
    }

    /// Passes on the remaining output after the box ended.
    pub(super) fn finish(&mut self) {
        let (stdout, stderr) = (self.stdout.finish(), self.stderr.finish());
        self.send_output(Stream::Stdout, stdout);
        self.send_output(Stream::Stderr, stderr);
    }

    /// Handles all complete frames. An invalid frame kills the box.
    fn read_frames(&mut self) {
        while self.frame_error.is_none() {
            match self.decoder.take::<FromWorker>() {
                Ok(Some(message)) => self.handle(message),
                Ok(None) => return,
                Err(error) => {
                    tracing::warn!("worker sent an invalid message; its box is killed");
                    self.frame_error = Some(error);
                    self.decoder = FrameDecoder::default();
                    rustix::io::write(&self.halt, b"1").ok(); // the box may have ended
                }
            }
        }
    }

    /// Handles one message of the worker.
    fn handle(&mut self, message: FromWorker) {
        match message {
            FromWorker::Ready if self.becomes_program => {
                self.is_program = true;
                let rest = self.decoder.rest();
                self.read(Pipe::Output, &rest);
            }
            FromWorker::Ready => {}
            FromWorker::Output { stream: Stream::Stdout, text } => {
                let text = self.stdout.truncate(text);
                self.send_output(Stream::Stdout, text);
            }
            FromWorker::Output { stream: Stream::Stderr, text } => {
                let text = self.stderr.truncate(text);
                self.send_output(Stream::Stderr, text);
            }
            FromWorker::Call { id, server, tool, input } => {
                tracing::debug!(call = id, server, tool, "program calls a tool");
                self.send(&FromSupervisor::ToolCall { id, server, tool, input });
            }
            FromWorker::Done(done) => {
                tracing::debug!(failed = done.trouble.is_some(), "program finished");
                let done = self.limit_size(done);
                self.done.get_or_insert(done);
            }
        }
    }

    /// Replaces a result that is larger than the limit by an error that names the limit.
    fn limit_size(&mut self, done: ProgramResult) -> ProgramResult {
        let size = done.value.as_ref().map_or(0, |value| value.get().len() as u64);
        if size <= self.max_output {
            return done;
        }
        self.is_too_large = true;
        let max = self.max_output;
        let message = format!("the result has {size} bytes of JSON; the maximum is {max}");
        let name = "RangeError".to_owned();
        let error = ProgramError { name, message, stack: None, line: None, column: None };
        ProgramResult { value: None, trouble: Some(error) }
    }

    /// Records output of the program and sends it to the client.
    fn send_output(&mut self, stream: Stream, text: String) {
        if text.is_empty() {
            return;
        }
        let pipe = match stream {
            Stream::Stdout => Pipe::Output,
            Stream::Stderr => Pipe::Error,
        };
        self.recorder.write(pipe, text.as_bytes());
        self.send(&FromSupervisor::Output { stream, text });
    }

    fn send(&mut self, message: &FromSupervisor) {
        // An error means that the client has disconnected, which ends the box.
        if let Ok(bytes) = wire::encode(message) {
            self.connection.write_all(&bytes).ok();
        }
    }
}
