//! The enumerated settings of a template: workspace mode, network level, mount access and recording.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// How a box sees the workspace; a later variant permits more than an earlier one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Mode {
    /// The box can only read the workspace.
    ReadOnly,
    /// The box writes to a separate layer until the user reviews and applies the changes.
    Overlay,
    /// Changes are applied to the user's directory when the program ends, except for files that the
    /// host could later execute.
    Direct,
}

/// The network level of a box; a later variant permits more than an earlier one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Net {
    /// The box has only the loopback interface.
    None,
    /// The box can reach only destinations that a rule allows.
    Restricted,
    /// The box can reach every public host, through the broker.
    Full,
}

/// The access of a box to a mount; a later variant permits more than an earlier one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Access {
    #[serde(rename = "ro")]
    ReadOnly,
    #[serde(rename = "rw")]
    ReadWrite,
}

/// How much of a program's output and command line is recorded in the ledger.
///
/// The event itself is always recorded. A request is recorded with its caller, destination and method,
/// never with its content.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Record {
    /// Record neither content nor hashes.
    None,
    /// Record only hashes, by which a copy of the content can be recognized.
    Hashes,
    /// Record the content itself, after secrets are removed.
    Bodies,
}

/// The reason why a text is not a valid recording level.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("unknown recording level; write `hashes`, `bodies` or `none`")]
pub struct RecordError;

/// The error for a text that is not a workspace mode.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("unknown mode; write `overlay`, `direct` or `read-only`")]
pub struct ModeError;

/// The reason why a text is not a valid network level.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("unknown network level; write `none`, `restricted` or `full`")]
pub struct NetError;

/// The reason why a text is not a valid access.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("unknown access; write `ro` or `rw`")]
pub struct AccessError;

impl Mode {
    pub const ALL: [Self; 3] = [Self::ReadOnly, Self::Overlay, Self::Direct];

    pub const fn name(self) -> &'static str {
        match self {
            Self::ReadOnly => "read-only",
            Self::Overlay => "overlay",
            Self::Direct => "direct",
        }
    }
}

impl Net {
    pub const ALL: [Self; 3] = [Self::None, Self::Restricted, Self::Full];

    pub const fn name(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Restricted => "restricted",
            Self::Full => "full",
        }
    }
}

impl Record {
    pub const ALL: [Self; 3] = [Self::None, Self::Hashes, Self::Bodies];

    pub const fn name(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Hashes => "hashes",
            Self::Bodies => "bodies",
        }
    }
}

impl Access {
    pub const ALL: [Self; 2] = [Self::ReadOnly, Self::ReadWrite];

    pub const fn name(self) -> &'static str {
        match self {
            Self::ReadOnly => "ro",
            Self::ReadWrite => "rw",
        }
    }
}

impl FromStr for Mode {
    type Err = ModeError;

    fn from_str(text: &str) -> Result<Self, ModeError> {
        Self::ALL.into_iter().find(|mode| mode.name() == text).ok_or(ModeError)
    }
}

impl FromStr for Net {
    type Err = NetError;

    fn from_str(text: &str) -> Result<Self, NetError> {
        Self::ALL.into_iter().find(|net| net.name() == text).ok_or(NetError)
    }
}

impl FromStr for Record {
    type Err = RecordError;

    fn from_str(text: &str) -> Result<Self, RecordError> {
        Self::ALL.into_iter().find(|record| record.name() == text).ok_or(RecordError)
    }
}

impl FromStr for Access {
    type Err = AccessError;

    fn from_str(text: &str) -> Result<Self, AccessError> {
        Self::ALL.into_iter().find(|access| access.name() == text).ok_or(AccessError)
    }
}

impl fmt::Display for Mode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl fmt::Display for Net {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl fmt::Display for Record {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl fmt::Display for Access {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_setting_value_has_the_same_name_in_text_and_in_json() {
        for mode in Mode::ALL {
            assert_eq!(mode.to_string().parse(), Ok(mode));
            assert_eq!(serde_json::to_string(&mode).unwrap(), format!("\"{mode}\""));
        }
        for net in Net::ALL {
            assert_eq!(net.to_string().parse(), Ok(net));
            assert_eq!(serde_json::to_string(&net).unwrap(), format!("\"{net}\""));
        }
        for record in Record::ALL {
            assert_eq!(record.to_string().parse(), Ok(record));
            assert_eq!(serde_json::to_string(&record).unwrap(), format!("\"{record}\""));
        }
        for access in Access::ALL {
            assert_eq!(access.to_string().parse(), Ok(access));
            assert_eq!(serde_json::to_string(&access).unwrap(), format!("\"{access}\""));
        }
        assert_eq!("".parse::<Net>(), Err(NetError));
        assert_eq!("Direct".parse::<Mode>(), Err(ModeError));
        assert_eq!("wo".parse::<Access>(), Err(AccessError));
        assert_eq!("all".parse::<Record>(), Err(RecordError));
    }

    #[test]
    fn setting_that_permits_more_compares_greater() {
        assert!(Mode::ReadOnly < Mode::Overlay && Mode::Overlay < Mode::Direct);
        assert!(Net::None < Net::Restricted && Net::Restricted < Net::Full);
        assert!(Access::ReadOnly < Access::ReadWrite);
    }
}
