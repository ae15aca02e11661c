//! An index of the named boxes of a tenant in memory, so that a server can list many boxes quickly.
//!
//! A refresh reads the records of new and changed boxes only. A box has changed if the times of its directory
//! differ: every record is replaced by a rename, which changes them. The lock of a running box is checked at
//! every refresh, because the death of a supervisor changes no file.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use anyhow::Context as _;
use belljar_model::agent::AgentName;
use belljar_model::boxes::{BoxName, BoxState, BoxWorkspace};
use belljar_model::caller::Principal;
use belljar_model::{RunId, RunRecord, RunResult};

use super::maker;
use crate::box_store::{self, NamedBox};
use crate::error::{EngineError, ErrorKind, WithKind as _};
use crate::scope::Scoped;

/// The time for which a snapshot is used again, if the list of boxes is the same.
const MAX_AGE: Duration = Duration::from_millis(250);
/// A refresh may use at most one part of this many of the processor.
const MAX_SHARE: u32 = 20;
/// Two changes within this time can have the same time in the file system.
const TIME_RESOLUTION: Duration = Duration::from_millis(20);

/// A named box in the index.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BoxSummary {
    pub name: BoxName,
    pub state: BoxState,
    /// The creation time in milliseconds since the Unix epoch.
    pub created: u64,
    /// The principal that created the box.
    pub maker: Principal,
    pub template: String,
    pub agent: Option<AgentName>,
    pub ground: BoxWorkspace,
    /// The newest run, if the box was started.
    pub run: Option<RunSummary>,
}

/// The newest run of a box.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RunSummary {
    pub id: RunId,
    /// The time when the run started, in milliseconds since the Unix epoch.
    pub started: u64,
    pub argv: Vec<String>,
    /// How the run ended.
    pub result: Option<RunResult>,
    /// Whether changes of the run wait for review.
    pub is_pending: bool,
}

impl RunSummary {
    fn of(record: RunRecord) -> Self {
        let RunRecord { id, created: started, argv, result, review, .. } = record;
        Self { id, started, argv, result, is_pending: review.is_pending() }
    }
}

/// A box whose record cannot be read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DamagedBox {
    pub name: String,
    pub why: String,
}

/// The boxes of a tenant at one time, sorted by name.
#[derive(Debug, Default)]
pub struct BoxSnapshot {
    pub boxes: Vec<Arc<BoxSummary>>,
    pub damaged: Vec<DamagedBox>,
}

/// The index of the boxes of one tenant.
///
/// The newest snapshot has a lock of its own, so that no reader waits for a refresh.
#[derive(Debug, Default)]
pub struct BoxIndex {
    known: Mutex<BTreeMap<String, Entry>>,
    newest: Mutex<Newest>,
}

#[derive(Debug, Default)]
struct Newest {
    latest: Option<Latest>,
    /// The number of times that the index was expired. A refresh that began before has missed a change.
    expired: u64,
}

/// The newest snapshot, and what its age is judged by.
#[derive(Debug)]
struct Latest {
    snapshot: Arc<BoxSnapshot>,
    taken: Instant,
    /// The duration of the refresh.
    cost: Duration,
    directory: Times,
}

/// A known box, as it was read when its directory had these times.
#[derive(Debug)]
struct Entry {
    times: Times,
    /// Whether the directory was unchanged for long enough that its times identify its content.
    is_settled: bool,
    content: Result<Arc<BoxSummary>, String>,
}

/// The inode number and the times of a directory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Times {
    inode: u64,
    modified: i128,
    changed: i128,
}

impl Times {
    fn read(path: &Path) -> io::Result<Self> {
        let meta = fs::symlink_metadata(path)?;
        let nanos = |secs: i64, nanos: i64| i128::from(secs) * 1_000_000_000 + i128::from(nanos);
        Ok(Self {
            inode: meta.ino(),
            modified: nanos(meta.mtime(), meta.mtime_nsec()),
            changed: nanos(meta.ctime(), meta.ctime_nsec()),
        })
    }

    /// Returns whether the directory was last changed long enough before `now`, in nanoseconds.
    fn is_settled(self, now: u64) -> bool {
        let resolution = i128::try_from(TIME_RESOLUTION.as_nanos()).unwrap_or(i128::MAX);
        self.changed.max(self.modified) + resolution < i128::from(now)
    }
}

impl BoxIndex {
    /// Returns the newest snapshot if it can still be used. Reads the times of one directory only.
    pub fn fresh(&self, state: &Scoped) -> Option<Arc<BoxSnapshot>> {
        let newest = self.newest();
        let latest = newest.latest.as_ref()?;
        let max_age = MAX_AGE.max(latest.cost * MAX_SHARE);
        let is_fresh = latest.taken.elapsed() < max_age
            && Times::read(&box_store::boxes_dir(state)).ok() == Some(latest.directory);
        is_fresh.then(|| Arc::clone(&latest.snapshot))
    }

    /// Makes the next call of [`BoxIndex::fresh`] return nothing, after a change of a box.
    pub fn expire(&self) {
        let mut newest = self.newest();
        newest.latest = None;
        newest.expired += 1;
    }

    /// Returns a snapshot that can still be used, or reads the changed boxes. Blocks.
    pub fn snapshot(&self, state: &Scoped) -> Result<Arc<BoxSnapshot>, EngineError> {
        if let Some(fresh) = self.fresh(state) {
            return Ok(fresh);
        }
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        // Another thread may have refreshed the index while this one waited.
        match self.fresh(state) {
            Some(fresh) => Ok(fresh),
            None => self.refresh(&mut known, state),
        }
    }

    /// Reads the changed boxes. `before` is what was known.
    fn refresh(
        &self,
        before: &mut BTreeMap<String, Entry>,
        state: &Scoped,
    ) -> Result<Arc<BoxSnapshot>, EngineError> {
        let (started, expired) = (Instant::now(), self.newest().expired);
        let dir = box_store::boxes_dir(state);
        // The times are read before the entries, so that a later change is noticed.
        let directory = match Times::read(&dir) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                return Ok(Arc::new(BoxSnapshot::default()));
            }
            times => times.context("cannot list the boxes").kind(ErrorKind::Broken)?,
        };
        let entries =
            fs::read_dir(&dir).context("cannot list the boxes").kind(ErrorKind::Broken)?;
        let mut known = BTreeMap::new();
        for entry in entries.filter_map(Result::ok) {
            let Ok(name) = entry.file_name().into_string() else { continue };
            if name.starts_with('.') {
                continue; // the creation of the box has not finished
            }
            let read = Entry::read(state, &entry.path(), before.remove(&name));
            if let Some(read) = read {
                known.insert(name, read);
            }
        }
        let snapshot = Arc::new(snapshot_of(&known));
        *before = known;
        let latest = Arc::clone(&snapshot);
        let (taken, cost) = (Instant::now(), started.elapsed());
        let is_settled = directory.is_settled(state.clock().nanos());
        let mut newest = self.newest();
        if newest.expired == expired {
            newest.latest =
                is_settled.then_some(Latest { snapshot: latest, taken, cost, directory });
        }
        Ok(snapshot)
    }

    fn newest(&self) -> MutexGuard<'_, Newest> {
        self.newest.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Entry {
    /// Returns the entry of a box, which is `known` if nothing changed. `None` if the box is gone.
    fn read(state: &Scoped, dir: &Path, known: Option<Self>) -> Option<Self> {
        let times = Times::read(dir).ok()?;
        match known {
            Some(known) if known.is_settled && known.times == times && !known.may_change() => {
                return Some(known);
            }
            _ => {}
        }
        let is_settled = times.is_settled(state.clock().nanos());
        let content = match NamedBox::load(state, dir) {
            Ok(named_box) => Ok(Arc::new(summary(&named_box))),
            Err(_) if !dir.exists() => return None,
            Err(error) => Err(format!("{error:#}")),
        };
        Some(Self { times, is_settled, content })
    }

    /// Returns whether the state of the box can change without a change of its directory.
    fn may_change(&self) -> bool {
        self.content.as_ref().is_ok_and(|it| {
            matches!(it.state, BoxState::Running | BoxState::Paused | BoxState::Changing)
        })
    }
}

/// Returns the summary of a box. Does not ask its supervisor.
pub fn summary(named_box: &NamedBox) -> BoxSummary {
    let record = &named_box.record;
    BoxSummary {
        name: record.name.clone(),
        state: named_box.state(),
        created: record.created,
        maker: maker(named_box),
        template: record.spec.template.clone(),
        agent: record.spec.agent.clone(),
        ground: record.ground.clone(),
        run: named_box.run().map(|run| RunSummary::of(run.record)),
    }
}

fn snapshot_of(known: &BTreeMap<String, Entry>) -> BoxSnapshot {
    let mut snapshot = BoxSnapshot::default();
    for (name, entry) in known {
        match &entry.content {
            Ok(summary) => snapshot.boxes.push(Arc::clone(summary)),
            Err(why) => {
                let (name, why) = (name.clone(), why.clone());
                snapshot.damaged.push(DamagedBox { name, why });
            }
        }
    }
    snapshot
}

#[cfg(test)]
mod tests {
    use belljar_model::spec::BoxSpec;

    use super::*;
    use crate::scope::of_test;

    fn create(state: &Scoped, name: &str) -> NamedBox {
        let names = [name.parse().unwrap()];
        super::super::create(state, &names, &BoxSpec::default(), Path::new("/")).unwrap().remove(0)
    }

    fn names(index: &BoxIndex, state: &Scoped) -> Vec<String> {
        let snapshot = index.snapshot(state).unwrap();
        snapshot.boxes.iter().map(|it| it.name.to_string()).collect()
    }

    #[test]
    fn index_shows_created_changed_and_removed_boxes_at_once() {
        let dir = tempfile::tempdir().unwrap();
        let state = of_test(dir.path());
        let index = BoxIndex::default();
        assert!(names(&index, &state).is_empty());
        create(&state, "b");
        let mut first = create(&state, "a");
        assert_eq!(names(&index, &state), ["a", "b"]);
        first.record.spec.template = "other".to_owned();
        first.save().unwrap();
        index.expire();
        let snapshot = index.snapshot(&state).unwrap();
        assert_eq!(snapshot.boxes[0].template, "other");
        super::super::remove(&state, &first, false).unwrap();
        assert_eq!(names(&index, &state), ["b"]);
    }

    #[test]
    fn damaged_box_is_in_the_snapshot_with_the_reason() {
        let dir = tempfile::tempdir().unwrap();
        let state = of_test(dir.path());
        let damaged = create(&state, "a");
        create(&state, "b");
        fs::write(damaged.dir.join("box.json"), "{").unwrap();
        let index = BoxIndex::default();
        assert_eq!(names(&index, &state), ["b"]);
        let snapshot = index.snapshot(&state).unwrap();
        let [DamagedBox { name, why }] = snapshot.damaged.as_slice() else { panic!() };
        assert_eq!(name, "a");
        assert!(why.contains("box.json"), "{why}");
    }

    #[test]
    fn refresh_reads_only_boxes_that_changed() {
        let dir = tempfile::tempdir().unwrap();
        let state = of_test(dir.path());
        let (index, kept) = (BoxIndex::default(), create(&state, "a"));
        let changed = create(&state, "b");
        // The index trusts times that are old enough.
        belljar_testkit::eventually("the boxes are settled", || {
            names(&index, &state);
            let known = index.known.lock().unwrap();
            known.values().all(|entry| entry.is_settled)
        });
        let before = index.refresh(&mut index.known.lock().unwrap(), &state).unwrap();
        changed.save().unwrap();
        let after = index.refresh(&mut index.known.lock().unwrap(), &state).unwrap();
        assert!(Arc::ptr_eq(&before.boxes[0], &after.boxes[0]), "{kept:?} was read again");
        assert!(!Arc::ptr_eq(&before.boxes[1], &after.boxes[1]), "control");
    }
}
