//! Checks of outputs: the work of their hosts, and what their results mean.

use std::fs;

use belljar_model::net::Budget;
use belljar_model::plan::{Check, OutputKind};
use belljar_model::spec::Argv;
use belljar_model::{Mode, Net, RunId, Template};
use serde_json::Value as Json;

use super::judge::MAX_ANSWER;
use super::{Context, usage, with_timeout};
use crate::error::{EngineError, ErrorKind, WithKind as _, invalid};
use crate::runs::budget::{Amounts, Limits, Unit};
use crate::runs::host::{
    self, InputFile, TaskInputs, TaskOutcome, TaskRunSpec, TaskRunWorkspace, TaskWork,
};
use crate::runs::machine::{CheckKind, CheckOutcome, Try};

/// The name of the output in the inputs of a check.
pub(super) const OUTPUT: &str = "output";
/// The maximum size of what a check prints, in bytes.
const MAX_PRINTED: u64 = 16 << 20;
/// The number of lines of a check that its reason contains.
const REASON_LINES: usize = 20;

/// The result of one check.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::runs) struct Judgement {
    pub(in crate::runs) outcome: CheckOutcome,
    /// Why the output does not pass.
    pub(in crate::runs) text: String,
    /// The model that judged, as the broker observed it.
    pub(in crate::runs) model: Option<String>,
}

impl Judgement {
    pub(in crate::runs) fn new(outcome: CheckOutcome, text: impl Into<String>) -> Self {
        Self { outcome, text: text.into(), model: None }
    }
}

/// The result of a check that had a box, and what the box used.
pub(in crate::runs) struct BoxedJudgement {
    pub(in crate::runs) judgement: Judgement,
    /// The used amounts without the time.
    pub(in crate::runs) used: Amounts,
    /// The used time in microseconds.
    pub(in crate::runs) micros: u64,
}

impl Context<'_> {
    /// Returns a check of a task by its number.
    pub(in crate::runs) fn check(&self, of: &Try, number: usize) -> Option<&Check> {
        self.plan.task(&of.task)?.checks.get(number)
    }

    /// Reads the output that is being checked. The error is a sentence.
    pub(super) fn judged(&self, of: &Try) -> Result<(std::path::PathBuf, Vec<String>), String> {
        let changed = || "the output is missing or was changed".to_owned();
        let output = self.progress.judged_output(&of.instance()).ok_or_else(changed)?;
        let path = self.files.checked_output(&of.instance(), output.digest);
        let labels = output.labels.iter().map(ToString::to_string).collect();
        Ok((path.ok_or_else(changed)?, labels))
    }

    pub(in crate::runs) fn check_by_schema(&self, of: &Try, number: usize) -> Judgement {
        let checked = self.judged(of).and_then(|(path, _)| {
            let text = fs::read(path).map_err(|error| error.to_string())?;
            let value: Json = serde_json::from_slice(&text).map_err(|error| error.to_string())?;
            let schema = self.files.check_schema(self.bound, &of.task, number);
            let schema = schema.ok_or("the schema is missing or was changed")?;
            belljar_wire::schema::check(&schema, &value)
                .map_err(|error| format!("the output does not match its schema: {error}"))
        });
        match checked {
            Ok(()) => Judgement::new(CheckOutcome::Passed, ""),
            Err(text) => Judgement::new(CheckOutcome::Rejected, text),
        }
    }

    /// Returns the work of a host for a check with a box. `rest` is what the lease of the attempt has left.
    pub(in crate::runs) fn check_spec(
        &self,
        of: &Try,
        number: usize,
        box_run: RunId,
        rest: &Limits,
    ) -> Result<TaskRunSpec, EngineError> {
        match self.check(of, number) {
            Some(Check::Command(argv) | Check::Verify(argv)) => {
                self.command_spec(of, box_run, argv.clone(), rest)
            }
            Some(Check::Model { .. }) => self.judge_spec(of, number, box_run, rest),
            Some(Check::Schema(_)) | None => Err(invalid("the check needs no box")),
        }
    }

    fn command_spec(
        &self,
        of: &Try,
        box_run: RunId,
        argv: Argv,
        rest: &Limits,
    ) -> Result<TaskRunSpec, EngineError> {
        let missing =
            || invalid(format!("the plan has no box for the checks of {}", of.instance()));
        let position = self.plan.index(&of.task).ok_or_else(missing)?;
        let task = self.plan.tasks().get(position).ok_or_else(missing)?;
        let template = confined(self.plan.box_template(position).ok_or_else(missing)?.clone());
        let (content, labels) = self.judged(of).map_err(invalid)?;
        let dir = self.files.work(box_run);
        let workspace = if let Some(at) = task.executor.workspace() {
            TaskRunWorkspace::ReadOnly(self.base.join(&at.directory))
        } else if task.output.kind == OutputKind::Branch {
            let text = fs::read_to_string(&content).kind(ErrorKind::Broken)?;
            let update = self.branch_of(&of.instance(), &text).map_err(invalid)?;
            let files = self.files.checkout(box_run);
            update.write_files(self.state, &files)?;
            TaskRunWorkspace::Checkout(files)
        } else {
            TaskRunWorkspace::None
        };
        let directory = workspace.user_path();
        let (mut rules, masks) = host::resolve_fixed(self.state, &template, directory, self.base)?;
        rules.template = with_timeout(&rules.template, rest);
        let done = (!task.done.is_empty()).then(|| task.done.join("\n"));
        let files = vec![InputFile { name: OUTPUT.to_owned(), content, labels }];
        let inputs = TaskInputs { files, prompt: done, ..TaskInputs::default() };
        inputs.write(&dir).kind(ErrorKind::CannotStart)?;
        Ok(TaskRunSpec {
            run: box_run,
            plan_run: self.run,
            task: of.instance().to_string(),
            attempt: of.attempt,
            idempotency_key: format!("{}/{}/check", self.run, of.instance()),
            rules,
            masks,
            work: TaskWork::Command(argv),
            workspace,
            inputs: Some(dir),
            stdin: Some(OUTPUT.to_owned()),
            max_output: MAX_PRINTED,
            lease: Budget::default(),
        })
    }

    /// Returns the result of a check whose host has ended, or `None` if the host is gone without a result.
    pub(in crate::runs) fn check_result(
        &self,
        of: &Try,
        number: usize,
        box_run: RunId,
    ) -> Result<Option<BoxedJudgement>, EngineError> {
        let result = match host::result(self.state, box_run) {
            Err(error) if error.kind() == ErrorKind::Damaged => None,
            result => result?,
        };
        // A host that was killed leaves the changes of its copy of the files.
        if self.files.checkout(box_run).exists() {
            belljar_workspace::discard(&self.state.store().layout().run(box_run)).ok();
        }
        let result = result.filter(|result| !matches!(result.outcome, TaskOutcome::Failed { .. }));
        let (Some(result), Some(check)) = (result, self.check(of, number)) else { return Ok(None) };
        let kind = CheckKind::of(check);
        let mut judgement = if kind == CheckKind::Model && result.outcome.is_success() {
            match self.judge_verdict(&result) {
                Ok(verdict) if verdict.passes => Judgement::new(CheckOutcome::Passed, ""),
                Ok(verdict) => Judgement::new(CheckOutcome::Rejected, verdict.reason),
                Err(text) => Judgement::new(CheckOutcome::NoVerdict, text),
            }
        } else {
            let outcome = outcome_of(kind, &result.outcome);
            let text = if outcome.passes() {
                String::new()
            } else if result.outcome == TaskOutcome::TooLarge {
                format!("the check printed more than {} bytes", max_printed(kind))
            } else {
                self.reason_with(&result, box_run, REASON_LINES)
            };
            Judgement::new(outcome, text)
        };
        if kind == CheckKind::Model {
            judgement.model = self.answering_model(box_run);
        }
        let used = usage(&result).with(Unit::Seconds, 0);
        Ok(Some(BoxedJudgement { judgement, used, micros: result.wall_micros }))
    }
}

/// Returns the outcome of a check from the end of its program.
fn outcome_of(kind: CheckKind, end: &TaskOutcome) -> CheckOutcome {
    match (kind, end) {
        (CheckKind::Command, TaskOutcome::Exited { status: 0 }) => CheckOutcome::Passed,
        (CheckKind::Verify, TaskOutcome::Exited { status: 0 }) => CheckOutcome::Confirmed,
        (CheckKind::Verify, TaskOutcome::Exited { status: 1 }) => CheckOutcome::Refuted,
        (kind, _) => kind.without_result(),
    }
}

/// Returns the maximum number of bytes that the program of a check can print.
const fn max_printed(kind: CheckKind) -> u64 {
    match kind {
        CheckKind::Schema | CheckKind::Command | CheckKind::Verify => MAX_PRINTED,
        CheckKind::Model => MAX_ANSWER,
    }
}

/// Returns the template of a task without everything by which a check could have an effect.
pub(super) fn confined(template: Template) -> Template {
    let mounts = template.mounts.into_iter().map(belljar_model::Mount::read_only).collect();
    Template {
        net: Net::None,
        allow: Vec::new(),
        ask: Vec::new(),
        secrets: Default::default(),
        budget: Default::default(),
        mode: Mode::ReadOnly,
        mounts,
        ..template
    }
}

#[cfg(test)]
mod tests {
    use belljar_model::Reason;

    use super::*;

    /// Returns every way in which a program can end.
    fn ends() -> Vec<TaskOutcome> {
        let error = || "x".to_owned();
        let mut ends = vec![
            TaskOutcome::Signaled { signal: 1 },
            TaskOutcome::Signaled { signal: 9 },
            TaskOutcome::Timeout,
            TaskOutcome::Limit { limit: Reason::Memory },
            TaskOutcome::TooLarge,
            TaskOutcome::Threw { error: error() },
            TaskOutcome::NoAnswer { kind: "refused".to_owned(), error: error() },
            TaskOutcome::NoChange,
            TaskOutcome::Unavailable { error: error() },
            TaskOutcome::Invalid { error: error() },
            TaskOutcome::Killed,
            TaskOutcome::CannotStart { error: error() },
            TaskOutcome::Failed { error: error() },
        ];
        ends.extend((-1..256).map(|status| TaskOutcome::Exited { status }));
        ends
    }

    #[test]
    fn verifier_confirms_with_status_0_refutes_with_status_1_and_is_undecided_otherwise() {
        for end in ends() {
            let expected = if end.is_success() {
                CheckOutcome::Confirmed
            } else if end == (TaskOutcome::Exited { status: 1 }) {
                CheckOutcome::Refuted
            } else {
                CheckOutcome::Undecided
            };
            assert_eq!(outcome_of(CheckKind::Verify, &end), expected, "{end:?}");
        }
    }

    #[test]
    fn check_passes_only_if_its_program_exits_with_status_0() {
        for end in ends() {
            for kind in [CheckKind::Command, CheckKind::Verify] {
                assert_eq!(outcome_of(kind, &end).passes(), end.is_success(), "{kind:?} {end:?}");
            }
            // The end of a judge alone is no verdict.
            assert_eq!(outcome_of(CheckKind::Model, &end), CheckOutcome::NoVerdict, "{end:?}");
        }
    }
}
