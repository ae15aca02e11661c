//! What `belljar diff --json` says, read without knowing more of it than a script would.

use std::path::Path;

use serde_json::Value;

use crate::lab::Lab;
use crate::trial::{Step, fault};

/// One changed path.
#[derive(Debug)]
pub(crate) struct Change {
    pub(crate) path: String,
    /// Why the host would act on it, when it would.
    pub(crate) risky: bool,
}

/// The changes of the newest run of this workspace.
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
