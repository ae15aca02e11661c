//! Converts JSON Schemas to TypeScript types for models to read.
//!
//! Schemas are untrusted: they come from MCP servers and published documents. The output consists
//! only of types and comments, whatever the input is: a key or a value becomes an identifier or an
//! ASCII string literal, a description cannot end its comment, references outside the document are
//! ignored, and depth, width and length are limited.
//!
//! Supports JSON Schema 2020-12 as far as TypeScript can express it, and `nullable` of OpenAPI 3.0.
//! Anything else becomes `unknown`, which is always correct.

mod text;

use std::collections::{BTreeMap, BTreeSet};

use percent_encoding::percent_decode_str;
use serde_json::{Map, Value};

pub use text::{comment, identifier, key, literal, type_name};

/// The maximum nesting depth of a converted schema. A deeper schema becomes `unknown`.
const MAX_DEPTH: usize = 24;
/// The maximum number of properties of an object type or members of a union type.
const MAX_WIDTH: usize = 256;
/// The default number of schemas that one [`Names`] converts before the rest becomes `unknown`.
const BUDGET: usize = 20_000;
/// The maximum number of characters of a schema's description.
const MAX_COMMENT: usize = 300;

/// The named TypeScript types of one set of declarations, and the number of schemas that can still
/// be converted.
#[derive(Debug)]
pub struct Names<'a> {
    /// The JSON documents in which references are resolved. The last one is the current document.
    roots: Vec<&'a Value>,
    by_reference: BTreeMap<(usize, String), String>,
    used: BTreeSet<String>,
    /// The types that are named but not yet declared: name, index of the document, schema.
    undeclared: Vec<(String, usize, &'a Value)>,
    budget: usize,
}

impl<'a> Names<'a> {
    /// Creates the set of type names for one JSON document, in which references are resolved.
    pub fn new(root: &'a Value) -> Self {
        Self::with_budget(root, BUDGET)
    }

    /// Creates the set of type names for one JSON document, with a maximum number of schemas to
    /// convert. Schemas beyond the budget become `unknown`.
    pub fn with_budget(root: &'a Value, schemas: usize) -> Self {
        Self {
            roots: vec![root],
            by_reference: BTreeMap::new(),
            used: BTreeSet::new(),
            undeclared: Vec::new(),
            budget: schemas,
        }
    }

    /// Uses another JSON document for the references of the following schemas. Names that are
    /// already used stay reserved.
    pub fn enter(&mut self, root: &'a Value) {
        self.roots.push(root);
    }

    /// Reserves an unused TypeScript type name that resembles `preferred`.
    pub fn claim(&mut self, preferred: &str) -> String {
        let preferred = type_name(preferred);
        let numbered = (2_usize..).map(|number| format!("{preferred}{number}"));
        let mut free = std::iter::once(preferred.clone()).chain(numbered);
        let name = free.find(|name| !self.used.contains(name)).unwrap_or(preferred);
        self.used.insert(name.clone());
        name
    }

    /// Returns `type NAME = …;` for all types that were referred to but not yet declared.
    pub fn declarations(&mut self) -> String {
        let mut out = String::new();
        let current = self.roots.len();
        while let Some((name, root, schema)) = self.undeclared.pop() {
            let kept = self.roots.split_off(root + 1);
            let shape = shape_of(schema, self, 0);
            self.roots.extend(kept);
            if let Some(text) = described(schema) {
                out.push_str(&text);
                out.push('\n');
            }
            out.push_str(&format!("type {name} = {};\n", shape.text));
        }
        debug_assert_eq!(current, self.roots.len(), "the list of documents is restored");
        out
    }

    /// Returns the type name for the target of a reference, or `None` if the target is missing.
    fn name_of(&mut self, reference: &str) -> Option<String> {
        let root = self.roots.len().checked_sub(1)?;
        if let Some(name) = self.by_reference.get(&(root, reference.to_owned())) {
            return Some(name.clone());
        }
        let schema = target(self.roots.get(root)?, reference)?;
        let last = reference.rsplit(['/', '#']).find(|part| !part.is_empty()).unwrap_or("Root");
        let name = self.claim(last);
        self.by_reference.insert((root, reference.to_owned()), name.clone());
        self.undeclared.push((name.clone(), root, schema));
        Some(name)
    }

    fn spend(&mut self) -> bool {
        self.budget = self.budget.saturating_sub(1);
        self.budget > 0
    }
}

/// Returns the TypeScript type of the values that a schema allows.
pub fn type_of(schema: &Value, names: &mut Names<'_>) -> String {
    shape_of(schema, names, 0).text
}

/// Returns the description or title of a JSON schema as a comment.
pub fn described(schema: &Value) -> Option<String> {
    let words = |key: &str| schema.get(key).and_then(Value::as_str);
    comment(words("description").or_else(|| words("title"))?, MAX_COMMENT)
}

/// Returns the value that a reference such as `#/a/b` points to within a document.
fn target<'a>(root: &'a Value, reference: &str) -> Option<&'a Value> {
    let pointer = reference.strip_prefix('#')?;
    root.pointer(&percent_decode_str(pointer).decode_utf8().ok()?)
}

/// A TypeScript type expression, and whether it needs parentheses next to an operator.
struct Shape {
    text: String,
    is_compound: bool,
}

impl Shape {
    fn simple(text: impl Into<String>) -> Self {
        Self { text: text.into(), is_compound: false }
    }

    fn unknown() -> Self {
        Self::simple("unknown")
    }

    fn operand(&self) -> String {
        if self.is_compound { format!("({})", self.text) } else { self.text.clone() }
    }
}

/// Joins TypeScript types with an operator and drops duplicates.
fn joined(shapes: Vec<Shape>, operator: &str) -> Shape {
    let mut texts: Vec<String> = Vec::new();
    for shape in &shapes {
        let text = shape.operand();
        if !texts.contains(&text) {
            texts.push(text);
        }
    }
    match texts.len() {
        0 => Shape::unknown(),
        1 => shapes.into_iter().next().unwrap_or_else(Shape::unknown),
        _ => Shape { text: texts.join(operator), is_compound: true },
    }
}

fn union(shapes: Vec<Shape>) -> Shape {
    if shapes.iter().any(|shape| shape.text == "unknown") {
        return Shape::unknown();
    }
    joined(shapes, " | ")
}

fn intersection(mut shapes: Vec<Shape>) -> Shape {
    shapes.retain(|shape| shape.text != "unknown");
    joined(shapes, " & ")
}

fn shape_of(schema: &Value, names: &mut Names<'_>, depth: usize) -> Shape {
    if depth > MAX_DEPTH || !names.spend() {
        return Shape::unknown();
    }
    let object = match schema {
        Value::Bool(false) => return Shape::simple("never"),
        Value::Object(object) => object,
        Value::Null | Value::Bool(true) | Value::Number(_) | Value::String(_) | Value::Array(_) => {
            return Shape::unknown();
        }
    };
    let shape = without_null(object, names, depth);
    match object.get("nullable") {
        Some(Value::Bool(true)) => union(vec![shape, Shape::simple("null")]),
        _ => shape,
    }
}

/// Converts a JSON schema to a TypeScript type, ignoring `nullable`. All its keywords apply, so
/// their types are joined by `&`.
fn without_null(object: &Map<String, Value>, names: &mut Names<'_>, depth: usize) -> Shape {
    if let Some(value) = object.get("const") {
        return constant(value);
    }
    if let Some(Value::Array(values)) = object.get("enum")
        && values.len() <= MAX_WIDTH
    {
        return union(values.iter().map(constant).collect());
    }
    let mut parts = Vec::new();
    if let Some(Value::String(reference)) = object.get("$ref") {
        parts.push(names.name_of(reference).map_or_else(Shape::unknown, Shape::simple));
    }
    for key in ["anyOf", "oneOf"] {
        if let Some(Value::Array(members)) = object.get(key)
            && (1..=MAX_WIDTH).contains(&members.len())
        {
            parts.push(union(members.iter().map(|one| shape_of(one, names, depth + 1)).collect()));
        }
    }
    if let Some(Value::Array(members)) = object.get("allOf")
        && members.len() <= MAX_WIDTH
    {
        parts.extend(members.iter().map(|one| shape_of(one, names, depth + 1)));
    }
    parts.extend(by_type(object, names, depth));
    intersection(parts)
}

/// Returns the TypeScript type that the keyword `type` names, or that other keywords imply.
fn by_type(object: &Map<String, Value>, names: &mut Names<'_>, depth: usize) -> Option<Shape> {
    match object.get("type") {
        Some(Value::String(name)) => Some(of_type(name, object, names, depth)),
        Some(Value::Array(several)) => {
            let several = several.iter().take(MAX_WIDTH).filter_map(Value::as_str);
            Some(union(several.map(|name| of_type(name, object, names, depth)).collect()))
        }
        _ if has(object, &["properties", "additionalProperties", "patternProperties"]) => {
            Some(of_type("object", object, names, depth))
        }
        _ if has(object, &["items", "prefixItems"]) => Some(of_type("array", object, names, depth)),
        _ => None,
    }
}

fn has(object: &Map<String, Value>, keys: &[&str]) -> bool {
    keys.iter().any(|key| object.contains_key(*key))
}

fn of_type(name: &str, object: &Map<String, Value>, names: &mut Names<'_>, depth: usize) -> Shape {
    match name {
        "string" => Shape::simple("string"),
        "integer" | "number" => Shape::simple("number"),
        "boolean" => Shape::simple("boolean"),
        "null" => Shape::simple("null"),
        "array" => list(object, names, depth),
        "object" => record(object, names, depth),
        _ => Shape::unknown(),
    }
}

fn constant(value: &Value) -> Shape {
    match value {
        Value::String(text) => literal(text).map_or_else(|| Shape::simple("string"), Shape::simple),
        Value::Number(number) => Shape::simple(number.to_string()),
        Value::Bool(_) | Value::Null => Shape::simple(value.to_string()),
        Value::Array(_) => Shape::simple("unknown[]"),
        Value::Object(_) => Shape::simple("Record<string, unknown>"),
    }
}

fn list(object: &Map<String, Value>, names: &mut Names<'_>, depth: usize) -> Shape {
    // A tuple as of 2020-12, and as it was written before.
    let tuple = object.get("prefixItems").or_else(|| object.get("items"));
    if let Some(Value::Array(members)) = tuple
        && members.len() <= MAX_WIDTH
    {
        let members: Vec<String> =
            members.iter().map(|one| shape_of(one, names, depth + 1).text).collect();
        let rest = match object.get("items") {
            Some(Value::Bool(false)) => String::new(),
            _ if members.is_empty() => "...unknown[]".to_owned(),
            _ => ", ...unknown[]".to_owned(),
        };
        return Shape::simple(format!("[{}{rest}]", members.join(", ")));
    }
    let member = object.get("items").map(|items| shape_of(items, names, depth + 1));
    let member = member.unwrap_or_else(Shape::unknown);
    let is_short = !member.is_compound && !member.text.contains('\n');
    match is_short {
        true => Shape::simple(format!("{}[]", member.text)),
        false => Shape::simple(format!("Array<{}>", member.text)),
    }
}

fn record(object: &Map<String, Value>, names: &mut Names<'_>, depth: usize) -> Shape {
    let none = Map::new();
    let properties = object.get("properties").and_then(Value::as_object).unwrap_or(&none);
    let required: BTreeSet<&str> = match object.get("required") {
        Some(Value::Array(required)) => required.iter().filter_map(Value::as_str).collect(),
        _ => BTreeSet::new(),
    };
    let mut lines = Vec::new();
    for (name, schema) in properties.iter().take(MAX_WIDTH) {
        let Some(key) = key(name) else { continue };
        let optional = if required.contains(name.as_str()) { "" } else { "?" };
        let shape = shape_of(schema, names, depth + 1);
        let comment = described(schema).map_or_else(String::new, |text| format!("{text}\n"));
        lines.push(format!("{comment}{key}{optional}: {};", shape.text));
    }
    for name in required.iter().filter(|name| !properties.contains_key(**name)).take(MAX_WIDTH) {
        lines.extend(key(name).map(|key| format!("{key}: unknown;")));
    }
    let extra = extra(object, names, depth);
    match (lines.is_empty(), extra) {
        (true, ExtraProperties::None) => Shape::simple("{}"),
        (true, ExtraProperties::Any) => Shape::simple("Record<string, unknown>"),
        (true, ExtraProperties::Of(shape)) => {
            Shape::simple(format!("Record<string, {}>", shape.text))
        }
        (false, ExtraProperties::Of(shape)) => intersection(vec![
            Shape::simple(braced(&lines)),
            Shape::simple(format!("Record<string, {}>", shape.text)),
        ]),
        // JSON Schema allows additional properties by default, so showing them is no information.
        (false, ExtraProperties::None | ExtraProperties::Any) => Shape::simple(braced(&lines)),
    }
}

/// The type of the properties that an object can have in addition to its named ones.
enum ExtraProperties {
    None,
    Any,
    Of(Shape),
}

fn extra(object: &Map<String, Value>, names: &mut Names<'_>, depth: usize) -> ExtraProperties {
    let patterns = object.get("patternProperties").and_then(Value::as_object);
    let mut shapes: Vec<Shape> = Vec::new();
    for schema in patterns.iter().flat_map(|patterns| patterns.values()).take(MAX_WIDTH) {
        shapes.push(shape_of(schema, names, depth + 1));
    }
    match object.get("additionalProperties") {
        Some(Value::Bool(false)) => {}
        Some(schema @ Value::Object(_)) => shapes.push(shape_of(schema, names, depth + 1)),
        _ => shapes.push(Shape::unknown()),
    }
    if shapes.is_empty() {
        return ExtraProperties::None;
    }
    let shape = union(shapes);
    if shape.text == "unknown" { ExtraProperties::Any } else { ExtraProperties::Of(shape) }
}

/// Returns a TypeScript object type, on one line if its members are short.
fn braced(lines: &[String]) -> String {
    let length: usize = lines.iter().map(|line| line.len() + 1).sum();
    if length <= 72 && !lines.iter().any(|line| line.contains('\n')) {
        return format!("{{ {} }}", lines.join(" ").trim_end_matches(';'));
    }
    format!("{{\n  {}\n}}", lines.join("\n").replace('\n', "\n  "))
}

#[cfg(test)]
mod tests;
