//! A file server: the response to `https://HOST/PATH` is the file `HOST/PATH` below one directory.

use std::fs;
use std::path::{Path, PathBuf};

use belljar_testkit::{Canary, Lab, Received, Reply};

/// A file server that responds with the echoed secret if a file is missing.
pub(super) struct FileServer {
    dir: PathBuf,
    echo: String,
}

impl FileServer {
    /// Runs a bash script that creates the files; `$ECHO` has the secret in all encodings.
    #[track_caller]
    pub(super) fn create(lab: &Lab, canary: &Canary, script: &str) -> Self {
        let server = Self { dir: lab.dir().join("files"), echo: canary.repeated() };
        fs::create_dir(&server.dir).expect("a directory of the lab");
        let bash = lab.program("bash").args(["-euc", script]).cwd(&server.dir);
        bash.env("ECHO", &server.echo).succeed();
        server
    }

    /// Responds to a request with a file, or with an index file of a directory.
    pub(super) fn serve(&self, received: &Received) -> Reply {
        let host = received.sni.as_deref().unwrap_or_default();
        let (path, _) = received.path.split_once('?').unwrap_or((&received.path, ""));
        let path = self.dir.join(format!("{host}{path}"));
        let indexes = ["index.html", "index.json"].map(|name| path.join(name));
        let found = indexes.iter().chain([&path]).find(|path| path.is_file());
        let Some(file) = found else {
            return Reply::new(404, self.echo.clone()).header("content-type", "text/plain");
        };
        Reply::new(200, fs::read(file).expect("a file of the lab"))
            .header("content-type", content_type(file))
    }
}

/// Returns the content type of a file.
fn content_type(file: &Path) -> &'static str {
    match file.extension().and_then(|extension| extension.to_str()) {
        Some("html") => "text/html",
        Some("json") => "application/json",
        Some(_) | None => "application/octet-stream",
    }
}
