//! `belljar mcp` before judges that we did not write: the suite of the protocol, its inspector and its
//! client for Python, over standard streams and over HTTP; agents that people have, their settings, and
//! servers that are not ours.
//!
//! They lie in `clients/mcp` of the target directory (`xtask/src/clients.rs`); a missing one is a failure. A
//! judge that tried nothing would find nothing, so what each of them tried is counted.

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

/// `belljar mcp --http`, which runs.
struct Served {
    server: Live,
    lab: Lab,
    token: String,
    url: String,
}

impl Served {
    #[track_caller]
    fn start() -> Self {
        Self::with("")
    }

    /// With an operator's file of this content.
    #[track_caller]
    fn with(config: &str) -> Self {
        let lab = lab();
        lab.configure(config);
        let file = lab.home().join("token");
        let args = ["mcp", "--http", "127.0.0.1:0", "--token-file"];
        let server = lab.belljar(args).arg(&file).open_input().start();
        let said = server.notes("/mcp\n");
        let url = said.split_whitespace().find(|word| word.starts_with("http://"));
        let url = url.expect("an address").to_owned();
        let token = std::fs::read_to_string(&file).expect("a token").trim().to_owned();
        Self { server, lab, token, url }
    }

    /// Asks it to end. That it was asked by a signal may show.
    #[track_caller]
    fn end(self) {
        self.server.signal(Signal::TERM);
        let ended = self.server.wait();
        assert!(matches!(ended.code(), 0 | 143), "{ended:?}");
    }

    /// Host and port of the server.
    fn address(&self) -> &str {
        self.url.trim_start_matches("http://").trim_end_matches("/mcp")
    }
}

/// Where the judges are.
#[track_caller]
fn judges() -> PathBuf {
    let dir = Path::new(env!("CARGO_TARGET_TMPDIR")).join("../clients/mcp");
    assert!(dir.is_dir(), "{} is missing: `cargo xtask test` installs it", dir.display());
    dir
}

/// A program of npm's, run by the Node that came with it.
fn npm(name: &str) -> (PathBuf, PathBuf) {
    let modules = judges().join("npm/node_modules");
    (modules.join("node/bin/node"), modules.join(".bin").join(name))
}

/// Where `cargo xtask test` put what comes from npm.
#[track_caller]
pub(crate) fn installed(name: &str) -> PathBuf {
    let target = Path::new(env!("CARGO_TARGET_TMPDIR")).parent().expect("a target directory");
    let dir = target.join("clients").join(name);
    assert!(dir.is_dir(), "no {}: `cargo xtask test` installs it", dir.display());
    dir
}
