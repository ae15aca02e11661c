//! MCP over standard streams and HTTP: wire shapes, authentication and the tools.
//!
//! The only code that parses strangers' HTTP. The transports ask a [`Service`]; [`tools::McpService`] is the
//! one that runs programs. Nothing here prints, reads the environment or parses arguments.

#![forbid(unsafe_code)]

mod auth;
mod error;
mod http;
mod mcp;
mod tls;
pub mod tools;

pub use auth::token::{BadToken, Token, Tokens};
pub use auth::token_file::{TokenFile, TokenFileError};
pub use error::ServeError;
pub use http::{HttpOptions, Limits, http};
pub use mcp::context::{CallContext, Progress};
pub use mcp::service::{
    About, Annotations, CallError, Outcome, PromptArgument, PromptError, PromptSpec, PromptText,
    ReadError, ResourceContents, ResourceSpec, ResourceTemplateSpec, Service, ToolSpec,
};
pub use mcp::session::NoRandomness;
pub use mcp::streams::{stdio, streams};
pub use tls::TlsFiles;
