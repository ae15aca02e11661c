//! Carries out plans and kills processes at chosen moments.
//!
//! The test follows the ledger. Pure tasks wait for a file, and requests wait for their answer, so the moment
//! of each kill is chosen without sleeping. Two windows are short. Before the record of a box, the test holds
//! the lock of the ledger, so that no process can close the window. After the end of a box, the driver is
//! stopped first, the ledger shows that the window is still open, and only then is the driver killed.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::time::{Duration, Instant};

use belljar_engine::record::reading::read;
use belljar_engine::runs::machine::Status;
use belljar_engine::runs::{driver, host, view};
use belljar_ledger::{Entry, LedgerPaths, Reader, Value};
use belljar_model::RunId;
use belljar_testkit::{Signal, descendants, eventually, signal};

use super::PLANS;
use super::plans::{Kind, PlannedRun, Random};
use super::upstream::{Held, HeldUpstream};
use crate::test_engine::TestEngine;

/// The parts of a run in which a kill is most dangerous.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Window {
    /// From `task.started` to `run.created` of the box.
    Started,
    /// From `request.decided` to the answer.
    Request,
    /// From the end of the box to the start of the dependents.
    Ended,
    /// While the program runs.
    Running,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Target {
    Driver,
    Host,
    Broker,
    /// The worker of a `code` task.
    Worker,
    /// The program of a command.
    Program,
}

impl Target {
    pub(super) const ALL: [Self; 5] =
        [Self::Driver, Self::Host, Self::Broker, Self::Worker, Self::Program];
}

/// What happens to an attempt of a task.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Fate {
    Continues,
    /// The process is killed in this window; for requests, when the request arrives.
    Killed(Window, Target),
}

/// An attempt of a task.
#[derive(Debug)]
struct Attempt {
    plan: RunId,
    task: usize,
    attempt: u64,
    fate: Fate,
    is_created: bool,
    is_over: bool,
}

/// A program or a request that continues when another driver has opened the run.
enum Waiting {
    Program(RunId),
    Request(u64),
}

/// The state of the test.
pub(super) struct Hunt<'a> {
    engine: &'a TestEngine,
    upstream: &'a HeldUpstream,
    pub(super) random: Random,
    reader: Reader,
    size: u64,
    plans: BTreeMap<RunId, PlannedRun>,
    /// Plans that have neither ended nor wait for a person.
    pub(super) open: BTreeSet<RunId>,
    boxes: BTreeMap<RunId, Attempt>,
    waiting: Vec<(Waiting, RunId, usize)>,
    /// The number of drivers that opened each run.
    opened: BTreeMap<RunId, usize>,
    pub(super) kills: BTreeMap<(Window, Target), usize>,
    kills_of: BTreeMap<(RunId, usize), usize>,
    /// Attempts whose host ran when its driver was killed and when the next driver opened the run.
    adopted: BTreeSet<RunId>,
    done: BTreeSet<RunId>,
    pub(super) repeated: usize,
    pub(super) lost: BTreeSet<(RunId, usize)>,
}

/// The number of kills in each window that the test aims at.
const WANTED: usize = 22;
/// The number of kills of each other sort that the test aims at.
const WANTED_RUNNING: usize = 5;
/// The minimum number of kills in each window.
pub(super) const MIN_KILLS: usize = 20;
/// The minimum number of kills of each process.
pub(super) const MIN_KILLS_OF: usize = 3;
/// The minimum number of attempts of each outcome after a kill.
pub(super) const MIN_OUTCOME: usize = 11;

/// The command line of the worker.
const WORKER: &[u8] = b"belljar-worker\0";

impl<'a> Hunt<'a> {
    pub(super) fn new(engine: &'a TestEngine, upstream: &'a HeldUpstream, seed: u64) -> Self {
        // The ledger must exist.
        drop(belljar_engine::record::open(&engine.state).unwrap());
        let reader = Reader::open(&LedgerPaths::under(engine.state.home())).unwrap();
        Self {
            engine,
            upstream,
            random: Random(seed),
            reader,
            size: 0,
            plans: BTreeMap::new(),
            open: BTreeSet::new(),
            boxes: BTreeMap::new(),
            waiting: Vec::new(),
            opened: BTreeMap::new(),
            kills: BTreeMap::new(),
            kills_of: BTreeMap::new(),
            adopted: BTreeSet::new(),
            done: BTreeSet::new(),
            repeated: 0,
            lost: BTreeSet::new(),
        }
    }

    pub(super) fn add(&mut self, run: RunId, plan: PlannedRun) {
        self.plans.insert(run, plan);
        self.open.insert(run);
    }

    pub(super) fn kills_in(&self, window: Window) -> usize {
        self.kills.iter().filter(|((of, _), _)| *of == window).map(|(_, count)| count).sum()
    }

    /// Returns the number of kills of a process, in all windows.
    pub(super) fn kills_of(&self, target: Target) -> usize {
        self.kills.iter().filter(|((_, of), _)| *of == target).map(|(_, count)| count).sum()
    }

    /// Returns the number of adopted hosts whose results were used.
    pub(super) fn adopted(&self) -> usize {
        self.adopted.intersection(&self.done).count()
    }

    /// Describes the attempts that have not ended.
    pub(super) fn open_boxes(&self) -> String {
        let open = self.boxes.iter().filter(|(_, attempt)| !attempt.is_over);
        let open = open.map(|(id, attempt)| {
            format!("{id}, host {:?}, driver {:?}: {attempt:?}\n", self.host(*id), self.driver())
        });
        open.collect()
    }

    /// Returns the number of kills and outcomes, and the minimum of each, in the words of the issue.
    pub(super) fn counts(&self) -> Vec<(String, usize, usize)> {
        let windows = [
            ("killed from started to run.created", Window::Started),
            ("killed from request decided to answered", Window::Request),
            ("killed from ended to dependents started", Window::Ended),
        ];
        let windows =
            windows.map(|(name, window)| (name.to_owned(), self.kills_in(window), MIN_KILLS));
        let targets = Target::ALL.map(|target| {
            (format!("{target:?} killed").to_lowercase(), self.kills_of(target), MIN_KILLS_OF)
        });
        let outcomes = [
            ("adopted", self.adopted()),
            ("run again", self.repeated),
            ("waits for attention", self.lost.len()),
        ];
        let outcomes = outcomes.map(|(name, count)| (name.to_owned(), count, MIN_OUTCOME));
        windows.into_iter().chain(targets).chain(outcomes).collect()
    }

    /// Returns whether enough kills of every sort happened.
    pub(super) fn is_complete(&self) -> bool {
        self.counts().into_iter().all(|(_, count, minimum)| count >= minimum)
    }

    /// Follows the ledger and the requests, and kills what is due.
    pub(super) fn step(&mut self) {
        self.kill_starting();
        self.attend_programs();
        while let Some(held) = self.upstream.next() {
            self.attend_request(&held);
        }
        self.continue_waiting();
        let lost: BTreeSet<RunId> = self.lost.iter().map(|(run, _)| *run).collect();
        let stuck: Vec<RunId> = self.open.intersection(&lost).copied().collect();
        for run in stuck {
            let is_active =
                self.boxes.values().any(|attempt| attempt.plan == run && !attempt.is_over);
            // Other tasks of the run may still start.
            let can_go_on = |task: &view::TaskView| {
                matches!(task.status, Status::Ready | Status::Running | Status::Backoff)
            };
            let is_active = is_active
                || view::run(&self.engine.state, run).unwrap().tasks.iter().any(can_go_on);
            if !is_active {
                self.open.remove(&run);
            }
        }
    }

    /// Reads the new events of the ledger. Returns `false` if a stopped process holds the lock of the index.
    fn follow(&mut self) -> bool {
        let Ok(size) = self.reader.refresh() else { return false };
        for index in self.size..size {
            let row = self.reader.event(index).unwrap().unwrap();
            let Some(run) = row.run else { continue };
            if row.kind == "run.created" {
                if let Some(attempt) = self.boxes.get_mut(&run) {
                    attempt.is_created = true;
                }
            } else if self.plans.contains_key(&run) {
                let entry = read(&self.reader, &row).unwrap();
                self.note(run, &entry);
            }
        }
        self.size = size;
        true
    }

    fn note(&mut self, plan: RunId, entry: &Entry) {
        let task = || text(entry, "task").unwrap()[1..].parse::<usize>().unwrap();
        match entry.kind.as_str() {
            "driver.opened" => *self.opened.entry(plan).or_default() += 1,
            "plan.ended" => drop(self.open.remove(&plan)),
            "task.started" => {
                let box_run: RunId = text(entry, "box_run").unwrap().parse().unwrap();
                let (task, attempt) = (task(), number(entry, "attempt"));
                let fate = self.fate_of_start(plan, task);
                let (is_created, is_over) = (false, false);
                let attempt = Attempt { plan, task, attempt, fate, is_created, is_over };
                self.boxes.insert(box_run, attempt);
            }
            "task.ended" | "task.lost" => {
                let (task, attempt) = (task(), number(entry, "attempt"));
                let found = self.boxes.iter_mut().find(|(_, known)| {
                    (known.plan, known.task, known.attempt) == (plan, task, attempt)
                });
                let (box_run, known) = found.expect("the attempt was started");
                known.is_over = true;
                match text(entry, "result") {
                    Some("done") => drop(self.done.insert(*box_run)),
                    Some("lost") => self.repeated += 1,
                    Some(_) => {}
                    None => drop(self.lost.insert((plan, task))),
                }
            }
            _ => {}
        }
    }

    /// Returns whether another attempt of a task may be killed: the third lost attempt needs a person.
    fn may_kill(&self, plan: RunId, task: usize) -> bool {
        self.kills_of.get(&(plan, task)).copied().unwrap_or(0) < 2
    }

    /// Chooses what happens to an attempt that starts.
    fn fate_of_start(&mut self, plan: RunId, task: usize) -> Fate {
        use Target::{Driver, Host, Program};
        use Window::{Ended, Running, Started};
        let kind = self.plans[&plan].tasks[task].kind;
        let mut fates = Vec::new();
        if self.kills_in(Started) < WANTED {
            fates.extend([(Started, Host), (Started, Driver)]);
        }
        if kind == Kind::Pure {
            if self.kills_in(Ended) < WANTED && self.plans[&plan].has_dependents(task) {
                fates.extend([(Ended, Driver); 3]);
            }
            for target in [Host, Driver, Program] {
                let count = self.kills.get(&(Running, target)).copied().unwrap_or(0);
                fates.extend((count < WANTED_RUNNING).then_some((Running, target)));
            }
        }
        let is_rare = self.kills_in(Started) * PLANS < WANTED * self.plans.len();
        let chance = if kind == Kind::Pure || is_rare { 85 } else { 25 };
        if fates.is_empty() || !self.may_kill(plan, task) || !self.random.chance(chance) {
            return Fate::Continues;
        }
        let (window, target) = fates[self.random.below(fates.len())];
        Fate::Killed(window, target)
    }

    /// Kills hosts and drivers between the start of a task and the record of its box. No process can record
    /// the box in the meantime, because the test holds the lock of the ledger.
    fn kill_starting(&mut self) {
        if self.kills_in(Window::Started) >= WANTED {
            self.follow();
            return;
        }
        let held = HeldLedger::take(self.engine);
        if !self.follow() {
            return;
        }
        let mut due = None;
        for (id, attempt) in &mut self.boxes {
            if let Fate::Killed(Window::Started, target) = attempt.fate {
                attempt.fate = Fate::Continues;
                if !attempt.is_created && !attempt.is_over {
                    due = Some((*id, target));
                }
            }
        }
        let Some((id, target)) = due else { return };
        let until = Instant::now() + Duration::from_secs(5);
        let pid = loop {
            let pid = if target == Target::Driver { self.driver() } else { self.host(id) };
            // The driver starts the host after it recorded the start.
            if pid.is_some() || Instant::now() > until {
                break pid;
            }
            std::thread::sleep(Duration::from_millis(2));
        };
        let Some(pid) = pid else { return };
        signal(pid, Signal::KILL);
        drop(held);
        self.killed(id, Window::Started, target, pid);
    }

    /// Attends to pure tasks: lets their programs continue, or kills a process while they wait.
    fn attend_programs(&mut self) {
        let due: Vec<(RunId, Fate)> = self
            .boxes
            .iter()
            .filter(|(_, attempt)| !attempt.is_over)
            .filter(|(_, attempt)| self.plans[&attempt.plan].tasks[attempt.task].kind == Kind::Pure)
            .map(|(id, attempt)| (*id, attempt.fate))
            .collect();
        for (id, fate) in due {
            let is_held = self
                .waiting
                .iter()
                .any(|(waiting, ..)| matches!(waiting, Waiting::Program(held) if *held == id));
            let (window, target) = match fate {
                Fate::Continues if !is_held => {
                    self.release(id);
                    continue;
                }
                Fate::Killed(window, target) if window != Window::Started => (window, target),
                Fate::Continues | Fate::Killed(..) => continue,
            };
            if !host::tail(&self.engine.state, id, 9).contains(&"waiting".to_owned()) {
                continue;
            }
            self.decide(id, Fate::Continues);
            match (window, target) {
                (Window::Ended, _) => self.kill_after_end(id, None),
                (_, Target::Driver) => {
                    let plan = self.boxes[&id].plan;
                    let Some(pid) = self.driver() else { continue };
                    self.waiting.push((Waiting::Program(id), plan, self.opened_now(plan)));
                    self.adopted.insert(id);
                    self.kill(id, Window::Running, Target::Driver, pid);
                }
                (_, Target::Program) => {
                    let Some(host) = self.host(id) else { continue };
                    let Some(pid) = child_of(host, b"bash\0-c\0") else { continue };
                    self.kill(id, Window::Running, Target::Program, pid);
                }
                (_, target) => {
                    let Some(pid) = self.host(id) else { continue };
                    self.kill(id, Window::Running, target, pid);
                }
            }
        }
    }

    /// Stops the driver, lets a program end, and kills the driver before it notices. A program that waits for
    /// the answer to a request gets it.
    fn kill_after_end(&mut self, id: RunId, request: Option<u64>) {
        let mut driver = self.driver();
        if let Some(pid) = driver {
            signal(pid, Signal::STOP);
            if !self.follow() {
                signal(pid, Signal::CONT);
                driver = None;
            }
        }
        match request {
            Some(number) => self.upstream.release(number),
            None => self.release(id),
        }
        let Some(pid) = driver else { return };
        // A stopped driver can hold the lock of the ledger, and then the host cannot record its end.
        let until = Instant::now() + Duration::from_secs(5);
        while host::is_running(&self.engine.state, id) && Instant::now() < until {
            std::thread::sleep(Duration::from_millis(2));
        }
        let is_followed = self.follow();
        if !is_followed || host::is_running(&self.engine.state, id) || self.boxes[&id].is_over {
            signal(pid, Signal::CONT);
            return;
        }
        assert!(host::result(&self.engine.state, id).unwrap().is_some(), "the result is on disk");
        self.kill(id, Window::Ended, Target::Driver, pid);
    }

    /// Kills a process between the decision about a request and its answer, or lets the request continue.
    fn attend_request(&mut self, held: &Held) {
        self.follow();
        let (run, task) = held.key.split_once('/').unwrap();
        let (plan, task): (RunId, usize) = (run.parse().unwrap(), task[1..].parse().unwrap());
        let of_task =
            |(_, attempt): &(&RunId, &Attempt)| (attempt.plan, attempt.task) == (plan, task);
        let found = self.boxes.iter().filter(of_task).max_by_key(|(_, attempt)| attempt.attempt);
        let (id, attempt) = found.map(|(id, attempt)| (*id, attempt)).unwrap();
        let is_wanted = self.kills_in(Window::Request) < WANTED
            || self.kills_in(Window::Ended) < WANTED
            || self.lost.len() < MIN_OUTCOME
            || self.adopted.len() <= MIN_OUTCOME
            || self.kills_of(Target::Broker) < WANTED_RUNNING
            || self.kills_of(Target::Worker) < WANTED_RUNNING;
        let is_wanted = is_wanted && !attempt.is_over && self.may_kill(plan, task);
        if !is_wanted || !self.random.chance(75) {
            self.upstream.release(held.number);
            return;
        }
        if self.kills_in(Window::Ended) < WANTED
            && self.plans[&plan].has_dependents(task)
            && self.random.chance(50)
        {
            return self.kill_after_end(id, Some(held.number));
        }
        let is_code = self.plans[&plan].tasks[task].is_code;
        let target = match self.random.below(if is_code { 12 } else { 8 }) {
            0..3 => Target::Driver,
            3..6 => Target::Host,
            6..8 => Target::Broker,
            _ => Target::Worker,
        };
        let pid = match target {
            Target::Driver => self.driver(),
            Target::Broker => self.host(id).and_then(|host| child_of(host, b"belljar-broker")),
            Target::Worker => self.host(id).and_then(|host| child_of(host, WORKER)),
            Target::Host | Target::Program => self.host(id),
        };
        let Some(pid) = pid else { return self.upstream.release(held.number) };
        if target == Target::Driver {
            self.waiting.push((Waiting::Request(held.number), plan, self.opened_now(plan)));
            self.adopted.insert(id);
            self.kill(id, Window::Request, target, pid);
        } else {
            self.kill(id, Window::Request, target, pid);
            self.upstream.release(held.number);
        }
    }

    /// Continues the programs and requests whose run another driver has opened.
    fn continue_waiting(&mut self) {
        for (waiting, plan, before) in std::mem::take(&mut self.waiting) {
            if self.opened_now(plan) <= before {
                self.waiting.push((waiting, plan, before));
                continue;
            }
            match waiting {
                Waiting::Program(id) => self.release(id),
                Waiting::Request(number) => self.upstream.release(number),
            }
        }
    }

    fn kill(&mut self, id: RunId, window: Window, target: Target, pid: i32) {
        signal(pid, Signal::KILL);
        self.killed(id, window, target, pid);
    }

    /// Counts a killed process, and starts another driver if it was the driver.
    fn killed(&mut self, id: RunId, window: Window, target: Target, pid: i32) {
        let Attempt { plan, task, .. } = self.boxes[&id];
        *self.kills.entry((window, target)).or_default() += 1;
        *self.kills_of.entry((plan, task)).or_default() += 1;
        if target == Target::Driver {
            // Another driver may have waited for the lock, and has it now.
            eventually("the driver is dead", || self.driver() != Some(pid));
            driver::wake(&self.engine.state).unwrap();
        }
    }

    fn decide(&mut self, id: RunId, fate: Fate) {
        self.boxes.get_mut(&id).unwrap().fate = fate;
    }

    fn opened_now(&self, plan: RunId) -> usize {
        self.opened.get(&plan).copied().unwrap_or(0)
    }

    /// Lets the program of a pure task continue.
    fn release(&self, id: RunId) {
        let plan = self.boxes[&id].plan;
        let inputs = self.engine.lab.state().join(format!("plans/{plan}/work/{id}"));
        fs::write(inputs.join("go"), "").ok(); // the directory may not exist yet, or no longer
    }

    fn driver(&self) -> Option<i32> {
        process(b"belljar-driver\0", &self.engine.lab.state().join("driver.lock"))
    }

    fn host(&self, id: RunId) -> Option<i32> {
        host_of(self.engine, id)
    }
}

/// The lock of the ledger. No process can record an event while the test holds it.
struct HeldLedger {
    _lock: fs::File,
}

impl HeldLedger {
    /// Waits for the lock, in the same queue as the other processes.
    fn take(engine: &TestEngine) -> Self {
        let paths = LedgerPaths::under(engine.state.home());
        let open = |name| {
            let path = paths.ledger().join(name);
            fs::File::options().read(true).write(true).open(path).unwrap()
        };
        let (queue, lock) = (open("queue"), open("lock"));
        queue.lock().unwrap();
        lock.lock().unwrap();
        Self { _lock: lock }
    }
}

fn host_of(engine: &TestEngine, id: RunId) -> Option<i32> {
    let lock = engine.lab.state().join(format!("runs/{id}/lock"));
    process(b"belljar-supervisor\0", &lock)
}

/// Kills the host of a box run.
pub(super) fn kill_host(engine: &TestEngine, id: RunId) {
    signal(host_of(engine, id).expect("a host"), Signal::KILL);
}

/// Kills the worker of a box run.
pub(super) fn kill_worker(engine: &TestEngine, id: RunId) {
    let host = host_of(engine, id).expect("a host");
    signal(child_of(host, WORKER).expect("a worker"), Signal::KILL);
}

/// Kills the broker of a box run.
pub(super) fn kill_broker(engine: &TestEngine, id: RunId) {
    let host = host_of(engine, id).expect("a host");
    signal(child_of(host, b"belljar-broker").expect("a broker"), Signal::KILL);
}

/// Returns the process with this command line that has a file open.
fn process(command: &[u8], file: &std::path::Path) -> Option<i32> {
    let pids = fs::read_dir("/proc").unwrap().flatten();
    let mut pids = pids.filter_map(|entry| entry.file_name().to_str()?.parse::<i32>().ok());
    pids.find(|pid| {
        fs::read(format!("/proc/{pid}/cmdline")).is_ok_and(|line| line.starts_with(command))
            && fs::read_dir(format!("/proc/{pid}/fd"))
                .into_iter()
                .flatten()
                .flatten()
                .any(|fd| fs::read_link(fd.path()).is_ok_and(|path| path == file))
    })
}

/// Returns the descendant of a process whose command line begins with these bytes.
fn child_of(host: i32, command: &[u8]) -> Option<i32> {
    let pids = descendants(host).into_iter().map(|(pid, _)| pid);
    pids.into_iter().find(|pid| {
        fs::read(format!("/proc/{pid}/cmdline")).is_ok_and(|line| line.starts_with(command))
    })
}

fn text<'e>(entry: &'e Entry, field: &str) -> Option<&'e str> {
    match entry.fields.get(field)? {
        Value::Text(text) => Some(text),
        Value::Bytes(_)
        | Value::Number(_)
        | Value::Truth(_)
        | Value::List(_)
        | Value::Hash(_)
        | Value::Body(_) => None,
    }
}

fn number(entry: &Entry, field: &str) -> u64 {
    match entry.fields.get(field) {
        Some(Value::Number(number)) => *number,
        other => panic!("{field}: {other:?}"),
    }
}
