//! Conversion of a template to the network policy of a box: expands presets, looks up secrets.

use std::collections::{BTreeMap, BTreeSet};

use super::{Config, Scope};
use crate::choice::Net;
use crate::net::{
    Allow, HostPattern, HttpRule, Policy, PresetName, PrivateTarget, Rule, RuleMarks, RuleTarget,
    Scheme, SecretDecl, SecretName, Tls,
};
use crate::template::Template;

/// The reason why a template has no valid network policy.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PolicyError {
    #[error(
        "there is no secret `{name}`: write `[secret.{name}]` with its `hosts` into your own belljar.toml and store it with `belljar secret set {name}`; {known}"
    )]
    UnknownSecret { name: SecretName, known: String },
    #[error(
        "secret `{name}` is for {hosts}, but no rule allows these hosts; allow one of them, for example with --allow {first}"
    )]
    Unreachable { name: SecretName, hosts: String, first: HostPattern },
    #[error("the secrets `{first}` and `{second}` both set `env = \"{env}\"`; change one of them")]
    SameVariable { env: String, first: SecretName, second: SecretName },
    #[error(
        "the variable {env} is set by `env` and also by the secret `{name}`; remove one of them"
    )]
    GivenToo { env: String, name: SecretName },
    #[error("the preset `{0}` is malformed")]
    Preset(PresetName),
    #[error("the rule `{rule}` {target}; only the operator of the server can permit that")]
    Private { rule: String, target: PrivateTarget },
}

impl Template {
    /// Returns the network policy of a box made from this template.
    ///
    /// Presets are replaced by their rules. A secret of the whole box applies to every rule that can
    /// lead to one of its hosts.
    pub fn policy(&self, config: &Config) -> Result<Policy, PolicyError> {
        let mut allow = Vec::new();
        for item in &self.allow {
            match item {
                Allow::Rule(rule) => allow.push(Rule::clone(rule)),
                Allow::Preset(name) => {
                    let preset = name.preset().ok_or(PolicyError::Preset(*name))?;
                    allow.extend(preset.rules);
                }
            }
        }
        let mut ask = self.ask.clone();
        let rules = allow.iter().chain(&ask).filter_map(Rule::http);
        let of_rules = rules.flat_map(|http| http.secrets.iter());
        let names: BTreeSet<SecretName> = self.secrets.iter().chain(of_rules).cloned().collect();
        let mut secrets = Vec::new();
        for name in &names {
            secrets.push(config.require_secret(name)?.clone());
        }
        self.check_variables(&secrets)?;
        for secret in secrets.iter().filter(|secret| self.secrets.contains(&secret.name)) {
            if self.net == Net::Full {
                allow.extend(secret.hosts.iter().map(|host| rule_for_secret(secret, host)));
            }
            let mut reached = self.net == Net::None;
            for rule in allow.iter_mut().chain(&mut ask) {
                reached |= add_secret(rule, secret);
            }
            if let Some(first) = secret.hosts.first().filter(|_| !reached) {
                let hosts: Vec<String> = secret.hosts.iter().map(ToString::to_string).collect();
                let (name, hosts) = (secret.name.clone(), hosts.join(", "));
                return Err(PolicyError::Unreachable { name, hosts, first: first.clone() });
            }
        }
        if config.scope == Scope::Tenant {
            check_public(allow.iter().chain(&ask), &secrets)?;
        }
        Ok(Policy {
            net: self.net,
            allow,
            deny: self.deny.clone(),
            ask,
            ask_timeout: self.ask_timeout,
            secrets,
            budget: self.budget,
            proxy: config.proxy.clone(),
        })
    }

    /// Returns an error if two settings of the template set the same environment variable.
    fn check_variables(&self, secrets: &[SecretDecl]) -> Result<(), PolicyError> {
        let mut taken: BTreeMap<&str, &SecretName> = BTreeMap::new();
        for secret in secrets {
            let Some(env) = secret.env.as_deref() else { continue };
            if let Some(first) = taken.insert(env, &secret.name) {
                let (first, second) = (first.clone(), secret.name.clone());
                return Err(PolicyError::SameVariable { env: env.to_owned(), first, second });
            }
            if self.env.iter().any(|variable| variable.name() == env) {
                let (env, name) = (env.to_owned(), secret.name.clone());
                return Err(PolicyError::GivenToo { env, name });
            }
        }
        Ok(())
    }
}

/// Returns an error if a rule or secret of a tenant leads to the machine or to a private network. The rules
/// can come from anywhere: from the policy, from the request for a box, or from an agent.
fn check_public<'r>(
    mut rules: impl Iterator<Item = &'r Rule>,
    secrets: &[SecretDecl],
) -> Result<(), PolicyError> {
    let rule = rules.find_map(|rule| Some((rule.id.clone(), rule.private_target()?)));
    let secret = || {
        let of = |it: &SecretDecl| Some((format!("secret {}", it.name), it.private_target()?));
        secrets.iter().find_map(of)
    };
    rule.or_else(secret).map_or(Ok(()), |(rule, target)| Err(PolicyError::Private { rule, target }))
}

/// Returns the rule that carries a secret to its host on a full network.
fn rule_for_secret(secret: &SecretDecl, host: &HostPattern) -> Rule {
    let http = HttpRule { websocket: true, ..HttpRule::https(host.clone()) };
    let (id, what) = (format!("secret {}: {host}", secret.name), RuleTarget::Http(http));
    Rule { id, what, marks: RuleMarks::default() }
}

/// Adds a secret to a rule if the rule is intercepted and can lead to one of the secret's hosts;
/// returns whether it did.
fn add_secret(rule: &mut Rule, secret: &SecretDecl) -> bool {
    let RuleTarget::Http(http) = &mut rule.what else { return false };
    let intercepted = http.scheme == Scheme::Https && http.tls == Tls::Intercept;
    let leads = secret.hosts.iter().any(|host| host.overlaps(&http.host));
    if intercepted && leads {
        http.secrets.insert(secret.name.clone());
    }
    intercepted && leads
}

impl Config {
    /// Returns the declaration of a secret, or an error that lists the declared secrets.
    pub(crate) fn require_secret(&self, name: &SecretName) -> Result<&SecretDecl, PolicyError> {
        self.secret(name).ok_or_else(|| {
            let known = self.declared_secrets().chain(self.bundled_secrets());
            let known: Vec<&str> = known.map(SecretName::as_str).collect();
            let known = format!("the secrets are {}", known.join(", "));
            PolicyError::UnknownSecret { name: name.clone(), known }
        })
    }
}
