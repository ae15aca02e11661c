//! `belljar diff`: shows what a box changed.

use anyhow::Context as _;
use belljar_model::display;
use belljar_workspace::{
    ApplySession, ChangeKind, Choice, Colour, Difference, FileKind, Pick, SealLimits, compare,
    plan_apply, report, stat_with_lines, three_way, unified,
};

use crate::cli::DiffArgs;
use crate::commands::apply::pick;
use crate::commands::clone;
use crate::exit::Outcome;
use crate::print;
use crate::scope;
use belljar_engine::box_store::{self, NamedBox};
use belljar_engine::boxes::snapshot;
use belljar_engine::changes::{open, read_current};
use belljar_engine::error::{ErrorKind, WithKind as _};
use belljar_engine::review;
use belljar_engine::scope::Scoped;

pub(crate) fn run(args: &DiffArgs) -> Outcome {
    let state = scope::open(None)?;
    if args.home {
        return home(&state, args);
    }
    if let Some(of) = box_store::find_with_clone(&state, args.which.run.as_deref())? {
        return clone::diff(&state, &of, args);
    }
    let here = scope::here()?;
    let mut run = review::find(&state, &here, args.which.run.as_deref())?;
    let of = box_store::box_of_run(&state, &run);
    let is_up = of.as_ref().is_some_and(NamedBox::is_up);
    // Of a box that is at work, what is there now; its turn may be another command's for long.
    let _lock = of.as_ref().filter(|_| !is_up).map(NamedBox::lock_for_change).transpose()?;
    if let Some(run_now) = of.as_ref().and_then(NamedBox::run) {
        run = run_now;
    }
    let (layers, changes) =
        if is_up { read_current(&state, &run, true)? } else { open(&state, &run)? };
    let paths = if args.paths.is_empty() {
        Pick::All
    } else {
        pick(&args.paths).kind(ErrorKind::Invalid)?
    };
    if args.json {
        print::json(&report(&layers, &changes, &paths)).kind(ErrorKind::Broken)?;
        return Ok(0);
    }
    let colour = if print::colour() { Colour::Always } else { Colour::Never };
    let text = if args.conflicts {
        let session = ApplySession::begin(&layers).kind(ErrorKind::Broken)?;
        let observed = session.observe(&changes).kind(ErrorKind::Broken)?;
        let choice = Choice { paths, include_executable: Pick::All, ..Choice::everything() };
        let draft = plan_apply(&observed, &choice);
        draft.conflicts().map(|conflict| three_way(&layers, conflict.change, colour)).collect()
    } else if args.stat {
        stat_with_lines(&layers, &changes, &paths, colour)
    } else {
        unified(&layers, &changes, &paths, colour)
    };
    print::page(&text).kind(ErrorKind::Broken)?;
    Ok(0)
}

/// What differs in the home of a box, which may be what a hostile program left for the next one.
fn home(state: &Scoped, args: &DiffArgs) -> Outcome {
    let name = args.which.run.as_deref().unwrap_or_default();
    let name = name.parse().context("--home is of a box").kind(ErrorKind::Invalid)?;
    let one = NamedBox::find(state, &name)?;
    let first = one.dir.join("first");
    let from = match &args.since {
        Some(tag) => Some(snapshot::find(&one, tag)?.join("home")),
        None => Some(first).filter(|first| first.is_dir()),
    };
    let most = SealLimits::default().entries;
    let found = compare(from.as_deref(), &one.dir.join("home"), most);
    let found =
        found.with_context(|| format!("read the home of box {name}")).kind(ErrorKind::Broken)?;
    if args.json {
        print::json(&found).kind(ErrorKind::Broken)?;
        return Ok(0);
    }
    let text: String = found.iter().map(line).collect();
    print::page(&text).kind(ErrorKind::Broken)?;
    Ok(0)
}

fn line(found: &Difference) -> String {
    let letter = match found.change {
        ChangeKind::Added | ChangeKind::Renamed { .. } => 'A',
        ChangeKind::Modified => 'M',
        ChangeKind::Deleted => 'D',
        ChangeKind::ModeChanged => 'm',
        ChangeKind::TypeChanged => 'T',
    };
    let path = display::safe(found.path.as_bytes());
    let end = if found.kind == FileKind::Directory { "/" } else { "" };
    let program = found.executable.then_some("a program");
    let marks: Vec<&str> = found.risky.as_deref().into_iter().chain(program).collect();
    let marks = if marks.is_empty() { String::new() } else { format!("  ! {}", marks.join("; ")) };
    format!("{letter} {path}{end}{marks}\n")
}
