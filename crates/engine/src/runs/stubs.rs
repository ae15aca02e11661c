//! The outputs of stubs.
//!
//! The content of such an output is in the plan, which is on disk since the submission. So the output is
//! durable without a file of its own, and a stub needs no sync. The file is written when a task or a person
//! reads the output, and again if it is lost.
//!
//! The commitment is salted like any other. The salt is derived from the manifest of the submission, which
//! contains random salts and is not in the ledger.

use belljar_ledger::{Committing, Digest, Salt};
use belljar_model::plan::{CheckedPlan, Executor, OutputKind};
use serde_json::Value as Json;

use super::host::TaskOutput;
use super::machine::TaskRef;

/// The key from which the salts of the stubs of one run are derived.
#[derive(Clone, Copy)]
pub(crate) struct StubKey(Digest);

impl std::fmt::Debug for StubKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("StubKey(..)")
    }
}

impl StubKey {
    /// Derives the key from the text of the manifest.
    pub(crate) fn of(manifest: &[u8]) -> Self {
        Self(Digest::of(&[b"belljar stub key 1\0", manifest]))
    }

    /// Returns the commitment to the output of a stub.
    pub(crate) fn commit(self, of: &TaskRef, content: &[u8]) -> TaskOutput {
        let parts = [b"belljar stub salt 1\0", self.0.as_bytes().as_slice()];
        let task = of.to_string();
        let salt = Salt::new(*Digest::of(&[parts[0], parts[1], task.as_bytes()]).as_bytes());
        let mut committing = Committing::new(salt);
        committing.update(content);
        TaskOutput::new(&committing.finish(), salt)
    }
}

/// Returns the content of the output of a stub; `None` if the task is not a stub with an output.
pub(crate) fn content(plan: &CheckedPlan, of: &TaskRef) -> Option<String> {
    let task = plan.task(&of.task)?;
    let Executor::Stub { output, fail: None, .. } = &task.executor else { return None };
    Some(match (task.output.kind, output) {
        (OutputKind::Json, value) => value.to_string(),
        (_, Json::String(text)) => text.clone(),
        (_, value) => value.to_string(),
    })
}
