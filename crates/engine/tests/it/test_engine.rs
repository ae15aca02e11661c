//! An engine for one test, with its own state directory, and functions that run programs with it.

use std::fs::File;
use std::io::{Read as _, Seek as _, Write as _};
use std::os::fd::AsFd as _;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use belljar_engine::clock::Clock;
use belljar_engine::error::{EngineError, ErrorKind};
use belljar_engine::host::{HostEnv, RoleProgram};
use belljar_engine::launch::Streams;
use belljar_engine::notice::{Notice, Observer};
use belljar_engine::record::json::event;
use belljar_engine::record::reading::{each, read};
use belljar_engine::run::{self, RunOptions, StartedRun};
use belljar_engine::scope::{Engine, EngineConfig, Scoped, local_caller};
use belljar_ledger::{LedgerPaths, Query, Reader, Row};
use belljar_model::RunResult;
use belljar_model::spec::{Argv, BoxSpec, RunSpec, SpecVersion, WorkspaceSpec};
use belljar_testkit::Lab;
use serde_json::Value;

/// The program that the engine starts as broker, supervisor and its other processes.
const ROLES: &str = env!("CARGO_BIN_EXE_belljar-roles");

/// An engine with the directories of one test, which are removed on drop.
#[derive(Debug)]
pub(crate) struct TestEngine {
    pub(crate) lab: Lab,
    pub(crate) state: Scoped,
    notices: Arc<Notices>,
}

/// The result of a finished run with the stdout and stderr of its program.
#[derive(Debug)]
pub(crate) struct FinishedRun {
    pub(crate) result: RunResult,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

/// An observer that stores every notice of the engine.
#[derive(Debug, Default)]
struct Notices(Mutex<Vec<Notice>>);

impl Observer for Notices {
    fn notice(&self, notice: &Notice) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push(notice.clone());
    }
}

impl TestEngine {
    pub(crate) fn new() -> Self {
        Self::with_variables(&[])
    }

    /// Creates an engine whose host environment also has these variables.
    pub(crate) fn with_variables(variables: &[(&str, &str)]) -> Self {
        let lab = Lab::new(ROLES.into());
        let (state, notices) = open(&lab, &lab.state(), variables).unwrap();
        Self { lab, state, notices }
    }

    /// Returns the text of all notices so far.
    pub(crate) fn notices(&self) -> Vec<String> {
        let all = self.notices.0.lock().unwrap_or_else(PoisonError::into_inner);
        all.iter().map(ToString::to_string).collect()
    }

    /// Returns a spec that runs `bash -c SCRIPT` in the workspace of the test, with these template overrides.
    pub(crate) fn spec(&self, overrides: Value, script: &str) -> RunSpec {
        self.spec_on(&self.lab.workspace(), overrides, &["bash", "-c", script])
    }

    /// Returns a spec that runs a program in a workspace directory, with these template overrides.
    pub(crate) fn spec_on(&self, dir: &Path, overrides: Value, argv: &[&str]) -> RunSpec {
        let on = BoxSpec {
            overrides: serde_json::from_value(overrides).unwrap(),
            workspace: WorkspaceSpec::Directory(dir.to_owned()),
            ..BoxSpec::default()
        };
        let program = Argv::new(argv.iter().copied()).unwrap();
        RunSpec { version: SpecVersion::default(), name: None, on, program, terminal: None }
    }

    /// Builds the box of a run. The program does not start before [`Self::supervise`].
    pub(crate) fn start(&self, spec: &RunSpec) -> Result<StartedRun, EngineError> {
        let options = RunOptions { current_dir: self.lab.workspace() };
        run::start(&self.state, spec, &options)
    }

    /// Starts the program of a run with empty stdin and waits until it has ended.
    pub(crate) fn supervise(&self, started: StartedRun) -> Result<FinishedRun, EngineError> {
        self.supervise_with(started, b"")
    }

    /// Starts the program of a run with this stdin and waits until it has ended.
    pub(crate) fn supervise_with(
        &self,
        started: StartedRun,
        input: &[u8],
    ) -> Result<FinishedRun, EngineError> {
        let (mut stdin, mut stdout, mut stderr) = (temp_file(), temp_file(), temp_file());
        stdin.write_all(input).unwrap();
        stdin.rewind().unwrap();
        let streams = Streams {
            input: stdin.as_fd(),
            output: stdout.as_fd(),
            error: stderr.as_fd(),
            filter: &mut |_, chunk, kept| kept.extend_from_slice(chunk),
            stop: None,
        };
        let ended = started.supervise(&self.state, streams, || ())?;
        Ok(FinishedRun {
            result: ended.result,
            stdout: read_all(&mut stdout),
            stderr: read_all(&mut stderr),
        })
    }

    /// Runs a spec until its program has ended.
    pub(crate) fn try_run(&self, spec: &RunSpec) -> Result<FinishedRun, EngineError> {
        self.supervise(self.start(spec)?)
    }

    /// Runs a script until it has ended, with any exit status.
    #[track_caller]
    pub(crate) fn run(&self, overrides: Value, script: &str) -> FinishedRun {
        self.try_run(&self.spec(overrides, script)).unwrap()
    }

    /// Runs a script, expects exit status 0, and returns its stdout without the last newline.
    #[track_caller]
    pub(crate) fn succeed(&self, overrides: Value, script: &str) -> String {
        self.run(overrides, script).succeeded()
    }

    /// Runs a program in another workspace, expects exit status 0, and returns its stdout without the last newline.
    #[track_caller]
    pub(crate) fn succeed_on(&self, dir: &Path, argv: &[&str]) -> String {
        let spec = self.spec_on(dir, Value::Object(serde_json::Map::new()), argv);
        self.try_run(&spec).unwrap().succeeded()
    }

    /// Expects that a run fails with an error of this kind, and returns the message with its causes.
    #[track_caller]
    pub(crate) fn fail(&self, spec: &RunSpec, kind: ErrorKind) -> String {
        let error = self.try_run(spec).unwrap_err();
        assert_eq!(error.kind(), kind, "{error:#}");
        format!("{error:#}")
    }

    /// Returns all events of the ledger, as `belljar ledger log --json` prints them.
    pub(crate) fn events(&self) -> Vec<Value> {
        let reader = Reader::open(&LedgerPaths::under(self.state.home())).unwrap();
        let mut events = Vec::new();
        let mut collect = |row: &Row| {
            events.push(event(row.index, &row.leaf, &read(&reader, row)?));
            Ok(true)
        };
        each(&reader, Query::default(), &mut collect).unwrap();
        events
    }

    /// Returns the directories of all runs, oldest first.
    pub(crate) fn runs(&self) -> Vec<PathBuf> {
        self.lab.runs()
    }
}

impl FinishedRun {
    /// Expects exit status 0 and returns stdout without the last newline.
    #[track_caller]
    pub(crate) fn succeeded(&self) -> String {
        assert_eq!(self.result.exit, Some(0), "{:?} {}", self.result, self.stderr);
        self.stdout.trim_end_matches('\n').to_owned()
    }
}

/// Opens an engine on a state directory. The home directory of its user is that of the lab.
pub(crate) fn open_engine(lab: &Lab, home: &Path) -> Result<Scoped, EngineError> {
    open(lab, home, &[]).map(|(state, _)| state)
}

/// Opens an engine that searches programs in the directories of `path`.
pub(crate) fn open_engine_with_path(
    lab: &Lab,
    home: &Path,
    path: &str,
) -> Result<Scoped, EngineError> {
    open(lab, home, &[("PATH", path)]).map(|(state, _)| state)
}

/// Opens an engine whose clock was set back by one hour.
pub(crate) fn open_engine_with_old_clock(lab: &Lab) -> Scoped {
    fn an_hour_ago() -> std::time::SystemTime {
        belljar_testkit::wall_clock() - std::time::Duration::from_hours(1)
    }
    open_clock(&lab.home(), &lab.state(), &[], Clock::new(an_hour_ago)).unwrap().0
}

/// Opens an engine with another clock, whose host environment also has these variables. It cannot start
/// processes, because they would have the real clock.
pub(crate) fn open_engine_with_clock(
    lab: &Lab,
    variables: &[(&str, &str)],
    clock: fn() -> std::time::SystemTime,
) -> Scoped {
    let roles = Path::new("/nonexistent/belljar-roles");
    open_roles(&lab.home(), &lab.state(), variables, Clock::new(clock), roles).unwrap().0
}

/// Opens an engine with another clock. The processes that it starts have the real clock.
pub(crate) fn open_engine_at(lab: &Lab, clock: fn() -> std::time::SystemTime) -> Scoped {
    open_clock(&lab.home(), &lab.state(), &[], Clock::new(clock)).unwrap().0
}

/// Opens the state directory of another test process.
pub(crate) fn open_state(user_home: &Path, home: &Path) -> Scoped {
    open_for(user_home, home, &[]).map(|(state, _)| state).unwrap()
}

fn open(
    lab: &Lab,
    home: &Path,
    extra_variables: &[(&str, &str)],
) -> Result<(Scoped, Arc<Notices>), EngineError> {
    open_for(&lab.home(), home, extra_variables)
}

fn open_for(
    user_home: &Path,
    home: &Path,
    extra_variables: &[(&str, &str)],
) -> Result<(Scoped, Arc<Notices>), EngineError> {
    open_clock(user_home, home, extra_variables, Clock::new(belljar_testkit::wall_clock))
}

fn open_clock(
    user_home: &Path,
    home: &Path,
    extra_variables: &[(&str, &str)],
    clock: Clock,
) -> Result<(Scoped, Arc<Notices>), EngineError> {
    open_roles(user_home, home, extra_variables, clock, Path::new(ROLES))
}

fn open_roles(
    user_home: &Path,
    home: &Path,
    extra_variables: &[(&str, &str)],
    clock: Clock,
    roles: &Path,
) -> Result<(Scoped, Arc<Notices>), EngineError> {
    let path = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";
    let mut variables = vec![("PATH".into(), path.into()), ("HOME".into(), user_home.into())];
    variables.extend(extra_variables.iter().map(|(name, value)| (name.into(), value.into())));
    let roles = RoleProgram::Path(roles.to_owned());
    let host = HostEnv { roles, ..HostEnv::new(variables, ROLES.into()) };
    let config = EngineConfig { home: home.to_owned(), config_file: None, host };
    let notices = Arc::new(Notices::default());
    let observer: Arc<dyn Observer> = Arc::clone(&notices) as Arc<dyn Observer>;
    let engine = Engine::open(config, clock, observer)?;
    Ok((engine.of(&local_caller())?, notices))
}

fn temp_file() -> File {
    tempfile::tempfile().unwrap()
}

fn read_all(file: &mut File) -> String {
    let mut bytes = Vec::new();
    file.rewind().unwrap();
    file.read_to_end(&mut bytes).unwrap();
    String::from_utf8_lossy(&bytes).into_owned()
}
