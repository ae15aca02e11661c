//! The place where attacks are tried: a directory, a state directory, a home, and the two programs.

use std::fs;
use std::hash::{BuildHasher, RandomState};
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

use crate::command::{Ended, Program};
use crate::trial::{During, Step};

/// Everything an attack may touch. Removed when dropped.
#[derive(Debug)]
pub struct Lab {
    /// The binary under attack.
    pub(crate) belljar: PathBuf,
    /// The program that attacks it, a copy in `dir`.
    pub(crate) probe: PathBuf,
    pub(crate) dir: PathBuf,
    /// `HOME` of the operator.
    pub(crate) home: PathBuf,
    /// `BELLJAR_HOME`.
    pub(crate) state: PathBuf,
    /// Whether we are root on the host.
    pub(crate) root: bool,
    rooms: AtomicU32,
}

/// Why there is no lab.
#[derive(Debug, thiserror::Error)]
pub enum LabError {
    #[error("find out who we are")]
    WhoAmI(#[source] io::Error),
    #[error("make the directory {}", path.display())]
    Directory { path: PathBuf, source: io::Error },
    #[error("{} did not write its probe: {said}", belljar.display())]
    Probe { belljar: PathBuf, said: String },
}

impl Lab {
    /// A fresh lab beneath `parent`, such as the system's temporary directory.
    pub fn new(belljar: &Path, parent: &Path) -> Result<Self, LabError> {
        // /proc/self belongs to the effective user, which spares a system call wrapper.
        let root = fs::metadata("/proc/self").map_err(LabError::WhoAmI)?.uid() == 0;
        let dir = parent.join(format!("belljar-lab-{:016x}", random()));
        let lab = Self {
            belljar: belljar.to_owned(),
            probe: dir.join("probe"),
            home: dir.join("home"),
            state: dir.join("state"),
            dir,
            root,
            rooms: AtomicU32::new(0),
        };
        for path in [&lab.dir, &lab.home, &lab.state] {
            // Open to all, as a user's own directories are: the payload has another uid under root.
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

    fn no_probe(&self, said: String) -> LabError {
        LabError::Probe { belljar: self.belljar.clone(), said }
    }

    /// The binary under attack with these arguments, in the environment of the lab's operator.
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

    /// `belljar COMMAND` in a workspace; the trial ends if it hangs.
    pub(crate) fn belljar_in(&self, workspace: &Path, args: &[&str]) -> Step<Ended> {
        self.belljar(args).cwd(workspace).run()
    }

    /// The probe outside any box.
    pub(crate) fn outside(&self, act: &str) -> Step<String> {
        let program = Program::new(&self.probe).cwd(&self.dir);
        let ended = act.split_whitespace().fold(program, Program::arg).run()?;
        Ok(ended.line())
    }

    /// The probe outside, many acts.
    pub(crate) fn all_outside(&self, acts: &[&str]) -> Step<Vec<String>> {
        let program = Program::new(&self.probe).cwd(&self.dir).arg("batch");
        program.input(acts.join("\n") + "\n").run()?.answers(acts)
    }

    /// A fresh directory for one trial.
    pub(crate) fn room(&self, name: &str) -> Step<PathBuf> {
        let number = self.rooms.fetch_add(1, Ordering::Relaxed);
        let room = self.dir.join(format!("{name}-{number}"));
        fs::DirBuilder::new().mode(0o755).create(&room).during("make a room")?;
        Ok(room)
    }
}

impl Drop for Lab {
    fn drop(&mut self) {
        // What a box left unreadable stays behind; the next line must not hide a verdict with a panic.
        fs::remove_dir_all(&self.dir).unwrap_or_default();
    }
}

/// A number that nobody else picked, for names and canaries.
pub(crate) fn random() -> u64 {
    // The only source of randomness in std: every state is keyed anew.
    RandomState::new().hash_one(std::process::id())
}
