//! `belljar discard`: discards the changes of a run or of a box, after a question.

use belljar_engine::box_store;
use belljar_engine::error::{ErrorKind, WithKind as _, invalid};
use belljar_engine::review;

use crate::cli::DiscardArgs;
use crate::exit::Outcome;
use crate::print;
use crate::scope;

/// Runs `belljar discard`.
pub(crate) fn run(args: &DiscardArgs) -> Outcome {
    let state = scope::open(None)?;
    let which = args.which.run.as_deref();
    if let Some(named_box) = box_store::find_with_clone(&state, which)? {
        let name = named_box.name();
        let text = match review::cloned::discard(&state, &named_box, args.discard_work)? {
            true => format!(
                "discarded the commits and changes of box {name}; `belljar restore {name}` restores them within 14 days"
            ),
            false => format!("box {name} has no changes to discard"),
        };
        print::note(&text);
        return Ok(0);
    }
    let mut run = review::find(&state, &scope::current_dir()?, which)?;
    if let Some(named_box) = box_store::box_of_run(&state, &run) {
        let name = named_box.name();
        let text = match review::discard_of_box(&state, &named_box, args.discard_work)? {
            true => format!(
                "discarded the changes of box {name}; `belljar restore {name}` restores them within 14 days"
            ),
            false => format!("box {name} has no changes to discard"),
        };
        print::note(&text);
        return Ok(0);
    }
    let id = run.id();
    let nothing = || print::note(&format!("run {id} has no changes to discard"));
    if !review::can_discard(&run)? {
        nothing();
        return Ok(0);
    }
    let question = format!("discard the changes of run {id}?");
    if !args.yes && !print::confirm(&question).kind(ErrorKind::Broken)? {
        return Err(invalid(
            "nothing was discarded, because it was not confirmed; `--yes` skips the question",
        ));
    }
    match review::discard(&state, &mut run)? {
        true => print::note(&format!("discarded the changes of run {id}")),
        false => nothing(), // another command discarded them first
    }
    Ok(0)
}
