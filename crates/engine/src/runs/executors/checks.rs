//! Checks of outputs: the work of their hosts, and what their results mean.

use std::fs;
use std::time::Duration;

use belljar_model::net::Budget;
use belljar_model::plan::{Check, OutputKind};
use belljar_model::spec::Argv;
use belljar_model::{Mode, Net, RunId, Template};
use serde_json::Value as Json;

use super::Context;
use crate::error::{EngineError, ErrorKind, WithKind as _, invalid};
use crate::runs::host::{
    self, InputFile, TaskInputs, TaskOutcome, TaskRunSpec, TaskRunWorkspace, TaskWork,
};
use crate::runs::machine::Try;

/// The name of the output in the inputs of a check.
const OUTPUT: &str = "output";
/// The maximum size of what a check prints, in bytes.
const MAX_PRINTED: u64 = 16 << 20;
/// The number of lines of a check that its reason contains.
const REASON_LINES: usize = 20;

/// The result of one check.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::runs) enum Judgement {
    Passed,
    Rejected(String),
    /// The host of the check is gone, and the check has no result.
    Lost,
}

impl Context<'_> {
    /// Returns a check of a task by its number.
    pub(in crate::runs) fn check(&self, of: &Try, number: usize) -> Option<&Check> {
        self.plan.task(&of.task)?.checks.get(number)
    }

    /// Reads the output that is being checked. The error is a sentence.
    fn judged(&self, of: &Try) -> Result<(std::path::PathBuf, Vec<String>), String> {
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
        checked.map_or_else(Judgement::Rejected, |()| Judgement::Passed)
    }

    /// Returns the work of a host for a check by a command.
    pub(in crate::runs) fn check_spec(
        &self,
        of: &Try,
        box_run: RunId,
        argv: Argv,
        seconds: Option<u64>,
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
        if let Some(seconds) = seconds.map(Duration::from_secs) {
            let timeout = &mut rules.template.limits.timeout;
            *timeout = Some(timeout.map_or(seconds, |timeout| timeout.min(seconds)));
        }
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

    /// Returns the result of a check whose host has ended, and the time that it used in microseconds.
    pub(in crate::runs) fn check_result(
        &self,
        box_run: RunId,
    ) -> Result<(Judgement, u64), EngineError> {
        let result = match host::result(self.state, box_run) {
            Err(error) if error.kind() == ErrorKind::Damaged => None,
            result => result?,
        };
        // A host that was killed leaves the changes of its copy of the files.
        if self.files.checkout(box_run).exists() {
            belljar_workspace::discard(&self.state.store().layout().run(box_run)).ok();
        }
        let Some(result) = result else { return Ok((Judgement::Lost, 0)) };
        let judgement = match &result.outcome {
            TaskOutcome::Exited { status: 0 } => Judgement::Passed,
            TaskOutcome::Failed { .. } => Judgement::Lost,
            TaskOutcome::TooLarge => {
                Judgement::Rejected(format!("the check printed more than {MAX_PRINTED} bytes"))
            }
            TaskOutcome::Exited { .. }
            | TaskOutcome::Signaled { .. }
            | TaskOutcome::Timeout
            | TaskOutcome::Limit { .. }
            | TaskOutcome::Threw { .. }
            | TaskOutcome::NoAnswer { .. }
            | TaskOutcome::NoChange
            | TaskOutcome::Unavailable { .. }
            | TaskOutcome::Invalid { .. }
            | TaskOutcome::Killed
            | TaskOutcome::CannotStart { .. } => {
                Judgement::Rejected(self.reason_with(&result, box_run, REASON_LINES))
            }
        };
        Ok((judgement, result.wall_micros))
    }
}

/// Returns the template of a task without everything by which a check could have an effect.
fn confined(template: Template) -> Template {
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
