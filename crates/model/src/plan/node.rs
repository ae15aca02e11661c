//! The tree of values that TOML and JSON files have in common, with the position of each value.

use std::borrow::Cow;
use std::ops::Range;

use serde_json::{Number, Value as Json};
use toml::Spanned;
use toml::de::{DeArray, DeString, DeTable, DeValue};

use super::fault::{Collector, quote};
use super::json;

/// The maximum size of a plan file.
pub(super) const MAX_FILE: usize = 4 << 20; // bytes
/// The maximum length of one text in a plan, and of one item of `for_each`.
pub(super) const MAX_TEXT: usize = 64 << 10; // bytes
/// The maximum depth of lists and tables in each other. No plan needs more than a few levels, except in
/// the data of `stub`, `values` and `equals`.
pub(super) const MAX_NESTING: usize = 64;
/// The maximum number of values in a file, which bounds the memory of the tree.
pub(super) const MAX_VALUES: usize = 1_000_000;

/// A value with its position in the file.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Node {
    pub(super) at: Range<usize>,
    pub(super) value: NodeValue,
}

#[derive(Debug, Clone, PartialEq)]
pub(super) enum NodeValue {
    /// Exists in JSON only; as the value of a key it means that the key is missing.
    Null,
    Boolean(bool),
    Number(Number),
    Text(String),
    /// A date of TOML, which no key takes.
    Date,
    List(Vec<Node>),
    /// The entries in the order of the file, each key once.
    Table(Vec<(Key, Node)>),
}

/// A key of a table with its position in the file.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Key {
    pub(super) at: Range<usize>,
    pub(super) text: String,
}

/// The positions at which the lines of a text begin.
#[derive(Debug)]
pub(super) struct LineStarts(Vec<usize>);

impl LineStarts {
    pub(super) fn of(text: &str) -> Self {
        let ends = text.bytes().enumerate().filter(|(_, byte)| *byte == b'\n');
        Self(std::iter::once(0).chain(ends.map(|(at, _)| at + 1)).collect())
    }

    /// Returns the number of the line that contains the byte at this position, counted from 1.
    pub(super) fn line(&self, at: usize) -> usize {
        self.0.partition_point(|start| *start <= at)
    }
}

/// Returns the number for the digits of a file, or `None` if it is out of range.
pub(super) fn number(digits: &str, radix: u32) -> Option<Number> {
    let is_float = radix == 10 && digits.contains(['.', 'e', 'E', 'n']);
    if is_float {
        return digits.parse().ok().and_then(Number::from_f64);
    }
    let signed = i64::from_str_radix(digits, radix).map(Number::from);
    signed.or_else(|_| u64::from_str_radix(digits, radix).map(Number::from)).ok()
}

/// Returns the tree of a plan file, or `None` if the file is invalid. TOML and JSON are distinguished by
/// the file extension, or else by the first character.
pub(super) fn read(
    text: &str,
    file: &str,
    lines: &LineStarts,
    faults: &mut Collector,
) -> Option<Node> {
    if is_json(text, file) { json::read(text, lines, faults) } else { toml(text, lines, faults) }
}

pub(super) fn is_json(text: &str, file: &str) -> bool {
    match std::path::Path::new(file).extension().and_then(|extension| extension.to_str()) {
        Some("json") => true,
        Some("toml") => false,
        Some(_) | None => text.trim_start().starts_with('{'),
    }
}

fn toml(text: &str, lines: &LineStarts, faults: &mut Collector) -> Option<Node> {
    let (root, errors) = DeTable::parse_recoverable(text);
    if errors.is_empty() {
        let mut import = Import { lines, faults, values: 0 };
        let at = root.span();
        let entries = import.table(root.into_inner(), 0);
        return Some(Node { at, value: NodeValue::Table(entries) });
    }
    for error in errors {
        let at = error.span().unwrap_or_default();
        faults.add(lines.line(at.start), || match error.message() {
            "duplicate key" => {
                format!("duplicate key `{}`", quote(text.get(at).unwrap_or_default()))
            }
            message => message.replace('\n', ", "),
        });
    }
    None
}

/// The conversion of a TOML document.
struct Import<'a> {
    lines: &'a LineStarts,
    faults: &'a mut Collector,
    values: usize,
}

impl Import<'_> {
    fn table(&mut self, table: DeTable<'_>, depth: usize) -> Vec<(Key, Node)> {
        let mut entries = Vec::new();
        for (key, value) in table {
            let key = Key { at: key.span(), text: key.into_inner().into_owned() };
            entries.push((key, self.node(value, depth + 1)));
        }
        // The parser sorts tables by key.
        entries.sort_by_key(|(key, _)| key.at.start);
        entries
    }

    fn node(&mut self, value: Spanned<DeValue<'_>>, depth: usize) -> Node {
        let at = value.span();
        self.values += 1;
        if depth > MAX_NESTING || self.values > MAX_VALUES {
            let line = self.lines.line(at.start);
            self.faults.add(line, || match depth > MAX_NESTING {
                true => too_deep(),
                false => too_many(),
            });
            return Node { at, value: NodeValue::Null };
        }
        let converted = match value.into_inner() {
            DeValue::String(text) => NodeValue::Text(text.into_owned()),
            DeValue::Integer(it) => self.number(&at, number(it.as_str(), it.radix())),
            DeValue::Float(it) => self.number(&at, number(it.as_str(), 10)),
            DeValue::Boolean(it) => NodeValue::Boolean(it),
            DeValue::Datetime(_) => NodeValue::Date,
            DeValue::Array(elements) => NodeValue::List(
                elements.into_iter().map(|element| self.node(element, depth + 1)).collect(),
            ),
            DeValue::Table(table) => NodeValue::Table(self.table(table, depth)),
        };
        Node { at, value: converted }
    }

    fn number(&mut self, at: &Range<usize>, number: Option<Number>) -> NodeValue {
        number.map_or_else(
            || {
                self.faults.add(self.lines.line(at.start), out_of_range);
                NodeValue::Null
            },
            NodeValue::Number,
        )
    }
}

pub(super) fn too_deep() -> String {
    format!("lists and tables are nested more than {MAX_NESTING} levels deep")
}

pub(super) fn too_many() -> String {
    format!("the file has more than {MAX_VALUES} values")
}

pub(super) fn out_of_range() -> String {
    "the number is too large or not finite".to_owned()
}

impl Node {
    /// Returns the value as JSON data, or the position of a value that JSON does not have.
    pub(super) fn json(&self) -> Result<Json, usize> {
        Ok(match &self.value {
            NodeValue::Null => Json::Null,
            NodeValue::Boolean(it) => Json::Bool(*it),
            NodeValue::Number(it) => Json::Number(it.clone()),
            NodeValue::Text(text) => Json::String(text.clone()),
            NodeValue::Date => return Err(self.at.start),
            NodeValue::List(nodes) => {
                Json::Array(nodes.iter().map(Self::json).collect::<Result<_, _>>()?)
            }
            NodeValue::Table(entries) => {
                let mut object = serde_json::Map::new();
                for (key, node) in entries {
                    object.insert(key.text.clone(), node.json()?);
                }
                Json::Object(object)
            }
        })
    }

    /// Returns the value as the parser of `belljar.toml` reads it, with the same positions, or `None`
    /// for a value that TOML does not have. Keys with the value `null` are omitted. `text` is the file.
    pub(super) fn toml<'t>(&self, text: &'t str) -> Option<Spanned<DeValue<'t>>> {
        let value = match &self.value {
            NodeValue::Null | NodeValue::Date => return None,
            NodeValue::Boolean(it) => DeValue::Boolean(*it),
            // Every number of JSON is also a number of TOML.
            NodeValue::Number(_) => DeValue::parse(text.get(self.at.clone())?).ok()?.into_inner(),
            NodeValue::Text(text) => DeValue::String(Cow::Owned(text.clone())),
            NodeValue::List(nodes) => {
                let mut list = DeArray::new();
                for node in nodes {
                    list.push(node.toml(text)?);
                }
                DeValue::Array(list)
            }
            NodeValue::Table(entries) => {
                let mut table = DeTable::new();
                for (key, node) in entries.iter().filter(|(_, node)| !node.is_null()) {
                    let name: DeString<'t> = Cow::Owned(key.text.clone());
                    table.insert(Spanned::new(key.at.clone(), name), node.toml(text)?);
                }
                DeValue::Table(table)
            }
        };
        Some(Spanned::new(self.at.clone(), value))
    }

    pub(super) fn number(&self) -> Option<&Number> {
        if let NodeValue::Number(number) = &self.value { Some(number) } else { None }
    }

    pub(super) fn is_null(&self) -> bool {
        matches!(self.value, NodeValue::Null)
    }
}
