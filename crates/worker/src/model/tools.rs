//! The tools of a model: their definitions, and the checks and bounds of each call.
//!
//! All tools run in the box of the worker, with its rights. The box is the boundary, and not a check here.
//! A call that fails returns an error to the model; no call ends the task.

mod code;
mod files;
mod process;
mod rules;

use std::path::{Path, PathBuf};
use std::time::Duration;

use belljar_model::plan::ModelTool;
use belljar_wire::{ModelFailure, ModelFailureKind as Kind, ToolJob, schema};
use hyper::header::HeaderMap;
use serde_json::{Value, json};
use tokio::time::timeout;
use url::Url;

use self::rules::{Action, Rules};
use super::context::without_middle;
use super::turns::{Call, CallResult};
use super::{failure, json};
use crate::runtime::glob;
use crate::runtime::http::{Client, HttpRequest, Redirect, RequestBody};

/// The maximum size of the result of a call in bytes. The middle of a longer one is left out.
pub(super) const MAX_RESULT: usize = 64 << 10;
/// The maximum number of calls of one answer that are carried out.
pub(super) const MAX_CALLS: usize = 16;
/// The time limit of a call, and the longest one that a model can request.
const TIME: u64 = 120;
const MAX_TIME: u64 = 600;
/// The maximum number of bytes of a response that are read.
const MAX_RESPONSE: usize = 1 << 20;

/// A tool as the model sees it.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Definition {
    pub(super) name: &'static str,
    pub(super) description: String,
    /// The JSON schema of the arguments.
    pub(super) schema: Value,
}

/// The places where tools work.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ToolPlaces {
    /// The directory that relative paths refer to.
    pub workspace: PathBuf,
    /// The program of the worker, which runs the programs of `execute_code`.
    pub worker: PathBuf,
}

/// The tools of one task.
#[derive(Debug)]
pub(super) struct Toolbox<'a> {
    places: &'a ToolPlaces,
    client: Client,
    definitions: Vec<(ModelTool, Definition)>,
    rules: Rules,
    memory: u64,
    /// The placeholder of the key. The broker refuses a request with it in the body.
    placeholder: Option<&'a str>,
}

/// The text in the result of a call in place of the placeholder of the key.
const HIDDEN: &str = "[placeholder of the key]";

/// The result of a call: a text for the model, or why the call failed.
type Outcome = Result<String, String>;

impl<'a> Toolbox<'a> {
    /// Prepares the tools of a job.
    pub(super) fn new(
        job: &ToolJob,
        places: &'a ToolPlaces,
        client: Client,
        placeholder: Option<&'a str>,
    ) -> Result<Self, ModelFailure> {
        let cannot_start = |message: String| failure(Kind::CannotStart, message);
        let mut definitions = Vec::new();
        for name in &job.names {
            let tool: ModelTool = name.parse().map_err(|error| cannot_start(format!("{error}")))?;
            definitions.push((tool, definition(tool)));
        }
        let rules = Rules::new(job).map_err(cannot_start)?;
        let placeholder = placeholder.filter(|text| !text.is_empty());
        Ok(Self { places, client, definitions, rules, memory: job.memory, placeholder })
    }

    /// Returns the definitions of the tools.
    pub(super) fn definitions(&self) -> Vec<Definition> {
        self.definitions.iter().map(|(_, definition)| definition.clone()).collect()
    }

    /// Carries out a call. Returns its result, and the number of bytes before a cut.
    pub(super) async fn call(&self, call: &Call) -> (CallResult, usize) {
        let outcome = match self.checked(call) {
            Ok((tool, arguments)) => self.run(tool, &Arguments(&arguments)).await,
            Err(error) => Err(error),
        };
        let (text, is_error) = match outcome {
            Ok(text) => (text, false),
            Err(error) => (format!("error: {error}"), true),
        };
        let text = match self.placeholder {
            Some(placeholder) => text.replace(placeholder, HIDDEN),
            None => text,
        };
        let (size, text) = (text.len(), without_middle(&text, MAX_RESULT));
        (CallResult { id: call.id.clone(), text, is_error }, size)
    }

    /// Returns the tool and the arguments of a call, if both are valid.
    fn checked(&self, call: &Call) -> Result<(ModelTool, Value), String> {
        let found = self.definitions.iter().find(|(tool, _)| tool.name() == call.name);
        let Some((tool, definition)) = found else {
            let names: Vec<&str> = self.definitions.iter().map(|(tool, _)| tool.name()).collect();
            let name: String = call.name.chars().take(64).collect();
            return Err(format!("there is no tool `{name}`; the tools are {}", names.join(", ")));
        };
        let text = Some(call.arguments.trim()).filter(|text| !text.is_empty()).unwrap_or("{}");
        let arguments = json::parse(text)
            .map_err(|reason| format!("the arguments are not valid JSON: {reason}"))?;
        schema::check(&definition.schema, &arguments)
            .map_err(|reason| format!("the arguments are not valid: {reason}"))?;
        Ok((*tool, arguments))
    }

    async fn run(&self, tool: ModelTool, arguments: &Arguments<'_>) -> Outcome {
        self.rules.check(tool, &self.action(tool, arguments)?)?;
        match tool {
            ModelTool::Shell => {
                process::shell(&self.places.workspace, arguments.text("command"), arguments.time())
                    .await
            }
            ModelTool::Read => {
                let path = self.path(arguments);
                let (offset, limit) =
                    (arguments.number("offset").unwrap_or(1), arguments.number("limit"));
                in_background(move || files::read(&path, offset, limit.unwrap_or(2000))).await
            }
            ModelTool::Write => {
                let (path, content) = (self.path(arguments), arguments.text("content").to_owned());
                in_background(move || files::write(&path, &content)).await
            }
            ModelTool::Edit => {
                let path = self.path(arguments);
                let [old, new] = ["old", "new"].map(|name| arguments.text(name).to_owned());
                let all = arguments.is_true("all");
                in_background(move || files::edit(&path, &old, &new, all)).await
            }
            ModelTool::Glob => {
                let (path, pattern) = (self.path(arguments), arguments.text("pattern").to_owned());
                in_background(move || {
                    let found = glob::find(&path, &pattern);
                    Ok(if found.is_empty() {
                        "no file matches".to_owned()
                    } else {
                        found.join("\n")
                    })
                })
                .await
            }
            ModelTool::Grep => {
                let input = json!({
                    "pattern": arguments.text("pattern"),
                    "path": self.path(arguments),
                    "ignore_case": arguments.is_true("ignore_case"),
                });
                code::grep(self.places, &input, self.memory).await
            }
            ModelTool::Fetch => self.fetch(arguments.text("url")).await,
            ModelTool::ExecuteCode => {
                let code = arguments.text("code");
                code::execute(self.places, code, self.memory, arguments.time()).await
            }
        }
    }

    /// Returns what a call would do, for the permission rules.
    fn action<'v>(&self, tool: ModelTool, arguments: &Arguments<'v>) -> Result<Action<'v>, String> {
        let relative = || files::relative(&self.places.workspace, &self.path(arguments));
        Ok(match tool {
            ModelTool::Shell => Action::Command(arguments.text("command")),
            ModelTool::Read | ModelTool::Grep | ModelTool::Glob => Action::Read(relative()?),
            ModelTool::Write | ModelTool::Edit => Action::Edit(relative()?),
            ModelTool::Fetch | ModelTool::ExecuteCode => Action::Other,
        })
    }

    /// Returns the path of a call, or the workspace.
    fn path(&self, arguments: &Arguments<'_>) -> PathBuf {
        self.places.workspace.join(Path::new(arguments.text("path")))
    }

    /// Sends a GET request through the broker.
    async fn fetch(&self, url: &str) -> Outcome {
        let url = Url::parse(url).map_err(|error| format!("the URL is not valid: {error}"))?;
        let request = HttpRequest {
            method: hyper::Method::GET,
            url,
            headers: HeaderMap::new(),
            body: RequestBody::whole(bytes::Bytes::new()),
            redirect: Redirect::Follow,
        };
        let fetched = async {
            let mut response = self.client.fetch(request).await.map_err(|it| it.to_string())?;
            let mut body = Vec::new();
            while let Some(piece) = response.body.next().await.map_err(|it| it.to_string())? {
                body.extend_from_slice(&piece);
                if body.len() > MAX_RESPONSE {
                    body.truncate(MAX_RESPONSE);
                    body.extend_from_slice(b"\n[belljar: the rest of the response was not read]");
                    break;
                }
            }
            Ok(format!("status {}\n{}", response.status, String::from_utf8_lossy(&body)))
        };
        let limit = Duration::from_secs(TIME);
        timeout(limit, fetched).await.map_err(|_| format!("no response within {TIME} s"))?
    }
}

/// Runs work on files in a thread, so that a slow file system does not stop the loop for ever.
async fn in_background(work: impl FnOnce() -> Outcome + Send + 'static) -> Outcome {
    let limit = Duration::from_secs(TIME);
    match timeout(limit, tokio::task::spawn_blocking(work)).await {
        Ok(done) => done.map_err(|error| format!("the tool failed: {error}"))?,
        Err(_) => Err(format!("the tool did not end within {TIME} s")),
    }
}

/// The arguments of a call, which match the schema of its tool.
struct Arguments<'v>(&'v Value);

impl<'v> Arguments<'v> {
    fn text(&self, name: &str) -> &'v str {
        self.0.get(name).and_then(Value::as_str).unwrap_or_default()
    }

    fn number(&self, name: &str) -> Option<u64> {
        self.0.get(name).and_then(Value::as_u64)
    }

    fn is_true(&self, name: &str) -> bool {
        self.0.get(name) == Some(&Value::Bool(true))
    }

    fn time(&self) -> Duration {
        Duration::from_secs(self.number("timeout").unwrap_or(TIME))
    }
}

/// Returns the definition of a tool.
fn definition(tool: ModelTool) -> Definition {
    let text = |about: &str| json!({"type": "string", "description": about});
    let number = |about: &str| json!({"type": "integer", "minimum": 1, "description": about});
    let flag = |about: &str| json!({"type": "boolean", "description": about});
    let path = || text("A path, absolute or relative to /workspace.");
    let time = json!({
        "type": "integer", "minimum": 1, "maximum": MAX_TIME,
        "description": format!("The time limit in seconds, {TIME} by default."),
    });
    let object = |required: &[&str], properties: Value| {
        json!({
            "type": "object", "properties": properties, "required": required,
            "additionalProperties": false,
        })
    };
    let (description, schema) = match tool {
        ModelTool::Shell => (
            "Runs a command line with /bin/sh in /workspace. Returns its exit status and its output.",
            object(&["command"], json!({"command": text("The command line."), "timeout": time})),
        ),
        ModelTool::Read => (
            "Reads lines of a text file.",
            object(
                &["path"],
                json!({
                    "path": path(),
                    "offset": number("The first line, 1 by default."),
                    "limit": number("The number of lines, 2000 by default."),
                }),
            ),
        ),
        ModelTool::Write => (
            "Writes a file and replaces its old content. Missing directories are created.",
            object(
                &["path", "content"],
                json!({"path": path(), "content": text("The whole content of the file.")}),
            ),
        ),
        ModelTool::Edit => (
            "Replaces a text in a file. The text must occur exactly once, unless `all` is true.",
            object(
                &["path", "old", "new"],
                json!({
                    "path": path(),
                    "old": text("The text to replace, exactly as in the file."),
                    "new": text("The text that replaces it."),
                    "all": flag("Whether every occurrence is replaced."),
                }),
            ),
        ),
        ModelTool::Glob => (
            "Lists files whose paths match a pattern such as `src/**/*.rs`.",
            object(
                &["pattern"],
                json!({"pattern": text("The pattern."), "path": text("The directory to search.")}),
            ),
        ),
        ModelTool::Grep => (
            "Finds the lines of files that match a JavaScript regular expression.",
            object(
                &["pattern"],
                json!({
                    "pattern": text("The regular expression."),
                    "path": text("The file or the directory to search."),
                    "ignore_case": flag("Whether upper and lower case are equal."),
                }),
            ),
        ),
        ModelTool::Fetch => (
            "Sends a GET request to a URL and returns the response. Only the hosts of the task's rules are reachable.",
            object(&["url"], json!({"url": text("An http: or https: URL.")})),
        ),
        ModelTool::ExecuteCode => (
            "Runs a TypeScript program. Returns what it prints and its default export as JSON.",
            object(&["code"], json!({"code": text("The program, a module."), "timeout": time})),
        ),
    };
    let result = "A result over 64 KiB loses its middle.";
    Definition { name: tool.name(), description: format!("{description} {result}"), schema }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn schema_of_every_tool_is_supported_and_describes_an_object() {
        for tool in ModelTool::ALL {
            let Definition { name, schema, .. } = definition(tool);
            schema::supported(&schema).unwrap_or_else(|error| panic!("{name}: {error}"));
            assert!(schema::check(&schema, &json!([])).is_err(), "{name}");
            let unknown = schema::check(&schema, &json!({"no_such_argument": 1}));
            assert!(unknown.is_err(), "{name}");
        }
    }
}
