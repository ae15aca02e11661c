//! Gates as people see them: what an approval would do, and the answers of people.
//!
//! Everything that is shown comes from the ledger and from files that match their recorded commitments. The
//! digest of the gate covers all of it.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;

use belljar_ledger::{Digest, Event, LedgerPaths, Query, Reader};
use belljar_model::caller::{Principal, PrincipalKind};
use belljar_model::plan::{Executor, OutputKind, TaskId};
use belljar_model::{RunId, display};
use serde::Deserialize;

use super::driver::{self, outcome_of};
use super::executors::Context;
use super::graph::Selections;
use super::machine::{FactKind, TaskRef};
use super::schedules::stored;
use super::view::Loaded;
use crate::approvals::gates::{
    GateApply, GateDependent, GateInput, GateLabel, GateQuestion, GateState, Gates,
};
use crate::approvals::{AnswerRule, ApprovalOutcome, Approvals};
use crate::clones::BranchUpdate;
use crate::error::{EngineError, ErrorKind, WithKind as _, invalid};
use crate::record::reading::read;
use crate::scope::Scoped;
use crate::supervisor::OfNamedBoxes;

/// A gate has one attempt, which has no earlier reason.
static NO_REASONS: BTreeMap<TaskRef, String> = BTreeMap::new();

/// The number of bytes of an input that a question shows.
const PREVIEW: usize = 2_000;

/// Returns the approvals of one tenant: gates of runs, questions of boxes, and skills.
pub const fn approvals(state: &Scoped) -> Approvals<'_> {
    Approvals::new(state, &OfNamedBoxes, &OfRuns)
}

/// Returns the complete text behind an open gate: the difference of the branch that an approval moves, or
/// else the inputs. The text is not safe to print to a terminal.
pub fn details(state: &Scoped, run: RunId, digest: &Digest) -> Result<Vec<u8>, EngineError> {
    let loaded = Loaded::read(state, run)?;
    let not_open = || EngineError::message(ErrorKind::WrongState, "this gate is not open");
    let of = open_gate(&loaded, digest).ok_or_else(not_open)?;
    let context = loaded.context(state, run);
    if let Some((update, _)) = context.update(&of).map_err(invalid)? {
        return update.diff(state);
    }
    let mut text = Vec::new();
    for input in context.inputs(&of).unwrap_or_default().files {
        text.extend_from_slice(format!("--- {}\n", input.name).as_bytes());
        text.extend(fs::read(&input.content).kind(ErrorKind::Broken)?);
        text.push(b'\n');
    }
    Ok(text)
}

/// Returns the index of the event that answered a gate, if the ledger has one.
pub fn answer_event(state: &Scoped, run: RunId, digest: &Digest) -> Option<u64> {
    let reader = Reader::open(&LedgerPaths::under(state.home())).ok()?;
    let kind = Some("approval".to_owned());
    let query = Query { run: Some(run), kind, newest_first: true, ..Query::default() };
    let rows = reader.events(&query).ok()?;
    let answer = rows.iter().filter(|row| row.kind != "approval.asked").find(|row| {
        let entry = read(&reader, row);
        let event = entry.ok().and_then(|entry| Event::read(&entry.kind, &entry.fields).ok());
        match event {
            Some(Event::ApprovalGiven(given)) => given.bound_to == *digest,
            Some(Event::ApprovalRefused(refused)) => refused.bound_to == *digest,
            _ => false,
        }
    });
    answer.map(|row| row.index)
}

/// The gates of the runs in the ledger.
#[derive(Clone, Copy, Debug)]
struct OfRuns;

impl Gates for OfRuns {
    fn state(&self, state: &Scoped, run: RunId, digest: &Digest) -> Result<GateState, EngineError> {
        let loaded = Loaded::read(state, run)?;
        if let Some(of) = open_gate(&loaded, digest) {
            let mut gate = loaded.context(state, run).gate(&of);
            gate.answers.requester = requester(state, loaded.maker.as_ref())?;
            return Ok(GateState::Open(Box::new(gate)));
        }
        let mut outcomes = loaded.facts.iter().filter_map(|fact| {
            let (of, outcome, by) = outcome_of(&fact.kind)?;
            (of == *digest).then_some(GateState::Closed { outcome, by, at: fact.at.0 })
        });
        let at = loaded.facts.last().map_or(0, |fact| fact.at.0);
        let withdrawn = GateState::Closed { outcome: ApprovalOutcome::Withdrawn, by: None, at };
        Ok(outcomes.next_back().unwrap_or(withdrawn))
    }

    fn check_edit(
        &self,
        state: &Scoped,
        run: RunId,
        digest: &Digest,
        content: &[u8],
    ) -> Result<(), EngineError> {
        let loaded = Loaded::read(state, run)?;
        let not_open = || EngineError::message(ErrorKind::WrongState, "this gate is not open");
        let of = open_gate(&loaded, digest).ok_or_else(not_open)?;
        let checked = loaded.context(state, run).gate_selections(&of, content);
        checked.map(drop).map_err(|why| invalid(format!("the edited output is refused: {why}")))
    }

    fn wake(&self, state: &Scoped, is_done: &dyn Fn() -> bool) -> Result<(), EngineError> {
        driver::wake_until(state, is_done)
    }
}

/// Returns the principal that a run belongs to. The run of a schedule belongs to the maker of the schedule.
fn requester(state: &Scoped, maker: Option<&Principal>) -> Result<Option<Principal>, EngineError> {
    let Some(maker) = maker else { return Ok(None) };
    if maker.kind() != PrincipalKind::Schedule {
        return Ok(Some(maker.clone()));
    }
    let name = maker.name().parse();
    let stored = name.ok().map(|name| stored::read(state, &name)).transpose()?.flatten();
    // The schedules of the tenant `local` belong to the user of the machine.
    let local = || Principal::user(rustix::process::geteuid().as_raw());
    Ok(Some(stored.map_or_else(local, |stored| stored.maker)))
}

/// Returns the task instance of an open gate.
fn open_gate(loaded: &Loaded, digest: &Digest) -> Option<TaskRef> {
    loaded.progress.gates().find(|open| *open == digest)?;
    loaded.facts.iter().rev().find_map(|fact| {
        let FactKind::ApprovalAsked { of, digest: asked, .. } = &fact.kind else { return None };
        (asked == digest).then(|| of.instance())
    })
}

impl Loaded {
    pub(super) fn context<'a>(&'a self, state: &'a Scoped, run: RunId) -> Context<'a> {
        Context {
            state,
            run,
            plan: &self.submitted.plan,
            graph: &self.graph,
            bound: self.bound,
            base: &self.submitted.base,
            files: &self.files,
            progress: &self.progress,
            reasons: &NO_REASONS,
        }
    }
}

/// The output of a task that made a branch.
#[derive(Debug, Deserialize)]
struct Branch {
    commit: String,
    base: String,
}

impl Context<'_> {
    /// Returns the content that a gate passes on if a person approves it. The error is a sentence.
    ///
    /// One input is passed on unchanged. Of several inputs, the gate passes on their names and sizes.
    pub(super) fn gate_content(&self, of: &TaskRef) -> Result<Vec<u8>, String> {
        let inputs = self.inputs(of).ok_or("an input of the gate is missing or was changed")?;
        let read = |path| fs::read(path).map_err(|error| format!("cannot read an input: {error}"));
        match inputs.files.as_slice() {
            [] => match self.apply(of) {
                Some(task) => {
                    let of = self.chosen(task)?;
                    let output = self.progress.output(&of).ok_or("the branch is missing")?;
                    let path = self.files.checked_output(&of, output.digest);
                    read(path.ok_or("the output with the branch was changed")?)
                }
                None => Ok(Vec::new()),
            },
            [single] => read(single.content.clone()),
            several => {
                let mut sizes = BTreeMap::new();
                for input in several {
                    let size = fs::metadata(&input.content).map_err(|error| error.to_string())?;
                    sizes.insert(&input.name, size.len());
                }
                serde_json::to_vec(&sizes).map_err(|error| error.to_string())
            }
        }
    }

    /// Checks the size and the type of the output of a gate. The error is a sentence.
    pub(super) fn gate_selections(
        &self,
        of: &TaskRef,
        content: &[u8],
    ) -> Result<Selections, String> {
        let max = self.plan.task(&of.task).map_or(0, |task| task.output.max.as_u64());
        if content.len() as u64 > max {
            let size = content.len();
            return Err(format!("it has {size} bytes, and the output of the gate at most {max}"));
        }
        self.selections(of, content)
    }

    fn apply(&self, of: &TaskRef) -> Option<&TaskId> {
        match self.plan.task(&of.task).map(|task| &task.executor) {
            Some(Executor::Approval { apply, .. }) => apply.as_ref(),
            _ => None,
        }
    }

    /// Returns the task instance that made a branch: the task itself, or the one that it chose.
    fn chosen(&self, task: &TaskId) -> Result<TaskRef, String> {
        let of = TaskRef { task: task.clone(), item: None };
        let kind = self.plan.task(task).map(|task| task.output.kind);
        if kind != Some(OutputKind::Choice) {
            return Ok(of);
        }
        let text = self.output_text(&of)?;
        text.trim().parse().map_err(|_| format!("the output of {of} names no task"))
    }

    fn output_text(&self, of: &TaskRef) -> Result<String, String> {
        let missing = || format!("the output of {of} is missing or was changed");
        let output = self.progress.output(of).ok_or_else(missing)?;
        let path = self.files.checked_output(of, output.digest).ok_or_else(missing)?;
        fs::read_to_string(path).map_err(|_| missing())
    }

    /// Returns the branch that the approval of a gate moves, with the task that made the commit.
    pub(super) fn update(&self, of: &TaskRef) -> Result<Option<(BranchUpdate, TaskRef)>, String> {
        let Some(task) = self.apply(of) else { return Ok(None) };
        let made_by = self.chosen(task)?;
        let update = self.branch_of(&made_by, &self.output_text(&made_by)?)?;
        Ok(Some((update, made_by)))
    }

    /// Returns the commit that an output of type `branch` names.
    pub(super) fn branch_of(&self, of: &TaskRef, output: &str) -> Result<BranchUpdate, String> {
        let branch = serde_json::from_str(output);
        let Branch { commit, base } =
            branch.map_err(|_| format!("the output of {of} names no commit"))?;
        let repo = match self.plan.task(&of.task).map(|task| &task.executor) {
            Some(Executor::Agent { repo, .. }) => self.base.join(repo),
            _ => self.base.clone(),
        };
        let branch = format!("belljar/{}", self.plan.name());
        Ok(BranchUpdate { repo, branch, commit, base })
    }

    /// Describes an open gate.
    fn gate(&self, of: &TaskRef) -> GateQuestion {
        let Some(task) = self.plan.task(&of.task) else { return GateQuestion::default() };
        let Executor::Approval { question, clears, answers, .. } = &task.executor else {
            return GateQuestion::default();
        };
        let mut gate = GateQuestion {
            plan: display::safe_line(self.plan.name()),
            run: self.run.to_string(),
            task: of.to_string(),
            question: display::safe_line(question),
            dependents: self.gate_dependents(&of.task),
            clears: clears.iter().map(ToString::to_string).collect(),
            output: kind_name(task.output.kind).to_owned(),
            max_output: task.output.max.as_u64(),
            answers: AnswerRule { terms: *answers, requester: None },
            ..GateQuestion::default()
        };
        gate.inputs = self.gate_inputs(of);
        gate.taint = self.gate_taint(&of.task);
        let labels = gate.taint.iter().map(|it| &it.label);
        gate.labels = labels.filter(|it| !gate.clears.contains(it)).cloned().collect();
        let content = self.gate_content(of);
        let checked = content.and_then(|content| self.gate_selections(of, &content));
        gate.obstacle = checked.err().map(display::safe_line);
        match self.gate_apply(of) {
            Ok(apply) => gate.apply = apply,
            Err(why) => gate.obstacle = Some(display::safe_line(why)),
        }
        gate
    }

    fn gate_inputs(&self, of: &TaskRef) -> Vec<GateInput> {
        let files = self.inputs(of).unwrap_or_default().files.into_iter();
        let read = files.map(|input| {
            let content = fs::read(&input.content).unwrap_or_default();
            let beginning = content.get(..content.len().min(PREVIEW)).unwrap_or_default();
            GateInput {
                name: input.name,
                size: content.len() as u64,
                digest: Digest::of(&[&content]).to_string(),
                labels: input.labels,
                preview: display::safe_multiline(beginning),
            }
        });
        read.collect()
    }

    /// Returns the labels of everything that a gate reads, each with its sources.
    fn gate_taint(&self, gate: &TaskId) -> Vec<GateLabel> {
        let labels = self.progress.labels(gate).into_iter().flatten();
        let described = labels.map(|label| {
            let from: BTreeSet<String> = self
                .progress
                .origins(gate, label)
                .into_iter()
                .map(|origin| display::safe_line(origin.source))
                .collect();
            GateLabel { label: label.to_string(), from: from.into_iter().collect() }
        });
        described.collect()
    }

    fn gate_dependents(&self, gate: &TaskId) -> Vec<GateDependent> {
        let Some(ix) = self.graph.find(gate) else { return Vec::new() };
        let dependents = self.graph[ix].dependents.iter().map(|link| &self.graph[link.task].id);
        let described = dependents.filter_map(|id| {
            let does = describe(&self.plan.task(id)?.executor);
            Some(GateDependent { task: id.to_string(), does: display::safe_line(does) })
        });
        described.collect()
    }

    fn gate_apply(&self, of: &TaskRef) -> Result<Option<GateApply>, String> {
        let Some((update, made_by)) = self.update(of)? else { return Ok(None) };
        let text = |error: EngineError| format!("{error:#}");
        if let Some(why) = update.obstacle(self.state).map_err(text)? {
            return Err(why);
        }
        let size = update.size(self.state).map_err(text)?;
        Ok(Some(GateApply {
            of: made_by.to_string(),
            commit: update.commit,
            base: update.base,
            branch: display::safe_line(update.branch),
            files: size.files,
            added_lines: size.added_lines,
            removed_lines: size.removed_lines,
            executes: size.executes,
        }))
    }
}

const fn kind_name(kind: OutputKind) -> &'static str {
    match kind {
        OutputKind::Text => "text",
        OutputKind::Json => "json",
        OutputKind::Bytes => "bytes",
        OutputKind::Branch => "branch",
        OutputKind::Choice => "choice",
    }
}

/// Describes on one line what an executor does.
fn describe(executor: &Executor) -> String {
    match executor {
        Executor::Command { argv, workspace } => {
            let words = argv.words().iter().map(|word| quoted(&word.to_string_lossy()));
            let mut text = format!("command {}", words.collect::<Vec<_>>().join(" "));
            if let Some(at) = workspace {
                let access = if at.overlay { "with changes for review" } else { "read-only" };
                text = format!("{text} in {}, {access}", at.directory.display());
            }
            text
        }
        Executor::Code { .. } => "TypeScript program".to_owned(),
        Executor::Agent { agent, repo, .. } => {
            format!("agent {} in a clone of {}", agent.as_str(), repo.display())
        }
        Executor::Model { tier, tools, .. } => {
            let mut text = format!("request to a model of tier {}", tier.as_str());
            if let Some(tools) = tools {
                let names: Vec<&str> = tools.names.iter().map(|tool| tool.name()).collect();
                text = format!("{text} with the tools {}", names.join(", "));
            }
            if let Some(at) = executor.workspace() {
                let access = if at.overlay { "with changes for review" } else { "read-only" };
                text = format!("{text} in {}, {access}", at.directory.display());
            }
            text
        }
        Executor::Approval { question, .. } => format!("approval: {question}"),
        Executor::Stub { .. } => "stub".to_owned(),
    }
}

/// Returns a word so that a person sees where it begins and ends.
fn quoted(word: &str) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "-_./=:,@%+".contains(c);
    if !word.is_empty() && word.chars().all(is_plain) {
        return word.to_owned();
    }
    format!("'{}'", word.replace('\'', "'\\''"))
}
