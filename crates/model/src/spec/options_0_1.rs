//! Parser for the options of `belljar up` that belljar 0.1 stored in `box.json`.
//!
//! Frozen: 0.1 is released, so its options never change, and new options of `up` do not belong here. The
//! parser accepts the same forms as the command line of 0.1: `--opt VALUE`, `--opt=VALUE`, `-eVALUE`,
//! `-e=VALUE`, `-e VALUE`, in any order and between the names of boxes. A word that begins with `-` is
//! never the value of the preceding option, except for `-` alone.

use std::fmt::Display;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use super::{Argv, BoxSpec, SpecError, WorkspaceSpec};
use crate::agent::AgentName;
use crate::boxes::{BoxName, BoxRecord01, BoxWorkspace};
use crate::net::Rule;
use crate::repo::Identity;
use crate::template::{DEFAULT_TEMPLATE, Overrides};

/// The reason why the stored options of belljar 0.1 do not describe a box.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Options01Error {
    #[error(
        "belljar 0.1 has no option `{0}` for `up`: start the box with the belljar that made it, or make it again with `belljar up`"
    )]
    Unknown(String),
    #[error("the value of the option `{0}` is missing")]
    NoValue(String),
    #[error("the option `{0}` takes no value")]
    UnwantedValue(String),
    #[error("the option `{0}` is given twice")]
    Twice(String),
    #[error("invalid value of the option `{option}`: {why}")]
    Value { option: String, why: String },
    #[error("{word:?} is not a box name: {why}")]
    Name { word: String, why: String },
    #[error("the options `{0}` and `{1}` cannot be combined")]
    Conflict(&'static str, &'static str),
    #[error("the option `{0}` needs `--repo`")]
    NeedsRepo(&'static str),
    #[error(transparent)]
    Spec(SpecError),
}

impl BoxSpec {
    /// Returns the spec of a box that belljar 0.1 made. `home` replaces `~` in paths.
    pub fn from_options_0_1(
        record: &BoxRecord01,
        home: Option<&Path>,
    ) -> Result<Self, Options01Error> {
        let BoxRecord01 {
            name: _,
            created: _,
            options,
            command,
            typed_in,
            config,
            ground,
            network,
        } = record;
        let typed = Typed::parse(options)?;
        typed.check()?;
        // 0.1 stored the program in a separate field.
        let words = if command.is_empty() { &typed.program } else { command };
        let program = match words.as_slice() {
            [] => None,
            words => {
                let argv = Argv::new(words).map_err(SpecError::Program);
                Some(argv.map_err(Options01Error::Spec)?)
            }
        };
        // The stored workspace, not the typed one: 0.1 uses the stored one at every start.
        let workspace = match ground {
            BoxWorkspace::Nothing => WorkspaceSpec::None,
            BoxWorkspace::Directory { path } => WorkspaceSpec::Directory(path.clone()),
            BoxWorkspace::Repo(at) => WorkspaceSpec::Clone {
                repo: at.path.clone(),
                branch: typed.branch,
                uncommitted: typed.uncommitted,
            },
        };
        let spec = Self {
            template: typed.template.unwrap_or_else(|| DEFAULT_TEMPLATE.to_owned()),
            overrides: typed.overrides.anchored(typed_in, home),
            workspace,
            agent: typed.agent,
            program,
            terminal: !typed.no_tty,
            health: typed.health,
            git_identity: typed.git_identity,
            network: network.clone(),
            // 0.1 also stored a `--config` option in this field, as an absolute path.
            config_file: config.clone(),
            ..Self::default()
        };
        spec.check().map_err(Options01Error::Spec)?;
        Ok(spec)
    }
}

/// The parsed options of `belljar up` 0.1, with paths as typed.
#[derive(Debug, Default)]
struct Typed {
    template: Option<String>,
    agent: Option<AgentName>,
    workspace: Option<PathBuf>,
    no_workspace: bool,
    repo: Option<PathBuf>,
    branch: Option<String>,
    uncommitted: bool,
    git_identity: Option<Identity>,
    health: Option<String>,
    no_tty: bool,
    config: Option<PathBuf>,
    overrides: Overrides,
    program: Vec<String>,
}

/// A word of the command line that is not the value of an option.
enum Word<'a> {
    Long { name: &'a str, value: Option<&'a str> },
    Env { value: Option<&'a str> },
    Name,
    End,
}

impl<'a> Word<'a> {
    fn of(word: &'a str) -> Result<Self, Options01Error> {
        if word == "--" {
            return Ok(Self::End);
        }
        if let Some(long) = word.strip_prefix("--") {
            return Ok(match long.split_once('=') {
                Some((name, value)) => Self::Long { name, value: Some(value) },
                None => Self::Long { name: long, value: None },
            });
        }
        let Some(rest) = word.strip_prefix('-').filter(|rest| !rest.is_empty()) else {
            return Ok(Self::Name);
        };
        let Some(value) = rest.strip_prefix('e') else {
            let first: String = rest.chars().take(1).collect();
            return Err(Options01Error::Unknown(format!("-{first}")));
        };
        if value.is_empty() {
            return Ok(Self::Env { value: None });
        }
        Ok(Self::Env { value: Some(value.strip_prefix('=').unwrap_or(value)) })
    }
}

impl Typed {
    fn parse(words: &[String]) -> Result<Self, Options01Error> {
        let mut typed = Self::default();
        let mut words = words.iter().map(String::as_str);
        while let Some(word) = words.next() {
            let (option, value) = match Word::of(word)? {
                Word::Long { name, value } => (format!("--{name}"), value),
                Word::Env { value } => ("-e".to_owned(), value),
                Word::Name => {
                    // One command could create several boxes; the record has the name of this box.
                    let parsed = word.parse::<BoxName>();
                    parsed.map_err(|why| Options01Error::Name {
                        word: word.to_owned(),
                        why: why.to_string(),
                    })?;
                    continue;
                }
                Word::End => {
                    typed.program = words.by_ref().map(str::to_owned).collect();
                    break;
                }
            };
            if let Some(flag) = typed.flag(&option) {
                if value.is_some() {
                    return Err(Options01Error::UnwantedValue(option));
                }
                if std::mem::replace(flag, true) {
                    return Err(Options01Error::Twice(option));
                }
                continue;
            }
            if !takes_value(&option) {
                return Err(Options01Error::Unknown(option));
            }
            let value = match value {
                Some(value) => value,
                None => words
                    .next()
                    .filter(|next| !next.starts_with('-') || *next == "-")
                    .ok_or_else(|| Options01Error::NoValue(option.clone()))?,
            };
            typed.set(&option, value)?;
        }
        Ok(typed)
    }

    fn flag(&mut self, option: &str) -> Option<&mut bool> {
        match option {
            "--no-workspace" => Some(&mut self.no_workspace),
            "--uncommitted" => Some(&mut self.uncommitted),
            "--no-tty" => Some(&mut self.no_tty),
            _ => None,
        }
    }

    fn set(&mut self, option: &str, value: &str) -> Result<(), Options01Error> {
        let overrides = &mut self.overrides;
        match option {
            "--template" => set_once(option, &mut self.template, value.to_owned()),
            "--agent" => set_once(option, &mut self.agent, parse(option, value)?),
            "--workspace" => set_once(option, &mut self.workspace, path(option, value)?),
            "--repo" => set_once(option, &mut self.repo, path(option, value)?),
            "--branch" => set_once(option, &mut self.branch, value.to_owned()),
            "--git-identity" => set_once(option, &mut self.git_identity, parse(option, value)?),
            "--health" => set_once(option, &mut self.health, value.to_owned()),
            "--config" => set_once(option, &mut self.config, path(option, value)?),
            "--mode" => set_once(option, &mut overrides.mode, parse(option, value)?),
            "--net" => set_once(option, &mut overrides.net, parse(option, value)?),
            "--record" => set_once(option, &mut overrides.record, parse(option, value)?),
            "--rootfs" => set_once(option, &mut overrides.rootfs, path(option, value)?),
            "--user" => set_once(option, &mut overrides.user, number(option, value)?),
            "--memory" => set_once(option, &mut overrides.memory, parse(option, value)?),
            "--cpus" => set_once(option, &mut overrides.cpus, parse(option, value)?),
            "--pids" => set_once(option, &mut overrides.pids, number(option, value)?),
            "--disk" => set_once(option, &mut overrides.disk, parse(option, value)?),
            "--files" => set_once(option, &mut overrides.files, parse(option, value)?),
            "--output-limit" => set_once(option, &mut overrides.output, parse(option, value)?),
            "--timeout" => set_once(option, &mut overrides.timeout, parse(option, value)?),
            "--allow" => push(&mut overrides.allow, parse(option, value)?),
            "--deny" => push(&mut overrides.deny, checked(option, Rule::deny(value))?),
            "--ask" => push(&mut overrides.ask, checked(option, Rule::ask(value))?),
            "--secret" => push(&mut overrides.secrets, parse(option, value)?),
            "--mount" => push(&mut overrides.mounts, parse(option, value)?),
            "--env" | "-e" => push(&mut overrides.env, parse(option, value)?),
            "--weaken" => push(&mut overrides.weaken, parse(option, value)?),
            "--require" => push(&mut overrides.require, parse(option, value)?),
            _ => Err(Options01Error::Unknown(option.to_owned())),
        }
    }

    /// Returns an error if options cannot be combined or need another option.
    fn check(&self) -> Result<(), Options01Error> {
        let [workspace, repo] = [self.workspace.is_some(), self.repo.is_some()];
        let conflicts = [
            (workspace && self.no_workspace, "--workspace", "--no-workspace"),
            (repo && workspace, "--repo", "--workspace"),
            (repo && self.no_workspace, "--repo", "--no-workspace"),
            (repo && self.overrides.mode.is_some(), "--repo", "--mode"),
        ];
        if let Some((_, one, other)) = conflicts.into_iter().find(|(both, ..)| *both) {
            return Err(Options01Error::Conflict(one, other));
        }
        // 0.1 ignored these two options, without asking for `--repo`, if another option excludes it.
        let excluded = workspace || self.no_workspace || self.overrides.mode.is_some();
        let of_repo = [(self.branch.is_some(), "--branch"), (self.uncommitted, "--uncommitted")];
        match of_repo.into_iter().find(|(overrides, _)| *overrides && !repo && !excluded) {
            Some((_, option)) => Err(Options01Error::NeedsRepo(option)),
            None => Ok(()),
        }
    }
}

const WITH_VALUE: [&str; 28] = [
    "--template",
    "--agent",
    "--workspace",
    "--repo",
    "--branch",
    "--git-identity",
    "--health",
    "--config",
    "--mode",
    "--net",
    "--record",
    "--rootfs",
    "--user",
    "--memory",
    "--cpus",
    "--pids",
    "--disk",
    "--files",
    "--output-limit",
    "--timeout",
    "--allow",
    "--deny",
    "--ask",
    "--secret",
    "--mount",
    "--env",
    "--weaken",
    "--require",
];

fn takes_value(option: &str) -> bool {
    option == "-e" || WITH_VALUE.contains(&option)
}

fn set_once<T>(option: &str, place: &mut Option<T>, value: T) -> Result<(), Options01Error> {
    match place.replace(value) {
        None => Ok(()),
        Some(_) => Err(Options01Error::Twice(option.to_owned())),
    }
}

fn push<T>(list: &mut Vec<T>, value: T) -> Result<(), Options01Error> {
    list.push(value);
    Ok(())
}

fn checked<T>(option: &str, parsed: Result<T, impl Display>) -> Result<T, Options01Error> {
    parsed.map_err(|why| Options01Error::Value { option: option.to_owned(), why: why.to_string() })
}

/// Parses a value. The message omits the value, because a value of `-e` can be a credential.
fn parse<T: FromStr<Err: Display>>(option: &str, value: &str) -> Result<T, Options01Error> {
    checked(option, value.parse())
}

/// Parses a number of an option as belljar 0.1 did: as a signed 64-bit number, so `+5` and `-0` are
/// valid.
fn number(option: &str, value: &str) -> Result<u32, Options01Error> {
    let number: i64 = parse(option, value)?;
    checked(option, u32::try_from(number))
}

fn path(option: &str, value: &str) -> Result<PathBuf, Options01Error> {
    if value.is_empty() {
        return Err(Options01Error::NoValue(option.to_owned()));
    }
    Ok(value.into())
}
