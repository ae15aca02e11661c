//! The contract of the store: what its rows show, and that they follow the ledger after any fault.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use belljar_ledger::{
    Actor, Body, Digest, Draft, Ledger, LedgerPaths, Reader, RunCreated, TrashEmptied,
};
use belljar_model::RunId;
use belljar_model::caller::TenantId;
use belljar_model::tenant::Period;
use rusqlite::Connection;
use rusqlite::types::Value;

use super::sqlite::{RunDb, STEPS};
use super::*;
use crate::runs::budget::{Limits, Unit};
use crate::runs::facts;
use crate::runs::machine::{
    Checks, Ended, Evidence, Fact, FactKind, FailReason, Output, Settled, Try,
};
use crate::store::Store;

/// A state directory with a ledger.
struct Home {
    dir: tempfile::TempDir,
    store: Store,
    ledger: Ledger,
}

impl Home {
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let store = Store::open(dir.path()).unwrap();
        let ledger = Ledger::open(&LedgerPaths::under(dir.path())).unwrap();
        Self { dir, store, ledger }
    }

    fn reader(&self) -> Reader {
        Reader::open_uncounted(&LedgerPaths::under(self.dir.path())).unwrap()
    }

    fn path(&self) -> PathBuf {
        self.store.layout().runs_database()
    }

    fn open(&self) -> RunDb {
        RunDb::open(self.store.layout(), self.ledger.id()).unwrap()
    }

    /// Returns a database that has all events.
    fn current(&self) -> RunDb {
        let mut database = self.open();
        assert!(database.catch_up(&self.reader(), u64::MAX).unwrap().is_complete);
        database
    }

    fn record(&self, run: RunId, facts: Vec<FactKind>) {
        let draft = |(at, kind): (u64, FactKind)| {
            let fact = Fact { at: Moment(at), kind };
            Draft::new(facts::event(&fact)).of_run(run).by(Actor::Driver)
        };
        let drafts = (1000..).zip(facts).map(draft).collect();
        self.ledger.record_all(drafts).map(drop).unwrap();
    }

    /// Records an accepted plan.
    fn submit(&self, number: u32, name: &str) -> RunId {
        let run = RunId::new(number.into(), 0);
        self.create(run, name, "plan");
        let digest = Digest::of(&[b"plan"]);
        self.record(run, vec![FactKind::PlanAccepted { plan: digest, policy: digest }]);
        run
    }

    fn create(&self, run: RunId, name: &str, purpose: &str) {
        self.create_in(run, name, purpose, None);
    }

    fn create_in(&self, run: RunId, name: &str, purpose: &str, directory: Option<&Path>) {
        let created = RunCreated {
            name: Some(name.to_owned()),
            template: "default".to_owned(),
            mode: "read-only".to_owned(),
            net: "none".to_owned(),
            policy: Digest::of(&[]),
            workspace: directory.map(|path| path.as_os_str().as_bytes().to_vec()),
            record: "hashes".to_owned(),
            command: Body::hash_of(b"plan").unwrap(),
            environment: Vec::new(),
            limits: Vec::new(),
            purpose: Some(purpose.to_owned()),
            principal: Some("user:1000".to_owned()),
            tenant: Some(TenantId::local().to_string()),
            session: None,
            writable: None,
        };
        self.ledger.record(Draft::new(created).of_run(run)).map(drop).unwrap();
    }
}

fn of(task: &str, attempt: u32) -> Try {
    Try { task: task.parse().unwrap(), item: None, attempt }
}

fn started(task: &str, attempt: u32, seconds: u64) -> FactKind {
    let lease = Limits::default().with(Unit::Seconds, Some(seconds)).with(Unit::Boxes, Some(1));
    let box_run = Some(RunId::new(7, attempt));
    let inputs = Digest::of(&[b"inputs"]);
    FactKind::TaskStarted { of: of(task, attempt), box_run, epoch: 1, tier: 0, lease, inputs }
}

fn output() -> Output {
    let labels = BTreeSet::from(["untrusted".parse().unwrap()]);
    Output { digest: Digest::of(&[b"output"]), size: 3, labels, selections: Default::default() }
}

fn ended(task: &str, attempt: u32, seconds: u64) -> FactKind {
    let usage = Some(Amounts::default().with(Unit::Seconds, seconds));
    FactKind::TaskEnded { of: of(task, attempt), end: Ended::Done(output()), usage }
}

fn end(outcome: Outcome) -> FactKind {
    FactKind::PlanEnded { outcome }
}

fn page(database: &RunDb, query: &RunsQuery) -> Page<RunRow> {
    database.page(&TenantId::local(), query).unwrap()
}

#[track_caller]
fn only(database: &RunDb) -> RunRow {
    let page = page(database, &RunsQuery::default());
    let [row] = page.rows.as_slice() else { panic!("one run: {page:#?}") };
    row.clone()
}

fn names(page: &Page<RunRow>) -> Vec<&str> {
    page.rows.iter().map(|row| row.name.as_str()).collect()
}

/// Returns all rows of all tables.
fn dump(home: &Home) -> Vec<Vec<Value>> {
    let connection = Connection::open(home.path()).unwrap();
    let mut all = Vec::new();
    for table in ["meta", "run", "task", "account", "gate", "box", "usage"] {
        let sql = format!("SELECT '{table}', * FROM {table} ORDER BY 2, 3, 4");
        let mut statement = connection.prepare(&sql).unwrap();
        let columns = statement.column_count();
        let rows = statement.query_map([], |row| (0..columns).map(|at| row.get(at)).collect());
        all.extend(rows.unwrap().map(Result::unwrap));
    }
    all
}

/// Records runs in all states, with all kinds of facts that change rows.
fn history(home: &Home) {
    let one = home.submit(1, "one");
    let reason = FailReason::Exit;
    let failed = Ended::Failed { reason, text: "exit status 1".to_owned() };
    let digest = Digest::of(&[b"gate"]);
    let by: belljar_model::caller::Principal = "user:1000".parse().unwrap();
    home.record(
        one,
        vec![
            FactKind::DriverOpened { epoch: 1 },
            started("a", 1, 60),
            FactKind::BudgetLeased {
                of: of("a", 1),
                more: Limits::default().with(Unit::Seconds, Some(5)),
            },
            FactKind::TaskEnded { of: of("a", 1), end: failed, usage: None },
            FactKind::TaskRetrying { of: of("a", 1), tier: 0, due: Moment(5000), jitter: 3 },
            started("a", 2, 60),
            ended("a", 2, 9),
            FactKind::ApprovalAsked { of: of("gate", 1), digest, deadline: Moment(9000) },
            FactKind::ApprovalGiven {
                of: of("gate", 1),
                digest,
                by: by.clone(),
                edited: false,
                output: output(),
            },
            end(Outcome::Succeeded),
        ],
    );
    home.create(RunId::new(2, 0), "box", "task");
    home.ledger.record(Draft::new(TrashEmptied { trash: vec!["x".to_owned()] })).map(drop).unwrap();
    let two = home.submit(3, "two");
    home.record(
        two,
        vec![
            started("a", 1, 60),
            FactKind::TaskLost { of: of("a", 1), evidence: Evidence::MayHaveEffect },
            FactKind::AttentionSettled { of: of("a", 1), how: Settled::Failed, by },
            end(Outcome::Failed),
        ],
    );
    let three = home.submit(4, "three");
    home.record(three, vec![started("a", 1, 60)]);
}

#[test]
fn rows_show_the_state_times_and_usage_of_a_run_after_each_fact() {
    let home = Home::new();
    let run = home.submit(1, "fix-login");
    let mut database = home.open();
    let mut check = |facts: Vec<FactKind>, status: RunStatus, seconds: u64| {
        home.record(run, facts);
        database.catch_up(&home.reader(), u64::MAX).unwrap();
        let row = only(&database);
        assert_eq!((row.status, row.spent.get(Unit::Seconds)), (status, seconds), "{row:?}");
        row
    };
    let row = check(vec![], RunStatus::Running, 0);
    assert_eq!((row.run, row.name.as_str(), row.accepted), (run, "fix-login", Moment(1000)));
    assert_eq!((row.tenant.as_str(), row.principal.as_str()), ("local", "user:1000"));
    check(vec![started("a", 1, 60)], RunStatus::Running, 0);
    // Without a usage, the whole lease is spent.
    let lost = FactKind::TaskLost { of: of("a", 1), evidence: Evidence::MayHaveEffect };
    check(vec![lost], RunStatus::Attention, 60);
    let by: belljar_model::caller::Principal = "user:1000".parse().unwrap();
    let settled = FactKind::AttentionSettled { of: of("a", 1), how: Settled::Rerun, by };
    check(vec![settled], RunStatus::Running, 60);
    check(vec![started("a", 2, 60), ended("a", 2, 7)], RunStatus::Running, 67);
    let digest = Digest::of(&[b"gate"]);
    let asked = FactKind::ApprovalAsked { of: of("gate", 1), digest, deadline: Moment(9) };
    check(vec![asked], RunStatus::Waiting, 67);
    check(vec![started("b", 1, 60)], RunStatus::Running, 67);
    let row = check(vec![end(Outcome::Cancelled)], RunStatus::Ended(Outcome::Cancelled), 67);
    assert_eq!(row.ended, Some(Moment(1000)));
}

#[test]
fn lists_contain_only_runs_of_plans_of_the_tenant() {
    let home = Home::new();
    history(&home);
    let database = home.current();
    assert_eq!(names(&page(&database, &RunsQuery::default())), ["three", "two", "one"]);
    let other = database.page(&"other".parse().unwrap(), &RunsQuery::default()).unwrap();
    assert!(other.rows.is_empty(), "{other:?}");
}

#[test]
fn pages_visit_each_run_once_newest_first_while_new_runs_are_submitted() {
    let home = Home::new();
    let runs: Vec<RunId> = (0..7).map(|number| home.submit(number, "p")).collect();
    let mut query = RunsQuery { limit: Some(3), ..RunsQuery::default() };
    let mut seen = Vec::new();
    loop {
        let page = page(&home.current(), &query);
        seen.extend(page.rows.iter().map(|row| row.run));
        // Each of these runs has a smaller id than the one before it, as after a clock is set back.
        home.submit(1000 - u32::try_from(seen.len()).unwrap(), "later");
        query.after = page.next;
        let Some(cursor) = page.next else { break };
        assert_eq!(cursor.to_string().parse(), Ok(cursor));
    }
    assert_eq!(seen, runs.into_iter().rev().collect::<Vec<_>>());
}

#[test]
fn filters_by_state_and_name_are_combined_and_pages_of_several_states_are_sorted() {
    let home = Home::new();
    for number in 0..12 {
        let run = home.submit(number, if number % 2 == 0 { "even" } else { "odd" });
        let outcome = [Outcome::Succeeded, Outcome::Failed, Outcome::Cancelled];
        if let Some(outcome) = outcome.get(usize::try_from(number % 4).unwrap()) {
            home.record(run, vec![end(*outcome)]);
        }
    }
    let database = home.current();
    let [succeeded, failed] = [Outcome::Succeeded, Outcome::Failed].map(RunStatus::Ended);
    let check = |statuses: &[RunStatus], name: Option<&str>, expect: &[u64]| {
        let mut query = RunsQuery {
            statuses: statuses.to_vec(),
            name: name.map(str::to_owned),
            limit: Some(2),
            ..RunsQuery::default()
        };
        let mut found = Vec::new();
        loop {
            let page = page(&database, &query);
            found.extend(page.rows.iter().map(|row| row.run.millis()));
            query.after = page.next;
            if page.next.is_none() {
                break;
            }
        }
        assert_eq!(found, expect, "{statuses:?} {name:?}");
    };
    check(&[RunStatus::Running], None, &[11, 7, 3]);
    check(&[succeeded, failed], None, &[9, 8, 5, 4, 1, 0]);
    check(&[succeeded, failed], Some("odd"), &[9, 5, 1]);
    check(&[succeeded, succeeded], Some("odd"), &[]);
    check(&[], Some("odd"), &[11, 9, 7, 5, 3, 1]);
    check(&RunStatus::ALL, Some("none"), &[]);
}

/// Submits a plan that ends at once, in a directory.
fn submit_ended(home: &Home, number: u32, directory: Option<&Path>) -> RunId {
    let run = RunId::new(number.into(), 0);
    home.create_in(run, "p", "plan", directory);
    home.record(run, vec![started("a", 1, 9), ended("a", 1, 1), end(Outcome::Succeeded)]);
    run
}

#[test]
fn list_of_a_directory_has_its_runs_under_all_its_paths_and_those_without_a_directory() {
    let home = Home::new();
    let dirs = tempfile::tempdir().unwrap();
    let [own, other, link, gone] = ["own", "other", "link", "gone"].map(|it| dirs.path().join(it));
    for dir in [&own, &other] {
        fs::create_dir(dir).unwrap();
    }
    std::os::unix::fs::symlink(&own, &link).unwrap();
    let all = [Some(&own), Some(&other), Some(&link), None, Some(&gone), Some(&own)];
    let submit = |(number, dir): (u32, &Option<&PathBuf>)| {
        submit_ended(&home, number, dir.map(PathBuf::as_path))
    };
    let runs: Vec<RunId> = (0..).zip(&all).map(submit).collect();
    let database = home.current();
    let of = |dir: &Path| {
        let meta = fs::metadata(dir).unwrap();
        let directory = Some((meta.dev(), meta.ino()));
        let mut query = RunsQuery { directory, limit: Some(2), ..RunsQuery::default() };
        let mut found = Vec::new();
        loop {
            let page = page(&database, &query);
            found.extend(page.rows.iter().map(|row| row.run));
            query.after = page.next;
            if query.after.is_none() {
                return found;
            }
        }
    };
    assert_eq!(of(&own), [runs[5], runs[3], runs[2], runs[0]]);
    assert_eq!(of(&other), [runs[3], runs[1]]);
    let first = &page(&database, &RunsQuery::default()).rows[0];
    assert_eq!(first.directory.as_deref(), Some(own.as_path()));
    assert_eq!(first.tasks, Some(TaskCounts { all: 1, done: 1 }));
}

#[test]
fn cost_of_a_page_does_not_depend_on_the_number_of_ended_runs() {
    let home = Home::new();
    let dirs = tempfile::tempdir().unwrap();
    let other = dirs.path().join("other");
    fs::create_dir(&other).unwrap();
    let meta = fs::metadata(dirs.path()).unwrap();
    let directory = Some((meta.dev(), meta.ino()));
    let mut number = 0;
    let mut submit = |count: u32| {
        for _ in 0..count {
            number += 1;
            let own = (number % 8 == 1).then_some(dirs.path());
            submit_ended(&home, number, Some(own.unwrap_or(&other)));
        }
    };
    let open = vec![RunStatus::Waiting, RunStatus::Attention];
    let queries = [
        RunsQuery::default(),
        RunsQuery { directory, ..RunsQuery::default() },
        RunsQuery { statuses: open.clone(), ..RunsQuery::default() },
        RunsQuery { statuses: open, directory, ..RunsQuery::default() },
        RunsQuery { name: Some("p".to_owned()), ..RunsQuery::default() },
    ];
    let costs = || {
        let database = home.current();
        queries.clone().map(|query| {
            STEPS.set(0);
            let query = RunsQuery { limit: Some(3), ..query };
            let page = page(&database, &query);
            (page.rows.len(), STEPS.get())
        })
    };
    submit(32);
    let few = costs();
    submit(480);
    assert_eq!(costs(), few);
    assert!(few.iter().all(|(_, steps)| *steps > 0), "control: steps are counted: {few:?}");
    assert_eq!(few.map(|(rows, _)| rows), [3, 3, 0, 0, 3]);
}

#[test]
fn cursor_that_is_not_a_plain_number_is_refused() {
    for text in ["", "-1", "+1", "01", "x", "18446744073709551616"] {
        assert_eq!(text.parse::<Cursor>(), Err(CursorError), "{text}");
    }
    assert!("0".parse::<Cursor>().is_ok());
}

#[test]
fn status_names_are_different_and_can_be_read() {
    for status in RunStatus::ALL {
        assert_eq!(RunStatus::named(status.name()), Some(status));
    }
    assert_eq!(RunStatus::named("lost"), None);
}

#[test]
fn events_applied_one_by_one_and_all_at_once_give_the_same_rows() {
    let home = Home::new();
    history(&home);
    let at_once = {
        home.current();
        dump(&home)
    };
    fs::remove_file(home.path()).unwrap();
    let (mut database, reader) = (home.open(), home.reader());
    let mut count = 1;
    while !database.catch_up(&reader, 1).unwrap().is_complete {
        count += 1;
    }
    assert_eq!(count, reader.size());
    assert_eq!(dump(&home), at_once);
    let reserved: i64 = Connection::open(home.path())
        .unwrap()
        .query_row("SELECT sum(reserved) FROM account WHERE unit = 'seconds'", [], |row| row.get(0))
        .unwrap();
    assert_eq!(reserved, 3 * 60, "only the open run holds a lease: tenant, run and task");
}

#[test]
fn h05_deleted_damaged_foreign_and_outdated_databases_are_rebuilt_from_the_ledger() {
    let home = Home::new();
    history(&home);
    drop(home.current());
    let expected = dump(&home);
    let old = tempfile::tempdir().unwrap();
    let copy = old.path().join("runs.db");
    Connection::open(home.path())
        .unwrap()
        .execute("VACUUM INTO ?1", [copy.to_str().unwrap()])
        .unwrap();
    let sql = |text: &str| {
        let text = text.to_owned();
        move |home: &Home| Connection::open(home.path()).unwrap().execute_batch(&text).unwrap()
    };
    let remove = |home: &Home| {
        for end in ["", "-wal", "-shm"] {
            let mut path = home.path().into_os_string();
            path.push(end);
            fs::remove_file(path).ok();
        }
    };
    type Fault<'a> = (&'a str, Box<dyn Fn(&Home) + 'a>);
    let faults: Vec<Fault<'_>> = vec![
        ("deleted", Box::new(remove)),
        ("deleted without its log", Box::new(|home| fs::remove_file(home.path()).unwrap())),
        (
            "not a database",
            Box::new(|home| {
                remove(home);
                fs::write(home.path(), "x".repeat(9000)).unwrap();
            }),
        ),
        (
            "empty",
            Box::new(|home| {
                remove(home);
                fs::write(home.path(), "").unwrap();
            }),
        ),
        (
            "zeroed pages",
            Box::new(|home| {
                let connection = Connection::open(home.path()).unwrap();
                let done = connection.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |_| Ok(()));
                done.unwrap();
                drop(connection);
                let mut bytes = fs::read(home.path()).unwrap();
                bytes.iter_mut().skip(4096).for_each(|byte| *byte = 0);
                fs::write(home.path(), bytes).unwrap();
            }),
        ),
        ("another version", Box::new(sql("PRAGMA user_version = 99"))),
        ("another ledger", Box::new(sql("UPDATE meta SET ledger = 'f00d'"))),
        ("another table", Box::new(sql("CREATE TABLE extra (id)"))),
        ("no meta row", Box::new(sql("DELETE FROM meta"))),
        ("other events", Box::new(sql("UPDATE meta SET tail = x'00'"))),
        ("more events than the ledger", Box::new(sql("UPDATE meta SET applied = applied + 1"))),
        (
            "older than the ledger",
            Box::new({
                let copy = copy.clone();
                move |home: &Home| {
                    remove(home);
                    fs::copy(&copy, home.path()).unwrap();
                    // Only the rows of the first events.
                    sql("DELETE FROM run; DELETE FROM task; DELETE FROM account; DELETE FROM gate;
                     UPDATE meta SET applied = 0, tail = x''")(home);
                }
            }),
        ),
    ];
    for (name, damage) in faults {
        damage(&home);
        let database = home.current();
        assert!(database.is_on_disk(), "{name}");
        assert_eq!(
            names(&page(&database, &RunsQuery::default())),
            ["three", "two", "one"],
            "{name}"
        );
        drop(database);
        assert_eq!(dump(&home), expected, "{name}");
    }
}

#[test]
fn h12_changed_row_is_detected_by_its_checksum_and_the_database_is_rebuilt() {
    let home = Home::new();
    history(&home);
    let database = home.current();
    let forge = "UPDATE run SET state = 'succeeded' WHERE name = 'two'";
    assert_eq!(Connection::open(home.path()).unwrap().execute(forge, []).unwrap(), 1);
    let error = database.page(&TenantId::local(), &RunsQuery::default()).unwrap_err();
    assert!(matches!(error, StoreError::Damaged(_)), "{error:?}");
    assert!(!home.path().exists(), "the damaged file is removed");
    let rebuilt = page(&home.current(), &RunsQuery::default());
    assert_eq!(rebuilt.rows[1].status, RunStatus::Ended(Outcome::Failed), "{rebuilt:?}");
}

/// The tokens that a tenant used in the period of a time.
fn tokens(database: &RunDb, period: Period, at: u64) -> (u64, u64) {
    let found = database.tenant(period, Moment(at)).unwrap();
    (found.used.spent.get(Unit::Tokens), found.used.over.get(Unit::Tokens))
}

/// Records an attempt with a lease of 10 tokens that uses some tokens, at a time.
fn use_tokens(home: &Home, run: RunId, attempt: u32, at: u64, tokens: u64) {
    let lease = Limits::default().with(Unit::Tokens, Some(10));
    let FactKind::TaskStarted { of, box_run, epoch, tier, inputs, .. } = started("a", attempt, 1)
    else {
        unreachable!()
    };
    let usage = Some(Amounts::default().with(Unit::Tokens, tokens));
    let end = Ended::Failed { reason: FailReason::Exit, text: String::new() };
    let kinds = [
        FactKind::TaskStarted { of: of.clone(), box_run, epoch, tier, lease, inputs },
        FactKind::TaskEnded { of, end, usage },
    ];
    let draft = |kind| {
        Draft::new(facts::event(&Fact { at: Moment(at), kind })).of_run(run).by(Actor::Driver)
    };
    home.ledger.record_all(kinds.map(draft).to_vec()).map(drop).unwrap();
}

#[test]
fn usage_of_the_tenant_counts_in_its_day_and_month_and_never_before_the_newest_day() {
    const DAY: u64 = 86_400_000;
    let home = Home::new();
    let (one, two) = (home.submit(1, "one"), home.submit(2, "two"));
    use_tokens(&home, one, 1, 30 * DAY, 3); // 31 January 1970
    use_tokens(&home, two, 1, 31 * DAY - 1, 12);
    home.record(one, vec![end(Outcome::Failed)]);
    let database = home.current();
    assert_eq!(tokens(&database, Period::Day, 30 * DAY), (13, 2), "an ended run counts too");
    use_tokens(&home, two, 2, 31 * DAY, 5); // 1 February
    use_tokens(&home, two, 3, 29 * DAY, 1); // the clock was set back by two days
    let database = home.current();
    for time in [0, 31 * DAY] {
        assert_eq!(tokens(&database, Period::Day, time), (6, 0));
        assert_eq!(tokens(&database, Period::Month, time), (6, 0));
        assert_eq!(tokens(&database, Period::Total, time), (19, 2));
    }
    assert_eq!(tokens(&database, Period::Day, 32 * DAY), (0, 0), "a new day");
    assert_eq!(tokens(&database, Period::Month, 32 * DAY), (6, 0));
    assert_eq!(database.tenant(Period::Day, Moment(0)).unwrap().reserved, Amounts::NONE);
    let expected = dump(&home);
    drop(database);
    fs::remove_file(home.path()).unwrap();
    drop(home.current());
    assert_eq!(dump(&home), expected, "a rebuild gives the same accounts");
}

#[test]
fn usage_of_checks_and_of_attempts_without_a_report_counts_like_in_the_driver() {
    let home = Home::new();
    let run = home.submit(1, "one");
    let usage = |tokens| Some(Amounts::default().with(Unit::Seconds, tokens));
    let seconds = |home: &Home| {
        let found = home.current().tenant(Period::Total, Moment(0)).unwrap();
        (found.used.spent.get(Unit::Seconds), found.used.over.get(Unit::Seconds))
    };
    home.record(run, vec![started("a", 1, 60), ended("a", 1, 10)]);
    let verdict = crate::runs::machine::Verdict::Passed;
    home.record(
        run,
        vec![FactKind::TaskJudged {
            of: of("a", 1),
            verdict,
            usage: usage(55),
            checks: Checks::default(),
        }],
    );
    assert_eq!(seconds(&home), (60, 5), "the checks use the rest of the lease and 5 seconds more");
    // The checks of a cancelled attempt without a usage count as the whole rest of its lease.
    home.record(run, vec![started("b", 1, 60), ended("b", 1, 10)]);
    let cancelled = |usage| FactKind::TaskStopped {
        of: of("b", 1).instance(),
        reason: crate::runs::machine::StopReason::Cancelled,
        usage,
        used_up: None,
        boxes: Vec::new(),
    };
    home.record(run, vec![cancelled(None)]);
    assert_eq!(seconds(&home), (120, 5));
    assert_eq!(home.current().tenant(Period::Total, Moment(0)).unwrap().reserved, Amounts::NONE);
}

#[test]
fn h12_changed_account_of_the_tenant_is_detected_and_the_database_is_rebuilt() {
    let home = Home::new();
    history(&home);
    let database = home.current();
    let expected = database.tenant(Period::Total, Moment(0)).unwrap();
    assert!(!expected.used.all().is_zero(), "control: {expected:?}");
    let forge = "UPDATE account SET spent = 0 WHERE owner = 'tenant' AND unit = 'seconds'";
    assert_eq!(Connection::open(home.path()).unwrap().execute(forge, []).unwrap(), 1);
    let error = database.tenant(Period::Total, Moment(0)).unwrap_err();
    assert!(matches!(error, StoreError::Damaged(_)), "{error:?}");
    assert_eq!(home.current().tenant(Period::Total, Moment(0)).unwrap(), expected);
}

/// Copies a directory.
fn copy(from: &Path, to: &Path) {
    if from.is_file() {
        fs::copy(from, to).unwrap();
        return;
    }
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap().flatten() {
        copy(&entry.path(), &to.join(entry.file_name()));
    }
}

#[test]
fn h05_rows_of_events_that_the_ledger_lost_are_removed() {
    let home = Home::new();
    history(&home);
    let kept = tempfile::tempdir().unwrap();
    for name in ["ledger", "anchor"] {
        copy(&home.dir.path().join(name), &kept.path().join(name));
    }
    home.submit(9, "lost");
    drop(home.current());
    let Home { dir, store, ledger } = home;
    drop(ledger);
    for name in ["ledger", "anchor"] {
        fs::remove_dir_all(dir.path().join(name)).unwrap();
        fs::rename(kept.path().join(name), dir.path().join(name)).unwrap();
    }
    let ledger = Ledger::open(&LedgerPaths::under(dir.path())).unwrap();
    let home = Home { dir, store, ledger };
    home.submit(10, "other");
    let database = home.current();
    assert_eq!(names(&page(&database, &RunsQuery::default())), ["other", "three", "two", "one"]);
}

#[test]
fn database_that_is_deleted_while_it_is_open_is_created_again() {
    let home = Home::new();
    history(&home);
    let mut database = home.current();
    fs::remove_file(home.path()).unwrap();
    let progress = database.catch_up(&home.reader(), u64::MAX).unwrap();
    assert!(progress.is_complete && database.is_on_disk() && home.path().exists());
    assert_eq!(page(&database, &RunsQuery::default()).rows.len(), 3);
}

#[test]
fn h12_tables_are_built_in_memory_if_no_file_can_be_written() {
    let home = Home::new();
    history(&home);
    fs::create_dir_all(home.path().join("occupied")).unwrap();
    let database = home.current();
    assert!(!database.is_on_disk());
    assert_eq!(names(&page(&database, &RunsQuery::default())), ["three", "two", "one"]);
}

#[test]
fn two_processes_that_update_the_database_apply_each_event_once() {
    let home = Home::new();
    history(&home);
    drop(home.current());
    let expected = dump(&home);
    fs::remove_file(home.path()).unwrap();
    drop(home.open());
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                let (mut database, reader) = (home.open(), home.reader());
                while !database.catch_up(&reader, 1).unwrap().is_complete {}
            });
        }
    });
    assert_eq!(dump(&home), expected);
}

#[test]
fn h12_gap_in_the_index_of_the_ledger_is_reported_and_not_skipped() {
    let home = Home::new();
    history(&home);
    let reader = home.reader();
    let index = home.dir.path().join("ledger/index.db");
    let connection = Connection::open(index).unwrap();
    assert_eq!(connection.execute("DELETE FROM event WHERE idx = 5", []).unwrap(), 1);
    let mut database = home.open();
    let error = database.catch_up(&reader, u64::MAX).unwrap_err();
    assert!(matches!(error, StoreError::Gap { index: 5 }), "{error:?}");
    let counted = Reader::open(&LedgerPaths::under(home.dir.path())).unwrap();
    assert!(database.catch_up(&counted, u64::MAX).unwrap().is_complete);
    assert_eq!(page(&database, &RunsQuery::default()).rows.len(), 3);
}
