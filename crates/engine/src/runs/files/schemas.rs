//! The schemas of checks, which `submit` copies once and checks before anything runs.

use std::collections::BTreeMap;
use std::fs::{self, DirBuilder};
use std::io::Read as _;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::Path;

use anyhow::Context as _;
use belljar_ledger::Digest;
use belljar_model::plan::{Check, CheckedPlan, TaskId};
use serde_json::Value as Json;

use super::{RunFiles, TaskOutput, open_regular, sync_dir, write_new};
use crate::error::{EngineError, ErrorKind, WithKind as _, invalid};

/// The maximum size of one schema in bytes.
const MAX_SCHEMA: u64 = 1 << 20;
/// The directory of the schemas in the directory of the run.
const DIR: &str = "check";

/// Returns the file of the schema of a check, whose number counts from 0.
fn file(task: &TaskId, check: usize) -> String {
    format!("{DIR}/{task}.{check}")
}

impl RunFiles {
    /// Copies the schemas of all checks durably, and returns the commitments to them.
    pub(super) fn copy_schemas(
        &self,
        plan: &CheckedPlan,
        base: &Path,
    ) -> Result<BTreeMap<String, TaskOutput>, EngineError> {
        let mut files = BTreeMap::new();
        for task in plan.tasks() {
            for (number, check) in task.checks.iter().enumerate() {
                let Check::Schema(path) = check else { continue };
                let (path, name) = (base.join(path), file(&task.id, number));
                let copied = self.copy_schema(&name, &path).map_err(|error| {
                    let text = format!("task `{}`: the schema {}", task.id, path.display());
                    error.context(text)
                })?;
                files.insert(name, copied);
            }
        }
        if !files.is_empty() {
            let synced = sync_dir(&self.dir.join(DIR));
            synced.context("cannot store the schemas of the plan").kind(ErrorKind::Broken)?;
        }
        Ok(files)
    }

    fn copy_schema(&self, name: &str, path: &Path) -> Result<TaskOutput, EngineError> {
        let mut text = String::new();
        open_regular(path)
            .and_then(|file| file.take(MAX_SCHEMA + 1).read_to_string(&mut text))
            .context("cannot be read")
            .kind(ErrorKind::Invalid)?;
        if text.len() as u64 > MAX_SCHEMA {
            return Err(invalid("is larger than 1 MiB"));
        }
        let schema: Json =
            serde_json::from_str(&text).context("is not JSON").kind(ErrorKind::Invalid)?;
        belljar_wire::schema::supported(&schema)
            .map_err(|reason| invalid(reason).context("cannot be used"))?;
        let stored = || {
            DirBuilder::new().recursive(true).mode(0o700).create(self.dir.join(DIR))?;
            write_new(&self.dir.join(name), &mut text.as_bytes(), MAX_SCHEMA)
        };
        stored().context("cannot be stored").kind(ErrorKind::Broken)
    }

    /// Returns the schema of a check, or `None` if its file is not the recorded one.
    pub(crate) fn check_schema(&self, bound: Digest, task: &TaskId, check: usize) -> Option<Json> {
        let text = fs::read(self.submitted(bound, &file(task, check))?).ok()?;
        serde_json::from_slice(&text).ok()
    }
}
