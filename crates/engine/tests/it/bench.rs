//! An engine on a state directory of its own, and what a test needs to run programs with it.

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

/// The program that the engine starts for its own processes.
const ROLES: &str = env!("CARGO_BIN_EXE_belljar-roles");

/// Directories of one test and an engine on them. Removed when dropped.
#[derive(Debug)]
pub(crate) struct Bench {
    pub(crate) lab: Lab,
    pub(crate) state: Scoped,
    notices: Arc<Notices>,
}

/// How a run ended and what its program wrote.
#[derive(Debug)]
pub(crate) struct Ended {
    pub(crate) result: RunResult,
    pub(crate) out: String,
    pub(crate) err: String,
}

/// Keeps every notice.
#[derive(Debug, Default)]
struct Notices(Mutex<Vec<Notice>>);

impl Observer for Notices {
    fn notice(&self, notice: &Notice) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push(notice.clone());
    }
}

impl Bench {
    pub(crate) fn new() -> Self {
        Self::with_variables(&[])
    }

    /// With these variables in the environment of the host.
    pub(crate) fn with_variables(more: &[(&str, &str)]) -> Self {
        let lab = Lab::new(ROLES.into());
        let (state, notices) = open(&lab, &lab.state(), more).unwrap();
        Self { lab, state, notices }
    }

    /// The notices so far, as a person reads them.
    pub(crate) fn notices(&self) -> Vec<String> {
        let all = self.notices.0.lock().unwrap_or_else(PoisonError::into_inner);
        all.iter().map(ToString::to_string).collect()
    }

    /// `bash -c SCRIPT` on the workspace of the lab, with overrides as in a spec.
    pub(crate) fn spec(&self, overrides: Value, script: &str) -> RunSpec {
        self.spec_on(&self.lab.workspace(), overrides, &["bash", "-c", script])
    }

    pub(crate) fn spec_on(&self, dir: &Path, overrides: Value, argv: &[&str]) -> RunSpec {
        let on = BoxSpec {
            overrides: serde_json::from_value(overrides).unwrap(),
            workspace: WorkspaceSpec::Directory(dir.to_owned()),
            ..BoxSpec::default()
        };
        let program = Argv::new(argv.iter().copied()).unwrap();
        RunSpec { version: SpecVersion::default(), name: None, on, program, terminal: None }
    }

    /// Builds the box of a run. Its program waits.
    pub(crate) fn start(&self, spec: &RunSpec) -> Result<StartedRun, EngineError> {
        let options = RunOptions { current_dir: self.lab.workspace() };
        run::start(&self.state, spec, &options)
    }

    /// Starts the program with an empty input, and waits for its end.
    pub(crate) fn supervise(&self, started: StartedRun) -> Result<Ended, EngineError> {
        self.supervise_with(started, b"")
    }

    pub(crate) fn supervise_with(
        &self,
        started: StartedRun,
        input: &[u8],
    ) -> Result<Ended, EngineError> {
        let (mut from, mut output, mut error) = (file(), file(), file());
        from.write_all(input).unwrap();
        from.rewind().unwrap();
        let streams = Streams {
            input: from.as_fd(),
            output: output.as_fd(),
            error: error.as_fd(),
            filter: &mut |_, chunk, kept| kept.extend_from_slice(chunk),
            stop: None,
        };
        let end = started.supervise(&self.state, streams, || ())?;
        Ok(Ended { result: end.result, out: text(&mut output), err: text(&mut error) })
    }

    pub(crate) fn try_run(&self, spec: &RunSpec) -> Result<Ended, EngineError> {
        self.supervise(self.start(spec)?)
    }

    /// Runs a script to its end, whatever that is.
    #[track_caller]
    pub(crate) fn run(&self, overrides: Value, script: &str) -> Ended {
        self.try_run(&self.spec(overrides, script)).unwrap()
    }

    /// Runs a script that has to exit with 0; what it wrote, without the last newline.
    #[track_caller]
    pub(crate) fn succeed(&self, overrides: Value, script: &str) -> String {
        self.run(overrides, script).succeeded()
    }

    /// The same in another directory.
    #[track_caller]
    pub(crate) fn succeed_on(&self, dir: &Path, argv: &[&str]) -> String {
        let spec = self.spec_on(dir, Value::Object(serde_json::Map::new()), argv);
        self.try_run(&spec).unwrap().succeeded()
    }

    /// Insists that a run is refused in this way, and returns the whole message.
    #[track_caller]
    pub(crate) fn refused(&self, spec: &RunSpec, kind: ErrorKind) -> String {
        let error = self.try_run(spec).unwrap_err();
        assert_eq!(error.kind(), kind, "{error:#}");
        format!("{error:#}")
    }

    /// Every event of the ledger, as `belljar ledger log --json` writes it.
    pub(crate) fn events(&self) -> Vec<Value> {
        let reader = Reader::open(&LedgerPaths::under(self.state.home())).unwrap();
        let mut events = Vec::new();
        let mut keep = |row: &Row| {
            events.push(event(row.index, &row.leaf, &read(&reader, row)?));
            Ok(true)
        };
        each(&reader, Query::default(), &mut keep).unwrap();
        events
    }

    /// Directories of all runs, oldest first.
    pub(crate) fn runs(&self) -> Vec<PathBuf> {
        self.lab.runs()
    }
}

impl Ended {
    /// Insists on exit code 0; what was written to stdout, without the last newline.
    #[track_caller]
    pub(crate) fn succeeded(&self) -> String {
        assert_eq!(self.result.exit, Some(0), "{:?} {}", self.result, self.err);
        self.out.trim_end_matches('\n').to_owned()
    }
}

/// An engine on a state directory, with the environment of a user whose home is the lab's.
pub(crate) fn open_engine(lab: &Lab, home: &Path) -> Result<Scoped, EngineError> {
    open(lab, home, &[]).map(|(state, _)| state)
}

fn open(
    lab: &Lab,
    home: &Path,
    more: &[(&str, &str)],
) -> Result<(Scoped, Arc<Notices>), EngineError> {
    let path = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";
    let mut variables = vec![("PATH".into(), path.into()), ("HOME".into(), lab.home().into())];
    variables.extend(more.iter().map(|(name, value)| (name.into(), value.into())));
    let roles = RoleProgram::Path(ROLES.into());
    let host = HostEnv { roles, ..HostEnv::new(variables, ROLES.into()) };
    let config = EngineConfig { home: home.to_owned(), config_file: None, host };
    let notices = Arc::new(Notices::default());
    let observer: Arc<dyn Observer> = Arc::clone(&notices) as Arc<dyn Observer>;
    let engine = Engine::open(config, Clock::new(belljar_testkit::wall_clock), observer)?;
    Ok((engine.of(&local_caller())?, notices))
}

fn file() -> File {
    tempfile::tempfile().unwrap()
}

fn text(file: &mut File) -> String {
    let mut bytes = Vec::new();
    file.rewind().unwrap();
    file.read_to_end(&mut bytes).unwrap();
    String::from_utf8_lossy(&bytes).into_owned()
}
