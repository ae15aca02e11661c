//! `belljar up`: makes boxes that stay, and starts them.

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
use crate::spec::{TypedIn, box_spec};

pub(crate) fn run(cli: &Cli, args: &UpArgs) -> Outcome {
    let state = scope::open(cli.config.as_deref())?;
    let (here, home) = (scope::here()?, host().user_home());
    let typed_in =
        TypedIn { directory: &here, home: home.as_deref(), config: cli.config.as_deref() };
    let spec = box_spec(&args.options, &args.command, typed_in).kind(ErrorKind::Invalid)?;
    if !args.options.no_workspace && args.options.repo.is_none() {
        choose_workspace(&state, &here, args.options.workspace.as_deref())?;
    }
    let made = boxes::create(&state, &args.names, &spec, &here)?;
    start_all(&state, &made)
}

/// Starts boxes side by side. Failures are printed, and the other boxes start.
pub(crate) fn start_all(state: &Scoped, boxes: &[NamedBox]) -> Outcome {
    let mut worst = 0;
    for (one, started) in boxes.iter().zip(boxes::start(state, boxes)) {
        match started {
            Ok(()) => print::note(&format!("box {} is up", one.name())),
            Err(error) => {
                print::error(&error);
                worst = worst.max(exit::code(error.kind()));
            }
        }
    }
    Ok(worst)
}
