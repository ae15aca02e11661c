//! Arguments of `belljar secret`.

use std::ffi::OsString;
use std::path::PathBuf;

use belljar_model::net::SecretName;
use clap::{Args, Subcommand, ValueHint};

#[derive(Debug, Args)]
#[command(after_help = "Examples:
  belljar secret set github
  belljar secret set github --from-command gh auth token
  belljar secret list
  belljar run --allow github --secret github -- ./agent.py

A stored secret can be used, replaced and removed. It is never shown.")]
pub(crate) struct SecretArgs {
    #[command(subcommand)]
    pub(crate) command: SecretCommand,
}

#[derive(Debug, Subcommand)]
pub(crate) enum SecretCommand {
    /// Store a secret, read from the terminal or from standard input
    Set(SetArgs),
    /// List the names of the secrets and their hosts, without values
    #[command(after_help = "Examples:
  belljar secret list")]
    List {
        /// Print one JSON object per line
        #[arg(long)]
        json: bool,
    },
    /// Remove a secret
    #[command(after_help = "Examples:
  belljar secret rm github")]
    Rm {
        /// Name of the secret
        name: SecretName,
    },
    /// Check that a secret can be decrypted, and show its hosts
    #[command(after_help = "Examples:
  belljar secret test github")]
    Test {
        /// Name of the secret
        name: SecretName,
        /// Print one JSON object
        #[arg(long)]
        json: bool,
    },
}

#[derive(Debug, Args)]
#[command(after_help = "Examples:
  belljar secret set github
  belljar secret set github --from-env GITHUB_TOKEN")]
pub(crate) struct SetArgs {
    /// Name of the secret
    pub(crate) name: SecretName,
    #[command(flatten)]
    pub(crate) from: SecretSourceArgs,
}

/// The options that choose the source of a secret value.
///
/// The value itself is never an argument, because every process on the machine can read arguments.
#[derive(Debug, Args)]
#[group(multiple = false)]
pub(crate) struct SecretSourceArgs {
    /// Read the value from this environment variable
    #[arg(long, value_name = "VAR")]
    pub(crate) from_env: Option<String>,
    /// Read the value from this file
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(crate) from_file: Option<PathBuf>,
    /// Read the value from the output of this command
    #[arg(long, value_name = "CMD", num_args = 1.., allow_hyphen_values = true, value_hint = ValueHint::CommandName)]
    pub(crate) from_command: Option<Vec<OsString>>,
}
