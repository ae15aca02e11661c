//! `belljar network` and `belljar approve`: what a running box reaches, and what it asks first.

use std::fmt;
use std::str::FromStr;

use belljar_model::Net;
use belljar_model::boxes::BoxName;
use belljar_model::code::SkillName;
use belljar_model::net::{Allow, Rule};
use clap::Args;

#[derive(Debug, Args)]
pub(crate) struct NetworkChangeArgs {
    /// The name of a box
    #[arg(value_name = "NAME")]
    pub(crate) name: BoxName,
    /// none; restricted: what rules allow; full: everything public
    #[arg(value_name = "NET")]
    pub(crate) net: Net,
    /// Allow this too, beside what the box's template allows; rules of an earlier `belljar network` are gone
    #[arg(long, value_name = "RULE")]
    pub(crate) allow: Vec<Allow>,
    /// Never let the box reach this, whatever else is allowed
    #[arg(long, value_name = "RULE", value_parser = Rule::deny)]
    pub(crate) deny: Vec<Rule>,
    /// One JSON object
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct ApproveArgs {
    /// What to answer, as it is listed: NAME:NUMBER, or skill:NAME [default: list what waits, and ask on a terminal]
    #[arg(value_name = "ID")]
    pub(crate) ids: Vec<QuestionId>,
    /// Answer everything that waits in this box now
    #[arg(long, value_name = "NAME")]
    pub(crate) all_of: Vec<BoxName>,
    /// Say no instead of yes
    #[arg(long)]
    pub(crate) deny: bool,
    /// List also skills, what was answered and by whom, and what was closed
    #[arg(long, conflicts_with_all = ["ids", "all_of", "deny"])]
    pub(crate) list: bool,
    /// One JSON object per line
    #[arg(long)]
    pub(crate) json: bool,
}

/// One question of one box, as `task-1:3`, or a version of a skill that waits, as `skill:report`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum QuestionId {
    Request { name: BoxName, number: u64 },
    Skill(SkillName),
}

impl FromStr for QuestionId {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let (name, number) =
            text.rsplit_once(':').ok_or("write it as `belljar approve` lists it, NAME:NUMBER")?;
        // The name of a skill begins with a letter: a box may be called `skill`.
        if name == "skill"
            && let Ok(skill) = number.parse()
        {
            return Ok(Self::Skill(skill));
        }
        let name = name.parse().map_err(|_| "what stands before `:` is no name of a box")?;
        let number = number.parse().map_err(|_| "what stands behind `:` is no number")?;
        Ok(Self::Request { name, number })
    }
}

impl fmt::Display for QuestionId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Request { name, number } => f.pad(&format!("{name}:{number}")),
            Self::Skill(name) => f.pad(&format!("skill:{name}")),
        }
    }
}
