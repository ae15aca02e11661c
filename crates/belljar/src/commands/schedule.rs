//! `belljar schedule`: lists, starts, pauses and resumes the schedules of `belljar.toml`.

use belljar_engine::error::{ErrorKind, WithKind as _, invalid};
use belljar_engine::moment;
use belljar_engine::runs::schedules::{self, ScheduleList, ScheduleState, ScheduleView};
use belljar_engine::scope::Scoped;
use belljar_model::{RunId, display};
use serde::Serialize;

use crate::cli::Cli;
use crate::cli::schedule::{ScheduleArgs, ScheduleCommand};
use crate::exit::{Outcome, USAGE};
use crate::print;
use crate::scope;

/// Runs `belljar schedule`.
pub(crate) fn run(cli: &Cli, args: &ScheduleArgs) -> Outcome {
    if cli.config.is_some() {
        // The driver outlives this command and reads the file at the default path.
        return Err(invalid("schedules are read from the default belljar.toml; omit --config"));
    }
    let state = scope::open(None)?;
    match &args.command {
        ScheduleCommand::List { json } => list(&state, *json),
        ScheduleCommand::Run(args) => {
            let run = schedules::run(&state, &args.name)?;
            let text = format!("{run} started; continues without this terminal\n");
            changed(&args.name, "started", Some(run), &text, args.json)
        }
        ScheduleCommand::Pause(args) => {
            schedules::pause(&state, &args.name)?;
            let text = format!("{} is paused\n", display::safe(&args.name));
            changed(&args.name, "paused", None, &text, args.json)
        }
        ScheduleCommand::Resume(args) => {
            schedules::resume(&state, &args.name)?;
            let text = format!("{} is enabled from now on\n", display::safe(&args.name));
            changed(&args.name, "enabled", None, &text, args.json)
        }
    }
}

/// The result of a change, as JSON.
#[derive(Serialize)]
struct ChangeLine<'a> {
    schedule: &'a str,
    state: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    run: Option<RunId>,
}

fn changed(schedule: &str, state: &str, run: Option<RunId>, text: &str, json: bool) -> Outcome {
    match json {
        true => print::json(&ChangeLine { schedule, state, run }),
        false => print::out(text),
    }
    .kind(ErrorKind::Broken)?;
    Ok(0)
}

/// A schedule, as JSON.
#[derive(Serialize)]
struct ScheduleLine<'a> {
    schedule: &'a str,
    state: &'a str,
    plan: String,
    cron: &'a str,
    zone: &'a str,
    missed: &'a str,
    overlap: &'a str,
    /// Why it is stopped.
    fault: Option<&'a str>,
    /// The next slot, in RFC 3339; null if none will fire.
    next: Option<String>,
    /// The last fired slot with its run.
    last: Option<LastLine>,
    /// Whether a driver runs; without one, no slot fires.
    driver: bool,
}

#[derive(Serialize)]
struct LastLine {
    slot: String,
    run: RunId,
}

fn list(state: &Scoped, json: bool) -> Outcome {
    let list = schedules::list(state)?;
    if json {
        for schedule in &list.schedules {
            print::json(&line(schedule, list.has_driver)).kind(ErrorKind::Broken)?;
        }
    } else {
        print::out(&text(&list)).kind(ErrorKind::Broken)?;
    }
    let faults: Vec<&String> = list.schedules.iter().filter_map(|it| it.fault.as_ref()).collect();
    faults.iter().for_each(|fault| print::note(fault));
    let is_enabled = |it: &ScheduleView| it.state == ScheduleState::Enabled;
    if !list.has_driver && list.schedules.iter().any(is_enabled) {
        print::note("no driver is running, so no slot fires; `belljar resume` starts one");
    }
    Ok(if faults.is_empty() { 0 } else { USAGE })
}

fn utc(millis: u64) -> u64 {
    millis.saturating_mul(1_000_000)
}

fn line(schedule: &ScheduleView, driver: bool) -> ScheduleLine<'_> {
    let last = |(slot, run): (u64, RunId)| LastLine { slot: moment::rfc3339(utc(slot)), run };
    ScheduleLine {
        schedule: &schedule.name,
        state: schedule.state.name(),
        plan: schedule.plan.to_string_lossy().into_owned(),
        cron: &schedule.cron,
        zone: &schedule.zone,
        missed: schedule.missed.name(),
        overlap: schedule.overlap.name(),
        fault: schedule.fault.as_deref(),
        next: schedule.next.as_ref().map(|(slot, _)| moment::rfc3339(utc(*slot))),
        last: schedule.last.map(last),
        driver,
    }
}

fn text(list: &ScheduleList) -> String {
    if list.schedules.is_empty() {
        return "belljar.toml has no schedule\n".to_owned();
    }
    let name_width = list.schedules.iter().map(|it| it.name.len()).max().unwrap_or(0);
    let cron_width = list.schedules.iter().map(|it| it.cron.chars().count()).max().unwrap_or(0);
    let line = |it: &ScheduleView| {
        let next = match (&it.next, it.state) {
            (Some((_, local)), _) => format!("next {local} {}", display::safe(&it.zone)),
            (None, state) => state.name().to_owned(),
        };
        let last = it.last.map_or_else(String::new, |(slot, run)| {
            format!("  last {} run {run}", moment::readable_seconds(utc(slot)))
        });
        let (name, cron) = (&it.name, display::safe(&it.cron));
        format!("{name:<name_width$}  {cron:<cron_width$}  {next}{last}\n")
    };
    list.schedules.iter().map(line).collect()
}
