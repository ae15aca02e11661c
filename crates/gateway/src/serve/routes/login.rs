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
use super::{Access, Operation, Routes};
use crate::auth::api_token;
use crate::serve::app::App;
use crate::serve::audit::{Change, system_tenant};
use crate::serve::call::{Call, blocking, empty_response, json_response};
use crate::serve::identity::COOKIE_NAME;
use crate::serve::problem::{Problem, ProblemKind};
use crate::serve::store::{LinkUse, Millis, SessionRow, TenantKey};

const MINUTE: Millis = 60 * 1000;
const DAY: Millis = 24 * 60 * MINUTE;
/// The time in which a link must be used.
const LINK_TIME: Millis = 10 * MINUTE;
/// The maximum length of a session.
const SESSION_TIME: Millis = DAY;
/// The maximum length of a session on the loopback interface.
const LOOPBACK_SESSION_TIME: Millis = 30 * DAY;

pub(super) fn add(routes: Routes) -> Routes {
    routes
        .add(Operation::get("/login", Access::Anyone), page)
        .add(Operation::get("/login.js", Access::Anyone), script)
        .add(Operation::post("/auth/link", Access::Anyone), use_link)
        .add(Operation::post("/local/login-links", Access::LocalSocket), create_link)
        .add(Operation::post("/local/tenants", Access::LocalSocket), create_tenant)
}

async fn page(_: Call) -> Result<Response, Problem> {
    Ok(static_file("text/html; charset=utf-8", include_str!("login.html")))
}

async fn script(_: Call) -> Result<Response, Problem> {
    Ok(static_file("text/javascript; charset=utf-8", include_str!("login.js")))
}

fn static_file(kind: &'static str, text: &'static str) -> Response {
    let mut response = Body::from(text).into_response();
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(kind));
    response
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct LinkCode {
    code: String,
}

/// Exchanges the code of a link for a session.
async fn use_link(call: Call) -> Result<Response, Problem> {
    let LinkCode { code } = call.json()?;
    let code = Zeroizing::new(code);
    let host = call.header(&HOST).unwrap_or_default().to_ascii_lowercase();
    let (app, from) = (call.app.clone(), call.from());
    let (secret, row) = blocking(&call.app, move || {
        let now = app.now();
        match app.store.take_link(api_token::hash(&code), &host, now)? {
            LinkUse::Gone => Ok(None),
            LinkUse::Valid { owner, host } => {
                let time =
                    if app.address.is_loopback { LOOPBACK_SESSION_TIME } else { SESSION_TIME };
                let (id, secret) = (random::<8>()?, random::<32>()?);
                let id = hex::encode(id.as_slice());
                let secret = Zeroizing::new(URL_SAFE_NO_PAD.encode(secret.as_slice()));
                let change = Change::new("login", &id, &owner.1, &owner.0, &from);
                change.record_in_system(&app)?;
                let expires = now.saturating_add(time);
                let row = SessionRow { owner, id, host, created: now, seen: now, expires };
                app.store.put_session(api_token::hash(&secret), &row)?;
                Ok(Some((secret, row)))
            }
        }
    })
    .await?
    .ok_or_else(|| {
        call.failed_login(|| {
            let detail =
                "the link was used before or has expired; `belljar login-link` makes a new one";
            Problem::new(ProblemKind::GONE, detail)
        })
    })?;
    let age = row.expires.saturating_sub(row.created) / 1000;
    let cookie = Zeroizing::new(format!(
        "{COOKIE_NAME}={}; Path=/; Secure; HttpOnly; SameSite=Strict; Max-Age={age}",
        secret.as_str()
    ));
    let mut response = empty_response();
    let mut value = HeaderValue::from_str(&cookie)
        .map_err(|_| Problem::new(ProblemKind::INTERNAL, "the cookie is invalid"))?;
    value.set_sensitive(true);
    response.headers_mut().insert(SET_COOKIE, value);
    Ok(response)
}

/// Returns random bytes of the kernel.
fn random<const N: usize>() -> Result<Zeroizing<[u8; N]>, Problem> {
    let mut bytes = Zeroizing::new([0; N]);
    getrandom::fill(&mut *bytes)
        .map_err(|_| Problem::new(ProblemKind::INTERNAL, "the kernel returned no random bytes"))?;
    Ok(bytes)
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
    let code = Zeroizing::new(URL_SAFE_NO_PAD.encode(random::<32>()?.as_slice()));
    let owner = TenantKey(tenant, owner);
    let subject = owner.1.to_string();
    Change::new("login-link.created", &subject, &app.owner.principal, &owner.0, from)
        .record_in_system(app)?;
    let expires = app.now().saturating_add(LINK_TIME);
    app.store.put_link(api_token::hash(&code), &owner, &app.address.host, expires)?;
    Ok((Zeroizing::new(format!("{}/login#{}", app.address.url, code.as_str())), expires))
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
