//! Writes events of commands and runs to the ledger, before the action that each event announces.
//!
//! A run is recorded as an intent before its program starts, and as an outcome when the program has
//! ended. Applying changes is recorded in the same way. If the intent cannot be written to the ledger,
//! the action does not happen.

pub mod bodies;
pub mod browse;
pub mod checking;
pub mod durations;
pub mod feed;
pub mod json;
pub mod line;
pub mod otel;
pub mod otlp;
pub mod owners;
pub mod proofs;
pub mod reading;
pub mod redaction;
pub mod runs;
pub mod sentences;
pub mod timeline;

use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt as _;

use anyhow::Context as _;
use belljar_ledger::{
    Actor, AttentionSettled, Body, BoxExec, Digest, Draft, Event, LedgerPaths, OpenError,
    PolicyLoaded, Reader, ReaderError, Receipt, RecordError, Row, RunCreated, RunEnded, RunExec,
    RunFailed, RunLayers, RunLimit, RunWeakened, WorkspaceApplied, WorkspaceApplying,
    WorkspaceChanged, WorkspaceDiscarded,
};
use belljar_model::{
    Access, Caller, EnvVar, InForce, LayerState, Purpose, Record, RunId, RunRecord, RunResult,
    Template, Timeout, display,
};

use crate::config::Source;
use crate::error::{EngineError, ErrorKind, WithKind as _};
use crate::scope::Scoped;
use crate::store::durable;
pub use crate::store::ledger::LedgerHandle;

/// Writes the events of one run to the ledger, from the start of the run to its end.
#[derive(Debug)]
pub struct RunRecorder {
    ledger: LedgerHandle,
    run: RunId,
    created: Receipt,
}

/// The properties of a run that are recorded before its program starts.
#[derive(Debug)]
pub struct RunIntent<'a> {
    pub record: &'a RunRecord,
    pub purpose: Purpose,
    pub caller: &'a Caller,
    pub template: &'a Template,
    /// The hash of the network policy and the secret declarations; see [`policy`].
    pub network: Option<Digest>,
    pub sources: &'a [Source],
    pub argv: &'a [OsString],
    pub env: &'a [(OsString, OsString)],
    /// Restrictions that the operator lifted, in addition to the layers that the template weakens.
    pub remarks: &'a [String],
}

/// Opens the ledger of the state directory for writing and reports repairs to the observer. A ledger
/// that is already open is shared.
pub fn open(state: &Scoped) -> anyhow::Result<LedgerHandle> {
    LedgerHandle::open(state.store().ledger(), state.observer()).map_err(|error| {
        let advice = advice(&error);
        let advice = advice.unwrap_or("cannot open the ledger, and no action is taken without it");
        anyhow::Error::new(error).context(advice)
    })
}

/// The advice that is shown when the disk of the ledger is full.
const DISK_IS_FULL: &str = "the disk of the ledger is full, and actions that cannot be recorded are not taken; free some space on it";

/// The advice for a command that needs a damaged part of the log.
const LOG_IS_DAMAGED: &str = "an earlier part of the ledger is damaged, so no action is taken; run `belljar ledger verify` to see the damage, then `belljar ledger mend` to accept it and continue";

/// Adds advice for the user to an error of recording an event.
fn with_advice(error: RecordError) -> anyhow::Error {
    let is_full = durable::is_disk_full(&error);
    let is_log_damaged = matches!(&error, RecordError::Index(index) if index.is_log_damage());
    let error = anyhow::Error::new(error);
    match (is_full, is_log_damaged) {
        (true, _) => error.context(DISK_IS_FULL),
        (false, true) => error.context(LOG_IS_DAMAGED),
        (false, false) => error,
    }
}

/// Returns the advice for a ledger that cannot be opened for writing, if there is any.
fn advice(error: &OpenError) -> Option<&'static str> {
    if durable::is_disk_full(error) {
        return Some(DISK_IS_FULL);
    }
    match error {
        OpenError::OtherHost { .. } => {
            Some("stop Belljar on the other host, or use another state directory (BELLJAR_HOME)")
        }
        error if error.is_access_error() => None,
        OpenError::NoAnchor { .. }
        | OpenError::Gone { .. }
        | OpenError::Foreign { .. }
        | OpenError::CutShort { .. }
        | OpenError::Damaged(_)
        | OpenError::Salts { .. }
        | OpenError::Anchor(_) => Some(
            "the ledger is damaged or was changed outside of Belljar, so no action is taken; run `belljar ledger verify` to see the damage, then `belljar ledger mend` to accept it and continue",
        ),
        OpenError::File { .. } | OpenError::Rotation(_) | OpenError::Record(_) => None,
    }
}

impl RunRecorder {
    /// Records that a run is about to start. The program may start after this function has returned.
    pub fn begin(
        state: &Scoped,
        plan: &RunIntent<'_>,
        layers: &[LayerState],
    ) -> Result<Self, EngineError> {
        Self::begin_in(open(state).kind(ErrorKind::CannotStart)?, plan, layers)
    }

    /// Records that a run is about to start, in a ledger that is already open.
    pub fn begin_in(
        ledger: LedgerHandle,
        plan: &RunIntent<'_>,
        layers: &[LayerState],
    ) -> Result<Self, EngineError> {
        let run = plan.record.id;
        let mut drafts = vec![Draft::new(created(&ledger, plan).kind(ErrorKind::CannotStart)?)];
        drafts.extend(plan.sources.iter().map(|source| {
            Draft::new(PolicyLoaded {
                scope: source.scope.clone(),
                file: source.file.as_os_str().as_bytes().to_vec(),
                hash: Digest::of(&[source.text.as_bytes()]),
            })
        }));
        let weakened = plan.template.weaken.iter();
        let weakened = weakened.map(ToString::to_string).chain(plan.remarks.iter().cloned());
        drafts.extend(weakened.map(|layer| Draft::new(RunWeakened { layer })));
        drafts.push(Draft::new(in_force(layers)).by(Actor::Supervisor));
        let program = plan.argv.first().map(|arg| arg.as_bytes().to_vec()).unwrap_or_default();
        drafts.push(Draft::new(RunExec { program }).by(Actor::Supervisor));
        let drafts = drafts.into_iter().map(|draft| draft.of_run(run)).collect();
        let receipts = ledger.record_all(drafts).map_err(with_advice);
        let receipts = receipts.context("cannot record the run").kind(ErrorKind::CannotStart)?;
        let created =
            receipts.into_iter().next().ok_or(RecordError::Broken).kind(ErrorKind::CannotStart)?;
        Ok(Self { ledger, run, created })
    }

    pub const fn ledger(&self) -> &LedgerHandle {
        &self.ledger
    }

    /// Records the outcome of the run: its exit status, output and changed files.
    ///
    /// If the output was redacted in the meantime, only its hash is recorded.
    pub fn ended(
        &self,
        result: &RunResult,
        outputs: [Option<Body>; 2],
        changes: Option<Body>,
    ) -> Result<(), RecordError> {
        let hash_only = |body: &Option<Body>| body.as_ref().map(Body::hash_only);
        let without_content = outputs.each_ref().map(hash_only);
        match self.outcome(Self::end_events(result, outputs, changes.clone())) {
            Err(RecordError::BodyGone { hash }) => {
                tracing::warn!(%hash, "output was redacted; only its hash is recorded");
                self.outcome(Self::end_events(result, without_content, changes))
            }
            recorded => recorded,
        }
    }

    fn end_events(
        result: &RunResult,
        [stdout, stderr]: [Option<Body>; 2],
        changes: Option<Body>,
    ) -> Vec<Event> {
        let mut events: Vec<Event> = Vec::new();
        if result.reason.is_limit() {
            events.push(RunLimit { limit: result.reason.name().to_owned() }.into());
        }
        if let (Some(files), Some(changes)) = (result.changed_files, changes) {
            events.push(WorkspaceChanged { files, changes }.into());
        }
        let cpu = result.cpu_micros;
        events.push(
            RunEnded {
                reason: result.reason.name().to_owned(),
                exit: result.exit.and_then(|exit| u64::try_from(exit).ok()),
                signal: result.signal.and_then(|signal| u64::try_from(signal).ok()),
                wall_micros: result.wall_micros,
                cpu_micros: cpu.user.saturating_add(cpu.system),
                peak_memory: result.peak_memory_bytes,
                stdin_bytes: result.stdin_bytes,
                stdout,
                stderr,
            }
            .into(),
        );
        events
    }

    /// Records that the program of the run could not be started.
    pub fn failed(&self, error: &anyhow::Error) -> Result<(), RecordError> {
        self.outcome(vec![RunFailed { error: one_line(error) }.into()])
    }

    fn outcome(&self, events: Vec<Event>) -> Result<(), RecordError> {
        let draft = |event: Event| {
            Draft::new(event).of_run(self.run).by(Actor::Supervisor).because_of(&self.created)
        };
        record_outcome(&self.ledger, &events.into_iter().map(draft).collect::<Vec<_>>())
    }
}

/// Records the outcome of an action, and tries again after a failure that may be temporary.
fn record_outcome(ledger: &LedgerHandle, drafts: &[Draft]) -> Result<(), RecordError> {
    let mut attempts = 1;
    loop {
        match ledger.record_all(drafts.to_vec()) {
            Err(error) if attempts < OUTCOME_ATTEMPTS && may_be_temporary(&error) => {
                tracing::warn!(%error, attempts, "outcome is not recorded yet; trying again");
                attempts += 1;
            }
            recorded => return recorded.map(drop),
        }
    }
}

/// The number of times that an outcome is recorded before the failure is reported.
const OUTCOME_ATTEMPTS: u32 = 3;

/// Returns whether the same events may be recorded by another attempt.
const fn may_be_temporary(error: &RecordError) -> bool {
    matches!(error, RecordError::Busy { .. } | RecordError::Io { .. } | RecordError::Broken)
}

/// Records that `belljar exec` is about to start one more program in a running box.
pub fn exec(
    state: &Scoped,
    run: RunId,
    argv: &[Vec<u8>],
    event: impl FnOnce(Body) -> BoxExec,
) -> Result<Receipt, EngineError> {
    let ledger = open(state).kind(ErrorKind::CannotStart)?;
    let command = Body::hash_of(&argv.join(&0)).kind(ErrorKind::CannotStart)?;
    let draft = Draft::new(event(command)).of_run(run);
    let recorded = ledger.record(draft).map_err(with_advice);
    recorded.context("cannot record the program").kind(ErrorKind::CannotStart)
}

/// Proof that the intent to apply changes was recorded before the first change is applied.
#[derive(Debug)]
#[must_use]
pub struct Applying<'a> {
    ledger: &'a LedgerHandle,
    intent: Receipt,
}

impl<'a> Applying<'a> {
    /// Records that changes to this number of files are about to be applied to the workspace.
    pub fn begin(ledger: &'a LedgerHandle, run: RunId, files: u64) -> Result<Self, EngineError> {
        tracing::info!(%run, files, "changes are about to be applied");
        let intent = record_of(ledger, run, WorkspaceApplying::new(files)).map_err(with_advice);
        let intent =
            intent.context("cannot record the changes to apply").kind(ErrorKind::Unrecorded)?;
        Ok(Self { ledger, intent })
    }

    /// Records the numbers of applied files and of files that were held back.
    pub fn done(self, outcome: WorkspaceApplied) -> Result<(), RecordError> {
        let WorkspaceApplied { taken, held_back, error } = &outcome;
        tracing::info!(taken, held_back, failed = error.is_some(), "changes are applied");
        let draft = Draft::new(outcome).of_run(self.intent.run()).because_of(&self.intent);
        record_outcome(self.ledger, &[draft])
    }

    /// Records that applying the changes failed with this error.
    pub fn failed(self, error: &anyhow::Error) -> Result<(), RecordError> {
        self.done(WorkspaceApplied { taken: 0, held_back: 0, error: Some(one_line(error)) })
    }
}

/// Records that the changes of a run were discarded.
pub fn discarded(ledger: &LedgerHandle, run: RunId) -> Result<Receipt, RecordError> {
    tracing::info!(%run, "changes are discarded");
    record_of(ledger, run, WorkspaceDiscarded {})
}

/// Records an event before the action that it announces. No outcome event follows: the files on disk
/// show whether the action happened.
pub fn fact(state: &Scoped, event: impl Into<Event>) -> Result<(), EngineError> {
    let ledger = open(state).kind(ErrorKind::Unrecorded)?;
    let recorded = ledger.record(Draft::new(event)).map(drop).map_err(with_advice);
    recorded.context("cannot record the action, so it was not started").kind(ErrorKind::Unrecorded)
}

/// Records an event of a run. If the run is older than the ledger, the event has no run.
fn record_of(
    ledger: &LedgerHandle,
    run: RunId,
    event: impl Into<Event>,
) -> Result<Receipt, RecordError> {
    let draft = Draft::new(event);
    match ledger.record(draft.clone().of_run(run)) {
        Err(RecordError::NoRun { .. }) => ledger.record(draft),
        recorded => recorded,
    }
}

/// Returns the recorded intents without an outcome, except those of runs that are still running.
pub fn needs_attention(
    state: &Scoped,
    is_running: impl Fn(RunId) -> bool,
) -> Result<Vec<Row>, ReaderError> {
    let reader = match Reader::open_uncounted(&LedgerPaths::under(state.home())) {
        Err(ReaderError::None { .. }) => return Ok(Vec::new()),
        opened => opened?,
    };
    let mut unsettled = reader.unsettled(None)?;
    // An open run of a plan is an intent of the driver, which continues it.
    let layout = state.store().layout();
    let is_open = |run| is_running(run) || layout.plan(run).exists();
    unsettled.retain(|row| row.run.is_none_or(|run| !is_open(run)));
    Ok(unsettled)
}

/// Records that the operator settled all intents of a run that have no outcome.
pub fn settle(
    ledger: &LedgerHandle,
    state: &Scoped,
    run: RunId,
    reason: &str,
) -> anyhow::Result<()> {
    let unsettled = Reader::open(&LedgerPaths::under(state.home()))?.unsettled(Some(run))?;
    let drafts = unsettled.iter().map(|row| {
        let event = AttentionSettled::new(reason.to_owned());
        Draft::new(event).of_run(run).because_of_index(Some(row.index))
    });
    ledger.record_all(drafts.collect())?;
    Ok(())
}

/// Returns the paths in the box at which the program can change files of the host, if there are any.
///
/// The workspace is not one of them: changes of it are applied after the end of the program.
fn writable(template: &Template) -> Option<Vec<String>> {
    let writable = template.mounts.iter().filter(|mount| mount.access() == Access::ReadWrite);
    let targets: Vec<String> = writable.map(|mount| mount.target().display().to_string()).collect();
    (!targets.is_empty()).then_some(targets)
}

fn created(ledger: &LedgerHandle, plan: &RunIntent<'_>) -> anyhow::Result<RunCreated> {
    let RunIntent { record, purpose, caller, template, network, argv, env, .. } = plan;
    let command: Vec<&[u8]> = argv.iter().map(|arg| arg.as_bytes()).collect();
    let command = command.join(&0);
    let policy = policy(template, *network);
    let command = match template.record {
        Record::Bodies => ledger.keep(policy, &mut command.as_slice())?,
        Record::Hashes | Record::None => Body::hash_of(&command)?,
    };
    let workspace = record.workspace.as_ref();
    Ok(RunCreated {
        name: record.name.as_ref().map(|name| name.as_str().to_owned()),
        template: template.name.clone(),
        mode: template.mode.to_string(),
        net: template.net.to_string(),
        policy,
        workspace: workspace.map(|workspace| workspace.path.as_os_str().as_bytes().to_vec()),
        record: template.record.to_string(),
        command,
        environment: env.iter().map(|(name, _)| name.to_string_lossy().into_owned()).collect(),
        limits: limits(template),
        purpose: Some(purpose.to_string()),
        writable: writable(template),
        principal: Some(caller.principal.to_string()),
        tenant: Some(caller.tenant.to_string()),
        session: caller.session.as_ref().map(ToString::to_string),
    })
}

/// Returns the hash of everything that decides what a box is allowed to do. The hash covers the names
/// of environment variables but not their values: it is public, so a short value could be guessed.
pub fn policy(template: &Template, network: Option<Digest>) -> Digest {
    let named = |variable: &EnvVar| EnvVar::new(variable.name(), None).ok();
    let env = template.env.iter().filter_map(named).collect();
    let template = Template { env, ..template.clone() };
    let network = network.map_or_else(Vec::new, |digest| digest.as_bytes().to_vec());
    Digest::of(&[b"belljar policy 2\0", template.to_toml().as_bytes(), b"\0", &network])
}

fn limits(template: &Template) -> Vec<String> {
    let limits = &template.limits;
    vec![
        format!("memory={}", limits.memory),
        format!("cpus={}", limits.cpus),
        format!("pids={}", limits.pids),
        format!("disk={}", limits.disk),
        format!("files={}", limits.files),
        format!("output={}", limits.output),
        format!("timeout={}", Timeout(limits.timeout)),
    ]
}

fn in_force(layers: &[LayerState]) -> RunLayers {
    let mut event = RunLayers { in_force: Vec::new(), missing: Vec::new() };
    for LayerState { layer, state } in layers {
        match state {
            InForce::InForce { detail } if detail.is_empty() => {
                event.in_force.push(layer.to_string());
            }
            InForce::InForce { detail } => event.in_force.push(format!("{layer} ({detail})")),
            InForce::Weakened => event.missing.push(format!("{layer} (weakened)")),
            InForce::StandIn { mechanism } => {
                event.missing.push(format!("{layer} (stand-in: {mechanism})"));
            }
        }
    }
    event
}

/// Returns an error with its causes as one line that is safe to print.
fn one_line(error: &anyhow::Error) -> String {
    display::safe_line(format!("{error:#}")).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn h09_policy_hash_does_not_depend_on_values_of_variables() {
        let with = |env: &[&str]| Template {
            env: env.iter().map(|text| text.parse().unwrap()).collect(),
            ..Template::default()
        };
        let policy = |env: &[&str]| policy(&with(env), None);
        assert_eq!(policy(&["PIN=1234"]), policy(&["PIN=9999"]));
        assert_ne!(
            policy(&["PIN=1234"]),
            policy(&["OTHER=1234"]),
            "the hash covers names of variables"
        );
        let user = Template { user: 0, ..with(&[]) };
        assert_ne!(super::policy(&user, None), policy(&[]), "the hash covers the user id");
        let network = Some(Digest::of(&[b"rules"]));
        assert_ne!(
            super::policy(&with(&[]), network),
            policy(&[]),
            "the hash covers the network policy"
        );
    }

    #[test]
    fn policy_hash_of_the_default_template_is_unchanged() {
        let digest = policy(&Template::default(), None).to_string();
        let expected = "22ed9800ab206d38532627e6dcc9926e469b8649f74880a21b3f7d51fd31a27c";
        assert_eq!(digest, expected);
    }

    #[test]
    fn event_that_cannot_be_recorded_fails_as_unrecorded_and_recommends_ledger_mend() {
        let home = tempfile::tempdir().unwrap();
        let event = || belljar_ledger::TrashEmptied { trash: Vec::new() };
        fact(&crate::scope::of_test(home.path()), event()).expect("control: a valid ledger");
        std::fs::remove_dir_all(home.path().join("anchor")).unwrap();
        let error = fact(&crate::scope::of_test(home.path()), event()).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unrecorded);
        let text = error.to_string();
        assert!(text.contains("belljar ledger mend"), "{text}");
    }
}
