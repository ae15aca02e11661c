//! Tools of other servers, held to what they were when a person agreed to them (threat F09).
//!
//! A tool's definition is text that a model obeys, and its server can change it at any time. So each
//! is pinned by a hash over everything that a model gets to see of it and over what its server is; what
//! is new or has changed is told and cannot be called until the operator accepted it.
//!
//! Programs say `tools.SERVER.FUNCTION`, with the server's name from belljar.toml, so no server can
//! take the place of another or of something built in. Two tools of one server with one function name
//! are both refused: nobody could say which is meant.

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

/// A longer name is refused: 128 are the most that the protocol advises.
const MAX_NAME: usize = 128;

/// What a server is: how it is started or where it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Identity {
    Command(Vec<String>),
    Url(String),
}

/// A tool as its server tells of it.
#[derive(Clone, Debug, PartialEq)]
pub struct ToolDef {
    pub name: String,
    pub description: Option<String>,
    pub input: Value,
    pub output: Option<Value>,
}

/// What is made of a tool.
#[derive(Clone, Debug, PartialEq)]
pub struct Judged {
    /// As its server calls it.
    pub name: String,
    /// As programs call it.
    pub function: String,
    pub standing: Standing,
    /// What was odd about its texts.
    pub oddities: BTreeSet<Oddity>,
    /// What is shown of it; none of one that is gone.
    pub shown: Option<Shown>,
}

/// A definition without what is not drawn: what a model and a person get to see.
#[derive(Clone, Debug, PartialEq)]
pub struct Shown {
    pub description: String,
    pub input: Value,
    pub output: Option<Value>,
}

/// Whether a tool may be called.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Standing {
    /// It is what was agreed to.
    Accepted,
    /// Nobody agreed to it yet.
    New,
    /// It is not what was agreed to any more.
    Changed { what: Vec<Part> },
    /// It was agreed to, and its server has it no more.
    Gone,
    /// It cannot be told from others, or not be named.
    Refused { why: String },
}

impl Standing {
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

/// What of a definition can change.
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
            Self::Server => "how its server is started or reached",
            Self::Description => "its description",
            Self::Input => "what it takes",
            Self::Output => "what it gives",
        })
    }
}

/// The pin of a tool as it is now.
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

/// Holds what a server tells against what was agreed to.
pub fn judge(
    accepted: &BTreeMap<String, Pin>,
    identity: &Identity,
    tools: &[ToolDef],
) -> Vec<Judged> {
    let mut functions: BTreeMap<String, Vec<&str>> = BTreeMap::new();
    for tool in tools {
        functions.entry(identifier(&tool.name)).or_default().push(&tool.name);
    }
    let mut judged: Vec<Judged> = tools
        .iter()
        .map(|tool| {
            let function = identifier(&tool.name);
            let (shown, oddities) = shown(tool);
            let same = functions.get(&function).map_or(&[][..], Vec::as_slice);
            let standing = match refusal(tool, same) {
                Some(why) => Standing::Refused { why },
                None => standing(accepted.get(&tool.name), &pin(identity, tool)),
            };
            Judged { name: tool.name.clone(), function, standing, oddities, shown: Some(shown) }
        })
        .collect();
    let gone = accepted.keys().filter(|name| !tools.iter().any(|tool| tool.name == **name));
    judged.extend(gone.map(|name| Judged {
        name: name.clone(),
        function: identifier(name),
        standing: Standing::Gone,
        oddities: BTreeSet::new(),
        shown: None,
    }));
    judged
}

fn refusal(tool: &ToolDef, of_one_function: &[&str]) -> Option<String> {
    if tool.name.is_empty() || tool.name.len() > MAX_NAME {
        return Some(format!("a name has 1 to {MAX_NAME} bytes"));
    }
    if of_one_function.len() > 1 {
        let all: Vec<String> = of_one_function.iter().map(|name| format!("{name:?}")).collect();
        return Some(format!("{} would be one function", all.join(" and ")));
    }
    None
}

fn standing(before: Option<&Pin>, now: &Pin) -> Standing {
    let Some(before) = before else { return Standing::New };
    if before.whole == now.whole {
        return Standing::Accepted;
    }
    let parts = [
        (Part::Server, before.server != now.server),
        (Part::Description, before.description != now.description),
        (Part::Input, before.input != now.input),
        (Part::Output, before.output != now.output),
    ];
    Standing::Changed {
        what: parts.into_iter().filter_map(|(part, is)| is.then_some(part)).collect(),
    }
}

fn shown(tool: &ToolDef) -> (Shown, BTreeSet<Oddity>) {
    let mut oddities = BTreeSet::new();
    // A name beyond ASCII is an identifier in disguise, whatever alphabet it is from.
    if !tool.name.bytes().all(|byte| byte.is_ascii_graphic()) {
        oddities.extend(plain::plain(&tool.name).oddities);
        oddities.insert(Oddity::LookAlike);
    }
    let description = strip(tool.description.as_deref().unwrap_or_default(), &mut oddities);
    let input = strip_value(&tool.input, &mut oddities);
    let output = tool.output.as_ref().map(|output| strip_value(output, &mut oddities));
    (Shown { description, input, output }, oddities)
}

fn strip(text: &str, oddities: &mut BTreeSet<Oddity>) -> String {
    let Plain { text, oddities: found } = plain::plain(text);
    oddities.extend(found);
    text
}

fn strip_value(value: &Value, oddities: &mut BTreeSet<Oddity>) -> Value {
    match value {
        Value::String(text) => Value::String(strip(text, oddities)),
        Value::Array(values) => {
            Value::Array(values.iter().map(|value| strip_value(value, oddities)).collect())
        }
        Value::Object(members) => {
            let strip = |(key, value): (&String, &Value)| {
                (strip(key, oddities), strip_value(value, oddities))
            };
            Value::Object(members.iter().map(strip).collect::<Map<String, Value>>())
        }
        Value::Null | Value::Bool(_) | Value::Number(_) => value.clone(),
    }
}

#[cfg(test)]
mod tests;
