use std::path::Path;

use belljar_model::net::{Rule, RuleTarget};
use belljar_model::{Config, Scope};

use super::*;

fn learned(rule: &str) -> LearnedRule {
    LearnedRule { target: Rule::allow(rule).unwrap().what, remark: None }
}

/// Returns the rules that the template `x` in this file allows.
#[track_caller]
fn allowed(text: &str) -> Vec<RuleTarget> {
    let config = Config::parse(text, Path::new("/etc/x.toml"), Scope::Operator).unwrap();
    let policy = config.template("x").unwrap().policy(&config).unwrap();
    policy.allow.into_iter().map(|rule| rule.what).collect()
}

const RULES: [&str; 7] = [
    "GET,POST api.example.com/repos/acme/x",
    "GET api.example.com:8443/it's",
    "GET,HEAD api.example.com",
    "GET http://plain.example/",
    "GET http://plain.example:8080/a/*",
    "tcp://10.1.2.3:5432",
    "GET [2001:db8::1]:8443/",
];

#[test]
fn file_with_appended_sections_allows_the_rules() {
    let rules: Vec<LearnedRule> = RULES.iter().map(|rule| learned(rule)).collect();
    let expect: Vec<RuleTarget> = rules.iter().map(|rule| rule.target.clone()).collect();
    let sections = sections(&rules, "x", "run 1");
    for old in
        ["", "\n", "[template.x]\nuser = 7", "[template.x]\nuser = 7\n", "# only a comment\n"]
    {
        let new = section::appended(old, &sections);
        assert!(new.starts_with(old), "the rest of the file is unchanged");
        assert_eq!(allowed(&new), expect, "{new}");
    }
    let WebSocket { what, text } = websocket();
    assert_eq!(allowed(&text), [what]);
}

/// A rule that allows a WebSocket, and its section of `belljar.toml`.
struct WebSocket {
    what: RuleTarget,
    text: String,
}

fn websocket() -> WebSocket {
    let RuleTarget::Http(http) = learned("GET live.example/socket").target else { unreachable!() };
    let what = RuleTarget::Http(HttpRule { websocket: true, ..http });
    let rule = LearnedRule { target: what.clone(), remark: Some("a remark") };
    WebSocket { what, text: sections(&[rule], "x", "run 1") }
}

#[test]
fn sections_are_formatted_with_comments_and_blank_lines() {
    let remark = Some("PRIVATE: review this");
    let rules = [
        learned("GET,POST api.example.com:8443/a"),
        LearnedRule { remark, ..learned("tcp://10.1.2.3:5432") },
    ];
    let expect = r#"# learnt from run 1
[[template."my.box".allow]]
host = "api.example.com"
ports = [8443]
methods = ["GET", "POST"]
paths = ["/a"]

# learnt from run 1
# PRIVATE: review this
[[template."my.box".allow]]
tcp = "10.1.2.3:5432"
"#;
    assert_eq!(sections(&rules, "my.box", "run 1"), expect);
}

#[test]
fn rules_are_appended_to_an_existing_allow_list() {
    let rules: Vec<LearnedRule> = RULES.iter().map(|rule| learned(rule)).collect();
    for list in ["[]", "['a.example']", "[\n  'a.example', # why\n]", "[\n  'a.example' # why\n]"] {
        let old = format!("[template.x]\nallow = {list}\nuser = 7\n");
        let before = allowed(&old);
        let place = Config::allow_list(&old, "x").unwrap();
        let new = with_list_entries(&old, &rules, place, "run 1").unwrap();
        let expect: Vec<RuleTarget> =
            before.into_iter().chain(rules.iter().map(|rule| rule.target.clone())).collect();
        assert_eq!(allowed(&new), expect, "{new}");
        assert!(new.contains("user = 7") && (!old.contains("why") || new.contains("# why")));
    }
    let rule = LearnedRule { target: websocket().what, remark: None };
    let place = AllowList { at: 0, needs_comma: false };
    assert_eq!(
        with_list_entries("", &[rule], place, ""),
        None,
        "a flag cannot express a WebSocket"
    );
}

#[test]
fn flags_are_valid_values_of_the_allow_option() {
    let rules: Vec<LearnedRule> = RULES.iter().map(|rule| learned(rule)).collect();
    assert_eq!(flags(&rules), RULES);
    let RuleTarget::Http(http) = learned("GET a.example/1").target else { unreachable!() };
    let paths = Some(vec!["/1".parse().unwrap(), "/2".parse().unwrap()]);
    let many = LearnedRule { target: RuleTarget::Http(HttpRule { paths, ..http }), remark: None };
    assert_eq!(flags(&[many]), ["GET a.example/1", "GET a.example/2"]);
    assert_eq!(shell_quote("GET a.example/it's"), r"'GET a.example/it'\''s'");
}

#[track_caller]
fn check_diff(old: Option<&str>, new: &str, expect: &str) {
    assert_eq!(diff("f", old, new, false), expect);
}

#[test]
fn diff_shows_the_changed_lines_with_context() {
    check_diff(None, "a\nb\n", "--- /dev/null\n+++ f\n@@ -0,0 +1,2 @@\n+a\n+b\n");
    check_diff(Some(""), "a\n", "--- f\n+++ f\n@@ -0,0 +1,1 @@\n+a\n");
    check_diff(
        Some("1\n2\n3\n4\n"),
        "1\n2\n3\n4\n\n5\n",
        "--- f\n+++ f\n@@ -2,3 +2,5 @@\n 2\n 3\n 4\n+\n+5\n",
    );
    check_diff(
        Some("1\n2"),
        "1\n2\n3\n",
        "--- f\n+++ f\n@@ -1,2 +1,3 @@\n 1\n-2\n\\ No newline at end of file\n+2\n+3\n",
    );
    check_diff(
        Some("1\n2\n3\n4\n5\n6\n7\n8\n9\n"),
        "1\n2\n3\n4\nx\n5\n6\n7\n8\n9\n",
        "--- f\n+++ f\n@@ -2,6 +2,7 @@\n 2\n 3\n 4\n+x\n 5\n 6\n 7\n",
    );
    check_diff(
        Some("a\nb"),
        "x\nb",
        "--- f\n+++ f\n@@ -1,2 +1,2 @@\n-a\n+x\n b\n\\ No newline at end of file\n",
    );
}
