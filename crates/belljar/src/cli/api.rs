//! Arguments of `belljar api`.

use std::path::PathBuf;

use belljar_model::code::{ApiName, BaseUrl};
use belljar_model::net::{Allow, HostPattern, Method, SecretName};
use clap::{Args, Subcommand, ValueHint};

#[derive(Debug, Args)]
#[command(after_help = "Examples:
  belljar api add github --openapi github.json --secret github
  belljar api show github --search 'create issue'
  belljar api test github /rate_limit

Programs of `belljar code` and `belljar mcp` call a declared service as `apis.NAME`.")]
pub(crate) struct ApiArgs {
    #[command(subcommand)]
    pub(crate) command: ApiCommand,
}

#[derive(Debug, Subcommand)]
pub(crate) enum ApiCommand {
    /// List the declared services
    #[command(after_help = "Examples:
  belljar api list")]
    List {
        /// Print one JSON object per line
        #[arg(long)]
        json: bool,
    },
    /// Show the operations and types of a service
    Show(ShowArgs),
    /// Add a service to your belljar.toml, after a preview
    Add(Box<AddArgs>),
    /// Send one GET request to a service from a box
    #[command(after_help = "Examples:
  belljar api test github /rate_limit")]
    Test {
        /// Name of the service
        name: ApiName,
        /// Path of the request, relative to the base URL of the service
        #[arg(default_value = "/")]
        path: String,
        /// Print one JSON object about the run
        #[arg(long)]
        json: bool,
    },
}

#[derive(Debug, Args)]
#[command(after_help = "Examples:
  belljar api show github --search 'create issue'
  belljar api show github --operation repos.get")]
pub(crate) struct ShowArgs {
    /// Name of the service
    pub(crate) name: ApiName,
    /// Show only operations that contain all of these words
    #[arg(long, value_name = "WORDS")]
    pub(crate) search: Option<String>,
    /// Show one operation with its types, for example repos.get
    #[arg(long, value_name = "NAME", conflicts_with = "search")]
    pub(crate) operation: Option<String>,
    /// Print all declarations as TypeScript
    #[arg(long, conflicts_with_all = ["search", "operation"])]
    pub(crate) types: bool,
    /// Print one JSON object
    #[arg(long, conflicts_with_all = ["search", "operation", "types"])]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
#[command(after_help = "Examples:
  belljar api add github --openapi github.json --secret github
  belljar api add wiki --host wiki.example.com --restrict DELETE")]
pub(crate) struct AddArgs {
    /// Name of the service in programs: `apis.NAME`
    pub(crate) name: ApiName,
    /// OpenAPI 3 document (JSON) for a typed client
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(crate) openapi: Option<PathBuf>,
    /// Allow all HTTPS requests to this host [default: the first server of the document]
    #[arg(long = "host", value_name = "HOST")]
    pub(crate) hosts: Vec<HostPattern>,
    /// Allow requests that match this rule, as in `belljar run --allow`
    #[arg(long = "allow", value_name = "RULE")]
    pub(crate) allow: Vec<Allow>,
    /// Let requests to the service use this secret
    #[arg(long = "secret", value_name = "NAME")]
    pub(crate) secrets: Vec<SecretName>,
    /// Deny this method, for example DELETE
    #[arg(long = "restrict", value_name = "METHOD")]
    pub(crate) restricted: Vec<Method>,
    /// Base URL of the paths [default: the first server of the document, or the first host]
    #[arg(long, value_name = "URL")]
    pub(crate) base_url: Option<BaseUrl>,
    /// Description of the service, in one sentence
    #[arg(long, value_name = "TEXT")]
    pub(crate) description: Option<String>,
    /// URL of the documentation of the service
    #[arg(long, value_name = "URL")]
    pub(crate) reference: Option<String>,
    /// Do not ask for confirmation
    #[arg(long, short)]
    pub(crate) yes: bool,
}
