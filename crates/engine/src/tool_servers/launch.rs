//! How a server is started: our own program, with the words that put it into a box.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use anyhow::Context as _;
use belljar_code::pin::Identity;
use belljar_model::DEFAULT_TEMPLATE;
use belljar_model::code::{McpServer, Transport};

use crate::host::HOME_VARIABLE;

/// What it takes to start one.
#[derive(Debug)]
pub(super) struct Launch {
    pub(super) program: OsString,
    pub(super) words: Vec<OsString>,
    pub(super) identity: Identity,
    /// The state directory.
    pub(super) home: PathBuf,
}

impl Launch {
    pub(super) fn new(
        server: &McpServer,
        home: &Path,
        file: Option<&Path>,
    ) -> anyhow::Result<Self> {
        let mut words: Vec<OsString> = Vec::new();
        if let Some(file) = file {
            let file = std::path::absolute(file).context("--config")?;
            words.extend(["--config".into(), file.into_os_string()]);
        }
        let identity = match &server.transport {
            Transport::Command(command) => {
                words.extend(run(server).into_iter().map(OsString::from));
                words.push("--".into());
                words.extend(command.iter().map(OsString::from));
                Identity::Command(command.clone())
            }
            Transport::Url(url) => {
                words.extend(["bridge".into(), server.name.as_str().into()]);
                Identity::Url(url.to_string())
            }
        };
        // The program that runs now, also when another has taken its place on the disk.
        Ok(Self { program: "/proc/self/exe".into(), words, identity, home: home.to_owned() })
    }

    /// Starts it with pipes. Nothing it writes reaches a terminal.
    pub(super) fn start(&self) -> std::io::Result<Child> {
        Command::new(&self.program)
            .args(&self.words)
            .env(HOME_VARIABLE, &self.home)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
    }
}

/// The flags of `belljar run`. What the server may reach, and its variables, it reads from the same
/// file: a rule has more to it than fits into a flag, and a flag is seen by every process.
fn run(server: &McpServer) -> Vec<String> {
    let template = server.template.as_deref().unwrap_or(DEFAULT_TEMPLATE);
    vec![
        "run".to_owned(),
        "--no-workspace".to_owned(),
        "--no-tty".to_owned(),
        // It lives for as long as it is needed, and may talk all the while.
        "--timeout=none".to_owned(),
        "--output-limit=1TiB".to_owned(),
        format!("--template={template}"),
        format!("--of-server={}", server.name),
    ]
}
