//! Texts that a plan refers to by a path: programs, prompts and schemas. `submit` copies them once.

use std::collections::BTreeMap;
use std::fs::{self, DirBuilder};
use std::io::{self, Read as _};
use std::os::unix::fs::DirBuilderExt as _;
use std::path::Path;

use anyhow::Context as _;
use belljar_ledger::Digest;
use belljar_model::plan::{Check, CheckedPlan, Executor, TaskId, Text};

use super::{RunFiles, TaskOutput, open_regular, sync_dir, write_new};
use crate::error::{EngineError, ErrorKind, WithKind as _};

/// The maximum size of one text in bytes.
const MAX_TEXT: u64 = 1 << 20;

/// The directory of programs and prompts.
const TEXTS: &str = "text";
/// The directory of the schemas of outputs.
const SCHEMAS: &str = "schema";

/// Returns the file name of the prompt of a check, whose number counts from 0. The id of a task has no dot.
fn check_name(task: &TaskId, check: usize) -> String {
    format!("{task}.{check}")
}

impl RunFiles {
    /// Copies the texts of all tasks durably, and returns the commitments to them.
    pub(super) fn copy_texts(
        &self,
        plan: &CheckedPlan,
        base: &Path,
    ) -> Result<BTreeMap<String, TaskOutput>, EngineError> {
        let mut files = BTreeMap::new();
        for task in plan.tasks() {
            let text = match &task.executor {
                Executor::Code { source: Text::File(path) }
                | Executor::Agent { prompt: Text::File(path), .. }
                | Executor::Model { prompt: Text::File(path), .. } => Some(path),
                Executor::Code { .. }
                | Executor::Agent { .. }
                | Executor::Model { .. }
                | Executor::Command { .. }
                | Executor::Approval { .. }
                | Executor::Stub { .. } => None,
            };
            let texts = text.map(|path| (TEXTS, task.id.to_string(), path));
            let schemas = task.output.schema.as_ref();
            let schemas = schemas.map(|path| (SCHEMAS, task.id.to_string(), path));
            let checks = task.checks.iter().enumerate().filter_map(|(number, check)| match check {
                Check::Model { prompt: Text::File(path), .. } => {
                    Some((TEXTS, check_name(&task.id, number), path))
                }
                Check::Model { prompt: Text::Inline(_), .. }
                | Check::Schema(_)
                | Check::Command(_)
                | Check::Verify(_) => None,
            });
            for (dir, name, path) in texts.into_iter().chain(schemas).chain(checks) {
                let path = base.join(path);
                let copied = self
                    .copy_text(dir, &name, &path)
                    .with_context(|| format!("task `{}`: cannot read {}", task.id, path.display()));
                files.insert(format!("{dir}/{name}"), copied.kind(ErrorKind::Invalid)?);
            }
        }
        for dir in [TEXTS, SCHEMAS].map(|dir| self.dir.join(dir)).iter().filter(|dir| dir.exists())
        {
            sync_dir(dir).context("cannot store the texts of the plan").kind(ErrorKind::Broken)?;
        }
        Ok(files)
    }

    fn copy_text(&self, dir: &str, name: &str, path: &Path) -> io::Result<TaskOutput> {
        let to = self.dir.join(dir);
        DirBuilder::new().recursive(true).mode(0o700).create(&to)?;
        let mut text = String::new();
        open_regular(path)?.take(MAX_TEXT.saturating_add(1)).read_to_string(&mut text)?;
        if text.len() as u64 > MAX_TEXT {
            return Err(io::Error::other("the file is larger than 1 MiB"));
        }
        if dir == SCHEMAS {
            let schema = serde_json::from_str(&text)?;
            belljar_wire::schema::supported(&schema).map_err(io::Error::other)?;
        }
        write_new(&to.join(name), &mut text.as_bytes(), MAX_TEXT)
    }

    /// Returns the program or the prompt of a task, or `None` if its file is not the recorded one.
    pub(crate) fn text(&self, bound: Digest, task: &TaskId, text: &Text) -> Option<String> {
        self.stored_text(bound, task.as_str(), text)
    }

    /// Returns the prompt of a check by a model, or `None` if its file is not the recorded one.
    pub(crate) fn check_text(
        &self,
        bound: Digest,
        task: &TaskId,
        check: usize,
        text: &Text,
    ) -> Option<String> {
        self.stored_text(bound, &check_name(task, check), text)
    }

    fn stored_text(&self, bound: Digest, name: &str, text: &Text) -> Option<String> {
        match text {
            Text::Inline(text) => Some(text.clone()),
            Text::File(_) => {
                fs::read_to_string(self.submitted(bound, &format!("{TEXTS}/{name}"))?).ok()
            }
        }
    }

    /// Returns the schema of the output of a task, or `None` if its file is not the recorded one.
    pub(crate) fn schema(&self, bound: Digest, task: &TaskId) -> Option<String> {
        fs::read_to_string(self.submitted(bound, &format!("{SCHEMAS}/{task}"))?).ok()
    }
}
