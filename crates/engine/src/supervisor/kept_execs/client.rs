//! The client that is attached to a kept exec. Its socket never blocks, and at most one frame waits for it.

use std::io::{self, Read as _, Write as _};
use std::os::fd::{AsFd as _, BorrowedFd};
use std::os::unix::net::UnixStream;

use rustix::event::PollFlags;

use super::input::InputQueue;
use super::output::{OutputStream, Piece};
use crate::supervisor::exec_protocol::{
    ExecEnding, FromExec, MAX_OUTPUT, MalformedFrame, Stream, ToExec, Violation, WINDOW,
};

/// The streams in the order of the arrays of this module.
pub(super) const STREAMS: [Stream; 2] = [Stream::Stdout, Stream::Stderr];
/// The number of bytes that the program reads before its client is told.
const REPORTED_INPUT: u64 = 64 * 1024;

/// A client that is attached to an exec.
#[derive(Debug)]
pub(super) struct Client {
    socket: UnixStream,
    /// Bytes of an incomplete frame of the client.
    incoming: Vec<u8>,
    /// The encoded frame that is being written.
    outgoing: Vec<u8>,
    /// The number of written bytes of the frame.
    written: usize,
    /// The offset after the last byte that was sent, for each stream.
    sent: [u64; 2],
    /// The offset before which the client has everything, for each stream.
    received: [u64; 2],
    /// The offset of the input that the client knows to be read.
    reported: u64,
    /// Whether no further frame follows.
    is_last: bool,
}

/// What a client can be sent.
pub(super) struct Content<'a> {
    pub(super) streams: &'a [OutputStream; 2],
    pub(super) input: &'a InputQueue,
    pub(super) end: Option<ExecEnding>,
}

/// The client has disconnected, or sent bytes that are no frames.
#[derive(Debug)]
pub(super) struct Disconnected;

impl From<MalformedFrame> for Disconnected {
    fn from(_: MalformedFrame) -> Self {
        Self
    }
}

impl From<io::Error> for Disconnected {
    fn from(_: io::Error) -> Self {
        Self
    }
}

impl Client {
    /// Attaches a client that has the bytes of each stream before these offsets. `first` is the encoded
    /// response to its request, and `reported` the offset of the input in this response.
    pub(super) fn new(
        socket: UnixStream,
        first: Vec<u8>,
        from: [u64; 2],
        reported: u64,
    ) -> io::Result<Self> {
        socket.set_nonblocking(true)?;
        let (incoming, sent, received) = (Vec::new(), from, from);
        let (outgoing, written, is_last) = (first, 0, false);
        Ok(Self { socket, incoming, outgoing, written, sent, received, reported, is_last })
    }

    pub(super) fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }

    /// Returns the events that the client waits for.
    pub(super) fn interest(&self) -> PollFlags {
        match self.outgoing.is_empty() {
            true => PollFlags::IN,
            false => PollFlags::IN | PollFlags::OUT,
        }
    }

    /// Reads once from the client, and passes each complete frame to `handle`.
    pub(super) fn receive(
        &mut self,
        scratch: &mut [u8],
        mut handle: impl FnMut(&mut Self, ToExec<'_>) -> Result<(), Violation>,
    ) -> Result<Result<(), Violation>, Disconnected> {
        let read = match (&self.socket).read(scratch) {
            Ok(0) => return Err(Disconnected),
            Ok(read) => read,
            Err(error) if is_temporary(&error) => return Ok(Ok(())),
            Err(_) => return Err(Disconnected),
        };
        let mut bytes = std::mem::take(&mut self.incoming);
        bytes.extend_from_slice(scratch.get(..read).unwrap_or_default());
        let mut used = 0;
        while let Some((frame, length)) = ToExec::decode(bytes.get(used..).unwrap_or_default())? {
            used += length;
            if let Err(violation) = handle(self, frame) {
                return Ok(Err(violation));
            }
        }
        self.incoming = bytes.split_off(used);
        Ok(Ok(()))
    }

    /// Notes that the client has received a stream up to an offset. Returns whether this is progress.
    pub(super) fn acknowledge(&mut self, stream: usize, offset: u64) -> Result<bool, Violation> {
        let sent = self.sent.get(stream).copied().unwrap_or_default();
        let Some(received) = self.received.get_mut(stream) else { return Ok(false) };
        if offset > sent {
            return Err(Violation::UnsentOutput);
        }
        let is_progress = offset > *received;
        *received = offset.max(*received);
        Ok(is_progress)
    }

    /// Sends what the client can be sent now. Returns whether the connection has served its purpose.
    pub(super) fn send(&mut self, content: &Content<'_>) -> Result<bool, Disconnected> {
        loop {
            if self.outgoing.is_empty() && !self.is_last {
                self.next_frame(content);
            }
            if self.outgoing.is_empty() {
                return Ok(self.is_last);
            }
            if !self.flush()? {
                return Ok(false);
            }
        }
    }

    /// Writes the rest of the frame. Returns whether it was written completely.
    pub(super) fn flush(&mut self) -> Result<bool, Disconnected> {
        while let Some(rest) = self.outgoing.get(self.written..).filter(|rest| !rest.is_empty()) {
            match (&self.socket).write(rest) {
                Ok(0) => return Err(Disconnected),
                Ok(written) => self.written += written,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if is_temporary(&error) => return Ok(false),
                Err(_) => return Err(Disconnected),
            }
        }
        self.outgoing.clear();
        self.written = 0;
        Ok(true)
    }

    /// Ends the connection with a last frame.
    pub(super) fn finish(&mut self, last: FromExec<'_>) {
        last.encode(&mut self.outgoing);
        self.is_last = true;
    }

    /// Encodes the next frame, if there is one.
    fn next_frame(&mut self, content: &Content<'_>) {
        let read = content.input.read_offset();
        if read >= self.reported + REPORTED_INPUT {
            self.reported = read;
            FromExec::InputRead { offset: read }.encode(&mut self.outgoing);
        }
        // Both streams in turn, so that a busy one does not delay the other.
        let is_complete = [0, 1].map(|stream| self.next_output(stream, content));
        if is_complete == [true, true]
            && let Some(ExecEnding { exit, signal, .. }) = content.end
        {
            self.finish(match (exit, signal) {
                (Some(code), _) => FromExec::Exited { code },
                (None, signal) => FromExec::Killed { signal: signal.unwrap_or_default() },
            });
        }
    }

    /// Encodes the next output of a stream, as far as the window allows. Returns whether everything is sent.
    fn next_output(&mut self, index: usize, content: &Content<'_>) -> bool {
        let outstanding: u64 =
            self.sent.iter().zip(&self.received).map(|(sent, received)| sent - received).sum();
        let window = usize::try_from(WINDOW.saturating_sub(outstanding)).unwrap_or(usize::MAX);
        let (Some(stream), Some(name)) = (content.streams.get(index), STREAMS.get(index).copied())
        else {
            return true;
        };
        let (Some(sent), Some(received)) = (self.sent.get_mut(index), self.received.get_mut(index))
        else {
            return true;
        };
        if stream.ring.read(*sent, 1) == Piece::Nothing {
            return true;
        }
        if window == 0 {
            return false;
        }
        if let Piece::Gap { to } = stream.ring.read(*sent, 1) {
            FromExec::Gap { stream: name, from: *sent, to }.encode(&mut self.outgoing);
            // The window still counts the bytes that were sent before the gap.
            *received = to - (*sent - *received);
            *sent = to;
        }
        if let Piece::Data(data) = stream.ring.read(*sent, window.min(MAX_OUTPUT)) {
            FromExec::Output { stream: name, offset: *sent, data }.encode(&mut self.outgoing);
            *sent += data.len() as u64;
        }
        stream.ring.read(*sent, 1) == Piece::Nothing
    }
}

fn is_temporary(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::pattern::{bytes, is_equal};
    use super::*;

    const WINDOW_SIZE: usize = 256 * 1024;

    fn content<'a>(
        streams: &'a [OutputStream; 2],
        input: &'a InputQueue,
        end: Option<ExecEnding>,
    ) -> Content<'a> {
        Content { streams, input, end }
    }

    /// A client with its end of the connection.
    struct Pair {
        client: Client,
        peer: UnixStream,
        incoming: Vec<u8>,
    }

    impl Pair {
        fn attached(from: [u64; 2]) -> Self {
            let (socket, peer) = UnixStream::pair().unwrap();
            peer.set_nonblocking(true).unwrap();
            let client = Client::new(socket, Vec::new(), from, 0).unwrap();
            Self { client, peer, incoming: Vec::new() }
        }

        /// Reads at most `max` bytes and passes each complete frame to a function.
        fn read(&mut self, max: usize, mut handle: impl FnMut(FromExec<'_>)) {
            let mut buffer = vec![0; max];
            let read = (&self.peer).read(&mut buffer).unwrap_or(0);
            self.incoming.extend_from_slice(&buffer[..read]);
            while let Some((frame, length)) = FromExec::decode(&self.incoming).unwrap() {
                handle(frame);
                self.incoming.drain(..length);
            }
        }

        fn acknowledge(&mut self, stream: Stream, offset: u64) {
            let mut bytes = Vec::new();
            ToExec::Received { stream, offset }.encode(&mut bytes);
            (&self.peer).write_all(&bytes).unwrap();
        }
    }

    /// Returns the number of the stream, the offset and the data of a frame with output.
    #[track_caller]
    fn output(frame: FromExec<'_>) -> (usize, u64, &[u8]) {
        let FromExec::Output { stream, offset, data } = frame else { panic!("{frame:?}") };
        (usize::from(stream == Stream::Stderr), offset, data)
    }

    /// Writes the bytes of a numbered stream that follow its last one.
    fn write(stream: &mut OutputStream, number: usize, length: usize) {
        stream.push(&bytes(number, stream.ring.range().end, length));
    }

    #[test]
    fn client_without_acknowledgement_gets_no_more_than_the_window() {
        let mut streams = [OutputStream::new(), OutputStream::new()];
        write(&mut streams[0], 0, 500_000);
        write(&mut streams[1], 1, 500_000);
        let (mut pair, input) = (Pair::attached([0, 0]), InputQueue::default());
        let mut received = [0, 0];
        for _ in 0..100 {
            assert!(!pair.client.send(&content(&streams, &input, None)).unwrap());
            pair.read(64 * 1024, |frame| {
                let (stream, _, data) = output(frame);
                received[stream] += data.len();
            });
        }
        assert_eq!(received.iter().sum::<usize>(), WINDOW_SIZE);
        assert_eq!(received, [WINDOW_SIZE / 2; 2], "both streams in turn");
        pair.acknowledge(Stream::Stdout, 1000);
        let mut progress = Vec::new();
        let handle = |client: &mut Client, frame: ToExec<'_>| {
            let ToExec::Received { stream: Stream::Stdout, offset } = frame else { panic!() };
            progress.push(client.acknowledge(0, offset)?);
            Ok(())
        };
        pair.client.receive(&mut [0; 99], handle).unwrap().unwrap();
        assert_eq!(progress, [true]);
        pair.client.send(&content(&streams, &input, None)).unwrap();
        let mut more = 0;
        pair.read(64 * 1024, |frame| more += output(frame).2.len());
        assert_eq!(more, 1000);
        // Discarded output is reported when more can be sent, and not before.
        write(&mut streams[0], 0, 2_000_000);
        pair.client.send(&content(&streams, &input, None)).unwrap();
        pair.read(64 * 1024, |frame| panic!("{frame:?}"));
    }

    #[test]
    fn acknowledgement_of_unsent_output_is_refused() {
        let mut pair = Pair::attached([5, 0]);
        assert_eq!(pair.client.acknowledge(0, 5), Ok(false));
        assert_eq!(pair.client.acknowledge(0, 6), Err(Violation::UnsentOutput));
    }

    #[test]
    fn end_of_the_program_follows_its_last_output_and_a_gap() {
        let mut streams = [OutputStream::new(), OutputStream::new()];
        write(&mut streams[0], 0, 2_000_000);
        let (mut pair, input) = (Pair::attached([0, 0]), InputQueue::default());
        let end = Some(ExecEnding { at: 1, exit: None, signal: Some(15) });
        let (mut at, mut last) = (0, None);
        while last.is_none() {
            pair.client.send(&content(&streams, &input, end)).unwrap();
            pair.read(64 * 1024, |frame| {
                if let FromExec::Gap { stream: Stream::Stdout, from: 0, to } = frame {
                    assert_eq!(to, 951_424);
                    at = to;
                } else if let FromExec::Killed { signal } = frame {
                    last = Some((signal, at));
                } else {
                    let (_, offset, data) = output(frame);
                    assert_eq!(offset, at);
                    assert!(is_equal(0, offset, data));
                    at += data.len() as u64;
                }
            });
            pair.client.acknowledge(0, at).unwrap();
        }
        assert_eq!(last, Some((15, 2_000_000)));
    }

    /// One step of a program and of its client.
    #[derive(Clone, Debug)]
    enum Step {
        Write(usize, usize),
        Send,
        Read(usize),
        Acknowledge,
        Reconnect,
    }

    fn step() -> impl Strategy<Value = Step> {
        prop_oneof![
            (0..2_usize, 1..300_000_usize).prop_map(|(stream, length)| Step::Write(stream, length)),
            Just(Step::Send),
            Just(Step::Send),
            (1..100_000_usize).prop_map(Step::Read),
            (1..100_000_usize).prop_map(Step::Read),
            Just(Step::Acknowledge),
            Just(Step::Reconnect),
        ]
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]
        #[test]
        fn client_gets_all_bytes_of_both_streams_with_any_split_of_reads_and_reconnects(
            steps in proptest::collection::vec(step(), 0..80),
        ) {
            let mut streams = [OutputStream::new(), OutputStream::new()];
            let input = InputQueue::default();
            let mut got: [Vec<u8>; 2] = [Vec::new(), Vec::new()];
            let mut pair = Pair::attached([0, 0]);
            let end = Some(ExecEnding { at: 1, exit: Some(0), signal: None });
            let last = [Step::Acknowledge, Step::Send, Step::Read(100_000)].into_iter().cycle();
            let count = steps.len();
            for (index, step) in steps.into_iter().chain(last.take(300)).enumerate() {
                let content = content(&streams, &input, end.filter(|_| index >= count));
                match step {
                    Step::Write(number, length) => {
                        let length = length.min(streams[number].room());
                        write(&mut streams[number], number, length);
                    }
                    Step::Send => {
                        pair.client.send(&content).unwrap();
                    }
                    Step::Read(max) => pair.read(max, |frame| {
                        if frame != (FromExec::Exited { code: 0 }) {
                            let (stream, offset, data) = output(frame);
                            assert_eq!(offset, got[stream].len() as u64);
                            got[stream].extend_from_slice(data);
                        }
                    }),
                    Step::Acknowledge => {
                        for (number, got) in got.iter().enumerate() {
                            let offset = got.len() as u64;
                            if pair.client.acknowledge(number, offset).unwrap() {
                                streams[number].received(offset);
                            }
                        }
                    }
                    Step::Reconnect => {
                        pair = Pair::attached([got[0].len() as u64, got[1].len() as u64]);
                        for (stream, got) in streams.iter_mut().zip(&got) {
                            stream.detached();
                            stream.attached(got.len() as u64);
                        }
                    }
                }
            }
            for (number, got) in got.iter().enumerate() {
                prop_assert_eq!(got.len() as u64, streams[number].ring.range().end);
                prop_assert!(is_equal(number, 0, got), "stream {}", number);
            }
        }
    }
}
