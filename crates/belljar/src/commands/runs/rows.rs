//! The state of a run of a plan as text: one title, and one row per task.
//!
//! Text that a task can choose, such as its last line, is escaped here.

use std::collections::BTreeMap;

use belljar_engine::runs::budget::{Amounts, Limits, Unit};
use belljar_engine::runs::machine::{FailReason, Moment, Status, TaskRef};
use belljar_engine::runs::view::{RunView, TaskView};
use belljar_model::display;
use belljar_model::plan::{Executor, Task, TaskId};

use super::checks;
use crate::commands::plan;

/// The maximum width of the ids of tasks in a table, in characters.
const MAX_ID: usize = 20;
/// The maximum width of the executors in a table, in characters.
const MAX_WHAT: usize = 16;
/// The number of tasks that a waiting task names.
const MAX_NAMED: usize = 2;

/// A task in a table of tasks. All texts are safe to print.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Row {
    pub(crate) of: TaskRef,
    pub(crate) status: Status,
    /// The executor, for example `model cheap`.
    what: String,
    state: String,
    time: String,
    tokens: String,
    money: String,
    /// The reason of a failure, the last line of a running program, or the start of the output.
    note: String,
}

impl Row {
    /// Returns whether a person must act before the task can continue.
    pub(crate) const fn needs_person(&self) -> bool {
        matches!(self.status, Status::Gated | Status::Attention)
    }
}

/// Returns the mark of a state.
pub(crate) const fn mark(status: Status) -> char {
    match status {
        Status::Done => '✓',
        Status::Running | Status::Judging => '▶',
        Status::Waiting | Status::Ready | Status::Backoff => '·',
        Status::Gated => '?',
        Status::Attention => '!',
        Status::Failed | Status::Stopped | Status::Cancelled => '✗',
        Status::Skipped => '–',
    }
}

/// Returns the rows of all tasks in the order of the plan. `outputs` returns the start of an output.
pub(crate) fn rows(
    view: &RunView,
    now: Moment,
    mut output: impl FnMut(&TaskRef) -> Option<String>,
) -> Vec<Row> {
    let mut open: BTreeMap<&TaskId, bool> = BTreeMap::new();
    for task in &view.tasks {
        *open.entry(&task.of.task).or_default() |= !task.status.is_final();
    }
    let waits = |id: &TaskId| {
        let position = view.plan.index(id)?;
        let all = view.plan.dependencies(position).filter_map(|at| view.plan.tasks().get(at));
        let names: Vec<&str> = all
            .filter(|task| open.get(&task.id).copied().unwrap_or(false))
            .map(|task| task.id.as_str())
            .collect();
        let more = match names.len().saturating_sub(MAX_NAMED) {
            0 => String::new(),
            more => format!(" and {more} more"),
        };
        let first: Vec<&str> = names.iter().take(MAX_NAMED).copied().collect();
        (!names.is_empty()).then(|| format!("waits for {}{more}", first.join(", ")))
    };
    let row = |task: &TaskView| {
        let state = match task.status {
            Status::Waiting => waits(&task.of.task).unwrap_or_else(|| "waiting".to_owned()),
            Status::Backoff => "retries".to_owned(),
            Status::Gated => "approval".to_owned(),
            Status::Judging => "checking".to_owned(),
            Status::Ready
            | Status::Running
            | Status::Attention
            | Status::Done
            | Status::Failed
            | Status::Skipped
            | Status::Stopped
            | Status::Cancelled => task.status.name().to_owned(),
        };
        let note = match (task.status, &task.reason) {
            (Status::Done, None) => output(&task.of),
            (Status::Waiting, _) => None,
            (Status::Gated, _) => Some("`belljar approve` shows the question".to_owned()),
            (status, Some(reason)) if reason == status.name() => None,
            (_, Some(reason)) => Some(sentence(reason)),
            (_, None) => task.lines.last().cloned(),
        };
        let attempt = match task.attempt {
            0 | 1 => String::new(),
            attempt => format!("attempt {attempt}; "),
        };
        let by = task.by.as_ref().map_or_else(String::new, |by| format!("by {by}; "));
        let judged = match (task.status, checks::summary(&task.checks)) {
            (Status::Done, summary) if !summary.is_empty() => format!("{summary}; "),
            _ => String::new(),
        };
        let note = format!("{by}{attempt}{judged}{}", note.unwrap_or_default());
        Row {
            of: task.of.clone(),
            status: task.status,
            what: view.plan.task(&task.of.task).map(|it| what(it, task.tier)).unwrap_or_default(),
            state,
            time: elapsed(task, now).map(duration).unwrap_or_default(),
            tokens: some(task.usage.get(Unit::Tokens), short),
            money: some(task.usage.get(Unit::Money), money),
            note: display::safe_line(note.trim_end_matches("; ")),
        }
    };
    view.tasks.iter().map(row).collect()
}

/// Returns a reason in one line, without its type if a text follows.
fn sentence(reason: &str) -> String {
    let text = match reason.split_once(": ") {
        Some((name, text)) if FailReason::named(name).is_some() => text.to_owned(),
        Some(_) | None => reason.replace('_', " "),
    };
    text.replace('\n', "; ")
}

fn some(amount: u64, text: impl Fn(u64) -> String) -> String {
    if amount == 0 { String::new() } else { text(amount) }
}

/// Returns the executor of a task in a few words, with the tier of its last attempt.
pub(crate) fn what(task: &Task, tier: u32) -> String {
    if let Executor::Model { escalate, .. } = &task.executor
        && let Some(later) = usize::try_from(tier).ok().and_then(|tier| tier.checked_sub(1))
        && let Some(name) = escalate.get(later)
    {
        return format!("model {name}");
    }
    plan::executor(task)
}

/// Returns the time of the last attempt of a task in milliseconds.
pub(crate) fn elapsed(task: &TaskView, now: Moment) -> Option<u64> {
    let end = match task.status.is_final() {
        true => task.ended?,
        false => now,
    };
    Some(end.0.saturating_sub(task.started?.0))
}

/// Returns the lines of a table of rows.
pub(crate) fn table(rows: &[Row]) -> Vec<String> {
    let width = |text: &dyn Fn(&Row) -> usize, max: usize| {
        rows.iter().map(text).max().unwrap_or(0).min(max)
    };
    let id_width = width(&|row| row.of.to_string().chars().count(), MAX_ID);
    let what_width = width(&|row| row.what.chars().count(), MAX_WHAT);
    let tokens_width = width(&|row| row.tokens.len(), 8);
    let money_width = width(&|row| row.money.len(), 10);
    let line = |row: &Row| {
        let Row { of, status, what, state, time, tokens, money, note } = row;
        let (id, what) = (cut(&of.to_string(), id_width), cut(what, what_width));
        let start = format!("{} {id:<id_width$}  {what:<what_width$}", mark(*status));
        if *status == Status::Waiting {
            return format!("{start}  {state}");
        }
        let mut line = format!("{start}  {state:<9} {time:>6}");
        for (text, width) in [(tokens, tokens_width), (money, money_width)] {
            if width > 0 {
                line.push_str(&format!("  {text:>width$}"));
            }
        }
        format!("{line}  {note}").trim_end().to_owned()
    };
    rows.iter().map(line).collect()
}

/// Returns the name of a run, its state, its time and its usage.
pub(crate) fn title(view: &RunView, now: Moment) -> String {
    let end = view.ended.unwrap_or(now);
    let time = duration(end.0.saturating_sub(view.accepted.0));
    let state = match view.outcome {
        Some(outcome) => format!("{} in {time}", outcome.name().replace('_', " ")),
        None => format!("{} {time}", view.phase.name()),
    };
    let limits = Limits::from(view.plan.budget());
    let used = view.usage();
    let running = |task: &&TaskView| task.status == Status::Running && task.box_run.is_some();
    let boxes = view.tasks.iter().filter(running).count() as u64;
    let usage =
        |unit: Unit, used: u64, text: &dyn Fn(u64) -> String, noun: &str| match limits.get(unit) {
            Some(limit) => Some(format!("{} of {} {noun}", text(used), text(limit))),
            None if used > 0 => Some(format!("{} {noun}", text(used))),
            None => None,
        };
    let of = |unit: Unit, text: &dyn Fn(u64) -> String, noun: &str| {
        usage(unit, used.get(unit), text, noun)
    };
    let parts = [
        Some(display::safe(&view.name)),
        Some(state),
        of(Unit::Money, &money, "USD"),
        of(Unit::Tokens, &short, "tokens"),
        of(Unit::Calls, &short, "requests"),
        usage(Unit::Boxes, boxes, &short, "boxes").filter(|_| view.outcome.is_none()),
    ];
    parts.into_iter().flatten().collect::<Vec<String>>().join("  ")
}

/// Returns amounts as a JSON object, with all units that are counted.
pub(crate) fn usage_json(usage: &Amounts) -> serde_json::Value {
    serde_json::json!({
        "calls": usage.get(Unit::Calls),
        "tokens": usage.get(Unit::Tokens),
        "money_micro_usd": usage.get(Unit::Money),
        "seconds": usage.get(Unit::Seconds),
        "bytes": usage.get(Unit::Bytes),
    })
}

/// Formats milliseconds as a short duration: `6s`, `3m58s`, `1h02m`, `2d03h`.
pub(crate) fn duration(millis: u64) -> String {
    let seconds = millis / 1000;
    match seconds {
        0..60 => format!("{seconds}s"),
        60..3600 => format!("{}m{:02}s", seconds / 60, seconds % 60),
        3600..86_400 => format!("{}h{:02}m", seconds / 3600, seconds % 3600 / 60),
        _ => format!("{}d{:02}h", seconds / 86_400, seconds % 86_400 / 3600),
    }
}

/// Formats a number with at most four characters and a unit: `999`, `61k`, `1.2M`.
pub(crate) fn short(number: u64) -> String {
    match number {
        0..1_000 => number.to_string(),
        1_000..1_000_000 => format!("{}k", number / 1_000),
        _ => format!("{}.{}M", number / 1_000_000, number % 1_000_000 / 100_000),
    }
}

/// Formats millionths of a US dollar with two decimals, rounded up: a cost is never shown as zero.
pub(crate) fn money(micros: u64) -> String {
    let cents = micros.div_ceil(10_000);
    format!("{}.{:02}", cents / 100, cents % 100)
}

/// Returns the first `max` characters of a text; the last one is `…` if characters are missing.
pub(crate) fn cut(text: &str, max: usize) -> String {
    if text.chars().count() <= max {
        return text.to_owned();
    }
    let mut short: String = text.chars().take(max.saturating_sub(1)).collect();
    if max > 0 {
        short.push('…');
    }
    short
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_numbers_and_money_are_short() {
        let durations = [0, 59_999, 238_000, 3_720_000, 183_600_000].map(duration);
        assert_eq!(durations, ["0s", "59s", "3m58s", "1h02m", "2d03h"]);
        assert_eq!([0, 999, 61_400, 1_250_000].map(short), ["0", "999", "61k", "1.2M"]);
        assert_eq!([0, 1, 10_000, 5_000_000].map(money), ["0.00", "0.01", "0.01", "5.00"]);
    }

    #[test]
    fn long_text_is_cut_and_marked() {
        assert_eq!(
            (cut("abc", 3), cut("abcd", 3), cut("a", 0)),
            ("abc".into(), "ab…".into(), String::new())
        );
    }
}
