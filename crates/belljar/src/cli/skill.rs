//! What can be typed after `belljar skill`.

use std::path::PathBuf;

use belljar_model::code::SkillName;
use belljar_model::net::{HostPattern, SecretName};
use clap::{Args, Subcommand, ValueEnum, ValueHint};

#[derive(Debug, Args)]
#[command(after_help = "Try:  belljar skill save stars stars.ts --host api.github.com
      belljar skill run stars --input '{\"repo\":\"acme/x\"}'
      belljar skill approve stars

A version that a model saved and that wants more than you approved waits until you approve it.")]
pub(crate) struct SkillArgs {
    #[command(subcommand)]
    pub(crate) command: SkillCommand,
}

#[derive(Debug, Subcommand)]
pub(crate) enum SkillCommand {
    /// List the skills, and what waits for approval
    List {
        /// One JSON object per line
        #[arg(long)]
        json: bool,
    },
    /// Show a skill with its code
    Show {
        name: SkillName,
        /// Another version than the one in force, by the beginning of its hash
        #[arg(value_name = "HASH")]
        hash: Option<String>,
        /// One JSON object
        #[arg(long)]
        json: bool,
    },
    /// Keep a program as a skill; what it wants is approved by that
    Save(SaveArgs),
    /// Replace parts of a skill's code, all of them or none
    Edit(EditArgs),
    /// Delete a skill with all its versions, and take its approvals back
    Rm {
        name: SkillName,
        /// Delete without asking
        #[arg(long, short)]
        yes: bool,
    },
    /// Run a skill in a box that reaches what the skill wants and nothing else
    Run(RunArgs),
    /// Show what happened to a skill, the oldest first
    History {
        name: SkillName,
        /// One JSON object per line
        #[arg(long)]
        json: bool,
    },
    /// Put a version in force with all that it wants
    Approve {
        name: SkillName,
        /// By the beginning of its hash [default: the one that waits]
        #[arg(value_name = "HASH")]
        hash: Option<String>,
        /// Approve without showing and asking
        #[arg(long, short)]
        yes: bool,
    },
}

#[derive(Debug, Args)]
pub(crate) struct SaveArgs {
    pub(crate) name: SkillName,
    /// The program; `-` is standard input
    #[arg(value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(crate) file: PathBuf,
    /// What it does, in a sentence
    #[arg(long, value_name = "TEXT", default_value = "")]
    pub(crate) description: String,
    /// ts or js [default: by the file's name, else ts]
    #[arg(long, value_name = "LANG")]
    pub(crate) lang: Option<Lang>,
    /// It wants to reach this host
    #[arg(long = "host", value_name = "HOST")]
    pub(crate) hosts: Vec<HostPattern>,
    /// It wants to use this secret
    #[arg(long = "secret", value_name = "NAME")]
    pub(crate) secrets: Vec<SecretName>,
    /// It wants this directory or file of its box
    #[arg(long = "path", value_name = "PATH")]
    pub(crate) paths: Vec<String>,
}

/// The language of a skill.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Lang {
    Ts,
    Js,
}

#[derive(Debug, Args)]
pub(crate) struct EditArgs {
    pub(crate) name: SkillName,
    /// Text that is in the code exactly once; each with its --replace
    #[arg(long, value_name = "TEXT", required = true, allow_hyphen_values = true)]
    pub(crate) search: Vec<String>,
    /// What stands there then
    #[arg(long, value_name = "TEXT", required = true, allow_hyphen_values = true)]
    pub(crate) replace: Vec<String>,
}

#[derive(Debug, Args)]
pub(crate) struct RunArgs {
    pub(crate) name: SkillName,
    /// JSON that the skill is called with
    #[arg(long, value_name = "JSON")]
    pub(crate) input: Option<String>,
    /// The directory that it sees at /workspace [default: an empty one]
    #[arg(long, value_name = "DIR", value_hint = ValueHint::DirPath)]
    pub(crate) workspace: Option<PathBuf>,
    /// Stop it after so many seconds
    #[arg(long, value_name = "SECONDS")]
    pub(crate) timeout: Option<u64>,
    /// Print one JSON object about the run and nothing else
    #[arg(long)]
    pub(crate) json: bool,
}
