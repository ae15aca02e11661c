//! The supervisor's access to approvals: opens the questions of its box, reads answers, closes questions.

use std::io;

use belljar_ledger::Digest;
use belljar_model::boxes::BoxName;
use belljar_model::caller::Principal;

use super::file::{
    AnswerFile, ApprovalFiles, ApprovalOutcome, DamagedFile, NewRequest, QuestionFile, RequestId,
};
use crate::scope::Scoped;

/// The questions of one box, as its supervisor uses them.
#[derive(Clone, Debug)]
pub struct BoxRequests {
    files: ApprovalFiles,
    name: BoxName,
}

/// The answer of a person to a request of a box.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RequestVerdict {
    Allow,
    Deny,
}

/// An answer that the supervisor has not carried out yet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClaimedAnswer {
    pub verdict: RequestVerdict,
    pub by: Principal,
    pub digest: Digest,
}

impl BoxRequests {
    pub fn new(state: &Scoped, name: BoxName) -> Self {
        Self { files: ApprovalFiles::under(state.home()), name }
    }

    pub const fn name(&self) -> &BoxName {
        &self.name
    }

    /// Writes the file of a question whose event is in the ledger.
    pub fn open(&self, request: NewRequest) -> io::Result<()> {
        self.files.put_asked(&QuestionFile::new(request))
    }

    /// Returns the answer of a person to a question, or `None` if there is no answer yet.
    pub fn claim(&self, id: RequestId) -> Result<Option<ClaimedAnswer>, DamagedFile> {
        let Some(answer) = self.files.claim(id)? else { return Ok(None) };
        let verdict = match answer.outcome {
            ApprovalOutcome::Allowed => RequestVerdict::Allow,
            ApprovalOutcome::Denied => RequestVerdict::Deny,
            ApprovalOutcome::Edited
            | ApprovalOutcome::Expired
            | ApprovalOutcome::Withdrawn
            | ApprovalOutcome::RulesChanged
            | ApprovalOutcome::Gone
            | ApprovalOutcome::Unrecorded => return Ok(None),
        };
        Ok(answer.by.map(|by| ClaimedAnswer { verdict, by, digest: answer.digest }))
    }

    /// Marks an answer as carried out. The caller has recorded the answer in the ledger.
    pub fn settle(&self, id: RequestId) -> io::Result<()> {
        self.files.settle(id)
    }

    /// Removes an answer whose digest does not match the question.
    pub fn refuse_claim(&self, id: RequestId) {
        self.files.remove_claim(id);
    }

    /// Closes a question that no longer needs an answer. The file names a person who answered too late.
    pub fn close(&self, id: RequestId, digest: Digest, outcome: ApprovalOutcome, now: u64) {
        let by = self.files.claim(id).ok().flatten().and_then(|claim| claim.by);
        let answer = AnswerFile::of(id, digest, outcome, by, now);
        // If this fails, the next `Approvals::list` after the end of the box closes the question.
        self.files.put_answer(&answer).ok();
    }
}
