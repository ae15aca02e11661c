//! The secrets of the tenant. No page shows a value.

use askama::Template;
use serde::Deserialize;

use super::html;
use crate::frame::Frame;
use crate::text::{Moment, segment};
use crate::{Api, List, PageRequest, Refusal, Text, path_with, read_if_permitted};

/// A secret, as `GET /v1/secrets` returns it.
#[derive(Debug, Deserialize)]
struct Secret {
    name: Text,
    is_set: bool,
    version: Option<String>,
    changed: Option<String>,
    hosts: Vec<Text>,
    slots: Vec<Text>,
    declared: Option<String>,
}

struct SecretRow {
    name: Text,
    path: String,
    is_set: bool,
    version: Option<String>,
    changed: Option<Moment>,
    hosts: Vec<Text>,
    slots: Vec<Text>,
    /// Hosts and slots of the form of this secret; `None` if another place declares them.
    form: Option<(Text, Text)>,
    declared: &'static str,
}

impl SecretRow {
    fn of(secret: Secret, now: u64) -> Self {
        let joined = |texts: &[Text]| {
            let texts: Vec<&str> = texts.iter().map(Text::as_str).collect();
            Text::from(texts.join(" "))
        };
        let is_free = matches!(secret.declared.as_deref(), None | Some("api"));
        Self {
            path: format!("/v1/secrets/{}", segment(secret.name.as_str())),
            form: is_free.then(|| (joined(&secret.hosts), joined(&secret.slots))),
            declared: match secret.declared.as_deref() {
                Some("policy") => "the policy",
                Some("api") => "with its value",
                Some("built-in") => "built in",
                _ => "not declared",
            },
            changed: secret.changed.as_deref().map(|time| Moment::of(time, now)),
            name: secret.name,
            is_set: secret.is_set,
            version: secret.version,
            hosts: secret.hosts,
            slots: secret.slots,
        }
    }
}

#[derive(Template)]
#[template(path = "secrets.html")]
struct Secrets {
    frame: Frame,
    /// `None` if the person may not see secrets.
    rows: Option<Vec<SecretRow>>,
    q: Text,
    next: Option<String>,
}

pub(super) async fn page(api: &impl Api, request: &PageRequest) -> Result<String, Refusal> {
    let frame = Frame::read(api, request, "Secrets").await?;
    let (q, cursor) = (request.query("q"), request.query("cursor"));
    let path = path_with("/v1/secrets", &[("limit", "50"), ("q", q), ("cursor", cursor)]);
    let list: Option<List<Secret>> = read_if_permitted(api, &path).await?;
    let (rows, next) = match list {
        Some(list) => (Some(list.items), list.next),
        None => (None, None),
    };
    let row = |secret| SecretRow::of(secret, request.now);
    html(&Secrets {
        frame,
        rows: rows.map(|items| items.into_iter().map(row).collect()),
        q: Text::from(q),
        next: next.map(|next| path_with("/secrets", &[("q", q), ("cursor", &next)])),
    })
}
