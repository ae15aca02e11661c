//! The hosts, secrets and paths that a skill requests, and the check against granted ones.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use belljar_model::code::{Api, ApiName};
use belljar_model::net::{HostPattern, RuleTarget, SecretName};
use serde::{Deserialize, Serialize};

/// The hosts, secrets and paths that a skill requests.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Wants {
    pub hosts: BTreeSet<HostPattern>,
    pub secrets: BTreeSet<SecretName>,
    /// The requested files and directories, as absolute paths inside the box.
    pub paths: BTreeSet<String>,
}

/// The hosts, secrets and paths that the caller of a skill has.
#[derive(Clone, Debug, Default)]
pub struct Granted {
    /// Whether all public hosts are reachable, as with `net = "full"`.
    pub every_host: bool,
    pub hosts: Vec<HostPattern>,
    pub secrets: BTreeSet<SecretName>,
    pub paths: Vec<String>,
}

/// The reason why the requests of a skill are invalid.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum WantsError {
    #[error("invalid `{word}` in the skill comment `@{tag}`: {what}")]
    Word { tag: &'static str, word: String, what: String },
    #[error(
        "a path must be absolute and must not contain `.` or `..`, for example /workspace/data"
    )]
    Path,
    #[error("the skill requests more than {MAX} hosts, secrets or paths")]
    TooMany,
}

/// The maximum number of hosts, of secrets and of paths that a skill can request.
const MAX: usize = 64;
/// The maximum length of a skill comment with requests. A longer comment is ignored.
const MAX_COMMENT: usize = 16 << 10;
const MAX_PATH: usize = 1024;

impl Wants {
    pub fn is_empty(&self) -> bool {
        self.hosts.is_empty() && self.secrets.is_empty() && self.paths.is_empty()
    }

    /// Parses the requests in the first comment of the code: `/** @hosts a.example @secrets github */`.
    pub fn of_comment(code: &str) -> Result<Self, WantsError> {
        let mut wants = Self::default();
        let Some(comment) = leading_comment(code) else { return Ok(wants) };
        for line in comment.lines() {
            wants.parse_line(line)?;
        }
        wants.check()?;
        Ok(wants)
    }

    /// Parses one line of a skill comment, such as `@hosts a.example`. A tag applies until the end
    /// of its line, so sentences can follow.
    fn parse_line(&mut self, line: &str) -> Result<(), WantsError> {
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

    /// Returns an error if a skill has too many requests or a path is malformed.
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

    /// Combines two sets of requests.
    #[must_use]
    pub fn and(mut self, other: Self) -> Self {
        self.hosts.extend(other.hosts);
        self.secrets.extend(other.secrets);
        self.paths.extend(other.paths);
        self
    }

    /// Returns the requests that are not in `other`.
    #[must_use]
    pub fn without(&self, other: &Self) -> Self {
        Self {
            hosts: self.hosts.difference(&other.hosts).cloned().collect(),
            secrets: self.secrets.difference(&other.secrets).cloned().collect(),
            paths: self.paths.difference(&other.paths).cloned().collect(),
        }
    }

    /// Returns all requests as text: `host api.example.com`, `secret github`, `path /data`.
    pub fn words(&self) -> Vec<String> {
        let hosts = self.hosts.iter().map(|host| format!("host {host}"));
        let secrets = self.secrets.iter().map(|secret| format!("secret {secret}"));
        let paths = self.paths.iter().map(|path| format!("path {path}"));
        hosts.chain(secrets).chain(paths).collect()
    }

    /// Returns the requests of a skill that are not granted, as text.
    pub fn not_granted(&self, granted: &Granted) -> Vec<String> {
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

    /// Returns the services that reach a host requested by the skill.
    pub fn apis(&self, apis: &BTreeMap<ApiName, Api>) -> BTreeSet<ApiName> {
        let needed = |api: &&Api| {
            let hosts = hosts_of(api);
            hosts.iter().any(|host| self.hosts.iter().any(|wanted| host.overlaps(wanted)))
        };
        apis.values().filter(needed).map(|api| api.name.clone()).collect()
    }
}

impl Granted {
    /// Returns what a caller with these services has: their hosts and secrets, and the directories
    /// of every box.
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

/// Returns the text of the `/** … */` comment at the start of the code, after an optional `#!` line.
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
