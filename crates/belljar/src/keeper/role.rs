//! The life of a keeper: take the box, start it, say so, watch it to its end, put its end on record.

use std::fs::File;
use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Instant;

use anyhow::{Context as _, anyhow};
use belljar_box::{Count, Kept as KeptHome, Request, Running, Stream, Supervision, Workspace};
use belljar_model::boxes::{BoxName, Ground};
use belljar_model::{Mode, Review, RunRecord, RunState, WorkspaceAt};
use belljar_sys::signal::SignalFd;
use belljar_workspace::{Caps, Layers, Places};
use rustix::fs::{Mode as FileMode, OFlags};

use super::health;
use super::history::History;
use super::hub::{Hub, Into};
use super::protocol::{self, Word};
use super::serve;
use super::setup::Setup;
use super::wires::Wires;
use crate::boxes::NamedBox;
use crate::commands::run::{self, at, new_id, now};
use crate::failure::{Code as _, FAILED, Failure, NO_BOX, usage};
use crate::leases;
use crate::outlet::{self, Outside};
use crate::print;
use crate::record::{self, Journal};
use crate::state::{Run, State, is_empty};
use crate::tape::Tape;

/// What the supervising thread reads; the others leave it alone.
const SIGNALS: [i32; 5] = [1, 2, 3, 15, 28];

/// Runs as a keeper. Descriptor 0 is the line to whoever started it.
pub(crate) fn main() -> ExitCode {
    // Whoever started us may log out: what their terminal sends then is not for us.
    rustix::process::setsid().ok(); // refused only to a leader, who is alone already
    let Ok(line) = rustix::io::fcntl_dupfd_cloexec(std::io::stdin(), 3) else {
        return ExitCode::from(FAILED);
    };
    match keep(&UnixStream::from(line)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            print::error(&failure.error);
            ExitCode::from(failure.code)
        }
    }
}

fn keep(line: &UnixStream) -> Result<(), Failure> {
    let told = |failure: Failure| {
        let message = format!("{:#}", failure.error);
        protocol::send(line, &Word::Failed { code: failure.code, message }).ok(); // or they are gone
        failure
    };
    let _signals = SignalFd::new(&SIGNALS).context("watch for signals").code(NO_BOX)?;
    let state = State::open().map_err(told)?;
    let of = named(&state).map_err(told)?;
    let lock = lock(&of).map_err(told)?;
    let kept = Kept::start(&state, &of).map_err(told)?;
    protocol::send(line, &Word::Up).ok(); // the box is up, whoever wanted it
    line.shutdown(std::net::Shutdown::Both).ok(); // nobody waits for more
    kept.watch(&state, &of);
    drop(lock);
    Ok(())
}

fn named(state: &State) -> Result<NamedBox, Failure> {
    let name = std::env::args().nth(1).unwrap_or_default();
    let name: BoxName = name.parse().context("the name of a box").code(FAILED)?;
    NamedBox::find(state, &name)
}

/// Takes the box for as long as this process lives.
fn lock(of: &NamedBox) -> Result<File, Failure> {
    let file = File::create(of.dir.join("lock")).context("open the lock of the box");
    let file = file.code(NO_BOX)?;
    if leases::take(&file, leases::GLANCE) { Ok(file) } else { Err(usage("it is running already")) }
}

/// A box whose program runs.
struct Kept {
    run: Run,
    request: Request,
    outside: Outside,
    running: Running,
    journal: Journal,
    tape: Tape,
    count: Box<Count<'static>>,
    hub: Arc<Hub>,
    /// Where the program's input comes from, and what ends the box at once.
    input: OwnedFd,
    stop: OwnedFd,
    /// Where what the program wrote goes once it was heard.
    null: OwnedFd,
    /// How long the start took, in microseconds.
    setup: u64,
}

impl Kept {
    fn start(state: &State, of: &NamedBox) -> Result<Self, Failure> {
        let began = Instant::now();
        let Setup { template, base, config, sources, outlet, argv, tty, mut files, masks, .. } =
            Setup::of(of, state)?;
        for layer in &template.weaken {
            print::note(&format!("layer `{layer}` is off, as asked: {}", layer.doc()));
        }
        let (id, random) = new_id()?;
        let (mut workspace, at) = workspace(of, state)?;
        let record = RunRecord {
            id,
            name: Some(of.name().clone()),
            created: id.millis(),
            workspace: at,
            mode: template.mode,
            argv: argv.iter().map(|word| word.to_string_lossy().into_owned()).collect(),
            template: template.name.clone(),
            state: RunState::Running,
            review: Review::None,
            result: None,
        };
        let run = Run { dir: of.dir.clone(), record };
        let outside = outlet.open().code(NO_BOX)?;
        let is_scratch = workspace.as_ref().is_some_and(|it| it.scratch);
        let overlay = template.mode != Mode::ReadOnly && !is_scratch;
        if let Some(workspace) = workspace.as_mut().filter(|_| overlay) {
            layers(&run, workspace).code(NO_BOX)?;
        }
        let mut env = run::environment(&template, id, false);
        if tty {
            env.push(("TERM".into(), "xterm-256color".into()));
        }
        let net = Some(outside.request_with(&mut env, &mut files)?);
        let request = Request {
            id,
            random,
            argv,
            program: None,
            env,
            workspace,
            home: Some(home(of)?),
            files,
            masks,
            door: true,
            hidden: vec![state.home().to_owned()],
            net,
            terminal: tty.then_some((24, 80)),
            now: now().as_secs(),
            template,
        };
        let history = History::open(&of.dir).context("open the log of the box").code(NO_BOX)?;
        let tape = Tape::new(request.template.record, &of.dir).code(NO_BOX)?;
        let pipe = || rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC);
        let ((input, feed), (stop, halt)) =
            pipe().and_then(|input| Ok((input, pipe()?))).context("make pipes").code(NO_BOX)?;
        // A program that reads nothing must not hold up those who type.
        rustix::io::ioctl_fionbio(&feed, true).context("make pipes").code(NO_BOX)?;
        let listener = serve::listen(&of.dir).context("listen for commands").code(NO_BOX)?;
        let dirs = ["upper", "home", "repo"].map(|name| of.dir.join(name));
        let dirs: Vec<PathBuf> = dirs.into_iter().filter(|dir| dir.is_dir()).collect();
        let count = Box::new(run::counter(&dirs).code(NO_BOX)?);
        let null = rustix::fs::open("/dev/null", OFlags::RDWR | OFlags::CLOEXEC, FileMode::empty());
        let null = null.context("open /dev/null").code(NO_BOX)?;
        run.save().code(NO_BOX)?;
        let begun = run::begin(state, &run.record, &sources, &request, Some(&outside));
        let (mut running, journal) = begun.inspect_err(|_| give_up(&run))?;
        let into = Into { door: running.door(), terminal: running.terminal().ok().flatten() };
        let wires = Wires { lever: outside.lever(), base, config };
        let hub = Arc::new(Hub::new(id, history, halt, feed.into(), into, wires));
        hub.show();
        let served = Arc::clone(&hub);
        std::thread::spawn(move || serve::serve(&listener, &served));
        if let Some(line) = request.template.health.clone() {
            let asked = Arc::clone(&hub);
            std::thread::spawn(move || health::ask(&line, &asked));
        }
        let setup = u64::try_from(began.elapsed().as_micros()).unwrap_or(u64::MAX);
        Ok(Self {
            run,
            request,
            outside,
            running,
            journal,
            tape,
            count,
            hub,
            input,
            stop,
            null,
            setup,
        })
    }

    /// Sees the program to its end, and records it.
    fn watch(self, state: &State, of: &NamedBox) {
        let Self { mut run, request, outside, running, journal, mut tape, mut count, hub, .. } =
            self;
        let (input, stop, null) = (self.input, self.stop, self.null);
        let mut guard = |stream: Stream, chunk: &[u8], _: &mut Vec<u8>| {
            tape.write(stream, chunk);
            hub.heard(chunk);
        };
        let supervision = Supervision {
            input: input.as_fd(),
            output: null.as_fd(),
            error: null.as_fd(),
            guard: Some(&mut guard),
            disk: Some((of.dir.as_path(), &mut *count)),
            stop: Some(stop.as_fd()),
        };
        let (finished, account) =
            outlet::during(Some(&outside), journal.ledger(), run.id(), || {
                running.supervise(supervision)
            });
        hub.close();
        let (finished, remains) = match finished {
            Ok(finished) => finished,
            Err(error) => {
                let error = anyhow::Error::new(error);
                print::error(&error);
                journal.failed(&error).ok(); // the failure itself is what matters now
                return give_up(&run);
            }
        };
        let policy = record::policy(&request.template, Some(outside.policy()));
        let outputs = tape.finish(journal.ledger(), policy).unwrap_or_else(|error| {
            print::error(&error);
            [None, None]
        });
        let overlay = request.workspace.as_ref().is_some_and(|it| it.layers.is_some());
        let disk = request.template.limits.disk.as_u64();
        let changed = overlay.then(|| run::count_changes(&mut run, state, disk));
        if let Some(error) = &finished.exec_error {
            print::note(&format!("{}: {error}", finished.reason.sentence()));
        }
        let result = run::result(&run.record, &request.template, finished, self.setup, changed);
        let changes =
            changed.filter(|changed| *changed > 0).and_then(|_| run::sealed_changes(&run));
        if let Err(error) = journal.ended(&result, outputs, changes) {
            print::note("the end of the run is not on record:");
            print::error(&error.into());
        }
        if request.template.mode == Mode::Direct && run.record.review.waits() {
            run::take_over(&mut run, state, journal.ledger(), of.record.config.as_deref());
        }
        run::settle(&mut run, Some(result), state);
        drop(remains);
        account.iter().for_each(outlet::say);
    }
}

/// The run is over before it was one.
fn give_up(run: &Run) {
    let mut run = Run { dir: run.dir.clone(), record: run.record.clone() };
    run.record.state = RunState::Finished;
    if !is_empty(&run.dir.join("upper")) {
        run.record.review = Review::Pending;
    }
    if let Err(error) = run.save() {
        print::error(&error);
    }
}

/// Opens what the box works on. What it covered before stays measured from when it did.
fn workspace(
    of: &NamedBox,
    state: &State,
) -> Result<(Option<Workspace>, Option<WorkspaceAt>), Failure> {
    let path = match &of.record.ground {
        Ground::Nothing => return Ok((None, None)),
        Ground::Directory { path } => path,
        Ground::Repo(repo) => return Ok((Some(clone_of(of)?), of_user(&repo.path))),
    };
    let (place, real) = belljar_box::open(path).context("the workspace of the box").code(NO_BOX)?;
    if real != *path {
        let error = anyhow!("the workspace is not at {} any more", path.display());
        return Err(Failure { code: NO_BOX, error });
    }
    let workspace = Workspace { place, path: real, layers: None, scratch: false };
    let fresh = at(&workspace).code(NO_BOX)?;
    let before = of.run().and_then(|run| run.record.workspace);
    go_on(of, state, before.as_ref(), &fresh)?;
    Ok((Some(workspace), Some(fresh)))
}

/// Puts aside what is known of the changes so far, so that all are read again when the run is over.
fn go_on(
    of: &NamedBox,
    state: &State,
    before: Option<&WorkspaceAt>,
    fresh: &WorkspaceAt,
) -> Result<(), Failure> {
    let Some(before) = before.filter(|_| !is_empty(&of.dir.join("upper"))) else {
        return belljar_workspace::discard(&of.dir).map(drop).context("begin anew").code(NO_BOX);
    };
    // Only the inode: the number of its device may be another one after a restart of the machine.
    if before.ino != fresh.ino {
        let error = anyhow!(
            "{} is another directory than the one that the box worked on",
            fresh.path.display()
        );
        return Err(Failure { code: NO_BOX, error });
    }
    let places = Places { workspace: &fresh.path, state: state.home(), run: &of.dir };
    let layers = Layers::open(&places).code(NO_BOX)?;
    belljar_workspace::go_on(&layers, before.clock, &Caps::default())
        .context("read what the box changed so far")
        .code(NO_BOX)
}

/// The box's own clone: nobody's work but its own, so it is shown as it is.
fn clone_of(of: &NamedBox) -> Result<Workspace, Failure> {
    let opened = belljar_box::open(&of.dir.join("repo")).context("the clone of the box");
    let (place, path) = opened.code(NO_BOX)?;
    Ok(Workspace { place, path, layers: None, scratch: true })
}

/// The user's directory that a clone is about, if it is still there.
fn of_user(path: &Path) -> Option<WorkspaceAt> {
    let (place, path) = belljar_box::open(path).ok()?;
    at(&Workspace { place, path, layers: None, scratch: false }).ok()
}

/// The directory that stays when the box is stopped.
fn home(of: &NamedBox) -> Result<KeptHome, Failure> {
    let opened = belljar_box::open(&of.dir.join("home")).context("the home of the box");
    let (place, path) = opened.code(NO_BOX)?;
    Ok(KeptHome { place, path })
}

/// The directories of the overlay: those of the run before, or new ones.
fn layers(run: &Run, workspace: &mut Workspace) -> anyhow::Result<()> {
    if is_empty(&run.dir.join("upper")) {
        run.remove_layers();
        return run::prepare_layers(run, workspace);
    }
    run.make_work()?;
    workspace.layers = Some(run.dir.clone());
    Ok(())
}
