//! The purpose of a box.

use std::fmt;
use std::str::FromStr;

use crate::net::by_text;

/// The purpose of a box: run, call, named box, tool server or clone reader. Lists of runs leave
/// some purposes out.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Purpose {
    /// The box of one `belljar run` command.
    Run,
    /// The box of one program that a model wrote.
    Call,
    /// A named box, which the user can stop and start.
    Box,
    /// The box of an MCP server whose tools programs can call.
    ToolServer,
    /// A box that reads the private clone of another box.
    CloneReader,
    /// The box of one attempt of a plan's task.
    Task,
    /// The run of a plan. Its tasks have their own boxes.
    Plan,
}

/// The reason why a text is not the name of a purpose.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("unknown purpose of a box; write run, call, box, tool-server, clone-reader, task or plan")]
pub struct PurposeError;

impl Purpose {
    pub const ALL: [Self; 7] = [
        Self::Run,
        Self::Call,
        Self::Box,
        Self::ToolServer,
        Self::CloneReader,
        Self::Task,
        Self::Plan,
    ];

    /// Returns whether a user starts boxes of this purpose. Belljar itself starts the others.
    pub const fn is_started_by_user(self) -> bool {
        match self {
            Self::Run | Self::Call | Self::Box | Self::Plan => true,
            Self::ToolServer | Self::CloneReader | Self::Task => false,
        }
    }

    /// Returns the name of the purpose in JSON and in the ledger.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Run => "run",
            Self::Call => "call",
            Self::Box => "box",
            Self::ToolServer => "tool-server",
            Self::CloneReader => "clone-reader",
            Self::Task => "task",
            Self::Plan => "plan",
        }
    }
}

impl FromStr for Purpose {
    type Err = PurposeError;

    fn from_str(text: &str) -> Result<Self, PurposeError> {
        Self::ALL.into_iter().find(|purpose| purpose.name() == text).ok_or(PurposeError)
    }
}

impl fmt::Display for Purpose {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

by_text!(Purpose);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_purpose_has_its_name_as_its_json_text() {
        let names = ["run", "call", "box", "tool-server", "clone-reader", "task", "plan"];
        assert_eq!(Purpose::ALL.map(Purpose::name), names);
        for purpose in Purpose::ALL {
            let text = serde_json::to_string(&purpose).unwrap();
            assert_eq!(text, format!("\"{purpose}\""));
            assert_eq!(serde_json::from_str::<Purpose>(&text).unwrap(), purpose);
        }
        assert!(serde_json::from_str::<Purpose>("\"other\"").is_err());
    }
}
