//! The environment of attacks: directories of its own, the `belljar` binary and the probe.

use std::fs;
use std::hash::{BuildHasher, RandomState};
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

use crate::command::{Ended, Program};
use crate::trial::{During, Step};

/// The test environment of the attacks: directories, the `belljar` binary and the probe. Dropping a
/// lab removes its directory.
#[derive(Debug)]
pub struct Lab {
    /// Path of the `belljar` binary under attack.
    pub(crate) belljar: PathBuf,
    /// Path of the probe, the program that performs the attacks.
    pub(crate) probe: PathBuf,
    pub(crate) dir: PathBuf,
    /// The home directory of the simulated operator, the value of `HOME`.
    pub(crate) home: PathBuf,
    /// The state directory of Belljar, the value of `BELLJAR_HOME`.
    pub(crate) state: PathBuf,
    /// Whether the attacks run as root on the host.
    pub(crate) root: bool,
    directories: AtomicU32,
}

/// The reason why the test environment of the attacks could not be created.
#[derive(Debug, thiserror::Error)]
pub enum LabError {
    #[error("cannot determine the user of this process")]
    UnknownUser(#[source] io::Error),
    #[error("cannot create the directory {}", path.display())]
    Directory { path: PathBuf, source: io::Error },
    #[error("{} did not write the probe program to a file: {output}", belljar.display())]
    Probe { belljar: PathBuf, output: String },
}

impl Lab {
    /// Creates the test environment of the attacks in a new directory below `parent`.
    pub fn new(belljar: &Path, parent: &Path) -> Result<Self, LabError> {
        // The owner of /proc/self is the effective user; this needs no system call wrapper.
        let root = fs::metadata("/proc/self").map_err(LabError::UnknownUser)?.uid() == 0;
        let dir = parent.join(format!("belljar-lab-{:016x}", random()));
        let lab = Self {
            belljar: belljar.to_owned(),
            probe: dir.join("probe"),
            home: dir.join("home"),
            state: dir.join("state"),
            dir,
            root,
            directories: AtomicU32::new(0),
        };
        for path in [&lab.dir, &lab.home, &lab.state] {
            // Readable for all, like a user's directories: under root the payload has another user id.
            fs::DirBuilder::new()
                .mode(0o755)
                .create(path)
                .map_err(|source| LabError::Directory { path: path.clone(), source })?;
        }
        lab.write_probe()?;
        Ok(lab)
    }

    fn write_probe(&self) -> Result<(), LabError> {
        let ended = self.belljar(&["doctor", "--write-probe"]).arg(&self.probe).run();
        match ended {
            Ok(ended) if ended.code == Some(0) && self.probe.exists() => Ok(()),
            Ok(ended) => Err(self.no_probe(ended.stderr_text())),
            Err(verdict) => Err(self.no_probe(format!("{verdict:?}"))),
        }
    }

    fn no_probe(&self, output: String) -> LabError {
        LabError::Probe { belljar: self.belljar.clone(), output }
    }

    /// Returns a `belljar` command with the environment variables of the simulated operator.
    pub(crate) fn belljar(&self, args: &[&str]) -> Program {
        let mut program = Program::new(&self.belljar)
            .env("HOME", &self.home)
            .env("BELLJAR_HOME", &self.state)
            .env("PATH", "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin")
            .cwd(&self.dir);
        for arg in args {
            program = program.arg(arg);
        }
        program
    }

    /// Runs `belljar` in a workspace directory. The trial ends if the command hangs.
    pub(crate) fn belljar_in(&self, workspace: &Path, args: &[&str]) -> Step<Ended> {
        self.belljar(args).cwd(workspace).run()
    }

    /// Runs one operation of the probe outside any box and returns its result.
    pub(crate) fn outside(&self, act: &str) -> Step<String> {
        let program = Program::new(&self.probe).cwd(&self.dir);
        let ended = act.split_whitespace().fold(program, Program::arg).run()?;
        Ok(ended.line())
    }

    /// Runs several operations of the probe outside any box and returns their results.
    pub(crate) fn all_outside(&self, acts: &[&str]) -> Step<Vec<String>> {
        let program = Program::new(&self.probe).cwd(&self.dir).arg("batch");
        program.input(acts.join("\n") + "\n").run()?.answers(acts)
    }

    /// Creates a new directory for one attack.
    pub(crate) fn directory(&self, name: &str) -> Step<PathBuf> {
        let number = self.directories.fetch_add(1, Ordering::Relaxed);
        let work_dir = self.dir.join(format!("{name}-{number}"));
        fs::DirBuilder::new().mode(0o755).create(&work_dir).during("create a directory")?;
        Ok(work_dir)
    }
}

impl Drop for Lab {
    fn drop(&mut self) {
        // Unreadable files of a box can remain; a panic here would hide the verdict.
        fs::remove_dir_all(&self.dir).unwrap_or_default();
    }
}

/// Returns a random number for unique names and secrets.
pub(crate) fn random() -> u64 {
    // The only source of randomness in std: every `RandomState` has a new key.
    RandomState::new().hash_one(std::process::id())
}
