//! What every operation needs: the store of one tenant, the host, the clock and the observer.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use belljar_model::{Caller, Config, RunId};

use crate::clock::Clock;
use crate::config::{self, Source};
use crate::error::EngineError;
use crate::host::HostEnv;
use crate::notice::{Notice, Observer};
use crate::store::Store;

/// One tenant's part of an engine. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Scoped {
    store: Store,
    caller: Caller,
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    host: HostEnv,
    config_file: Option<PathBuf>,
    clock: Clock,
    observer: Arc<dyn Observer>,
}

impl Scoped {
    pub fn new(
        store: Store,
        caller: Caller,
        host: HostEnv,
        config_file: Option<PathBuf>,
        clock: Clock,
        observer: Arc<dyn Observer>,
    ) -> Self {
        Self { store, caller, shared: Arc::new(Shared { host, config_file, clock, observer }) }
    }

    /// Who asks for what is done here.
    pub const fn caller(&self) -> &Caller {
        &self.caller
    }

    pub const fn store(&self) -> &Store {
        &self.store
    }

    /// The state directory.
    pub fn home(&self) -> &Path {
        self.store.home()
    }

    pub fn host(&self) -> &HostEnv {
        &self.shared.host
    }

    pub fn clock(&self) -> Clock {
        self.shared.clock
    }

    /// The operator's configuration file that was chosen instead of the usual one.
    pub fn config_file(&self) -> Option<&Path> {
        self.shared.config_file.as_deref()
    }

    /// The configuration in force for a workspace, with the files that it comes from.
    pub fn load_config(
        &self,
        workspace: Option<&Path>,
    ) -> Result<(Config, Vec<Source>), EngineError> {
        config::load_from(self.host(), self.config_file(), workspace)
    }

    pub fn new_id(&self) -> Result<(RunId, u32), EngineError> {
        self.clock().new_id()
    }

    pub fn notice(&self, notice: &Notice) {
        self.shared.observer.notice(notice);
    }

    /// Reports a step that failed without ending the operation.
    pub fn failed(&self, error: &anyhow::Error) {
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
    Scoped::new(Store::open(home).unwrap(), local_caller(), host, None, clock, observer)
}
