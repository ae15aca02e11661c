//! `belljar discard`: throws away what a box changed, after asking.

use anyhow::Context;
use belljar_model::{Review, RunState};

use crate::cli::DiscardArgs;
use crate::failure::{Code, FAILED, Outcome, usage};
use crate::print;
use crate::record;
use crate::state::State;

pub(crate) fn run(args: &DiscardArgs) -> Outcome {
    let state = State::open()?;
    let mut run = state.find(args.which.run.as_deref())?;
    if run.record.state == RunState::Running {
        return Err(usage(format!("run {} is still running", run.id())));
    }
    if !run.record.review.waits() {
        print::note(&format!("run {} holds nothing back", run.id()));
        return Ok(0);
    }
    let question = format!("throw away what run {} changed?", run.id());
    if !args.yes && !print::confirm(&question).code(FAILED)? {
        return Err(usage("nothing was discarded; `--yes` answers the question"));
    }
    let ledger = record::open(&state).code(FAILED)?;
    record::discarded(&ledger, run.id()).map(drop).context("record the discard").code(FAILED)?;
    belljar_workspace::discard(&run.dir).context("discard the changes").code(FAILED)?;
    run.record.review = Review::Discarded;
    run.save().code(FAILED)?;
    record::settle(&ledger, &state, run.id(), "the operator discarded its changes").code(FAILED)?;
    print::note(&format!("discarded the changes of run {}", run.id()));
    Ok(0)
}
