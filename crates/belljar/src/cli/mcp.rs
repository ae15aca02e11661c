//! What can be typed after `belljar mcp`.

use std::ffi::OsString;
use std::net::SocketAddr;
use std::path::PathBuf;

use belljar_model::Mode;
use clap::{Args, Subcommand, ValueEnum, ValueHint};

#[derive(Debug, Args)]
#[command(args_conflicts_with_subcommands = true)]
#[command(after_help = "Try:  belljar mcp install claude
      belljar mcp --http 127.0.0.1:7070
      belljar mcp servers

Without a command it serves MCP on standard input and output, as clients start it.")]
pub(crate) struct McpArgs {
    #[command(flatten)]
    pub(crate) serve: ServeArgs,
    #[command(subcommand)]
    pub(crate) command: Option<McpCommand>,
}

#[derive(Debug, Args)]
pub(crate) struct ServeArgs {
    /// Serve Streamable HTTP here instead, for callers with a token
    #[arg(long, value_name = "ADDR:PORT")]
    pub(crate) http: Option<SocketAddr>,
    /// The file with the token that callers must have; made if it is not there
    #[arg(long, value_name = "FILE", requires = "http", value_hint = ValueHint::FilePath)]
    pub(crate) token_file: Option<PathBuf>,
    /// The certificate chain (PEM); with it, HTTPS
    #[arg(long, value_name = "FILE", requires_all = ["http", "tls_key"], value_hint = ValueHint::FilePath)]
    pub(crate) tls_cert: Option<PathBuf>,
    /// The key of the certificate (PEM)
    #[arg(long, value_name = "FILE", requires_all = ["http", "tls_cert"], value_hint = ValueHint::FilePath)]
    pub(crate) tls_key: Option<PathBuf>,
    /// A name of this server besides those of the loopback; may be repeated
    #[arg(long, value_name = "HOST", requires = "http")]
    pub(crate) allow_host: Vec<String>,
    /// An origin whose pages may call it; may be repeated
    #[arg(long, value_name = "ORIGIN", requires = "http")]
    pub(crate) allow_origin: Vec<String>,
    /// The directory that programs see at /workspace [default: an empty one of each session]
    #[arg(long, value_name = "DIR", value_hint = ValueHint::DirPath)]
    pub(crate) workspace: Option<PathBuf>,
    /// With --workspace: overlay or read-only [default: overlay]
    #[arg(long, value_name = "MODE", requires = "workspace")]
    pub(crate) mode: Option<Mode>,
}

#[derive(Debug, Subcommand)]
pub(crate) enum McpCommand {
    /// Write Belljar into the settings of an MCP client, after showing what changes
    Install(InstallArgs),
    /// Show other servers, their tools, and which of them programs may call
    Servers {
        /// One JSON object per server and line
        #[arg(long)]
        json: bool,
    },
    /// Let programs call the tools of a server as they are now
    Accept {
        /// A server of belljar.toml
        server: String,
        /// Only this tool, as its server calls it
        tool: Option<String>,
        /// Do not ask
        #[arg(long, short = 'y')]
        yes: bool,
    },
}

#[derive(Debug, Args)]
pub(crate) struct InstallArgs {
    /// Whose settings
    pub(crate) client: Client,
    /// Print what belongs into the settings, and change nothing
    #[arg(long)]
    pub(crate) print: bool,
    /// Have the client call a server that runs already, with the token of $BELLJAR_TOKEN
    #[arg(long, value_name = "URL")]
    pub(crate) http: Option<String>,
    /// Do not ask
    #[arg(long, short = 'y')]
    pub(crate) yes: bool,
    /// What `belljar mcp` is started with, for example `-- --workspace .`
    #[arg(last = true, value_name = "ARGS", conflicts_with = "http")]
    pub(crate) args: Vec<OsString>,
}

/// Clients of MCP whose settings we know.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Client {
    Claude,
    Codex,
    Gemini,
    Opencode,
    Vscode,
}
