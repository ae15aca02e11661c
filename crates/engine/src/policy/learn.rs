//! From what a run tried to the narrowest rules that would have allowed it.
//!
//! Pure. A run may be hostile: what it tried is a wish, so the rules are shown, and written only when a
//! person says so. Each rule names one host and one port, methods as they were, and paths as they
//! were unless more than `DIFFERENT` were asked for below one directory.

pub mod past;

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

/// More paths than this below one directory, and all of its entries are meant.
const DIFFERENT: usize = 5;
/// A rule with more paths is not one that a person reads.
const MOST_PATHS: usize = 64;

/// One thing that a run tried.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Attempt {
    pub what: Tried,
    pub end: End,
}

/// What was tried, in the words of the record: a box chose them.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Tried {
    Name(String),
    Request { method: String, scheme: String, host: String, port: u64, path: String },
}

/// What became of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum End {
    /// Denied; the word that the reason begins with.
    Denied(String),
    /// It went through, and only because everything does with `--net full`.
    Full,
}

/// What a run teaches.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct LearnedRules {
    pub rules: Vec<Learned>,
    /// What no rule is made of, and why; each once.
    pub not: BTreeMap<Tried, String>,
    /// What the template allows by now.
    pub known: BTreeSet<Tried>,
}

/// One rule, and what a person must know of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Learned {
    pub what: RuleTarget,
    pub remark: Option<&'static str>,
}

const ONLY_NAME: &str =
    "only its name was asked for, so reading is allowed; run and learn again to narrow it";
const PRIVATE: &str = "PRIVATE: this opens a machine of your own network";
const HIDDEN: &str = "it looks up names for others: whoever reaches it can ask for any name unseen";

/// Learns from what was tried, given what the template says already.
pub fn learn(attempts: &[Attempt], policy: &Policy) -> LearnedRules {
    let mut learned = LearnedRules::default();
    // Whether the template's box has a network is the template's to say; here only rules count.
    let now = Rules::new(&Policy { net: Net::Restricted, ..policy.clone() });
    let mut places: BTreeMap<Place, Wishes> = BTreeMap::new();
    let mut names = BTreeSet::new();
    for Attempt { what, end } in attempts {
        let wish = match wish(what, end) {
            Ok(wish) => wish,
            Err(why) => {
                learned.not.insert(what.clone(), why);
                continue;
            }
        };
        match decided(&wish, &now) {
            Ok(()) => {
                learned.known.insert(what.clone());
            }
            Err(Code::DeniedByRule) => {
                learned.not.insert(what.clone(), DENIED.to_owned());
            }
            Err(_) => match wish {
                Wish::Name(name) => drop(names.insert(name)),
                Wish::At(place, None) => drop(places.entry(place).or_default()),
                Wish::At(place, Some((method, path))) => {
                    places.entry(place).or_default().entry(method).or_default().insert(path);
                }
            },
        }
    }
    // Whoever asks for a name and then for something there needs one rule.
    names.retain(|name| !places.keys().any(|place| place.target == Target::Name(name.clone())));
    for name in names {
        places.entry(Place::https(name.into())).or_default();
    }
    for (place, wishes) in places {
        learned.rules.extend(rules_for(&place, wishes, &mut learned.not));
    }
    learned
}

/// What the template says by now about the network; nothing if it is not there yet.
pub fn policy(config: &Config, template: &str) -> Result<Policy, EngineError> {
    match config.template(template) {
        Some(template) => template.policy(config).kind(ErrorKind::Invalid),
        None => Ok(no_rules()),
    }
}

/// A template that says nothing about the network.
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

/// Something that a rule could allow.
enum Wish {
    Name(Hostname),
    /// Without a request where nothing more than the place is known.
    At(Place, Option<(Method, PathPattern)>),
}

/// Where something was wanted, and how.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Place {
    target: Target,
    kind: Kind,
    port: u16,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Kind {
    Http(Scheme),
    WebSocket(Scheme),
    Tcp,
}

impl Place {
    fn https(target: Target) -> Self {
        Self { target, kind: Kind::Http(Scheme::Https), port: Scheme::Https.port() }
    }
}

/// Which paths were wanted by which method.
type Wishes = BTreeMap<Method, BTreeSet<PathPattern>>;

const DENIED: &str = "a `deny` rule forbids it, which no `allow` rule changes";

fn wish(what: &Tried, end: &End) -> Result<Wish, String> {
    let mut is_upgrade = false;
    if let End::Denied(code) = end {
        learnable(code, what)?;
        is_upgrade = code == Code::WebSocket.name();
    }
    match what {
        Tried::Name(name) => {
            let name = name.strip_suffix('.').unwrap_or(name);
            let name: Hostname =
                name.parse().map_err(|error| format!("no rule can name it: {error}"))?;
            may_be_named(&Target::Name(name.clone()))?;
            Ok(Wish::Name(name))
        }
        Tried::Request { method, scheme, host, port, path } => {
            let target: Target =
                host.parse().map_err(|error| format!("no rule can name the host: {error}"))?;
            may_be_named(&target)?;
            let port = u16::try_from(*port).map_err(|_| "there is no such port".to_owned())?;
            let kind = match (scheme.as_str(), is_upgrade) {
                ("https", false) => Kind::Http(Scheme::Https),
                ("http", false) => Kind::Http(Scheme::Http),
                ("https", true) => Kind::WebSocket(Scheme::Https),
                ("http", true) => Kind::WebSocket(Scheme::Http),
                ("tcp", _) => Kind::Tcp,
                _ => return Err("no rule can name this protocol".to_owned()),
            };
            let place = Place { target, kind, port };
            // A connection that was refused before a request was seen in it.
            if kind == Kind::Tcp || path.is_empty() {
                return Ok(Wish::At(place, None));
            }
            Ok(Wish::At(place, Some((wanted_method(method)?, exact(path)?))))
        }
    }
}

/// Only the want of a rule is a learned. What was refused for any other reason stays refused.
fn learnable(code: &str, what: &Tried) -> Result<(), String> {
    let wants = [
        Code::NoRule,
        Code::PrivateName,
        Code::HiddenDns,
        Code::Scheme,
        Code::Port,
        Code::Method,
        Code::Path,
        Code::WebSocket,
    ];
    if wants.iter().any(|want| want.name() == code) {
        return Ok(());
    }
    // An address that was dialled as such can be named; one that a name turned out to lead to cannot.
    if code == Code::PrivateAddress.name()
        && let Tried::Request { host, .. } = what
        && matches!(host.parse(), Ok(Target::Address(_)))
    {
        return Ok(());
    }
    if ["placeholder", "foreign-credential", "secret", "alarm"]
        .iter()
        .any(|word| code.starts_with(word))
    {
        return Err("it raised an ALARM, and alarms are never learnt from".to_owned());
    }
    Err(match code {
        "denied-by-rule" => DENIED.to_owned(),
        "private-address" => {
            "it leads to a private address; if you mean that, write a rule with `connect` yourself"
                .to_owned()
        }
        "spent" | "rate" => "a limit or a budget was used up".to_owned(),
        "" => "the record does not say why it was refused".to_owned(),
        code => format!("it was refused for another reason than a missing rule: {code}"),
    })
}

/// Whether a rule that `learn` writes may open this at all.
fn may_be_named(target: &Target) -> Result<(), String> {
    let own = || {
        format!(
            "it is this machine itself; if you mean that, write `host-port = PORT` yourself (the box finds it at {HOST_NAME})"
        )
    };
    match target {
        Target::Name(name) if name.as_str() == HOST_NAME || name.is_within("localhost") => {
            Err(own())
        }
        Target::Name(name) if address::is_metadata_name(name) => {
            Err(format!("it is {}", Range::Metadata))
        }
        Target::Name(_) => Ok(()),
        Target::Address(ip) => match address::range(*ip) {
            None | Some(Range::Local) => Ok(()),
            Some(Range::Loopback | Range::Own | Range::Unspecified) => Err(own()),
            Some(
                range @ (Range::Metadata | Range::LinkLocal | Range::Multicast | Range::Reserved),
            ) => Err(format!("it is {range}")),
        },
    }
}

fn wanted_method(method: &str) -> Result<Method, String> {
    let method: Method = method.parse().map_err(|error| format!("{error}"))?;
    match method.is_forbidden() {
        true => Err(format!("no rule can allow {method}")),
        false => Ok(method),
    }
}

/// The pattern that matches this path and no other.
fn exact(path: &str) -> Result<PathPattern, String> {
    let pattern: Result<PathPattern, _> = path.parse();
    match pattern {
        Ok(pattern) if !path.contains('*') && pattern.matches(path) => Ok(pattern),
        Ok(_) => Err("no rule can name its path alone".to_owned()),
        Err(error) => Err(format!("no rule can name its path: {error}")),
    }
}

/// What these rules say to it.
fn decided(wish: &Wish, rules: &Rules) -> Result<(), Code> {
    let code = |denial: Denial| denial.code;
    match wish {
        Wish::Name(name) => rules.name(name).map(drop).map_err(code),
        Wish::At(Place { target, kind: Kind::Tcp, port }, _) => {
            rules.tcp(target, *port).map(drop).map_err(code)
        }
        Wish::At(Place { target: Target::Name(name), port, .. }, None) => {
            match rules.tls(name, *port) {
                Handling::Intercept | Handling::Passthrough(_) => Ok(()),
                Handling::Refuse(denial) => Err(denial.code),
            }
        }
        Wish::At(Place { target: Target::Address(_), .. }, None) => Err(Code::NoRule),
        Wish::At(place, Some((method, path))) => {
            let (scheme, upgrade) = match place.kind {
                Kind::WebSocket(scheme) => (scheme, true),
                Kind::Http(scheme) => (scheme, false),
                Kind::Tcp => return Err(Code::NoRule),
            };
            let (path, _) = CanonicalPath::parse(path.as_str()).map_err(|_| Code::Path)?;
            let (target, port, method) = (place.target.clone(), place.port, method.clone());
            rules
                .check(&OutboundRequest { scheme, target, port, method, path, upgrade })
                .map(drop)
                .map_err(code)
        }
    }
}

/// What a person must know before opening this.
fn remark(place: &Place) -> Option<&'static str> {
    // A box that may reach all that is public is asked; it has the table of what is not.
    let full = Rules::new(&Policy { net: Net::Full, ..no_rules() });
    match full.tcp(&place.target, place.port).map_err(|denial| denial.code) {
        Ok(_) => None,
        Err(Code::HiddenDns) => Some(HIDDEN),
        Err(_) => Some(PRIVATE),
    }
}

/// The rules for one place: methods that want the same paths share one.
fn rules_for(place: &Place, wishes: Wishes, not: &mut BTreeMap<Tried, String>) -> Vec<Learned> {
    let remark = remark(place);
    let (scheme, websocket) = match place.kind {
        Kind::Http(scheme) => (scheme, false),
        Kind::WebSocket(scheme) => (scheme, true),
        Kind::Tcp => {
            let tcp = TcpRule { target: place.target.clone(), port: place.port, connect: None };
            return vec![Learned { what: RuleTarget::Tcp(tcp), remark }];
        }
    };
    let rule = |methods: BTreeSet<Method>, paths: Option<Vec<PathPattern>>| {
        let https = HttpRule::https(HostPattern::exact(place.target.clone()));
        let (ports, methods) = (vec![place.port], Some(methods));
        RuleTarget::Http(HttpRule { ports, scheme, methods, paths, websocket, ..https })
    };
    if wishes.is_empty() {
        let reading = ["GET", "HEAD"].iter().filter_map(|method| method.parse().ok()).collect();
        return vec![Learned { what: rule(reading, None), remark: remark.or(Some(ONLY_NAME)) }];
    }
    let mut by_paths: BTreeMap<PathPattern, BTreeSet<Method>> = BTreeMap::new();
    for (method, paths) in wishes {
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
        for path in paths.split_off(paths.len().min(MOST_PATHS)) {
            let left = Tried::Request {
                method: methods.iter().map(Method::as_str).collect::<Vec<_>>().join(","),
                scheme: scheme.to_string(),
                host: place.target.to_string(),
                port: place.port.into(),
                path: path.to_string(),
            };
            let why = format!("more than {MOST_PATHS} different paths; write a pattern yourself");
            not.insert(left, why);
        }
        rules.push(Learned { what: rule(methods, Some(paths)), remark });
    }
    rules
}

/// The paths, with `/a/b/*` in place of more than [`DIFFERENT`] directly below `/a/b`.
fn generalise(paths: BTreeSet<PathPattern>) -> BTreeSet<PathPattern> {
    let mut below: BTreeMap<String, BTreeSet<PathPattern>> = BTreeMap::new();
    for path in paths {
        let directory = path.as_str().rsplit_once('/').map_or("", |(directory, _)| directory);
        below.entry(directory.to_owned()).or_default().insert(path);
    }
    let mut general = BTreeSet::new();
    for (directory, paths) in below {
        match format!("{directory}/*").parse() {
            Ok(all) if paths.len() > DIFFERENT => drop(general.insert(all)),
            Ok(_) | Err(_) => general.extend(paths),
        }
    }
    general
}

#[cfg(test)]
mod tests;
