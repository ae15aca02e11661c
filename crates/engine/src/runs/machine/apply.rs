//! Applies recorded facts to the state of a run.
//!
//! Facts are the truth: applying never refuses one. A fact that does not fit the state changes nothing,
//! so a final state never changes.

use super::state::{Inputs, Instance, InstanceIx, Pending, Progress, Resolution, RunState, State};
use super::types::{
    Command, Ended, Fact, FactKind, FailReason, Output, RefusedBecause, Settled, Status,
    StopReason, TaskRef, Try, Verdict,
};
use crate::runs::budget::{Amounts, Limits, Settlement, settle};
use crate::runs::gate::inputs_digest;
use crate::runs::graph::{Items, Link, TaskIx};

impl RunState {
    /// Applies a fact. Returns the commands that the driver carries out once the fact is durable.
    pub fn apply(&mut self, fact: &Fact) -> Vec<Command> {
        self.clock = self.clock.max(fact.at);
        let mut commands = Vec::new();
        if self.outcome.is_none() {
            self.change(&fact.kind, &mut commands);
        }
        commands
    }

    fn change(&mut self, fact: &FactKind, commands: &mut Vec<Command>) {
        match fact {
            FactKind::PlanAccepted { plan, policy } => {
                if self.accepted.is_none() {
                    self.accepted = Some((*plan, *policy));
                    self.begin(commands);
                }
            }
            FactKind::DriverOpened { epoch } => self.epoch = self.epoch.max(*epoch),
            FactKind::TaskStarted { of, lease, .. } => self.started(of, *lease, commands),
            // The grants follow from the labels, which are part of the state.
            FactKind::GrantRemoved { .. } => {}
            FactKind::TaskEnded { of, end, usage } => self.ended(of, end, *usage, commands),
            FactKind::TaskJudged { of, verdict, usage, .. } => {
                self.judged(of, verdict, *usage, commands);
            }
            FactKind::TaskRetrying { of, tier, due, .. } => {
                if let Some(ix) = self.expect(of, |state| *state == State::Retrying) {
                    self.enter(ix, State::Backoff { due: *due });
                    let instance = self.at_mut(ix);
                    if instance.tier != *tier {
                        instance.tier = *tier;
                        instance.used = 0;
                    }
                    commands.push(Command::Wake(*due));
                }
            }
            FactKind::TaskLost { of, .. } => self.lost(of, commands),
            FactKind::TaskStopped { of, reason, usage, .. } => {
                self.stopped(of, *reason, *usage, commands);
            }
            FactKind::ApprovalAsked { of, digest, deadline } => {
                if let Some(ix) = self.next_attempt(of)
                    && self.at(ix).state == State::Asking
                {
                    self.at_mut(ix).attempt = of.attempt;
                    self.enter(ix, State::Gated { digest: *digest, deadline: *deadline });
                    commands.extend([Command::Notify(*digest), Command::Wake(*deadline)]);
                }
            }
            FactKind::ApprovalGiven { of, digest, output, .. } => {
                let is_asked = |state: &State| matches!(state, State::Gated { digest: asked, .. } if asked == digest);
                if let Some(ix) = self.expect(of, is_asked) {
                    self.finish(ix, State::Done(Box::new(output.clone())), commands);
                }
            }
            FactKind::ApprovalRefused { of, digest, why, .. } => {
                let is_asked = |state: &State| matches!(state, State::Gated { digest: asked, .. } if asked == digest);
                // A gate that labels exclude is refused before it is asked.
                let is_excluded = |ix: &InstanceIx| {
                    *why == RefusedBecause::Labels && self.at(*ix).state == State::Asking
                };
                let excluded = self.next_attempt(of).filter(is_excluded);
                if let Some(ix) = self.expect(of, is_asked).or(excluded) {
                    self.at_mut(ix).attempt = of.attempt;
                    self.finish(ix, State::Failed, commands);
                }
            }
            FactKind::AttentionSettled { of, how, .. } => self.settled(of, how, commands),
            FactKind::BudgetLeased { of, more } => {
                let is_leased = |state: &State| matches!(state, State::Running | State::Judging(_));
                if let Some(ix) = self.expect(of, is_leased)
                    && let Some(lease) = &mut self.at_mut(ix).lease
                {
                    **lease = lease.plus(more);
                    commands.push(Command::Extend(of.clone(), *more));
                }
            }
            FactKind::PlanCancelling { of, .. } => self.cancel(of.as_ref(), commands),
            FactKind::PlanEnded { outcome } => {
                if self.open_tasks == 0 {
                    self.pending.remove(&Pending::End);
                    self.outcome = Some(*outcome);
                }
            }
        }
    }

    /// Releases the tasks without inputs.
    fn begin(&mut self, commands: &mut Vec<Command>) {
        let graph = self.graph.clone();
        let roots: Vec<TaskIx> =
            graph.tasks().filter(|(_, node)| node.inputs.is_empty()).map(|(ix, _)| ix).collect();
        let mut final_tasks = Vec::new();
        for ix in roots {
            self.advance_task(ix, &mut final_tasks, commands);
        }
        self.complete(final_tasks, commands);
    }

    fn started(&mut self, of: &Try, lease: Limits, commands: &mut Vec<Command>) {
        let Some(ix) = self.next_attempt(of) else { return };
        if matches!(self.at(ix).state, State::Ready | State::Backoff { .. }) {
            self.enter(ix, State::Running);
            let instance = self.at_mut(ix);
            instance.attempt = of.attempt;
            instance.used = instance.used.saturating_add(1);
            instance.lease = Some(Box::new(lease));
            commands.push(Command::Start(of.clone()));
        }
    }

    fn ended(
        &mut self,
        of: &Try,
        end: &Ended,
        usage: Option<Amounts>,
        commands: &mut Vec<Command>,
    ) {
        let Some(ix) = self.expect(of, |state| *state == State::Running) else { return };
        match end {
            Ended::Done(output) if self.graph[self.at(ix).task].has_checks => {
                self.settle_part(ix, usage, commands);
                self.enter(ix, State::Judging(Box::new(output.clone())));
                commands.push(Command::Judge(of.clone()));
            }
            Ended::Done(output) => {
                self.settle_all(ix, usage, commands);
                self.finish(ix, State::Done(Box::new(output.clone())), commands);
            }
            Ended::Failed { reason, .. } => {
                self.settle_all(ix, usage, commands);
                self.over_budget |= *reason == FailReason::OverBudget;
                self.failed(ix, reason.is_retried(), commands);
            }
            Ended::Lost(_) => {
                self.settle_all(ix, usage, commands);
                let instance = self.at_mut(ix);
                instance.used = instance.used.saturating_sub(1);
                instance.lost = instance.lost.saturating_add(1);
                self.make_ready(ix, commands);
            }
        }
    }

    fn judged(
        &mut self,
        of: &Try,
        verdict: &Verdict,
        usage: Option<Amounts>,
        commands: &mut Vec<Command>,
    ) {
        let Some(ix) = self.attempt(of) else { return };
        let State::Judging(output) = self.at(ix).state.clone() else { return };
        self.settle_all(ix, usage, commands);
        match verdict {
            Verdict::Passed => self.finish(ix, State::Done(output), commands),
            Verdict::Rejected { .. } => self.failed(ix, true, commands),
        }
    }

    fn lost(&mut self, of: &Try, commands: &mut Vec<Command>) {
        let running = self.expect(of, |state| *state == State::Running);
        let can_start =
            |ix: &InstanceIx| matches!(self.at(*ix).state, State::Ready | State::Backoff { .. });
        let ready = self.next_attempt(of).filter(can_start);
        let Some(ix) = running.or(ready) else { return };
        self.settle_all(ix, None, commands);
        self.enter(ix, State::Attention { attempt: of.attempt });
    }

    fn settled(&mut self, of: &Try, how: &Settled, commands: &mut Vec<Command>) {
        let Some(ix) = self.instance(&of.task, of.item) else { return };
        let is_asked = self.at(ix).state == (State::Attention { attempt: of.attempt });
        // A run that repeats a part of another run begins with outputs of that run.
        let is_given = matches!(how, Settled::Done(_))
            && self.at(ix).state == State::Ready
            && self.next_attempt(of) == Some(ix);
        if !is_asked && !is_given {
            return;
        }
        match how {
            Settled::Rerun => {
                let instance = self.at_mut(ix);
                instance.lost = 0;
                // The person takes the lost attempt back; it does not count.
                if instance.attempt == of.attempt {
                    instance.used = instance.used.saturating_sub(1);
                }
                self.make_ready(ix, commands);
            }
            Settled::Done(output) => {
                self.finish(ix, State::Done(Box::new(output.clone())), commands);
            }
            Settled::Failed => self.finish(ix, State::Failed, commands),
        }
    }

    fn stopped(
        &mut self,
        of: &TaskRef,
        reason: StopReason,
        usage: Option<Amounts>,
        commands: &mut Vec<Command>,
    ) {
        let state = match reason.status() {
            Status::Failed => State::Failed,
            Status::Cancelled => State::Cancelled,
            Status::Waiting
            | Status::Ready
            | Status::Running
            | Status::Judging
            | Status::Backoff
            | Status::Gated
            | Status::Attention
            | Status::Done
            | Status::Skipped
            | Status::Stopped => State::Stopped,
        };
        if let Some(ix) = self.instance(&of.task, of.item) {
            if !self.at(ix).state.status().is_final() {
                self.over_budget |= reason == StopReason::Budget;
                self.settle_all(ix, usage, commands);
                self.finish(ix, state, commands);
            }
        } else if let Some(ix) = self.graph.find(&of.task)
            && of.item.is_none()
            && self.task(ix).progress == Progress::Waiting
        {
            self.task_mut(ix).progress = Progress::Final(reason.status());
            self.complete(vec![ix], commands);
        }
    }

    fn cancel(&mut self, of: Option<&TaskRef>, commands: &mut Vec<Command>) {
        let Some(of) = of else {
            self.cancelling = true;
            let graph = self.graph.clone();
            for (ix, _) in graph.tasks() {
                self.cancel_task(ix, commands);
            }
            return;
        };
        match (self.graph.find(&of.task), of.item) {
            (Some(ix), None) => self.cancel_task(ix, commands),
            (Some(_), Some(_)) => {
                if let Some(ix) = self.instance(&of.task, of.item) {
                    self.cancel_instance(ix, commands);
                }
            }
            (None, _) => {}
        }
    }

    fn cancel_task(&mut self, ix: TaskIx, commands: &mut Vec<Command>) {
        let task = self.task_mut(ix);
        let (first, count) = (task.first, task.count);
        match task.progress {
            Progress::Waiting => {
                task.cancelling = true;
                self.pending.insert(Pending::Stop(ix));
            }
            Progress::Open => {
                task.cancelling = true;
                for ix in (first..first.saturating_add(count)).map(InstanceIx) {
                    self.cancel_instance(ix, commands);
                }
            }
            Progress::Final(_) => {}
        }
    }

    fn cancel_instance(&mut self, ix: InstanceIx, commands: &mut Vec<Command>) {
        let instance = self.at_mut(ix);
        if instance.state.status().is_final() {
            return;
        }
        instance.cancelling = true;
        if matches!(instance.state, State::Running | State::Judging(_)) {
            commands.push(Command::Kill(self.current(ix)));
        } else {
            self.pending.insert(Pending::Cancel(ix));
        }
    }

    /// An attempt failed or was rejected.
    fn failed(&mut self, ix: InstanceIx, can_retry: bool, commands: &mut Vec<Command>) {
        if can_retry && self.retry(ix).is_some() {
            self.enter(ix, State::Retrying);
        } else {
            self.finish(ix, State::Failed, commands);
        }
    }

    fn make_ready(&mut self, ix: InstanceIx, commands: &mut Vec<Command>) {
        self.enter(ix, State::Ready);
        commands.push(Command::Reserve(self.next(ix)));
    }

    /// Settles the used part of a lease; the rest stays reserved for the checks.
    fn settle_part(&mut self, ix: InstanceIx, usage: Option<Amounts>, commands: &mut Vec<Command>) {
        let of = self.current(ix);
        if let Some(lease) = &mut self.at_mut(ix).lease {
            let parts = settle(lease, usage.as_ref());
            **lease = parts.rest(lease);
            let kept = Settlement { released: Amounts::default(), ..parts };
            commands.push(Command::Settle(of, kept));
        }
    }

    fn settle_all(&mut self, ix: InstanceIx, usage: Option<Amounts>, commands: &mut Vec<Command>) {
        if let Some(lease) = self.at_mut(ix).lease.take() {
            commands.push(Command::Settle(self.current(ix), settle(&lease, usage.as_ref())));
        }
    }

    /// Returns the instance of an attempt if its state is the expected one.
    fn expect(&self, of: &Try, is_expected: impl Fn(&State) -> bool) -> Option<InstanceIx> {
        self.attempt(of).filter(|ix| is_expected(&self.at(*ix).state))
    }

    /// Changes the state of an instance, and the sets that list instances by state.
    fn enter(&mut self, ix: InstanceIx, state: State) {
        match &self.at(ix).state {
            State::Ready => drop(self.ready.remove(&ix)),
            State::Running => drop(self.running.remove(&ix)),
            State::Judging(_) => drop(self.judging.remove(&ix)),
            State::Attention { .. } => drop(self.attention.remove(&ix)),
            State::Backoff { due } => drop(self.timers.remove(&(*due, ix))),
            State::Gated { digest, deadline } => {
                let (digest, timer) = (*digest, (*deadline, ix));
                self.gates.remove(&digest);
                self.timers.remove(&timer);
            }
            State::Retrying => drop(self.pending.remove(&Pending::Retry(ix))),
            State::Asking => drop(self.pending.remove(&Pending::Ask(ix))),
            State::Done(_) | State::Failed | State::Stopped | State::Cancelled => {}
        }
        match &state {
            State::Ready => drop(self.ready.insert(ix)),
            State::Running => drop(self.running.insert(ix)),
            State::Judging(_) => drop(self.judging.insert(ix)),
            State::Attention { .. } => drop(self.attention.insert(ix)),
            State::Backoff { due } => drop(self.timers.insert((*due, ix))),
            State::Gated { digest, deadline } => {
                self.gates.insert(*digest, ix);
                self.timers.insert((*deadline, ix));
            }
            State::Retrying => drop(self.pending.insert(Pending::Retry(ix))),
            State::Asking => drop(self.pending.insert(Pending::Ask(ix))),
            State::Done(_) | State::Failed | State::Stopped | State::Cancelled => {
                self.pending.remove(&Pending::Cancel(ix));
            }
        }
        self.at_mut(ix).state = state;
    }

    /// Gives an instance its final state, and its task if this was the last instance.
    fn finish(&mut self, ix: InstanceIx, state: State, commands: &mut Vec<Command>) {
        let task_ix = self.at(ix).task;
        if let State::Done(output) = &state {
            self.publish(task_ix, output);
        }
        let status = state.status();
        self.enter(ix, state);
        let task = self.task_mut(task_ix);
        task.open = task.open.saturating_sub(1);
        let is_first_failure = status != Status::Done && task.worst.is_none();
        if status == Status::Done {
            task.done = task.done.saturating_add(1);
        } else {
            task.worst = Some(task.worst.map_or(status, |worst| worse(worst, status)));
        }
        if task.open == 0 {
            task.progress = Progress::Final(task.worst.unwrap_or(Status::Done));
            self.complete(vec![task_ix], commands);
        } else if is_first_failure {
            // Dependents that need all instances cannot start any more.
            let graph = self.graph.clone();
            for link in graph[task_ix].dependents.iter().filter(|link| !link.optional) {
                self.task_mut(link.task).inputs.failed = true;
                self.stop_if_waiting(link.task);
            }
        }
    }

    fn stop_if_waiting(&mut self, ix: TaskIx) {
        if self.task(ix).progress == Progress::Waiting {
            self.pending.insert(Pending::Stop(ix));
        }
    }

    /// Gives dependents the labels of an output, and the values that they need from it.
    fn publish(&mut self, ix: TaskIx, output: &Output) {
        let graph = self.graph.clone();
        let node = &graph[ix];
        for link in node.dependents.iter().filter(|link| link.data) {
            self.task_mut(link.task).labels.extend(output.labels.iter().cloned());
        }
        for (position, select) in node.selects.iter().enumerate() {
            let task = self.task_mut(select.task);
            if select.is_condition() {
                task.condition |= output.selections.condition(position);
            } else if node.items == Items::One {
                task.items = Some(output.selections.items(position));
            }
        }
    }

    /// Tells the dependents of final tasks. A dependent without items is final at once.
    fn complete(&mut self, mut final_tasks: Vec<TaskIx>, commands: &mut Vec<Command>) {
        let graph = self.graph.clone();
        while let Some(ix) = final_tasks.pop() {
            self.pending.remove(&Pending::Stop(ix));
            self.open_tasks = self.open_tasks.saturating_sub(1);
            let Progress::Final(status) = self.task(ix).progress else { continue };
            let has_done = self.task(ix).done > 0;
            for link in &graph[ix].dependents {
                note_input(&mut self.task_mut(link.task).inputs, *link, status, has_done);
                self.advance_task(link.task, &mut final_tasks, commands);
            }
        }
        if self.open_tasks == 0 {
            self.pending.insert(Pending::End);
        }
    }

    /// Releases a waiting task if its inputs permit it, or notes that it must be stopped.
    fn advance_task(
        &mut self,
        ix: TaskIx,
        final_tasks: &mut Vec<TaskIx>,
        commands: &mut Vec<Command>,
    ) {
        if self.task(ix).progress != Progress::Waiting {
            return;
        }
        match self.resolve(ix) {
            Resolution::Wait => {}
            Resolution::Stop(_) => self.stop_if_waiting(ix),
            Resolution::Release(0) => {
                self.task_mut(ix).progress = Progress::Final(Status::Done);
                final_tasks.push(ix);
            }
            Resolution::Release(count) => self.release(ix, count, commands),
        }
    }

    /// Creates the instances of a task.
    fn release(&mut self, ix: TaskIx, count: u32, commands: &mut Vec<Command>) {
        let graph = self.graph.clone();
        let node = &graph[ix];
        let digest = self.inputs_of(&node.inputs);
        if node.items == Items::Output {
            self.dynamic = self.dynamic.saturating_add(count);
        }
        let first = u32::try_from(self.instances.len()).unwrap_or(u32::MAX);
        let task = self.task_mut(ix);
        task.progress = Progress::Open;
        task.digest = Some(digest);
        (task.first, task.count, task.open) = (first, count, count);
        for number in 0..count {
            self.instances.push(Instance {
                task: ix,
                item: (node.items != Items::One).then_some(number),
                attempt: 0,
                tier: 0,
                used: 0,
                lost: 0,
                cancelling: false,
                lease: None,
                state: State::Asking,
            });
            let ix = InstanceIx(first.saturating_add(number));
            if node.gate.is_some() {
                self.enter(ix, State::Asking);
            } else {
                self.make_ready(ix, commands);
            }
        }
    }

    /// Returns the digest of the outputs that a task reads.
    fn inputs_of(&self, links: &[Link]) -> belljar_ledger::Digest {
        let instances = links.iter().filter(|link| link.data).flat_map(|link| {
            let task = self.task(link.task);
            (task.first..task.first.saturating_add(task.count)).map(InstanceIx)
        });
        inputs_digest(instances.filter_map(|ix| {
            let Instance { task, item, state, .. } = self.at(ix);
            let State::Done(output) = state else { return None };
            Some((&self.graph[*task].id, *item, &output.digest))
        }))
    }
}

/// Returns the state that names a task with instances of both states.
const fn worse(one: Status, other: Status) -> Status {
    match (one, other) {
        (Status::Failed, _) | (_, Status::Failed) => Status::Failed,
        (Status::Stopped, _) | (_, Status::Stopped) => Status::Stopped,
        _ => one,
    }
}

/// Notes the final state of one input of a task.
fn note_input(inputs: &mut Inputs, link: Link, status: Status, has_done: bool) {
    inputs.open = inputs.open.saturating_sub(1);
    let has_failed = matches!(status, Status::Failed | Status::Stopped | Status::Cancelled);
    if link.optional {
        inputs.optional_done |= has_done;
        inputs.optional_failed |= has_failed;
    } else {
        inputs.failed |= has_failed;
        inputs.skipped |= status == Status::Skipped;
    }
}
