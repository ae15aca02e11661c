//! The tools, resources and prompts of Belljar, as a [`Service`](crate::Service).
//!
//! [`McpService`] defines them and calls `belljar_engine::programs`. It does not depend on the
//! transport.

mod arguments;
mod calls;
mod instructions;
mod resources;
mod schema;
mod service;
mod specs;
mod tenants;

pub use service::McpService;
pub use tenants::TenantServices;
