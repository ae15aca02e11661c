//! Runs a program in a box, applies its changes and verifies the ledger, without the command line.

#![expect(
    clippy::disallowed_methods,
    reason = "the example, not the engine, reads the environment and the clock"
)]

use std::error::Error;
use std::os::fd::AsFd as _;
use std::sync::Arc;

use belljar_engine::clock::Clock;
use belljar_engine::host::HostEnv;
use belljar_engine::launch::Streams;
use belljar_engine::notice::Silent;
use belljar_engine::roles::Role;
use belljar_engine::run::{self, RunOptions};
use belljar_engine::scope::{Engine, EngineConfig, local_caller};
use belljar_engine::{changes, record, review};
use belljar_ledger::{LedgerPaths, VerifyOptions, verify};
use belljar_model::permission::Permissions;
use belljar_model::spec::{Argv, BoxSpec, RunSpec, SpecVersion, WorkspaceSpec};

fn main() -> Result<(), Box<dyn Error>> {
    let host = HostEnv::new(std::env::vars_os(), std::env::current_exe()?);
    let clock = Clock::new(std::time::SystemTime::now);
    // The engine starts this program again under another name, for example as broker.
    if let Some(role) = std::env::args_os().next().and_then(|name| Role::parse(&name)) {
        return Ok(role.run(host, clock, Arc::new(Silent))?);
    }
    let dir = tempfile::tempdir()?;
    let (home, project) = (dir.path().join("state"), dir.path().join("project"));
    std::fs::create_dir(&project)?;
    let config = EngineConfig { home, config_file: None, host };
    let engine = Engine::open(config, clock, Arc::new(Silent))?.of(&local_caller())?;

    let program = Argv::new(["sh", "-c", "echo hello > /workspace/greeting.txt"])?;
    let on = BoxSpec { workspace: WorkspaceSpec::Directory(project.clone()), ..BoxSpec::default() };
    let spec = RunSpec { version: SpecVersion::default(), name: None, on, program, terminal: None };
    let options = RunOptions { current_dir: project.clone() };
    let null = std::fs::File::options().read(true).write(true).open("/dev/null")?;
    let (input, output, error) = (null.as_fd(), null.as_fd(), null.as_fd());
    let streams = Streams { input, output, error, filter: &mut |_, _, _| (), stop: None };
    let end = run::start(&engine, &spec, &options)?.supervise(&engine, streams, || ())?;
    assert_eq!((end.result.exit, end.result.changed_files), (Some(0), Some(1)));
    assert!(!project.join("greeting.txt").exists(), "changes must wait for review");

    let run = review::find(&engine, &project, Some(&end.result.run.to_string()))?;
    let (ledger, rules) = (record::open(&engine)?, Permissions::default());
    changes::apply_harmless(&engine, &run, &ledger, &rules)?;
    assert_eq!(std::fs::read_to_string(project.join("greeting.txt"))?, "hello\n");

    let report = verify(&LedgerPaths::under(engine.home()), VerifyOptions::default())?;
    assert!(report.is_sound(), "{report:?}");
    Ok(())
}
