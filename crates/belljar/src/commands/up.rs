//! `belljar up`: creates named boxes and starts them.

use belljar_engine::box_store::NamedBox;
use belljar_engine::boxes;
use belljar_engine::error::{ErrorKind, WithKind as _};
use belljar_engine::policy::choose_workspace;
use belljar_engine::scope::Scoped;

use crate::cli::Cli;
use crate::cli::boxes::UpArgs;
use crate::exit::{self, Outcome};
use crate::print;
use crate::scope::{self, host};
use crate::spec::{Invocation, box_spec};

/// Runs `belljar up`.
pub(crate) fn run(cli: &Cli, args: &UpArgs) -> Outcome {
    let state = scope::open(cli.config.as_deref())?;
    let (current_dir, home) = (scope::current_dir()?, host().user_home());
    let invocation = Invocation {
        directory: &current_dir,
        home: home.as_deref(),
        config: cli.config.as_deref(),
    };
    let spec = box_spec(&args.options, &args.command, invocation).kind(ErrorKind::Invalid)?;
    if !args.options.no_workspace && args.options.repo.is_none() {
        choose_workspace(&state, &current_dir, args.options.workspace.as_deref())?;
    }
    let created = boxes::create(&state, &args.names, &spec, &current_dir)?;
    start_all(&state, &created)
}

/// Starts boxes in parallel and returns the highest exit code.
///
/// The failure of one box is printed and does not affect the other boxes.
pub(crate) fn start_all(state: &Scoped, boxes: &[NamedBox]) -> Outcome {
    let mut exit_code = 0;
    for (named_box, result) in boxes.iter().zip(boxes::start(state, boxes)) {
        match result {
            Ok(()) => print::note(&format!("box {} is running", named_box.name())),
            Err(error) => {
                print::error(&error);
                exit_code = exit_code.max(exit::code(error.kind()));
            }
        }
    }
    Ok(exit_code)
}
