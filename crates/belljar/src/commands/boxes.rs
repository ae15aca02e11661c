//! `belljar list`, `status`, `start`, `stop`, `restart` and `down`: list, start, stop and remove named boxes.

use belljar_model::boxes::BoxState;
use belljar_model::display;

use crate::cli::boxes::{DownArgs, ListArgs, RestartArgs, StartArgs, StatusArgs, StopArgs};
use crate::commands::up::start_all;
use crate::exit::Outcome;
use crate::print;
use crate::scope;

use belljar_engine::box_store::{NamedBox, trash};
use belljar_engine::boxes::{self, BoxStatus, Stopped, unapplied};
use belljar_engine::error::{EngineError, ErrorKind, WithKind as _};
use belljar_engine::moment;
use belljar_engine::supervisor::protocol::Forward;

/// Runs `belljar list`.
pub(crate) fn list(args: &ListArgs) -> Outcome {
    let state = scope::open(None)?;
    let all = NamedBox::all(&state)?;
    for named_box in &all {
        let report = boxes::status(&state, named_box);
        if args.json {
            print::json(&report).kind(ErrorKind::Broken)?;
        } else {
            print::out(&line(&report)).kind(ErrorKind::Broken)?;
        }
    }
    if all.is_empty() && !args.json {
        print::note("there are no boxes; `belljar up NAME` creates a box");
    }
    Ok(0)
}

/// Runs `belljar status`.
pub(crate) fn status(args: &StatusArgs) -> Outcome {
    let state = scope::open(None)?;
    let named_box = NamedBox::find(&state, &args.which.name)?;
    let report = boxes::status(&state, &named_box);
    if args.json {
        print::json(&report).kind(ErrorKind::Broken)?;
    } else {
        let mut page = page(&report, &named_box);
        if let Some(unapplied) = unapplied::find(&state, &named_box)? {
            page.push_str(&format!("holds      {}\n", unapplied.description()));
        }
        print::out(&page).kind(ErrorKind::Broken)?;
    }
    Ok(0)
}

/// Runs `belljar start`.
pub(crate) fn start(args: &StartArgs) -> Outcome {
    let state = scope::open(None)?;
    let boxes: Result<Vec<NamedBox>, EngineError> =
        args.names.iter().map(|name| NamedBox::find(&state, name)).collect();
    start_all(&state, &boxes?)
}

/// Runs `belljar stop`.
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

/// Runs `belljar restart`.
pub(crate) fn restart(args: &RestartArgs) -> Outcome {
    let state = scope::open(None)?;
    let boxes: Result<Vec<NamedBox>, EngineError> =
        args.names.iter().map(|name| NamedBox::find(&state, name)).collect();
    let boxes = boxes?;
    for named_box in &boxes {
        boxes::stop(&state, named_box, args.now)?;
    }
    start_all(&state, &boxes)
}

/// Runs `belljar down`.
pub(crate) fn down(args: &DownArgs) -> Outcome {
    let state = scope::open(None)?;
    for name in &args.names {
        boxes::remove(&state, &NamedBox::find(&state, name)?, args.discard_work)?;
        print::note(&format!(
            "box {name} was removed; `belljar restore {name}` restores it within 14 days"
        ));
    }
    trash::delete_expired(&state);
    Ok(0)
}

/// Returns whether changes of the box wait for review, as text.
fn review(report: &BoxStatus) -> &'static str {
    if report.waits_for_review() { "waits for review" } else { "-" }
}

/// Returns the line of the box in `belljar list`.
fn line(report: &BoxStatus) -> String {
    let name = report.name.as_str();
    let place = report.ground.path().map_or_else(
        || "-".to_owned(),
        |path| display::safe(path.as_os_str().as_encoded_bytes()).to_string(),
    );
    let network = if report.is_broker_dead() { "  network down: broker died" } else { "" };
    format!("{name:<20}  {:<12}  {:<16}  {place}{network}\n", report.state.name(), review(report))
}

/// Returns the text of `belljar status`.
fn page(report: &BoxStatus, named_box: &NamedBox) -> String {
    let mut text = format!("name       {}\nstate      {}\n", report.name, report.state.name());
    let created = moment::readable_seconds(report.created.saturating_mul(1_000_000));
    text.push_str(&format!("made       {created}\n"));
    if let Some(run) = &report.run {
        let argv: Vec<String> =
            run.argv.iter().map(|word| display::safe(word).to_string()).collect();
        text.push_str(&format!("program    {}\n", argv.join(" ")));
        if let Some(result) = &run.result {
            text.push_str(&format!("ended      {}\n", result.end_of_box()));
        }
    }
    if matches!(report.state, BoxState::Running | BoxState::Paused) && report.live.is_none() {
        text.push_str("warning    the supervisor does not respond; it may be stopped or busy\n");
    }
    if report.is_broker_dead() {
        let name = &report.name;
        let advice = format!("`belljar restart {name}` restores it");
        text.push_str(&format!("network    down: the broker died; {advice}\n"));
    }
    if let Some(health) = report.live.as_ref().and_then(|live| live.health) {
        text.push_str(&format!("health     {}\n", health.name()));
    }
    for Forward { host_port, port } in report.live.iter().flat_map(|live| &live.forwards) {
        text.push_str(&format!("forward    http://127.0.0.1:{host_port} to port {port}\n"));
    }
    text.push_str(&format!("review     {}\n", review(report)));
    text.push_str(&format!("kept in    {}\n", named_box.dir.display()));
    text
}
