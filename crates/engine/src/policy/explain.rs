//! Explains which rule allows or denies a network request. Nothing is sent.

use std::path::{Path, PathBuf};

use belljar_broker::address::Reach;
use belljar_broker::rules::{Denial, Handling, OutboundRequest, Permit, Rules};
use belljar_broker::target::{CanonicalPath, query_override};
use belljar_model::net::{Policy, RequestLine, RuleLimits, Scheme, SecretDecl, Target};
use belljar_model::{Config, Template};
use serde::Serialize;

use crate::error::{EngineError, ErrorKind, WithKind as _};

/// The explanation of a network request, as text for people and JSON for programs.
#[derive(Debug, Serialize)]
pub struct Explanation {
    #[serde(rename = "asked")]
    pub request: String,
    pub template: String,
    pub net: &'static str,
    pub verdict: &'static str,
    /// The rule that allows or denies the request, or that almost allows a denied request.
    pub rule: Option<String>,
    /// The code of the reason for a denial, such as `no-rule`.
    pub code: Option<String>,
    pub reason: Option<String>,
    pub hint: Option<String>,
    /// Whether the broker intercepts TLS or passes it through.
    pub tls: Option<&'static str>,
    pub secrets: Vec<ExplainedSecret>,
    /// The fixed address that the broker connects to instead of resolving the name.
    pub connect: Option<String>,
    /// Which kinds of addresses the broker may connect to.
    pub addresses: Option<&'static str>,
    pub limits: Option<RuleLimits>,
    /// Files with additional certificate authorities that the broker trusts.
    pub roots: Vec<PathBuf>,
    pub proxy: Option<String>,
}

/// A secret that the broker would insert into the explained request.
#[derive(Debug, Serialize)]
pub struct ExplainedSecret {
    pub name: String,
    pub slots: Vec<String>,
    pub env: Option<String>,
}

/// Explains what the network rules of a template decide about a request.
///
/// `home` is the user's home directory, for paths that start with `~`.
pub fn explain(
    config: &Config,
    template: &Template,
    request: &RequestLine,
    home: Option<&Path>,
) -> Result<Explanation, EngineError> {
    let roots = config.roots(home);
    Ok(Explanation { roots, ..Explainer::new(config, template)?.explain(request) })
}

/// The network rules of one template, which decide about many requests.
#[derive(Debug)]
pub struct Explainer {
    policy: Policy,
    rules: Rules,
    template: String,
    proxy: Option<String>,
}

impl Explainer {
    pub fn new(config: &Config, template: &Template) -> Result<Self, EngineError> {
        let policy = template.policy(config).kind(ErrorKind::Invalid)?;
        Ok(Self::of(policy, template.name.clone()))
    }

    /// Creates the explainer of a policy that was made from a template.
    pub fn of(policy: Policy, template: String) -> Self {
        let (rules, proxy) = (Rules::new(&policy), policy.proxy.as_ref().map(ToString::to_string));
        Self { policy, rules, template, proxy }
    }

    pub const fn policy(&self) -> &Policy {
        &self.policy
    }

    pub const fn rules(&self) -> &Rules {
        &self.rules
    }

    /// Explains what the rules decide about a request.
    pub fn explain(&self, request: &RequestLine) -> Explanation {
        let blank = Explanation {
            request: String::new(),
            template: self.template.clone(),
            net: self.policy.net.name(),
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
            roots: Vec::new(),
            proxy: self.proxy.clone(),
        };
        let (scheme, target, port, method, path, upgrade) = match request {
            RequestLine::Tcp { target, port } => {
                return explain_tcp(&self.rules, target, *port, blank);
            }
            RequestLine::Http { scheme, target, port, method, path, upgrade } => {
                (*scheme, target, *port, method, path, *upgrade)
            }
        };
        let host = match port == scheme.port() {
            true => target.to_string(),
            false => format!("{target}:{port}"),
        };
        let blank = Explanation { request: format!("{method} {scheme}://{host}{path}"), ..blank };
        let (path, query) = match CanonicalPath::parse(path) {
            Ok(parsed) => parsed,
            Err(error) => return refused("ambiguous-path", &error, blank),
        };
        if let Err(error) = query_override(method, &path, query.as_deref()) {
            return refused("override", &error, blank);
        }
        let (target, method) = (target.clone(), method.clone());
        let outbound = OutboundRequest { scheme, target, port, method, path, upgrade };
        explain_http(&self.rules, &self.policy, &outbound, blank)
    }
}

/// Returns the explanation of a request that the broker refuses before it checks any rule.
fn refused(code: &str, error: &dyn std::fmt::Display, blank: Explanation) -> Explanation {
    Explanation { code: Some(code.to_owned()), reason: Some(error.to_string()), ..blank }
}

/// Explains what the rules decide about a TCP connection.
fn explain_tcp(rules: &Rules, target: &Target, port: u16, blank: Explanation) -> Explanation {
    let blank = Explanation { request: format!("tcp://{target}:{port}"), ..blank };
    match rules.tcp(target, port) {
        Err(denial) => denied(denial, blank),
        Ok(permit) => Explanation {
            verdict: verdict(permit.asks()),
            rule: Some(permit.asks().unwrap_or(permit.rule()).to_owned()),
            connect: permit.connect().map(|to| to.to_string()),
            addresses: Some(addresses(permit.reach())),
            ..blank
        },
    }
}

/// Explains what the rules decide about an HTTP request.
fn explain_http(
    rules: &Rules,
    policy: &Policy,
    request: &OutboundRequest,
    blank: Explanation,
) -> Explanation {
    if let (Scheme::Https, Target::Name(name)) = (request.scheme, &request.target)
        && let Handling::Passthrough(permit) = rules.tls(name, request.port)
    {
        return allowed(&permit, Vec::new(), blank);
    }
    match rules.check(request) {
        Err(denial) => denied(denial, blank),
        Ok(permit) => {
            let is_inserted = |secret: &&SecretDecl| {
                permit.secrets().contains(&secret.name)
                    && secret
                        .covers(&request.target, &request.method, |it| request.path.allowed_by(it))
            };
            let secrets = policy
                .secrets
                .iter()
                .filter(is_inserted)
                .map(ExplainedSecret::from_declaration)
                .collect();
            allowed(&permit, secrets, blank)
        }
    }
}

/// Returns the explanation of an HTTP request that a rule allows or asks about.
fn allowed(permit: &Permit, secrets: Vec<ExplainedSecret>, blank: Explanation) -> Explanation {
    let tls = match (permit.scheme(), permit.is_opaque()) {
        (Scheme::Http, _) => None,
        (Scheme::Https, false) => Some("intercepted"),
        (Scheme::Https, true) => Some("passed through; the broker does not see methods and paths"),
    };
    Explanation {
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

/// Returns the explanation of a request that the rules deny.
fn denied(denial: Denial, blank: Explanation) -> Explanation {
    let Denial { code, rule, what: _, hint } = denial;
    let reason = Some(code.reason().to_owned());
    Explanation { rule, code: Some(code.to_string()), reason, hint: Some(hint), ..blank }
}

/// Returns the verdict on a permitted request: `ask` if a rule asks a person first.
const fn verdict(asks: Option<&str>) -> &'static str {
    if asks.is_some() { "ask" } else { "allow" }
}

/// Describes which addresses the broker may connect to.
const fn addresses(reach: Reach) -> &'static str {
    match reach {
        Reach::Public => "public addresses only",
        Reach::Named => "public addresses and private networks, because the rule names this host",
    }
}

impl ExplainedSecret {
    fn from_declaration(secret: &SecretDecl) -> Self {
        Self {
            name: secret.name.to_string(),
            slots: secret.slots.iter().map(ToString::to_string).collect(),
            env: secret.env.clone(),
        }
    }
}

impl Explanation {
    /// Formats the explanation as lines for people. The request appears unescaped, as the caller typed it.
    pub fn text(&self) -> String {
        let mut text = format!("{}\n", self.request);
        let mut put = |name: &str, value: String| text.push_str(&format!("  {name:<10} {value}\n"));
        let source = format!("template {}, net {}", self.template, self.net);
        match (self.verdict, &self.rule) {
            ("allow", rule) => {
                put("allowed", format!("by `{}`", rule.as_deref().unwrap_or_default()));
            }
            ("ask", rule) => {
                let rule = rule.as_deref().unwrap_or_default();
                put(
                    "asked",
                    format!(
                        "a person, before each request, by the rule `{rule}`; see `belljar approve`"
                    ),
                );
            }
            (_, rule) => {
                put("denied", self.reason.clone().unwrap_or_default());
                if let Some(rule) = rule {
                    put("rule", format!("`{rule}`"));
                }
            }
        }
        put("from", source);
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
                put("connect", format!("{connect}, without resolving the name"));
            }
            (None, Some(addresses)) => put("addresses", addresses.to_owned()),
            (None, None) => {}
        }
        for root in self.roots.iter().filter(|_| self.verdict != "deny") {
            put("root", format!("{}, in addition to the system's", root.display()));
        }
        if let Some(proxy) = self.proxy.as_ref().filter(|_| self.verdict != "deny") {
            put("proxy", proxy.clone());
        }
        text
    }
}

/// Formats the limits of a rule as one line.
fn limits_text(limits: &RuleLimits) -> String {
    let RuleLimits { requests, upload, total } = limits;
    let parts = [
        requests.map(|it| format!("{it} requests")),
        upload.map(|it| format!("{it} for one upload")),
        total.map(|it| format!("{it} in all")),
    ];
    parts.into_iter().flatten().collect::<Vec<_>>().join(", ")
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
        let request = RequestLine::new(url, &method.parse().unwrap()).unwrap();
        let template = config.template("default").unwrap();
        let explanation = explain(&config, &template, &request, None).unwrap();
        assert_eq!(explanation.text(), expect);
    }

    #[test]
    fn explain_shows_rule_secrets_limits_and_address_of_an_allowed_request() {
        check(
            "GET",
            "https://git.corp.example/api/x?y",
            "GET https://git.corp.example/api/x?y
  allowed    by `allow git.corp.example`
  from       template default, net restricted
  tls        intercepted
  secret     forge in header:authorization, from $FORGE_TOKEN
  limits     60/min requests, 1MiB for one upload
  connect    10.1.2.3:443, without resolving the name
  root       /etc/corp.pem, in addition to the system's
  proxy      http://proxy.corp.example:3128
",
        );
        check(
            "POST",
            "pinned.example",
            "POST https://pinned.example/
  allowed    by `allow pinned.example`
  from       template default, net restricted
  tls        passed through; the broker does not see methods and paths
  addresses  public addresses only
  root       /etc/corp.pem, in addition to the system's
  proxy      http://proxy.corp.example:3128
",
        );
        check(
            "GET",
            "tcp://db.internal:5432",
            "tcp://db.internal:5432
  allowed    by `allow tcp://db.internal:5432`
  from       template default, net restricted
  addresses  public addresses and private networks, because the rule names this host
  root       /etc/corp.pem, in addition to the system's
  proxy      http://proxy.corp.example:3128
",
        );
    }

    #[test]
    fn explain_shows_reason_and_remedy_of_a_denied_request() {
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
}
