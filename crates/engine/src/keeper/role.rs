//! The life of a keeper: take the box, start it, say so, watch it to its end, put its end on record.

use std::fs::File;
use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context as _, anyhow};
use belljar_box::{Kept as KeptHome, Stream, Workspace};
use belljar_model::boxes::Ground;
use belljar_model::{Mode, Purpose, Review, RunState, WorkspaceAt};
use belljar_sys::signal::{SUPERVISED, SignalFd};
use belljar_workspace::{Caps, Layers, Places};
use rustix::fs::{Mode as FileMode, OFlags};
use tracing::Span;

use super::history::History;
use super::hub::{Hub, Into};
use super::protocol::{self, Begin, Word};
use super::serve;
use super::setup::{self, Setup};
use super::wires::Wires;
use super::{build, health};
use crate::approvals::desk::Desk;
use crate::box_store::NamedBox;
use crate::changes;
use crate::clock::Clock;
use crate::error::{EngineError, ErrorKind, WithKind as _, invalid};
use crate::host::HostEnv;
use crate::launch::{self, DiskLimit, LaunchSpec, Launched, Streams, Terminal, at};
use crate::logging;
use crate::network::{self, Outside};
use crate::notice::{Notice, Observer};
use crate::scope::{EngineConfig, Scoped};
use crate::store::lock;
use crate::store::{Run, is_empty};

/// Runs as a keeper. Descriptor 0 is the connection to the process that started it.
pub fn main(host: HostEnv, clock: Clock, observer: Arc<dyn Observer>) -> Result<(), EngineError> {
    // Whoever started us may log out: what their terminal sends then is not for us.
    rustix::process::setsid().ok(); // refused only to a leader, who is alone already
    let line = rustix::io::fcntl_dupfd_cloexec(std::io::stdin(), 3);
    let line = line.context("find the connection").kind(ErrorKind::Broken)?;
    keep(&UnixStream::from(line), host, clock, observer)
}

fn keep(
    line: &UnixStream,
    host: HostEnv,
    clock: Clock,
    observer: Arc<dyn Observer>,
) -> Result<(), EngineError> {
    let told = |failure: EngineError| {
        let message = format!("{failure:#}");
        let kind = failure.kind();
        protocol::send(line, &Word::Failed { kind, message }).ok(); // or they are gone
        failure
    };
    let _signals =
        SignalFd::new(&SUPERVISED).context("watch for signals").kind(ErrorKind::CannotStart)?;
    let state = scoped(host, clock, observer).map_err(told)?;
    let of = named(&state, line).map_err(told)?;
    Span::current().record("box", of.name().as_str());
    tracing::debug!("supervisor takes the box");
    let lock = lock(&of).map_err(told)?;
    build::write(&of.dir).kind(ErrorKind::CannotStart).map_err(told)?;
    let kept = KeptBox::start(&state, &of).map_err(told)?;
    let _entered = kept.launched.span().entered();
    tracing::info!("box is up");
    protocol::send(line, &Word::Up).ok(); // the box is up, whoever wanted it
    line.shutdown(std::net::Shutdown::Both).ok(); // nobody waits for more
    kept.watch(&state, &of);
    tracing::info!("box is down");
    drop(lock);
    Ok(())
}

fn scoped(host: HostEnv, clock: Clock, observer: Arc<dyn Observer>) -> Result<Scoped, EngineError> {
    let home = host.state_dir()?;
    Scoped::local(EngineConfig { home, config_file: None, host }, clock, observer)
}

fn named(state: &Scoped, line: &UnixStream) -> Result<NamedBox, EngineError> {
    let begin = protocol::receive::<Begin>(line).context("read the name of the box");
    let begin = begin.kind(ErrorKind::Broken)?;
    let begin = begin.ok_or_else(|| invalid("no box was named"))?;
    NamedBox::find(state, &begin.name)
}

/// Takes the box for as long as this process lives.
fn lock(of: &NamedBox) -> Result<File, EngineError> {
    let file = File::create(of.dir.join("lock")).context("open the lock of the box");
    let file = file.kind(ErrorKind::CannotStart)?;
    if lock::take(&file, lock::GLANCE) { Ok(file) } else { Err(invalid("it is running already")) }
}

/// A box whose program waits for the word to start.
struct KeptBox {
    run: Run,
    launched: Launched,
    has_layers: bool,
    hub: Arc<Hub>,
    /// Where the program's input comes from, and what ends the box at once.
    input: OwnedFd,
    stop: OwnedFd,
    /// Where output goes once it was read.
    null: OwnedFd,
}

impl KeptBox {
    fn start(state: &Scoped, of: &NamedBox) -> Result<Self, EngineError> {
        let Setup { template, base, config, sources, outlet, argv, tty, files, masks, .. } =
            Setup::of(of, state)?;
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
        (spec.masks, spec.network, spec.exec_channel) = (masks, Some(outlet), true);
        spec.output_dir = Some(of.dir.clone());
        let dirs = ["upper", "home", "repo"].map(|name| of.dir.join(name));
        let counted: Vec<PathBuf> = dirs.into_iter().filter(|dir| dir.is_dir()).collect();
        spec.disk = Some(DiskLimit { dir: of.dir.clone(), counted });
        let history = History::open(&of.dir).context("open the log of the box");
        let history = history.kind(ErrorKind::CannotStart)?;
        let pipe = || rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC);
        let ((input, feed), (stop, halt)) = pipe()
            .and_then(|input| Ok((input, pipe()?)))
            .context("make pipes")
            .kind(ErrorKind::CannotStart)?;
        // A program that reads nothing must not hold up those who type.
        rustix::io::ioctl_fionbio(&feed, true)
            .context("make pipes")
            .kind(ErrorKind::CannotStart)?;
        let listener = serve::listen(&of.dir).context("listen for commands");
        let listener = listener.kind(ErrorKind::CannotStart)?;
        let null = rustix::fs::open("/dev/null", OFlags::RDWR | OFlags::CLOEXEC, FileMode::empty());
        let null = null.context("open /dev/null").kind(ErrorKind::CannotStart)?;
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
        let into = Into { door: launched.exec_channel(), terminal: launched.terminal() };
        let outside = launched.outside().map(|outside| {
            let desk = Desk::new(state, of.name().clone());
            Outside::lever(outside, desk)
        });
        let lever = outside.ok_or_else(|| invalid("a box without a broker"))?;
        let wires = Wires { lever, base, config };
        let hub = Arc::new(Hub::new(
            state.clone(),
            launched.id(),
            history,
            halt,
            feed.into(),
            into,
            wires,
        ));
        hub.show();
        let served = Arc::clone(&hub);
        logging::spawn(move || serve::serve(&listener, &served));
        if let Some(line) = launched.template().health.clone() {
            let asked = Arc::clone(&hub);
            logging::spawn(move || health::ask(&line, &asked));
        }
        Ok(Self { run, launched, has_layers, hub, input, stop, null })
    }

    /// Starts the program, waits for its end and records it.
    fn watch(self, state: &Scoped, of: &NamedBox) {
        let Self { mut run, launched, has_layers, hub, input, stop, null } = self;
        let template = launched.template().clone();
        let mut filter = |_: Stream, chunk: &[u8], _: &mut Vec<u8>| hub.heard(chunk);
        let streams = Streams {
            input: input.as_fd(),
            output: null.as_fd(),
            error: null.as_fd(),
            filter: &mut filter,
            stop: Some(stop.as_fd()),
        };
        let mut ended = match launched.supervise(state, streams, || hub.close()) {
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
        if template.mode == Mode::Direct && run.record.review.waits() {
            match setup::permissions(state, of) {
                Ok(permissions) => {
                    changes::take_over(&mut run, state, ended.journal.ledger(), &permissions);
                }
                Err(error) => state.failed(error.inner()),
            }
        }
        launch::settle(&mut run, Some(result), state);
        drop(ended.remains);
        ended.account.iter().for_each(|account| network::report(state, account));
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
        Ground::Nothing => return Ok((None, None)),
        Ground::Directory { path } => path,
        Ground::Repo(repo) => return Ok((Some(clone_of(of)?), of_user(&repo.path))),
    };
    let (place, real) =
        belljar_box::open(path).context("the workspace of the box").kind(ErrorKind::CannotStart)?;
    if real != *path {
        let error = anyhow!("the workspace is not at {} any more", path.display());
        return Err(EngineError::new(ErrorKind::CannotStart, error));
    }
    let workspace = Workspace { place, path: real, layers: None, scratch: false };
    let fresh = at(&workspace).kind(ErrorKind::CannotStart)?;
    let before = of.run().and_then(|run| run.record.workspace);
    go_on(of, state, before.as_ref(), &fresh)?;
    Ok((Some(workspace), Some(fresh)))
}

/// Puts aside what is known of the changes so far, so that all are read again when the run is over.
fn go_on(
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
    let places = Places { workspace: &fresh.path, state: state.home(), run: &of.dir };
    let layers = Layers::open(&places).kind(ErrorKind::CannotStart)?;
    belljar_workspace::go_on(&layers, before.clock, &Caps::default())
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
    at(&Workspace { place, path, layers: None, scratch: false }).ok()
}

/// The directory that stays when the box is stopped.
fn home(of: &NamedBox) -> Result<KeptHome, EngineError> {
    let opened = belljar_box::open(&of.dir.join("home")).context("the home of the box");
    let (place, path) = opened.kind(ErrorKind::CannotStart)?;
    Ok(KeptHome { place, path })
}

/// The directories of the overlay: those of the run before, or new ones.
fn layers(run: &Run, workspace: &mut Workspace) -> anyhow::Result<()> {
    if is_empty(&run.dir.join("upper")) {
        run.remove_layers();
        return launch::prepare_layers(run, workspace);
    }
    run.make_work()?;
    workspace.layers = Some(run.dir.clone());
    Ok(())
}
