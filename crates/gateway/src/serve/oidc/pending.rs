//! Logins that have started: the cookie of the browser, and the values that are derived from it.
//!
//! The server stores nothing when a login starts, because everyone can start one. State, nonce and verifier are
//! derived from the random cookie with the key of the installation, so only this server knows them, and they
//! belong to this browser.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use http::HeaderValue;
use zeroize::Zeroizing;

use crate::auth::api_token::{hash, is_same};
use crate::serve::problem::Problem;
use crate::serve::session::{cookie, random};
use crate::serve::signing::{Purpose, SigningKey};
use crate::serve::store::Millis;

/// The cookie of a login. It is sent when the provider sends the browser back, which strict cookies are not.
pub(crate) const LOGIN_COOKIE: &str = "__Host-belljar-login";

/// The time in which a login must end.
pub(crate) const LOGIN_TIME: Millis = 10 * 60 * 1000;

/// The number of random bytes of a login.
const RANDOM: usize = 32;

/// A login that has started.
pub(crate) struct Pending {
    /// The value of the cookie: the time of the start and a random text.
    cookie: Zeroizing<String>,
    started: Millis,
}

impl Pending {
    /// Starts a login.
    pub(crate) fn new(now: Millis) -> Result<Self, Problem> {
        let random = URL_SAFE_NO_PAD.encode(random::<RANDOM>()?.as_slice());
        Ok(Self { cookie: Zeroizing::new(format!("{now}.{random}")), started: now })
    }

    /// Returns the login of a cookie and the state that the provider sent back. `None` if they do not belong
    /// together or if the login took too long.
    pub(crate) fn find(cookie: &str, state: &str, key: &SigningKey, now: Millis) -> Option<Self> {
        let (started, random) = cookie.split_once('.')?;
        if URL_SAFE_NO_PAD.decode(random).ok()?.len() != RANDOM {
            return None;
        }
        let pending =
            Self { cookie: Zeroizing::new(cookie.to_owned()), started: started.parse().ok()? };
        // The state is made from the whole cookie, so its time is that of this server.
        let is_own = is_same(pending.state(key).as_bytes(), state.as_bytes());
        let is_recent = pending.started <= now && now < pending.expires();
        (is_own && is_recent).then_some(pending)
    }

    pub(crate) const fn started(&self) -> Millis {
        self.started
    }

    pub(crate) const fn expires(&self) -> Millis {
        self.started.saturating_add(LOGIN_TIME)
    }

    /// Returns a digest that identifies the login.
    pub(crate) fn digest(&self) -> [u8; 32] {
        hash(&self.cookie)
    }

    pub(crate) fn state(&self, key: &SigningKey) -> String {
        key.sign(Purpose::LoginState, self.cookie.as_bytes())
    }

    pub(crate) fn nonce(&self, key: &SigningKey) -> String {
        key.sign(Purpose::LoginNonce, self.cookie.as_bytes())
    }

    /// Returns the secret that proves to the provider that the code is used by who requested it.
    pub(crate) fn verifier(&self, key: &SigningKey) -> Zeroizing<String> {
        key.derive(Purpose::LoginVerifier, self.cookie.as_bytes())
    }

    /// Returns the header that stores the login in the browser.
    pub(crate) fn set_cookie(&self) -> Result<HeaderValue, Problem> {
        lax_cookie(LOGIN_COOKIE, &self.cookie, LOGIN_TIME / 1000)
    }
}

/// Returns a header that stores a cookie for navigation from other sites. The age 0 removes the cookie.
pub(crate) fn lax_cookie(name: &str, value: &str, age: u64) -> Result<HeaderValue, Problem> {
    cookie(&Zeroizing::new(format!(
        "{name}={value}; Path=/; Secure; HttpOnly; SameSite=Lax; Max-Age={age}"
    )))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn f17_login_belongs_to_its_cookie_state_server_and_time() {
        let key = SigningKey::new(&[1; 32]);
        let (first, second) = (Pending::new(1000).unwrap(), Pending::new(1000).unwrap());
        let state = first.state(&key);
        let found = Pending::find(&first.cookie, &state, &key, 1001).unwrap();
        assert_eq!(found.nonce(&key), first.nonce(&key), "control");
        assert_ne!(first.nonce(&key), second.nonce(&key));
        assert_ne!(first.nonce(&key), state);
        assert!((43..=128).contains(&first.verifier(&key).len()), "as RFC 7636 requires");
        let later = first.cookie.replacen("1000", "9000", 1);
        for (cookie, state, now) in [
            (second.cookie.as_str(), state.as_str(), 1001),
            (&first.cookie, &second.state(&key), 1001),
            (&first.cookie, &first.state(&SigningKey::new(&[2; 32])), 1001),
            (&first.cookie, "", 1001),
            (&first.cookie, &state, 1000 + LOGIN_TIME),
            (&first.cookie, &state, 999),
            (&later, &state, 9001),
            ("", &state, 1001),
            ("1000.", &state, 1001),
            ("1000", &state, 1001),
        ] {
            assert!(Pending::find(cookie, state, &key, now).is_none(), "{cookie} {state} {now}");
        }
    }
}
