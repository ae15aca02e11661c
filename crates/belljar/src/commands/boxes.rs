//! `belljar list`, `status`, `start`, `stop` and `down`: the life of named boxes.

use belljar_model::boxes::{BoxName, BoxState, BoxWorkspace};
use belljar_model::{RunRecord, display};
use serde::Serialize;

use crate::cli::boxes::{DownArgs, ListArgs, StartArgs, StatusArgs, StopArgs};
use crate::commands::up::start_all;
use crate::exit::Outcome;
use crate::print;
use crate::scope;

use belljar_engine::box_store::{NamedBox, trash};
use belljar_engine::boxes::{self, Stopped, unapplied};
use belljar_engine::error::{EngineError, ErrorKind, WithKind as _};
use belljar_engine::moment;
use belljar_engine::scope::Scoped;
use belljar_engine::supervisor::{
    self,
    protocol::{FromSupervisor, Live, ToSupervisor},
};

pub(crate) fn list(args: &ListArgs) -> Outcome {
    let state = scope::open(None)?;
    let all = NamedBox::all(&state)?;
    for one in &all {
        let seen = Seen::of(&state, one);
        if args.json {
            print::json(&seen).kind(ErrorKind::Broken)?;
        } else {
            print::out(&seen.line()).kind(ErrorKind::Broken)?;
        }
    }
    if all.is_empty() && !args.json {
        print::note("no boxes; `belljar up NAME` makes one");
    }
    Ok(0)
}

pub(crate) fn status(args: &StatusArgs) -> Outcome {
    let state = scope::open(None)?;
    let one = NamedBox::find(&state, &args.which.name)?;
    let seen = Seen::of(&state, &one);
    if args.json {
        print::json(&seen).kind(ErrorKind::Broken)?;
    } else {
        let mut page = seen.page(&one);
        if let Some(unapplied) = unapplied::find(&state, &one)? {
            page.push_str(&format!("holds      {}\n", unapplied.description()));
        }
        print::out(&page).kind(ErrorKind::Broken)?;
    }
    Ok(0)
}

pub(crate) fn start(args: &StartArgs) -> Outcome {
    let state = scope::open(None)?;
    let boxes: Result<Vec<NamedBox>, EngineError> =
        args.names.iter().map(|name| NamedBox::find(&state, name)).collect();
    start_all(&state, &boxes?)
}

pub(crate) fn stop(args: &StopArgs) -> Outcome {
    let state = scope::open(None)?;
    for name in &args.names {
        let text = match boxes::stop(&state, &NamedBox::find(&state, name)?, args.now)? {
            Stopped::Now => format!("box {name} is stopped"),
            Stopped::NotRunning => format!("box {name} is not running"),
        };
        print::note(&text);
    }
    Ok(0)
}

pub(crate) fn down(args: &DownArgs) -> Outcome {
    let state = scope::open(None)?;
    for name in &args.names {
        boxes::remove(&state, &NamedBox::find(&state, name)?, args.discard_work)?;
        print::note(&format!(
            "box {name} is down; `belljar restore {name}` brings it back for 14 days"
        ));
    }
    trash::delete_expired(&state);
    Ok(0)
}

/// How a box is, for people and programs.
#[derive(Serialize)]
struct Seen {
    name: BoxName,
    state: BoxState,
    created: u64,
    ground: BoxWorkspace,
    /// The newest run, if there was one.
    run: Option<RunRecord>,
    /// What its supervisor reports, while it runs.
    live: Option<Live>,
}

impl Seen {
    fn of(scope: &Scoped, one: &NamedBox) -> Self {
        let state = one.state();
        let ask = || supervisor::ask(scope, one, &ToSupervisor::Status);
        let asked = (state == BoxState::Running).then(ask);
        let live = match asked {
            Some(Ok(FromSupervisor::Status(live))) => Some(live),
            _ => None,
        };
        Self {
            name: one.name().clone(),
            state,
            created: one.record.created,
            ground: one.record.ground.clone(),
            run: one.run().map(|run| run.record),
            live,
        }
    }

    fn review(&self) -> &'static str {
        let waits = self.run.as_ref().is_some_and(|run| run.review.is_pending());
        if waits { "waits for review" } else { "-" }
    }

    fn line(&self) -> String {
        let name = self.name.as_str();
        let place = self.ground.path().map_or_else(
            || "-".to_owned(),
            |path| display::safe(path.as_os_str().as_encoded_bytes()).to_string(),
        );
        format!("{name:<20}  {:<12}  {:<16}  {place}\n", self.state.name(), self.review())
    }

    fn page(&self, one: &NamedBox) -> String {
        let mut text = format!("name       {}\nstate      {}\n", self.name, self.state.name());
        let made = moment::readable_seconds(self.created.saturating_mul(1_000_000));
        text.push_str(&format!("made       {made}\n"));
        if let Some(run) = &self.run {
            let argv: Vec<String> =
                run.argv.iter().map(|word| display::safe(word).to_string()).collect();
            text.push_str(&format!("program    {}\n", argv.join(" ")));
            if let Some(result) = &run.result {
                text.push_str(&format!("ended      {}\n", result.reason.sentence()));
            }
        }
        if let Some(health) = self.live.as_ref().and_then(|live| live.health) {
            text.push_str(&format!("health     {}\n", health.name()));
        }
        text.push_str(&format!("review     {}\n", self.review()));
        text.push_str(&format!("kept in    {}\n", one.dir.display()));
        text
    }
}
