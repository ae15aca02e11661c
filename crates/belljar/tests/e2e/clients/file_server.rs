//! A server of files: `HOST/PATH` below one directory is what `https://HOST/PATH` answers.

use std::fs;
use std::path::{Path, PathBuf};

use belljar_testkit::{Canary, Lab, Received, Reply};

/// The directory, and what is answered to those who ask for something that is not there.
pub(super) struct Stock {
    dir: PathBuf,
    echo: String,
}

impl Stock {
    /// Lets bash make the files. It finds in `$ECHO` how a server repeats the secret.
    #[track_caller]
    pub(super) fn make(lab: &Lab, canary: &Canary, script: &str) -> Self {
        let stock = Self { dir: lab.dir().join("stock"), echo: canary.repeated() };
        fs::create_dir(&stock.dir).expect("a directory of the lab");
        let bash = lab.program("bash").args(["-euc", script]).cwd(&stock.dir);
        bash.env("ECHO", &stock.echo).succeed();
        stock
    }

    pub(super) fn serve(&self, received: &Received) -> Reply {
        let host = received.sni.as_deref().unwrap_or_default();
        let (path, _) = received.path.split_once('?').unwrap_or((&received.path, ""));
        let path = self.dir.join(format!("{host}{path}"));
        let of_dir = ["index.html", "index.json"].map(|name| path.join(name));
        let found = of_dir.iter().chain([&path]).find(|path| path.is_file());
        let Some(file) = found else {
            return Reply::new(404, self.echo.clone()).header("content-type", "text/plain");
        };
        Reply::new(200, fs::read(file).expect("a file of the lab"))
            .header("content-type", kind(file))
    }
}

fn kind(file: &Path) -> &'static str {
    match file.extension().and_then(|extension| extension.to_str()) {
        Some("html") => "text/html",
        Some("json") => "application/json",
        Some(_) | None => "application/octet-stream",
    }
}
