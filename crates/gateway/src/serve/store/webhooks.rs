//! Webhooks and their deliveries.
//!
//! The position of the next event and the new deliveries change in one transaction. So a server that is killed
//! sends an event again at most, and never forgets one.

use belljar_model::caller::{Principal, TenantId};
use rusqlite::{Connection, OptionalExtension as _, Row, params};

use super::{Millis, Store, StoreError, TenantKey, invalid, millis, parsed, stored};

/// A webhook of a tenant. `key.1` is its name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct WebhookRow {
    pub(crate) key: TenantKey<String>,
    pub(crate) url: String,
    /// The kinds of events, or prefixes such as `task.*`. Empty means all.
    pub(crate) kinds: Vec<String>,
    pub(crate) secret: String,
    pub(crate) allow_private: bool,
    pub(crate) enabled: bool,
    pub(crate) version: u64,
    pub(crate) maker: Principal,
    pub(crate) changed: Millis,
    /// The position of the next event in the ledger.
    pub(crate) next_event: u64,
}

/// The state of a delivery.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum DeliveryState {
    Pending,
    Delivered,
    Failed,
}

impl DeliveryState {
    const ALL: [Self; 3] = [Self::Pending, Self::Delivered, Self::Failed];

    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Pending => "pending",
            Self::Delivered => "delivered",
            Self::Failed => "failed",
        }
    }
}

/// One message to the server of a webhook.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct DeliveryRow {
    /// The webhook.
    pub(crate) key: TenantKey<String>,
    pub(crate) id: String,
    /// The number of the delivery, which grows.
    pub(crate) number: u64,
    pub(crate) kind: String,
    /// The body that is sent.
    pub(crate) body: String,
    pub(crate) created: Millis,
    pub(crate) state: DeliveryState,
    pub(crate) attempts: u64,
    /// The time of the next attempt.
    pub(crate) due: Millis,
    /// The time of the last attempt.
    pub(crate) last: Option<Millis>,
    /// The status of the last response.
    pub(crate) status: Option<u16>,
    /// Why the last attempt failed.
    pub(crate) error: Option<String>,
}

/// A delivery that is created.
#[derive(Debug, Clone)]
pub(crate) struct NewDelivery {
    pub(crate) id: String,
    pub(crate) kind: String,
    pub(crate) body: String,
}

/// The result of an attempt to send a delivery.
#[derive(Debug, Clone)]
pub(crate) struct Attempt {
    pub(crate) at: Millis,
    pub(crate) state: DeliveryState,
    pub(crate) due: Millis,
    pub(crate) status: Option<u16>,
    pub(crate) error: Option<String>,
}

const WEBHOOK: &str =
    "tenant, name, url, kinds, secret, allow_private, enabled, version, maker, changed, next_event";
const DELIVERY: &str =
    "tenant, webhook, id, number, kind, body, created, state, attempts, due, last, status, error";

impl Store {
    /// Returns the webhooks of a tenant by name.
    pub(crate) fn webhooks(&self, tenant: &TenantId) -> Result<Vec<WebhookRow>, StoreError> {
        let sql = format!("SELECT {WEBHOOK} FROM webhook WHERE tenant = ?1 ORDER BY name");
        let connection = self.locked();
        let mut query = connection.prepare_cached(&sql)?;
        let rows = query.query_map([tenant.as_str()], webhook_row)?;
        Ok(rows.collect::<Result<_, _>>()?)
    }

    /// Returns the enabled webhooks of all tenants.
    pub(crate) fn enabled_webhooks(&self) -> Result<Vec<WebhookRow>, StoreError> {
        let sql = format!("SELECT {WEBHOOK} FROM webhook WHERE enabled = 1 ORDER BY tenant, name");
        let connection = self.locked();
        let mut query = connection.prepare_cached(&sql)?;
        let rows = query.query_map([], webhook_row)?;
        Ok(rows.collect::<Result<_, _>>()?)
    }

    pub(crate) fn webhook(
        &self,
        key: &TenantKey<String>,
    ) -> Result<Option<WebhookRow>, StoreError> {
        let sql = format!("SELECT {WEBHOOK} FROM webhook WHERE tenant = ?1 AND name = ?2");
        let connection = self.locked();
        let found = connection.query_row(&sql, params![key.0.as_str(), key.1], webhook_row);
        Ok(found.optional()?)
    }

    /// Stores a new webhook, or replaces the one with the version before. Returns `false` if another request
    /// was faster.
    pub(crate) fn put_webhook(&self, row: &WebhookRow) -> Result<bool, StoreError> {
        let values = params![
            row.key.0.as_str(),
            row.key.1,
            row.url,
            row.kinds.join(" "),
            row.secret,
            row.allow_private,
            row.enabled,
            stored(row.version),
            row.maker.to_string(),
            stored(row.changed),
            stored(row.next_event),
        ];
        let sql = if row.version == 1 {
            format!(
                "INSERT INTO webhook ({WEBHOOK}) VALUES
                 (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11) ON CONFLICT DO NOTHING"
            )
        } else {
            "UPDATE webhook SET url = ?3, kinds = ?4, secret = ?5, allow_private = ?6, enabled = ?7,
             version = ?8, maker = ?9, changed = ?10, next_event = ?11
             WHERE tenant = ?1 AND name = ?2 AND version = ?8 - 1"
                .to_owned()
        };
        Ok(self.locked().execute(&sql, values)? == 1)
    }

    /// Removes a webhook with its deliveries. Returns `false` if the tenant has no such webhook.
    pub(crate) fn remove_webhook(&self, key: &TenantKey<String>) -> Result<bool, StoreError> {
        let mut connection = self.locked();
        let change = connection.transaction()?;
        let of_webhook = params![key.0.as_str(), key.1];
        change.execute("DELETE FROM delivery WHERE tenant = ?1 AND webhook = ?2", of_webhook)?;
        let removed =
            change.execute("DELETE FROM webhook WHERE tenant = ?1 AND name = ?2", of_webhook)?;
        change.commit()?;
        Ok(removed == 1)
    }

    /// Adds the deliveries of events before the position `next_event`. Does nothing if the webhook is gone or
    /// was read further.
    pub(crate) fn add_deliveries(
        &self,
        key: &TenantKey<String>,
        (from, next_event): (u64, u64),
        deliveries: &[NewDelivery],
        now: Millis,
    ) -> Result<(), StoreError> {
        let mut connection = self.locked();
        let change = connection.transaction()?;
        let moved = change.execute(
            "UPDATE webhook SET next_event = ?3 WHERE tenant = ?1 AND name = ?2 AND next_event = ?4",
            params![key.0.as_str(), key.1, stored(next_event), stored(from)],
        )?;
        if moved == 1 {
            deliveries.iter().try_for_each(|delivery| insert(&change, key, delivery, now))?;
        }
        Ok(change.commit()?)
    }

    /// Adds a delivery that belongs to no event, and returns it. `None` if the webhook is gone.
    pub(crate) fn add_delivery(
        &self,
        key: &TenantKey<String>,
        delivery: &NewDelivery,
        now: Millis,
    ) -> Result<Option<DeliveryRow>, StoreError> {
        let mut connection = self.locked();
        let change = connection.transaction()?;
        let exists: i64 = change.query_row(
            "SELECT count(*) FROM webhook WHERE tenant = ?1 AND name = ?2",
            params![key.0.as_str(), key.1],
            |row| row.get(0),
        )?;
        if exists == 0 {
            return Ok(None);
        }
        insert(&change, key, delivery, now)?;
        let sql = format!("SELECT {DELIVERY} FROM delivery WHERE id = ?1");
        let added = change.query_row(&sql, [&delivery.id], delivery_row)?;
        change.commit()?;
        Ok(Some(added))
    }

    /// Returns the deliveries of a webhook, the newest first, before a number.
    pub(crate) fn deliveries(
        &self,
        key: &TenantKey<String>,
        before: Option<u64>,
        limit: usize,
    ) -> Result<Vec<DeliveryRow>, StoreError> {
        let sql = format!(
            "SELECT {DELIVERY} FROM delivery WHERE tenant = ?1 AND webhook = ?2 AND number < ?3
             ORDER BY number DESC LIMIT ?4"
        );
        let connection = self.locked();
        let mut query = connection.prepare_cached(&sql)?;
        let before = stored(before.unwrap_or(u64::MAX));
        let limit = i64::try_from(limit).unwrap_or(i64::MAX);
        let of_webhook = params![key.0.as_str(), key.1, before, limit];
        let rows = query.query_map(of_webhook, delivery_row)?;
        Ok(rows.collect::<Result<_, _>>()?)
    }

    /// Returns the number of deliveries of a webhook that are not sent yet.
    pub(crate) fn pending_deliveries(&self, key: &TenantKey<String>) -> Result<u64, StoreError> {
        let count: i64 = self.locked().query_row(
            "SELECT count(*) FROM delivery
             WHERE tenant = ?1 AND webhook = ?2 AND state = 'pending'",
            params![key.0.as_str(), key.1],
            |row| row.get(0),
        )?;
        Ok(u64::try_from(count).unwrap_or(0))
    }

    /// Returns deliveries of enabled webhooks that are due, the oldest first.
    pub(crate) fn due_deliveries(
        &self,
        now: Millis,
        limit: usize,
    ) -> Result<Vec<DeliveryRow>, StoreError> {
        let sql = format!(
            "SELECT {DELIVERY} FROM delivery
             WHERE state = 'pending' AND due <= ?1 AND EXISTS (SELECT 1 FROM webhook
                WHERE webhook.tenant = delivery.tenant AND name = webhook AND enabled = 1)
             ORDER BY due, number LIMIT ?2"
        );
        let connection = self.locked();
        let mut query = connection.prepare_cached(&sql)?;
        let limit = i64::try_from(limit).unwrap_or(i64::MAX);
        let rows = query.query_map(params![stored(now), limit], delivery_row)?;
        Ok(rows.collect::<Result<_, _>>()?)
    }

    /// Stores the result of an attempt.
    pub(crate) fn finish_attempt(&self, id: &str, attempt: &Attempt) -> Result<(), StoreError> {
        self.locked().execute(
            "UPDATE delivery SET attempts = attempts + 1, last = ?2, state = ?3, due = ?4,
             status = ?5, error = ?6 WHERE id = ?1",
            params![
                id,
                stored(attempt.at),
                attempt.state.name(),
                stored(attempt.due),
                attempt.status,
                attempt.error,
            ],
        )?;
        Ok(())
    }

    /// Removes deliveries that ended before a time.
    pub(crate) fn remove_old_deliveries(&self, before: Millis) -> Result<(), StoreError> {
        self.locked().execute(
            "DELETE FROM delivery WHERE state <> 'pending' AND created < ?1",
            [stored(before)],
        )?;
        Ok(())
    }
}

fn insert(
    connection: &Connection,
    key: &TenantKey<String>,
    delivery: &NewDelivery,
    now: Millis,
) -> rusqlite::Result<()> {
    connection.execute(
        "INSERT INTO delivery (tenant, webhook, id, kind, body, created, state, attempts, due)
         VALUES (?1, ?2, ?3, ?4, ?5, ?6, 'pending', 0, ?6)",
        params![key.0.as_str(), key.1, delivery.id, delivery.kind, delivery.body, stored(now)],
    )?;
    Ok(())
}

fn webhook_row(row: &Row<'_>) -> rusqlite::Result<WebhookRow> {
    let kinds: String = row.get(3)?;
    Ok(WebhookRow {
        key: TenantKey(parsed(row, 0)?, row.get(1)?),
        url: row.get(2)?,
        kinds: kinds.split_whitespace().map(str::to_owned).collect(),
        secret: row.get(4)?,
        allow_private: row.get(5)?,
        enabled: row.get(6)?,
        version: millis(row, 7)?,
        maker: parsed(row, 8)?,
        changed: millis(row, 9)?,
        next_event: millis(row, 10)?,
    })
}

fn delivery_row(row: &Row<'_>) -> rusqlite::Result<DeliveryRow> {
    let state: String = row.get(7)?;
    let state = DeliveryState::ALL.into_iter().find(|known| known.name() == state);
    Ok(DeliveryRow {
        key: TenantKey(parsed(row, 0)?, row.get(1)?),
        id: row.get(2)?,
        number: millis(row, 3)?,
        kind: row.get(4)?,
        body: row.get(5)?,
        created: millis(row, 6)?,
        state: state.ok_or_else(|| invalid(7))?,
        attempts: millis(row, 8)?,
        due: millis(row, 9)?,
        last: row.get::<_, Option<i64>>(10)?.and_then(|it| Millis::try_from(it).ok()),
        status: row.get(11)?,
        error: row.get(12)?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn webhook(tenant: &str) -> WebhookRow {
        WebhookRow {
            key: TenantKey(tenant.parse().unwrap(), "ci".to_owned()),
            url: "https://hooks.example/".to_owned(),
            kinds: vec!["task.*".to_owned(), "box.started".to_owned()],
            secret: "s".repeat(32),
            allow_private: false,
            enabled: true,
            version: 1,
            maker: "user:1".parse().unwrap(),
            changed: 5,
            next_event: 7,
        }
    }

    fn new(id: &str) -> NewDelivery {
        NewDelivery { id: id.to_owned(), kind: "task.done".to_owned(), body: "{}".to_owned() }
    }

    #[test]
    fn webhook_is_replaced_only_from_the_version_before_and_deliveries_are_added_once() {
        let dir = tempfile::tempdir().unwrap();
        let store = Store::open(&dir.path().join("gateway.db")).unwrap();
        let row = webhook("local");
        assert!(store.put_webhook(&row).unwrap());
        assert!(!store.put_webhook(&row).unwrap(), "it exists");
        assert!(!store.put_webhook(&WebhookRow { version: 3, ..row.clone() }).unwrap());
        let second = WebhookRow { version: 2, ..row.clone() };
        assert!(store.put_webhook(&second).unwrap());
        assert_eq!(store.webhook(&row.key).unwrap(), Some(second));
        for _ in 0..2 {
            store.add_deliveries(&row.key, (7, 9), &[new("a"), new("b")], 10).unwrap();
        }
        let ids = |rows: Vec<DeliveryRow>| rows.into_iter().map(|row| row.id).collect::<Vec<_>>();
        assert_eq!(ids(store.deliveries(&row.key, None, 9).unwrap()), ["b", "a"]);
        assert_eq!(ids(store.due_deliveries(9, 9).unwrap()), [""; 0]);
        assert_eq!(ids(store.due_deliveries(10, 9).unwrap()), ["a", "b"]);
        let attempt = Attempt {
            at: 11,
            state: DeliveryState::Delivered,
            due: 11,
            status: Some(204),
            error: None,
        };
        store.finish_attempt("a", &attempt).unwrap();
        assert_eq!(ids(store.due_deliveries(99, 9).unwrap()), ["b"]);
        assert_eq!(store.pending_deliveries(&row.key).unwrap(), 1);
        store.remove_old_deliveries(99).unwrap();
        assert_eq!(ids(store.deliveries(&row.key, None, 9).unwrap()), ["b"]);
    }

    #[test]
    fn f08_webhook_of_another_tenant_is_unknown() {
        let dir = tempfile::tempdir().unwrap();
        let store = Store::open(&dir.path().join("gateway.db")).unwrap();
        let (own, other) = (webhook("local"), webhook("team-7"));
        assert!(store.put_webhook(&own).unwrap());
        store.add_deliveries(&own.key, (7, 8), &[new("a")], 1).unwrap();
        assert_eq!(store.webhook(&other.key).unwrap(), None);
        assert_eq!(store.webhooks(&other.key.0).unwrap(), []);
        assert_eq!(store.deliveries(&other.key, None, 9).unwrap(), []);
        assert!(!store.remove_webhook(&other.key).unwrap());
        assert!(store.add_delivery(&other.key, &new("b"), 1).unwrap().is_none());
        assert_eq!(store.deliveries(&own.key, None, 9).unwrap().len(), 1, "control");
        assert!(store.remove_webhook(&own.key).unwrap());
        assert_eq!(store.due_deliveries(99, 9).unwrap(), []);
    }
}
