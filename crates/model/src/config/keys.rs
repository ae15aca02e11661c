//! The keys of a template and what each does with its value.

use std::fmt::Display;
use std::ops::Range;
use std::path::PathBuf;
use std::str::FromStr;

use toml::Spanned;
use toml::de::DeValue;

use crate::template::Overrides;

/// A value of the file.
pub(super) type Value<'a> = Spanned<DeValue<'a>>;

/// Why a value, or one value of a list, is not taken.
#[derive(Debug)]
pub(super) struct Wrong {
    pub(super) what: String,
    /// Where in the text, if it is one of a list.
    pub(super) element: Option<Range<usize>>,
}

type Take = fn(&mut Overrides, &Value<'_>) -> Result<(), Wrong>;

/// Every key, once: what is not here is unknown.
pub(super) const KEYS: [(&str, Take); 16] = [
    ("mode", |said, value| set(&mut said.mode, scalar(value))),
    ("net", |said, value| set(&mut said.net, scalar(value))),
    ("record", |said, value| set(&mut said.record, scalar(value))),
    ("mounts", |said, value| fill(&mut said.mounts, list(value))),
    ("rootfs", |said, value| set(&mut said.rootfs, path(value))),
    ("env", |said, value| fill(&mut said.env, list(value))),
    ("user", |said, value| set(&mut said.user, number(value))),
    ("memory", |said, value| set(&mut said.memory, scalar(value))),
    ("cpus", |said, value| set(&mut said.cpus, scalar(value))),
    ("pids", |said, value| set(&mut said.pids, number(value))),
    ("disk", |said, value| set(&mut said.disk, scalar(value))),
    ("files", |said, value| set(&mut said.files, number(value))),
    ("output-limit", |said, value| set(&mut said.output, scalar(value))),
    ("timeout", |said, value| set(&mut said.timeout, scalar(value))),
    ("weaken", |said, value| fill(&mut said.weaken, list(value))),
    ("require", |said, value| fill(&mut said.require, list(value))),
];

fn set<T>(place: &mut Option<T>, value: Result<T, Wrong>) -> Result<(), Wrong> {
    *place = Some(value?);
    Ok(())
}

fn fill<T>(place: &mut Vec<T>, value: Result<Vec<T>, Wrong>) -> Result<(), Wrong> {
    *place = value?;
    Ok(())
}

fn wrong(what: impl Display) -> Wrong {
    Wrong { what: what.to_string(), element: None }
}

/// A string, or a number by its digits: `cpus = 2` and `cpus = "2"` are the same.
fn text(value: &Value<'_>) -> Result<String, Wrong> {
    match value.get_ref() {
        DeValue::String(text) => Ok(text.to_string()),
        DeValue::Integer(number) => Ok(number.to_string()),
        DeValue::Float(number) => Ok(number.to_string()),
        DeValue::Boolean(_) | DeValue::Datetime(_) | DeValue::Array(_) | DeValue::Table(_) => {
            Err(wrong("must be a string or a number"))
        }
    }
}

fn scalar<T: FromStr<Err: Display>>(value: &Value<'_>) -> Result<T, Wrong> {
    text(value)?.parse().map_err(wrong)
}

fn number<T: FromStr>(value: &Value<'_>) -> Result<T, Wrong> {
    text(value)?.parse().map_err(|_| wrong("not a whole number, or too large"))
}

fn path(value: &Value<'_>) -> Result<PathBuf, Wrong> {
    match value.get_ref() {
        DeValue::String(text) if text.is_empty() => Err(wrong("the path is empty")),
        DeValue::String(text) if text.contains('\0') => Err(wrong("the path has a NUL in it")),
        DeValue::String(text) => Ok(PathBuf::from(text.as_ref())),
        DeValue::Integer(_)
        | DeValue::Float(_)
        | DeValue::Boolean(_)
        | DeValue::Datetime(_)
        | DeValue::Array(_)
        | DeValue::Table(_) => Err(wrong("must be a string")),
    }
}

fn list<T: FromStr<Err: Display>>(value: &Value<'_>) -> Result<Vec<T>, Wrong> {
    let DeValue::Array(elements) = value.get_ref() else {
        return Err(wrong("must be a list of strings"));
    };
    let element = |value: &Value<'_>| {
        let at = |what: String| Wrong { what, element: Some(value.span()) };
        let DeValue::String(text) = value.get_ref() else {
            return Err(at("must be a string".to_owned()));
        };
        text.parse().map_err(|error: T::Err| at(error.to_string()))
    };
    elements.iter().map(element).collect()
}
