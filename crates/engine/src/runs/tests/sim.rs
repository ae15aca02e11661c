//! A simulated driver: ledger, hosts, clock and person in memory, with a crash at chosen points.
//!
//! The ledger, the hosts and the person survive a crash; the driver does not. A fact is durable after a
//! sync. A crash keeps a random part of the facts that were recorded but not synced.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use belljar_ledger::{Digest, Event};
use belljar_model::RunId;
use belljar_model::caller::{Principal, TenantId};
use belljar_model::plan::{Plan, TaskId};
use belljar_model::tenant::Period;
use serde_json::{Value as Json, json};

use super::plans::{Behaviour, Decision, Random, behaviour, decision, fixed, output_of};
use crate::runs::budget::period::{Day, Held, Used, book, booked_instance};
use crate::runs::budget::{Accounts, Amounts, Limits, Owner, Refusal, Unit};
use crate::runs::facts;
use crate::runs::gate::Sender;
use crate::runs::graph::{Graph, Selections};
use crate::runs::machine::{
    CheckKind, CheckOutcome, CheckResult, Checks, Command, End, Ended, Evidence, Fact, FactKind,
    FailReason, GateAnswer, GateVerdict, Grant, Input, InputKind, Moment, Output, Phase, RunState,
    Settled, Status, TaskRef, Try, Verdict, advance,
};
use crate::runs::taint::PlanTaint;

/// What a simulation does beside carrying out the plan.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Scenario {
    pub(super) seed: u64,
    pub(super) size: u64,
    /// The number of the step at which the driver crashes, once.
    pub(super) crash_at: Option<u64>,
    /// The chance of a crash at each step, in percent, at most five times.
    pub(super) crash_percent: u64,
    /// Whether the budgets are limited.
    pub(super) limited: bool,
    /// Whether a person cancels tasks or the run.
    pub(super) cancels: bool,
    /// Whether a person settles lost attempts.
    pub(super) settles: bool,
    /// Whether the tenant has a budget for each day, of which earlier runs used a part. Midnight is soon.
    pub(super) tenant: bool,
    /// Whether boxes earn labels, and labels remove grants and exclude gates.
    pub(super) tainted: bool,
}

/// The end of a simulation and everything that happened.
pub(super) struct Trace {
    pub(super) plan: Plan,
    pub(super) taint: PlanTaint,
    pub(super) state: RunState,
    pub(super) facts: Vec<Fact>,
    /// The number of steps at which a crash was possible.
    pub(super) steps: u64,
    /// The number of effects of each instance and counted attempt.
    pub(super) effects: BTreeMap<(TaskRef, u64), u64>,
    pub(super) crashes: u64,
    /// The number of periods of the tenant that began during the run.
    pub(super) renewals: u64,
    /// Violations of properties that only the simulation sees, each with the name of the property.
    pub(super) violations: Vec<(&'static str, String)>,
}

pub(super) const RUN: RunId = RunId::new(1, 1);

/// A host of an attempt. It outlives the driver.
#[derive(Debug, Clone)]
struct Host {
    of: Try,
    behaviour: Behaviour,
    n: u64,
    ends: Moment,
    fate: Fate,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Fate {
    Running,
    /// The host is gone without a result; with whether the effect can have happened.
    Dead {
        effect: bool,
    },
    /// The host has its result, and the driver may not know it yet.
    Ended,
}

/// The final states that were seen.
type Finals = BTreeMap<TaskRef, (Status, Option<Output>)>;

/// Everything that survives a crash of the driver.
struct World {
    plan: Plan,
    graph: Arc<Graph>,
    scenario: Scenario,
    random: Random,
    clock: Moment,
    /// Durable facts, as the ledger has them.
    ledger: Vec<Fact>,
    hosts: BTreeMap<Try, Host>,
    started: BTreeSet<Try>,
    effects: BTreeMap<(TaskRef, u64), u64>,
    steps: u64,
    crashes: u64,
    epoch: u64,
    renewals: u64,
    violations: Vec<(&'static str, String)>,
    /// The final states that were durable, for P4.
    finals: Finals,
}

/// Everything that a crash ends.
struct Driver {
    state: RunState,
    /// The state from the facts as the ledger would return them.
    shadow: RunState,
    accounts: Accounts,
    /// Facts that are recorded but not synced.
    unsynced: Vec<Fact>,
    /// Commands that wait for a sync.
    outside: Vec<Command>,
    /// Attempts that wait for a lease.
    reserves: BTreeSet<Try>,
    judging: BTreeMap<Try, Moment>,
    killed: BTreeSet<Try>,
    questions: BTreeMap<Digest, Moment>,
    /// Inputs of the past, to deliver them again.
    past: Vec<InputKind>,
    finals: Finals,
}

/// The driver crashed.
struct Crash;

pub(super) fn person() -> Principal {
    Principal::user(1000)
}

/// Simulates a random plan until the run ends or waits for attention.
pub(super) fn simulate(scenario: Scenario) -> Trace {
    simulate_plan(super::plans::random_plan(scenario.seed, scenario.size), scenario)
}

pub(super) fn simulate_plan(mut plan: Plan, scenario: Scenario) -> Trace {
    if scenario.limited {
        let mut random = fixed(scenario.seed, &[4]);
        plan.budget.tokens = Some(200 + random.below(3000));
        plan.budget.boxes = Some(1 + u32::try_from(random.below(3)).unwrap());
        for task in &mut plan.tasks {
            if random.chance(30) {
                task.budget.tokens = Some(1 + random.below(300));
            }
        }
    }
    let taint = match scenario.tainted {
        true => super::taint::random_taint(scenario.seed, &mut plan),
        false => PlanTaint::new(),
    };
    let mut world = World {
        graph: Arc::new(Graph::with_taint(&plan, &taint)),
        plan,
        scenario,
        random: fixed(scenario.seed, &[5, scenario.crash_at.unwrap_or(0)]),
        clock: Moment(if scenario.tenant { DAY - 10_000 } else { 1_000_000 }),
        ledger: Vec::new(),
        hosts: BTreeMap::new(),
        started: BTreeSet::new(),
        effects: BTreeMap::new(),
        steps: 0,
        crashes: 0,
        epoch: 0,
        renewals: 0,
        violations: Vec::new(),
        finals: BTreeMap::new(),
    };
    loop {
        let mut driver = world.open();
        match driver.drive(&mut world) {
            Ok(()) => {
                let Driver { state, accounts, .. } = driver;
                if state.running().next().is_none() && state.judging().next().is_none() {
                    world.check_accounts_are_free(&accounts);
                }
                return Trace {
                    plan: world.plan,
                    taint,
                    state,
                    facts: world.ledger,
                    steps: world.steps,
                    effects: world.effects,
                    crashes: world.crashes,
                    renewals: world.renewals,
                    violations: world.violations,
                };
            }
            Err(Crash) => world.crash(driver),
        }
    }
}

/// The milliseconds of a day.
const DAY: u64 = 86_400_000;

fn tenant() -> Owner {
    Owner::Tenant(TenantId::local())
}

fn chain(task: &TaskId) -> [Owner; 3] {
    [tenant(), Owner::Run(RUN), Owner::Task(RUN, task.clone())]
}

/// Sends a fact through the form that it has in the ledger.
pub(super) fn reread(fact: &Fact) -> Fact {
    let event = facts::event(fact);
    let read = Event::read(event.kind(), &event.fields()).unwrap();
    facts::fact(&read).unwrap().unwrap()
}

impl World {
    fn violation(&mut self, property: &'static str, text: impl Into<String>) {
        self.violations.push((property, text.into()));
    }

    /// A step at which the driver can crash.
    fn step(&mut self) -> Result<(), Crash> {
        self.steps += 1;
        assert!(self.steps < 20_000, "P9: the run does not end");
        let Scenario { crash_at, crash_percent, .. } = self.scenario;
        let by_chance = self.crashes < 5 && self.random.chance(crash_percent);
        if crash_at == Some(self.steps) || by_chance { Err(Crash) } else { Ok(()) }
    }

    /// Ends the driver. A part of what was not synced stays, and some hosts die.
    fn crash(&mut self, driver: Driver) {
        self.crashes += 1;
        let count = self.random.below(driver.unsynced.len() as u64 + 1);
        self.ledger.extend(driver.unsynced.into_iter().take(usize::try_from(count).unwrap()));
        self.clock = self.clock.after(self.random.below(1000));
        if self.scenario.tenant && self.random.chance(30) {
            // The clock is set back before the next driver starts.
            self.clock = Moment(self.clock.0.saturating_sub(self.random.below(2 * DAY)));
        }
        let mut random = self.random.clone();
        for host in self.hosts.values_mut().filter(|host| host.fate == Fate::Running) {
            if random.chance(50) {
                // The effect of an attempt happens at some time before its end.
                host.fate = Fate::Dead { effect: host.behaviour.effect && random.chance(50) };
                if host.fate == (Fate::Dead { effect: true }) {
                    *self.effects.entry((host.of.instance(), host.n)).or_default() += 1;
                }
            }
        }
        self.random = random;
    }

    /// Opens the run as a new driver: folds the ledger, then looks at the hosts.
    fn open(&mut self) -> Driver {
        let mut state = RunState::new(self.graph.clone(), RUN);
        let mut accounts = Accounts::default();
        let limits = if self.scenario.tenant {
            let tokens = 200 + fixed(self.scenario.seed, &[6]).below(3000);
            Limits::default().with(Unit::Tokens, Some(tokens)).with(Unit::Boxes, Some(3))
        } else {
            Limits::default()
        };
        accounts.open(tenant(), limits);
        accounts.open(Owner::Run(RUN), Limits::from(self.graph.budget()));
        for task in &self.plan.tasks {
            accounts.open(Owner::Task(RUN, task.id.clone()), Limits::from(&task.budget));
        }
        for fact in &self.ledger {
            let commands = state.apply(&reread(fact));
            match &fact.kind {
                FactKind::TaskStarted { of, lease, .. } => {
                    accounts.restore(&chain(&of.task), lease);
                }
                FactKind::BudgetLeased { of, more } => accounts.restore(&chain(&of.task), more),
                _ => {}
            }
            for command in commands {
                if let Command::Settle(of, settlement) = command {
                    let chain = chain(&of.task);
                    accounts.settle(&chain[1..], &settlement);
                    accounts.settle(&chain[..1], &settlement.returned());
                }
            }
        }
        // The usage of the tenant comes from all facts of its runs, as in the database of runs.
        if self.scenario.tenant {
            let (used, newest) = self.booked();
            self.clock = self.clock.max(self.ledger.last().map_or(Moment(0), |fact| fact.at));
            let day = newest.max(Day::of(self.clock));
            let used = if newest == day { used } else { Used::default() };
            accounts.set_period(&tenant(), &used, day.renews(Period::Day));
        }
        Driver {
            shadow: state.clone(),
            state,
            accounts,
            unsynced: Vec::new(),
            outside: Vec::new(),
            reserves: BTreeSet::new(),
            judging: BTreeMap::new(),
            killed: BTreeSet::new(),
            questions: BTreeMap::new(),
            past: Vec::new(),
            finals: self.finals.clone(),
        }
    }

    /// Returns the newest day with usage and its usage, from the facts alone. Earlier runs used a part.
    fn booked(&self) -> (Used, Day) {
        let earlier = fixed(self.scenario.seed, &[7]).below(200);
        let spent = Amounts::default().with(Unit::Tokens, earlier);
        let mut newest = Day::of(Moment(DAY - 20_000));
        let mut all = Used { spent, ..Used::default() };
        let mut held: BTreeMap<TaskRef, Held> = BTreeMap::new();
        for Fact { at, kind } in &self.ledger {
            let Some(of) = booked_instance(kind) else { continue };
            let held = held.entry(of).or_default();
            let booking = book(kind, held);
            *held = booking.held;
            if booking.used.all().is_zero() {
                continue;
            }
            if Day::of(*at) > newest {
                (newest, all) = (Day::of(*at), Used::default());
            }
            all.spent = all.spent.plus(booking.used.spent);
            all.over = all.over.plus(booking.used.over);
        }
        (all, newest)
    }

    /// P5: the account of the tenant in the memory of the driver is the one that the facts give.
    fn check_tenant(&mut self, accounts: &Accounts) {
        if !self.scenario.tenant {
            return;
        }
        let account = *accounts.get(&tenant()).unwrap();
        let (used, newest) = self.booked();
        let day = Day::of(Moment(account.renews.unwrap().0 - 1));
        let used = if newest == day { used } else { Used::default() };
        if (account.spent, account.over) != (used.spent, used.over) {
            self.violation("P5", format!("{account:?}, but the facts give {used:?}"));
        }
    }

    fn check_accounts_are_free(&mut self, accounts: &Accounts) {
        for (owner, account) in accounts.iter() {
            if !account.reserved.is_zero() {
                self.violation("P5", format!("{owner:?} still reserves {:?}", account.reserved));
            }
        }
    }

    fn output(&self, of: &Try, behaviour: &Behaviour, content: &Json) -> Output {
        output_of(&self.graph, &of.task, content, behaviour.labels.clone())
    }

    /// Returns the results of the checks of an output: those before the one that rejects it pass.
    fn checks(&self, task: &TaskId, accepted: bool) -> Checks {
        let task = self.plan.tasks.iter().find(|it| it.id == *task);
        let kinds: Vec<CheckKind> =
            task.into_iter().flat_map(|task| &task.checks).map(CheckKind::of).collect();
        let result = |(check, kind): (u32, &CheckKind)| {
            let is_last = usize::try_from(check).unwrap() + 1 == kinds.len();
            let outcome = match kind {
                kind if is_last && !accepted => kind.without_result(),
                CheckKind::Verify => CheckOutcome::Confirmed,
                CheckKind::Schema | CheckKind::Command | CheckKind::Model => CheckOutcome::Passed,
            };
            let model = (*kind == CheckKind::Model).then_some("judge");
            CheckResult::new(check, *kind, outcome, model)
        };
        Checks { boxes: vec![RUN], results: (0..).zip(&kinds).map(result).collect() }
    }

    /// The number of attempts of an instance that failed or were rejected, from the facts.
    fn counted(&self, of: &Try, more: &[Fact]) -> u64 {
        let same = |other: &Try| other.task == of.task && other.item == of.item;
        let failed = |fact: &&Fact| match &fact.kind {
            FactKind::TaskEnded { of, end: Ended::Failed { .. }, .. } => same(of),
            FactKind::TaskJudged { of, verdict: Verdict::Rejected { .. }, .. } => same(of),
            _ => false,
        };
        self.ledger.iter().chain(more).filter(failed).count() as u64
    }
}

impl Driver {
    fn drive(&mut self, world: &mut World) -> Result<(), Crash> {
        world.epoch += 1;
        let (plan, policy) = (Digest::of(&[b"plan"]), Digest::of(&[b"policy"]));
        self.give(world, InputKind::Accepted { plan, policy })?;
        self.give(world, InputKind::Opened { epoch: world.epoch })?;
        let now = world.clock;
        self.perform_all(world, self.state.resume(now))?;
        self.give(world, InputKind::Time)?;
        self.look_at_hosts(world)?;
        loop {
            self.give(world, InputKind::Time)?;
            self.past.pop();
            // A task that cannot start can release others.
            while self.reserve_all(world)? {}
            self.sync(world)?;
            if self.state.outcome().is_some() {
                return Ok(());
            }
            self.disturb(world)?;
            self.sync(world)?;
            if !self.next_event(world)? {
                // Something may follow from the disturbance, such as the end of dependents.
                if !self.give(world, InputKind::Time)?.is_empty() || self.reserve_all(world)? {
                    continue;
                }
                let waits = self.state.phase() == Phase::Attention;
                if !waits && self.state.outcome().is_none() {
                    world
                        .violation("P9", format!("nothing can happen in {:?}", self.state.phase()));
                }
                return Ok(());
            }
        }
    }

    /// Decides, applies and records an input, with its consequences.
    fn give(&mut self, world: &mut World, kind: InputKind) -> Result<Vec<Fact>, Crash> {
        // Sometimes the clock was set back when a report arrives.
        let is_report =
            !matches!(kind, InputKind::Accepted { .. } | InputKind::Time | InputKind::Lease(..));
        // The time of a driver never goes back, so this happens only to reports of another process.
        let is_set_back = world.random.chance(5) && is_report && !world.scenario.tenant;
        let back = if is_set_back { 50_000_000 } else { 0 };
        let at = Moment(world.clock.0.saturating_sub(back));
        let random = u32::try_from(world.random.below(1 << 32)).unwrap();
        self.past.push(kind.clone());
        self.renew(world);
        let (facts, commands) = advance(&mut self.state, &Input { at, random, kind });
        for fact in &facts {
            self.shadow.apply(&reread(fact));
        }
        if self.shadow != self.state {
            world.violation("P1", format!("folded state differs after {facts:?}"));
        }
        let changed = changed_finals(&self.state, &world.plan, &mut self.finals);
        if !changed.is_empty() {
            world.violation("P4", changed.join("; "));
        }
        self.check_caps(world);
        world.step()?;
        self.unsynced.extend(facts.iter().cloned());
        self.perform_all(world, commands)?;
        self.check_caps(world);
        Ok(facts)
    }

    /// Begins a new period of the tenant's budget after midnight.
    fn renew(&mut self, world: &mut World) {
        let renews = self.accounts.get(&tenant()).and_then(|account| account.renews);
        if renews.is_some_and(|renews| renews <= world.clock) {
            let renews = Day::of(world.clock).renews(Period::Day);
            self.accounts.set_period(&tenant(), &Used::default(), renews);
            world.renewals += 1;
        }
    }

    fn perform_all(&mut self, world: &mut World, commands: Vec<Command>) -> Result<(), Crash> {
        for command in commands {
            match command {
                Command::Reserve(of) => drop(self.reserves.insert(of)),
                Command::Settle(of, settlement) => {
                    self.accounts.settle(&chain(&of.task), &settlement);
                }
                Command::Wake(_) => {}
                Command::Start(_)
                | Command::Extend(..)
                | Command::Judge(_)
                | Command::Kill(_)
                | Command::Notify(_) => self.outside.push(command),
            }
        }
        self.check_caps(world);
        Ok(())
    }

    /// Makes all facts durable, then carries out the commands that wait for that.
    fn sync(&mut self, world: &mut World) -> Result<(), Crash> {
        world.step()?;
        world.ledger.append(&mut self.unsynced);
        world.check_tenant(&self.accounts);
        world.finals = self.finals.clone();
        for command in std::mem::take(&mut self.outside) {
            world.step()?;
            match command {
                Command::Start(of) => self.start(world, of),
                Command::Judge(of) => {
                    self.judging.insert(of, world.clock.after(world.random.below(5000)));
                }
                Command::Kill(of) => {
                    if self.state.judging().any(|(judged, _)| judged == of) {
                        self.judging.insert(of.clone(), world.clock);
                    }
                    self.killed.insert(of);
                }
                Command::Notify(digest) => {
                    self.questions.insert(digest, world.clock.after(world.random.below(20_000)));
                }
                Command::Extend(..)
                | Command::Reserve(_)
                | Command::Settle(..)
                | Command::Wake(_) => {}
            }
        }
        Ok(())
    }

    fn start(&mut self, world: &mut World, of: Try) {
        let is_started = |fact: &Fact| matches!(&fact.kind, FactKind::TaskStarted { of: started, .. } if *started == of);
        if world.ledger.iter().filter(|fact| is_started(fact)).count() != 1 {
            world.violation("P2", format!("{of:?} starts without one durable fact"));
        }
        if !world.started.insert(of.clone()) {
            world.violation("P2", format!("{of:?} starts twice"));
        }
        let is_other =
            |host: &&Host| host.of.instance() == of.instance() && host.fate == Fate::Running;
        if world.hosts.values().any(|host| is_other(&host)) {
            world.violation("P2", format!("{of:?} starts while an older attempt runs"));
        }
        let n = world.counted(&of, &[]);
        let behaviour = behaviour(world.scenario.seed, &of.task, of.item, n);
        let ends = world.clock.after(behaviour.millis);
        let host = Host { of: of.clone(), behaviour, n, ends, fate: Fate::Running };
        world.hosts.insert(of, host);
    }

    /// After a restart: adopts hosts, takes results, and reports the attempts without a host.
    fn look_at_hosts(&mut self, world: &mut World) -> Result<(), Crash> {
        let running: Vec<Try> = self.state.running().map(|(of, _)| of).collect();
        for of in running {
            let is_new = self.unsynced.iter().any(|fact| {
                matches!(&fact.kind, FactKind::TaskStarted { of: started, .. } if *started == of)
            });
            if !is_new && !world.hosts.contains_key(&of) {
                self.give(world, InputKind::Lost(of, Evidence::NotStarted))?;
            }
        }
        Ok(())
    }

    /// Asks for the leases of all tasks that can start; returns whether anything happened.
    fn reserve_all(&mut self, world: &mut World) -> Result<bool, Crash> {
        let mut happened = false;
        self.reserves.extend(self.state.startable(world.clock));
        for of in std::mem::take(&mut self.reserves) {
            let ready = self.state.startable(world.clock).count() as u64;
            let cap = Limits::from(world.graph.task_budget(&of.task).unwrap());
            let chain = chain(&of.task);
            let lease = match self.accounts.lease(&chain, &cap, ready) {
                Ok(lease) => Ok(lease),
                Err(Refusal::Spent(spent)) => Err(spent),
                Err(Refusal::Busy) => continue,
            };
            self.check_caps(world);
            let epoch = world.epoch;
            let grant = lease.clone().map(|lease| Grant { lease, box_run: Some(RUN), epoch });
            let facts = self.give(world, InputKind::Lease(of, grant))?;
            happened |= !facts.is_empty();
            let started =
                facts.iter().any(|fact| matches!(fact.kind, FactKind::TaskStarted { .. }));
            if let Ok(lease) = lease
                && !started
            {
                // Nothing was started, so the lease is returned.
                let unused = crate::runs::budget::settle(&lease, Some(&Amounts::default()));
                self.accounts.settle(&chain, &unused);
            }
        }
        Ok(happened)
    }

    /// Lets the next thing happen: an end of a host, a verdict, an answer or a timer.
    fn next_event(&mut self, world: &mut World) -> Result<bool, Crash> {
        let running: Vec<Try> = self.state.running().map(|(of, _)| of).collect();
        let mut events: Vec<(Moment, u8, Option<Try>, Option<Digest>)> = Vec::new();
        for of in running {
            let Some(host) = world.hosts.get(&of) else { continue };
            let is_over = host.fate != Fate::Running || self.killed.contains(&of);
            events.push((if is_over { world.clock } else { host.ends }, 0, Some(of), None));
        }
        for (of, at) in &self.judging {
            events.push((*at, 1, Some(of.clone()), None));
        }
        for (digest, at) in &self.questions {
            events.push((*at, 2, None, Some(*digest)));
        }
        events.extend(self.state.next_wake(world.clock).map(|at| (at, 3, None, None)));
        if world.scenario.settles {
            events
                .extend(self.state.attention().map(|of| (world.clock.after(1), 4, Some(of), None)));
        }
        let Some((at, what, of, digest)) = events.into_iter().min() else { return Ok(false) };
        world.clock = world.clock.max(at);
        match (what, of, digest) {
            (0, Some(of), _) => self.host_event(world, of)?,
            (1, Some(of), _) => self.judge_event(world, of)?,
            (2, _, Some(digest)) => self.answer_event(world, digest)?,
            (4, Some(of), _) => self.settle_event(world, of)?,
            _ => {
                // Retries that are due are reserved by the caller.
                self.give(world, InputKind::Time)?;
            }
        }
        Ok(true)
    }

    fn host_event(&mut self, world: &mut World, of: Try) -> Result<(), Crash> {
        let host = world.hosts.get(&of).unwrap().clone();
        let usage = match world.random.below(4) {
            0 => None,
            _ => Some(Amounts::default().with(Unit::Tokens, world.random.below(400))),
        };
        if host.fate == Fate::Running && self.killed.contains(&of) {
            world.hosts.get_mut(&of).unwrap().fate = Fate::Dead { effect: false };
            self.give(world, InputKind::Lost(of, Evidence::NoEffect))?;
            return Ok(());
        }
        if let Fate::Dead { effect } = host.fate {
            let evidence = if effect { Evidence::MayHaveEffect } else { Evidence::NoEffect };
            self.give(world, InputKind::Lost(of, evidence))?;
            return Ok(());
        }
        if host.fate == Fate::Running {
            world.hosts.get_mut(&of).unwrap().fate = Fate::Ended;
            if host.behaviour.effect {
                *world.effects.entry((of.instance(), host.n)).or_default() += 1;
            }
        }
        let end = match &host.behaviour.result {
            Ok(content) => End::Done(world.output(&of, &host.behaviour, content)),
            Err(reason) => End::Failed { reason: *reason, text: "Permission denied".to_owned() },
        };
        self.give(world, InputKind::Ended(of, end, usage))?;
        Ok(())
    }

    fn judge_event(&mut self, world: &mut World, of: Try) -> Result<(), Crash> {
        self.judging.remove(&of);
        let n = world.counted(&of, &self.unsynced);
        let usage = Some(Amounts::default().with(Unit::Tokens, world.random.below(100)));
        let accepted = behaviour(world.scenario.seed, &of.task, of.item, n).accepted;
        let checks = world.checks(&of.task, accepted);
        let kind = if self.killed.contains(&of) {
            InputKind::Lost(of, Evidence::NoEffect)
        } else if accepted {
            InputKind::Judged(of, Verdict::Passed, usage, checks)
        } else {
            let verdict = Verdict::Rejected { check: 0, text: "no tests".to_owned() };
            InputKind::Judged(of, verdict, usage, checks)
        };
        self.give(world, kind)?;
        Ok(())
    }

    /// The person answers, after the program of the run tried to do so.
    fn answer_event(&mut self, world: &mut World, digest: Digest) -> Result<(), Crash> {
        self.questions.remove(&digest);
        let asked = world.ledger.iter().find_map(|fact| match &fact.kind {
            FactKind::ApprovalAsked { of, digest: asked, .. } if *asked == digest => {
                Some(of.clone())
            }
            _ => None,
        });
        let Some(of) = asked else {
            world.violation("P6", format!("question {digest} was not recorded"));
            return Ok(());
        };
        let behaviour = behaviour(world.scenario.seed, &of.task, of.item, 0);
        let content = behaviour.result.clone().unwrap_or(Json::Null);
        let output = world.output(&of, &behaviour, &content);
        let verdict = match decision(world.scenario.seed, &of.task, of.item) {
            Decision::Approve => GateVerdict::Approve(output),
            Decision::Edit => {
                let edited = json!({ "edited": content });
                GateVerdict::Edit(world.output(&of, &behaviour, &edited))
            }
            Decision::Reject => GateVerdict::Reject(None),
            Decision::Silence => return Ok(()),
        };
        let agent: Principal = "agent:claude".parse().unwrap();
        let forged = [
            (digest, Sender::outside(agent)),
            (digest, Sender { principal: person(), run: Some(RUN) }),
            (Digest::of(&[digest.as_bytes()]), Sender::outside(person())),
        ];
        for (digest, by) in forged {
            let verdict = GateVerdict::Approve(world.output(&of, &behaviour, &json!("forged")));
            let answer = GateAnswer { digest, by, verdict };
            let facts = self.give(world, InputKind::Answered(answer))?;
            if facts.iter().any(|fact| matches!(fact.kind, FactKind::ApprovalGiven { .. })) {
                world.violation("P6", format!("a forged answer counts: {facts:?}"));
            }
            self.past.pop();
        }
        let by = Sender::outside(person());
        self.give(world, InputKind::Answered(GateAnswer { digest, by, verdict }))?;
        Ok(())
    }

    fn settle_event(&mut self, world: &mut World, of: Try) -> Result<(), Crash> {
        let behaviour = behaviour(world.scenario.seed, &of.task, of.item, 0);
        let how = match world.random.below(3) {
            0 => Settled::Rerun,
            1 => Settled::Done(world.output(&of, &behaviour, &json!({ "go": true }))),
            _ => Settled::Failed,
        };
        self.give(world, InputKind::Settled(of, how, Sender::outside(person())))?;
        Ok(())
    }

    /// Old inputs arrive again, leases grow, and a person cancels.
    fn disturb(&mut self, world: &mut World) -> Result<(), Crash> {
        if world.random.chance(15) && !self.past.is_empty() {
            let index = usize::try_from(world.random.below(self.past.len() as u64)).unwrap();
            let again = self.past[index].clone();
            // Old reports arrive again, as they were or with another content.
            let is_request = matches!(
                again,
                InputKind::Cancel { .. } | InputKind::Lease(..) | InputKind::More(..)
            );
            let again = match world.random.chance(50) {
                true => contradicted(again),
                false => Some(again).filter(|_| !is_request),
            };
            if let Some(again) = again {
                self.give(world, again)?;
                self.past.pop();
            }
        }
        let leased = match world.random.chance(50) {
            true => self.state.running().next(),
            false => self.state.judging().next(),
        };
        if let Some((of, lease)) = leased.map(|(of, lease)| (of, *lease))
            && world.random.chance(10)
            && !self.killed.contains(&of)
        {
            let tasks = self.state.running().count() as u64;
            if let Some(more) = self.accounts.extend(&chain(&of.task), &lease, tasks) {
                let facts = self.give(world, InputKind::More(of.clone(), more))?;
                if facts.is_empty() {
                    let unused = crate::runs::budget::settle(&more, Some(&Amounts::default()));
                    self.accounts.settle(&chain(&of.task), &unused);
                }
            }
        }
        if world.scenario.cancels && world.random.chance(6) {
            let index = usize::try_from(world.random.below(world.plan.tasks.len() as u64)).unwrap();
            let task = world.plan.tasks[index].id.clone();
            let item = self.state.instances(&task).filter(|_| world.random.chance(30)).map(|_| 0);
            let of = world.random.chance(80).then_some(TaskRef { task, item });
            self.give(world, InputKind::Cancel { of, by: person() })?;
        }
        Ok(())
    }

    /// P5: no account has more reserved and spent than its limit.
    fn check_caps(&self, world: &mut World) {
        for (owner, account) in self.accounts.iter() {
            for unit in Unit::ALL {
                let used = account.reserved.get(unit) + account.spent.get(unit);
                if account.cap.get(unit).is_some_and(|cap| used > cap) {
                    world.violation("P5", format!("{owner:?} {unit:?}: {account:?}"));
                }
            }
        }
    }
}

/// Returns an old report with the opposite content; it must not change what the report decided.
fn contradicted(report: InputKind) -> Option<InputKind> {
    let output = |of: &Try| Output {
        digest: Digest::of(&[b"forged", of.task.as_str().as_bytes()]),
        size: 6,
        labels: BTreeSet::new(),
        selections: Selections::default(),
    };
    Some(match report {
        InputKind::Ended(of, End::Done(_), usage) => {
            let end = End::Failed { reason: FailReason::Refused, text: "forged".to_owned() };
            InputKind::Ended(of, end, usage)
        }
        InputKind::Ended(of, End::Failed { .. }, usage) => {
            let end = End::Done(output(&of));
            InputKind::Ended(of, end, usage)
        }
        InputKind::Judged(of, Verdict::Passed, usage, checks) => {
            let verdict = Verdict::Rejected { check: 0, text: "forged".to_owned() };
            InputKind::Judged(of, verdict, usage, checks)
        }
        InputKind::Judged(of, Verdict::Rejected { .. }, usage, checks) => {
            InputKind::Judged(of, Verdict::Passed, usage, checks)
        }
        InputKind::Answered(GateAnswer { digest, by, verdict: GateVerdict::Reject(None) }) => {
            let forged = output(&Try { task: "forged".parse().unwrap(), item: None, attempt: 1 });
            let verdict = GateVerdict::Approve(forged);
            InputKind::Answered(GateAnswer { digest, by, verdict })
        }
        InputKind::Answered(answer) => {
            InputKind::Answered(GateAnswer { verdict: GateVerdict::Reject(None), ..answer })
        }
        InputKind::Settled(of, Settled::Failed, by) => {
            let how = Settled::Done(output(&of));
            InputKind::Settled(of, how, by)
        }
        InputKind::Settled(of, Settled::Rerun | Settled::Done(_), by) => {
            InputKind::Settled(of, Settled::Failed, by)
        }
        InputKind::Accepted { .. }
        | InputKind::Opened { .. }
        | InputKind::Lease(..)
        | InputKind::More(..)
        | InputKind::Lost(..)
        | InputKind::Cancel { .. }
        | InputKind::Time => return None,
    })
}

/// Notes the final states of tasks and instances, and returns those that changed.
fn changed_finals(state: &RunState, plan: &Plan, finals: &mut Finals) -> Vec<String> {
    for task in &plan.tasks {
        let count = state.instances(&task.id).filter(|_| task.for_each.is_some()).unwrap_or(0);
        for item in (0..count).map(Some).chain([None]) {
            let of = TaskRef { task: task.id.clone(), item };
            if let Some(status) = state.status(&of).filter(|status| status.is_final()) {
                let output = state.output(&of).cloned();
                finals.entry(of).or_insert((status, output));
            }
        }
    }
    let now = |of: &TaskRef| (state.status(of), state.output(of));
    finals
        .iter()
        .filter(|(of, seen)| now(of) != (Some(seen.0), seen.1.as_ref()))
        .map(|(of, seen)| format!("{of} was {:?}, now {:?}", seen.0, state.status(of)))
        .collect()
}
