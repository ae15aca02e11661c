//! `belljar.toml`: templates of the operator, and of a project that may only tighten them.
//!
//! ```toml
//! [template.build]
//! mode = "overlay"                  # overlay, direct or read-only
//! net = "none"                      # none, restricted or full
//! mounts = ["~/.cache/x:/cache:rw"] # SRC:DST[:ro|rw]; a relative SRC starts at this file
//! rootfs = "images/debian"          # a root file system instead of the host's programs
//! env = ["CI=1", "LANG"]            # NAME=VALUE, or NAME to inherit it
//! user = 1000                       # the user id inside
//! memory = "2GiB"
//! cpus = 2
//! pids = 512
//! disk = "2GiB"
//! files = 4096
//! output-limit = "256MiB"
//! timeout = "10m"                   # or "none"
//! weaken = ["time-namespace"]
//! require = ["cgroup"]
//! allow = ["pypi", "GET api.github.com/repos/acme/**"]
//! deny = ["gist.github.com"]
//! secrets = ["github"]
//! budget = { requests = 1000, bytes = "1GB", tokens = 1000000, money = "5 USD" }
//!
//! [[template.forge.allow]]          # the same, at length
//! host = "git.corp.example"
//! methods = ["GET", "POST"]
//! paths = ["/api/**"]
//! secrets = ["forge"]
//! limits = { requests = "60/min", upload = "10MB", total = "500MB" }
//! connect = "10.1.2.3:443"
//!
//! [secret.forge]
//! hosts = ["git.corp.example"]
//!
//! [tls]
//! roots = ["corp.pem"]
//!
//! [dns]
//! servers = ["10.0.0.53"]           # IP or IP:PORT; otherwise as this machine resolves names
//!
//! [proxy]
//! url = "http://proxy.corp.example:3128"
//!
//! [vault]
//! key-command = ["pass", "show", "belljar"]
//!
//! [api.github]                      # a service that programs of models find as `apis.github`
//! description = "GitHub REST"
//! allow = ["GET,POST https://api.github.com/repos/acme/**"]
//! hosts = ["uploads.github.com"]    # short for all requests over TLS; this or `allow` must be there
//! secrets = ["github"]              # on the rules of this service and on no others
//! restricted-methods = ["DELETE"]   # refused, unless `yolo = true`
//! base-url = "https://api.github.com" # otherwise the first host
//! reference = "https://docs.github.com/rest"
//! openapi = "github.json"           # a typed client is made from it
//! types = "github.d.ts"
//! examples = ["await apis.github.get('/repos/acme/x')"]
//!
//! [mcp.files]                       # another server, whose tools are `tools.files`
//! command = ["npx", "-y", "@x/files"] # or url = "https://…"
//! env = ["K=V"]
//! template = "files"                # of its box; allow and secrets add to it
//! timeout = "30s"                   # of one call
//!
//! [permissions]                     # what agents may do; also as [template.NAME.permissions]
//! deny = ["Read(.env)", "Edit(.github/**)", "Bash(rm -rf *)", "Net(gist.github.com)"]
//! ask = ["Net(api.github.com)"]
//! allow = ["Edit(src/**)", "Net(docs.rs)", "Tool(WebFetch)"]
//! skip-all = true                   # the agent never asks; the box is the boundary
//!
//! [code]
//! template = "small"                # of the boxes of programs; otherwise one is built in
//! warm = 2                          # boxes kept ready
//! libraries = "libs"                # modules that programs import as lib:NAME
//! yolo = false                      # true: every public host
//! timeout = "30s"                   # of a program that says none
//! max-timeout = "10m"               # the most that one can say
//! output = "1MiB"
//! ```
//!
//! `allow` is given as a list or as tables, not as both: TOML has one of them per key.
//!
//! A template starts from the built-in default; what it does not say stays as it is there.

mod agent;
mod code;
mod error;
mod keys;
mod nearest;
mod parse;
mod permissions;
mod place;
mod policy;
mod rules;
mod secrets;
mod sections;
mod tighten;
mod write;

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

pub use error::{ConfigError, Fault};
pub use place::AllowList;
pub use policy::PolicyError;

use crate::agent::{Agent, AgentName};
use crate::code::{Api, ApiName, CodeConfig, McpServer, ServerName};
use crate::mount::anchor;
use crate::net::{PresetName, Proxy, SecretDecl, SecretName};
use crate::permission::Permissions;
use crate::template::{DEFAULT_TEMPLATE, Overrides, Template};

/// Whose file it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Scope {
    /// The person who runs Belljar: what the file says goes.
    Operator,
    /// The workspace, and so perhaps its last box: the file may only tighten (threat C08).
    Project,
}

/// The templates of one file, or of an operator's file tightened by a project's.
#[derive(Debug, Clone)]
pub struct Config {
    file: PathBuf,
    scope: Scope,
    templates: BTreeMap<String, Entry>,
    secrets: BTreeMap<SecretName, SecretDecl>,
    /// Those that presets declare.
    bundled: BTreeMap<SecretName, SecretDecl>,
    roots: Vec<PathBuf>,
    dns: Vec<SocketAddr>,
    proxy: Option<Proxy>,
    key_command: Option<Vec<String>>,
    apis: BTreeMap<ApiName, Api>,
    servers: BTreeMap<ServerName, McpServer>,
    code: CodeConfig,
    permissions: Permissions,
}

/// One template: what it is, what the file said to make it so, and where.
#[derive(Debug, Clone)]
struct Entry {
    template: Template,
    said: Overrides,
    permissions: Permissions,
    places: Places,
}

/// The lines of a template's heading and of its keys.
#[derive(Debug, Clone)]
struct Places {
    heading: usize,
    keys: BTreeMap<&'static str, usize>,
}

impl Places {
    fn line(&self, key: &str) -> usize {
        self.keys.get(key).copied().unwrap_or(self.heading)
    }

    fn says(&self, key: &str) -> bool {
        self.keys.contains_key(key)
    }
}

impl Config {
    /// What holds where there is no file: the built-in default and nothing else.
    pub fn built_in() -> Self {
        let presets = PresetName::all().into_iter().filter_map(PresetName::preset);
        let bundled = presets.flat_map(|preset| preset.secrets);
        Self {
            file: PathBuf::new(),
            scope: Scope::Operator,
            templates: BTreeMap::new(),
            secrets: BTreeMap::new(),
            bundled: bundled.map(|secret| (secret.name.clone(), secret)).collect(),
            roots: Vec::new(),
            dns: Vec::new(),
            proxy: None,
            key_command: None,
            apis: BTreeMap::new(),
            servers: BTreeMap::new(),
            code: CodeConfig::default(),
            permissions: Permissions::default(),
        }
    }

    /// Reads a file's text. `file` is named in errors, and relative paths start from its directory.
    pub fn parse(text: &str, file: &Path, scope: Scope) -> Result<Self, ConfigError> {
        parse::config(text, file, scope)
    }

    /// Reads the file of an agent of this name.
    pub fn agent(name: &AgentName, text: &str, file: &Path) -> Result<Agent, ConfigError> {
        parse::agent(name, text, file)
    }

    /// What an agent may do in a box of this template: the rules of the whole file and the template's.
    pub fn permissions(&self, template: &str) -> Permissions {
        let own = self.templates.get(template).map(|entry| entry.permissions.clone());
        self.permissions.clone().and(&own.unwrap_or_default())
    }

    /// The same configuration with secrets that an agent brings along; the file's own come first.
    #[must_use]
    pub fn with_secrets(mut self, secrets: impl IntoIterator<Item = SecretDecl>) -> Self {
        self.bundled.extend(secrets.into_iter().map(|secret| (secret.name.clone(), secret)));
        self
    }

    /// This operator's configuration, tightened by what a project's file says; an error that names the
    /// line if it would loosen anything.
    ///
    /// A template that the operator does not have starts from the operator's `default`.
    pub fn tighten(&self, project: &Self) -> Result<Self, ConfigError> {
        tighten::config(self, project)
    }

    /// The template of this name. An operator always has one named `default`; a project's file by
    /// itself has none, since it describes no box before an operator's has been tightened by it.
    pub fn template(&self, name: &str) -> Option<Template> {
        match (self.scope, self.templates.get(name)) {
            (Scope::Project, _) => None,
            (Scope::Operator, Some(entry)) => Some(entry.template.clone()),
            (Scope::Operator, None) => (name == DEFAULT_TEMPLATE).then(Template::default),
        }
    }

    /// The names of all templates, sorted.
    pub fn names(&self) -> Vec<&str> {
        let mut names: BTreeSet<&str> = self.templates.keys().map(String::as_str).collect();
        match self.scope {
            Scope::Project => {}
            Scope::Operator => names.extend([DEFAULT_TEMPLATE]),
        }
        names.into_iter().collect()
    }

    /// The declaration of a secret: the file's own, or a preset's.
    pub fn secret(&self, name: &SecretName) -> Option<&SecretDecl> {
        self.secrets.get(name).or_else(|| self.bundled.get(name))
    }

    /// The secrets that the file itself declares.
    pub fn declared_secrets(&self) -> impl Iterator<Item = &SecretName> {
        self.secrets.keys()
    }

    /// The secrets that presets declare and the file does not.
    pub fn bundled_secrets(&self) -> impl Iterator<Item = &SecretName> {
        self.bundled.keys().filter(|name| !self.secrets.contains_key(*name))
    }

    /// Files with authorities that upstream servers may have beside the system's; a `~` is `home`.
    pub fn roots(&self, home: Option<&Path>) -> Vec<PathBuf> {
        self.roots.iter().map(|root| anchor(root, Path::new(""), home)).collect()
    }

    /// The name servers to ask instead of the system's; none for those.
    pub fn name_servers(&self) -> &[SocketAddr] {
        &self.dns
    }

    /// The proxy that upstream connections go through.
    pub fn proxy(&self) -> Option<&Proxy> {
        self.proxy.as_ref()
    }

    /// The command that prints the key of the vault.
    pub fn key_command(&self) -> Option<&[String]> {
        self.key_command.as_deref()
    }

    /// The file it came from; empty for [`Config::built_in`].
    pub fn file(&self) -> &Path {
        &self.file
    }
}

#[cfg(test)]
mod tests;
