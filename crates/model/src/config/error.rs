//! Errors in a configuration file, with file, line and key.

use std::fmt;
use std::path::PathBuf;

use super::tenant_scope::OperatorKey;
use crate::display::safe_line;
use crate::tenant::AboveCeiling;

/// An error in a `belljar.toml`. Safe to print, although a project's file is not trusted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConfigError {
    pub file: PathBuf,
    /// The line number of the error, counted from 1.
    pub line: usize,
    pub fault: Fault,
}

/// The kind of an error in a configuration file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Fault {
    /// The file is not valid TOML.
    Syntax {
        what: String,
    },
    UnknownKey {
        key: String,
        nearest: Option<&'static str>,
        known: Vec<&'static str>,
    },
    /// A value, quoted from the file, is invalid for its key.
    Value {
        key: String,
        quoted: String,
        what: String,
    },
    /// A value in a list is invalid.
    Element {
        key: String,
        quoted: String,
        what: String,
    },
    /// Values of a template contradict each other.
    Impossible {
        template: String,
        key: &'static str,
        what: String,
    },
    TemplateName {
        name: String,
        what: String,
    },
    /// A declaration of a secret, a service or a server is invalid.
    Declared {
        section: &'static str,
        name: String,
        what: String,
    },
    /// The file of a project or of a tenant contains a section that only the operator's file can have.
    OperatorOnly {
        section: String,
    },
    /// The policy of a tenant has a value that only the operator can set.
    OperatorKey(OperatorKey),
    /// A template of a tenant has a limit that the operator does not permit.
    AboveCeiling(AboveCeiling),
    /// A value of the project would permit more than the operator does.
    Loosens {
        template: String,
        key: &'static str,
        project: String,
        operator: String,
    },
    /// A permission rule of the project would permit more than the operator does.
    Permits {
        key: &'static str,
        asked: String,
    },
}

impl ConfigError {
    /// Returns the key, section or name at fault. `None` if the text is not TOML.
    pub fn key(&self) -> Option<&str> {
        match &self.fault {
            Fault::Syntax { .. } => None,
            Fault::UnknownKey { key, .. }
            | Fault::Value { key, .. }
            | Fault::Element { key, .. } => Some(key),
            Fault::Impossible { key, .. }
            | Fault::Loosens { key, .. }
            | Fault::Permits { key, .. } => Some(key),
            Fault::TemplateName { name, .. } | Fault::Declared { name, .. } => Some(name),
            Fault::OperatorOnly { section } => Some(section),
            Fault::OperatorKey(error) => Some(error.key),
            Fault::AboveCeiling(error) => Some(error.key),
        }
    }
}

impl std::error::Error for ConfigError {}

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = format!("{}:{}: {}", self.file.display(), self.line, self.fault);
        f.write_str(&safe_line(text))
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Syntax { what } => f.write_str(what),
            Self::UnknownKey { key, nearest: Some(nearest), .. } => {
                write!(f, "unknown key `{key}`; did you mean `{nearest}`?")
            }
            Self::UnknownKey { key, nearest: None, known } => {
                write!(f, "unknown key `{key}`; the keys are {}", known.join(", "))
            }
            Self::Value { key, quoted, what } => write!(f, "`{key} = {quoted}`: {what}"),
            Self::Element { key, quoted, what } => write!(f, "`{quoted}` in `{key}`: {what}"),
            Self::Impossible { template, key, what } => {
                write!(f, "`{key}` of template `{template}`: {what}")
            }
            Self::TemplateName { name, what } => write!(f, "template `{name}`: {what}"),
            Self::Declared { section, name, what } => write!(f, "{section} `{name}`: {what}"),
            Self::OperatorOnly { section } => write!(
                f,
                "`[{section}]` is only valid in the operator's own file; remove it from this file"
            ),
            Self::AboveCeiling(error) => error.fmt(f),
            Self::OperatorKey(error) => {
                write!(f, "{error}; only the operator of the server can permit that")
            }
            Self::Loosens { template, key, project, operator } => write!(
                f,
                "`{key}` of template `{template}`: {project}, but the operator has {operator}; \
                 a project may only tighten"
            ),
            Self::Permits { key, asked } => write!(
                f,
                "`{asked}` in `{key}` of `permissions`: a project may only set `deny` and `ask`, and `ask` only for the agent"
            ),
        }
    }
}
