//! Runs one program in a new box (`belljar run`).

use std::ffi::OsString;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::time::Instant;

use belljar_box::{BoxEnd, LayerImage, LayerSync, Mask, Workspace};
use belljar_model::permission::Permissions;
use belljar_model::spec::{BoxSpec, RunSpec, WorkspaceSpec};
use belljar_model::{Config, Limits, Mode, Overrides, Purpose, Review, RunId, RunResult, Template};

use crate::agents::{self, OutfitRequest};
use crate::changes;
use crate::config::{self, Source};
use crate::error::{EngineError, ErrorKind, WithKind as _, invalid};
use crate::launch::{self, DiskLimit, LaunchSpec, Launched, Streams, Terminal};
use crate::layer_image;
use crate::network::{self, NetworkConfig};
use crate::notice::Notice;
use crate::policy;
use crate::record::LedgerHandle;
use crate::scope::Scoped;
use crate::store::Run;

/// Options of a run that are not part of its spec.
#[derive(Clone, Debug)]
pub struct RunOptions {
    /// The directory that relative paths in templates are resolved against.
    pub current_dir: PathBuf,
}

/// A run whose box is built and recorded. Its program is not started yet.
#[derive(Debug)]
pub struct StartedRun {
    run: Run,
    launched: Launched,
    /// The operator's configuration file, which is read again before changes are applied.
    config_file: Option<PathBuf>,
    /// Whether the workspace is an overlay.
    has_layers: bool,
    /// The image with the layers, if the kernel enforces the disk limit.
    image: Option<LayerImage>,
    /// The lock of the run, held until the run ends.
    _lock: File,
}

/// The result of a run that ended.
#[derive(Debug)]
pub struct RunEnd {
    pub result: RunResult,
    /// Whether the last byte of standard output was a line break.
    pub ended_in_newline: bool,
    /// Whether the end of the run is recorded in the ledger; an error of the kind
    /// [`ErrorKind::Unrecorded`] if not.
    pub recorded: Result<(), EngineError>,
    /// The error because of which output of the program was lost, such as a full disk.
    pub lost_output: Option<std::io::Error>,
}

/// The settings of one run, from the configuration and the spec.
struct RunSettings {
    template: Template,
    sources: Vec<Source>,
    network: Option<NetworkConfig>,
    masks: Vec<Mask>,
}

/// Builds the box of a run and records the run in the ledger. The program is not started yet.
pub fn start(
    state: &Scoped,
    spec: &RunSpec,
    options: &RunOptions,
) -> Result<StartedRun, EngineError> {
    start_as(state, state.new_id()?, spec, options)
}

/// Builds the box of a run as [`start`] does. The id is one of [`Scoped::new_id`], which is used once.
pub fn start_as(
    state: &Scoped,
    id: (RunId, u32),
    spec: &RunSpec,
    options: &RunOptions,
) -> Result<StartedRun, EngineError> {
    let start = Instant::now();
    let mut workspace = workspace(state, &spec.on.workspace)?;
    let path = workspace.as_ref().map(|workspace| workspace.path.clone());
    let RunSettings { template, sources, network, masks } =
        settings(state, spec, options, path.as_deref())?;
    for layer in &template.weaken {
        state.notice(&Notice::LayerWeakened(*layer));
    }
    let overlay = template.mode != Mode::ReadOnly;
    let argv: Vec<OsString> = spec.program.words().to_vec();
    let mut launch = LaunchSpec::new(id, Purpose::Run, template, argv);
    launch.start = start;
    launch.name = spec.name.clone();
    launch.sources = sources;
    launch.at = workspace.as_ref().map(launch::workspace_at).transpose().kind(ErrorKind::Broken)?;
    launch.terminal = spec.terminal.map(|size| Terminal {
        rows: size.rows,
        columns: size.columns,
        term: state.host().variable("TERM").unwrap_or("xterm".as_ref()).to_owned(),
    });
    let created = state.store().create(launch.record());
    let (mut run, lock) = created.kind(ErrorKind::CannotStart)?;
    let mut image = None;
    if let Some(workspace) = workspace.as_mut().filter(|_| overlay) {
        let prepared = layers(&run, workspace, &launch.template.limits);
        let prepared = prepared.kind(ErrorKind::CannotStart);
        image = prepared.inspect_err(|_| launch::finish_run(&mut run, None, state))?;
        launch.disk = Some(match image {
            Some(_) => DiskLimit::of_image(run.dir.clone()),
            None => DiskLimit::of_layers(run.dir.clone()),
        });
    }
    launch.output_dir = Some(run.dir.clone());
    let has_layers = workspace.as_ref().is_some_and(|workspace| workspace.layers.is_some());
    (launch.workspace, launch.masks, launch.network) = (workspace, masks, network);
    match launch::launch(state, launch) {
        Ok(launched) => {
            let config_file = spec.on.config_file.as_deref().or(state.config_file());
            let config_file = config_file.map(Path::to_owned);
            Ok(StartedRun { run, launched, config_file, has_layers, image, _lock: lock })
        }
        Err(failure) => {
            launch::finish_run(&mut run, None, state);
            Err(failure)
        }
    }
}

impl StartedRun {
    /// Returns the directory of the run.
    pub fn dir(&self) -> &Path {
        &self.run.dir
    }

    /// Removes the box without starting the program, and records the error.
    pub fn abandon(mut self, state: &Scoped, error: &EngineError) {
        self.launched.abandon(error);
        launch::finish_run(&mut self.run, None, state);
    }

    /// Starts the program and waits until it ends. Calls `ended` as soon as the program has ended.
    pub fn supervise(
        self,
        state: &Scoped,
        streams: Streams<'_>,
        ended: impl FnOnce(),
    ) -> Result<RunEnd, EngineError> {
        self.supervise_then(state, streams, ended, |_, _| ())
    }

    /// Starts the program and waits until it ends, as [`Self::supervise`] does. Calls `stored` when the result
    /// is stored, before the box is removed. The second argument of `stored` is [`RunEnd::recorded`].
    pub fn supervise_then(
        self,
        state: &Scoped,
        streams: Streams<'_>,
        ended: impl FnOnce(),
        stored: impl FnOnce(&RunResult, Result<(), &EngineError>),
    ) -> Result<RunEnd, EngineError> {
        let Self { mut run, launched, config_file, has_layers, image, _lock } = self;
        let template = launched.template().clone();
        let disk = template.limits.disk.as_u64();
        if let Some(at) = &mut run.record.workspace {
            // The program starts now, so files that changed until now are the files it works with.
            at.clock = launched.file_clock();
        }
        let mut ended = match launched.supervise(state, streams, ended) {
            Ok(ended) => ended,
            Err(failure) => {
                // The program can have worked until the supervision failed.
                if has_layers {
                    export(&mut run, image, state);
                    changes::count_changes(&mut run, state, disk);
                }
                launch::finish_run(&mut run, None, state);
                return Err(failure);
            }
        };
        let changed = has_layers.then(|| {
            export(&mut run, image, state);
            changes::count_changes(&mut run, state, disk)
        });
        if let Some(error) = &ended.finished.exec_error {
            let sentence = ended.finished.reason.sentence();
            state.notice(&Notice::Failed(format!("{sentence}: {error}")));
        }
        let result = ended.result(changed);
        let sealed = changed.filter(|changed| *changed > 0);
        let recorded = ended.record(&result, sealed.and_then(|_| changes::sealed_changes(&run)));
        if template.mode == Mode::Direct && run.record.review.is_pending() {
            apply_directly(state, &mut run, ended.recorder.ledger(), config_file.as_deref());
        }
        launch::finish_run(&mut run, Some(result.clone()), state);
        stored(&result, recorded.as_ref().copied());
        drop(ended.teardown);
        ended.network_summary.iter().for_each(|summary| network::report(state, summary));
        let BoxEnd { ended_in_newline, lost_output, .. } = ended.finished;
        Ok(RunEnd { result, ended_in_newline, recorded, lost_output })
    }
}

/// Applies the changes of a run whose template permits that without a review.
fn apply_directly(
    state: &Scoped,
    run: &mut Run,
    ledger: &LedgerHandle,
    config_file: Option<&Path>,
) {
    match permissions(state, run, config_file) {
        Ok(permissions) => changes::apply_in_direct_mode(run, state, ledger, &permissions),
        Err(error) => state.notice(&Notice::Failed(format!(
            "no changes were applied; try again with `belljar apply`: {error:#}"
        ))),
    }
}

/// Gives the workspace of a run its layers, in an image if the run gets one.
fn layers(
    run: &Run,
    workspace: &mut Workspace,
    limits: &Limits,
) -> anyhow::Result<Option<LayerImage>> {
    let image = layer_image::create(&run.dir, workspace, limits)?;
    if image.is_none() {
        launch::prepare_layers(run, workspace, LayerSync::Skipped)?;
    }
    Ok(image)
}

/// Copies the changes of a run out of its image, if it has one. If that fails, they stay in the image and
/// wait for review.
fn export(run: &mut Run, image: Option<LayerImage>, state: &Scoped) {
    let exported = image.map_or(Ok(()), |image| layer_image::export(image, &run.dir));
    if let Err(error) = exported {
        run.record.review = Review::Pending;
        state.notice(&Notice::ChangesUnreadable(format!("{error:#}")));
    }
}

/// Reads the current permissions, which may have changed since the start of the run (threat C01).
fn permissions(
    state: &Scoped,
    run: &Run,
    config_file: Option<&Path>,
) -> Result<Permissions, EngineError> {
    let workspace = run.record.workspace.as_ref().map(|at| at.path.as_path());
    let (config, _) = state.load_config_from(config_file, workspace)?;
    Ok(config.permissions(&run.record.template))
}

/// Opens the workspace that a spec names.
fn workspace(state: &Scoped, spec: &WorkspaceSpec) -> Result<Option<Workspace>, EngineError> {
    match spec {
        WorkspaceSpec::None => Ok(None),
        WorkspaceSpec::Directory(path) => policy::open_workspace(state, path).map(Some),
        WorkspaceSpec::Clone { .. } => Err(invalid(
            "`on.workspace`: a run cannot use a clone; create a box with `belljar up --repo`",
        )),
    }
}

/// Loads the configuration and combines the template of the spec with the overrides of the spec.
fn settings(
    state: &Scoped,
    spec: &RunSpec,
    options: &RunOptions,
    workspace: Option<&Path>,
) -> Result<RunSettings, EngineError> {
    let resolved = resolve(state, &spec.on, workspace, &options.current_dir)?;
    let Resolved { mut template, config, sources, masks } = resolved;
    let has_timeout = spec.on.overrides.timeout.is_some();
    if spec.terminal.is_some() && !has_timeout && template.limits == Template::default().limits {
        template.limits.timeout = None; // a person at a terminal may need longer than ten minutes
    }
    let network = NetworkConfig::of(&template, &config, state)?;
    Ok(RunSettings { template, sources, network, masks })
}

/// The template of a box with the configuration that it was resolved with.
pub(crate) struct Resolved {
    pub(crate) template: Template,
    pub(crate) config: Config,
    pub(crate) sources: Vec<Source>,
    pub(crate) masks: Vec<Mask>,
}

/// Loads the configuration and combines the template that `on` names with its overrides.
pub(crate) fn resolve(
    state: &Scoped,
    on: &BoxSpec,
    workspace: Option<&Path>,
    current_dir: &Path,
) -> Result<Resolved, EngineError> {
    let file = on.config_file.as_deref().or(state.config_file());
    let (config, sources) = state.load_config_from(file, workspace)?;
    let named = config::template(&config, &on.template)?;
    let overrides = on.overrides.clone();
    complete(state, (config, sources), (named, &on.template, overrides), workspace, current_dir)
}

/// Loads the configuration for a template that was fixed earlier.
pub(crate) fn resolve_fixed(
    state: &Scoped,
    template: &Template,
    workspace: Option<&Path>,
    current_dir: &Path,
) -> Result<Resolved, EngineError> {
    let loaded = state.load_config(workspace)?;
    let fixed = (template.clone(), template.name.as_str(), Overrides::default());
    complete(state, loaded, fixed, workspace, current_dir)
}

fn complete(
    state: &Scoped,
    (config, sources): (Config, Vec<Source>),
    (named, name, overrides): (Template, &str, Overrides),
    workspace: Option<&Path>,
    current_dir: &Path,
) -> Result<Resolved, EngineError> {
    let permissions = config.permissions(name);
    let outfit = agents::outfit(&OutfitRequest {
        agent: None,
        permissions: &permissions,
        state,
        workspace,
        has_host_programs: true,
        runs_agent: false,
        found: None,
    })?;
    // Only the denied hosts of the outfit apply here. Its other permissions are for agents in named boxes.
    let deny = Overrides { deny: outfit.overrides.deny, ..Overrides::default() };
    let template = named.with(deny).and_then(|it| it.with(overrides)).kind(ErrorKind::Invalid)?;
    let mut template = template.anchored(current_dir, state.host().user_home().as_deref());
    state.clamp(&mut template.limits)?;
    policy::refuse_own_program(state.host(), &template, workspace)?;
    Ok(Resolved { template, config, sources, masks: outfit.masks })
}
