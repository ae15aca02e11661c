//! Facts as events of the ledger.
//!
//! | fact | event |
//! |---|---|
//! | the plan was accepted, is being cancelled, ended | `plan.accepted`, `plan.cancelling`, `plan.ended` |
//! | a driver opened the run | `driver.opened` |
//! | an attempt started, ended, was judged | `task.started`, `task.ended`, `task.judged` |
//! | a label removed a grant from an attempt | `grant.removed` |
//! | an attempt will be repeated, is lost | `task.retrying`, `task.lost` |
//! | a task ended without a result | `task.stopped` |
//! | a gate was asked, approved, refused | `approval.asked`, `approval.given`, `approval.refused` |
//! | a person decided about a lost attempt | `attention.settled` |
//! | more was reserved | `budget.leased` |
//!
//! The events contain everything that the state machine needs, so a run is loaded without its files.
//! Readers ignore unknown fields and unknown kinds, so new fields can be added. A field that exists keeps
//! its name and its meaning.

use std::collections::BTreeSet;

use belljar_ledger::{
    ApprovalAsked, ApprovalGiven, ApprovalRefused, AttentionSettled, BudgetLeased, Digest,
    DriverOpened, Event, GrantRemoved, PlanAccepted, PlanCancelling, PlanEnded, TaskEnded,
    TaskJudged, TaskLost, TaskRetrying, TaskStarted, TaskStopped,
};
use belljar_model::RunId;
use belljar_model::caller::Principal;
use belljar_model::plan::Label;

use super::budget::{Amounts, Limits, Unit, UsedUp};
use super::graph::Selections;
use super::machine::{
    Checks, Ended, Evidence, Fact, FactKind, FailReason, Moment, Outcome, Output, RefusedBecause,
    Settled, StopReason, TaskRef, Try, Verdict,
};
use super::taint::Removed;

/// An event of a run has a value that this version of Belljar cannot use.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "the field `{field}` of {kind} has a value that this version of Belljar does not support; use the version that wrote it, or a newer one"
)]
pub struct FactError {
    kind: &'static str,
    field: &'static str,
}

/// Returns the event that records a fact.
pub fn event(fact: &Fact) -> Event {
    let at = fact.at.0;
    match &fact.kind {
        FactKind::PlanAccepted { plan, policy } => {
            PlanAccepted { plan: *plan, policy: *policy, at }.into()
        }
        FactKind::DriverOpened { epoch } => DriverOpened { epoch: *epoch, at }.into(),
        FactKind::TaskStarted { of, box_run, epoch, tier, lease, inputs } => TaskStarted {
            task: of.instance().to_string(),
            attempt: of.attempt.into(),
            box_run: box_run.map(|run| run.to_string()),
            epoch: *epoch,
            tier: (*tier).into(),
            lease: limit_texts(lease),
            inputs: *inputs,
            at,
        }
        .into(),
        FactKind::GrantRemoved { of, removed } => GrantRemoved {
            task: of.instance().to_string(),
            attempt: of.attempt.into(),
            grant: removed.grant.to_string(),
            label: removed.label.to_string(),
            from: removed.from.clone(),
            at,
        }
        .into(),
        FactKind::TaskEnded { of, end, usage } => ended_event(of, end, usage.as_ref(), at).into(),
        FactKind::TaskJudged { of, verdict, usage, checks } => {
            let (name, check, text) = match verdict {
                Verdict::Passed => ("passed", None, None),
                Verdict::Rejected { check, text } => {
                    ("rejected", Some(u64::from(*check)), Some(text.clone()))
                }
            };
            TaskJudged {
                task: of.instance().to_string(),
                attempt: of.attempt.into(),
                verdict: name.to_owned(),
                check,
                text,
                usage: usage.as_ref().map(amount_texts),
                box_runs: box_texts(&checks.boxes),
                checks: (!checks.results.is_empty())
                    .then(|| checks.results.iter().map(ToString::to_string).collect()),
                at,
            }
            .into()
        }
        FactKind::TaskRetrying { of, tier, due, jitter } => TaskRetrying {
            task: of.instance().to_string(),
            attempt: of.attempt.into(),
            tier: (*tier).into(),
            due: due.0,
            jitter: *jitter,
            at,
        }
        .into(),
        FactKind::TaskLost { of, evidence } => TaskLost {
            task: of.instance().to_string(),
            attempt: of.attempt.into(),
            evidence: evidence.name().to_owned(),
            at,
        }
        .into(),
        FactKind::TaskStopped { of, reason, usage, used_up, boxes } => TaskStopped {
            task: of.to_string(),
            state: reason.status().name().to_owned(),
            reason: reason.name().to_owned(),
            usage: usage.as_ref().map(amount_texts),
            budget: used_up.as_ref().map(|used_up| used_up.budget.clone()),
            unit: used_up.as_ref().map(|used_up| used_up.unit.name().to_owned()),
            cap: used_up.as_ref().map(|used_up| used_up.cap),
            renews: used_up.as_ref().and_then(|used_up| used_up.renews).map(|at| at.0),
            box_runs: box_texts(boxes),
            at,
        }
        .into(),
        FactKind::ApprovalAsked { of, digest, deadline } => ApprovalAsked {
            what: format!("gate {}", of.instance()),
            bound_to: *digest,
            task: Some(of.instance().to_string()),
            attempt: Some(of.attempt.into()),
            deadline: Some(deadline.0),
            at: Some(at),
        }
        .into(),
        FactKind::ApprovalGiven { of, digest, by, edited, output } => ApprovalGiven {
            by: by.to_string(),
            verdict: if *edited { EDIT } else { ALLOW }.to_owned(),
            bound_to: *digest,
            task: Some(of.instance().to_string()),
            attempt: Some(of.attempt.into()),
            output: Some(output.digest),
            output_bytes: Some(output.size),
            labels: Some(label_texts(output)),
            selections: Some(selection_bytes(output)),
            at: Some(at),
        }
        .into(),
        FactKind::ApprovalRefused { of, digest, why, by, text } => ApprovalRefused {
            why: match why {
                RefusedBecause::Rejected => OPERATOR,
                RefusedBecause::Expired => TIMEOUT,
                RefusedBecause::Labels => LABELS,
            }
            .to_owned(),
            bound_to: *digest,
            by: by.as_ref().map(ToString::to_string),
            text: text.clone(),
            task: Some(of.instance().to_string()),
            attempt: Some(of.attempt.into()),
            at: Some(at),
        }
        .into(),
        FactKind::AttentionSettled { of, how, by } => {
            let (name, output) = match how {
                Settled::Rerun => ("rerun", None),
                Settled::Done(output) => ("done", Some(output)),
                Settled::Failed => ("failed", None),
            };
            AttentionSettled {
                reason: format!("{}: {name}", of.instance()),
                task: Some(of.instance().to_string()),
                attempt: Some(of.attempt.into()),
                how: Some(name.to_owned()),
                by: Some(by.to_string()),
                output: output.map(|output| output.digest),
                output_bytes: output.map(|output| output.size),
                labels: output.map(label_texts),
                selections: output.map(selection_bytes),
                at: Some(at),
            }
            .into()
        }
        FactKind::BudgetLeased { of, more } => BudgetLeased {
            task: of.instance().to_string(),
            attempt: of.attempt.into(),
            lease: limit_texts(more),
            at,
        }
        .into(),
        FactKind::PlanCancelling { of, by } => {
            let task = of.as_ref().map(ToString::to_string);
            PlanCancelling { task, by: by.to_string(), at }.into()
        }
        FactKind::PlanEnded { outcome } => {
            PlanEnded { outcome: outcome.name().to_owned(), at }.into()
        }
    }
}

const ALLOW: &str = "allow";
const EDIT: &str = "edit";
/// The words that questions of boxes use for a refusal by a person and by the deadline.
const OPERATOR: &str = "operator";
const TIMEOUT: &str = "timeout";
/// The word for a refusal because of the labels of inputs.
const LABELS: &str = "labels";

fn ended_event(of: &Try, end: &Ended, usage: Option<&Amounts>, at: u64) -> TaskEnded {
    let (result, reason, text, output) = match end {
        Ended::Done(output) => ("done", None, None, Some(output)),
        Ended::Failed { reason, text } => {
            ("failed", Some(reason.name().to_owned()), Some(text.clone()), None)
        }
        Ended::Lost(evidence) => ("lost", Some(evidence.name().to_owned()), None, None),
    };
    TaskEnded {
        task: of.instance().to_string(),
        attempt: of.attempt.into(),
        result: result.to_owned(),
        reason,
        text,
        output: output.map(|output| output.digest),
        output_bytes: output.map(|output| output.size),
        labels: output.map(label_texts),
        selections: output.map(selection_bytes),
        usage: usage.map(amount_texts),
        at,
    }
}

fn box_texts(boxes: &[RunId]) -> Option<Vec<String>> {
    (!boxes.is_empty()).then(|| boxes.iter().map(ToString::to_string).collect())
}

fn label_texts(output: &Output) -> Vec<String> {
    output.labels.iter().map(ToString::to_string).collect()
}

fn selection_bytes(output: &Output) -> Vec<u8> {
    output.selections.0.iter().flat_map(|value| value.to_be_bytes()).collect()
}

fn amount_texts(amounts: &Amounts) -> Vec<String> {
    let used = Unit::ALL.into_iter().filter(|unit| amounts.get(*unit) > 0);
    used.map(|unit| format!("{}={}", unit.name(), amounts.get(unit))).collect()
}

fn limit_texts(limits: &Limits) -> Vec<String> {
    let text = |unit: Unit| Some(format!("{}={}", unit.name(), limits.get(unit)?));
    Unit::ALL.into_iter().filter_map(text).collect()
}

/// Returns the fact that an event records, or `None` if the event is not part of the state of a run.
#[expect(clippy::wildcard_enum_match_arm, reason = "only a few kinds of events are facts of runs")]
pub fn fact(event: &Event) -> Result<Option<Fact>, FactError> {
    let kind = event.kind();
    let read = Read { kind };
    let (at, kind) = match event {
        Event::PlanAccepted(event) => {
            (event.at, FactKind::PlanAccepted { plan: event.plan, policy: event.policy })
        }
        Event::DriverOpened(event) => (event.at, FactKind::DriverOpened { epoch: event.epoch }),
        Event::TaskStarted(event) => {
            let of = read.attempt(&event.task, event.attempt)?;
            let box_run = event.box_run.as_deref().map(str::parse).transpose();
            let box_run = box_run.map_err(|_| read.error("box_run"))?;
            let (epoch, tier) = (event.epoch, read.small("tier", event.tier)?);
            let lease = read.limits("lease", &event.lease)?;
            (
                event.at,
                FactKind::TaskStarted { of, box_run, epoch, tier, lease, inputs: event.inputs },
            )
        }
        Event::GrantRemoved(event) => {
            let of = read.attempt(&event.task, event.attempt)?;
            let grant = event.grant.parse().map_err(|_| read.error("grant"))?;
            let label = event.label.parse().map_err(|_| read.error("label"))?;
            let removed = Removed { grant, label, from: event.from.clone() };
            (event.at, FactKind::GrantRemoved { of, removed })
        }
        Event::TaskEnded(event) => {
            let of = read.attempt(&event.task, event.attempt)?;
            let usage = read.usage(event.usage.as_deref())?;
            (event.at, FactKind::TaskEnded { of, end: read.ended(event)?, usage })
        }
        Event::TaskJudged(event) => {
            let of = read.attempt(&event.task, event.attempt)?;
            let verdict = match (event.verdict.as_str(), event.check) {
                ("passed", _) => Verdict::Passed,
                ("rejected", Some(check)) => Verdict::Rejected {
                    check: read.small("check", check)?,
                    text: event.text.clone().unwrap_or_default(),
                },
                _ => return Err(read.error("verdict")),
            };
            let usage = read.usage(event.usage.as_deref())?;
            let boxes = read.boxes(event.box_runs.as_deref())?;
            // The results only explain the verdict, so those of a newer version are ignored.
            let results = event.checks.iter().flatten().filter_map(|it| it.parse().ok()).collect();
            let checks = Checks { boxes, results };
            (event.at, FactKind::TaskJudged { of, verdict, usage, checks })
        }
        Event::TaskRetrying(event) => {
            let of = read.attempt(&event.task, event.attempt)?;
            let (tier, due) = (read.small("tier", event.tier)?, Moment(event.due));
            (event.at, FactKind::TaskRetrying { of, tier, due, jitter: event.jitter })
        }
        Event::TaskLost(event) => {
            let of = read.attempt(&event.task, event.attempt)?;
            let evidence = Evidence::named(&event.evidence).ok_or(read.error("evidence"))?;
            (event.at, FactKind::TaskLost { of, evidence })
        }
        Event::TaskStopped(event) => {
            let of = read.task(&event.task)?;
            let reason = StopReason::named(&event.reason).ok_or(read.error("reason"))?;
            let usage = read.usage(event.usage.as_deref())?;
            let (used_up, boxes) = (Read::used_up(event), read.boxes(event.box_runs.as_deref())?);
            (event.at, FactKind::TaskStopped { of, reason, usage, used_up, boxes })
        }
        Event::BudgetLeased(event) => {
            let of = read.attempt(&event.task, event.attempt)?;
            (event.at, FactKind::BudgetLeased { of, more: read.limits("lease", &event.lease)? })
        }
        Event::PlanCancelling(event) => {
            let of = event.task.as_deref().map(|task| read.task(task)).transpose()?;
            (event.at, FactKind::PlanCancelling { of, by: read.principal(&event.by)? })
        }
        Event::PlanEnded(event) => {
            let outcome = Outcome::named(&event.outcome).ok_or(read.error("outcome"))?;
            (event.at, FactKind::PlanEnded { outcome })
        }
        event => return read.person(event),
    };
    Ok(Some(Fact { at: Moment(at), kind }))
}

/// Reads the values of one event.
#[derive(Clone, Copy)]
struct Read {
    kind: &'static str,
}

impl Read {
    const fn error(self, field: &'static str) -> FactError {
        FactError { kind: self.kind, field }
    }

    /// Reads the events that also record questions without a task; those give `None`.
    #[expect(
        clippy::wildcard_enum_match_arm,
        reason = "only a few kinds of events are facts of runs"
    )]
    fn person(self, event: &Event) -> Result<Option<Fact>, FactError> {
        let (task, attempt, at) = match event {
            Event::ApprovalAsked(event) => (&event.task, event.attempt, event.at),
            Event::ApprovalGiven(event) => (&event.task, event.attempt, event.at),
            Event::ApprovalRefused(event) => (&event.task, event.attempt, event.at),
            Event::AttentionSettled(event) => (&event.task, event.attempt, event.at),
            _ => return Ok(None),
        };
        let Some(task) = task else { return Ok(None) };
        let of = self.attempt(task, attempt.ok_or(self.error("attempt"))?)?;
        let at = Moment(at.ok_or(self.error("at"))?);
        let kind = match event {
            Event::ApprovalAsked(event) => FactKind::ApprovalAsked {
                of,
                digest: event.bound_to,
                deadline: Moment(event.deadline.ok_or(self.error("deadline"))?),
            },
            Event::ApprovalGiven(event) => FactKind::ApprovalGiven {
                of,
                digest: event.bound_to,
                by: self.principal(&event.by)?,
                edited: match event.verdict.as_str() {
                    ALLOW => false,
                    EDIT => true,
                    _ => return Err(self.error("verdict")),
                },
                output: self.output(
                    event.output,
                    event.output_bytes,
                    event.labels.as_deref(),
                    event.selections.as_deref(),
                )?,
            },
            Event::ApprovalRefused(event) => FactKind::ApprovalRefused {
                of,
                digest: event.bound_to,
                why: match event.why.as_str() {
                    OPERATOR => RefusedBecause::Rejected,
                    TIMEOUT => RefusedBecause::Expired,
                    LABELS => RefusedBecause::Labels,
                    _ => return Err(self.error("why")),
                },
                by: event.by.as_deref().map(|by| self.principal(by)).transpose()?,
                text: event.text.clone(),
            },
            Event::AttentionSettled(event) => FactKind::AttentionSettled {
                of,
                how: match event.how.as_deref() {
                    Some("rerun") => Settled::Rerun,
                    Some("failed") => Settled::Failed,
                    Some("done") => Settled::Done(self.output(
                        event.output,
                        event.output_bytes,
                        event.labels.as_deref(),
                        event.selections.as_deref(),
                    )?),
                    _ => return Err(self.error("how")),
                },
                by: self.principal(event.by.as_deref().unwrap_or_default())?,
            },
            _ => return Ok(None),
        };
        Ok(Some(Fact { at, kind }))
    }

    fn task(self, text: &str) -> Result<TaskRef, FactError> {
        text.parse().map_err(|_| self.error("task"))
    }

    fn attempt(self, task: &str, attempt: u64) -> Result<Try, FactError> {
        let TaskRef { task, item } = self.task(task)?;
        Ok(Try { task, item, attempt: self.small("attempt", attempt)? })
    }

    fn small(self, field: &'static str, number: u64) -> Result<u32, FactError> {
        u32::try_from(number).map_err(|_| self.error(field))
    }

    fn principal(self, text: &str) -> Result<Principal, FactError> {
        text.parse().map_err(|_| self.error("by"))
    }

    fn ended(self, event: &TaskEnded) -> Result<Ended, FactError> {
        let reason = event.reason.as_deref();
        match event.result.as_str() {
            "done" => {
                let (labels, selections) = (event.labels.as_deref(), event.selections.as_deref());
                self.output(event.output, event.output_bytes, labels, selections).map(Ended::Done)
            }
            "failed" => {
                let reason = reason.and_then(FailReason::named).ok_or(self.error("reason"))?;
                Ok(Ended::Failed { reason, text: event.text.clone().unwrap_or_default() })
            }
            "lost" => {
                let evidence = reason.and_then(Evidence::named);
                evidence.map(Ended::Lost).ok_or(self.error("reason"))
            }
            _ => Err(self.error("result")),
        }
    }

    fn output(
        self,
        digest: Option<Digest>,
        size: Option<u64>,
        labels: Option<&[String]>,
        selections: Option<&[u8]>,
    ) -> Result<Output, FactError> {
        let labels = labels.unwrap_or_default().iter().map(|label| label.parse::<Label>());
        let labels: Result<BTreeSet<Label>, _> = labels.collect();
        let (values, rest) = selections.unwrap_or_default().as_chunks::<2>();
        if !rest.is_empty() {
            return Err(self.error("selections"));
        }
        Ok(Output {
            digest: digest.ok_or(self.error("output"))?,
            size: size.ok_or(self.error("output_bytes"))?,
            labels: labels.map_err(|_| self.error("labels"))?,
            selections: Selections(values.iter().map(|value| u16::from_be_bytes(*value)).collect()),
        })
    }

    fn boxes(self, texts: Option<&[String]>) -> Result<Vec<RunId>, FactError> {
        let boxes = texts.unwrap_or_default().iter().map(|run| run.parse());
        boxes.collect::<Result<_, _>>().map_err(|_| self.error("box_runs"))
    }

    /// Reads the budget that is used up. It only explains the reason, so a unit of a newer version is ignored.
    fn used_up(event: &TaskStopped) -> Option<Box<UsedUp>> {
        let unit = event.unit.as_deref().and_then(Unit::named)?;
        let (budget, cap) = (event.budget.clone()?, event.cap?);
        Some(Box::new(UsedUp { budget, unit, cap, renews: event.renews.map(Moment) }))
    }

    fn limits(self, field: &'static str, texts: &[String]) -> Result<Limits, FactError> {
        let mut limits = Limits::default();
        for text in texts {
            let (name, amount) = text.split_once('=').ok_or(self.error(field))?;
            let amount = amount.parse().map_err(|_| self.error(field))?;
            // A unit of a newer version cannot be enforced here, so it is not ignored.
            let unit = Unit::named(name);
            limits = limits.with(unit.ok_or(self.error(field))?, Some(amount));
        }
        Ok(limits)
    }

    fn usage(self, texts: Option<&[String]>) -> Result<Option<Amounts>, FactError> {
        texts.map(|texts| Ok(self.limits("usage", texts)?.amounts())).transpose()
    }
}

#[cfg(test)]
mod tests;
