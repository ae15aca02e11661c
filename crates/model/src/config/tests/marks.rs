//! Tests of `untrusted` and `deny-when`.

use super::*;
use crate::net::{Allow, Policy, Rule, RuleMarks};

const MARKED: &str = r#"
[template.default]
net = "restricted"
secrets = ["deploy"]
ask = [{ name = "asked", host = "ask.example.com", deny-when = ["model"] }]
allow = [
  { name = "pages", host = "pages.example.com", untrusted = true },
  { host = "deploy.example.com", deny-when = ["untrusted", "network"] },
  { tcp = "db.example.com:5432", deny-when = ["untrusted"] },
]
[secret.deploy]
hosts = ["deploy.example.com"]
env = "DEPLOY"
deny-when = ["untrusted", "customer"]
"#;

fn marks(untrusted: bool, deny_when: &[&str]) -> RuleMarks {
    let deny_when = deny_when.iter().map(|text| text.parse().unwrap()).collect();
    RuleMarks { untrusted, deny_when, ..RuleMarks::default() }
}

fn marks_of(allow: &[Allow]) -> Vec<RuleMarks> {
    let mark = |allow: &Allow| match allow {
        Allow::Rule(rule) => rule.marks.clone(),
        Allow::Preset(_) => RuleMarks::default(),
    };
    allow.iter().map(mark).collect()
}

#[test]
fn rules_and_secrets_of_the_operator_can_have_marks() {
    let config = operator(MARKED);
    let template = config.template("default").unwrap();
    let expected =
        [marks(true, &[]), marks(false, &["network", "untrusted"]), marks(false, &["untrusted"])];
    assert_eq!(marks_of(&template.allow), expected);
    assert_eq!(template.ask[0].marks, marks(false, &["model"]));
    let declared = config.secret(&"deploy".parse().unwrap()).unwrap();
    assert_eq!(declared.deny_when, marks(false, &["customer", "untrusted"]).deny_when);
    // The marks are part of the text and of the policy, so they are part of their digests.
    assert_eq!(operator(&template.to_toml()).template("default").unwrap().allow, template.allow);
    assert_eq!(operator(&template.to_toml()).template("default").unwrap().ask, template.ask);
    let policy = template.policy(&config).unwrap();
    let json = serde_json::to_string(&policy).unwrap();
    assert!(json.contains(r#""deny_when":["customer","untrusted"]"#), "{json}");
    assert_eq!(serde_json::from_str::<Policy>(&json).unwrap(), policy);
    let frame = postcard::to_allocvec(&policy).unwrap();
    assert_eq!(postcard::from_bytes::<Policy>(&frame).unwrap(), policy);
}

#[test]
fn marks_that_mean_nothing_are_refused() {
    let deny = "deny = [{ host = 'a.example.com', untrusted = true }]";
    line_refused(
        deny,
        "`{ host = 'a.example.com', untrusted = true }` in `deny`: the key `untrusted` is not possible in a `deny` rule",
    );
    let deny = "deny = [{ host = 'a.example.com', deny-when = ['model'] }]";
    line_refused(
        deny,
        "`{ host = 'a.example.com', deny-when = ['model'] }` in `deny`: the key `deny-when` is not possible in a `deny` rule",
    );
    let rule = Rule::deny("a.example.com").unwrap();
    assert!(rule.check_deny().is_ok());
    assert!(rule.with_marks(marks(false, &["model"])).check_deny().is_err());
    for line in [
        "allow = [{ preset = 'pypi', untrusted = true }]",
        "allow = [{ host = 'a.example.com', untrusted = 'yes' }]",
        "allow = [{ host = 'a.example.com', deny-when = ['No Label'] }]",
    ] {
        let text = format!("[template.default]\n{line}\n");
        let error = Config::parse(&text, Path::new("belljar.toml"), Scope::Operator).unwrap_err();
        assert!(error.to_string().starts_with("belljar.toml:2: "), "{error}");
    }
}

#[test]
fn c08_project_can_add_marks_to_rules_and_cannot_remove_them() {
    let base = operator(MARKED);
    let tightened = |text: &str| {
        let text = format!("[template.default]\n{text}\n");
        base.tighten(&project(&text)).unwrap().template("default").unwrap()
    };
    let kept = tightened("allow = ['deploy.example.com', 'pages.example.com']");
    let expected = [marks(false, &["network", "untrusted"]), marks(true, &[])];
    assert_eq!(marks_of(&kept.allow), expected, "the marks of the operator stay");
    let more = "allow = [{ host = 'deploy.example.com', untrusted = true, deny-when = ['model'] }]";
    assert_eq!(marks_of(&tightened(more).allow), [marks(true, &["model", "network", "untrusted"])]);
    let asked = tightened("ask = [{ name = 'asked', host = 'ask.example.com' }]");
    assert_eq!(asked.ask[0].marks, marks(false, &["model"]));
}

#[test]
fn ask_rule_can_demand_an_operator_or_a_second_person_and_other_rules_cannot() {
    let text = "[template.default]\nnet = 'restricted'\nask = [{ host = 'a.example', approver = 'operator' }, { host = 'b.example', two-people = true }, 'c.example']\n";
    let config = operator(text);
    let template = config.template("default").unwrap();
    let terms: Vec<(bool, bool)> = template
        .ask
        .iter()
        .map(|rule| (rule.marks.answers.operator, rule.marks.answers.two_people))
        .collect();
    assert_eq!(terms, [(true, false), (false, true), (false, false)]);
    assert_eq!(operator(&template.to_toml()).template("default").unwrap().ask, template.ask);
    let policy = serde_json::to_string(&template.policy(&config).unwrap()).unwrap();
    assert!(policy.contains(r#""answers":{"operator":true,"two_people":false}"#), "{policy}");
    assert!(!serde_json::to_string(&marks(true, &[])).unwrap().contains("answers"));
    for (list, key) in [("allow", "approver = 'operator'"), ("deny", "two-people = true")] {
        let text = format!("[template.default]\n{list} = [{{ host = 'a.example', {key} }}]\n");
        let parsed = Config::parse(&text, Path::new("belljar.toml"), Scope::Operator);
        assert!(parsed.is_err(), "{list}");
    }
}
