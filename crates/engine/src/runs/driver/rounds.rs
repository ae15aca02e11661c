//! The rounds of the driver: inputs, facts on disk, commands.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixListener;
use std::time::{Duration, Instant};

use anyhow::Context as _;
use belljar_ledger::{Draft, LedgerPaths, Reader, RecordError};
use belljar_model::RunId;
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use super::gates::Answers;
use super::live::Live;
use super::rows::RowsUpdate;
use super::schedules::Schedules;
use super::tenant::TenantState;
use crate::error::{EngineError, ErrorKind, WithKind as _};
use crate::record::{self, LedgerHandle};
use crate::runs::budget::{Accounts, Amounts, Limits, Owner, Refusal, Unit, settle};
use crate::runs::control;
use crate::runs::executors;
use crate::runs::fence::Epoch;
use crate::runs::files::RunFiles;
use crate::runs::host::{self, Adopted, Hosted};
use crate::runs::machine::{
    Command, End, Evidence, FactKind, FailReason, Grant, InputKind, Moment, Try,
};
use crate::scope::Scoped;
use crate::supervisor;

/// The pause before a check that could not continue is tried again, in milliseconds.
const RETRY_MILLIS: u64 = 1_000;
/// The maximum number of events in one append. The texts of facts are short, so that an append stays below
/// its limit of 16 MiB.
const MAX_BATCH: usize = 2048;

/// Why a driver stops before all runs have ended.
#[derive(Debug)]
pub(super) enum Stop {
    /// Another driver recorded facts of a run.
    Replaced,
    Failed(EngineError),
}

impl From<EngineError> for Stop {
    fn from(error: EngineError) -> Self {
        Self::Failed(error)
    }
}

/// The state of the driver process.
pub(super) struct Driver<'a> {
    pub(super) state: &'a Scoped,
    pub(super) ledger: LedgerHandle,
    pub(super) reader: Reader,
    pub(super) rows: RowsUpdate,
    epoch: Epoch,
    /// The time of the first instant below; never before the last recorded fact.
    opened: Moment,
    since: Instant,
    listener: Option<UnixListener>,
    /// The owner of the account of the state directory.
    pub(super) tenant: Owner,
    pub(super) budget: TenantState,
    pub(super) accounts: Accounts,
    pub(super) runs: BTreeMap<RunId, Live>,
    pub(super) hosts: Vec<Waiting>,
    /// Attempts whose checks could not continue, for example because of a full disk.
    pub(super) retries: Vec<(RunId, Try)>,
    /// Stubs that run, by the time of their end.
    stubs: BTreeSet<(Moment, RunId, Try)>,
    /// Inputs that are not decided yet.
    pub(super) inbox: Vec<(RunId, InputKind)>,
    /// Box runs whose results are on record after the next append.
    pub(super) taken: Vec<(RunId, RunId)>,
    /// Runs that cannot be loaded. They are reported once.
    damaged: BTreeSet<RunId>,
    /// Answers to gates, as the driver carries them out.
    pub(super) answers: Answers,
    pub(super) schedules: Schedules,
}

/// An attempt whose host runs.
pub(super) struct Waiting {
    pub(super) run: RunId,
    pub(super) of: Try,
    pub(super) box_run: RunId,
    pub(super) host: Host,
    /// Whether the host runs a check of the attempt's output.
    pub(super) is_check: bool,
}

pub(super) enum Host {
    Started(Hosted),
    Adopted(Adopted),
}

impl AsFd for Host {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            Self::Started(host) => host.as_fd(),
            Self::Adopted(host) => host.as_fd(),
        }
    }
}

impl Host {
    /// Waits until the host has exited.
    fn wait(self) {
        match self {
            Self::Started(host) => host.wait(),
            Self::Adopted(host) => host.wait(),
        }
    }
}

impl<'a> Driver<'a> {
    /// Opens all runs that the ledger does not show as ended.
    pub(super) fn open(state: &'a Scoped, epoch: Epoch) -> Result<Self, Stop> {
        let ledger = record::open(state).kind(ErrorKind::Unrecorded)?;
        let reader = Reader::open_uncounted(&LedgerPaths::under(state.home()));
        let reader = reader.context("cannot read the ledger").kind(ErrorKind::Broken)?;
        let tenant = Owner::Tenant(state.caller().tenant.clone());
        let mut driver = Self {
            state,
            ledger,
            reader,
            rows: RowsUpdate::default(),
            epoch,
            opened: Moment(state.clock().millis()),
            since: Instant::now(),
            listener: None,
            tenant,
            budget: TenantState::default(),
            accounts: Accounts::default(),
            runs: BTreeMap::new(),
            hosts: Vec::new(),
            retries: Vec::new(),
            stubs: BTreeSet::new(),
            inbox: Vec::new(),
            taken: Vec::new(),
            damaged: BTreeSet::new(),
            answers: Answers::default(),
            schedules: Schedules::default(),
        };
        driver.listen()?;
        driver.look_for_work()?;
        Ok(driver)
    }

    /// Carries out rounds until no run is open and no schedule is enabled.
    pub(super) fn drive(mut self) -> Result<(), Stop> {
        while !self.step()? {}
        Ok(())
    }

    /// Carries out a round and waits for new inputs. Returns whether the driver has nothing left to do.
    pub(super) fn step(&mut self) -> Result<bool, Stop> {
        self.round()?;
        if !self.is_idle() {
            self.wait()?;
            return Ok(false);
        }
        self.rows.finish(self.state, &mut self.reader);
        // A client that connected before this has recorded its run before.
        drop(self.listener.take());
        self.look_for_work()?;
        let is_idle = self.is_idle();
        if !is_idle {
            self.listen()?;
        }
        Ok(is_idle)
    }

    fn is_idle(&self) -> bool {
        self.runs.is_empty() && !self.schedules.is_any_enabled()
    }

    /// Returns the time. It never goes back, also if the clock of the host does.
    pub(super) fn now(&self) -> Moment {
        self.opened.after(u64::try_from(self.since.elapsed().as_millis()).unwrap_or(u64::MAX))
    }

    /// Sets the time forward, never back.
    pub(super) fn advance_to(&mut self, time: Moment) {
        self.opened = self.opened.after(time.0.saturating_sub(self.now().0));
    }

    fn listen(&mut self) -> Result<(), EngineError> {
        let bind = || -> io::Result<UnixListener> {
            let listener = supervisor::bind_socket(&self.state.store().layout().plans())?;
            listener.set_nonblocking(true)?;
            Ok(listener)
        };
        let listener = bind().context("cannot create the socket of the driver");
        self.listener = Some(listener.kind(ErrorKind::CannotStart)?);
        Ok(())
    }

    /// Decides all inputs, records the facts of all runs, and carries out the commands.
    pub(super) fn round(&mut self) -> Result<(), Stop> {
        self.keep_budget()?;
        self.fire_slots()?;
        self.finish_updates()?;
        for (run, of) in std::mem::take(&mut self.retries) {
            self.judge(run, of);
        }
        for (run, kind) in std::mem::take(&mut self.inbox) {
            self.give(run, kind)?;
        }
        self.answer_gates()?;
        let now = self.now();
        let waiting = self.runs.iter().filter(|(_, live)| live.progress.has_work(now));
        let waiting: Vec<RunId> = waiting.map(|(run, _)| *run).collect();
        for run in waiting {
            self.give(run, InputKind::Time)?;
            // A task that cannot start can release others.
            while self.reserve(run)? {}
        }
        self.record()?;
        for (run, box_run) in std::mem::take(&mut self.taken) {
            host::release(self.state, box_run);
            let files = RunFiles::of(self.state.store().layout(), run);
            fs::remove_dir_all(files.work(box_run)).ok(); // it only uses space
            fs::remove_dir_all(files.checkout(box_run)).ok(); // usually there is none
        }
        let mut commands = Vec::new();
        for live in self.runs.values_mut() {
            let run = live.run;
            commands.extend(live.recorded().into_iter().map(|command| (run, command)));
            for request in std::mem::take(&mut live.requests) {
                fs::remove_file(request).ok(); // a request that is carried out twice changes nothing
            }
        }
        for (run, command) in commands {
            self.perform(run, command);
        }
        self.update_gate_files()?;
        self.runs.retain(|_, live| live.progress.outcome().is_none());
        self.end_stubs()?;
        Ok(())
    }

    /// Gives an input to a run. Returns whether it gave facts, and whether an attempt was started.
    pub(super) fn give(
        &mut self,
        run: RunId,
        kind: InputKind,
    ) -> Result<(bool, bool), EngineError> {
        let (now, random) = (self.now(), self.state.new_id()?.1);
        self.renew_budget(now);
        let kind = self.explained(run, kind);
        let Some(live) = self.runs.get_mut(&run) else { return Ok((false, false)) };
        let facts = live.give(now, random, kind);
        let has_started =
            facts.iter().any(|fact| matches!(fact.kind, FactKind::TaskStarted { .. }));
        let has_facts = !facts.is_empty();
        for command in live.settlements() {
            if let Command::Settle(of, settlement) = command {
                let owners = live.owners(&self.state.caller().tenant, &of.task);
                self.accounts.settle(&owners, &settlement);
            }
        }
        Ok((has_facts, has_started))
    }

    /// Asks for leases for the tasks that can start. Returns whether anything happened.
    fn reserve(&mut self, run: RunId) -> Result<bool, EngineError> {
        let mut happened = false;
        let Some(live) = self.runs.get(&run) else { return Ok(false) };
        if !self.has_boxes(run) && !live.has_tasks_without_box() {
            return Ok(false);
        }
        let startable: Vec<Try> = live.progress.startable(self.now()).collect();
        let ready = startable.len() as u64;
        for of in startable {
            let needs_box = self.runs.get(&run).is_some_and(|live| live.has_box(&of.task));
            if !needs_box || self.has_boxes(run) {
                happened |= self.reserve_one(run, of, ready)?;
            }
        }
        Ok(happened)
    }

    /// Returns whether another box may start now, for the state directory and for a run.
    fn has_boxes(&self, run: RunId) -> bool {
        let is_free = |owner: &Owner| {
            let account = self.accounts.get(owner);
            account.and_then(|account| account.remaining(Unit::Boxes)) != Some(0)
        };
        self.budget.is_known() && is_free(&self.tenant) && is_free(&Owner::Run(run))
    }

    fn reserve_one(&mut self, run: RunId, of: Try, ready: u64) -> Result<bool, EngineError> {
        self.renew_budget(self.now());
        let Some(live) = self.runs.get(&run) else { return Ok(false) };
        let owners = live.owners(&self.state.caller().tenant, &of.task);
        let has_box = live.has_box(&of.task);
        // A stub uses nothing.
        let lease = match has_box {
            true => self.accounts.lease(&owners, &live.cap(&of.task), ready),
            false => Ok(Limits::default()),
        };
        let lease = match lease {
            Ok(lease) => Ok(lease),
            Err(Refusal::Spent(spent)) => Err(spent),
            Err(Refusal::Busy) => return Ok(false),
        };
        let is_complete =
            !has_box || lease.is_err() || live.context(self.state).inputs(&of.instance()).is_some();
        let kind = if is_complete {
            let box_run = has_box.then(|| self.state.new_id()).transpose()?.map(|(id, _)| id);
            let epoch = self.epoch.number();
            InputKind::Lease(of, lease.clone().map(|lease| Grant { lease, box_run, epoch }))
        } else {
            InputKind::Lost(of, Evidence::InputMissing)
        };
        let (has_facts, has_started) = self.give(run, kind)?;
        if let Ok(lease) = lease
            && !has_started
        {
            // Nothing was started, so the lease is returned.
            self.accounts.settle(&owners, &settle(&lease, Some(&Amounts::default())));
        }
        Ok(has_facts)
    }

    /// Records the facts of all runs; a run that another driver changed ends this driver.
    fn record(&mut self) -> Result<(), Stop> {
        let mut batch: Vec<Draft> = Vec::new();
        let mut batches = Vec::new();
        for live in self.runs.values() {
            for draft in live.drafts() {
                batch.push(draft);
                if batch.len() == MAX_BATCH {
                    batches.push(std::mem::take(&mut batch));
                }
            }
        }
        batches.push(batch);
        for batch in batches.into_iter().filter(|batch| !batch.is_empty()) {
            match self.ledger.record_all(batch) {
                Ok(_) => self.rows.note(),
                Err(RecordError::Moved { .. }) => return Err(Stop::Replaced),
                Err(error) => {
                    let error = anyhow::Error::new(error).context("cannot record facts of runs");
                    return Err(EngineError::new(ErrorKind::Unrecorded, error).into());
                }
            }
        }
        Ok(())
    }

    /// Carries out a command whose fact is on disk.
    fn perform(&mut self, run: RunId, command: Command) {
        match command {
            Command::Start(of) => self.start(run, of),
            Command::Kill(of) => self.kill(run, of),
            // Attempts that can start are found in each round, and so is the time of the next timer.
            Command::Reserve(_) | Command::Wake(_) | Command::Settle(..) => {}
            Command::Notify(digest) => self.answers.asked.push((run, digest)),
            Command::Judge(of) => self.judge(run, of),
            Command::Extend(of, _) => self.extend(run, &of),
        }
    }

    fn start(&mut self, run: RunId, of: Try) {
        let Some(live) = self.runs.get(&run) else { return };
        let Some(box_run) = live.box_of(&of) else {
            self.stubs.insert((live.stub_end(&of), run, of));
            return;
        };
        let lease = live.progress.running().find(|(running, _)| *running == of);
        let lease = lease.map(|(_, lease)| *lease).unwrap_or_default();
        let spec = live.context(self.state).spec(&of, box_run, &lease);
        let maker = live.scope_of_maker(self.state);
        match spec.and_then(|spec| executors::start(&maker?, spec)) {
            Ok(hosted) => {
                self.hosts.push(Waiting {
                    run,
                    of,
                    box_run,
                    host: Host::Started(hosted),
                    is_check: false,
                });
            }
            Err(error) => {
                let end =
                    End::Failed { reason: FailReason::CannotStart, text: format!("{error:#}") };
                let usage = Some(Amounts::default());
                self.inbox.push((run, InputKind::Ended(of, end, usage)));
            }
        }
    }

    fn kill(&mut self, run: RunId, of: Try) {
        let Some(live) = self.runs.get(&run) else { return };
        if live.progress.judging().any(|(judged, _)| judged == of) {
            self.cancel_checks(run, of);
            return;
        }
        match live.box_of(&of) {
            Some(box_run) => {
                if let Err(error) = host::kill(self.state, box_run) {
                    self.state.failed(&anyhow::anyhow!("{error:#}"));
                }
            }
            None => {
                self.stubs.retain(|(_, stub_run, stub)| (*stub_run, stub) != (run, &of));
                self.inbox.push((run, InputKind::Lost(of, Evidence::NoEffect)));
            }
        }
    }

    /// Reports the stubs whose time has passed.
    fn end_stubs(&mut self) -> Result<(), EngineError> {
        let now = self.now();
        while let Some((end, run, of)) = self.stubs.pop_first() {
            if end > now {
                self.stubs.insert((end, run, of));
                break;
            }
            if let Some(live) = self.runs.get(&run) {
                self.inbox.push((run, live.context(self.state).stub(&of)?));
            }
        }
        Ok(())
    }

    /// Loads new runs and reads the requests to all runs. A new driver reads the requests of a run when it
    /// loads the run, and later when a client announces them.
    pub(super) fn look_for_work(&mut self) -> Result<(), EngineError> {
        // Opened again, because another process can have replaced the log since the last look.
        let reader = Reader::open_uncounted(&LedgerPaths::under(self.state.home()));
        self.reader = reader.context("cannot read the ledger").kind(ErrorKind::Broken)?;
        let unsettled = self.reader.unsettled(None).kind(ErrorKind::Broken)?;
        let layout = self.state.store().layout();
        for run in
            unsettled.iter().filter(|row| row.kind == "run.created").filter_map(|row| row.run)
        {
            let is_known = self.runs.contains_key(&run) || self.damaged.contains(&run);
            if is_known || !RunFiles::of(layout, run).exist() {
                continue;
            }
            let mut loaded = Live::load(self.state, &self.reader, run, &mut self.accounts);
            if loaded.is_err() {
                // Rows can be missing in the index, so they are counted before the run is given up.
                let counted = Reader::open(&LedgerPaths::under(self.state.home()));
                self.reader = counted.context("cannot read the ledger").kind(ErrorKind::Broken)?;
                loaded = Live::load(self.state, &self.reader, run, &mut self.accounts);
            }
            match loaded {
                Ok(live) => self.resume(live)?,
                Err(error) => {
                    let error = error.context(format!("run {run} cannot continue"));
                    self.state.failed(&anyhow::anyhow!("{error:#}"));
                    self.damaged.insert(run);
                }
            }
        }
        self.answers.are_expected = true;
        let asked = control::take_announced(layout).context("cannot read requests");
        for run in asked.kind(ErrorKind::Broken)? {
            self.read_requests(run)?;
        }
        self.look_for_budget()?;
        self.look_for_leases()?;
        self.look_for_schedules()
    }

    /// Reads the requests to a run.
    fn read_requests(&mut self, run: RunId) -> Result<(), EngineError> {
        let Some(live) = self.runs.get_mut(&run) else { return Ok(()) };
        let requests = control::requests(&live.context(self.state));
        for asked in requests.context("cannot read requests").kind(ErrorKind::Broken)? {
            live.requests.extend(asked.files);
            self.inbox.extend(asked.input.map(|input| (run, input)));
        }
        Ok(())
    }

    /// Continues a run: adopts its hosts, and reports the attempts whose hosts have ended.
    fn resume(&mut self, live: Live) -> Result<(), EngineError> {
        let run = live.run;
        self.advance_to(live.last_fact);
        let running: Vec<(Try, Option<RunId>)> =
            live.progress.running().map(|(of, _)| (of.clone(), live.box_of(&of))).collect();
        let commands = live.progress.resume(self.now());
        self.find_updates(&live)?;
        let live = self.runs.entry(run).or_insert(live);
        live.repeat(commands);
        let mut leases = Vec::new();
        for (of, box_run) in running {
            let Some(box_run) = box_run else {
                self.stubs.insert((live.stub_end(&of), run, of));
                continue;
            };
            match host::adopt(self.state, box_run)? {
                Some(adopted) => {
                    tracing::info!(%run, %box_run, "host is adopted");
                    let host = Host::Adopted(adopted);
                    // An extension may be on record that the host did not get.
                    if let Some((_, lease)) = live.progress.running().find(|(it, _)| *it == of) {
                        leases.push((box_run, *lease));
                    }
                    self.hosts.push(Waiting { run, of, box_run, host, is_check: false });
                }
                None => {
                    self.inbox.push((run, live.context(self.state).ended(&of, box_run)?));
                    self.taken.push((run, box_run));
                }
            }
        }
        self.inbox.insert(0, (run, InputKind::Opened { epoch: self.epoch.number() }));
        leases.iter().for_each(|(box_run, lease)| self.send_lease(*box_run, lease));
        self.read_requests(run)
    }

    /// Waits for the end of a host, a timer or a client. If inputs are left, it only looks for them, so that
    /// a run with many short tasks does not delay the others.
    fn wait(&mut self) -> Result<(), EngineError> {
        let (listening, ended) = {
            let listener = self.listener.iter().map(AsFd::as_fd);
            let hosts = self.hosts.iter().map(|waiting| waiting.host.as_fd());
            let mut polled: Vec<PollFd<'_>> = listener
                .chain(hosts)
                .map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::IN))
                .collect();
            match poll(&mut polled, self.timeout().as_ref()) {
                Err(rustix::io::Errno::INTR) => return Ok(()),
                polled => polled.context("cannot wait for hosts").kind(ErrorKind::Broken)?,
            };
            let mut ready = polled.iter().map(|fd| !fd.revents().is_empty());
            let listening = self.listener.is_some() && ready.next().unwrap_or(false);
            (listening, ready.collect::<Vec<bool>>())
        };
        let mut ready = ended.into_iter();
        let is_ended = |_: &mut Waiting| ready.next().unwrap_or(false);
        let ended: Vec<Waiting> = self.hosts.extract_if(.., is_ended).collect();
        for Waiting { run, of, box_run, host, is_check } in ended {
            host.wait();
            if is_check {
                self.check_ended(run, of);
                continue;
            }
            if let Some(live) = self.runs.get(&run) {
                self.inbox.push((run, live.context(self.state).ended(&of, box_run)?));
            }
            self.taken.push((run, box_run));
        }
        if listening {
            if let Some(listener) = &self.listener {
                self.answers.accept(listener);
            }
            self.look_for_work()?;
        }
        self.rows.run_if_due(self.state, &mut self.reader);
        self.end_stubs()
    }

    /// Returns the time until the next timer; `None` without a timer.
    fn timeout(&self) -> Option<Timespec> {
        if !self.inbox.is_empty() {
            return Some(Timespec::default());
        }
        let now = self.now();
        let stub = self.stubs.first().map(|(end, ..)| *end);
        let wakes = self.runs.values().filter_map(|live| live.progress.next_wake(now));
        let retry = (!self.retries.is_empty()).then(|| now.after(RETRY_MILLIS));
        let next = wakes.chain(stub).chain(retry).min();
        let next = next.map(|next| Duration::from_millis(next.0.saturating_sub(now.0)));
        let slot = self.schedules.timeout(self.state, &self.runs);
        let others = self.rows.timeout().into_iter().chain(slot).chain(self.budget.timeout());
        Timespec::try_from(next.into_iter().chain(others).min()?).ok()
    }
}
