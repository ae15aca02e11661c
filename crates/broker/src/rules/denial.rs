//! Denials: the refused action, the reason, and how to allow the action.

use std::fmt;

use belljar_model::net::{HOST_NAME, Rule, Scheme, Target};
use serde::Serialize;

use super::OutboundRequest;

/// A refused action with its reason, shown to the box, in the log and to the user.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, thiserror::Error)]
#[error("{what}: {reason}{by}", reason = code.reason(), by = rule.as_ref().map_or(String::new(), |rule| format!(" ({rule})")))]
pub struct Denial {
    pub code: Code,
    /// The rule that denies the action, or the one that comes closest to allowing it.
    pub rule: Option<String>,
    /// A description of the refused action; a request is shown without its query.
    pub what: String,
    /// A hint how to allow the action, if possible.
    pub hint: String,
}

/// The reason code of a denied request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Code {
    NoNetwork,
    NoRule,
    DeniedByRule,
    Metadata,
    MethodForbidden,
    PrivateName,
    PrivateAddress,
    HiddenDns,
    Scheme,
    Port,
    Method,
    Path,
    #[serde(rename = "websocket")]
    WebSocket,
}

impl Code {
    pub const fn name(self) -> &'static str {
        match self {
            Self::NoNetwork => "no-network",
            Self::NoRule => "no-rule",
            Self::DeniedByRule => "denied-by-rule",
            Self::Metadata => "metadata",
            Self::MethodForbidden => "method-forbidden",
            Self::PrivateName => "private-name",
            Self::PrivateAddress => "private-address",
            Self::HiddenDns => "hidden-dns",
            Self::Scheme => "scheme",
            Self::Port => "port",
            Self::Method => "method",
            Self::Path => "path",
            Self::WebSocket => "websocket",
        }
    }

    /// Returns the reason of the denial in a few words.
    pub const fn reason(self) -> &'static str {
        match self {
            Self::NoNetwork => "the box has no network",
            Self::NoRule => "no rule allows it",
            Self::DeniedByRule => "a rule denies it",
            Self::Metadata => "it is a metadata service, which no rule can allow",
            Self::MethodForbidden => "no rule can allow this method",
            Self::PrivateName => "it is a name of a private network, and no rule names it",
            Self::PrivateAddress => "it is not a public address, and no rule names it",
            Self::HiddenDns => "it is a DNS service outside the broker, and no rule names it",
            Self::Scheme => "a rule allows the host, but not over this scheme",
            Self::Port => "a rule allows the host, but not this port",
            Self::Method => "a rule allows the host, but not this method",
            Self::Path => "a rule allows the host, but not this path",
            Self::WebSocket => "a rule allows it, but not as a WebSocket",
        }
    }

    /// Returns the HTTP status with which the broker refuses the request.
    pub const fn status(self) -> u16 {
        match self {
            Self::MethodForbidden => 405,
            Self::NoNetwork
            | Self::NoRule
            | Self::DeniedByRule
            | Self::Metadata
            | Self::PrivateName
            | Self::PrivateAddress
            | Self::HiddenDns
            | Self::Scheme
            | Self::Port
            | Self::Method
            | Self::Path
            | Self::WebSocket => 403,
        }
    }
}

impl fmt::Display for Code {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// An action of the box that the rules decide about.
#[derive(Debug, Clone, Copy)]
pub(super) enum Act<'a> {
    Request(&'a OutboundRequest),
    Name(&'a Target),
    Tcp(&'a Target, u16),
    Tls(&'a Target, u16),
}

/// The part of a request that did not match an `allow` rule; later variants matched more of the
/// rule.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Miss {
    Nothing,
    Scheme(String),
    Port(String),
    Method(String),
    Path(String),
    WebSocket(String),
}

impl Code {
    pub(super) fn of(self, rule: &Rule) -> Miss {
        let id = rule.id.clone();
        match self {
            Self::Scheme => Miss::Scheme(id),
            Self::Port => Miss::Port(id),
            Self::Method => Miss::Method(id),
            Self::Path => Miss::Path(id),
            Self::WebSocket => Miss::WebSocket(id),
            Self::NoNetwork
            | Self::NoRule
            | Self::DeniedByRule
            | Self::Metadata
            | Self::MethodForbidden
            | Self::PrivateName
            | Self::PrivateAddress
            | Self::HiddenDns => Miss::Nothing,
        }
    }
}

/// The maximum length of a path in texts for people; longer paths are truncated.
const MAX_PATH: usize = 200; // characters; paths are ASCII

impl<'a> Act<'a> {
    pub(super) fn target(self) -> &'a Target {
        match self {
            Self::Request(request) => &request.target,
            Self::Name(target) | Self::Tcp(target, _) | Self::Tls(target, _) => target,
        }
    }

    pub(super) fn port(self) -> Option<u16> {
        match self {
            Self::Request(request) => Some(request.port),
            Self::Name(_) => None,
            Self::Tcp(_, port) | Self::Tls(_, port) => Some(port),
        }
    }

    pub(super) fn denied(self, code: Code, rule: Option<&str>) -> Denial {
        let rule = rule.map(str::to_owned);
        Denial { code, hint: self.hint(code, rule.as_deref()), rule, what: self.what() }
    }

    pub(super) fn nearest_miss(self, nearest: Miss) -> Denial {
        let (code, rule) = match nearest {
            Miss::Nothing => (Code::NoRule, None),
            Miss::Scheme(rule) => (Code::Scheme, Some(rule)),
            Miss::Port(rule) => (Code::Port, Some(rule)),
            Miss::Method(rule) => (Code::Method, Some(rule)),
            Miss::Path(rule) => (Code::Path, Some(rule)),
            Miss::WebSocket(rule) => (Code::WebSocket, Some(rule)),
        };
        self.denied(code, rule.as_deref())
    }

    fn what(self) -> String {
        match self {
            Self::Request(request) => {
                let (path, _) = short(request.path.as_str());
                let (method, scheme, host) = (&request.method, request.scheme, with_port(request));
                format!("{method} {scheme}://{host}{path}")
            }
            Self::Name(target) => format!("the name {target}"),
            Self::Tcp(target, port) => format!("tcp://{target}:{port}"),
            Self::Tls(target, port) => format!("TLS to {target}:{port}"),
        }
    }

    fn hint(self, code: Code, rule: Option<&str>) -> String {
        match code {
            Code::NoNetwork => "belljar run --net restricted --allow RULE".to_owned(),
            Code::DeniedByRule => {
                format!("deny rules take precedence; remove `{}`", rule.unwrap_or("the rule"))
            }
            Code::Metadata | Code::MethodForbidden => "nothing can allow it".to_owned(),
            Code::WebSocket => format!(
                "add `websocket = true` to the rule `{}` in belljar.toml",
                rule.unwrap_or("that allows it")
            ),
            Code::NoRule
            | Code::PrivateName
            | Code::PrivateAddress
            | Code::HiddenDns
            | Code::Scheme
            | Code::Port
            | Code::Method
            | Code::Path => {
                // The box chose the path, which can contain a quote, and people paste this command.
                format!("belljar run --allow '{}'", self.rule_text().replace('\'', r"'\''"))
            }
        }
    }

    /// Returns the narrowest rule that allows the action, in the syntax of `--allow`.
    fn rule_text(self) -> String {
        match self {
            Self::Request(request) => {
                let scheme = match request.scheme {
                    Scheme::Https => "",
                    Scheme::Http => "http://",
                };
                let (path, cut) = short(request.path.as_str());
                let cut = if cut { "*/**" } else { "" };
                format!("{} {scheme}{}{path}{cut}", request.method, with_port(request))
            }
            Self::Name(target) => target.to_string(),
            Self::Tcp(target, port)
                if target.name().is_some_and(|name| name.as_str() == HOST_NAME) =>
            {
                format!("host-port:{port}")
            }
            Self::Tcp(target, port) => format!("tcp://{target}:{port}"),
            Self::Tls(target, 443) => target.to_string(),
            Self::Tls(target, port) => format!("{target}:{port}"),
        }
    }
}

/// Truncates a path without splitting an escape, and returns whether something was cut off.
fn short(path: &str) -> (&str, bool) {
    let Some(mut start) = path.get(..MAX_PATH).filter(|_| path.len() > MAX_PATH) else {
        return (path, false);
    };
    if let Some(escape) = start.rfind('%').filter(|at| at + 3 > MAX_PATH) {
        start = start.get(..escape).unwrap_or(start);
    }
    (start, true)
}

fn with_port(request: &OutboundRequest) -> String {
    if request.port == request.scheme.port() {
        request.target.to_string()
    } else {
        format!("{}:{}", request.target, request.port)
    }
}
