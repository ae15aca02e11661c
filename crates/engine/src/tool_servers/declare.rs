//! Generates TypeScript declarations for the tools that programs can call.

use belljar_code::schema::{Names, comment, described, identifier, key, type_of};
use serde_json::{Map, Value};

use super::ForeignTool;

/// The maximum length of a tool's description in the declarations.
const MAX_COMMENT: usize = 1000;

/// Returns TypeScript declarations of tools: `declare const tools: { SERVER: { FUNCTION(input: …):
/// Promise<…> } }`, with the types that they use.
pub fn declarations(tools: &[ForeignTool]) -> String {
    if tools.is_empty() {
        return String::new();
    }
    let nothing = Value::Null;
    let mut names = Names::new(&nothing);
    let mut out = String::from("declare const tools: {\n");
    let mut servers: Vec<&str> = tools.iter().map(|tool| tool.server.as_str()).collect();
    servers.dedup();
    for server in servers {
        let identifier = identifier(server);
        out.push_str(&format!("  {identifier}: {{\n"));
        for tool in tools.iter().filter(|tool| tool.server == server) {
            let text = function(tool, &mut names);
            out.push_str(&format!("    {}\n", text.replace('\n', "\n    ")));
        }
        out.push_str("  };\n");
    }
    out.push_str("};\n");
    format!("{}{out}", names.declarations())
}

/// Returns the declaration of one tool as a method.
fn function<'a>(tool: &'a ForeignTool, names: &mut Names<'a>) -> String {
    names.enter(&tool.input);
    let input = type_of(&tool.input, names);
    let input =
        if has_no_parameters(&tool.input) { String::new() } else { format!("input: {input}") };
    let output = tool.output.as_ref().map_or_else(
        // A tool without an output schema can return text or any other content.
        || "unknown".to_owned(),
        |output| {
            names.enter(output);
            type_of(output, names)
        },
    );
    let comment = comment(&tool.description, MAX_COMMENT).or_else(|| described(&tool.input));
    let comment = comment.map_or_else(String::new, |comment| format!("{comment}\n"));
    let name = key(&tool.function).unwrap_or_default();
    format!("{comment}{name}({input}): Promise<{output}>;")
}

/// Returns whether the input schema of a tool has no parameters.
fn has_no_parameters(input: &Value) -> bool {
    let Some(object) = input.as_object() else { return false };
    let is_empty = |value: &Value| value.as_object().is_some_and(Map::is_empty);
    object.get("properties").is_none_or(is_empty)
        && ["anyOf", "oneOf", "allOf", "$ref", "additionalProperties", "patternProperties"]
            .iter()
            .all(|key| object.get(*key).is_none_or(|value| *value == Value::Bool(false)))
}
