//! Login with an identity provider: the start of a login, and the page to which the provider sends the browser
//! back.

use std::collections::BTreeMap;
use std::sync::Arc;

use axum::body::Body;
use axum::response::{IntoResponse as _, Response};
use belljar_model::caller::{Principal, PrincipalKind, TenantId};
use http::header::{CONTENT_TYPE, HOST, LOCATION, SET_COOKIE};
use http::{HeaderValue, StatusCode};
use zeroize::Zeroizing;

use super::login::accept_invite;
use super::{Access, Operation, Routes};
use crate::auth::api_token;
use crate::serve::access::Role;
use crate::serve::app::App;
use crate::serve::audit::{Change, system_tenant};
use crate::serve::call::{Call, blocking};
use crate::serve::head::CALLBACK;
use crate::serve::oidc::pending::{LOGIN_COOKIE, Pending, lax_cookie};
use crate::serve::oidc::{Answer, Identified, Oidc, groups, refused};
use crate::serve::problem::{Problem, ProblemKind};
use crate::serve::session::NewSession;
use crate::serve::store::{GroupChange, LinkUse, PersonRow, TenantKey};

/// The path that starts a login.
pub(in crate::serve) const START: &str = "/auth/oidc";

/// The cookie with the code of an invitation, which the person accepts by a login.
pub(super) const INVITE_COOKIE: &str = "__Host-belljar-invite";

pub(super) fn add(routes: Routes) -> Routes {
    routes
        .add(Operation::get(START, Access::Anyone), start)
        .add(Operation::get(CALLBACK, Access::Anyone), callback)
}

fn provider(app: &App) -> Result<&Oidc, Problem> {
    app.oidc.as_ref().ok_or_else(|| {
        let detail = "this server has no identity provider; its operator sets one in the section \
                      [oidc] of belljar.toml. Log in with the link that `belljar login-link` prints";
        Problem::new(ProblemKind::NOT_FOUND, detail)
    })
}

/// Sends the browser to the provider.
async fn start(call: Call) -> Result<Response, Problem> {
    let oidc = provider(&call.app)?;
    let host = call.header(&HOST).unwrap_or_default();
    if !host.eq_ignore_ascii_case(&call.app.address.host) {
        // The provider knows one address of this server, and cookies belong to one host.
        return redirect(&format!("{}{START}", call.app.address.url));
    }
    let pending = Pending::new(call.app.now())?;
    let mut response = redirect(&oidc.location(&pending, &call.app.key).await?)?;
    response.headers_mut().append(SET_COOKIE, pending.set_cookie()?);
    Ok(response)
}

fn redirect(to: &str) -> Result<Response, Problem> {
    let mut response = StatusCode::SEE_OTHER.into_response();
    let to = HeaderValue::from_str(to)
        .map_err(|_| Problem::internal("the address of the identity provider is invalid"))?;
    response.headers_mut().insert(LOCATION, to);
    Ok(response)
}

/// The page after a login. Strict cookies are not sent with a request that another site started, so the next
/// page must be opened by a page of this server.
const PAGE: &str = "<!doctype html>\n<html lang=\"en\">\n<meta charset=\"utf-8\">\n\
                    <title>Belljar: logged in</title>\n\
                    <meta http-equiv=\"refresh\" content=\"0; url=/\">\n\
                    <p><a href=\"/\">Continue</a></p>\n</html>\n";

/// Ends a login: checks what the provider sent back, and starts a session.
async fn callback(call: Call) -> Result<Response, Problem> {
    match log_in(&call).await {
        Ok(session) => {
            let mut response = Body::from(PAGE).into_response();
            let headers = response.headers_mut();
            headers.insert(CONTENT_TYPE, HeaderValue::from_static("text/html; charset=utf-8"));
            headers.append(SET_COOKIE, session.cookie(call.app.now())?);
            for name in [LOGIN_COOKIE, INVITE_COOKIE] {
                headers.append(SET_COOKIE, lax_cookie(name, "", 0)?);
            }
            Ok(response)
        }
        Err(problem) if problem.kind.status.is_server_error() => Err(problem),
        Err(problem) => Err(call.failed_login(|| problem)),
    }
}

async fn log_in(call: &Call) -> Result<NewSession, Problem> {
    let app = Arc::clone(&call.app);
    let oidc = provider(&app)?;
    let answer = answer(call)?;
    let pending = pending(call, &answer)?;
    let (shared, digest, expires) = (Arc::clone(&app), pending.digest(), pending.expires());
    let is_first =
        blocking(&app, move || Ok(shared.store.use_login(digest, shared.now(), expires)?)).await?;
    if !is_first {
        return Err(gone());
    }
    let found = oidc.identify(&answer, &pending, &app.key, app.now()).await?;
    let invite = call.cookie(INVITE_COOKIE).map(|code| Zeroizing::new(code.to_owned()));
    let (shared, from) = (Arc::clone(&app), call.from());
    blocking(&app, move || enter(&shared, &found, invite.as_deref(), &from)).await
}

fn gone() -> Problem {
    let detail = format!(
        "this login was not started in this browser, was used before or took more than 10 minutes; \
         start again at {START}"
    );
    Problem::new(ProblemKind::GONE, detail)
}

/// Reads the parameters that the provider sent back. A parameter that occurs twice is refused.
fn answer(call: &Call) -> Result<Answer, Problem> {
    let mut answer = Answer::default();
    for (name, value) in call.query::<Vec<(String, String)>>()? {
        let before = match name.as_str() {
            "code" => answer.code.replace(Zeroizing::new(value)).map(drop),
            "state" => answer.state.replace(value).map(drop),
            "iss" => answer.issuer.replace(value).map(drop),
            "error" => answer.error.replace(value).map(drop),
            // Providers add parameters of their own.
            _ => None,
        };
        if before.is_some() {
            return Err(Problem::invalid("a parameter occurs more than once"));
        }
    }
    Ok(answer)
}

/// Finds the login that the browser started.
fn pending(call: &Call, answer: &Answer) -> Result<Pending, Problem> {
    let state = answer.state.as_deref().ok_or_else(gone)?;
    let cookie = call.cookie(LOGIN_COOKIE).ok_or_else(gone)?;
    Pending::find(cookie, state, &call.app.key, call.app.now()).ok_or_else(gone)
}

/// Starts a session of a person in the tenant that the person used last.
fn enter(
    app: &App,
    found: &Identified,
    invite: Option<&String>,
    from: &str,
) -> Result<NewSession, Problem> {
    let oidc = provider(app)?;
    let name = format!("{}#{}", oidc.config().issuer, found.subject);
    let person = Principal::new(PrincipalKind::Person, &name)
        .map_err(|_| refused("the name of the person is too long"))?;
    if let Some(code) = invite {
        use_invite(app, &person, code, from)?;
    }
    let rows = app.store.memberships(&person)?;
    let roles = known_tenants(app, groups::roles(&oidc.config().access, &found.groups))?;
    for (tenant, change) in groups::changes(&rows, &roles) {
        record(app, &person, &tenant, change, from)?;
        app.store.apply_groups(&TenantKey(tenant, person.clone()), change, app.now())?;
    }
    let rows = app.store.memberships(&person)?;
    let active = rows.iter().filter(|row| row.is_active());
    let Some(last) = active.max_by_key(|row| row.seen) else {
        return Err(no_entry(app, &person, &rows, from));
    };
    let host = app.address.host.clone();
    let details = vec!["by the identity provider".to_owned()];
    let session = NewSession::of_login(app, last.key.clone(), host, (from, details))?;
    app.store.note_login(&last.key, app.now())?;
    Ok(session)
}

/// Returns the roles in tenants that exist.
fn known_tenants(
    app: &App,
    roles: BTreeMap<TenantId, Role>,
) -> Result<BTreeMap<TenantId, Role>, Problem> {
    let mut known = BTreeMap::new();
    for (tenant, role) in roles {
        if app.store.has_tenant(&tenant)? {
            known.insert(tenant, role);
        } else {
            tracing::warn!("[oidc] names a tenant that does not exist");
        }
    }
    Ok(known)
}

/// Gives the person the role of an invitation. An invitation that is not valid any more is ignored.
fn use_invite(app: &App, person: &Principal, code: &str, from: &str) -> Result<(), Problem> {
    let hash = api_token::hash(code);
    let used = app.store.take_link(hash, &app.address.host, app.now())?;
    let LinkUse::Valid { owner: TenantKey(tenant, _), invite: Some(invite), .. } = used else {
        return Ok(());
    };
    accept_invite(app, &TenantKey(tenant, person.clone()), &invite, from)?;
    Ok(())
}

/// Records a change that the groups of a person make.
fn record(
    app: &App,
    person: &Principal,
    tenant: &TenantId,
    change: GroupChange,
    from: &str,
) -> Result<(), Problem> {
    let (act, role) = match change {
        GroupChange::Join(role) => ("user.added", Some(role)),
        GroupChange::Become(role) => ("user.changed", Some(role)),
        GroupChange::Leave => ("user.left", None),
    };
    let mut record = Change::new(act, &person.to_string(), person, tenant, from);
    record.details = role.map(|role| format!("role {role} by a group")).into_iter().collect();
    record.record(app)
}

/// Records and returns the refusal of a person without a tenant.
fn no_entry(app: &App, person: &Principal, rows: &[PersonRow], from: &str) -> Problem {
    let is_disabled = rows.iter().any(|row| row.disabled.is_some());
    let (why, detail) = if is_disabled {
        ("disabled", "your account is disabled; ask an administrator of your tenant")
    } else {
        (
            "no group",
            "you are logged in at the identity provider, but none of your groups has access to this \
             server; ask its operator for a group of the section [oidc]",
        )
    };
    let name = person.to_string();
    let mut change = Change::new("login.refused", &name, person, &system_tenant(), from);
    change.details = vec![why.to_owned()];
    match change.record_in_system(app) {
        Ok(()) => refused(detail),
        Err(problem) => problem,
    }
}
