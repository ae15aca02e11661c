//! `belljar snapshot`, `fork` and `reset`: copies of boxes, and the way back.

use anyhow::Context as _;
use belljar_engine::box_store::NamedBox;
use belljar_engine::boxes::snapshot::{self, Tag};
use belljar_engine::boxes::{self, Reset};
use belljar_engine::error::{EngineError, ErrorKind, WithKind as _, invalid};
use belljar_engine::moment;
use belljar_engine::scope::Scoped;
use belljar_model::boxes::BoxName;
use belljar_model::display;

use crate::cli::boxes::{ForkArgs, ResetArgs, SnapshotArgs};
use crate::exit::Outcome;
use crate::print;
use crate::scope;

pub(crate) fn snapshot(args: &SnapshotArgs) -> Outcome {
    let state = scope::open(None)?;
    let one = NamedBox::find(&state, &args.which.name)?;
    if args.list {
        return list(&state, &one, args.json);
    }
    let tag = match &args.tag {
        Some(tag) => tag.clone(),
        None => tag_of_now()?,
    };
    let _lock = one.lock_for_change()?;
    snapshot::take(&state, &one, &tag)?;
    let name = one.name();
    print::note(&format!("{name}@{tag} is kept; `belljar reset {name} {tag}` goes back to it"));
    Ok(0)
}

/// A tag for who does not care, in the order of time.
fn tag_of_now() -> Result<Tag, EngineError> {
    let text = moment::readable_seconds(scope::CLOCK.nanos());
    let text: String = text.chars().filter(char::is_ascii_digit).collect();
    let (date, time) = text.split_at_checked(8).unwrap_or((&text, ""));
    format!("{date}-{time}").parse().context("a tag from the time").kind(ErrorKind::Broken)
}

fn list(state: &Scoped, one: &NamedBox, json: bool) -> Outcome {
    let all = snapshot::all(state, one)?;
    for it in &all {
        if json {
            print::json(it).kind(ErrorKind::Broken)?;
            continue;
        }
        let when = moment::readable_seconds(it.when.saturating_mul(1_000_000));
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
    for new in &args.names {
        boxes::fork(&state, &one, tag.as_ref(), std::slice::from_ref(new))?;
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

pub(crate) fn reset(args: &ResetArgs) -> Outcome {
    let state = scope::open(None)?;
    let one = NamedBox::find(&state, &args.which.name)?;
    let (tag, keep_work, discard_work) = (args.tag.as_ref(), args.keep_work, args.discard_work);
    boxes::reset(&state, &one, Reset { tag, keep_work, discard_work })?;
    let to = tag.map_or_else(|| "as it was made".to_owned(), |tag| format!("as in {tag}"));
    let name = one.name();
    print::note(&format!(
        "box {name} is {to}; `belljar restore {name}` brings back for 14 days what it had"
    ));
    Ok(0)
}
