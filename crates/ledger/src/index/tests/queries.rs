//! Random queries against a check of every event.

use super::*;

/// Returns the result of a query by checking every event.
fn naive(made: &Made, query: &Query) -> Vec<u64> {
    let fits = |index: u64, entry: &Entry| {
        let kind = query.kind.as_ref().is_none_or(|kind| match kind.contains('.') {
            true => entry.kind == *kind,
            false => entry.kind.split('.').next() == Some(kind),
        });
        kind && query.run.is_none_or(|run| entry.run == Some(run))
            && query.since.is_none_or(|since| entry.moment.time >= since)
            && query.until.is_none_or(|until| entry.moment.time < until)
            && query.after.is_none_or(|after| index > after)
            && query.before.is_none_or(|before| index < before)
    };
    let mut found: Vec<u64> = (0..)
        .zip(&made.entries)
        .filter(|(index, entry)| fits(*index, entry))
        .map(|(index, _)| index)
        .collect();
    if query.newest_first {
        found.reverse();
    }
    found.truncate(query.limit.unwrap_or(usize::MAX));
    found
}

const KINDS: [&str; 6] =
    ["request.decided", "request.finished", "run.created", "run.ended", "request", "requests.x"];

fn any_event() -> impl Strategy<Value = Coming> {
    let time = prop_oneof![0..50_u64, Just(u64::MAX), Just(1 << 63), any::<u64>()];
    (
        proptest::option::of(0..3_u8),
        0..KINDS.len(),
        proptest::option::of(0..60_u64),
        time,
        any::<bool>(),
    )
        .prop_map(|(run, kind, cause, time, allow)| Coming {
            run,
            kind: KINDS[kind],
            cause,
            time,
            verdict: allow.then_some("allow"),
            body: None,
        })
}

fn any_query() -> impl Strategy<Value = Query> {
    let kind = prop_oneof![
        Just("request"),
        Just("run"),
        Just("request.decided"),
        Just("none"),
        Just("a.b"),
        Just("")
    ];
    let time = || proptest::option::of(prop_oneof![0..60_u64, Just(u64::MAX), Just(1 << 63)]);
    let index = || proptest::option::of(prop_oneof![0..90_u64, Just(u64::MAX)]);
    (
        proptest::option::of(0..4_u8),
        proptest::option::of(kind),
        (time(), time()),
        (index(), index()),
        any::<bool>(),
        proptest::option::of(0..20_usize),
    )
        .prop_map(|(number, kind, (since, until), (after, before), newest_first, limit)| {
            Query {
                run: number.map(run),
                kind: kind.map(str::to_owned),
                since,
                until,
                after,
                before,
                newest_first,
                limit,
            }
        })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn query_result_equals_a_check_of_every_event(
        batches in proptest::collection::vec(proptest::collection::vec(any_event(), 1..12), 0..8),
        queries in proptest::collection::vec(any_query(), 40),
    ) {
        let mut made = Made::new();
        let mut index = made.ready();
        for (number, batch) in batches.iter().enumerate() {
            made.add(batch);
            if number % 3 == 0 {
                index.catch_up(&made.log()).unwrap();
            }
        }
        index.catch_up(&made.log()).unwrap();
        made.check(&index);
        for query in &queries {
            prop_assert_eq!(indices(&index.events(query).unwrap()), naive(&made, query), "{:?}", query);
        }
        let effects = |cause| (0..).zip(&made.entries).filter(move |(_, entry)| entry.cause == Some(cause));
        for cause in 0..60 {
            let expected: Vec<u64> = effects(cause).map(|(index, _)| index).collect();
            prop_assert_eq!(indices(&index.effects_of(cause, None).unwrap()), expected);
        }
        let verdict = |entry: &Entry| match entry.fields.get("verdict") {
            Some(Value::Text(text)) => Some(text.clone()),
            _ => None,
        };
        let open: Vec<u64> = (0..)
            .zip(&made.entries)
            .filter(|(_, entry)| event::opens(&entry.kind, verdict(entry).as_deref()))
            .filter(|(index, intent)| {
                !effects(*index).any(|(later, effect)| later > *index && event::closes(&effect.kind, &intent.kind))
            })
            .map(|(index, _)| index)
            .collect();
        prop_assert_eq!(indices(&index.unsettled(None).unwrap()), open);
    }
}
