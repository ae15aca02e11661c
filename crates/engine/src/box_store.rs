//! Named boxes on disk: where each keeps what it is, its home and what it changed.
//!
//! ```text
//! $BELLJAR_HOME/boxes/NAME/box.json   what was said when it was made
//!                          turn       held by the command that changes it
//!                          lock       held by its keeper for as long as that lives
//!                          socket     where the keeper is spoken to
//!                          run.json upper/ work/ …   the newest run, laid out as every run is
//!                          home/      shown at the box's home
//! ```
//! A name that begins with a dot is a box that is being made, or was not finished.

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
use crate::store::lock::{self, CHANGE_TIMEOUT, Held, Rank, is_held};
use crate::store::{Run, durable, is_empty};

/// Files of a box without a workspace belong to nobody on the host.
const NOBODY: u32 = 65534;

/// One box that was made.
#[derive(Debug)]
pub struct NamedBox {
    pub dir: PathBuf,
    pub record: BoxRecord,
}

/// The right to change a box, as long as it is held.
#[derive(Debug)]
#[must_use]
pub struct ChangeLock {
    _held: Held,
}

/// Where all boxes are.
pub fn place(state: &Scoped) -> PathBuf {
    state.store().layout().boxes()
}

impl NamedBox {
    /// The box of this name.
    pub fn find(state: &Scoped, name: &BoxName) -> Result<Self, EngineError> {
        let dir = place(state).join(name.as_str());
        if !dir.exists() {
            return Err(no_box(name));
        }
        let loaded = Self::load(state, &dir).with_context(|| {
            format!("the record of box {name} is damaged: put box.json back from a copy, such as one of its snapshots")
        });
        loaded.kind(ErrorKind::Damaged)
    }

    /// All boxes, by name. What cannot be read is said.
    pub fn all(state: &Scoped) -> Result<Vec<Self>, EngineError> {
        let entries = match fs::read_dir(place(state)) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            entries => entries.context("list the boxes").kind(ErrorKind::Broken)?,
        };
        let mut boxes = Vec::new();
        for entry in entries.filter_map(Result::ok) {
            if entry.file_name().as_encoded_bytes().starts_with(b".") {
                continue;
            }
            match Self::load(state, &entry.path()) {
                Ok(one) => boxes.push(one),
                Err(error) => state.notice(&Notice::Damaged(format!("{error:#}"))),
            }
        }
        boxes.sort_by(|left, right| left.record.name.as_str().cmp(right.record.name.as_str()));
        Ok(boxes)
    }

    fn load(state: &Scoped, dir: &Path) -> anyhow::Result<Self> {
        let file = dir.join("box.json");
        let text = fs::read(&file).with_context(|| format!("read {}", file.display()))?;
        let home = state.host().user_home();
        let record = read_record(&text, home.as_deref());
        let record = record.with_context(|| format!("understand {}", file.display()))?;
        Ok(Self { dir: dir.to_owned(), record })
    }

    pub fn name(&self) -> &BoxName {
        &self.record.name
    }

    /// Its newest run; none if it was never started.
    pub fn run(&self) -> Option<Run> {
        Run::load(&self.dir).ok()
    }

    /// How it is right now.
    pub fn state(&self) -> BoxState {
        let kept = is_held(&self.dir.join("lock"));
        match self.run().map(|run| run.record.state) {
            Some(RunState::Running) if kept => BoxState::Running,
            _ if kept => BoxState::Changing,
            None => BoxState::New,
            Some(RunState::Finished) => BoxState::Stopped,
            Some(RunState::Interrupted | RunState::Running) => BoxState::Interrupted,
        }
    }

    pub fn is_up(&self) -> bool {
        matches!(self.state(), BoxState::Running | BoxState::Changing)
    }

    /// Puts what is known about it in the place of what was. Whoever does that has its turn.
    pub fn save(&self) -> anyhow::Result<()> {
        write_whole(&self.dir, "box.json", &serde_json::to_vec_pretty(&self.record)?)
    }

    /// Waits for the right to change this box.
    pub fn turn(&self) -> Result<ChangeLock, EngineError> {
        self.turn_within(CHANGE_TIMEOUT)
    }

    fn turn_within(&self, timeout: Duration) -> Result<ChangeLock, EngineError> {
        let held = match lock::wait(&self.dir.join("turn"), Rank::Box, timeout) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                return Err(no_box(self.name())); // another command removed it meanwhile
            }
            held => held,
        };
        let held = held.context("open the turn of the box").kind(ErrorKind::Broken)?;
        let held = held.ok_or_else(|| {
            let name = self.name();
            let text =
                format!("another command is at work on box {name}; try again when it has ended");
            EngineError::message(ErrorKind::Busy, text)
        })?;
        parts::finish(&self.dir)
            .context("finish what an interrupted command began")
            .kind(ErrorKind::Broken)?;
        Ok(ChangeLock { _held: held })
    }

    /// The same, for what cannot be done to a box that is up.
    pub fn turn_while_down(&self, wanted: &str) -> Result<ChangeLock, EngineError> {
        let turn = self.turn()?;
        if self.is_up() {
            let name = self.name();
            let text = format!(
                "box {name} is running: {wanted} needs it stopped, `belljar stop {name}` does that"
            );
            return Err(EngineError::message(ErrorKind::WrongState, text));
        }
        Ok(turn)
    }
}

fn no_box(name: &BoxName) -> EngineError {
    let text = format!("there is no box {name}; `belljar list` shows those there are");
    EngineError::message(ErrorKind::NotFound, text)
}

/// Reads `box.json`, also one that belljar 0.1 wrote. `home` is the user's home directory.
pub fn read_record(text: &[u8], home: Option<&Path>) -> anyhow::Result<BoxRecord> {
    #[derive(serde::Deserialize)]
    struct Version {
        spec: Option<serde::de::IgnoredAny>,
    }
    if serde_json::from_slice::<Version>(text)?.spec.is_some() {
        return Ok(serde_json::from_slice(text)?);
    }
    let old: BoxRecord01 = serde_json::from_slice(text)?;
    BoxRecord::from_0_1(old, home).context("the options of belljar 0.1")
}

/// The box that a run is the newest of, if it is one's.
pub fn of_run(state: &Scoped, run: &Run) -> Option<NamedBox> {
    (run.dir.parent() == Some(&place(state)))
        .then(|| NamedBox::load(state, &run.dir).ok())
        .flatten()
}

/// The newest run of each box.
pub fn runs(state: &Scoped) -> Vec<Run> {
    NamedBox::all(state)
        .map_or_else(|_| Vec::new(), |all| all.iter().filter_map(NamedBox::run).collect())
}

/// The newest run of the box of this name, if there is such a box.
pub fn run_named(state: &Scoped, name: &str) -> Result<Option<Run>, EngineError> {
    let Ok(name) = name.parse::<BoxName>() else { return Ok(None) };
    if !place(state).join(name.as_str()).exists() {
        return Ok(None);
    }
    let never =
        || invalid(format!("box {name} was never started; `belljar start {name}` starts it"));
    NamedBox::find(state, &name)?.run().ok_or_else(never).map(Some)
}

/// The box of this name, if it works on a clone of its own.
pub fn with_clone(state: &Scoped, name: Option<&str>) -> Result<Option<NamedBox>, EngineError> {
    let Some(name) = name.and_then(|name| name.parse::<BoxName>().ok()) else { return Ok(None) };
    if !place(state).join(name.as_str()).exists() {
        return Ok(None);
    }
    let one = NamedBox::find(state, &name)?;
    Ok(matches!(one.record.ground, BoxWorkspace::Repo(_)).then_some(one))
}

/// Writes a file of a box, whole or not at all.
pub fn write_whole(dir: &Path, name: &str, text: &[u8]) -> anyhow::Result<()> {
    let written = durable::write(dir, name, text);
    written.with_context(|| format!("write {}", dir.join(name).display()))
}

/// Makes a box: all of it, or nothing. `fill` puts into its directory what it starts with.
pub fn create(
    state: &Scoped,
    record: BoxRecord,
    owner: Option<(u32, u32)>,
    fill: impl FnOnce(&Path, &mut BoxRecord) -> Result<(), EngineError>,
) -> Result<NamedBox, EngineError> {
    let mut record = record;
    let place = place(state);
    let dir = place.join(record.name.as_str());
    let name = record.name.clone();
    let text = format!("there is a box {name} already");
    let taken = || EngineError::message(ErrorKind::AlreadyExists, text.clone());
    if dir.symlink_metadata().is_ok() {
        return Err(taken());
    }
    let (id, _) = state.new_id()?;
    let new = place.join(format!(".new-{id}"));
    let made = make(&new, owner).with_context(|| format!("make {}", new.display()));
    let made = made.kind(ErrorKind::CannotStart).and_then(|()| fill(&new, &mut record));
    let made = made.and_then(|()| {
        keep_first(&new).context("keep the first home").kind(ErrorKind::CannotStart)
    });
    let mut one = NamedBox { dir: new.clone(), record };
    let made = made.and_then(|()| {
        one.save().kind(ErrorKind::CannotStart)?;
        match rustix::fs::renameat_with(CWD, &new, CWD, &dir, RenameFlags::NOREPLACE) {
            Err(rustix::io::Errno::EXIST) => Err(taken()),
            renamed => renamed.context("give the box its name").kind(ErrorKind::CannotStart),
        }
    });
    if let Err(failure) = made {
        belljar_workspace::remove_tree(&new).ok(); // a rest is removed by `belljar gc`
        return Err(failure);
    }
    one.dir = dir;
    Ok(one)
}

fn make(dir: &Path, owner: Option<(u32, u32)>) -> anyhow::Result<()> {
    DirBuilder::new().recursive(true).mode(0o700).create(dir)?;
    let home = dir.join("home");
    DirBuilder::new().mode(0o755).create(&home)?;
    give(&[dir, &home], owner)
}

/// Keeps what a home begins with, to go back to and to compare with.
fn keep_first(dir: &Path) -> anyhow::Result<()> {
    let (home, first) = (dir.join("home"), dir.join("first"));
    if !is_empty(&home) && !first.exists() {
        belljar_workspace::copy_tree(&home, &first)?;
    }
    Ok(())
}

/// To whom a directory of a box belongs.
pub fn owner_of(dir: &Path) -> Option<(u32, u32)> {
    fs::symlink_metadata(dir).ok().map(|meta| (meta.uid(), meta.gid()))
}

/// Gives paths to whom the box's files belong on the host: when we are root, whoever owns the workspace.
pub fn give(paths: &[&Path], owner: Option<(u32, u32)>) -> anyhow::Result<()> {
    if Privilege::of_this_process() != Privilege::Root {
        return Ok(());
    }
    let (uid, gid) = owner.unwrap_or((NOBODY, NOBODY));
    for path in paths {
        std::os::unix::fs::chown(path, Some(uid), Some(gid))
            .with_context(|| format!("give {} to the box", path.display()))?;
    }
    Ok(())
}

/// Puts into a new home what it begins with. Nothing is there yet that could lead elsewhere.
pub fn furnish(home: &Path, files: &[HomeFile], owner: Option<(u32, u32)>) -> anyhow::Result<()> {
    for HomeFile { path, content, mode } in files {
        let mut above: Vec<&Path> = path.ancestors().skip(1).collect();
        above.pop(); // the home itself
        for dir in above.into_iter().rev().map(|dir| home.join(dir)) {
            match DirBuilder::new().mode(0o700).create(&dir) {
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => continue,
                made => made.with_context(|| format!("make {}", dir.display()))?,
            }
            give(&[&dir], owner)?;
        }
        let file = home.join(path);
        let mut options = File::options();
        options.write(true).create_new(true).mode(*mode);
        let mut opened = options.open(&file).with_context(|| format!("make {}", file.display()))?;
        io::Write::write_all(&mut opened, content)?;
        give(&[&file], owner)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use belljar_model::spec::BoxSpec;

    use super::*;

    const TIMEOUT: Duration = Duration::from_millis(50);

    fn one(dir: &Path) -> NamedBox {
        let record = BoxRecord {
            name: "task".parse().unwrap(),
            created: 0,
            spec: BoxSpec::default(),
            typed_in: "/".into(),
            ground: BoxWorkspace::Nothing,
        };
        NamedBox { dir: dir.to_owned(), record }
    }

    #[test]
    fn change_of_a_box_that_is_changed_is_busy_after_the_timeout_and_says_what_to_do() {
        let dir = tempfile::tempdir().unwrap();
        let of = one(dir.path());
        let held = of.turn_within(TIMEOUT).unwrap();
        let began = Instant::now();
        let on_another_thread = || {
            let change = || of.turn_within(TIMEOUT).map(drop);
            std::thread::scope(|scope| scope.spawn(change).join().unwrap())
        };
        let error = on_another_thread().unwrap_err();
        assert!(began.elapsed() >= TIMEOUT, "{:?}", began.elapsed());
        assert_eq!(error.kind(), ErrorKind::Busy);
        let text = error.to_string();
        assert_eq!(text, "another command is at work on box task; try again when it has ended");
        drop(held);
        on_another_thread().expect("control: the other command has ended");
    }

    #[test]
    fn box_with_a_damaged_record_is_refused_and_the_file_is_named() {
        let home = tempfile::tempdir().unwrap();
        let state = crate::scope::of_test(home.path());
        let dir = place(&state).join("task");
        fs::create_dir_all(&dir).unwrap();
        let of = one(&dir);
        of.save().unwrap();
        NamedBox::find(&state, of.name()).expect("control: a whole record");
        let record = fs::read_to_string(dir.join("box.json")).unwrap();
        let unknown = record.replacen("\"spec\": {", "\"spec\": { \"later\": 1,", 1);
        assert_ne!(unknown, record);
        for (text, why) in [("{", "EOF"), (&unknown, "unknown field `later`")] {
            fs::write(dir.join("box.json"), text).unwrap();
            let error = NamedBox::find(&state, of.name()).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Damaged);
            let said = format!("{error:#}");
            let path = dir.join("box.json").display().to_string();
            assert!(said.contains(&path) && said.contains(why) && said.contains("copy"), "{said}");
        }
    }

    #[test]
    fn change_of_a_removed_box_says_that_there_is_none() {
        let dir = tempfile::tempdir().unwrap();
        let error = one(&dir.path().join("task")).turn().unwrap_err();
        assert_eq!(error.kind(), ErrorKind::NotFound);
        assert!(error.to_string().contains("there is no box task"), "{error}");
    }
}
