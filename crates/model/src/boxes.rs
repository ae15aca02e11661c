//! What is kept about a named box for as long as it exists.

use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::choice::Net;
use crate::id::RunName;
use crate::net::{Allow, Rule};
use crate::record::path_bytes;
use crate::repo::RepoAt;
use crate::spec::{BoxSpec, Options01Error};
use crate::template::Template;

/// The name of a box; its runs carry it too.
pub type BoxName = RunName;

/// The content of `box.json`: what the box is made from. How its runs went is in their own record.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct BoxRecord {
    pub name: BoxName,
    /// Milliseconds since the Unix epoch.
    pub created: u64,
    /// Every start reads it again, with the configuration as it is then.
    pub spec: BoxSpec,
    /// Relative paths of templates begin here.
    #[serde(with = "path_bytes")]
    pub typed_in: PathBuf,
    /// What the box works on, as it was found when the box was made.
    pub ground: Ground,
}

/// The content of `box.json` as belljar 0.1 wrote it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct BoxRecord01 {
    pub name: BoxName,
    /// Milliseconds since the Unix epoch.
    pub created: u64,
    /// The options of `belljar up`, as they were typed.
    pub options: Vec<String>,
    /// The program and its arguments, if they were said.
    pub command: Vec<String>,
    /// Where the options were typed: relative paths begin here.
    #[serde(with = "path_bytes")]
    pub typed_in: PathBuf,
    /// The operator's file, if `--config` named one.
    pub config: Option<PathBuf>,
    pub ground: Ground,
    /// What was said about its network since.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub network: Option<NetworkChange>,
}

impl BoxRecord {
    /// The record of a box that belljar 0.1 made. `home` is the user's home directory.
    pub fn from_0_1(old: BoxRecord01, home: Option<&Path>) -> Result<Self, Options01Error> {
        let spec = BoxSpec::from_options_0_1(&old, home)?;
        let BoxRecord01 { name, created, typed_in, ground, .. } = old;
        Ok(Self { name, created, spec, typed_in, ground })
    }
}

/// What `belljar network` said last about a box: other words than those of `up`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NetworkChange {
    pub net: Net,
    /// Beside what the template allows and denies.
    pub allow: Vec<Allow>,
    pub deny: Vec<Rule>,
}

impl NetworkChange {
    /// The template with these words on top.
    #[must_use]
    pub fn onto(&self, mut template: Template) -> Template {
        let Self { net, allow, deny } = self.clone();
        template.net = net;
        template.allow.extend(allow);
        template.deny.extend(deny);
        template
    }
}

/// What a box works on.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum Ground {
    /// It has no workspace.
    Nothing,
    /// A directory of the user's, with every link resolved.
    Directory {
        #[serde(with = "path_bytes")]
        path: PathBuf,
    },
    /// A clone of its own of a repository of the user's.
    Repo(Box<RepoAt>),
}

impl Ground {
    /// The directory of the user's that it is about.
    pub fn path(&self) -> Option<&Path> {
        match self {
            Self::Nothing => None,
            Self::Directory { path } => Some(path),
            Self::Repo(at) => Some(&at.path),
        }
    }
}

/// How a box is, as far as can be seen from outside.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum BoxState {
    Running,
    /// Its keeper is there, and the box not yet or not any more.
    Changing,
    /// Its keeper was killed, or the machine went down.
    Interrupted,
    Stopped,
    /// It was never started.
    New,
}

impl BoxState {
    pub const fn name(self) -> &'static str {
        match self {
            Self::Running => "running",
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
            ground: Ground::Directory { path: "/home/ada/project".into() },
            network: Some(NetworkChange {
                net: Net::Restricted,
                allow: vec!["pypi".parse().unwrap(), "GET a.example/x".parse().unwrap()],
                deny: vec![Rule::deny("*.example.com").unwrap()],
            }),
        }
    }

    #[test]
    fn a_record_survives_a_round_trip_and_knows_its_fields() {
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
    fn a_record_of_0_1_with_an_unknown_option_is_refused_and_names_the_option() {
        let old = BoxRecord01 { options: vec!["--hots".to_owned()], ..old() };
        let error = BoxRecord::from_0_1(old, None).unwrap_err();
        assert!(error.to_string().contains("`--hots`"), "{error}");
    }
}
