use std::fs;

use jiff::civil::Weekday;
use proptest::prelude::*;

use super::*;

const MINUTE: SignedDuration = SignedDuration::from_mins(1);

fn zone(name: &str) -> TimeZone {
    let data = fs::read(format!("/usr/share/zoneinfo/{name}")).expect("tzdata is installed");
    TimeZone::tzif(name, &data).unwrap()
}

fn at(text: &str) -> Timestamp {
    text.parse().unwrap()
}

fn slots(cron: &str, zone_name: &str) -> Slots {
    Slots::new(Cron::parse(cron, at("2026-01-01T00:00:00Z")).unwrap(), zone(zone_name))
}

/// Checks the slots in an interval. The times are UTC, without the seconds.
#[track_caller]
fn check(cron: &str, zone: &str, after: &str, until: &str, expect: &[&str]) {
    let slots = slots(cron, zone);
    let found = std::iter::successors(slots.after(at(after)), |slot| slots.after(*slot));
    let found: Vec<String> = found
        .take_while(|slot| *slot <= at(until))
        .map(|slot| slot.strftime("%m-%dT%H:%M").to_string())
        .collect();
    assert_eq!(found, expect, "{cron} in {zone}");
}

#[test]
fn slot_of_each_day_is_at_the_end_of_a_gap_and_at_the_first_of_two_equal_times() {
    // Berlin: 2026-03-29 02:00 becomes 03:00, and 2026-10-25 03:00 becomes 02:00.
    let berlin = "Europe/Berlin";
    check(
        "30 2 * * *",
        berlin,
        "2026-03-27T12:00:00Z",
        "2026-03-30T12:00:00Z",
        &["03-28T01:30", "03-29T01:00", "03-30T00:30"],
    );
    check(
        "30 2 * * *",
        berlin,
        "2026-10-23T12:00:00Z",
        "2026-10-26T12:00:00Z",
        &["10-24T00:30", "10-25T00:30", "10-26T01:30"],
    );
    // New York: 2026-03-08 02:00 becomes 03:00, and 2026-11-01 02:00 becomes 01:00.
    let new_york = "America/New_York";
    check(
        "15 2 * * *",
        new_york,
        "2026-03-07T00:00:00Z",
        "2026-03-09T12:00:00Z",
        &["03-07T07:15", "03-08T07:00", "03-09T06:15"],
    );
    check(
        "15 1 * * *",
        new_york,
        "2026-10-31T00:00:00Z",
        "2026-11-02T12:00:00Z",
        &["10-31T05:15", "11-01T05:15", "11-02T06:15"],
    );
    // Lord Howe: 2026-04-05 02:00 becomes 01:30, and 2026-10-04 02:00 becomes 02:30.
    let lord_howe = "Australia/Lord_Howe";
    check(
        "45 1 * * *",
        lord_howe,
        "2026-04-03T20:00:00Z",
        "2026-04-05T20:00:00Z",
        &["04-04T14:45", "04-05T15:15"],
    );
    check(
        "10 2 * * *",
        lord_howe,
        "2026-10-02T20:00:00Z",
        "2026-10-04T20:00:00Z",
        &["10-03T15:30", "10-04T15:10"],
    );
}

#[test]
fn slots_of_each_hour_follow_the_elapsed_time() {
    check(
        "30 * * * *",
        "Europe/Berlin",
        "2026-03-28T23:45:00Z",
        "2026-03-29T03:00:00Z",
        &["03-29T00:30", "03-29T01:30", "03-29T02:30"],
    );
    check(
        "30 * * * *",
        "Europe/Berlin",
        "2026-10-24T23:45:00Z",
        "2026-10-25T03:00:00Z",
        &["10-25T00:30", "10-25T01:30", "10-25T02:30"],
    );
    check(
        "0,30 * * * *",
        "America/New_York",
        "2026-11-01T04:45:00Z",
        "2026-11-01T07:15:00Z",
        &["11-01T05:00", "11-01T05:30", "11-01T06:00", "11-01T06:30", "11-01T07:00"],
    );
    // The half hour from 01:30 is shown twice.
    check(
        "45 * * * *",
        "Australia/Lord_Howe",
        "2026-04-04T14:00:00Z",
        "2026-04-04T16:30:00Z",
        &["04-04T14:45", "04-04T15:15", "04-04T16:15"],
    );
    // 02:00 is not shown, and neither is 02:10.
    check(
        "0,10,30 * * * *",
        "Australia/Lord_Howe",
        "2026-10-03T14:59:00Z",
        "2026-10-03T16:00:00Z",
        &["10-03T15:00", "10-03T15:30", "10-03T16:00"],
    );
}

#[test]
fn local_times_of_one_gap_are_one_slot() {
    check(
        "*/10 2 * * *",
        "Europe/Berlin",
        "2026-03-29T00:00:00Z",
        "2026-03-29T12:00:00Z",
        &["03-29T01:00"],
    );
    // The end of the gap is itself a slot.
    check(
        "0 */1 * * *",
        "Europe/Berlin",
        "2026-03-28T23:30:00Z",
        "2026-03-29T02:30:00Z",
        &["03-29T00:00", "03-29T01:00", "03-29T02:00"],
    );
}

#[test]
fn newest_slot_after_a_suspend_is_the_last_one_of_the_interval() {
    let slots = slots("*/5 * * * *", "UTC");
    let newest = slots.newest(at("2026-05-01T10:00:00Z"), at("2026-05-02T10:07:00Z"));
    assert_eq!(newest, Some(at("2026-05-02T10:05:00Z")));
    assert_eq!(slots.newest(at("2026-05-01T10:00:00Z"), at("2026-05-01T10:04:59Z")), None);
    let exact = slots.newest(at("2026-05-01T10:00:00Z"), at("2026-05-01T10:05:00Z"));
    assert_eq!(exact, Some(at("2026-05-01T10:05:00Z")), "the end of the interval is included");
}

#[test]
fn invalid_expression_is_refused_with_the_reason() {
    for (text, expect) in [
        ("", "has 5 fields"),
        ("* * * *", "but this one has 4"),
        ("* * * * * *", "but this one has 6"),
        ("0 3 * * * Europe/Berlin", "but this one has 6"),
        ("60 * * * *", "must be in range 0..=59; found 60"),
        ("* 24 * * *", "must be in range 0..=23; found 24"),
        ("*/0 * * * *", "invalid cron expression: "),
        ("5-1 * * * *", "range must be in ascending order; found 5-1"),
        ("x * * * *", "invalid cron expression: "),
        ("H * * * *", "invalid cron expression: "),
        ("@daily", "but this one has 1"),
        ("0 0 30 2 *", "no date within four years"),
    ] {
        let error = Cron::parse(text, at("2026-01-01T00:00:00Z")).unwrap_err().to_string();
        assert!(error.contains(expect) && !error.contains('\n'), "{text}: {error}");
    }
    for text in ["0 0 29 2 *", "*/15 9-17 * * MON-FRI", "0 12 L * *", "  0   3 * * 5#3 "] {
        Cron::parse(text, at("2026-01-01T00:00:00Z")).unwrap();
    }
}

#[test]
fn last_possible_times_have_no_slot_and_do_not_panic() {
    let slots = slots("* * * * *", "Europe/Berlin");
    assert_eq!(slots.after(Timestamp::MAX), None);
    assert!(slots.after(at("1800-01-01T00:00:17Z")).is_some());
}

/// A cron expression as sets, which the reference evaluates without the library.
#[derive(Clone, Debug)]
struct Sets {
    minutes: Vec<i8>,
    /// `None` for `*`.
    hours: Option<Vec<i8>>,
    /// The days of the week, 0 is Sunday; `None` for `*`.
    days: Option<Vec<i8>>,
}

impl Sets {
    fn text(&self) -> String {
        let list = |of: &[i8]| of.iter().map(ToString::to_string).collect::<Vec<_>>().join(",");
        let field = |of: &Option<Vec<i8>>| of.as_deref().map_or_else(|| "*".to_owned(), list);
        format!("{} {} * * {}", list(&self.minutes), field(&self.hours), field(&self.days))
    }

    fn matches(&self, local: DateTime) -> bool {
        let day = local.weekday().to_sunday_zero_offset();
        self.minutes.contains(&local.minute())
            && self.hours.as_ref().is_none_or(|hours| hours.contains(&local.hour()))
            && self.days.as_ref().is_none_or(|days| days.contains(&day))
    }

    /// Returns the slots of an interval by looking at each minute of it.
    fn by_minutes(&self, zone: &TimeZone, after: Timestamp, until: Timestamp) -> Vec<Timestamp> {
        let mut found = Vec::new();
        // The local times that were shown in the last hours.
        let mut shown = Vec::new();
        let mut instant = after.checked_sub(SignedDuration::from_hours(3)).unwrap();
        let mut previous = zone.to_datetime(instant);
        while instant < until {
            instant = instant.checked_add(MINUTE).unwrap();
            let local = zone.to_datetime(instant);
            let mut is_slot = self.matches(local);
            if self.hours.is_some() {
                is_slot &= !shown.contains(&local);
                // The minutes that the clock skipped.
                let mut skipped = previous.checked_add(MINUTE).unwrap();
                while skipped < local {
                    is_slot |= self.matches(skipped);
                    skipped = skipped.checked_add(MINUTE).unwrap();
                }
            }
            shown.push(local);
            previous = local;
            if is_slot && instant > after {
                found.push(instant);
            }
        }
        found
    }
}

fn sets() -> impl Strategy<Value = Sets> {
    let some = |max: i8| prop::collection::btree_set(0..max, 1..4);
    let list = |set: std::collections::BTreeSet<i8>| set.into_iter().collect::<Vec<i8>>();
    let minutes = some(60).prop_map(list);
    // Most changes of the clock are at night.
    let hours = prop::option::of(prop::collection::btree_set(0..5_i8, 1..4).prop_map(list));
    let days = prop::option::weighted(0.3, some(7).prop_map(list));
    (minutes, hours, days).prop_map(|(minutes, hours, days)| Sets { minutes, hours, days })
}

proptest! {
    #[test]
    fn slots_around_changes_of_the_clock_are_those_of_each_minute(
        sets in sets(),
        zone_name in prop::sample::select(vec![
            "Europe/Berlin", "America/New_York", "Australia/Lord_Howe", "Asia/Kolkata",
            "Africa/Casablanca", "America/St_Johns", "Pacific/Chatham",
        ]),
        change in 0_usize..6,
        offset in -2000_i64..2000,
        length in 60_i64..4000,
    ) {
        let zone = zone(zone_name);
        let start = at("2025-01-01T00:00:00Z");
        let near = zone.following(start).nth(change).map_or(start, |change| change.timestamp());
        let after = near.checked_add(SignedDuration::from_mins(offset)).unwrap();
        let until = after.checked_add(SignedDuration::from_mins(length)).unwrap();
        let slots = Slots::new(Cron::parse(&sets.text(), start).unwrap(), zone.clone());
        let found: Vec<Timestamp> = std::iter::successors(slots.after(after), |it| slots.after(*it))
            .take_while(|slot| *slot <= until)
            .collect();
        prop_assert_eq!(&found, &sets.by_minutes(&zone, after, until), "{}", sets.text());
        prop_assert_eq!(slots.newest(after, until), found.last().copied());
        // The result does not depend on the instant from which the search begins.
        if let [.., before, last] = found.as_slice() {
            let middle = before.duration_until(*last) / 2;
            let middle = before.checked_add(middle).unwrap();
            prop_assert_eq!(slots.after(middle), Some(*last));
        }
    }

    #[test]
    fn parsing_any_text_returns_and_a_schedule_has_a_slot(text in "[0-9*/, LW#H-]{0,24}") {
        if let Ok(cron) = Cron::parse(&text, at("2026-01-01T00:00:00Z")) {
            let slots = Slots::new(cron, TimeZone::UTC);
            prop_assert!(slots.after(at("2026-01-01T00:00:00Z")).is_some(), "{text}");
        }
    }
}

#[test]
fn reference_of_the_property_finds_the_known_slots() {
    let sets = Sets { minutes: vec![30], hours: Some(vec![2]), days: None };
    let (after, until) = (at("2026-03-28T12:00:00Z"), at("2026-03-30T12:00:00Z"));
    let found = sets.by_minutes(&zone("Europe/Berlin"), after, until);
    assert_eq!(found, [at("2026-03-29T01:00:00Z"), at("2026-03-30T00:30:00Z")]);
    assert_eq!(Weekday::Sunday.to_sunday_zero_offset(), 0);
}
