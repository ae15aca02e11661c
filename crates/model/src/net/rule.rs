//! Network rules, which allow, deny or ask about requests.
//!
//! On a command line a rule is a text: `api.github.com`, `*.example.com:8443`,
//! `GET,POST https://api.github.com/repos/acme/**`, `http://deb.debian.org`,
//! `tcp://db.internal:5432`, `host-port:5432`.

use std::collections::BTreeSet;
use std::fmt;
use std::net::SocketAddr;
use std::str::FromStr;

use serde::ser::{SerializeStruct as _, Serializer};
use serde::{Deserialize, Serialize};

use super::ModelServer;
use super::host::{HOST_NAME, Target, TargetError, split_port};
use super::marks::RuleMarks;
use super::pattern::{HostPattern, HostPatternError, PathPattern, PathPatternError};
use super::preset::{PresetError, PresetName};
use super::rate::RuleLimits;
use super::secret::SecretName;
use super::web::{Method, MethodError, Scheme, Tls};

/// A network rule and the id by which logs and refusals name it.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Rule {
    pub id: String,
    pub what: RuleTarget,
    #[serde(default)]
    pub marks: RuleMarks,
}

/// The JSON of a rule is hashed as a part of the policy in `run.created`, and must not change for rules
/// without marks. Binary formats need every field.
impl Serialize for Rule {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let Self { id, what, marks } = self;
        let is_omitted = serializer.is_human_readable() && marks.is_empty();
        let mut fields = serializer.serialize_struct("Rule", if is_omitted { 2 } else { 3 })?;
        fields.serialize_field("id", id)?;
        fields.serialize_field("what", what)?;
        match is_omitted {
            true => fields.skip_field("marks")?,
            false => fields.serialize_field("marks", marks)?,
        }
        fields.end()
    }
}

/// An entry of an `allow` list: a rule or a preset.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Allow {
    Preset(PresetName),
    Rule(Box<Rule>),
}

/// The reason why a text is neither a valid rule nor a preset.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum AllowError {
    #[error(transparent)]
    Preset(PresetError),
    #[error(transparent)]
    Rule(RuleError),
}

impl Allow {
    /// Returns an error if a rule that was not parsed from text is invalid; a preset is always
    /// valid.
    pub fn check(&self) -> Result<(), RuleError> {
        match self {
            Self::Preset(_) => Ok(()),
            Self::Rule(rule) => rule.check_allow(),
        }
    }
}

impl FromStr for Allow {
    type Err = AllowError;

    fn from_str(text: &str) -> Result<Self, AllowError> {
        // A single word is more likely a preset than a host.
        let word = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_');
        if !text.is_empty() && text.chars().all(word) {
            return text.parse().map(Self::Preset).map_err(AllowError::Preset);
        }
        Rule::allow(text).map(|rule| Self::Rule(Box::new(rule))).map_err(AllowError::Rule)
    }
}

/// The traffic that a rule applies to.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum RuleTarget {
    Http(HttpRule),
    Tcp(TcpRule),
    /// Connections to a port of the user's own machine, reached as `host.belljar.internal`.
    HostPort(u16),
}

/// A rule for HTTP requests to the hosts of a pattern.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct HttpRule {
    pub host: HostPattern,
    /// The TCP ports of the rule; in a `deny` or `ask` rule, an empty list means all ports.
    pub ports: Vec<u16>,
    /// The scheme of the requests; a `deny` or `ask` rule applies to both schemes.
    pub scheme: Scheme,
    /// The HTTP methods of the rule; `None` means all methods, except those that no rule can allow.
    pub methods: Option<BTreeSet<Method>>,
    /// The path patterns of the rule; `None` means all paths.
    pub paths: Option<Vec<PathPattern>>,
    pub secrets: BTreeSet<SecretName>,
    pub limits: RuleLimits,
    pub tls: Tls,
    pub websocket: bool,
    /// The address to connect to instead of resolving the name; only an operator can set it.
    pub connect: Option<SocketAddr>,
    /// The server of language models that the rule leads to, if it is known.
    #[serde(default)]
    pub model: Option<ModelServer>,
}

/// The JSON of a rule is hashed as a part of the policy in `run.created`, and must not change for rules that
/// name no server of models. Binary formats need every field.
impl Serialize for HttpRule {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let is_omitted = serializer.is_human_readable() && self.model.is_none();
        let mut fields =
            serializer.serialize_struct("HttpRule", if is_omitted { 10 } else { 11 })?;
        let Self {
            host,
            ports,
            scheme,
            methods,
            paths,
            secrets,
            limits,
            tls,
            websocket,
            connect,
            model,
        } = self;
        fields.serialize_field("host", host)?;
        fields.serialize_field("ports", ports)?;
        fields.serialize_field("scheme", scheme)?;
        fields.serialize_field("methods", methods)?;
        fields.serialize_field("paths", paths)?;
        fields.serialize_field("secrets", secrets)?;
        fields.serialize_field("limits", limits)?;
        fields.serialize_field("tls", tls)?;
        fields.serialize_field("websocket", websocket)?;
        fields.serialize_field("connect", connect)?;
        match is_omitted {
            true => fields.skip_field("model")?,
            false => fields.serialize_field("model", model)?,
        }
        fields.end()
    }
}

/// A rule for TCP connections to one port of one target, with any content.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TcpRule {
    pub target: Target,
    pub port: u16,
    pub connect: Option<SocketAddr>,
}

/// The reason why a rule is invalid.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum RuleError {
    #[error(
        "invalid rule; write for example `api.github.com`, `GET https://api.github.com/repos/acme/**`, `tcp://db.internal:5432` or `host-port:5432`"
    )]
    Malformed,
    #[error("`id` is empty or contains control characters")]
    Id,
    #[error("invalid `host`: {0}")]
    Host(HostPatternError),
    #[error("invalid `tcp`: {0}")]
    Tcp(TargetError),
    #[error("`tcp` needs a host and a port, for example db.internal:5432")]
    TcpPort,
    #[error("invalid port; write a number from 1 to 65535")]
    Port,
    #[error("`ports` is empty, so the rule matches nothing")]
    NoPorts,
    #[error("port 80 means plain HTTP and the other ports HTTPS; write two rules, or set `scheme`")]
    MixedPorts,
    #[error("invalid `methods`: {0}")]
    Method(MethodError),
    #[error("`methods` is empty, so the rule matches nothing; leave it out to match all")]
    NoMethods,
    #[error("invalid `methods`: no rule can allow {0}")]
    ForbiddenMethod(Method),
    #[error("invalid `paths`: {0}")]
    Path(PathPatternError),
    #[error("`paths` is empty, so the rule matches nothing; leave it out to match all")]
    NoPaths,
    #[error("invalid `secrets`: a rule for plain HTTP cannot carry a secret; use HTTPS")]
    SecretOverHttp,
    #[error(
        "`tls = \"passthrough\"` cannot be combined with `{0}`, because requests are not intercepted"
    )]
    Passthrough(&'static str),
    #[error("invalid `connect`: no connection to this address is possible")]
    Connect,
    #[error(
        "a rule cannot name this machine; write `host-port = PORT`, and the box connects to {HOST_NAME}"
    )]
    ThisMachine,
    #[error("the key `{0}` is not possible in a `deny` rule")]
    InDeny(&'static str),
    #[error("the key `{0}` is not possible in an `ask` rule")]
    InAsk(&'static str),
}

impl Rule {
    /// Parses an `allow` rule from text.
    pub fn allow(text: &str) -> Result<Self, RuleError> {
        let what = RuleTarget::parse(text, HostPattern::from_text_allow, Vec::from)?;
        Self::allowing(None, what)
    }

    /// Parses a `deny` rule from text: wildcards can be wide, and no port means all ports.
    pub fn deny(text: &str) -> Result<Self, RuleError> {
        let what = RuleTarget::parse(text, HostPattern::for_deny, |_| Vec::new())?;
        Self::denying(None, what)
    }

    /// Parses an `ask` rule from text, which can be as wide as a `deny` rule.
    pub fn ask(text: &str) -> Result<Self, RuleError> {
        let what = RuleTarget::parse(text, HostPattern::for_deny, |_| Vec::new())?;
        Self::asking(None, what)
    }

    /// Creates and checks an `allow` rule; without a name, the text of the rule becomes its id.
    pub fn allowing(name: Option<String>, what: RuleTarget) -> Result<Self, RuleError> {
        what.check_allow()?;
        Ok(Self::named(name.unwrap_or_else(|| format!("allow {what}")), what))
    }

    /// Creates and checks a `deny` rule; without a name, the text of the rule becomes its id.
    pub fn denying(name: Option<String>, what: RuleTarget) -> Result<Self, RuleError> {
        what.check_deny()?;
        Ok(Self::named(name.unwrap_or_else(|| format!("deny {what}")), what))
    }

    /// Creates and checks an `ask` rule; without a name, the text of the rule becomes its id.
    pub fn asking(name: Option<String>, what: RuleTarget) -> Result<Self, RuleError> {
        what.check_ask()?;
        Ok(Self::named(name.unwrap_or_else(|| format!("ask {what}")), what))
    }

    fn named(id: String, what: RuleTarget) -> Self {
        Self { id, what, marks: RuleMarks::default() }
    }

    /// Returns the rule with these marks.
    #[must_use]
    pub fn with_marks(self, marks: RuleMarks) -> Self {
        Self { marks, ..self }
    }

    /// Returns an error if a deserialized `allow` rule is invalid.
    pub fn check_allow(&self) -> Result<(), RuleError> {
        self.check_id()?;
        if let RuleTarget::Http(http) = &self.what {
            // Parsed again, because an `allow` rule cannot have wildcards as wide as a `deny` rule.
            http.host.to_string().parse::<HostPattern>().map_err(RuleError::Host)?;
        }
        self.what.check_allow()
    }

    /// Returns an error if a deserialized `deny` rule is invalid.
    pub fn check_deny(&self) -> Result<(), RuleError> {
        self.check_id()?;
        self.marks.check_deny()?;
        self.what.check_deny()
    }

    /// Returns an error if a deserialized `ask` rule is invalid.
    pub fn check_ask(&self) -> Result<(), RuleError> {
        self.check_id()?;
        self.what.check_ask()
    }

    fn check_id(&self) -> Result<(), RuleError> {
        if self.id.is_empty() || self.id.contains(char::is_control) {
            return Err(RuleError::Id);
        }
        Ok(())
    }

    /// Returns the HTTP part of the rule, or `None` for another kind of rule.
    pub fn http(&self) -> Option<&HttpRule> {
        match &self.what {
            RuleTarget::Http(http) => Some(http),
            RuleTarget::Tcp(_) | RuleTarget::HostPort(_) => None,
        }
    }
}

impl HttpRule {
    /// Returns a rule that matches all HTTPS requests to these hosts.
    pub fn https(host: HostPattern) -> Self {
        Self {
            host,
            ports: vec![Scheme::Https.port()],
            scheme: Scheme::Https,
            methods: None,
            paths: None,
            secrets: BTreeSet::new(),
            limits: RuleLimits::default(),
            tls: Tls::Intercept,
            websocket: false,
            connect: None,
            model: None,
        }
    }

    pub fn allows_method(&self, method: &Method) -> bool {
        self.methods.as_ref().is_none_or(|methods| methods.contains(method))
    }

    /// Returns the scheme (HTTP or HTTPS) that a list of ports implies.
    pub fn scheme_of(ports: &[u16]) -> Result<Scheme, RuleError> {
        match (ports.contains(&80), ports.iter().all(|port| *port == 80)) {
            (true, true) => Ok(Scheme::Http),
            (true, false) => Err(RuleError::MixedPorts),
            (false, _) => Ok(Scheme::Https),
        }
    }

    fn check(&self) -> Result<(), RuleError> {
        if self.ports.contains(&0) {
            return Err(RuleError::Port);
        }
        if self.methods.as_ref().is_some_and(BTreeSet::is_empty) {
            return Err(RuleError::NoMethods);
        }
        if self.paths.as_ref().is_some_and(Vec::is_empty) {
            return Err(RuleError::NoPaths);
        }
        Ok(())
    }

    fn check_allow(&self) -> Result<(), RuleError> {
        self.check()?;
        if self.ports.is_empty() {
            return Err(RuleError::NoPorts);
        }
        if self.host.target().is_some_and(is_this_machine) {
            return Err(RuleError::ThisMachine);
        }
        let forbidden = self.methods.iter().flatten().find(|method| method.is_forbidden());
        if let Some(method) = forbidden {
            return Err(RuleError::ForbiddenMethod(method.clone()));
        }
        self.check_way()
    }

    /// Returns an error if a part is invalid that only an `allow` or `ask` rule can have.
    fn check_way(&self) -> Result<(), RuleError> {
        if self.scheme == Scheme::Http && !self.secrets.is_empty() {
            return Err(RuleError::SecretOverHttp);
        }
        if self.tls == Tls::Passthrough {
            let blind = [
                ("secrets", !self.secrets.is_empty()),
                ("methods", self.methods.is_some()),
                ("paths", self.paths.is_some()),
                ("websocket", self.websocket),
                ("scheme = \"http\"", self.scheme == Scheme::Http),
            ];
            if let Some((key, _)) = blind.into_iter().find(|(_, is_set)| *is_set) {
                return Err(RuleError::Passthrough(key));
            }
        }
        self.connect.map_or(Ok(()), check_connect)
    }

    fn check_ask(&self) -> Result<(), RuleError> {
        self.check()?;
        if self.host.target().is_some_and(is_this_machine) {
            return Err(RuleError::ThisMachine);
        }
        // The operator sees that the request opens a WebSocket, and limits belong to `allow` rules.
        let meaningless = [("limits", !self.limits.is_empty()), ("websocket", self.websocket)];
        if let Some((key, _)) = meaningless.into_iter().find(|(_, is_set)| *is_set) {
            return Err(RuleError::InAsk(key));
        }
        self.check_way()
    }

    fn check_deny(&self) -> Result<(), RuleError> {
        self.check()?;
        let meaningless = [
            ("secrets", !self.secrets.is_empty()),
            ("limits", !self.limits.is_empty()),
            ("tls", self.tls != Tls::Intercept),
            ("websocket", self.websocket),
            ("connect", self.connect.is_some()),
            ("model", self.model.is_some()),
        ];
        match meaningless.into_iter().find(|(_, is_set)| *is_set) {
            Some((key, _)) => Err(RuleError::InDeny(key)),
            None => Ok(()),
        }
    }
}

/// Returns whether a target is a loopback name or address, or the name of this machine in boxes.
pub(crate) fn is_this_machine(target: &Target) -> bool {
    match target {
        Target::Name(name) => name.as_str() == HOST_NAME || name.is_within("localhost"),
        Target::Address(address) => address.is_loopback() || address.is_unspecified(),
    }
}

fn check_connect(address: SocketAddr) -> Result<(), RuleError> {
    let ip = address.ip();
    if address.port() == 0 || ip.is_unspecified() || ip.is_multicast() {
        return Err(RuleError::Connect);
    }
    Ok(())
}

impl RuleTarget {
    fn check_allow(&self) -> Result<(), RuleError> {
        match self {
            Self::Http(http) => http.check_allow(),
            Self::Tcp(TcpRule { port: 0, .. }) | Self::HostPort(0) => Err(RuleError::Port),
            Self::Tcp(tcp) if is_this_machine(&tcp.target) => Err(RuleError::ThisMachine),
            Self::Tcp(tcp) => tcp.connect.map_or(Ok(()), check_connect),
            Self::HostPort(_) => Ok(()),
        }
    }

    fn check_ask(&self) -> Result<(), RuleError> {
        match self {
            Self::Http(http) => http.check_ask(),
            Self::Tcp(_) | Self::HostPort(_) => self.check_allow(),
        }
    }

    fn check_deny(&self) -> Result<(), RuleError> {
        match self {
            Self::Http(http) => http.check_deny(),
            Self::Tcp(TcpRule { port: 0, .. }) | Self::HostPort(0) => Err(RuleError::Port),
            Self::Tcp(TcpRule { connect: Some(_), .. }) => Err(RuleError::InDeny("connect")),
            Self::Tcp(_) | Self::HostPort(_) => Ok(()),
        }
    }

    fn parse(
        text: &str,
        host: fn(&str) -> Result<HostPattern, HostPatternError>,
        default_ports: fn([u16; 1]) -> Vec<u16>,
    ) -> Result<Self, RuleError> {
        if let Some(port) = text.strip_prefix("host-port:") {
            return Ok(Self::HostPort(parse_port(port)?));
        }
        if let Some(target) = text.strip_prefix("tcp://") {
            return TcpRule::parse(target).map(Self::Tcp);
        }
        let (methods, url) = match text.split_once(' ') {
            Some((methods, url)) => (Some(parse_methods(methods)?), url),
            None => (None, text),
        };
        let (explicit, rest) = match url.split_once("://") {
            Some(("https", rest)) => (Some(Scheme::Https), rest),
            Some(("http", rest)) => (Some(Scheme::Http), rest),
            Some(_) => return Err(RuleError::Malformed),
            None => (None, url),
        };
        if rest.is_empty() || rest.contains([' ', '@']) && !rest.contains('/') {
            return Err(RuleError::Malformed);
        }
        let (authority, path) = rest.split_at(rest.find('/').unwrap_or(rest.len()));
        let (name, port) = split_port(authority).map_err(|()| RuleError::Port)?;
        let scheme = match (explicit, port) {
            (Some(scheme), _) => scheme,
            (None, Some(80)) => Scheme::Http,
            (None, _) => Scheme::Https,
        };
        let ports = match (port, explicit) {
            (Some(port), _) => vec![port],
            (None, Some(scheme)) => vec![scheme.port()],
            (None, None) => default_ports([scheme.port()]),
        };
        let paths = match path {
            "" => None,
            path => Some(vec![path.parse().map_err(RuleError::Path)?]),
        };
        let host = host(name).map_err(RuleError::Host)?;
        Ok(Self::Http(HttpRule { ports, scheme, methods, paths, ..HttpRule::https(host) }))
    }
}

impl HostPattern {
    fn from_text_allow(text: &str) -> Result<Self, HostPatternError> {
        text.parse()
    }
}

impl TcpRule {
    /// Parses the target of a TCP rule: `db.internal:5432`, `10.0.0.5:5432` or
    /// `[2001:db8::1]:5432`.
    pub fn parse(text: &str) -> Result<Self, RuleError> {
        let (target, port) = split_port(text).map_err(|()| RuleError::Port)?;
        let port = port.ok_or(RuleError::TcpPort)?;
        if target.contains('*') {
            return Err(RuleError::TcpPort);
        }
        let target = target.parse().map_err(RuleError::Tcp)?;
        Ok(Self { target, port, connect: None })
    }
}

fn parse_port(text: &str) -> Result<u16, RuleError> {
    let plain = !text.starts_with('0') && text.bytes().all(|byte| byte.is_ascii_digit());
    text.parse().ok().filter(|_| plain).ok_or(RuleError::Port)
}

fn parse_methods(text: &str) -> Result<BTreeSet<Method>, RuleError> {
    text.split(',').map(|method| method.parse().map_err(RuleError::Method)).collect()
}

/// Writes the rule as on a command line, where a rule has one path.
impl fmt::Display for RuleTarget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Http(http) => http.fmt(f),
            Self::Tcp(tcp) => write!(f, "tcp://{}:{}", tcp.target, tcp.port),
            Self::HostPort(port) => write!(f, "host-port:{port}"),
        }
    }
}

impl fmt::Display for HttpRule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(methods) = &self.methods {
            let methods: Vec<&str> = methods.iter().map(Method::as_str).collect();
            write!(f, "{} ", methods.join(","))?;
        }
        if self.scheme == Scheme::Http {
            f.write_str("http://")?;
        }
        write!(f, "{}", self.host)?;
        if !self.ports.is_empty() && self.ports != [self.scheme.port()] {
            let ports: Vec<String> = self.ports.iter().map(u16::to_string).collect();
            write!(f, ":{}", ports.join(","))?;
        }
        for (index, path) in self.paths.iter().flatten().enumerate() {
            let gap = if index == 0 { "" } else { " " };
            write!(f, "{gap}{path}")?;
        }
        Ok(())
    }
}
