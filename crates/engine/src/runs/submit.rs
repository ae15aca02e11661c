//! Submits plans: stores the files of a run, records that the plan is accepted, and wakes the driver.

use std::collections::BTreeMap;
use std::fs::{self, DirBuilder};
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::Path;
use std::time::Duration;

use anyhow::Context as _;
use belljar_ledger::{
    Actor, Body, Digest, Draft, LedgerPaths, Reader, ReaderError, RunCreated, ScheduleFired,
};
use belljar_model::plan::{Check, CheckedPlan, Executor, Task};
use belljar_model::{Mode, Net, Purpose, RunId};

use super::driver;
use super::executors;
use super::facts;
use super::files::RunFiles;
use super::limits;
use super::machine::{Fact, FactKind, Moment};
use crate::error::{EngineError, ErrorKind, WithKind as _, invalid};
use crate::record;
use crate::scope::Scoped;
use crate::store::durable;
use crate::store::lock::{self, Rank};

/// The maximum time that a submission waits for another submission.
const LOCK_TIMEOUT: Duration = Duration::from_secs(30);
/// The maximum length of a submission key in bytes.
const MAX_KEY: usize = 256;

/// A text by which a repeated submission is recognised. Only the first submission with a key starts a run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SubmitKey(String);

impl SubmitKey {
    /// Returns the key, or an error if it is empty or longer than 256 bytes.
    pub fn new(text: impl Into<String>) -> Result<Self, EngineError> {
        let text = text.into();
        if text.is_empty() || text.len() > MAX_KEY {
            return Err(invalid(format!("a submission key has 1 to {MAX_KEY} bytes")));
        }
        Ok(Self(text))
    }

    fn file_name(&self) -> String {
        Digest::of(&[b"belljar submission key 1\0", self.0.as_bytes()]).to_string()
    }
}

/// Submits a plan. The run continues after this process exits.
///
/// Relative paths of the plan refer to `base`, an absolute directory. Its files are read once, now.
pub fn submit(
    state: &Scoped,
    plan: &CheckedPlan,
    base: &Path,
    key: Option<&SubmitKey>,
) -> Result<RunId, EngineError> {
    let run = accept(state, plan, base, key)?;
    driver::wake(state)?;
    Ok(run)
}

/// Stores and records a run without waking the driver. The run starts at the next [`driver::wake`].
pub fn accept(
    state: &Scoped,
    plan: &CheckedPlan,
    base: &Path,
    key: Option<&SubmitKey>,
) -> Result<RunId, EngineError> {
    supported(plan)?;
    let layout = state.store().layout();
    let keys = layout.submission_keys();
    DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(&keys)
        .map_err(|error| durable::with_disk_full_hint(error, &keys))
        .with_context(|| format!("cannot create {}", keys.display()))
        .kind(ErrorKind::Broken)?;
    let content = Digest::of(&[b"belljar submitted plan 1\0", plan.canonical().as_bytes()]);
    let _guard = match key {
        None => None,
        Some(key) => {
            let guard = lock::acquire(&keys.join("lock"), Rank::Directory, LOCK_TIMEOUT);
            let guard = guard.context("cannot lock the submission keys").kind(ErrorKind::Broken)?;
            let busy = || {
                EngineError::message(ErrorKind::Busy, "another submission with a key is running")
            };
            let guard = guard.ok_or_else(busy)?;
            if let Some(run) = submitted(state, key, content)? {
                return Ok(run);
            }
            Some(guard)
        }
    };
    let _limits = limits::check(state, plan.budget())?;
    let (fixed, policy) = fixed_files(state, plan, base)?;
    let run = state.new_id()?.0;
    let files = RunFiles::of(layout, run);
    let bound = files.create(plan, base, &fixed)?;
    if let Some(key) = key {
        durable::write(&keys, &key.file_name(), format!("{run} {content}\n").as_bytes())
            .context("cannot store the submission key")
            .kind(ErrorKind::Broken)?;
    }
    let drafts = accepted(state, plan, base, policy, bound)?;
    let drafts = drafts.map(|draft| draft.of_run(run)).to_vec();
    let ledger = record::open(state).kind(ErrorKind::Unrecorded)?;
    ledger.record_all(drafts).context("cannot record the plan").map_err(|error| {
        fs::remove_dir_all(layout.plan(run)).ok(); // the ledger does not name the run
        EngineError::new(ErrorKind::Unrecorded, error)
    })?;
    tracing::info!(%run, tasks = plan.tasks().len(), "plan is accepted");
    Ok(run)
}

/// Checks everything that [`submit`] checks before it copies the files of a plan, and starts nothing.
pub fn check(state: &Scoped, plan: &CheckedPlan, base: &Path) -> Result<(), EngineError> {
    supported(plan)?;
    fixed_files(state, plan, base).map(drop)
}

/// Stores and records the run of a slot, whose id is given. An earlier run with this id is an error.
pub(super) fn accept_slot(
    state: &Scoped,
    plan: &CheckedPlan,
    base: &Path,
    run: RunId,
    fired: ScheduleFired,
) -> Result<(), EngineError> {
    let (fixed, policy) = fixed_files(state, plan, base)?;
    let bound = RunFiles::of(state.store().layout(), run).create(plan, base, &fixed)?;
    let [created, accepted] = accepted(state, plan, base, policy, bound)?;
    let fired = Draft::new(fired).of_run(run).by(Actor::Driver);
    let drafts = vec![created.of_new_run(run), accepted.of_run(run), fired];
    let ledger = record::open(state).kind(ErrorKind::Unrecorded)?;
    // The files stay after an error: they can belong to an earlier run.
    ledger.record_all(drafts).context("cannot record the plan").kind(ErrorKind::Unrecorded)?;
    tracing::info!(%run, tasks = plan.tasks().len(), "plan of a schedule is accepted");
    Ok(())
}

/// Returns the files that are stored with a plan, and the digest of its policy.
fn fixed_files(
    state: &Scoped,
    plan: &CheckedPlan,
    base: &Path,
) -> Result<(BTreeMap<String, Vec<u8>>, Digest), EngineError> {
    let mut fixed = executors::fixed_files(state, plan, base)?;
    let policy = policy(plan, &fixed);
    fixed.extend(executors::resolved_files(state, plan, base)?);
    Ok((fixed, policy))
}

/// Returns the first events of the run of a plan.
fn accepted(
    state: &Scoped,
    plan: &CheckedPlan,
    base: &Path,
    policy: Digest,
    bound: Digest,
) -> Result<[Draft; 2], EngineError> {
    let accepted = Fact {
        at: Moment(state.clock().millis()),
        kind: FactKind::PlanAccepted { plan: bound, policy },
    };
    Ok([
        Draft::new(created(state, plan, base, policy, &plan.canonical())?),
        Draft::new(facts::event(&accepted)).by(Actor::Driver),
    ])
}

/// Returns the run of an earlier submission with this key, if it was recorded.
fn submitted(
    state: &Scoped,
    key: &SubmitKey,
    content: Digest,
) -> Result<Option<RunId>, EngineError> {
    let file = state.store().layout().submission_keys().join(key.file_name());
    let Ok(text) = fs::read_to_string(file) else { return Ok(None) };
    let Some((run, stored)) = text.trim_end().split_once(' ') else { return Ok(None) };
    let Ok(run) = run.parse::<RunId>() else { return Ok(None) };
    let reader = match Reader::open(&LedgerPaths::under(state.home())) {
        Err(ReaderError::None { .. }) => return Ok(None),
        opened => opened.context("cannot read the ledger").kind(ErrorKind::Broken)?,
    };
    if reader.find(run, 0).kind(ErrorKind::Broken)?.is_none() {
        return Ok(None); // the earlier submission ended before its run was recorded
    }
    if stored != content.to_string() {
        let text = format!("run {run} has this submission key and another plan; use another key");
        return Err(EngineError::message(ErrorKind::Conflict, text));
    }
    Ok(Some(run))
}

pub(super) fn created(
    state: &Scoped,
    plan: &CheckedPlan,
    base: &Path,
    policy: Digest,
    text: &str,
) -> Result<RunCreated, EngineError> {
    let caller = state.caller();
    Ok(RunCreated {
        name: Some(plan.name().to_owned()),
        template: plan.template().to_owned(),
        mode: Mode::ReadOnly.to_string(),
        net: Net::None.to_string(),
        policy,
        workspace: Some(base.as_os_str().as_bytes().to_vec()),
        record: "hashes".to_owned(),
        command: Body::hash_of(text.as_bytes()).kind(ErrorKind::Broken)?,
        environment: Vec::new(),
        limits: Vec::new(),
        purpose: Some(Purpose::Plan.to_string()),
        principal: Some(caller.principal.to_string()),
        tenant: Some(caller.tenant.to_string()),
        session: caller.session.as_ref().map(ToString::to_string),
        writable: None,
    })
}

/// Returns the digest of the grants of all boxes of a plan. The descriptions of tiers and agents are part of
/// `fixed`.
pub(super) fn policy(plan: &CheckedPlan, fixed: &BTreeMap<String, Vec<u8>>) -> Digest {
    let boxes = (0..plan.tasks().len()).filter_map(|task| plan.box_template(task));
    let mut digests: Vec<Digest> = boxes.map(|template| record::policy(template, None)).collect();
    digests.extend(fixed.iter().map(|(name, content)| {
        Digest::of(&[b"belljar fixed file 1\0", name.as_bytes(), b"\0", content.as_slice()])
    }));
    let parts: Vec<&[u8]> = digests.iter().map(|digest| digest.as_bytes().as_slice()).collect();
    Digest::of(&[b"belljar plan policy 1\0", &parts.concat()])
}

/// Refuses a plan with parts that this version cannot carry out.
pub fn supported(plan: &CheckedPlan) -> Result<(), EngineError> {
    let refuse = |task: &Task, what: &str| {
        Err(invalid(format!("task `{}`: {what} is not supported yet", task.id)))
    };
    for task in plan.tasks() {
        for check in &task.checks {
            match check {
                _ if matches!(task.executor, Executor::Approval { .. }) => {
                    return refuse(task, "a check of an approval");
                }
                Check::Command(_) | Check::Verify(_) if !task.has_box() => {
                    return refuse(task, "a check by a command of a task without a box");
                }
                Check::Model { .. } if !task.has_box() => {
                    return refuse(task, "a check by a model of a task without a box");
                }
                Check::Schema(_) | Check::Command(_) | Check::Model { .. } | Check::Verify(_) => {}
            }
        }
    }
    Ok(())
}
