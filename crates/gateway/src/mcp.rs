//! The protocol: messages, sessions and calls, and what a [`Service`](service::Service) must answer.

pub(crate) mod context;
mod convert;
pub(crate) mod handler;
pub(crate) mod message;
pub(crate) mod service;
pub(crate) mod session;
pub(crate) mod slot;
pub(crate) mod streams;
