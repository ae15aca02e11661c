//! The temporary directories of one test: a workspace, a home and a state directory.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use tempfile::TempDir;

use crate::program::Program;
use crate::upstream::Authority;

/// The temporary directories of one test and the binary under test. Drop removes the directories.
#[derive(Debug)]
pub struct Lab {
    belljar: PathBuf,
    dir: TempDir,
}

/// Returns the path of the `belljar` binary under test: `BELLJAR_BIN` if set, otherwise `built`.
pub fn belljar(built: &str) -> PathBuf {
    std::env::var_os("BELLJAR_BIN").map_or_else(|| built.into(), PathBuf::from)
}

/// Returns whether the tests run as root; Belljar builds boxes differently for root.
pub fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

impl Lab {
    /// Creates the directories of a test beneath `BELLJAR_TEST_ROOT`, or beneath the temporary
    /// directory of the host.
    pub fn new(belljar: PathBuf) -> Self {
        let parent =
            std::env::var_os("BELLJAR_TEST_ROOT").map_or_else(std::env::temp_dir, PathBuf::from);
        let dir = tempfile::Builder::new().prefix("belljar-e2e-").tempdir_in(parent);
        let lab = Self { belljar, dir: dir.expect("cannot create a temporary directory") };
        for path in [lab.workspace(), lab.home(), lab.state()] {
            fs::create_dir(path).expect("cannot create a directory of the lab");
        }
        lab
    }

    pub fn dir(&self) -> &Path {
        self.dir.path()
    }

    /// Returns the working directory of [`Self::belljar`], which is the workspace of its boxes.
    pub fn workspace(&self) -> PathBuf {
        self.dir().join("project")
    }

    /// Returns the home directory of the operator, `HOME`.
    pub fn home(&self) -> PathBuf {
        self.dir().join("home")
    }

    /// Returns the state directory of Belljar, `BELLJAR_HOME`.
    pub fn state(&self) -> PathBuf {
        self.dir().join("state")
    }

    /// Writes a file into the workspace and creates its parent directories.
    pub fn write(&self, path: &str, content: impl AsRef<[u8]>) -> PathBuf {
        let path = self.workspace().join(path);
        fs::create_dir_all(path.parent().expect("the path has a parent"))
            .expect("cannot create directories");
        fs::write(&path, content).expect("cannot write a file of the workspace");
        path
    }

    /// Writes the `belljar.toml` of the operator and returns its path.
    pub fn configure(&self, text: &str) -> PathBuf {
        let dir = self.home().join(".config/belljar");
        fs::create_dir_all(&dir).expect("cannot create the configuration directory");
        let file = dir.join("belljar.toml");
        fs::write(&file, text).expect("cannot write belljar.toml");
        file
    }

    /// Writes a `belljar.toml` that trusts the certificates of `authority` and contains `rules`.
    /// Returns its path.
    pub fn configure_for(&self, authority: &Authority, rules: &str) -> PathBuf {
        let roots = self.home().join("roots.pem");
        fs::write(&roots, authority.pem()).expect("cannot write roots.pem");
        self.configure(&format!("[tls]\nroots = [{:?}]\n\n{rules}", roots.display().to_string()))
    }

    /// Returns a `belljar` command with these arguments and the environment variables of this test.
    pub fn belljar<S: AsRef<std::ffi::OsStr>>(&self, args: impl IntoIterator<Item = S>) -> Program {
        self.program(&self.belljar).args(args)
    }

    /// Returns the command `belljar run -- bash -c SCRIPT`, not yet started.
    pub fn bash(&self, script: &str) -> Program {
        self.belljar(["run", "--", "bash", "-c", script])
    }

    /// Returns the command `belljar run --json OPTIONS -- bash -c SCRIPT`, not yet started.
    pub fn json(&self, options: &[&str], script: &str) -> Program {
        self.belljar(["run", "--json"]).args(options).args(["--", "bash", "-c", script])
    }

    /// Returns a command for any program, with the environment variables of this test. The variable
    /// `BELLJAR` has the path of the binary under test.
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

    /// Returns the names of all boxes, sorted.
    pub fn boxes(&self) -> Vec<String> {
        let Ok(entries) = fs::read_dir(self.state().join("boxes")) else { return Vec::new() };
        let names = entries.flatten().map(|entry| entry.file_name().to_string_lossy().into_owned());
        let mut names: Vec<String> = names.filter(|name| !name.starts_with('.')).collect();
        names.sort();
        names
    }

    /// Returns the directories of all runs, oldest first.
    pub fn runs(&self) -> Vec<PathBuf> {
        let Ok(entries) = fs::read_dir(self.state().join("runs")) else { return Vec::new() };
        let mut runs: Vec<PathBuf> = entries.flatten().map(|entry| entry.path()).collect();
        runs.sort();
        runs
    }

    /// Returns the directory of the only run, and panics if there is not exactly one. Panics if
    /// there is not exactly one run.
    #[track_caller]
    pub fn run_dir(&self) -> PathBuf {
        let runs = self.runs();
        assert_eq!(runs.len(), 1, "expected exactly one run");
        runs.first().expect("one run").clone()
    }
}

impl Drop for Lab {
    fn drop(&mut self) {
        // Boxes keep running after their starter exits, so a failed test can leave some.
        for name in self.boxes() {
            let mut stop = Command::new(&self.belljar);
            stop.args(["stop", "--now", &name]).env("BELLJAR_HOME", self.state());
            stop.stderr(std::process::Stdio::null()).status().ok(); // most boxes are already stopped
        }
        // Overlayfs leaves a directory of mode 0, which only root can remove.
        let mut chmod = Command::new("chmod");
        chmod.args(["-R", "u+rwX"]).arg(self.dir()).stderr(std::process::Stdio::null());
        chmod.status().ok(); // files that still cannot be removed stay in the temporary directory
    }
}
