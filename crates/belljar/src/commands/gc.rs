//! `belljar gc`: removes old trash and unused boxes. Boxes with unapplied changes are kept by default.

use std::time::Duration;

use belljar_engine::boxes::gc::{self, GcOptions};
use belljar_engine::error::{ErrorKind, WithKind as _};

use crate::cli::boxes::GcArgs;
use crate::cli::when::When;
use crate::exit::Outcome;
use crate::print;
use crate::scope;

/// Runs `belljar gc`.
pub(crate) fn run(args: &GcArgs) -> Outcome {
    let state = scope::open(None)?;
    let older_than = match args.older_than {
        When::Ago(nanos) => Duration::from_nanos(nanos),
        When::At(nanos) => Duration::from_nanos(state.clock().nanos().saturating_sub(nanos)),
    };
    let (dry_run, discard_work) = (args.dry_run, args.discard_work);
    let verb = if dry_run { "would remove" } else { "removed" };
    let mut count = 0_u64;
    gc::collect(&state, GcOptions { older_than, dry_run, discard_work }, &mut |what| {
        count += 1;
        print::out(&format!("{verb} {what}\n")).kind(ErrorKind::Broken)
    })?;
    if count == 0 {
        print::note("no trash and no box is old enough to be removed");
    }
    Ok(0)
}
