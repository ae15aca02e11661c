//! The box for programs written by models, and the network rules that services add to it.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::api::{Api, carries};
use super::name::ApiName;
use crate::choice::Net;
use crate::config::{Config, PolicyError};
use crate::limits::Limits;
use crate::mount::anchor;
use crate::net::{
    Allow, HttpRule, Method, Rule, RuleError, RuleTarget, SecretDecl, SecretName, Tls,
};
use crate::size::ByteSize;
use crate::template::{Template, TemplateError};

/// The name of the built-in template for programs.
pub const CODE_TEMPLATE: &str = "code";

/// The settings in `[code]` of `belljar.toml`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CodeConfig {
    /// The name of the operator's template for programs; `None` means the built-in template.
    pub template: Option<String>,
    /// The number of boxes that are kept ready for programs.
    pub warm: usize,
    /// Whether programs can reach every public host.
    pub yolo: bool,
    /// The timeout of a program that sets none itself.
    pub timeout: Duration,
    /// The longest timeout that a program can set.
    pub max_timeout: Duration,
    /// The limit for the standard output and standard error of a program, in bytes.
    pub output: ByteSize,
    pub(crate) libraries: Option<PathBuf>,
}

/// The declared services that a program can use.
#[derive(Debug, Clone, Copy)]
pub enum Selection<'a> {
    All,
    Only(&'a BTreeSet<ApiName>),
}

/// The template of a box for a program, with remarks for the user.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CodeBox {
    pub template: Template,
    /// Remarks for the user about access beyond the default. They are shown and recorded.
    pub remarks: Vec<String>,
}

/// The reason why the box of a program cannot be described.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CodeError {
    #[error("invalid `[code] template`: there is no template `{name}`; the templates are {known}")]
    NoTemplate { name: String, known: String },
    #[error("there is no api `{name}`; {known}")]
    NoApi { name: ApiName, known: String },
    #[error("the declaration of api `{api}` is invalid: {error}")]
    Secret { api: ApiName, error: PolicyError },
    #[error(
        "api `{api}`: secret `{secret}` is for {hosts}, but no rule of this api allows these hosts"
    )]
    Unreachable { api: ApiName, secret: SecretName, hosts: String },
    #[error("the declaration of api `{api}` is invalid: {error}")]
    Restricted { api: ApiName, error: RuleError },
    #[error("invalid section `[code]`: {0}")]
    Template(TemplateError),
}

impl Default for CodeConfig {
    fn default() -> Self {
        Self {
            template: None,
            warm: 2,
            yolo: false,
            timeout: Duration::from_secs(30),
            max_timeout: Duration::from_secs(600),
            output: ByteSize::mib(1),
            libraries: None,
        }
    }
}

impl CodeConfig {
    /// The maximum of `warm`, the number of boxes that are kept ready.
    pub const MAX_WARM: usize = 64;
    /// The maximum value of the setting `max-timeout`.
    pub const MAX_TIMEOUT: Duration = Duration::from_secs(24 * 3600);
    /// The minimum timeout of a program.
    pub const MIN_TIMEOUT: Duration = Duration::from_secs(1);

    /// Returns the directory of modules for `lib:NAME`; `~` becomes `home`.
    pub fn libraries(&self, home: Option<&Path>) -> Option<PathBuf> {
        self.libraries.as_deref().map(|path| anchor(path, Path::new(""), home))
    }

    /// Returns the box template for a program with access to the selected services.
    ///
    /// It has the rules of these services, denials of their restricted methods, and their secrets on their
    /// own rules only.
    pub fn template(
        &self,
        config: &Config,
        selection: Selection<'_>,
    ) -> Result<CodeBox, CodeError> {
        let mut remarks = Vec::new();
        let mut template = self.base(config)?;
        if self.yolo {
            template.net = Net::Full;
            remarks.push("programs can reach every public host (`[code] yolo = true`)".to_owned());
        }
        for api in selection.of(config)? {
            let secrets = secrets(api, config)?;
            for rule in &api.allow {
                template.allow.push(Allow::Rule(Box::new(with_secrets(api, rule, &secrets))));
            }
            if api.restricted.is_empty() {
                continue;
            }
            let methods: Vec<&str> = api.restricted.iter().map(Method::as_str).collect();
            if api.yolo {
                let (name, methods) = (&api.name, methods.join(", "));
                remarks.push(format!("api `{name}`: {methods} is not restricted (`yolo = true`)"));
                continue;
            }
            for http in api.allow.iter().filter_map(Rule::http) {
                let rule = deny_restricted(api, http, template.net);
                let error = |error| CodeError::Restricted { api: api.name.clone(), error };
                template.deny.push(rule.map_err(error)?);
            }
        }
        if !template.allow.is_empty() {
            template.net = template.net.max(Net::Restricted);
        }
        template.check().map_err(CodeError::Template)?;
        Ok(CodeBox { template, remarks })
    }

    fn base(&self, config: &Config) -> Result<Template, CodeError> {
        let Some(name) = &self.template else { return Ok(self.built_in()) };
        config.template(name).ok_or_else(|| CodeError::NoTemplate {
            name: name.clone(),
            known: config.names().join(", "),
        })
    }

    /// Returns the built-in template for programs, which is small because a box runs only one
    /// program.
    fn built_in(&self) -> Template {
        let limits = Limits {
            memory: ByteSize::mib(512),
            pids: 64,
            disk: ByteSize::mib(256),
            files: 1024,
            // The limit for a program's output is enforced on the host and keeps the earlier output. This
            // limit kills the box, so it must be the larger one.
            output: ByteSize::new(self.output.as_u64().saturating_mul(4)).unwrap_or(self.output),
            timeout: Some(self.timeout),
            ..Limits::default()
        };
        Template { name: CODE_TEMPLATE.to_owned(), limits, ..Template::default() }
    }
}

impl Selection<'_> {
    /// Returns the selected services, sorted by name.
    pub fn of<'c>(&self, config: &'c Config) -> Result<Vec<&'c Api>, CodeError> {
        match self {
            Self::All => Ok(config.apis().values().collect()),
            Self::Only(names) => {
                names.iter().map(|name| config.api(name)).collect::<Result<_, _>>()
            }
        }
    }
}

impl Config {
    /// Returns the service of this name, or an error that lists the declared services.
    pub fn api(&self, name: &ApiName) -> Result<&Api, CodeError> {
        self.apis().get(name).ok_or_else(|| {
            let known: Vec<&str> = self.apis().keys().map(ApiName::as_str).collect();
            let known = match known.is_empty() {
                true => "none is declared; write `[api.NAME]` into your belljar.toml".to_owned(),
                false => format!("the apis are {}", known.join(", ")),
            };
            CodeError::NoApi { name: name.clone(), known }
        })
    }
}

/// Returns the declarations of a service's secrets, or an error if no rule of the service fits one
/// of them.
fn secrets<'c>(api: &Api, config: &'c Config) -> Result<Vec<&'c SecretDecl>, CodeError> {
    let mut found = Vec::new();
    for name in &api.secrets {
        let unknown = |error| CodeError::Secret { api: api.name.clone(), error };
        let secret = config.require_secret(name).map_err(unknown)?;
        if !api.allow.iter().any(|rule| can_carry(rule, secret)) {
            let hosts: Vec<String> = secret.hosts.iter().map(ToString::to_string).collect();
            let (api, secret) = (api.name.clone(), name.clone());
            return Err(CodeError::Unreachable { api, secret, hosts: hosts.join(", ") });
        }
        found.push(secret);
    }
    Ok(found)
}

fn can_carry(rule: &Rule, secret: &SecretDecl) -> bool {
    let to = |http: &HttpRule| secret.hosts.iter().any(|host| host.overlaps(&http.host));
    carries(rule) && rule.http().is_some_and(to)
}

/// Returns a rule of a service with the secrets that apply to the rule's hosts.
///
/// They are not secrets of the whole box: a rule of another service for the same host does not get them.
fn with_secrets(api: &Api, rule: &Rule, secrets: &[&SecretDecl]) -> Rule {
    let mut rule = rule.clone();
    // The prefix distinguishes an unnamed rule from those of the template and of other services.
    if rule.id == format!("allow {}", rule.what) {
        rule.id = format!("api {}: {}", api.name, rule.what);
    }
    let given: Vec<SecretName> =
        secrets.iter().filter(|it| can_carry(&rule, it)).map(|it| it.name.clone()).collect();
    if let RuleTarget::Http(http) = &mut rule.what {
        http.secrets.extend(given);
    }
    rule
}

/// Returns a rule that denies the restricted methods of a service.
///
/// On a full network it covers the whole host, since the paths of `allow` rules do not limit requests.
fn deny_restricted(api: &Api, http: &HttpRule, net: Net) -> Result<Rule, RuleError> {
    let denied = HttpRule {
        ports: if net == Net::Full { Vec::new() } else { http.ports.clone() },
        methods: Some(api.restricted.clone()),
        paths: if net == Net::Full { None } else { http.paths.clone() },
        secrets: BTreeSet::new(),
        limits: crate::net::RuleLimits::default(),
        tls: Tls::Intercept,
        websocket: false,
        connect: None,
        model: None,
        ..http.clone()
    };
    let methods: Vec<&str> = api.restricted.iter().map(Method::as_str).collect();
    let name = format!("api {}: {} restricted on {}", api.name, methods.join(","), http.host);
    Rule::denying(Some(name), RuleTarget::Http(denied))
}
