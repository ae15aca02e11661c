//! The additional rules for a plan that a model wrote. Pure.
//!
//! Texts that the model read can have steered it, and the person who reads the plan can overlook a detail. So
//! such a plan names only paths inside of its directory and no files with credentials, limits its own usage,
//! and decides nothing that only a person may decide: which data is trusted, which effects are repeated, and
//! which outputs are given instead of made. All rules of [`Plan::check`] hold too.

mod credentials;

use std::collections::BTreeSet;
use std::path::{Component, Path, PathBuf};

use super::fault::{Collector, PlanFaults};
use super::{Check, Executor, OnCrash, Plan, Task, Text};
use crate::display::safe;
use crate::net::SecretName;

pub use credentials::holds_credentials;

/// The label of data that a stranger can have written.
const UNTRUSTED: &str = "untrusted";

/// A path that a plan names. It is read with the rights of the person who submits the plan.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PlanPath {
    pub path: PathBuf,
    pub purpose: PathPurpose,
    /// The input or the task that names the path, for example ``task `fix` ``.
    pub of: String,
    /// The line of the plan that names the path.
    pub line: usize,
}

/// The use of a path that a plan names.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PathPurpose {
    /// The content of an input.
    Input,
    Prompt,
    Program,
    Schema,
    /// The directory that a box sees, without changing it.
    Workspace,
    /// The directory that a box sees; its changes are held back for review.
    Overlay,
    /// The repository from which an agent works.
    Repository,
}

impl PathPurpose {
    /// Returns a noun for people.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Input => "input",
            Self::Prompt => "prompt",
            Self::Program => "program",
            Self::Schema => "schema",
            Self::Workspace => "workspace",
            Self::Overlay => "workspace with changes for review",
            Self::Repository => "repository",
        }
    }

    /// Returns whether the path must be a directory. Otherwise it must be a regular file.
    pub const fn is_directory(self) -> bool {
        match self {
            Self::Workspace | Self::Overlay | Self::Repository => true,
            Self::Input | Self::Prompt | Self::Program | Self::Schema => false,
        }
    }
}

impl Plan {
    /// Returns all paths that the plan names, except those in `box`, which can only repeat the template.
    pub fn paths(&self) -> Vec<PlanPath> {
        let mut paths = Vec::new();
        for (name, input) in &self.inputs {
            let line = self.lines.run.line("input");
            let of = format!("input.{name}");
            paths.extend(of_text(&input.content, PathPurpose::Input, &of, line));
        }
        for (at, task) in self.tasks.iter().enumerate() {
            paths.extend(self.paths_of(at, task));
        }
        paths
    }

    fn paths_of(&self, at: usize, task: &Task) -> Vec<PlanPath> {
        let of = format!("task `{}`", task.id);
        let lines = self.lines.tasks.get(at);
        let line = |key: &str| self.line(at, key);
        let new = |path: &Path, purpose, line| PlanPath {
            path: path.to_owned(),
            purpose,
            of: of.clone(),
            line,
        };
        let mut paths = Vec::new();
        match &task.executor {
            Executor::Code { source } => {
                paths.extend(of_text(source, PathPurpose::Program, &of, line("code_file")));
            }
            Executor::Agent { repo, prompt, .. } => {
                paths.push(new(repo, PathPurpose::Repository, line("repo")));
                paths.extend(of_text(prompt, PathPurpose::Prompt, &of, line("prompt_file")));
            }
            Executor::Model { prompt, .. } => {
                paths.extend(of_text(prompt, PathPurpose::Prompt, &of, line("prompt_file")));
            }
            Executor::Command { .. } | Executor::Approval { .. } | Executor::Stub { .. } => {}
        }
        if let Some(workspace) = task.executor.workspace() {
            let purpose =
                if workspace.overlay { PathPurpose::Overlay } else { PathPurpose::Workspace };
            paths.push(new(&workspace.directory, purpose, line("workspace")));
        }
        if let Some(schema) = &task.output.schema {
            paths.push(new(schema, PathPurpose::Schema, line("output")));
        }
        for (number, check) in task.checks.iter().enumerate() {
            let own = lines.and_then(|lines| lines.checks.get(number).copied());
            let line = own.unwrap_or_else(|| line("check"));
            match check {
                Check::Schema(path) => paths.push(new(path, PathPurpose::Schema, line)),
                Check::Model { prompt, .. } => {
                    paths.extend(of_text(prompt, PathPurpose::Prompt, &of, line));
                }
                Check::Command(_) | Check::Verify(_) => {}
            }
        }
        paths
    }

    /// Checks the rules for a plan that a model wrote. `secrets` are the secrets that the plan may name.
    pub fn check_authored(&self, secrets: &BTreeSet<SecretName>) -> Result<(), PlanFaults> {
        let mut faults = Collector::new(&self.lines.file);
        self.authored_run(secrets, &mut faults);
        for path in self.paths() {
            if let Err(reason) = inside(&path.path) {
                let PlanPath { path, purpose, of, line } = path;
                let path = safe(path.as_os_str().as_encoded_bytes());
                faults.add(line, || format!("{of}: {} `{path}`: {reason}", purpose.name()));
            }
        }
        for (at, task) in self.tasks.iter().enumerate() {
            self.authored_task(at, task, secrets, &mut faults);
        }
        faults.finish(())
    }

    fn authored_run(&self, secrets: &BTreeSet<SecretName>, faults: &mut Collector) {
        let line = self.lines.run.line("budget").max(1);
        if self.budget.time.is_none() {
            faults.add(line, || {
                "`budget` of `[run]` has no `time`; write for example \"1h\"".to_owned()
            });
        }
        let has_model = |task: &Task| match task.executor {
            Executor::Model { .. } | Executor::Agent { .. } => true,
            Executor::Command { .. }
            | Executor::Code { .. }
            | Executor::Approval { .. }
            | Executor::Stub { .. } => {
                task.checks.iter().any(|check| matches!(check, Check::Model { .. }))
            }
        };
        let is_limited = self.budget.tokens.is_some() || self.budget.money.is_some();
        if self.tasks.iter().any(has_model) && !is_limited {
            faults.add(line, || {
                "`budget` of `[run]` has neither `tokens` nor `money`, but a task uses a model"
                    .to_owned()
            });
        }
        unknown_secrets(self.budget.secrets.keys(), secrets, line, "", faults);
        for (name, input) in &self.inputs {
            let is_file = matches!(input.content, Text::File(_));
            if is_file && input.labels.iter().all(|label| label.as_str() != UNTRUSTED) {
                faults.add(self.lines.run.line("input"), || {
                    format!(
                        "input.{name}: only a person can declare a file as trusted; add `labels = [\"untrusted\"]`"
                    )
                });
            }
        }
    }

    fn authored_task(
        &self,
        at: usize,
        task: &Task,
        secrets: &BTreeSet<SecretName>,
        faults: &mut Collector,
    ) {
        let mut add = |key: &str, reason: &str| {
            faults.add(self.line(at, key), || format!("task `{}`: {reason}", task.id));
        };
        match &task.executor {
            Executor::Stub { .. } => {
                add("stub", "a stub does no work; use another executor");
            }
            Executor::Approval { clears, .. } if !clears.is_empty() => {
                let reason = "only a person can decide to clear labels; remove `clears`";
                add("clears", reason);
            }
            Executor::Approval { .. }
            | Executor::Command { .. }
            | Executor::Code { .. }
            | Executor::Agent { .. }
            | Executor::Model { .. } => {}
        }
        if task.on_crash == OnCrash::Rerun {
            let reason = "only a person can decide that effects are repeated; remove `on_crash` or write \"ask\"";
            add("on_crash", reason);
        }
        let is_agent = matches!(task.executor, Executor::Agent { .. });
        let reads_files = is_agent || task.executor.workspace().is_some();
        if reads_files && task.labels.iter().all(|label| label.as_str() != UNTRUSTED) {
            let reason = "the task reads files that strangers can have written; add `labels = [\"untrusted\"]`";
            add("do", reason);
        }
        let (line, of) = (self.line(at, "budget"), format!("task `{}`: ", task.id));
        unknown_secrets(task.budget.secrets.keys(), secrets, line, &of, faults);
    }

    fn line(&self, task: usize, key: &str) -> usize {
        self.lines.tasks.get(task).map_or(1, |lines| lines.keys.line(key))
    }
}

/// Returns the file of a text, if the text is in a file.
fn of_text(text: &Text, purpose: PathPurpose, of: &str, line: usize) -> Option<PlanPath> {
    match text {
        Text::Inline(_) => None,
        Text::File(path) => Some(PlanPath { path: path.clone(), purpose, of: of.to_owned(), line }),
    }
}

fn unknown_secrets<'s>(
    named: impl Iterator<Item = &'s SecretName>,
    known: &BTreeSet<SecretName>,
    line: usize,
    of: &str,
    faults: &mut Collector,
) {
    for name in named.filter(|name| !known.contains(name)) {
        faults.add(line, || format!("{of}unknown secret `{name}` in the budget"));
    }
}

/// Returns why a path can be outside of the directory of the plan, or can hold credentials.
fn inside(path: &Path) -> Result<(), &'static str> {
    let is_below =
        |component: Component<'_>| matches!(component, Component::Normal(_) | Component::CurDir);
    if !path.components().all(is_below) {
        return Err("must be a relative path inside of the directory, without `..`");
    }
    if holds_credentials(path) {
        return Err(
            "files with this name usually have credentials, which a plan of a model cannot name",
        );
    }
    Ok(())
}

#[cfg(test)]
mod tests;
