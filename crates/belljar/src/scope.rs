//! Opens the engine for a command, with the environment, the clock and the printer of this process.

use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};
use std::time::SystemTime;

use anyhow::Context as _;
use belljar_engine::clock::Clock;
use belljar_engine::error::{EngineError, ErrorKind, WithKind as _};
use belljar_engine::host::HostEnv;
use belljar_engine::scope::{Engine, EngineConfig, Scoped};

use crate::print::Printer;

/// The system clock.
pub(crate) const CLOCK: Clock = Clock::new(SystemTime::now);

/// Returns the environment variables and the executable of this process.
pub(crate) fn host() -> &'static HostEnv {
    static HOST: OnceLock<HostEnv> = OnceLock::new();
    HOST.get_or_init(|| {
        HostEnv::new(std::env::vars_os(), std::env::current_exe().unwrap_or_default())
    })
}

/// Returns the current directory.
pub(crate) fn current_dir() -> Result<PathBuf, EngineError> {
    std::env::current_dir()
        .context("cannot determine the current directory")
        .kind(ErrorKind::Broken)
}

/// Opens the engine for a server, which has several tenants.
pub(crate) fn engine(config: Option<&Path>) -> Result<Engine, EngineError> {
    // A server uses the file for boxes that start in other directories.
    let config_file =
        config.map(|file| std::path::absolute(file).unwrap_or_else(|_| file.to_owned()));
    let config = EngineConfig { home: host().state_dir()?, config_file, host: host().clone() };
    Engine::open(config, CLOCK, Arc::new(Printer))
}

/// Opens the engine on the state directory. `config` is the file that the option `--config` names.
pub(crate) fn open(config: Option<&Path>) -> Result<Scoped, EngineError> {
    let home = host().state_dir()?;
    let config_file = config.map(Path::to_owned);
    let config = EngineConfig { home, config_file, host: host().clone() };
    Scoped::local(config, CLOCK, Arc::new(Printer))
}
