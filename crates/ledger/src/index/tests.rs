//! Tests of the index on real files, with logs that are written batch by batch.

mod queries;

use std::collections::HashMap;
use std::fs::{self, OpenOptions};
use std::io::Write as _;
use std::os::unix::fs::PermissionsExt as _;

use belljar_model::RunId;
use proptest::prelude::*;

use super::*;
use crate::body::Body;
use crate::entry::{Actor, Moment};
use crate::event;
use crate::field::{Fields, Value};
use crate::frame::{self, LOG_MAGIC, LedgerId};

/// A growing ledger and all events that were written to it.
struct Made {
    home: tempfile::TempDir,
    paths: LedgerPaths,
    entries: Vec<Entry>,
    leaves: Vec<Digest>,
    heads: HashMap<Option<RunId>, (u64, Digest)>,
}

/// One event to be written.
#[derive(Debug, Clone, Default)]
struct Coming {
    run: Option<u8>,
    kind: &'static str,
    cause: Option<u64>,
    time: u64,
    verdict: Option<&'static str>,
    body: Option<Body>,
}

const ID: LedgerId = LedgerId::new([7; 16]);

fn run(number: u8) -> RunId {
    RunId::new(u64::from(number) << 40, 9)
}

impl Made {
    fn new() -> Self {
        Self::of(ID)
    }

    fn of(id: LedgerId) -> Self {
        let home = tempfile::tempdir().unwrap();
        let paths = LedgerPaths::under(home.path());
        fs::create_dir(paths.ledger()).unwrap();
        fs::write(paths.log(), frame::header(LOG_MAGIC, id)).unwrap();
        Self { home, paths, entries: Vec::new(), leaves: Vec::new(), heads: HashMap::new() }
    }

    fn log(&self) -> Log {
        Log::open(&self.paths.log()).unwrap()
    }

    fn index(&self) -> Index {
        Index::open(&self.paths, &self.log()).unwrap()
    }

    /// Returns the updated index.
    fn ready(&self) -> Index {
        let mut index = self.index();
        assert_eq!(index.catch_up(&self.log()).unwrap(), self.entries.len() as u64);
        index
    }

    fn add(&mut self, coming: &[Coming]) {
        let bytes = self.batch(coming);
        self.write(&bytes);
    }

    fn write(&self, bytes: &[u8]) {
        let mut file = OpenOptions::new().append(true).open(self.paths.log()).unwrap();
        file.write_all(bytes).unwrap();
    }

    fn batch(&mut self, coming: &[Coming]) -> Vec<u8> {
        let first = self.entries.len();
        let mut encoded = Vec::new();
        for event in coming {
            let run = event.run.map(run);
            let head = self.heads.get(&run).copied();
            let mut fields = Fields::default();
            if let Some(verdict) = event.verdict {
                fields.set("verdict", Value::Text(verdict.to_owned()));
            }
            if let Some(body) = event.body.clone() {
                fields.set("body", Value::Body(body));
            }
            let entry = Entry {
                kind: event.kind.to_owned(),
                run,
                sequence: head.map_or(0, |(sequence, _)| sequence + 1),
                previous: head.map(|(_, hash)| hash),
                actor: Actor::Supervisor,
                cause: event.cause,
                moment: Moment { time: event.time, uptime: 1, boot: [3; 16] },
                fields,
            };
            let bytes = entry.encode().unwrap();
            let leaf = Digest::leaf(&bytes);
            self.heads.insert(run, (entry.sequence, leaf));
            self.entries.push(entry);
            self.leaves.push(leaf);
            encoded.push(bytes);
        }
        frame::batch(first as u64, 5, &encoded, &self.leaves[first..])
    }

    /// Checks that all results of the index equal the written events.
    #[track_caller]
    fn check(&self, index: &Index) {
        let log = self.log();
        let rows = index.events(&Query::default()).unwrap();
        assert_eq!(rows.len(), self.entries.len());
        for (number, row) in rows.iter().enumerate() {
            assert_eq!(row.index, number as u64);
            assert_eq!(row.leaf, self.leaves[number]);
            assert_eq!(read(&log, row).unwrap(), self.entries[number]);
        }
        for (run, (sequence, hash)) in &self.heads {
            let Some(run) = run else { continue };
            let head = index.run_head(*run).unwrap().unwrap();
            assert_eq!((head.sequence, head.hash), (*sequence, *hash));
        }
    }
}

fn of(run: u8, kind: &'static str) -> Coming {
    Coming { run: Some(run), kind, ..Coming::default() }
}

fn some_events(count: u64) -> Vec<Coming> {
    let kinds = ["run.created", "request.decided", "request.finished", "run.ended", "dns.decided"];
    (0..count)
        .map(|number| Coming {
            run: (number % 4 != 0).then_some((number % 7) as u8),
            kind: kinds[(number % 5) as usize],
            cause: (number % 3 == 0 && number > 5).then(|| number - 5),
            time: 1000 * number,
            verdict: (number % 5 == 1).then_some("allow"),
            body: (number % 2 == 0)
                .then(|| Body::named(Digest::of(&[&number.to_be_bytes()]), number, true)),
        })
        .collect()
}

fn indices(rows: &[Row]) -> Vec<u64> {
    rows.iter().map(|row| row.index).collect()
}

#[test]
fn index_finds_all_events_of_the_log() {
    let mut made = Made::new();
    made.ready();
    made.add(&[of(1, "run.created"), of(2, "run.created")]);
    let mut index = made.ready();
    made.add(&[of(1, "request.decided"), Coming { cause: Some(2), ..of(1, "request.finished") }]);
    assert_eq!(index.catch_up(&made.log()).unwrap(), 4);
    made.check(&index);
    assert_eq!(index.find(run(1), 1).unwrap().unwrap().index, 2);
    assert_eq!(index.find(run(1), 9).unwrap(), None);
    assert_eq!(index.find(run(9), 0).unwrap(), None);
    assert_eq!(index.event(4).unwrap(), None);
    assert_eq!(index.event(u64::MAX).unwrap(), None);
    assert_eq!(indices(&index.effects_of(2, None).unwrap()), [3]);
    assert_eq!(index.effects_of(3, None).unwrap(), []);
    assert_eq!(index.effects_of(2, Some(0)).unwrap(), []);
    assert_eq!(index.run_head(run(9)).unwrap(), None);
    let mode = fs::metadata(made.paths.index()).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    let mode =
        fs::metadata(made.home.path().join("ledger/index.db-wal")).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
}

#[test]
fn find_run_returns_runs_by_id_prefix() {
    let mut made = Made::new();
    made.add(&[
        of(1, "run.created"),
        of(2, "run.created"),
        Coming { kind: "ledger.created", ..Coming::default() },
    ]);
    let index = made.ready();
    let (one, two) = (run(1), run(2));
    assert_eq!(index.find_run("").unwrap(), [one, two]);
    assert_eq!(index.find_run(&one.to_string()).unwrap(), [one]);
    assert_eq!(index.find_run(&one.to_string()[..6]).unwrap(), [one]);
    for nothing in ["z", "%", "_", "'", &format!("{one}0")] {
        assert_eq!(index.find_run(nothing).unwrap(), [], "{nothing}");
    }
}

#[test]
fn find_bodies_returns_bodies_by_hash_prefix() {
    let mut made = Made::new();
    let mut bytes = [0; 32];
    bytes[0] = 0xab;
    bytes[1] = 0xcd;
    let (a, b) = (Digest::new(bytes), Digest::new([0xff; 32]));
    let naming = |hash, size| Coming {
        body: Some(Body::named(hash, size, true)),
        ..of(1, "request.finished")
    };
    made.add(&[naming(a, 5), naming(b, u64::MAX), naming(a, 5)]);
    let index = made.ready();
    for prefix in ["a", "ab", "abc", "abcd0", &a.to_string()] {
        let found = index.find_bodies(prefix).unwrap();
        assert_eq!(
            found.iter().map(|naming| (naming.hash, naming.index)).collect::<Vec<_>>(),
            [(a, 0), (a, 2)]
        );
    }
    assert_eq!(
        index.find_bodies("f").unwrap(),
        [BodyReference { hash: b, size: u64::MAX, is_kept: true, index: 1 }]
    );
    assert_eq!(index.find_bodies("").unwrap().len(), 3);
    for nothing in ["AB", "x", "abce", "../", &format!("{a}0")] {
        assert_eq!(index.find_bodies(nothing).unwrap(), [], "{nothing}");
    }
}

#[test]
fn h11_intent_is_unsettled_until_its_outcome_is_recorded() {
    let mut made = Made::new();
    let request = |verdict| Coming { verdict: Some(verdict), ..of(1, "request.decided") };
    made.add(&[
        of(1, "run.created"),
        request("allow"),
        request("deny"),
        request("allow"),
        of(2, "run.created"),
    ]);
    let mut index = made.ready();
    assert_eq!(indices(&index.unsettled(None).unwrap()), [0, 1, 3, 4]);
    assert_eq!(indices(&index.unsettled(Some(run(1))).unwrap()), [0, 1, 3]);
    assert_eq!(index.unsettled(Some(run(8))).unwrap(), []);
    made.add(&[
        Coming { cause: Some(1), ..of(1, "request.finished") },
        Coming { cause: Some(0), ..of(1, "request.finished") }, // not an outcome of that intent
        Coming { cause: Some(4), ..of(2, "run.failed") },
    ]);
    index.catch_up(&made.log()).unwrap();
    assert_eq!(indices(&index.unsettled(None).unwrap()), [0, 3]);
    made.add(&[Coming { cause: Some(0), ..of(1, "attention.settled") }]);
    index.catch_up(&made.log()).unwrap();
    assert_eq!(indices(&index.unsettled(None).unwrap()), [3]);
}

#[test]
fn h06_unfinished_append_is_indexed_once_it_is_complete() {
    let mut made = Made::new();
    made.add(&[of(1, "run.created")]);
    let mut index = made.ready();
    let rest = made.batch(&[of(1, "run.exec"), of(1, "run.ended")]);
    for cut in [1, 4, 27, 28, 100, rest.len() - 1] {
        fs::copy(made.paths.log(), made.home.path().join("copy")).unwrap();
        made.write(&rest[..cut]);
        assert_eq!(index.catch_up(&made.log()).unwrap(), 1, "{cut}");
        fs::copy(made.home.path().join("copy"), made.paths.log()).unwrap();
    }
    made.write(&rest);
    assert_eq!(index.catch_up(&made.log()).unwrap(), 3);
    made.check(&index);
}

#[test]
fn h12_damage_in_the_middle_is_reported_and_earlier_events_are_found() {
    let mut made = Made::new();
    made.add(&[of(1, "run.created")]);
    let at = made.log().length().unwrap();
    made.add(&[of(1, "run.exec")]);
    made.add(&[of(1, "run.ended")]);
    let mut bytes = fs::read(made.paths.log()).unwrap();
    bytes[usize::try_from(at).unwrap() + 60] ^= 1;
    fs::write(made.paths.log(), &bytes).unwrap();
    let mut index = made.index();
    let error = index.catch_up(&made.log()).unwrap_err();
    assert!(
        matches!(&error, IndexError::Log { next: 1, source: LogError::Batch { offset, .. } } if *offset == at),
        "{error:?}"
    );
    assert_eq!(indices(&index.events(&Query::default()).unwrap()), [0]);
}

#[test]
fn h12_gap_in_the_log_is_reported() {
    let mut made = Made::new();
    made.add(&[of(1, "run.created")]);
    made.batch(&[of(1, "run.exec")]);
    made.add(&[of(1, "run.ended")]);
    let mut index = made.index();
    let error = index.catch_up(&made.log()).unwrap_err();
    let IndexError::Log { next: 1, source: LogError::Gap { expected: 1, found: 2, .. } } = error
    else {
        panic!("{error:?}")
    };
    assert_eq!(index.size().unwrap(), 1);
}

#[test]
fn event_of_another_version_is_reported() {
    let mut made = Made::new();
    made.add(&[of(1, "run.created")]);
    let strange = b"\x02strange".as_slice();
    made.write(&frame::batch(1, 5, &[strange.to_vec()], &[Digest::leaf(strange)]));
    let mut index = made.index();
    let error = index.catch_up(&made.log()).unwrap_err();
    let IndexError::Event { index: 1, source: EntryError::Version(2) } = error else {
        panic!("{error:?}")
    };
    assert_eq!(index.size().unwrap(), 1);
}

#[test]
fn h05_index_is_rebuilt_when_the_log_is_replaced() {
    let mut made = Made::new();
    made.add(&some_events(10));
    let older = fs::read(made.paths.log()).unwrap();
    made.add(&some_events(10));
    let mut index = made.ready();
    // The same ledger, restored from an older copy and continued differently.
    let mut other = Made::new();
    other.add(&some_events(10));
    assert_eq!(fs::read(other.paths.log()).unwrap(), older);
    fs::write(made.paths.log(), &older).unwrap();
    assert_eq!(index.catch_up(&made.log()).unwrap(), 10);
    other.add(&[of(3, "run.failed")]);
    other.add(&some_events(30));
    fs::copy(other.paths.log(), made.paths.log()).unwrap();
    assert_eq!(index.catch_up(&made.log()).unwrap(), 41);
    other.check(&index);
    drop(index);
    // A different ledger.
    let mut foreign = Made::of(LedgerId::new([8; 16]));
    foreign.add(&some_events(50));
    fs::copy(foreign.paths.log(), made.paths.log()).unwrap();
    let mut index = made.index();
    assert_eq!(index.size().unwrap(), 0);
    assert_eq!(index.catch_up(&made.log()).unwrap(), 50);
    foreign.check(&index);
}

#[test]
fn unusable_index_is_rebuilt() {
    let mut made = Made::new();
    made.add(&some_events(20));
    let path = made.paths.index();
    let with = |spoil: &dyn Fn()| {
        drop(made.ready());
        spoil();
        let index = made.ready();
        assert!(index.is_on_disk());
        made.check(&index);
    };
    with(&|| fs::write(&path, b"").unwrap());
    with(&|| fs::write(&path, b"no database").unwrap());
    with(&|| fs::write(&path, vec![0; 100_000]).unwrap());
    with(&|| {
        fs::remove_file(&path).unwrap();
        std::os::unix::fs::symlink("/dev/zero", &path).unwrap();
    });
    with(&|| fs::remove_file(&path).unwrap());
    let sql = |sql: &'static str| {
        let path = path.clone();
        move || Connection::open(&path).unwrap().execute_batch(sql).unwrap()
    };
    with(&sql("PRAGMA user_version = 3"));
    with(&sql("DROP TABLE event"));
    with(&sql("DROP TABLE meta"));
    with(&sql("DELETE FROM meta"));
    with(&sql("UPDATE meta SET next = 'x'"));
    with(&sql("UPDATE meta SET next = 3"));
    with(&sql("UPDATE meta SET offset = 64"));
    with(&sql("UPDATE meta SET tail_leaf = x'00'"));
    with(&sql("UPDATE meta SET ledger = ''"));
}

#[test]
fn h12_reader_rebuilds_an_index_with_missing_rows() {
    let mut made = Made::new();
    // The last event is an intent without an outcome.
    let mut events = some_events(2500);
    events.push(of(9, "run.created"));
    made.add(&events);
    let path = made.paths.index();
    let change = |sql: &str| Connection::open(&path).unwrap().execute(sql, []).unwrap();
    let counts = |paths: &LedgerPaths| {
        let reader = crate::Reader::open(paths).unwrap();
        let found = |query: Query| reader.events(&query).unwrap().len();
        let unsettled = reader.unsettled(None).unwrap().len();
        let runs = reader.find_run("").unwrap().len();
        let by_time = Query { since: Some(0), ..Query::default() };
        (found(Query::default()), found(by_time), unsettled, runs)
    };
    drop(made.ready());
    let whole = counts(&made.paths);
    assert!(whole.0 == 2501 && whole.1 == 2501 && whole.2 > 0 && whole.3 > 0, "{whole:?}");
    for sql in [
        "DELETE FROM event WHERE idx = 1200",
        "DELETE FROM event WHERE idx < 1200",
        "DELETE FROM open_intent",
        "DELETE FROM span WHERE block = 1",
        "DELETE FROM run WHERE id = 2",
    ] {
        assert!(change(sql) > 0, "control: {sql} removes rows");
        // Control: an index that is only brought up to date does not notice.
        let mut index = made.index();
        index.catch_up(&made.log()).unwrap();
        assert!(!check::is_complete(&index.connection).unwrap(), "{sql}");
        drop(index);
        assert_eq!(counts(&made.paths), whole, "{sql}");
        assert!(check::is_complete(&made.index().connection).unwrap(), "{sql}");
    }
}

#[test]
fn h12_uncounted_reader_rebuilds_an_index_with_missing_intents_and_shows_gaps_between_events() {
    let mut made = Made::new();
    let mut events = some_events(50);
    events.push(of(9, "run.created"));
    made.add(&events);
    let path = made.paths.index();
    let change = |sql: &str| Connection::open(&path).unwrap().execute(sql, []).unwrap();
    drop(made.ready());
    let unsettled = || {
        let reader = crate::Reader::open_uncounted(&made.paths).unwrap();
        reader.unsettled(None).unwrap().len()
    };
    let all = unsettled();
    assert!(change("DELETE FROM open_intent") > 0);
    assert_eq!(unsettled(), all);
    assert_eq!(change("DELETE FROM event WHERE idx = 20"), 1);
    let rows = |reader: crate::Reader| -> Vec<u64> {
        let rows = reader.events(&Query::default()).unwrap();
        rows.iter().map(|row| row.index).collect()
    };
    let uncounted = rows(crate::Reader::open_uncounted(&made.paths).unwrap());
    assert!(!uncounted.contains(&20), "the caller can see the gap");
    let counted = rows(crate::Reader::open(&made.paths).unwrap());
    assert_eq!(counted, (0..51).collect::<Vec<u64>>());
}

#[test]
fn index_works_after_its_file_is_deleted_while_open() {
    let mut made = Made::new();
    made.add(&some_events(20));
    let mut one = made.ready();
    let mut two = made.ready();
    for end in ["", "-wal", "-shm"] {
        fs::remove_file(made.home.path().join(format!("ledger/index.db{end}"))).unwrap();
    }
    made.check(&one);
    made.add(&some_events(20));
    assert_eq!(one.catch_up(&made.log()).unwrap(), 40);
    made.check(&one);
    let three = made.ready();
    assert_eq!(two.catch_up(&made.log()).unwrap(), 40);
    drop(one);
    made.check(&two);
    made.check(&three);
    made.check(&made.ready());
}

#[test]
fn index_is_in_memory_if_its_file_cannot_be_created() {
    let mut made = Made::new();
    made.add(&some_events(20));
    // A directory at the path of the file cannot be removed as a file.
    fs::create_dir(made.paths.index()).unwrap();
    let index = made.ready();
    assert!(!index.is_on_disk());
    made.check(&index);
    // A directory cannot be created below a file.
    let below = LedgerPaths::new(made.paths.log().join("below"), made.paths.anchor().to_owned());
    let mut index = Index::open(&below, &made.log()).unwrap();
    assert!(!index.is_on_disk());
    assert_eq!(index.catch_up(&made.log()).unwrap(), 20);
    made.check(&index);
}

#[test]
fn h06_concurrent_catch_up_succeeds_while_batches_are_half_written() {
    let mut made = Made::new();
    let paths = made.paths.clone();
    made.add(&[of(1, "run.created")]);
    std::thread::scope(|scope| {
        let readers: Vec<_> = (0..6)
            .map(|_| {
                scope.spawn(|| {
                    let mut size = 0;
                    while size < 2001 {
                        let log = Log::open(&paths.log()).unwrap();
                        let mut index = Index::open(&paths, &log).unwrap();
                        size = index.catch_up(&log).unwrap();
                        let rows = index.events(&Query::default()).unwrap();
                        assert!(rows.len() as u64 >= size);
                        assert!(rows.iter().enumerate().all(|(at, row)| row.index == at as u64));
                    }
                })
            })
            .collect();
        for number in 0..100 {
            let bytes = made.batch(&some_events(20));
            let (start, rest) = bytes.split_at(number * bytes.len() / 100);
            made.write(start);
            std::thread::yield_now();
            made.write(rest);
        }
        readers.into_iter().for_each(|reader| reader.join().unwrap());
    });
    made.check(&made.ready());
}

#[test]
fn concurrent_catch_up_succeeds_while_the_index_is_deleted() {
    let mut made = Made::new();
    let paths = made.paths.clone();
    made.add(&some_events(300));
    std::thread::scope(|scope| {
        for number in 0..4 {
            let (paths, made) = (&paths, &made);
            scope.spawn(move || {
                for _ in 0..8 {
                    if number == 0 {
                        schema::remove(
                            &paths.index(),
                            schema::identity(&paths.index()).unwrap_or_default(),
                        )
                        .unwrap();
                    }
                    made.check(&made.ready());
                }
            });
        }
    });
    assert!(made.ready().is_on_disk());
}

#[test]
fn h12_damaged_index_never_returns_a_wrong_event() {
    let mut made = Made::new();
    made.add(&some_events(120));
    drop(made.ready());
    let whole = fs::read(made.paths.index()).unwrap();
    let mut rebuilt = 0;
    for at in (0..whole.len()).step_by(whole.len() / 199) {
        for flip in [0x01] {
            let mut bytes = whole.clone();
            bytes[at] ^= flip;
            fs::write(made.paths.index(), &bytes).unwrap();
            let log = made.log();
            let mut index = made.index();
            index.catch_up(&log).unwrap();
            for (number, entry) in made.entries.iter().enumerate() {
                match index.event(number as u64) {
                    Ok(Some(row)) => {
                        if let Ok(found) = read(&log, &row) {
                            assert_eq!(&found, entry, "byte {at}");
                        }
                    }
                    Ok(None) => {}
                    Err(IndexError::Damaged { .. }) => {
                        // The damaged index was removed, and the next attempt succeeds.
                        assert_eq!(index.catch_up(&log).unwrap(), 120);
                        made.check(&index);
                        rebuilt += 1;
                        break;
                    }
                    Err(error) => panic!("byte {at}: {error:?}"),
                }
            }
        }
    }
    assert!(rebuilt > 0);
}

#[test]
fn row_that_does_not_match_its_event_is_refused() {
    let mut made = Made::new();
    made.add(&some_events(10));
    let index = made.ready();
    let log = made.log();
    let row = index.event(7).unwrap().unwrap();
    assert!(read(&log, &row).is_ok());
    let wrong = [
        Row { offset: row.offset + 1, ..row.clone() },
        Row { length: row.length - 1, ..row.clone() },
        Row { leaf: made.leaves[6], ..row.clone() },
        Row { run: None, ..row.clone() },
        Row { sequence: row.sequence + 1, ..row.clone() },
        Row { kind: "run.ended".to_owned(), ..row.clone() },
        Row { actor: Actor::Broker, ..row.clone() },
        Row { cause: Some(1), ..row.clone() },
        Row { time: 1, ..row.clone() },
    ];
    for row in wrong {
        assert!(matches!(read(&log, &row), Err(ReadError::Elsewhere { index: 7 })), "{row:?}");
    }
    let far = Row { offset: u64::from(u32::MAX), ..row };
    assert!(matches!(read(&log, &far), Err(ReadError::Log { index: 7, .. })));
}

#[test]
fn contradictory_newest_events_of_a_run_count_as_damage() {
    let mut made = Made::new();
    made.add(&[of(1, "run.created"), of(1, "run.exec")]);
    let mut index = made.ready();
    index.connection.execute("UPDATE run SET last_sequence = 0", []).unwrap();
    assert!(matches!(index.run_head(run(1)), Err(IndexError::Damaged { source: None })));
    index.catch_up(&made.log()).unwrap();
    made.check(&index);
}

#[test]
fn every_query_uses_a_database_index() {
    let made = Made::new();
    let index = made.ready();
    for bits in 0..128_u32 {
        let on = |bit: u32| bits & (1 << bit) != 0;
        let query = Query {
            run: on(0).then(|| run(1)),
            kind: on(1).then(|| if on(2) { "request" } else { "request.decided" }.to_owned()),
            since: on(3).then_some(5),
            until: on(4).then_some(9),
            after: on(5).then_some(1),
            before: on(5).then_some(100),
            newest_first: on(6),
            limit: Some(3),
        };
        let has_condition = bits & 0b11_1011 != 0;
        let (sql, values) = query.sql();
        let mut statement = index.connection.prepare(&format!("EXPLAIN QUERY PLAN {sql}")).unwrap();
        let plan: Vec<String> = statement
            .query_map(rusqlite::params_from_iter(values), |row| row.get(3))
            .unwrap()
            .map(Result::unwrap)
            .collect();
        for step in &plan {
            assert!(!step.contains("TEMP B-TREE"), "{query:?}: {plan:?}");
            assert!(!has_condition || !step.contains("SCAN e"), "{query:?}: {plan:?}");
        }
    }
}
