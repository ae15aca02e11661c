//! The apis that belljar.toml declares: services that programs in code mode may call.

mod add;

use belljar_model::Config;
use belljar_model::code::{Api, ApiName};

use crate::error::{EngineError, ErrorKind, WithKind as _};
use crate::scope::Scoped;

pub use add::{Addition, NewApi};
pub use belljar_code::api::{ApiQuery, Service, declarations};

/// The apis that the operator declared in belljar.toml.
#[derive(Debug)]
pub struct Apis {
    state: Scoped,
    config: Config,
}

/// A declared api and the service that it describes.
#[derive(Debug)]
pub struct ApiStatus {
    pub api: Api,
    /// The service with its API documents, or an error if the documents cannot be read.
    pub service: Result<Service, EngineError>,
}

impl Apis {
    /// Reads the apis from the operator's configuration file. A project cannot declare apis.
    pub fn open(state: &Scoped) -> Result<Self, EngineError> {
        let (config, _) = state.load_config(None)?;
        Ok(Self { state: state.clone(), config })
    }

    /// Returns all apis, sorted by name.
    pub fn list(&self) -> Vec<ApiStatus> {
        self.config.apis().values().map(|api| self.status(api)).collect()
    }

    pub fn get(&self, name: &ApiName) -> Result<ApiStatus, EngineError> {
        self.config.api(name).map(|api| self.status(api)).kind(ErrorKind::NotFound)
    }

    fn status(&self, api: &Api) -> ApiStatus {
        let home = self.state.host().user_home();
        let service = Service::read(api, &self.config, home.as_deref());
        ApiStatus { api: api.clone(), service: service.kind(ErrorKind::Broken) }
    }
}
