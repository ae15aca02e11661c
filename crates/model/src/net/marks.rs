//! The marks of grants: which rules give a label, which labels remove a grant, and who may answer the questions
//! of a rule.
//!
//! The marks for labels have an effect on the boxes of tasks only. No mark widens a policy.

use std::collections::BTreeSet;

use serde::ser::{SerializeStruct as _, Serializer};
use serde::{Deserialize, Serialize};

use super::policy::Policy;
use super::rate::RuleLimits;
use super::rule::{HttpRule, Rule, RuleError, RuleTarget, TcpRule};
use super::secret::SecretName;
use super::web::Tls;
use crate::answer::AnswerTerms;
use crate::choice::Net;
use crate::plan::Label;

/// What a rule means for the labels of a run, and for the people who answer its questions.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RuleMarks {
    /// Whether responses of the hosts are not trusted. The output of a box with the rule has the label
    /// `network`.
    pub untrusted: bool,
    /// The labels that remove the rule from the box of a task.
    pub deny_when: BTreeSet<Label>,
    /// Who may answer the questions of the rule; only an `ask` rule has questions.
    #[serde(default)]
    pub answers: AnswerTerms,
}

/// The JSON of marks is hashed as a part of the policy in `run.created`, and must not change for rules that
/// demand nothing of answers. Binary formats need every field.
impl Serialize for RuleMarks {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let Self { untrusted, deny_when, answers } = self;
        let is_omitted = serializer.is_human_readable() && answers.is_empty();
        let mut fields =
            serializer.serialize_struct("RuleMarks", if is_omitted { 2 } else { 3 })?;
        fields.serialize_field("untrusted", untrusted)?;
        fields.serialize_field("deny_when", deny_when)?;
        match is_omitted {
            true => fields.skip_field("answers")?,
            false => fields.serialize_field("answers", answers)?,
        }
        fields.end()
    }
}

impl RuleMarks {
    pub fn is_empty(&self) -> bool {
        !self.untrusted && self.deny_when.is_empty() && self.answers.is_empty()
    }

    /// Returns the first key about answers that is set. Only an `ask` rule can have one.
    pub(crate) const fn answer_key(&self) -> Option<&'static str> {
        match self.answers {
            AnswerTerms { operator: true, .. } => Some("approver"),
            AnswerTerms { two_people: true, .. } => Some("two-people"),
            AnswerTerms { operator: false, two_people: false } => None,
        }
    }

    /// Returns an error if marks are set, which a `deny` rule cannot have.
    pub(crate) fn check_deny(&self) -> Result<(), RuleError> {
        let keys = [("untrusted", self.untrusted), ("deny-when", !self.deny_when.is_empty())];
        let key = keys.into_iter().find(|(_, is_set)| *is_set).map(|(key, _)| key);
        match key.or(self.answer_key()) {
            Some(key) => Err(RuleError::InDeny(key)),
            None => Ok(()),
        }
    }

    /// Returns the marks of both.
    #[must_use]
    pub fn and(&self, other: &Self) -> Self {
        Self {
            untrusted: self.untrusted || other.untrusted,
            deny_when: self.deny_when.union(&other.deny_when).cloned().collect(),
            answers: self.answers.and(other.answers),
        }
    }
}

/// The grants that labels removed from the box of a task.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RemovedGrants {
    pub secrets: BTreeSet<SecretName>,
    /// The ids of rules.
    pub rules: BTreeSet<String>,
}

impl RemovedGrants {
    pub fn is_empty(&self) -> bool {
        self.secrets.is_empty() && self.rules.is_empty()
    }
}

impl Policy {
    /// Removes grants from the policy.
    ///
    /// An `ask` rule becomes a `deny` rule, because a wider `allow` rule would otherwise allow its requests
    /// without a question. On a full network, an `allow` rule becomes a `deny` rule too.
    pub fn remove(&mut self, removed: &RemovedGrants) {
        let RemovedGrants { secrets, rules } = removed;
        self.secrets.retain(|secret| !secrets.contains(&secret.name));
        for rule in self.allow.iter_mut().chain(&mut self.ask) {
            if let RuleTarget::Http(http) = &mut rule.what {
                http.secrets.retain(|name| !secrets.contains(name));
            }
        }
        let is_removed = |rule: &mut Rule| rules.contains(&rule.id);
        let allow: Vec<Rule> = self.allow.extract_if(.., is_removed).collect();
        let ask: Vec<Rule> = self.ask.extract_if(.., is_removed).collect();
        let allow = allow.into_iter().filter(|_| self.net == Net::Full);
        self.deny.extend(allow.chain(ask).map(denying));
    }
}

/// Returns the rule that denies everything that a rule matches.
fn denying(rule: Rule) -> Rule {
    let what = match rule.what {
        RuleTarget::Http(http) => RuleTarget::Http(HttpRule {
            secrets: BTreeSet::new(),
            limits: RuleLimits::default(),
            tls: Tls::Intercept,
            websocket: false,
            connect: None,
            model: None,
            ..http
        }),
        RuleTarget::Tcp(tcp) => RuleTarget::Tcp(TcpRule { connect: None, ..tcp }),
        RuleTarget::HostPort(port) => RuleTarget::HostPort(port),
    };
    Rule { id: format!("removed by a label: {}", rule.id), what, marks: RuleMarks::default() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{Config, Scope};

    /// A policy with a marked `allow` rule, a wider plain rule, a marked `ask` rule and two secrets.
    fn policy(net: &str) -> Policy {
        let text = format!(
            "[template.t]\nnet = '{net}'\nsecrets = ['deploy', 'read']\n\
             ask = [{{ name = 'asked', host = 'ask.example.com', deny-when = ['untrusted'] }}]\n\
             allow = ['*.example.com', {{ name = 'deploys', host = 'deploy.example.com', methods = ['POST'], websocket = true, deny-when = ['untrusted'] }}]\n\
             [secret.deploy]\nhosts = ['deploy.example.com']\nenv = 'DEPLOY'\ndeny-when = ['untrusted', 'network']\n\
             [secret.read]\nhosts = ['api.example.com']\nenv = 'READ'\n"
        );
        let config = Config::parse(&text, "belljar.toml".as_ref(), Scope::Operator).unwrap();
        config.template("t").unwrap().policy(&config).unwrap()
    }

    fn ids(rules: &[Rule]) -> Vec<&str> {
        rules.iter().map(|rule| rule.id.as_str()).collect()
    }

    fn removed(secrets: &[&str], rules: &[&str]) -> RemovedGrants {
        RemovedGrants {
            secrets: secrets.iter().map(|name| name.parse().unwrap()).collect(),
            rules: rules.iter().map(ToString::to_string).collect(),
        }
    }

    #[test]
    fn removed_secret_is_in_no_part_of_the_policy() {
        let mut policy = policy("restricted");
        policy.remove(&removed(&["deploy"], &[]));
        let text = serde_json::to_string(&policy).unwrap();
        assert!(!text.contains(r#""deploy""#), "{text}");
        assert!(text.contains(r#""read""#), "control: {text}");
        assert_eq!((policy.allow.len(), policy.ask.len()), (2, 1));
    }

    #[test]
    fn removed_rule_of_a_restricted_network_is_gone_and_an_ask_rule_denies() {
        let mut policy = policy("restricted");
        policy.remove(&removed(&[], &["deploys", "asked"]));
        assert_eq!(ids(&policy.allow), ["allow *.example.com"]);
        assert_eq!(ids(&policy.ask), [""; 0]);
        assert_eq!(ids(&policy.deny), ["removed by a label: asked"]);
    }

    #[test]
    fn removed_rule_of_a_full_network_denies_its_requests() {
        let mut policy = policy("full");
        policy.remove(&removed(&[], &["deploys"]));
        assert_eq!(ids(&policy.deny), ["removed by a label: deploys"]);
        let denied = policy.deny[0].http().unwrap();
        assert!(denied.methods.as_ref().is_some_and(|methods| methods.len() == 1));
        assert!(policy.deny.iter().all(|rule| rule.check_deny().is_ok()));
    }

    #[test]
    fn policy_without_removed_grants_is_unchanged() {
        let mut changed = policy("restricted");
        changed.remove(&RemovedGrants::default());
        assert_eq!(changed, policy("restricted"));
        assert!(RemovedGrants::default().is_empty() && !removed(&["deploy"], &[]).is_empty());
    }
}
