//! The routes of webhooks: where the server sends the events of the tenant, and what it has sent.

use axum::response::Response;
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use belljar_engine::server::webhooks::{Endpoint, EndpointError};
use belljar_model::caller::Principal;
use http::header::{ETAG, IF_MATCH};
use http::{HeaderValue, StatusCode};
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Serialize};

use super::account::time;
use super::{Access, Operation, Routes};
use crate::serve::access::Act;
use crate::serve::app::App;
use crate::serve::call::{Call, blocking, check_version, empty_response, json_response};
use crate::serve::page::{List, PageParameters};
use crate::serve::problem::{Problem, ProblemKind};
use crate::serve::store::{DeliveryRow, DeliveryState, TenantKey, WebhookRow};
use crate::serve::webhooks;

/// The names of the lists in their cursors.
const WEBHOOKS: &str = "webhooks";
const DELIVERIES: &str = "deliveries";
/// The maximum number of webhooks of a tenant.
const MAX_WEBHOOKS: usize = 20;
/// The maximum length of a URL, of a name, and of a kind of events.
const MAX_URL: usize = 2048;
const MAX_NAME: usize = 63;
const MAX_KIND: usize = 64;
/// The maximum number of kinds of events of a webhook.
const MAX_KINDS: usize = 64;
/// The length of a secret.
const SECRET: std::ops::RangeInclusive<usize> = 16..=128;

const VERSION: &[ProblemKind] = &[ProblemKind::STALE, ProblemKind::NO_VERSION];

pub(super) fn add(routes: Routes) -> Routes {
    let access = Access::For(Act::ManageWebhooks);
    routes
        .add(
            Operation::get("/v1/webhooks", access)
                .about("Lists the webhooks of the tenant by name")
                .query::<PageParameters>()
                .returns::<List<WebhookView>>(StatusCode::OK),
            list,
        )
        .add(
            Operation::get("/v1/webhooks/{webhook}", access)
                .about("Describes a webhook")
                .returns::<WebhookView>(StatusCode::OK),
            get,
        )
        .add(
            Operation::put("/v1/webhooks/{webhook}", access)
                .about("Creates or changes a webhook; a change needs `If-Match`")
                .body::<WebhookRequest>()
                .with_language()
                .returns::<WebhookView>(StatusCode::OK)
                .returns::<CreatedWebhook>(StatusCode::CREATED)
                .problems(&[ProblemKind::STALE, ProblemKind::NO_VERSION, ProblemKind::WRONG_STATE]),
            put,
        )
        .add(
            Operation::delete("/v1/webhooks/{webhook}", access)
                .about("Removes a webhook with its deliveries")
                .returns_empty(StatusCode::NO_CONTENT)
                .problems(VERSION),
            remove,
        )
        .add(
            Operation::get("/v1/webhooks/{webhook}/deliveries", access)
                .about("Lists the deliveries of a webhook, the newest first")
                .query::<PageParameters>()
                .returns::<List<DeliveryView>>(StatusCode::OK),
            deliveries,
        )
        .add(
            Operation::post("/v1/webhooks/{webhook}/test", access)
                .about("Sends a message without an event to try a webhook")
                .returns::<DeliveryView>(StatusCode::ACCEPTED),
            test,
        )
}

/// A webhook without its secret.
#[derive(Serialize, JsonSchema)]
struct WebhookView {
    name: String,
    url: String,
    /// The kinds of events that are sent. Empty means all.
    kinds: Vec<String>,
    /// Whether the server can have a private address.
    allow_private: bool,
    enabled: bool,
    /// The person who changed the webhook last.
    maker: String,
    changed: String,
    version: String,
}

impl WebhookView {
    fn of(row: WebhookRow) -> Self {
        Self {
            name: row.key.1,
            url: row.url,
            kinds: row.kinds,
            allow_private: row.allow_private,
            enabled: row.enabled,
            maker: row.maker.to_string(),
            changed: time(row.changed),
            version: row.version.to_string(),
        }
    }
}

/// A new webhook.
#[derive(Serialize, JsonSchema)]
struct CreatedWebhook {
    #[serde(flatten)]
    view: WebhookView,
    /// The secret that the server generated, which is shown only once.
    #[serde(skip_serializing_if = "Option::is_none")]
    secret: Option<String>,
}

/// The description of a webhook.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct WebhookRequest {
    /// An address `https://…` that gets a POST request for each event.
    #[schemars(length(max = 2048), regex(pattern = r"^https://[!-~]+$"))]
    url: String,
    /// Kinds of events such as `workspace.applied`, or prefixes such as `task.*`; all by default.
    #[serde(default)]
    #[schemars(schema_with = "schema_of_kinds")]
    kinds: Option<Vec<String>>,
    /// The key of the signature. By default the server generates one for a new webhook, and a change keeps it.
    #[schemars(regex(pattern = r"^[!-~]{16,128}$"))]
    secret: Option<String>,
    /// Whether the server can have a private address; false by default.
    allow_private: Option<bool>,
    /// Whether events are sent; true by default.
    enabled: Option<bool>,
}

fn schema_of_kinds(_: &mut SchemaGenerator) -> Schema {
    let kind = json_schema!({
        "type": "string", "maxLength": MAX_KIND, "pattern": r"^[a-z-]+\.([a-z.-]+|\*)$",
    });
    json_schema!({ "type": ["array", "null"], "maxItems": MAX_KINDS, "items": kind })
}

impl WebhookRequest {
    fn check(&self) -> Result<Endpoint, Problem> {
        let invalid = |error: EndpointError| Problem::invalid(error.to_string()).field("/url");
        let is_visible = |text: &str| text.bytes().all(|byte| byte.is_ascii_graphic());
        if self.url.len() > MAX_URL || !is_visible(&self.url) {
            let detail = format!("the URL must have at most {MAX_URL} visible ASCII characters");
            return Err(Problem::invalid(detail).field("/url"));
        }
        let kinds = self.kinds.as_deref().unwrap_or_default();
        if let Some(index) = kinds.iter().position(|kind| !is_kind(kind)) {
            let detail = "a kind has the form `task.done` or `task.*`";
            return Err(Problem::invalid(detail).field(format!("/kinds/{index}")));
        }
        if kinds.len() > MAX_KINDS {
            let detail = format!("at most {MAX_KINDS} items are permitted");
            return Err(Problem::invalid(detail).field("/kinds"));
        }
        let is_secret = |text: &String| SECRET.contains(&text.len()) && is_visible(text);
        if !self.secret.as_ref().is_none_or(is_secret) {
            let detail = "the secret must have 16 to 128 visible ASCII characters";
            return Err(Problem::invalid(detail).field("/secret"));
        }
        self.url.parse::<Endpoint>().map_err(invalid)
    }
}

/// Returns whether a text has the form of a kind of events, or of a prefix of kinds.
fn is_kind(text: &str) -> bool {
    let is_word = |part: &str| part.bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'-');
    let Some((first, rest)) = text.split_once('.') else { return false };
    let is_rest = rest == "*" || (!rest.is_empty() && rest.split('.').all(is_word));
    text.len() <= MAX_KIND && !first.is_empty() && is_word(first) && is_rest
}

fn unknown() -> Problem {
    Problem::new(ProblemKind::NOT_FOUND, "the tenant has no such webhook")
}

fn key(call: &Call) -> Result<TenantKey<String>, Problem> {
    Ok(call.who()?.key(call.param("webhook")?.to_owned()))
}

/// Returns a webhook with its version in the header `ETag`.
fn with_version(
    status: StatusCode,
    version: &str,
    view: &impl Serialize,
) -> Result<Response, Problem> {
    let mut response = json_response(status, view)?;
    if let Ok(value) = HeaderValue::try_from(format!("\"{version}\"")) {
        response.headers_mut().insert(ETAG, value);
    }
    Ok(response)
}

async fn list(call: Call) -> Result<Response, Problem> {
    let page = call.page(WEBHOOKS)?;
    let (app, tenant) = (call.app.clone(), call.who()?.tenant().clone());
    let rows = blocking(&call.app, move || Ok(app.store.webhooks(&tenant)?)).await?;
    let contains =
        |row: &WebhookRow| page.q.as_ref().is_none_or(|q| row.key.1.contains(q.as_str()));
    let views = rows.into_iter().filter(contains).map(WebhookView::of);
    let slice = page.slice(views, |view| view.name.clone());
    call.list(WEBHOOKS, slice.items, slice.last.as_deref())
}

async fn get(call: Call) -> Result<Response, Problem> {
    let (app, key) = (call.app.clone(), key(&call)?);
    let row = blocking(&call.app, move || app.store.webhook(&key)?.ok_or_else(unknown)).await?;
    let view = WebhookView::of(row);
    with_version(StatusCode::OK, &view.version, &view)
}

async fn put(call: Call) -> Result<Response, Problem> {
    let request: WebhookRequest = call.json()?;
    let endpoint = request.check()?;
    let key = key(&call)?;
    check_name(&key.1)?;
    let (shown, maker) = (call.header(&IF_MATCH), call.who()?.caller.principal.clone());
    let mut change = call.change("webhook.changed", &key.1)?;
    // The rest of a URL can be a credential.
    change.details = vec![format!("host {}", endpoint.authority())];
    let app = call.app.clone();
    let (row, secret) = blocking(&call.app, move || {
        let old = app.store.webhook(&key)?;
        match &old {
            Some(old) => check_version(shown.as_deref(), &old.version.to_string())?,
            None if shown.is_some() => {
                return Err(Problem::new(ProblemKind::STALE, "the tenant has no such webhook"));
            }
            None if app.store.webhooks(&key.0)?.len() >= MAX_WEBHOOKS => {
                let detail = format!("the tenant has {MAX_WEBHOOKS} webhooks; remove one first");
                return Err(Problem::new(ProblemKind::WRONG_STATE, detail));
            }
            None => {}
        }
        // The webhook starts after the event of its own creation.
        change.record(&app)?;
        let (row, secret) = new_row(&app, key, maker, request, old.as_ref())?;
        if !app.store.put_webhook(&row)? {
            let detail = "another request changed the webhook; read it again";
            return Err(Problem::new(ProblemKind::STALE, detail));
        }
        Ok((row, secret))
    })
    .await?;
    let (version, is_new) = (row.version.to_string(), row.version == 1);
    let view = WebhookView::of(row);
    if is_new {
        return with_version(StatusCode::CREATED, &version, &CreatedWebhook { view, secret });
    }
    with_version(StatusCode::OK, &version, &view)
}

fn check_name(name: &str) -> Result<(), Problem> {
    let is_plain = |byte: u8| matches!(byte, b'a'..=b'z' | b'0'..=b'9' | b'-' | b'_');
    let starts_well = name.bytes().next().is_some_and(|byte| byte.is_ascii_alphanumeric());
    if starts_well && name.len() <= MAX_NAME && name.bytes().all(is_plain) {
        return Ok(());
    }
    let detail = format!(
        "a name has 1 to {MAX_NAME} characters of a-z, 0-9, `-` and `_`, and starts with a letter or digit"
    );
    Err(Problem::invalid(detail))
}

/// Returns the next version of a webhook, and its secret if the server generated it. A webhook that was not
/// enabled before starts with the next event.
fn new_row(
    app: &App,
    key: TenantKey<String>,
    maker: Principal,
    request: WebhookRequest,
    old: Option<&WebhookRow>,
) -> Result<(WebhookRow, Option<String>), Problem> {
    let generates = old.is_none() && request.secret.is_none();
    let generated = generates.then(new_secret).transpose()?;
    let known = old.map(|old| old.secret.clone());
    let enabled = request.enabled.unwrap_or(true);
    let next_event = match old {
        Some(old) if old.enabled && enabled => old.next_event,
        Some(_) | None => webhooks::end_of_ledger(app, &key.0)?,
    };
    let row = WebhookRow {
        key,
        url: request.url,
        kinds: request.kinds.unwrap_or_default(),
        secret: request.secret.or_else(|| generated.clone()).or(known).unwrap_or_default(),
        allow_private: request.allow_private.unwrap_or(false),
        enabled,
        version: old.map_or(1, |old| old.version + 1),
        maker,
        changed: app.now(),
        next_event,
    };
    Ok((row, generated))
}

fn new_secret() -> Result<String, Problem> {
    let mut bytes = [0; 32];
    getrandom::fill(&mut bytes)
        .map_err(|_| Problem::internal("the kernel returned no random bytes"))?;
    Ok(URL_SAFE_NO_PAD.encode(bytes))
}

async fn remove(call: Call) -> Result<Response, Problem> {
    let (app, key, shown) = (call.app.clone(), key(&call)?, call.header(&IF_MATCH));
    let change = call.change("webhook.removed", &key.1)?;
    blocking(&call.app, move || {
        let row = app.store.webhook(&key)?.ok_or_else(unknown)?;
        check_version(shown.as_deref(), &row.version.to_string())?;
        change.record(&app)?;
        if app.store.remove_webhook(&key)? { Ok(()) } else { Err(unknown()) }
    })
    .await?;
    Ok(empty_response())
}

/// A message to the server of a webhook.
#[derive(Serialize, JsonSchema)]
struct DeliveryView {
    id: String,
    kind: String,
    created: String,
    /// `pending`, `delivered` or `failed`.
    state: &'static str,
    attempts: u64,
    /// The time of the last attempt.
    last: Option<String>,
    /// The time of the next attempt of a pending delivery.
    next: Option<String>,
    /// The status of the last response.
    status: Option<u16>,
    /// Why the last attempt failed.
    error: Option<String>,
}

impl DeliveryView {
    fn of(row: DeliveryRow) -> Self {
        let is_pending = row.state == DeliveryState::Pending;
        Self {
            id: row.id,
            kind: row.kind,
            created: time(row.created),
            state: row.state.name(),
            attempts: row.attempts,
            last: row.last.map(time),
            next: is_pending.then(|| time(row.due)),
            status: row.status,
            error: row.error,
        }
    }
}

async fn deliveries(call: Call) -> Result<Response, Problem> {
    let page = call.page(DELIVERIES)?;
    let before = page.after.as_deref().map(str::parse::<u64>).transpose();
    let before = before.map_err(|_| Problem::internal("the cursor is malformed"))?;
    let (app, key, limit) = (call.app.clone(), key(&call)?, page.limit);
    let mut rows = blocking(&call.app, move || {
        app.store.webhook(&key)?.ok_or_else(unknown)?;
        Ok(app.store.deliveries(&key, before, limit + 1)?)
    })
    .await?;
    let has_more = rows.len() > limit;
    rows.truncate(limit);
    let last = rows.last().filter(|_| has_more).map(|row| row.number.to_string());
    let views = rows.into_iter().map(DeliveryView::of).collect();
    call.list::<DeliveryView>(DELIVERIES, views, last.as_deref())
}

async fn test(call: Call) -> Result<Response, Problem> {
    let (app, key) = (call.app.clone(), key(&call)?);
    let change = call.change("webhook.tested", &key.1)?;
    let row = blocking(&call.app, move || {
        let webhook = app.store.webhook(&key)?.ok_or_else(unknown)?;
        change.record(&app)?;
        let new = webhooks::delivery(&app.address.url, &webhook, None)?;
        app.store.add_delivery(&key, &new, app.now())?.ok_or_else(unknown)
    });
    json_response(StatusCode::ACCEPTED, &DeliveryView::of(row.await?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kind_of_events_has_a_word_and_further_words_or_a_star() {
        for kind in ["task.done", "task.*", "plan-run.gate.open"] {
            assert!(is_kind(kind), "{kind}");
        }
        for text in
            ["", "task", "*", ".x", "task.", "Task.done", "task.*.x", "task. x", &"a.b".repeat(40)]
        {
            assert!(!is_kind(text), "{text}");
        }
    }
}
