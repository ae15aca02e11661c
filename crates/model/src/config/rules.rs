//! Parser for rules in a file: short strings, as on a command line, or tables.

use std::net::SocketAddr;
use std::str::FromStr;

use toml::de::DeValue;

use super::keys::{
    Invalid, ParseValue, Value, fill, invalid, list, number, scalar, set, table, text,
};
use crate::answer::{AnswerTerms, OperatorOnly};
use crate::net::{
    Allow, HostPattern, HttpRule, Method, PathPattern, PresetName, Rule, RuleError, RuleLimits,
    RuleMarks, RuleTarget, Scheme, SecretName, TcpRule, Tls,
};
use crate::plan::Label;

/// The maximum number of rules in a list, far above any real file.
const MAX_RULES: usize = 4096;

/// The parsed keys of one network rule, before they are checked together.
#[derive(Debug, Default)]
struct Raw {
    name: Option<String>,
    preset: Option<PresetName>,
    host: Option<HostPattern>,
    ports: Option<Vec<u16>>,
    scheme: Option<Scheme>,
    methods: Option<Vec<Method>>,
    paths: Option<Vec<PathPattern>>,
    secrets: Vec<SecretName>,
    limits: RuleLimits,
    tls: Option<Tls>,
    websocket: Option<bool>,
    connect: Option<SocketAddr>,
    tcp: Option<TcpRule>,
    host_port: Option<u16>,
    untrusted: Option<bool>,
    deny_when: Vec<Label>,
    approver: Option<OperatorOnly>,
    two_people: Option<bool>,
}

const KEYS: [(&str, ParseValue<Raw>); 19] = [
    ("name", |raw, value| set(&mut raw.name, name(value))),
    ("preset", |raw, value| set(&mut raw.preset, scalar(value))),
    ("host", |raw, value| set(&mut raw.host, host(value))),
    ("port", |raw, value| set(&mut raw.ports, port(value).map(|port| vec![port]))),
    ("ports", |raw, value| set(&mut raw.ports, ports(value))),
    ("scheme", |raw, value| set(&mut raw.scheme, scalar(value))),
    ("methods", |raw, value| set(&mut raw.methods, list(value))),
    ("paths", |raw, value| set(&mut raw.paths, list(value))),
    ("secrets", |raw, value| fill(&mut raw.secrets, list(value))),
    ("limits", |raw, value| table(&mut raw.limits, &LIMITS, value)),
    ("tls", |raw, value| set(&mut raw.tls, scalar(value))),
    ("websocket", |raw, value| set(&mut raw.websocket, boolean(value))),
    ("connect", |raw, value| set(&mut raw.connect, connect(value))),
    ("tcp", |raw, value| set(&mut raw.tcp, tcp(value))),
    ("host-port", |raw, value| set(&mut raw.host_port, port(value))),
    ("untrusted", |raw, value| set(&mut raw.untrusted, boolean(value))),
    ("deny-when", |raw, value| fill(&mut raw.deny_when, list(value))),
    ("approver", |raw, value| set(&mut raw.approver, scalar(value))),
    ("two-people", |raw, value| set(&mut raw.two_people, boolean(value))),
];

const LIMITS: [(&str, ParseValue<RuleLimits>); 3] = [
    ("requests", |limits, value| set(&mut limits.requests, scalar(value))),
    ("upload", |limits, value| set(&mut limits.upload, scalar(value))),
    ("total", |limits, value| set(&mut limits.total, scalar(value))),
];

/// Parses the `allow` rules of a template.
pub(super) fn allow(value: &Value<'_>) -> Result<Vec<Allow>, Invalid> {
    each(value, Allow::from_str, |raw| match raw.preset {
        Some(preset) => raw.only_preset().map(|()| Allow::Preset(preset)),
        None => {
            let marks = raw.marks();
            if let Some(key) = marks.answer_key() {
                return Err(invalid(format!("the key `{key}` is possible in an `ask` rule only")));
            }
            let (name, what) = raw.what(Use::Allow)?;
            let rule = Rule::allowing(name, what).map_err(invalid)?;
            Ok(Allow::Rule(Box::new(rule.with_marks(marks))))
        }
    })
}

/// Parses the `deny` rules of a template.
pub(super) fn deny(value: &Value<'_>) -> Result<Vec<Rule>, Invalid> {
    each(value, Rule::deny, |raw| match raw.preset {
        Some(_) => Err(invalid("`preset` is not possible in a `deny` rule")),
        None => {
            raw.marks().check_deny().map_err(invalid)?;
            let (name, what) = raw.what(Use::Deny)?;
            Rule::denying(name, what).map_err(invalid)
        }
    })
}

/// Parses the `ask` rules of a template.
pub(super) fn ask(value: &Value<'_>) -> Result<Vec<Rule>, Invalid> {
    each(value, Rule::ask, |raw| match raw.preset {
        Some(_) => Err(invalid("`preset` is not possible in an `ask` rule")),
        None => {
            let marks = raw.marks();
            let (name, what) = raw.what(Use::Ask)?;
            Ok(Rule::asking(name, what).map_err(invalid)?.with_marks(marks))
        }
    })
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Use {
    Allow,
    Deny,
    Ask,
}

fn each<T, E: std::fmt::Display>(
    value: &Value<'_>,
    short: fn(&str) -> Result<T, E>,
    long: fn(Raw) -> Result<T, Invalid>,
) -> Result<Vec<T>, Invalid> {
    let DeValue::Array(elements) = value.get_ref() else {
        return Err(invalid("must be a list of rules"));
    };
    if elements.len() > MAX_RULES {
        return Err(invalid(format!("at most {MAX_RULES} rules are possible")));
    }
    let element = |value: &Value<'_>| {
        let at = |what: String| Invalid::Element { key: None, at: value.span(), what };
        match value.get_ref() {
            DeValue::String(text) => short(text).map_err(|error| at(error.to_string())),
            DeValue::Table(_) => {
                let mut raw = Raw::default();
                table(&mut raw, &KEYS, value)?;
                long(raw).map_err(|invalid| match invalid {
                    Invalid::Here(what) => at(what),
                    other @ (Invalid::Element { .. }
                    | Invalid::Inside { .. }
                    | Invalid::Unknown { .. }) => other,
                })
            }
            DeValue::Integer(_)
            | DeValue::Float(_)
            | DeValue::Boolean(_)
            | DeValue::Datetime(_)
            | DeValue::Array(_) => Err(at("must be a string or a table".to_owned())),
        }
    };
    elements.iter().map(element).collect()
}

impl Raw {
    /// Returns an error if another key is set beside `preset`.
    fn only_preset(&self) -> Result<(), Invalid> {
        // Destructured without `..`, so that a new key cannot be ignored by mistake.
        let Self {
            name,
            preset: _,
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
            tcp,
            host_port,
            untrusted,
            deny_when,
            approver,
            two_people,
        } = self;
        let alone = name.is_none()
            && host.is_none()
            && scheme.is_none()
            && secrets.is_empty()
            && limits.is_empty()
            && tls.is_none()
            && websocket.is_none()
            && connect.is_none()
            && tcp.is_none()
            && host_port.is_none()
            && untrusted.is_none()
            && deny_when.is_empty()
            && approver.is_none()
            && two_people.is_none();
        if alone && ports.is_none() && methods.is_none() && paths.is_none() {
            return Ok(());
        }
        Err(invalid(
            "`preset` cannot be combined with other keys; write its rules out to change them",
        ))
    }

    fn marks(&self) -> RuleMarks {
        let deny_when = self.deny_when.iter().cloned().collect();
        let answers = AnswerTerms {
            operator: self.approver.is_some(),
            two_people: self.two_people.unwrap_or(false),
        };
        RuleMarks { untrusted: self.untrusted.unwrap_or(false), deny_when, answers }
    }

    fn what(self, purpose: Use) -> Result<(Option<String>, RuleTarget), Invalid> {
        let name = self.name.clone();
        let what = match (&self.host, &self.tcp, self.host_port) {
            (Some(_), None, None) => self.http(purpose).map_err(invalid)?,
            (None, Some(tcp), None) => {
                let tcp = TcpRule { connect: self.connect, ..tcp.clone() };
                self.only_http("tcp")?;
                RuleTarget::Tcp(tcp)
            }
            (None, None, Some(port)) => {
                self.only_http("host-port")?;
                if self.connect.is_some() {
                    return Err(invalid("`connect` cannot be combined with `host-port`"));
                }
                RuleTarget::HostPort(port)
            }
            _ => {
                return Err(invalid(
                    "a rule needs exactly one of `host`, `tcp`, `host-port` and `preset`",
                ));
            }
        };
        Ok((name, what))
    }

    /// Returns an error if a key is set that only a rule with `host` can have.
    fn only_http(&self, with: &str) -> Result<(), Invalid> {
        let keys = [
            ("ports", self.ports.is_some()),
            ("scheme", self.scheme.is_some()),
            ("methods", self.methods.is_some()),
            ("paths", self.paths.is_some()),
            ("secrets", !self.secrets.is_empty()),
            ("limits", !self.limits.is_empty()),
            ("tls", self.tls.is_some()),
            ("websocket", self.websocket.is_some()),
        ];
        match keys.into_iter().find(|(_, is_set)| *is_set) {
            Some((key, _)) => Err(invalid(format!("`{key}` cannot be combined with `{with}`"))),
            None => Ok(()),
        }
    }

    fn http(self, purpose: Use) -> Result<RuleTarget, RuleError> {
        let host = self.host.ok_or(RuleError::Malformed)?;
        // Parsed as a `deny` rule, in which wildcards can be wide.
        let host = match purpose {
            Use::Allow => host.to_string().parse().map_err(RuleError::Host)?,
            Use::Deny | Use::Ask => host,
        };
        let scheme = match (self.scheme, &self.ports) {
            (Some(scheme), _) => scheme,
            (None, Some(ports)) if purpose == Use::Allow => HttpRule::scheme_of(ports)?,
            (None, Some(_) | None) => Scheme::Https,
        };
        let default_scheme = match (purpose, self.scheme) {
            (Use::Deny | Use::Ask, None) => Vec::new(),
            (Use::Allow, _) | (Use::Deny | Use::Ask, Some(_)) => vec![scheme.port()],
        };
        let ports = match self.ports {
            Some(ports) if ports.is_empty() => return Err(RuleError::NoPorts),
            Some(ports) => ports,
            None => default_scheme,
        };
        Ok(RuleTarget::Http(HttpRule {
            host,
            ports,
            scheme,
            methods: self.methods.map(|methods| methods.into_iter().collect()),
            paths: self.paths,
            secrets: self.secrets.into_iter().collect(),
            limits: self.limits,
            tls: self.tls.unwrap_or(Tls::Intercept),
            websocket: self.websocket.unwrap_or(false),
            connect: self.connect,
            model: None,
        }))
    }
}

/// Parses the name of a rule that logs show: one short line.
fn name(value: &Value<'_>) -> Result<String, Invalid> {
    let name = text(value)?;
    let plain = name.chars().all(|c| matches!(c, ' '..='~'));
    if name.trim().is_empty() || name.len() > 100 || !plain {
        return Err(invalid("the name must be one line of at most 100 plain characters"));
    }
    Ok(name)
}

fn host(value: &Value<'_>) -> Result<HostPattern, Invalid> {
    HostPattern::for_deny(&text(value)?).map_err(invalid)
}

fn port(value: &Value<'_>) -> Result<u16, Invalid> {
    number(value).and_then(|port| match port {
        0 => Err(invalid(RuleError::Port)),
        port => Ok(port),
    })
}

fn ports(value: &Value<'_>) -> Result<Vec<u16>, Invalid> {
    let DeValue::Array(elements) = value.get_ref() else {
        return Err(invalid("must be a list of ports"));
    };
    let at = |element: &Value<'_>| Invalid::Element {
        key: None,
        at: element.span(),
        what: RuleError::Port.to_string(),
    };
    elements.iter().map(|element| port(element).map_err(|_| at(element))).collect()
}

pub(super) fn boolean(value: &Value<'_>) -> Result<bool, Invalid> {
    match value.get_ref() {
        DeValue::Boolean(boolean) => Ok(*boolean),
        DeValue::String(_)
        | DeValue::Integer(_)
        | DeValue::Float(_)
        | DeValue::Datetime(_)
        | DeValue::Array(_)
        | DeValue::Table(_) => Err(invalid("must be true or false")),
    }
}

fn connect(value: &Value<'_>) -> Result<SocketAddr, Invalid> {
    text(value)?
        .parse()
        .map_err(|_| invalid("must be an address with a port; write for example \"10.1.2.3:443\""))
}

fn tcp(value: &Value<'_>) -> Result<TcpRule, Invalid> {
    TcpRule::parse(&text(value)?).map_err(invalid)
}
