//! Parser for `[[test]]`, the tests of the rules in a policy file.

use toml::de::DeValue;

use super::Config;
use super::keys::{Invalid, ParseValue, Value, invalid, scalar, set, table, text};
use crate::net::RequestLine;
use crate::policy_test::{Decision, PolicyTest};
use crate::template::DEFAULT_TEMPLATE;

/// The maximum number of tests in a file.
const MAX_TESTS: usize = 1000;

/// The parsed keys of a test.
#[derive(Debug, Default)]
struct Raw {
    template: Option<String>,
    request: Option<RequestLine>,
    expect: Option<Decision>,
}

const KEYS: [(&str, ParseValue<Raw>); 3] = [
    ("template", |raw, value| set(&mut raw.template, text(value))),
    ("request", |raw, value| set(&mut raw.request, scalar(value))),
    ("expect", |raw, value| set(&mut raw.expect, scalar(value))),
];

/// Parses all tests of a file. `line` returns the line of a position.
pub(super) fn read(
    value: &Value<'_>,
    line: impl Fn(usize) -> usize,
) -> Result<Vec<PolicyTest>, Invalid> {
    let DeValue::Array(tests) = value.get_ref() else {
        return Err(invalid("must be an array of tables; write `[[test]]`"));
    };
    if tests.len() > MAX_TESTS {
        return Err(invalid(format!("at most {MAX_TESTS} tests are possible")));
    }
    tests.iter().map(|test| read_one(test, line(test.span().start))).collect()
}

fn read_one(value: &Value<'_>, line: usize) -> Result<PolicyTest, Invalid> {
    let mut raw = Raw::default();
    let at = |what: &str| Invalid::Element { key: None, at: value.span(), what: what.to_owned() };
    table(&mut raw, &KEYS, value).map_err(|error| match error {
        Invalid::Here(what) => at(&what),
        error @ (Invalid::Element { .. } | Invalid::Inside { .. } | Invalid::Unknown { .. }) => {
            error
        }
    })?;
    let Raw { template, request, expect } = raw;
    Ok(PolicyTest {
        template: template.unwrap_or_else(|| DEFAULT_TEMPLATE.to_owned()),
        request: request.ok_or_else(|| at("`request` is missing; write `METHOD URL`"))?,
        expect: expect.ok_or_else(|| at("`expect` is missing; write `allow`, `ask` or `deny`"))?,
        line,
    })
}

impl Config {
    /// Returns the tests of the file, in their order.
    pub fn tests(&self) -> &[PolicyTest] {
        &self.tests
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::config::Scope;

    fn parse(text: &str, scope: Scope) -> Result<Vec<PolicyTest>, String> {
        let config = Config::parse(text, Path::new("belljar.toml"), scope);
        config.map(|config| config.tests().to_vec()).map_err(|error| error.to_string())
    }

    #[test]
    fn test_of_a_policy_has_a_template_a_request_and_a_decision() {
        let text = "[[test]]\nrequest = 'GET https://a.example/x'\nexpect = 'allow'\n\n[[test]]\ntemplate = 'agents'\nrequest = 'tcp://b.example:22'\nexpect = 'deny'\n";
        for scope in [Scope::Operator, Scope::Tenant] {
            let tests = parse(text, scope).unwrap();
            let [first, second] = tests.as_slice() else { panic!("{tests:?}") };
            assert_eq!((first.template.as_str(), first.expect), ("default", Decision::Allow));
            assert_eq!(first.request.to_string(), "GET https://a.example/x");
            assert_eq!((second.template.as_str(), second.expect), ("agents", Decision::Deny));
            assert_eq!((first.line, second.line), (1, 5));
        }
    }

    #[test]
    fn invalid_test_of_a_policy_is_refused_with_its_line() {
        for (text, expect) in [
            ("[[test]]\nexpect = 'deny'", "1: `[[test]]"),
            ("[[test]]\nrequest = 'a.example'", "`expect` is missing"),
            ("[[test]]\nrequest = 'ftp://a'\nexpect = 'deny'", "2: `request = 'ftp://a'`: "),
            (
                "[[test]]\nrequest = 'a'\nexpect = 'maybe'",
                "3: `expect = 'maybe'`: unknown decision",
            ),
            ("[[test]]\nrequests = 'a'", "2: unknown key `requests`; did you mean `request`?"),
            ("[test]\nrequest = 'a'", "must be an array of tables"),
        ] {
            let error = parse(text, Scope::Operator).unwrap_err();
            assert!(error.contains(expect), "{text}: {error}");
        }
    }

    #[test]
    fn c08_project_cannot_set_tests() {
        let text = "[[test]]\nrequest = 'a.example'\nexpect = 'deny'\n";
        let error = parse(text, Scope::Project).unwrap_err();
        assert!(error.contains("only valid in the operator's own file"), "{error}");
    }
}
