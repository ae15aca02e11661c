//! Parses the arguments of each tool. An error names the invalid field.

use std::collections::BTreeSet;
use std::time::Duration;

use belljar_engine::programs::Language;
use belljar_engine::skills::Edit;
use belljar_model::code::{ApiName, SkillName};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Deserializer};
use serde_json::{Map, Value};

use crate::mcp::service::CallError;

/// Parses the JSON arguments of a tool call.
pub(super) fn read<T: DeserializeOwned>(arguments: Map<String, Value>) -> Result<T, CallError> {
    serde_path_to_error::deserialize(Value::Object(arguments)).map_err(|error| {
        let path = error.path().to_string();
        match path.as_str() {
            "." => invalid(error.inner()),
            path => invalid(format!("`{path}`: {}", error.inner())),
        }
    })
}

/// Returns the error for invalid arguments of a tool, as a text for the model.
pub(super) fn invalid(text: impl std::fmt::Display) -> CallError {
    CallError::InvalidArguments(text.to_string())
}

/// A number argument, also accepted as a string because models often write it so.
#[derive(Clone, Copy, Debug)]
pub(super) struct Number(f64);

impl<'de> Deserialize<'de> for Number {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let number = match Value::deserialize(from)? {
            Value::Number(number) => number.as_f64(),
            Value::String(text) => text.trim().parse().ok(),
            Value::Null | Value::Bool(_) | Value::Array(_) | Value::Object(_) => None,
        };
        number.map(Self).ok_or_else(|| serde::de::Error::custom("expected a number"))
    }
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ExecuteCode {
    pub(super) code: String,
    #[serde(default)]
    language: Option<String>,
    #[serde(default)]
    apis: Option<Vec<String>>,
    #[serde(default)]
    timeout: Option<Number>,
    #[serde(default)]
    pub(super) input: Option<Value>,
}

impl ExecuteCode {
    pub(super) fn language(&self) -> Result<Language, CallError> {
        self.language.as_deref().map_or(Ok(Language::TypeScript), str::parse).map_err(invalid)
    }

    pub(super) fn apis(&self) -> Result<Option<BTreeSet<ApiName>>, CallError> {
        let Some(names) = &self.apis else { return Ok(None) };
        let names = names.iter().map(|name| name.parse());
        names
            .collect::<Result<_, _>>()
            .map(Some)
            .map_err(|error| invalid(format!("`apis`: {error}")))
    }

    pub(super) fn timeout(&self) -> Result<Option<Duration>, CallError> {
        seconds(self.timeout)
    }
}

/// Converts an optional number of seconds to a duration. The operator's limits are checked later.
pub(super) fn seconds(value: Option<Number>) -> Result<Option<Duration>, CallError> {
    let Some(Number(seconds)) = value else { return Ok(None) };
    if !(1.0..=86_400.0).contains(&seconds) {
        return Err(invalid("`timeout` must be a number of seconds from 1 to 600"));
    }
    Ok(Some(Duration::from_secs_f64(seconds)))
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct DescribeApi {
    pub(super) api: String,
    #[serde(default)]
    pub(super) search: Option<String>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct NoArguments {}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct SaveSkill {
    pub(super) name: SkillName,
    pub(super) description: String,
    pub(super) code: String,
    #[serde(default)]
    pub(super) language: Option<String>,
    #[serde(default)]
    pub(super) hosts: Vec<String>,
    #[serde(default)]
    pub(super) secrets: Vec<String>,
    #[serde(default)]
    pub(super) paths: Vec<String>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RunSkill {
    pub(super) name: SkillName,
    #[serde(default)]
    pub(super) input: Option<Value>,
    #[serde(default)]
    pub(super) timeout: Option<Number>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct UpdateSkill {
    pub(super) name: SkillName,
    edits: Vec<EditBlock>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct EditBlock {
    search: String,
    replace: String,
}

impl UpdateSkill {
    pub(super) fn edits(&self) -> Vec<Edit> {
        let edit = |block: &EditBlock| Edit {
            search: block.search.clone(),
            replace: block.replace.clone(),
        };
        self.edits.iter().map(edit).collect()
    }
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct DeleteSkill {
    pub(super) name: SkillName,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct SearchTools {
    pub(super) query: String,
    #[serde(default)]
    pub(super) limit: Option<usize>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RunCommand {
    /// The command to run: a shell command line, or a program with its arguments.
    command: Command,
    #[serde(default)]
    pub(super) stdin: Option<String>,
    #[serde(default)]
    pub(super) timeout: Option<Number>,
}

#[derive(Debug, Deserialize)]
#[serde(untagged)]
enum Command {
    Line(String),
    Words(Vec<String>),
}

impl RunCommand {
    pub(super) fn argv(&self) -> Vec<String> {
        match &self.command {
            Command::Line(line) => vec!["sh".to_owned(), "-c".to_owned(), line.clone()],
            Command::Words(words) => words.clone(),
        }
    }
}
