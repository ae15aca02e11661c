//! Schedules: the sections `[schedule.NAME]` of `belljar.toml`, with their state in the ledger.
//!
//! The file has the schedules of the tenant `local`. Those of other tenants are [`stored`] through the server.
//! The configuration says what a schedule does, and the ledger says since when it is enabled, whether it is
//! paused, and which slots were decided. [`due`](super::due) decides about slots, and the driver fires them.
//!
//! **A slot is fired once.** The id of its run follows from the schedule and the slot, and the ledger refuses
//! a second run with this id. So neither a crash nor a clock that is set back can repeat a slot.

pub mod stored;

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File};
use std::io::Read as _;
use std::path::{Path, PathBuf};

use anyhow::Context as _;
use belljar_ledger::{
    Actor, Digest, Draft, Event, LedgerPaths, Query, Reader, ReaderError, Row, ScheduleEnabled,
    SchedulePaused,
};
use belljar_model::RunName;
use belljar_model::plan::CheckedPlan;
use belljar_model::schedule::{Missed, Overlap, Schedule, ScheduleKey};
use belljar_model::{Config, ConfigError, RunId, anchor};
use jiff::Timestamp;
use jiff::tz::TimeZone;

use self::stored::{ScheduleValues, StoredSchedule};
use super::driver;
use super::fence::DriverLock;
use super::plans;
use super::slots::{Cron, Slots};
use super::store::StoreError;
use super::store::sqlite::RunDb;
use super::submit;
use crate::error::{EngineError, ErrorKind, WithKind as _};
use crate::host::HostEnv;
use crate::record;
use crate::record::reading::{each, newest, read};
use crate::scope::Scoped;

/// The directories that can contain the time zone database.
const ZONE_DIRS: [&str; 3] = ["/usr/share/zoneinfo", "/usr/share/lib/zoneinfo", "/etc/zoneinfo"];
/// The maximum size of a file of the time zone database in bytes; real ones have less than 4 KiB.
const MAX_ZONE: u64 = 1 << 20;
/// The maximum number of events about skipped and queued slots that are read. Only those of the last hour
/// matter for skipped ones.
const MAX_EVENTS: usize = 500;
/// The number of events that the database takes in one transaction.
const CHUNK: u64 = 8192;

/// The state of a schedule.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ScheduleState {
    /// Its slots fire while a driver runs.
    Enabled,
    /// A person paused it.
    Paused,
    /// Its configuration has a fault.
    Stopped,
}

impl ScheduleState {
    pub const fn name(self) -> &'static str {
        match self {
            Self::Enabled => "enabled",
            Self::Paused => "paused",
            Self::Stopped => "stopped",
        }
    }
}

/// A schedule with the place of its plan.
#[derive(Clone, Debug)]
pub(super) struct Configured {
    pub(super) schedule: Schedule,
    /// The stored schedule, which has the text of the plan; `None` if `belljar.toml` names a file.
    pub(super) stored: Option<StoredSchedule>,
}

/// One schedule in a list.
#[derive(Clone, Debug)]
pub struct ScheduleView {
    pub name: String,
    /// The file of the plan; empty if the plan is stored.
    pub plan: PathBuf,
    /// The stored schedule with the text of its plan; `None` for a section of `belljar.toml`.
    pub stored: Option<StoredSchedule>,
    pub cron: String,
    pub zone: String,
    pub missed: Missed,
    pub overlap: Overlap,
    pub state: ScheduleState,
    /// Why the schedule is stopped, with the file and the line.
    pub fault: Option<String>,
    /// The next slot, in milliseconds since 1970 and as local time; `None` if the schedule is not enabled.
    pub next: Option<(u64, String)>,
    /// The last fired slot, in milliseconds since 1970, with its run.
    pub last: Option<(u64, RunId)>,
}

/// The schedules of the configuration.
#[derive(Clone, Debug)]
pub struct ScheduleList {
    pub schedules: Vec<ScheduleView>,
    /// Whether a driver runs. Without one, no slot is fired.
    pub has_driver: bool,
}

/// Lists the schedules of the operator's configuration, sorted by name.
pub fn list(state: &Scoped) -> Result<ScheduleList, EngineError> {
    let config = state.load_config(None)?.0;
    let now = time(state);
    let reader = reader(state)?;
    let all = configured(state, &config)?;
    let names: BTreeSet<&str> = all.iter().map(|it| it.schedule.name.as_str()).collect();
    let recorded = match &reader {
        Some(reader) if !names.is_empty() => Recorded::read(reader, &names)?,
        Some(_) | None => BTreeMap::new(),
    };
    let fired = match &reader {
        Some(reader) if !names.is_empty() => {
            last_fired(state, reader, &names).unwrap_or_else(|error| {
                tracing::warn!(%error, "the last slots are not shown");
                BTreeMap::new()
            })
        }
        Some(_) | None => BTreeMap::new(),
    };
    let view = |configured: &Configured| {
        let Configured { schedule, stored } = configured;
        let name = schedule.name.as_str();
        let checked = slots(state.host(), schedule, now).map_err(|error| error.to_string());
        let plan = plan(state, &config, configured).map_err(|error| format!("{error:#}"));
        let fault = checked.as_ref().err().or(plan.as_ref().err()).cloned();
        let is_paused = recorded.get(name).is_some_and(Recorded::is_paused);
        let schedule_state = match (&fault, is_paused) {
            (Some(_), _) => ScheduleState::Stopped,
            (None, true) => ScheduleState::Paused,
            (None, false) => ScheduleState::Enabled,
        };
        let next = checked.ok().filter(|_| schedule_state == ScheduleState::Enabled);
        let next = next.and_then(|slots| {
            let slot = slots.after(now)?;
            Some((millis(slot), slots.local(slot).strftime("%Y-%m-%d %H:%M").to_string()))
        });
        ScheduleView {
            name: name.to_owned(),
            plan: match stored {
                Some(_) => PathBuf::new(),
                None => path(state.host(), schedule),
            },
            stored: stored.clone(),
            cron: schedule.cron.clone(),
            zone: schedule.zone.clone(),
            missed: schedule.missed,
            overlap: schedule.overlap,
            state: schedule_state,
            fault,
            next,
            last: fired.get(name).copied(),
        }
    };
    let schedules = all.iter().map(view).collect();
    Ok(ScheduleList { schedules, has_driver: DriverLock::is_held(state.store()) })
}

/// Pauses a schedule. Its slots are not fired until it is resumed.
pub fn pause(state: &Scoped, name: &str) -> Result<(), EngineError> {
    find(state, &state.load_config(None)?.0, name)?;
    let by = state.caller().principal.to_string();
    let at = state.clock().millis();
    record_event(state, SchedulePaused { schedule: name.to_owned(), by, at })?;
    // Without a driver, nothing has to be told.
    if DriverLock::is_held(state.store()) { driver::wake(state) } else { Ok(()) }
}

/// Enables a schedule again from now on, and starts a driver if none is running.
pub fn resume(state: &Scoped, name: &str) -> Result<(), EngineError> {
    let config = state.load_config(None)?.0;
    let found = find(state, &config, name)?;
    slots(state.host(), &found.schedule, time(state)).kind(ErrorKind::Invalid)?;
    plan(state, &config, &found)?;
    let by = Some(state.caller().principal.to_string());
    record_event(state, enabled(&found.schedule, by, state.clock().millis()))?;
    driver::wake(state)
}

/// Starts the plan of a schedule now, as the caller. The slots of the schedule do not change.
pub fn run(state: &Scoped, name: &str) -> Result<RunId, EngineError> {
    let config = state.load_config(None)?.0;
    let (plan, base) = plan(state, &config, &find(state, &config, name)?)?;
    submit::submit(state, &plan, &base, None)
}

/// Returns whether a schedule is enabled, so that a driver has to run. A configuration with a fault has none.
pub(super) fn is_any_enabled(state: &Scoped) -> bool {
    let has_schedules =
        |config: &Config| configured(state, config).is_ok_and(|schedules| !schedules.is_empty());
    let is_enabled = |it: &ScheduleView| it.state == ScheduleState::Enabled;
    state.load_config(None).is_ok_and(|(config, _)| has_schedules(&config))
        && list(state).is_ok_and(|list| list.schedules.iter().any(is_enabled))
}

/// Stores new values of a schedule of a tenant of the server, and enables a new one. `check` gets the current
/// schedule and can refuse the change.
///
/// The caller checks that the plan names only directories that its sender may use.
pub fn put<E: From<EngineError>>(
    state: &Scoped,
    name: &RunName,
    values: ScheduleValues,
    check: impl FnOnce(Option<&StoredSchedule>) -> Result<(), E>,
) -> Result<StoredSchedule, E> {
    check_stored(state)?;
    let mut is_new = true;
    let stored = stored::change(state, name, Some(values), |current| {
        is_new = current.is_none_or(|current| current.values.is_none());
        check(current)
    })?;
    // The driver notices other times itself. The slots since the removal of an earlier one are not fired.
    if let Some(schedule) = stored.schedule().filter(|_| is_new) {
        let by = Some(state.caller().principal.to_string());
        record_event(state, enabled(&schedule, by, state.clock().millis()))?;
    }
    driver::wake(state)?;
    Ok(stored)
}

/// Removes a schedule of a tenant of the server. `check` gets the current schedule and can refuse the change.
pub fn remove<E: From<EngineError>>(
    state: &Scoped,
    name: &RunName,
    check: impl FnOnce(Option<&StoredSchedule>) -> Result<(), E>,
) -> Result<(), E> {
    check_stored(state)?;
    stored::change(state, name, None, check)?;
    if DriverLock::is_held(state.store()) {
        driver::wake(state)?;
    }
    Ok(())
}

/// Checks the values of a new schedule.
pub fn check_values(
    state: &Scoped,
    name: &RunName,
    values: &ScheduleValues,
) -> Result<(), (ScheduleKey, String)> {
    let maker = state.caller().principal.clone();
    let values = Some(values.clone());
    let stored = StoredSchedule { name: name.clone(), version: 0, maker, values };
    let Some(schedule) = stored.schedule() else { return Ok(()) };
    let now = time(state);
    if let Err(error) = Cron::parse(&schedule.cron, now) {
        return Err((ScheduleKey::Cron, error.to_string()));
    }
    zone(state.host(), &schedule.zone).map(drop).map_err(|what| (ScheduleKey::Zone, what))
}

/// Refuses the tenant `local`, whose schedules are sections of a file. The error names the file.
pub fn check_stored(state: &Scoped) -> Result<(), EngineError> {
    if !state.caller().tenant.is_local() {
        return Ok(());
    }
    let file = state.config_file().map(Path::to_owned).or_else(|| state.host().config_file());
    let file = file.map_or_else(|| "belljar.toml".to_owned(), |file| file.display().to_string());
    let text = format!("the schedules of this tenant are sections of {file}; change that file");
    Err(EngineError::message(ErrorKind::WrongState, text))
}

/// Returns the schedules of the caller's tenant.
pub(super) fn configured(state: &Scoped, config: &Config) -> Result<Vec<Configured>, EngineError> {
    if state.caller().tenant.is_local() {
        let of_file = |schedule: &Schedule| Configured { schedule: schedule.clone(), stored: None };
        return Ok(config.schedules().map(of_file).collect());
    }
    let stored = stored::all(state)?.into_iter();
    let enabled = stored.filter_map(|stored| {
        Some(Configured { schedule: stored.schedule()?, stored: Some(stored) })
    });
    Ok(enabled.collect())
}

fn find(state: &Scoped, config: &Config, name: &str) -> Result<Configured, EngineError> {
    let found = configured(state, config)?;
    let found = found.into_iter().find(|it| it.schedule.name.as_str() == name);
    found.ok_or_else(|| {
        let place = match state.caller().tenant.is_local() {
            true => format!(" in {}", config.file().display()),
            false => String::new(),
        };
        EngineError::message(ErrorKind::NotFound, format!("there is no schedule `{name}`{place}"))
            .advise("`belljar schedule list` lists the schedules")
    })
}

fn record_event(state: &Scoped, event: impl Into<Event>) -> Result<(), EngineError> {
    let ledger = record::open(state).kind(ErrorKind::Unrecorded)?;
    let recorded = ledger.record(Draft::new(event).by(Actor::Operator));
    recorded
        .map(drop)
        .context("cannot record the change of the schedule")
        .kind(ErrorKind::Unrecorded)
}

fn reader(state: &Scoped) -> Result<Option<Reader>, EngineError> {
    match Reader::open_uncounted(&LedgerPaths::under(state.home())) {
        Err(ReaderError::None { .. }) => Ok(None),
        opened => Ok(Some(opened.context("cannot read the ledger").kind(ErrorKind::Broken)?)),
    }
}

/// Returns the event that enables a schedule.
pub(super) fn enabled(schedule: &Schedule, by: Option<String>, at: u64) -> ScheduleEnabled {
    ScheduleEnabled {
        schedule: schedule.name.to_string(),
        cron: schedule.cron.clone(),
        zone: schedule.zone.clone(),
        by,
        at,
    }
}

/// Returns the time of the clock.
pub(super) fn time(state: &Scoped) -> Timestamp {
    instant(state.clock().millis())
}

/// Returns the instant with a number of milliseconds since 1970.
pub(super) fn instant(millis: u64) -> Timestamp {
    let millis = i64::try_from(millis).unwrap_or(i64::MAX);
    Timestamp::from_millisecond(millis).unwrap_or(Timestamp::MAX)
}

/// Returns the milliseconds of an instant since 1970.
pub(super) fn millis(instant: Timestamp) -> u64 {
    u64::try_from(instant.as_millisecond()).unwrap_or(0)
}

/// Checks the expression and the zone of a schedule, and returns its slots.
pub(super) fn slots(
    host: &HostEnv,
    schedule: &Schedule,
    now: Timestamp,
) -> Result<Slots, ConfigError> {
    let cron = Cron::parse(&schedule.cron, now);
    let cron = cron.map_err(|error| schedule.error(ScheduleKey::Cron, error.to_string()))?;
    let zone = zone(host, &schedule.zone);
    let zone = zone.map_err(|what| schedule.error(ScheduleKey::Zone, what))?;
    Ok(Slots::new(cron, zone))
}

/// Reads a time zone. It is read again at each look, so that a zone that is changed or removed is noticed.
fn zone(host: &HostEnv, name: &str) -> Result<TimeZone, String> {
    if name == Schedule::DEFAULT_ZONE {
        return Ok(TimeZone::UTC);
    }
    let is_part = |part: &str| {
        let is_plain =
            |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-' | b'+');
        !part.is_empty() && part.bytes().all(is_plain)
    };
    let unknown =
        "unknown time zone; write a name of the time zone database such as `Europe/Berlin`";
    if !name.split('/').all(is_part) {
        return Err(unknown.to_owned());
    }
    let given = host.variable("TZDIR").map(PathBuf::from).filter(|dir| dir.is_absolute());
    let dirs = match given {
        Some(dir) => vec![dir],
        None => ZONE_DIRS.map(PathBuf::from).to_vec(),
    };
    let Some(dir) = dirs.iter().find(|dir| dir.is_dir()) else {
        return Err("this machine has no time zone database; install `tzdata`, or use `UTC`".into());
    };
    let file = dir.join(name);
    if !file.is_file() {
        return Err(unknown.to_owned());
    }
    let read = || -> std::io::Result<Vec<u8>> {
        let mut data = Vec::new();
        File::open(&file)?.take(MAX_ZONE).read_to_end(&mut data)?;
        Ok(data)
    };
    let data = read().map_err(|error| format!("cannot read {}: {error}", file.display()))?;
    TimeZone::tzif(name, &data)
        .map_err(|error| format!("{} is not a time zone: {error}", file.display()))
}

fn path(host: &HostEnv, schedule: &Schedule) -> PathBuf {
    anchor(&schedule.plan, Path::new("/"), host.user_home().as_deref())
}

/// Reads and checks the plan of a schedule. Returns it with its directory.
pub(super) fn plan(
    state: &Scoped,
    config: &Config,
    configured: &Configured,
) -> Result<(CheckedPlan, PathBuf), EngineError> {
    let Configured { schedule, stored } = configured;
    let fault = |what: String| {
        let error = schedule.error(ScheduleKey::Plan, what);
        EngineError::new(ErrorKind::Invalid, anyhow::Error::new(error))
    };
    let (text, name, base) = match stored.as_ref().and_then(|stored| stored.values.as_ref()) {
        // Such a plan names no relative paths.
        Some(values) => (values.plan.clone(), schedule.name.to_string(), PathBuf::from("/")),
        None => {
            let path = path(state.host(), schedule);
            let file = super::files::open_regular(&path);
            let file = file.map_err(|error| fault(format!("cannot read the plan: {error}")))?;
            let name = path.to_string_lossy().into_owned();
            let text = plans::read(file, &name).map_err(|error| fault(format!("{error:#}")))?;
            let base = path.parent().map_or_else(|| PathBuf::from("/"), Path::to_owned);
            (text, name, base)
        }
    };
    let ceiling = plans::ceiling_of(state.host(), config, &state.caller().tenant)?;
    let plan = plans::check(&text, &name, &ceiling).map_err(|faults| {
        let first = faults.list().first().map(ToString::to_string).unwrap_or_default();
        fault(format!("the plan is invalid: {first}"))
    })?;
    submit::supported(&plan).map_err(|error| fault(format!("{error:#}")))?;
    Ok((plan, base))
}

/// Returns the id of the run of a slot. `probe` is 0, or higher if another run has the id by chance.
pub(super) fn run_of_slot(schedule: &str, slot: Timestamp, probe: u32) -> RunId {
    let parts = [b"belljar schedule slot 1\0", schedule.as_bytes(), b"\0", &probe.to_be_bytes()];
    let [a, b, c, d, ..] = *Digest::of(&parts).as_bytes();
    RunId::new(millis(slot), u32::from_be_bytes([a, b, c, d]))
}

/// What the ledger says about a schedule.
#[derive(Clone, Debug, Default)]
pub(super) struct Recorded {
    /// The last event that enabled the schedule, with its index.
    pub(super) enabled: Option<(u64, ScheduleEnabled)>,
    /// The index of the last event that paused it.
    paused: Option<u64>,
    /// The newest slots that wait or were skipped.
    pub(super) queued: Option<u64>,
    pub(super) skipped: Option<u64>,
}

impl Recorded {
    pub(super) fn is_paused(&self) -> bool {
        let enabled = self.enabled.as_ref().map(|(index, _)| *index);
        self.paused.is_some_and(|paused| enabled.is_none_or(|enabled| enabled < paused))
    }

    /// Reads the newest events of schedules. People cause those that enable and pause, so they are few.
    pub(super) fn read(
        reader: &Reader,
        names: &BTreeSet<&str>,
    ) -> Result<BTreeMap<String, Self>, EngineError> {
        let mut all: BTreeMap<String, Self> =
            names.iter().map(|name| ((*name).to_owned(), Self::default())).collect();
        for kind in ["schedule.enabled", "schedule.paused", "schedule.queued", "schedule.skipped"] {
            let mut missing = names.len();
            let is_bounded = matches!(kind, "schedule.queued" | "schedule.skipped");
            let mut left = if is_bounded { MAX_EVENTS } else { usize::MAX };
            let query = Query { kind: Some(kind.to_owned()), ..newest(MAX_EVENTS) };
            each(reader, query, &mut |row: &Row| {
                let entry = read(reader, row)?;
                let is_new = match Event::read(&entry.kind, &entry.fields) {
                    Ok(Event::ScheduleEnabled(event)) => {
                        let found = all.get_mut(&event.schedule);
                        found.is_some_and(|it| set(&mut it.enabled, (row.index, event)))
                    }
                    Ok(Event::SchedulePaused(event)) => {
                        let found = all.get_mut(&event.schedule);
                        found.is_some_and(|it| set(&mut it.paused, row.index))
                    }
                    Ok(Event::ScheduleQueued(event)) => {
                        let found = all.get_mut(&event.schedule);
                        found.is_some_and(|it| set(&mut it.queued, event.slot))
                    }
                    Ok(Event::ScheduleSkipped(event)) => {
                        let found = all.get_mut(&event.schedule);
                        found.is_some_and(|it| set(&mut it.skipped, event.slot))
                    }
                    _ => false,
                };
                missing -= usize::from(is_new);
                left -= 1;
                Ok(missing > 0 && left > 0)
            })?;
        }
        Ok(all)
    }
}

/// Sets a value that is not set. Returns whether it was not.
fn set<T>(place: &mut Option<T>, value: T) -> bool {
    let is_new = place.is_none();
    place.get_or_insert(value);
    is_new
}

/// Returns the last fired slot of each schedule with its run. Without the database, none is shown.
fn last_fired(
    state: &Scoped,
    reader: &Reader,
    names: &BTreeSet<&str>,
) -> Result<BTreeMap<String, (u64, RunId)>, StoreError> {
    let mut database = RunDb::open(state.store().layout(), reader.id())?;
    while !database.catch_up(reader, CHUNK)?.is_complete {}
    let mut found = BTreeMap::new();
    for name in names {
        found.extend(database.last_slot(name)?.map(|last| ((*name).to_owned(), last)));
    }
    Ok(found)
}

/// Removes the files of a slot that a driver stored before it was killed, if the ledger has no such run.
pub(super) fn remove_leftover(dir: &Path) -> Result<(), EngineError> {
    match fs::remove_dir_all(dir) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => Err(error)
            .with_context(|| format!("cannot remove {}", dir.display()))
            .kind(ErrorKind::Broken),
        _ => Ok(()),
    }
}
