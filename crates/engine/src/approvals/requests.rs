//! The supervisor's side: it opens the questions of its box, carries answers out and closes the rest.

use std::io;

use belljar_ledger::Digest;
use belljar_model::boxes::BoxName;
use belljar_model::caller::Principal;

use super::Verdict;
use super::file::{Answer, Asked, Damage, Files, NewRequest, Outcome, RequestId};
use crate::scope::Scoped;

/// Where a supervisor keeps the questions of one box.
#[derive(Clone, Debug)]
pub struct BoxRequests {
    files: Files,
    name: BoxName,
}

/// An answer that waits for the supervisor.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClaimedAnswer {
    pub verdict: Verdict,
    pub by: Principal,
    pub digest: Digest,
}

impl BoxRequests {
    pub fn new(state: &Scoped, name: BoxName) -> Self {
        Self { files: Files::under(state.home()), name }
    }

    pub const fn name(&self) -> &BoxName {
        &self.name
    }

    /// Opens a question whose event is in the ledger.
    pub fn open(&self, request: NewRequest) -> io::Result<()> {
        self.files.put_asked(&Asked::new(request))
    }

    /// The answer to a question; none if there is none.
    pub fn claim(&self, id: RequestId) -> Result<Option<ClaimedAnswer>, Damage> {
        let Some(answer) = self.files.claim(id)? else { return Ok(None) };
        let verdict = match answer.outcome {
            Outcome::Allowed => Verdict::Allow,
            Outcome::Denied => Verdict::Deny,
            Outcome::Expired
            | Outcome::Withdrawn
            | Outcome::RulesChanged
            | Outcome::Gone
            | Outcome::Unrecorded => return Ok(None),
        };
        Ok(answer.by.map(|by| ClaimedAnswer { verdict, by, digest: answer.digest }))
    }

    /// The answer is on record and is carried out now.
    pub fn settle(&self, id: RequestId) -> io::Result<()> {
        self.files.settle(id)
    }

    /// Removes an answer that is about something else than what was asked.
    pub fn refuse_claim(&self, id: RequestId) {
        self.files.remove_claim(id);
    }

    /// Nobody waits for the answer any more. Whoever answered too late is named.
    pub fn close(&self, id: RequestId, digest: Digest, outcome: Outcome, now: u64) {
        let by = self.files.claim(id).ok().flatten().and_then(|claim| claim.by);
        let answer = Answer::of(id, digest, outcome, by, now);
        // What cannot be closed here is closed by the next who lists it after the box ended.
        self.files.put_answer(&answer).ok();
    }
}
