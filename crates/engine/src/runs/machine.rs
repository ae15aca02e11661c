//! The state machine of a run: the states of its tasks, and what happens next.
//!
//! [`decide`] turns an input into facts. [`RunState::apply`] turns a fact into a new state and commands.
//! Both are pure. The driver records the facts in the ledger before it carries out the commands. Loading
//! a run applies its recorded facts again, in their order; it reads no files.
//!
//! | state | input | next | facts → commands |
//! |---|---|---|---|
//! | waiting | inputs done | ready; approval: gated | none → Reserve; approval.asked → Notify |
//! | waiting | `when` false; input failed | skipped; stopped | task.stopped |
//! | ready | lease; none left | running; stopped | grant.removed, task.started → Start; task.stopped |
//! | running | ended well | judging, or done | task.ended → Settle, Judge |
//! | judging | all checks pass | done | task.judged → Settle |
//! | running, judging | failed, rejected | backoff, else failed | task.ended or task.judged, task.retrying → Settle, Wake |
//! | running | host gone: no effect; maybe | ready; attention | task.ended; task.lost → Settle |
//! | backoff | due | ready | none → Reserve |
//! | waiting | inputs of an approval done, labels exclude it | failed | approval.refused |
//! | gated | approve, edit; reject, deadline | done; failed | approval.given; approval.refused |
//! | attention | settle | ready, done, failed | attention.settled |
//! | ready | output of the run that is repeated | done | attention.settled, recorded at the start |
//! | open | cancel | cancelled, after Kill | plan.cancelling → Kill; task.stopped |
//!
//! **Edges.** A task is decided when all its inputs are final. A failed, stopped or cancelled input
//! without `?` stops it at once. A skipped input without `?` skips it. Of the inputs with `?`, at least one
//! instance must be done; if none is, the task is stopped if one of them failed, else skipped. Then its
//! condition is tested. The result does not depend on the order in which inputs end.
//!
//! **Consequences.** A fact can make other facts necessary: a dependent is stopped, a gate is asked, an
//! attempt is repeated. [`decide`] returns these for [`InputKind::Time`], also after a crash between a fact
//! and its consequence. [`advance`] applies an input with all its consequences.
//!
//! **Time** comes in with inputs only. It never goes back: if the time of an input is earlier than the time
//! of the last applied fact, the machine uses the time of that fact.

mod apply;
mod checks;
mod decide;
mod labels;
mod state;
mod types;

pub use checks::{CheckKind, CheckOutcome, CheckResult, CheckResultError, Checks};
pub use decide::{advance, decide};
pub use state::RunState;
pub use types::*;
