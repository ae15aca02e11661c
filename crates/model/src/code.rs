//! Code mode: the services, the tool servers and the box settings for programs written by models.
//!
//! Only the operator can set these. A project's file has none of these sections, so a program cannot
//! declare a service that would later carry a secret (C08, F10).

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
