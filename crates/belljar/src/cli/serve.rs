//! Arguments of `belljar serve`.

use std::net::SocketAddr;

use clap::Args;

#[derive(Debug, Args)]
#[command(after_help = "Examples:
  belljar serve
  belljar serve --listen 127.0.0.1:8080

Another address than that of the loopback interface needs `cert` and `key` in the section [serve] of
belljar.toml. The server reads both files again when it gets the signal SIGHUP.")]
pub(crate) struct ServerArgs {
    /// Address to listen on [default: the section [serve] of belljar.toml, or 127.0.0.1:7070]
    #[arg(long, value_name = "ADDR:PORT")]
    pub(crate) listen: Option<SocketAddr>,
}
