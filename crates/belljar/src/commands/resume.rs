//! `belljar resume`: continues the open runs of plans.

use belljar_engine::error::{ErrorKind, WithKind as _};
use belljar_engine::runs::machine::Status;
use belljar_engine::runs::resume::{self, Found, Resumed, ResumedRun};
use belljar_model::{RunId, display};
use serde::Serialize;

use crate::cli::runs::ResumeArgs;
use crate::exit::{FAILED, Outcome};
use crate::print;
use crate::scope;

/// Runs `belljar resume`.
pub(crate) fn run(args: &ResumeArgs) -> Outcome {
    let state = scope::open(None)?;
    let resumed = resume::resume(&state)?;
    for (run, error) in &resumed.damaged {
        print::note(&format!("run {run} cannot continue: {error:#}"));
    }
    if args.json {
        for run in &resumed.runs {
            print::json(&line(&resumed, run)).kind(ErrorKind::Broken)?;
        }
    } else {
        print::out(&text(&resumed)).kind(ErrorKind::Broken)?;
    }
    Ok(if resumed.damaged.is_empty() { 0 } else { FAILED })
}

/// Returns what was found about a task: a word for programs and a text for people.
const fn words(found: Found) -> (&'static str, &'static str) {
    match found {
        Found::Adopted => ("adopted", "box still running; adopted"),
        Found::Taken(status) => (status.name(), "box ended in the meantime; result taken"),
        Found::StartedAgain => ("started_again", "box died; no effect on record; started again"),
        Found::Attention => ("attention", "box died and may have had an effect: needs attention"),
        Found::Gated => ("gated", "waits for an approval; `belljar approve` shows it"),
    }
}

fn text(resumed: &Resumed) -> String {
    if resumed.runs.is_empty() {
        return "no run is open\n".to_owned();
    }
    let count = resumed.runs.len();
    let plural = if count == 1 { "" } else { "s" };
    let running = if resumed.was_running { " was already running" } else { "" };
    let mut text = format!("driver epoch {}{running}: {count} open run{plural}", resumed.epoch);
    text.push_str(&summary(&resumed.runs));
    let names = resumed.runs.iter().map(|run| run.view.name.chars().count());
    let ids = resumed.runs.iter().flat_map(|run| &run.tasks);
    let ids = ids.map(|(of, _)| of.to_string().chars().count());
    let (name_width, id_width) = (names.max().unwrap_or(0), ids.max().unwrap_or(0));
    for ResumedRun { view, tasks } in &resumed.runs {
        let mut name = display::safe(&view.name);
        if tasks.is_empty() {
            let state = view.outcome.map_or_else(|| view.phase.name(), |outcome| outcome.name());
            text.push_str(&format!("  {name:<name_width$}  {state}\n"));
        }
        for (of, found) in tasks {
            let of = of.to_string();
            let words = match found {
                Found::Adopted if resumed.was_running => "box running",
                Found::Adopted
                | Found::Taken(_)
                | Found::StartedAgain
                | Found::Attention
                | Found::Gated => words(*found).1,
            };
            text.push_str(&format!("  {name:<name_width$}  {of:<id_width$}  {words}\n"));
            name.clear();
            if *found == Found::Attention {
                let run = view.run;
                text.push_str(&format!(
                    "  {:name_width$}  belljar runs settle {run}/{of} --rerun | --done FILE | --failed\n",
                    ""
                ));
            }
        }
    }
    text
}

/// Returns how many runs go on, and how many tasks wait for a person.
fn summary(runs: &[ResumedRun]) -> String {
    let is_active = |status| {
        matches!(status, Status::Ready | Status::Running | Status::Judging | Status::Backoff)
    };
    let goes_on = |run: &&ResumedRun| run.view.tasks.iter().any(|task| is_active(task.status));
    let count = |wanted: Found| {
        let tasks = runs.iter().flat_map(|run| &run.tasks);
        tasks.filter(|(_, found)| *found == wanted).count()
    };
    let going = runs.iter().filter(goes_on).count();
    let mut text = format!("; {going} {}", if going == 1 { "goes on" } else { "go on" });
    let tasks =
        |count: usize| if count == 1 { "1 task".to_owned() } else { format!("{count} tasks") };
    match count(Found::Attention) {
        0 => {}
        1 => text.push_str("; 1 task needs attention"),
        more => text.push_str(&format!("; {more} tasks need attention")),
    }
    match count(Found::Gated) {
        0 => {}
        gated => text.push_str(&format!("; approvals are open for {}", tasks(gated))),
    }
    text + "\n"
}

/// A run that was continued, as JSON.
#[derive(Serialize)]
struct ResumedLine<'a> {
    run: RunId,
    name: &'a str,
    epoch: u64,
    driver_was_running: bool,
    state: &'a str,
    tasks: Vec<TaskLine>,
}

#[derive(Serialize)]
struct TaskLine {
    task: String,
    found: &'static str,
}

fn line<'a>(resumed: &Resumed, run: &'a ResumedRun) -> ResumedLine<'a> {
    let view = &run.view;
    let task = |(of, found): &(_, Found)| {
        let of: &belljar_engine::runs::machine::TaskRef = of;
        TaskLine { task: of.to_string(), found: words(*found).0 }
    };
    ResumedLine {
        run: view.run,
        name: &view.name,
        epoch: view.epoch,
        driver_was_running: resumed.was_running,
        state: view.outcome.map_or_else(|| view.phase.name(), |outcome| outcome.name()),
        tasks: run.tasks.iter().map(task).collect(),
    }
}
