//! Permissions of an agent: `Read(.env)`, `Edit(src/**)`, `Bash(rm -rf *)`, `Net(api.github.com)`,
//! `Tool(WebSearch)`. The syntax is the one that users of agents know.
//!
//! The box, its broker and `apply` enforce rules on files and hosts. A shell interprets a command line,
//! so no pattern on it is a boundary (threat G10). Rules on commands, and rules that only decide when
//! the user is asked, are written to the agent's own settings and are advice.

mod pattern;

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

pub use pattern::{FilePattern, FilePatternError, FilePlace};

use crate::net::{Allow, AllowError, Rule, RuleError, by_text};

/// The permission rules of an agent. A `deny` rule overrides all others.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Permissions {
    pub allow: Vec<Permission>,
    pub deny: Vec<Permission>,
    pub ask: Vec<Permission>,
    /// Whether the agent works without asking for permission; see [`Permissions::skips_all`].
    pub skip_all: Option<bool>,
}

/// An action that a rule can allow, deny or ask about.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Permission {
    Read(FilePattern),
    Edit(FilePattern),
    /// A shell command, as a pattern in the syntax of the agent.
    Bash(String),
    /// A network request, as a rule in the form of `--allow` and `--deny`.
    Net(String),
    /// The use of a tool of the agent, by the agent's name for it.
    Tool(String),
}

/// The effect of a permission rule: allow, ask or deny.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Verdict {
    Deny,
    Ask,
    Allow,
}

/// The component that enforces a permission rule.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Enforcer {
    /// The kernel enforces the rule: a hidden or read-only file is so for every program in the box.
    Box,
    /// The broker enforces the rule, because it is the only path to the network.
    Broker,
    /// `belljar apply` enforces the rule: it holds back matching files.
    Apply,
    /// The agent itself enforces the rule, as far as it follows its settings.
    Advice,
}

/// The component that enforces a permission rule, and an explanation of its effect.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Enforcement {
    pub by: Enforcer,
    pub means: &'static str,
}

/// The reason why a text is not a valid permission.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PermissionError {
    #[error(
        "invalid permission; write Read(path), Edit(path), Bash(command), Net(host) or Tool(name)"
    )]
    Malformed,
    #[error(transparent)]
    File(FilePatternError),
    #[error("the text of a permission must be one line of 1 to {MAX_TEXT} visible characters")]
    Text,
    #[error("the host of the permission is missing; write for example Net(api.github.com)")]
    NoHost,
    #[error(transparent)]
    Allow(AllowError),
    #[error(transparent)]
    Rule(RuleError),
}

const MAX_TEXT: usize = 512;
/// The maximum number of permission rules in one list, far above any real file.
pub(crate) const MAX_PERMISSIONS: usize = 1024;

impl Permissions {
    /// Returns whether the agent works without asking for permission.
    ///
    /// By default it does, unless a rule makes the agent ask: the box is the boundary, not the question.
    pub fn skips_all(&self) -> bool {
        let asks = |it: &Permission| !matches!(it, Permission::Net(_));
        self.skip_all.unwrap_or_else(|| !self.ask.iter().any(asks))
    }

    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// Returns every permission rule with its verdict, in order of precedence.
    pub fn iter(&self) -> impl Iterator<Item = (Verdict, &Permission)> {
        let all =
            [(Verdict::Deny, &self.deny), (Verdict::Ask, &self.ask), (Verdict::Allow, &self.allow)];
        all.into_iter().flat_map(|(verdict, list)| list.iter().map(move |it| (verdict, it)))
    }

    /// Returns the union of both sets of permission rules. The `skip_all` of `other` takes
    /// precedence.
    #[must_use]
    pub fn and(mut self, other: &Self) -> Self {
        let Self { allow, deny, ask, skip_all } = other;
        let lists = [(&mut self.allow, allow), (&mut self.deny, deny), (&mut self.ask, ask)];
        for (list, more) in lists {
            for permission in more {
                if !list.contains(permission) {
                    list.push(permission.clone());
                }
            }
        }
        self.skip_all = skip_all.or(self.skip_all);
        self
    }

    /// Returns the permission rule that denies changes of a path in the workspace, if any.
    pub fn denies_edit(&self, path: &[u8]) -> Option<&Permission> {
        self.deny.iter().find(|it| matches!(it, Permission::Edit(files) if files.covers(path)))
    }
}

impl Permission {
    /// Returns an error if the permission is invalid in the list (allow, ask or deny) that contains
    /// it.
    pub(crate) fn check(&self, verdict: Verdict) -> Result<(), PermissionError> {
        let Self::Net(_) = self else { return Ok(()) };
        match verdict {
            Verdict::Allow => self.net_allowed().map(drop),
            Verdict::Ask => self.net_asked().map(drop),
            Verdict::Deny => self.net_denied().map(drop),
        }
    }

    /// Returns the `allow` rule for the broker, or `None` if the permission is not about the network.
    pub fn net_allowed(&self) -> Result<Option<Allow>, PermissionError> {
        let Self::Net(text) = self else { return Ok(None) };
        text.parse().map(Some).map_err(PermissionError::Allow)
    }

    /// Returns the `ask` rule for the broker, or `None` if the permission is not about the network.
    pub fn net_asked(&self) -> Result<Option<Rule>, PermissionError> {
        let Self::Net(text) = self else { return Ok(None) };
        Rule::ask(text).map(Some).map_err(PermissionError::Rule)
    }

    /// Returns the `deny` rule for the broker, or `None` if the permission is not about the network.
    pub fn net_denied(&self) -> Result<Option<Rule>, PermissionError> {
        let Self::Net(text) = self else { return Ok(None) };
        Rule::deny(text).map(Some).map_err(PermissionError::Rule)
    }

    /// Returns the components that enforce this permission rule, each with an explanation.
    pub fn enforcement(&self, verdict: Verdict) -> Vec<Enforcement> {
        let kept = |by, means| Enforcement { by, means };
        match (self, verdict) {
            (Self::Net(_), Verdict::Deny) => vec![kept(
                Enforcer::Broker,
                "all requests to it are refused, whatever other rules allow; the box has no other network access",
            )],
            (Self::Net(_), Verdict::Ask) => vec![kept(
                Enforcer::Broker,
                "each request waits for `belljar approve`; without an answer it is refused",
            )],
            (Self::Net(_), Verdict::Allow) => {
                vec![kept(
                    Enforcer::Broker,
                    "the box can reach it; destinations without a rule are refused",
                )]
            }
            (Self::Read(files), Verdict::Deny) if files.place() == FilePlace::Workspace => vec![
                kept(
                    Enforcer::Box,
                    "files that match when the box starts are empty in it; versions in the git history stay readable",
                ),
                kept(Enforcer::Advice, "the agent also gets this rule in its settings"),
            ],
            (Self::Edit(files), Verdict::Deny) if files.place() == FilePlace::Workspace => vec![
                kept(Enforcer::Box, "files that match when the box starts are read-only in it"),
                kept(
                    Enforcer::Apply,
                    "files that match are held back on apply, new files included",
                ),
                kept(Enforcer::Advice, "the agent also gets this rule in its settings"),
            ],
            (Self::Read(_) | Self::Edit(_), Verdict::Deny) => vec![kept(
                Enforcer::Advice,
                "your own home is not in the box; in the home of the box only the agent itself follows this rule",
            )],
            (Self::Bash(_), _) => vec![kept(
                Enforcer::Advice,
                "a command has many spellings, so a pattern is no boundary; the box limits what a command can do",
            )],
            (Self::Tool(_), _) => {
                vec![kept(
                    Enforcer::Advice,
                    "the agent controls its own tools; it gets this rule in its settings",
                )]
            }
            (Self::Read(_) | Self::Edit(_), Verdict::Ask | Verdict::Allow) => {
                vec![kept(
                    Enforcer::Advice,
                    "sets when the agent asks; the box enforces the limits",
                )]
            }
        }
    }
}

impl Verdict {
    pub const fn name(self) -> &'static str {
        match self {
            Self::Deny => "deny",
            Self::Ask => "ask",
            Self::Allow => "allow",
        }
    }
}

impl Enforcer {
    pub const fn name(self) -> &'static str {
        match self {
            Self::Box => "box",
            Self::Broker => "broker",
            Self::Apply => "apply",
            Self::Advice => "advice",
        }
    }
}

impl FromStr for Permission {
    type Err = PermissionError;

    fn from_str(text: &str) -> Result<Self, PermissionError> {
        let text = text.trim();
        let (word, inner) = match text.split_once('(') {
            Some((word, rest)) => {
                (word, Some(rest.strip_suffix(')').ok_or(PermissionError::Malformed)?))
            }
            None => (text, None),
        };
        let files = || inner.unwrap_or("**").parse().map_err(PermissionError::File);
        match word {
            "Read" => files().map(Self::Read),
            "Edit" => files().map(Self::Edit),
            "Bash" => line(inner.unwrap_or("*")).map(Self::Bash),
            "Net" => line(inner.ok_or(PermissionError::NoHost)?).map(Self::Net),
            "Tool" => line(inner.ok_or(PermissionError::Malformed)?).map(Self::Tool),
            _ => Err(PermissionError::Malformed),
        }
    }
}

fn line(text: &str) -> Result<String, PermissionError> {
    let visible = !text.trim().is_empty() && !text.chars().any(char::is_control);
    if visible && text.len() <= MAX_TEXT { Ok(text.to_owned()) } else { Err(PermissionError::Text) }
}

impl fmt::Display for Permission {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Read(files) => write!(f, "Read({files})"),
            Self::Edit(files) => write!(f, "Edit({files})"),
            Self::Bash(command) => write!(f, "Bash({command})"),
            Self::Net(host) => write!(f, "Net({host})"),
            Self::Tool(name) => write!(f, "Tool({name})"),
        }
    }
}

by_text!(Permission);

#[cfg(test)]
mod tests {
    use super::*;

    fn permission(text: &str) -> Permission {
        text.parse().unwrap()
    }

    #[test]
    fn permission_survives_a_round_trip_through_its_text() {
        for text in [
            "Read(.env)",
            "Edit(src/**)",
            "Bash(rm -rf *)",
            "Bash(git commit:*)",
            "Net(api.github.com)",
            "Tool(mcp__files__write)",
        ] {
            assert_eq!(permission(text).to_string(), text);
        }
        assert_eq!(permission("Edit"), permission("Edit(**)"));
        assert_eq!(permission("Bash"), permission("Bash(*)"));
        assert_eq!(permission("Bash(f() { :; })").to_string(), "Bash(f() { :; })");
        for text in
            ["", "read(.env)", "Read(.env", "Write(x)", "Read()", "Net", "Tool()", "Bash(\n)"]
        {
            assert!(text.parse::<Permission>().is_err(), "{text:?}");
        }
    }

    #[test]
    fn g10_permission_for_shell_commands_is_only_enforced_by_the_agent() {
        for verdict in [Verdict::Deny, Verdict::Ask, Verdict::Allow] {
            let kept = permission("Bash(rm *)").enforcement(verdict);
            assert!(kept.iter().all(|kept| kept.by == Enforcer::Advice), "{kept:?}");
        }
        let by = |text: &str, verdict| -> Vec<Enforcer> {
            permission(text).enforcement(verdict).iter().map(|kept| kept.by).collect()
        };
        assert_eq!(by("Read(.env)", Verdict::Deny), [Enforcer::Box, Enforcer::Advice]);
        assert_eq!(
            by("Edit(.claude/**)", Verdict::Deny),
            [Enforcer::Box, Enforcer::Apply, Enforcer::Advice]
        );
        assert_eq!(by("Edit(~/.npmrc)", Verdict::Deny), [Enforcer::Advice]);
        assert_eq!(by("Edit(src/**)", Verdict::Allow), [Enforcer::Advice]);
        assert_eq!(by("Net(x.example)", Verdict::Ask), [Enforcer::Broker]);
    }

    #[test]
    fn permissions_add_up_and_the_agent_asks_only_if_a_rule_requires_it() {
        let rules = |deny: &[&str], ask: &[&str]| Permissions {
            deny: deny.iter().map(|text| permission(text)).collect(),
            ask: ask.iter().map(|text| permission(text)).collect(),
            ..Permissions::default()
        };
        let both = rules(&["Read(.env)"], &[]).and(&rules(&["Read(.env)", "Edit(/x)"], &[]));
        assert_eq!(both.deny, [permission("Read(.env)"), permission("Edit(/x)")]);
        assert!(rules(&["Bash(rm *)"], &["Net(x.example)"]).skips_all());
        assert!(!rules(&[], &["Bash(git push:*)"]).skips_all());
        let permissions = Permissions { skip_all: Some(true), ..rules(&[], &["Bash(x)"]) };
        assert!(permissions.skips_all());
        assert!(
            !permissions.and(&Permissions { skip_all: Some(false), ..rules(&[], &[]) }).skips_all()
        );
    }

    #[test]
    fn denied_edit_permission_is_found_by_name_even_if_the_file_does_not_exist() {
        let rules =
            Permissions { deny: vec![permission("Edit(.claude/**)")], ..Permissions::default() };
        assert!(rules.denies_edit(b".claude/settings.json").is_some());
        assert!(rules.denies_edit(b"src/main.rs").is_none());
    }
}
