//! Gates: tasks that a person carries out by an answer.
//!
//! The answer to a gate carries the digest of what will happen. The digest is computed from canonical
//! bytes: each part has its length before it, so different contents never have the same bytes. An
//! answer to another run, plan, gate, input, dependent or policy has another digest and counts for
//! nothing. Only a person can answer: see [`may_answer`].

use std::time::Duration;

use belljar_ledger::Digest;
use belljar_model::RunId;
use belljar_model::caller::{Principal, PrincipalKind};
use belljar_model::plan::TaskId;

/// How long a program that shows a question ignores keys, so that a key typed before does not answer.
pub const ARM_DELAY: Duration = Duration::from_millis(500);

/// The content that an approval is bound to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Bound<'a> {
    pub run: RunId,
    /// The digest of the plan, with its input files.
    pub plan: Digest,
    pub gate: &'a TaskId,
    pub item: Option<u32>,
    /// The digest of the outputs that the gate reads; see [`inputs_digest`].
    pub inputs: Digest,
    /// The digests of the specifications of the direct dependents, in the order of the plan.
    pub dependents: &'a [Digest],
    /// The digest of the policy: template, network rules and secrets.
    pub policy: Digest,
}

impl Bound<'_> {
    /// Returns the canonical bytes of the content.
    pub fn bytes(&self) -> Vec<u8> {
        let Self { run, plan, gate, item, inputs, dependents, policy } = self;
        let mut bytes = b"belljar gate 1\0".to_vec();
        put(&mut bytes, run.to_string().as_bytes());
        put(&mut bytes, plan.as_bytes());
        put(&mut bytes, gate.as_str().as_bytes());
        put(&mut bytes, &item_bytes(*item));
        put(&mut bytes, inputs.as_bytes());
        bytes.extend_from_slice(&(dependents.len() as u64).to_be_bytes());
        for dependent in *dependents {
            put(&mut bytes, dependent.as_bytes());
        }
        put(&mut bytes, policy.as_bytes());
        bytes
    }

    /// Returns the digest that an answer must carry.
    pub fn digest(&self) -> Digest {
        Digest::of(&[&self.bytes()])
    }
}

/// Returns the digest of the outputs that a task reads, each with its task and item.
pub fn inputs_digest<'a>(
    outputs: impl Iterator<Item = (&'a TaskId, Option<u32>, &'a Digest)>,
) -> Digest {
    let mut bytes = b"belljar inputs 1\0".to_vec();
    for (task, item, output) in outputs {
        put(&mut bytes, task.as_str().as_bytes());
        put(&mut bytes, &item_bytes(item));
        put(&mut bytes, output.as_bytes());
    }
    Digest::of(&[&bytes])
}

fn item_bytes(item: Option<u32>) -> Vec<u8> {
    item.map_or_else(Vec::new, |item| item.to_be_bytes().to_vec())
}

fn put(bytes: &mut Vec<u8>, part: &[u8]) {
    bytes.extend_from_slice(&(part.len() as u64).to_be_bytes());
    bytes.extend_from_slice(part);
}

/// The authenticated sender of an answer or of a settlement.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Sender {
    pub principal: Principal,
    /// The run whose box sent the message, if it came from a box.
    pub run: Option<RunId>,
}

impl Sender {
    /// Returns the sender for a principal outside of all runs.
    pub const fn outside(principal: Principal) -> Self {
        Self { principal, run: None }
    }
}

/// The reason why a sender may not answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum SenderError {
    #[error("a run cannot answer for a person; answer outside of all boxes")]
    FromRun,
    #[error("only a person can answer, not a principal of kind `{}`", .0.name())]
    NoPerson(PrincipalKind),
}

/// Checks that a sender is a person, outside of all runs.
pub const fn may_answer(sender: &Sender) -> Result<(), SenderError> {
    if sender.run.is_some() {
        return Err(SenderError::FromRun);
    }
    match sender.principal.kind() {
        PrincipalKind::User | PrincipalKind::Person => Ok(()),
        kind @ (PrincipalKind::Service | PrincipalKind::Agent | PrincipalKind::Schedule) => {
            Err(SenderError::NoPerson(kind))
        }
    }
}

#[cfg(test)]
mod tests;
