//! What can be typed after `belljar api`.

use std::path::PathBuf;

use belljar_model::code::{ApiName, BaseUrl};
use belljar_model::net::{Allow, HostPattern, Method, SecretName};
use clap::{Args, Subcommand, ValueHint};

#[derive(Debug, Args)]
#[command(after_help = "Try:  belljar api add github --openapi github.json --secret github
      belljar api show github --search 'create issue'
      belljar api test github /rate_limit

Programs find a declared service as `apis.NAME`: belljar code, belljar mcp.")]
pub(crate) struct ApiArgs {
    #[command(subcommand)]
    pub(crate) command: ApiCommand,
}

#[derive(Debug, Subcommand)]
pub(crate) enum ApiCommand {
    /// List the declared services
    List {
        /// One JSON object per line
        #[arg(long)]
        json: bool,
    },
    /// Show what programs are told about a service
    Show(ShowArgs),
    /// Declare a service in your own belljar.toml, after showing what is written
    Add(Box<AddArgs>),
    /// Make one request to a service, from a box as a program would
    Test {
        name: ApiName,
        /// Where to, from the service's base address
        #[arg(default_value = "/")]
        path: String,
        /// One JSON object about the run
        #[arg(long)]
        json: bool,
    },
}

#[derive(Debug, Args)]
pub(crate) struct ShowArgs {
    pub(crate) name: ApiName,
    /// Only operations with all of these words
    #[arg(long, value_name = "WORDS")]
    pub(crate) search: Option<String>,
    /// One operation with its types, for example repos.get
    #[arg(long, value_name = "NAME", conflicts_with = "search")]
    pub(crate) operation: Option<String>,
    /// All declarations, for a compiler
    #[arg(long, conflicts_with_all = ["search", "operation"])]
    pub(crate) types: bool,
    /// One JSON object
    #[arg(long, conflicts_with_all = ["search", "operation", "types"])]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct AddArgs {
    /// What programs call it
    pub(crate) name: ApiName,
    /// An OpenAPI 3 document (JSON), of which a typed client is made
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(crate) openapi: Option<PathBuf>,
    /// All of this host over TLS [default: the first server of the document]
    #[arg(long = "host", value_name = "HOST")]
    pub(crate) hosts: Vec<HostPattern>,
    /// What this rule allows, as for `belljar run --allow`
    #[arg(long = "allow", value_name = "RULE")]
    pub(crate) allow: Vec<Allow>,
    /// Let its requests carry this secret
    #[arg(long = "secret", value_name = "NAME")]
    pub(crate) secrets: Vec<SecretName>,
    /// Refuse this method, for example DELETE
    #[arg(long = "restrict", value_name = "METHOD")]
    pub(crate) restricted: Vec<Method>,
    /// Where its paths start [default: the first server of the document, or the first host]
    #[arg(long, value_name = "URL")]
    pub(crate) base_url: Option<BaseUrl>,
    /// What it is, in a sentence
    #[arg(long, value_name = "TEXT")]
    pub(crate) description: Option<String>,
    /// Where people read about it
    #[arg(long, value_name = "URL")]
    pub(crate) reference: Option<String>,
    /// Write without asking
    #[arg(long, short)]
    pub(crate) yes: bool,
}
