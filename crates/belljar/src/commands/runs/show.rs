//! `belljar runs show` and `belljar runs output`: one page about the run of a plan or about a task.

use std::io::{self, IsTerminal as _, Write as _};

use belljar_engine::error::{ErrorKind, WithKind as _};
use belljar_engine::moment;
use belljar_engine::runs::control;
use belljar_engine::runs::machine::{Moment, Status, TaskRef};
use belljar_engine::runs::requests::{self, HostRequests};
use belljar_engine::runs::view::{self, FollowedRun, RunView, TaskView};
use belljar_engine::scope::Scoped;
use belljar_engine::screen::guard::Guard;
use belljar_model::display;
use serde_json::{Value as Json, json};

use super::{checks, rows, single};
use crate::cli::runs::{RunTarget, TaskTarget};
use crate::exit::Outcome;
use crate::print;
use crate::scope::{self, CLOCK};

/// The number of hosts that a line about requests names.
const MAX_HOSTS: usize = 8;
/// The number of bytes of an output that its row shows at most.
const MAX_START: usize = 200;
/// The size of the largest output whose start is shown, in bytes. The whole output is read to check it.
const MAX_READ: u64 = 64 << 10;

/// Runs `belljar runs show`.
pub(crate) fn show(target: &RunTarget, as_json: bool) -> Outcome {
    let state = scope::open(None)?;
    let run = match view::find(&state, &target.run) {
        // It can be the id of another run.
        Err(error) if error.kind() == ErrorKind::NotFound && target.task.is_none() => {
            return single::show(&state, &target.run, as_json)?.ok_or(error);
        }
        run => run?,
    };
    let followed = FollowedRun::open(&state, run)?;
    let view = followed.view(&state);
    let Some(of) = &target.task else {
        if as_json {
            let mut json = run_json(&view);
            let requests = requests_json(&requests::of_run(&state, run)?);
            if let Some(fields) = json.as_object_mut() {
                fields.insert("requests".to_owned(), requests);
            }
            print::json(&json).kind(ErrorKind::Broken)?;
        } else {
            print::out(&page(&state, &followed)).kind(ErrorKind::Broken)?;
        }
        return Ok(0);
    };
    let task = view.task(of).ok_or_else(|| control::no_task(run, of))?;
    if as_json {
        print::json(&task_json(&view, task)).kind(ErrorKind::Broken)?;
    } else {
        print::out(&task_page(&view, task)).kind(ErrorKind::Broken)?;
    }
    Ok(0)
}

/// Runs `belljar runs output`.
pub(crate) fn output(target: &TaskTarget) -> Outcome {
    let state = scope::open(None)?;
    let run = view::find(&state, &target.run)?;
    let followed = FollowedRun::open(&state, run)?;
    let view = followed.view(&state);
    view.task(&target.task).ok_or_else(|| control::no_task(run, &target.task))?;
    let content = followed.output(&target.task)?;
    let mut out = io::stdout().lock();
    let written = if out.is_terminal() {
        let mut filtered = Vec::new();
        Guard::default().pass(&content, &mut filtered);
        out.write_all(&filtered)
    } else {
        out.write_all(&content)
    };
    match written.and_then(|()| out.flush()) {
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(0),
        written => written.map(|()| 0).kind(ErrorKind::Broken),
    }
}

/// Returns the start of the output of a task that is done, in one line; of a large output, its size.
pub(crate) fn output_start(run: &FollowedRun, of: &TaskRef) -> Option<String> {
    let size = run.output_size(of)?;
    if size > MAX_READ {
        return Some(format!("{size} bytes"));
    }
    let content = run.output(of).ok()?;
    let start = content.get(..content.len().min(MAX_START)).unwrap_or_default();
    // A cut character at the end is not shown.
    let text = start.utf8_chunks().next().map(|chunk| chunk.valid()).unwrap_or_default();
    text.lines().map(str::trim).find(|line| !line.is_empty()).map(display::safe_line)
}

fn requests_json(requests: &[HostRequests]) -> Json {
    let host =
        |it: &HostRequests| json!({ "host": it.host, "allowed": it.allowed, "denied": it.denied });
    requests.iter().map(host).collect()
}

/// Returns a line with the hosts of the allowed requests of a run, and one with those of the denied.
fn request_lines(requests: &[HostRequests]) -> String {
    let line = |name: &str, count: fn(&HostRequests) -> u64| {
        let hosts: Vec<&HostRequests> = requests.iter().filter(|it| count(it) > 0).collect();
        let all: u64 = hosts.iter().map(|it| count(it)).sum();
        let named: Vec<String> = hosts
            .iter()
            .take(MAX_HOSTS)
            .map(|it| format!("{} {}", display::safe_line(&it.host), count(it)))
            .collect();
        let more = match hosts.len().saturating_sub(named.len()) {
            0 => String::new(),
            more => format!(" and {more} more hosts"),
        };
        match all {
            0 => String::new(),
            all => format!("  {all} requests {name}: {}{more}\n", named.join(", ")),
        }
    };
    line("allowed", |it| it.allowed) + &line("denied", |it| it.denied)
}

/// Returns one page about a run.
pub(crate) fn page(state: &Scoped, followed: &FollowedRun) -> String {
    let view = followed.view(state);
    let now = Moment(CLOCK.millis());
    let rows = rows::rows(&view, now, |of| output_start(followed, of));
    let (run, accepted) = (view.run, seconds(view.accepted));
    let base = display::safe(view.base.as_os_str().as_encoded_bytes());
    let mut text =
        format!("{}\n  run {run}, submitted {accepted} in {base}\n", rows::title(&view, now));
    for line in rows::table(&rows) {
        text.push_str(&format!("  {line}\n"));
    }
    // The page is also useful without the requests.
    let requests = requests::of_run(state, run).unwrap_or_default();
    text.push_str(&request_lines(&requests));
    text.push_str(&advice(&view));
    text
}

/// Returns what a person can do next.
fn advice(view: &RunView) -> String {
    let run = view.run;
    let lost = view.tasks.iter().filter(|task| task.lost.is_some());
    let mut text: String = lost
        .map(|task| {
            let of = &task.of;
            format!("belljar runs settle {run}/{of} --rerun | --done FILE | --failed\n")
        })
        .collect();
    if view.tasks.iter().any(|task| task.status == Status::Gated) {
        text.push_str("belljar approve\n");
    }
    text
}

fn task_page(view: &RunView, task: &TaskView) -> String {
    let (run, of) = (view.run, &task.of);
    let spec = view.plan.task(&of.task);
    let time = |moment: Option<Moment>| moment.map(seconds);
    let usage = rows::usage_json(&task.usage);
    let usage = usage.as_object().into_iter().flatten();
    let usage: Vec<String> = usage
        .filter(|(_, amount)| amount.as_u64() != Some(0))
        .map(|(unit, amount)| format!("{amount} {}", unit.replace('_', " ")))
        .collect();
    let lines = (!task.lines.is_empty()).then(|| task.lines.join("\n           "));
    let results: Vec<String> = task.checks.iter().map(|it| checks::line(it, spec)).collect();
    let pairs = [
        ("task", Some(format!("{of} of {} ({run})", display::safe(&view.name)))),
        ("does", spec.map(|spec| rows::what(spec, task.tier))),
        ("state", Some(task.status.name().to_owned())),
        ("reason", task.reason.as_deref().map(display::safe_multiline)),
        ("checks", (!results.is_empty()).then(|| results.join("\n           "))),
        ("by", task.by.as_deref().map(display::safe)),
        ("attempt", Some(task.attempt.to_string())),
        ("box run", task.box_run.map(|run| run.to_string())),
        ("started", time(task.started)),
        ("ended", time(task.ended)),
        ("used", (!usage.is_empty()).then(|| usage.join(", "))),
        ("labels", (!task.labels.is_empty()).then(|| task.labels.join(", "))),
        ("output", lines),
    ];
    let mut text = String::new();
    for (name, value) in pairs {
        if let Some(value) = value {
            text.push_str(&format!("{name:<9}  {value}\n"));
        }
    }
    if task.status == Status::Done {
        text.push_str(&format!("belljar runs output {run}/{of}\n"));
    }
    if task.box_run.is_some() {
        text.push_str(&format!("belljar logs {run}/{of}\n"));
    }
    if task.lost.is_some() {
        text.push_str(&format!(
            "belljar runs settle {run}/{of} --rerun | --done FILE | --failed\n"
        ));
    }
    text
}

fn seconds(at: Moment) -> String {
    moment::readable_seconds(at.0.saturating_mul(1_000_000))
}

/// Returns a run as JSON.
pub(crate) fn run_json(view: &RunView) -> Json {
    let tasks: Vec<Json> = view.tasks.iter().map(|task| task_json(view, task)).collect();
    json!({
        "run": view.run,
        "name": view.name,
        "phase": view.phase.name(),
        "outcome": view.outcome.map(|outcome| outcome.name()),
        "accepted": view.accepted.0,
        "ended": view.ended.map(|at| at.0),
        "template": view.plan.template(),
        "directory": display::safe(view.base.as_os_str().as_encoded_bytes()),
        "budget": view.plan.budget(),
        "usage": rows::usage_json(&view.usage()),
        "tasks": tasks,
    })
}

/// Returns a task of a run as JSON.
pub(crate) fn task_json(view: &RunView, task: &TaskView) -> Json {
    json!({
        "task": task.of.to_string(),
        "do": view.plan.task(&task.of.task).map(|spec| rows::what(spec, task.tier)),
        "state": task.status.name(),
        "attempt": task.attempt,
        "box_run": task.box_run,
        "started": task.started.map(|at| at.0),
        "ended": task.ended.map(|at| at.0),
        "reason": task.reason,
        "by": task.by,
        "needs_attention": task.lost.is_some(),
        "usage": rows::usage_json(&task.usage),
        "lines": task.lines,
        "labels": task.labels,
        "checks": checks::json(&task.checks, view.plan.task(&task.of.task)),
    })
}
