//! `belljar discard`: throws away what a box changed, after asking.

use anyhow::Context;
use belljar_ledger::BoxDiscarded;
use belljar_model::{Review, RunState};

use crate::cli::DiscardArgs;
use crate::commands::clone;
use crate::exit::Outcome;
use crate::print;
use crate::scope;
use belljar_engine::boxes::trash::{Note, What};
use belljar_engine::boxes::{self, NamedBox, parts, work};
use belljar_engine::error::{ErrorKind, WithKind as _, invalid};
use belljar_engine::record;
use belljar_engine::review;
use belljar_engine::scope::Scoped;
use belljar_engine::store::is_empty;

pub(crate) fn run(args: &DiscardArgs) -> Outcome {
    let state = scope::open(None)?;
    if let Some(of) = boxes::with_clone(&state, args.which.run.as_deref())? {
        return clone::discard(&state, &of, args);
    }
    let here = scope::here()?;
    let mut run = review::find(&state, &here, args.which.run.as_deref())?;
    if let Some(of) = boxes::of_run(&state, &run) {
        return of_box(&state, &of, args);
    }
    if run.record.state == RunState::Running {
        return Err(invalid(format!("run {} is still running", run.id())));
    }
    if !run.record.review.waits() {
        print::note(&format!("run {} holds nothing back", run.id()));
        return Ok(0);
    }
    let question = format!("throw away what run {} changed?", run.id());
    if !args.yes && !print::confirm(&question).kind(ErrorKind::Broken)? {
        return Err(invalid("nothing was discarded; `--yes` answers the question"));
    }
    let ledger = record::open(&state).kind(ErrorKind::Broken)?;
    record::discarded(&ledger, run.id())
        .map(drop)
        .context("record the discard")
        .kind(ErrorKind::Broken)?;
    belljar_workspace::discard(&run.dir).context("discard the changes").kind(ErrorKind::Broken)?;
    run.record.review = Review::Discarded;
    run.save().kind(ErrorKind::Broken)?;
    record::settle(&ledger, &state, run.id(), "the operator discarded its changes")
        .kind(ErrorKind::Broken)?;
    print::note(&format!("discarded the changes of run {}", run.id()));
    Ok(0)
}

/// What a box changed goes to the trash, and the box goes on from the host as it is.
fn of_box(state: &Scoped, of: &NamedBox, args: &DiscardArgs) -> Outcome {
    let name = of.name();
    let _turn = of.turn_while_down("discard")?;
    let Some(run) = of.run().filter(|_| !is_empty(&of.dir.join("upper"))) else {
        print::note(&format!("box {name} holds nothing back"));
        return Ok(0);
    };
    let unapplied = work::guard(state, of, "discard", args.discard_work)?;
    let note = Note::new(state, name, What::Changes, "discard", unapplied)?;
    let event = BoxDiscarded {
        name: name.to_string(),
        trash: note.place(),
        unapplied: note.unapplied.clone(),
    };
    record::fact(state, event)?;
    let ledger = record::open(state).kind(ErrorKind::Broken)?;
    record::discarded(&ledger, run.id())
        .map(drop)
        .context("record the discard")
        .kind(ErrorKind::Broken)?;
    let next = parts::prepare(of)?;
    parts::write_run(&next, run.record.clone()).kind(ErrorKind::Broken)?;
    parts::exchange(of, &parts::CHANGES, note)?;
    record::settle(&ledger, state, run.id(), "the operator discarded its changes")
        .kind(ErrorKind::Broken)?;
    print::note(&format!(
        "discarded the changes of box {name}; `belljar restore {name}` brings them back for 14 days"
    ));
    Ok(0)
}
