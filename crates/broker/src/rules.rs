//! Decides about every connection and request that leaves a box; pure, on parsed values.
//!
//! `deny` wins over `ask`, `ask` wins over `allow`, and everything else is denied. Metadata
//! services, which hand out credentials of the machine, are denied even if a rule allows them. Only
//! this module creates a [`Permit`]. A permit of an `ask` rule cannot be used before it is
//! approved.

mod ask;
mod denial;
mod known;
mod permit;
mod ports;

use std::collections::BTreeSet;
use std::net::{Ipv4Addr, SocketAddr};

use belljar_model::Net;
use belljar_model::net::{
    HOST_NAME, Hostname, HttpRule, Method, Policy, Rule, RuleLimits, RuleTarget, Scheme, Target,
    TcpRule, Tls, TokenUrl, is_private_name,
};

pub use denial::{Code, Denial};
use permit::FULL;
pub use permit::{NamePermit, Permit, TcpPermit};

use crate::address::{self, Range, Reach};
use crate::target::CanonicalPath;
use denial::{Act, Miss};

/// The network rules of one box.
#[derive(Debug, Clone)]
pub struct Rules {
    net: Net,
    allow: Vec<Rule>,
    /// The number of each `allow` rule, which stays the same when other rules are added or removed.
    numbers: Vec<usize>,
    /// The number that the next new rule gets.
    next: usize,
    deny: Vec<Rule>,
    ask: Vec<Rule>,
}

/// The parts of an outgoing request that rules are compared with.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OutboundRequest {
    pub scheme: Scheme,
    pub target: Target,
    pub port: u16,
    pub method: Method,
    pub path: CanonicalPath,
    /// Whether the request asks for an upgrade to WebSocket.
    pub upgrade: bool,
}

/// The decision about a TLS connection: intercept, forward or deny.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Handling {
    /// Terminate TLS and decide about each request of the connection.
    Intercept,
    /// Forward the encrypted bytes of the connection unchanged.
    Passthrough(Permit),
    Refuse(Denial),
}

impl Rules {
    pub fn new(policy: &Policy) -> Self {
        let Policy { net, allow, deny, ask, .. } = policy.clone();
        let next = allow.len();
        Self { net, allow, numbers: (0..next).collect(), next, deny, ask }
    }

    /// Returns the rules of a changed policy; rules that stay keep their numbers. Rules that stay
    /// keep their number and their used limits.
    #[must_use]
    pub fn followed_by(&self, policy: &Policy) -> Self {
        let mut next = self.next;
        let mut old: Vec<(&Rule, usize)> =
            self.allow.iter().zip(self.numbers.iter().copied()).collect();
        let number = |rule: &Rule| match old.iter().position(|(known, _)| *known == rule) {
            Some(at) => old.swap_remove(at).1,
            None => {
                next += 1;
                next - 1
            }
        };
        let numbers = policy.allow.iter().map(number).collect();
        Self { numbers, next, ..Self::new(policy) }
    }

    /// Decides whether the rules allow one HTTP request.
    pub fn check(&self, request: &OutboundRequest) -> Result<Permit, Denial> {
        let act = Act::Request(request);
        self.refuse_always(act)?;
        if request.method.is_forbidden() {
            return Err(act.denied(Code::MethodForbidden, None));
        }
        if let Some(rule) = self.deny.iter().find(|rule| denies_request(rule, request)) {
            return Err(act.denied(Code::DeniedByRule, Some(&rule.id)));
        }
        match self.ask.iter().find(|rule| denies_request(rule, request)) {
            Some(rule) => self.ask_first(act, rule, request, self.allowed(act, request)),
            None => self.allowed(act, request),
        }
    }

    /// Decides about a request by the `allow` rules and `net = "full"` only.
    fn allowed(&self, act: Act<'_>, request: &OutboundRequest) -> Result<Permit, Denial> {
        let mut nearest = Miss::Nothing;
        for (index, rule) in self.allow.iter().enumerate() {
            let Some(http) = rule.http() else { continue };
            match misses(http, request) {
                None => return self.permit(act, index, rule, http, request),
                Some(miss) => nearest = nearest.max(miss.of(rule)),
            }
        }
        match self.full(act) {
            Ok(()) => Ok(Permit {
                rule: FULL.to_owned(),
                index: None,
                scheme: request.scheme,
                target: request.target.clone(),
                port: request.port,
                connect: None,
                secrets: BTreeSet::new(),
                limits: RuleLimits::default(),
                reach: Reach::Public,
                opaque: false,
                asks: None,
                model: None,
            }),
            Err(Code::NoRule) => Err(act.nearest_miss(nearest)),
            Err(code) => Err(act.denied(code, None)),
        }
    }

    fn permit(
        &self,
        act: Act<'_>,
        index: usize,
        rule: &Rule,
        http: &HttpRule,
        request: &OutboundRequest,
    ) -> Result<Permit, Denial> {
        let permit = self.lead(index, rule, http, &request.target, request.port);
        let permit = permit.map_err(|code| act.denied(code, Some(&rule.id)))?;
        // Other allow rules that match the same request can add their secrets.
        let matching =
            self.allow.iter().filter_map(Rule::http).filter(|it| misses(it, request).is_none());
        let secrets = match request.scheme {
            Scheme::Https => matching.flat_map(|it| it.secrets.iter().cloned()).collect(),
            Scheme::Http => BTreeSet::new(),
        };
        Ok(Permit { secrets, ..permit })
    }

    /// Creates the permit of an `allow` rule, without its secrets. The `connect` address can come
    /// from another rule with the same host, scheme and port: a preset lists the allowed requests,
    /// and the operator's own rule gives the in-house address.
    fn lead(
        &self,
        index: usize,
        rule: &Rule,
        http: &HttpRule,
        target: &Target,
        port: u16,
    ) -> Result<Permit, Code> {
        let alike = |it: &&HttpRule| {
            it.host == http.host && it.scheme == http.scheme && it.ports.contains(&port)
        };
        let configured =
            || self.allow.iter().filter_map(Rule::http).filter(alike).find_map(|it| it.connect);
        let connect = http.connect.or_else(configured);
        let model = self.allow.iter().filter_map(Rule::http).filter(alike).find_map(|it| it.model);
        Ok(Permit {
            rule: rule.id.clone(),
            index: self.numbers.get(index).copied(),
            scheme: http.scheme,
            target: target.clone(),
            port,
            connect,
            secrets: BTreeSet::new(),
            limits: http.limits,
            reach: reach(target, connect)?,
            opaque: false,
            asks: None,
            model: http.model.or(model),
        })
    }

    /// Decides whether the rules allow the box to resolve a host name. Does not resolve the name.
    pub fn name(&self, name: &Hostname) -> Result<NamePermit, Denial> {
        let target = Target::Name(name.clone());
        let act = Act::Name(&target);
        self.refuse_always(act)?;
        let whole = |rule: &&Rule| match &rule.what {
            RuleTarget::Http(http) => denies_all_of(http) && http.host.matches(&target),
            RuleTarget::Tcp(_) | RuleTarget::HostPort(_) => false,
        };
        if let Some(rule) = self.deny.iter().find(whole) {
            return Err(act.denied(Code::DeniedByRule, Some(&rule.id)));
        }
        let names = |rule: &&Rule| match &rule.what {
            RuleTarget::Http(http) => http.host.matches(&target),
            RuleTarget::Tcp(tcp) => tcp.target == target,
            RuleTarget::HostPort(_) => name.as_str() == HOST_NAME,
        };
        if let Some(rule) = self.ask.iter().chain(&self.allow).find(names) {
            return Ok(NamePermit { rule: rule.id.clone() });
        }
        match self.full(act) {
            Ok(()) => Ok(NamePermit { rule: FULL.to_owned() }),
            Err(code) => Err(act.denied(code, None)),
        }
    }

    /// Decides whether the rules allow a raw TCP connection to a target and port.
    pub fn tcp(&self, target: &Target, port: u16) -> Result<TcpPermit, Denial> {
        let act = Act::Tcp(target, port);
        self.refuse_always(act)?;
        // Requests are not visible here, so a rule that denies some of them denies the connection.
        if let Some(rule) = self.deny.iter().find(|rule| denies_port(rule, target, port)) {
            return Err(act.denied(Code::DeniedByRule, Some(&rule.id)));
        }
        match self.ask.iter().find(|rule| denies_port(rule, target, port)) {
            Some(rule) => match self.allowed_tcp(&self.allow, target, port) {
                // If no allow rule matches, only an ask rule for TCP can permit raw bytes.
                Err(_) => self.allowed_tcp(&self.ask, target, port),
                allowed => allowed,
            }
            .map(|permit| TcpPermit { asks: Some(rule.id.clone()), ..permit }),
            None => self.allowed_tcp(&self.allow, target, port),
        }
    }

    /// Decides about a raw TCP connection by the given `allow` rules and `net = "full"`.
    fn allowed_tcp(&self, rules: &[Rule], target: &Target, port: u16) -> Result<TcpPermit, Denial> {
        let act = Act::Tcp(target, port);
        for rule in rules {
            let connect = match &rule.what {
                RuleTarget::Tcp(tcp) if tcp.target == *target && tcp.port == port => tcp.connect,
                RuleTarget::HostPort(open) if *open == port && is_host(target) => {
                    Some(SocketAddr::from((Ipv4Addr::LOCALHOST, port)))
                }
                RuleTarget::Http(_) | RuleTarget::Tcp(_) | RuleTarget::HostPort(_) => continue,
            };
            let reach = reach(target, connect).map_err(|code| act.denied(code, Some(&rule.id)))?;
            let (rule, target) = (rule.id.clone(), target.clone());
            return Ok(TcpPermit { rule, target, port, connect, reach, asks: None });
        }
        match self.full(act) {
            Ok(()) => Ok(TcpPermit {
                rule: FULL.to_owned(),
                target: target.clone(),
                port,
                connect: None,
                reach: Reach::Public,
                asks: None,
            }),
            Err(code) => Err(act.denied(code, None)),
        }
    }

    /// Returns the permit for the broker's own request to the token server of a secret. The
    /// declaration of the secret allows the request; a rule for that host only supplies the
    /// `connect` address.
    pub fn token(&self, url: &TokenUrl) -> Result<Permit, Denial> {
        let TokenUrl { target, port, .. } = url;
        let act = Act::Tls(target, *port);
        self.refuse_always(act)?;
        let of_host = |http: &&HttpRule| {
            http.scheme == Scheme::Https && http.host.matches(target) && http.ports.contains(port)
        };
        let rule = self.allow.iter().chain(&self.ask).filter_map(Rule::http).find(of_host);
        let connect = rule.and_then(|http| http.connect);
        Ok(Permit {
            rule: "token-url".to_owned(),
            index: None,
            scheme: Scheme::Https,
            target: target.clone(),
            port: *port,
            connect,
            secrets: BTreeSet::new(),
            limits: RuleLimits::default(),
            reach: reach(target, connect).map_err(|code| act.denied(code, None))?,
            opaque: false,
            asks: None,
            model: None,
        })
    }

    /// Decides whether a TLS connection to this name is intercepted, forwarded or denied.
    pub fn tls(&self, name: &Hostname, port: u16) -> Handling {
        let target = Target::Name(name.clone());
        let act = Act::Tls(&target, port);
        if let Err(denial) = self.refuse_always(act) {
            return Handling::Refuse(denial);
        }
        let denying = |rule: &&Rule| denies_port(rule, &target, port);
        let whole = |rule: &Rule| {
            rule.http().is_none_or(|http| http.methods.is_none() && http.paths.is_none())
        };
        if let Some(rule) = self.deny.iter().filter(denying).find(|rule| whole(rule)) {
            return Handling::Refuse(act.denied(Code::DeniedByRule, Some(&rule.id)));
        }
        let partly = self.deny.iter().find(denying);
        // The requests are not visible, so an ask rule for some of them applies to all of them.
        let asks = self.ask.iter().find(denying).map(|rule| rule.id.clone());
        for (index, rule) in self.allow.iter().enumerate() {
            let Some(http) = rule.http() else { continue };
            if http.scheme != Scheme::Https
                || !http.host.matches(&target)
                || !http.ports.contains(&port)
            {
                continue;
            }
            return match (http.tls, partly) {
                (Tls::Intercept, _) => Handling::Intercept,
                // The requests are not visible, so a partial deny rule denies all of them.
                (Tls::Passthrough, Some(deny)) => {
                    Handling::Refuse(act.denied(Code::DeniedByRule, Some(&deny.id)))
                }
                (Tls::Passthrough, None) => match self.lead(index, rule, http, &target, port) {
                    Ok(permit) => Handling::Passthrough(Permit { opaque: true, asks, ..permit }),
                    Err(code) => Handling::Refuse(act.denied(code, Some(&rule.id))),
                },
            };
        }
        if let Some(rule) = self.ask.iter().find(denying) {
            return self.ask_tls(act, rule, &target, port, partly);
        }
        match (self.full(act), partly) {
            (Ok(()), None) if port != Scheme::Https.port() => Handling::Passthrough(Permit {
                rule: FULL.to_owned(),
                index: None,
                scheme: Scheme::Https,
                target,
                port,
                connect: None,
                secrets: BTreeSet::new(),
                limits: RuleLimits::default(),
                reach: Reach::Public,
                opaque: true,
                asks: None,
                model: None,
            }),
            (Ok(()), _) => Handling::Intercept,
            (Err(code), _) => Handling::Refuse(act.denied(code, None)),
        }
    }

    /// Returns an error for an action that no rule can allow.
    fn refuse_always(&self, act: Act<'_>) -> Result<(), Denial> {
        if self.net == Net::None {
            return Err(act.denied(Code::NoNetwork, None));
        }
        let metadata = match act.target() {
            Target::Name(name) => address::is_metadata_name(name),
            Target::Address(ip) => address::range(*ip) == Some(Range::Metadata),
        };
        if metadata {
            return Err(act.denied(Code::Metadata, None));
        }
        Ok(())
    }

    /// Returns an error unless `net = "full"` allows an action: public targets except DNS resolvers
    /// (A17).
    fn full(&self, act: Act<'_>) -> Result<(), Code> {
        if self.net != Net::Full {
            return Err(Code::NoRule);
        }
        if act.port().is_some_and(|port| known::NAME_PORTS.contains(&port)) {
            return Err(Code::HiddenDns);
        }
        match act.target() {
            Target::Name(name) if is_private_name(name) => Err(Code::PrivateName),
            Target::Name(name) if known::is_doh(name) => Err(Code::HiddenDns),
            Target::Name(_) => Ok(()),
            Target::Address(ip) if known::DOH_ADDRESSES.contains(ip) => Err(Code::HiddenDns),
            Target::Address(ip) => match address::range(*ip) {
                None => Ok(()),
                Some(_) => Err(Code::PrivateAddress),
            },
        }
    }
}

/// Returns why an `allow` rule does not match a request; `None` if it matches.
fn misses(http: &HttpRule, request: &OutboundRequest) -> Option<Code> {
    if !http.host.matches(&request.target) {
        return Some(Code::NoRule);
    }
    if http.scheme != request.scheme {
        return Some(Code::Scheme);
    }
    if !http.ports.contains(&request.port) {
        return Some(Code::Port);
    }
    if http.tls == Tls::Passthrough && http.scheme == Scheme::Https {
        // The rule applies to forwarded TLS connections only, not to intercepted requests.
        return Some(Code::NoRule);
    }
    if !http.allows_method(&request.method) {
        return Some(Code::Method);
    }
    let paths = http.paths.as_ref();
    if paths.is_some_and(|paths| !paths.iter().any(|path| request.path.allowed_by(path))) {
        return Some(Code::Path);
    }
    if request.upgrade && !http.websocket {
        return Some(Code::WebSocket);
    }
    None
}

/// Returns which addresses a rule for this target can reach: public ones, or also private ones.
/// Private names and literal addresses can; a name that a stranger could register cannot (A03).
fn reach(target: &Target, connect: Option<SocketAddr>) -> Result<Reach, Code> {
    if connect.is_some_and(|to| address::range(to.ip()) == Some(Range::Metadata)) {
        return Err(Code::Metadata);
    }
    match target {
        Target::Name(name) if is_private_name(name) => Ok(Reach::Named),
        Target::Name(_) => Ok(Reach::Public),
        Target::Address(_) => Ok(Reach::Named),
    }
}

fn is_host(target: &Target) -> bool {
    target.name().is_some_and(|name| name.as_str() == HOST_NAME)
}

/// Returns whether a `deny` or `ask` rule matches this request, over HTTP or HTTPS.
fn denies_request(rule: &Rule, request: &OutboundRequest) -> bool {
    let Some(http) = rule.http() else { return denies_port(rule, &request.target, request.port) };
    denies_port(rule, &request.target, request.port)
        && http.allows_method(&request.method)
        && http
            .paths
            .as_ref()
            .is_none_or(|paths| paths.iter().any(|path| request.path.denied_by(path)))
}

/// Returns whether a `deny` or `ask` rule matches at least some traffic to this target and port.
fn denies_port(rule: &Rule, target: &Target, port: u16) -> bool {
    match &rule.what {
        RuleTarget::Http(http) => {
            http.host.matches(target) && (http.ports.is_empty() || http.ports.contains(&port))
        }
        RuleTarget::Tcp(TcpRule { target: denied, port: closed, .. }) => {
            denied == target && *closed == port
        }
        RuleTarget::HostPort(closed) => *closed == port && is_host(target),
    }
}

/// Returns whether a `deny` rule matches every request to its hosts.
fn denies_all_of(http: &HttpRule) -> bool {
    http.ports.is_empty() && http.methods.is_none() && http.paths.is_none()
}

#[cfg(test)]
mod tests;
