//! The inputs, facts and commands of the state machine.

use std::collections::BTreeSet;
use std::fmt;
use std::str::FromStr;

use belljar_ledger::Digest;
use belljar_model::RunId;
use belljar_model::caller::Principal;
use belljar_model::plan::{Label, TaskId};

use super::checks::Checks;
use crate::runs::budget::{Amounts, Limits, Settlement, Spent, UsedUp};
use crate::runs::gate::Sender;
use crate::runs::graph::Selections;
use crate::runs::taint::Removed;

/// A time in milliseconds since 1970.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Moment(pub u64);

impl Moment {
    /// Returns the time after a duration in milliseconds.
    #[must_use]
    pub const fn after(self, millis: u64) -> Self {
        Self(self.0.saturating_add(millis))
    }
}

/// A task, or one instance of a task with `for_each`, written `id` or `id[n]`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TaskRef {
    pub task: TaskId,
    pub item: Option<u32>,
}

impl fmt::Display for TaskRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.item {
            Some(item) => write!(f, "{}[{item}]", self.task),
            None => self.task.fmt(f),
        }
    }
}

/// A text is not a reference to a task.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("invalid task; write ID or ID[NUMBER]")]
pub struct TaskRefError;

impl FromStr for TaskRef {
    type Err = TaskRefError;

    fn from_str(text: &str) -> Result<Self, TaskRefError> {
        let (task, item) = match text.strip_suffix(']').map(|text| text.split_once('[')) {
            Some(Some((task, item))) => (task, Some(item.parse().map_err(|_| TaskRefError)?)),
            Some(None) => return Err(TaskRefError),
            None => (text, None),
        };
        let parsed = Self { task: task.parse().map_err(|_| TaskRefError)?, item };
        // A second spelling such as `a[01]` is refused.
        if parsed.to_string() == text { Ok(parsed) } else { Err(TaskRefError) }
    }
}

/// One attempt of an instance of a task. Attempts of an instance are numbered from 1.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Try {
    pub task: TaskId,
    pub item: Option<u32>,
    pub attempt: u32,
}

impl Try {
    /// Returns the instance without the attempt.
    pub fn instance(&self) -> TaskRef {
        TaskRef { task: self.task.clone(), item: self.item }
    }
}

/// The output of an attempt.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Output {
    /// The salted commitment to the content of the output file.
    pub digest: Digest,
    pub size: u64,
    /// The labels of the content. The machine adds the labels of the task's inputs.
    pub labels: BTreeSet<Label>,
    /// The values that other tasks need from the content; see [`Graph::select`].
    ///
    /// [`Graph::select`]: crate::runs::graph::Graph::select
    pub selections: Selections,
}

macro_rules! names {
    ($(#[$doc:meta])* $name:ident { $($(#[$about:meta])* $variant:ident = $text:literal),+ $(,)? }) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum $name { $($(#[$about])* $variant),+ }

        impl $name {
            /// All values.
            pub const ALL: &[Self] = &[$(Self::$variant),+];

            /// The name in the ledger.
            pub const fn name(self) -> &'static str {
                match self { $(Self::$variant => $text),+ }
            }

            /// Returns the value with a name.
            pub fn named(name: &str) -> Option<Self> {
                Self::ALL.iter().copied().find(|value| value.name() == name)
            }
        }
    };
}

pub(super) use names;

names! {
    /// The typed reason of a failure. Text of a program never decides what happens next.
    FailReason {
        /// The exit status is not 0.
        Exit = "exit",
        Signal = "signal",
        Timeout = "timeout",
        /// A limit of the box ended the program.
        Limit = "limit",
        TooLarge = "too_large",
        CannotStart = "cannot_start",
        /// A TypeScript program threw an exception.
        Throw = "throw",
        /// An agent made no commit.
        NoChange = "no_change",
        Unavailable = "unavailable",
        /// The model refused the request.
        Refused = "refused",
        /// The output does not have the required form.
        Invalid = "invalid",
        CutOff = "cut_off",
        TooLong = "too_long",
        Turns = "turns",
        BadKey = "bad_key",
        /// The lease is used up and could not be extended.
        OverBudget = "over_budget",
        /// A stub that fails as its plan says.
        Stub = "stub",
    }
}

impl FailReason {
    /// Returns whether another attempt can succeed.
    pub const fn is_retried(self) -> bool {
        match self {
            Self::Exit
            | Self::Signal
            | Self::Timeout
            | Self::Throw
            | Self::Unavailable
            | Self::Invalid
            | Self::CutOff => true,
            Self::Limit
            | Self::TooLarge
            | Self::CannotStart
            | Self::NoChange
            | Self::Refused
            | Self::TooLong
            | Self::Turns
            | Self::BadKey
            | Self::OverBudget
            | Self::Stub => false,
        }
    }
}

names! {
    /// What the ledger shows about an attempt whose host is gone.
    Evidence {
        /// The box was never created.
        NotStarted = "not_started",
        /// The box ran, but it sent nothing that can have had an effect.
        NoEffect = "no_effect",
        /// The box may have had an effect.
        MayHaveEffect = "may_have_effect",
        /// An input of the task is missing, damaged or redacted, so the attempt cannot start.
        InputMissing = "input_missing",
    }
}

names! {
    /// The state of a task or of an instance.
    Status {
        Waiting = "waiting",
        Ready = "ready",
        Running = "running",
        Judging = "judging",
        Backoff = "backoff",
        Gated = "gated",
        Attention = "attention",
        Done = "done",
        Failed = "failed",
        Skipped = "skipped",
        Stopped = "stopped",
        Cancelled = "cancelled",
    }
}

impl Status {
    /// Returns whether the state never changes again.
    pub const fn is_final(self) -> bool {
        match self {
            Self::Done | Self::Failed | Self::Skipped | Self::Stopped | Self::Cancelled => true,
            Self::Waiting
            | Self::Ready
            | Self::Running
            | Self::Judging
            | Self::Backoff
            | Self::Gated
            | Self::Attention => false,
        }
    }
}

names! {
    /// The state of a run.
    Phase {
        /// A task is ready, runs, is judged or waits for its next attempt.
        Running = "running",
        /// Only gates are open.
        Waiting = "waiting",
        /// A task needs the decision of a person about a lost attempt.
        Attention = "attention",
        Ended = "ended",
    }
}

names! {
    /// The result of a run.
    Outcome {
        Succeeded = "succeeded",
        Failed = "failed",
        OverBudget = "over_budget",
        Cancelled = "cancelled",
    }
}

names! {
    /// The reason why a task ends without an attempt that decides it.
    StopReason {
        /// The condition of the task is false.
        Condition = "condition",
        /// An input was skipped.
        InputSkipped = "input_skipped",
        /// An input failed or was stopped or cancelled.
        InputFailed = "input_failed",
        /// A budget is used up.
        Budget = "budget",
        /// The list of items is too long.
        TooLarge = "too_large",
        /// The value for the items is not a list.
        NoList = "no_list",
        /// A person cancelled the task or the run.
        Cancelled = "cancelled",
    }
}

impl StopReason {
    /// The final state of a task that ends for this reason.
    pub const fn status(self) -> Status {
        match self {
            Self::Condition | Self::InputSkipped => Status::Skipped,
            Self::InputFailed | Self::Budget => Status::Stopped,
            Self::TooLarge | Self::NoList => Status::Failed,
            Self::Cancelled => Status::Cancelled,
        }
    }
}

names! {
    /// The reason why a gate was refused.
    RefusedBecause {
        /// A person rejected it.
        Rejected = "rejected",
        /// Nobody answered before the deadline.
        Expired = "expired",
        /// The inputs have a label that excludes the gate, so nobody was asked.
        Labels = "labels",
    }
}

/// The end of an attempt.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum End {
    Done(Output),
    Failed {
        reason: FailReason,
        /// A message for people and for the prompt of the next attempt.
        text: String,
    },
}

/// The result of the checks of an output.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Verdict {
    Passed,
    Rejected {
        /// The number of the check in the plan, from 0.
        check: u32,
        text: String,
    },
}

/// The answer of a person to a gate.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GateAnswer {
    /// The digest of the question that the person saw.
    pub digest: Digest,
    pub by: Sender,
    pub verdict: GateVerdict,
}

/// The decision of a person about a gate.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum GateVerdict {
    /// The person agrees. The gate passes on its input unchanged.
    Approve(Output),
    /// The person agrees to another text. The gate passes on this text.
    Edit(Output),
    /// The person refuses, and can say why.
    Reject(Option<String>),
}

/// The decision of a person about a lost attempt.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Settled {
    /// The attempt is repeated.
    Rerun,
    /// The task is done with this output.
    Done(Output),
    Failed,
}

/// A lease, and the box that will use it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Grant {
    pub lease: Limits,
    /// The run id of the box, if the executor needs a box.
    pub box_run: Option<RunId>,
    /// The number of the driver that starts the box.
    pub epoch: u64,
}

/// An input of the machine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Input {
    pub at: Moment,
    /// Random bits for the jitter of a retry.
    pub random: u32,
    pub kind: InputKind,
}

/// The kinds of inputs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum InputKind {
    /// The plan was accepted, with the digests of the plan and of the policy.
    Accepted {
        plan: Digest,
        policy: Digest,
    },
    /// A driver opened the run.
    Opened {
        epoch: u64,
    },
    /// The answer to [`Command::Reserve`].
    Lease(Try, Result<Grant, Spent>),
    /// More was reserved for an attempt that runs or is being checked.
    More(Try, Limits),
    /// The host reported the end of an attempt; without a usage, the whole lease is spent.
    Ended(Try, End, Option<Amounts>),
    /// The host of an attempt is gone, or an input of a ready task is missing.
    Lost(Try, Evidence),
    /// The checks of an output ended.
    Judged(Try, Verdict, Option<Amounts>, Checks),
    Answered(GateAnswer),
    Settled(Try, Settled, Sender),
    /// A caller cancels a task, an instance, or the run.
    Cancel {
        of: Option<TaskRef>,
        by: Principal,
    },
    /// Time passed. Also returns the consequences of earlier facts.
    Time,
}

/// Something that happened in a run, as it is recorded.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fact {
    pub at: Moment,
    pub kind: FactKind,
}

/// The kinds of facts. The names of the ledger events are in [`facts`](crate::runs::facts).
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum FactKind {
    PlanAccepted {
        plan: Digest,
        policy: Digest,
    },
    DriverOpened {
        epoch: u64,
    },
    TaskStarted {
        of: Try,
        box_run: Option<RunId>,
        epoch: u64,
        /// The number of the tier, from 0.
        tier: u32,
        lease: Limits,
        /// The digest of the outputs that the task reads.
        inputs: Digest,
    },
    /// A label removes a grant from the box of an attempt that is about to start.
    GrantRemoved {
        of: Try,
        removed: Removed,
    },
    TaskEnded {
        of: Try,
        end: Ended,
        usage: Option<Amounts>,
    },
    TaskJudged {
        of: Try,
        verdict: Verdict,
        usage: Option<Amounts>,
        checks: Checks,
    },
    /// The next attempt starts at `due`. The jitter is part of the time until then.
    TaskRetrying {
        of: Try,
        tier: u32,
        due: Moment,
        jitter: u64,
    },
    TaskLost {
        of: Try,
        evidence: Evidence,
    },
    TaskStopped {
        of: TaskRef,
        reason: StopReason,
        usage: Option<Amounts>,
        /// The budget that is used up, if this is the reason.
        used_up: Option<Box<UsedUp>>,
        /// The runs of the boxes of checks, if the attempt was cancelled during its checks.
        boxes: Vec<RunId>,
    },
    ApprovalAsked {
        of: Try,
        digest: Digest,
        deadline: Moment,
    },
    ApprovalGiven {
        of: Try,
        digest: Digest,
        by: Principal,
        edited: bool,
        output: Output,
    },
    ApprovalRefused {
        of: Try,
        digest: Digest,
        why: RefusedBecause,
        by: Option<Principal>,
        /// The reason that the person gave, or the labels that exclude the gate.
        text: Option<String>,
    },
    AttentionSettled {
        of: Try,
        how: Settled,
        by: Principal,
    },
    BudgetLeased {
        of: Try,
        more: Limits,
    },
    PlanCancelling {
        of: Option<TaskRef>,
        by: Principal,
    },
    PlanEnded {
        outcome: Outcome,
    },
}

/// The recorded end of an attempt.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Ended {
    Done(Output),
    Failed {
        reason: FailReason,
        text: String,
    },
    /// The attempt is repeated and does not count.
    Lost(Evidence),
}

/// An action that the driver carries out after the facts are durable.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Command {
    /// Reserve a lease for the next attempt, and answer with [`InputKind::Lease`].
    Reserve(Try),
    /// Start the host of an attempt.
    Start(Try),
    /// Give the box of an attempt, or of its check, a larger lease.
    Extend(Try, Limits),
    /// Run the checks of an output.
    Judge(Try),
    /// Settle the lease of an attempt in the accounts.
    Settle(Try, Settlement),
    /// End the host or the checks of an attempt, and report its end.
    Kill(Try),
    /// Tell people that a gate waits for an answer.
    Notify(Digest),
    /// Call [`decide`](super::decide) with [`InputKind::Time`] at this time.
    Wake(Moment),
}
