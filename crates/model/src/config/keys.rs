//! The keys of a template, and parsers for values that all tables share.

use std::fmt::Display;
use std::ops::Range;
use std::path::PathBuf;
use std::str::FromStr;

use toml::Spanned;
use toml::de::DeValue;

use super::rules;
use crate::net::Budget;
use crate::template::Overrides;

/// A TOML value with its position in the file.
pub(super) type Value<'a> = Spanned<DeValue<'a>>;

/// The reason why a value is invalid, with the part of it at fault.
#[derive(Debug)]
pub(super) enum Wrong {
    Here(String),
    /// An invalid value of a list, with the key of the list if that is not the requested key.
    Element {
        key: Option<&'static str>,
        at: Range<usize>,
        what: String,
    },
    /// An invalid value of a key in a nested table.
    Inside {
        key: &'static str,
        at: Range<usize>,
        what: String,
    },
    /// An unknown key in a nested table.
    Unknown {
        key: String,
        at: Range<usize>,
        known: Vec<&'static str>,
    },
}

/// Parses the value of a key and stores it in a struct.
pub(super) type Take<T> = fn(&mut T, &Value<'_>) -> Result<(), Wrong>;

/// All keys of a template; every other key is unknown.
pub(super) const KEYS: [(&str, Take<Overrides>); 23] = [
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
    ("allow", |said, value| fill(&mut said.allow, rules::allow(value))),
    ("deny", |said, value| fill(&mut said.deny, rules::deny(value))),
    ("ask", |said, value| fill(&mut said.ask, rules::ask(value))),
    ("ask-timeout", |said, value| set(&mut said.ask_timeout, scalar(value))),
    ("secrets", |said, value| fill(&mut said.secrets, list(value))),
    ("budget", |said, value| table(&mut said.budget, &BUDGET, value)),
    ("health", |said, value| set(&mut said.health, scalar(value))),
];

/// The keys of a budget.
pub(super) const BUDGET: [(&str, Take<Budget>); 4] = [
    ("requests", |budget, value| set(&mut budget.requests, number(value))),
    ("bytes", |budget, value| set(&mut budget.bytes, scalar(value))),
    ("tokens", |budget, value| set(&mut budget.tokens, number(value))),
    ("money", |budget, value| set(&mut budget.money, scalar(value))),
];

/// Parses a nested table and refuses unknown keys.
pub(super) fn table<T>(
    into: &mut T,
    keys: &[(&'static str, Take<T>)],
    value: &Value<'_>,
) -> Result<(), Wrong> {
    let DeValue::Table(table) = value.get_ref() else {
        return Err(wrong("must be a table"));
    };
    for (key, value) in table {
        let Some((known, take)) = keys.iter().find(|(known, _)| known == key.get_ref()) else {
            let known = keys.iter().map(|(known, _)| *known).collect();
            return Err(Wrong::Unknown { key: key.get_ref().to_string(), at: key.span(), known });
        };
        take(into, value).map_err(|wrong| match wrong {
            Wrong::Here(what) => Wrong::Inside { key: known, at: value.span(), what },
            Wrong::Element { key: None, at, what } => Wrong::Element { key: Some(known), at, what },
            wrong @ (Wrong::Element { .. } | Wrong::Inside { .. } | Wrong::Unknown { .. }) => wrong,
        })?;
    }
    Ok(())
}

pub(super) fn set<T>(place: &mut Option<T>, value: Result<T, Wrong>) -> Result<(), Wrong> {
    *place = Some(value?);
    Ok(())
}

pub(super) fn fill<T>(place: &mut Vec<T>, value: Result<Vec<T>, Wrong>) -> Result<(), Wrong> {
    *place = value?;
    Ok(())
}

pub(super) fn wrong(what: impl Display) -> Wrong {
    Wrong::Here(what.to_string())
}

/// Parses a string, or a number by its digits: `cpus = 2` and `cpus = "2"` are the same.
pub(super) fn text(value: &Value<'_>) -> Result<String, Wrong> {
    match value.get_ref() {
        DeValue::String(text) => Ok(text.to_string()),
        DeValue::Integer(number) => Ok(number.to_string()),
        DeValue::Float(number) => Ok(number.to_string()),
        DeValue::Boolean(_) | DeValue::Datetime(_) | DeValue::Array(_) | DeValue::Table(_) => {
            Err(wrong("must be a string or a number"))
        }
    }
}

pub(super) fn scalar<T: FromStr<Err: Display>>(value: &Value<'_>) -> Result<T, Wrong> {
    text(value)?.parse().map_err(wrong)
}

pub(super) fn number<T: FromStr>(value: &Value<'_>) -> Result<T, Wrong> {
    text(value)?.parse().map_err(|_| wrong("must be a whole number, and not too large"))
}

pub(super) fn path(value: &Value<'_>) -> Result<PathBuf, Wrong> {
    match value.get_ref() {
        DeValue::String(text) if text.is_empty() => Err(wrong("the path is empty")),
        DeValue::String(text) if text.contains('\0') => Err(wrong("the path contains a NUL byte")),
        DeValue::String(text) => Ok(PathBuf::from(text.as_ref())),
        DeValue::Integer(_)
        | DeValue::Float(_)
        | DeValue::Boolean(_)
        | DeValue::Datetime(_)
        | DeValue::Array(_)
        | DeValue::Table(_) => Err(wrong("must be a string")),
    }
}

pub(super) fn list<T: FromStr<Err: Display>>(value: &Value<'_>) -> Result<Vec<T>, Wrong> {
    let DeValue::Array(elements) = value.get_ref() else {
        return Err(wrong("must be a list of strings"));
    };
    let element = |value: &Value<'_>| {
        let at = |what: String| Wrong::Element { key: None, at: value.span(), what };
        let DeValue::String(text) = value.get_ref() else {
            return Err(at("must be a string".to_owned()));
        };
        text.parse().map_err(|error: T::Err| at(error.to_string()))
    };
    elements.iter().map(element).collect()
}
