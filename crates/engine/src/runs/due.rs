//! Decides at which slots a schedule starts a run.
//!
//! Pure: the driver gives the time and what is recorded, records the decision and then acts.
//!
//! | slot | decision |
//! |---|---|
//! | missed, and not the newest one or more than an hour late | none |
//! | missed, with `missed = "skip"` | none |
//! | no run of the schedule is open, or `overlap = "allow"` | fire |
//! | a run is open, `overlap = "queue"` and no slot waits | queue |
//! | a run is open otherwise | skip |

use belljar_model::schedule::{Missed, Overlap};
use jiff::{SignedDuration, Timestamp};

use super::slots::Slots;

/// The maximum delay of a missed slot that is fired.
pub const MAX_LATE: SignedDuration = SignedDuration::from_hours(1);
/// A slot that is later than this was missed. A driver that runs needs less time.
pub const MISSED_AFTER: SignedDuration = SignedDuration::from_mins(1);

/// The rules and the progress of one schedule.
#[derive(Clone, Copy, Debug)]
pub struct Watched<'a> {
    pub slots: &'a Slots,
    pub missed: Missed,
    pub overlap: Overlap,
    /// All slots up to this instant are decided.
    pub decided: Timestamp,
    /// The slot that waits for the end of a run.
    pub queued: Option<Timestamp>,
    /// Whether a run of the schedule is open.
    pub has_open_run: bool,
}

/// The decision about a slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Due {
    /// The slot starts a run.
    Fire(Timestamp),
    /// The slot waits until the open run has ended.
    Queue(Timestamp),
    /// The slot starts no run, because one is open.
    Skip(Timestamp),
}

impl Watched<'_> {
    /// Returns the decisions at a time. All slots up to this time are decided afterwards.
    ///
    /// If the clock was set back, slots can be returned again. The caller knows those that are recorded.
    pub fn due(&self, now: Timestamp) -> Vec<Due> {
        let (mut due, mut has_open_run, mut queued) = (Vec::new(), self.has_open_run, self.queued);
        if let Some(slot) = queued.filter(|_| !has_open_run) {
            due.push(Due::Fire(slot));
            (has_open_run, queued) = (true, None);
        }
        let Some(slot) = self.slots.newest(self.start(now), now) else { return due };
        let is_missed = slot.duration_until(now) > MISSED_AFTER;
        if is_missed && self.missed == Missed::Skip {
            return due;
        }
        due.push(match (self.overlap, has_open_run) {
            (_, false) | (Overlap::Allow, true) => Due::Fire(slot),
            (Overlap::Queue, true) if queued.is_none() => Due::Queue(slot),
            (Overlap::Queue | Overlap::Skip, true) => Due::Skip(slot),
        });
        due
    }

    /// Returns the instant after which slots can be due.
    fn start(&self, now: Timestamp) -> Timestamp {
        let oldest = now.checked_sub(MAX_LATE).unwrap_or(Timestamp::MIN);
        // `newest` excludes the start, but a slot that is exactly an hour late is due.
        let oldest = oldest.checked_sub(SignedDuration::from_nanos(1)).unwrap_or(Timestamp::MIN);
        // The clock can have been set back.
        self.decided.min(now).max(oldest)
    }

    /// Returns the time of the next slot after a time.
    pub fn next(&self, now: Timestamp) -> Option<Timestamp> {
        self.slots.after(self.decided.min(now))
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use jiff::tz::TimeZone;

    use super::*;
    use crate::runs::slots::Cron;

    fn at(text: &str) -> Timestamp {
        text.parse().unwrap()
    }

    fn slots(cron: &str, zone: &str) -> Slots {
        let data = fs::read(format!("/usr/share/zoneinfo/{zone}")).expect("tzdata is installed");
        let zone = TimeZone::tzif(zone, &data).unwrap();
        Slots::new(Cron::parse(cron, at("2026-01-01T00:00:00Z")).unwrap(), zone)
    }

    fn watched<'a>(slots: &'a Slots, decided: &str) -> Watched<'a> {
        Watched {
            slots,
            missed: Missed::Once,
            overlap: Overlap::Skip,
            decided: at(decided),
            queued: None,
            has_open_run: false,
        }
    }

    #[test]
    fn after_a_suspend_of_a_day_only_the_newest_slot_is_fired_if_it_is_at_most_an_hour_late() {
        let each_quarter = slots("*/15 * * * *", "UTC");
        let suspended = watched(&each_quarter, "2026-05-01T10:00:00Z");
        let fired = suspended.due(at("2026-05-02T10:07:00Z"));
        assert_eq!(fired, [Due::Fire(at("2026-05-02T10:00:00Z"))]);
        let daily = slots("0 3 * * *", "UTC");
        let suspended = watched(&daily, "2026-05-01T10:00:00Z");
        assert_eq!(suspended.due(at("2026-05-02T04:00:01Z")), [], "61 minutes late is too late");
        let in_time = suspended.due(at("2026-05-02T04:00:00Z"));
        assert_eq!(in_time, [Due::Fire(at("2026-05-02T03:00:00Z"))]);
    }

    #[test]
    fn missed_slot_is_not_fired_with_skip_and_a_slot_in_time_is() {
        let daily = slots("0 3 * * *", "UTC");
        let skip = Watched { missed: Missed::Skip, ..watched(&daily, "2026-05-02T02:00:00Z") };
        assert_eq!(skip.due(at("2026-05-02T03:05:00Z")), []);
        let in_time = skip.due(at("2026-05-02T03:00:30Z"));
        assert_eq!(in_time, [Due::Fire(at("2026-05-02T03:00:00Z"))]);
    }

    #[test]
    fn slot_that_is_decided_is_not_due_again() {
        let each_hour = slots("0 * * * *", "UTC");
        let again = watched(&each_hour, "2026-05-02T03:00:00Z");
        assert_eq!(again.due(at("2026-05-02T03:59:59Z")), []);
        assert_eq!(again.next(at("2026-05-02T03:59:59Z")), Some(at("2026-05-02T04:00:00Z")));
    }

    #[test]
    fn clock_that_was_set_back_makes_the_slot_of_its_time_due() {
        let each_hour = slots("0 * * * *", "UTC");
        // The clock was a year ahead. The slots of the present are not decided for ever.
        let ahead = watched(&each_hour, "2027-05-02T03:00:00Z");
        assert_eq!(ahead.due(at("2026-05-02T03:30:00Z")), []);
        assert_eq!(ahead.next(at("2026-05-02T03:30:00Z")), Some(at("2026-05-02T04:00:00Z")));
    }

    #[test]
    fn slot_during_an_open_run_is_skipped_queued_or_fired() {
        let each_hour = slots("0 * * * *", "UTC");
        let (slot, now) = (at("2026-05-02T04:00:00Z"), at("2026-05-02T04:00:01Z"));
        let open = Watched { has_open_run: true, ..watched(&each_hour, "2026-05-02T03:30:00Z") };
        assert_eq!(open.due(now), [Due::Skip(slot)]);
        assert_eq!(Watched { overlap: Overlap::Allow, ..open }.due(now), [Due::Fire(slot)]);
        let queue = Watched { overlap: Overlap::Queue, ..open };
        assert_eq!(queue.due(now), [Due::Queue(slot)]);
        let full = Watched { queued: Some(at("2026-05-02T03:00:00Z")), ..queue };
        assert_eq!(full.due(now), [Due::Skip(slot)], "only one slot waits");
        let ended = Watched { has_open_run: false, ..full };
        let waited = Due::Fire(at("2026-05-02T03:00:00Z"));
        assert_eq!(ended.due(now), [waited, Due::Queue(slot)], "the fired run is open now");
        assert_eq!(ended.due(at("2026-05-02T03:45:00Z")), [waited]);
    }

    /// A driver that looks at its schedule at given times, as the rules say.
    fn fired(slots: &Slots, looks: &[&str]) -> Vec<Timestamp> {
        let (mut fired, mut decided) = (Vec::new(), at(looks.first().unwrap()));
        for look in looks {
            let now = at(look);
            let watched = Watched { decided, ..watched(slots, looks.first().unwrap()) };
            fired.extend(watched.due(now).into_iter().filter_map(|due| match due {
                Due::Fire(slot) => Some(slot),
                Due::Queue(_) | Due::Skip(_) => None,
            }));
            decided = now;
        }
        fired
    }

    #[test]
    fn schedule_over_two_clock_changes_a_suspend_and_a_restart_fires_the_expected_slots() {
        let berlin = slots("30 2 * * *", "Europe/Berlin");
        let looks = [
            "2026-03-28T00:00:00Z",
            "2026-03-28T01:30:00Z", // in time
            "2026-03-29T01:00:00Z", // the end of the gap
            "2026-03-29T01:30:00Z", // nothing: the same day again
            "2026-03-30T00:31:00Z", // in time, a minute late
            "2026-03-31T01:29:00Z", // a restart after 59 minutes
            "2026-04-02T12:00:00Z", // a suspend: both slots are too old
            "2026-10-25T00:29:00Z",
            "2026-10-25T00:30:00Z", // the first 02:30 of this day
            "2026-10-25T01:30:00Z", // nothing: the second 02:30
        ];
        let expect = [
            "2026-03-28T01:30:00Z",
            "2026-03-29T01:00:00Z",
            "2026-03-30T00:30:00Z",
            "2026-03-31T00:30:00Z",
            "2026-10-25T00:30:00Z",
        ];
        assert_eq!(fired(&berlin, &looks), expect.map(at));
    }
}
