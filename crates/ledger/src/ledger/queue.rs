//! Who waits to be recorded. Plain data behind a lock; the leader takes all that wait at once.
//!
//! **Invariant:** while somebody waits, exactly one caller leads or was told to, and everybody else
//! sleeps until they get their answer.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, Thread};
use std::time::Duration;

use super::{Draft, Receipt, RecordError};
use crate::entry::Moment;

/// Everybody who waits.
#[derive(Debug, Default)]
pub(super) struct Queue {
    next: u64,
    waiting: Vec<(Arc<Seat>, Pending)>,
    committing: bool,
    /// Whether the leader waits for more to come.
    gathering: bool,
    /// How many may come: those of the last commit and those who came meanwhile.
    expected: usize,
    /// How long the last commit took.
    took: Duration,
}

/// Events of one caller.
#[derive(Debug)]
pub(super) struct Pending {
    pub(super) ticket: u64,
    pub(super) drafts: Vec<Draft>,
    pub(super) moment: Moment,
}

/// Where one caller waits. Nobody else is woken with it.
#[derive(Debug)]
pub(super) struct Seat {
    thread: Thread,
    word: Mutex<Option<Word>>,
}

/// What a caller who waits is told.
#[derive(Debug)]
pub(super) enum Word {
    /// To commit, for itself and all others who wait.
    Lead,
    Answer(Answer),
}

pub(super) type Answer = Result<Vec<Receipt>, RecordError>;

/// Longer than this nobody is waited for, however slow the disk is.
const MAX_PATIENCE: Duration = Duration::from_millis(2);

impl Seat {
    /// For the thread that calls this.
    pub(super) fn new() -> Self {
        Self { thread: thread::current(), word: Mutex::new(None) }
    }

    pub(super) fn tell(&self, word: Word) {
        *self.word() = Some(word);
        self.thread.unpark();
    }

    /// Sleeps until it is told something. Only the thread that the seat is for may call this.
    pub(super) fn wait(&self) -> Word {
        loop {
            let told = self.word().take();
            if let Some(word) = told {
                return word;
            }
            thread::park();
        }
    }

    fn word(&self) -> MutexGuard<'_, Option<Word>> {
        self.word.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Queue {
    pub(super) fn push(&mut self, seat: &Arc<Seat>, drafts: Vec<Draft>, moment: Moment) {
        let ticket = self.next;
        self.next += 1;
        self.waiting.push((Arc::clone(seat), Pending { ticket, drafts, moment }));
    }

    /// Whether the caller is to commit now; nobody else does until [`Queue::finish_commit`].
    pub(super) const fn begin_commit(&mut self) -> bool {
        !std::mem::replace(&mut self.committing, true)
    }

    /// Whether all are there who may come.
    pub(super) const fn is_complete(&self) -> bool {
        self.waiting.len() >= self.expected
    }

    /// Whether the leader waited for just this one.
    pub(super) const fn is_awaited_last(&self) -> bool {
        self.gathering && self.is_complete()
    }

    /// How long the leader may wait for more: less than sharing a commit saves.
    pub(super) fn patience(&mut self) -> Duration {
        self.gathering = true;
        (self.took / 2).min(MAX_PATIENCE)
    }

    pub(super) fn take(&mut self) -> Vec<(Arc<Seat>, Pending)> {
        self.gathering = false;
        std::mem::take(&mut self.waiting)
    }

    /// So many callers were committed for; who is to lead now, if somebody came meanwhile.
    pub(super) fn finish_commit(&mut self, callers: usize, took: Duration) -> Option<Arc<Seat>> {
        self.expected = callers + self.waiting.len();
        self.took = took;
        let next = self.waiting.first().map(|(seat, _)| Arc::clone(seat));
        self.committing = next.is_some();
        next
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn push(queue: &mut Queue) -> Arc<Seat> {
        let seat = Arc::new(Seat::new());
        queue.push(&seat, Vec::new(), super::super::tip::now());
        seat
    }

    #[test]
    fn a_single_writer_waits_for_nobody() {
        let mut queue = Queue::default();
        for _ in 0..3 {
            push(&mut queue);
            assert!(queue.begin_commit());
            assert!(queue.is_complete());
            assert_eq!(queue.take().len(), 1);
            assert!(queue.finish_commit(1, Duration::from_secs(1)).is_none());
        }
    }

    #[test]
    fn whoever_came_meanwhile_leads_and_waits_a_moment_for_the_others() {
        let mut queue = Queue::default();
        push(&mut queue);
        push(&mut queue);
        assert!(queue.begin_commit());
        assert_eq!(queue.take().len(), 2);
        let late = push(&mut queue);
        assert!(!queue.begin_commit(), "one leads already");
        let next = queue.finish_commit(2, Duration::from_secs(1)).unwrap();
        assert!(Arc::ptr_eq(&next, &late));
        assert!(!queue.begin_commit(), "the lead was handed over");
        assert_eq!(queue.patience(), MAX_PATIENCE);
        push(&mut queue);
        assert!(!queue.is_awaited_last());
        push(&mut queue);
        assert!(queue.is_awaited_last(), "two who were answered and one who came meanwhile");
        assert_eq!(queue.take().len(), 3);
    }
}
