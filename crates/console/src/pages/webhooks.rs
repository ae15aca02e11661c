//! Webhooks of the tenant, and what the server sent to them.

use askama::Template;
use serde::Deserialize;

use super::html;
use crate::frame::Frame;
use crate::text::{Moment, principal, segment};
use crate::{Api, List, PageRequest, Refusal, Text, path_with, read, read_if_permitted};

/// A webhook, as `GET /v1/webhooks` returns it.
#[derive(Debug, Deserialize)]
struct Webhook {
    name: String,
    url: Text,
    kinds: Vec<Text>,
    allow_private: bool,
    enabled: bool,
    maker: String,
    changed: String,
    version: String,
}

struct WebhookRow {
    name: Text,
    path: String,
    api: String,
    url: Text,
    kinds: Text,
    allow_private: bool,
    enabled: bool,
    maker: Text,
    changed: Moment,
    version: String,
}

impl WebhookRow {
    fn of(webhook: Webhook, now: u64) -> Self {
        let name = segment(&webhook.name);
        let kinds: Vec<&str> = webhook.kinds.iter().map(Text::as_str).collect();
        Self {
            path: format!("/webhooks/{name}"),
            api: format!("/v1/webhooks/{name}"),
            name: Text::from(webhook.name),
            url: webhook.url,
            kinds: Text::from(kinds.join(" ")),
            allow_private: webhook.allow_private,
            enabled: webhook.enabled,
            maker: principal(&webhook.maker),
            changed: Moment::of(&webhook.changed, now),
            version: webhook.version,
        }
    }
}

#[derive(Template)]
#[template(path = "webhooks.html")]
struct Webhooks {
    frame: Frame,
    /// `None` if the person may not see webhooks.
    rows: Option<Vec<WebhookRow>>,
    next: Option<String>,
}

pub(super) async fn page(api: &impl Api, request: &PageRequest) -> Result<String, Refusal> {
    let frame = Frame::read(api, request, "Webhooks").await?;
    let cursor = request.query("cursor");
    let path = path_with("/v1/webhooks", &[("limit", "50"), ("cursor", cursor)]);
    let list: Option<List<Webhook>> = read_if_permitted(api, &path).await?;
    let (rows, next) = match list {
        Some(list) => (Some(list.items), list.next),
        None => (None, None),
    };
    let row = |webhook| WebhookRow::of(webhook, request.now);
    html(&Webhooks {
        frame,
        rows: rows.map(|items| items.into_iter().map(row).collect()),
        next: next.map(|next| path_with("/webhooks", &[("cursor", &next)])),
    })
}

/// A message, as `GET /v1/webhooks/{webhook}/deliveries` returns it.
#[derive(Debug, Deserialize)]
struct Delivery {
    id: Text,
    kind: Text,
    created: String,
    state: String,
    attempts: u64,
    next: Option<String>,
    status: Option<u16>,
    error: Option<Text>,
}

struct DeliveryRow {
    id: Text,
    kind: Text,
    created: Moment,
    class: &'static str,
    icon: &'static str,
    state: Text,
    attempts: u64,
    next: Option<Moment>,
    answer: Text,
}

impl DeliveryRow {
    fn of(delivery: Delivery, now: u64) -> Self {
        let (class, icon) = match &*delivery.state {
            "delivered" => ("ok", "ok"),
            "pending" => ("warn", "wait"),
            _ => ("bad", "no"),
        };
        let answer = match (delivery.status, delivery.error) {
            (Some(status), Some(error)) => Text::from(format!("status {status}: {error}")),
            (Some(status), None) => Text::from(format!("status {status}")),
            (None, Some(error)) => error,
            (None, None) => Text::from("none yet"),
        };
        Self {
            id: delivery.id,
            kind: delivery.kind,
            created: Moment::of(&delivery.created, now),
            class,
            icon,
            state: Text::from(delivery.state),
            attempts: delivery.attempts,
            next: delivery.next.as_deref().map(|time| Moment::of(time, now)),
            answer,
        }
    }
}

#[derive(Template)]
#[template(path = "webhook.html")]
struct WebhookPage {
    frame: Frame,
    row: WebhookRow,
    deliveries: Vec<DeliveryRow>,
    next: Option<String>,
}

pub(super) async fn one(api: &impl Api, request: &PageRequest) -> Result<String, Refusal> {
    let (name, cursor) = (request.param("webhook"), request.query("cursor"));
    let frame = Frame::read(api, request, format!("Webhook {name}")).await?;
    let path = format!("/v1/webhooks/{}", segment(name));
    let webhook: Webhook = read(api, &path).await?;
    let row = WebhookRow::of(webhook, request.now);
    let path = path_with(&format!("{path}/deliveries"), &[("limit", "50"), ("cursor", cursor)]);
    let list: List<Delivery> = read(api, &path).await?;
    let next = list.next.map(|next| path_with(&row.path, &[("cursor", &next)]));
    let deliveries = list.items.into_iter().map(|it| DeliveryRow::of(it, request.now)).collect();
    html(&WebhookPage { frame, row, deliveries, next })
}
