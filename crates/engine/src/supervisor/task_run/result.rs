//! The result of one attempt of a task, as its host writes it to `result.json`.

use std::io::{self, Read};

use belljar_ledger::{Body, Committing, Digest, Salt};
use belljar_model::{Reason, RunId};
use serde::{Deserialize, Serialize};

use crate::network::broker::NetworkUsage;

/// The result of one attempt of a task.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TaskResult {
    /// The id of the box run.
    pub run: RunId,
    pub outcome: TaskOutcome,
    /// The size and the commitment of the output; `None` if the outcome has no output.
    pub output: Option<TaskOutput>,
    /// What the attempt used of the network, as the broker observed it.
    pub usage: NetworkUsage,
    /// The time from the start of the program to its end, in microseconds.
    pub wall_micros: u64,
    /// The number of changed files of the workspace, which wait for review; `None` without an overlay.
    pub changed_files: Option<u64>,
    /// The reference in the user's repository with the commits of an agent that failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kept: Option<String>,
}

/// How one attempt of a task ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TaskOutcome {
    /// The program exited with this status. A `code` task that returned a value has status 0.
    Exited { status: i32 },
    /// A signal killed the program.
    Signaled { signal: i32 },
    /// The program ran longer than its timeout.
    Timeout,
    /// The box exceeded a limit: memory, processes, disk or the sum of both output streams.
    Limit { limit: Reason },
    /// The output is larger than its limit. The box was killed, and the output was removed.
    TooLarge,
    /// A `code` task threw an exception.
    Threw { error: String },
    /// A model gave no answer. `kind` is the name of a [`ModelFailureKind`](belljar_wire::ModelFailureKind).
    NoAnswer { kind: String, error: String },
    /// An agent ended well, but it changed nothing.
    NoChange,
    /// An agent failed because its model did not answer.
    Unavailable { error: String },
    /// The result of the program is not usable, such as a damaged repository of an agent.
    Invalid { error: String },
    /// The driver killed the box.
    Killed,
    /// The program was not started.
    CannotStart { error: String },
    /// The supervision of the box failed. The program may have run.
    Failed { error: String },
}

impl TaskOutcome {
    /// Returns whether the program ended well.
    pub const fn is_success(&self) -> bool {
        matches!(self, Self::Exited { status: 0 })
    }

    /// Returns the name of the outcome, as plans and the ledger name it.
    pub const fn name(&self) -> &'static str {
        match self {
            Self::Exited { .. } => "exit",
            Self::Signaled { .. } => "signal",
            Self::Timeout => "timeout",
            Self::Limit { .. } => "limit",
            Self::TooLarge => "too_large",
            Self::Threw { .. } => "throw",
            Self::NoAnswer { .. } => "no_answer",
            Self::NoChange => "no_change",
            Self::Unavailable { .. } => "unavailable",
            Self::Invalid { .. } => "invalid",
            Self::Killed => "killed",
            Self::CannotStart { .. } => "cannot_start",
            Self::Failed { .. } => "failed",
        }
    }

    /// Returns the outcome for the end of a box.
    pub(crate) fn of(reason: Reason, exit: Option<i32>, signal: Option<i32>) -> Self {
        match (reason, exit, signal) {
            (Reason::Exited, Some(status), _) => Self::Exited { status },
            (Reason::Signaled, _, Some(signal)) => Self::Signaled { signal },
            (Reason::Timeout, ..) => Self::Timeout,
            (Reason::Memory | Reason::Pids | Reason::Disk | Reason::Output, ..) => {
                Self::Limit { limit: reason }
            }
            (Reason::Interrupted, ..) => Self::Killed,
            (Reason::NotFound | Reason::NotExecutable | Reason::CouldNotStart, ..) => {
                Self::CannotStart { error: reason.sentence().to_owned() }
            }
            (Reason::Exited | Reason::Signaled, ..) => {
                Self::Failed { error: "the end of the program was not observed".to_owned() }
            }
        }
    }
}

/// The size of an output and a salted commitment to its content.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TaskOutput {
    size: u64,
    hash: Digest,
    /// The salt of the commitment, in hexadecimal.
    salt: String,
}

impl TaskOutput {
    pub(crate) fn new(body: &Body, salt: Salt) -> Self {
        Self { size: body.size(), hash: body.hash(), salt: hex::encode(salt.as_bytes()) }
    }

    /// Returns the size of the output in bytes.
    pub const fn size(&self) -> u64 {
        self.size
    }

    /// Returns the salted hash of the output.
    pub const fn hash(&self) -> Digest {
        self.hash
    }

    /// Returns the reference to the output for an event of the ledger.
    pub fn body(&self) -> io::Result<Body> {
        Ok(Body::committed(self.hash, self.size, self.salt()?))
    }

    /// Returns whether a content is this output.
    pub fn matches(&self, content: &mut dyn Read) -> io::Result<bool> {
        let mut committing = Committing::new(self.salt()?);
        let mut chunk = vec![0; 1 << 16];
        loop {
            match content.read(&mut chunk) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
                Ok(0) => break,
                Ok(read) => committing.update(chunk.get(..read).unwrap_or_default()),
            }
        }
        let body = committing.finish();
        Ok((body.hash(), body.size()) == (self.hash, self.size))
    }

    /// Returns the salt of the commitment.
    pub(crate) fn salt(&self) -> io::Result<Salt> {
        let mut salt = [0; Salt::LENGTH];
        hex::decode_to_slice(&self.salt, &mut salt)
            .map_err(|error| io::Error::other(error.to_string()))?;
        Ok(Salt::new(salt))
    }
}

#[cfg(test)]
mod tests {
    use belljar_model::net::MicroUsd;

    use super::*;

    #[test]
    fn result_survives_its_file_format() {
        let body = Body::hash_of(b"x").unwrap();
        let outcomes = [
            TaskOutcome::Exited { status: 3 },
            TaskOutcome::Limit { limit: Reason::Memory },
            TaskOutcome::Threw { error: "TypeError: x".to_owned() },
            TaskOutcome::TooLarge,
            TaskOutcome::NoChange,
            TaskOutcome::Unavailable { error: "status 529".to_owned() },
        ];
        for outcome in outcomes {
            let result = TaskResult {
                run: RunId::new(1, 2),
                outcome,
                output: Some(TaskOutput::new(&body, Salt::new([7; 32]))),
                usage: NetworkUsage {
                    money: MicroUsd(1_234_567),
                    tokens: 9,
                    ..NetworkUsage::default()
                },
                wall_micros: 5,
                changed_files: Some(1),
                kept: Some("refs/belljar/x/fix.failed-1".to_owned()),
            };
            let text = serde_json::to_vec_pretty(&result).unwrap();
            assert_eq!(serde_json::from_slice::<TaskResult>(&text).unwrap(), result);
        }
    }
}
