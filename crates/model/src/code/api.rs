//! A declared service: its rules, its secrets and its description for programs.

use std::collections::BTreeSet;
use std::fmt;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use serde::Serialize;

use super::name::ApiName;
use crate::mount::anchor;
use crate::net::{
    Allow, HostPattern, HttpRule, Method, Rule, RuleError, RuleTarget, Scheme, SecretName, Target,
    TargetError, Tls, authority, by_text,
};

/// A service that programs can call, declared as `[api.NAME]` in `belljar.toml`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Api {
    pub name: ApiName,
    /// A description of the service in one sentence.
    pub description: Option<String>,
    /// The requests to the service that are allowed; never empty, and with presets replaced by
    /// their rules.
    pub allow: Vec<Rule>,
    /// The secrets that requests to this service can carry, and no other requests.
    pub secrets: BTreeSet<SecretName>,
    /// The HTTP methods that are refused unless `yolo` is set.
    pub restricted: BTreeSet<Method>,
    /// Whether the restricted methods are allowed nevertheless.
    pub yolo: bool,
    /// The URL of the service's documentation.
    pub reference: Option<String>,
    /// The base URL of the service in the file, if any; see [`Api::base`].
    pub base_url: Option<BaseUrl>,
    pub examples: Vec<String>,
    pub(crate) types: Option<PathBuf>,
    pub(crate) openapi: Option<PathBuf>,
}

/// The reason why the declaration of a service is invalid.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ApiError {
    #[error("`allow` and `hosts` are missing; one of them must name the hosts")]
    ReachesNothing,
    #[error("invalid `hosts`: {0}")]
    Rule(RuleError),
    #[error("a preset in `allow` of the api is malformed")]
    Preset,
    #[error("invalid `base-url`: no rule of this api allows {0}")]
    BaseElsewhere(BaseUrl),
    #[error(
        "`restricted-methods`: `{0}` hides the method of a request; use an intercepted HTTP rule instead"
    )]
    Unseen(String),
    #[error(
        "invalid `secrets`: no rule of this api is intercepted, so no request can carry a secret"
    )]
    NoCarrier,
}

impl Api {
    /// Creates a service with the rules of `allow`, followed by rules for all of `hosts`.
    pub(crate) fn new(
        name: ApiName,
        allow: Vec<Allow>,
        hosts: Vec<HostPattern>,
    ) -> Result<Self, ApiError> {
        let mut rules = Vec::new();
        for item in allow {
            match item {
                Allow::Rule(rule) => rules.push(*rule),
                Allow::Preset(preset) => {
                    rules.extend(preset.preset().ok_or(ApiError::Preset)?.rules);
                }
            }
        }
        for host in hosts {
            let rule = Rule::allowing(None, RuleTarget::Http(HttpRule::https(host)));
            rules.push(rule.map_err(ApiError::Rule)?);
        }
        if rules.is_empty() {
            return Err(ApiError::ReachesNothing);
        }
        Ok(Self {
            name,
            description: None,
            allow: rules,
            secrets: BTreeSet::new(),
            restricted: BTreeSet::new(),
            yolo: false,
            reference: None,
            base_url: None,
            examples: Vec::new(),
            types: None,
            openapi: None,
        })
    }

    /// Returns an error if the declaration of the service could never work.
    pub(crate) fn check(&self) -> Result<(), ApiError> {
        if let Some(base) = &self.base_url
            && !self.allow.iter().any(|rule| base.is_allowed_by(rule))
        {
            return Err(ApiError::BaseElsewhere(base.clone()));
        }
        if !self.secrets.is_empty() && !self.allow.iter().any(carries) {
            return Err(ApiError::NoCarrier);
        }
        let unseen = |rule: &&Rule| {
            rule.http()
                .is_none_or(|http| http.scheme == Scheme::Https && http.tls != Tls::Intercept)
        };
        match self.allow.iter().find(unseen) {
            Some(rule) if !self.restricted.is_empty() => {
                Err(ApiError::Unseen(rule.what.to_string()))
            }
            Some(_) | None => Ok(()),
        }
    }

    /// Returns the base of relative URLs of the service: the configured one, or the first host that
    /// is not a pattern.
    pub fn base(&self) -> Option<BaseUrl> {
        self.base_url.clone().or_else(|| self.allow.iter().find_map(BaseUrl::of_rule))
    }

    /// Returns the path of the file with the service's type declarations; `~` becomes `home`.
    pub fn types(&self, home: Option<&Path>) -> Option<PathBuf> {
        self.types.as_deref().map(|path| anchor(path, Path::new(""), home))
    }

    /// Returns the path of the service's OpenAPI document; `~` becomes `home`.
    pub fn openapi(&self, home: Option<&Path>) -> Option<PathBuf> {
        self.openapi.as_deref().map(|path| anchor(path, Path::new(""), home))
    }
}

/// Returns whether requests of a rule can carry a secret: they must be encrypted and intercepted.
pub(super) fn carries(rule: &Rule) -> bool {
    rule.http().is_some_and(|http| http.scheme == Scheme::Https && http.tls == Tls::Intercept)
}

/// The base of a service's relative URLs: `https://api.github.com`, or with a path.
///
/// It never ends with a slash.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BaseUrl {
    scheme: Scheme,
    target: Target,
    port: u16,
    path: String,
}

/// The reason why a text is not a valid base URL.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BaseUrlError {
    #[error("invalid URL; write https://HOST or https://HOST/PATH")]
    Malformed,
    #[error(transparent)]
    Target(TargetError),
    #[error("the path of the base URL must have plain characters, without `?` and `#`")]
    Path,
}

impl BaseUrl {
    pub fn target(&self) -> &Target {
        &self.target
    }

    pub const fn scheme(&self) -> Scheme {
        self.scheme
    }

    pub const fn port(&self) -> u16 {
        self.port
    }

    /// Returns the path without a slash at the end; it can be empty.
    pub fn path(&self) -> &str {
        &self.path
    }

    fn of_rule(rule: &Rule) -> Option<Self> {
        if let RuleTarget::HostPort(port) = rule.what {
            let target = crate::net::HOST_NAME.parse().ok()?;
            return Some(Self { scheme: Scheme::Http, target, port, path: String::new() });
        }
        let http = rule.http()?;
        let (target, port) = (http.host.target()?.clone(), *http.ports.first()?);
        Some(Self { scheme: http.scheme, target, port, path: String::new() })
    }

    /// Returns whether a rule allows some requests to this URL.
    pub fn is_allowed_by(&self, rule: &Rule) -> bool {
        match &rule.what {
            RuleTarget::Http(http) => {
                http.scheme == self.scheme
                    && http.ports.contains(&self.port)
                    && http.host.matches(&self.target)
            }
            RuleTarget::Tcp(tcp) => tcp.target == self.target && tcp.port == self.port,
            RuleTarget::HostPort(port) => {
                let here =
                    self.target.name().is_some_and(|it| it.as_str() == crate::net::HOST_NAME);
                here && *port == self.port
            }
        }
    }
}

impl FromStr for BaseUrl {
    type Err = BaseUrlError;

    fn from_str(text: &str) -> Result<Self, BaseUrlError> {
        let (scheme, rest) = text.split_once("://").ok_or(BaseUrlError::Malformed)?;
        let scheme: Scheme = scheme.parse().map_err(|_| BaseUrlError::Malformed)?;
        let (host, path) = rest.split_at(rest.find('/').unwrap_or(rest.len()));
        if host.contains('@') {
            return Err(BaseUrlError::Malformed);
        }
        let (target, port) = authority(host).map_err(BaseUrlError::Target)?;
        let legal = |byte: u8| {
            byte.is_ascii_alphanumeric()
                || matches!(byte, b'/' | b'-' | b'.' | b'_' | b'~' | b'%' | b'+' | b'@' | b':')
        };
        let steps = path.split('/').any(|segment| matches!(segment, "." | ".."));
        if path.len() > 1024 || steps || !path.bytes().all(legal) {
            return Err(BaseUrlError::Path);
        }
        let path = path.trim_end_matches('/').to_owned();
        Ok(Self { scheme, target, port: port.unwrap_or(scheme.port()), path })
    }
}

impl fmt::Display for BaseUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}://{}", self.scheme, self.target)?;
        if self.port != self.scheme.port() {
            write!(f, ":{}", self.port)?;
        }
        f.write_str(&self.path)
    }
}

by_text!(BaseUrl);
