//! Logins of devices: a program starts a login, a person permits it, and the program gets a token.
//!
//! The token has the kind `cli`. It can never answer an approval, and it expires 12 hours after its last use.

use axum::response::Response;
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use belljar_model::caller::Principal;
use http::StatusCode;
use serde::{Deserialize, Serialize};
use zeroize::Zeroizing;

use super::super::login::static_file;
use super::super::{Access, Operation, Routes};
use super::time;
use super::tokens::{
    CreatedToken, DeviceToken, TokenView, check_name, has_scope, known_scope, put_device_token,
};
use crate::auth::api_token;
use crate::serve::access::{Act, Scope};
use crate::serve::audit::Change;
use crate::serve::call::{Call, blocking, empty_response, json_response};
use crate::serve::devices::{DeviceAnswer, DeviceRequest, LOGIN_TIME, Polled, TooManyLogins};
use crate::serve::problem::{Problem, ProblemKind};
use crate::serve::rate::whole_seconds;
use crate::serve::session::random;
use crate::serve::store::TenantKey;

pub(super) fn add(routes: Routes) -> Routes {
    let own = Access::For(Act::OwnAccount);
    routes
        .add(Operation::get("/device", Access::Anyone), page)
        .add(Operation::get("/device.js", Access::Anyone), script)
        .add(Operation::post("/auth/device", Access::Anyone).shown_once(), start)
        .add(Operation::post("/auth/device/token", Access::Anyone).shown_once(), token)
        .add(Operation::post("/auth/device/find", own), find)
        .add(Operation::post("/auth/device/answer", own), answer)
}

async fn page(_: Call) -> Result<Response, Problem> {
    Ok(static_file("text/html; charset=utf-8", include_str!("device.html")))
}

async fn script(_: Call) -> Result<Response, Problem> {
    Ok(static_file("text/javascript; charset=utf-8", include_str!("device.js")))
}

/// The start of a login by a program.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct NewLogin {
    /// The name of the device, such as `laptop`.
    name: String,
    /// The scopes of the token. Without scopes, the token gets those that need no recent login.
    #[serde(default)]
    scopes: Vec<String>,
}

/// The codes of a login, with the names of RFC 8628.
#[derive(Serialize)]
struct StartedLogin<'a> {
    device_code: &'a str,
    user_code: String,
    verification_uri: String,
    verification_uri_complete: String,
    /// The time until the codes expire, in seconds.
    expires_in: u64,
    /// The minimum time between two requests for the token, in seconds.
    interval: u64,
}

async fn start(call: Call) -> Result<Response, Problem> {
    let NewLogin { name, scopes } = call.json()?;
    check_name(&name)?;
    let parsed = scopes.iter().enumerate();
    let scopes = parsed.map(|(at, text)| known_scope(text, &format!("/scopes/{at}")));
    let scopes = scopes.collect::<Result<Vec<_>, _>>()?;
    let code = Zeroizing::new(URL_SAFE_NO_PAD.encode(random::<32>()?.as_slice()));
    let (app, request) = (&call.app, DeviceRequest { name, scopes, from: call.from() });
    let started = app.devices.start(api_token::hash(&code), *random()?, request, app.now());
    let user_code = started.map_err(|TooManyLogins| {
        let detail = "too many logins of devices have not ended; wait and try again";
        Problem::new(ProblemKind::TOO_MANY, detail).retry_after(60)
    })?;
    let (first, second) = user_code.split_at(user_code.len() / 2);
    let user_code = format!("{first}-{second}");
    let verification_uri = format!("{}/device", app.address.url);
    let started = StartedLogin {
        device_code: &code,
        verification_uri_complete: format!("{verification_uri}#{user_code}"),
        verification_uri,
        user_code,
        expires_in: LOGIN_TIME / 1000,
        interval: app.devices.interval().as_secs(),
    };
    json_response(StatusCode::OK, &started)
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct DeviceCode {
    device_code: String,
}

/// Returns the token of a login that a person permitted.
async fn token(call: Call) -> Result<Response, Problem> {
    let DeviceCode { device_code } = call.json()?;
    let (hash, app) = (api_token::hash(&Zeroizing::new(device_code)), &call.app);
    let (request, person, scopes) = match app.devices.poll(hash, app.now()) {
        Polled::Permitted { request, person, scopes } => (request, person, scopes),
        Polled::Waiting => {
            let detail = "the person has not permitted the login yet; ask again after the interval";
            let wait = whole_seconds(app.devices.interval());
            return Err(Problem::new(ProblemKind::PENDING, detail).retry_after(wait));
        }
        Polled::TooSoon => {
            let detail = "the program asks too often; wait for the interval between two requests";
            let wait = whole_seconds(app.devices.interval());
            return Err(Problem::new(ProblemKind::TOO_MANY, detail).retry_after(wait));
        }
        Polled::Denied => {
            let detail = "the person denied the login";
            return Err(Problem::new(ProblemKind::LOGIN_REFUSED, detail));
        }
        Polled::Unknown => {
            return Err(call.failed_login(|| {
                let detail =
                    "the code is wrong, has expired or was used before; start the login again";
                Problem::new(ProblemKind::GONE, detail)
            }));
        }
    };
    let new = DeviceToken { person, name: request.name, scopes };
    let (shared, from) = (call.app.clone(), call.from());
    let (token, row) = blocking(app, move || put_device_token(&shared, new, &from)).await?;
    let view = TokenView::of(&row);
    json_response(StatusCode::OK, &CreatedToken { token: token.expose(), view })
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct UserCode {
    user_code: String,
}

/// A login of a device that waits for an answer.
#[derive(Serialize)]
struct WaitingLogin {
    name: String,
    /// The address of the program that wants to log in.
    from: String,
    scopes: Vec<&'static str>,
    expires: String,
}

async fn find(call: Call) -> Result<Response, Problem> {
    let UserCode { user_code } = call.json()?;
    let (request, expires) = waiting(&call, &user_code)?;
    let scopes = scopes(&call, &request)?;
    let login = WaitingLogin {
        name: request.name,
        from: request.from,
        scopes: scopes.into_iter().map(Scope::name).collect(),
        expires: time(expires),
    };
    json_response(StatusCode::OK, &login)
}

fn waiting(call: &Call, user_code: &str) -> Result<(DeviceRequest, u64), Problem> {
    let found = call.app.devices.find(user_code, call.app.now());
    found.ok_or_else(|| call.failed_login(unknown))
}

fn unknown() -> Problem {
    let detail = "no login waits with this code; it is wrong, has expired or was answered";
    Problem::new(ProblemKind::NOT_FOUND, detail).field("/user_code")
}

/// Returns the scopes that the token of a login will have.
fn scopes(call: &Call, request: &DeviceRequest) -> Result<Vec<Scope>, Problem> {
    let who = call.who()?;
    if request.scopes.is_empty() {
        let permitted = |scope: &Scope| !scope.is_wide() && has_scope(who, *scope);
        return Ok(Scope::ALL.into_iter().filter(permitted).collect());
    }
    match request.scopes.iter().find(|scope| !has_scope(who, **scope)) {
        None => Ok(request.scopes.clone()),
        Some(scope) => {
            let detail = format!(
                "the device asks for the scope {scope}, whose rights your role does not have"
            );
            Err(Problem::new(ProblemKind::FORBIDDEN, detail))
        }
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct LoginAnswer {
    user_code: String,
    answer: Word,
}

#[derive(Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Word {
    Permit,
    Deny,
}

async fn answer(call: Call) -> Result<Response, Problem> {
    let LoginAnswer { user_code, answer } = call.json()?;
    let (request, _) = waiting(&call, &user_code)?;
    let (act, answer) = match answer {
        Word::Deny => ("device.denied", DeviceAnswer::Denied),
        Word::Permit => {
            let scopes = scopes(&call, &request)?;
            if scopes.iter().any(|scope| scope.is_wide()) {
                call.who()?.check_login_age(call.app.now())?;
            }
            let person: TenantKey<Principal> =
                call.who()?.key(call.who()?.caller.principal.clone());
            ("device.permitted", DeviceAnswer::Permitted { person, scopes })
        }
    };
    let mut change: Change = call.change(act, &request.name)?;
    change.details = vec![format!("the device at {}", request.from)];
    let app = call.app.clone();
    blocking(&call.app, move || {
        change.record(&app)?;
        let is_answered = app.devices.answer(&user_code, answer, app.now());
        if is_answered { Ok(()) } else { Err(unknown()) }
    })
    .await?;
    Ok(empty_response())
}
