//! The list of tools with their schemas.

use belljar_engine::programs::{Language, Workshop};
use serde_json::{Map, Value, json};

use super::schema::{self, object};
use crate::mcp::service::{Annotations, ToolSpec};

/// All tools, in the order in which a model should read them.
pub(super) fn all(workshop: &Workshop) -> Vec<ToolSpec> {
    vec![
        execute_code(workshop),
        tool(
            "get_instructions",
            "Read once before writing programs: what there is in them, how results come back, and which services, functions and limits there are.",
            json!({}),
            &[],
            READS,
        ),
        listing(
            "list_apis",
            "The declared services that programs may call, and the languages that there are.",
            json!({"apis": {"type": "array", "items": {"type": "object"}}, "languages": texts()}),
        ),
        tool(
            "describe_api",
            "Types, examples and reference of one declared service. `search` gives the operations that match it, with all their types.",
            json!({"api": text("Its name"), "search": text("A word to look for in its operations")}),
            &["api"],
            READS,
        ),
        tool(
            "search_tools",
            "Find functions of other servers, which programs call as `tools.SERVER.FUNCTION(input)`. Gives TypeScript declarations.",
            json!({"query": text("Words to look for"), "limit": count("How many at the most")}),
            &["query"],
            READS,
        ),
        listing(
            "list_skills",
            "The saved skills, which programs import as `skill:NAME`.",
            json!({"skills": {"type": "array", "items": {"type": "object"}}}),
        ),
        account(
            "run_skill",
            "Run a saved skill in a fresh box: its default export, called with `input`.",
            json!({"name": text("Its name"), "input": any("What it is called with"), "timeout": timeout()}),
            &["name"],
            RUNS,
        ),
        save_skill(),
        tool(
            "update_skill",
            "Change a saved skill by search and replace. Each `search` must occur exactly once; either all are done or none.",
            json!({"name": text("Its name"), "edits": edits()}),
            &["name", "edits"],
            CHANGES,
        ),
        tool(
            "delete_skill",
            "Delete a saved skill.",
            json!({"name": text("Its name")}),
            &["name"],
            DESTROYS,
        ),
        account(
            "run_command",
            "Run a command in a fresh box, in /workspace. A text goes to `sh -c`, a list is a program and its arguments.",
            json!({
                "command": {"description": "The command", "anyOf": [{"type": "string"}, texts()]},
                "stdin": text("What it reads"),
                "timeout": timeout(),
            }),
            &["command"],
            RUNS,
        ),
        tool(
            "read_file",
            "Read a text file of the workspace.",
            json!({"path": path(), "offset": count("The first line, from 1"), "limit": count("How many lines")}),
            &["path"],
            READS,
        ),
        tool(
            "write_file",
            "Write a file of the workspace, with the directories above it.",
            json!({"path": path(), "content": text("All of it")}),
            &["path", "content"],
            CHANGES,
        ),
        tool(
            "edit_file",
            "Change a file of the workspace by search and replace. Each `search` must occur exactly once; either all are done or none.",
            json!({"path": path(), "edits": edits()}),
            &["path", "edits"],
            CHANGES,
        ),
        tool(
            "glob",
            "List files of the workspace whose path matches a pattern such as `src/**/*.ts`.",
            json!({"pattern": text("The pattern"), "path": text("Where to begin"), "limit": count("How many at the most")}),
            &["pattern"],
            READS,
        ),
        tool(
            "grep",
            "Search files of the workspace for a regular expression.",
            json!({
                "pattern": text("A regular expression of JavaScript"),
                "path": text("Where to begin"),
                "glob": text("Only files whose path matches"),
                "limit": count("How many lines at the most"),
            }),
            &["pattern"],
            READS,
        ),
    ]
}

fn execute_code(workshop: &Workshop) -> ToolSpec {
    let apis = workshop.config().map_or_else(
        |_| String::new(),
        |config| {
            let names: Vec<&str> = config.apis().keys().map(|name| name.as_str()).collect();
            match names.is_empty() {
                true => " No service is declared, so programs reach no network.".to_owned(),
                false => format!(" Services: {}.", names.join(", ")),
            }
        },
    );
    let description = format!(
        "Run a program in a fresh, sealed box, in milliseconds. TypeScript by default: top-level await, `fetch`, `console`, `input`, `apis.NAME` for declared services, `tools.SERVER.FUNCTION` of other servers, `import … from \"skill:NAME\"`, files in /workspace and /tmp. The result is `export default`, a top-level `return`, or the last expression. Credentials are added on the way out: never ask for any.{apis}"
    );
    account(
        "execute_code",
        &description,
        json!({
            "code": text("The program"),
            "language": {"type": "string", "enum": Language::here(), "description": "ts unless said"},
            "apis": {"type": "array", "items": {"type": "string"}, "description": "Only these services; all unless said"},
            "timeout": timeout(),
            "input": any("What the program finds as `input`"),
        }),
        &["code"],
        Annotations { open_world: Some(true), ..RUNS },
    )
}

fn save_skill() -> ToolSpec {
    tool(
        "save_skill",
        "Save a module for later programs, which import it as `skill:NAME`. It declares the hosts, secrets and paths that it needs; one that wants more than was approved waits for the operator.",
        json!({
            "name": text("a-z, digits, `_` and `-`"),
            "description": text("What it does, in a sentence"),
            "code": text("An ES module; its default export is what `run_skill` calls with its input"),
            "language": {"type": "string", "enum": ["ts", "js"], "description": "ts unless said"},
            "hosts": texts(),
            "secrets": texts(),
            "paths": texts(),
        }),
        &["name", "description", "code"],
        CHANGES,
    )
}

const READS: Annotations = Annotations {
    read_only: Some(true),
    destructive: Some(false),
    idempotent: Some(true),
    open_world: Some(false),
};
const CHANGES: Annotations = Annotations {
    read_only: Some(false),
    destructive: Some(false),
    idempotent: Some(false),
    open_world: Some(false),
};
const DESTROYS: Annotations = Annotations { destructive: Some(true), ..CHANGES };
const RUNS: Annotations = Annotations { destructive: Some(true), open_world: None, ..CHANGES };

fn tool(
    name: &str,
    description: &str,
    properties: Value,
    required: &[&str],
    annotations: Annotations,
) -> ToolSpec {
    ToolSpec {
        name: name.to_owned(),
        title: None,
        description: description.to_owned(),
        input_schema: of(properties, required),
        output_schema: None,
        annotations,
    }
}

/// A tool that answers with the report on a program.
fn account(
    name: &str,
    description: &str,
    properties: Value,
    required: &[&str],
    annotations: Annotations,
) -> ToolSpec {
    let output_schema = Some(schema::of_report());
    ToolSpec { output_schema, ..tool(name, description, properties, required, annotations) }
}

/// A tool that asks nothing and answers with an object of these properties.
fn listing(name: &str, description: &str, gives: Value) -> ToolSpec {
    let required: Vec<String> = object(gives.clone()).keys().cloned().collect();
    let mut output = of(gives, &[]);
    output.insert("required".to_owned(), json!(required));
    output.remove("additionalProperties");
    ToolSpec { output_schema: Some(output), ..tool(name, description, json!({}), &[], READS) }
}

fn of(properties: Value, required: &[&str]) -> Map<String, Value> {
    let mut schema =
        object(json!({ "type": "object", "required": required, "additionalProperties": false }));
    schema.insert("properties".to_owned(), properties);
    schema
}

fn text(description: &str) -> Value {
    json!({"type": "string", "description": description})
}

fn texts() -> Value {
    json!({"type": "array", "items": {"type": "string"}})
}

fn count(description: &str) -> Value {
    json!({"type": "integer", "minimum": 1, "description": description})
}

fn any(description: &str) -> Value {
    json!({"description": description})
}

fn path() -> Value {
    text("Relative to /workspace, or absolute")
}

fn timeout() -> Value {
    json!({"type": "number", "minimum": 1, "maximum": 600, "description": "Seconds"})
}

fn edits() -> Value {
    json!({"type": "array", "minItems": 1, "items": {
        "type": "object",
        "properties": {"search": {"type": "string", "minLength": 1}, "replace": {"type": "string"}},
        "required": ["search", "replace"],
        "additionalProperties": false,
    }})
}
