//! The states of gates, from their files alone.

use std::io;

use belljar_ledger::Digest;

use super::{GateFile, GateFiles, PresentFiles};
use crate::approvals::file::DamagedFile;
use crate::approvals::{ApprovalOutcome, ApprovalState};

impl GateFiles {
    /// Returns the digests of all gates with their files.
    pub(in crate::approvals) fn present(
        &self,
    ) -> io::Result<impl Iterator<Item = (Digest, PresentFiles)>> {
        Ok(self.all()?.0.into_iter())
    }

    /// Returns a gate and its state. If a driver was killed after it recorded an outcome, the gate is open here
    /// until the next driver stores the outcome.
    pub(in crate::approvals) fn state(
        &self,
        digest: &Digest,
        now: u64,
    ) -> Result<Option<(GateFile, ApprovalState)>, DamagedFile> {
        let Some(gate) = self.question(digest)? else { return Ok(None) };
        if let Some(answer) = self.answer_in(digest, "answer")? {
            return Ok(Some((gate, answer.state())));
        }
        let state = match self.claim(digest)? {
            Some(claim) => ApprovalState::Claimed { by: claim.by },
            None if now >= gate.deadline => {
                let (outcome, at) = (ApprovalOutcome::Expired, gate.deadline);
                ApprovalState::Closed { outcome, by: None, at }
            }
            None => ApprovalState::Open,
        };
        Ok(Some((gate, state)))
    }
}
