//! Checks, tests and saves the policies of tenants.
//!
//! The versions are in the database of the server. The newest one is also in the file that the engine reads.
//! A version is written to the database first, so that a server that was killed in between writes the file
//! when it starts again.

use belljar_engine::boxes::{self, Reloaded};
use belljar_engine::policy::tenant::{self, PolicyFault, TestResult};
use belljar_engine::scope::Scoped;
use belljar_model::caller::Caller;
use belljar_model::{Config, policy_test::Decision};
use sha2::{Digest as _, Sha256};

use super::app::App;
use super::audit::Change;
use super::identity::Identity;
use super::problem::{FailedTest, Problem, ProblemDetails, ProblemKind};
use super::store::PolicyRow;

/// The maximum length of a policy in characters.
pub(crate) const MAX_TEXT: usize = 256 * 1024;
/// The maximum number of failed tests that a problem lists.
const MAX_FAILED: usize = 100;

/// A saved version of a policy.
pub(crate) struct Saved {
    pub(crate) version: u64,
    /// The running boxes that were told to use the policy.
    pub(crate) boxes: Vec<Reloaded>,
}

/// A text that is about to become a version of a policy.
pub(crate) struct NewVersion {
    pub(crate) text: String,
    /// The version that the text changes.
    pub(crate) base: u64,
    pub(crate) proposal: Option<String>,
}

/// Refuses changes of the policy of the tenant `local`, which is a file of the operator.
pub(crate) fn refuse_local(state: &Scoped) -> Result<(), Problem> {
    match tenant::operator_file(state) {
        None => Ok(()),
        Some(file) => {
            let detail = format!(
                "the policy of this tenant is the file {} of the operator; edit the file",
                file.display()
            );
            Err(Problem::new(ProblemKind::WRONG_STATE, detail))
        }
    }
}

/// Parses a text as the policy of the tenant. Blocks.
pub(crate) fn parse(state: &Scoped, text: &str) -> Result<Config, Problem> {
    if text.chars().count() > MAX_TEXT {
        let detail = format!("`policy` must have at most {MAX_TEXT} characters");
        return Err(Problem::invalid(detail).field("/policy"));
    }
    tenant::check(state, text)?.map_err(|fault| {
        let PolicyFault { line, key, text } = fault;
        let more = ProblemDetails { line, key, ..ProblemDetails::default() };
        Problem::invalid(text).field("/policy").more(more)
    })
}

/// Refuses a policy whose tests fail.
pub(crate) fn check_tests(config: &Config) -> Result<(), Problem> {
    let results = tenant::run_tests(config);
    let failed: Vec<&TestResult> = results.iter().filter(|result| !result.is_passed()).collect();
    if failed.is_empty() {
        return Ok(());
    }
    let detail = format!(
        "{} of {} tests of the policy failed; change the rules or the tests",
        failed.len(),
        results.len()
    );
    let failed_tests = failed.into_iter().take(MAX_FAILED).map(failed_test).collect();
    let more = ProblemDetails { failed_tests, ..ProblemDetails::default() };
    Err(Problem::new(ProblemKind::TEST_FAILED, detail).field("/policy").more(more))
}

fn failed_test(result: &TestResult) -> FailedTest {
    FailedTest {
        line: result.line,
        template: result.template.clone(),
        request: result.request.clone(),
        expected: result.expected.name(),
        actual: result.actual.map(Decision::name),
        why: result.why.clone(),
    }
}

/// Saves a version of a policy, and makes the running boxes of the tenant use it. The caller holds the
/// settings of the tenant. Blocks.
pub(crate) fn save(
    app: &App,
    who: &Identity,
    state: &Scoped,
    mut change: Change,
    new: NewVersion,
) -> Result<Saved, Problem> {
    let NewVersion { text, base, proposal } = new;
    check_tests(&parse(state, &text)?)?;
    let version = base.saturating_add(1);
    change.details = vec![
        format!("version {version}"),
        format!("sha256 {}", hex::encode(Sha256::digest(text.as_bytes()))),
    ];
    change.details.extend(proposal.iter().map(|proposal| format!("proposal {proposal}")));
    change.record(app)?;
    let (key, by, saved) = (who.key(version), who.caller.principal.clone(), app.now());
    let row = PolicyRow { key, text, by, saved, proposal };
    if !app.store.add_policy(&row)? {
        let detail = "the policy or the proposal was changed by another client; read it again";
        return Err(Problem::new(ProblemKind::CONFLICT, detail));
    }
    if let Err(error) = tenant::write(state, &row.text) {
        app.store.undo_policy(&row.key)?;
        return Err(error.into());
    }
    app.store.policy_is_written(&row.key)?;
    let boxes = boxes::reload_rules(state)?;
    for reloaded in boxes.iter().filter(|reloaded| reloaded.error.is_some()) {
        tracing::warn!(name = %reloaded.name, "a running box does not use the saved policy");
    }
    Ok(Saved { version, boxes })
}

/// Writes the versions that a killed server saved and may not have written. Blocks.
pub(crate) fn restore(app: &App) -> Result<(), Problem> {
    for row in app.store.unwritten_policies()? {
        let caller = Caller { tenant: row.key.0.clone(), ..app.owner.clone() };
        let state = app.engine.of(&caller)?;
        if tenant::text(&state)? != row.text {
            tenant::write(&state, &row.text)?;
            boxes::reload_rules(&state)?;
        }
        app.store.policy_is_written(&row.key)?;
    }
    Ok(())
}
