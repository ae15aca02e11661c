//! The directories of named boxes in the state directory.
//!
//! ```text
//! $BELLJAR_HOME/boxes/NAME/box.json   the record of the box: its spec and its workspace
//!                          turn       lock file of the command that changes the box
//!                          lock       lock file of the supervisor, held while the supervisor runs
//!                          socket     the socket of the supervisor
//!                          paused     exists while the box is paused until it is resumed
//!                          run.json upper/ work/ …   the latest run, with the layout of every run
//!                          home/      the home directory of the box
//! ```
//! A directory whose name starts with a dot is a box whose creation has not finished.

pub mod parts;
pub mod trash;

use std::fs::{self, DirBuilder, File};
use std::io;
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::Context as _;
use belljar_box::Privilege;
use belljar_model::RunState;
use belljar_model::boxes::{BoxName, BoxRecord, BoxRecord01, BoxState, BoxWorkspace};
use rustix::fs::{CWD, RenameFlags};

use crate::agents::HomeFile;
use crate::error::{EngineError, ErrorKind, WithKind as _, invalid};
use crate::notice::Notice;
use crate::scope::Scoped;
use crate::store::lock::{self, CHANGE_TIMEOUT, LockGuard, Rank, is_held};
use crate::store::{Run, durable, is_empty};

/// The user and group id that own the files of a box without a workspace, if Belljar runs as root.
const NOBODY: u32 = 65534;

/// The file in the directory of a running box that exists while the box is paused until it is resumed.
pub(crate) const PAUSED_FILE: &str = "paused";

/// A named box: its directory and its record.
#[derive(Debug)]
pub struct NamedBox {
    pub dir: PathBuf,
    pub record: BoxRecord,
}

/// The lock for changing a box. Dropping the value releases the lock.
#[derive(Debug)]
#[must_use]
pub struct ChangeLock {
    _held: LockGuard,
}

/// Returns the directory that contains the directories of all named boxes.
pub fn boxes_dir(state: &Scoped) -> PathBuf {
    state.store().layout().boxes()
}

impl NamedBox {
    /// Loads the box with this name.
    pub fn find(state: &Scoped, name: &BoxName) -> Result<Self, EngineError> {
        let dir = boxes_dir(state).join(name.as_str());
        if !dir.exists() {
            return Err(no_box(name));
        }
        let advice = "restore its box.json from a copy, for example from a snapshot of the box";
        Self::load(state, &dir)
            .with_context(|| format!("the record of box {name} is damaged"))
            .map_err(|error| EngineError::new(ErrorKind::Damaged, error).advise(advice))
    }

    /// Loads all boxes, sorted by name. Sends a notice for each box that cannot be read.
    pub fn all(state: &Scoped) -> Result<Vec<Self>, EngineError> {
        let entries = match fs::read_dir(boxes_dir(state)) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            entries => entries.context("cannot list the boxes").kind(ErrorKind::Broken)?,
        };
        let mut boxes = Vec::new();
        for entry in entries.filter_map(Result::ok) {
            if entry.file_name().as_encoded_bytes().starts_with(b".") {
                continue;
            }
            match Self::load(state, &entry.path()) {
                Ok(named_box) => boxes.push(named_box),
                Err(error) => state.notice(&Notice::Damaged(format!("{error:#}"))),
            }
        }
        boxes.sort_by(|left, right| left.record.name.as_str().cmp(right.record.name.as_str()));
        Ok(boxes)
    }

    /// Loads the box in this directory.
    pub(crate) fn load(state: &Scoped, dir: &Path) -> anyhow::Result<Self> {
        let file = dir.join("box.json");
        let text = fs::read(&file).with_context(|| format!("cannot read {}", file.display()))?;
        let home = state.host().user_home();
        let record = read_record(&text, home.as_deref());
        let record = record.with_context(|| format!("cannot parse {}", file.display()))?;
        Ok(Self { dir: dir.to_owned(), record })
    }

    pub fn name(&self) -> &BoxName {
        &self.record.name
    }

    /// Returns the latest run of the box, or `None` if the box was never started.
    pub fn run(&self) -> Option<Run> {
        Run::load(&self.dir).ok()
    }

    /// Returns the current state of the box.
    pub fn state(&self) -> BoxState {
        let has_supervisor = is_held(&self.dir.join("lock"));
        match self.run().map(|run| run.record.state) {
            Some(RunState::Running) if has_supervisor && self.dir.join(PAUSED_FILE).exists() => {
                BoxState::Paused
            }
            Some(RunState::Running) if has_supervisor => BoxState::Running,
            _ if has_supervisor => BoxState::Changing,
            None => BoxState::New,
            Some(RunState::Finished) => BoxState::Stopped,
            Some(RunState::Interrupted | RunState::Running) => BoxState::Interrupted,
        }
    }

    /// Returns whether the supervisor of the box is running.
    pub fn is_up(&self) -> bool {
        matches!(self.state(), BoxState::Running | BoxState::Paused | BoxState::Changing)
    }

    /// Replaces `box.json` with the current record. The caller must hold the [`ChangeLock`] of the box.
    pub fn save(&self) -> anyhow::Result<()> {
        write_atomically(&self.dir, "box.json", &serde_json::to_vec_pretty(&self.record)?)
    }

    /// Waits for the lock for changing this box. Then finishes an interrupted exchange of parts.
    pub fn lock_for_change(&self) -> Result<ChangeLock, EngineError> {
        self.lock_within(CHANGE_TIMEOUT)
    }

    fn lock_within(&self, timeout: Duration) -> Result<ChangeLock, EngineError> {
        let held = match lock::acquire(&self.dir.join("turn"), Rank::Box, timeout) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                return Err(no_box(self.name())); // another command removed the box
            }
            held => held,
        };
        let held = held.context("cannot lock the box for a change").kind(ErrorKind::Broken)?;
        let held = held.ok_or_else(|| {
            let name = self.name();
            let text =
                format!("another command is changing box {name}; try again when it has ended");
            EngineError::message(ErrorKind::Busy, text)
        })?;
        parts::finish(&self.dir)
            .context("cannot finish the change of an interrupted command")
            .kind(ErrorKind::Broken)?;
        Ok(ChangeLock { _held: held })
    }

    /// Waits for the lock for changing this box. Fails if the box is running.
    ///
    /// `command` is the name of the Belljar command for the error message.
    pub fn lock_while_stopped(&self, command: &str) -> Result<ChangeLock, EngineError> {
        let lock = self.lock_for_change()?;
        if self.is_up() {
            let name = self.name();
            let text = format!(
                "`belljar {command}` needs a stopped box, but box {name} is running; stop it with `belljar stop {name}`"
            );
            return Err(EngineError::message(ErrorKind::WrongState, text));
        }
        Ok(lock)
    }
}

fn no_box(name: &BoxName) -> EngineError {
    let text = format!("there is no box {name}; `belljar list` shows all boxes");
    EngineError::message(ErrorKind::NotFound, text)
}

/// Parses `box.json`, including a file that Belljar 0.1 wrote. `home` is the user's home directory.
pub fn read_record(text: &[u8], home: Option<&Path>) -> anyhow::Result<BoxRecord> {
    #[derive(serde::Deserialize)]
    struct Version {
        spec: Option<serde::de::IgnoredAny>,
    }
    if serde_json::from_slice::<Version>(text)?.spec.is_some() {
        return Ok(serde_json::from_slice(text)?);
    }
    let old: BoxRecord01 = serde_json::from_slice(text)?;
    BoxRecord::from_0_1(old, home).context("cannot convert the options of belljar 0.1")
}

/// Returns the named box whose latest run this is, or `None` if the run has no named box.
pub fn box_of_run(state: &Scoped, run: &Run) -> Option<NamedBox> {
    (run.dir.parent() == Some(&boxes_dir(state)))
        .then(|| NamedBox::load(state, &run.dir).ok())
        .flatten()
}

/// Returns the latest run of each named box.
pub fn runs(state: &Scoped) -> Vec<Run> {
    NamedBox::all(state)
        .map_or_else(|_| Vec::new(), |all| all.iter().filter_map(NamedBox::run).collect())
}

/// Returns the latest run of the box with this name, or `None` if there is no such box.
pub fn latest_run_of(state: &Scoped, name: &str) -> Result<Option<Run>, EngineError> {
    let Ok(name) = name.parse::<BoxName>() else { return Ok(None) };
    if !boxes_dir(state).join(name.as_str()).exists() {
        return Ok(None);
    }
    let never =
        || invalid(format!("box {name} was never started; `belljar start {name}` starts it"));
    NamedBox::find(state, &name)?.run().ok_or_else(never).map(Some)
}

/// Returns the box with this name if its workspace is a private clone, otherwise `None`.
pub fn find_with_clone(
    state: &Scoped,
    name: Option<&str>,
) -> Result<Option<NamedBox>, EngineError> {
    let Some(name) = name.and_then(|name| name.parse::<BoxName>().ok()) else { return Ok(None) };
    if !boxes_dir(state).join(name.as_str()).exists() {
        return Ok(None);
    }
    let found = NamedBox::find(state, &name)?;
    Ok(matches!(found.record.ground, BoxWorkspace::Repo(_)).then_some(found))
}

/// Writes a file of a box atomically.
pub fn write_atomically(dir: &Path, name: &str, text: &[u8]) -> anyhow::Result<()> {
    let written = durable::write(dir, name, text);
    written.with_context(|| format!("cannot write {}", dir.join(name).display()))
}

/// Creates a named box completely, or not at all. `fill` writes the first contents of its directory.
pub fn create(
    state: &Scoped,
    record: BoxRecord,
    owner: Option<(u32, u32)>,
    fill: impl FnOnce(&Path, &mut BoxRecord) -> Result<(), EngineError>,
) -> Result<NamedBox, EngineError> {
    let mut record = record;
    let boxes = boxes_dir(state);
    let dir = boxes.join(record.name.as_str());
    let name = record.name.clone();
    let text = format!("there is a box {name} already; choose another name");
    let already_exists = || EngineError::message(ErrorKind::AlreadyExists, text.clone());
    if dir.symlink_metadata().is_ok() {
        return Err(already_exists());
    }
    let (id, _) = state.new_id()?;
    let new = boxes.join(format!(".new-{id}"));
    let created = create_dirs(&new, owner);
    let created = created.with_context(|| format!("cannot create {}", new.display()));
    let created = created.kind(ErrorKind::CannotStart).and_then(|()| fill(&new, &mut record));
    let created = created.and_then(|()| {
        let copied = copy_first_home(&new).context("cannot copy the home directory of the new box");
        copied.kind(ErrorKind::CannotStart)
    });
    let mut new_box = NamedBox { dir: new.clone(), record };
    let created = created.and_then(|()| {
        new_box.save().kind(ErrorKind::CannotStart)?;
        match rustix::fs::renameat_with(CWD, &new, CWD, &dir, RenameFlags::NOREPLACE) {
            Err(rustix::io::Errno::EXIST) => Err(already_exists()),
            renamed => renamed
                .context("cannot rename the directory of the new box")
                .kind(ErrorKind::CannotStart),
        }
    });
    if let Err(failure) = created {
        belljar_workspace::remove_tree(&new).ok(); // `belljar gc` removes the remaining files
        return Err(failure);
    }
    new_box.dir = dir;
    Ok(new_box)
}

/// Creates the directory of a box and its home directory.
fn create_dirs(dir: &Path, owner: Option<(u32, u32)>) -> anyhow::Result<()> {
    DirBuilder::new().recursive(true).mode(0o700).create(dir)?;
    let home = dir.join("home");
    DirBuilder::new().mode(0o755).create(&home)?;
    set_owner(&[dir, &home], owner)
}

/// Copies the home directory of a new box to `first`, for later resets and comparisons.
fn copy_first_home(dir: &Path) -> anyhow::Result<()> {
    let (home, first) = (dir.join("home"), dir.join("first"));
    if !is_empty(&home) && !first.exists() {
        belljar_workspace::copy_tree(&home, &first)?;
    }
    Ok(())
}

/// Returns the user and group id that own a directory of a box.
pub fn owner_of(dir: &Path) -> Option<(u32, u32)> {
    fs::symlink_metadata(dir).ok().map(|meta| (meta.uid(), meta.gid()))
}

/// Changes the owner of paths to the owner of the box's files. Does nothing if Belljar is not root.
///
/// `owner` is the owner of the workspace. Without a workspace the owner is `nobody`.
pub fn set_owner(paths: &[&Path], owner: Option<(u32, u32)>) -> anyhow::Result<()> {
    if Privilege::of_this_process() != Privilege::Root {
        return Ok(());
    }
    let (uid, gid) = owner.unwrap_or((NOBODY, NOBODY));
    for path in paths {
        std::os::unix::fs::chown(path, Some(uid), Some(gid))
            .with_context(|| format!("cannot change the owner of {}", path.display()))?;
    }
    Ok(())
}

/// Writes the first files of a new home directory. The directory is empty, so it contains no links.
pub fn write_home_files(
    home: &Path,
    files: &[HomeFile],
    owner: Option<(u32, u32)>,
) -> anyhow::Result<()> {
    for HomeFile { path, content, mode } in files {
        let mut parents: Vec<&Path> = path.ancestors().skip(1).collect();
        parents.pop(); // the home directory itself
        for dir in parents.into_iter().rev().map(|dir| home.join(dir)) {
            match DirBuilder::new().mode(0o700).create(&dir) {
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => continue,
                created => created.with_context(|| format!("cannot create {}", dir.display()))?,
            }
            set_owner(&[&dir], owner)?;
        }
        let file = home.join(path);
        let mut options = File::options();
        options.write(true).create_new(true).mode(*mode);
        let opened = options.open(&file);
        let mut opened = opened.with_context(|| format!("cannot create {}", file.display()))?;
        io::Write::write_all(&mut opened, content)?;
        set_owner(&[&file], owner)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use belljar_model::spec::BoxSpec;

    use super::*;

    const TIMEOUT: Duration = Duration::from_millis(50);

    fn test_box(dir: &Path) -> NamedBox {
        let record = BoxRecord {
            name: "task".parse().unwrap(),
            created: 0,
            spec: BoxSpec::default(),
            typed_in: "/".into(),
            ground: BoxWorkspace::Nothing,
            maker: None,
        };
        NamedBox { dir: dir.to_owned(), record }
    }

    #[test]
    fn lock_of_a_box_that_another_command_changes_is_busy_after_the_timeout() {
        let dir = tempfile::tempdir().unwrap();
        let named_box = test_box(dir.path());
        let held = named_box.lock_within(TIMEOUT).unwrap();
        let began = Instant::now();
        let on_another_thread = || {
            let change = || named_box.lock_within(TIMEOUT).map(drop);
            std::thread::scope(|scope| scope.spawn(change).join().unwrap())
        };
        let error = on_another_thread().unwrap_err();
        assert!(began.elapsed() >= TIMEOUT, "{:?}", began.elapsed());
        assert_eq!(error.kind(), ErrorKind::Busy);
        let text = error.to_string();
        assert_eq!(text, "another command is changing box task; try again when it has ended");
        drop(held);
        on_another_thread().expect("control: the other command has ended");
    }

    #[test]
    fn find_of_a_box_with_a_damaged_record_fails_and_the_error_names_the_file() {
        let home = tempfile::tempdir().unwrap();
        let state = crate::scope::of_test(home.path());
        let dir = boxes_dir(&state).join("task");
        fs::create_dir_all(&dir).unwrap();
        let named_box = test_box(&dir);
        named_box.save().unwrap();
        NamedBox::find(&state, named_box.name()).expect("control: the record is valid");
        let record = fs::read_to_string(dir.join("box.json")).unwrap();
        let unknown = record.replacen("\"spec\": {", "\"spec\": { \"later\": 1,", 1);
        assert_ne!(unknown, record);
        for (text, why) in [("{", "EOF"), (&unknown, "unknown field `later`")] {
            fs::write(dir.join("box.json"), text).unwrap();
            let error = NamedBox::find(&state, named_box.name()).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Damaged);
            let text = format!("{error:#}");
            let path = dir.join("box.json").display().to_string();
            assert!(text.contains(&path) && text.contains(why) && text.contains("copy"), "{text}");
        }
    }

    #[test]
    fn lock_of_a_removed_box_fails_with_not_found() {
        let dir = tempfile::tempdir().unwrap();
        let error = test_box(&dir.path().join("task")).lock_for_change().unwrap_err();
        assert_eq!(error.kind(), ErrorKind::NotFound);
        assert!(error.to_string().contains("there is no box task"), "{error}");
    }
}
