//! Another MCP server, whose tools programs may call. It runs in a box of its own, or is reached from
//! one.

use std::collections::BTreeSet;
use std::time::Duration;

use super::api::{BaseUrl, carries};
use super::name::ServerName;
use crate::env::EnvVar;
use crate::net::{Allow, SecretName};

/// One `[mcp.NAME]`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct McpServer {
    pub name: ServerName,
    pub transport: Transport,
    /// For the program of [`Transport::Command`].
    pub env: Vec<EnvVar>,
    /// The template of its box; the default one where none is said.
    pub template: Option<String>,
    pub secrets: BTreeSet<SecretName>,
    pub allow: Vec<Allow>,
    /// How long one of its tools may take.
    pub timeout: Duration,
}

/// How it is spoken to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Transport {
    /// A program and its arguments, by its standard input and output.
    Command(Vec<String>),
    /// By HTTP. A rule of the box must lead there; without `allow`, just this address is allowed.
    Url(BaseUrl),
}

/// Why a declaration makes no server.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ServerError {
    #[error("one of `command` and `url` says how it is reached")]
    OneTransport,
    #[error("`env` is for a server with `command`")]
    EnvOfUrl,
    #[error("`url`: no rule in `allow` leads to {0}")]
    UrlElsewhere(BaseUrl),
    #[error("`secrets`: no rule is looked into, so none can carry a secret; say `allow`")]
    NoCarrier,
}

impl McpServer {
    /// How long a tool may take where the file does not say.
    pub const TIMEOUT: Duration = Duration::from_secs(30);

    /// Refuses what could never work.
    pub(crate) fn check(&self) -> Result<(), ServerError> {
        if let Transport::Url(url) = &self.transport {
            if !self.env.is_empty() {
                return Err(ServerError::EnvOfUrl);
            }
            let leads = |allow: &Allow| match allow {
                Allow::Rule(rule) => url.is_led_to_by(rule),
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
