//! Derives the narrowest network rules that would have allowed the requests of a past run.
//!
//! These functions have no side effects. A run may be hostile, so the rules are only shown; a person decides
//! whether they are written. Each rule names one host, one port and the methods that were used. It names
//! the paths that were used, or the directory if more than `MAX_SIBLINGS` paths in it were used.

pub mod history;

use std::collections::{BTreeMap, BTreeSet};

use belljar_broker::address::{self, Range};
use belljar_broker::rules::{Code, Denial, Handling, OutboundRequest, Rules};
use belljar_broker::target::CanonicalPath;
use belljar_model::net::{
    Budget, HOST_NAME, HostPattern, Hostname, HttpRule, Method, PathPattern, Policy, RuleTarget,
    Scheme, Target, TcpRule,
};
use belljar_model::{AskTimeout, Config, Net};

use crate::error::{EngineError, ErrorKind, WithKind as _};

/// The maximum number of paths in one directory that a rule lists. More become the pattern `/directory/*`.
const MAX_SIBLINGS: usize = 5;
/// The maximum number of paths in one rule, so that a person can review the rule.
const MAX_PATHS: usize = 64;

/// One name lookup or request that a run tried on the network.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Attempt {
    pub target: AttemptTarget,
    pub outcome: AttemptOutcome,
}

/// The name or request that a run tried, as recorded in the ledger. A hostile box may have chosen it.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum AttemptTarget {
    Name(String),
    Request { method: String, scheme: String, host: String, port: u64, path: String },
}

/// The outcome of an attempt that a rule can be learned from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum AttemptOutcome {
    /// The broker denied the attempt. The value is the code at the start of the reason.
    Denied(String),
    /// The attempt was allowed only because the box had `--net full`.
    AllowedByFullNet,
}

/// The rules that were learned from the attempts of a run.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct LearnedRules {
    pub rules: Vec<LearnedRule>,
    /// Attempts that no rule was learned from, each with the reason.
    pub rejected: BTreeMap<AttemptTarget, String>,
    /// Attempts that the current template already allows.
    pub already_allowed: BTreeSet<AttemptTarget>,
}

/// A rule that was learned, with a warning or note for the person who reviews it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LearnedRule {
    pub target: RuleTarget,
    pub remark: Option<&'static str>,
}

/// The remark on a rule for a host whose name was only resolved.
const ONLY_NAME: &str =
    "only the name was resolved, so the rule allows reading; run and learn again to narrow it";
/// The remark on a rule for a host in a private network.
const PRIVATE: &str = "PRIVATE: this rule opens a machine in your private network";
/// The remark on a rule for a public DNS resolver.
const HIDDEN_DNS: &str =
    "it is a DNS resolver: a box that reaches it can resolve any name without the broker seeing it";

/// Derives rules from the attempts of a run, except for attempts that `policy` already decides.
pub fn learn(attempts: &[Attempt], policy: &Policy) -> LearnedRules {
    let mut learned = LearnedRules::default();
    // Only the rules of the template matter here, not its network mode.
    let current = Rules::new(&Policy { net: Net::Restricted, ..policy.clone() });
    let mut endpoints: BTreeMap<Endpoint, PathsByMethod> = BTreeMap::new();
    let mut names = BTreeSet::new();
    for Attempt { target, outcome } in attempts {
        let candidate = match candidate(target, outcome) {
            Ok(candidate) => candidate,
            Err(why) => {
                learned.rejected.insert(target.clone(), why);
                continue;
            }
        };
        match decide(&candidate, &current) {
            Ok(()) => {
                learned.already_allowed.insert(target.clone());
            }
            Err(Code::DeniedByRule) => {
                learned.rejected.insert(target.clone(), DENIED.to_owned());
            }
            Err(_) => match candidate {
                Candidate::Name(name) => drop(names.insert(name)),
                Candidate::Connection(endpoint, None) => {
                    endpoints.entry(endpoint).or_default();
                }
                Candidate::Connection(endpoint, Some((method, path))) => {
                    endpoints.entry(endpoint).or_default().entry(method).or_default().insert(path);
                }
            },
        }
    }
    // A name that was resolved and then used needs one rule only.
    names.retain(|name| {
        !endpoints.keys().any(|endpoint| endpoint.target == Target::Name(name.clone()))
    });
    for name in names {
        endpoints.entry(Endpoint::https(name.into())).or_default();
    }
    for (endpoint, paths) in endpoints {
        learned.rules.extend(rules_for(&endpoint, paths, &mut learned.rejected));
    }
    learned
}

/// Returns the current network policy of a template, or an empty policy for an unknown template.
pub fn policy(config: &Config, template: &str) -> Result<Policy, EngineError> {
    match config.template(template) {
        Some(template) => template.policy(config).kind(ErrorKind::Invalid),
        None => Ok(no_rules()),
    }
}

/// Returns a network policy without any rule.
pub fn no_rules() -> Policy {
    Policy {
        net: Net::Restricted,
        allow: Vec::new(),
        deny: Vec::new(),
        ask: Vec::new(),
        ask_timeout: AskTimeout::default(),
        secrets: Vec::new(),
        budget: Budget::default(),
        proxy: None,
    }
}

/// An attempt that a new rule could allow.
enum Candidate {
    Name(Hostname),
    /// A connection. The method and path are missing if the broker did not see a request.
    Connection(Endpoint, Option<(Method, PathPattern)>),
}

/// The host, protocol and port of a connection.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Endpoint {
    target: Target,
    protocol: Protocol,
    port: u16,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Protocol {
    Http(Scheme),
    WebSocket(Scheme),
    Tcp,
}

impl Endpoint {
    fn https(target: Target) -> Self {
        Self { target, protocol: Protocol::Http(Scheme::Https), port: Scheme::Https.port() }
    }
}

/// The paths that a run requested from one endpoint, by method.
type PathsByMethod = BTreeMap<Method, BTreeSet<PathPattern>>;

/// The reason for an attempt that a `deny` rule forbids.
const DENIED: &str = "a `deny` rule forbids it, and no `allow` rule can override that";

/// Converts an attempt to a candidate for a rule, or returns why no rule can be learned from it.
fn candidate(target: &AttemptTarget, outcome: &AttemptOutcome) -> Result<Candidate, String> {
    let mut is_upgrade = false;
    if let AttemptOutcome::Denied(code) = outcome {
        check_learnable(code, target)?;
        is_upgrade = code == Code::WebSocket.name();
    }
    match target {
        AttemptTarget::Name(name) => {
            let name = name.strip_suffix('.').unwrap_or(name);
            let name: Hostname = name
                .parse()
                .map_err(|error| format!("a rule cannot contain this name: {error}"))?;
            check_target(&Target::Name(name.clone()))?;
            Ok(Candidate::Name(name))
        }
        AttemptTarget::Request { method, scheme, host, port, path } => {
            let target: Target = host
                .parse()
                .map_err(|error| format!("a rule cannot contain this host: {error}"))?;
            check_target(&target)?;
            let port = u16::try_from(*port).map_err(|_| "the port is invalid".to_owned())?;
            let protocol = match (scheme.as_str(), is_upgrade) {
                ("https", false) => Protocol::Http(Scheme::Https),
                ("http", false) => Protocol::Http(Scheme::Http),
                ("https", true) => Protocol::WebSocket(Scheme::Https),
                ("http", true) => Protocol::WebSocket(Scheme::Http),
                ("tcp", _) => Protocol::Tcp,
                _ => return Err("a rule cannot contain this protocol".to_owned()),
            };
            let endpoint = Endpoint { target, protocol, port };
            // Without a path, the broker refused the connection before it saw a request.
            if protocol == Protocol::Tcp || path.is_empty() {
                return Ok(Candidate::Connection(endpoint, None));
            }
            Ok(Candidate::Connection(endpoint, Some((parse_method(method)?, exact_pattern(path)?))))
        }
    }
}

/// Checks that an attempt was denied only because a rule is missing. Other denials teach no rule.
fn check_learnable(code: &str, target: &AttemptTarget) -> Result<(), String> {
    let missing_rule = [
        Code::NoRule,
        Code::PrivateName,
        Code::HiddenDns,
        Code::Scheme,
        Code::Port,
        Code::Method,
        Code::Path,
        Code::WebSocket,
    ];
    if missing_rule.iter().any(|missing| missing.name() == code) {
        return Ok(());
    }
    // A rule can contain a private address that the box used directly, but not one that a name resolved to.
    if code == Code::PrivateAddress.name()
        && let AttemptTarget::Request { host, .. } = target
        && matches!(host.parse(), Ok(Target::Address(_)))
    {
        return Ok(());
    }
    if ["placeholder", "foreign-credential", "secret", "alarm"]
        .iter()
        .any(|prefix| code.starts_with(prefix))
    {
        return Err("it raised an ALARM, and no rule is learned from alarms".to_owned());
    }
    Err(match code {
        "denied-by-rule" => DENIED.to_owned(),
        "private-address" => {
            "it resolves to a private address; to allow that, write a rule with `connect` yourself"
                .to_owned()
        }
        "spent" | "rate" => "a limit or budget was used up".to_owned(),
        "" => "the ledger does not say why it was denied".to_owned(),
        code => format!("it was denied for another reason than a missing rule: {code}"),
    })
}

/// Checks that a learned rule may name this host. It may not name the own machine or a metadata service.
fn check_target(target: &Target) -> Result<(), String> {
    let own_machine = || {
        format!(
            "it is this machine; to allow that, write `host-port = PORT` yourself (the box reaches the port at {HOST_NAME})"
        )
    };
    match target {
        Target::Name(name) if name.as_str() == HOST_NAME || name.is_within("localhost") => {
            Err(own_machine())
        }
        Target::Name(name) if address::is_metadata_name(name) => {
            Err(format!("the host is {}", Range::Metadata))
        }
        Target::Name(_) => Ok(()),
        Target::Address(ip) => match address::range(*ip) {
            None | Some(Range::Local) => Ok(()),
            Some(Range::Loopback | Range::Own | Range::Unspecified) => Err(own_machine()),
            Some(
                range @ (Range::Metadata | Range::LinkLocal | Range::Multicast | Range::Reserved),
            ) => Err(format!("the host is {range}")),
        },
    }
}

/// Parses a method that a rule may allow.
fn parse_method(method: &str) -> Result<Method, String> {
    let method: Method = method.parse().map_err(|error| format!("{error}"))?;
    match method.is_forbidden() {
        true => Err(format!("no rule can allow the method {method}")),
        false => Ok(method),
    }
}

/// Returns the pattern that matches exactly this path.
fn exact_pattern(path: &str) -> Result<PathPattern, String> {
    let pattern: Result<PathPattern, _> = path.parse();
    match pattern {
        Ok(pattern) if !path.contains('*') && pattern.matches(path) => Ok(pattern),
        Ok(_) => Err("a rule cannot match this path exactly".to_owned()),
        Err(error) => Err(format!("a rule cannot contain this path: {error}")),
    }
}

/// Checks a candidate against rules and returns the code of the denial, if they deny it.
fn decide(candidate: &Candidate, rules: &Rules) -> Result<(), Code> {
    let code = |denial: Denial| denial.code;
    match candidate {
        Candidate::Name(name) => rules.name(name).map(drop).map_err(code),
        Candidate::Connection(Endpoint { target, protocol: Protocol::Tcp, port }, _) => {
            rules.tcp(target, *port).map(drop).map_err(code)
        }
        Candidate::Connection(Endpoint { target: Target::Name(name), port, .. }, None) => {
            match rules.tls(name, *port) {
                Handling::Intercept | Handling::Passthrough(_) => Ok(()),
                Handling::Refuse(denial) => Err(denial.code),
            }
        }
        Candidate::Connection(Endpoint { target: Target::Address(_), .. }, None) => {
            Err(Code::NoRule)
        }
        Candidate::Connection(endpoint, Some((method, path))) => {
            let (scheme, upgrade) = match endpoint.protocol {
                Protocol::WebSocket(scheme) => (scheme, true),
                Protocol::Http(scheme) => (scheme, false),
                Protocol::Tcp => return Err(Code::NoRule),
            };
            let (path, _) = CanonicalPath::parse(path.as_str()).map_err(|_| Code::Path)?;
            let (target, port, method) = (endpoint.target.clone(), endpoint.port, method.clone());
            rules
                .check(&OutboundRequest { scheme, target, port, method, path, upgrade })
                .map(drop)
                .map_err(code)
        }
    }
}

/// Returns a warning for the person who reviews a rule for this endpoint, if one is needed.
fn remark(endpoint: &Endpoint) -> Option<&'static str> {
    // Rules of a box with `--net full` deny only private hosts and DNS resolvers: check against them.
    let full = Rules::new(&Policy { net: Net::Full, ..no_rules() });
    match full.tcp(&endpoint.target, endpoint.port).map_err(|denial| denial.code) {
        Ok(_) => None,
        Err(Code::HiddenDns) => Some(HIDDEN_DNS),
        Err(_) => Some(PRIVATE),
    }
}

/// Returns the rules for one endpoint. Methods with the same paths share one rule.
///
/// Paths beyond [`MAX_PATHS`] are added to `rejected`.
fn rules_for(
    endpoint: &Endpoint,
    paths_by_method: PathsByMethod,
    rejected: &mut BTreeMap<AttemptTarget, String>,
) -> Vec<LearnedRule> {
    let remark = remark(endpoint);
    let (scheme, websocket) = match endpoint.protocol {
        Protocol::Http(scheme) => (scheme, false),
        Protocol::WebSocket(scheme) => (scheme, true),
        Protocol::Tcp => {
            let tcp =
                TcpRule { target: endpoint.target.clone(), port: endpoint.port, connect: None };
            return vec![LearnedRule { target: RuleTarget::Tcp(tcp), remark }];
        }
    };
    let rule = |methods: BTreeSet<Method>, paths: Option<Vec<PathPattern>>| {
        let https = HttpRule::https(HostPattern::exact(endpoint.target.clone()));
        let (ports, methods) = (vec![endpoint.port], Some(methods));
        RuleTarget::Http(HttpRule { ports, scheme, methods, paths, websocket, ..https })
    };
    if paths_by_method.is_empty() {
        let reading = ["GET", "HEAD"].iter().filter_map(|method| method.parse().ok()).collect();
        let remark = remark.or(Some(ONLY_NAME));
        return vec![LearnedRule { target: rule(reading, None), remark }];
    }
    let mut by_paths: BTreeMap<PathPattern, BTreeSet<Method>> = BTreeMap::new();
    for (method, paths) in paths_by_method {
        for path in generalise(paths) {
            by_paths.entry(path).or_default().insert(method.clone());
        }
    }
    let mut by_methods: BTreeMap<BTreeSet<Method>, Vec<PathPattern>> = BTreeMap::new();
    for (path, methods) in by_paths {
        by_methods.entry(methods).or_default().push(path);
    }
    let mut rules = Vec::new();
    for (methods, mut paths) in by_methods {
        for path in paths.split_off(paths.len().min(MAX_PATHS)) {
            let excess = AttemptTarget::Request {
                method: methods.iter().map(Method::as_str).collect::<Vec<_>>().join(","),
                scheme: scheme.to_string(),
                host: endpoint.target.to_string(),
                port: endpoint.port.into(),
                path: path.to_string(),
            };
            let why = format!("more than {MAX_PATHS} different paths; write a pattern yourself");
            rejected.insert(excess, why);
        }
        rules.push(LearnedRule { target: rule(methods, Some(paths)), remark });
    }
    rules
}

/// Replaces more than [`MAX_SIBLINGS`] paths in the directory `/a/b` by the pattern `/a/b/*`.
fn generalise(paths: BTreeSet<PathPattern>) -> BTreeSet<PathPattern> {
    let mut by_directory: BTreeMap<String, BTreeSet<PathPattern>> = BTreeMap::new();
    for path in paths {
        let directory = path.as_str().rsplit_once('/').map_or("", |(directory, _)| directory);
        by_directory.entry(directory.to_owned()).or_default().insert(path);
    }
    let mut patterns = BTreeSet::new();
    for (directory, paths) in by_directory {
        match format!("{directory}/*").parse() {
            Ok(all) if paths.len() > MAX_SIBLINGS => drop(patterns.insert(all)),
            Ok(_) | Err(_) => patterns.extend(paths),
        }
    }
    patterns
}

#[cfg(test)]
mod tests;
