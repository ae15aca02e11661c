//! One way a file is wrong, in the words of the file.

use std::fmt;
use std::path::PathBuf;

use crate::display::safe_line;

/// What is wrong with a `belljar.toml`, and where. Safe to print: a project's file is not trusted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConfigError {
    pub file: PathBuf,
    /// Counted from 1.
    pub line: usize,
    pub fault: Fault,
}

/// What is wrong.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Fault {
    /// Not TOML at all.
    Syntax {
        what: String,
    },
    UnknownKey {
        key: String,
        nearest: Option<&'static str>,
        known: Vec<&'static str>,
    },
    /// A value, quoted from the file, that its key does not take.
    Value {
        key: String,
        quoted: String,
        what: String,
    },
    /// One value of a list.
    Element {
        key: String,
        quoted: String,
        what: String,
    },
    /// Values that contradict each other.
    Impossible {
        template: String,
        key: &'static str,
        what: String,
    },
    TemplateName {
        name: String,
        what: String,
    },
    /// A secret, a service or a server that is not declared as one can be.
    Declared {
        section: &'static str,
        name: String,
        what: String,
    },
    /// A section that a project's file cannot have.
    OperatorOnly {
        section: String,
    },
    /// A project asks for more than the operator allows.
    Loosens {
        template: String,
        key: &'static str,
        project: String,
        operator: String,
    },
    /// The same, of what an agent may do.
    Permits {
        key: &'static str,
        asked: String,
    },
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
                write!(f, "unknown key `{key}`; there are {}", known.join(", "))
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
                "`[{section}]` is for the operator's own file; a project may only tighten"
            ),
            Self::Loosens { template, key, project, operator } => write!(
                f,
                "`{key}` of template `{template}`: {project}, but the operator has {operator}; \
                 a project may only tighten"
            ),
            Self::Permits { key, asked } => write!(
                f,
                "`{asked}` in `{key}` of `permissions`: a project may only deny, and have the agent ask"
            ),
        }
    }
}
