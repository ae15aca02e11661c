//! Who waits to be recorded. Plain data behind a lock; the leader takes all that wait at once.

use std::collections::HashMap;

use super::{Draft, Receipt, RecordError};
use crate::entry::Moment;

/// Everybody who waits, and the answers that were not yet fetched.
#[derive(Debug, Default)]
pub(super) struct Queue {
    next: u64,
    waiting: Vec<Pending>,
    answers: HashMap<u64, Answer>,
    committing: bool,
}

/// Events of one caller.
#[derive(Debug)]
pub(super) struct Pending {
    pub(super) ticket: u64,
    pub(super) drafts: Vec<Draft>,
    pub(super) moment: Moment,
}

pub(super) type Answer = Result<Vec<Receipt>, RecordError>;

impl Queue {
    pub(super) fn push(&mut self, drafts: Vec<Draft>, moment: Moment) -> u64 {
        let ticket = self.next;
        self.next += 1;
        self.waiting.push(Pending { ticket, drafts, moment });
        ticket
    }

    /// The answer to a ticket, once.
    pub(super) fn result(&mut self, ticket: u64) -> Option<Answer> {
        self.answers.remove(&ticket)
    }

    /// Whether the caller is to commit now; nobody else does until [`Queue::finish_commit`].
    pub(super) fn begin_commit(&mut self) -> bool {
        !std::mem::replace(&mut self.committing, true)
    }

    pub(super) fn take(&mut self) -> Vec<Pending> {
        std::mem::take(&mut self.waiting)
    }

    pub(super) fn finish_commit(&mut self, answers: Vec<(u64, Answer)>) {
        self.committing = false;
        self.answers.extend(answers);
    }
}
