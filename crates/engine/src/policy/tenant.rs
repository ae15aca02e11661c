//! The policy of a tenant as a text: reads, checks, tests and writes it.
//!
//! The policy of the tenant `local` is the operator's belljar.toml, which only the operator writes.

use std::path::{Path, PathBuf};

use anyhow::Context as _;
use belljar_model::policy_test::{Decision, PolicyTest};
use belljar_model::{Config, Scope, TENANT_SECTIONS, display};
use toml_edit::DocumentMut;

use super::explain::Explainer;
use crate::config;
use crate::error::{EngineError, ErrorKind, WithKind as _};
use crate::scope::Scoped;
use crate::store::durable;
use crate::store::layout::Layout;

/// Why a text is not a valid policy.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{text}")]
pub struct PolicyFault {
    /// The line at fault, counted from 1, if it is known.
    pub line: Option<usize>,
    /// The key, section or template at fault.
    pub key: Option<String>,
    pub text: String,
}

/// The result of one `[[test]]` of a policy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TestResult {
    pub line: usize,
    pub template: String,
    pub request: String,
    pub expected: Decision,
    /// What the rules decide. `None` if the policy has no such template.
    pub actual: Option<Decision>,
    /// The rule or the reason of the decision.
    pub why: String,
}

impl TestResult {
    pub fn is_passed(&self) -> bool {
        self.actual == Some(self.expected)
    }
}

/// Returns the operator's belljar.toml, which is the policy of the tenant `local`. `None` for other tenants.
pub fn operator_file(state: &Scoped) -> Option<PathBuf> {
    if !state.is_local() {
        return None;
    }
    let file = state.config_file().map(Path::to_owned).or_else(|| state.host().config_file());
    Some(file.unwrap_or_else(|| PathBuf::from("belljar.toml")))
}

/// Returns the text of the policy. It is empty if there is none.
pub fn text(state: &Scoped) -> Result<String, EngineError> {
    let file = state.policy_file().or_else(|| operator_file(state));
    Ok(file.map(|file| config::read_text(&file)).transpose()?.flatten().unwrap_or_default())
}

/// Returns the text of the policy for members of the tenant. The sections of belljar.toml about the machine
/// and about other tenants are left out.
pub fn shown_text(state: &Scoped) -> Result<String, EngineError> {
    let text = text(state)?;
    if !state.is_local() {
        return Ok(text);
    }
    let mut document: DocumentMut =
        text.parse().context("cannot parse belljar.toml").kind(ErrorKind::WrongState)?;
    document.retain(|key, _| TENANT_SECTIONS.contains(&key));
    Ok(document.to_string())
}

/// Parses and checks a text as the policy of the tenant. The configuration has the operator's settings for
/// the machine.
pub fn check(state: &Scoped, text: &str) -> Result<Result<Config, PolicyFault>, EngineError> {
    let scope = state.policy_scope();
    let file = operator_file(state).unwrap_or_else(|| PathBuf::from(Layout::policy_name()));
    let mut config = match Config::parse(text, &file, scope) {
        Ok(config) => config,
        Err(error) => return Ok(Err(fault(&error))),
    };
    if scope == Scope::Tenant {
        config = config.on_machine_of(&state.load_operator_config()?);
    }
    if let Some(ceiling) = state.ceiling()?
        && let Err(error) = config.check_ceiling(&ceiling)
    {
        return Ok(Err(fault(&error)));
    }
    let config = config.with_secrets(state.declared_secrets()?);
    for name in config.names() {
        let Some(template) = config.template(name) else { continue };
        if let Err(error) = template.policy(&config) {
            let text = format!("template `{name}`: {error}");
            let text = display::safe_line(text);
            return Ok(Err(PolicyFault { line: None, key: Some(name.to_owned()), text }));
        }
    }
    Ok(Ok(config))
}

fn fault(error: &belljar_model::ConfigError) -> PolicyFault {
    let key = error.key().map(display::safe_line);
    PolicyFault { line: Some(error.line), key, text: error.to_string() }
}

/// Runs the tests of a policy.
pub fn run_tests(config: &Config) -> Vec<TestResult> {
    config.tests().iter().map(|test| run_test(config, test)).collect()
}

fn run_test(config: &Config, test: &PolicyTest) -> TestResult {
    let explainer = config.template(&test.template).map(|it| Explainer::new(config, &it));
    let (actual, why) = match explainer {
        None => (None, "the policy has no such template".to_owned()),
        Some(Err(error)) => (None, format!("{error:#}")),
        Some(Ok(explainer)) => {
            let explanation = explainer.explain(&test.request);
            let why = explanation.rule.or(explanation.reason).unwrap_or_default();
            (explanation.verdict.parse().ok(), why)
        }
    };
    TestResult {
        line: test.line,
        template: test.template.clone(),
        request: display::safe_line(test.request.to_string()),
        expected: test.expect,
        actual,
        why,
    }
}

/// Replaces the policy of a tenant other than `local`. The text was checked. Boxes that start afterwards use
/// it.
pub fn write(state: &Scoped, text: &str) -> Result<(), EngineError> {
    if state.is_local() {
        let text = "only the operator writes belljar.toml";
        return Err(EngineError::message(ErrorKind::Refused, text));
    }
    durable::write(state.home(), Layout::policy_name(), text.as_bytes())
        .context("cannot write the policy of the tenant")
        .kind(ErrorKind::Broken)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scope::{local_caller, of_test, of_test_caller};

    fn of_tenant(home: &Path) -> Scoped {
        let tenant = "team-7".parse().unwrap();
        of_test_caller(home, belljar_model::Caller { tenant, ..local_caller() })
    }

    #[test]
    fn check_names_the_line_and_the_key_of_a_fault() {
        let dir = tempfile::tempdir().unwrap();
        let state = of_tenant(dir.path());
        let fault = |text: &str| check(&state, text).unwrap().unwrap_err();
        let mounts = fault("[template.x]\nmounts = ['/etc:/data']\n");
        assert_eq!((mounts.line, mounts.key.as_deref()), (Some(2), Some("mounts")));
        let unknown = fault("[template.x]\n\nalow = []\n");
        assert_eq!((unknown.line, unknown.key.as_deref()), (Some(3), Some("alow")));
        let syntax = fault("[template.x\n");
        assert_eq!((syntax.line, syntax.key.as_deref()), (Some(1), None));
        let secret = fault("[template.x]\nsecrets = ['nothing-like-it']\n");
        assert_eq!((secret.line, secret.key.as_deref()), (None, Some("x")));
        check(&state, "[template.x]\nallow = ['a.example']\n").unwrap().expect("control");
    }

    #[test]
    fn tests_of_a_policy_report_the_expected_and_the_actual_decision() {
        let dir = tempfile::tempdir().unwrap();
        let text = "[template.x]\nallow = ['GET a.example']\nask = ['b.example']\n\
            [[test]]\ntemplate = 'x'\nrequest = 'GET https://a.example/'\nexpect = 'allow'\n\
            [[test]]\ntemplate = 'x'\nrequest = 'POST https://a.example/'\nexpect = 'allow'\n\
            [[test]]\ntemplate = 'x'\nrequest = 'b.example'\nexpect = 'ask'\n\
            [[test]]\ntemplate = 'none'\nrequest = 'b.example'\nexpect = 'deny'\n";
        let config = check(&of_tenant(dir.path()), text).unwrap().unwrap();
        let results = run_tests(&config);
        let passed: Vec<bool> = results.iter().map(TestResult::is_passed).collect();
        assert_eq!(passed, [true, false, true, false]);
        assert_eq!(results[1].actual, Some(Decision::Deny));
        assert_eq!((results[1].line, results[1].why.as_str()), (8, "allow GET a.example"));
        assert_eq!(results[3].actual, None);
    }

    #[test]
    fn policy_of_the_operator_is_shown_without_the_machine_and_never_written() {
        let dir = tempfile::tempdir().unwrap();
        let state = of_tenant(dir.path());
        assert_eq!(text(&state).unwrap(), "");
        write(&state, "[template.x]\n").unwrap();
        assert_eq!(shown_text(&state).unwrap(), "[template.x]\n");
        assert_eq!(operator_file(&state), None);
        let local = of_test(dir.path());
        assert_eq!(write(&local, "").unwrap_err().kind(), ErrorKind::Refused);
        assert!(operator_file(&local).is_some());
    }
}
