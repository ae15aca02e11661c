//! Decides the facts that follow from an input.

use std::collections::BTreeSet;

use belljar_ledger::Digest;
use belljar_model::RunId;
use belljar_model::plan::{Label, OnCrash};

use super::checks::Checks;
use super::state::{InstanceIx, Pending, Progress, Resolution, RunState, State};
use super::types::{
    Command, End, Ended, Evidence, Fact, FactKind, GateAnswer, GateVerdict, Grant, Input,
    InputKind, Moment, Output, RefusedBecause, Settled, StopReason, TaskRef, Try, Verdict,
};
use crate::runs::budget::{Amounts, Spent};
use crate::runs::gate::{Bound, may_answer};

/// How often a lost attempt is repeated before a person decides.
const MAX_LOST: u32 = 3;

/// The maximum number of bytes of a recorded message; the complete text is in the output of the box.
const MAX_TEXT: usize = 4096;

/// Returns the facts that follow from an input in a state.
///
/// An input that does not fit the state gives no facts: the report of an older attempt, a second answer,
/// or a lease for a task that is already running.
pub fn decide(state: &RunState, input: &Input) -> Vec<Fact> {
    let now = input.at.max(state.clock);
    let kinds: Vec<FactKind> = if state.outcome.is_some() {
        Vec::new()
    } else {
        match &input.kind {
            InputKind::Accepted { plan, policy } => {
                accepted(state, *plan, *policy).into_iter().collect()
            }
            InputKind::Opened { epoch } => opened(state, *epoch).into_iter().collect(),
            InputKind::Lease(of, lease) => {
                let fact = leased(state, of, lease, now);
                let is_start = matches!(fact, Some(FactKind::TaskStarted { .. }));
                let removed = if is_start { state.removals(of) } else { Vec::new() };
                removed.into_iter().chain(fact).collect()
            }
            InputKind::More(of, more) => {
                let is_leased = |ix: &InstanceIx| {
                    let instance = state.at(*ix);
                    let is_open = matches!(instance.state, State::Running | State::Judging(_));
                    is_open && !instance.cancelling
                };
                state
                    .attempt(of)
                    .filter(is_leased)
                    .map(|_| FactKind::BudgetLeased { of: of.clone(), more: *more })
                    .into_iter()
                    .collect()
            }
            InputKind::Ended(of, end, usage) => ended(state, of, end, *usage).into_iter().collect(),
            InputKind::Lost(of, evidence) => lost(state, of, *evidence).into_iter().collect(),
            InputKind::Judged(of, verdict, usage, checks) => {
                judged(state, of, verdict, *usage, checks).into_iter().collect()
            }
            InputKind::Answered(answer) => answered(state, answer, now).into_iter().collect(),
            InputKind::Settled(of, how, by) => {
                let by = may_answer(by).is_ok().then_some(&by.principal);
                let how = settled(state, of, how).zip(by);
                let fact = |(how, by): (Settled, &belljar_model::caller::Principal)| {
                    FactKind::AttentionSettled { of: of.clone(), how, by: by.clone() }
                };
                how.map(fact).into_iter().collect()
            }
            InputKind::Cancel { of, by } => {
                let fact = FactKind::PlanCancelling { of: of.clone(), by: by.clone() };
                is_open(state, of.as_ref()).then_some(fact).into_iter().collect()
            }
            InputKind::Time => due(state, now, input.random),
        }
    };
    kinds.into_iter().map(|kind| Fact { at: now, kind }).collect()
}

/// Applies an input and all its consequences. Returns the facts in their order, and the commands.
///
/// The caller records the facts in one batch, and then carries out the commands. If the facts cannot be
/// recorded, it must drop this state and load the run again.
pub fn advance(state: &mut RunState, input: &Input) -> (Vec<Fact>, Vec<Command>) {
    let (mut facts, mut commands) = (Vec::new(), Vec::new());
    let mut next = decide(state, input);
    let time = Input { kind: InputKind::Time, ..input.clone() };
    loop {
        for fact in &next {
            commands.extend(state.apply(fact));
        }
        facts.append(&mut next);
        next = decide(state, &time);
        if next.is_empty() {
            return (facts, commands);
        }
    }
}

fn accepted(state: &RunState, plan: Digest, policy: Digest) -> Option<FactKind> {
    state.accepted.is_none().then_some(FactKind::PlanAccepted { plan, policy })
}

fn opened(state: &RunState, epoch: u64) -> Option<FactKind> {
    (epoch > state.epoch).then_some(FactKind::DriverOpened { epoch })
}

fn leased(
    state: &RunState,
    of: &Try,
    lease: &Result<Grant, Spent>,
    now: Moment,
) -> Option<FactKind> {
    let ix = state.next_attempt(of)?;
    let instance = state.at(ix);
    let is_due = matches!(instance.state, State::Backoff { due } if due <= now);
    if !is_due && instance.state != State::Ready {
        return None;
    }
    if instance.cancelling {
        return Some(stopped(of.instance(), StopReason::Cancelled));
    }
    match lease {
        Err(spent) => Some(FactKind::TaskStopped {
            of: of.instance(),
            reason: StopReason::Budget,
            usage: None,
            used_up: Some(Box::new(spent.into())),
            boxes: Vec::new(),
        }),
        // A driver that was replaced must not start anything.
        Ok(grant) if grant.epoch < state.epoch => None,
        Ok(Grant { lease, box_run, epoch }) => Some(FactKind::TaskStarted {
            of: of.clone(),
            box_run: *box_run,
            epoch: *epoch,
            tier: instance.tier,
            lease: *lease,
            inputs: state.task(instance.task).digest?,
        }),
    }
}

fn running(state: &RunState, of: &Try) -> Option<InstanceIx> {
    state.attempt(of).filter(|ix| state.at(*ix).state == State::Running)
}

fn ended(state: &RunState, of: &Try, end: &End, usage: Option<Amounts>) -> Option<FactKind> {
    let ix = running(state, of)?;
    if state.at(ix).cancelling {
        return Some(killed(of, usage, &[]));
    }
    let end = match end {
        End::Done(output) => Ended::Done(labelled(state, ix, output)),
        End::Failed { reason, text } => Ended::Failed { reason: *reason, text: shortened(text) },
    };
    Some(FactKind::TaskEnded { of: of.clone(), end, usage })
}

/// The fact about an attempt that ended after a cancellation; its result does not count any more.
fn killed(of: &Try, usage: Option<Amounts>, boxes: &[RunId]) -> FactKind {
    FactKind::TaskStopped {
        of: of.instance(),
        reason: StopReason::Cancelled,
        usage,
        used_up: None,
        boxes: boxes.to_vec(),
    }
}

/// The fact about a task that ends without an attempt.
fn stopped(of: TaskRef, reason: StopReason) -> FactKind {
    FactKind::TaskStopped { of, reason, usage: None, used_up: None, boxes: Vec::new() }
}

fn lost(state: &RunState, of: &Try, evidence: Evidence) -> Option<FactKind> {
    let attention = || FactKind::TaskLost { of: of.clone(), evidence };
    if let Some(ix) = state.next_attempt(of)
        && evidence == Evidence::InputMissing
    {
        let instance = state.at(ix);
        let can_start = matches!(instance.state, State::Ready | State::Backoff { .. });
        return (can_start && !instance.cancelling).then(attention);
    }
    let ix = state.attempt(of)?;
    let instance = state.at(ix);
    let is_judging = matches!(instance.state, State::Judging(_));
    if instance.cancelling && (is_judging || instance.state == State::Running) {
        return Some(killed(of, None, &[]));
    }
    // Checks that are lost are started again; they cannot have an effect.
    running(state, of)?;
    let is_repeated = match (state.graph[instance.task].on_crash, evidence) {
        (_, Evidence::NotStarted) => true,
        (OnCrash::Evidence, Evidence::NoEffect) => true,
        (OnCrash::Rerun, Evidence::NoEffect | Evidence::MayHaveEffect) => true,
        (OnCrash::Evidence, Evidence::MayHaveEffect) => false,
        (OnCrash::Ask, Evidence::NoEffect | Evidence::MayHaveEffect) => false,
        (_, Evidence::InputMissing) => false,
    };
    if !is_repeated || instance.lost >= MAX_LOST {
        return Some(attention());
    }
    let usage = (evidence == Evidence::NotStarted).then(Amounts::default);
    Some(FactKind::TaskEnded { of: of.clone(), end: Ended::Lost(evidence), usage })
}

fn judged(
    state: &RunState,
    of: &Try,
    verdict: &Verdict,
    usage: Option<Amounts>,
    checks: &Checks,
) -> Option<FactKind> {
    let ix = state.attempt(of)?;
    let instance = state.at(ix);
    if !matches!(instance.state, State::Judging(_)) {
        return None;
    }
    if instance.cancelling {
        return Some(killed(of, usage, &checks.boxes));
    }
    let verdict = match verdict {
        Verdict::Passed => Verdict::Passed,
        Verdict::Rejected { check, text } => {
            Verdict::Rejected { check: *check, text: shortened(text) }
        }
    };
    Some(FactKind::TaskJudged { of: of.clone(), verdict, usage, checks: checks.clone() })
}

fn answered(state: &RunState, answer: &GateAnswer, now: Moment) -> Option<FactKind> {
    let GateAnswer { digest, by, verdict } = answer;
    may_answer(by).ok()?;
    let ix = *state.gates.get(digest)?;
    if state.at(ix).cancelling {
        return None;
    }
    let State::Gated { deadline, .. } = state.at(ix).state else { return None };
    if deadline <= now {
        return Some(expired(state, ix, *digest));
    }
    let (of, by) = (state.current(ix), by.principal.clone());
    let given = |output: &Output, edited| {
        let output = cleared(state, ix, labelled(state, ix, output));
        FactKind::ApprovalGiven { of: of.clone(), digest: *digest, by: by.clone(), edited, output }
    };
    Some(match verdict {
        GateVerdict::Approve(output) => given(output, false),
        GateVerdict::Edit(output) => given(output, true),
        GateVerdict::Reject(text) => FactKind::ApprovalRefused {
            of,
            digest: *digest,
            why: RefusedBecause::Rejected,
            by: Some(by),
            text: text.as_deref().map(shortened),
        },
    })
}

fn expired(state: &RunState, ix: InstanceIx, digest: Digest) -> FactKind {
    let of = state.current(ix);
    FactKind::ApprovalRefused { of, digest, why: RefusedBecause::Expired, by: None, text: None }
}

fn settled(state: &RunState, of: &Try, how: &Settled) -> Option<Settled> {
    let ix = state.instance(&of.task, of.item)?;
    let instance = state.at(ix);
    let is_asked = instance.state == State::Attention { attempt: of.attempt };
    let labelled = || match how {
        Settled::Rerun => Settled::Rerun,
        Settled::Done(output) => Settled::Done(labelled(state, ix, output)),
        Settled::Failed => Settled::Failed,
    };
    (is_asked && !instance.cancelling).then(labelled)
}

/// Returns whether there is something to cancel that is not being cancelled.
fn is_open(state: &RunState, of: Option<&TaskRef>) -> bool {
    let Some(of) = of else { return !state.cancelling && state.open_tasks > 0 };
    let Some(ix) = state.graph.find(&of.task) else { return false };
    let task = state.task(ix);
    match (task.progress, state.instance(&of.task, of.item)) {
        (Progress::Waiting, _) => of.item.is_none() && !task.cancelling,
        (Progress::Open, Some(ix)) => {
            !state.at(ix).state.status().is_final() && !state.at(ix).cancelling
        }
        (Progress::Open, None) => of.item.is_none() && !task.cancelling,
        (Progress::Final(_), _) => false,
    }
}

/// Returns the facts that follow from earlier facts, and from the time.
fn due(state: &RunState, now: Moment, random: u32) -> Vec<FactKind> {
    let pending =
        state.pending.iter().filter_map(|pending| consequence(state, *pending, now, random));
    let expired = state.expired(now).filter_map(|ix| {
        let State::Gated { digest, .. } = state.at(ix).state else { return None };
        (!state.at(ix).cancelling).then(|| expired(state, ix, digest))
    });
    pending.chain(expired).collect()
}

fn consequence(state: &RunState, pending: Pending, now: Moment, random: u32) -> Option<FactKind> {
    match pending {
        Pending::Stop(ix) => {
            let Resolution::Stop(reason) = state.resolve(ix) else { return None };
            let task = state.graph[ix].id.clone();
            Some(stopped(TaskRef { task, item: None }, reason))
        }
        Pending::Cancel(ix) => Some(stopped(state.current(ix).instance(), StopReason::Cancelled)),
        Pending::Retry(ix) => {
            if state.at(ix).cancelling {
                return None;
            }
            let (tier, pause) = state.retry(ix)?;
            // At most a quarter of the pause, so that retries of many tasks spread out.
            let jitter = (u128::from(pause / 4) * u128::from(random)) >> 32;
            let jitter = u64::try_from(jitter).unwrap_or(0);
            let due = now.after(pause.saturating_sub(jitter));
            Some(FactKind::TaskRetrying { of: state.current(ix), tier, due, jitter })
        }
        Pending::Ask(ix) => {
            if state.at(ix).cancelling {
                return None;
            }
            ask(state, ix, now)
        }
        Pending::End => Some(FactKind::PlanEnded { outcome: state.result() }),
    }
}

fn ask(state: &RunState, ix: InstanceIx, now: Moment) -> Option<FactKind> {
    let instance = state.at(ix);
    let node = &state.graph[instance.task];
    let gate = node.gate.as_ref()?;
    let (plan, policy) = state.accepted?;
    let bound = Bound {
        run: state.run,
        plan,
        gate: &node.id,
        item: instance.item,
        inputs: state.task(instance.task).digest?,
        dependents: &gate.dependents,
        policy,
    };
    let millis = u64::try_from(gate.deadline.as_millis()).unwrap_or(u64::MAX);
    let (of, digest) = (state.next(ix), bound.digest());
    if let Some(text) = state.exclusion(ix) {
        let (why, text) = (RefusedBecause::Labels, Some(shortened(&text)));
        return Some(FactKind::ApprovalRefused { of, digest, why, by: None, text });
    }
    Some(FactKind::ApprovalAsked { of, digest, deadline: now.after(millis) })
}

/// Returns the beginning of a message, so that each fact fits into one ledger event.
fn shortened(text: &str) -> String {
    text.get(..text.floor_char_boundary(MAX_TEXT)).unwrap_or_default().to_owned()
}

/// Adds the labels of the task's inputs to an output.
fn labelled(state: &RunState, ix: InstanceIx, output: &Output) -> Output {
    let inputs = &state.task(state.at(ix).task).labels;
    let labels: BTreeSet<Label> = output.labels.union(inputs).cloned().collect();
    Output { labels, ..output.clone() }
}

/// Removes the labels that the gate clears.
fn cleared(state: &RunState, ix: InstanceIx, mut output: Output) -> Output {
    if let Some(gate) = &state.graph[state.at(ix).task].gate {
        output.labels.retain(|label| !gate.clears.contains(label));
    }
    output
}
