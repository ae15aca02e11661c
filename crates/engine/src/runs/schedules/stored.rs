//! The schedules of a tenant of the server: one file for each schedule, with the text of its plan.
//!
//! ```text
//! schedules/NAME.json    the schedule; a removed one keeps its maker and its version
//! ```
//! The operator's `belljar.toml` has the schedules of the tenant `local` instead. The runs of a schedule belong to
//! the principal that made the schedule. A name therefore keeps its maker, also after the schedule was removed.

use std::fs::{self, DirBuilder};
use std::io;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};

use anyhow::Context as _;
use belljar_model::RunName;
use belljar_model::caller::Principal;
use belljar_model::schedule::{Missed, Overlap, Schedule, ScheduleLines};
use serde::{Deserialize, Serialize};

use crate::error::{EngineError, ErrorKind, WithKind as _};
use crate::scope::Scoped;
use crate::store::durable::{self, Links};
use crate::store::lock::{self, Rank};

/// The maximum size of a file: that of a plan, with escapes, and the other values.
const MAX_FILE: u64 = 32 << 20;
/// The maximum number of names of schedules of a tenant, with those of removed schedules.
const MAX_NAMES: usize = 1000;
/// The format of the files.
const FORMAT: u32 = 1;

/// A schedule that was stored through the server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredSchedule {
    pub name: RunName,
    /// Counts the changes of the schedule.
    pub version: u64,
    /// The principal that first used the name.
    pub maker: Principal,
    /// `None` if the schedule was removed.
    pub values: Option<ScheduleValues>,
}

/// The values of a schedule.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ScheduleValues {
    /// The text of the plan, in TOML or JSON.
    pub plan: String,
    pub cron: String,
    pub zone: String,
    #[serde(with = "by_name")]
    pub missed: Missed,
    #[serde(with = "by_name")]
    pub overlap: Overlap,
}

/// The content of a file.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct ScheduleFile {
    format: u32,
    version: u64,
    maker: Principal,
    values: Option<ScheduleValues>,
}

/// Writes a value as its name.
mod by_name {
    use std::fmt::Display;
    use std::str::FromStr;

    use serde::de::Error as _;
    use serde::{Deserialize as _, Deserializer, Serializer};

    pub(super) fn serialize<T: Display, S: Serializer>(
        value: &T,
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        serializer.collect_str(value)
    }

    pub(super) fn deserialize<'de, T: FromStr<Err: Display>, D: Deserializer<'de>>(
        deserializer: D,
    ) -> Result<T, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(D::Error::custom)
    }
}

impl StoredSchedule {
    /// Returns the schedule as the driver uses it; `None` if it was removed.
    pub(super) fn schedule(&self) -> Option<Schedule> {
        let values = self.values.as_ref()?;
        Some(Schedule {
            name: self.name.clone(),
            plan: PathBuf::new(),
            cron: values.cron.clone(),
            zone: values.zone.clone(),
            missed: values.missed,
            overlap: values.overlap,
            file: PathBuf::from(format!("schedule {}", self.name)),
            lines: ScheduleLines { heading: 1, plan: 1, cron: 1, zone: 1 },
        })
    }
}

/// Returns all names of schedules of the caller's tenant, in their order.
pub fn all(state: &Scoped) -> Result<Vec<StoredSchedule>, EngineError> {
    let entries = match fs::read_dir(state.store().layout().schedules()) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        entries => entries.context("cannot list the schedules").kind(ErrorKind::Broken)?,
    };
    let mut schedules = Vec::new();
    for entry in entries.filter_map(Result::ok) {
        let path = entry.path();
        let is_file = path.extension().is_some_and(|extension| extension == "json");
        let stem = path.file_stem().and_then(|stem| stem.to_str()).filter(|_| is_file);
        let Some(Ok(name)) = stem.map(str::parse::<RunName>) else { continue };
        schedules.extend(read(state, &name)?);
    }
    schedules.sort_by(|left, right| left.name.cmp(&right.name));
    Ok(schedules)
}

/// Returns the schedule with a name, also if it was removed.
pub fn read(state: &Scoped, name: &RunName) -> Result<Option<StoredSchedule>, EngineError> {
    let file = state.store().layout().schedules().join(file_name(name));
    let damaged = |error: anyhow::Error| {
        EngineError::new(ErrorKind::Damaged, error.context(format!("schedule {name}")))
    };
    let text = durable::read(&file, MAX_FILE, Links::Refuse);
    let Some(text) = text.map_err(|error| damaged(error.into()))? else { return Ok(None) };
    let stored: ScheduleFile =
        serde_json::from_str(&text).map_err(|error| damaged(error.into()))?;
    let ScheduleFile { format, version, maker, values } = stored;
    if format != FORMAT {
        let text = format!("schedule {name} has the unknown format {format}");
        return Err(EngineError::message(ErrorKind::Version, text));
    }
    Ok(Some(StoredSchedule { name: name.clone(), version, maker, values }))
}

/// Stores new values of a schedule, or removes it. `check` gets the current schedule and can refuse the change;
/// no other change happens in between. Returns the schedule.
pub(super) fn change<E: From<EngineError>>(
    state: &Scoped,
    name: &RunName,
    values: Option<ScheduleValues>,
    check: impl FnOnce(Option<&StoredSchedule>) -> Result<(), E>,
) -> Result<StoredSchedule, E> {
    let dir = state.store().layout().schedules();
    let _guard = lock_directory(&dir)?;
    let current = read(state, name)?;
    check(current.as_ref())?;
    if current.is_none() && all(state)?.len() >= MAX_NAMES {
        let text = format!("a tenant has at most {MAX_NAMES} names of schedules");
        return Err(EngineError::message(ErrorKind::WrongState, text).into());
    }
    let maker = current.as_ref().map(|it| it.maker.clone());
    let maker = maker.unwrap_or_else(|| state.caller().principal.clone());
    let version = current.map_or(0, |it| it.version).saturating_add(1);
    let file = ScheduleFile { format: FORMAT, version, maker, values };
    let write = || -> anyhow::Result<()> {
        Ok(durable::write(&dir, &file_name(name), &serde_json::to_vec(&file)?)?)
    };
    write().context("cannot store the schedule").kind(ErrorKind::Broken)?;
    let ScheduleFile { maker, values, .. } = file;
    Ok(StoredSchedule { name: name.clone(), version, maker, values })
}

fn lock_directory(dir: &Path) -> Result<lock::LockGuard, EngineError> {
    let locked = || -> io::Result<Option<lock::LockGuard>> {
        DirBuilder::new().recursive(true).mode(0o700).create(dir)?;
        lock::acquire(&dir.join("lock"), Rank::Directory, lock::CHANGE_TIMEOUT)
    };
    let guard = locked().context("cannot lock the schedules").kind(ErrorKind::Broken)?;
    let busy = || EngineError::message(ErrorKind::Busy, "another change of a schedule is running");
    guard.ok_or_else(busy)
}

fn file_name(name: &RunName) -> String {
    format!("{}.json", name.as_str())
}

#[cfg(test)]
mod tests {
    use belljar_model::Caller;

    use super::*;
    use crate::scope::of_test_caller;

    fn scope(home: &Path, maker: &str) -> Scoped {
        let principal = maker.parse().unwrap();
        let tenant = "team-7".parse().unwrap();
        of_test_caller(home, Caller { principal, tenant, session: None, client: None })
    }

    fn values() -> ScheduleValues {
        ScheduleValues {
            plan: "[task.a]\ndo.stub = 1\n".to_owned(),
            cron: "0 3 * * *".to_owned(),
            zone: "UTC".to_owned(),
            missed: Missed::Skip,
            overlap: Overlap::Queue,
        }
    }

    fn store(state: &Scoped, name: &str, values: Option<ScheduleValues>) -> StoredSchedule {
        let name = name.parse().unwrap();
        change::<EngineError>(state, &name, values, |_| Ok(())).unwrap()
    }

    #[test]
    fn f08_schedule_keeps_its_maker_and_counts_its_changes_also_when_it_was_removed() {
        let dir = tempfile::tempdir().unwrap();
        let (ada, bob) = (scope(dir.path(), "person:ada"), scope(dir.path(), "person:bob"));
        assert_eq!(all(&ada).unwrap(), []);
        let first = store(&ada, "nightly", Some(values()));
        assert_eq!((first.version, first.maker.to_string()), (1, "person:ada".to_owned()));
        store(&bob, "nightly", None);
        assert_eq!(read(&bob, &first.name).unwrap().unwrap().values, None);
        let again = store(&bob, "nightly", Some(values()));
        assert_eq!((again.version, &again.maker), (3, &first.maker));
        store(&bob, "hourly", Some(values()));
        let names: Vec<String> = all(&ada).unwrap().iter().map(|it| it.name.to_string()).collect();
        assert_eq!(names, ["hourly", "nightly"]);
        assert_eq!(read(&ada, &again.name).unwrap(), Some(again));
    }

    #[test]
    fn change_that_is_refused_stores_nothing() {
        let dir = tempfile::tempdir().unwrap();
        let ada = scope(dir.path(), "person:ada");
        let name: RunName = "nightly".parse().unwrap();
        let refused = || EngineError::message(ErrorKind::Refused, "no");
        let error = change(&ada, &name, Some(values()), |_| Err(refused())).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Refused);
        assert_eq!(read(&ada, &name).unwrap(), None);
        fs::write(dir.path().join("tenants/team-7/schedules/nightly.json"), "{").unwrap();
        assert_eq!(all(&ada).unwrap_err().kind(), ErrorKind::Damaged);
    }
}
