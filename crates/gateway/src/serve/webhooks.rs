//! Sends the events of tenants to the servers that their webhooks name.
//!
//! ```text
//! ledger ──▶ new deliveries ──▶ attempts ──▶ delivered
//!              (gateway.db)        └─ failed: again later, for 24 hours
//! ```
//! A message has ids and a link, and no content. Its signature covers the time of the attempt and the body. An
//! event can arrive twice after a failure of the server, with the same id.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use aws_lc_rs::hmac;
use belljar_engine::moment;
use belljar_engine::record::feed::{EventFeed, FeedEvent};
use belljar_engine::server::webhooks::{Endpoint, Reach, WebhookClient};
use belljar_model::caller::{Caller, TenantId};
use serde::Serialize;
use tokio::task::JoinSet;

use super::app::App;
use super::call::blocking;
use super::problem::Problem;
use super::store::{Attempt, DeliveryRow, DeliveryState, Millis, NewDelivery, WebhookRow};

/// The time between two looks at the ledgers and at the deliveries that are due.
const POLL: Duration = Duration::from_secs(1);
/// The number of events that are read at once, and of batches for one webhook in a round.
const BATCH: usize = 128;
const MAX_BATCHES: usize = 8;
/// The maximum number of deliveries of a webhook that wait. Further events are read later.
const MAX_PENDING: u64 = 1000;
/// The maximum number of attempts at once.
const MAX_SENDING: usize = 16;
/// The time for which a delivery is tried, and after which events are too old to be sent.
const LIFETIME: Millis = 24 * 60 * 60 * 1000;
/// The time for which deliveries that ended are kept.
const KEPT: Millis = 7 * LIFETIME;
/// The maximum time between two attempts.
const MAX_PAUSE: Millis = 60 * 60 * 1000;
/// The kind of a message that was sent to try a webhook.
pub(super) const TEST: &str = "webhook.test";

/// The ledgers that webhooks read.
type Feeds = HashMap<TenantId, EventFeed>;

/// Sends webhooks until the server stops. `retry` is the time before the second attempt.
pub(super) async fn run(app: &Arc<App>, retry: Duration) {
    let mut feeds = Feeds::new();
    loop {
        feeds = collected(app, feeds).await;
        let sending = async {
            if send_due(app, retry).await.is_err() {
                tracing::error!("webhooks cannot be sent");
            }
        };
        tokio::select! {
            () = sending => {}
            () = app.stop.cancelled() => return,
        }
        tokio::select! {
            () = tokio::time::sleep(POLL) => {}
            () = app.stop.cancelled() => return,
        }
    }
}

/// Makes deliveries of the new events of all ledgers.
async fn collected(app: &Arc<App>, mut feeds: Feeds) -> Feeds {
    let shared = Arc::clone(app);
    let collected = blocking(app, move || {
        let now = shared.now();
        shared.store.remove_old_deliveries(now.saturating_sub(KEPT))?;
        for webhook in shared.store.enabled_webhooks()? {
            // The ledger of one tenant does not keep the others from being read.
            if collect(&shared, &mut feeds, &webhook, now).is_err() {
                feeds.remove(&webhook.key.0);
                let tenant = &webhook.key.0;
                tracing::error!(%tenant, "the events for a webhook cannot be read");
            }
        }
        Ok(feeds)
    });
    collected.await.unwrap_or_default()
}

fn collect(app: &App, feeds: &mut Feeds, webhook: &WebhookRow, now: Millis) -> Result<(), Problem> {
    let tenant = &webhook.key.0;
    if feeds.get(tenant).is_none_or(|feed| !feed.is_current()) {
        let scope = app.engine.of(&Caller { tenant: tenant.clone(), ..app.owner.clone() })?;
        let Some(feed) = EventFeed::open(&scope)? else { return Ok(()) };
        feeds.insert(tenant.clone(), feed);
    }
    let Some(feed) = feeds.get_mut(tenant) else { return Ok(()) };
    feed.refresh()?;
    let mut next = webhook.next_event;
    for _ in 0..MAX_BATCHES {
        if app.store.pending_deliveries(&webhook.key)? >= MAX_PENDING {
            return Ok(());
        }
        let events = feed.events(next, BATCH)?;
        let Some(last) = events.last() else { return Ok(()) };
        let after = last.index + 1;
        let is_new = |event: &&FeedEvent| event.time / 1_000_000 + LIFETIME > now;
        let wanted = events.iter().filter(is_new).filter(|it| includes(&webhook.kinds, &it.kind));
        let deliveries: Vec<NewDelivery> = wanted
            .map(|event| delivery(&app.address.url, webhook, Some(event)))
            .collect::<Result<_, _>>()?;
        app.store.add_deliveries(&webhook.key, (next, after), &deliveries, now)?;
        next = after;
    }
    Ok(())
}

/// Returns the position of the next event in the ledger of a tenant. Blocks.
pub(super) fn end_of_ledger(app: &App, tenant: &TenantId) -> Result<u64, Problem> {
    let scope = app.engine.of(&Caller { tenant: tenant.clone(), ..app.owner.clone() })?;
    Ok(EventFeed::open(&scope)?.as_mut().map_or(Ok(0), EventFeed::refresh)?)
}

/// Returns whether a list of kinds includes a kind. An empty list includes all kinds.
fn includes(kinds: &[String], kind: &str) -> bool {
    let matches = |wanted: &String| match wanted.strip_suffix(".*") {
        Some(prefix) => kind.strip_prefix(prefix).is_some_and(|rest| rest.starts_with('.')),
        None => wanted == kind,
    };
    kinds.is_empty() || kinds.iter().any(matches)
}

/// The body of a message.
#[derive(Serialize)]
struct Message<'a> {
    id: &'a str,
    tenant: &'a str,
    webhook: &'a str,
    kind: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    event: Option<EventMessage<'a>>,
    link: String,
}

/// An event without its content.
#[derive(Serialize)]
struct EventMessage<'a> {
    index: u64,
    time: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    run: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none", rename = "box")]
    box_name: Option<&'a str>,
}

/// Makes a message about an event, or one that tries the webhook.
pub(super) fn delivery(
    url: &str,
    webhook: &WebhookRow,
    event: Option<&FeedEvent>,
) -> Result<NewDelivery, Problem> {
    let mut random = [0; 16];
    getrandom::fill(&mut random)
        .map_err(|_| Problem::internal("the kernel returned no random bytes"))?;
    let id = hex::encode(random);
    let kind = event.map_or(TEST, |event| event.kind.as_str());
    let link = match event {
        Some(event) => format!("{url}/v1/ledger/events/{}", event.index),
        None => format!("{url}/v1/webhooks/{}", webhook.key.1),
    };
    let event = event.map(|event| EventMessage {
        index: event.index,
        time: moment::rfc3339(event.time),
        run: event.run.map(|run| run.to_string()),
        box_name: event.box_name.as_deref(),
    });
    let (tenant, webhook) = (webhook.key.0.as_str(), webhook.key.1.as_str());
    let message = Message { id: &id, tenant, webhook, kind, event, link };
    let body = serde_json::to_string(&message)
        .map_err(|_| Problem::internal("cannot write a message as JSON"))?;
    let kind = kind.to_owned();
    Ok(NewDelivery { id, kind, body })
}

/// Sends the deliveries that are due.
async fn send_due(app: &Arc<App>, retry: Duration) -> Result<(), Problem> {
    let shared = Arc::clone(app);
    let due = blocking(app, move || {
        let due = shared.store.due_deliveries(shared.now(), MAX_SENDING)?;
        let mut sent = Vec::with_capacity(due.len());
        for delivery in due {
            if let Some(webhook) = shared.store.webhook(&delivery.key)? {
                sent.push((webhook, delivery));
            }
        }
        // The root certificates are read only if there is something to send.
        let client = (!sent.is_empty()).then(|| WebhookClient::new(&shared.state)).transpose()?;
        Ok((sent, client))
    });
    let (due, client) = due.await?;
    let Some(client) = client.map(Arc::new) else { return Ok(()) };
    let mut sending = JoinSet::new();
    for (webhook, delivery) in due {
        let (app, client) = (Arc::clone(app), Arc::clone(&client));
        sending.spawn(async move {
            let attempt = attempt(&client, &webhook, &delivery, app.now(), retry).await;
            let shared = Arc::clone(&app);
            let id = delivery.id;
            blocking(&app, move || Ok(shared.store.finish_attempt(&id, &attempt)?)).await
        });
    }
    while let Some(sent) = sending.join_next().await {
        sent.map_err(|_| Problem::internal("an attempt failed"))??;
    }
    Ok(())
}

/// Sends a delivery once.
async fn attempt(
    client: &WebhookClient,
    webhook: &WebhookRow,
    delivery: &DeliveryRow,
    now: Millis,
    retry: Duration,
) -> Attempt {
    let sent = match webhook.url.parse::<Endpoint>() {
        Ok(to) => {
            let reach = if webhook.allow_private { Reach::Private } else { Reach::Public };
            let headers = headers(webhook, delivery, now / 1000);
            let body = delivery.body.clone().into_bytes();
            client.post(&to, reach, &headers, body).await.map_err(|error| error.to_string())
        }
        Err(error) => Err(error.to_string()),
    };
    let (status, error) = match sent {
        Ok(status @ 200..=299) => {
            let state = DeliveryState::Delivered;
            return Attempt { at: now, state, due: now, status: Some(status), error: None };
        }
        Ok(status @ 300..=399) => (Some(status), "a redirect is not followed".to_owned()),
        Ok(status) => (Some(status), "the server refused the message".to_owned()),
        Err(error) => (None, error),
    };
    let due = now.saturating_add(pause(retry, delivery.attempts));
    let is_over = due > delivery.created.saturating_add(LIFETIME);
    let state = if is_over { DeliveryState::Failed } else { DeliveryState::Pending };
    Attempt { at: now, state, due, status, error: Some(error) }
}

/// Returns the time before the next attempt, which doubles each time.
fn pause(retry: Duration, attempts: u64) -> Millis {
    let first = u64::try_from(retry.as_millis()).unwrap_or(MAX_PAUSE);
    let factor = u32::try_from(attempts).ok().and_then(|attempts| 1_u64.checked_shl(attempts));
    factor.and_then(|factor| first.checked_mul(factor)).map_or(MAX_PAUSE, |it| it.min(MAX_PAUSE))
}

/// Returns the headers of a message. The signature has the time of the attempt, so that a receiver can refuse a
/// message that somebody recorded and sends again.
fn headers(
    webhook: &WebhookRow,
    delivery: &DeliveryRow,
    seconds: u64,
) -> [(&'static str, String); 5] {
    let signature = signature(&webhook.secret, seconds, &delivery.body);
    [
        ("content-type", "application/json".to_owned()),
        ("user-agent", "belljar".to_owned()),
        ("x-belljar-delivery", delivery.id.clone()),
        ("x-belljar-event", delivery.kind.clone()),
        ("x-belljar-signature", format!("t={seconds},v1={signature}")),
    ]
}

/// Signs the time and the body, separated by a dot.
fn signature(secret: &str, seconds: u64, body: &str) -> String {
    let key = hmac::Key::new(hmac::HMAC_SHA256, secret.as_bytes());
    hex::encode(hmac::sign(&key, format!("{seconds}.{body}").as_bytes()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kinds_of_a_webhook_are_names_or_prefixes() {
        let kinds =
            |texts: &[&str]| texts.iter().map(|text| (*text).to_owned()).collect::<Vec<_>>();
        for (list, kind, expected) in [
            (&[][..], "task.done", true),
            (&["task.done"], "task.done", true),
            (&["task.done"], "task.done.x", false),
            (&["task.*"], "task.done", true),
            (&["task.*"], "tasks.done", false),
            (&["task.*"], "task", false),
            (&["box.started", "task.*"], "task.x", true),
        ] {
            assert_eq!(includes(&kinds(list), kind), expected, "{list:?} {kind}");
        }
    }

    #[test]
    fn pause_doubles_from_the_first_and_is_at_most_an_hour() {
        let retry = Duration::from_secs(30);
        assert_eq!(pause(retry, 0), 30_000);
        assert_eq!(pause(retry, 3), 240_000);
        for attempts in [7, 63, 64, 5000, u64::MAX] {
            assert_eq!(pause(retry, attempts), MAX_PAUSE, "{attempts}");
        }
    }

    #[test]
    fn signature_depends_on_secret_time_and_body() {
        let known = signature("key", 1, "body");
        // printf '1.body' | openssl dgst -sha256 -hmac key
        assert_eq!(known.len(), 64);
        for other in
            [signature("kez", 1, "body"), signature("key", 2, "body"), signature("key", 1, "b")]
        {
            assert_ne!(known, other);
        }
    }
}
