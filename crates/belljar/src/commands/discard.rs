//! `belljar discard`: throws away what a box changed, after asking.

use belljar_engine::box_store;
use belljar_engine::error::{ErrorKind, WithKind as _, invalid};
use belljar_engine::review;

use crate::cli::DiscardArgs;
use crate::exit::Outcome;
use crate::print;
use crate::scope;

pub(crate) fn run(args: &DiscardArgs) -> Outcome {
    let state = scope::open(None)?;
    let which = args.which.run.as_deref();
    if let Some(of) = box_store::find_with_clone(&state, which)? {
        let name = of.name();
        let text = match review::cloned::discard(&state, &of, args.discard_work)? {
            true => format!(
                "discarded the work of box {name}; `belljar restore {name}` brings it back for 14 days"
            ),
            false => format!("box {name} holds nothing back"),
        };
        print::note(&text);
        return Ok(0);
    }
    let mut run = review::find(&state, &scope::here()?, which)?;
    if let Some(of) = box_store::box_of_run(&state, &run) {
        let name = of.name();
        let text = match review::discard_of_box(&state, &of, args.discard_work)? {
            true => format!(
                "discarded the changes of box {name}; `belljar restore {name}` brings them back for 14 days"
            ),
            false => format!("box {name} holds nothing back"),
        };
        print::note(&text);
        return Ok(0);
    }
    let id = run.id();
    if !review::can_discard(&run)? {
        print::note(&format!("run {id} holds nothing back"));
        return Ok(0);
    }
    let question = format!("throw away what run {id} changed?");
    if !args.yes && !print::confirm(&question).kind(ErrorKind::Broken)? {
        return Err(invalid("nothing was discarded; `--yes` answers the question"));
    }
    review::discard(&state, &mut run)?;
    print::note(&format!("discarded the changes of run {id}"));
    Ok(0)
}
