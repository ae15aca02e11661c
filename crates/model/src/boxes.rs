//! The stored record of a named box, which exists as long as the box does.

use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::caller::Principal;
use crate::choice::Net;
use crate::id::RunName;
use crate::net::{Allow, Rule};
use crate::record::path_bytes;
use crate::repo::RepoAt;
use crate::spec::{BoxSpec, Options01Error};
use crate::template::Template;

/// The name of a box; its runs have the same name.
pub type BoxName = RunName;

/// The content of `box.json`: how to start the box. Results of its runs are in the runs' own records.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct BoxRecord {
    pub name: BoxName,
    /// The creation time in milliseconds since the Unix epoch.
    pub created: u64,
    /// The request for the box; every start evaluates it again with the current configuration.
    pub spec: BoxSpec,
    /// The directory that relative paths in templates refer to.
    #[serde(with = "path_bytes")]
    pub typed_in: PathBuf,
    /// The workspace of the box, as found when the box was created.
    pub ground: BoxWorkspace,
    /// The principal that created the box. `None` in records of earlier versions: the user of the machine.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub maker: Option<Principal>,
}

/// The content of `box.json` as belljar 0.1 wrote it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct BoxRecord01 {
    pub name: BoxName,
    /// The creation time in milliseconds since the Unix epoch.
    pub created: u64,
    /// The options of `belljar up`, as they were typed.
    pub options: Vec<String>,
    /// The program of the box and its arguments; empty if none were given.
    pub command: Vec<String>,
    /// The directory in which the user typed the options; relative paths refer to it.
    #[serde(with = "path_bytes")]
    pub typed_in: PathBuf,
    /// The path of the operator's configuration file, if `--config` named one.
    pub config: Option<PathBuf>,
    pub ground: BoxWorkspace,
    /// The latest change of the network rules, if any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub network: Option<NetworkChange>,
}

impl BoxRecord {
    /// Converts the record of a box that belljar 0.1 wrote. `home` is the user's home directory.
    pub fn from_0_1(old: BoxRecord01, home: Option<&Path>) -> Result<Self, Options01Error> {
        let spec = BoxSpec::from_options_0_1(&old, home)?;
        let BoxRecord01 { name, created, typed_in, ground, .. } = old;
        Ok(Self { name, created, spec, typed_in, ground, maker: None })
    }
}

/// The latest `belljar network` command for a box, which replaces the network options of `up`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NetworkChange {
    pub net: Net,
    /// The `allow` rules in addition to those of the template.
    pub allow: Vec<Allow>,
    pub deny: Vec<Rule>,
}

impl NetworkChange {
    /// Returns the template with this network change applied.
    #[must_use]
    pub fn onto(&self, mut template: Template) -> Template {
        let Self { net, allow, deny } = self.clone();
        template.net = net;
        template.allow.extend(allow);
        template.deny.extend(deny);
        template
    }
}

/// The workspace of a box: nothing, a directory or a private clone.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum BoxWorkspace {
    /// No workspace.
    Nothing,
    /// The workspace is a directory of the user, with all symbolic links resolved.
    Directory {
        #[serde(with = "path_bytes")]
        path: PathBuf,
    },
    /// The workspace is a private clone of one of the user's repositories.
    Repo(Box<RepoAt>),
}

impl BoxWorkspace {
    /// Returns the path of the directory or repository that the box works on, if it has one.
    pub fn path(&self) -> Option<&Path> {
        match self {
            Self::Nothing => None,
            Self::Directory { path } => Some(path),
            Self::Repo(at) => Some(&at.path),
        }
    }
}

/// The state of a box, as far as it is visible from outside the box.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum BoxState {
    Running,
    /// All processes of the box are stopped until the box is resumed.
    Paused,
    /// The supervisor is running, but the box is still starting or already stopping.
    Changing,
    /// The supervisor was killed, or the machine went down.
    Interrupted,
    Stopped,
    /// The box was never started.
    New,
}

impl BoxState {
    pub const fn name(self) -> &'static str {
        match self {
            Self::Running => "running",
            Self::Paused => "paused",
            Self::Changing => "changing",
            Self::Interrupted => "interrupted",
            Self::Stopped => "stopped",
            Self::New => "new",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn old() -> BoxRecord01 {
        BoxRecord01 {
            name: "task-1".parse().unwrap(),
            created: 7,
            options: vec!["--net".to_owned(), "none".to_owned()],
            command: vec!["sh".to_owned()],
            typed_in: "/home/ada".into(),
            config: None,
            ground: BoxWorkspace::Directory { path: "/home/ada/project".into() },
            network: Some(NetworkChange {
                net: Net::Restricted,
                allow: vec!["pypi".parse().unwrap(), "GET a.example/x".parse().unwrap()],
                deny: vec![Rule::deny("*.example.com").unwrap()],
            }),
        }
    }

    #[test]
    fn box_record_survives_a_round_trip_and_refuses_unknown_fields() {
        let old = old();
        let record = BoxRecord::from_0_1(old.clone(), None).unwrap();
        assert_eq!(record.spec.network, old.network);
        assert_eq!(record.spec.overrides.net, Some(Net::None));
        let text = serde_json::to_string(&record).unwrap();
        assert_eq!(serde_json::from_str::<BoxRecord>(&text).unwrap(), record);
        let more = text.replacen('{', "{\"other\":1,", 1);
        assert!(serde_json::from_str::<BoxRecord>(&more).is_err());
    }

    #[test]
    fn box_record_of_0_1_with_an_unknown_option_is_refused_by_name() {
        let old = BoxRecord01 { options: vec!["--hots".to_owned()], ..old() };
        let error = BoxRecord::from_0_1(old, None).unwrap_err();
        assert!(error.to_string().contains("`--hots`"), "{error}");
    }
}
