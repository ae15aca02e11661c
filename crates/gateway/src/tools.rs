//! The tools, resources and prompts of Belljar, as a [`Service`](crate::Service).
//!
//! [`McpService`] decides what there is and what each call asks of `belljar_engine::programs`. It knows
//! nothing of the transport.

mod arguments;
mod calls;
mod instructions;
mod resources;
mod schema;
mod service;
mod specs;

pub use service::McpService;
