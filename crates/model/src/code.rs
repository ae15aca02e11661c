//! Code mode: the services that programs of models are given, other servers, and the box they run in.
//!
//! All of it is the operator's to say. A project's file has none of these sections, so no program
//! can declare a service that would later carry a secret (C08, F10).

mod api;
mod name;
mod server;
mod settings;

pub use api::{Api, ApiError, BaseUrl, BaseUrlError};
pub use name::{ApiName, CodeNameError, ServerName, SkillName};
pub use server::{McpServer, ServerError, Transport};
pub use settings::{CODE_TEMPLATE, CodeBox, CodeConfig, CodeError, Selection};

#[cfg(test)]
mod tests;
