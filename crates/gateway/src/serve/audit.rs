//! Records administrative acts and denials in the ledger, before the act.
//!
//! Acts on the objects of a tenant are in the ledger of the tenant. Logins and tenants are in the ledger
//! `system`.

use std::time::Instant;

use belljar_engine::server::{self, AccessChange, AccessDenial};
use belljar_model::caller::{Caller, Principal, TenantId};
use http::Method;

use super::app::App;
use super::identity::Identity;
use super::problem::Problem;
use crate::auth::api_token::{ApiToken, is_same};

/// The name of the tenant whose ledger has logins and tenants. It has no members.
const SYSTEM: &str = "system";

/// Returns the tenant whose ledger has logins and tenants.
pub(crate) fn system_tenant() -> TenantId {
    SYSTEM.parse().unwrap_or_default()
}

/// An administrative act that is about to happen.
#[derive(Debug, Clone)]
pub(crate) struct Change {
    act: &'static str,
    /// The object that the act concerns.
    pub(crate) subject: String,
    by: Principal,
    tenant: TenantId,
    from: String,
    pub(crate) details: Vec<String>,
}

impl Change {
    pub(crate) fn new(
        act: &'static str,
        subject: &str,
        by: &Principal,
        tenant: &TenantId,
        from: &str,
    ) -> Self {
        let (by, tenant, from) = (by.clone(), tenant.clone(), from.to_owned());
        Self { act, subject: subject.to_owned(), by, tenant, from, details: Vec::new() }
    }

    /// Names the object of the act, when it is found after the request was read.
    pub(crate) fn set_subject(&mut self, subject: &str) {
        subject.clone_into(&mut self.subject);
    }

    /// Records the act in the ledger of its tenant. Blocks until the event is on disk.
    pub(crate) fn record(&self, app: &App) -> Result<(), Problem> {
        self.record_for(app, self.tenant.clone())
    }

    /// Records the act in the ledger `system`. Blocks until the event is on disk.
    pub(crate) fn record_in_system(&self, app: &App) -> Result<(), Problem> {
        self.record_for(app, system_tenant())
    }

    fn record_for(&self, app: &App, ledger: TenantId) -> Result<(), Problem> {
        let caller =
            Caller { principal: self.by.clone(), tenant: ledger, session: None, client: None };
        let change = AccessChange {
            act: self.act,
            subject: &self.subject,
            tenant: &self.tenant,
            from: &self.from,
            details: &self.details,
        };
        let start = Instant::now();
        server::record_access_change(&app.engine.of(&caller)?, &change)?;
        app.metrics.ledger.observe(start.elapsed().as_secs_f64());
        Ok(())
    }
}

/// Records that a request of a known sender was denied. Blocks until the event is on disk.
pub(crate) fn record_denial(
    app: &App,
    identity: &Identity,
    (method, route): (&Method, &str),
    reason: &str,
    from: &str,
) -> Result<(), Problem> {
    let denial = AccessDenial { method: method.as_str(), route, reason, from };
    Ok(server::record_access_denial(&app.engine.of(&identity.caller)?, &denial)?)
}

/// Revokes a token that was part of an address, if the text is a valid token. Blocks.
pub(crate) fn revoke_leaked(app: &App, text: &str, from: &str) -> Result<(), Problem> {
    let Some(token) = ApiToken::parse(text) else { return Ok(()) };
    let Some((row, _)) = app.store.token(&token.id)? else { return Ok(()) };
    if row.revoked.is_some() || !is_same(&row.hash, &token.hash()) {
        return Ok(());
    }
    let mut change = Change::new("token.revoked", row.key.1.as_str(), &row.maker, &row.key.0, from);
    change.details = vec!["the token was part of an address".to_owned()];
    change.record(app)?;
    app.store.revoke(&row.key, app.now())?;
    Ok(())
}
