//! The routes of the own account: who am I, tokens and sessions.

use axum::response::Response;
use belljar_engine::moment;
use http::header::{IF_MATCH, SET_COOKIE};
use http::{HeaderValue, StatusCode};
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Serialize};

use super::{Access, Operation, Routes};
use crate::auth::api_token::{ApiToken, TokenId};
use crate::serve::access::{Act, Extent, Grant, Scope, TokenKind, extent};
use crate::serve::call::{Call, blocking, check_version, empty_response, json_response};
use crate::serve::identity::{COOKIE_NAME, Credential, Identity};
use crate::serve::json;
use crate::serve::page::{List, PageParameters};
use crate::serve::problem::{Problem, ProblemKind};
use crate::serve::store::{Millis, SessionRow, TenantKey, TokenRow};

const DAY: Millis = 24 * 60 * 60 * 1000;
/// The default and the maximum lifetime of tokens of services, in days.
const SERVICE_DAYS: (u64, u64) = (90, 366);
/// The default and the maximum lifetime of tokens of agents, in days.
const AGENT_DAYS: (u64, u64) = (7, 7);
/// The maximum number of valid tokens of a tenant.
const MAX_TOKENS: usize = 200;
/// The version of a token, which never changes while the token is valid.
const TOKEN_VERSION: &str = "1";

/// The names of the lists in their cursors.
const TOKENS: &str = "tokens";
const SESSIONS: &str = "sessions";

pub(super) fn add(routes: Routes) -> Routes {
    let own = Access::For(Act::OwnAccount);
    routes
        .add(
            Operation::get("/v1/me", Access::Authenticated)
                .about("Describes the sender of the request")
                .returns::<Me>(StatusCode::OK),
            me,
        )
        .add(Operation::post("/auth/logout", own), logout)
        .add(
            Operation::get("/v1/tokens", own)
                .about("Lists the tokens that the sender may manage")
                .query::<PageParameters>()
                .returns::<List<TokenView>>(StatusCode::OK),
            tokens,
        )
        .add(
            Operation::post("/v1/tokens", own)
                .about("Creates a token, whose secret is shown once")
                .body::<NewToken>()
                .returns::<CreatedToken<'_>>(StatusCode::CREATED)
                .problems(&[ProblemKind::EXISTS])
                .shown_once(),
            create_token,
        )
        .add(
            Operation::delete("/v1/tokens/{token}", own)
                .about("Revokes a token")
                .returns_empty(StatusCode::NO_CONTENT)
                .problems(&[ProblemKind::STALE, ProblemKind::NO_VERSION]),
            revoke_token,
        )
        .add(
            Operation::get("/v1/sessions", own)
                .about("Lists the sessions that the sender may manage")
                .query::<PageParameters>()
                .returns::<List<SessionView>>(StatusCode::OK),
            sessions,
        )
        .add(
            Operation::delete("/v1/sessions/{session}", own)
                .about("Ends a session")
                .returns_empty(StatusCode::NO_CONTENT),
            end_session,
        )
}

/// The sender of the request, as the server sees it.
#[derive(Serialize, JsonSchema)]
struct Me {
    principal: String,
    tenant: String,
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
}

async fn me(call: Call) -> Result<Response, Problem> {
    let who = call.who()?;
    let (credential, csrf, expires) = match &who.credential {
        Credential::LocalSocket => ("local-socket", None, None),
        Credential::Session { csrf, expires, .. } => {
            ("session", Some(csrf.clone()), Some(*expires))
        }
        Credential::Token { expires, .. } => ("token", None, Some(*expires)),
    };
    let scopes = match &who.grant {
        Grant::Person => None,
        Grant::Token(_, scopes) => Some(scopes.iter().map(|scope| scope.name()).collect()),
    };
    let me = Me {
        principal: who.caller.principal.to_string(),
        tenant: who.tenant().to_string(),
        role: who.role.name(),
        credential,
        scopes,
        csrf,
        expires: expires.map(time),
    };
    json_response(StatusCode::OK, &me)
}

/// Ends the session of the request.
async fn logout(call: Call) -> Result<Response, Problem> {
    let who = call.who()?.clone();
    let Credential::Session { id, .. } = &who.credential else {
        return Err(Problem::new(ProblemKind::WRONG_STATE, "this request has no session"));
    };
    let (key, change) = (who.key(id.clone()), call.change("logout", id)?);
    let app = call.app.clone();
    blocking(&call.app, move || {
        change.record(&app)?;
        Ok(app.store.end_session(&key)?)
    })
    .await?;
    let mut response = empty_response();
    let removed = format!("{COOKIE_NAME}=; Path=/; Secure; HttpOnly; SameSite=Strict; Max-Age=0");
    if let Ok(value) = HeaderValue::from_str(&removed) {
        response.headers_mut().insert(SET_COOKIE, value);
    }
    Ok(response)
}

/// A token without its secret part.
#[derive(Serialize, JsonSchema)]
struct TokenView {
    id: String,
    name: String,
    kind: &'static str,
    scopes: Vec<&'static str>,
    maker: String,
    created: String,
    expires: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    revoked: Option<String>,
    version: &'static str,
}

impl TokenView {
    fn of(row: &TokenRow) -> Self {
        Self {
            id: row.key.1.as_str().to_owned(),
            name: row.name.clone(),
            kind: row.kind.name(),
            scopes: row.scopes.iter().map(|scope| scope.name()).collect(),
            maker: row.maker.to_string(),
            created: time(row.created),
            expires: time(row.expires),
            revoked: row.revoked.map(time),
            version: TOKEN_VERSION,
        }
    }
}

/// Returns whether the sender may see and change an object that this principal made.
fn may_manage(who: &Identity, maker: &belljar_model::caller::Principal) -> bool {
    *maker == who.caller.principal
        || extent(Act::ManageAccounts, who.role, &who.grant) == Extent::All
}

async fn tokens(call: Call) -> Result<Response, Problem> {
    let page = call.page(TOKENS)?;
    let (who, app) = (call.who()?.clone(), call.app.clone());
    let tenant = who.tenant().clone();
    let rows = blocking(&call.app, move || Ok(app.store.tokens(&tenant)?)).await?;
    let visible = rows.iter().filter(|row| may_manage(&who, &row.maker));
    let slice = page.slice(visible.map(TokenView::of), |view| view.id.clone());
    call.list(TOKENS, slice.items, slice.last.as_deref())
}

/// The description of a new token.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct NewToken {
    #[schemars(regex(pattern = r"^[A-Za-z0-9._-]{1,64}$"))]
    name: String,
    #[schemars(schema_with = "schema_of_kind")]
    kind: String,
    #[schemars(schema_with = "schema_of_scopes")]
    scopes: Vec<String>,
    #[serde(default, deserialize_with = "json::integer")]
    #[schemars(range(min = 1, max = 366))]
    days: Option<u64>,
}

fn schema_of_kind(_: &mut SchemaGenerator) -> Schema {
    json_schema!({ "type": "string", "enum": TokenKind::ALL.map(TokenKind::name) })
}

fn schema_of_scopes(_: &mut SchemaGenerator) -> Schema {
    let scope = json_schema!({ "type": "string", "enum": Scope::ALL.map(Scope::name) });
    json_schema!({ "type": "array", "minItems": 1, "items": scope })
}

/// A new token with its secret, which is shown only once.
#[derive(Serialize, JsonSchema)]
struct CreatedToken<'a> {
    token: &'a str,
    #[serde(flatten)]
    view: TokenView,
}

async fn create_token(call: Call) -> Result<Response, Problem> {
    let who = call.who()?.clone();
    let row = new_token(&call.json()?, &who, call.app.now())?;
    let (app, mut change) = (call.app.clone(), call.change("token.created", &row.name)?);
    change.details = row.scopes.iter().map(ToString::to_string).collect();
    let (token, row) = blocking(&call.app, move || {
        let all = app.store.tokens(&row.key.0)?;
        let now = app.now();
        let is_valid = |it: &TokenRow| it.revoked.is_none() && it.expires > now;
        if all.iter().filter(|it| is_valid(it)).count() >= MAX_TOKENS {
            let detail = format!("the tenant has {MAX_TOKENS} valid tokens; revoke one first");
            return Err(Problem::new(ProblemKind::WRONG_STATE, detail));
        }
        // Objects belong to the person whose token made them, so a name never changes its owner.
        let is_taken = |it: &&TokenRow| {
            (&it.name, it.kind) == (&row.name, row.kind) && (is_valid(it) || it.maker != row.maker)
        };
        if all.iter().any(|it| is_taken(&it)) {
            let detail =
                "a valid token, or a token of another person, has this name; choose another";
            return Err(Problem::new(ProblemKind::EXISTS, detail).field("/name"));
        }
        change.record(&app)?;
        store_token(&app.store, row)
    })
    .await?;
    let view = TokenView::of(&row);
    json_response(StatusCode::CREATED, &CreatedToken { token: token.expose(), view })
}

/// Generates a token and stores its hash. Another public part is chosen if it is taken.
fn store_token(
    store: &crate::serve::store::Store,
    mut row: TokenRow,
) -> Result<(ApiToken, TokenRow), Problem> {
    /// Four random bytes are rarely taken.
    const ATTEMPTS: usize = 10;
    for _ in 0..ATTEMPTS {
        let token = ApiToken::generate().map_err(|_| {
            Problem::new(ProblemKind::INTERNAL, "the kernel returned no random bytes")
        })?;
        row.key.1 = token.id.clone();
        row.hash = token.hash().to_vec();
        if store.put_token(&row)? {
            return Ok((token, row));
        }
    }
    Err(Problem::new(ProblemKind::INTERNAL, "no free id for the token was found"))
}

/// Checks the description of a new token.
fn new_token(new: &NewToken, who: &Identity, now: Millis) -> Result<TokenRow, Problem> {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
    if !(1..=64).contains(&new.name.len()) || !new.name.bytes().all(is_plain) {
        let detail = "`name` must have 1 to 64 characters of a-z, A-Z, 0-9, `-`, `_` and `.`";
        return Err(Problem::invalid(detail).field("/name"));
    }
    let kind = TokenKind::ALL.into_iter().find(|kind| kind.name() == new.kind);
    let kind =
        kind.ok_or_else(|| Problem::invalid("`kind` must be `service` or `agent`").field("/kind"))?;
    let mut scopes = Vec::new();
    for (index, text) in new.scopes.iter().enumerate() {
        let pointer = format!("/scopes/{index}");
        let scope: Scope = text.parse().map_err(|_| {
            let known: Vec<&str> = Scope::ALL.iter().map(|scope| scope.name()).collect();
            let detail = format!("unknown scope; the scopes are {}", known.join(", "));
            Problem::invalid(detail).field(pointer.clone())
        })?;
        let has_right = |act: &Act| extent(*act, who.role, &who.grant) > Extent::Nothing;
        if !scope.acts().first().is_some_and(has_right) {
            let detail = format!("your role does not have the rights of the scope {scope}");
            return Err(Problem::new(ProblemKind::FORBIDDEN, detail).field(pointer));
        }
        scopes.push(scope);
    }
    if scopes.is_empty() {
        return Err(Problem::invalid("a token needs at least one scope").field("/scopes"));
    }
    scopes.sort_unstable();
    scopes.dedup();
    let (default, max) = if kind == TokenKind::Agent { AGENT_DAYS } else { SERVICE_DAYS };
    let days = new.days.unwrap_or(default);
    if !(1..=max).contains(&days) {
        let detail = format!("`days` must be a number from 1 to {max}");
        return Err(Problem::invalid(detail).field("/days"));
    }
    // The public part is chosen with the secret; see `store_token`.
    let id = TokenId::parse("00000000")
        .ok_or_else(|| Problem::new(ProblemKind::INTERNAL, "the token has no id"))?;
    Ok(TokenRow {
        key: who.key(id),
        maker: who.caller.principal.clone(),
        name: new.name.clone(),
        kind,
        scopes,
        hash: Vec::new(),
        created: now,
        expires: now.saturating_add(days.saturating_mul(DAY)),
        revoked: None,
    })
}

async fn revoke_token(call: Call) -> Result<Response, Problem> {
    let who = call.who()?.clone();
    let unknown = || Problem::new(ProblemKind::NOT_FOUND, "the tenant has no such valid token");
    let id = TokenId::parse(call.param("token")?).ok_or_else(unknown)?;
    let shown = call.header(&IF_MATCH);
    let (app, change) = (call.app.clone(), call.change("token.revoked", id.as_str())?);
    blocking(&call.app, move || {
        let rows = app.store.tokens(who.tenant())?;
        let row = rows.iter().find(|row| row.key.1 == id && row.revoked.is_none());
        row.filter(|row| may_manage(&who, &row.maker)).ok_or_else(unknown)?;
        check_version(shown.as_deref(), TOKEN_VERSION)?;
        change.record(&app)?;
        if app.store.revoke(&who.key(id), app.now())? { Ok(()) } else { Err(unknown()) }
    })
    .await?;
    Ok(empty_response())
}

/// A session without its secret.
#[derive(Serialize, JsonSchema)]
struct SessionView {
    id: String,
    principal: String,
    created: String,
    seen: String,
    expires: String,
    /// Whether the request uses this session.
    current: bool,
}

impl SessionView {
    fn of(row: &SessionRow, current: Option<&str>) -> Self {
        Self {
            id: row.id.clone(),
            principal: row.owner.1.to_string(),
            created: time(row.created),
            seen: time(row.seen),
            expires: time(row.expires),
            current: current == Some(row.id.as_str()),
        }
    }
}

async fn sessions(call: Call) -> Result<Response, Problem> {
    let page = call.page(SESSIONS)?;
    let (who, app) = (call.who()?.clone(), call.app.clone());
    let tenant = who.tenant().clone();
    let rows = blocking(&call.app, move || Ok(app.store.sessions(&tenant, app.now())?)).await?;
    let current = match &who.credential {
        Credential::Session { id, .. } => Some(id.as_str()),
        Credential::LocalSocket | Credential::Token { .. } => None,
    };
    let visible = rows.iter().filter(|row| may_manage(&who, &row.owner.1));
    let views = visible.map(|row| SessionView::of(row, current));
    let slice = page.slice(views, |view| view.id.clone());
    call.list(SESSIONS, slice.items, slice.last.as_deref())
}

async fn end_session(call: Call) -> Result<Response, Problem> {
    let who = call.who()?.clone();
    let id = call.param("session")?.to_owned();
    let (app, change) = (call.app.clone(), call.change("session.ended", &id)?);
    blocking(&call.app, move || {
        let unknown = || Problem::new(ProblemKind::NOT_FOUND, "the tenant has no such session");
        let rows = app.store.sessions(who.tenant(), app.now())?;
        let row = rows.iter().find(|row| row.id == id);
        row.filter(|row| may_manage(&who, &row.owner.1)).ok_or_else(unknown)?;
        change.record(&app)?;
        let key: TenantKey<String> = who.key(id);
        if app.store.end_session(&key)? { Ok(()) } else { Err(unknown()) }
    })
    .await?;
    Ok(empty_response())
}

/// Formats a time for the API: RFC 3339 in UTC.
pub(in crate::serve) fn time(millis: Millis) -> String {
    moment::rfc3339(millis.saturating_mul(1_000_000))
}
