//! Arguments of `belljar mcp`.

use std::ffi::OsString;
use std::net::SocketAddr;
use std::path::PathBuf;

use belljar_model::Mode;
use clap::{Args, Subcommand, ValueEnum, ValueHint};

#[derive(Debug, Args)]
#[command(args_conflicts_with_subcommands = true)]
#[command(after_help = "Examples:
  belljar mcp install claude
  belljar mcp --http 127.0.0.1:7070
  belljar mcp servers

Without a subcommand and without --http, it serves MCP on standard input and output.")]
pub(crate) struct McpArgs {
    #[command(flatten)]
    pub(crate) serve: ServeArgs,
    #[command(subcommand)]
    pub(crate) command: Option<McpCommand>,
}

#[derive(Debug, Args)]
pub(crate) struct ServeArgs {
    /// Serve Streamable HTTP at this address, for callers with a token
    #[arg(long, value_name = "ADDR:PORT")]
    pub(crate) http: Option<SocketAddr>,
    /// File with the token that callers must send; created if missing
    #[arg(long, value_name = "FILE", requires = "http", value_hint = ValueHint::FilePath)]
    pub(crate) token_file: Option<PathBuf>,
    /// Certificate chain (PEM) for HTTPS
    #[arg(long, value_name = "FILE", requires_all = ["http", "tls_key"], value_hint = ValueHint::FilePath)]
    pub(crate) tls_cert: Option<PathBuf>,
    /// Private key of the certificate (PEM)
    #[arg(long, value_name = "FILE", requires_all = ["http", "tls_cert"], value_hint = ValueHint::FilePath)]
    pub(crate) tls_key: Option<PathBuf>,
    /// Accept this host name besides those of the loopback interface; can be repeated
    #[arg(long, value_name = "HOST", requires = "http")]
    pub(crate) allow_host: Vec<String>,
    /// Accept requests from web pages of this origin; can be repeated
    #[arg(long, value_name = "ORIGIN", requires = "http")]
    pub(crate) allow_origin: Vec<String>,
    /// Directory to show at /workspace in boxes [default: an empty directory per session]
    #[arg(long, value_name = "DIR", value_hint = ValueHint::DirPath)]
    pub(crate) workspace: Option<PathBuf>,
    /// With --workspace: workspace mode, overlay or read-only [default: overlay]
    #[arg(long, value_name = "MODE", requires = "workspace")]
    pub(crate) mode: Option<Mode>,
}

#[derive(Debug, Subcommand)]
pub(crate) enum McpCommand {
    /// Add Belljar to the settings of an MCP client, after a preview
    Install(InstallArgs),
    /// List the tool servers, their tools, and which tools are accepted
    #[command(after_help = "Examples:
  belljar mcp servers")]
    Servers {
        /// Print one JSON object per server and line
        #[arg(long)]
        json: bool,
    },
    /// Accept the current tools of a server, so that programs can call them
    #[command(after_help = "Examples:
  belljar mcp accept files
  belljar mcp accept files read_file --yes")]
    Accept {
        /// Name of a server in belljar.toml
        server: String,
        /// Accept only this tool
        tool: Option<String>,
        /// Do not ask for confirmation
        #[arg(long, short = 'y')]
        yes: bool,
    },
}

#[derive(Debug, Args)]
#[command(after_help = "Examples:
  belljar mcp install claude
  belljar mcp install codex --print -- --workspace .")]
pub(crate) struct InstallArgs {
    /// MCP client whose settings are changed
    pub(crate) client: Client,
    /// Print the entry for the settings, and change nothing
    #[arg(long)]
    pub(crate) print: bool,
    /// Let the client call a running server at this URL, with the token of $BELLJAR_TOKEN
    #[arg(long, value_name = "URL")]
    pub(crate) http: Option<String>,
    /// Do not ask for confirmation
    #[arg(long, short = 'y')]
    pub(crate) yes: bool,
    /// Arguments for `belljar mcp`, for example `-- --workspace .`
    #[arg(last = true, value_name = "ARGS", conflicts_with = "http")]
    pub(crate) args: Vec<OsString>,
}

/// An MCP client whose settings Belljar can edit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Client {
    Claude,
    Codex,
    Gemini,
    Opencode,
    Vscode,
}
