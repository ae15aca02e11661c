//! What commands put on record, and the rule that nothing is done before it is there.
//!
//! A run is recorded as an intent before its program starts, and as an outcome when it is over. Taking
//! changes over is, too. Whatever fails on the way to the ledger stops what it was about.

pub mod json;
pub mod line;
pub mod otel;
pub mod otlp;
pub mod reading;
pub mod runs;
pub mod sentences;

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
    Caller, EnvVar, InForce, LayerState, Purpose, Record, RunId, RunRecord, RunResult, Template,
    Timeout, display,
};

use crate::config::Source;
use crate::error::{EngineError, ErrorKind, WithKind as _};
use crate::scope::Scoped;
use crate::store::durable;
pub use crate::store::ledger::LedgerHandle;

/// The record of one run, as long as it lasts.
#[derive(Debug)]
pub struct RunRecorder {
    ledger: LedgerHandle,
    run: RunId,
    created: Receipt,
}

/// What is known about a run before its program starts.
#[derive(Debug)]
pub struct RunIntent<'a> {
    pub record: &'a RunRecord,
    pub purpose: Purpose,
    pub caller: &'a Caller,
    pub template: &'a Template,
    /// The hash of what its network may, with its secrets' declarations; see [`policy`].
    pub network: Option<Digest>,
    pub sources: &'a [Source],
    pub argv: &'a [OsString],
    pub env: &'a [(OsString, OsString)],
    /// What is open beside what the template weakens: restrictions that the operator lifted.
    pub remarks: &'a [String],
}

/// Opens the ledger of the state directory, or finds it open, and says what had to be put right.
pub fn open(state: &Scoped) -> anyhow::Result<LedgerHandle> {
    LedgerHandle::open(state.store().ledger(), state.observer()).map_err(|error| {
        let advice = advice(&error);
        let advice = advice.unwrap_or("open the ledger; nothing is done without it");
        anyhow::Error::new(error).context(advice)
    })
}

/// What helps when the ledger has no room.
const DISK_IS_FULL: &str =
    "the disk of the ledger is full: make room on it; nothing is done that cannot be recorded";

/// Adds what to do to the reason why something is not on record.
fn explained(error: RecordError) -> anyhow::Error {
    let is_full = durable::is_disk_full(&error);
    let error = anyhow::Error::new(error);
    if is_full { error.context(DISK_IS_FULL) } else { error }
}

/// What helps against a ledger that must not be written to.
fn advice(error: &OpenError) -> Option<&'static str> {
    if durable::is_disk_full(error) {
        return Some(DISK_IS_FULL);
    }
    match error {
        OpenError::NoAnchor { .. }
        | OpenError::Gone { .. }
        | OpenError::Foreign { .. }
        | OpenError::CutShort { .. }
        | OpenError::Damaged(_)
        | OpenError::Anchor(_) => Some(
            "the ledger is not as it was left, so nothing is recorded and nothing is done; `belljar ledger verify` says more, and `belljar ledger mend` goes on knowingly",
        ),
        OpenError::File { .. } | OpenError::Rotation(_) | OpenError::Record(_) => None,
    }
}

impl RunRecorder {
    /// Records the intent to run. The program may start once this returned.
    pub fn begin(
        state: &Scoped,
        plan: &RunIntent<'_>,
        layers: &[LayerState],
    ) -> Result<Self, EngineError> {
        Self::begin_in(open(state).kind(ErrorKind::CannotStart)?, plan, layers)
    }

    /// The same in a ledger that is open already.
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
        let program = plan.argv.first().map(|word| word.as_bytes().to_vec()).unwrap_or_default();
        drafts.push(Draft::new(RunExec { program }).by(Actor::Supervisor));
        let drafts = drafts.into_iter().map(|draft| draft.of_run(run)).collect();
        let receipts = ledger.record_all(drafts).map_err(explained);
        let receipts = receipts.context("record the run").kind(ErrorKind::CannotStart)?;
        let created =
            receipts.into_iter().next().ok_or(RecordError::Broken).kind(ErrorKind::CannotStart)?;
        Ok(Self { ledger, run, created })
    }

    pub const fn ledger(&self) -> &LedgerHandle {
        &self.ledger
    }

    /// Records how the run ended.
    pub fn ended(
        &self,
        result: &RunResult,
        [stdout, stderr]: [Option<Body>; 2],
        changes: Option<Body>,
    ) -> Result<(), RecordError> {
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
        self.outcome(events)
    }

    /// Records that the program was never started.
    pub fn failed(&self, error: &anyhow::Error) -> Result<(), RecordError> {
        self.outcome(vec![RunFailed { error: said(error) }.into()])
    }

    fn outcome(&self, events: Vec<Event>) -> Result<(), RecordError> {
        let draft = |event: Event| {
            Draft::new(event).of_run(self.run).by(Actor::Supervisor).because_of(&self.created)
        };
        self.ledger.record_all(events.into_iter().map(draft).collect()).map(drop)
    }
}

/// Records that one more program is about to start in a box that runs.
pub fn exec(
    state: &Scoped,
    run: RunId,
    argv: &[Vec<u8>],
    event: impl FnOnce(Body) -> BoxExec,
) -> Result<Receipt, EngineError> {
    let ledger = open(state).kind(ErrorKind::CannotStart)?;
    let command = Body::hash_of(&argv.join(&0)).kind(ErrorKind::CannotStart)?;
    let draft = Draft::new(event(command)).of_run(run);
    let recorded = ledger.record(draft).map_err(explained);
    recorded.context("record the program").kind(ErrorKind::CannotStart)
}

/// Proof that taking over changes was recorded before it was done.
#[derive(Debug)]
#[must_use]
pub struct Applying<'a> {
    ledger: &'a LedgerHandle,
    intent: Receipt,
}

impl<'a> Applying<'a> {
    pub fn begin(ledger: &'a LedgerHandle, run: RunId, files: u64) -> Result<Self, EngineError> {
        tracing::info!(%run, files, "changes are about to be applied");
        let intent = record_of(ledger, run, WorkspaceApplying { files }).map_err(explained);
        let intent =
            intent.context("record what is about to be applied").kind(ErrorKind::Unrecorded)?;
        Ok(Self { ledger, intent })
    }

    /// Records what came of it.
    pub fn done(self, outcome: WorkspaceApplied) -> Result<(), RecordError> {
        let WorkspaceApplied { taken, held_back, error } = &outcome;
        tracing::info!(taken, held_back, failed = error.is_some(), "changes are applied");
        let draft = Draft::new(outcome).of_run(self.intent.run()).because_of(&self.intent);
        self.ledger.record(draft).map(drop)
    }

    /// Records that it broke off.
    pub fn failed(self, error: &anyhow::Error) -> Result<(), RecordError> {
        self.done(WorkspaceApplied { taken: 0, held_back: 0, error: Some(said(error)) })
    }
}

pub fn discarded(ledger: &LedgerHandle, run: RunId) -> Result<Receipt, RecordError> {
    tracing::info!(%run, "changes are discarded");
    record_of(ledger, run, WorkspaceDiscarded {})
}

/// Records something that is about to be done, and that what is on disk then tells whether it was.
pub fn fact(state: &Scoped, event: impl Into<Event>) -> Result<(), EngineError> {
    let ledger = open(state).kind(ErrorKind::Unrecorded)?;
    let recorded = ledger.record(Draft::new(event)).map(drop).map_err(explained);
    recorded.context("put on record what is about to be done").kind(ErrorKind::Unrecorded)
}

/// Records an event of a run; of one that is older than the ledger, as the ledger's own.
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

/// What nobody knows the outcome of: intents of runs that are not running any more.
pub fn needs_attention(
    state: &Scoped,
    is_running: impl Fn(RunId) -> bool,
) -> Result<Vec<Row>, ReaderError> {
    let reader = match Reader::open(&LedgerPaths::under(state.home())) {
        Err(ReaderError::None { .. }) => return Ok(Vec::new()),
        opened => opened?,
    };
    let mut open = reader.unsettled(None)?;
    open.retain(|row| row.run.is_none_or(|run| !is_running(run)));
    Ok(open)
}

/// Records that the operator dealt with a run, whatever was unknown about it.
pub fn settle(
    ledger: &LedgerHandle,
    state: &Scoped,
    run: RunId,
    reason: &str,
) -> anyhow::Result<()> {
    let open = Reader::open(&LedgerPaths::under(state.home()))?.unsettled(Some(run))?;
    let drafts = open.iter().map(|row| {
        let event = AttentionSettled { reason: reason.to_owned() };
        Draft::new(event).of_run(run).because_of_index(Some(row.index))
    });
    ledger.record_all(drafts.collect())?;
    Ok(())
}

fn created(ledger: &LedgerHandle, plan: &RunIntent<'_>) -> anyhow::Result<RunCreated> {
    let RunIntent { record, purpose, caller, template, network, argv, env, .. } = plan;
    let command: Vec<&[u8]> = argv.iter().map(|word| word.as_bytes()).collect();
    let command = command.join(&0);
    let policy = policy(template, *network);
    let command = match template.record {
        Record::Bodies => ledger.keep(policy, &mut command.as_slice())?,
        Record::Hashes | Record::None => Body::hash_of(&command)?,
    };
    let at = record.workspace.as_ref();
    Ok(RunCreated {
        name: record.name.as_ref().map(|name| name.as_str().to_owned()),
        template: template.name.clone(),
        mode: template.mode.to_string(),
        net: template.net.to_string(),
        policy,
        workspace: at.map(|at| at.path.as_os_str().as_bytes().to_vec()),
        record: template.record.to_string(),
        command,
        environment: env.iter().map(|(name, _)| name.to_string_lossy().into_owned()).collect(),
        limits: limits(template),
        purpose: Some(purpose.to_string()),
        principal: Some(caller.principal.to_string()),
        tenant: Some(caller.tenant.to_string()),
        session: caller.session.as_ref().map(ToString::to_string),
    })
}

/// The hash of everything that decides what the box may do. Of variables only the names are part of it:
/// a hash that anybody may see would let them guess a short value.
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

/// An error with its causes, safe to print.
fn said(error: &anyhow::Error) -> String {
    display::safe_line(format!("{error:#}")).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn h09_a_policy_tells_nothing_of_the_values_of_variables() {
        let with = |env: &[&str]| Template {
            env: env.iter().map(|text| text.parse().unwrap()).collect(),
            ..Template::default()
        };
        let policy = |env: &[&str]| policy(&with(env), None);
        assert_eq!(policy(&["PIN=1234"]), policy(&["PIN=9999"]));
        assert_ne!(policy(&["PIN=1234"]), policy(&["OTHER=1234"]), "the names count");
        let user = Template { user: 0, ..with(&[]) };
        assert_ne!(super::policy(&user, None), policy(&[]), "and so does all else");
        let network = Some(Digest::of(&[b"rules"]));
        assert_ne!(super::policy(&with(&[]), network), policy(&[]), "and the network");
    }

    #[test]
    fn policy_digest_of_the_default_template_is_unchanged() {
        let digest = policy(&Template::default(), None).to_string();
        let expected = "22ed9800ab206d38532627e6dcc9926e469b8649f74880a21b3f7d51fd31a27c";
        assert_eq!(digest, expected);
    }

    #[test]
    fn act_that_cannot_be_recorded_has_its_own_kind_and_says_what_to_do() {
        let home = tempfile::tempdir().unwrap();
        let event = || belljar_ledger::TrashEmptied { trash: Vec::new() };
        fact(&crate::scope::of_test(home.path()), event()).expect("control: a sound ledger");
        std::fs::remove_dir_all(home.path().join("anchor")).unwrap();
        let error = fact(&crate::scope::of_test(home.path()), event()).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unrecorded);
        let text = error.to_string();
        assert!(text.contains("belljar ledger mend"), "{text}");
    }
}
