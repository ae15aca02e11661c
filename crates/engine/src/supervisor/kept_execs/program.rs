//! The program of a kept exec and the host's ends of its standard streams. All functions return at once.

use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::sync::Arc;

use belljar_box::{ExecEnd, ExecProcess, ExecStreams};
use rustix::io::Errno;
use rustix::termios::Winsize;

use super::input::InputQueue;
use super::output::OutputStream;
use crate::screen::protocol::Size;
use crate::supervisor::exec_protocol::KEPT_OUTPUT;

/// The control character that means end of input on a terminal.
const END_OF_INPUT: u8 = 4;
const KILLED: i32 = 9;

/// A program in the box with its streams.
#[derive(Debug)]
pub(super) struct ExecProgram {
    process: ExecProcess,
    has_terminal: bool,
    /// `None` after the program closed its input, or at the end of the input.
    input: Option<Arc<OwnedFd>>,
    /// `None` at the end of a stream. A terminal has only the first stream.
    outputs: [Option<Arc<OwnedFd>>; 2],
    /// Whether the end of the input was written to the terminal.
    is_end_written: bool,
    /// How the first process ended. Its last output can still be unread.
    ended: Option<ExecEnd>,
    /// The number of bytes of each stream that are read after the end: the capacity of a pipe. Processes that
    /// the program left behind can write forever.
    left: [usize; 2],
}

/// The result of a read from the program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Read {
    Some,
    Nothing,
    End,
}

impl ExecProgram {
    /// Takes the streams of a process that has just started.
    pub(super) fn new(mut process: ExecProcess) -> Option<Self> {
        let (input, outputs, has_terminal) = match process.streams.take()? {
            ExecStreams::Pipes { input, output, error } => {
                (Arc::new(input), [Some(Arc::new(output)), Some(Arc::new(error))], false)
            }
            ExecStreams::Terminal(terminal) => {
                let terminal = Arc::new(terminal);
                (Arc::clone(&terminal), [Some(terminal), None], true)
            }
        };
        for fd in outputs.iter().flatten().chain([&input]) {
            rustix::io::ioctl_fionbio(fd, true).ok()?;
        }
        let (input, is_end_written, ended) = (Some(input), false, None);
        let left = [KEPT_OUTPUT; 2];
        Some(Self { process, has_terminal, input, outputs, is_end_written, ended, left })
    }

    pub(super) const fn has_terminal(&self) -> bool {
        self.has_terminal
    }

    /// Returns how the first process ended.
    pub(super) const fn ended(&self) -> Option<ExecEnd> {
        self.ended
    }

    /// Returns a descriptor that is readable when the first process has ended. `None` if this is known.
    pub(super) fn process(&self) -> Option<BorrowedFd<'_>> {
        self.ended.is_none().then(|| self.process.as_fd())
    }

    /// Returns the descriptor of the input, if something can be written to it.
    pub(super) fn input(&self, queue: &InputQueue) -> Option<&Arc<OwnedFd>> {
        let has_end = queue.is_complete() && !self.is_end_written;
        self.input.as_ref().filter(|_| has_end || !queue.next().is_empty())
    }

    /// Returns the descriptor of an output stream that has not ended.
    pub(super) fn output(&self, index: usize) -> Option<&Arc<OwnedFd>> {
        self.outputs.get(index)?.as_ref()
    }

    /// Reads how the process has ended.
    pub(super) fn wait(&mut self) {
        // Init has exited if the message cannot be read, and all processes of the box with it.
        let killed = ExecEnd { exit: None, signal: Some(KILLED) };
        self.ended = Some(self.process.wait().unwrap_or(killed));
    }

    /// Sends a signal to the program.
    pub(super) fn signal(&self, number: i32) {
        self.process.signal(number).ok(); // the box can have ended
    }

    /// Changes the size of the terminal. Does nothing if the program has none.
    pub(super) fn resize(&self, size: Size) {
        let Some(terminal) = self.output(0).filter(|_| self.has_terminal) else { return };
        let Size { rows: ws_row, columns: ws_col } = size.clamped();
        let size = Winsize { ws_row, ws_col, ws_xpixel: 0, ws_ypixel: 0 };
        rustix::termios::tcsetwinsize(terminal, size).ok(); // the program may have ended
    }

    /// Writes input as far as the program reads it.
    pub(super) fn write(&mut self, queue: &mut InputQueue) {
        let Some(input) = self.input.clone() else { return };
        if !queue.next().is_empty() {
            match rustix::io::write(&*input, queue.next()) {
                Ok(written) => queue.written(written),
                Err(Errno::AGAIN | Errno::INTR) => {}
                Err(_) => self.close_input(queue), // the program has closed its input
            }
        } else if queue.is_complete() && self.has_terminal {
            match rustix::io::write(&*input, &[END_OF_INPUT]) {
                Err(Errno::AGAIN | Errno::INTR) => {}
                Ok(_) | Err(_) => self.is_end_written = true,
            }
        } else if queue.is_complete() {
            self.close_input(queue);
        }
    }

    fn close_input(&mut self, queue: &mut InputQueue) {
        self.input = None;
        queue.close();
    }

    /// Reads from an output stream once.
    pub(super) fn read(&mut self, index: usize, stream: &mut OutputStream, scratch: &mut [u8]) {
        self.read_once(index, stream, scratch);
    }

    fn read_once(&mut self, index: usize, to: &mut OutputStream, scratch: &mut [u8]) -> Read {
        let Some(output) = self.outputs.get_mut(index) else { return Read::End };
        let Some(fd) = output.as_ref() else { return Read::End };
        let length = to.room().min(scratch.len());
        let Some(buffer) = scratch.get_mut(..length).filter(|it| !it.is_empty()) else {
            return Read::Nothing;
        };
        match rustix::io::retry_on_intr(|| rustix::io::read(&**fd, &mut *buffer)) {
            Err(Errno::AGAIN) => Read::Nothing,
            // The error EIO is the end of a terminal.
            Ok(0) | Err(_) => {
                *output = None;
                Read::End
            }
            Ok(read) => {
                to.push(buffer.get(..read).unwrap_or_default());
                if let Some(left) = self.left.get_mut(index).filter(|_| self.ended.is_some()) {
                    *left = left.saturating_sub(read);
                }
                Read::Some
            }
        }
    }

    /// Reads the last output of a program that has ended, as far as there is room. Returns whether all
    /// streams have ended.
    pub(super) fn drain(&mut self, streams: &mut [OutputStream; 2], scratch: &mut [u8]) -> bool {
        for (index, stream) in streams.iter_mut().enumerate() {
            while stream.room() > 0 && self.output(index).is_some() {
                let read = self.read_once(index, stream, scratch);
                let has_left = self.left.get(index).is_some_and(|left| *left > 0);
                if read != Read::Some || !has_left {
                    // A background process can keep the stream open.
                    self.outputs.get_mut(index).map(Option::take);
                }
            }
        }
        self.outputs.iter().all(Option::is_none)
    }

    /// Closes the input of a program that has ended.
    pub(super) fn close(&mut self, queue: &mut InputQueue) {
        self.close_input(queue);
    }
}
