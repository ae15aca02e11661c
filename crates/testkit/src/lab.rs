//! A place of its own for one test: a workspace, a home and a state directory.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use tempfile::TempDir;

use crate::program::Program;
use crate::upstream::Authority;

/// Temporary directories and the binary under test. Removed when dropped.
#[derive(Debug)]
pub struct Lab {
    belljar: PathBuf,
    dir: TempDir,
}

/// The binary under test: the one the runner names, else the one of this build.
pub fn belljar(built: &str) -> PathBuf {
    std::env::var_os("BELLJAR_BIN").map_or_else(|| built.into(), PathBuf::from)
}

/// Whether the tests run as root, which builds boxes in another way than a plain user.
pub fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

impl Lab {
    /// A fresh lab in the directory that the runner names, else in the usual temporary one.
    pub fn new(belljar: PathBuf) -> Self {
        let parent =
            std::env::var_os("BELLJAR_TEST_ROOT").map_or_else(std::env::temp_dir, PathBuf::from);
        let dir = tempfile::Builder::new().prefix("belljar-e2e-").tempdir_in(parent);
        let lab = Self { belljar, dir: dir.expect("a temporary directory") };
        for path in [lab.workspace(), lab.home(), lab.state()] {
            fs::create_dir(path).expect("a directory of the lab");
        }
        lab
    }

    pub fn dir(&self) -> &Path {
        self.dir.path()
    }

    /// The working directory of [`Self::belljar`], and so the workspace of its boxes.
    pub fn workspace(&self) -> PathBuf {
        self.dir().join("project")
    }

    /// `HOME` of the operator.
    pub fn home(&self) -> PathBuf {
        self.dir().join("home")
    }

    /// `BELLJAR_HOME`.
    pub fn state(&self) -> PathBuf {
        self.dir().join("state")
    }

    /// Writes a file into the workspace, with the directories above it.
    pub fn write(&self, path: &str, content: impl AsRef<[u8]>) -> PathBuf {
        let path = self.workspace().join(path);
        fs::create_dir_all(path.parent().expect("a file is in a directory")).expect("directories");
        fs::write(&path, content).expect("a file of the workspace");
        path
    }

    /// The operator's `belljar.toml`.
    pub fn configure(&self, text: &str) -> PathBuf {
        let dir = self.home().join(".config/belljar");
        fs::create_dir_all(&dir).expect("a directory of the operator's");
        let file = dir.join("belljar.toml");
        fs::write(&file, text).expect("a file of the operator's");
        file
    }

    /// The operator's `belljar.toml` with the roots of these servers, and `rules` behind them.
    pub fn configure_for(&self, authority: &Authority, rules: &str) -> PathBuf {
        let roots = self.home().join("roots.pem");
        fs::write(&roots, authority.pem()).expect("a file of the operator's");
        self.configure(&format!("[tls]\nroots = [{:?}]\n\n{rules}", roots.display().to_string()))
    }

    /// The binary with these arguments, in an environment of the lab's own.
    pub fn belljar<S: AsRef<std::ffi::OsStr>>(&self, args: impl IntoIterator<Item = S>) -> Program {
        self.program(&self.belljar).args(args)
    }

    /// `belljar run -- bash -c SCRIPT`.
    pub fn bash(&self, script: &str) -> Program {
        self.belljar(["run", "--", "bash", "-c", script])
    }

    /// `belljar run --json OPTIONS -- bash -c SCRIPT`.
    pub fn json(&self, options: &[&str], script: &str) -> Program {
        self.belljar(["run", "--json"]).args(options).args(["--", "bash", "-c", script])
    }

    /// Another program, in the same environment. `$BELLJAR` names the binary.
    pub fn program(&self, program: impl AsRef<std::ffi::OsStr>) -> Program {
        let program = Program::new(program)
            .env("PATH", "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin")
            .env("HOME", self.home())
            .env("BELLJAR_HOME", self.state())
            .env("BELLJAR", &self.belljar)
            .cwd(self.workspace());
        match std::env::var_os("BELLJAR_TEST_LOGS") {
            Some(dir) => program.env("BELLJAR_LOG", "trace").env("BELLJAR_LOG_DIR", dir),
            None => program,
        }
    }

    /// The names of all boxes.
    pub fn boxes(&self) -> Vec<String> {
        let Ok(entries) = fs::read_dir(self.state().join("boxes")) else { return Vec::new() };
        let names = entries.flatten().map(|entry| entry.file_name().to_string_lossy().into_owned());
        let mut names: Vec<String> = names.filter(|name| !name.starts_with('.')).collect();
        names.sort();
        names
    }

    /// The directories of all runs, oldest first.
    pub fn runs(&self) -> Vec<PathBuf> {
        let Ok(entries) = fs::read_dir(self.state().join("runs")) else { return Vec::new() };
        let mut runs: Vec<PathBuf> = entries.flatten().map(|entry| entry.path()).collect();
        runs.sort();
        runs
    }

    /// The directory of the only run.
    #[track_caller]
    pub fn run_dir(&self) -> PathBuf {
        let runs = self.runs();
        assert_eq!(runs.len(), 1, "one run was expected");
        runs.first().expect("there is one").clone()
    }
}

impl Drop for Lab {
    fn drop(&mut self) {
        // Keepers live on without whoever started them, also without a test that failed.
        for name in self.boxes() {
            let mut stop = Command::new(&self.belljar);
            stop.args(["stop", "--now", &name]).env("BELLJAR_HOME", self.state());
            stop.stderr(std::process::Stdio::null()).status().ok(); // most are stopped already
        }
        // Overlayfs leaves a directory of mode 0, which a plain user could not look into.
        let mut chmod = Command::new("chmod");
        chmod.args(["-R", "u+rwX"]).arg(self.dir()).stderr(std::process::Stdio::null());
        chmod.status().ok(); // what then cannot be removed is left to the system's own cleaning
    }
}
