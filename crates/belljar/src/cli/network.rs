//! Arguments of `belljar network` and `belljar approve`.

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

use belljar_model::Net;
use belljar_model::boxes::BoxName;
use belljar_model::code::SkillName;
use belljar_model::net::{Allow, Rule};
use clap::Args;

#[derive(Debug, Args)]
#[command(after_help = "Examples:
  belljar network dev restricted --allow pypi
  belljar network dev none")]
pub(crate) struct NetworkChangeArgs {
    /// Name of the box
    #[arg(value_name = "NAME")]
    pub(crate) name: BoxName,
    /// Network mode: none, restricted (by rules) or full (all public hosts)
    #[arg(value_name = "NET")]
    pub(crate) net: Net,
    /// Allow this in addition to the template of the box; replaces the rules of an earlier `belljar network`
    #[arg(long, value_name = "RULE")]
    pub(crate) allow: Vec<Allow>,
    /// Deny requests that match this rule, even if another rule allows them
    #[arg(long, value_name = "RULE", value_parser = Rule::deny)]
    pub(crate) deny: Vec<Rule>,
    /// Print one JSON object
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
#[command(after_help = "Examples:
  belljar approve
  belljar approve dev:3
  belljar approve --all-of dev --deny
  belljar approve 7f3a91c2 --yes
  belljar approve 7f3a91c2 --reject --reason 'not on a Friday'
  belljar approve 7f3a91c2 --edit notes.md")]
pub(crate) struct ApproveArgs {
    /// Question to answer: NAME:NUMBER, skill:NAME or the beginning of its digest [default: list the open questions, and ask on a terminal]
    #[arg(value_name = "ID")]
    pub(crate) ids: Vec<QuestionId>,
    /// Answer all open questions of this box
    #[arg(long, value_name = "NAME")]
    pub(crate) all_of: Vec<BoxName>,
    /// Approve without asking; needed for the gate of a run if there is no terminal
    #[arg(long, short)]
    pub(crate) yes: bool,
    /// Deny instead of approve
    #[arg(long, visible_alias = "reject", conflicts_with = "yes")]
    pub(crate) deny: bool,
    /// Reason for the record, if you reject the gate of a run
    #[arg(long, value_name = "TEXT", requires = "deny", conflicts_with = "all_of")]
    pub(crate) reason: Option<String>,
    /// Approve the gate of a run with the content of this file as its output
    #[arg(long, value_name = "FILE", conflicts_with_all = ["deny", "yes", "all_of"])]
    pub(crate) edit: Option<PathBuf>,
    /// List open, answered and closed questions, with skills
    #[arg(long, conflicts_with_all = ["ids", "all_of", "deny", "yes", "edit"])]
    pub(crate) list: bool,
    /// Print one JSON object per line
    #[arg(long)]
    pub(crate) json: bool,
}

/// The minimum number of characters of the beginning of a digest.
const MIN_PREFIX: usize = 4;

/// The id of an open question: `task-1:3` for a request of a box, `skill:report` for a skill, or the
/// beginning of the digest of any question, such as the gate of a run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum QuestionId {
    Request { name: BoxName, number: u64 },
    Skill(SkillName),
    Digest(String),
}

impl FromStr for QuestionId {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let is_digest = |text: &str| {
            (MIN_PREFIX..=64).contains(&text.len())
                && text.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'))
        };
        if is_digest(text) {
            return Ok(Self::Digest(text.to_owned()));
        }
        let (name, number) = text.rsplit_once(':').ok_or(
            "expected NAME:NUMBER or the beginning of a digest, as `belljar approve` lists it",
        )?;
        // A box can be called `skill`. The name of a skill starts with a letter, so `skill:3` is a request.
        if name == "skill"
            && let Ok(skill) = number.parse()
        {
            return Ok(Self::Skill(skill));
        }
        let name = name.parse().map_err(|_| "the text before `:` is not a valid name of a box")?;
        let number = number.parse().map_err(|_| "the text after `:` is not a number")?;
        Ok(Self::Request { name, number })
    }
}

impl fmt::Display for QuestionId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Request { name, number } => f.pad(&format!("{name}:{number}")),
            Self::Skill(name) => f.pad(&format!("skill:{name}")),
            Self::Digest(prefix) => f.pad(prefix),
        }
    }
}
