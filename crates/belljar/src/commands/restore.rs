//! `belljar restore`: restores boxes and changes from the trash.

use belljar_engine::box_store::trash::{self, TrashEntry, TrashKind, TrashNote};
use belljar_engine::boxes::{self, Restored};
use belljar_engine::error::{ErrorKind, WithKind as _};
use belljar_engine::moment;
use belljar_engine::scope::Scoped;
use serde::Serialize;

use crate::cli::boxes::RestoreArgs;
use crate::exit::Outcome;
use crate::print;
use crate::scope;

/// Runs `belljar restore`.
pub(crate) fn run(args: &RestoreArgs) -> Outcome {
    let state = scope::open(None)?;
    let Some(which) = &args.which else { return list(&state, args.json) };
    let entry = boxes::find_in_trash(&state, which)?;
    match boxes::restore(&state, &entry, args.new.as_ref())? {
        Restored::Box(name) => {
            print::note(&format!("box {name} was restored; `belljar start {name}` starts it"));
        }
        Restored::Part(name, TrashKind::Changes) => {
            print::note(&format!("the changes of box {name} were restored"));
        }
        Restored::Part(name, TrashKind::Reset | TrashKind::Box) => {
            print::note(&format!("the content of box {name} was restored"));
        }
    }
    Ok(0)
}

/// Prints the entries of the trash.
fn list(state: &Scoped, json: bool) -> Outcome {
    /// An entry of the trash, as JSON.
    #[derive(Serialize)]
    struct TrashLine<'a> {
        #[serde(flatten)]
        note: &'a TrashNote,
        /// The time when the entry is deleted, in milliseconds since 1970.
        until: u64,
    }
    let all = trash::all(state)?;
    for TrashEntry { note, .. } in &all {
        let kept = u64::try_from(trash::RETENTION.as_millis()).unwrap_or(u64::MAX);
        if json {
            print::json(&TrashLine { note, until: note.when.saturating_add(kept) })
                .kind(ErrorKind::Broken)?;
            continue;
        }
        let when = moment::readable_seconds(note.when.saturating_mul(1_000_000));
        let holds = note.unapplied.as_deref().unwrap_or("no unapplied changes");
        let (id, name, what) = (note.id, note.name.as_str(), note.what.name());
        let line = format!("{id}  {name:<20}  {what:<8}  {when}  {}: {holds}\n", note.by);
        print::out(&line).kind(ErrorKind::Broken)?;
    }
    if all.is_empty() && !json {
        print::note("the trash is empty");
    }
    Ok(0)
}
