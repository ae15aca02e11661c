//! Arguments of `belljar skill`.

use std::path::PathBuf;

use belljar_model::code::SkillName;
use belljar_model::net::{HostPattern, SecretName};
use clap::{Args, Subcommand, ValueEnum, ValueHint};

#[derive(Debug, Args)]
#[command(after_help = "Examples:
  belljar skill save stars stars.ts --host api.github.com
  belljar skill run stars --input '{\"repo\":\"acme/x\"}'
  belljar skill approve stars

A version that a model saved waits for approval if it needs permissions that you have not approved.")]
pub(crate) struct SkillArgs {
    #[command(subcommand)]
    pub(crate) command: SkillCommand,
}

#[derive(Debug, Subcommand)]
pub(crate) enum SkillCommand {
    /// List the skills, and versions that wait for approval
    #[command(after_help = "Examples:
  belljar skill list")]
    List {
        /// Print one JSON object per line
        #[arg(long)]
        json: bool,
    },
    /// Show a skill and its code
    #[command(after_help = "Examples:
  belljar skill show stars")]
    Show {
        /// Name of the skill
        name: SkillName,
        /// Hash prefix of a version [default: the current version]
        #[arg(value_name = "HASH")]
        hash: Option<String>,
        /// Print one JSON object
        #[arg(long)]
        json: bool,
    },
    /// Save a program as a skill, and approve its permissions
    Save(SaveArgs),
    /// Replace parts of the code of a skill, all of them or none
    Edit(EditArgs),
    /// Delete a skill with all its versions and approvals
    #[command(after_help = "Examples:
  belljar skill rm stars")]
    Rm {
        /// Name of the skill
        name: SkillName,
        /// Do not ask for confirmation
        #[arg(long, short)]
        yes: bool,
    },
    /// Run a skill in a box that has only the permissions of the skill
    Run(RunArgs),
    /// Show the history of a skill, oldest entry first
    #[command(after_help = "Examples:
  belljar skill history stars")]
    History {
        /// Name of the skill
        name: SkillName,
        /// Print one JSON object per line
        #[arg(long)]
        json: bool,
    },
    /// Approve a version of a skill with its permissions
    #[command(after_help = "Examples:
  belljar skill approve stars")]
    Approve {
        /// Name of the skill
        name: SkillName,
        /// Hash prefix of the version [default: the version that waits]
        #[arg(value_name = "HASH")]
        hash: Option<String>,
        /// Do not show the version and do not ask for confirmation
        #[arg(long, short)]
        yes: bool,
    },
}

#[derive(Debug, Args)]
#[command(after_help = "Examples:
  belljar skill save stars stars.ts --host api.github.com")]
pub(crate) struct SaveArgs {
    /// Name of the skill
    pub(crate) name: SkillName,
    /// File with the program; `-` is standard input
    #[arg(value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(crate) file: PathBuf,
    /// Description of the skill, in one sentence
    #[arg(long, value_name = "TEXT", default_value = "")]
    pub(crate) description: String,
    /// Language: ts or js [default: by file name, else ts]
    #[arg(long, value_name = "LANG")]
    pub(crate) lang: Option<Lang>,
    /// Host that the skill needs to reach
    #[arg(long = "host", value_name = "HOST")]
    pub(crate) hosts: Vec<HostPattern>,
    /// Secret that the skill needs to use
    #[arg(long = "secret", value_name = "NAME")]
    pub(crate) secrets: Vec<SecretName>,
    /// File or directory of its box that the skill needs
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
#[command(after_help = "Examples:
  belljar skill edit stars --search acme/x --replace acme/y")]
pub(crate) struct EditArgs {
    /// Name of the skill
    pub(crate) name: SkillName,
    /// Text to replace, which must occur exactly once; each needs a --replace
    #[arg(long, value_name = "TEXT", required = true, allow_hyphen_values = true)]
    pub(crate) search: Vec<String>,
    /// New text in place of the --search before it
    #[arg(long, value_name = "TEXT", required = true, allow_hyphen_values = true)]
    pub(crate) replace: Vec<String>,
}

#[derive(Debug, Args)]
#[command(after_help = "Examples:
  belljar skill run stars --input '{\"repo\":\"acme/x\"}'")]
pub(crate) struct RunArgs {
    /// Name of the skill
    pub(crate) name: SkillName,
    /// JSON value that is passed to the skill
    #[arg(long, value_name = "JSON")]
    pub(crate) input: Option<String>,
    /// Directory to show at /workspace in the box [default: an empty directory]
    #[arg(long, value_name = "DIR", value_hint = ValueHint::DirPath)]
    pub(crate) workspace: Option<PathBuf>,
    /// Kill the skill after this many seconds
    #[arg(long, value_name = "SECONDS")]
    pub(crate) timeout: Option<u64>,
    /// Print one JSON object about the run, and no other output
    #[arg(long)]
    pub(crate) json: bool,
}
