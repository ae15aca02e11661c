//! The server of Belljar and MCP over standard streams: wire formats, authentication and the tools.
//!
//! This is the only crate that parses HTTP from untrusted clients. The transports call a
//! [`Service`]; [`tools::McpService`] is the implementation that runs programs. No code here
//! prints, reads the environment or parses arguments.

#![forbid(unsafe_code)]

mod auth;
mod error;
mod http;
mod mcp;
mod serve;
mod tls;
pub mod tools;

pub use auth::token::{BadToken, Token, Tokens};
pub use auth::token_file::{TokenFile, TokenFileError};
pub use error::ServeError;
pub use http::{HttpOptions, Limits, http};
pub use mcp::context::{CallContext, Progress, StateLifetime, StateRetention};
pub use mcp::service::{
    About, Annotations, CallError, CallOutcome, PromptArgument, PromptError, PromptSpec,
    PromptText, ReadError, ResourceContents, ResourceSpec, ResourceTemplateSpec, Service, ToolSpec,
};
pub use mcp::session::NoRandomness;
pub use mcp::streams::{stdio, streams};
pub use serve::oidc::OidcError;
pub use serve::store::StoreError;
pub use serve::{Prover, Rate, ReadyServer, ServeControl, ServeLimits, ServeOptions};
pub use tls::TlsFiles;
