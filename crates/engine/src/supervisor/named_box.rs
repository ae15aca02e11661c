//! The supervisor of a named box: take the box's lock, start the box, serve clients until its program ends,
//! and record the end.

use std::fs::File;
use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context as _, anyhow};
use belljar_box::{HomeMount, Stream, Workspace};
use belljar_model::boxes::{BoxName, BoxWorkspace};
use belljar_model::{Mode, Purpose, Review, RunState, WorkspaceAt};
use belljar_workspace::{Layers, RunPaths, SealLimits};
use rustix::fs::{Mode as FileMode, OFlags};
use tracing::Span;

use super::connection::send;
use super::live_rules::LiveRules;
use super::output_log::OutputLog;
use super::protocol::FromSupervisor;
use super::session::{BoxSession, Inputs};
use super::setup::{self, Setup};
use super::{build, health, listener};
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

/// Starts a box, reports that to the client, and supervises the box until it ends.
pub(super) fn supervise(
    state: &Scoped,
    connection: &UnixStream,
    name: &BoxName,
) -> Result<(), EngineError> {
    let of = NamedBox::find(state, name)?;
    Span::current().record("box", of.name().as_str());
    let lock = lock(&of)?;
    build::write(&of.dir).kind(ErrorKind::CannotStart)?;
    let started = StartedBox::start(state, &of)?;
    let _entered = started.launched.span().entered();
    tracing::info!("box is up");
    let ready = FromSupervisor::Ready { run: started.launched.id(), remarks: Vec::new() };
    send(connection, &ready).ok(); // the box is up even if the client is gone
    connection.shutdown(std::net::Shutdown::Both).ok(); // the client reads nothing more
    started.watch(state, &of);
    tracing::info!("box is down");
    drop(lock);
    Ok(())
}

/// Takes the lock of the box, which this process holds until it ends.
fn lock(of: &NamedBox) -> Result<File, EngineError> {
    let file = File::create(of.dir.join("lock")).context("cannot open the lock of the box");
    let file = file.kind(ErrorKind::CannotStart)?;
    if lock::try_acquire(&file, lock::PROBE_TIMEOUT) {
        Ok(file)
    } else {
        Err(invalid("it is running already"))
    }
}

/// A box that is built and recorded, with everything that its threads need. Its program waits.
struct StartedBox {
    run: Run,
    launched: Launched,
    has_layers: bool,
    session: Arc<BoxSession>,
    /// The program's input, and the pipe that ends the box when something is written to it.
    input: OwnedFd,
    stop: OwnedFd,
    /// The program's output is read from the filter; what is left goes here.
    null: OwnedFd,
}

impl StartedBox {
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
        let counted: Vec<PathBuf> = dirs.into_iter().filter(|dir| dir.is_dir()).collect();
        spec.disk = Some(DiskLimit { dir: of.dir.clone(), counted });
        let log = OutputLog::open(&of.dir).context("cannot open the log of the box");
        let log = log.kind(ErrorKind::CannotStart)?;
        let pipe = || rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC);
        let ((input, keys), (stop, halt)) = pipe()
            .and_then(|input| Ok((input, pipe()?)))
            .context("cannot make pipes")
            .kind(ErrorKind::CannotStart)?;
        // A program that reads nothing must not block the clients that type.
        rustix::io::ioctl_fionbio(&keys, true)
            .context("cannot make pipes")
            .kind(ErrorKind::CannotStart)?;
        let socket = listener::bind(&of.dir).context("cannot listen for requests");
        let socket = socket.kind(ErrorKind::CannotStart)?;
        let null = rustix::fs::open("/dev/null", OFlags::RDWR | OFlags::CLOEXEC, FileMode::empty());
        let null = null.context("cannot open /dev/null").kind(ErrorKind::CannotStart)?;
        // A start that fails before this leaves the record of the last run as it is.
        let mut is_saved = false;
        let launched = launch::launch_after(state, spec, || {
            run.save().kind(ErrorKind::CannotStart)?;
            is_saved = true;
            Ok(())
        });
        if launched.is_err() && is_saved {
            give_up(state, &mut run);
        }
        let mut launched = launched?;
        let _entered = launched.span().entered();
        let exec_channel = launched.take_exec_channel();
        let terminal = launched.terminal();
        let outside = launched.broker().map(|outside| {
            let requests = BoxRequests::new(state, of.name().clone());
            BrokerHandle::control(outside, requests)
        });
        let control = outside.ok_or_else(|| invalid("a box without a broker"))?;
        let rules = LiveRules { control, base, config };
        let inputs = Inputs { keys: keys.into(), halt, exec_channel, terminal };
        let session = BoxSession::new(state.clone(), of.name(), launched.id(), log, inputs, rules);
        let session = Arc::new(session);
        session.show();
        let served = Arc::clone(&session);
        logging::spawn(move || listener::serve(&socket, &served));
        if let Some(line) = launched.template().health.clone() {
            let checked = Arc::clone(&session);
            logging::spawn(move || health::check_repeatedly(&line, &checked));
        }
        Ok(Self { run, launched, has_layers, session, input, stop, null })
    }

    /// Starts the program, waits for its end and records it.
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
                return give_up(state, &mut run);
            }
        };
        let disk = template.limits.disk.as_u64();
        let changed = has_layers.then(|| changes::count_changes(&mut run, state, disk));
        if let Some(error) = &ended.finished.exec_error {
            let sentence = ended.finished.reason.sentence();
            state.notice(&Notice::Failed(format!("{sentence}: {error}")));
        }
        let result = ended.result(changed);
        let sealed = changed.filter(|changed| *changed > 0);
        ended.record(state, &result, sealed.and_then(|_| changes::sealed_changes(&run)));
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

/// The run is over before it was one.
fn give_up(state: &Scoped, run: &mut Run) {
    run.record.state = RunState::Finished;
    if !is_empty(&run.dir.join("upper")) {
        run.record.review = Review::Pending;
    }
    if let Err(error) = run.save() {
        state.failed(&error);
    }
}

/// Opens what the box works on. What it covered before stays measured from when it did.
fn workspace(
    of: &NamedBox,
    state: &Scoped,
) -> Result<(Option<Workspace>, Option<WorkspaceAt>), EngineError> {
    let path = match &of.record.ground {
        BoxWorkspace::Nothing => return Ok((None, None)),
        BoxWorkspace::Directory { path } => path,
        BoxWorkspace::Repo(repo) => return Ok((Some(clone_of(of)?), of_user(&repo.path))),
    };
    let (place, real) =
        belljar_box::open(path).context("the workspace of the box").kind(ErrorKind::CannotStart)?;
    if real != *path {
        let error = anyhow!("the workspace is not at {} any more", path.display());
        return Err(EngineError::new(ErrorKind::CannotStart, error));
    }
    let workspace = Workspace { place, path: real, layers: None, scratch: false };
    let fresh = workspace_at(&workspace).kind(ErrorKind::CannotStart)?;
    let before = of.run().and_then(|run| run.record.workspace);
    prepare_restart(of, state, before.as_ref(), &fresh)?;
    Ok((Some(workspace), Some(fresh)))
}

/// Puts aside what is known of the changes so far, so that all are read again when the run is over.
fn prepare_restart(
    of: &NamedBox,
    state: &Scoped,
    before: Option<&WorkspaceAt>,
    fresh: &WorkspaceAt,
) -> Result<(), EngineError> {
    let upper = of.dir.join("upper");
    if is_empty(&upper) {
        return belljar_workspace::discard(&of.dir)
            .map(drop)
            .context("begin anew")
            .kind(ErrorKind::CannotStart);
    }
    let Some(before) = before else {
        let (name, upper) = (of.name(), upper.display());
        let text = format!(
            "the record of the last run of box {name} is missing or damaged, and what the box changed is in {upper}: copy what you need from there, then `belljar reset {name} --discard-work` removes it"
        );
        return Err(EngineError::message(ErrorKind::CannotStart, text));
    };
    // Only the inode: the number of its device may be another one after a restart of the machine.
    if before.ino != fresh.ino {
        let error = anyhow!(
            "{} is another directory than the one that the box worked on",
            fresh.path.display()
        );
        return Err(EngineError::new(ErrorKind::CannotStart, error));
    }
    let paths = RunPaths { workspace: &fresh.path, state: state.home(), run: &of.dir };
    let layers = Layers::open(&paths).kind(ErrorKind::CannotStart)?;
    belljar_workspace::prepare_restart(&layers, before.clock, &SealLimits::default())
        .context("read what the box changed so far")
        .kind(ErrorKind::CannotStart)
}

/// The box's own clone: nobody's work but its own, so it is shown as it is.
fn clone_of(of: &NamedBox) -> Result<Workspace, EngineError> {
    let opened = belljar_box::open(&of.dir.join("repo")).context("the clone of the box");
    let (place, path) = opened.kind(ErrorKind::CannotStart)?;
    Ok(Workspace { place, path, layers: None, scratch: true })
}

/// The user's directory that a clone is about, if it is still there.
fn of_user(path: &Path) -> Option<WorkspaceAt> {
    let (place, path) = belljar_box::open(path).ok()?;
    workspace_at(&Workspace { place, path, layers: None, scratch: false }).ok()
}

/// The directory that stays when the box is stopped.
fn home(of: &NamedBox) -> Result<HomeMount, EngineError> {
    let opened = belljar_box::open(&of.dir.join("home")).context("the home of the box");
    let (place, path) = opened.kind(ErrorKind::CannotStart)?;
    Ok(HomeMount { place, path })
}

/// The directories of the overlay: those of the run before, or new ones.
fn layers(run: &Run, workspace: &mut Workspace) -> anyhow::Result<()> {
    if is_empty(&run.dir.join("upper")) {
        run.remove_layers();
        return launch::prepare_layers(run, workspace);
    }
    run.make_work_dir()?;
    workspace.layers = Some(run.dir.clone());
    Ok(())
}
