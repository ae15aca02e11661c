//! Starts the box of a tool server as its declaration in `belljar.toml` describes it.

use std::io;
use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::{Child, Stdio};

use anyhow::anyhow;
use belljar_code::pin::Identity;
use belljar_model::code::{McpServer, Transport};
use belljar_model::net::{Allow, SecretDecl, Slot};
use belljar_model::{ByteSize, Config, DEFAULT_TEMPLATE, Net, Overrides, Template};

use crate::agents::{self, OutfitRequest};
use crate::config::{self, Source};
use crate::error::{EngineError, ErrorKind, WithKind as _};
use crate::network::NetworkSpec;
use crate::policy;
use crate::scope::Scoped;
use crate::supervisor::{
    self,
    spec::{Prepare, Rules, SecretHeader, ToolServerBox, ToolServerTransport},
};

/// Everything that is needed to start a tool server.
#[derive(Debug)]
pub(super) struct Launch {
    pub(super) start: Start,
    pub(super) identity: Identity,
}

/// The way in which a tool server is started.
#[derive(Debug)]
pub(super) enum Start {
    /// A supervisor starts the server in a box.
    InBox { state: Scoped, server: Box<ToolServerBox> },
    /// The server cannot be started, because its declaration is invalid for this reason.
    Invalid(String),
    /// The server is started as a process without a box, for tests of the protocol.
    #[cfg(test)]
    Plain { argv: Vec<std::ffi::OsString>, start: StartPlain },
}

/// A function that starts a process with these arguments and standard streams.
#[cfg(test)]
pub(super) type StartPlain = fn(&[std::ffi::OsString], [OwnedFd; 3]) -> io::Result<Child>;

/// A started supervisor, with the pipes to its tool server.
#[derive(Debug)]
pub(super) struct Started {
    pub(super) child: Child,
    /// The connection to the supervisor. A process without a box has none.
    pub(super) connection: Option<UnixStream>,
    pub(super) stdin: OwnedFd,
    pub(super) stdout: OwnedFd,
    pub(super) stderr: OwnedFd,
}

impl Launch {
    /// Resolves the declaration of a tool server. An invalid declaration is reported when the server is
    /// started, so that it does not affect other servers. Relative paths in its template refer to
    /// `base_dir`.
    pub(super) fn new(
        state: &Scoped,
        (config, sources): (&Config, &[Source]),
        server: &McpServer,
        base_dir: &Path,
    ) -> Self {
        let identity = match &server.transport {
            Transport::Command(command) => Identity::Command(command.clone()),
            Transport::Url(url) => Identity::Url(url.to_string()),
        };
        let start = match resolve(state, (config, sources), server, base_dir) {
            Ok(server) => Start::InBox { state: state.clone(), server: Box::new(server) },
            Err(error) => Start::Invalid(format!("{error:#}")),
        };
        Self { start, identity }
    }

    /// Starts the supervisor of the server. The server and its supervisor have pipes in place of a
    /// terminal.
    pub(super) fn start(&self) -> io::Result<Started> {
        let pipe = || rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC);
        let (input, stdin) = pipe()?;
        let (stdout, output) = pipe()?;
        let (stderr, error) = pipe()?;
        let (child, connection) = match &self.start {
            Start::Invalid(why) => return Err(io::Error::other(why.clone())),
            Start::InBox { state, server } => {
                let prepare = Prepare::ToolServer(ToolServerBox::clone(server));
                let descriptors = [input.as_fd(), output.as_fd()];
                let error = Stdio::from(error);
                let (child, connection) = supervisor::spawn(state, prepare, &descriptors, error)?;
                (child, Some(connection))
            }
            #[cfg(test)]
            Start::Plain { argv, start } => (start(argv, [input, output, error])?, None),
        };
        Ok(Started { child, connection, stdin, stdout, stderr })
    }
}

/// Resolves the declaration of a tool server to the description of its box.
fn resolve(
    state: &Scoped,
    (config, sources): (&Config, &[Source]),
    server: &McpServer,
    base_dir: &Path,
) -> Result<ToolServerBox, EngineError> {
    let (mut template, transport) = match &server.transport {
        Transport::Command(command) => {
            let template = of_program(state, config, server, base_dir)?;
            (template, ToolServerTransport::Program(command.clone()))
        }
        Transport::Url(url) => {
            let headers = headers(config, server);
            let transport = ToolServerTransport::Http { url: url.to_string(), headers };
            (of_url(config, server)?, transport)
        }
    };
    state.clamp(&mut template.limits)?;
    let network = NetworkSpec::of(&template, config, state.host())?;
    let rules = Rules { template, sources: sources.to_vec(), network, remarks: Vec::new() };
    Ok(ToolServerBox { name: server.name.clone(), rules, transport })
}

/// Returns the template for a tool server that is a program. It has no time limit, since the server runs
/// until it is not needed any more.
fn of_program(
    state: &Scoped,
    config: &Config,
    server: &McpServer,
    base_dir: &Path,
) -> Result<Template, EngineError> {
    let name = server.template.as_deref().unwrap_or(DEFAULT_TEMPLATE);
    let declared = config::template(config, name)?;
    let permissions = config.permissions(name);
    let outfit = agents::outfit(&OutfitRequest {
        agent: None,
        permissions: &permissions,
        state,
        workspace: None,
        has_host_programs: true,
        runs_agent: false,
        found: None,
    })?;
    let deny = Overrides { deny: outfit.overrides.deny, ..Overrides::default() };
    let own = Overrides {
        env: server.env.clone(),
        allow: server.allow.clone(),
        secrets: server.secrets.iter().cloned().collect(),
        ..Overrides::default()
    };
    let template = declared.with(deny).and_then(|it| it.with(own)).kind(ErrorKind::Invalid)?;
    let mut template = template.anchored(base_dir, state.host().user_home().as_deref());
    template.limits.timeout = None;
    template.limits.output = ByteSize::MAX;
    policy::refuse_own_program(state.host(), &template, None)?;
    Ok(template)
}

/// Returns the template for a tool server at a URL. By default the box can only connect to this URL.
fn of_url(config: &Config, server: &McpServer) -> Result<Template, EngineError> {
    let mut template = match &server.template {
        Some(name) => config::template(config, name)?,
        None => Template::default(),
    };
    template.net = Net::Restricted;
    template.limits.timeout = None;
    template.allow.extend(server.allow.iter().cloned());
    template.secrets.extend(server.secrets.iter().cloned());
    if let (Transport::Url(url), true) = (&server.transport, server.allow.is_empty()) {
        let rule = format!("GET,POST,DELETE {url}");
        let rule: Allow = rule
            .parse()
            .map_err(|error| anyhow!("invalid `url`: {error}"))
            .kind(ErrorKind::Invalid)?;
        template.allow.push(rule);
    }
    Ok(template)
}

/// Returns the HTTP headers that carry the secrets of a tool server.
fn headers(config: &Config, server: &McpServer) -> Vec<SecretHeader> {
    let header = |secret: &SecretDecl| {
        let variable = secret.env.clone()?;
        secret.slots.iter().find_map(|slot| match slot {
            Slot::Header(name) => {
                let prefix = if name == "authorization" { "Bearer " } else { "" };
                let (name, prefix) = (name.clone(), prefix.to_owned());
                Some(SecretHeader { name, prefix, variable: variable.clone() })
            }
            Slot::Basic | Slot::Query(_) | Slot::Json(_) => None,
        })
    };
    server.secrets.iter().filter_map(|name| config.secret(name)).filter_map(header).collect()
}
