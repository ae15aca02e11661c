//! Tests in a policy file: requests with the expected decision of the rules.

use std::fmt;
use std::str::FromStr;

use crate::net::RequestLine;

/// One `[[test]]` of a policy file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PolicyTest {
    /// The template whose rules decide.
    pub template: String,
    pub request: RequestLine,
    pub expect: Decision,
    /// The line of the test in the file.
    pub line: usize,
}

/// What the rules of a template decide about a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Decision {
    Deny,
    /// A person decides about each request.
    Ask,
    Allow,
}

/// The reason why a text is not a decision.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("unknown decision; write `allow`, `ask` or `deny`")]
pub struct DecisionError;

impl Decision {
    pub const ALL: [Self; 3] = [Self::Deny, Self::Ask, Self::Allow];

    /// The name of the decision in `belljar.toml`.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Deny => "deny",
            Self::Ask => "ask",
            Self::Allow => "allow",
        }
    }
}

impl FromStr for Decision {
    type Err = DecisionError;

    fn from_str(text: &str) -> Result<Self, DecisionError> {
        Self::ALL.into_iter().find(|decision| decision.name() == text).ok_or(DecisionError)
    }
}

impl fmt::Display for Decision {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}
