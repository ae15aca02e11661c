//! MCP over standard streams and HTTP: wire shapes and authentication.
//!
//! The only code that parses strangers' HTTP. What tools do is not its business: it asks a [`Service`].

#![forbid(unsafe_code)]

mod caller;
mod live;
mod service;

pub use caller::{Caller, NoRandomness, SessionId};
pub use live::{Live, Progress};
pub use service::{
    About, Annotations, CallError, Outcome, PromptArgument, PromptError, PromptSpec, PromptText,
    ReadError, ResourceContents, ResourceSpec, ResourceTemplateSpec, Service, ToolSpec,
};

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
