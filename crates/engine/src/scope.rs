//! The engine and its scopes: the store of one tenant with the host, the clock and the observer.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::anyhow;
use belljar_model::net::SecretDecl;
use belljar_model::quota::RunLimits;
use belljar_model::tenant::BoxCeiling;
use belljar_model::{Caller, Config, Limits, RunId, Scope};

use crate::clock::Clock;
use crate::config::{self, ConfigFingerprint, Source};
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
        let (caller, shared) = (caller.clone(), Arc::clone(&self.shared));
        Ok(Scoped { store, caller, run_limits: RunLimits::default(), shared })
    }
}

/// The part of the engine that belongs to one tenant, used by one caller. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Scoped {
    store: Store,
    caller: Caller,
    run_limits: RunLimits,
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
        Ok(Self { store, caller, run_limits: RunLimits::default(), shared })
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

    /// Returns this scope with limits for the runs that its caller submits.
    #[must_use]
    pub fn with_run_limits(self, run_limits: RunLimits) -> Self {
        Self { run_limits, ..self }
    }

    /// Returns the limits for the runs that the caller submits.
    pub(crate) const fn run_limits(&self) -> RunLimits {
        self.run_limits
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

    /// Returns whether the tenant is `local`, whose owner is the user of the machine.
    pub(crate) fn is_local(&self) -> bool {
        self.caller.tenant.is_local()
    }

    /// Returns the environment of the user whose tenant this is. Other tenants get none of the user's files
    /// and variables.
    pub fn user(&self) -> Option<&HostEnv> {
        Some(self.host()).filter(|_| self.is_local())
    }

    /// Returns the state directory of the engine without symbolic links. It contains those of all tenants.
    pub fn root(&self) -> &Path {
        let home = self.home();
        let root = home.parent().and_then(Path::parent).filter(|_| !self.is_local());
        root.unwrap_or(home)
    }

    /// Returns the operator's configuration file, if it is not at the default path. Other tenants than `local`
    /// have a policy in the place of this file.
    pub fn config_file(&self) -> Option<&Path> {
        self.operator_file().filter(|_| self.is_local())
    }

    /// Returns the operator's configuration file, if it is not at the default path.
    pub(crate) fn operator_file(&self) -> Option<&Path> {
        self.shared.config.config_file.as_deref()
    }

    /// Returns the file with the policy of a tenant other than `local`.
    pub fn policy_file(&self) -> Option<PathBuf> {
        (!self.is_local()).then(|| self.store.layout().policy())
    }

    /// Loads the configuration for a workspace, with the files that it was read from.
    pub fn load_config(
        &self,
        workspace: Option<&Path>,
    ) -> Result<(Config, Vec<Source>), EngineError> {
        self.load_config_from(self.config_file(), workspace)
    }

    /// Loads the configuration for a workspace as [`Self::load_config`] does, from another file of the
    /// operator. For a tenant other than `local`, the file has no meaning.
    pub fn load_config_from(
        &self,
        file: Option<&Path>,
        workspace: Option<&Path>,
    ) -> Result<(Config, Vec<Source>), EngineError> {
        let (config, sources) = match self.policy_file() {
            None => config::load_from(self.host(), file, workspace)?,
            Some(policy) => {
                config::load_of_tenant(self.host(), self.operator_file(), &policy, workspace)?
            }
        };
        let config = config.with_secrets(self.declared_secrets()?);
        tracing::debug!(files = sources.len(), "configuration loaded");
        Ok((config, sources))
    }

    /// Reads the declarations of the secrets that were set with the API of the server.
    pub(crate) fn declared_secrets(&self) -> Result<Vec<SecretDecl>, EngineError> {
        config::read_declared(&self.store.layout().declared_secrets(), self.policy_scope())
    }

    /// Returns what the policy of the tenant can contain.
    pub(crate) fn policy_scope(&self) -> Scope {
        if self.is_local() { Scope::Operator } else { Scope::Tenant }
    }

    /// Loads the operator's configuration, without that of a project or of a tenant.
    pub fn load_operator_config(&self) -> Result<Config, EngineError> {
        config::load_operator(self.host(), self.operator_file())
    }

    /// Returns the identities of the files that [`Self::load_config`] reads.
    pub fn config_fingerprint(&self, workspace: Option<&Path>) -> ConfigFingerprint {
        let (host, file) = (self.host(), self.operator_file());
        let own = [self.policy_file(), Some(self.store.layout().declared_secrets())];
        ConfigFingerprint::of(host, file, own, workspace)
    }

    /// Returns the upper limits of every box of the tenant; `None` for `local`, whose templates limit its boxes.
    pub fn ceiling(&self) -> Result<Option<BoxCeiling>, EngineError> {
        match self.is_local() {
            true => Ok(None),
            false => Ok(self.load_operator_config()?.tenant_ceiling(&self.caller.tenant)),
        }
    }

    /// Lowers the limits of a box to those that the operator permits the tenant.
    pub(crate) fn clamp(&self, limits: &mut Limits) -> Result<(), EngineError> {
        if let Some(ceiling) = self.ceiling()? {
            *limits = ceiling.clamp(limits);
        }
        Ok(())
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
    of_test_caller(home, local_caller())
}

/// Opens the scope of a caller on the directory of a test.
#[cfg(test)]
pub(crate) fn of_test_caller(home: &Path, caller: Caller) -> Scoped {
    let host = HostEnv::new(belljar_testkit::environment(), PathBuf::from("/proc/self/exe"));
    let clock = Clock::new(belljar_testkit::wall_clock);
    let observer = Arc::new(crate::notice::Silent);
    let config = EngineConfig { home: home.to_owned(), config_file: None, host };
    Scoped::open(config, clock, observer, caller).unwrap()
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

    /// Opens the scope of a tenant with this text as the operator's file and as its policy.
    fn of_tenant(home: &Path, tenant: &str, operator: &str, policy: Option<&str>) -> Scoped {
        std::fs::write(home.join("belljar.toml"), operator).unwrap();
        let host = HostEnv::new([("HOME".into(), home.into())], PathBuf::from("/proc/self/exe"));
        let config_file = Some(home.join("belljar.toml"));
        let config = EngineConfig { home: home.to_owned(), config_file, host };
        let clock = Clock::new(belljar_testkit::wall_clock);
        let caller = Caller { tenant: tenant.parse().unwrap(), ..local_caller() };
        let state = Scoped::open(config, clock, Arc::new(crate::notice::Silent), caller).unwrap();
        if let Some(policy) = policy {
            std::fs::write(state.policy_file().unwrap(), policy).unwrap();
        }
        state
    }

    #[test]
    fn tenant_has_its_own_policy_with_the_limits_and_the_proxy_of_the_operator() {
        let dir = tempfile::tempdir().unwrap();
        let operator = "[template.secret]\nmounts = ['/etc:/data']\n[proxy]\nurl = 'http://p:1'\n[tenant.team-7]\nlimits = { memory = '1GiB' }\n";
        let state = of_tenant(dir.path(), "team-7", operator, None);
        let (config, sources) = state.load_config(None).unwrap();
        assert_eq!(config.names(), ["default"], "the operator's templates are not visible");
        assert!(config.proxy().is_some() && sources.is_empty());
        let before = state.config_fingerprint(None);
        std::fs::write(state.policy_file().unwrap(), "[template.own]\nmemory = '4GiB'\n").unwrap();
        assert_ne!(state.config_fingerprint(None), before);
        let (config, sources) = state.load_config_from(Some(Path::new("/x.toml")), None).unwrap();
        assert_eq!(config.names(), ["default", "own"]);
        assert_eq!(sources.first().unwrap().scope, "tenant");
        let mut limits = config.template("own").unwrap().limits;
        state.clamp(&mut limits).unwrap();
        assert_eq!(limits.memory.as_u64(), 1 << 30);
        assert!(state.user().is_none() && state.config_file().is_none());
        assert_eq!(state.root(), state.home().parent().unwrap().parent().unwrap());

        let local = of_tenant(dir.path(), "local", operator, None);
        assert_eq!(local.load_config(None).unwrap().0.names(), ["default", "secret"], "control");
        assert!(local.user().is_some() && local.ceiling().unwrap().is_none());
        assert_eq!((local.root(), local.policy_file()), (local.home(), None));
    }

    #[test]
    fn policy_of_a_tenant_that_uses_the_host_is_refused_when_it_is_read() {
        let dir = tempfile::tempdir().unwrap();
        let policy = "[template.x]\nmounts = ['/etc:/data']\n";
        let state = of_tenant(dir.path(), "team-7", "", Some(policy));
        let error = format!("{:#}", state.load_config(None).unwrap_err());
        assert!(error.contains("policy.toml:2: `mounts`"), "{error}");
    }

    #[test]
    fn for_caller_refuses_a_caller_of_another_tenant() {
        let dir = tempfile::tempdir().unwrap();
        let caller = Caller { tenant: "team-7".parse().unwrap(), ..local_caller() };
        let error = of_test(dir.path()).for_caller(caller).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Refused);
    }
}
