//! Complete requests of a caller: for a box, or for one run of a program.
//!
//! A spec depends on no current directory, home directory or command line: its paths are absolute, and
//! every missing value comes from the template of `belljar.toml` that it names. Its format is JSON, and
//! unknown fields are refused.
//!
//! **Invariant:** a spec read from JSON has passed [`BoxSpec::check`] or [`RunSpec::check`]. Code that
//! builds a spec in memory calls the check itself.

mod argv;
mod options_0_1;
#[cfg(test)]
mod tests;

use std::fmt;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

pub use argv::{Argv, ArgvError};
pub use options_0_1::Options01Error;

use crate::agent::AgentName;
use crate::boxes::NetworkChange;
use crate::id::RunName;
use crate::net::{Allow, Rule, RuleError, by_text};
use crate::record::path_bytes;
use crate::repo::Identity;
use crate::template::{DEFAULT_TEMPLATE, Overrides};

/// The request for a box: template, overrides, workspace, program and network.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(remote = "Self", deny_unknown_fields)]
pub struct BoxSpec {
    pub version: SpecVersion,
    /// The name of a template in `belljar.toml`.
    #[serde(default = "default_template")]
    pub template: String,
    #[serde(default)]
    pub tier: Tier,
    /// The values that differ from the template. Its `health` is not used: see [`BoxSpec::health`].
    #[serde(default)]
    pub overrides: Overrides,
    #[serde(default)]
    pub workspace: WorkspaceSpec,
    /// The agent that the box is prepared for.
    pub agent: Option<AgentName>,
    /// The program to run. `None` means the agent, or a shell without an agent.
    pub program: Option<Argv>,
    /// Whether the program gets a terminal, to which users can attach.
    #[serde(default)]
    pub terminal: bool,
    /// A shell command that runs in the box and reports whether the box is healthy.
    pub health: Option<String>,
    /// The author of commits in the box. `None` means the git configuration of the host.
    pub git_identity: Option<Identity>,
    /// The changes that `belljar network` made since the box was created.
    pub network: Option<NetworkChange>,
    /// The operator's file. `None` means the user's own `belljar.toml`.
    #[serde(with = "path_bytes::option", default)]
    pub config_file: Option<PathBuf>,
}

/// The requested workspace of a box.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum WorkspaceSpec {
    #[default]
    None,
    /// The workspace is a directory of the user.
    Directory(#[serde(with = "path_bytes")] PathBuf),
    /// The workspace is a private clone of one of the user's repositories.
    Clone {
        #[serde(with = "path_bytes")]
        repo: PathBuf,
        /// The branch, tag or commit that is cloned. `None` means the one that is checked out.
        branch: Option<String>,
        /// Whether uncommitted changes are copied into the clone too.
        #[serde(default)]
        uncommitted: bool,
    },
}

/// The request for one run of a program in a new box.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(remote = "Self", deny_unknown_fields)]
pub struct RunSpec {
    pub version: SpecVersion,
    pub name: Option<RunName>,
    /// The box. Its `program` and `terminal` are not used, because the run has its own.
    pub on: BoxSpec,
    pub program: Argv,
    /// The size of the program's terminal, if it gets one. `None` means that the program gets
    /// pipes.
    pub terminal: Option<TerminalSize>,
}

/// The number of rows and columns of a terminal.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TerminalSize {
    pub rows: u16,
    pub columns: u16,
}

/// The technology that isolates a box from the host.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub enum Tier {
    /// The box is isolated by namespaces and the other mechanisms of the host kernel.
    #[default]
    Native,
}

/// The reason why a text is not the name of a tier.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("unknown tier; the only one is `native`")]
pub struct TierError;

/// The version number of the spec format; only version 1 exists.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct SpecVersion(());

/// The reason why the spec of a box or run is invalid.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SpecError {
    #[error("invalid `{field}`: {} is not an absolute path", path.display())]
    Relative { field: &'static str, path: PathBuf },
    #[error("invalid `{field}`: a path cannot contain a NUL byte")]
    Nul { field: &'static str },
    #[error("invalid `{field}`: {error}")]
    Rule { field: &'static str, error: RuleError },
    #[error("invalid `program`: {0}")]
    Program(ArgvError),
    #[error("`overrides.health` is not used in a spec; write it as `health`")]
    Health,
    #[error("`on.{field}` is not used in a run; write it as `{field}`")]
    OfTheRun { field: &'static str },
}

impl Default for BoxSpec {
    fn default() -> Self {
        Self {
            version: SpecVersion::default(),
            template: default_template(),
            tier: Tier::default(),
            overrides: Overrides::default(),
            workspace: WorkspaceSpec::default(),
            agent: None,
            program: None,
            terminal: false,
            health: None,
            git_identity: None,
            network: None,
            config_file: None,
        }
    }
}

fn default_template() -> String {
    DEFAULT_TEMPLATE.to_owned()
}

impl BoxSpec {
    /// Returns an error if the spec has relative paths or rules that no file and no flag can
    /// express.
    pub fn check(&self) -> Result<(), SpecError> {
        // Destructured without `..`, so that a new field cannot be forgotten here.
        let Self {
            version: _,
            template: _,
            tier: _,
            overrides,
            workspace,
            agent: _,
            program: _,
            terminal: _,
            health: _,
            git_identity: _,
            network,
            config_file,
        } = self;
        check_overrides(overrides)?;
        workspace.check()?;
        if let Some(NetworkChange { net: _, allow, deny }) = network {
            rules("network.allow", allow, Allow::check)?;
            rules("network.deny", deny, Rule::check_deny)?;
        }
        config_file.as_deref().map_or(Ok(()), |path| absolute("config_file", path))
    }
}

fn check_overrides(overrides: &Overrides) -> Result<(), SpecError> {
    overrides.mounts.iter().try_for_each(|mount| absolute("overrides.mounts", mount.source()))?;
    overrides.rootfs.as_deref().map_or(Ok(()), |path| absolute("overrides.rootfs", path))?;
    rules("overrides.allow", &overrides.allow, Allow::check)?;
    rules("overrides.deny", &overrides.deny, Rule::check_deny)?;
    rules("overrides.ask", &overrides.ask, Rule::check_ask)?;
    if overrides.health.is_some() { Err(SpecError::Health) } else { Ok(()) }
}

fn rules<T>(
    field: &'static str,
    rules: &[T],
    check: impl Fn(&T) -> Result<(), RuleError>,
) -> Result<(), SpecError> {
    rules.iter().try_for_each(check).map_err(|error| SpecError::Rule { field, error })
}

impl WorkspaceSpec {
    fn check(&self) -> Result<(), SpecError> {
        match self {
            Self::None => Ok(()),
            Self::Directory(path) => absolute("workspace.directory", path),
            Self::Clone { repo, branch: _, uncommitted: _ } => {
                absolute("workspace.clone.repo", repo)
            }
        }
    }
}

impl RunSpec {
    /// Returns the errors of [`BoxSpec::check`], and an error for a program or terminal inside `on`.
    pub fn check(&self) -> Result<(), SpecError> {
        self.on.check()?;
        if self.on.program.is_some() {
            return Err(SpecError::OfTheRun { field: "program" });
        }
        if self.on.terminal {
            return Err(SpecError::OfTheRun { field: "terminal" });
        }
        Ok(())
    }
}

fn absolute(field: &'static str, path: &Path) -> Result<(), SpecError> {
    if path.as_os_str().as_encoded_bytes().contains(&0) {
        return Err(SpecError::Nul { field });
    }
    if !path.is_absolute() {
        return Err(SpecError::Relative { field, path: path.to_owned() });
    }
    Ok(())
}

impl Serialize for BoxSpec {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        Self::serialize(self, serializer)
    }
}

/// Deserializes a box spec and calls [`BoxSpec::check`].
impl<'de> Deserialize<'de> for BoxSpec {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let spec = Self::deserialize(deserializer)?;
        spec.check().map_err(serde::de::Error::custom)?;
        Ok(spec)
    }
}

impl Serialize for RunSpec {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        Self::serialize(self, serializer)
    }
}

/// Deserializes a run spec and calls [`RunSpec::check`].
impl<'de> Deserialize<'de> for RunSpec {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let spec = Self::deserialize(deserializer)?;
        spec.check().map_err(serde::de::Error::custom)?;
        Ok(spec)
    }
}

impl Tier {
    pub const ALL: [Self; 1] = [Self::Native];

    pub const fn name(self) -> &'static str {
        match self {
            Self::Native => "native",
        }
    }
}

impl FromStr for Tier {
    type Err = TierError;

    fn from_str(text: &str) -> Result<Self, TierError> {
        Self::ALL.into_iter().find(|tier| tier.name() == text).ok_or(TierError)
    }
}

impl fmt::Display for Tier {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

by_text!(Tier);

impl SpecVersion {
    /// The version number of the spec format in the JSON document.
    pub const NUMBER: u32 = 1;
}

impl Serialize for SpecVersion {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_u32(Self::NUMBER)
    }
}

impl<'de> Deserialize<'de> for SpecVersion {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        match u64::deserialize(deserializer)? {
            number if number == u64::from(Self::NUMBER) => Ok(Self(())),
            number => Err(serde::de::Error::custom(format_args!(
                "`version` is {number}; this belljar reads version {}",
                Self::NUMBER
            ))),
        }
    }
}
