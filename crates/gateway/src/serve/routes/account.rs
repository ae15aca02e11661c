//! The routes of the own account: who am I, which tenant, tokens and sessions.

mod budgets;
mod devices;
mod sessions;
mod tokens;

use axum::response::Response;
use belljar_engine::moment;
use belljar_model::caller::{Principal, TenantId};
use belljar_model::net::MicroUsd;
use http::StatusCode;
use http::header::SET_COOKIE;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{Access, Operation, Routes};
use crate::serve::access::{Act, Extent, Grant, extent};
use crate::serve::call::{Call, blocking, empty_response, json_response};
use crate::serve::identity::{Credential, Identity};
use crate::serve::problem::{Problem, ProblemKind};
use crate::serve::session::{NewSession, removed_cookie};
use crate::serve::store::{Millis, PersonRow, TenantKey};
use budgets::Budgets;

pub(super) fn add(routes: Routes) -> Routes {
    let own = Access::For(Act::OwnAccount);
    let routes = routes
        .add(
            Operation::get("/v1/me", Access::Authenticated)
                .about("Describes the sender of the request")
                .returns::<Me>(StatusCode::OK),
            me,
        )
        .add(Operation::post("/auth/logout", own), logout)
        .add(Operation::post("/auth/tenant", own), switch_tenant);
    devices::add(sessions::add(tokens::add(routes)))
}

/// The sender of the request, as the server sees it.
#[derive(Serialize, JsonSchema)]
struct Me {
    principal: String,
    tenant: String,
    /// The tenants that the person can switch to, with the current one; absent for a token.
    #[serde(skip_serializing_if = "Option::is_none")]
    tenants: Option<Vec<String>>,
    role: &'static str,
    /// `session`, `token` or `local-socket`.
    credential: &'static str,
    /// The scopes of a token; absent for a person.
    #[serde(skip_serializing_if = "Option::is_none")]
    scopes: Option<Vec<&'static str>>,
    /// The value of the header `X-Belljar-Csrf`; absent without a session.
    #[serde(skip_serializing_if = "Option::is_none")]
    csrf: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    expires: Option<String>,
    /// Until this time, the session can do what needs a recent login; absent without a session.
    #[serde(skip_serializing_if = "Option::is_none")]
    recent_until: Option<String>,
    /// The limits of the sender and of the tenant, with what is used of them; absent without limits.
    #[serde(skip_serializing_if = "Option::is_none")]
    budgets: Option<Budgets>,
}

async fn me(call: Call) -> Result<Response, Problem> {
    let who = call.who()?.clone();
    let (app, tenant, state) = (call.app.clone(), call.tenant()?, call.scope()?);
    let sender = who.clone();
    let (tenants, budgets) = blocking(&call.app, move || {
        let tenants = match &sender.credential {
            Credential::Session { .. } => {
                let rows = app.store.memberships(&sender.caller.principal)?;
                let active = rows.into_iter().filter(PersonRow::is_active);
                Some(active.map(|row| row.key.0.to_string()).collect())
            }
            Credential::LocalSocket | Credential::Token { .. } => None,
        };
        Ok((tenants, Budgets::read(&app, &tenant, &state, &sender)?))
    })
    .await?;
    let (credential, csrf, expires, created) = match &who.credential {
        Credential::LocalSocket => ("local-socket", None, None, None),
        Credential::Session { csrf, expires, created, .. } => {
            ("session", Some(csrf.clone()), Some(*expires), Some(*created))
        }
        Credential::Token { expires, .. } => ("token", None, Some(*expires), None),
    };
    let scopes = match &who.grant {
        Grant::Person => None,
        Grant::Token(_, scopes) => Some(scopes.iter().map(|scope| scope.name()).collect()),
    };
    let me = Me {
        principal: who.caller.principal.to_string(),
        tenant: who.tenant().to_string(),
        tenants,
        role: who.role.name(),
        credential,
        scopes,
        csrf,
        expires: expires.map(time),
        recent_until: created.map(|created| time(created.saturating_add(Identity::RECENT))),
        budgets,
    };
    json_response(StatusCode::OK, &me)
}

fn no_session() -> Problem {
    Problem::new(ProblemKind::WRONG_STATE, "this request has no session")
}

/// Ends the session of the request.
async fn logout(call: Call) -> Result<Response, Problem> {
    let who = call.who()?.clone();
    let Credential::Session { id, .. } = &who.credential else { return Err(no_session()) };
    let (key, change) = (who.key(id.clone()), call.change("logout", id)?);
    let app = call.app.clone();
    blocking(&call.app, move || {
        change.record(&app)?;
        Ok(app.store.end_session(&key)?)
    })
    .await?;
    let mut response = empty_response();
    response.headers_mut().insert(SET_COOKIE, removed_cookie()?);
    Ok(response)
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct OtherTenant {
    tenant: TenantId,
}

/// Replaces the session of the request by one in another tenant of the same person.
async fn switch_tenant(call: Call) -> Result<Response, Problem> {
    let OtherTenant { tenant } = call.json()?;
    let who = call.who()?.clone();
    let Credential::Session { id, .. } = who.credential.clone() else { return Err(no_session()) };
    let mut change = call.change("tenant.entered", &id)?;
    change.details = vec![tenant.to_string()];
    let app = call.app.clone();
    let session = blocking(&call.app, move || {
        let unknown = || Problem::new(ProblemKind::NOT_FOUND, "you have no such tenant");
        let other = TenantKey(tenant, who.caller.principal.clone());
        app.store.role_of(&other)?.ok_or_else(unknown)?;
        let sessions = app.store.sessions(who.tenant(), app.now())?;
        let before = sessions.iter().find(|row| row.id == id).ok_or_else(no_session)?;
        change.record_in_system(&app)?;
        let session = NewSession::in_tenant(&app, before, other.clone())?;
        app.store.note_login(&other, app.now())?;
        Ok(session)
    })
    .await?;
    let mut response = empty_response();
    response.headers_mut().insert(SET_COOKIE, session.cookie(call.app.now())?);
    Ok(response)
}

/// Returns whether the sender may see and change an object that this principal made.
fn may_manage(who: &Identity, maker: &Principal) -> bool {
    *maker == who.caller.principal
        || extent(Act::ManageAccounts, who.role, &who.grant) == Extent::All
}

/// Formats a time for the API: RFC 3339 in UTC.
pub(in crate::serve) fn time(millis: Millis) -> String {
    moment::rfc3339(millis.saturating_mul(1_000_000))
}

/// Formats an amount of USD for the API, as a decimal number.
fn decimal(money: MicroUsd) -> String {
    money.to_string().trim_end_matches(" USD").to_owned()
}
