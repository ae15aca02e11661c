//! `belljar snapshot`, `fork` and `reset`: copies of boxes, and the way back.

use std::fs::DirBuilder;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::Path;

use anyhow::Context as _;
use belljar_ledger::{BoxForked, BoxReset};
use belljar_model::boxes::{BoxName, BoxRecord, Ground};
use belljar_model::{RunRecord, display};

use crate::cli::boxes::{ForkArgs, ResetArgs, SnapshotArgs};
use crate::commands::clone;
use crate::exit::Outcome;
use crate::print;
use crate::scope;
use crate::when;
use belljar_engine::boxes::snapshot::{self, Tag};
use belljar_engine::boxes::trash::{Note, What};
use belljar_engine::boxes::{self, NamedBox, parts, work};
use belljar_engine::error::{EngineError, ErrorKind, WithKind as _, invalid};
use belljar_engine::record;
use belljar_engine::scope::Scoped;

pub(crate) fn snapshot(args: &SnapshotArgs) -> Outcome {
    let state = scope::open(None)?;
    let one = NamedBox::find(&state, &args.which.name)?;
    if args.list {
        return list(&one, args.json);
    }
    let tag = match &args.tag {
        Some(tag) => tag.clone(),
        None => tag_of_now()?,
    };
    let _turn = one.turn()?;
    snapshot::take(&state, &one, &tag)?;
    let name = one.name();
    print::note(&format!("{name}@{tag} is kept; `belljar reset {name} {tag}` goes back to it"));
    Ok(0)
}

/// A tag for who does not care, in the order of time.
fn tag_of_now() -> Result<Tag, EngineError> {
    let text = when::to_the_second(when::now());
    let text: String = text.chars().filter(char::is_ascii_digit).collect();
    let (date, time) = text.split_at_checked(8).unwrap_or((&text, ""));
    format!("{date}-{time}").parse().context("a tag from the time").kind(ErrorKind::Broken)
}

fn list(one: &NamedBox, json: bool) -> Outcome {
    let all = snapshot::all(one)?;
    for it in &all {
        if json {
            print::json(it).kind(ErrorKind::Broken)?;
            continue;
        }
        let when = when::to_the_second(it.when.saturating_mul(1_000_000));
        let how = if it.running { "while it was at work" } else { "while it was stopped" };
        print::out(&format!("{:<20}  {when}  {how}\n", it.tag.as_str())).kind(ErrorKind::Broken)?;
    }
    if all.is_empty() && !json {
        print::note(&format!("box {} has no snapshots", one.name()));
    }
    Ok(0)
}

pub(crate) fn fork(args: &ForkArgs) -> Outcome {
    let state = scope::open(None)?;
    let (name, tag) = source(&args.from)?;
    let one = NamedBox::find(&state, &name)?;
    let _turn = one.turn()?;
    for new in &args.names {
        let event = BoxForked {
            name: new.to_string(),
            from: name.to_string(),
            tag: tag.as_ref().map(ToString::to_string),
        };
        record::fact(&state, event)?;
        copy(&state, &one, tag.as_ref(), new)?;
        print::note(&format!(
            "box {new} is a copy of {}; `belljar start {new}` starts it",
            args.from
        ));
    }
    Ok(0)
}

/// `NAME` or `NAME@TAG`.
fn source(text: &str) -> Result<(BoxName, Option<Tag>), EngineError> {
    let (name, tag) = match text.split_once('@') {
        Some((name, tag)) => (name, Some(tag)),
        None => (text, None),
    };
    let read = |what: &str, text: &str| {
        let safe = display::safe_line(text).to_string();
        text.parse::<BoxName>().map_err(|error| invalid(format!("{what} {safe:?}: {error}")))
    };
    Ok((read("the box", name)?, tag.map(|tag| read("the snapshot", tag)).transpose()?))
}

/// Makes a box that holds what another one holds, or held.
fn copy(
    state: &Scoped,
    from: &NamedBox,
    tag: Option<&Tag>,
    name: &BoxName,
) -> Result<NamedBox, EngineError> {
    let source = tag.map(|tag| snapshot::find(from, tag)).transpose()?;
    let created = state.clock().millis();
    let ground = source.as_deref().and_then(|dir| snapshot::ground(state, dir));
    let ground = ground.unwrap_or_else(|| from.record.ground.clone());
    let record = BoxRecord { name: name.clone(), created, ground, ..from.record.clone() };
    let owner = boxes::owner_of(&from.dir.join("home"));
    boxes::create(state, record, owner, |new, _| {
        let _still = if tag.is_none() { snapshot::still(from)? } else { None };
        let copied = || -> anyhow::Result<()> {
            std::fs::remove_dir(new.join("home"))?;
            parts::copy(source.as_deref().unwrap_or(&from.dir), &parts::KEPT, new)?;
            parts::copy(&from.dir, &["first"], new)
        };
        copied().with_context(|| format!("copy box {}", from.name())).kind(ErrorKind::Broken)?;
        let Some(mut run) = run_in(new) else { return Ok(()) };
        (run.id, run.name) = (state.new_id()?.0, Some(name.clone()));
        parts::write_run(new, run).kind(ErrorKind::Broken)
    })
}

fn run_in(dir: &Path) -> Option<RunRecord> {
    serde_json::from_slice(&std::fs::read(dir.join("run.json")).ok()?).ok()
}

pub(crate) fn reset(args: &ResetArgs) -> Outcome {
    let state = scope::open(None)?;
    let one = NamedBox::find(&state, &args.which.name)?;
    let name = one.name();
    let _turn = one.turn_while_down("reset")?;
    let source = args.tag.as_ref().map(|tag| snapshot::find(&one, tag)).transpose()?;
    let unapplied = match args.keep_work {
        true => None,
        false => work::guard(&state, &one, "reset", args.discard_work)?,
    };
    let note = Note::new(&state, name, What::Reset, "reset", unapplied)?;
    let event = BoxReset {
        name: name.to_string(),
        tag: args.tag.as_ref().map(ToString::to_string),
        trash: note.place(),
        unapplied: note.unapplied.clone(),
    };
    record::fact(&state, event)?;
    let next = parts::prepare(&one)?;
    let made = make_ready(&state, &one, source.as_deref(), args.keep_work, &next);
    made.with_context(|| format!("make box {name} as it was")).kind(ErrorKind::Broken)?;
    if let (Ground::Repo(at), None, false) = (&one.record.ground, &args.tag, args.keep_work) {
        clone::clone_again(&state, &one, at, &next)?;
    }
    let all = if args.keep_work { &["home"][..] } else { &parts::ALL[..] };
    parts::exchange(&one, all, note)?;
    let to =
        args.tag.as_ref().map_or_else(|| "as it was made".to_owned(), |tag| format!("as in {tag}"));
    print::note(&format!(
        "box {name} is {to}; `belljar restore {name}` brings back for 14 days what it had"
    ));
    Ok(0)
}

/// What the box is to hold.
fn make_ready(
    state: &Scoped,
    one: &NamedBox,
    source: Option<&Path>,
    keep_work: bool,
    next: &Path,
) -> anyhow::Result<()> {
    let which = if keep_work { &["home"][..] } else { &parts::KEPT[..] };
    if let Some(source) = source {
        parts::copy(source, which, next)?;
        if let Some(ground) = snapshot::ground(state, source).filter(|_| !keep_work) {
            let record = BoxRecord { ground, ..one.record.clone() };
            boxes::write_whole(next, "box.json", &serde_json::to_vec_pretty(&record)?)?;
        }
    } else {
        first_home(one, next)?;
    }
    // A box that is as it was made was never started.
    let run = run_in(next).filter(|_| !keep_work);
    run.map_or(Ok(()), |run| parts::write_run(next, run))
}

/// The home as it was when the box was made.
fn first_home(one: &NamedBox, next: &Path) -> anyhow::Result<()> {
    let (first, home) = (one.dir.join("first"), next.join("home"));
    if first.is_dir() {
        belljar_workspace::copy_tree(&first, &home)?;
        return Ok(());
    }
    DirBuilder::new().mode(0o755).create(&home)?;
    boxes::give(&[&home], boxes::owner_of(&one.dir.join("home")))
}
