//! The routes of proposals: members propose a new version of the policy, and an administrator decides.

use axum::response::Response;
use http::header::LOCATION;
use http::{HeaderValue, StatusCode};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{Access, Operation, Routes, SavedView, saved_response, time};
use crate::serve::access::Act;
use crate::serve::call::{Call, blocking, json_response};
use crate::serve::json;
use crate::serve::page::{List, PageParameters};
use crate::serve::policies::{self, NewVersion};
use crate::serve::problem::{Problem, ProblemKind};
use crate::serve::store::{ProposalRow, ProposalState, Store, TenantKey};

/// The name of the list in its cursors.
const PROPOSALS: &str = "policy-proposals";
/// The maximum number of open proposals of a tenant.
const MAX_OPEN: usize = 100;
/// The maximum length of the reason of a proposal, in characters.
const MAX_REASON: usize = 2000;

pub(super) fn add(routes: Routes) -> Routes {
    let (see, save) = (Access::For(Act::SeePolicy), Access::For(Act::SavePolicy));
    routes
        .add(
            Operation::post("/v1/policy/proposals", Access::For(Act::ProposeRules))
                .about("Proposes a new version of the policy")
                .body::<NewProposal>()
                .with_language()
                .returns::<ProposalDetail>(StatusCode::CREATED)
                .problems(&[ProblemKind::WRONG_STATE, ProblemKind::CONFLICT, ProblemKind::LIMIT]),
            create,
        )
        .add(
            Operation::get("/v1/policy/proposals", see)
                .about("Lists proposals, the newest first; the filter searches states, makers and reasons")
                .query::<PageParameters>()
                .returns::<List<ProposalView>>(StatusCode::OK),
            list,
        )
        .add(
            Operation::get("/v1/policy/proposals/{proposal}", see)
                .about("Describes a proposal with its text")
                .returns::<ProposalDetail>(StatusCode::OK),
            get,
        )
        .add(
            Operation::post("/v1/policy/proposals/{proposal}/accept", save)
                .about(
                    "Saves a proposal as the next version of the policy, if the policy did not change \
                     since it was proposed",
                )
                .returns::<SavedView>(StatusCode::OK)
                .problems(&[
                    ProblemKind::WRONG_STATE,
                    ProblemKind::CONFLICT,
                    ProblemKind::TEST_FAILED,
                ]),
            accept,
        )
        .add(
            Operation::post("/v1/policy/proposals/{proposal}/reject", save)
                .about("Rejects a proposal")
                .returns::<ProposalDetail>(StatusCode::OK)
                .problems(&[ProblemKind::WRONG_STATE]),
            reject,
        )
}

/// A new proposal.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct NewProposal {
    /// The text of the whole policy in TOML.
    #[schemars(length(max = 262_144))]
    policy: String,
    /// The version of the policy that the text changes; the newest one by default.
    #[serde(default, deserialize_with = "json::integer")]
    #[schemars(range(min = 0, max = 1_000_000_000))]
    base: Option<u64>,
    /// Why the change is needed.
    #[schemars(length(max = 2000))]
    reason: Option<String>,
}

/// A proposal, without its text.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "PolicyProposal")]
struct ProposalView {
    id: String,
    /// `open`, `accepted` or `rejected`.
    state: &'static str,
    /// The version of the policy that the proposal changes.
    base: u64,
    reason: String,
    maker: String,
    created: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    decided_by: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    decided: Option<String>,
    /// The version that the proposal became.
    #[serde(skip_serializing_if = "Option::is_none")]
    version: Option<u64>,
}

/// A proposal with its text.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "PolicyProposalDetail")]
struct ProposalDetail {
    #[serde(flatten)]
    proposal: ProposalView,
    policy: String,
}

impl ProposalView {
    fn of(row: &ProposalRow) -> Self {
        Self {
            id: row.key.1.clone(),
            state: row.state.name(),
            base: row.base,
            reason: row.reason.clone(),
            maker: row.maker.to_string(),
            created: time(row.created),
            decided_by: row.decided_by.as_ref().map(ToString::to_string),
            decided: row.decided.map(time),
            version: row.version,
        }
    }

    fn contains(&self, text: &str) -> bool {
        [self.state, &self.maker, &self.reason, &self.id].iter().any(|it| it.contains(text))
    }
}

impl ProposalDetail {
    fn of(row: ProposalRow) -> Self {
        Self { proposal: ProposalView::of(&row), policy: row.text }
    }
}

fn unknown() -> Problem {
    Problem::new(ProblemKind::NOT_FOUND, "the tenant has no such proposal")
}

fn find(store: &Store, key: &TenantKey<String>) -> Result<ProposalRow, Problem> {
    store.proposal(key)?.ok_or_else(unknown)
}

/// Finds a proposal that is not decided yet.
fn find_open(store: &Store, key: &TenantKey<String>) -> Result<ProposalRow, Problem> {
    let row = find(store, key)?;
    match row.state {
        ProposalState::Open => Ok(row),
        ProposalState::Accepted | ProposalState::Rejected => {
            let detail = format!("the proposal is {} already", row.state.name());
            Err(Problem::new(ProblemKind::WRONG_STATE, detail))
        }
    }
}

/// Returns a random id.
fn new_id() -> Result<String, Problem> {
    let mut bytes = [0; 8];
    getrandom::fill(&mut bytes)
        .map_err(|_| Problem::internal("the kernel returned no random bytes"))?;
    Ok(hex::encode(bytes))
}

async fn create(call: Call) -> Result<Response, Problem> {
    let NewProposal { policy: text, base, reason } = call.json()?;
    let reason = reason.unwrap_or_default();
    if reason.chars().count() > MAX_REASON {
        let detail = format!("`reason` must have at most {MAX_REASON} characters");
        return Err(Problem::invalid(detail).field("/reason"));
    }
    let (id, app) = (new_id()?, call.app.clone());
    let (who, state) = (call.who()?.clone(), call.scope()?);
    let change = call.change("policy.proposed", &id)?;
    let detail = blocking(&call.app, move || {
        policies::refuse_local(&state)?;
        policies::parse(&state, &text)?;
        let newest = app.store.policy_version(who.tenant())?;
        let base = base.unwrap_or(newest);
        if base != newest {
            return Err(other_base(base, newest).field("/base"));
        }
        let row = ProposalRow {
            key: who.key(id),
            base,
            text,
            reason,
            maker: who.caller.principal.clone(),
            created: app.now(),
            state: ProposalState::Open,
            decided_by: None,
            decided: None,
            version: None,
        };
        change.record(&app)?;
        if !app.store.add_proposal(&row, MAX_OPEN)? {
            let detail =
                format!("the tenant has {MAX_OPEN} open proposals; decide about one first");
            return Err(Problem::new(ProblemKind::LIMIT, detail));
        }
        Ok(ProposalDetail::of(row))
    })
    .await?;
    let mut response = json_response(StatusCode::CREATED, &detail)?;
    if let Ok(location) = HeaderValue::try_from(format!("{}/{}", call.path(), detail.proposal.id)) {
        response.headers_mut().insert(LOCATION, location);
    }
    Ok(response)
}

fn other_base(base: u64, newest: u64) -> Problem {
    let detail = format!(
        "the proposal changes version {base}, but the policy has version {newest}; propose it again"
    );
    Problem::new(ProblemKind::CONFLICT, detail)
}

async fn list(call: Call) -> Result<Response, Problem> {
    let page = call.page(PROPOSALS)?;
    let (app, tenant) = (call.app.clone(), call.who()?.tenant().clone());
    let rows = blocking(&call.app, move || Ok(app.store.proposals(&tenant)?)).await?;
    let views = rows.iter().map(ProposalView::of);
    let wanted = views.filter(|view| page.q.as_ref().is_none_or(|q| view.contains(q)));
    let slice = page.slice(wanted, |view| view.id.clone());
    call.list(PROPOSALS, slice.items, slice.last.as_deref())
}

async fn get(call: Call) -> Result<Response, Problem> {
    let (app, key) = (call.app.clone(), call.who()?.key(call.param("proposal")?.to_owned()));
    let row = blocking(&call.app, move || find(&app.store, &key)).await?;
    json_response(StatusCode::OK, &ProposalDetail::of(row))
}

async fn accept(call: Call) -> Result<Response, Problem> {
    let (app, who, state) = (call.app.clone(), call.who()?.clone(), call.scope()?);
    let key = who.key(call.param("proposal")?.to_owned());
    let (tenant, change) = (call.tenant()?, call.change("policy.saved", "policy")?);
    let saved = blocking(&call.app, move || {
        let _held = tenant.lock_settings();
        let row = find_open(&app.store, &key)?;
        policies::refuse_local(&state)?;
        let newest = app.store.policy_version(who.tenant())?;
        if row.base != newest {
            return Err(other_base(row.base, newest));
        }
        let new = NewVersion { text: row.text, base: newest, proposal: Some(row.key.1) };
        policies::save(&app, &who, &state, change, new)
    })
    .await?;
    saved_response(saved)
}

async fn reject(call: Call) -> Result<Response, Problem> {
    let (app, who) = (call.app.clone(), call.who()?.clone());
    let key = who.key(call.param("proposal")?.to_owned());
    let (tenant, change) = (call.tenant()?, call.change("policy.proposal-rejected", &key.1)?);
    let row = blocking(&call.app, move || {
        let _held = tenant.lock_settings();
        find_open(&app.store, &key)?;
        change.record(&app)?;
        if !app.store.reject_proposal(&key, &who.caller.principal, app.now())? {
            return Err(unknown());
        }
        find(&app.store, &key)
    })
    .await?;
    json_response(StatusCode::OK, &ProposalDetail::of(row))
}
