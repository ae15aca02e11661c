//! Decides recorded requests again, by the current rules and by those of a new policy.
//!
//! The ledger does not have the rules that a box or an agent added to its template. If a request was allowed
//! and the template alone would not allow it, such a rule is assumed for both policies, so that a new `deny`
//! or `ask` rule for the request is found.

use std::collections::{BTreeMap, HashMap};

use belljar_ledger::RequestDecided;
use belljar_model::Config;
use belljar_model::net::{RequestLine, Rule, RuleTarget, Scheme, Tls};
use belljar_model::policy_test::Decision;

use super::explain::{Explainer, Explanation};
use crate::error::EngineError;
use crate::record::browse::LedgerBrowser;
use crate::record::browse::requests::{RecordedRequest, Templates};
use crate::record::owners::EventOwner;

/// The maximum number of recorded requests that are decided again.
pub const MAX_REQUESTS: u64 = 100_000;
/// The maximum number of different requests that are decided again.
const MAX_DIFFERENT: usize = 20_000;
/// The maximum number of boxes that a changed verdict names.
const MAX_BOXES: usize = 5;

/// A request about which the new policy decides differently.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ChangedVerdict {
    pub template: String,
    /// The request as a method and a URL.
    pub request: String,
    pub host: String,
    pub before: Decision,
    pub after: Decision,
    /// The rule or the reason of the new verdict.
    pub why: String,
    /// Whether a rule of the box or of its agent allowed the request, and not the policy.
    pub is_own_rule: bool,
    /// How often the request was sent.
    pub count: u64,
    /// The time of the newest request, in nanoseconds since 1970.
    pub last: u64,
    /// Some boxes that sent the request.
    pub boxes: Vec<String>,
}

/// The result of a replay.
#[derive(Clone, Debug, Default)]
pub struct Replay {
    /// The changed verdicts, the most frequent request first.
    pub changes: Vec<ChangedVerdict>,
    /// The number of requests that were decided again.
    pub replayed: u64,
    /// The number of requests whose template the current policy does not have, or that no rule describes.
    pub skipped: u64,
    /// Whether all requests of the time were examined.
    pub is_complete: bool,
}

/// The parts of a request that rules decide about.
type RequestKey = (String, String, String, String, u64, String, bool);

/// Equal requests of boxes with the same template.
struct Group {
    sample: RequestDecided,
    was_allowed: bool,
    count: u64,
    last: u64,
    boxes: Vec<String>,
}

/// Decides the requests since a time again.
pub fn replay(
    browser: &mut LedgerBrowser,
    since: u64,
    (old, new): (&Config, &Config),
    is_visible: &dyn Fn(&EventOwner) -> bool,
) -> Result<Replay, EngineError> {
    let mut replay = Replay { is_complete: true, ..Replay::default() };
    let groups = collect(browser, since, is_visible, &mut replay)?;
    let (mut olds, mut news) = (Judges::of(old), Judges::of(new));
    for ((template, ..), group) in groups {
        let Some(line) = request_line(&group.sample) else {
            replay.skipped += group.count;
            continue;
        };
        let Some(old) = olds.judge(&template)? else {
            replay.skipped += group.count;
            continue;
        };
        replay.replayed += group.count;
        let changed = compare(old, news.judge(&template)?, &line, group.was_allowed);
        if let Some((before, after, why, is_own_rule)) = changed {
            replay.changes.push(ChangedVerdict {
                template,
                request: line.to_string(),
                host: group.sample.host,
                before,
                after,
                why,
                is_own_rule,
                count: group.count,
                last: group.last,
                boxes: group.boxes,
            });
        }
    }
    let by_count = |it: &ChangedVerdict| std::cmp::Reverse((it.count, it.last));
    replay.changes.sort_by_key(by_count);
    Ok(replay)
}

/// Groups the requests since a time.
fn collect(
    browser: &mut LedgerBrowser,
    since: u64,
    is_visible: &dyn Fn(&EventOwner) -> bool,
    replay: &mut Replay,
) -> Result<BTreeMap<RequestKey, Group>, EngineError> {
    let mut groups: BTreeMap<RequestKey, Group> = BTreeMap::new();
    let (mut templates, mut examined) = (Templates::default(), 0);
    browser.each_request(since, is_visible, &mut |browser, found| {
        examined += 1;
        if examined > MAX_REQUESTS || groups.len() >= MAX_DIFFERENT {
            replay.is_complete = false;
            return Ok(false);
        }
        match templates.of(browser, found.run)? {
            Some(template) => add(&mut groups, template, found),
            None => replay.skipped += 1,
        }
        Ok(true)
    })?;
    Ok(groups)
}

fn add(groups: &mut BTreeMap<RequestKey, Group>, template: String, found: RecordedRequest) {
    let RecordedRequest { time, owner, request, .. } = found;
    let key = (
        template,
        request.method.clone(),
        request.scheme.clone(),
        request.host.clone(),
        request.port,
        request.path.clone(),
        request.upgrade.is_some(),
    );
    let was_allowed = request.verdict == "allow";
    let group = groups.entry(key).or_insert_with(|| Group {
        sample: request,
        was_allowed,
        count: 0,
        last: time,
        boxes: Vec::new(),
    });
    group.count += 1;
    group.was_allowed |= was_allowed;
    if let Some(name) = owner.box_name
        && group.boxes.len() < MAX_BOXES
        && !group.boxes.contains(&name)
    {
        group.boxes.push(name);
    }
}

/// Returns a recorded request as a line. `None` if the box sent something that no rule describes.
pub fn request_line(request: &RequestDecided) -> Option<RequestLine> {
    let RequestDecided { method, scheme, host, port, path, upgrade, .. } = request;
    let (target, port) = (host.parse().ok()?, u16::try_from(*port).ok()?);
    let scheme = match scheme.as_str() {
        "tcp" => return Some(RequestLine::Tcp { target, port }),
        "https" => Scheme::Https,
        "http" => Scheme::Http,
        _ => return None,
    };
    let (method, path) = (method.parse().ok()?, path.clone());
    // Without a path, the broker decided about a connection and not about a request.
    let is_request = path.starts_with('/');
    let upgrade = upgrade.is_some();
    is_request.then_some(RequestLine::Http { scheme, target, port, method, path, upgrade })
}

/// The rules of the templates of one configuration.
struct Judges<'c> {
    config: &'c Config,
    known: HashMap<String, Option<Explainer>>,
}

impl<'c> Judges<'c> {
    fn of(config: &'c Config) -> Self {
        Self { config, known: HashMap::new() }
    }

    /// Returns the rules of a template. `None` if there is no such template.
    fn judge(&mut self, template: &str) -> Result<Option<&Explainer>, EngineError> {
        if !self.known.contains_key(template) {
            let found = self.config.template(template);
            let judge = found.map(|it| Explainer::new(self.config, &it)).transpose()?;
            self.known.insert(template.to_owned(), judge);
        }
        Ok(self.known.get(template).and_then(Option::as_ref))
    }
}

/// Returns the verdicts of both policies with the reason of the new one, and whether a rule of the box itself
/// is assumed, if the verdicts differ.
fn compare(
    old: &Explainer,
    new: Option<&Explainer>,
    line: &RequestLine,
    was_allowed: bool,
) -> Option<(Decision, Decision, String, bool)> {
    let before = decision(&old.explain(line));
    let Some(new) = new else {
        let why = "the policy has no such template".to_owned();
        return (before != Decision::Deny).then_some((before, Decision::Deny, why, false));
    };
    let explained = new.explain(line);
    let after = decision(&explained);
    if before != after {
        return Some((before, after, why(explained), false));
    }
    if before != Decision::Deny || !was_allowed {
        return None;
    }
    let own = own_rule(line)?;
    let before = decision(&with_rule(old, own.clone()).explain(line));
    let explained = with_rule(new, own).explain(line);
    let after = decision(&explained);
    (before != after).then(|| (before, after, why(explained), true))
}

fn decision(explanation: &Explanation) -> Decision {
    explanation.verdict.parse().unwrap_or(Decision::Deny)
}

fn why(explanation: Explanation) -> String {
    let Explanation { verdict, rule, reason, .. } = explanation;
    match (verdict, reason) {
        ("deny", Some(reason)) => match rule {
            Some(rule) => format!("{reason} ({rule})"),
            None => reason,
        },
        _ => rule.unwrap_or_default(),
    }
}

/// Returns a rule that allows the host of a request.
fn own_rule(line: &RequestLine) -> Option<Rule> {
    let text = match line {
        RequestLine::Tcp { target, port } => format!("tcp://{target}:{port}"),
        RequestLine::Http { scheme, target, port, .. } => format!("{scheme}://{target}:{port}"),
    };
    let mut rule = Rule::allow(&text).ok()?;
    if let RuleTarget::Http(http) = &mut rule.what {
        (http.websocket, http.tls) = (true, Tls::Intercept);
    }
    Some(rule)
}

fn with_rule(explainer: &Explainer, rule: Rule) -> Explainer {
    let mut policy = explainer.policy().clone();
    policy.allow.push(rule);
    Explainer::of(policy, String::new())
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use belljar_model::Scope;

    use super::*;

    fn compared(old: &str, new: &str, line: &str, was_allowed: bool) -> Option<(String, bool)> {
        let judge = |rules: &str| {
            let text = format!("[template.x]\nnet = 'restricted'\n{rules}");
            let config = Config::parse(&text, Path::new("policy.toml"), Scope::Tenant).unwrap();
            Explainer::new(&config, &config.template("x").unwrap()).unwrap()
        };
        let changed = compare(&judge(old), Some(&judge(new)), &line.parse().unwrap(), was_allowed);
        changed.map(|(before, after, _, is_own)| (format!("{before} {after}"), is_own))
    }

    #[test]
    fn verdict_changes_when_a_rule_is_added_or_removed() {
        let (none, allow) = ("", "allow = ['a.example']");
        let (deny, ask) = ("deny = ['a.example']", "ask = ['a.example']");
        let line = "GET https://a.example/x";
        for (old, new, expect) in [
            (none, allow, Some("deny allow")),
            (allow, none, Some("allow deny")),
            (none, ask, Some("deny ask")),
            (allow, allow, None),
            (none, deny, None),
        ] {
            let changed = compared(old, new, line, false);
            assert_eq!(changed.as_ref().map(|(text, _)| text.as_str()), expect, "{old} {new}");
        }
    }

    #[test]
    fn new_deny_rule_is_found_for_a_request_that_a_rule_of_the_box_allowed() {
        let line = "GET https://a.example/x";
        let changed = compared("", "deny = ['a.example']", line, true);
        assert_eq!(changed, Some(("allow deny".to_owned(), true)));
        assert_eq!(compared("", "ask = ['a.example']", line, true).unwrap().0, "deny ask");
        assert_eq!(compared("", "allow = ['b.example']", line, true), None, "control");
        let tcp = "tcp://b.example:22";
        let changed = compared("", "deny = ['tcp://b.example:22']", tcp, true);
        assert_eq!(changed, Some(("allow deny".to_owned(), true)));
    }

    #[test]
    fn removed_template_denies_what_its_rules_allowed() {
        let text = "[template.x]\nallow = ['a.example']\n";
        let config = Config::parse(text, Path::new("policy.toml"), Scope::Tenant).unwrap();
        let old = Explainer::new(&config, &config.template("x").unwrap()).unwrap();
        let changed = compare(&old, None, &"a.example".parse().unwrap(), true).unwrap();
        assert_eq!((changed.0, changed.1), (Decision::Allow, Decision::Deny));
        assert!(compare(&old, None, &"b.example".parse().unwrap(), false).is_none());
    }
}
