//! `belljar network` and `belljar approve`: what a running box reaches, and what it asks first.

use std::fmt;
use std::str::FromStr;

use belljar_model::Net;
use belljar_model::boxes::BoxName;
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
    /// What to answer, as it is listed: NAME:NUMBER [default: list what waits, and ask on a terminal]
    #[arg(value_name = "ID")]
    pub(crate) ids: Vec<QuestionId>,
    /// Answer everything that waits in this box now
    #[arg(long, value_name = "NAME")]
    pub(crate) all_of: Vec<BoxName>,
    /// Say no instead of yes
    #[arg(long)]
    pub(crate) deny: bool,
    /// One JSON object per line
    #[arg(long)]
    pub(crate) json: bool,
}

/// One question of one box: `task-1:3`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct QuestionId {
    pub(crate) name: BoxName,
    pub(crate) number: u64,
}

impl FromStr for QuestionId {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let (name, number) =
            text.rsplit_once(':').ok_or("write it as `belljar approve` lists it, NAME:NUMBER")?;
        let name = name.parse().map_err(|_| "what stands before `:` is no name of a box")?;
        let number = number.parse().map_err(|_| "what stands behind `:` is no number")?;
        Ok(Self { name, number })
    }
}

impl fmt::Display for QuestionId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&format!("{}:{}", self.name, self.number))
    }
}
