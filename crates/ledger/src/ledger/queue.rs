//! The queue of callers that wait to have events recorded.
//!
//! The queue is plain data behind a mutex. One caller, the leader, commits the events of all
//! waiting callers at once.
//!
//! **Invariant:** while callers wait, exactly one of them leads or was woken to lead, and all
//! others sleep until they get their result.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, Thread};
use std::time::Duration;

use super::{Draft, Receipt, RecordError};
use crate::entry::Moment;

/// The callers that wait for a commit.
#[derive(Debug, Default)]
pub(super) struct Queue {
    next: u64,
    waiting: Vec<(Arc<Waiter>, Pending)>,
    committing: bool,
    /// Whether the leader waits for more callers.
    gathering: bool,
    /// The number of callers to wait for: those of the last commit plus those that arrived during
    /// it.
    expected: usize,
    /// The duration of the last commit.
    took: Duration,
}

/// The events that one caller wants to record.
#[derive(Debug)]
pub(super) struct Pending {
    pub(super) ticket: u64,
    pub(super) drafts: Vec<Draft>,
    pub(super) moment: Moment,
}

/// One sleeping caller, which is woken individually.
#[derive(Debug)]
pub(super) struct Waiter {
    thread: Thread,
    message: Mutex<Option<Wake>>,
}

/// The message that wakes a waiting caller.
#[derive(Debug)]
pub(super) enum Wake {
    /// The caller must commit for itself and all other waiting callers.
    Lead,
    Done(RecordResult),
}

pub(super) type RecordResult = Result<Vec<Receipt>, RecordError>;

/// The maximum time that a leader waits for more callers, however slow the disk is.
const MAX_GATHERING: Duration = Duration::from_millis(2);

impl Waiter {
    /// Creates the waiter of the current thread.
    pub(super) fn new() -> Self {
        Self { thread: thread::current(), message: Mutex::new(None) }
    }

    pub(super) fn wake(&self, message: Wake) {
        *self.message() = Some(message);
        self.thread.unpark();
    }

    /// Sleeps until a message arrives; must be called by the thread that created the waiter.
    pub(super) fn wait(&self) -> Wake {
        loop {
            let message = self.message().take();
            if let Some(message) = message {
                return message;
            }
            thread::park();
        }
    }

    fn message(&self) -> MutexGuard<'_, Option<Wake>> {
        self.message.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Queue {
    pub(super) fn push(&mut self, waiter: &Arc<Waiter>, drafts: Vec<Draft>, moment: Moment) {
        let ticket = self.next;
        self.next += 1;
        self.waiting.push((Arc::clone(waiter), Pending { ticket, drafts, moment }));
    }

    /// Returns whether the caller must commit now; no other caller does before
    /// [`Queue::finish_commit`].
    pub(super) const fn begin_commit(&mut self) -> bool {
        !std::mem::replace(&mut self.committing, true)
    }

    /// Returns whether all expected callers are waiting.
    pub(super) const fn is_complete(&self) -> bool {
        self.waiting.len() >= self.expected
    }

    /// Returns whether the caller that was just added completes the group that the leader waits
    /// for.
    pub(super) const fn is_awaited_last(&self) -> bool {
        self.gathering && self.is_complete()
    }

    /// Starts to gather callers and returns the maximum wait: less than the time that sharing a
    /// commit saves.
    pub(super) fn start_gathering(&mut self) -> Duration {
        self.gathering = true;
        (self.took / 2).min(MAX_GATHERING)
    }

    pub(super) fn take(&mut self) -> Vec<(Arc<Waiter>, Pending)> {
        self.gathering = false;
        std::mem::take(&mut self.waiting)
    }

    /// Ends a commit for `callers` callers and returns the next leader if more callers arrived
    /// meanwhile.
    pub(super) fn finish_commit(&mut self, callers: usize, took: Duration) -> Option<Arc<Waiter>> {
        self.expected = callers + self.waiting.len();
        self.took = took;
        let next = self.waiting.first().map(|(waiter, _)| Arc::clone(waiter));
        self.committing = next.is_some();
        next
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn push(queue: &mut Queue) -> Arc<Waiter> {
        let waiter = Arc::new(Waiter::new());
        queue.push(&waiter, Vec::new(), super::super::tip::now());
        waiter
    }

    #[test]
    fn single_writer_does_not_wait_for_other_callers() {
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
    fn caller_that_arrived_during_a_commit_leads_the_next_one() {
        let mut queue = Queue::default();
        push(&mut queue);
        push(&mut queue);
        assert!(queue.begin_commit());
        assert_eq!(queue.take().len(), 2);
        let late = push(&mut queue);
        assert!(!queue.begin_commit(), "another caller leads already");
        let next = queue.finish_commit(2, Duration::from_secs(1)).unwrap();
        assert!(Arc::ptr_eq(&next, &late));
        assert!(!queue.begin_commit(), "the late caller leads");
        assert_eq!(queue.start_gathering(), MAX_GATHERING);
        push(&mut queue);
        assert!(!queue.is_awaited_last());
        push(&mut queue);
        assert!(
            queue.is_awaited_last(),
            "two callers of the last commit and one that arrived during it"
        );
        assert_eq!(queue.take().len(), 3);
    }
}
