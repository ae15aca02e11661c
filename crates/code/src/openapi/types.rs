//! TypeScript declarations and one-line signatures of operations.

use belljar_model::plain::plain;

use super::document::Document;
use super::operation::{BodyKind, Operation, Parameter, ResponseBody};
use crate::schema::{Names, comment, key, type_of};

/// The maximum length of all TypeScript declarations of a service. Later operations are left out
/// and counted.
const MAX_DECLARATIONS: usize = 1 << 20;
/// The maximum length of the TypeScript declarations of a single operation.
const MAX_ONE: usize = 24 << 10;
const MAX_COMMENT: usize = 400;
/// The maximum number of schemas that are converted for all operations of a document.
const BUDGET_ALL: usize = 200_000;
/// The maximum number of schemas that are converted for a single operation.
const BUDGET_ONE: usize = 2_000;

/// Returns one line with the name, arguments, method, path and summary of an operation.
pub(crate) fn signature(operation: &Operation<'_>) -> String {
    let mut arguments: Vec<String> = operation
        .parameters
        .iter()
        .map(|it| {
            format!("{}{}", argument_key(&it.argument), if it.is_required { "" } else { "?" })
        })
        .collect();
    if let Some(body) = &operation.body {
        arguments.push(format!("body{}", if body.is_required { "" } else { "?" }));
    }
    let arguments = match arguments.is_empty() {
        true => String::new(),
        false => format!("{{{}}}", arguments.join(", ")),
    };
    let (called, method, path) = (operation.full_name(), operation.method, operation.path);
    let words = operation.summary.or(operation.description).map(|it| one_line(it, 100));
    let words = words.filter(|it| !it.is_empty()).map_or_else(String::new, |it| format!("  {it}"));
    let old = if operation.is_deprecated { " (deprecated)" } else { "" };
    format!("{called}({arguments})  {method} {path}{words}{old}")
}

/// Returns an untrusted text as one line of at most `most` characters.
fn one_line(text: &str, most: usize) -> String {
    let text = plain(text).text;
    let line = text.split_whitespace().collect::<Vec<_>>().join(" ");
    match line.char_indices().nth(most) {
        Some((at, _)) => format!("{}…", line.get(..at).unwrap_or_default().trim_end()),
        None => line,
    }
}

/// Returns an argument name as a key of a TypeScript type.
fn argument_key(argument: &str) -> String {
    key(argument).unwrap_or_else(|| "\"…\"".to_owned())
}

/// Returns the TypeScript namespace of a service, and the number of operations left out because of
/// the size limit.
pub(crate) fn declarations(document: &Document, namespace: &str) -> (String, usize) {
    let mut names = Names::with_budget(document.root(), BUDGET_ALL);
    names.claim("Client");
    names.claim("Options");
    let operations = document.operations();
    let (mut client, mut left_out) = (String::new(), 0);
    let mut group = "";
    for operation in &operations {
        if client.len() > MAX_DECLARATIONS {
            left_out += 1;
            continue;
        }
        if operation.group != group {
            if !group.is_empty() {
                client.push_str("    };\n");
            }
            group = &operation.group;
            client.push_str(&format!("    {group}: {{\n"));
        }
        let depth = if group.is_empty() { 4 } else { 6 };
        client.push_str(&indented(&method(operation, &mut names), depth));
    }
    if !group.is_empty() {
        client.push_str("    };\n");
    }
    let types = indented(&names.declarations(), 2);
    let text = format!(
        "declare namespace {namespace} {{\n{types}  interface Client extends BelljarApi {{\n{client}  }}\n}}\n"
    );
    (text, left_out)
}

/// Returns the TypeScript declaration of one operation and of all types that it refers to.
pub(crate) fn one(document: &Document, operation: &Operation<'_>) -> String {
    let mut names = Names::with_budget(document.root(), BUDGET_ONE);
    let mut text = method(operation, &mut names);
    for parameter in &operation.parameters {
        let words = parameter.description.map(|it| one_line(it, 200)).unwrap_or_default();
        if !words.is_empty() {
            text.push_str(&format!("// {}: {words}\n", argument_key(&parameter.argument)));
        }
    }
    let types = names.declarations();
    if !types.is_empty() {
        text.push('\n');
        text.push_str(&types);
    }
    match text.char_indices().nth(MAX_ONE) {
        Some((at, _)) => format!("{}\n// … truncated\n", text.get(..at).unwrap_or_default()),
        None => text,
    }
}

/// Returns the TypeScript declaration of an operation's function, with its doc comment.
fn method(operation: &Operation<'_>, names: &mut Names<'_>) -> String {
    let words = operation.summary.or(operation.description).unwrap_or_default();
    let old = if operation.is_deprecated { "Deprecated. " } else { "" };
    let doc = format!("{old}{} {}\n{words}", operation.method, operation.path);
    let doc = comment(&doc, MAX_COMMENT).unwrap_or_default();
    let mut is_optional = true;
    let mut members = Vec::new();
    for parameter in &operation.parameters {
        is_optional &= !parameter.is_required;
        members.extend(member(parameter, names));
    }
    if let Some(body) = &operation.body {
        is_optional &= !body.is_required;
        let shape = body.schema.map_or_else(|| "unknown".to_owned(), |it| type_of(it, names));
        let shape = match body.kind {
            BodyKind::Json | BodyKind::Form => shape,
            BodyKind::Multipart => "Record<string, unknown>".to_owned(),
            BodyKind::Text => "string".to_owned(),
            BodyKind::Bytes => "Uint8Array | ArrayBuffer | Blob | string".to_owned(),
        };
        members.push(format!("body{}: {shape}", if body.is_required { "" } else { "?" }));
    }
    let arguments = match (members.is_empty(), is_optional) {
        (true, _) => "args?: {}".to_owned(),
        (false, true) => format!("args?: {{ {} }}", members.join("; ")),
        (false, false) => format!("args: {{ {} }}", members.join("; ")),
    };
    let name = &operation.name;
    let result = result_type(operation, names);
    format!("{doc}\n{name}({arguments}, options?: BelljarOptions): Promise<{result}>;\n")
}

fn member(parameter: &Parameter<'_>, names: &mut Names<'_>) -> Option<String> {
    let key = key(&parameter.argument)?;
    let shape = parameter.schema.map_or_else(|| "string".to_owned(), |it| type_of(it, names));
    Some(format!("{key}{}: {shape}", if parameter.is_required { "" } else { "?" }))
}

fn result_type(operation: &Operation<'_>, names: &mut Names<'_>) -> String {
    match &operation.result {
        _ if operation.method == "HEAD" => "Record<string, string>".to_owned(),
        ResponseBody::Json(schemas) => {
            let shapes: Vec<String> = schemas.iter().map(|it| type_of(it, names)).collect();
            shapes.join(" | ")
        }
        ResponseBody::Text => "string".to_owned(),
        ResponseBody::Bytes => "Uint8Array".to_owned(),
        ResponseBody::Nothing => "void".to_owned(),
        ResponseBody::Unknown => "any".to_owned(),
    }
}

fn indented(text: &str, by: usize) -> String {
    let gap = " ".repeat(by);
    text.lines().map(|line| format!("{gap}{line}\n")).collect()
}
