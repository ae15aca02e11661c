//! The route that shows what a new policy would change.

use std::collections::BTreeSet;
use std::sync::Arc;

use axum::response::Response;
use belljar_engine::moment;
use belljar_engine::policy::preview::{self, Finding, NewHost, Preview};
use belljar_engine::policy::replay::ChangedVerdict;
use belljar_engine::policy::tenant::TestResult;
use belljar_engine::scope::Scoped;
use belljar_engine::secrets::Secrets;
use belljar_model::Config;
use belljar_model::display::safe_line;
use belljar_model::net::SecretName;
use belljar_model::policy_test::Decision;
use http::StatusCode;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{Access, Operation, Routes};
use crate::serve::access::{Act, Extent};
use crate::serve::call::{Call, Owned, blocking, json_response};
use crate::serve::json;
use crate::serve::ledgers::LedgerPool;
use crate::serve::policies;
use crate::serve::problem::{Problem, ProblemKind, of_state};
use crate::serve::tenants::Tenant;

/// The maximum and the default number of days whose requests are decided again.
const MAX_DAYS: u64 = 30;
/// The maximum number of rows of each list of a preview.
const MAX_ROWS: usize = 500;
const DAY: u64 = 24 * 60 * 60 * 1_000_000_000; // nanoseconds

pub(super) fn add(routes: Routes) -> Routes {
    routes.add(
        Operation::post("/v1/policy/preview", Access::For(Act::ProposeRules))
            .about(
                "Shows what a new policy would change, by deciding the requests of the last days again. \
                 A member sees the own requests only",
            )
            .body::<PreviewRequest>()
            .with_language()
            .returns::<PreviewView>(StatusCode::OK)
            .problems(&[ProblemKind::WRONG_STATE]),
        preview,
    )
}

/// A policy to preview.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct PreviewRequest {
    /// The text in TOML.
    #[schemars(length(max = 262_144))]
    policy: String,
    /// The number of days whose requests are decided again; 30 by default.
    #[serde(default, deserialize_with = "json::integer")]
    #[schemars(range(min = 1, max = 30))]
    days: Option<u64>,
}

/// What a new policy would change.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "PolicyPreview")]
pub(in crate::serve::routes) struct PreviewView {
    /// Requests about which the policy decides differently, the most frequent first.
    changes: Vec<ChangeView>,
    /// The number of further changed requests, which are not listed.
    more_changes: usize,
    /// Hosts that boxes can newly reach.
    new_hosts: Vec<HostView>,
    more_hosts: usize,
    findings: Vec<FindingView>,
    more_findings: usize,
    tests: Vec<TestView>,
    more_tests: usize,
    /// Whether all listed and unlisted tests pass.
    tests_pass: bool,
    replayed: ReplayedView,
}

/// Which requests were decided again.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "Replayed")]
struct ReplayedView {
    requests: u64,
    /// Requests of boxes whose template the current policy does not have, or that no rule describes.
    skipped: u64,
    days: u64,
    /// Whether all requests of the time were examined.
    is_complete: bool,
    /// Whether only requests of the sender's own boxes were examined.
    only_own: bool,
}

/// A request about which the new policy decides differently.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "ChangedVerdict")]
struct ChangeView {
    template: String,
    /// The request as a method and a URL.
    request: String,
    host: String,
    /// `allow`, `ask` or `deny` by the current policy.
    before: &'static str,
    after: &'static str,
    /// The rule or the reason of the new verdict.
    why: String,
    /// Whether a rule of the box or of its agent allowed the request, and not the policy.
    is_own_rule: bool,
    /// How often the request was sent.
    count: u64,
    last: String,
    /// Some boxes that sent the request.
    boxes: Vec<String>,
}

impl ChangeView {
    fn of(change: ChangedVerdict) -> Self {
        Self {
            template: change.template,
            request: safe_line(change.request),
            host: safe_line(change.host),
            before: change.before.name(),
            after: change.after.name(),
            why: change.why,
            is_own_rule: change.is_own_rule,
            count: change.count,
            last: moment::rfc3339(change.last),
            boxes: change.boxes,
        }
    }
}

/// A host that boxes of a template can newly reach.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "NewHost")]
struct HostView {
    template: String,
    /// A host name, a wildcard such as `*.example.com`, an address, or `every public host`.
    host: String,
    /// Whether a person decides about each request.
    is_asked: bool,
}

/// A remark for the person who saves the policy.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "PolicyFinding")]
struct FindingView {
    /// A name for programs, such as `full-network`.
    code: &'static str,
    template: Option<String>,
    text: String,
}

/// The result of a test of the policy.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "PolicyTestResult")]
struct TestView {
    line: usize,
    template: String,
    request: String,
    expected: &'static str,
    /// Null if the policy has no such template.
    actual: Option<&'static str>,
    is_passed: bool,
    why: String,
}

impl TestView {
    fn of(test: TestResult) -> Self {
        Self {
            line: test.line,
            is_passed: test.is_passed(),
            template: test.template,
            request: test.request,
            expected: test.expected.name(),
            actual: test.actual.map(Decision::name),
            why: test.why,
        }
    }
}

/// Converts the first rows of a list. Returns them with the number of further rows.
fn rows<T, V>(all: Vec<T>, view: impl Fn(T) -> V) -> (Vec<V>, usize) {
    let more = all.len().saturating_sub(MAX_ROWS);
    (all.into_iter().take(MAX_ROWS).map(view).collect(), more)
}

impl PreviewView {
    fn of(preview: Preview, days: u64, only_own: bool) -> Self {
        let Preview { replay, new_hosts, findings, tests } = preview;
        let tests_pass = tests.iter().all(TestResult::is_passed);
        let (changes, more_changes) = rows(replay.changes, ChangeView::of);
        let host = |NewHost { template, host, is_asked }| HostView { template, host, is_asked };
        let (new_hosts, more_hosts) = rows(new_hosts, host);
        let finding = |Finding { code, template, text }| FindingView { code, template, text };
        let (findings, more_findings) = rows(findings, finding);
        let (tests, more_tests) = rows(tests, TestView::of);
        Self {
            changes,
            more_changes,
            new_hosts,
            more_hosts,
            findings,
            more_findings,
            tests,
            more_tests,
            tests_pass,
            replayed: ReplayedView {
                requests: replay.replayed,
                skipped: replay.skipped,
                days,
                is_complete: replay.is_complete,
                only_own,
            },
        }
    }
}

/// What a preview needs from its request.
pub(in crate::serve::routes) struct PreviewScope {
    state: Scoped,
    tenant: Arc<Tenant>,
    /// The boxes whose requests are decided again.
    owned: Owned,
    only_own: bool,
    days: u64,
}

impl PreviewScope {
    /// Checks the number of days of a request.
    pub(in crate::serve::routes) fn of(call: &Call, days: Option<u64>) -> Result<Self, Problem> {
        let days = days.unwrap_or(MAX_DAYS);
        if !(1..=MAX_DAYS).contains(&days) {
            let detail = format!("`days` must be a number from 1 to {MAX_DAYS}");
            return Err(Problem::invalid(detail).field("/days"));
        }
        let owned = call.owned_for(Act::SeeBoxes)?;
        let only_own = owned.extent() != Extent::All;
        Ok(Self { state: call.scope()?, tenant: call.tenant()?, owned, only_own, days })
    }

    pub(in crate::serve::routes) const fn state(&self) -> &Scoped {
        &self.state
    }

    pub(in crate::serve::routes) fn ledgers(&self) -> &LedgerPool {
        &self.tenant.ledgers
    }

    /// Compares a new policy with the current one. Blocks.
    pub(in crate::serve::routes) fn preview(
        &self,
        old: &Config,
        new: &Config,
    ) -> Result<PreviewView, Problem> {
        let stored = stored_secrets(&self.state)?;
        let since = self.state.clock().nanos().saturating_sub(self.days.saturating_mul(DAY));
        let is_visible = |owner: &belljar_engine::record::owners::EventOwner| {
            self.owned.may_see(owner.maker.as_ref())
        };
        let replayed = self.tenant.ledgers.read(&self.state, |browser| {
            let configs = (old, new);
            preview::preview(Some(browser), since, configs, &stored, &is_visible).map_err(of_state)
        })?;
        let preview = match replayed {
            Some(preview) => preview,
            None => {
                preview::preview(None, since, (old, new), &stored, &is_visible).map_err(of_state)?
            }
        };
        Ok(PreviewView::of(preview, self.days, self.only_own))
    }
}

/// Returns the secrets that have a value.
fn stored_secrets(state: &Scoped) -> Result<BTreeSet<SecretName>, Problem> {
    let all = Secrets::open(state).map_err(of_state)?.list()?;
    let set = all.into_iter().filter(|status| status.value.version().is_some());
    Ok(set.map(|status| status.name).collect())
}

async fn preview(call: Call) -> Result<Response, Problem> {
    let PreviewRequest { policy, days } = call.json()?;
    let scope = PreviewScope::of(&call, days)?;
    let view = blocking(&call.app, move || {
        let new = policies::parse(&scope.state, &policy)?;
        let (old, _) = scope.state.load_config(None).map_err(of_state)?;
        scope.preview(&old, &new)
    })
    .await?;
    json_response(StatusCode::OK, &view)
}
