//! Which rule decides about a request, and why. Nothing is sent.

use std::path::{Path, PathBuf};

use belljar_broker::address::Reach;
use belljar_broker::rules::{Denial, Handling, OutboundRequest, Permit, Rules};
use belljar_broker::target::{CanonicalPath, query_override};
use belljar_model::net::{self, Method, Policy, RuleLimits, Scheme, SecretDecl, Target};
use belljar_model::{Config, Template};
use serde::Serialize;

use crate::error::{EngineError, ErrorKind, WithKind as _, invalid};

/// What a box would do.
#[derive(Debug)]
pub enum Asked {
    Request {
        scheme: Scheme,
        target: Target,
        port: u16,
        method: Method,
        path: String,
        upgrade: bool,
    },
    Tcp {
        target: Target,
        port: u16,
    },
}

impl Asked {
    /// Reads a URL; https without a scheme.
    pub fn parse(url: &str, method: &Method) -> Result<Self, EngineError> {
        let (scheme, rest) = url.split_once("://").unwrap_or(("https", url));
        // No client sends what stands behind a `#`.
        let rest = rest.split('#').next().unwrap_or_default();
        let (authority, path) = rest.split_at(rest.find(['/', '?']).unwrap_or(rest.len()));
        let wrong = |what: &dyn std::fmt::Display| invalid(format!("{url}: {what}"));
        let (target, port) = net::authority(authority).map_err(|error| wrong(&error))?;
        let (scheme, upgrade) = match scheme {
            "https" => (Scheme::Https, false),
            "wss" => (Scheme::Https, true),
            "http" => (Scheme::Http, false),
            "ws" => (Scheme::Http, true),
            "tcp" => {
                let port = port.ok_or_else(|| wrong(&"a port is missing"))?;
                return Ok(Self::Tcp { target, port });
            }
            _ => return Err(wrong(&"the scheme is https, http, wss, ws or tcp")),
        };
        let path = if path.starts_with('/') { path.to_owned() } else { format!("/{path}") };
        let port = port.unwrap_or(scheme.port());
        Ok(Self::Request { scheme, target, port, method: method.clone(), path, upgrade })
    }
}

/// The answer, for people and for programs.
#[derive(Debug, Serialize)]
pub struct Answer {
    asked: String,
    template: String,
    net: &'static str,
    verdict: &'static str,
    /// Which rule decides; with a refusal the one that denies, or that nearly allows.
    rule: Option<String>,
    /// Why not, in one word.
    code: Option<String>,
    reason: Option<String>,
    hint: Option<String>,
    /// What is done with TLS.
    tls: Option<&'static str>,
    secrets: Vec<Secret>,
    /// Where the connection goes, whatever the name resolves to.
    connect: Option<String>,
    /// Which addresses may be dialled.
    addresses: Option<&'static str>,
    limits: Option<RuleLimits>,
    /// Authorities that are trusted beside the system's.
    roots: Vec<PathBuf>,
    proxy: Option<String>,
}

#[derive(Debug, Serialize)]
struct Secret {
    name: String,
    slots: Vec<String>,
    env: Option<String>,
}

/// Asks the rules of a template. `home` is the user's, for paths below it.
pub fn explain(
    config: &Config,
    template: &Template,
    asked: &Asked,
    home: Option<&Path>,
) -> Result<Answer, EngineError> {
    let policy = template.policy(config).kind(ErrorKind::Invalid)?;
    let rules = Rules::new(&policy);
    let blank = Answer {
        asked: String::new(),
        template: template.name.clone(),
        net: template.net.name(),
        verdict: "deny",
        rule: None,
        code: None,
        reason: None,
        hint: None,
        tls: None,
        secrets: Vec::new(),
        connect: None,
        addresses: None,
        limits: None,
        roots: config.roots(home),
        proxy: config.proxy().map(ToString::to_string),
    };
    match asked {
        Asked::Tcp { target, port } => Ok(tcp(&rules, target, *port, blank)),
        Asked::Request { scheme, target, port, method, path, upgrade } => {
            let host = match *port == scheme.port() {
                true => target.to_string(),
                false => format!("{target}:{port}"),
            };
            let blank = Answer { asked: format!("{method} {scheme}://{host}{path}"), ..blank };
            let (path, query) = match CanonicalPath::parse(path) {
                Ok(parsed) => parsed,
                Err(error) => return Ok(unclear("ambiguous-path", &error, blank)),
            };
            if let Err(error) = query_override(method, &path, query.as_deref()) {
                return Ok(unclear("override", &error, blank));
            }
            let (target, method) = (target.clone(), method.clone());
            let ask = OutboundRequest {
                scheme: *scheme,
                target,
                port: *port,
                method,
                path,
                upgrade: *upgrade,
            };
            Ok(request(&rules, &policy, &ask, blank))
        }
    }
}

/// A request that is refused before any rule is asked.
fn unclear(code: &str, error: &dyn std::fmt::Display, blank: Answer) -> Answer {
    Answer { code: Some(code.to_owned()), reason: Some(error.to_string()), ..blank }
}

fn tcp(rules: &Rules, target: &Target, port: u16, blank: Answer) -> Answer {
    let blank = Answer { asked: format!("tcp://{target}:{port}"), ..blank };
    match rules.tcp(target, port) {
        Err(denial) => denied(denial, blank),
        Ok(permit) => Answer {
            verdict: verdict(permit.asks()),
            rule: Some(permit.asks().unwrap_or(permit.rule()).to_owned()),
            connect: permit.connect().map(|to| to.to_string()),
            addresses: Some(addresses(permit.reach())),
            ..blank
        },
    }
}

fn request(rules: &Rules, policy: &Policy, ask: &OutboundRequest, blank: Answer) -> Answer {
    if let (Scheme::Https, Target::Name(name)) = (ask.scheme, &ask.target)
        && let Handling::Passthrough(permit) = rules.tls(name, ask.port)
    {
        return allowed(&permit, Vec::new(), blank);
    }
    match rules.check(ask) {
        Err(denial) => denied(denial, blank),
        Ok(permit) => {
            let goes = |secret: &&SecretDecl| {
                permit.secrets().contains(&secret.name)
                    && secret.covers(&ask.target, &ask.method, |it| ask.path.allowed_by(it))
            };
            let secrets = policy.secrets.iter().filter(goes).map(Secret::of).collect();
            allowed(&permit, secrets, blank)
        }
    }
}

fn allowed(permit: &Permit, secrets: Vec<Secret>, blank: Answer) -> Answer {
    let tls = match (permit.scheme(), permit.is_opaque()) {
        (Scheme::Http, _) => None,
        (Scheme::Https, false) => Some("looked into"),
        (Scheme::Https, true) => Some("carried unseen; methods and paths are not known"),
    };
    Answer {
        verdict: verdict(permit.asks()),
        rule: Some(permit.asks().unwrap_or(permit.rule()).to_owned()),
        tls,
        secrets,
        connect: permit.connect().map(|to| to.to_string()),
        addresses: Some(addresses(permit.reach())),
        limits: Some(*permit.limits()).filter(|limits| !limits.is_empty()),
        ..blank
    }
}

fn denied(denial: Denial, blank: Answer) -> Answer {
    let Denial { code, rule, what: _, hint } = denial;
    let reason = Some(code.reason().to_owned());
    Answer { rule, code: Some(code.to_string()), reason, hint: Some(hint), ..blank }
}

/// What becomes of what some rule leads to.
const fn verdict(asks: Option<&str>) -> &'static str {
    if asks.is_some() { "ask" } else { "allow" }
}

const fn addresses(reach: Reach) -> &'static str {
    match reach {
        Reach::Public => "public ones only",
        Reach::Named => "public ones and private networks, since the rule names it",
    }
}

impl Secret {
    fn of(secret: &SecretDecl) -> Self {
        Self {
            name: secret.name.to_string(),
            slots: secret.slots.iter().map(ToString::to_string).collect(),
            env: secret.env.clone(),
        }
    }
}

impl Answer {
    /// Several lines for people. What the caller typed is in them as it was typed.
    pub fn text(&self) -> String {
        let mut text = format!("{}\n", self.asked);
        let mut put = |name: &str, value: String| text.push_str(&format!("  {name:<10} {value}\n"));
        let from = format!("template {}, net {}", self.template, self.net);
        match (self.verdict, &self.rule) {
            ("allow", rule) => {
                put("allowed", format!("by `{}`", rule.as_deref().unwrap_or_default()));
            }
            ("ask", rule) => {
                let rule = rule.as_deref().unwrap_or_default();
                put("asked", format!("first, each time, by `{rule}`; see `belljar approve`"));
            }
            (_, rule) => {
                put("denied", self.reason.clone().unwrap_or_default());
                if let Some(rule) = rule {
                    put("rule", format!("`{rule}`"));
                }
            }
        }
        put("from", from);
        if let Some(hint) = &self.hint {
            put("to allow", hint.clone());
        }
        if let Some(tls) = self.tls {
            put("tls", tls.to_owned());
        }
        for secret in &self.secrets {
            let env = secret.env.as_ref().map_or(String::new(), |env| format!(", from ${env}"));
            put("secret", format!("{} in {}{env}", secret.name, secret.slots.join(", ")));
        }
        if let Some(limits) = &self.limits {
            put("limits", limits_text(limits));
        }
        match (&self.connect, self.addresses) {
            (Some(connect), _) => {
                put("connect", format!("{connect}, whatever the name resolves to"));
            }
            (None, Some(addresses)) => put("addresses", addresses.to_owned()),
            (None, None) => {}
        }
        for root in self.roots.iter().filter(|_| self.verdict != "deny") {
            put("root", format!("{}, beside the system's", root.display()));
        }
        if let Some(proxy) = self.proxy.as_ref().filter(|_| self.verdict != "deny") {
            put("proxy", proxy.clone());
        }
        text
    }
}

fn limits_text(limits: &RuleLimits) -> String {
    let RuleLimits { requests, upload, total } = limits;
    let said = [
        requests.map(|it| format!("{it} requests")),
        upload.map(|it| format!("{it} for one upload")),
        total.map(|it| format!("{it} in all")),
    ];
    said.into_iter().flatten().collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use belljar_model::Scope;

    use super::*;

    const FILE: &str = r#"
        [secret.forge]
        hosts = ["git.corp.example"]
        env = "FORGE_TOKEN"
        paths = ["/api/**"]
        [[template.default.allow]]
        host = "git.corp.example"
        secrets = ["forge"]
        limits = { requests = "60/min", upload = "1MiB" }
        connect = "10.1.2.3:443"
        [[template.default.allow]]
        host = "pinned.example"
        tls = "passthrough"
        [[template.default.allow]]
        tcp = "db.internal:5432"
        [[template.default.deny]]
        host = "evil.example"
        [tls]
        roots = ["corp.pem"]
        [proxy]
        url = "http://proxy.corp.example:3128"
    "#;

    #[track_caller]
    fn check(method: &str, url: &str, expect: &str) {
        let config = Config::parse(FILE, Path::new("/etc/belljar.toml"), Scope::Operator).unwrap();
        let asked = Asked::parse(url, &method.parse().unwrap()).unwrap();
        let template = config.template("default").unwrap();
        let answer = explain(&config, &template, &asked, None).unwrap();
        assert_eq!(answer.text(), expect);
    }

    #[test]
    fn an_allowed_request_shows_all_that_happens_to_it() {
        check(
            "GET",
            "https://git.corp.example/api/x?y",
            "GET https://git.corp.example/api/x?y
  allowed    by `allow git.corp.example`
  from       template default, net restricted
  tls        looked into
  secret     forge in header:authorization, from $FORGE_TOKEN
  limits     60/min requests, 1MiB for one upload
  connect    10.1.2.3:443, whatever the name resolves to
  root       /etc/corp.pem, beside the system's
  proxy      http://proxy.corp.example:3128
",
        );
        check(
            "POST",
            "pinned.example",
            "POST https://pinned.example/
  allowed    by `allow pinned.example`
  from       template default, net restricted
  tls        carried unseen; methods and paths are not known
  addresses  public ones only
  root       /etc/corp.pem, beside the system's
  proxy      http://proxy.corp.example:3128
",
        );
        check(
            "GET",
            "tcp://db.internal:5432",
            "tcp://db.internal:5432
  allowed    by `allow tcp://db.internal:5432`
  from       template default, net restricted
  addresses  public ones and private networks, since the rule names it
  root       /etc/corp.pem, beside the system's
  proxy      http://proxy.corp.example:3128
",
        );
    }

    #[test]
    fn a_refusal_says_why_and_what_to_do() {
        check(
            "GET",
            "https://other.example/a",
            "GET https://other.example/a
  denied     no rule allows it
  from       template default, net restricted
  to allow   belljar run --allow 'GET other.example/a'
",
        );
        check(
            "GET",
            "wss://git.corp.example/api",
            "GET https://git.corp.example/api
  denied     a rule allows it, but not as a WebSocket
  rule       `allow git.corp.example`
  from       template default, net restricted
  to allow   add `websocket = true` to the rule `allow git.corp.example` in belljar.toml
",
        );
        check(
            "GET",
            "http://evil.example/",
            "GET http://evil.example/
  denied     a rule denies it
  rule       `deny evil.example`
  from       template default, net restricted
  to allow   deny rules take precedence; remove `deny evil.example`
",
        );
        check(
            "GET",
            "https://git.corp.example/a/../b",
            "GET https://git.corp.example/a/../b
  denied     the path contains `.` or `..`, plain or escaped
  from       template default, net restricted
",
        );
    }

    #[test]
    fn what_is_no_url_is_refused() {
        let method = "GET".parse().unwrap();
        for url in [
            "",
            "https://",
            "ftp://a.example",
            "tcp://a.example",
            "https://u@a.example/",
            "https://a b/",
        ] {
            assert!(Asked::parse(url, &method).is_err(), "{url}");
        }
    }
}
