//! What can be typed after `belljar secret`.

use std::ffi::OsString;
use std::path::PathBuf;

use belljar_model::net::SecretName;
use clap::{Args, Subcommand, ValueHint};

#[derive(Debug, Args)]
#[command(after_help = "Try:  belljar secret set github
      belljar secret set github --from-command gh auth token
      belljar secret list
      belljar run --allow github --secret github -- ./agent.py

What is set can be used, replaced and removed, and is never shown again.")]
pub(crate) struct SecretArgs {
    #[command(subcommand)]
    pub(crate) command: SecretCommand,
}

#[derive(Debug, Subcommand)]
pub(crate) enum SecretCommand {
    /// Store a secret: asked for at a terminal, else read from standard input
    Set(SetArgs),
    /// List the secrets and where they may go, never what they are
    List {
        /// One JSON object per line
        #[arg(long)]
        json: bool,
    },
    /// Remove a secret
    Rm { name: SecretName },
    /// Check that a secret can be opened, and say what it is bound to
    Test {
        name: SecretName,
        /// One JSON object
        #[arg(long)]
        json: bool,
    },
}

#[derive(Debug, Args)]
pub(crate) struct SetArgs {
    /// What belljar.toml, rules and records call it
    pub(crate) name: SecretName,
    #[command(flatten)]
    pub(crate) from: From,
}

/// Where the value comes from. Never from an argument: those are seen by every process.
#[derive(Debug, Args)]
#[group(multiple = false)]
pub(crate) struct From {
    /// Take the value of this variable
    #[arg(long, value_name = "VAR")]
    pub(crate) from_env: Option<String>,
    /// Take what this file holds
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(crate) from_file: Option<PathBuf>,
    /// Take what this command writes
    #[arg(long, value_name = "CMD", num_args = 1.., allow_hyphen_values = true, value_hint = ValueHint::CommandName)]
    pub(crate) from_command: Option<Vec<OsString>>,
}
