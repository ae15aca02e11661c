//! `belljar mcp` with third-party software: the conformance suite of the protocol, its inspector and its
//! Python client, over standard streams and over HTTP, coding agents, and other MCP servers.
//!
//! `xtask/src/clients.rs` installs this software below `clients` in the target directory. If it is missing,
//! the tests fail. The tests also check how much each tool tested, because a tool that tests nothing
//! reports no error.

mod agents;
mod conformance;
mod inspector;
mod install;
mod proxy;
mod python;
mod servers;

use std::path::{Path, PathBuf};

use belljar_testkit::{Lab, Live, Signal};

use crate::lab;

/// A running `belljar mcp --http`, with its address and token.
struct HttpServer {
    server: Live,
    lab: Lab,
    token: String,
    url: String,
}

impl HttpServer {
    /// Starts the server with an empty configuration.
    #[track_caller]
    fn start() -> Self {
        Self::with("")
    }

    /// Starts the server with this text as the operator's `belljar.toml`.
    #[track_caller]
    fn with(config: &str) -> Self {
        let lab = lab();
        lab.configure(config);
        let file = lab.home().join("token");
        let args = ["mcp", "--http", "127.0.0.1:0", "--token-file"];
        let server = lab.belljar(args).arg(&file).open_input().start();
        let notes = server.wait_for_error_output("/mcp\n");
        let url = notes.split_whitespace().find(|word| word.starts_with("http://"));
        let url = url.expect("the URL of the server").to_owned();
        let token = std::fs::read_to_string(&file).expect("a token").trim().to_owned();
        Self { server, lab, token, url }
    }

    /// Starts `belljar serve` with this text as the operator's `belljar.toml`. MCP clients use the token of
    /// its token file.
    #[track_caller]
    fn of_serve(config: &str) -> Self {
        let lab = lab();
        lab.configure(config);
        let server = lab.belljar(["serve", "--listen", "127.0.0.1:0"]).open_input().start();
        let notes = server.wait_for_error_output("serving at http://");
        let (_, address) = notes.split_once("serving at http://").expect("the URL of the server");
        let (_, port) =
            address.lines().next().unwrap_or_default().rsplit_once(':').expect("a port");
        let url = format!("http://127.0.0.1:{port}/mcp");
        let token = std::fs::read_to_string(lab.state().join("mcp/token")).expect("a token");
        Self { server, lab, token: token.trim().to_owned(), url }
    }

    /// Ends the server with SIGTERM. Its exit code is 0, or 143 for the signal.
    #[track_caller]
    fn end(self) {
        self.server.signal(Signal::TERM);
        let ended = self.server.wait();
        assert!(matches!(ended.code(), 0 | 143), "{ended:?}");
    }

    /// Returns the host and port of the server.
    fn address(&self) -> &str {
        self.url.trim_start_matches("http://").trim_end_matches("/mcp")
    }
}

/// Returns the directory of the installed conformance suite, inspector and Python client.
#[track_caller]
fn mcp_tools_dir() -> PathBuf {
    let dir = Path::new(env!("CARGO_TARGET_TMPDIR")).join("../clients/mcp");
    assert!(dir.is_dir(), "{} is missing: `cargo xtask test` installs it", dir.display());
    dir
}

/// Returns the paths of the installed Node and of a program from npm that it runs.
fn npm(name: &str) -> (PathBuf, PathBuf) {
    let modules = mcp_tools_dir().join("npm/node_modules");
    (modules.join("node/bin/node"), modules.join(".bin").join(name))
}

/// Returns the directory below `clients` into which `cargo xtask test` installed software from npm.
#[track_caller]
pub(crate) fn installed(name: &str) -> PathBuf {
    let target = Path::new(env!("CARGO_TARGET_TMPDIR")).parent().expect("a target directory");
    let dir = target.join("clients").join(name);
    assert!(dir.is_dir(), "no {}: `cargo xtask test` installs it", dir.display());
    dir
}
