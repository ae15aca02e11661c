//! The fixture: an unpacked copy of the state of version 0.1.

use std::ffi::OsStr;
use std::fs::{self, File};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use belljar_testkit::{Program, belljar, eventually_shows, is_root};
use serde_json::Value;

/// The search path for programs of the host.
const PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

/// A copy of state, home, workspaces and repositories of version 0.1. It is removed when dropped.
#[derive(Debug)]
pub(super) struct Fixture {
    base: PathBuf,
    /// The lock that excludes other tests while this copy is in use.
    _lock: File,
}

/// Returns which fixture the test uses: `root`, or `user` for a plain user.
pub(super) fn fixture_kind() -> &'static str {
    if is_root() { "root" } else { "user" }
}

impl Fixture {
    /// Waits until no other test uses the directory, then unpacks a new copy.
    #[track_caller]
    pub(super) fn unpack() -> Self {
        let base = PathBuf::from(format!("/tmp/belljar-0.1-{}", fixture_kind()));
        let lock = File::create(format!("{}.lock", base.display()));
        let lock = lock.expect("a lock file of this user in /tmp");
        lock.lock().expect("the lock of the fixture");
        let fixture = Self { base, _lock: lock };
        fixture.remove();
        let archive = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/state-0.1");
        let tar = Program::new("tar").env("PATH", PATH).args(["--extract", "--gzip", "--file"]);
        let tar = tar.arg(archive.join(format!("{}.tar.gz", fixture_kind())));
        let tar = tar.args(["--directory", "/tmp", "--preserve-permissions"]);
        let tar = tar.args(["--xattrs", "--xattrs-include=*", "--numeric-owner"]);
        let owner = if is_root() { "--same-owner" } else { "--no-same-owner" };
        tar.arg(owner).succeed();
        fixture.update_workspace_inodes();
        fixture
    }

    /// Writes the current inodes of the workspaces into the records, because an archive has no inodes.
    fn update_workspace_inodes(&self) {
        let mut updated = 0;
        for file in self.records("run.json") {
            let text = fs::read_to_string(&file).expect("a record");
            let mut record: Value = serde_json::from_str(&text).expect("a record");
            let Some(workspace) = record.get_mut("workspace").filter(|value| !value.is_null())
            else {
                continue;
            };
            let path = workspace["path"].as_str().expect("a path").to_owned();
            let meta = fs::metadata(&path).expect("the workspace of a run");
            workspace["dev"] = meta.dev().into();
            workspace["ino"] = meta.ino().into();
            fs::write(&file, record.to_string()).expect("a record");
            updated += 1;
        }
        assert!(updated > 20, "only {updated} records of runs with a workspace");
    }

    /// Returns all files of this name in runs, boxes, snapshots and the trash.
    fn records(&self, name: &str) -> Vec<PathBuf> {
        let mut found = Vec::new();
        let mut pending: Vec<PathBuf> =
            ["runs", "boxes", "trash"].map(|dir| self.state().join(dir)).into();
        while let Some(dir) = pending.pop() {
            for entry in fs::read_dir(&dir).into_iter().flatten().flatten() {
                // These directories contain files that the box wrote.
                let is_content = ["home", "upper", "work", "base", "repo"]
                    .iter()
                    .any(|content| entry.file_name() == *content);
                if entry.file_name() == name {
                    found.push(entry.path());
                } else if !is_content && entry.file_type().is_ok_and(|kind| kind.is_dir()) {
                    pending.push(entry.path());
                }
            }
        }
        found
    }

    /// Returns a path below the directory of the fixture.
    pub(super) fn path(&self, path: &str) -> PathBuf {
        self.base.join(path)
    }

    /// Reads a text file below the directory of the fixture.
    #[track_caller]
    pub(super) fn read(&self, path: &str) -> String {
        let path = self.path(path);
        fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
    }

    /// Returns the state directory.
    pub(super) fn state(&self) -> PathBuf {
        self.path("state")
    }

    /// Returns the program `belljar` with these arguments and the environment of the fixture.
    pub(super) fn belljar<S: AsRef<OsStr>>(&self, args: impl IntoIterator<Item = S>) -> Program {
        let binary = belljar(env!("CARGO_BIN_EXE_belljar"));
        let program = self.program(binary.to_str().expect("a path in UTF-8"));
        program.args(args)
    }

    /// Returns a program of the host with the environment of the fixture.
    pub(super) fn program(&self, name: &str) -> Program {
        let path = format!("{}:{PATH}", self.path("home/tools/bin").display());
        Program::new(name)
            .env("PATH", path)
            .env("HOME", self.path("home"))
            .env("BELLJAR_HOME", self.state())
            .env("INHERITED", "from-the-caller")
            .cwd(&self.base)
    }

    /// Runs a `belljar` command and returns the JSON objects that it prints, one per line.
    #[track_caller]
    pub(super) fn objects(&self, args: &[&str]) -> Vec<Value> {
        let out = self.belljar(args).succeed();
        out.lines().map(|line| serde_json::from_str(line).expect("one object per line")).collect()
    }

    /// Returns the names of all boxes, read from the state directory and not from a command.
    pub(super) fn boxes(&self) -> Vec<String> {
        let entries = fs::read_dir(self.state().join("boxes")).into_iter().flatten().flatten();
        let mut names: Vec<String> =
            entries.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect();
        names.sort();
        names
    }

    /// Returns the recorded output of a box.
    pub(super) fn output(&self, name: &str) -> String {
        let file = self.state().join("boxes").join(name).join("output.log");
        String::from_utf8_lossy(&fs::read(file).unwrap_or_default()).into_owned()
    }

    /// Starts a stopped box and waits until its program has written `ready` once more.
    #[track_caller]
    pub(super) fn start(&self, name: &str) {
        let before = self.output(name).matches("ready").count();
        self.belljar(["start", name]).succeed();
        eventually_shows(
            &format!("the program of {name} is ready"),
            || self.output(name),
            |text| text.matches("ready").count() > before,
        );
    }

    /// Runs a script in a running box and returns its output.
    #[track_caller]
    pub(super) fn exec(&self, name: &str, script: &str) -> String {
        self.belljar(["exec", name, "--", "sh", "-c", script]).succeed()
    }

    /// Stops all boxes and deletes the copy.
    fn remove(&self) {
        if !self.base.exists() {
            return;
        }
        for name in self.boxes() {
            self.belljar(["stop", "--now", &name]).run();
        }
        let chmod = Program::new("chmod").env("PATH", PATH).args(["-R", "u+rwX"]);
        chmod.arg(&self.base).run();
        fs::remove_dir_all(&self.base).expect("a directory of this user in /tmp");
    }
}

impl Drop for Fixture {
    fn drop(&mut self) {
        self.remove();
    }
}
