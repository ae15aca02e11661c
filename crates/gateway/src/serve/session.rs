//! New sessions and their cookies.
//!
//! **Invariant:** a session starts with a secret of its own at each login and each change of the tenant, so a
//! secret that somebody else chose or knew before is never that of a session.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use belljar_model::caller::Principal;
use http::HeaderValue;
use zeroize::Zeroizing;

use super::app::App;
use super::audit::Change;
use super::identity::COOKIE_NAME;
use super::problem::Problem;
use super::store::{Millis, SessionRow, TenantKey};
use crate::auth::api_token;

const DAY: Millis = 24 * 60 * 60 * 1000;
/// The maximum length of a session.
const SESSION_TIME: Millis = DAY;
/// The maximum length of a session on the loopback interface.
const LOOPBACK_SESSION_TIME: Millis = 30 * DAY;

/// A session that was just started, with its secret.
pub(super) struct NewSession {
    secret: Zeroizing<String>,
    row: SessionRow,
}

impl NewSession {
    fn new(owner: TenantKey<Principal>, host: String) -> Result<Self, Problem> {
        let (id, secret) = (random::<8>()?, random::<32>()?);
        let (id, secret) = (hex::encode(id.as_slice()), URL_SAFE_NO_PAD.encode(secret.as_slice()));
        let row = SessionRow { owner, id, host, created: 0, seen: 0, expires: 0 };
        Ok(Self { secret: Zeroizing::new(secret), row })
    }

    /// Starts a session of a person who has just logged in, after the login was recorded. Blocks.
    pub(super) fn of_login(
        app: &App,
        owner: TenantKey<Principal>,
        host: String,
        (from, details): (&str, Vec<String>),
    ) -> Result<Self, Problem> {
        let mut new = Self::new(owner, host)?;
        let TenantKey(tenant, person) = &new.row.owner;
        let mut change = Change::new("login", &new.row.id, person, tenant, from);
        change.details = details;
        change.record_in_system(app)?;
        let now = app.now();
        let time = if app.address.is_loopback { LOOPBACK_SESSION_TIME } else { SESSION_TIME };
        (new.row.created, new.row.seen) = (now, now);
        new.row.expires = now.saturating_add(time);
        app.store.put_session(api_token::hash(&new.secret), &new.row)?;
        Ok(new)
    }

    /// Starts a session of the same login in another tenant, and ends the session before. The new session
    /// has the age of the login. Blocks.
    pub(super) fn in_tenant(
        app: &App,
        before: &SessionRow,
        owner: TenantKey<Principal>,
    ) -> Result<Self, Problem> {
        let mut new = Self::new(owner, before.host.clone())?;
        (new.row.created, new.row.seen) = (before.created, app.now());
        new.row.expires = before.expires;
        app.store.put_session(api_token::hash(&new.secret), &new.row)?;
        let TenantKey(tenant, _) = &before.owner;
        app.store.end_session(&TenantKey(tenant.clone(), before.id.clone()))?;
        Ok(new)
    }

    /// Returns the value of the header `Set-Cookie` for this session.
    pub(super) fn cookie(&self, now: Millis) -> Result<HeaderValue, Problem> {
        let age = self.row.expires.saturating_sub(now) / 1000;
        cookie(&Zeroizing::new(format!(
            "{COOKIE_NAME}={}; Path=/; Secure; HttpOnly; SameSite=Strict; Max-Age={age}",
            self.secret.as_str()
        )))
    }
}

/// Returns the value of a header `Set-Cookie` that removes the cookie of the session.
pub(super) fn removed_cookie() -> Result<HeaderValue, Problem> {
    cookie(&format!("{COOKIE_NAME}=; Path=/; Secure; HttpOnly; SameSite=Strict; Max-Age=0"))
}

/// Returns the value of a header `Set-Cookie`, which is not logged.
pub(super) fn cookie(text: &str) -> Result<HeaderValue, Problem> {
    let mut value =
        HeaderValue::from_str(text).map_err(|_| Problem::internal("the cookie is invalid"))?;
    value.set_sensitive(true);
    Ok(value)
}

/// Returns random bytes of the kernel.
pub(super) fn random<const N: usize>() -> Result<Zeroizing<[u8; N]>, Problem> {
    let mut bytes = Zeroizing::new([0; N]);
    getrandom::fill(&mut *bytes)
        .map_err(|_| Problem::internal("the kernel returned no random bytes"))?;
    Ok(bytes)
}
