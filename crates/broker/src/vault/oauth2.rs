//! Access tokens that are fetched on the host with a refresh token or a client's secret (RFC 6749).
//!
//! The box has a placeholder for an access token and nothing to refresh. Here is what is asked and how
//! the answer is read; whoever calls carries the one to the token's server and the other back.

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

use super::held::Stands;
use super::percent::{RESERVED, encode};
use super::plan::{Place, Plan, Use};
use super::value::{Value, ValueError};
use super::{Secret, Vault, sealed};
use crate::record::Recorded;

/// The access token of one secret, as far as there is one.
#[derive(Debug, Default)]
pub(super) struct Token {
    state: Mutex<State>,
    /// Held by whoever fetches, so that many requests at once fetch one token.
    turn: Arc<tokio::sync::Mutex<()>>,
}

#[derive(Debug, Default)]
struct State {
    access: Option<(Arc<Value>, SystemTime)>,
    /// The newest refresh token, if the server gave another than was sealed.
    refresh: Option<Arc<Value>>,
    /// When the one was set that is in the vault, nanoseconds since 1970.
    set_at: u64,
}

/// An access token that a request on record needs and nobody else fetches now.
#[derive(Debug)]
#[must_use]
pub struct Due {
    secret: usize,
    name: SecretName,
    now: SystemTime,
    _turn: OwnedMutexGuard<()>,
}

/// A refresh token that took the place of another, sealed under the same name.
#[derive(Debug)]
pub struct Renewal {
    pub name: SecretName,
    /// The bytes of its file.
    pub sealed: Vec<u8>,
    /// When the one was set that is in the vault.
    pub replaces: u64,
}

/// What a server gave.
#[derive(Debug)]
pub(super) struct Given {
    access: Arc<Value>,
    until: SystemTime,
    /// A refresh token that is not the one it was asked with.
    pub(super) refresh: Option<Arc<Value>>,
}

/// What to ask a token's server: a `POST` over verified TLS, to nobody else. Redirects are not followed.
pub struct TokenRequest {
    pub name: SecretName,
    pub url: TokenUrl,
    pub headers: HeaderMap,
    pub body: Zeroizing<Vec<u8>>,
}

/// What it answered.
pub struct Fetched {
    pub status: StatusCode,
    pub body: Zeroizing<Vec<u8>>,
}

/// Why there is no access token.
#[derive(Debug, thiserror::Error)]
pub enum RefreshError {
    #[error("ask for an access token of {name}")]
    Fetch { name: SecretName, source: Box<dyn std::error::Error + Send + Sync> },
    #[error("the token's server refused {name}: {status}{reason}")]
    Refused { name: SecretName, status: StatusCode, reason: Reason },
    #[error(
        "the token's server takes the refresh token of {name} no more (invalid_grant); if another box had it renewed, start this box again, and if not, log in again with `belljar agent login` or store a new one with `belljar secret set {name}`"
    )]
    Spent { name: SecretName },
    #[error("the token's server answered about {name} in another form than RFC 6749 has")]
    Answer { name: SecretName },
    #[error("the access token for {name} cannot be used")]
    Value { name: SecretName, source: ValueError },
    #[error("the request to the token's server cannot be made with {name}")]
    Request { name: SecretName },
}

/// The error code of the server, if it gave one that is safe to repeat.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reason(Option<String>);

/// Fetched anew so long before its end, so that none expires on its way.
const MARGIN: Duration = Duration::from_secs(60);
/// How long a token is taken to last if the server does not say.
const UNSAID: Duration = Duration::from_secs(300);
/// No clock or server makes us keep one for longer.
const LONGEST: Duration = Duration::from_secs(24 * 3600);

impl Vault {
    /// Sees to it that every access token that a plan needs is there. `fetch` has one fetched that is
    /// not, by [`Vault::fetch`].
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
            let turn = Arc::clone(&secret.token.turn).lock_owned().await;
            if secret.token.current(plan.now).is_none() {
                let name = secret.decl.name.clone();
                fetch(Due { secret: used.secret, name, now: plan.now, _turn: turn }).await?;
            }
        }
        Ok(())
    }

    /// Fetches an access token. `fetch` carries a request out; `keep` stores a refresh token that the
    /// server gave in the place of ours, if it could be sealed, and says whether it is. Only then is
    /// the access token there to be used.
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
        let given = secret.take(&answer, due.now)?;
        if let Some(refresh) = &given.refresh {
            let (set_at, renewal) = self.seal(secret, refresh, due.now).unzip();
            if keep(name(), renewal).await {
                set_at.iter().for_each(|at| secret.token.set_at(*at));
            }
        }
        secret.token.set(given.access, given.until);
        Ok(())
    }

    /// Seals a refresh token to take the place of the one in the vault, and when it is set.
    fn seal(&self, secret: &Secret, value: &Value, now: SystemTime) -> Option<(u64, Renewal)> {
        let name = secret.decl.name.clone();
        let replaces = secret.token.state().set_at;
        let now = now.duration_since(UNIX_EPOCH).map_or(0, |since| since.as_nanos());
        // A clock that was put back makes nothing older than what it replaces.
        let set_at = u64::try_from(now).ok()?.max(replaces.checked_add(1)?);
        let sealed = sealed::seal(self.key.as_ref()?, &name, value, set_at)?;
        Some((set_at, Renewal { name, sealed, replaces }))
    }

    /// The secret of a use whose value is fetched.
    fn fetched(&self, used: &Use) -> Option<&Secret> {
        let secret = self.secrets.get(used.secret)?;
        let is_own = matches!((&used.stands, &used.place), (Stands::Own, Place::Slot(..)));
        (is_own && matches!(secret.decl.kind, SecretKind::OAuth2 { .. })).then_some(secret)
    }
}

impl Token {
    /// The access token, as long as it is good.
    pub(super) fn current(&self, now: SystemTime) -> Option<Arc<Value>> {
        let state = self.state();
        let (token, until) = state.access.as_ref()?;
        (now < *until).then(|| Arc::clone(token))
    }

    /// Notes when the refresh token in the vault was set.
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
    /// Whether its server may give another in its place.
    pub(super) fn is_renewed(&self) -> bool {
        matches!(self.decl.kind, SecretKind::OAuth2 { grant: Grant::RefreshToken, .. })
    }

    /// The newest refresh token that is known.
    fn newest(&self) -> Arc<Value> {
        self.token.state().refresh.clone().unwrap_or_else(|| Arc::clone(&self.value))
    }

    /// The request for a new access token; `None` if this is no such secret or cannot be written.
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

    /// Reads the answer. A new refresh token is the one to ask with from now on.
    pub(super) fn take(&self, answer: &Fetched, now: SystemTime) -> Result<Given, RefreshError> {
        let name = || self.decl.name.clone();
        if answer.status != StatusCode::OK {
            let reason = Reason::of(&answer.body);
            if self.is_renewed() && reason.0.as_deref() == Some("invalid_grant") {
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
        let lasts = read.expires_in.map_or(UNSAID, Seconds::duration);
        let until = now + lasts.saturating_sub(MARGIN.min(lasts / 2));
        if let Some(refresh) = &refresh {
            self.token.state().refresh = Some(Arc::clone(refresh));
        }
        Ok(Given { access, until, refresh })
    }
}

/// RFC 6749 §5.1. A token with an escape in it is none: they are visible ASCII (appendix A.12).
#[derive(Deserialize)]
struct Answer<'a> {
    access_token: &'a str,
    token_type: Option<&'a str>,
    expires_in: Option<Seconds>,
    refresh_token: Option<&'a str>,
}

/// A number, which some servers write as a text.
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
        seconds.map_or(UNSAID, Duration::from_secs).min(LONGEST)
    }
}

impl Reason {
    fn of(body: &[u8]) -> Self {
        #[derive(Deserialize)]
        struct Refusal {
            error: String,
        }
        let code = serde_json::from_slice::<Refusal>(body).ok().map(|refusal| refusal.error);
        let is_code = |text: &String| {
            text.len() <= 40 && text.bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'_')
        };
        Self(code.filter(is_code))
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

/// What is asked, as a form or as a JSON object; wiped when dropped.
struct Form {
    text: Zeroizing<String>,
    body: TokenBody,
}

impl Form {
    fn new(body: TokenBody) -> Self {
        // All at once, so that growing leaves no copies behind.
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

    /// The inside of a JSON string. A value is plain characters, or somebody else's to judge.
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

/// RFC 6749 §2.3.1: both halves are encoded as in a form first.
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
