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

/// The reason why a value of the file is invalid, with the part of the value at fault.
#[derive(Debug)]
pub(super) enum Invalid {
    Here(String),
    /// A value in a list is invalid, with the key of the list if that is not the requested key.
    Element {
        key: Option<&'static str>,
        at: Range<usize>,
        what: String,
    },
    /// A value of a key in a nested table is invalid.
    Inside {
        key: &'static str,
        at: Range<usize>,
        what: String,
    },
    /// A nested table has an unknown key.
    Unknown {
        key: String,
        at: Range<usize>,
        known: Vec<&'static str>,
    },
}

/// A function that parses the value of a key and stores it in a struct.
pub(super) type ParseValue<T> = fn(&mut T, &Value<'_>) -> Result<(), Invalid>;

/// All keys of a template section; every other key is unknown.
pub(super) const KEYS: [(&str, ParseValue<Overrides>); 23] = [
    ("mode", |overrides, value| set(&mut overrides.mode, scalar(value))),
    ("net", |overrides, value| set(&mut overrides.net, scalar(value))),
    ("record", |overrides, value| set(&mut overrides.record, scalar(value))),
    ("mounts", |overrides, value| fill(&mut overrides.mounts, list(value))),
    ("rootfs", |overrides, value| set(&mut overrides.rootfs, path(value))),
    ("env", |overrides, value| fill(&mut overrides.env, list(value))),
    ("user", |overrides, value| set(&mut overrides.user, number(value))),
    ("memory", |overrides, value| set(&mut overrides.memory, scalar(value))),
    ("cpus", |overrides, value| set(&mut overrides.cpus, scalar(value))),
    ("pids", |overrides, value| set(&mut overrides.pids, number(value))),
    ("disk", |overrides, value| set(&mut overrides.disk, scalar(value))),
    ("files", |overrides, value| set(&mut overrides.files, number(value))),
    ("output-limit", |overrides, value| set(&mut overrides.output, scalar(value))),
    ("timeout", |overrides, value| set(&mut overrides.timeout, scalar(value))),
    ("weaken", |overrides, value| fill(&mut overrides.weaken, list(value))),
    ("require", |overrides, value| fill(&mut overrides.require, list(value))),
    ("allow", |overrides, value| fill(&mut overrides.allow, rules::allow(value))),
    ("deny", |overrides, value| fill(&mut overrides.deny, rules::deny(value))),
    ("ask", |overrides, value| fill(&mut overrides.ask, rules::ask(value))),
    ("ask-timeout", |overrides, value| set(&mut overrides.ask_timeout, scalar(value))),
    ("secrets", |overrides, value| fill(&mut overrides.secrets, list(value))),
    ("budget", |overrides, value| table(&mut overrides.budget, &BUDGET, value)),
    ("health", |overrides, value| set(&mut overrides.health, scalar(value))),
];

/// The keys of a budget table.
pub(super) const BUDGET: [(&str, ParseValue<Budget>); 4] = [
    ("requests", |budget, value| set(&mut budget.requests, number(value))),
    ("bytes", |budget, value| set(&mut budget.bytes, scalar(value))),
    ("tokens", |budget, value| set(&mut budget.tokens, number(value))),
    ("money", |budget, value| set(&mut budget.money, scalar(value))),
];

/// Parses a nested TOML table and refuses unknown keys.
pub(super) fn table<T>(
    into: &mut T,
    keys: &[(&'static str, ParseValue<T>)],
    value: &Value<'_>,
) -> Result<(), Invalid> {
    let DeValue::Table(table) = value.get_ref() else {
        return Err(invalid("must be a table"));
    };
    for (key, value) in table {
        let Some((known, take)) = keys.iter().find(|(known, _)| known == key.get_ref()) else {
            let known = keys.iter().map(|(known, _)| *known).collect();
            return Err(Invalid::Unknown { key: key.get_ref().to_string(), at: key.span(), known });
        };
        take(into, value).map_err(|invalid| match invalid {
            Invalid::Here(what) => Invalid::Inside { key: known, at: value.span(), what },
            Invalid::Element { key: None, at, what } => {
                Invalid::Element { key: Some(known), at, what }
            }
            invalid @ (Invalid::Element { .. }
            | Invalid::Inside { .. }
            | Invalid::Unknown { .. }) => invalid,
        })?;
    }
    Ok(())
}

pub(super) fn set<T>(place: &mut Option<T>, value: Result<T, Invalid>) -> Result<(), Invalid> {
    *place = Some(value?);
    Ok(())
}

pub(super) fn fill<T>(place: &mut Vec<T>, value: Result<Vec<T>, Invalid>) -> Result<(), Invalid> {
    *place = value?;
    Ok(())
}

pub(super) fn invalid(what: impl Display) -> Invalid {
    Invalid::Here(what.to_string())
}

/// Parses a TOML string, or a number by its digits: `cpus = 2` and `cpus = "2"` are the same.
pub(super) fn text(value: &Value<'_>) -> Result<String, Invalid> {
    match value.get_ref() {
        DeValue::String(text) => Ok(text.to_string()),
        DeValue::Integer(number) => Ok(number.to_string()),
        DeValue::Float(number) => Ok(number.to_string()),
        DeValue::Boolean(_) | DeValue::Datetime(_) | DeValue::Array(_) | DeValue::Table(_) => {
            Err(invalid("must be a string or a number"))
        }
    }
}

pub(super) fn scalar<T: FromStr<Err: Display>>(value: &Value<'_>) -> Result<T, Invalid> {
    text(value)?.parse().map_err(invalid)
}

pub(super) fn number<T: FromStr>(value: &Value<'_>) -> Result<T, Invalid> {
    text(value)?.parse().map_err(|_| invalid("must be a whole number, and not too large"))
}

pub(super) fn path(value: &Value<'_>) -> Result<PathBuf, Invalid> {
    match value.get_ref() {
        DeValue::String(text) if text.is_empty() => Err(invalid("the path is empty")),
        DeValue::String(text) if text.contains('\0') => {
            Err(invalid("the path contains a NUL byte"))
        }
        DeValue::String(text) => Ok(PathBuf::from(text.as_ref())),
        DeValue::Integer(_)
        | DeValue::Float(_)
        | DeValue::Boolean(_)
        | DeValue::Datetime(_)
        | DeValue::Array(_)
        | DeValue::Table(_) => Err(invalid("must be a string")),
    }
}

pub(super) fn list<T: FromStr<Err: Display>>(value: &Value<'_>) -> Result<Vec<T>, Invalid> {
    let DeValue::Array(elements) = value.get_ref() else {
        return Err(invalid("must be a list of strings"));
    };
    let element = |value: &Value<'_>| {
        let at = |what: String| Invalid::Element { key: None, at: value.span(), what };
        let DeValue::String(text) = value.get_ref() else {
            return Err(at("must be a string".to_owned()));
        };
        text.parse().map_err(|error: T::Err| at(error.to_string()))
    };
    elements.iter().map(element).collect()
}
