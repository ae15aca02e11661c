//! Reads what a worker says and passes on what may be.
//!
//! Everything here comes from inside a box. What is no frame ends the program; what is one is output,
//! a call that somebody else decides on, or the result.

use std::io::Write as _;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;

use belljar_box::Stream as Pipe;
use belljar_wire::{
    self as wire, FrameDecoder, FrameError, FromWorker, Job, ProgramError, ProgramResult, Stream,
};

use super::text::Text;
use super::word::Report;
use crate::launch::output::Tape;

/// One worker's words.
#[derive(Debug)]
pub(super) struct Watch {
    /// To the server.
    line: UnixStream,
    /// Ends the box when it is written to.
    halt: OwnedFd,
    cutter: FrameDecoder,
    /// The largest result that is passed on.
    output: u64,
    /// Another program has taken the worker's place, and its output is its own.
    becomes_program: bool,
    is_program: bool,
    stdout: Text,
    stderr: Text,
    pub(super) tape: Tape,
    pub(super) done: Option<ProgramResult>,
    /// What it said was no message.
    pub(super) broken: Option<FrameError>,
}

impl Watch {
    pub(super) fn new(
        (line, halt): (UnixStream, OwnedFd),
        job: &Job,
        output: u64,
        tape: Tape,
    ) -> Self {
        let becomes_program = matches!(job, Job::Program(_) | Job::Bridge(_));
        let (stdout, stderr) = (Text::new(output), Text::new(output));
        let cutter = FrameDecoder::default();
        Self {
            line,
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

    /// Takes what came out of the box.
    pub(super) fn hear(&mut self, pipe: Pipe, bytes: &[u8]) {
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
            // A program can write where its worker does: nothing of that is kept once it is no frame.
            Pipe::Output if self.broken.is_some() => {}
            Pipe::Output => {
                self.cutter.push(bytes);
                self.frames();
            }
        }
    }

    /// Nothing more comes.
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
                    tracing::warn!("worker is not understood and its box is ended");
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
                self.hear(Pipe::Output, &rest);
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
                self.say(&Report::Call { id, server, tool, input });
            }
            FromWorker::Done(done) => {
                tracing::debug!(failed = done.trouble.is_some(), "program is done");
                let done = self.bounded(done);
                self.done.get_or_insert(done);
            }
        }
    }

    /// A result that is too long for whoever asked is an error that says so.
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
        self.say(&Report::Output { stream, text });
    }

    fn say(&mut self, report: &Report) {
        // A server that is gone has closed the line, which ends the box by itself.
        if let Ok(bytes) = wire::encode(report) {
            self.line.write_all(&bytes).ok();
        }
    }
}
