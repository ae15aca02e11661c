//! `belljar diff`: shows the changes of a run or of a box.

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
use belljar_engine::error::{ErrorKind, WithKind as _, invalid};
use belljar_engine::review;
use belljar_engine::scope::Scoped;

/// Runs `belljar diff`.
pub(crate) fn run(args: &DiffArgs) -> Outcome {
    let state = scope::open(None)?;
    if let Some(target) = args.which.run.as_deref().filter(|text| text.contains('/')) {
        let target = target.parse().map_err(|why: String| invalid(why))?;
        return clone::diff_of_task(&state, &target, args);
    }
    if args.home {
        return home(&state, args);
    }
    if let Some(named_box) = box_store::find_with_clone(&state, args.which.run.as_deref())? {
        return clone::diff(&state, &named_box, args);
    }
    let current_dir = scope::current_dir()?;
    let mut run = review::find(&state, &current_dir, args.which.run.as_deref())?;
    let named_box = box_store::box_of_run(&state, &run);
    let is_up = named_box.as_ref().is_some_and(NamedBox::is_up);
    // The changes of a running box are read without its lock, which another command can hold for long.
    let _lock = named_box.as_ref().filter(|_| !is_up).map(NamedBox::lock_for_change).transpose()?;
    if let Some(newest_run) = named_box.as_ref().and_then(NamedBox::run) {
        run = newest_run;
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

/// Prints the changes in the home directory of a box.
///
/// A hostile program can leave files there that affect the next program.
fn home(state: &Scoped, args: &DiffArgs) -> Outcome {
    let name = args.which.run.as_deref().unwrap_or_default();
    let name = name.parse().context("--home needs the name of a box").kind(ErrorKind::Invalid)?;
    let named_box = NamedBox::find(state, &name)?;
    let first = named_box.dir.join("first");
    let from = match &args.since {
        Some(tag) => Some(snapshot::find(&named_box, tag)?.join("home")),
        None => Some(first).filter(|first| first.is_dir()),
    };
    let max_entries = SealLimits::default().entries;
    let differences = compare(from.as_deref(), &named_box.dir.join("home"), max_entries);
    let differences = differences
        .with_context(|| format!("cannot read the home directory of box {name}"))
        .kind(ErrorKind::Broken)?;
    if args.json {
        print::json(&differences).kind(ErrorKind::Broken)?;
        return Ok(0);
    }
    let text: String = differences.iter().map(line).collect();
    print::page(&text).kind(ErrorKind::Broken)?;
    Ok(0)
}

/// Returns one changed path as a line of text.
fn line(difference: &Difference) -> String {
    let letter = match difference.change {
        ChangeKind::Added | ChangeKind::Renamed { .. } => 'A',
        ChangeKind::Modified => 'M',
        ChangeKind::Deleted => 'D',
        ChangeKind::ModeChanged => 'm',
        ChangeKind::TypeChanged => 'T',
    };
    let path = display::safe(difference.path.as_bytes());
    let end = if difference.kind == FileKind::Directory { "/" } else { "" };
    let executable = difference.executable.then_some("executable");
    let marks: Vec<&str> = difference.risky.as_deref().into_iter().chain(executable).collect();
    let marks = if marks.is_empty() { String::new() } else { format!("  ! {}", marks.join("; ")) };
    format!("{letter} {path}{end}{marks}\n")
}
