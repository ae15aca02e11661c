//! `belljar discard`: throws away what a box changed, after asking.

use anyhow::Context;
use belljar_ledger::BoxDiscarded;
use belljar_model::{Review, RunState};

use crate::boxes::trash::{Note, What};
use crate::boxes::{self, NamedBox, parts, work};
use crate::cli::DiscardArgs;
use crate::commands::clone;
use crate::failure::{Code, FAILED, Outcome, usage};
use crate::print;
use crate::record;
use crate::state::{State, is_empty};

pub(crate) fn run(args: &DiscardArgs) -> Outcome {
    let state = State::open()?;
    if let Some(of) = boxes::with_clone(&state, args.which.run.as_deref())? {
        return clone::discard(&state, &of, args);
    }
    let mut run = state.find(args.which.run.as_deref())?;
    if let Some(of) = boxes::of_run(&state, &run) {
        return of_box(&state, &of, args);
    }
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

/// What a box changed goes to the trash, and the box goes on from the host as it is.
fn of_box(state: &State, of: &NamedBox, args: &DiscardArgs) -> Outcome {
    let name = of.name();
    let _turn = of.turn_while_down("discard")?;
    let Some(run) = of.run().filter(|_| !is_empty(&of.dir.join("upper"))) else {
        print::note(&format!("box {name} holds nothing back"));
        return Ok(0);
    };
    let unapplied = work::guard(state, of, "discard", args.discard_work)?;
    let note = Note::new(name, What::Changes, "discard", unapplied)?;
    let event = BoxDiscarded {
        name: name.to_string(),
        trash: note.place(),
        unapplied: note.unapplied.clone(),
    };
    record::fact(state, event)?;
    let ledger = record::open(state).code(FAILED)?;
    record::discarded(&ledger, run.id()).map(drop).context("record the discard").code(FAILED)?;
    let next = parts::prepare(of)?;
    parts::write_run(&next, run.record.clone()).code(FAILED)?;
    parts::exchange(of, &parts::CHANGES, note)?;
    record::settle(&ledger, state, run.id(), "the operator discarded its changes").code(FAILED)?;
    print::note(&format!(
        "discarded the changes of box {name}; `belljar restore {name}` brings them back for 14 days"
    ));
    Ok(0)
}
