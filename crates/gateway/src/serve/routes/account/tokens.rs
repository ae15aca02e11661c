//! Tokens of the API: list, create and revoke them.

use axum::response::Response;
use belljar_model::net::MicroUsd;
use http::StatusCode;
use http::header::IF_MATCH;
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Serialize};

use super::{decimal, may_manage, time};
use crate::auth::api_token::{ApiToken, TokenId};
use crate::serve::access::{Act, Extent, Scope, TokenKind, extent};
use crate::serve::call::{Call, blocking, check_version, empty_response, json_response};
use crate::serve::identity::Identity;
use crate::serve::json;
use crate::serve::page::{List, PageParameters};
use crate::serve::problem::{Problem, ProblemKind};
use crate::serve::routes::{Access, Operation, Routes};
use crate::serve::store::{Millis, Store, TokenLimits, TokenRow};

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
struct TokenView {
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
    fn of(row: &TokenRow) -> Self {
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
    json_schema!({ "type": "string", "enum": TokenKind::ALL.map(TokenKind::name) })
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
struct CreatedToken<'a> {
    token: &'a str,
    #[serde(flatten)]
    view: TokenView,
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
    let scopes = scopes(new, who)?;
    let (default, max) = if kind == TokenKind::Agent { AGENT_DAYS } else { SERVICE_DAYS };
    let days = new.days.unwrap_or(default);
    if !(1..=max).contains(&days) {
        let detail = format!("`days` must be a number from 1 to {max}");
        return Err(Problem::invalid(detail).field("/days"));
    }
    // The public part is chosen with the secret; see `store_token`.
    let id = TokenId::parse("00000000").ok_or_else(|| Problem::internal("the token has no id"))?;
    Ok(TokenRow {
        key: who.key(id),
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
    Ok(scopes)
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
