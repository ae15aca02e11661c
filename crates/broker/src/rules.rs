//! The one decision about every way out: pure, on values that were parsed before.
//!
//! `deny` beats `ask`, `ask` beats `allow`, what nothing names is denied, and what hands out credentials
//! of a machine is denied whatever a rule says. A [`Permit`] can only come from here. One of a rule that
//! asks leads nowhere until somebody said yes.

mod ask;
mod denial;
mod known;

use std::collections::BTreeSet;
use std::net::{Ipv4Addr, SocketAddr};

use belljar_model::Net;
use belljar_model::net::{
    HOST_NAME, Hostname, HttpRule, Method, Policy, Rule, RuleLimits, RuleTarget, Scheme,
    SecretName, Target, TcpRule, Tls, TokenUrl,
};

pub use denial::{Code, Denial};

use crate::address::{self, Range, Reach};
use crate::target::CanonicalPath;
use denial::{Act, Miss};

/// The rules of one box.
#[derive(Debug, Clone)]
pub struct Rules {
    net: Net,
    allow: Vec<Rule>,
    /// What each rule that allows is known by, also after others came and went.
    numbers: Vec<usize>,
    /// The number of the next one that is new.
    next: usize,
    deny: Vec<Rule>,
    ask: Vec<Rule>,
}

/// A request that wants to go out.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ask {
    pub scheme: Scheme,
    pub target: Target,
    pub port: u16,
    pub method: Method,
    pub path: CanonicalPath,
    /// Whether it asks for a WebSocket.
    pub upgrade: bool,
}

/// Leave for one request, or for one connection that is carried unseen.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Permit {
    rule: String,
    index: Option<usize>,
    scheme: Scheme,
    target: Target,
    port: u16,
    connect: Option<SocketAddr>,
    secrets: BTreeSet<SecretName>,
    limits: RuleLimits,
    reach: Reach,
    opaque: bool,
    asks: Option<String>,
}

/// Leave to tell the box an address for a name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NamePermit {
    rule: String,
}

/// Leave for one connection of any bytes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TcpPermit {
    rule: String,
    target: Target,
    port: u16,
    connect: Option<SocketAddr>,
    reach: Reach,
    asks: Option<String>,
}

/// What to do with a TLS connection.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Handling {
    /// End it and decide about each request.
    Intercept,
    /// Carry it as it is.
    Passthrough(Permit),
    Refuse(Denial),
}

/// The name of what allows everything public.
const FULL: &str = "net full";

impl Permit {
    /// How logs name the rule.
    pub fn rule(&self) -> &str {
        &self.rule
    }

    /// What the rule is counted by; none for `net = "full"` and for rules that ask.
    pub fn index(&self) -> Option<usize> {
        self.index
    }

    pub fn scheme(&self) -> Scheme {
        self.scheme
    }

    pub fn target(&self) -> &Target {
        &self.target
    }

    pub fn port(&self) -> u16 {
        self.port
    }

    /// Where to connect, whatever the name resolves to.
    pub fn connect(&self) -> Option<SocketAddr> {
        self.connect
    }

    /// The secrets that may go along; none over plain HTTP or unseen (B13).
    pub fn secrets(&self) -> &BTreeSet<SecretName> {
        &self.secrets
    }

    pub fn limits(&self) -> &RuleLimits {
        &self.limits
    }

    pub fn reach(&self) -> Reach {
        self.reach
    }

    /// Whether the connection is carried unseen.
    pub fn is_opaque(&self) -> bool {
        self.opaque
    }

    /// The rule by which somebody must say yes first.
    pub fn asks(&self) -> Option<&str> {
        self.asks.as_deref()
    }
}

impl NamePermit {
    pub fn rule(&self) -> &str {
        &self.rule
    }
}

impl TcpPermit {
    pub fn rule(&self) -> &str {
        &self.rule
    }

    pub fn target(&self) -> &Target {
        &self.target
    }

    pub fn port(&self) -> u16 {
        self.port
    }

    pub fn connect(&self) -> Option<SocketAddr> {
        self.connect
    }

    pub fn reach(&self) -> Reach {
        self.reach
    }

    /// Whether a rule names this very port, and not only `net = "full"` allows it: then nobody needs
    /// to look what is spoken there.
    pub fn by_rule(&self) -> bool {
        self.rule != FULL
    }

    /// The rule by which somebody must say yes first.
    pub fn asks(&self) -> Option<&str> {
        self.asks.as_deref()
    }
}

impl Rules {
    pub fn new(policy: &Policy) -> Self {
        let Policy { net, allow, deny, ask, .. } = policy.clone();
        let next = allow.len();
        Self { net, allow, numbers: (0..next).collect(), next, deny, ask }
    }

    /// Other rules in their place. One that stays is counted on, so that a change gives nothing back
    /// that is used up.
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

    /// Decides about one request.
    pub fn check(&self, ask: &Ask) -> Result<Permit, Denial> {
        let act = Act::Request(ask);
        self.never(act)?;
        if ask.method.is_forbidden() {
            return Err(act.denied(Code::MethodForbidden, None));
        }
        if let Some(rule) = self.deny.iter().find(|rule| denies_request(rule, ask)) {
            return Err(act.denied(Code::DeniedByRule, Some(&rule.id)));
        }
        match self.ask.iter().find(|rule| denies_request(rule, ask)) {
            Some(rule) => self.ask_first(act, rule, ask, self.allowed(act, ask)),
            None => self.allowed(act, ask),
        }
    }

    /// What rules that allow say to a request.
    fn allowed(&self, act: Act<'_>, ask: &Ask) -> Result<Permit, Denial> {
        let mut nearest = Miss::Nothing;
        for (index, rule) in self.allow.iter().enumerate() {
            let Some(http) = rule.http() else { continue };
            match misses(http, ask) {
                None => return self.permit(act, index, rule, http, ask),
                Some(miss) => nearest = nearest.max(miss.of(rule)),
            }
        }
        match self.full(act) {
            Ok(()) => Ok(Permit {
                rule: FULL.to_owned(),
                index: None,
                scheme: ask.scheme,
                target: ask.target.clone(),
                port: ask.port,
                connect: None,
                secrets: BTreeSet::new(),
                limits: RuleLimits::default(),
                reach: Reach::Public,
                opaque: false,
                asks: None,
            }),
            Err(Code::NoRule) => Err(act.missed(nearest)),
            Err(code) => Err(act.denied(code, None)),
        }
    }

    fn permit(
        &self,
        act: Act<'_>,
        index: usize,
        rule: &Rule,
        http: &HttpRule,
        ask: &Ask,
    ) -> Result<Permit, Denial> {
        let permit = self.lead(index, rule, http, &ask.target, ask.port);
        let permit = permit.map_err(|code| act.denied(code, Some(&rule.id)))?;
        // A later rule that allows the same request may bring its secrets along.
        let matching =
            self.allow.iter().filter_map(Rule::http).filter(|it| misses(it, ask).is_none());
        let secrets = match ask.scheme {
            Scheme::Https => matching.flat_map(|it| it.secrets.iter().cloned()).collect(),
            Scheme::Http => BTreeSet::new(),
        };
        Ok(Permit { secrets, ..permit })
    }

    /// The permit of a rule without its secrets. Where a host is, one rule says for all that name it
    /// alike: a preset says what may be done there, and the operator's own rule that it is in-house.
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
        let said =
            || self.allow.iter().filter_map(Rule::http).filter(alike).find_map(|it| it.connect);
        let connect = http.connect.or_else(said);
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
        })
    }

    /// Decides whether the box learns an address for a name. Nothing is resolved for that.
    pub fn name(&self, name: &Hostname) -> Result<NamePermit, Denial> {
        let target = Target::Name(name.clone());
        let act = Act::Name(&target);
        self.never(act)?;
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

    /// Decides about a connection of any bytes.
    pub fn tcp(&self, target: &Target, port: u16) -> Result<TcpPermit, Denial> {
        let act = Act::Tcp(target, port);
        self.never(act)?;
        // Nobody sees methods and paths here, so a rule that denies some of them denies this.
        if let Some(rule) = self.deny.iter().find(|rule| denies_port(rule, target, port)) {
            return Err(act.denied(Code::DeniedByRule, Some(&rule.id)));
        }
        match self.ask.iter().find(|rule| denies_port(rule, target, port)) {
            Some(rule) => match self.allowed_tcp(&self.allow, target, port) {
                // Of rules that ask, only one about bytes can lead them anywhere.
                Err(_) => self.allowed_tcp(&self.ask, target, port),
                allowed => allowed,
            }
            .map(|permit| TcpPermit { asks: Some(rule.id.clone()), ..permit }),
            None => self.allowed_tcp(&self.allow, target, port),
        }
    }

    /// What these rules say to a connection of any bytes.
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

    /// Leave for the broker's own request to the server of a token, which the declaration of a secret
    /// names. A rule for that host only says where it is.
    pub fn token(&self, url: &TokenUrl) -> Result<Permit, Denial> {
        let TokenUrl { target, port, .. } = url;
        let act = Act::Tls(target, *port);
        self.never(act)?;
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
        })
    }

    /// Decides what to do with a TLS connection for this name.
    pub fn tls(&self, name: &Hostname, port: u16) -> Handling {
        let target = Target::Name(name.clone());
        let act = Act::Tls(&target, port);
        if let Err(denial) = self.never(act) {
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
        // Nobody would see whether it is what the rule asks about, so the connection as a whole is.
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
                // Nobody would see whether the rule that denies matches.
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
            }),
            (Ok(()), _) => Handling::Intercept,
            (Err(code), _) => Handling::Refuse(act.denied(code, None)),
        }
    }

    /// The ports on which a box must find somebody, beside that of DNS. 80 and 443 always answer, if
    /// only to say why not.
    pub fn ports(&self) -> BTreeSet<u16> {
        if self.net == Net::None {
            return BTreeSet::new();
        }
        let mut ports = BTreeSet::from([80, 443]);
        for rule in self.allow.iter().chain(&self.ask) {
            match &rule.what {
                RuleTarget::Http(http) => ports.extend(&http.ports),
                RuleTarget::Tcp(tcp) => ports.extend([tcp.port]),
                RuleTarget::HostPort(port) => ports.extend([*port]),
            }
        }
        ports.remove(&53);
        ports
    }

    /// What no rule can allow.
    fn never(&self, act: Act<'_>) -> Result<(), Denial> {
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

    /// Whether `net = "full"` allows it: public names and addresses, but none that hide names (A17).
    fn full(&self, act: Act<'_>) -> Result<(), Code> {
        if self.net != Net::Full {
            return Err(Code::NoRule);
        }
        if act.port().is_some_and(|port| known::NAME_PORTS.contains(&port)) {
            return Err(Code::HiddenDns);
        }
        match act.target() {
            Target::Name(name) if known::is_private_name(name) => Err(Code::PrivateName),
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

/// Why a rule that allows does not match; `None` if it does.
fn misses(http: &HttpRule, ask: &Ask) -> Option<Code> {
    if !http.host.matches(&ask.target) {
        return Some(Code::NoRule);
    }
    if http.scheme != ask.scheme {
        return Some(Code::Scheme);
    }
    if !http.ports.contains(&ask.port) {
        return Some(Code::Port);
    }
    if http.tls == Tls::Passthrough && http.scheme == Scheme::Https {
        // It speaks of what is not looked into.
        return Some(Code::NoRule);
    }
    if !http.allows_method(&ask.method) {
        return Some(Code::Method);
    }
    let paths = http.paths.as_ref();
    if paths.is_some_and(|paths| !paths.iter().any(|path| ask.path.allowed_by(path))) {
        return Some(Code::Path);
    }
    if ask.upgrade && !http.websocket {
        return Some(Code::WebSocket);
    }
    None
}

/// How far a rule that names this target reaches. A name that only somebody's own network can have
/// names private addresses; one that strangers could register does not (A03).
fn reach(target: &Target, connect: Option<SocketAddr>) -> Result<Reach, Code> {
    if connect.is_some_and(|to| address::range(to.ip()) == Some(Range::Metadata)) {
        return Err(Code::Metadata);
    }
    match target {
        Target::Name(name) if known::is_private_name(name) => Ok(Reach::Named),
        Target::Name(_) => Ok(Reach::Public),
        Target::Address(_) => Ok(Reach::Named),
    }
}

fn is_host(target: &Target) -> bool {
    target.name().is_some_and(|name| name.as_str() == HOST_NAME)
}

/// Whether a rule that denies holds for this request, over either scheme.
fn denies_request(rule: &Rule, ask: &Ask) -> bool {
    let Some(http) = rule.http() else { return denies_port(rule, &ask.target, ask.port) };
    denies_port(rule, &ask.target, ask.port)
        && http.allows_method(&ask.method)
        && http.paths.as_ref().is_none_or(|paths| paths.iter().any(|path| ask.path.denied_by(path)))
}

/// Whether a rule that denies has something to say about this port.
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

/// Whether nothing of a host is left.
fn denies_all_of(http: &HttpRule) -> bool {
    http.ports.is_empty() && http.methods.is_none() && http.paths.is_none()
}

#[cfg(test)]
mod tests;
