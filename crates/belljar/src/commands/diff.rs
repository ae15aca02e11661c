//! `belljar diff`: shows what a box changed.

use belljar_workspace::{
    Choice, Colour, Pick, Takeover, plan_apply, report, stat_with_lines, three_way, unified,
};

use crate::boxes::{self, NamedBox};
use crate::cli::DiffArgs;
use crate::commands::apply::{look, open, pick};
use crate::failure::{Code, FAILED, Outcome, USAGE};
use crate::print;
use crate::state::State;

pub(crate) fn run(args: &DiffArgs) -> Outcome {
    let state = State::open()?;
    let mut run = state.find(args.which.run.as_deref())?;
    let of = boxes::of_run(&state, &run);
    let is_up = of.as_ref().is_some_and(NamedBox::is_up);
    // Of a box that is at work, what is there now; its turn may be another command's for long.
    let _turn = of.as_ref().filter(|_| !is_up).map(NamedBox::turn).transpose()?;
    if let Some(run_now) = of.as_ref().and_then(NamedBox::run) {
        run = run_now;
    }
    let (layers, changes) = if is_up { look(&state, &run, true)? } else { open(&state, &run)? };
    let paths = if args.paths.is_empty() { Pick::All } else { pick(&args.paths).code(USAGE)? };
    if args.json {
        print::json(&report(&layers, &changes, &paths)).code(FAILED)?;
        return Ok(0);
    }
    let colour = if print::colour() { Colour::Always } else { Colour::Never };
    let text = if args.conflicts {
        let takeover = Takeover::begin(&layers).code(FAILED)?;
        let observed = takeover.observe(&changes).code(FAILED)?;
        let choice = Choice { paths, include_executable: Pick::All, ..Choice::everything() };
        let draft = plan_apply(&observed, &choice);
        draft.conflicts().map(|conflict| three_way(&layers, conflict.change, colour)).collect()
    } else if args.stat {
        stat_with_lines(&layers, &changes, &paths, colour)
    } else {
        unified(&layers, &changes, &paths, colour)
    };
    print::page(&text).code(FAILED)?;
    Ok(0)
}
