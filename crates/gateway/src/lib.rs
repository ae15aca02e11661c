//! MCP over standard streams and HTTP: wire shapes, authentication and the tools.
//!
//! The only code that parses strangers' HTTP. The transports ask a [`Service`]; [`tools::McpService`] is the
//! one that runs programs. Nothing here prints, reads the environment or parses arguments.

#![forbid(unsafe_code)]

mod caller;
mod context;
mod convert;
mod error;
mod handler;
mod http;
mod message;
mod service;
mod slot;
mod streams;
mod tls;
mod token;
mod token_file;
pub mod tools;

pub use caller::NoRandomness;
pub use context::{CallContext, Progress};
pub use error::ServeError;
pub use http::{HttpOptions, Limits, http};
pub use service::{
    About, Annotations, CallError, Outcome, PromptArgument, PromptError, PromptSpec, PromptText,
    ReadError, ResourceContents, ResourceSpec, ResourceTemplateSpec, Service, ToolSpec,
};
pub use streams::{stdio, streams};
pub use tls::TlsFiles;
pub use token::{BadToken, Token, Tokens};
pub use token_file::{TokenFile, TokenFileError};
