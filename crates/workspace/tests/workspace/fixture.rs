//! Test fixture: a workspace and a run with an overlay over it.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use belljar_model::Clock;
use belljar_workspace::{
    ApplyOutcome, ApplySession, Changes, Choice, Draft, Layers, Pattern, Pick, RelPath, RunPaths,
    SealError, SealLimits, plan_apply, prepare_restart, seal, trashed,
};
use rustix::time::{ClockId, clock_gettime};

/// A workspace and a run with an overlay over it.
pub(crate) struct Run {
    dir: tempfile::TempDir,
    /// The directory of the workspace if it is on another file system than the run.
    elsewhere: Option<tempfile::TempDir>,
    start: Clock,
}

impl Run {
    /// Creates a workspace with a shell script and starts a run on it.
    #[track_caller]
    pub(crate) fn new(script: &str) -> Self {
        Self::make(script, None)
    }

    /// Creates a workspace on another file system than the run, and starts a run on it.
    #[track_caller]
    pub(crate) fn across_file_systems(script: &str) -> Self {
        let elsewhere = tempfile::tempdir_in("/dev/shm").unwrap();
        let run = Self::make(script, Some(elsewhere));
        let dev = |path: PathBuf| fs::metadata(path).unwrap().dev();
        assert_ne!(dev(run.lower()), dev(run.run_dir()));
        run
    }

    #[track_caller]
    fn make(script: &str, elsewhere: Option<tempfile::TempDir>) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let run = Self { start: Clock { secs: 0, nanos: 0 }, dir, elsewhere };
        for name in ["merged", "state/runs/r1/upper", "state/runs/r1/work"] {
            fs::create_dir_all(run.dir.path().join(name)).unwrap();
        }
        fs::create_dir(run.lower()).unwrap();
        run.host(script);
        run.started_now()
    }

    /// Waits until the file clock has advanced, so that all existing files are older than the run.
    fn started_now(mut self) -> Self {
        let probe = self.dir.path().join("probe");
        fs::write(&probe, "").unwrap();
        let last = fs::metadata(&probe).unwrap();
        let last = (last.ctime(), last.ctime_nsec());
        loop {
            let now = clock_gettime(ClockId::RealtimeCoarse);
            if (now.tv_sec, now.tv_nsec) > last {
                self.start = Clock { secs: now.tv_sec, nanos: now.tv_nsec.try_into().unwrap() };
                return self;
            }
            std::thread::yield_now();
        }
    }

    /// Restarts the box with its upper layer.
    #[track_caller]
    pub(crate) fn restart(self) -> Self {
        prepare_restart(&self.layers(), self.start, &SealLimits::default()).unwrap();
        self.started_now()
    }

    pub(crate) fn lower(&self) -> PathBuf {
        self.elsewhere.as_ref().unwrap_or(&self.dir).path().join("lower")
    }

    pub(crate) fn run_dir(&self) -> PathBuf {
        self.dir.path().join("state/runs/r1")
    }

    pub(crate) fn upper(&self) -> PathBuf {
        self.run_dir().join("upper")
    }

    /// Runs a shell script of the host in the workspace.
    #[track_caller]
    pub(crate) fn host(&self, script: &str) {
        shell(Command::new("sh").arg("-ec").arg(script).current_dir(self.lower()));
    }

    /// Runs a shell script of the box in its view of the workspace.
    #[track_caller]
    pub(crate) fn in_box(&self, script: &str) -> Output {
        let mount = format!(
            "mount -t overlay -o userxattr,lowerdir={},upperdir=state/runs/r1/upper,\
             workdir=state/runs/r1/work overlay merged; cd merged; ",
            self.lower().display()
        );
        let mut unshare = Command::new("unshare");
        unshare.args(["--user", "--map-root-user", "--mount", "sh", "-ec"]);
        shell(unshare.arg(format!("{mount}{script}")).current_dir(self.dir.path()))
    }

    pub(crate) fn layers(&self) -> Layers {
        let (workspace, run) = (self.lower(), self.run_dir());
        let state = self.dir.path().join("state");
        Layers::open(&RunPaths { workspace: &workspace, state: &state, run: &run }).unwrap()
    }

    pub(crate) fn try_seal(&self, limits: &SealLimits) -> Result<Changes, SealError> {
        seal(&self.layers(), self.start, limits)
    }

    #[track_caller]
    pub(crate) fn seal(&self) -> Changes {
        self.try_seal(&SealLimits::default()).unwrap()
    }

    /// Applies the changes that `choice` selects, and panics on a conflict.
    #[track_caller]
    pub(crate) fn apply(&self, choice: &Choice) -> ApplyOutcome {
        let (layers, changes) = (self.layers(), self.seal());
        let mut session = ApplySession::begin(&layers).unwrap();
        let observed = session.observe(&changes).unwrap();
        let plan = plan_apply(&observed, choice).settle().unwrap_or_else(|draft| {
            panic!("conflicts: {:?}", conflicts(&draft));
        });
        session.apply(plan, &mut |_| {}).unwrap()
    }

    /// Returns the conflicts of an apply as text.
    #[track_caller]
    pub(crate) fn conflicts(&self, choice: &Choice) -> Vec<String> {
        let (layers, changes) = (self.layers(), self.seal());
        let session = ApplySession::begin(&layers).unwrap();
        let observed = session.observe(&changes).unwrap();
        conflicts(&plan_apply(&observed, choice))
    }

    pub(crate) fn start(&self) -> Clock {
        self.start
    }

    /// Returns a snapshot of the workspace as the box sees it.
    pub(crate) fn box_view(&self) -> BTreeMap<Vec<u8>, String> {
        let copy = self.dir.path().join("view");
        fs::create_dir(&copy).unwrap();
        self.in_box("cp -a . ../view/");
        snapshot(&copy)
    }

    /// Returns the content of the trash by the original path of each file.
    pub(crate) fn trash(&self) -> BTreeMap<Vec<u8>, String> {
        let mut kept = snapshot(&self.run_dir().join("trash"));
        let trashed = trashed(&self.layers()).unwrap();
        trashed
            .into_iter()
            .filter_map(|one| {
                let what = kept.remove(one.number.to_string().as_bytes())?;
                Some((one.path.as_bytes().to_vec(), what))
            })
            .collect()
    }
}

/// Makes everything accessible, because a user without root privileges cannot delete locked
/// directories.
impl Drop for Run {
    fn drop(&mut self) {
        for dir in [Some(&self.dir), self.elsewhere.as_ref()].into_iter().flatten() {
            shell(Command::new("chmod").args(["-R", "u+rwX"]).arg(dir.path()));
        }
    }
}

#[track_caller]
fn shell(command: &mut Command) -> Output {
    let output = command.output().expect("cannot start a shell");
    assert!(
        output.status.success(),
        "{command:?}: {}{}",
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    );
    output
}

/// Returns every path beneath `root` with its type, mode and content.
pub(crate) fn snapshot(root: &Path) -> BTreeMap<Vec<u8>, String> {
    let mut seen = BTreeMap::new();
    let mut todo = vec![root.to_owned()];
    while let Some(dir) = todo.pop() {
        for entry in fs::read_dir(&dir).unwrap() {
            let path = entry.unwrap().path();
            let meta = fs::symlink_metadata(&path).unwrap();
            let name = path.strip_prefix(root).unwrap().as_os_str().as_bytes().to_vec();
            let mode = meta.permissions().mode() & 0o7777;
            let what = if meta.is_dir() {
                todo.push(path);
                format!("dir {mode:o}")
            } else if meta.is_symlink() {
                format!("link {}", fs::read_link(&path).unwrap().display())
            } else if meta.file_type().is_fifo() {
                "pipe".to_owned()
            } else if meta.is_file() {
                format!("file {mode:o} {}", fs::read(&path).unwrap().escape_ascii())
            } else {
                "other".to_owned()
            };
            seen.insert(name, what);
        }
    }
    seen
}

pub(crate) fn conflicts(draft: &Draft<'_>) -> Vec<String> {
    let line = |conflict: belljar_workspace::Conflict<'_>| {
        let name = conflict.change.path.as_bytes().escape_ascii();
        let ours = if conflict.theirs_possible { "" } else { " (ours only)" };
        format!("{name}: {:?}{ours}", conflict.why)
    };
    draft.conflicts().map(line).collect()
}

/// Returns the choice of all changes, including marked ones.
pub(crate) fn all() -> Choice {
    Choice { include_executable: Pick::All, ..Choice::everything() }
}

pub(crate) fn these<const N: usize>(patterns: [&str; N]) -> Pick {
    Pick::These(patterns.map(|pattern| Pattern::new(pattern).unwrap()).into())
}

pub(crate) fn path(text: impl AsRef<[u8]>) -> RelPath {
    RelPath::new(text).unwrap()
}

/// Returns one line of text per change: a letter for the kind of change and the path.
pub(crate) fn summary(changes: &Changes) -> Vec<String> {
    use belljar_workspace::ChangeKind;
    let line = |change: &belljar_workspace::Change| {
        let letter = match &change.kind {
            ChangeKind::Added => "A",
            ChangeKind::Modified => "M",
            ChangeKind::Deleted => "D",
            ChangeKind::ModeChanged => "m",
            ChangeKind::TypeChanged => "T",
            ChangeKind::Renamed { from } => &format!("R({})", from.as_bytes().escape_ascii()),
        };
        format!("{letter} {}", change.path.as_bytes().escape_ascii())
    };
    changes.entries().iter().map(line).collect()
}
