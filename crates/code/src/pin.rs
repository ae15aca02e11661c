//! Pins of MCP tools: a tool can be called only as long as it is what the operator accepted (F09).
//!
//! A tool's definition is text that a model obeys, and its server can change it at any time. So a pin
//! is a hash over everything that a model sees of the tool and over how its server is started or
//! reached. A new or changed tool is reported and cannot be called until the operator accepts it.
//!
//! Programs call `tools.SERVER.FUNCTION`, with the server's name from belljar.toml, so no server can
//! impersonate another server or a built-in tool. Two tools of one server with the same function name
//! are both refused, because a call would be ambiguous.

mod canonical;
mod store;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use belljar_model::plain::{self, Oddity, Plain};
use serde_json::{Map, Value, json};
use sha2::{Digest as _, Sha256};

use crate::schema::identifier;

pub use canonical::canonical;
pub use store::{Pin, PinError, Pins};

/// The maximum length of a tool name in bytes, the limit that the MCP specification advises.
const MAX_NAME: usize = 128;

/// The identity of an MCP server: its command line or its URL.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Identity {
    Command(Vec<String>),
    Url(String),
}

/// The definition of an MCP tool as its server sent it.
#[derive(Clone, Debug, PartialEq)]
pub struct ToolDef {
    pub name: String,
    pub description: Option<String>,
    pub input: Value,
    pub output: Option<Value>,
}

/// An MCP tool after its definition was compared with the accepted pin.
#[derive(Clone, Debug, PartialEq)]
pub struct CheckedTool {
    /// The name of the tool on its MCP server.
    pub name: String,
    /// The name of the tool's function in programs.
    pub function: String,
    pub state: PinState,
    /// The kinds of suspicious characters in the texts of the tool.
    pub oddities: BTreeSet<Oddity>,
    /// The tool's definition without invisible characters; `None` for a tool that its server no
    /// longer has.
    pub shown: Option<VisibleDefinition>,
}

/// The definition of an MCP tool without invisible characters, for models and people.
#[derive(Clone, Debug, PartialEq)]
pub struct VisibleDefinition {
    pub description: String,
    pub input: Value,
    pub output: Option<Value>,
}

/// Whether an MCP tool can be called, and the reason if it cannot.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PinState {
    /// The definition of the tool is the one that the operator accepted.
    Accepted,
    /// The operator has not accepted the tool yet.
    New,
    /// The definition of the tool changed since the operator accepted it.
    Changed { what: Vec<Part> },
    /// The operator accepted the tool, but its server no longer has it.
    Gone,
    /// The tool's name is invalid, or another tool has the same function name.
    Refused { why: String },
}

impl PinState {
    pub const fn name(&self) -> &'static str {
        match self {
            Self::Accepted => "accepted",
            Self::New => "new",
            Self::Changed { .. } => "changed",
            Self::Gone => "gone",
            Self::Refused { .. } => "refused",
        }
    }
}

/// A part of a tool's definition that can differ from its pin.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Part {
    Server,
    Description,
    Input,
    Output,
}

impl fmt::Display for Part {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Server => "the command or URL of its server",
            Self::Description => "its description",
            Self::Input => "its input schema",
            Self::Output => "its output schema",
        })
    }
}

/// Returns the pin (the hashes) of a tool's current definition.
pub fn pin(identity: &Identity, tool: &ToolDef) -> Pin {
    let server = match identity {
        Identity::Command(words) => json!({ "command": words }),
        Identity::Url(url) => json!({ "url": url }),
    };
    let whole = json!({
        "server": server,
        "name": tool.name,
        "description": tool.description,
        "input": tool.input,
        "output": tool.output,
    });
    Pin {
        whole: hash(&whole),
        server: hash(&server),
        description: hash(&json!(tool.description)),
        input: hash(&tool.input),
        output: hash(&json!(tool.output)),
    }
}

fn hash(value: &Value) -> String {
    hex::encode(Sha256::digest(canonical(value).as_bytes()))
}

/// Returns the names of accepted tools by the names of their functions in programs.
///
/// Names whose functions are the same, which only one tool can have at a time, are replaced by the name of
/// the function.
pub fn functions<'a>(accepted: impl Iterator<Item = &'a String>) -> BTreeMap<String, String> {
    let mut functions = BTreeMap::new();
    for name in accepted {
        let function = identifier(name);
        let tool = if functions.contains_key(&function) { &function } else { name };
        functions.insert(function.clone(), tool.clone());
    }
    functions
}

/// Compares the tools that an MCP server offers with the accepted pins.
pub fn check_tools(
    accepted: &BTreeMap<String, Pin>,
    identity: &Identity,
    tools: &[ToolDef],
) -> Vec<CheckedTool> {
    let mut functions: BTreeMap<String, Vec<&str>> = BTreeMap::new();
    for tool in tools {
        functions.entry(identifier(&tool.name)).or_default().push(&tool.name);
    }
    let mut checked: Vec<CheckedTool> = tools
        .iter()
        .map(|tool| {
            let function = identifier(&tool.name);
            let (shown, oddities) = shown(tool);
            let same = functions.get(&function).map_or(&[][..], Vec::as_slice);
            let state = match refusal(tool, same) {
                Some(why) => PinState::Refused { why },
                None => pin_state(accepted.get(&tool.name), &pin(identity, tool)),
            };
            CheckedTool { name: tool.name.clone(), function, state, oddities, shown: Some(shown) }
        })
        .collect();
    let gone = accepted.keys().filter(|name| !tools.iter().any(|tool| tool.name == **name));
    checked.extend(gone.map(|name| CheckedTool {
        name: name.clone(),
        function: identifier(name),
        state: PinState::Gone,
        oddities: BTreeSet::new(),
        shown: None,
    }));
    checked
}

fn refusal(tool: &ToolDef, of_one_function: &[&str]) -> Option<String> {
    if tool.name.is_empty() || tool.name.len() > MAX_NAME {
        return Some(format!("a tool name must have 1 to {MAX_NAME} bytes"));
    }
    if of_one_function.len() > 1 {
        let all: Vec<String> = of_one_function.iter().map(|name| format!("{name:?}")).collect();
        return Some(format!("{} have the same function name", all.join(" and ")));
    }
    None
}

fn pin_state(before: Option<&Pin>, now: &Pin) -> PinState {
    let Some(before) = before else { return PinState::New };
    if before.whole == now.whole {
        return PinState::Accepted;
    }
    let parts = [
        (Part::Server, before.server != now.server),
        (Part::Description, before.description != now.description),
        (Part::Input, before.input != now.input),
        (Part::Output, before.output != now.output),
    ];
    PinState::Changed {
        what: parts.into_iter().filter_map(|(part, is)| is.then_some(part)).collect(),
    }
}

fn shown(tool: &ToolDef) -> (VisibleDefinition, BTreeSet<Oddity>) {
    let mut oddities = BTreeSet::new();
    // A name with non-ASCII characters can look like another name, whatever its alphabet.
    if !tool.name.bytes().all(|byte| byte.is_ascii_graphic()) {
        oddities.extend(plain::plain(&tool.name).oddities);
        oddities.insert(Oddity::LookAlike);
    }
    let description = strip_text(tool.description.as_deref().unwrap_or_default(), &mut oddities);
    let input = strip_value(&tool.input, &mut oddities);
    let output = tool.output.as_ref().map(|output| strip_value(output, &mut oddities));
    (VisibleDefinition { description, input, output }, oddities)
}

fn strip_text(text: &str, oddities: &mut BTreeSet<Oddity>) -> String {
    let Plain { text, oddities: found } = plain::plain(text);
    oddities.extend(found);
    text
}

fn strip_value(value: &Value, oddities: &mut BTreeSet<Oddity>) -> Value {
    match value {
        Value::String(text) => Value::String(strip_text(text, oddities)),
        Value::Array(values) => {
            Value::Array(values.iter().map(|value| strip_value(value, oddities)).collect())
        }
        Value::Object(members) => {
            let strip = |(key, value): (&String, &Value)| {
                (strip_text(key, oddities), strip_value(value, oddities))
            };
            Value::Object(members.iter().map(strip).collect::<Map<String, Value>>())
        }
        Value::Null | Value::Bool(_) | Value::Number(_) => value.clone(),
    }
}

#[cfg(test)]
mod tests;
