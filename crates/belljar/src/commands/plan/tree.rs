//! A plan as a tree for the terminal, at most 80 columns wide.
//!
//! Each task occurs once, below the last task that it waits for; its other inputs are named in its line.

use belljar_model::display;
use belljar_model::plan::{Check, CheckedPlan, Executor, Source, Task};
use belljar_model::spec::Argv;

use super::{executor, instances};

const COLUMNS: usize = 80;
/// The maximum depth that is indented; deeper tasks start with `…`.
const MAX_INDENT: usize = 10;

/// Returns one line per task.
pub(super) fn tree(plan: &CheckedPlan) -> String {
    let tasks = plan.tasks();
    let mut children: Vec<Vec<usize>> = vec![Vec::new(); tasks.len()];
    let mut roots = Vec::new();
    for at in 0..tasks.len() {
        match plan.dependencies(at).max().and_then(|parent| children.get_mut(parent)) {
            Some(of_parent) => of_parent.push(at),
            None => roots.push(at),
        }
    }
    let mut text = String::new();
    // The tasks to print: position, and for each level whether more tasks follow on it.
    let mut waiting: Vec<(usize, Vec<bool>)> =
        roots.into_iter().rev().map(|at| (at, Vec::new())).collect();
    while let Some((at, levels)) = waiting.pop() {
        let Some(task) = tasks.get(at) else { continue };
        text.push_str(&line(plan, at, task, &levels));
        text.push('\n');
        let below = children.get(at).map(Vec::as_slice).unwrap_or_default();
        // Only the last levels are drawn, so that a long chain needs no long lists.
        let skip = (levels.len() + 1).saturating_sub(MAX_INDENT + 1);
        for (place, child) in below.iter().enumerate().rev() {
            let more = place + 1 < below.len();
            let own = levels.iter().skip(skip).copied().chain([more]).collect();
            waiting.push((*child, own));
        }
    }
    text
}

fn line(plan: &CheckedPlan, at: usize, task: &Task, levels: &[bool]) -> String {
    let mut prefix = String::from("  ");
    if let Some((last, above)) = levels.split_last() {
        if levels.len() > MAX_INDENT {
            prefix.push('…');
        }
        let above = above.iter().skip(usize::from(levels.len() > MAX_INDENT));
        prefix.extend(above.map(|more| if *more { "│  " } else { "   " }));
        prefix.push_str(if *last { "├─ " } else { "└─ " });
    }
    let head = format!("{prefix}{}{}", task.id, instances(task));
    let rest = [executor(task) + &escalation(task), notes(plan, at, task)];
    let rest: Vec<String> = rest.into_iter().filter(|part| !part.is_empty()).collect();
    shorten(&format!("{head:<28}  {}", rest.join("; ")))
}

/// Returns the conditions, the other inputs and the checks of a task.
fn notes(plan: &CheckedPlan, at: usize, task: &Task) -> String {
    let parent = plan.dependencies(at).max();
    let others = plan.dependencies(at).filter(|on| Some(*on) != parent);
    let others = others.filter_map(|on| plan.tasks().get(on)).map(|task| task.id.to_string());
    let inputs = task.data.iter().filter_map(|edge| match &edge.from {
        Source::Input(name) => Some(format!("input.{name}")),
        Source::Task(_) => None,
    });
    let after: Vec<String> = others.chain(inputs).collect();
    let checks: Vec<String> = task.checks.iter().map(check).collect();
    let parts = [
        task.when.as_ref().map(|when| format!("when {}", when.of)),
        (!after.is_empty()).then(|| format!("with {}", after.join(", "))),
        (!checks.is_empty()).then(|| format!("checks: {}", checks.join(", "))),
    ];
    parts.into_iter().flatten().collect::<Vec<_>>().join("; ")
}

/// Returns the tiers that follow the first one, for example `, then capable`.
fn escalation(task: &Task) -> String {
    let Executor::Model { escalate, .. } = &task.executor else { return String::new() };
    escalate.iter().map(|tier| format!(", then {tier}")).collect()
}

/// Returns a check in a few words.
fn check(check: &Check) -> String {
    let program = |argv: &Argv| display::safe(argv.program().as_encoded_bytes());
    match check {
        Check::Schema(_) => "schema".to_owned(),
        Check::Command(argv) => format!("command {}", program(argv)),
        Check::Model { tier, .. } => format!("model {tier}"),
        Check::Verify(argv) => format!("verify {}", program(argv)),
    }
}

fn shorten(line: &str) -> String {
    if line.chars().count() <= COLUMNS {
        return line.trim_end().to_owned();
    }
    let mut short: String = line.chars().take(COLUMNS - 1).collect();
    short.push('…');
    short
}
