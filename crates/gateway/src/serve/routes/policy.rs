//! The routes of the policy of a tenant: read, save, preview, explain and propose it.

mod explain;
pub(super) mod preview;
mod proposals;

use axum::response::Response;
use belljar_engine::boxes::Reloaded;
use belljar_engine::policy::tenant;
use http::StatusCode;
use http::header::IF_MATCH;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{Access, Operation, Routes, time};
use crate::serve::access::Act;
use crate::serve::call::{Call, blocking, check_version, versioned_response};
use crate::serve::page::{List, PageParameters};
use crate::serve::policies::{self, NewVersion, Saved};
use crate::serve::problem::{Problem, ProblemKind};
use crate::serve::store::PolicyRow;

/// The name of the list of versions in its cursors.
const VERSIONS: &str = "policy-versions";
/// The number of versions that the description of the policy has.
const NEWEST: usize = 20;

pub(super) fn add(routes: Routes) -> Routes {
    let see = Access::For(Act::SeePolicy);
    let routes = routes
        .add(
            Operation::get("/v1/policy", see)
                .about("Describes the policy of the tenant, or one of its earlier versions")
                .query::<VersionParameter>()
                .returns::<PolicyView>(StatusCode::OK),
            get,
        )
        .add(
            Operation::put("/v1/policy", Access::For(Act::SavePolicy))
                .about(
                    "Saves a new version of the policy, whose tests must pass. Running boxes use its \
                     network rules at once",
                )
                .body::<NewPolicy>()
                .with_language()
                .returns::<SavedView>(StatusCode::OK)
                .problems(SAVE),
            save,
        )
        .add(
            Operation::get("/v1/policy/versions", see)
                .about("Lists the versions of the policy, the newest first")
                .query::<PageParameters>()
                .returns::<List<VersionView>>(StatusCode::OK),
            versions,
        );
    [preview::add, explain::add, proposals::add].into_iter().fold(routes, |routes, add| add(routes))
}

/// The problems of the routes that save a version.
const SAVE: &[ProblemKind] = &[
    ProblemKind::NO_VERSION,
    ProblemKind::STALE,
    ProblemKind::TEST_FAILED,
    ProblemKind::WRONG_STATE,
];

/// The parameters of the description of the policy.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct VersionParameter {
    /// The newest version by default.
    #[schemars(range(min = 1, max = 1_000_000_000))]
    version: Option<u64>,
}

/// A version of the policy, without its text.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "PolicyVersion")]
struct VersionView {
    version: u64,
    /// The principal that saved the version.
    saved_by: String,
    saved: String,
    /// The proposal that became this version.
    #[serde(skip_serializing_if = "Option::is_none")]
    proposal: Option<String>,
    /// The length of the text in bytes.
    size: usize,
}

impl VersionView {
    fn of(row: &PolicyRow) -> Self {
        Self {
            version: row.key.1,
            saved_by: row.by.to_string(),
            saved: time(row.saved),
            proposal: row.proposal.clone(),
            size: row.text.len(),
        }
    }
}

/// The policy of the tenant.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "Policy")]
struct PolicyView {
    /// The text in TOML. For the tenant `local`, sections about the machine are left out.
    policy: String,
    /// 0 if no version was saved, and for the tenant `local`.
    version: u64,
    /// The principal that saved the version.
    saved_by: Option<String>,
    saved: Option<String>,
    /// The proposal that became this version.
    proposal: Option<String>,
    /// The file that the operator edits instead, for the tenant `local`.
    file: Option<String>,
    /// The newest versions.
    versions: Vec<VersionView>,
}

async fn get(call: Call) -> Result<Response, Problem> {
    let wanted = call.query::<VersionParameter>()?.version;
    if wanted.is_some_and(|version| !(1..=1_000_000_000).contains(&version)) {
        let detail = "`version` must be a number from 1 to 1000000000";
        return Err(Problem::invalid(detail).field("/version"));
    }
    let (app, tenant, state) = (call.app.clone(), call.who()?.tenant().clone(), call.scope()?);
    let view = blocking(&call.app, move || {
        let found = app.store.policy(&tenant, wanted)?;
        if wanted.is_some() && found.is_none() {
            let detail = "the policy has no such version";
            return Err(Problem::new(ProblemKind::NOT_FOUND, detail));
        }
        let version = found.as_ref().map_or(0, |row| row.key.1);
        let versions = app.store.policies(&tenant, None, NEWEST)?;
        let file = tenant::operator_file(&state).map(|file| file.display().to_string());
        Ok(PolicyView {
            saved_by: found.as_ref().map(|row| row.by.to_string()),
            saved: found.as_ref().map(|row| time(row.saved)),
            proposal: found.as_ref().and_then(|row| row.proposal.clone()),
            policy: match found {
                Some(row) => row.text,
                None => tenant::shown_text(&state)?,
            },
            version,
            file,
            versions: versions.iter().map(VersionView::of).collect(),
        })
    })
    .await?;
    versioned_response(StatusCode::OK, &view.version.to_string(), &view)
}

async fn versions(call: Call) -> Result<Response, Problem> {
    let page = call.page(VERSIONS)?;
    let (app, tenant) = (call.app.clone(), call.who()?.tenant().clone());
    let before = page.after.as_deref().and_then(|after| after.parse().ok());
    let limit = page.limit;
    let rows = blocking(&call.app, move || {
        Ok(app.store.policies(&tenant, before, limit.saturating_add(1))?)
    })
    .await?;
    let has_more = rows.len() > limit;
    let wanted = |row: &&PolicyRow| page.q.as_ref().is_none_or(|q| row.text.contains(q.as_str()));
    let last = rows.get(limit.saturating_sub(1)).filter(|_| has_more);
    let last = last.map(|row| row.key.1.to_string());
    let items = rows.iter().take(limit).filter(wanted).map(VersionView::of).collect();
    call.list(VERSIONS, items, last.as_deref())
}

/// A new version of the policy.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct NewPolicy {
    /// The text in TOML.
    #[schemars(length(max = 262_144))]
    policy: String,
}

/// A saved version of the policy.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "SavedPolicy")]
struct SavedView {
    version: u64,
    /// The running boxes that were told to use the policy.
    boxes: Vec<ReloadedView>,
}

/// A running box that was told to use a policy.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "ReloadedBox")]
struct ReloadedView {
    name: String,
    /// Whether the box uses the network rules of the policy. A box without a valid template has no network.
    is_applied: bool,
    /// Why the box does not use the rules.
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<String>,
}

impl SavedView {
    fn of(saved: Saved) -> Self {
        let view = |Reloaded { name, error }: Reloaded| ReloadedView {
            name: name.to_string(),
            is_applied: error.is_none(),
            error,
        };
        Self { version: saved.version, boxes: saved.boxes.into_iter().map(view).collect() }
    }
}

/// Returns the response for a saved version.
fn saved_response(saved: Saved) -> Result<Response, Problem> {
    let view = SavedView::of(saved);
    versioned_response(StatusCode::OK, &view.version.to_string(), &view)
}

async fn save(call: Call) -> Result<Response, Problem> {
    let NewPolicy { policy: text } = call.json()?;
    let shown = call.header(&IF_MATCH);
    let (app, who, state) = (call.app.clone(), call.who()?.clone(), call.scope()?);
    let (tenant, change) = (call.tenant()?, call.change("policy.saved", "policy")?);
    let saved = blocking(&call.app, move || {
        policies::refuse_local(&state)?;
        let _held = tenant.lock_settings();
        let base = app.store.policy_version(who.tenant())?;
        check_version(shown.as_deref(), &base.to_string())?;
        policies::save(&app, &who, &state, change, NewVersion { text, base, proposal: None })
    })
    .await?;
    saved_response(saved)
}
