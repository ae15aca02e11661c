//! An MCP server whose tools programs can call. Each server runs in its own box, or is reached from one.

use std::collections::BTreeSet;
use std::time::Duration;

use super::api::{BaseUrl, carries};
use super::name::ServerName;
use crate::env::EnvVar;
use crate::net::{Allow, SecretName};

/// An MCP server whose tools programs can call, declared as `[mcp.NAME]` in `belljar.toml`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct McpServer {
    pub name: ServerName,
    pub transport: Transport,
    /// The environment variables of the program of [`Transport::Command`].
    pub env: Vec<EnvVar>,
    /// The template of the server's box; `None` means the default template.
    pub template: Option<String>,
    pub secrets: BTreeSet<SecretName>,
    pub allow: Vec<Allow>,
    /// The timeout of one call of an MCP tool.
    pub timeout: Duration,
}

/// The connection to a tool server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Transport {
    /// A program with its arguments, which communicates over standard input and output.
    Command(Vec<String>),
    /// HTTP. A rule of the box must allow this address; without `allow`, only this address is allowed.
    Url(BaseUrl),
}

/// The reason why the declaration of a tool server is invalid.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ServerError {
    #[error("exactly one of `command` and `url` must be set")]
    OneTransport,
    #[error("`env` needs `command`; a server with `url` takes no variables")]
    EnvOfUrl,
    #[error("invalid `url`: no rule in `allow` allows {0}")]
    UrlElsewhere(BaseUrl),
    #[error(
        "`secrets`: no rule is intercepted, so no request can carry a secret; add an `allow` rule"
    )]
    NoCarrier,
}

impl McpServer {
    /// The default timeout of one call of an MCP tool.
    pub const TIMEOUT: Duration = Duration::from_secs(30);

    /// Returns an error if the declaration of the server could never work.
    pub(crate) fn check(&self) -> Result<(), ServerError> {
        if let Transport::Url(url) = &self.transport {
            if !self.env.is_empty() {
                return Err(ServerError::EnvOfUrl);
            }
            let leads = |allow: &Allow| match allow {
                Allow::Rule(rule) => url.is_allowed_by(rule),
                Allow::Preset(_) => true,
            };
            if !self.allow.is_empty() && !self.allow.iter().any(leads) {
                return Err(ServerError::UrlElsewhere(url.clone()));
            }
        }
        let blind = |allow: &Allow| matches!(allow, Allow::Rule(rule) if !carries(rule));
        if !self.secrets.is_empty() && !self.allow.is_empty() && self.allow.iter().all(blind) {
            return Err(ServerError::NoCarrier);
        }
        Ok(())
    }
}
