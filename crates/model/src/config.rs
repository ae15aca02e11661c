//! `belljar.toml`: the operator's templates, and a project's templates, which can only tighten them.
//!
//! ```toml
//! [template.build]
//! mode = "overlay"                  # overlay, direct or read-only
//! net = "none"                      # none, restricted or full
//! mounts = ["~/.cache/x:/cache:rw"] # SRC:DST[:ro|rw]; a relative SRC is relative to this file
//! rootfs = "images/debian"          # a root file system instead of the host's programs
//! env = ["CI=1", "LANG"]            # NAME=VALUE, or NAME to inherit it
//! user = 1000                       # the user id in the box
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
//! [[template.forge.allow]]          # the long form of a rule
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
//! servers = ["10.0.0.53"]           # IP or IP:PORT; by default those of this machine
//!
//! [proxy]
//! url = "http://proxy.corp.example:3128"
//!
//! [serve]                           # the server `belljar serve`
//! listen = "0.0.0.0:443"            # by default 127.0.0.1:7070
//! host = "belljar.example.com"
//! cert = "server.pem"               # required if other machines can reach the server
//! key = "server.key"
//! reads-per-second = 50             # requests of one person or token that change nothing
//! writes-per-second = 10            # the other requests
//! quota = { boxes = 50, boxes-per-principal = 10, runs = 20, runs-per-principal = 5 } # of each tenant
//!
//! [oidc]                            # people log in to the server with this provider
//! issuer = "https://id.example.com"
//! client = "belljar"
//! secret-file = "oidc.secret"       # not needed for a public client
//! scopes = ["groups"]               # requested beside `openid`
//! groups = "groups"                 # the claim with the groups of the person
//!
//! [[oidc.access]]                   # what the members of a group may do
//! group = "platform"
//! tenant = "team-7"
//! role = "admin"                    # owner, admin, operator, member or auditor
//!
//! [vault]
//! key-command = ["pass", "show", "belljar"]
//!
//! [api.github]                      # a service that programs of models use as `apis.github`
//! description = "GitHub REST"
//! allow = ["GET,POST https://api.github.com/repos/acme/**"]
//! hosts = ["uploads.github.com"]    # all requests over TLS; `hosts` or `allow` is required
//! secrets = ["github"]              # only on the rules of this service
//! restricted-methods = ["DELETE"]   # refused, unless `yolo = true`
//! base-url = "https://api.github.com" # by default the first host
//! reference = "https://docs.github.com/rest"
//! openapi = "github.json"           # source of a typed client
//! types = "github.d.ts"
//! examples = ["await apis.github.get('/repos/acme/x')"]
//!
//! [mcp.files]                       # a tool server, whose tools are `tools.files`
//! command = ["npx", "-y", "@x/files"] # or url = "https://…"
//! env = ["K=V"]
//! template = "files"                # template of its box; allow and secrets add to it
//! timeout = "30s"                   # timeout of one call
//!
//! [tier.cheap]                      # a tier of models that the tasks of plans name
//! provider = "anthropic"            # anthropic, openai-chat or openai-responses
//! model = "claude-haiku-4-5"
//! secret = "anthropic"              # not needed with a url
//! url = "http://localhost:11434"    # by default the server of the provider
//! connect = "127.0.0.1:11434"       # by default the address of the name in `url`
//! price = { input = "1 USD", output = "5 USD" } # of a million tokens
//! context-window = 200000           # tokens
//!
//! [schedule.nightly]                # a plan that is started at given times
//! plan = "plans/nightly.toml"       # a relative path is relative to this file
//! cron = "0 3 * * 1-5"              # minute, hour, day, month, day of the week
//! zone = "Europe/Berlin"            # by default UTC
//! missed = "once"                   # or skip
//! overlap = "skip"                  # or queue, allow
//!
//! [tenant.local]                    # limits for all runs of the user together
//! budget = { money = "50 USD", tokens = 1000000, calls = 5000, time = "10h", bytes = "1GB", boxes = 8, period = "day" }
//! quota = { boxes = 8 }             # replaces values of `[serve] quota`
//!
//! [tenant.team-7]                   # another tenant of the server, which has a policy of its own
//! workspaces = ["/srv/team-7"]      # directories of the host that the tenant may use
//! limits = { memory = "8GiB", cpus = 4, pids = 1024, disk = "20GiB", files = 8192, output-limit = "1GiB", timeout = "8h" }
//!                                   # of each box; by default those of the template `default`
//!
//! [[test]]                          # the rules must decide this before a policy is saved
//! template = "agents"               # by default `default`
//! request = "GET https://api.github.com/repos/acme/x"
//! expect = "allow"                  # or ask, deny
//!
//! [permissions]                     # rules for agents; also as [template.NAME.permissions]
//! deny = ["Read(.env)", "Edit(.github/**)", "Bash(rm -rf *)", "Net(gist.github.com)"]
//! ask = ["Net(api.github.com)"]
//! allow = ["Edit(src/**)", "Net(docs.rs)", "Tool(WebFetch)"]
//! skip-all = true                   # the agent never asks; the box is the boundary
//!
//! [code]
//! template = "small"                # template of the boxes of programs; by default a built-in one
//! warm = 2                          # number of boxes kept ready
//! libraries = "libs"                # modules that programs import as lib:NAME
//! yolo = false                      # true: programs can reach every public host
//! timeout = "30s"                   # default timeout of a program
//! max-timeout = "10m"               # longest timeout that a program can set
//! output = "1MiB"
//! ```
//!
//! `allow` is either a list or tables: TOML does not permit both for one key.
//!
//! A template starts from the built-in default and keeps its values for missing keys.

mod agent;
mod allow_list;
mod code;
mod error;
mod keys;
pub(crate) mod nearest;
mod oidc;
pub(crate) mod parse;
mod permissions;
mod policy;
mod quota;
mod rules;
mod schedules;
mod secrets;
mod sections;
mod serve;
mod tenant_scope;
mod tenants;
mod tests_section;
mod tiers;
pub(crate) mod tighten;
mod write;

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

pub use allow_list::AllowList;
pub use error::{ConfigError, Fault};
pub use policy::PolicyError;
pub use tenant_scope::{OperatorKey, SECTIONS as TENANT_SECTIONS};
pub use tighten::LoosensTemplate;

use crate::agent::{Agent, AgentName};
use crate::caller::TenantId;
use crate::code::{Api, ApiName, CodeConfig, McpServer, ServerName};
use crate::mount::anchor;
use crate::net::{PresetName, Proxy, SecretDecl, SecretName};
use crate::oidc::OidcConfig;
use crate::permission::Permissions;
use crate::plan::{ModelTier, TierName};
use crate::policy_test::PolicyTest;
use crate::quota::Quota;
use crate::schedule::Schedule;
use crate::serve::ServeConfig;
use crate::template::{DEFAULT_TEMPLATE, Overrides, Template};
use crate::tenant::{BoxCeiling, TenantConfig};

/// The owner of a configuration file, which decides what the file can set.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Scope {
    /// The file belongs to the operator, who runs Belljar and can set everything.
    Operator,
    /// The file is the policy of another tenant of the server. It cannot use the host or a private network.
    Tenant,
    /// The file is in the workspace, which the last box could have written: it can only tighten
    /// (threat C08).
    Project,
}

/// The content of one `belljar.toml`, or of an operator's file tightened by a project's file.
#[derive(Debug, Clone)]
pub struct Config {
    file: PathBuf,
    scope: Scope,
    templates: BTreeMap<String, Entry>,
    secrets: BTreeMap<SecretName, SecretDecl>,
    /// The secrets that presets and agents declare.
    bundled: BTreeMap<SecretName, SecretDecl>,
    roots: Vec<PathBuf>,
    dns: Vec<SocketAddr>,
    proxy: Option<Proxy>,
    key_command: Option<Vec<String>>,
    apis: BTreeMap<ApiName, Api>,
    servers: BTreeMap<ServerName, McpServer>,
    code: CodeConfig,
    tiers: BTreeMap<TierName, ModelTier>,
    schedules: BTreeMap<String, Schedule>,
    tenants: BTreeMap<TenantId, TenantConfig>,
    /// The quotas of tenants without own values.
    default_quota: Quota,
    tests: Vec<PolicyTest>,
    serve: ServeConfig,
    oidc: Option<OidcConfig>,
    permissions: Permissions,
}

/// One template of a file: the values that the file sets, with their lines.
#[derive(Debug, Clone)]
struct Entry {
    template: Template,
    overrides: Overrides,
    permissions: Permissions,
    lines: KeyLines,
}

/// The line numbers of a template's heading and of its keys.
#[derive(Debug, Clone)]
struct KeyLines {
    heading: usize,
    keys: BTreeMap<&'static str, usize>,
}

impl KeyLines {
    fn line(&self, key: &str) -> usize {
        self.keys.get(key).copied().unwrap_or(self.heading)
    }

    fn has(&self, key: &str) -> bool {
        self.keys.contains_key(key)
    }
}

impl Config {
    /// Returns the configuration without a file: the built-in default template only.
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
            tiers: BTreeMap::new(),
            schedules: BTreeMap::new(),
            tenants: BTreeMap::new(),
            default_quota: Quota::default(),
            tests: Vec::new(),
            serve: ServeConfig::default(),
            oidc: None,
            permissions: Permissions::default(),
        }
    }

    /// Parses the text of a `belljar.toml`. `file` appears in errors and anchors relative paths.
    pub fn parse(text: &str, file: &Path, scope: Scope) -> Result<Self, ConfigError> {
        parse::config(text, file, scope)
    }

    /// Parses the definition file of the named agent.
    pub fn agent(name: &AgentName, text: &str, file: &Path) -> Result<Agent, ConfigError> {
        parse::agent(name, text, file)
    }

    /// Returns the permissions of an agent in a box of this template: those of the file and of the
    /// template.
    pub fn permissions(&self, template: &str) -> Permissions {
        let own = self.templates.get(template).map(|entry| entry.permissions.clone());
        self.permissions.clone().and(&own.unwrap_or_default())
    }

    /// Adds the secrets that an agent declares; declarations in `belljar.toml` take precedence.
    #[must_use]
    pub fn with_secrets(mut self, secrets: impl IntoIterator<Item = SecretDecl>) -> Self {
        self.bundled.extend(secrets.into_iter().map(|secret| (secret.name.clone(), secret)));
        self
    }

    /// Returns this operator's configuration, tightened by a project's file.
    ///
    /// The error names the line of the project's file that would loosen something.
    ///
    /// A template that the operator does not have starts from the operator's `default`.
    pub fn tighten(&self, project: &Self) -> Result<Self, ConfigError> {
        tighten::config(self, project)
    }

    /// Returns this policy of a tenant with the settings of the operator for the machine: certificates, DNS,
    /// proxy, the key of the vault and the limits of tenants.
    #[must_use]
    pub fn on_machine_of(self, operator: &Self) -> Self {
        Self {
            roots: operator.roots.clone(),
            dns: operator.dns.clone(),
            proxy: operator.proxy.clone(),
            key_command: operator.key_command.clone(),
            tenants: operator.tenants.clone(),
            serve: operator.serve.clone(),
            ..self
        }
    }

    /// Returns an error for a limit in a template of the file that is above the ceiling of the tenant.
    pub fn check_ceiling(&self, ceiling: &BoxCeiling) -> Result<(), ConfigError> {
        for entry in self.templates.values() {
            let checked = ceiling.check(&entry.template.limits, |key| entry.lines.has(key));
            checked.map_err(|above| ConfigError {
                file: self.file.clone(),
                line: entry.lines.line(above.key),
                fault: Fault::AboveCeiling(above),
            })?;
        }
        Ok(())
    }

    /// Returns the template of this name, or `None`.
    ///
    /// An operator always has a template named `default`. A project's file alone has no templates: it only
    /// tightens those of the operator.
    pub fn template(&self, name: &str) -> Option<Template> {
        match (self.scope, self.templates.get(name)) {
            (Scope::Project, _) => None,
            (Scope::Operator | Scope::Tenant, Some(entry)) => Some(entry.template.clone()),
            (Scope::Operator | Scope::Tenant, None) => {
                (name == DEFAULT_TEMPLATE).then(Template::default)
            }
        }
    }

    /// Returns the names of all templates, sorted.
    pub fn names(&self) -> Vec<&str> {
        let mut names: BTreeSet<&str> = self.templates.keys().map(String::as_str).collect();
        match self.scope {
            Scope::Project => {}
            Scope::Operator | Scope::Tenant => names.extend([DEFAULT_TEMPLATE]),
        }
        names.into_iter().collect()
    }

    /// Returns the declaration of a secret: the one in the file, or a bundled one.
    pub fn secret(&self, name: &SecretName) -> Option<&SecretDecl> {
        self.secrets.get(name).or_else(|| self.bundled.get(name))
    }

    /// Returns the secrets that the file itself declares.
    pub fn declared_secrets(&self) -> impl Iterator<Item = &SecretName> {
        self.secrets.keys()
    }

    /// Returns the secrets that presets or agents declare and the file does not.
    pub fn bundled_secrets(&self) -> impl Iterator<Item = &SecretName> {
        self.bundled.keys().filter(|name| !self.secrets.contains_key(*name))
    }

    /// Returns the files with additional root certificates for upstream servers; `~` becomes `home`.
    pub fn roots(&self, home: Option<&Path>) -> Vec<PathBuf> {
        self.roots.iter().map(|root| anchor(root, Path::new(""), home)).collect()
    }

    /// Returns the DNS servers to use instead of the system's, or an empty list.
    pub fn name_servers(&self) -> &[SocketAddr] {
        &self.dns
    }

    /// Returns the HTTP proxy for upstream connections, if any.
    pub fn proxy(&self) -> Option<&Proxy> {
        self.proxy.as_ref()
    }

    /// Returns the command that prints the key of the vault, if the file sets one.
    pub fn key_command(&self) -> Option<&[String]> {
        self.key_command.as_deref()
    }

    /// Returns the path of the configuration file; empty for [`Config::built_in`].
    pub fn file(&self) -> &Path {
        &self.file
    }
}

#[cfg(test)]
mod tests;
