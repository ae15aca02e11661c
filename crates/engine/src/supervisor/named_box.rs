//! The supervisor of a named box. It takes the lock of the box, starts the box, serves clients until the
//! program of the box ends, and records the end.

use std::fs::File;
use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::Arc;

use anyhow::{Context as _, anyhow};
use belljar_box::{HomeMount, LayerSync, OverlayLayers, Stream, Workspace};
use belljar_model::boxes::{BoxName, BoxWorkspace};
use belljar_model::{Mode, Purpose, Reason, Review, RunState, WorkspaceAt};
use belljar_workspace::{Layers, RunPaths, SealLimits};
use rustix::fs::{Mode as FileMode, OFlags};
use tracing::Span;

use super::connection::send;
use super::live_rules::LiveRules;
use super::output_log::{BOX_LOG_SIZE, OutputLog};
use super::protocol::FromSupervisor;
use super::session::{BoxSession, Inputs};
use super::setup::{self, Setup};
use super::{build, health, listener, pauses};
use crate::approvals::requests::BoxRequests;
use crate::box_store::NamedBox;
use crate::changes;
use crate::error::{EngineError, ErrorKind, WithKind as _, invalid};
use crate::launch::{self, DiskLimit, LaunchSpec, Launched, Streams, Terminal, workspace_at};
use crate::logging;
use crate::network::{self, BrokerHandle};
use crate::notice::Notice;
use crate::scope::Scoped;
use crate::store::lock;
use crate::store::{Run, is_empty};

/// Starts a named box, reports the start to the client, and supervises the box until its program ends.
pub(super) fn supervise(
    state: &Scoped,
    connection: &UnixStream,
    name: &BoxName,
) -> Result<(), EngineError> {
    let of = NamedBox::find(state, name)?;
    Span::current().record("box", of.name().as_str());
    let lock = lock(&of)?;
    build::write(&of.dir).kind(ErrorKind::CannotStart)?;
    // A supervisor that was killed leaves the file.
    pauses::remove_file(&of.dir)
        .context("cannot remove a file of the box's last run")
        .kind(ErrorKind::CannotStart)?;
    let started = StartedBox::start(state, &of)?;
    let _entered = started.launched.span().entered();
    tracing::info!("box is up");
    let ready = FromSupervisor::Ready { run: started.launched.id(), remarks: Vec::new() };
    send(connection, &ready).ok(); // the box is up even if the client has exited
    connection.shutdown(std::net::Shutdown::Both).ok(); // the client reads no further message
    started.watch(state, &of);
    tracing::info!("box is down");
    drop(lock);
    Ok(())
}

/// Takes the lock of a named box. The supervisor holds the lock until it exits.
fn lock(of: &NamedBox) -> Result<File, EngineError> {
    let file = File::create(of.dir.join("lock")).context("cannot open the lock file of the box");
    let file = file.kind(ErrorKind::CannotStart)?;
    if lock::try_acquire(&file, lock::PROBE_TIMEOUT) {
        Ok(file)
    } else {
        Err(invalid("the box is already running"))
    }
}

/// A named box that is built and recorded, and whose program has not started yet.
struct StartedBox {
    run: Run,
    launched: Launched,
    has_layers: bool,
    session: Arc<BoxSession>,
    /// The reading end of the pipe for the program's input.
    input: OwnedFd,
    /// The reading end of a pipe. A byte in this pipe kills the box.
    stop: OwnedFd,
    /// `/dev/null`, as the output of the box: the output filter takes all bytes.
    null: OwnedFd,
}

impl StartedBox {
    /// Builds a named box, records the run, and starts the threads that serve its clients.
    fn start(state: &Scoped, of: &NamedBox) -> Result<Self, EngineError> {
        let Setup {
            template, base, config, sources, network_config, argv, tty, files, masks, ..
        } = Setup::of(of, state)?;
        for layer in &template.weaken {
            state.notice(&Notice::LayerWeakened(*layer));
        }
        let (mut workspace, at) = workspace(of, state)?;
        let mut spec = LaunchSpec::new(state.new_id()?, Purpose::Box, template, argv);
        spec.name = Some(of.name().clone());
        spec.at = at;
        let mut run = Run { dir: of.dir.clone(), record: spec.record() };
        let is_scratch = workspace.as_ref().is_some_and(|it| it.scratch);
        let overlay = spec.template.mode != Mode::ReadOnly && !is_scratch;
        if let Some(workspace) = workspace.as_mut().filter(|_| overlay) {
            layers(&run, workspace).kind(ErrorKind::CannotStart)?;
        }
        let has_layers = workspace.as_ref().is_some_and(|it| it.layers.is_some());
        let terminal = || Terminal { rows: 24, columns: 80, term: "xterm-256color".into() };
        spec.terminal = tty.then(terminal);
        spec.home = Some(home(of)?);
        (spec.sources, spec.workspace, spec.files) = (sources, workspace, files);
        (spec.masks, spec.network, spec.exec_channel) = (masks, Some(network_config), true);
        spec.output_dir = Some(of.dir.clone());
        let dirs = ["upper", "home", "repo"].map(|name| of.dir.join(name));
        let measured = Some(dirs.into_iter().filter(|dir| dir.is_dir()).collect());
        spec.disk = Some(DiskLimit { dir: of.dir.clone(), measured });
        let log = OutputLog::open(of.dir.join("output.log"), BOX_LOG_SIZE)
            .context("cannot open the output log of the box");
        let log = log.kind(ErrorKind::CannotStart)?;
        let pipe = || rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC);
        let ((input, keys), (stop, halt)) = pipe()
            .and_then(|input| Ok((input, pipe()?)))
            .context("cannot create the pipes of the box")
            .kind(ErrorKind::CannotStart)?;
        // A program that does not read its input must not block the clients that type.
        rustix::io::ioctl_fionbio(&keys, true)
            .context("cannot create the pipes of the box")
            .kind(ErrorKind::CannotStart)?;
        let socket = listener::bind(&of.dir).context("cannot create the socket of the box");
        let socket = socket.kind(ErrorKind::CannotStart)?;
        let null = rustix::fs::open("/dev/null", OFlags::RDWR | OFlags::CLOEXEC, FileMode::empty());
        let null = null.context("cannot open /dev/null").kind(ErrorKind::CannotStart)?;
        // A start that fails before this point does not change the record of the last run.
        let mut is_saved = false;
        let start = spec.start;
        let launched = launch::launch_after(state, spec, || {
            if let Some(at) = &mut run.record.workspace {
                at.clock = belljar_workspace::file_clock_after(start);
            }
            run.save().kind(ErrorKind::CannotStart)?;
            is_saved = true;
            Ok(())
        });
        if launched.is_err() && is_saved {
            mark_finished(state, &mut run);
        }
        let mut launched = launched?;
        let _entered = launched.span().entered();
        let exec_channel = launched.take_exec_channel();
        let terminal = launched.terminal();
        let outside = launched.broker().map(|outside| {
            let requests = BoxRequests::new(state, of.name().clone());
            BrokerHandle::control(outside, requests)
        });
        let control = outside.ok_or_else(|| invalid("the box was started without a broker"))?;
        let home = state.engine_home().to_owned();
        let rules = LiveRules::new(control, base, config, home);
        let inputs = Inputs { keys: keys.into(), halt, exec_channel, terminal };
        let session = BoxSession::new(state.clone(), of.name(), launched.id(), log, inputs, rules);
        let session = Arc::new(session);
        session.start_screen();
        let served = Arc::clone(&session);
        logging::spawn(move || listener::serve(&socket, &served));
        if let Some(command) = launched.template().health.clone() {
            let checked = Arc::clone(&session);
            logging::spawn(move || health::check_repeatedly(&command, &checked));
        }
        Ok(Self { run, launched, has_layers, session, input, stop, null })
    }

    /// Starts the program of the box, waits until it ends, and records the end.
    fn watch(self, state: &Scoped, of: &NamedBox) {
        let Self { mut run, launched, has_layers, session, input, stop, null } = self;
        let template = launched.template().clone();
        let mut filter = |_: Stream, chunk: &[u8], _: &mut Vec<u8>| session.output(chunk);
        let streams = Streams {
            input: input.as_fd(),
            output: null.as_fd(),
            error: null.as_fd(),
            filter: &mut filter,
            stop: Some(stop.as_fd()),
        };
        let mut ended = match launched.supervise(state, streams, || session.close()) {
            Ok(ended) => ended,
            Err(error) => {
                state.failed(error.inner());
                return mark_finished(state, &mut run);
            }
        };
        let disk = template.limits.disk.as_u64();
        let changed = has_layers.then(|| changes::count_changes(&mut run, state, disk));
        if let Some(error) = &ended.finished.exec_error {
            let sentence = ended.finished.reason.sentence();
            state.notice(&Notice::Failed(format!("{sentence}: {error}")));
        }
        let mut result = ended.result(changed);
        // The signals of `belljar stop` have no other reason than the command.
        if session.is_stopping() && result.reason == Reason::Signaled {
            result.reason = Reason::Interrupted;
        }
        let sealed = changed.filter(|changed| *changed > 0);
        ended.record_or_notice(state, &result, sealed.and_then(|_| changes::sealed_changes(&run)));
        if template.mode == Mode::Direct && run.record.review.is_pending() {
            match setup::permissions(state, of) {
                Ok(permissions) => {
                    changes::apply_in_direct_mode(
                        &mut run,
                        state,
                        ended.recorder.ledger(),
                        &permissions,
                    );
                }
                Err(error) => state.failed(error.inner()),
            }
        }
        launch::finish_run(&mut run, Some(result), state);
        drop(ended.teardown);
        ended.network_summary.iter().for_each(|summary| network::report(state, summary));
    }
}

/// Marks a run without a result as finished. Changes in its upper layer wait for review.
fn mark_finished(state: &Scoped, run: &mut Run) {
    run.record.state = RunState::Finished;
    if !is_empty(&run.dir.join("upper")) {
        run.record.review = Review::Pending;
    }
    if let Err(error) = run.save() {
        state.failed(&error);
    }
}

/// Opens the workspace of a named box. Changes that the box made before stay in its upper layer.
fn workspace(
    of: &NamedBox,
    state: &Scoped,
) -> Result<(Option<Workspace>, Option<WorkspaceAt>), EngineError> {
    let path = match &of.record.ground {
        BoxWorkspace::Nothing => return Ok((None, None)),
        BoxWorkspace::Directory { path } => path,
        BoxWorkspace::Repo(repo) => return Ok((Some(clone_of(of)?), host_directory(&repo.path))),
    };
    let (place, real) = belljar_box::open(path)
        .context("cannot open the workspace of the box")
        .kind(ErrorKind::CannotStart)?;
    if real != *path {
        let (path, real) = (path.display(), real.display());
        let error = anyhow!("the workspace path {path} now leads to another directory: {real}");
        return Err(EngineError::new(ErrorKind::CannotStart, error));
    }
    let workspace = Workspace { place, path: real, layers: None, scratch: false };
    let current = workspace_at(&workspace).kind(ErrorKind::CannotStart)?;
    let previous = of.run().and_then(|run| run.record.workspace);
    prepare_restart(of, state, previous.as_ref(), &current)?;
    Ok((Some(workspace), Some(current)))
}

/// Prepares the layers of a box for its next run. The changes of all runs are read again when that run
/// ends.
fn prepare_restart(
    of: &NamedBox,
    state: &Scoped,
    previous: Option<&WorkspaceAt>,
    current: &WorkspaceAt,
) -> Result<(), EngineError> {
    let upper = of.dir.join("upper");
    if is_empty(&upper) {
        return belljar_workspace::discard(&of.dir)
            .map(drop)
            .context("cannot remove the data of the box's last run")
            .kind(ErrorKind::CannotStart);
    }
    let Some(previous) = previous else {
        let (name, upper) = (of.name(), upper.display());
        let text = format!(
            "the record of the last run of box {name} is missing or damaged; the files that the box changed are in {upper}: copy what you need, then remove them with `belljar reset {name} --discard-work`"
        );
        return Err(EngineError::message(ErrorKind::CannotStart, text));
    };
    // Only the inode is compared: the device number may change when the host restarts.
    if previous.ino != current.ino {
        let error = anyhow!(
            "the workspace {} was replaced by another directory since the last run of the box; put the original directory back",
            current.path.display()
        );
        return Err(EngineError::new(ErrorKind::CannotStart, error));
    }
    let paths = RunPaths { workspace: &current.path, state: state.home(), run: &of.dir };
    let layers = Layers::open(&paths).kind(ErrorKind::CannotStart)?;
    belljar_workspace::prepare_restart(&layers, previous.clock, &SealLimits::default())
        .context("cannot read the earlier changes of the box")
        .kind(ErrorKind::CannotStart)
}

/// Opens the repository clone of a box as its workspace. The box writes to the clone directly, without
/// layers.
fn clone_of(of: &NamedBox) -> Result<Workspace, EngineError> {
    let opened = belljar_box::open(&of.dir.join("repo"));
    let opened = opened.context("cannot open the repository clone of the box");
    let (place, path) = opened.kind(ErrorKind::CannotStart)?;
    Ok(Workspace { place, path, layers: None, scratch: true })
}

/// Describes the host directory that a box's repository was cloned from, if that directory still exists.
fn host_directory(path: &Path) -> Option<WorkspaceAt> {
    let (place, path) = belljar_box::open(path).ok()?;
    workspace_at(&Workspace { place, path, layers: None, scratch: false }).ok()
}

/// Opens the home directory of a named box, which is kept when the box is stopped.
fn home(of: &NamedBox) -> Result<HomeMount, EngineError> {
    let opened = belljar_box::open(&of.dir.join("home"));
    let opened = opened.context("cannot open the home directory of the box");
    let (place, path) = opened.kind(ErrorKind::CannotStart)?;
    Ok(HomeMount { place, path })
}

/// Gives a workspace the overlay directories of the box's last run, or new ones if the last run changed
/// nothing. Syncs reach the disk: a named box can keep a database in its workspace for months.
fn layers(run: &Run, workspace: &mut Workspace) -> anyhow::Result<()> {
    if is_empty(&run.dir.join("upper")) {
        run.remove_layers();
        return launch::prepare_layers(run, workspace, LayerSync::Real);
    }
    run.make_work_dir()?;
    let (dir, sync) = (run.dir.clone(), LayerSync::Real);
    workspace.layers = Some(OverlayLayers { dir, sync, image: None });
    Ok(())
}
