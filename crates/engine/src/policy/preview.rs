//! What a new policy would change: verdicts about recorded requests, reachable hosts, and risks.

use std::collections::BTreeSet;

use belljar_model::net::{HostPattern, Policy, RuleTarget, SecretName, Tls};
use belljar_model::{Config, Net};

use super::explain::Explainer;
use super::replay::{self, Replay};
use super::tenant::{self, TestResult};
use crate::error::EngineError;
use crate::record::browse::LedgerBrowser;
use crate::record::owners::EventOwner;

/// A host that boxes of a template can reach with the new policy, and could not reach before.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct NewHost {
    pub template: String,
    /// A host name, a wildcard such as `*.example.com`, an address, or `every public host`.
    pub host: String,
    /// Whether a person decides about each request.
    pub is_asked: bool,
}

/// A remark about a new policy for the person who saves it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// A name for programs, such as `full-network`.
    pub code: &'static str,
    pub template: Option<String>,
    pub text: String,
}

/// What a new policy would change.
#[derive(Clone, Debug)]
pub struct Preview {
    pub replay: Replay,
    pub new_hosts: Vec<NewHost>,
    pub findings: Vec<Finding>,
    pub tests: Vec<TestResult>,
}

/// The host of a template with `net = "full"`.
const EVERY_HOST: &str = "every public host";

/// Compares a new policy with the current one. `browser` is the ledger with the requests since `since`.
/// `stored` are the secrets that have a value.
pub fn preview(
    browser: Option<&mut LedgerBrowser>,
    since: u64,
    (old, new): (&Config, &Config),
    stored: &BTreeSet<SecretName>,
    is_visible: &dyn Fn(&EventOwner) -> bool,
) -> Result<Preview, EngineError> {
    let replay = match browser {
        Some(browser) => replay::replay(browser, since, (old, new), is_visible)?,
        None => Replay { is_complete: true, ..Replay::default() },
    };
    let mut new_hosts = BTreeSet::new();
    let mut findings = findings_of_file(old, new);
    for name in new.names() {
        let Some(template) = new.template(name) else { continue };
        let after = Explainer::new(new, &template)?;
        let before = old.template(name).map(|it| Explainer::new(old, &it)).transpose()?;
        let before = before.as_ref().map(Explainer::policy);
        new_hosts.extend(new_hosts_of(name, before, &after));
        findings.extend(findings_of(name, before, after.policy(), stored));
    }
    let new_hosts = new_hosts.into_iter().collect();
    Ok(Preview { replay, new_hosts, findings, tests: tenant::run_tests(new) })
}

fn findings_of_file(old: &Config, new: &Config) -> Vec<Finding> {
    let mut findings = Vec::new();
    let names = new.names();
    for name in old.names().into_iter().filter(|name| !names.contains(name)) {
        let text = "boxes of this template lose their network, and cannot start again".to_owned();
        findings.push(Finding { code: "template-removed", template: Some(name.to_owned()), text });
    }
    if new.tests().is_empty() {
        let text = "the policy has no [[test]], so nothing checks its rules".to_owned();
        findings.push(Finding { code: "no-tests", template: None, text });
    }
    findings
}

fn findings_of(
    template: &str,
    old: Option<&Policy>,
    new: &Policy,
    stored: &BTreeSet<SecretName>,
) -> Vec<Finding> {
    let mut findings = Vec::new();
    let mut add = |code: &'static str, text: String| {
        findings.push(Finding { code, template: Some(template.to_owned()), text });
    };
    let had_full = old.is_some_and(|old| old.net == Net::Full);
    if new.net == Net::Full && !had_full {
        add("full-network", "boxes can reach every public host".to_owned());
    }
    let is_new = |id: &str| old.is_none_or(|old| !old.allow.iter().any(|rule| rule.id == id));
    for rule in new.allow.iter().filter(|rule| is_new(&rule.id)) {
        let Some(http) = rule.http() else {
            let text = format!("the rule `{}` allows any content", rule.id);
            add("opaque", text);
            continue;
        };
        if http.tls == Tls::Passthrough {
            let text = format!("the rule `{}` hides methods and paths from the record", rule.id);
            add("opaque", text);
        }
        if http.host.parent().is_some() {
            add("wildcard", format!("the rule `{}` allows all names of a domain", rule.id));
        }
    }
    let unset = new.secrets.iter().flat_map(|secret| secret.needs());
    for name in unset.filter(|name| !stored.contains(name)) {
        let text = format!("secret {name} has no value, so boxes of this template cannot start");
        add("secret-not-set", text);
    }
    findings
}

/// Returns the hosts that the rules of a template newly lead to.
fn new_hosts_of(template: &str, old: Option<&Policy>, new: &Explainer) -> Vec<NewHost> {
    let policy = new.policy();
    if policy.net == Net::None {
        return Vec::new();
    }
    let old = old.filter(|old| old.net != Net::None);
    let is_full = old.is_some_and(|old| old.net == Net::Full);
    let known: Vec<HostPattern> = old.map(patterns).unwrap_or_default();
    let found = |host: String| NewHost { template: template.to_owned(), host, is_asked: false };
    let mut hosts = Vec::new();
    if policy.net == Net::Full && !is_full {
        hosts.push(found(EVERY_HOST.to_owned()));
    }
    for pattern in patterns(policy) {
        let is_known = known.iter().any(|known| known.covers(&pattern));
        // A host of a private network needs a rule also with `net = "full"`.
        let is_public = pattern.target().is_none_or(|it| it.private_target().is_none());
        if is_known || (is_full && is_public) || is_denied(new, &pattern) {
            continue;
        }
        let is_asked = policy.ask.iter().any(|rule| {
            rule.http().is_some_and(|http| http.host.covers(&pattern) && http.paths.is_none())
        });
        hosts.push(NewHost { is_asked, ..found(pattern.to_string()) });
    }
    hosts
}

/// Returns whether a `deny` rule forbids everything about a host.
fn is_denied(explainer: &Explainer, pattern: &HostPattern) -> bool {
    use belljar_model::net::Target;
    match pattern.target() {
        Some(Target::Name(name)) => explainer.rules().name(name).is_err(),
        Some(Target::Address(_)) | None => false,
    }
}

/// Returns the hosts that `allow` and `ask` rules lead to.
fn patterns(policy: &Policy) -> Vec<HostPattern> {
    let rules = policy.allow.iter().chain(&policy.ask);
    let pattern = |what: &RuleTarget| match what {
        RuleTarget::Http(http) => Some(http.host.clone()),
        RuleTarget::Tcp(tcp) => Some(HostPattern::exact(tcp.target.clone())),
        RuleTarget::HostPort(_) => None,
    };
    rules.filter_map(|rule| pattern(&rule.what)).collect()
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use belljar_model::Scope;

    use super::*;

    fn shown(old: &str, new: &str) -> (Vec<String>, Vec<&'static str>) {
        let parse =
            |text: &str| Config::parse(text, Path::new("policy.toml"), Scope::Tenant).unwrap();
        let configs = (&parse(old), &parse(new));
        let preview = preview(None, 0, configs, &BTreeSet::new(), &|_| true).unwrap();
        let hosts = preview.new_hosts.iter().map(|it| format!("{} {}", it.template, it.host));
        let codes = preview.findings.iter().map(|it| it.code);
        (hosts.collect(), codes.filter(|code| *code != "no-tests").collect())
    }

    #[test]
    fn newly_reachable_hosts_are_those_that_no_old_rule_covers() {
        let old = "[template.x]\nallow = ['a.example.com', '*.example.org']\n";
        for (new, expect) in [
            ("[template.x]\nallow = ['a.example.com', 'b.example.org']\n", &[][..]),
            ("[template.x]\nallow = ['b.example.com']\n", &["x b.example.com"]),
            ("[template.x]\nallow = ['*.example.com']\n", &["x *.example.com"]),
            ("[template.y]\nallow = ['a.example.com']\n", &["y a.example.com"]),
            ("[template.x]\nnet = 'full'\n", &["x every public host"]),
            ("[template.x]\nnet = 'none'\nallow = ['new.example.com']\n", &[]),
            ("[template.x]\nallow = ['new.example.com']\ndeny = ['new.example.com']\n", &[]),
            ("[template.x]\nask = ['new.example.com']\n", &["x new.example.com"]),
        ] {
            assert_eq!(shown(old, new).0, expect, "{new}");
        }
    }

    #[test]
    fn findings_name_new_risks_of_a_policy() {
        let old = "[template.x]\nallow = ['a.example.com']\n";
        for (new, expect) in [
            (old, &[][..]),
            ("[template.x]\nnet = 'full'\n", &["full-network"]),
            ("[template.x]\nallow = ['*.example.com']\n", &["wildcard"]),
            ("[template.x]\nallow = ['tcp://db.example.com:5432']\n", &["opaque"]),
            ("", &["template-removed"]),
            ("[template.x]\nallow = ['github']\nsecrets = ['github']\n", &["secret-not-set"]),
        ] {
            assert_eq!(shown(old, new).1, expect, "{new}");
        }
    }
}
