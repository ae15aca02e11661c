//! Fires the slots of schedules while the driver runs.
//!
//! The configuration and the time zones are read again at each look, so that changes take effect without a
//! restart. A schedule with a fault stops; the others and all runs go on.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use anyhow::Context as _;
use belljar_ledger::{
    Actor, Draft, Event, LedgerPaths, Reader, ScheduleFired, ScheduleQueued, ScheduleSkipped,
};
use belljar_model::caller::{Principal, PrincipalKind};
use belljar_model::{Caller, Config, RunId};
use jiff::Timestamp;

use super::live::Live;
use super::rounds::{Driver, Stop};
use crate::config::ConfigFingerprint;
use crate::error::{EngineError, ErrorKind, WithKind as _};
use crate::record::reading::read;
use crate::runs::due::{Due, Watched};
use crate::runs::schedules::{self, Configured, Recorded, instant, millis, run_of_slot, time};
use crate::runs::slots::Slots;
use crate::runs::submit;
use crate::scope::Scoped;

/// The maximum time between two looks at the clock, the configuration and the time zones. The clock can be
/// set, and the time during which the machine is suspended does not count as time that passed.
const LOOK: Duration = Duration::from_secs(30);
/// The number of ids that are tried for the run of a slot.
const MAX_PROBES: u32 = 8;
/// The maximum length of the fault of a plan in the ledger, in characters.
const MAX_FAULT: usize = 500;

/// The schedules in the memory of the driver.
#[derive(Debug, Default)]
pub(super) struct Schedules {
    fingerprint: Option<ConfigFingerprint>,
    config: Option<Config>,
    /// The enabled schedules without a fault.
    enabled: BTreeMap<String, Entry>,
    /// The faults that were reported.
    faults: BTreeSet<String>,
    /// The schedule of each open run; `None` if a caller submitted it.
    origins: BTreeMap<RunId, Option<String>>,
    last_look: Option<Instant>,
    /// The time of the clock at the last decision, and the earliest slot after it.
    decided: Option<(Timestamp, Option<Timestamp>)>,
}

#[derive(Debug)]
struct Entry {
    configured: Configured,
    slots: Slots,
    decided: Timestamp,
    queued: Option<Timestamp>,
}

impl Schedules {
    /// Returns whether the driver has to wait for a slot.
    pub(super) fn is_any_enabled(&self) -> bool {
        !self.enabled.is_empty()
    }

    /// Returns the time until the next look or slot; `None` without an enabled schedule.
    pub(super) fn timeout(&self, state: &Scoped, runs: &BTreeMap<RunId, Live>) -> Option<Duration> {
        if self.enabled.is_empty() {
            return None;
        }
        let Some((_, next)) = self.decided else { return Some(Duration::ZERO) };
        let has_ended = |name: &String| {
            let mut open = self.origins.iter().filter(|(run, _)| runs.contains_key(run));
            !open.any(|(_, origin)| origin.as_ref() == Some(name))
        };
        let mut queued = self.enabled.iter().filter(|(_, entry)| entry.queued.is_some());
        if queued.any(|(name, _)| has_ended(name)) {
            return Some(Duration::ZERO);
        }
        let until = next.map_or(LOOK, |next| {
            Duration::try_from(time(state).duration_until(next)).unwrap_or_default()
        });
        Some(until.min(LOOK))
    }
}

impl Driver<'_> {
    /// Reads the schedules of the configuration and their state in the ledger.
    pub(super) fn look_for_schedules(&mut self) -> Result<(), EngineError> {
        self.schedules.last_look = Some(Instant::now());
        let state = self.state;
        let fingerprint = state.config_fingerprint(None);
        if self.schedules.fingerprint.as_ref() != Some(&fingerprint) {
            self.schedules.fingerprint = Some(fingerprint);
            self.schedules.config = match state.load_config(None) {
                Ok((config, _)) => Some(config),
                Err(error) => {
                    self.report(format!("no schedule is active: {error:#}"));
                    None
                }
            };
        }
        let Some(config) = &self.schedules.config else {
            self.schedules.enabled.clear();
            return Ok(());
        };
        let all = match schedules::configured(state, config) {
            Ok(all) => all,
            Err(error) => {
                // The runs of the tenant go on.
                self.report(format!("no schedule is active: {error:#}"));
                Vec::new()
            }
        };
        if all.is_empty() {
            self.schedules.enabled.clear();
            return Ok(());
        }
        let names: BTreeSet<&str> = all.iter().map(|it| it.schedule.name.as_str()).collect();
        self.reader.refresh().kind(ErrorKind::Broken)?;
        let recorded = Recorded::read(&self.reader, &names)?;
        let mut earlier = std::mem::take(&mut self.schedules.enabled);
        let now = time(state);
        for configured in &all {
            let schedule = &configured.schedule;
            let name = schedule.name.to_string();
            let recorded = recorded.get(&name).cloned().unwrap_or_default();
            if recorded.is_paused() {
                continue;
            }
            let slots = match schedules::slots(state.host(), schedule, now) {
                Ok(slots) => slots,
                Err(error) => {
                    self.report(format!("schedule {name} is stopped: {error}"));
                    continue;
                }
            };
            let is_same = recorded.enabled.as_ref().is_some_and(|(_, enabled)| {
                (&enabled.cron, &enabled.zone) == (&schedule.cron, &schedule.zone)
            });
            let entry = if is_same {
                let since = recorded.enabled.as_ref().map_or(0, |(_, enabled)| enabled.at);
                let known = earlier.remove(&name).map(|entry| (entry.decided, entry.queued));
                let (decided, queued) = match known {
                    // A person can have paused and resumed it.
                    Some((decided, queued)) => (decided.max(instant(since).min(now)), queued),
                    None => self.restore(&name, &recorded, since)?,
                };
                Entry { configured: configured.clone(), slots, decided, queued }
            } else {
                let event = schedules::enabled(schedule, None, millis(now));
                self.record_schedule(event)?;
                Entry { configured: configured.clone(), slots, decided: now, queued: None }
            };
            self.schedules.enabled.insert(name, entry);
        }
        self.schedules.decided = None;
        Ok(())
    }

    /// Returns up to when the slots of a schedule are decided, and the slot that waits.
    fn restore(
        &self,
        name: &str,
        recorded: &Recorded,
        since: u64,
    ) -> Result<(Timestamp, Option<Timestamp>), EngineError> {
        let now = time(self.state);
        let mut decided = instant(since).min(now);
        for slot in [recorded.skipped, recorded.queued].into_iter().flatten().map(instant) {
            // A slot in the future was decided while the clock was ahead.
            if slot <= now {
                decided = decided.max(slot);
            }
        }
        let queued = recorded.queued.filter(|slot| *slot >= since).map(instant);
        let queued = match queued {
            Some(slot) if self.fired(&self.reader, name, slot)?.1 => None,
            queued => queued,
        };
        Ok((decided, queued))
    }

    /// Decides about the slots that are due, and fires them.
    pub(super) fn fire_slots(&mut self) -> Result<(), Stop> {
        if self.schedules.last_look.is_none_or(|look| look.elapsed() >= LOOK) {
            self.look_for_schedules()?;
        }
        if self.schedules.enabled.is_empty() {
            return Ok(());
        }
        let now = time(self.state);
        let waits = self.schedules.enabled.values().any(|entry| entry.queued.is_some());
        if let Some((decided, next)) = self.schedules.decided
            && !waits
            && decided <= now
            && next.is_none_or(|next| now < next)
        {
            return Ok(());
        }
        self.find_origins()?;
        let mut due = Vec::new();
        for (name, entry) in &self.schedules.enabled {
            let runs = self.schedules.origins.values();
            let has_open_run = runs.flatten().any(|origin| origin == name);
            let Entry { configured, slots, decided, queued } = entry;
            let schedule = &configured.schedule;
            let watched = Watched {
                slots,
                missed: schedule.missed,
                overlap: schedule.overlap,
                decided: *decided,
                queued: *queued,
                has_open_run,
            };
            due.extend(watched.due(now).into_iter().map(|due| (name.clone(), due)));
        }
        let mut has_new_runs = false;
        for (name, due) in due {
            has_new_runs |= self.decide_slot(&name, due)?;
        }
        let mut next = None;
        for entry in self.schedules.enabled.values_mut() {
            entry.decided = now;
            next = next.into_iter().chain(entry.slots.after(now)).min();
        }
        if has_new_runs {
            self.look_for_work()?;
        }
        self.schedules.decided = Some((now, next));
        Ok(())
    }

    /// Records the decision about a slot. Returns whether it started a run.
    fn decide_slot(&mut self, name: &str, due: Due) -> Result<bool, EngineError> {
        let (at, schedule) = (self.state.clock().millis(), name.to_owned());
        let queued = match due {
            Due::Fire(slot) => {
                let is_new = self.fire(name, slot)?;
                let entry = self.schedules.enabled.get_mut(name);
                if let Some(entry) = entry.filter(|entry| entry.queued == Some(slot)) {
                    entry.queued = None;
                }
                return Ok(is_new);
            }
            // After the clock was set back, a slot can be due again.
            Due::Queue(slot) | Due::Skip(slot) if self.fired(&self.reader, name, slot)?.1 => None,
            Due::Queue(slot) => {
                self.record_schedule(ScheduleQueued { schedule, slot: millis(slot), at })?;
                Some(slot)
            }
            Due::Skip(slot) => {
                let (slot, why) = (millis(slot), "overlap".to_owned());
                self.record_schedule(ScheduleSkipped { schedule, slot, why, text: None, at })?;
                None
            }
        };
        if let (Some(entry), Some(slot)) = (self.schedules.enabled.get_mut(name), queued) {
            entry.queued = Some(slot);
        }
        Ok(false)
    }

    /// Starts the run of a slot, unless the ledger has it.
    fn fire(&mut self, name: &str, slot: Timestamp) -> Result<bool, EngineError> {
        let Some(entry) = self.schedules.enabled.get(name) else { return Ok(false) };
        let Some(config) = &self.schedules.config else { return Ok(false) };
        let at = self.state.clock().millis();
        // The rows of the index are counted, because a missing row would repeat the slot.
        let reader = Reader::open(&LedgerPaths::under(self.state.home()));
        let reader = reader.context("cannot read the ledger").kind(ErrorKind::Broken)?;
        let (run, is_fired) = self.fired(&reader, name, slot)?;
        if is_fired {
            return Ok(false);
        }
        let started = schedules::plan(self.state, config, &entry.configured).and_then(|parts| {
            let (plan, base) = parts;
            schedules::remove_leftover(&self.state.store().layout().plan(run))?;
            let principal = Principal::new(PrincipalKind::Schedule, name);
            let principal = principal.context("invalid principal").kind(ErrorKind::Broken)?;
            let caller =
                Caller { principal, session: None, client: None, ..self.state.caller().clone() };
            let fired = ScheduleFired { schedule: name.to_owned(), slot: millis(slot), at };
            submit::accept_slot(&self.state.for_caller(caller)?, &plan, &base, run, fired)
        });
        match started {
            Ok(()) => {
                self.rows.note();
                Ok(true)
            }
            // The ledger cannot be written, for example because the disk is full. The driver tries again.
            Err(error) if error.kind() == ErrorKind::Unrecorded => Err(error),
            Err(error) => {
                let text = format!("{error:#}");
                self.report(format!("schedule {name}: slot {slot} started no run: {text}"));
                let text = Some(text.chars().take(MAX_FAULT).collect());
                let (slot, why) = (millis(slot), "plan".to_owned());
                let schedule = name.to_owned();
                self.record_schedule(ScheduleSkipped { schedule, slot, why, text, at })?;
                Ok(false)
            }
        }
    }

    /// Returns the id of the run of a slot, and whether the ledger has it.
    fn fired(
        &self,
        reader: &Reader,
        name: &str,
        slot: Timestamp,
    ) -> Result<(RunId, bool), EngineError> {
        for probe in 0..MAX_PROBES {
            let run = run_of_slot(name, slot, probe);
            match origin(reader, run)? {
                None => return Ok((run, false)),
                Some(Some(schedule)) if schedule == name => return Ok((run, true)),
                Some(_) => {} // another run has the id by chance
            }
        }
        let text = format!("no id is free for the run of slot {slot} of schedule {name}");
        Err(EngineError::message(ErrorKind::Conflict, text))
    }

    /// Finds the schedules of the open runs.
    fn find_origins(&mut self) -> Result<(), EngineError> {
        let runs = &self.runs;
        self.schedules.origins.retain(|run, _| runs.contains_key(run));
        for run in runs.keys() {
            if !self.schedules.origins.contains_key(run) {
                let found = origin(&self.reader, *run)?.flatten();
                self.schedules.origins.insert(*run, found);
            }
        }
        Ok(())
    }

    fn record_schedule(&mut self, event: impl Into<Event>) -> Result<(), EngineError> {
        let recorded = self.ledger.record(Draft::new(event).by(Actor::Driver));
        self.rows.note();
        recorded.map(drop).context("cannot record a schedule").kind(ErrorKind::Unrecorded)
    }

    /// Reports a fault once.
    fn report(&mut self, fault: String) {
        if !self.schedules.faults.contains(&fault) {
            self.state.failed(&anyhow::anyhow!("{fault}"));
            self.schedules.faults.insert(fault);
        }
    }
}

/// Returns the schedule that started a run; `None` if the ledger has no such run.
fn origin(reader: &Reader, run: RunId) -> Result<Option<Option<String>>, EngineError> {
    let Some(row) = reader.find(run, 0).kind(ErrorKind::Broken)? else { return Ok(None) };
    let entry = read(reader, &row)?;
    let Ok(Event::RunCreated(created)) = Event::read(&entry.kind, &entry.fields) else {
        return Ok(Some(None));
    };
    let principal = created.principal.and_then(|text| text.parse::<Principal>().ok());
    let of_schedule = principal.filter(|it| it.kind() == PrincipalKind::Schedule);
    Ok(Some(of_schedule.map(|it| it.name().to_owned())))
}
