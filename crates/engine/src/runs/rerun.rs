//! Repeats a part of a run: a new run of the same plan that begins with outputs of the earlier run.
//!
//! **Invariant:** an output is reused only in the same tenant, for the same plan and under the same policy
//! (threat H17): the stored plan is checked again with the configuration of now, and the result must be the
//! stored plan with the stored templates of all boxes. Each output is checked against its commitment.

use std::fs;
use std::sync::Arc;

use anyhow::Context as _;
use belljar_ledger::{Actor, Digest, Draft, Event};
use belljar_model::plan::{Executor, OutputKind, Plan, TaskId};
use belljar_model::{Config, RunId};

use super::facts;
use super::files::RunFiles;
use super::machine::{Fact, FactKind, Moment, RunState, Settled, Status, TaskRef, Try};
use super::view::Loaded;
use super::{control, executors, limits, plans, submit};
use crate::error::{EngineError, ErrorKind, WithKind as _};
use crate::record;
use crate::scope::Scoped;

/// A new run that repeats a part of an earlier one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Repeated {
    pub run: RunId,
    /// The tasks whose outputs the new run takes from the earlier run.
    pub reused: Vec<TaskRef>,
}

/// Records a new run of the plan of a run that has ended; it starts with the next
/// [`wake`](super::driver::wake) of the driver. The task `from` and all tasks that depend on it run
/// again, and so do all tasks that were not done. Outputs of other tasks are reused.
///
/// Decisions of people are not reused, and neither are branches, which belong to their run.
pub fn rerun(
    state: &Scoped,
    config: &Config,
    run: RunId,
    from: &TaskId,
) -> Result<Repeated, EngineError> {
    let earlier = Loaded::read(state, run)?;
    if earlier.progress.outcome().is_none() {
        let error = EngineError::message(ErrorKind::WrongState, format!("run {run} has not ended"));
        return Err(error.advise(format!("`belljar cancel {run}` cancels it")));
    }
    let plan = &earlier.submitted.plan;
    let Some(first) = plan.index(from) else {
        return Err(control::no_task(run, &TaskRef { task: from.clone(), item: None }));
    };
    let policy = check_again(state, config, run, &earlier)?;
    submit::supported(plan)?;
    accept(state, &earlier, run, policy, first)
}

/// Checks that the configuration of now gives the same plan with the same grants. Returns the policy.
fn check_again(
    state: &Scoped,
    config: &Config,
    run: RunId,
    earlier: &Loaded,
) -> Result<Digest, EngineError> {
    let stored = &earlier.submitted.plan;
    let changed = |why: String| {
        let error = EngineError::message(ErrorKind::Refused, why);
        error.advise("submit the plan again")
    };
    let mut plan = Plan::default();
    plan.name = stored.name().to_owned();
    plan.template = stored.template().to_owned();
    plan.budget = stored.budget().clone();
    plan.inputs = stored.inputs().clone();
    plan.answer = stored.answer().cloned();
    plan.tasks = stored.tasks().to_vec();
    let ceiling = plans::ceiling_of(state.host(), config, &state.caller().tenant)?;
    let checked = plan.check(&ceiling).map_err(|faults| {
        let fault = faults.list().first().map(|fault| fault.reason.clone()).unwrap_or_default();
        changed(format!(
            "the configuration does not permit the plan of run {run} any more: {fault}"
        ))
    })?;
    let fixed = executors::fixed_files(state, stored, &earlier.submitted.base)?;
    let policy = submit::policy(stored, &fixed);
    let is_recorded = earlier.facts.iter().any(|fact| {
        matches!(&fact.kind, FactKind::PlanAccepted { policy: recorded, .. } if *recorded == policy)
    });
    if checked.canonical() != stored.canonical() || !is_recorded {
        let text = format!(
            "templates, tiers or agents have changed since run {run}, so its outputs cannot be reused"
        );
        return Err(changed(text));
    }
    Ok(policy)
}

/// Stores and records the new run.
fn accept(
    state: &Scoped,
    earlier: &Loaded,
    run: RunId,
    policy: Digest,
    first: usize,
) -> Result<Repeated, EngineError> {
    let plan = &earlier.submitted.plan;
    let _limits = limits::check(state, plan.budget())?;
    let layout = state.store().layout();
    let new = state.new_id()?.0;
    let files = RunFiles::of(layout, new);
    let bound = files.create_again(&earlier.files, earlier.bound)?;
    let discard = |error: EngineError| {
        fs::remove_dir_all(layout.plan(new)).ok(); // the ledger does not name the run
        error
    };
    let at = Moment(state.clock().millis());
    let accepted = Fact { at, kind: FactKind::PlanAccepted { plan: bound, policy } };
    let mut progress = RunState::new(Arc::clone(&earlier.graph), new);
    progress.apply(&accepted);
    let reused = reuse(state, earlier, &files, &mut progress, first, at).map_err(discard)?;
    let base = &earlier.submitted.base;
    let created = submit::created(state, plan, base, policy, &plan.canonical()).map_err(discard)?;
    let mut drafts =
        vec![Draft::new(created), Draft::new(facts::event(&accepted)).by(Actor::Driver)];
    let mut tasks = Vec::new();
    for (of, fact) in reused {
        let mut event = facts::event(&fact);
        if let Event::AttentionSettled(settled) = &mut event {
            settled.reason = format!("{of}: output of run {run}");
        }
        drafts.push(Draft::new(event));
        tasks.push(of);
    }
    let drafts: Vec<Draft> = drafts.into_iter().map(|draft| draft.of_run(new)).collect();
    let recorded = record::open(state).kind(ErrorKind::Unrecorded).and_then(|ledger| {
        let recorded = ledger.record_all(drafts).context("cannot record the plan");
        recorded.kind(ErrorKind::Unrecorded)
    });
    recorded.map_err(discard)?;
    tracing::info!(run = %new, earlier = %run, reused = tasks.len(), "plan is repeated");
    Ok(Repeated { run: new, reused: tasks })
}

/// Copies the outputs that the new run reuses. Returns the facts that record them.
fn reuse(
    state: &Scoped,
    earlier: &Loaded,
    files: &RunFiles,
    progress: &mut RunState,
    first: usize,
    at: Moment,
) -> Result<Vec<(TaskRef, Fact)>, EngineError> {
    let plan = &earlier.submitted.plan;
    let mut facts = Vec::new();
    // Whether all instances of a task have their outputs of the earlier run.
    let mut is_whole = vec![false; plan.tasks().len()];
    for (position, task) in plan.tasks().iter().enumerate() {
        let known = |at: usize| is_whole.get(at).copied().unwrap_or(false);
        let is_gate = matches!(task.executor, Executor::Approval { .. });
        let is_reusable = !is_gate && task.output.kind != OutputKind::Branch;
        // A task that depends on `first` has a dependency that is not whole.
        if position == first || !is_reusable || !plan.dependencies(position).all(known) {
            continue;
        }
        let items: Vec<Option<u32>> = match &task.for_each {
            None => vec![None],
            Some(_) => (0..progress.instances(&task.id).unwrap_or(0)).map(Some).collect(),
        };
        for item in items {
            let of = TaskRef { task: task.id.clone(), item };
            let Some(output) = earlier.progress.output(&of) else { continue };
            if progress.status(&of) != Some(Status::Ready)
                || !files.copy_output(&earlier.files, &of, output.digest)?
            {
                continue;
            }
            let TaskRef { task, item } = of.clone();
            let kind = FactKind::AttentionSettled {
                of: Try { task, item, attempt: 1 },
                how: Settled::Done(output.clone()),
                by: state.caller().principal.clone(),
            };
            let fact = Fact { at, kind };
            progress.apply(&fact);
            facts.push((of, fact));
        }
        if let Some(whole) = is_whole.get_mut(position) {
            *whole = progress.task_status(&task.id) == Some(Status::Done);
        }
    }
    if !facts.is_empty() {
        files.sync_outputs()?;
    }
    Ok(facts)
}
