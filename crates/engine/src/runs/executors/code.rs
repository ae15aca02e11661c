//! Translates a `code` task to the job of the worker.

use std::fs;
use std::os::fd::AsFd as _;
use std::path::Path;

use anyhow::Context as _;
use belljar_model::plan::{OutputKind, Task, TaskId, Text};
use belljar_wire::{Dialect, Job, Script};
use serde_json::{Map, Value as Json};

use super::{Context, TaskInputs, TaskRunSpec, TaskWork, host};
use crate::error::{EngineError, ErrorKind, WithKind as _, invalid};
use crate::scope::Scoped;
use crate::supervisor::{self, spec::Rules};

/// The maximum heap size of the script engine, in percent of the box's memory limit.
pub(super) const HEAP_PERCENT: u64 = 75;
/// The maximum size of the inputs that a program gets as a variable, in bytes.
const MAX_INPUT: u64 = 8 << 20;

/// Starts the host of an attempt, with the worker program if the attempt needs it.
pub(in crate::runs) fn start(
    state: &Scoped,
    spec: TaskRunSpec,
) -> Result<host::Hosted, EngineError> {
    let worker = match &spec.work {
        TaskWork::Command(_) | TaskWork::Agent(_) => None,
        TaskWork::Code(_) => {
            let worker = supervisor::worker_program().context("cannot open the worker program");
            Some(worker.kind(ErrorKind::CannotStart)?)
        }
    };
    host::start(state, spec, worker.as_ref().map(|worker| worker.as_fd()))
}

impl Context<'_> {
    /// Returns the job of a `code` task.
    pub(super) fn code(
        &self,
        task: &Task,
        source: &Text,
        inputs: &TaskInputs,
        rules: &Rules,
    ) -> Result<TaskWork, EngineError> {
        let code = self.files.text(self.bound, &task.id, source);
        let file = match source {
            Text::Inline(_) => "main.ts".to_owned(),
            Text::File(path) => file_name(path),
        };
        let script = Script {
            code: code.ok_or_else(|| invalid("the program of the task is missing"))?,
            language: Dialect::Ts,
            file,
            input: self.variable(inputs)?,
            modules: Vec::new(),
            apis: Vec::new(),
            tools: Vec::new(),
            memory: rules.template.limits.memory.as_u64() / 100 * HEAP_PERCENT,
        };
        Ok(TaskWork::Code(Box::new(Job::Script(script))))
    }

    /// Returns the JSON text of the variable `input`: the single input, or an object with all inputs by
    /// name. Without inputs it is the item of the instance, if there is one.
    fn variable(&self, inputs: &TaskInputs) -> Result<Option<String>, EngineError> {
        let sizes =
            inputs.files.iter().map(|input| fs::metadata(&input.content).map(|it| it.len()));
        let size = sizes.sum::<Result<u64, _>>().kind(ErrorKind::Broken)?;
        if size > MAX_INPUT {
            return Err(invalid(format!(
                "the inputs of a `code` task have at most {} MiB; use a `command` for larger inputs",
                MAX_INPUT >> 20
            )));
        }
        let mut values = Map::new();
        for input in &inputs.files {
            let content = fs::read(&input.content).kind(ErrorKind::Broken)?;
            // Content that is not text can be read from its file only.
            let text = String::from_utf8(content).ok();
            let value = match text {
                Some(text) if self.is_json(&input.name) => {
                    serde_json::from_str(&text).unwrap_or(Json::String(text))
                }
                Some(text) => Json::String(text),
                None => Json::Null,
            };
            values.insert(input.name.clone(), value);
        }
        Ok(match (values.len(), inputs.files.len()) {
            (0, _) => inputs.item.clone(),
            (1, 1) => values.into_iter().next().map(|(_, value)| value.to_string()),
            _ => Some(Json::Object(values).to_string()),
        })
    }

    /// Returns whether an input is the output of a task of type `json`.
    fn is_json(&self, name: &str) -> bool {
        let id = name.split_once('[').map_or(name, |(id, _)| id);
        let task = id.parse::<TaskId>().ok().and_then(|id| self.plan.task(&id));
        !name.starts_with("input.") && task.is_some_and(|task| task.output.kind == OutputKind::Json)
    }
}

fn file_name(path: &Path) -> String {
    path.file_name().unwrap_or_default().to_string_lossy().into_owned()
}
