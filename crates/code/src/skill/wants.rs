//! What a skill says that it wants, and whether somebody has it to give.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use belljar_model::code::{Api, ApiName};
use belljar_model::net::{HostPattern, RuleTarget, SecretName};
use serde::{Deserialize, Serialize};

/// Hosts, secrets and paths. Nothing is all that an empty one wants.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Wants {
    pub hosts: BTreeSet<HostPattern>,
    pub secrets: BTreeSet<SecretName>,
    /// Directories and files inside the box, from `/`.
    pub paths: BTreeSet<String>,
}

/// What whoever runs a skill has.
#[derive(Clone, Debug, Default)]
pub struct Granted {
    /// Everything public, as with `net = "full"`.
    pub every_host: bool,
    pub hosts: Vec<HostPattern>,
    pub secrets: BTreeSet<SecretName>,
    pub paths: Vec<String>,
}

/// Why something cannot be wanted.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum WantsError {
    #[error("`{word}` in `@{tag}`: {what}")]
    Word { tag: &'static str, word: String, what: String },
    #[error("a path is absolute and has neither `.` nor `..` in it, for example /workspace/data")]
    Path,
    #[error("more than {MAX} hosts, secrets or paths")]
    TooMany,
}

/// Of each kind.
const MAX: usize = 64;
/// As far as a comment is looked into.
const MAX_COMMENT: usize = 16 << 10;
const MAX_PATH: usize = 1024;

impl Wants {
    pub fn is_empty(&self) -> bool {
        self.hosts.is_empty() && self.secrets.is_empty() && self.paths.is_empty()
    }

    /// What the comment wants with which the code begins: `/** @hosts a.example @secrets github */`.
    pub fn of_comment(code: &str) -> Result<Self, WantsError> {
        let mut wants = Self::default();
        let Some(comment) = leading_comment(code) else { return Ok(wants) };
        for line in comment.lines() {
            wants.take_line(line)?;
        }
        wants.check()?;
        Ok(wants)
    }

    /// A tag counts to the end of its line, so that sentences can follow.
    fn take_line(&mut self, line: &str) -> Result<(), WantsError> {
        let line = line.trim_start();
        let line = line.strip_prefix("* ").unwrap_or(line);
        let mut tag = "";
        for word in line.split(|c: char| c.is_whitespace() || c == ',') {
            if let Some(name) = word.strip_prefix('@') {
                tag = name;
                continue;
            }
            if word.is_empty() {
                continue;
            }
            let wrong = |tag, what: &dyn std::fmt::Display| WantsError::Word {
                tag,
                word: word.chars().take(80).collect(),
                what: what.to_string(),
            };
            match tag {
                "hosts" => {
                    self.hosts.insert(word.parse().map_err(|error| wrong("hosts", &error))?);
                }
                "secrets" => {
                    self.secrets.insert(word.parse().map_err(|error| wrong("secrets", &error))?);
                }
                "paths" => {
                    self.paths.insert(word.to_owned());
                }
                _ => {}
            }
        }
        Ok(())
    }

    /// Refuses what nobody can have.
    pub fn check(&self) -> Result<(), WantsError> {
        if self.hosts.len().max(self.secrets.len()).max(self.paths.len()) > MAX {
            return Err(WantsError::TooMany);
        }
        let plain = |path: &String| {
            let mut parts = path.strip_prefix('/').unwrap_or("..").split('/');
            let legal = |c: char| !c.is_control();
            path.len() <= MAX_PATH
                && path.chars().all(legal)
                && (path == "/" || parts.all(|part| !matches!(part, "" | "." | "..")))
        };
        if self.paths.iter().all(plain) { Ok(()) } else { Err(WantsError::Path) }
    }

    /// Both together.
    #[must_use]
    pub fn and(mut self, other: Self) -> Self {
        self.hosts.extend(other.hosts);
        self.secrets.extend(other.secrets);
        self.paths.extend(other.paths);
        self
    }

    /// This without what `other` has as well.
    #[must_use]
    pub fn without(&self, other: &Self) -> Self {
        Self {
            hosts: self.hosts.difference(&other.hosts).cloned().collect(),
            secrets: self.secrets.difference(&other.secrets).cloned().collect(),
            paths: self.paths.difference(&other.paths).cloned().collect(),
        }
    }

    /// Everything in words: `host api.example.com`, `secret github`, `path /data`.
    pub fn words(&self) -> Vec<String> {
        let hosts = self.hosts.iter().map(|host| format!("host {host}"));
        let secrets = self.secrets.iter().map(|secret| format!("secret {secret}"));
        let paths = self.paths.iter().map(|path| format!("path {path}"));
        hosts.chain(secrets).chain(paths).collect()
    }

    /// What of this is not granted, in words.
    pub fn beyond(&self, granted: &Granted) -> Vec<String> {
        let host = |wanted: &&HostPattern| {
            !granted.every_host && !granted.hosts.iter().any(|it| it.covers(wanted))
        };
        let path = |wanted: &&String| !granted.paths.iter().any(|it| is_within(wanted, it));
        Self {
            hosts: self.hosts.iter().filter(host).cloned().collect(),
            secrets: self.secrets.difference(&granted.secrets).cloned().collect(),
            paths: self.paths.iter().filter(path).cloned().collect(),
        }
        .words()
    }

    /// Those services that lead to a host that is wanted: a skill that wants nothing needs none.
    pub fn apis(&self, apis: &BTreeMap<ApiName, Api>) -> BTreeSet<ApiName> {
        let needed = |api: &&Api| {
            let hosts = hosts_of(api);
            hosts.iter().any(|host| self.hosts.iter().any(|wanted| host.overlaps(wanted)))
        };
        apis.values().filter(needed).map(|api| api.name.clone()).collect()
    }
}

impl Granted {
    /// What these services give, and the directories that every box has.
    pub fn of<'a>(apis: impl IntoIterator<Item = &'a Api>) -> Self {
        let paths = ["/workspace", "/tmp"].map(str::to_owned).to_vec();
        let mut granted = Self { paths, ..Self::default() };
        for api in apis {
            granted.hosts.extend(hosts_of(api));
            granted.secrets.extend(api.secrets.iter().cloned());
        }
        granted
    }
}

impl From<&Wants> for Granted {
    fn from(wants: &Wants) -> Self {
        Self {
            every_host: false,
            hosts: wants.hosts.iter().cloned().collect(),
            secrets: wants.secrets.clone(),
            paths: wants.paths.iter().cloned().collect(),
        }
    }
}

fn hosts_of(api: &Api) -> Vec<HostPattern> {
    let of = |what: &RuleTarget| match what {
        RuleTarget::Http(http) => Some(http.host.clone()),
        RuleTarget::Tcp(tcp) => Some(HostPattern::exact(tcp.target.clone())),
        RuleTarget::HostPort(_) => belljar_model::net::HOST_NAME.parse().ok(),
    };
    api.allow.iter().filter_map(|rule| of(&rule.what)).collect()
}

fn is_within(path: &str, of: &str) -> bool {
    Path::new(path).starts_with(of)
}

/// The text between `/**` and `*/` where code begins with that; a first line for a shell may precede.
fn leading_comment(code: &str) -> Option<&str> {
    let code = code.trim_start_matches('\u{feff}');
    let code = match code.strip_prefix("#!") {
        Some(rest) => rest.split_once('\n')?.1,
        None => code,
    };
    let inside = code.trim_start().strip_prefix("/**")?;
    let end = inside.find("*/")?;
    inside.get(..end).filter(|comment| comment.len() <= MAX_COMMENT)
}
