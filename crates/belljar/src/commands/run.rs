//! `belljar run`: one command in a fresh box.

mod disk;
pub(crate) mod session;

use std::ffi::OsString;
use std::io::IsTerminal;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use anyhow::{Context, anyhow};
use belljar_box::{
    Count, Finished, Mask, Remains, Request, Running, Standing, Stream, Supervision, Workspace,
    view,
};
use belljar_ledger::{Body, Ledger};
use belljar_model::code::McpServer;
use belljar_model::{
    Access, Clock, LayerState, Mode, Overrides, Review, RunId, RunRecord, RunResult, RunState,
    Template, WorkspaceAt,
};
use belljar_workspace::{Caps, Layers, Places};
use rustix::process::Signal;

pub(crate) use disk::counter;

use crate::agents::{self, Occasion};
use crate::broker::Account;
use crate::cli::{Cli, RunArgs};
use crate::commands::apply;
use crate::config::{self, Source};
use crate::failure::{Code, FAILED, Failure, NO_BOX, Outcome, USAGE, usage};
use crate::guard::Guard;
use crate::outlet::{self, Outlet, Outside};
use crate::print;
use crate::record::{self, Journal, Plan};
use crate::state::{Run, State, is_empty};
use crate::tape::Tape;
use crate::terminal::{self, Raw};

pub(crate) fn run(cli: &Cli, args: &RunArgs) -> Outcome {
    let began = Instant::now();
    refuse_unknown_option(args)?;
    if args.of_server.is_some() {
        end_with_parent()?;
    }
    let state = State::open()?;
    let workspace = workspace(args, &state)?;
    let path = workspace.as_ref().map(|workspace| workspace.path.as_path());
    let interactive = wants_terminal(args);
    let (template, sources, outlet, masks) = template(cli, args, path, interactive, &state)?;
    for layer in &template.weaken {
        print::note(&format!("layer `{layer}` is off, as asked: {}", layer.doc()));
    }
    let (id, random) = new_id()?;
    let record = record(id, args, &template, workspace.as_ref()).code(FAILED)?;
    let (mut run, lock) = state.create(record).code(NO_BOX)?;
    let rules = (template, sources, outlet, masks);
    let outcome = execute(&mut run, args, &state, rules, workspace, random, interactive, began);
    drop(lock);
    outcome
}

#[expect(clippy::too_many_arguments, reason = "the one place where everything comes together")]
fn execute(
    run: &mut Run,
    args: &RunArgs,
    state: &State,
    (template, sources, outlet, masks): Rules,
    mut workspace: Option<Workspace>,
    random: u32,
    interactive: bool,
    began: Instant,
) -> Outcome {
    let outside = outlet.map(Outlet::open).transpose().code(NO_BOX)?;
    let overlay = template.mode != Mode::ReadOnly;
    if let Some(workspace) = workspace.as_mut().filter(|_| overlay) {
        prepare_layers(run, workspace).code(NO_BOX)?;
    }
    let mut env = environment(&template, run.id(), interactive);
    let net = outside.as_ref().map(|outside| outside.request(&mut env)).transpose();
    let net = net.inspect_err(|_| settle(run, None, state))?;
    let request = Request {
        id: run.id(),
        random,
        argv: args.command.clone(),
        program: None,
        env,
        workspace,
        home: None,
        files: Vec::new(),
        masks,
        door: false,
        hidden: vec![state.home().to_owned()],
        net,
        terminal: interactive.then(|| terminal::size(std::io::stdin()).unwrap_or((24, 80))),
        now: now().as_secs(),
        template,
    };
    let layers = request.workspace.as_ref().and_then(|workspace| workspace.layers.clone());
    let finished = in_box(&request, run, &sources, state, outside.as_ref(), began);
    let Ended { finished, outputs, journal, remains, setup, account } = match finished {
        Ok(finished) => finished,
        Err(failure) => {
            settle(run, None, state);
            return Err(failure);
        }
    };
    let changed =
        layers.is_some().then(|| count_changes(run, state, request.template.limits.disk.as_u64()));
    let finished_line = finished.ended_in_newline;
    if let Some(error) = &finished.exec_error {
        print::note(&format!("{}: {error}", finished.reason.sentence()));
    }
    let result = result(&run.record, &request.template, finished, setup, changed);
    let changes = changed.filter(|changed| *changed > 0).and_then(|_| sealed_changes(run));
    if let Err(error) = journal.ended(&result, outputs, changes) {
        print::note("the end of the run is not on record; `belljar runs` will show it:");
        print::error(&error.into());
    }
    if request.template.mode == Mode::Direct && run.record.review.waits() {
        let file = sources.iter().find(|source| source.scope == "operator");
        take_over(run, state, journal.ledger(), file.map(|source| source.file.as_path()));
    }
    settle(run, Some(result.clone()), state);
    drop(remains);
    say(&result, args);
    account.iter().for_each(outlet::say);
    if args.json {
        print::out(if finished_line { "" } else { "\n" }).code(FAILED)?;
        print::json(&result).code(FAILED)?;
    }
    Ok(result.exit_code())
}

/// A program that ended.
struct Ended {
    finished: Finished,
    /// What it wrote.
    outputs: [Option<Body>; 2],
    journal: Journal,
    remains: Remains,
    /// How long the start took, in microseconds.
    setup: u64,
    /// What became of its network.
    account: Option<Account>,
}

/// Starts the box, and the program once that is on record, and sees it to its end.
fn in_box(
    request: &Request,
    run: &Run,
    sources: &[Source],
    state: &State,
    outside: Option<&Outside>,
    began: Instant,
) -> Result<Ended, Failure> {
    let layers = request.workspace.as_ref().and_then(|workspace| workspace.layers.as_deref());
    let interactive = request.terminal.is_some();
    let template = &request.template;
    // What can fail does so before there is anything to take back.
    let mut tape = Tape::new(template.record, &run.dir).code(NO_BOX)?;
    let upper = layers.map(|layers| [layers.join("upper")]);
    let mut count = upper.map(|upper| counter(&upper)).transpose().code(NO_BOX)?;
    let (running, journal) = begin(state, &run.record, sources, request, outside)?;
    let setup = u64::try_from(began.elapsed().as_micros()).unwrap_or(u64::MAX);
    let (input, output, error) = (std::io::stdin(), std::io::stdout(), std::io::stderr());
    let raw = (interactive && input.is_terminal()).then(|| Raw::enter(input.as_fd())).transpose();
    let raw = match raw.context("put the terminal into raw mode").code(NO_BOX) {
        Ok(raw) => raw,
        Err(failure) => {
            running.abandon();
            journal.failed(&failure.error).ok(); // the failure itself is what matters now
            return Err(failure);
        }
    };
    let (mut output_guard, mut error_guard) = (Guard::default(), Guard::default());
    let (guard_output, guard_error) = (output.is_terminal(), error.is_terminal());
    let mut guard = |stream: Stream, chunk: &[u8], kept: &mut Vec<u8>| {
        tape.write(stream, chunk);
        match stream {
            Stream::Output if guard_output => output_guard.pass(chunk, kept),
            Stream::Error if guard_error => error_guard.pass(chunk, kept),
            Stream::Output | Stream::Error => kept.extend_from_slice(chunk),
        }
    };
    let supervision = Supervision {
        input: input.as_fd(),
        output: output.as_fd(),
        error: error.as_fd(),
        guard: Some(&mut guard),
        disk: layers.zip(count.as_mut().map(|count| count as &mut Count<'_>)),
        stop: None,
    };
    let (finished, account) =
        outlet::during(outside, journal.ledger(), run.id(), || running.supervise(supervision));
    drop(raw);
    let (finished, remains) = finished.code(NO_BOX).inspect_err(|failure| {
        journal.failed(&failure.error).ok(); // see above
    })?;
    let policy = record::policy(template, outside.map(Outside::policy));
    let outputs = tape.finish(journal.ledger(), policy).unwrap_or_else(|error| {
        print::note("what the program wrote is not on record; how it ended will be:");
        print::error(&error);
        [None, None]
    });
    Ok(Ended { finished, outputs, journal, remains, setup, account })
}

/// Starts a box once that is on record, and opens its network. Its program still waits for the word.
pub(crate) fn begin(
    state: &State,
    record: &RunRecord,
    sources: &[Source],
    request: &Request,
    outside: Option<&Outside>,
) -> Result<(Running, Journal), Failure> {
    let Request { template, argv, env, .. } = request;
    let network = outside.map(Outside::policy);
    let plan = Plan { record, template, network, sources, argv, env, remarks: &[] };
    let begin = |layers: &[LayerState]| Journal::begin(state, &plan, layers);
    let mut begun = None;
    let started = belljar_box::start(request, |layers| begun = Some(begin(layers)));
    let (mut running, journal) = match (started.code(NO_BOX), begun) {
        (Ok((running, ())), Some(Ok(journal))) => (running, journal),
        (Ok((running, ())), refused) => {
            running.abandon();
            let unrecorded =
                || Failure { code: NO_BOX, error: anyhow!("the run is not on record") };
            return Err(refused.and_then(Result::err).unwrap_or_else(unrecorded));
        }
        (Err(failure), begun) => {
            // Also a box that never came to be was asked for.
            if let Ok(journal) = begun.unwrap_or_else(|| begin(&[])) {
                journal.failed(&failure.error).ok(); // the failure itself is what matters now
            }
            return Err(failure);
        }
    };
    let opened = outside.map(|outside| outside.connect(&mut running)).transpose();
    if let Err(failure) = opened.context("open the network of the box").code(NO_BOX) {
        running.abandon();
        journal.failed(&failure.error).ok(); // see above
        return Err(failure);
    }
    Ok((running, journal))
}

/// The hash of the list of what the box changed.
pub(crate) fn sealed_changes(run: &Run) -> Option<Body> {
    let list = std::fs::read(run.dir.join("changes.json")).ok()?;
    Body::hash_of(&list).ok()
}

/// Opens the workspace; refuses what would give the box everything.
fn workspace(args: &RunArgs, state: &State) -> Result<Option<Workspace>, Failure> {
    if args.no_workspace {
        return Ok(None);
    }
    choose_workspace(args.workspace.as_deref(), state).map(Some)
}

/// The directory that was named, or else the one we are in, unless that would give away a whole home.
pub(crate) fn choose_workspace(asked: Option<&Path>, state: &State) -> Result<Workspace, Failure> {
    let workspace = open_workspace(asked.unwrap_or(Path::new(".")), state)?;
    let whole_home = config::home().is_some_and(|home| home.starts_with(&workspace.path));
    if whole_home && asked.is_none() {
        return Err(usage(format!(
            "{} holds your home directory with all its keys: change into a project, or choose with --workspace DIR or --no-workspace",
            workspace.path.display()
        )));
    }
    Ok(workspace)
}

/// Opens a directory that was named as a workspace.
pub(crate) fn open_workspace(asked: &Path, state: &State) -> Result<Workspace, Failure> {
    let (place, path) = belljar_box::open(asked).context("--workspace").code(USAGE)?;
    if !path.is_dir() {
        return Err(usage(format!("--workspace {}: not a directory", asked.display())));
    }
    if path == Path::new("/") {
        return Err(usage(
            "the workspace cannot be the root of the host: choose a directory with --workspace",
        ));
    }
    if path.starts_with(state.home()) {
        return Err(usage(format!("--workspace {}: this is Belljar's own state", path.display())));
    }
    Ok(Workspace { place, path, layers: None, scratch: false })
}

/// A misspelt option must not become the name of a program.
fn refuse_unknown_option(args: &RunArgs) -> Result<(), Failure> {
    let typed: Vec<OsString> = std::env::args_os().collect();
    let before = typed.len().checked_sub(args.command.len() + 1).and_then(|index| typed.get(index));
    let first = args.command.first().map_or(&[][..], |word| word.as_bytes());
    if first.starts_with(b"-") && before.is_none_or(|word| word != "--") {
        let first = String::from_utf8_lossy(first);
        return Err(usage(format!(
            "unexpected option {first}; `belljar run --help` lists them, and a program of that name goes behind `--`"
        )));
    }
    Ok(())
}

/// A box that can write our own program could replace what confines the next one.
pub(crate) fn refuse_own_program(
    template: &Template,
    workspace: Option<&Path>,
) -> Result<(), Failure> {
    let own = std::env::current_exe().context("find our own program").code(FAILED)?;
    let writable = template.mounts.iter().filter(|mount| mount.access() == Access::ReadWrite);
    if let Some(workspace) = workspace.filter(|_| template.mode == Mode::Direct)
        && own.starts_with(workspace)
    {
        return Err(usage(format!(
            "--mode direct: the box could replace {}; use overlay, or install it elsewhere",
            own.display()
        )));
    }
    for mount in writable {
        let (_, real) = belljar_box::open(mount.source()).context("--mount").code(USAGE)?;
        if own.starts_with(&real) {
            return Err(usage(format!("--mount {mount}: the box could replace {}", own.display())));
        }
    }
    Ok(())
}

/// What a run goes by: its template, where that comes from, its network, and what of the workspace is less.
type Rules = (Template, Vec<Source>, Option<Outlet>, Vec<Mask>);

/// The template that is asked for, with the flags on top.
fn template(
    cli: &Cli,
    args: &RunArgs,
    workspace: Option<&Path>,
    interactive: bool,
    state: &State,
) -> Result<Rules, Failure> {
    let (config, sources) = config::load_with_sources(cli, workspace)?;
    let known = config::template(&config, &args.template)?;
    let mut said = args.furnish.overrides();
    if let Some(name) = &args.of_server {
        let server = config.servers().get(name);
        let none = || usage(format!("--of-server: there is no [mcp.{name}]"));
        add_server(&mut said, server.ok_or_else(none)?);
    }
    let has_timeout = said.timeout.is_some();
    let here = std::env::current_dir().context("find the current directory").code(FAILED)?;
    let permissions = config.permissions(&args.template);
    let denied = agents::outfit(&Occasion {
        agent: None,
        permissions: &permissions,
        state,
        workspace,
        hosts_programs: true,
        runs_agent: false,
    })?;
    // What is allowed beyond the template is for agents, whose boxes stay.
    let deny = Overrides { deny: denied.said.deny, ..Overrides::default() };
    let mut template = known.with(deny).and_then(|it| it.with(said)).code(USAGE)?;
    template = template.anchored(&here, config::home().as_deref());
    if interactive && !has_timeout && template.limits == Template::default().limits {
        template.limits.timeout = None; // a person may think for longer than ten minutes
    }
    refuse_own_program(&template, workspace)?;
    let outlet = Outlet::of(&template, &config, state)?;
    Ok((template, sources, outlet, denied.masks))
}

/// Whoever speaks to a server is all it is there for: one who is killed must not leave it behind, also
/// if it does not care that nobody speaks to it any more.
fn end_with_parent() -> Result<(), Failure> {
    let set = rustix::process::set_parent_process_death_signal(Some(Signal::KILL));
    set.context("end with whoever started this").code(FAILED)
}

/// What another server is given beside its command.
fn add_server(said: &mut Overrides, server: &McpServer) {
    said.env.extend(server.env.iter().cloned());
    said.allow.extend(server.allow.iter().cloned());
    said.secrets.extend(server.secrets.iter().cloned());
}

/// The directories of the overlay, as the workspace's owner has them.
pub(crate) fn prepare_layers(run: &Run, workspace: &mut Workspace) -> anyhow::Result<()> {
    let stat = rustix::fs::fstat(&workspace.place).context("look at the workspace")?;
    let as_root = Standing::of_this_process() == Standing::Root;
    run.make_layers(as_root.then_some((stat.st_uid, stat.st_gid)))?;
    run.copy_mode(&workspace.path)?;
    workspace.layers = Some(run.dir.clone());
    Ok(())
}

fn record(
    id: RunId,
    args: &RunArgs,
    template: &Template,
    workspace: Option<&Workspace>,
) -> anyhow::Result<RunRecord> {
    Ok(RunRecord {
        id,
        name: args.name.clone(),
        created: id.millis(),
        workspace: workspace.map(at).transpose()?,
        mode: template.mode,
        argv: args.command.iter().map(|arg| arg.to_string_lossy().into_owned()).collect(),
        template: template.name.clone(),
        state: RunState::Running,
        review: Review::None,
        result: None,
    })
}

/// Which workspace it is, and when it was looked at.
pub(crate) fn at(workspace: &Workspace) -> anyhow::Result<WorkspaceAt> {
    let stat = rustix::fs::fstat(&workspace.place).context("look at the workspace")?;
    let coarse = rustix::time::clock_gettime(rustix::time::ClockId::RealtimeCoarse);
    let clock = Clock { secs: coarse.tv_sec, nanos: u32::try_from(coarse.tv_nsec).unwrap_or(0) };
    Ok(WorkspaceAt { path: workspace.path.clone(), dev: stat.st_dev, ino: stat.st_ino, clock })
}

/// Reads what the box changed and keeps the originals; how many files that are.
pub(crate) fn count_changes(run: &mut Run, state: &State, disk: u64) -> u64 {
    if is_empty(&run.dir.join("upper")) {
        return 0;
    }
    run.record.review = Review::Pending;
    let Some(at) = &run.record.workspace else { return 0 };
    let places = Places { workspace: &at.path, state: state.home(), run: &run.dir };
    // Holes cost a box nothing and us the time to read them: twice what it may write is enough.
    let caps = Caps { upper_bytes: disk.saturating_mul(2).max(1 << 30), ..Caps::default() };
    let sealed = Layers::open(&places)
        .map_err(anyhow::Error::from)
        .and_then(|layers| Ok(belljar_workspace::seal(&layers, at.clock, &caps)?));
    match sealed {
        Ok(changes) if changes.is_empty() => {
            run.record.review = Review::None;
            0
        }
        Ok(changes) => changes.entries().len() as u64,
        Err(error) => {
            print::note("what the box changed is kept, but could not be read yet:");
            print::error(&error);
            0
        }
    }
}

/// Direct mode: takes over at once what is harmless; the rest waits, and is said.
pub(crate) fn take_over(run: &mut Run, state: &State, ledger: &Ledger, config: Option<&Path>) {
    match apply::take_harmless(state, run, ledger, config) {
        Ok((review, held_back)) => {
            run.record.review = review;
            for line in held_back {
                print::note(&format!("held back: {line}"));
            }
        }
        Err(Failure { error, .. }) => {
            print::note("nothing was taken over; `belljar apply` tries again:");
            print::error(&error);
        }
    }
}

pub(crate) fn result(
    record: &RunRecord,
    template: &Template,
    finished: Finished,
    setup_micros: u64,
    changed_files: Option<u64>,
) -> RunResult {
    RunResult {
        run: record.id,
        name: record.name.clone(),
        exit: finished.exit,
        signal: finished.signal,
        reason: finished.reason,
        setup_micros,
        wall_micros: u64::try_from(finished.wall.as_micros()).unwrap_or(u64::MAX),
        cpu_micros: finished.cpu,
        peak_memory_bytes: finished.peak_memory,
        stdin_bytes: finished.stdin_bytes,
        output_bytes: finished.output,
        changed_files,
        layers: finished.layers,
        limits: template.limits.clone(),
    }
}

/// Records the end, and removes what nobody needs.
pub(crate) fn settle(run: &mut Run, result: Option<RunResult>, state: &State) {
    run.record.state = RunState::Finished;
    run.record.result = result;
    if !run.record.review.waits() {
        run.remove_layers();
    }
    if let Err(error) = run.save() {
        print::error(&error);
    }
    // Now and then, so that the list of runs does not grow for ever.
    if run.id().millis().is_multiple_of(64) {
        state.prune().ok(); // tried again by a later run
    }
}

/// What the operator should know beyond the program's own output.
fn say(result: &RunResult, args: &RunArgs) {
    if result.reason.is_limit() {
        print::note(result.reason.sentence());
    }
    if let Some(changed) = result.changed_files.filter(|changed| *changed > 0)
        && std::io::stderr().is_terminal()
        && !args.json
    {
        let id = result
            .name
            .as_ref()
            .map_or_else(|| result.run.to_string(), |name| name.as_str().to_owned());
        print::note(&format!(
            "{changed} changed; look: belljar diff {id}, take: belljar apply {id}, drop: belljar discard {id}"
        ));
    }
}

/// Everything that the payload finds in its environment.
pub(crate) fn environment(
    template: &Template,
    id: RunId,
    interactive: bool,
) -> Vec<(OsString, OsString)> {
    let user = if template.user == 0 { "root" } else { "user" };
    let mut env: Vec<(OsString, OsString)> = [
        ("PATH", view::PATH),
        ("HOME", view::HOME),
        ("USER", user),
        ("LOGNAME", user),
        ("LANG", "C.UTF-8"),
        ("BELLJAR_RUN", &id.to_string()),
    ]
    .map(|(name, value)| (name.into(), value.into()))
    .to_vec();
    if interactive {
        let term = std::env::var_os("TERM").unwrap_or_else(|| "xterm".into());
        env.push(("TERM".into(), term));
    }
    for variable in &template.env {
        let value = match variable.value() {
            Some(value) => Some(OsString::from(value)),
            None => std::env::var_os(variable.name()),
        };
        env.retain(|(name, _)| name != variable.name());
        env.extend(value.map(|value| (variable.name().into(), value)));
    }
    env
}

fn wants_terminal(args: &RunArgs) -> bool {
    let is_terminal = |fd: BorrowedFd<'_>| rustix::termios::isatty(fd);
    if args.tty || args.no_tty {
        return args.tty && !args.no_tty;
    }
    is_terminal(std::io::stdin().as_fd()) && is_terminal(std::io::stdout().as_fd())
}

pub(crate) fn new_id() -> Result<(RunId, u32), Failure> {
    let mut random = [0; 8];
    rustix::rand::getrandom(&mut random, rustix::rand::GetRandomFlags::empty())
        .context("get random bytes")
        .code(NO_BOX)?;
    let [a, b, c, d, e, f, g, h] = random;
    let millis = u64::try_from(now().as_millis()).unwrap_or(0);
    Ok((RunId::new(millis, u32::from_ne_bytes([a, b, c, d])), u32::from_ne_bytes([e, f, g, h])))
}

pub(crate) fn now() -> std::time::Duration {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default()
}
