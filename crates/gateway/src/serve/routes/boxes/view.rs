//! The JSON of boxes.

use std::sync::Arc;
use std::time::Duration;

use belljar_engine::box_store::NamedBox;
use belljar_engine::boxes;
use belljar_engine::boxes::index::{BoxSummary, DamagedBox, RunSummary};
use belljar_engine::boxes::snapshot::{self, Snapshot};
use belljar_engine::error::EngineError;
use belljar_engine::scope::Scoped;
use belljar_engine::supervisor::protocol::{Health, Live};
use belljar_engine::supervisor::setup::Setup;
use belljar_model::boxes::BoxWorkspace;
use belljar_model::net::{Allow, Rule};
use belljar_model::{RunResult, Template, display};
use schemars::JsonSchema;
use serde::Serialize;

use crate::serve::routes::account::time;

/// A box in the list of boxes.
#[derive(Serialize, JsonSchema)]
pub(super) struct BoxView {
    name: String,
    /// `running`, `paused`, `changing`, `interrupted`, `stopped`, `new` or `damaged`.
    state: &'static str,
    created: Option<String>,
    /// The principal that created the box.
    maker: Option<String>,
    template: Option<String>,
    agent: Option<String>,
    workspace: Option<WorkspaceView>,
    /// The newest run of the box.
    run: Option<BoxRunView>,
    /// Why the record of a damaged box cannot be read.
    #[serde(skip_serializing_if = "Option::is_none")]
    problem: Option<String>,
}

/// The workspace of a box.
#[derive(Serialize, JsonSchema)]
pub(super) struct WorkspaceView {
    /// `directory` or `clone`.
    kind: &'static str,
    /// The directory or the repository on the host.
    path: String,
    /// The branch that the clone started from.
    #[serde(skip_serializing_if = "Option::is_none")]
    branch: Option<String>,
}

/// A run of a box.
#[derive(Serialize, JsonSchema)]
pub(super) struct BoxRunView {
    id: String,
    started: String,
    program: Vec<String>,
    /// How the program ended; null while it runs.
    end: Option<EndView>,
    /// Whether changes wait for review.
    pending: bool,
}

/// How a program ended.
#[derive(Serialize, JsonSchema)]
pub(super) struct EndView {
    /// The exit status of the program, if it exited.
    pub(super) exit: Option<i32>,
    /// The signal that killed the program.
    pub(super) signal: Option<i32>,
    /// Why the program ended, such as `exit`, `signal`, `timeout` or `memory`.
    pub(super) reason: String,
    /// The duration of the program in milliseconds.
    pub(super) duration: u64,
}

impl EndView {
    pub(super) fn of(result: &RunResult) -> Self {
        Self {
            exit: result.exit,
            signal: result.signal,
            reason: result.reason.name().to_owned(),
            duration: result.wall_micros / 1000,
        }
    }
}

impl BoxRunView {
    fn of(run: &RunSummary) -> Self {
        Self {
            id: run.id.to_string(),
            started: time(run.started),
            program: run.argv.iter().map(|word| display::safe(word).to_string()).collect(),
            end: run.result.as_ref().map(EndView::of),
            pending: run.is_pending,
        }
    }
}

impl WorkspaceView {
    fn of(ground: &BoxWorkspace) -> Option<Self> {
        let (kind, branch) = match ground {
            BoxWorkspace::Nothing => return None,
            BoxWorkspace::Directory { .. } => ("directory", None),
            BoxWorkspace::Repo(at) => ("clone", Some(at.branch.clone())),
        };
        let path = ground.path()?.as_os_str().as_encoded_bytes();
        Some(Self { kind, path: display::safe(path).to_string(), branch })
    }
}

impl BoxView {
    fn of(summary: &BoxSummary) -> Self {
        Self {
            name: summary.name.to_string(),
            state: summary.state.name(),
            created: Some(time(summary.created)),
            maker: Some(summary.maker.to_string()),
            template: Some(summary.template.clone()),
            agent: summary.agent.as_ref().map(ToString::to_string),
            workspace: WorkspaceView::of(&summary.ground),
            run: summary.run.as_ref().map(BoxRunView::of),
            problem: None,
        }
    }
}

/// Returns the JSON of a box in the list.
pub(crate) fn summary_json(summary: &BoxSummary) -> Arc<str> {
    json(&BoxView::of(summary))
}

/// Returns the JSON of a box whose record cannot be read.
pub(crate) fn damaged_json(damaged: &DamagedBox) -> Arc<str> {
    json(&BoxView {
        name: damaged.name.clone(),
        state: "damaged",
        created: None,
        maker: None,
        template: None,
        agent: None,
        workspace: None,
        run: None,
        problem: Some(damaged.why.clone()),
    })
}

fn json(view: &BoxView) -> Arc<str> {
    serde_json::to_string(view).unwrap_or_default().into() // texts and numbers only
}

/// A box with the report of its supervisor and its limits.
#[derive(Serialize, JsonSchema)]
pub(super) struct BoxDetail {
    #[serde(flatten)]
    summary: BoxView,
    /// Whether the program has a terminal.
    terminal: bool,
    /// The state of the running box; null if the box does not run.
    live: Option<LiveView>,
    /// The limits and rules of the next start; null if the box cannot be started.
    rules: Option<RulesView>,
    snapshots: Vec<SnapshotView>,
}

/// The state of a running box.
#[derive(Serialize, JsonSchema)]
struct LiveView {
    since: String,
    last_output: Option<String>,
    /// The number of questions that wait for an answer.
    questions: usize,
    /// Whether the box has no network because its broker has exited.
    network_down: bool,
    /// `starting`, `healthy` or `unhealthy`; null without a health check.
    health: Option<&'static str>,
}

impl LiveView {
    fn of(live: &Live) -> Self {
        Self {
            since: time(live.since),
            last_output: live.last_output.map(time),
            questions: live.questions,
            network_down: live.dark,
            health: live.health.map(Health::name),
        }
    }
}

/// The limits and the network rules of a box.
#[derive(Serialize, JsonSchema)]
struct RulesView {
    /// `overlay`, `direct` or `read-only`.
    mode: &'static str,
    /// `none`, `restricted` or `full`.
    net: &'static str,
    allow: Vec<String>,
    deny: Vec<String>,
    ask: Vec<String>,
    secrets: Vec<String>,
    /// In bytes.
    memory: u64,
    cpus: String,
    pids: u32,
    /// In bytes.
    disk: u64,
    /// In milliseconds; null without a limit.
    timeout: Option<u64>,
}

impl RulesView {
    fn of(template: &Template) -> Self {
        let rules = |rules: &[Rule]| rules.iter().map(|rule| rule.what.to_string()).collect();
        let millis = |time: Duration| u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
        let limits = &template.limits;
        Self {
            mode: template.mode.name(),
            net: template.net.name(),
            allow: template.allow.iter().map(allow_text).collect(),
            deny: rules(&template.deny),
            ask: rules(&template.ask),
            secrets: template.secrets.iter().map(ToString::to_string).collect(),
            memory: limits.memory.as_u64(),
            cpus: limits.cpus.to_string(),
            pids: limits.pids,
            disk: limits.disk.as_u64(),
            timeout: limits.timeout.map(millis),
        }
    }
}

fn allow_text(allow: &Allow) -> String {
    match allow {
        Allow::Preset(name) => name.to_string(),
        Allow::Rule(rule) => rule.what.to_string(),
    }
}

/// A snapshot of a box.
#[derive(Serialize, JsonSchema)]
struct SnapshotView {
    tag: String,
    created: String,
}

impl BoxDetail {
    pub(super) fn name(&self) -> &str {
        &self.summary.name
    }

    /// Reads the state of a box. Blocks.
    pub(super) fn read(state: &Scoped, named_box: &NamedBox) -> Result<Self, EngineError> {
        let status = boxes::status(state, named_box);
        let summary = BoxSummary { state: status.state, ..boxes::index::summary(named_box) };
        let snapshots = snapshot::all(state, named_box)?;
        let snapshot_view =
            |it: Snapshot| SnapshotView { tag: it.tag.to_string(), created: time(it.when) };
        Ok(Self {
            summary: BoxView::of(&summary),
            terminal: named_box.record.spec.terminal,
            live: status.live.as_ref().map(LiveView::of),
            rules: Setup::of(named_box, state).ok().map(|setup| RulesView::of(&setup.template)),
            snapshots: snapshots.into_iter().map(snapshot_view).collect(),
        })
    }
}
