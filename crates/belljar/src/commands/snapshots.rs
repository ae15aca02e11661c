//! `belljar snapshot`, `fork` and `reset`: save, copy and roll back the state of named boxes.

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

/// Runs `belljar snapshot`.
pub(crate) fn snapshot(args: &SnapshotArgs) -> Outcome {
    let state = scope::open(None)?;
    let named_box = NamedBox::find(&state, &args.which.name)?;
    if args.list {
        return list(&state, &named_box, args.json);
    }
    let tag = match &args.tag {
        Some(tag) => tag.clone(),
        None => tag_from_current_time()?,
    };
    let _lock = named_box.lock_for_change()?;
    snapshot::take(&state, &named_box, &tag)?;
    let name = named_box.name();
    print::note(&format!(
        "snapshot {name}@{tag} was saved; `belljar reset {name} {tag}` goes back to it"
    ));
    Ok(0)
}

/// Returns a tag made from the current time, for a snapshot without a tag.
///
/// Such tags sort by age.
fn tag_from_current_time() -> Result<Tag, EngineError> {
    let text = moment::readable_seconds(scope::CLOCK.nanos());
    let text: String = text.chars().filter(char::is_ascii_digit).collect();
    let (date, time) = text.split_at_checked(8).unwrap_or((&text, ""));
    format!("{date}-{time}")
        .parse()
        .context("cannot make a tag from the current time")
        .kind(ErrorKind::Broken)
}

/// Prints the snapshots of a box.
fn list(state: &Scoped, named_box: &NamedBox, json: bool) -> Outcome {
    let all = snapshot::all(state, named_box)?;
    for it in &all {
        if json {
            print::json(it).kind(ErrorKind::Broken)?;
            continue;
        }
        let when = moment::readable_seconds(it.when.saturating_mul(1_000_000));
        let box_state = if it.running {
            "taken while the box was running"
        } else {
            "taken while the box was stopped"
        };
        print::out(&format!("{:<20}  {when}  {box_state}\n", it.tag.as_str()))
            .kind(ErrorKind::Broken)?;
    }
    if all.is_empty() && !json {
        print::note(&format!("box {} has no snapshots", named_box.name()));
    }
    Ok(0)
}

/// Runs `belljar fork`.
pub(crate) fn fork(args: &ForkArgs) -> Outcome {
    let state = scope::open(None)?;
    let (name, tag) = source(&args.from)?;
    let named_box = NamedBox::find(&state, &name)?;
    for new in &args.names {
        boxes::fork(&state, &named_box, tag.as_ref(), std::slice::from_ref(new))?;
        print::note(&format!(
            "box {new} was created as a copy of {}; `belljar start {new}` starts it",
            args.from
        ));
    }
    Ok(0)
}

/// Parses the source of a fork: `NAME` for a box or `NAME@TAG` for a snapshot.
fn source(text: &str) -> Result<(BoxName, Option<Tag>), EngineError> {
    let (name, tag) = match text.split_once('@') {
        Some((name, tag)) => (name, Some(tag)),
        None => (text, None),
    };
    let parse = |what: &str, text: &str| {
        let safe = display::safe_line(text).to_string();
        text.parse::<BoxName>()
            .map_err(|error| invalid(format!("invalid {what} {safe:?}: {error}")))
    };
    Ok((parse("box name", name)?, tag.map(|tag| parse("snapshot tag", tag)).transpose()?))
}

/// Runs `belljar reset`.
pub(crate) fn reset(args: &ResetArgs) -> Outcome {
    let state = scope::open(None)?;
    let named_box = NamedBox::find(&state, &args.which.name)?;
    let (tag, keep_work, discard_work) = (args.tag.as_ref(), args.keep_work, args.discard_work);
    boxes::reset(&state, &named_box, Reset { tag, keep_work, discard_work })?;
    let target =
        tag.map_or_else(|| "its first state".to_owned(), |tag| format!("the snapshot {tag}"));
    let name = named_box.name();
    print::note(&format!(
        "box {name} was reset to {target}; `belljar restore {name}` undoes the reset within 14 days"
    ));
    Ok(0)
}
