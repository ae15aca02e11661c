//! Tokens of the API: list, create and revoke them.

use axum::response::Response;
use belljar_model::caller::Principal;
use belljar_model::net::MicroUsd;
use http::StatusCode;
use http::header::IF_MATCH;
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Serialize};

use super::{decimal, may_manage, time};
use crate::auth::api_token::{ApiToken, TokenId};
use crate::serve::access::{Act, Extent, Scope, TokenKind, extent};
use crate::serve::app::App;
use crate::serve::audit::Change;
use crate::serve::call::{Call, blocking, check_version, empty_response, json_response};
use crate::serve::identity::{CLI_IDLE, Identity};
use crate::serve::json;
use crate::serve::page::{List, PageParameters};
use crate::serve::problem::{Problem, ProblemKind};
use crate::serve::routes::{Access, Operation, Routes};
use crate::serve::store::{Millis, Store, TenantKey, TokenLimits, TokenRow};

const DAY: Millis = 24 * 60 * 60 * 1000;
/// The default and the maximum lifetime of tokens of services, in days.
const SERVICE_DAYS: (u64, u64) = (90, 366);
/// The default and the maximum lifetime of tokens of agents, in days.
const AGENT_DAYS: (u64, u64) = (7, 7);
/// The maximum number of valid tokens of a tenant.
const MAX_TOKENS: usize = 200;
/// The maximum number of networks of a token.
const MAX_NETWORKS: usize = 32;
/// The maximum number of boxes in the limit of a token.
const MAX_BOXES: u32 = 10_000;
/// The version of a token, which never changes while the token is valid.
const TOKEN_VERSION: &str = "1";

/// The name of the list in its cursors.
const TOKENS: &str = "tokens";

pub(super) fn add(routes: Routes) -> Routes {
    let own = Access::For(Act::OwnAccount);
    routes
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
                .problems(&[ProblemKind::EXISTS, ProblemKind::LOGIN_AGE])
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
}

/// A token without its secret part.
#[derive(Serialize, JsonSchema)]
pub(super) struct TokenView {
    id: String,
    name: String,
    kind: &'static str,
    scopes: Vec<&'static str>,
    /// The networks of the clients that can use the token. Without networks, all clients can.
    networks: Vec<String>,
    /// The money in USD that runs of the token may spend in a day of UTC.
    #[serde(skip_serializing_if = "Option::is_none")]
    money_per_day: Option<String>,
    /// The boxes of the token that may run at once.
    #[serde(skip_serializing_if = "Option::is_none")]
    boxes: Option<u32>,
    maker: String,
    created: String,
    expires: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    revoked: Option<String>,
    version: &'static str,
}

impl TokenView {
    pub(super) fn of(row: &TokenRow) -> Self {
        let TokenLimits { networks, money_per_day, boxes } = &row.limits;
        Self {
            id: row.key.1.as_str().to_owned(),
            name: row.name.clone(),
            kind: row.kind.name(),
            scopes: row.scopes.iter().map(|scope| scope.name()).collect(),
            networks: networks.iter().map(ToString::to_string).collect(),
            money_per_day: money_per_day.map(decimal),
            boxes: *boxes,
            maker: row.maker.to_string(),
            created: time(row.created),
            expires: time(row.expires),
            revoked: row.revoked.map(time),
            version: TOKEN_VERSION,
        }
    }
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
    /// The networks of the clients that can use the token, such as `10.0.0.0/8`; by default all.
    #[serde(default)]
    #[schemars(schema_with = "schema_of_networks")]
    networks: Option<Vec<String>>,
    /// The money in USD that runs of the token may spend in a day of UTC, such as `2.50`.
    #[schemars(regex(pattern = r"^[0-9]{1,9}(\.[0-9]{1,6})?$"))]
    money_per_day: Option<String>,
    /// The boxes of the token that may run at once.
    #[serde(default, deserialize_with = "json::integer")]
    #[schemars(range(max = 10_000))]
    boxes: Option<u32>,
}

fn schema_of_kind(_: &mut SchemaGenerator) -> Schema {
    json_schema!({ "type": "string", "enum": TokenKind::MADE.map(TokenKind::name) })
}

fn schema_of_scopes(_: &mut SchemaGenerator) -> Schema {
    let scope = json_schema!({ "type": "string", "enum": Scope::ALL.map(Scope::name) });
    json_schema!({ "type": "array", "minItems": 1, "items": scope })
}

/// Describes IPv4 networks, and IPv6 networks in their common forms. The server accepts all forms of RFC 4291.
fn schema_of_networks(_: &mut SchemaGenerator) -> Schema {
    let byte = "(25[0-5]|2[0-4][0-9]|1[0-9]{2}|[1-9]?[0-9])";
    let v4 = format!("({byte}\\.){{3}}{byte}(/(3[0-2]|[12]?[0-9]))?");
    let word = "[1-9a-f][0-9a-f]{0,3}";
    let v6 =
        format!("(({word}:){{7}}{word}|({word}:){{1,6}}:|::1)(/(12[0-8]|1[01][0-9]|[1-9]?[0-9]))?");
    let network = json_schema!({ "type": "string", "pattern": format!("^({v4}|{v6})$") });
    json_schema!({ "type": ["array", "null"], "maxItems": MAX_NETWORKS, "items": network })
}

/// A new token with its secret, which is shown only once.
#[derive(Serialize, JsonSchema)]
pub(super) struct CreatedToken<'a> {
    pub(super) token: &'a str,
    #[serde(flatten)]
    pub(super) view: TokenView,
}

async fn create_token(call: Call) -> Result<Response, Problem> {
    let who = call.who()?.clone();
    let row = new_token(&call.json()?, &who, call.app.now())?;
    if row.scopes.iter().any(|scope| scope.is_wide()) {
        who.check_login_age(call.app.now())?;
    }
    let (app, mut change) = (call.app.clone(), call.change("token.created", &row.name)?);
    change.details = details(&row);
    let (token, row) = blocking(&call.app, move || {
        check_place(&app, &row)?;
        change.record(&app)?;
        store_token(&app.store, row)
    })
    .await?;
    let view = TokenView::of(&row);
    json_response(StatusCode::CREATED, &CreatedToken { token: token.expose(), view })
}

/// Refuses a token above the limit of the tenant, and one with the name of another. Returns the valid tokens of
/// the same device, which a new login replaces.
fn check_place(app: &App, row: &TokenRow) -> Result<Vec<TokenRow>, Problem> {
    let (mut all, now) = (app.store.tokens(&row.key.0)?, app.now());
    let is_valid = |it: &TokenRow| it.revoked.is_none() && it.expires > now;
    if all.iter().filter(|it| is_valid(it)).count() >= MAX_TOKENS {
        let detail = format!("the tenant has {MAX_TOKENS} valid tokens; revoke one first");
        return Err(Problem::new(ProblemKind::WRONG_STATE, detail));
    }
    let is_same =
        |it: &TokenRow| (&it.name, it.kind.principal()) == (&row.name, row.kind.principal());
    let is_replaced = |it: &TokenRow| (it.kind, row.kind) == (TokenKind::Cli, TokenKind::Cli);
    all.retain(is_same);
    // Objects belong to the person whose token made them, so a name never changes its owner.
    let is_taken = |it: &TokenRow| it.maker != row.maker || is_valid(it) && !is_replaced(it);
    if all.iter().any(is_taken) {
        let detail = "a valid token, or a token of another person, has this name; choose another";
        return Err(Problem::new(ProblemKind::EXISTS, detail).field("/name"));
    }
    all.retain(is_valid);
    Ok(all)
}

/// The token of a device on which a person permitted a login.
pub(super) struct DeviceToken {
    pub(super) person: TenantKey<Principal>,
    pub(super) name: String,
    pub(super) scopes: Vec<Scope>,
}

/// Makes the token of a device. Earlier tokens of the device are revoked. Blocks.
pub(super) fn put_device_token(
    app: &App,
    new: DeviceToken,
    from: &str,
) -> Result<(ApiToken, TokenRow), Problem> {
    let DeviceToken { person: TenantKey(tenant, maker), name, scopes } = new;
    let created = app.now();
    let row = TokenRow {
        key: TenantKey(tenant, no_id()?),
        maker,
        name,
        kind: TokenKind::Cli,
        scopes,
        hash: Vec::new(),
        limits: TokenLimits::default(),
        created,
        expires: created.saturating_add(CLI_IDLE),
        revoked: None,
    };
    let replaced = check_place(app, &row)?;
    let mut change = Change::new("token.created", &row.name, &row.maker, &row.key.0, from);
    change.details = details(&row);
    change.record(app)?;
    for old in replaced {
        let id = old.key.1.as_str();
        Change::new("token.revoked", id, &row.maker, &row.key.0, from).record(app)?;
        app.store.revoke(&old.key, created)?;
    }
    store_token(&app.store, row)
}

/// Returns a public part for a token that has none yet; see [`store_token`].
fn no_id() -> Result<TokenId, Problem> {
    TokenId::parse("00000000").ok_or_else(|| Problem::internal("the token has no id"))
}

/// Returns the scopes and the limits of a token for the ledger.
fn details(row: &TokenRow) -> Vec<String> {
    let TokenLimits { networks, money_per_day, boxes } = &row.limits;
    let scopes = row.scopes.iter().map(ToString::to_string);
    let networks = networks.iter().map(|network| format!("network {network}"));
    let money = money_per_day.map(|money| format!("{money} a day"));
    let boxes = boxes.map(|boxes| format!("{boxes} boxes at once"));
    scopes.chain(networks).chain(money).chain(boxes).collect()
}

/// Generates a token and stores its hash. Another public part is chosen if it is taken.
fn store_token(store: &Store, mut row: TokenRow) -> Result<(ApiToken, TokenRow), Problem> {
    /// Four random bytes are rarely taken.
    const ATTEMPTS: usize = 10;
    for _ in 0..ATTEMPTS {
        let token = ApiToken::generate()
            .map_err(|_| Problem::internal("the kernel returned no random bytes"))?;
        row.key.1 = token.id.clone();
        row.hash = token.hash().to_vec();
        if store.put_token(&row)? {
            return Ok((token, row));
        }
    }
    Err(Problem::internal("no free id for the token was found"))
}

/// Checks the name of a new token.
pub(super) fn check_name(name: &str) -> Result<(), Problem> {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
    if (1..=64).contains(&name.len()) && name.bytes().all(is_plain) {
        return Ok(());
    }
    let detail = "`name` must have 1 to 64 characters of a-z, A-Z, 0-9, `-`, `_` and `.`";
    Err(Problem::invalid(detail).field("/name"))
}

/// Checks the description of a new token.
fn new_token(new: &NewToken, who: &Identity, now: Millis) -> Result<TokenRow, Problem> {
    check_name(&new.name)?;
    let kind = TokenKind::MADE.into_iter().find(|kind| kind.name() == new.kind);
    let kind =
        kind.ok_or_else(|| Problem::invalid("`kind` must be `service` or `agent`").field("/kind"))?;
    let scopes = scopes(new, who)?;
    let (default, max) = if kind == TokenKind::Agent { AGENT_DAYS } else { SERVICE_DAYS };
    let days = new.days.unwrap_or(default);
    if !(1..=max).contains(&days) {
        let detail = format!("`days` must be a number from 1 to {max}");
        return Err(Problem::invalid(detail).field("/days"));
    }
    Ok(TokenRow {
        key: who.key(no_id()?),
        maker: who.caller.principal.clone(),
        name: new.name.clone(),
        kind,
        scopes,
        hash: Vec::new(),
        limits: limits(new)?,
        created: now,
        expires: now.saturating_add(days.saturating_mul(DAY)),
        revoked: None,
    })
}

/// Reads the scopes of a new token, each at most as wide as the role of its maker.
fn scopes(new: &NewToken, who: &Identity) -> Result<Vec<Scope>, Problem> {
    let mut scopes = Vec::new();
    for (index, text) in new.scopes.iter().enumerate() {
        let pointer = format!("/scopes/{index}");
        let scope = known_scope(text, &pointer)?;
        if !has_scope(who, scope) {
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
    Ok(scopes)
}

/// Reads the name of a scope, which is at `pointer` of the body.
pub(super) fn known_scope(text: &str, pointer: &str) -> Result<Scope, Problem> {
    text.parse().map_err(|_| {
        let known: Vec<&str> = Scope::ALL.iter().map(|scope| scope.name()).collect();
        let detail = format!("unknown scope; the scopes are {}", known.join(", "));
        Problem::invalid(detail).field(pointer)
    })
}

/// Returns whether a person can give this scope to a token.
pub(super) fn has_scope(who: &Identity, scope: Scope) -> bool {
    let has_right = |act: &Act| extent(*act, who.role, &who.grant) > Extent::Nothing;
    scope.acts().first().is_some_and(has_right)
}

/// Reads the limits of a new token.
fn limits(new: &NewToken) -> Result<TokenLimits, Problem> {
    let mut networks = Vec::new();
    for (index, text) in new.networks.iter().flatten().enumerate() {
        let invalid =
            |detail: String| Err(Problem::invalid(detail).field(format!("/networks/{index}")));
        match text.parse() {
            Ok(network) if index < MAX_NETWORKS => networks.push(network),
            Ok(_) => return invalid(format!("a token has at most {MAX_NETWORKS} networks")),
            Err(error) => {
                let error: crate::auth::network::BadNetwork = error;
                return invalid(error.to_string());
            }
        }
    }
    let money_per_day = match &new.money_per_day {
        Some(text) => Some(money(text)?),
        None => None,
    };
    if new.boxes.is_some_and(|boxes| boxes > MAX_BOXES) {
        let detail = format!("`boxes` must be a number from 0 to {MAX_BOXES}");
        return Err(Problem::invalid(detail).field("/boxes"));
    }
    Ok(TokenLimits { networks, money_per_day, boxes: new.boxes })
}

/// Reads an amount of USD.
fn money(text: &str) -> Result<MicroUsd, Problem> {
    let invalid = || {
        let detail = "`money_per_day` must be an amount of USD with at most 9 digits before and 6 \
                      digits after the point, such as `2.50`";
        Problem::invalid(detail).field("/money_per_day")
    };
    let (whole, fraction) = text.split_once('.').unwrap_or((text, "0"));
    if whole.len() > 9 || fraction.len() > 6 {
        return Err(invalid());
    }
    format!("${text}").parse().map_err(|_| invalid())
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn amount_of_money_has_at_most_six_digits_after_the_point() {
        for (text, micros) in
            [("0", 0), ("2.50", 2_500_000), ("999999999.999999", 999_999_999_999_999)]
        {
            assert_eq!(money(text).unwrap(), MicroUsd(micros), "{text}");
            assert_eq!(money(&decimal(MicroUsd(micros))).unwrap(), MicroUsd(micros));
        }
        for text in ["", ".5", "1.", "-1", "1e3", "$1", "1 USD", "1000000000", "0.0000001"] {
            assert_eq!(money(text).unwrap_err().kind, ProblemKind::INVALID, "{text}");
        }
    }
}
