//! Parses the output of `belljar diff --json` like a user's script, without the types of Belljar.

use std::path::Path;

use serde_json::Value;

use crate::lab::Lab;
use crate::trial::{Step, fault};

/// One path that a run changed, as `belljar diff` reports it.
#[derive(Debug)]
pub(crate) struct Change {
    pub(crate) path: String,
    /// Whether `belljar diff` marks the file as one that tools of the host would execute.
    pub(crate) risky: bool,
}

/// Returns the changes of a workspace's newest run, as `belljar diff` reports them.
pub(crate) fn changes(lab: &Lab, workspace: &Path) -> Step<Vec<Change>> {
    let ended = lab.belljar_in(workspace, &["diff", "--json"])?;
    let text = ended.stdout_text();
    let value: Value = serde_json::from_str(&text).map_err(|error| {
        fault(format_args!("`diff --json` is not JSON: {error}: {text}{}", ended.stderr_text()))
    })?;
    let mut found = Vec::new();
    gather(&value, &mut found);
    Ok(found)
}

fn gather(value: &Value, found: &mut Vec<Change>) {
    match value {
        Value::Array(items) => items.iter().for_each(|item| gather(item, found)),
        Value::Object(fields) => match fields.get("path").and_then(Value::as_str) {
            Some(path) => {
                let risky =
                    fields.get("risky").is_some_and(|risk| !risk.is_null() && risk != false);
                found.push(Change { path: path.to_owned(), risky });
            }
            None => fields.values().for_each(|item| gather(item, found)),
        },
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}
