//! The engine and its scopes: the store of one tenant with the host, the clock and the observer.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::anyhow;
use belljar_model::{Caller, Config, RunId};

use crate::clock::Clock;
use crate::config::{self, Source};
use crate::error::{EngineError, ErrorKind};
use crate::host::HostEnv;
use crate::notice::{Notice, Observer};
use crate::store::Store;
use crate::store::layout::Layout;

/// The configuration that an engine is opened with.
#[derive(Clone, Debug)]
pub struct EngineConfig {
    /// The state directory. The engine creates it if it does not exist.
    pub home: PathBuf,
    /// The operator's configuration file. `None` means the default path.
    pub config_file: Option<PathBuf>,
    pub host: HostEnv,
}

/// The engine of one state directory. [`Engine::of`] returns the part of one tenant.
#[derive(Clone, Debug)]
pub struct Engine {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    config: EngineConfig,
    clock: Clock,
    observer: Arc<dyn Observer>,
}

impl Engine {
    pub fn open(
        config: EngineConfig,
        clock: Clock,
        observer: Arc<dyn Observer>,
    ) -> Result<Self, EngineError> {
        Store::open(&config.home)?;
        Ok(Self { shared: Arc::new(Shared { config, clock, observer }) })
    }

    /// Returns the scope of the caller's tenant. Its operations record the caller in the ledger.
    pub fn of(&self, caller: &Caller) -> Result<Scoped, EngineError> {
        let home = Layout::directory(&self.shared.config.home, &caller.tenant);
        let store = Store::open(&home)?;
        Ok(Scoped { store, caller: caller.clone(), shared: Arc::clone(&self.shared) })
    }
}

/// The part of the engine that belongs to one tenant, used by one caller. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Scoped {
    store: Store,
    caller: Caller,
    shared: Arc<Shared>,
}

impl Scoped {
    /// Opens the scope of the tenant `local`, with the user of this process as the caller.
    pub fn local(
        config: EngineConfig,
        clock: Clock,
        observer: Arc<dyn Observer>,
    ) -> Result<Self, EngineError> {
        Self::open(config, clock, observer, local_caller())
    }

    /// Opens the scope of the caller's tenant.
    pub fn open(
        config: EngineConfig,
        clock: Clock,
        observer: Arc<dyn Observer>,
        caller: Caller,
    ) -> Result<Self, EngineError> {
        let store = Store::open(&Layout::directory(&config.home, &caller.tenant))?;
        let shared = Arc::new(Shared { config, clock, observer });
        Ok(Self { store, caller, shared })
    }

    /// Returns the state directory of the engine, which contains the directories of all tenants.
    pub(crate) fn engine_home(&self) -> &Path {
        &self.shared.config.home
    }

    /// Returns the caller that operations of this scope are recorded with.
    pub const fn caller(&self) -> &Caller {
        &self.caller
    }

    /// Returns this scope for another caller of the same tenant. Another tenant is an error.
    pub fn for_caller(&self, caller: Caller) -> Result<Self, EngineError> {
        if caller.tenant != self.caller.tenant {
            let (tenant, other) = (&self.caller.tenant, &caller.tenant);
            let error = anyhow!("a caller of tenant {other} cannot access data of tenant {tenant}");
            return Err(EngineError::new(ErrorKind::Refused, error));
        }
        Ok(Self { caller, ..self.clone() })
    }

    pub const fn store(&self) -> &Store {
        &self.store
    }

    /// Returns the state directory of the tenant.
    pub fn home(&self) -> &Path {
        self.store.home()
    }

    pub fn host(&self) -> &HostEnv {
        &self.shared.config.host
    }

    pub fn clock(&self) -> Clock {
        self.shared.clock
    }

    /// Returns the operator's configuration file, if it is not at the default path.
    pub fn config_file(&self) -> Option<&Path> {
        self.shared.config.config_file.as_deref()
    }

    /// Loads the configuration for a workspace, with the files that it was read from.
    pub fn load_config(
        &self,
        workspace: Option<&Path>,
    ) -> Result<(Config, Vec<Source>), EngineError> {
        let (config, sources) = config::load_from(self.host(), self.config_file(), workspace)?;
        tracing::debug!(files = sources.len(), "configuration loaded");
        Ok((config, sources))
    }

    pub fn new_id(&self) -> Result<(RunId, u32), EngineError> {
        self.clock().new_id()
    }

    /// Returns the observer that receives the notices of this scope.
    pub(crate) fn observer(&self) -> &Arc<dyn Observer> {
        &self.shared.observer
    }

    pub fn notice(&self, notice: &Notice) {
        self.shared.observer.notice(notice);
    }

    /// Sends a notice about a failed step of an operation that continues.
    pub fn failed(&self, error: &anyhow::Error) {
        tracing::warn!("a step failed; the operation continues");
        self.notice(&Notice::Failed(format!("{error:#}")));
    }
}

/// Returns the caller for the user of this process, in the tenant `local`.
pub fn local_caller() -> Caller {
    Caller::local(rustix::process::getuid().as_raw())
}

/// Opens a scope on the directory of a test, with the environment and the clock of the test process.
#[cfg(test)]
pub(crate) fn of_test(home: &Path) -> Scoped {
    let host = HostEnv::new(belljar_testkit::environment(), PathBuf::from("/proc/self/exe"));
    let clock = Clock::new(belljar_testkit::wall_clock);
    let observer = Arc::new(crate::notice::Silent);
    let config = EngineConfig { home: home.to_owned(), config_file: None, host };
    Scoped::local(config, clock, observer).unwrap()
}

#[cfg(test)]
mod tests {
    use belljar_model::caller::SessionId;

    use super::*;

    #[test]
    fn for_caller_returns_a_scope_with_the_given_caller() {
        let dir = tempfile::tempdir().unwrap();
        let caller = Caller { session: Some(SessionId::new([7; 16])), ..local_caller() };
        let scope = of_test(dir.path()).for_caller(caller.clone()).unwrap();
        assert_eq!(scope.caller(), &caller);
    }

    #[test]
    fn for_caller_refuses_a_caller_of_another_tenant() {
        let dir = tempfile::tempdir().unwrap();
        let caller = Caller { tenant: "team-7".parse().unwrap(), ..local_caller() };
        let error = of_test(dir.path()).for_caller(caller).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Refused);
    }
}
