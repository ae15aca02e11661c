//! The MCP protocol: messages, sessions and calls, and the trait [`Service`](service::Service).

pub(crate) mod context;
mod convert;
pub(crate) mod handler;
pub(crate) mod message;
pub(crate) mod service;
pub(crate) mod session;
pub(crate) mod slot;
pub(crate) mod streams;
