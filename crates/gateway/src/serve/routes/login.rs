//! Login with a one-time link, and the routes of the local socket that create links and tenants.
//!
//! ```text
//! belljar login-link ─▶ local socket ─▶ code ─▶ http://NAME/login#CODE ─▶ the page posts the code ─▶ session
//! ```
//! The code is in the fragment of the address, which no browser sends to a server, so it is in no log.

use axum::body::Body;
use axum::response::{IntoResponse as _, Response};
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use belljar_model::caller::{Principal, PrincipalKind, TenantId};
use http::header::{CONTENT_TYPE, HOST, SET_COOKIE};
use http::{HeaderValue, StatusCode};
use serde::{Deserialize, Serialize};
use zeroize::Zeroizing;

use super::account::time;
use super::{Access, Operation, Routes, oidc};
use crate::auth::api_token;
use crate::serve::access::{Act, Extent, Grant, Role, extent};
use crate::serve::app::App;
use crate::serve::audit::{Change, system_tenant};
use crate::serve::call::{Call, blocking, empty_response, json_response};
use crate::serve::oidc::pending::{LOGIN_TIME, lax_cookie};
use crate::serve::problem::{Problem, ProblemKind};
use crate::serve::session::{NewSession, random};
use crate::serve::store::{Invite, Link, LinkUse, Millis, TenantKey};

const MINUTE: Millis = 60 * 1000;
/// The time in which a link must be used.
const LINK_TIME: Millis = 10 * MINUTE;

pub(super) fn add(routes: Routes) -> Routes {
    routes
        .add(Operation::get("/login", Access::Anyone), page)
        .add(Operation::get("/login.js", Access::Anyone), script)
        .add(Operation::post("/auth/link", Access::Anyone), use_link)
        .add(Operation::post("/local/login-links", Access::LocalSocket), create_link)
        .add(Operation::post("/local/tenants", Access::LocalSocket), create_tenant)
}

async fn page(call: Call) -> Result<Response, Problem> {
    let text = match call.app.oidc {
        Some(_) => include_str!("login.html").replace("<!--oidc-->", OIDC_LINK),
        None => include_str!("login.html").replace("<!--oidc-->", ""),
    };
    Ok(static_file("text/html; charset=utf-8", text))
}

/// The part of the page for servers with an identity provider.
const OIDC_LINK: &str = "<p><a href=\"/auth/oidc\">Log in with your identity provider</a></p>";

async fn script(_: Call) -> Result<Response, Problem> {
    Ok(static_file("text/javascript; charset=utf-8", include_str!("login.js")))
}

pub(super) fn static_file(kind: &'static str, text: impl Into<Body>) -> Response {
    let mut response = text.into().into_response();
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(kind));
    response
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct LinkCode {
    code: String,
}

/// The next step of a person who was invited.
#[derive(Serialize)]
struct NextPage {
    location: &'static str,
}

/// Exchanges the code of a link for a session. A person who was invited to a server with an identity provider
/// logs in there first.
async fn use_link(call: Call) -> Result<Response, Problem> {
    let LinkCode { code } = call.json()?;
    let code = Zeroizing::new(code);
    let host = call.header(&HOST).unwrap_or_default().to_ascii_lowercase();
    let (app, from) = (call.app.clone(), call.from());
    if app.oidc.is_some() && !app.address.is_loopback {
        let (shared, hash, host) = (app.clone(), api_token::hash(&code), host.clone());
        let is_invite = move || Ok(shared.store.is_invite(hash, &host, shared.now())?);
        if blocking(&app, is_invite).await? {
            let mut response = json_response(StatusCode::OK, &NextPage { location: oidc::START })?;
            let cookie = lax_cookie(oidc::INVITE_COOKIE, &code, LOGIN_TIME / 1000)?;
            response.headers_mut().insert(SET_COOKIE, cookie);
            return Ok(response);
        }
    }
    let session = blocking(&call.app, move || log_in(&app, &code, &host, &from)).await?;
    let session = session.ok_or_else(|| {
        call.failed_login(|| {
            let detail =
                "the link was used before or has expired; `belljar login-link` makes a new one";
            Problem::new(ProblemKind::GONE, detail)
        })
    })?;
    let mut response = empty_response();
    response.headers_mut().insert(SET_COOKIE, session.cookie(call.app.now())?);
    Ok(response)
}

/// Starts the session of a link. `None` if the link is not valid any more.
fn log_in(app: &App, code: &str, host: &str, from: &str) -> Result<Option<NewSession>, Problem> {
    let LinkUse::Valid { owner, host, invite } =
        app.store.take_link(api_token::hash(code), host, app.now())?
    else {
        return Ok(None);
    };
    if let Some(invite) = invite
        && !accept_invite(app, &owner, &invite, from)?
    {
        return Ok(None);
    }
    let session = NewSession::of_login(app, owner.clone(), host, (from, Vec::new()))?;
    app.store.note_login(&owner, app.now())?;
    Ok(Some(session))
}

/// Gives a person the role of an invitation. Returns `false` if the invitation is not valid any more, because
/// its maker lost the right to invite, or because the person was disabled or has another role.
pub(super) fn accept_invite(
    app: &App,
    person: &TenantKey<Principal>,
    invite: &Invite,
    from: &str,
) -> Result<bool, Problem> {
    let maker = TenantKey(person.0.clone(), invite.maker.clone());
    let may_invite = app.store.role_of(&maker)?.is_some_and(|role| {
        extent(Act::ManageUsers, role, &Grant::Person) == Extent::All
            && (role == Role::Owner || invite.role != Role::Owner)
    });
    if !may_invite {
        return Ok(false);
    }
    if let Some(known) = app.store.person(person)? {
        return Ok(known.is_active() && known.role == invite.role);
    }
    let TenantKey(tenant, name) = person;
    let mut change = Change::new("user.added", &name.to_string(), name, tenant, from);
    change.details = vec![format!("role {} by an invitation of {}", invite.role, invite.maker)];
    change.record(app)?;
    app.store.put_person(person, invite.role, app.now())?;
    Ok(true)
}

/// The tenant whose owner gets a link; by default `local`.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct LinkRequest {
    tenant: Option<TenantId>,
}

#[derive(Serialize)]
struct LoginLink<'a> {
    url: &'a str,
    expires: String,
}

async fn create_link(call: Call) -> Result<Response, Problem> {
    let tenant = call.json::<LinkRequest>()?.tenant.unwrap_or_default();
    let (app, from) = (call.app.clone(), call.from());
    let (url, expires) = blocking(&call.app, move || make_link(&app, tenant, &from)).await?;
    json_response(StatusCode::CREATED, &LoginLink { url: &url, expires: time(expires) })
}

/// Makes a login link for the first owner of a tenant. Returns it with the time at which it expires.
pub(in crate::serve) fn make_link(
    app: &App,
    tenant: TenantId,
    from: &str,
) -> Result<(Zeroizing<String>, Millis), Problem> {
    let owner = app.store.first_owner(&tenant)?.ok_or_else(|| {
        let detail = format!("there is no tenant {tenant}; create it with `belljar tenant create`");
        Problem::new(ProblemKind::NOT_FOUND, detail).field("/tenant")
    })?;
    let owner = TenantKey(tenant, owner);
    let subject = owner.1.to_string();
    Change::new("login-link.created", &subject, &app.owner.principal, &owner.0, from)
        .record_in_system(app)?;
    let expires = app.now().saturating_add(LINK_TIME);
    Ok((store_link(app, owner, None, expires)?, expires))
}

/// Stores a new link and returns its address. The code is not stored.
pub(super) fn store_link(
    app: &App,
    owner: TenantKey<Principal>,
    invite: Option<Invite>,
    expires: Millis,
) -> Result<Zeroizing<String>, Problem> {
    let code = Zeroizing::new(URL_SAFE_NO_PAD.encode(random::<32>()?.as_slice()));
    let link = Link { owner, host: app.address.host.clone(), invite, expires };
    app.store.put_link(api_token::hash(&code), &link)?;
    Ok(Zeroizing::new(format!("{}/login#{}", app.address.url, code.as_str())))
}

/// The description of a new tenant. Its owner is known to an identity provider by issuer and subject.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct NewTenant {
    name: TenantId,
    issuer: String,
    subject: String,
}

#[derive(Serialize)]
struct CreatedTenant {
    name: String,
    owner: String,
}

async fn create_tenant(call: Call) -> Result<Response, Problem> {
    let NewTenant { name, issuer, subject } = call.json()?;
    if name == system_tenant() {
        return Err(Problem::invalid("the name `system` is reserved").field("/name"));
    }
    let owner = Principal::new(PrincipalKind::Person, &format!("{issuer}#{subject}"))
        .map_err(|error| Problem::invalid(error.to_string()).field("/subject"))?;
    let created = CreatedTenant { name: name.to_string(), owner: owner.to_string() };
    let (app, from) = (call.app.clone(), call.from());
    blocking(&call.app, move || {
        if app.store.first_owner(&name)?.is_some() {
            let problem = Problem::new(ProblemKind::EXISTS, "the tenant already exists");
            return Err(problem.field("/name"));
        }
        let subject = owner.to_string();
        Change::new("tenant.created", &subject, &app.owner.principal, &name, &from)
            .record_in_system(&app)?;
        app.store.create_tenant(&TenantKey(name, owner), app.now())?;
        Ok(())
    })
    .await?;
    json_response(StatusCode::CREATED, &created)
}
