//! Checks single events: their encoding, sequence in their run, cause and time.
//!
//! Keeps one small record per run, of which only those of recent runs are in memory. After unreadable events, a gap in a run is expected and not
//! reported again.

use std::path::PathBuf;

use super::finding::{Code, Findings, Location};
use super::runs::Runs;
use crate::digest::Digest;
use crate::entry::{EntryView, Moment};
use crate::log::Located;

/// The last event of every run.
#[derive(Debug)]
pub(super) struct Chains {
    log: PathBuf,
    own: Option<Link>,
    runs: Runs,
    clock: Clock,
    /// The number of unreadable parts of the log so far.
    breaks: u32,
}

/// The last event of a run.
#[derive(Debug)]
pub(super) struct Link {
    pub(super) next: u64,
    pub(super) leaf: Digest,
    /// The value of `Chains::breaks` when the event was read.
    pub(super) breaks: u32,
    pub(super) missing: Option<Box<Missing>>,
}

/// A gap that a later event can turn into a change of order.
#[derive(Debug)]
pub(super) struct Missing {
    pub(super) from: u64,
    pub(super) to: u64,
    pub(super) finding: usize,
}

#[derive(Debug, Default)]
struct Clock {
    last: Option<Moment>,
    /// The number of steps back, and the first of them.
    back: Option<(u64, Location)>,
}

/// The tolerated step back of a clock: events get their time before they wait for the lock.
const SLACK: u64 = 60 * 1_000_000_000;

impl Chains {
    pub(super) fn new(log: PathBuf) -> Self {
        let (own, runs, clock) = (None, Runs::default(), Clock::default());
        Self { log, own, runs, clock, breaks: 0 }
    }

    /// Notes that some events could not be read.
    pub(super) const fn break_off(&mut self) {
        self.breaks += 1;
    }

    pub(super) const fn runs(&self) -> u64 {
        self.runs.count()
    }

    /// Returns why the runs could not be stored outside of the memory. The findings are incomplete
    /// then.
    pub(super) const fn take_failure(&mut self) -> Option<rusqlite::Error> {
        self.runs.take_failure()
    }

    /// Returns the last event of the ledger itself.
    pub(super) fn own(&self) -> Option<(u64, Digest)> {
        self.own.as_ref().map(|link| (link.next.wrapping_sub(1), link.leaf))
    }

    /// Returns the time of the last event.
    pub(super) fn time(&self) -> Option<u64> {
        self.clock.last.map(|moment| moment.time)
    }

    pub(super) fn place(&self, event: &Located<'_>) -> Location {
        Location::Event { index: event.index, log: self.log.clone(), offset: event.offset }
    }

    /// Checks one event and returns it, or `None` if it is unreadable.
    pub(super) fn check<'a>(
        &mut self,
        event: &Located<'a>,
        found: &mut Findings,
    ) -> Option<EntryView<'a>> {
        let view = match EntryView::parse(event.bytes) {
            Ok(view) => view,
            Err(error) => {
                let text = format!(
                    "Event {} is not an event that this version of Belljar writes: {error}. Its \
                     batch was forged; do not rely on later events.",
                    event.index
                );
                found.damage(Code::EventMalformed, self.place(event), text);
                self.break_off();
                return None;
            }
        };
        if let Some(cause) = view.cause.filter(|cause| *cause >= event.index) {
            let text = format!(
                "Event {} names event {cause} as its cause, which is not earlier.",
                event.index
            );
            found.damage(Code::CauseAfterEffect, self.place(event), text);
        }
        self.link(event, &view, found);
        self.tick(event, view.moment);
        found.note_time(view.moment.time);
        Some(view)
    }

    fn link(&mut self, event: &Located<'_>, view: &EntryView<'_>, found: &mut Findings) {
        let breaks = self.breaks;
        let fresh =
            |leaf| Link { next: view.sequence.wrapping_add(1), leaf, breaks, missing: None };
        let known = match run_key(view.run) {
            None => self.own.as_mut(),
            Some(key) => self.runs.get(key),
        };
        let Some(link) = known else {
            if let Some(text) = wrong_start(event, view, breaks) {
                found.damage(Code::RunWithoutStart, self.place(event), text);
            }
            match run_key(view.run) {
                None => self.own = Some(fresh(event.leaf)),
                Some(key) => self.runs.add(key, fresh(event.leaf)),
            }
            return;
        };
        if view.sequence == link.next && view.previous == link.leaf {
            link.next = view.sequence.wrapping_add(1);
            link.leaf = event.leaf;
            link.breaks = breaks;
            return;
        }
        let unread = link.breaks < breaks && view.sequence >= link.next;
        if !unread {
            let at =
                Location::Event { index: event.index, log: self.log.clone(), offset: event.offset };
            link.report(event, view, at, found);
        }
        if view.sequence >= link.next {
            link.next = view.sequence.wrapping_add(1);
            link.leaf = event.leaf;
            link.breaks = breaks;
        }
    }

    fn tick(&mut self, event: &Located<'_>, now: Moment) {
        let is_back = self.clock.last.is_some_and(|last| {
            let same_boot = last.boot == now.boot;
            now.time.saturating_add(SLACK) < last.time
                || same_boot && now.uptime.saturating_add(SLACK) < last.uptime
        });
        self.clock.last = Some(now);
        if is_back {
            let place = self.place(event);
            self.clock.back.get_or_insert((0, place)).0 += 1;
        }
    }

    /// Reports findings that need the whole log.
    pub(super) fn finish(&self, found: &mut Findings) {
        if let Some((count, place)) = self.clock.back.clone() {
            let text = format!(
                "The host's clock went back {count} time(s), here first. The order of events does \
                 not depend on the clock and is correct; only their times are doubtful."
            );
            found.note(Code::ClockWentBack, place, text);
        }
    }
}

impl Link {
    fn report(
        &mut self,
        event: &Located<'_>,
        view: &EntryView<'_>,
        at: Location,
        found: &mut Findings,
    ) {
        let (index, sequence, next) = (event.index, view.sequence, self.next);
        let run = shown(view.run);
        if sequence == next {
            let text = format!(
                "Event {index}, number {sequence} of {run}, does not link to the event before it: \
                 one of the two was replaced."
            );
            found.damage(Code::EventUnchained, at, text);
        } else if sequence > next {
            let text = format!(
                "The events number {next} to {} of {run} are missing before event {index}.",
                sequence - 1
            );
            let finding = found.damage(Code::EventMissing, at, text);
            self.missing = Some(Box::new(Missing { from: next, to: sequence, finding }));
        } else if let Some(missing) =
            self.missing.as_ref().filter(|gap| (gap.from..gap.to).contains(&sequence))
        {
            let text = format!(
                "The events of {run} are out of order: number {sequence} follows number {}, as \
                 event {index}.",
                next.wrapping_sub(1)
            );
            found.turn_into(missing.finding, Code::EventReordered, text);
        } else if sequence == 0 && view.kind == "run.created" {
            let text = format!("The {run} starts a second time, with event {index}.");
            found.damage(Code::RunRepeated, at, text);
        } else {
            let text = format!(
                "Event {index} repeats number {sequence} of {run}; number {next} should follow."
            );
            found.damage(Code::EventRepeated, at, text);
        }
    }
}

/// Returns the fault of an event as the first event of its run.
fn wrong_start(event: &Located<'_>, view: &EntryView<'_>, breaks: u32) -> Option<String> {
    let (index, sequence, kind) = (event.index, view.sequence, view.kind);
    let run = shown(view.run);
    if sequence > 0 {
        return (breaks == 0).then(|| {
            format!(
                "The first event of {run} is number {sequence}, event {index}: earlier events \
                     are missing."
            )
        });
    }
    // The creation of a ledger can have been interrupted, so its own first event can be of any
    // kind.
    (!view.run.is_empty() && kind != "run.created").then(|| {
        format!("The {run} starts with `{kind}`, event {index}, instead of `run.created`.")
    })
}

/// Converts a run id of 16 characters to a number; `None` for the ledger itself.
fn run_key(run: &str) -> Option<u128> {
    run.as_bytes().try_into().ok().map(u128::from_ne_bytes)
}

fn shown(run: &str) -> String {
    if run.is_empty() { "ledger itself".to_owned() } else { format!("run {run}") }
}
