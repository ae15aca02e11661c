//! The input of a kept exec: bytes that clients sent and the program has not read.
//!
//! Pure: the caller writes to the descriptor.

use std::collections::VecDeque;

use crate::supervisor::exec_protocol::{Violation, WINDOW};

/// The input of one program. Offsets count from the first byte that any client sent.
#[derive(Debug, Default)]
pub(super) struct InputQueue {
    /// Bytes that the program has not read.
    waiting: VecDeque<u8>,
    /// The number of bytes that the program has read.
    read: u64,
    has_ended: bool,
    /// Whether the program cannot read any more. Further input is discarded.
    is_closed: bool,
}

impl InputQueue {
    /// Returns the number of bytes that the program has read.
    pub(super) const fn read_offset(&self) -> u64 {
        self.read
    }

    fn received(&self) -> u64 {
        self.read + self.waiting.len() as u64
    }

    /// Accepts input that starts at an offset. Bytes that were received before are ignored.
    pub(super) fn accept(&mut self, offset: u64, data: &[u8]) -> Result<(), Violation> {
        let known = self.received().checked_sub(offset).ok_or(Violation::MissingInput)?;
        let new = usize::try_from(known).ok().and_then(|known| data.get(known..));
        let Some(new) = new.filter(|new| !new.is_empty()) else { return Ok(()) };
        if self.has_ended {
            return Err(Violation::InputAfterEnd);
        }
        if self.waiting.len() as u64 + new.len() as u64 > WINDOW {
            return Err(Violation::TooMuchInput);
        }
        if self.is_closed {
            self.read += new.len() as u64;
        } else {
            self.waiting.extend(new);
        }
        Ok(())
    }

    /// The client has sent all input.
    pub(super) fn end(&mut self) {
        self.has_ended = true;
    }

    /// Returns bytes that the program can read now.
    pub(super) fn next(&self) -> &[u8] {
        self.waiting.as_slices().0
    }

    /// The program has read this number of bytes.
    pub(super) fn written(&mut self, count: usize) {
        self.waiting.drain(..count.min(self.waiting.len()));
        self.read += count as u64;
        if self.waiting.is_empty() {
            self.waiting = VecDeque::new(); // an idle program needs no memory for its input
        }
    }

    /// Returns whether the program has read everything, and the client has sent everything.
    pub(super) fn is_complete(&self) -> bool {
        self.has_ended && self.waiting.is_empty()
    }

    /// The program has closed its input or has ended.
    pub(super) fn close(&mut self) {
        self.is_closed = true;
        self.read = self.received();
        self.waiting = VecDeque::new();
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn repeated_input_is_ignored_and_missing_input_is_refused() {
        let mut input = InputQueue::default();
        input.accept(0, b"abc").unwrap();
        input.accept(0, b"abc").unwrap();
        input.accept(1, b"bcd").unwrap();
        assert_eq!(input.next(), b"abcd");
        assert_eq!(input.accept(5, b"x"), Err(Violation::MissingInput));
        input.written(4);
        input.accept(2, b"cd").unwrap();
        assert_eq!((input.next(), input.read_offset()), (&b""[..], 4));
        assert!(!input.is_complete());
        input.end();
        input.accept(0, b"abcd").unwrap();
        assert!(input.is_complete());
        assert_eq!(input.accept(4, b"e"), Err(Violation::InputAfterEnd));
    }

    #[test]
    fn input_above_the_window_is_refused_until_the_program_reads() {
        let window = usize::try_from(WINDOW).unwrap();
        let mut input = InputQueue::default();
        input.accept(0, &vec![b'x'; window]).unwrap();
        assert_eq!(input.accept(WINDOW, b"y"), Err(Violation::TooMuchInput));
        input.written(1);
        input.accept(WINDOW, b"y").unwrap();
        assert_eq!(input.accept(WINDOW + 1, b"z"), Err(Violation::TooMuchInput));
    }

    #[test]
    fn input_of_a_program_that_closed_it_is_discarded_and_counts_as_read() {
        let mut input = InputQueue::default();
        input.accept(0, b"abc").unwrap();
        input.close();
        assert_eq!((input.next(), input.read_offset()), (&b""[..], 3));
        input.accept(3, &vec![b'x'; usize::try_from(WINDOW).unwrap()]).unwrap();
        assert_eq!(input.read_offset(), 3 + WINDOW);
    }

    proptest! {
        #[test]
        fn program_reads_each_byte_once_with_any_repetition_and_split(
            parts in proptest::collection::vec((0..500_usize, 0..300_usize, 0..400_usize), 0..40),
        ) {
            let all: Vec<u8> = (0..20_000_u32).map(|at| ((at * 7) >> 2).to_le_bytes()[0]).collect();
            let (mut input, mut read, mut sent) = (InputQueue::default(), Vec::new(), 0_usize);
            for (back, new, count) in parts {
                let from = sent.saturating_sub(back);
                let end = (sent + new).min(all.len());
                input.accept(from as u64, &all[from..end]).unwrap();
                sent = end;
                let next = input.next();
                let taken = next[..count.min(next.len())].to_vec();
                input.written(taken.len());
                read.extend(taken);
            }
            while !input.next().is_empty() {
                let next = input.next().to_vec();
                input.written(next.len());
                read.extend(next);
            }
            prop_assert_eq!(&read[..], &all[..sent]);
        }
    }
}
