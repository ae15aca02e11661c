//! The list of tools with their schemas.

use belljar_engine::programs::{Language, Programs};
use serde_json::{Map, Value, json};

use super::schema::{self, object};
use crate::mcp::context::StateLifetime;
use crate::mcp::service::{Annotations, ToolSpec};

/// The argument with which a client without sessions names an open workspace.
pub(super) const WORKSPACE: &str = "workspace";

/// The tool that opens a workspace for a client without sessions.
pub(super) const OPEN_WORKSPACE: &str = "open_workspace";

/// The tools that work in a workspace.
const IN_WORKSPACE: [&str; 8] = [
    "execute_code",
    "run_skill",
    "run_command",
    "read_file",
    "write_file",
    "edit_file",
    "glob",
    "grep",
];

/// Returns the definitions of all tools, in the order in which a model should read them. A client
/// without sessions also gets a tool that opens a workspace.
pub(super) fn all(programs: &Programs, lifetime: StateLifetime) -> Vec<ToolSpec> {
    let mut tools = common(programs);
    if lifetime == StateLifetime::Session {
        return tools;
    }
    let about = "Result of `open_workspace`. Without it, the call has an empty workspace that is removed after the call";
    for tool in tools.iter_mut().filter(|tool| IN_WORKSPACE.contains(&tool.name.as_str())) {
        let properties = tool.input_schema.get_mut("properties").and_then(Value::as_object_mut);
        properties.into_iter().for_each(|it| drop(it.insert(WORKSPACE.to_owned(), text(about))));
    }
    let open = list_tool(
        OPEN_WORKSPACE,
        "Open a workspace that is kept between calls. Pass the result as `workspace` to later calls, which then share the files in /workspace. It is removed after 30 minutes without a call. Whoever knows the result can use the workspace, so do not publish it.",
        json!({ WORKSPACE: text("The id of the workspace") }),
    );
    tools.insert(1, ToolSpec { annotations: CHANGES, ..open });
    tools
}

fn common(programs: &Programs) -> Vec<ToolSpec> {
    vec![
        execute_code(programs),
        tool(
            "get_instructions",
            "Read this once before you write programs. Explains the environment and the result of a program, and lists the available services, functions and limits.",
            json!({}),
            &[],
            READS,
        ),
        list_tool(
            "list_apis",
            "List the declared services that programs can call, and the available languages.",
            json!({"apis": {"type": "array", "items": {"type": "object"}}, "languages": texts()}),
        ),
        tool(
            "describe_api",
            "Return types, examples and reference of one declared service. `search` returns only the matching operations, with all their types.",
            json!({"api": text("Name of the service"), "search": text("Search term for operations")}),
            &["api"],
            READS,
        ),
        tool(
            "search_tools",
            "Find functions of other servers, which programs call as `tools.SERVER.FUNCTION(input)`. Returns TypeScript declarations.",
            json!({"query": text("Search terms"), "limit": count("Maximum number of results")}),
            &["query"],
            READS,
        ),
        list_tool(
            "list_skills",
            "List the saved skills, which programs import as `skill:NAME`.",
            json!({"skills": {"type": "array", "items": {"type": "object"}}}),
        ),
        program_tool(
            "run_skill",
            "Run a saved skill in a fresh box: its default export, called with `input`.",
            json!({"name": text("Name of the skill"), "input": any("Argument of its default export"), "timeout": timeout()}),
            &["name"],
            RUNS,
        ),
        save_skill(),
        tool(
            "update_skill",
            "Change a saved skill by search and replace. Each `search` must occur exactly once; either all edits are made or none.",
            json!({"name": text("Name of the skill"), "edits": edits()}),
            &["name", "edits"],
            CHANGES,
        ),
        tool(
            "delete_skill",
            "Delete a saved skill.",
            json!({"name": text("Name of the skill")}),
            &["name"],
            DESTROYS,
        ),
        program_tool(
            "run_command",
            "Run a command in a fresh box, in /workspace. A string is run with `sh -c`; a list is a program and its arguments.",
            json!({
                "command": {"description": "The command", "anyOf": [{"type": "string"}, texts()]},
                "stdin": text("Standard input of the command"),
                "timeout": timeout(),
            }),
            &["command"],
            RUNS,
        ),
        tool(
            "read_file",
            "Read a text file of the workspace.",
            json!({"path": path(), "offset": count("The first line, from 1"), "limit": count("Maximum number of lines")}),
            &["path"],
            READS,
        ),
        tool(
            "write_file",
            "Write a file of the workspace and create missing directories.",
            json!({"path": path(), "content": text("The complete content")}),
            &["path", "content"],
            CHANGES,
        ),
        tool(
            "edit_file",
            "Change a file of the workspace by search and replace. Each `search` must occur exactly once; either all edits are made or none.",
            json!({"path": path(), "edits": edits()}),
            &["path", "edits"],
            CHANGES,
        ),
        tool(
            "glob",
            "List files of the workspace whose path matches a pattern such as `src/**/*.ts`.",
            json!({"pattern": text("The pattern"), "path": text("Directory to search"), "limit": count("Maximum number of results")}),
            &["pattern"],
            READS,
        ),
        tool(
            "grep",
            "Search files of the workspace for a regular expression.",
            json!({
                "pattern": text("A JavaScript regular expression"),
                "path": text("File or directory to search"),
                "glob": text("Pattern for the paths of files to search"),
                "limit": count("Maximum number of lines"),
            }),
            &["pattern"],
            READS,
        ),
    ]
}

fn execute_code(programs: &Programs) -> ToolSpec {
    let apis = programs.config().map_or_else(
        |_| String::new(),
        |config| {
            let names: Vec<&str> = config.apis().keys().map(|name| name.as_str()).collect();
            match names.is_empty() {
                true => " No service is declared, so programs have no network access.".to_owned(),
                false => format!(" Services: {}.", names.join(", ")),
            }
        },
    );
    let description = format!(
        "Run a program in a fresh, sealed box, in milliseconds. TypeScript by default: top-level await, `fetch`, `console`, `input`, `apis.NAME` for declared services, `tools.SERVER.FUNCTION` of other servers, `import … from \"skill:NAME\"`, files in /workspace and /tmp. The result is `export default`, a top-level `return`, or the last expression. Credentials are added to requests outside the box: never ask for any.{apis}"
    );
    program_tool(
        "execute_code",
        &description,
        json!({
            "code": text("The program"),
            "language": {"type": "string", "enum": Language::installed_names(), "description": "The default is ts"},
            "apis": {"type": "array", "items": {"type": "string"}, "description": "Services that the program can use; the default is all"},
            "timeout": timeout(),
            "input": any("Value of the variable `input` in the program"),
        }),
        &["code"],
        Annotations { open_world: Some(true), ..RUNS },
    )
}

fn save_skill() -> ToolSpec {
    tool(
        "save_skill",
        "Save a module for later programs, which import it as `skill:NAME`. It declares the hosts, secrets and paths that it needs; a skill that needs any, and new code for a skill that has approved access, wait for the operator. Only the client that saved a skill can change it.",
        json!({
            "name": text("Letters a-z, digits, `_` and `-`"),
            "description": text("One sentence about the skill"),
            "code": text("An ES module; `run_skill` calls its default export with the input"),
            "language": {"type": "string", "enum": ["ts", "js"], "description": "The default is ts"},
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
        input_schema: object_schema(properties, required),
        output_schema: None,
        annotations,
    }
}

/// Returns the definition of a tool whose result is the report on a program.
fn program_tool(
    name: &str,
    description: &str,
    properties: Value,
    required: &[&str],
    annotations: Annotations,
) -> ToolSpec {
    let output_schema = Some(schema::of_report());
    ToolSpec { output_schema, ..tool(name, description, properties, required, annotations) }
}

/// Returns the definition of a tool without arguments whose result has these properties.
fn list_tool(name: &str, description: &str, gives: Value) -> ToolSpec {
    let required: Vec<String> = object(gives.clone()).keys().cloned().collect();
    let mut output = object_schema(gives, &[]);
    output.insert("required".to_owned(), json!(required));
    output.remove("additionalProperties");
    ToolSpec { output_schema: Some(output), ..tool(name, description, json!({}), &[], READS) }
}

fn object_schema(properties: Value, required: &[&str]) -> Map<String, Value> {
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
