//! Access tokens that the broker fetches with a refresh token or a client secret (RFC 6749).
//!
//! The box has only a placeholder for an access token. This module builds the token request and
//! parses the response; the caller sends and receives them.

use std::fmt;
use std::future::Future;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use belljar_model::net::{ClientAuth, Grant, SecretKind, SecretName, TokenBody, TokenUrl};
use http::header::{ACCEPT, AUTHORIZATION, CONTENT_TYPE};
use http::{HeaderMap, HeaderValue, StatusCode};
use serde::Deserialize;
use tokio::sync::OwnedMutexGuard;
use zeroize::Zeroizing;

use super::percent::{RESERVED, encode};
use super::placeholder_set::Meaning;
use super::plan::{Place, Plan, Use};
use super::value::{Value, ValueError};
use super::{Secret, TooManyTokens, Vault, sealed};
use crate::record::Recorded;

/// The access token of one secret, if it was fetched.
#[derive(Debug, Default)]
pub(super) struct Token {
    state: Mutex<State>,
    /// A lock that is held during a fetch, so that concurrent requests fetch one token.
    fetch_lock: Arc<tokio::sync::Mutex<()>>,
}

#[derive(Debug, Default)]
struct State {
    access: Option<(Arc<Value>, SystemTime)>,
    /// The newest refresh token, if the token server issued a new one.
    refresh: Option<Arc<Value>>,
    /// The time at which the token in the vault was stored, in nanoseconds since 1970.
    set_at: u64,
}

/// An access token that must be fetched for a recorded request. Holds the lock for fetching it.
#[derive(Debug)]
#[must_use]
pub struct Due {
    secret: usize,
    name: SecretName,
    now: SystemTime,
    _fetch_lock: OwnedMutexGuard<()>,
}

/// An encrypted refresh token that replaces an older one in the vault.
#[derive(Debug)]
pub struct Renewal {
    pub name: SecretName,
    /// The content of the file that holds the encrypted token.
    pub sealed: Vec<u8>,
    /// The time at which the replaced token in the vault was stored.
    pub replaces: u64,
}

/// The tokens that a token server issued.
#[derive(Debug)]
pub(super) struct IssuedTokens {
    access: Arc<Value>,
    until: SystemTime,
    /// A refresh token that differs from the one in the request.
    pub(super) refresh: Option<Arc<Value>>,
}

/// A `POST` request to an OAuth token server, sent over verified TLS to this server only. Redirects
/// are not followed.
pub struct TokenRequest {
    pub name: SecretName,
    pub url: TokenUrl,
    pub headers: HeaderMap,
    pub body: Zeroizing<Vec<u8>>,
}

/// The response of a token server.
pub struct Fetched {
    pub status: StatusCode,
    pub body: Zeroizing<Vec<u8>>,
}

/// The reason why an access token could not be fetched.
#[derive(Debug, thiserror::Error)]
pub enum RefreshError {
    #[error("cannot fetch an access token for {name}")]
    Fetch { name: SecretName, source: Box<dyn std::error::Error + Send + Sync> },
    #[error("the token server refused the secret {name}: {status}{reason}")]
    Refused { name: SecretName, status: StatusCode, reason: Reason },
    #[error(
        "the token server no longer accepts the refresh token of {name} (invalid_grant); if another box renewed it, restart this box, otherwise log in again with `belljar agent login` or store a new token with `belljar secret set {name}`"
    )]
    Spent { name: SecretName },
    #[error("the response of the token server for {name} does not conform to RFC 6749")]
    Answer { name: SecretName },
    #[error("the access token for {name} cannot be used")]
    Value { name: SecretName, source: ValueError },
    #[error("the access token for {name} cannot be used")]
    TooMany { name: SecretName, source: TooManyTokens },
    #[error("cannot build the request to the token server with {name}")]
    Request { name: SecretName },
}

/// The error code of the token server, if it is one that a standard defines.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Reason(Option<&'static str>);

/// The error codes of RFC 6749 §5.2 and RFC 8628. Another code is not shown: the server chose it,
/// and it can be a token (B04).
const REASONS: [&str; 8] = [
    "access_denied",
    "expired_token",
    "invalid_client",
    "invalid_grant",
    "invalid_request",
    "invalid_scope",
    "unauthorized_client",
    "unsupported_grant_type",
];

/// The time before its expiry at which an access token is renewed, so that it does not expire in
/// transit.
const MARGIN: Duration = Duration::from_secs(60);
/// The assumed lifetime of an access token if the server reports none.
const DEFAULT_LIFETIME: Duration = Duration::from_secs(300);
/// The maximum lifetime of an access token, whatever lifetime the server reports.
const MAX_LIFETIME: Duration = Duration::from_secs(24 * 3600);

impl Vault {
    /// Fetches every missing access token that a plan needs. `fetch` calls [`Vault::fetch`].
    pub async fn refresh<F, A>(
        &self,
        _recorded: &Recorded,
        plan: &Plan,
        fetch: F,
    ) -> Result<(), RefreshError>
    where
        F: Fn(Due) -> A,
        A: Future<Output = Result<(), RefreshError>>,
    {
        for used in &plan.uses {
            let Some(secret) = self.fetched(used) else { continue };
            let fetch_lock = Arc::clone(&secret.token.fetch_lock).lock_owned().await;
            if secret.token.current(plan.now).is_none() {
                let name = secret.decl.name.clone();
                fetch(Due { secret: used.secret, name, now: plan.now, _fetch_lock: fetch_lock })
                    .await?;
            }
        }
        Ok(())
    }

    /// Fetches an access token from the token server and stores a renewed refresh token. `fetch`
    /// sends the request. `keep` stores a new refresh token, if it could be sealed, and returns
    /// whether it is stored. Only then can the access token be used.
    pub async fn fetch<F, A, E, K, B>(
        &self,
        due: Due,
        fetch: F,
        keep: K,
    ) -> Result<(), RefreshError>
    where
        F: Fn(TokenRequest) -> A,
        A: Future<Output = Result<Fetched, E>>,
        E: Into<Box<dyn std::error::Error + Send + Sync>>,
        K: Fn(SecretName, Option<Renewal>) -> B,
        B: Future<Output = bool>,
    {
        let Some(secret) = self.secrets.get(due.secret) else { return Ok(()) };
        let name = || due.name.clone();
        let request =
            secret.token_request().ok_or_else(|| RefreshError::Request { name: name() })?;
        let answer = fetch(request).await;
        let answer =
            answer.map_err(|source| RefreshError::Fetch { name: name(), source: source.into() })?;
        let issued = secret.parse_response(&answer, due.now)?;
        // From here on, the tokens are removed from all responses, also from open ones.
        for token in [Some(&issued.access), issued.refresh.as_ref()].into_iter().flatten() {
            let armed = self.arm(due.secret, token);
            armed.map_err(|source| RefreshError::TooMany { name: name(), source })?;
        }
        if let Some(refresh) = &issued.refresh {
            let (set_at, renewal) = self.seal(secret, refresh, due.now).unzip();
            if keep(name(), renewal).await {
                set_at.iter().for_each(|at| secret.token.set_at(*at));
            }
        }
        secret.token.set(issued.access, issued.until);
        Ok(())
    }

    /// Encrypts a refresh token that replaces the one in the vault; returns it with its time.
    fn seal(&self, secret: &Secret, value: &Value, now: SystemTime) -> Option<(u64, Renewal)> {
        let name = secret.decl.name.clone();
        let replaces = secret.token.state().set_at;
        let now = now.duration_since(UNIX_EPOCH).map_or(0, |since| since.as_nanos());
        // The new time is always later than the replaced one, even if the clock was set back.
        let set_at = u64::try_from(now).ok()?.max(replaces.checked_add(1)?);
        let sealed = sealed::seal(self.key.as_ref()?, &name, value, set_at)?;
        Some((set_at, Renewal { name, sealed, replaces }))
    }

    /// Returns the secret whose access token must be fetched for this use, if any.
    fn fetched(&self, used: &Use) -> Option<&Secret> {
        let secret = self.secrets.get(used.secret)?;
        let is_own = matches!((&used.meaning, &used.place), (Meaning::Own, Place::Slot(..)));
        (is_own && matches!(secret.decl.kind, SecretKind::OAuth2 { .. })).then_some(secret)
    }
}

impl Token {
    /// Returns the access token if it is still valid.
    pub(super) fn current(&self, now: SystemTime) -> Option<Arc<Value>> {
        let state = self.state();
        let (token, until) = state.access.as_ref()?;
        (now < *until).then(|| Arc::clone(token))
    }

    /// Sets the time at which the refresh token in the vault was stored.
    pub(super) fn set_at(&self, at: u64) {
        self.state().set_at = at;
    }

    fn set(&self, access: Arc<Value>, until: SystemTime) {
        self.state().access = Some((access, until));
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Due {
    pub const fn name(&self) -> &SecretName {
        &self.name
    }
}

impl Secret {
    /// Returns whether the token server can replace the refresh token.
    pub(super) fn is_renewed(&self) -> bool {
        matches!(self.decl.kind, SecretKind::OAuth2 { grant: Grant::RefreshToken, .. })
    }

    /// Returns the newest known refresh token.
    fn newest(&self) -> Arc<Value> {
        self.token.state().refresh.clone().unwrap_or_else(|| Arc::clone(&self.value))
    }

    /// Returns the request for a new access token; `None` if the secret is of another kind or
    /// cannot be encoded.
    pub(super) fn token_request(&self) -> Option<TokenRequest> {
        let SecretKind::OAuth2 { token_url, grant, client_id, auth, body, scope, .. } =
            &self.decl.kind
        else {
            return None;
        };
        let own = self.newest();
        let mut form = Form::new(*body);
        let client_secret = match grant {
            Grant::RefreshToken => {
                form.add("grant_type", b"refresh_token");
                form.add("refresh_token", own.expose());
                self.client_secret.as_ref().map(|value| value.expose())
            }
            Grant::ClientCredentials => {
                form.add("grant_type", b"client_credentials");
                Some(self.value.expose())
            }
        };
        if let Some(scope) = scope {
            form.add("scope", scope.as_bytes());
        }
        let mut headers = HeaderMap::new();
        headers.insert(ACCEPT, HeaderValue::from_static("application/json"));
        let kind = HeaderValue::from_static(form.kind());
        headers.insert(CONTENT_TYPE, kind);
        match (auth, client_id, client_secret) {
            (ClientAuth::Basic, Some(id), Some(secret)) => {
                headers.insert(AUTHORIZATION, basic(id, secret)?);
            }
            (ClientAuth::Basic, None, _) | (ClientAuth::Basic, _, None) => return None,
            (ClientAuth::Body, id, secret) => {
                id.iter().for_each(|id| form.add("client_id", id.as_bytes()));
                secret.iter().for_each(|secret| form.add("client_secret", secret));
            }
        }
        let body = form.finish();
        Some(TokenRequest { name: self.decl.name.clone(), url: token_url.clone(), headers, body })
    }

    /// Parses the response. A new refresh token replaces the old one from now on.
    pub(super) fn parse_response(
        &self,
        answer: &Fetched,
        now: SystemTime,
    ) -> Result<IssuedTokens, RefreshError> {
        let name = || self.decl.name.clone();
        if answer.status != StatusCode::OK {
            let reason = Reason::of(&answer.body);
            if self.is_renewed() && reason.0 == Some("invalid_grant") {
                return Err(RefreshError::Spent { name: name() });
            }
            return Err(RefreshError::Refused { name: name(), status: answer.status, reason });
        }
        let read: Answer<'_> = serde_json::from_slice(&answer.body)
            .map_err(|_| RefreshError::Answer { name: name() })?;
        if read.token_type.is_some_and(|kind| !kind.eq_ignore_ascii_case("bearer")) {
            return Err(RefreshError::Answer { name: name() });
        }
        let value = |text: &str| {
            let value = Value::new(Zeroizing::new(text.as_bytes().to_vec())).map(Arc::new);
            value.map_err(|source| RefreshError::Value { name: name(), source })
        };
        let access = value(read.access_token)?;
        let refresh = read.refresh_token.filter(|_| self.is_renewed()).map(value).transpose()?;
        let refresh = refresh.filter(|new| new.expose() != self.newest().expose());
        let lasts = read.expires_in.map_or(DEFAULT_LIFETIME, Seconds::duration);
        let until = now + lasts.saturating_sub(MARGIN.min(lasts / 2));
        if let Some(refresh) = &refresh {
            self.token.state().refresh = Some(Arc::clone(refresh));
        }
        Ok(IssuedTokens { access, until, refresh })
    }
}

/// A successful response of a token server (RFC 6749 §5.1). Tokens are visible ASCII (appendix
/// A.12), so one with an escape is refused.
#[derive(Deserialize)]
struct Answer<'a> {
    access_token: &'a str,
    token_type: Option<&'a str>,
    expires_in: Option<Seconds>,
    refresh_token: Option<&'a str>,
}

/// A number of seconds in JSON, which some servers write as a string.
#[derive(Deserialize)]
#[serde(untagged)]
enum Seconds {
    Number(u64),
    Text(String),
}

impl Seconds {
    fn duration(self) -> Duration {
        let seconds = match self {
            Self::Number(seconds) => Some(seconds),
            Self::Text(text) => text.parse().ok(),
        };
        seconds.map_or(DEFAULT_LIFETIME, Duration::from_secs).min(MAX_LIFETIME)
    }
}

impl Reason {
    fn of(body: &[u8]) -> Self {
        #[derive(Deserialize)]
        struct Refusal {
            error: String,
        }
        let code = serde_json::from_slice::<Refusal>(body).ok().map(|refusal| refusal.error);
        Self(code.and_then(|code| REASONS.into_iter().find(|known| *known == code)))
    }
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.as_ref().map_or(Ok(()), |code| write!(f, ", {code}"))
    }
}

impl fmt::Debug for TokenRequest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TokenRequest").field("name", &self.name).finish_non_exhaustive()
    }
}

impl fmt::Debug for Fetched {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Fetched").field("status", &self.status).finish_non_exhaustive()
    }
}

/// The body of a token request, as a form or a JSON object; its memory is wiped when dropped.
struct Form {
    text: Zeroizing<String>,
    body: TokenBody,
}

impl Form {
    fn new(body: TokenBody) -> Self {
        // Allocated at once, because a reallocation would leave copies in memory.
        Self { text: Zeroizing::new(String::with_capacity(6 * super::MAX_VALUE)), body }
    }

    const fn kind(&self) -> &'static str {
        match self.body {
            TokenBody::Form => "application/x-www-form-urlencoded",
            TokenBody::Json => "application/json",
        }
    }

    fn add(&mut self, key: &str, value: &[u8]) {
        let is_first = self.text.is_empty();
        match self.body {
            TokenBody::Form => {
                self.text.push_str(if is_first { "" } else { "&" });
                self.text.push_str(key);
                self.text.push('=');
                encode(value, RESERVED, &mut self.text);
            }
            TokenBody::Json => {
                self.text.push_str(if is_first { "{\"" } else { ",\"" });
                self.text.push_str(key);
                self.text.push_str("\":\"");
                self.add_json(value);
                self.text.push('"');
            }
        }
    }

    /// Appends a value as the content of a JSON string; invalid UTF-8 is replaced.
    fn add_json(&mut self, value: &[u8]) {
        for c in String::from_utf8_lossy(value).chars() {
            match c {
                '"' | '\\' => self.text.extend(['\\', c]),
                c if c.is_control() => self.text.push_str(&format!("\\u{:04x}", u32::from(c))),
                c => self.text.push(c),
            }
        }
    }

    fn finish(mut self) -> Zeroizing<Vec<u8>> {
        if self.body == TokenBody::Json {
            self.text.push('}');
        }
        Zeroizing::new(self.text.as_bytes().to_vec())
    }
}

/// Returns the Basic credentials of an OAuth client; both parts are form-encoded first (RFC 6749
/// §2.3.1).
fn basic(id: &str, secret: &[u8]) -> Option<HeaderValue> {
    let mut text = Zeroizing::new(String::new());
    encode(id.as_bytes(), RESERVED, &mut text);
    text.push(':');
    encode(secret, RESERVED, &mut text);
    let text = Zeroizing::new(format!("Basic {}", STANDARD.encode(text.as_bytes())));
    let mut value = HeaderValue::from_str(&text).ok()?;
    value.set_sensitive(true);
    Some(value)
}
