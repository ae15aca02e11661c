//! What every operation needs: the store of one tenant, the host, the clock and the observer.

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

/// What an engine is opened with.
#[derive(Clone, Debug)]
pub struct EngineConfig {
    /// The state directory. It is made if it is missing.
    pub home: PathBuf,
    /// The operator's configuration file, if not the usual one.
    pub config_file: Option<PathBuf>,
    pub host: HostEnv,
}

/// Everything that Belljar does, on one state directory.
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

    /// The part of the engine that belongs to the caller's tenant. What is done there records the caller.
    pub fn of(&self, caller: &Caller) -> Result<Scoped, EngineError> {
        let home = Layout::directory(&self.shared.config.home, &caller.tenant);
        let store = Store::open(&home)?;
        Ok(Scoped { store, caller: caller.clone(), shared: Arc::clone(&self.shared) })
    }
}

/// One tenant's part of an engine, on behalf of one caller. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Scoped {
    store: Store,
    caller: Caller,
    shared: Arc<Shared>,
}

impl Scoped {
    /// The part of the local tenant, for the user of this process.
    pub fn local(
        config: EngineConfig,
        clock: Clock,
        observer: Arc<dyn Observer>,
    ) -> Result<Self, EngineError> {
        Self::open(config, clock, observer, local_caller())
    }

    /// The part of the caller's tenant.
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

    /// The state directory of the engine, which has the directories of all tenants.
    pub(crate) fn engine_home(&self) -> &Path {
        &self.shared.config.home
    }

    /// Who asks for what is done here.
    pub const fn caller(&self) -> &Caller {
        &self.caller
    }

    /// The same for another caller of the same tenant.
    pub fn for_caller(&self, caller: Caller) -> Result<Self, EngineError> {
        if caller.tenant != self.caller.tenant {
            let (ours, theirs) = (&self.caller.tenant, &caller.tenant);
            let error = anyhow!("the data is of tenant {ours}, the caller is of tenant {theirs}");
            return Err(EngineError::new(ErrorKind::Refused, error));
        }
        Ok(Self { caller, ..self.clone() })
    }

    pub const fn store(&self) -> &Store {
        &self.store
    }

    /// The state directory.
    pub fn home(&self) -> &Path {
        self.store.home()
    }

    pub fn host(&self) -> &HostEnv {
        &self.shared.config.host
    }

    pub fn clock(&self) -> Clock {
        self.shared.clock
    }

    /// The operator's configuration file that was chosen instead of the usual one.
    pub fn config_file(&self) -> Option<&Path> {
        self.shared.config.config_file.as_deref()
    }

    /// The configuration in force for a workspace, with the files that it comes from.
    pub fn load_config(
        &self,
        workspace: Option<&Path>,
    ) -> Result<(Config, Vec<Source>), EngineError> {
        let (config, sources) = config::load_from(self.host(), self.config_file(), workspace)?;
        tracing::debug!(files = sources.len(), "configuration is read");
        Ok((config, sources))
    }

    pub fn new_id(&self) -> Result<(RunId, u32), EngineError> {
        self.clock().new_id()
    }

    /// Receives the notices of this scope.
    pub(crate) fn observer(&self) -> &Arc<dyn Observer> {
        &self.shared.observer
    }

    pub fn notice(&self, notice: &Notice) {
        self.shared.observer.notice(notice);
    }

    /// Reports a step that failed without ending the operation.
    pub fn failed(&self, error: &anyhow::Error) {
        tracing::warn!("a step failed and the operation goes on");
        self.notice(&Notice::Failed(format!("{error:#}")));
    }
}

/// The user that this process runs as, on the tenant `local`.
pub fn local_caller() -> Caller {
    Caller::local(rustix::process::getuid().as_raw())
}

/// A scope on a directory of a test, with the environment and the clock of the test process.
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
    fn scope_for_another_session_has_its_caller() {
        let dir = tempfile::tempdir().unwrap();
        let caller = Caller { session: Some(SessionId::new([7; 16])), ..local_caller() };
        let scope = of_test(dir.path()).for_caller(caller.clone()).unwrap();
        assert_eq!(scope.caller(), &caller);
    }

    #[test]
    fn caller_of_another_tenant_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let caller = Caller { tenant: "team-7".parse().unwrap(), ..local_caller() };
        let error = of_test(dir.path()).for_caller(caller).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Refused);
    }
}
