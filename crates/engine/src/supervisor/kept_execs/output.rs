//! An output stream of a kept exec: its newest bytes, and when to read more from the program.
//!
//! Pure: the caller reads the descriptor and passes the time.
//!
//! **Rule:** a program waits for its client as it would wait for the reader of a pipe, so a client that keeps
//! reading gets every byte, also over several connections. A client that makes no progress for [`PATIENCE`]
//! does not stop the program any longer: the oldest bytes are then discarded, at a limited rate.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use crate::supervisor::exec_protocol::{KEPT_OUTPUT, KeptRange};

/// The time that a program waits for a client that makes no progress, or for one that connects again.
const PATIENCE: Duration = Duration::from_secs(5);
/// The time between two discards of [`KEPT_OUTPUT`] bytes, which limits the work for output that nobody reads.
const DISCARD_INTERVAL: Duration = Duration::from_millis(100);

/// The newest bytes of a stream.
#[derive(Debug, Default)]
pub(super) struct OutputRing {
    bytes: VecDeque<u8>,
    /// The offset after the last byte.
    end: u64,
}

/// The bytes of a stream from an offset.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Piece<'a> {
    Data(&'a [u8]),
    /// The bytes before this offset are discarded.
    Gap {
        to: u64,
    },
    /// The stream has no byte at this offset yet.
    Nothing,
}

impl OutputRing {
    pub(super) fn range(&self) -> KeptRange {
        KeptRange { start: self.end - self.bytes.len() as u64, end: self.end }
    }

    /// Appends bytes, and discards the oldest ones above [`KEPT_OUTPUT`].
    fn push(&mut self, bytes: &[u8]) {
        self.end += bytes.len() as u64;
        let kept = bytes.get(bytes.len().saturating_sub(KEPT_OUTPUT)..).unwrap_or_default();
        let length = self.bytes.len() + kept.len();
        self.bytes.drain(..length.saturating_sub(KEPT_OUTPUT));
        if self.bytes.capacity() < length {
            // Doubling alone could reserve more than the ring ever holds.
            let wanted = length.next_power_of_two().min(KEPT_OUTPUT);
            self.bytes.reserve_exact(wanted.saturating_sub(self.bytes.len()));
        }
        self.bytes.extend(kept);
    }

    /// Returns at most `max` bytes from the offset `from`.
    pub(super) fn read(&self, from: u64, max: usize) -> Piece<'_> {
        let KeptRange { start, end } = self.range();
        if from < start {
            return Piece::Gap { to: start };
        }
        if from >= end {
            return Piece::Nothing;
        }
        let skipped = usize::try_from(from - start).unwrap_or(usize::MAX);
        let (first, second) = self.bytes.as_slices();
        let rest = match skipped.checked_sub(first.len()) {
            None => first.get(skipped..),
            Some(skipped) => second.get(skipped..),
        };
        let rest = rest.unwrap_or_default();
        Piece::Data(rest.get(..max).unwrap_or(rest))
    }

    /// Discards all bytes.
    pub(super) fn clear(&mut self) {
        self.bytes = VecDeque::new();
    }

    /// Returns the number of kept bytes.
    pub(super) fn len(&self) -> usize {
        self.bytes.len()
    }

    /// Frees memory that is not needed once the stream has ended.
    pub(super) fn shrink(&mut self) {
        self.bytes.shrink_to_fit();
    }
}

/// An output stream with the progress of its client.
#[derive(Debug)]
pub(super) struct OutputStream {
    pub(super) ring: OutputRing,
    /// The offset of the first byte that a client can still want.
    unread: u64,
    /// Whether a client makes progress, or can be expected to.
    is_read: bool,
    /// The time since which there is no room.
    full_since: Option<Instant>,
}

impl OutputStream {
    pub(super) fn new() -> Self {
        Self { ring: OutputRing::default(), unread: 0, is_read: true, full_since: None }
    }

    /// Returns the number of bytes that can be read from the program now.
    pub(super) fn room(&self) -> usize {
        let KeptRange { start, end } = self.ring.range();
        let unread = usize::try_from(end - self.unread.clamp(start, end)).unwrap_or(usize::MAX);
        KEPT_OUTPUT.saturating_sub(unread)
    }

    /// Returns the time at which a full stream has room again. Makes room if this time has come. `None` if the
    /// stream has room now.
    pub(super) fn next_room(&mut self, now: Instant) -> Option<Instant> {
        if self.room() > 0 {
            self.full_since = None;
            return None;
        }
        let wait = if self.is_read { PATIENCE } else { DISCARD_INTERVAL };
        let at = *self.full_since.get_or_insert(now) + wait;
        if now < at {
            return Some(at);
        }
        (self.is_read, self.full_since) = (false, None);
        self.unread = self.ring.range().end;
        None
    }

    /// Appends bytes that were read from the program.
    pub(super) fn push(&mut self, bytes: &[u8]) {
        self.ring.push(bytes);
    }

    /// A client has attached that has all bytes before `from`.
    pub(super) fn attached(&mut self, from: u64) {
        let KeptRange { start, end } = self.ring.range();
        self.unread = from.clamp(start, end);
        self.progressed();
    }

    /// The client has received all bytes before `offset`, which is more than before.
    pub(super) fn received(&mut self, offset: u64) {
        self.unread = self.unread.max(offset);
        self.progressed();
    }

    fn progressed(&mut self) {
        self.is_read = true;
        self.full_since = None;
    }

    /// The client has disconnected. The program waits for the next one.
    pub(super) fn detached(&mut self) {
        self.full_since = None;
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::pattern::{bytes, is_equal};
    use super::*;

    const LIMIT: u64 = KEPT_OUTPUT as u64;

    fn write(stream: &mut OutputStream, length: usize) {
        stream.push(&bytes(0, stream.ring.range().end, length));
    }

    #[test]
    fn ring_keeps_the_newest_bytes_and_reports_a_gap_before_them() {
        let mut stream = OutputStream::new();
        assert_eq!(stream.ring.read(0, 10), Piece::Nothing);
        write(&mut stream, KEPT_OUTPUT);
        assert_eq!(stream.ring.range(), KeptRange { start: 0, end: LIMIT });
        write(&mut stream, 3);
        assert_eq!(stream.ring.range(), KeptRange { start: 3, end: LIMIT + 3 });
        assert_eq!(stream.ring.read(2, 10), Piece::Gap { to: 3 });
        assert_eq!(stream.ring.read(3, 2), Piece::Data(&bytes(0, 3, 2)));
        assert_eq!(stream.ring.read(LIMIT + 2, 9), Piece::Data(&bytes(0, LIMIT + 2, 1)));
        assert_eq!(stream.ring.read(LIMIT + 3, 9), Piece::Nothing);
        write(&mut stream, 3 * KEPT_OUTPUT);
        assert_eq!(stream.ring.len(), KEPT_OUTPUT);
        assert!(stream.ring.bytes.capacity() <= 2 * KEPT_OUTPUT);
    }

    fn fill(stream: &mut OutputStream) {
        let room = stream.room();
        write(stream, room);
        assert_eq!(stream.room(), 0);
    }

    #[test]
    fn program_waits_for_a_client_that_makes_progress() {
        let (mut stream, mut now) = (OutputStream::new(), Instant::now());
        for turn in 1..=100 {
            fill(&mut stream);
            assert_eq!(stream.next_room(now), Some(now + PATIENCE), "turn {turn}");
            let later = now + PATIENCE - Duration::from_millis(1);
            assert_eq!(stream.next_room(later), Some(now + PATIENCE), "turn {turn}");
            stream.received(turn * 1000);
            assert_eq!((stream.next_room(later), stream.room()), (None, 1000), "turn {turn}");
            now = later;
        }
        assert_eq!(stream.ring.range(), KeptRange { start: 99_000, end: LIMIT + 99_000 });
    }

    #[test]
    fn output_without_progress_of_a_client_is_discarded_at_a_limited_rate() {
        let (mut stream, start) = (OutputStream::new(), Instant::now());
        fill(&mut stream);
        assert_eq!(stream.next_room(start), Some(start + PATIENCE));
        let mut now = start + PATIENCE;
        for _ in 0..3 {
            assert_eq!((stream.next_room(now), stream.room()), (None, KEPT_OUTPUT));
            fill(&mut stream);
            assert_eq!(stream.next_room(now), Some(now + DISCARD_INTERVAL));
            now += DISCARD_INTERVAL;
        }
        // A client that attaches gets the newest bytes, and the program waits again.
        stream.attached(0);
        assert_eq!(stream.next_room(now), Some(now + PATIENCE));
        assert_eq!(stream.room(), 0);
        assert_eq!((stream.next_room(now + PATIENCE), stream.room()), (None, KEPT_OUTPUT));
    }

    #[test]
    fn idle_time_of_a_client_does_not_count_as_missing_progress() {
        let (mut stream, start) = (OutputStream::new(), Instant::now());
        stream.attached(0);
        let later = start + 100 * PATIENCE;
        assert_eq!(stream.next_room(later), None);
        fill(&mut stream);
        assert_eq!(stream.next_room(later), Some(later + PATIENCE), "the client can read now");
        stream.detached();
        let next = later + PATIENCE / 2;
        assert_eq!(stream.next_room(next), Some(next + PATIENCE), "the next client can attach");
    }

    /// What happens to a stream: the program writes, and a client reads or connects again.
    #[derive(Clone, Debug)]
    enum Step {
        Write(usize),
        Read(usize),
        /// The last bytes that the client was sent are lost, up to its last acknowledgement.
        Reconnect,
        Acknowledge,
    }

    fn step() -> impl Strategy<Value = Step> {
        prop_oneof![
            (1..400_000_usize).prop_map(Step::Write),
            (1..100_000_usize).prop_map(Step::Read),
            (1..100_000_usize).prop_map(Step::Read),
            Just(Step::Reconnect),
            Just(Step::Acknowledge),
        ]
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]
        #[test]
        fn client_gets_the_same_bytes_with_any_split_of_reads_and_reconnects(
            steps in proptest::collection::vec(step(), 0..60),
        ) {
            let mut stream = OutputStream::new();
            let (mut got, mut acknowledged) = (Vec::new(), 0);
            for step in steps {
                match step {
                    Step::Write(length) => {
                        let length = length.min(stream.room());
                        write(&mut stream, length);
                    }
                    Step::Read(max) => match stream.ring.read(got.len() as u64, max) {
                        Piece::Data(data) => got.extend_from_slice(data),
                        Piece::Nothing => {}
                        Piece::Gap { to } => prop_assert!(false, "gap to {to}"),
                    },
                    Step::Reconnect => {
                        got.truncate(acknowledged);
                        stream.detached();
                        stream.attached(got.len() as u64);
                    }
                    Step::Acknowledge => {
                        acknowledged = got.len();
                        stream.received(acknowledged as u64);
                    }
                }
                prop_assert!(stream.ring.len() <= KEPT_OUTPUT);
            }
            while let Piece::Data(data) = stream.ring.read(got.len() as u64, usize::MAX) {
                got.extend_from_slice(data);
            }
            prop_assert_eq!(got.len() as u64, stream.ring.range().end);
            prop_assert!(is_equal(0, 0, &got));
        }

        #[test]
        fn client_of_discarded_output_gets_equal_bytes_or_a_gap(
            lengths in proptest::collection::vec((0..2_500_000_usize, 1..300_000_usize), 1..12),
        ) {
            let mut stream = OutputStream::new();
            let mut at = 0;
            for (written, max) in lengths {
                write(&mut stream, written);
                match stream.ring.read(at, max) {
                    Piece::Data(data) => {
                        prop_assert!(is_equal(0, at, data));
                        at += data.len() as u64;
                    }
                    Piece::Gap { to } => {
                        prop_assert!(to > at && to == stream.ring.range().end - LIMIT);
                        at = to;
                    }
                    Piece::Nothing => prop_assert_eq!(at, stream.ring.range().end),
                }
            }
        }
    }
}
