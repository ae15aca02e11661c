//! The tools of all tenants of a server. Each tenant has its own programs, skills and tool servers.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use belljar_engine::error::EngineError;
use belljar_engine::programs::Programs;
use belljar_engine::scope::Engine;
use belljar_engine::skills::Skills;
use belljar_model::Caller;
use belljar_model::caller::TenantId;
use serde_json::{Map, Value};
use tokio::sync::OnceCell;

use super::McpService;
use crate::mcp::context::{CallContext, StateLifetime};
use crate::mcp::service::{
    About, CallError, CallOutcome, PromptError, PromptSpec, PromptText, ReadError,
    ResourceContents, ResourceSpec, ResourceTemplateSpec, Service, ToolSpec,
};

/// The MCP tools of all tenants. The service of a tenant is created for its first request.
#[derive(Debug)]
pub struct TenantServices {
    engine: Engine,
    local: Arc<McpService>,
    others: Mutex<HashMap<TenantId, Arc<OnceCell<Arc<McpService>>>>>,
}

impl TenantServices {
    /// Makes the services of a server. `local` is the service of the tenant `local`.
    pub fn new(engine: Engine, local: Arc<McpService>) -> Self {
        Self { engine, local, others: Mutex::default() }
    }

    /// Ends all sessions and tool servers of all tenants.
    pub async fn close(&self) {
        let others = std::mem::take(&mut *self.others());
        let others = others.into_values().filter_map(|cell| cell.get().map(Arc::clone));
        for service in others.chain([Arc::clone(&self.local)]) {
            service.close().await;
            service.programs.servers.stop().await;
        }
    }

    async fn of(&self, caller: &Caller) -> Result<Arc<McpService>, String> {
        if caller.tenant.is_local() {
            return Ok(Arc::clone(&self.local));
        }
        let cell = Arc::clone(self.others().entry(caller.tenant.clone()).or_default());
        let opened = cell.get_or_try_init(|| async {
            let owner = Caller { session: None, client: None, ..caller.clone() };
            let engine = self.engine.clone();
            let opened = tokio::task::spawn_blocking(move || open(&engine, &owner)).await;
            let opened = opened.map_err(|_| "the tools cannot be loaded".to_owned())?;
            opened.map(Arc::new).map_err(|error| format!("{error:#}"))
        });
        opened.await.map(Arc::clone)
    }

    /// Returns the service of a tenant if it was created before.
    fn known(&self, tenant: &TenantId) -> Option<Arc<McpService>> {
        if tenant.is_local() {
            return Some(Arc::clone(&self.local));
        }
        self.others().get(tenant).and_then(|cell| cell.get().map(Arc::clone))
    }

    fn others(&self) -> MutexGuard<'_, HashMap<TenantId, Arc<OnceCell<Arc<McpService>>>>> {
        self.others.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Loads the programs and skills of a tenant. Programs have no workspace on the host. Blocks.
fn open(engine: &Engine, owner: &Caller) -> Result<McpService, EngineError> {
    let scope = engine.of(owner)?;
    let base = scope.home().to_owned();
    let programs = Arc::new(Programs::open(&scope, base, None, usize::MAX)?);
    Ok(McpService::new(programs, Skills::open(&scope)?))
}

impl Service for TenantServices {
    fn about(&self, caller: &Caller) -> About {
        match self.known(&caller.tenant) {
            Some(service) => service.about(caller),
            // The list of tools describes what this tenant has.
            None => About { instructions: String::new(), ..self.local.about(caller) },
        }
    }

    async fn tools(&self, caller: &Caller, lifetime: StateLifetime) -> Vec<ToolSpec> {
        match self.of(caller).await {
            Ok(service) => service.tools(caller, lifetime).await,
            Err(_) => {
                tracing::error!(tenant = %caller.tenant, "the tools of a tenant cannot be loaded");
                Vec::new()
            }
        }
    }

    fn state_argument(&self) -> &'static str {
        self.local.state_argument()
    }

    async fn call(
        &self,
        caller: &Caller,
        name: &str,
        arguments: Map<String, Value>,
        context: CallContext,
    ) -> Result<CallOutcome, CallError> {
        let service = self.of(caller).await.map_err(CallError::Internal)?;
        service.call(caller, name, arguments, context).await
    }

    async fn resources(&self, caller: &Caller) -> Vec<ResourceSpec> {
        match self.of(caller).await {
            Ok(service) => service.resources(caller).await,
            Err(_) => Vec::new(),
        }
    }

    fn resource_templates(&self) -> Vec<ResourceTemplateSpec> {
        self.local.resource_templates()
    }

    async fn read(&self, caller: &Caller, uri: &str) -> Result<Vec<ResourceContents>, ReadError> {
        self.of(caller).await.map_err(ReadError::Internal)?.read(caller, uri).await
    }

    async fn prompts(&self, caller: &Caller) -> Vec<PromptSpec> {
        self.local.prompts(caller).await
    }

    async fn prompt(
        &self,
        caller: &Caller,
        name: &str,
        arguments: Map<String, Value>,
    ) -> Result<PromptText, PromptError> {
        let service = self.of(caller).await.map_err(PromptError::Internal)?;
        service.prompt(caller, name, arguments).await
    }

    fn closed(&self, caller: &Caller) {
        if let Some(service) = self.known(&caller.tenant) {
            service.closed(caller);
        }
    }
}
