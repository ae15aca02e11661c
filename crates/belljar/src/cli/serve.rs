//! Arguments of `belljar serve`.

use std::net::SocketAddr;

use belljar_model::caller::TenantId;
use clap::{Args, Subcommand};

#[derive(Debug, Args)]
#[command(after_help = "Examples:
  belljar serve
  belljar serve --listen 127.0.0.1:8080

Another address than that of the loopback interface needs `cert` and `key` in the section [serve] of
belljar.toml. The server reads both files again when it gets the signal SIGHUP.")]
pub(crate) struct ServerArgs {
    /// Address to listen on [default: `listen` in belljar.toml, or 127.0.0.1:7070]
    #[arg(long, value_name = "ADDR:PORT")]
    pub(crate) listen: Option<SocketAddr>,
}

#[derive(Debug, Args)]
#[command(after_help = "Examples:
  belljar login-link
  belljar login-link team-7

The link is valid once, for ten minutes. The server must be running.")]
pub(crate) struct LoginLinkArgs {
    /// Tenant whose owner logs in [default: local]
    pub(crate) tenant: Option<TenantId>,
}

#[derive(Debug, Args)]
#[command(after_help = "Examples:
  belljar tenant create team-7 --owner https://id.example.com 248289761001
  belljar tenant verify")]
pub(crate) struct TenantArgs {
    #[command(subcommand)]
    pub(crate) command: TenantCommand,
}

#[derive(Debug, Subcommand)]
pub(crate) enum TenantCommand {
    /// Create a tenant, whose data other tenants cannot see
    #[command(after_help = "Examples:
  belljar tenant create team-7 --owner https://id.example.com 248289761001

The server must be running. `belljar login-link team-7` then makes a login link for the owner.")]
    Create {
        /// Name of the tenant: lower-case letters, digits and `-`
        name: TenantId,
        /// First owner: the issuer and the subject of a person at an identity provider
        #[arg(long, num_args = 2, value_names = ["ISSUER", "SUBJECT"], required = true)]
        owner: Vec<String>,
    },
    /// Compare the ledgers of all tenants with their recorded checkpoints
    #[command(after_help = "Examples:
  belljar tenant verify
  belljar tenant verify --json

A running server records the size and the root of each ledger in the ledger `system` every hour. A ledger
that is missing, shorter or different is reported, and the exit code is 1.")]
    Verify {
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
}
