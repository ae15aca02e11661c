//! Login with an identity provider: OpenID Connect, the authorization code flow with PKCE.
//!
//! ```text
//! browser ─▶ /auth/oidc ─303▶ provider ─303▶ /auth/oidc/callback ─▶ token endpoint ─▶ ID token ─▶ session
//! ```
//! The provider is trusted to name people and their groups, and for nothing else. The rights of a person come
//! from the section `[oidc]` of the operator and from the people of the tenant; see [`groups`].

pub(super) mod groups;
mod id_token;
mod metadata;
pub(super) mod pending;
mod web;

use std::io::Read as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use belljar_model::oidc::OidcConfig;
use bytes::Bytes;
use http::header::{ACCEPT, AUTHORIZATION, CONTENT_TYPE};
use http::{HeaderValue, Request, StatusCode};
use jsonwebtoken::jwk::Jwk;
use serde::Deserialize;
use sha2::{Digest as _, Sha256};
use tokio::sync::Semaphore;
use tokio::time::Instant;
use zeroize::Zeroizing;

use super::head::CALLBACK;
use super::problem::{Problem, ProblemKind};
use super::rate::{Buckets, Rate};
use super::signing::SigningKey;
use super::store::Millis;
use id_token::{Expected, IdToken, TokenFault};
use metadata::{ClientAuthentication, Metadata};
use pending::Pending;
use web::{Client, FetchError};

/// The time for which the addresses of the provider are used again.
const METADATA_TIME: Duration = Duration::from_secs(60 * 60);
/// The time for which the keys of the provider are used again. A key that the provider removed is accepted at
/// most this long.
const KEYS_TIME: Duration = Duration::from_secs(10 * 60);
/// How often the keys are read again for a token with an unknown key, which anyone can send.
const REFETCHES: Rate = Rate { burst: 5, interval: Duration::from_secs(60) };
/// The maximum number of requests to the provider at once.
const MAX_REQUESTS: usize = 16;
/// The maximum size of the file with the secret of the client, in bytes.
const MAX_SECRET: u64 = 4096;

/// Why the login with the identity provider cannot be offered.
#[derive(Debug, thiserror::Error)]
pub enum OidcError {
    #[error("cannot read the secret of the client in {}", path.display())]
    ReadSecret { path: PathBuf, source: std::io::Error },
    #[error("other users can read the secret of the client in {}; run `chmod 600` on it and replace the secret", .0.display())]
    ReadableSecret(PathBuf),
    #[error("the file {} must have the secret of the client in one line of at most 4096 bytes", .0.display())]
    NoSecret(PathBuf),
    #[error("cannot use the root certificates for the identity provider")]
    Tls(#[source] rustls::Error),
}

/// A person as the identity provider describes them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Identified {
    pub(super) subject: String,
    pub(super) groups: Vec<String>,
}

/// What the provider sent back with the browser.
#[derive(Debug, Default)]
pub(super) struct Answer {
    pub(super) code: Option<Zeroizing<String>>,
    pub(super) state: Option<String>,
    pub(super) issuer: Option<String>,
    pub(super) error: Option<String>,
}

/// The identity provider of the server.
pub(super) struct Oidc {
    config: OidcConfig,
    secret: Option<Zeroizing<String>>,
    client: Client,
    /// The address to which the provider sends the browser back.
    redirect: String,
    metadata: Mutex<Option<(Instant, Metadata)>>,
    keys: Mutex<Keys>,
    requests: Semaphore,
}

/// The keys that the provider signs with.
struct Keys {
    known: Vec<Jwk>,
    read: Option<Instant>,
    refetches: Buckets<()>,
}

/// The successful response of the token endpoint.
#[derive(Deserialize)]
struct TokenResponse {
    id_token: String,
}

/// The error response of the token endpoint.
#[derive(Deserialize)]
struct TokenError {
    error: String,
}

impl Oidc {
    /// Prepares the login for a server with this address. `roots` are the certificates of the authorities that
    /// the provider's certificate is verified with, in DER. `time` is the time that a request has.
    pub(super) fn new(
        config: OidcConfig,
        (roots, time): (Vec<Vec<u8>>, Duration),
        address: &str,
    ) -> Result<Self, OidcError> {
        let secret = config.secret_file.as_deref().map(read_secret).transpose()?;
        let keys = Keys { known: Vec::new(), read: None, refetches: Buckets::new(REFETCHES) };
        Ok(Self {
            config,
            secret,
            client: Client::new(roots, time).map_err(OidcError::Tls)?,
            redirect: format!("{address}{CALLBACK}"),
            metadata: Mutex::new(None),
            keys: Mutex::new(keys),
            requests: Semaphore::new(MAX_REQUESTS),
        })
    }

    pub(super) const fn config(&self) -> &OidcConfig {
        &self.config
    }

    /// Returns the address of the provider that the browser opens for a login.
    pub(super) async fn location(
        &self,
        pending: &Pending,
        key: &SigningKey,
    ) -> Result<String, Problem> {
        let metadata = self.metadata().await?;
        let verifier = pending.verifier(key);
        let challenge = URL_SAFE_NO_PAD.encode(Sha256::digest(verifier.as_bytes()));
        let mut scopes = vec!["openid"];
        scopes.extend(self.config.scopes.iter().map(String::as_str).filter(|it| *it != "openid"));
        let (state, nonce) = (pending.state(key), pending.nonce(key));
        let query = web::form(&[
            ("response_type", "code"),
            ("client_id", &self.config.client),
            ("redirect_uri", &self.redirect),
            ("scope", &scopes.join(" ")),
            ("state", &state),
            ("nonce", &nonce),
            ("code_challenge", &challenge),
            ("code_challenge_method", "S256"),
        ]);
        let endpoint = metadata.authorization_endpoint;
        let separator = if endpoint.contains('?') { '&' } else { '?' };
        Ok(format!("{endpoint}{separator}{}", query.as_str()))
    }

    /// Checks what the provider sent back, and returns the person who logged in. The state was checked.
    pub(super) async fn identify(
        &self,
        answer: &Answer,
        pending: &Pending,
        key: &SigningKey,
        now: Millis,
    ) -> Result<Identified, Problem> {
        let metadata = self.metadata().await?;
        let issuer = self.config.issuer.as_str();
        let is_own = answer.issuer.as_ref().is_none_or(|it| it == issuer);
        if !is_own || (answer.issuer.is_none() && metadata.names_issuer) {
            return Err(refused("the answer is not one of the configured identity provider"));
        }
        if let Some(error) = &answer.error {
            return Err(refused(format!("the identity provider answered `{}`", name_of(error))));
        }
        let code = answer.code.as_ref().ok_or_else(|| refused("the answer has no code"))?;
        let token = self.exchange(&metadata, code, &pending.verifier(key)).await?;
        let nonce = pending.nonce(key);
        let expected = Expected {
            issuer,
            client: &self.config.client,
            nonce: &nonce,
            groups: &self.config.groups,
            started: pending.started() / 1000,
            now: now / 1000,
        };
        let signed = self.verified(&metadata, &token).await?;
        expected.check(&signed).map_err(token_problem)
    }

    /// Exchanges the code for an ID token.
    async fn exchange(
        &self,
        metadata: &Metadata,
        code: &str,
        verifier: &str,
    ) -> Result<Zeroizing<String>, Problem> {
        let client = self.config.client.as_str();
        let mut fields = vec![
            ("grant_type", "authorization_code"),
            ("code", code),
            ("redirect_uri", &self.redirect),
            ("code_verifier", verifier),
        ];
        let mut request = Request::post(&metadata.token_endpoint);
        match (self.secret.as_ref(), metadata.authentication) {
            (None, _) => fields.push(("client_id", client)),
            (Some(secret), ClientAuthentication::Post) => {
                fields.extend([("client_id", client), ("client_secret", secret.as_str())]);
            }
            (Some(secret), ClientAuthentication::Basic) => {
                request = request.header(AUTHORIZATION, basic(client, secret)?);
            }
        }
        let request = request
            .header(CONTENT_TYPE, "application/x-www-form-urlencoded")
            .header(ACCEPT, "application/json")
            .body(Bytes::copy_from_slice(web::form(&fields).as_bytes()));
        let request =
            request.map_err(|_| Problem::internal("the request for a token is invalid"))?;
        let (status, body) = self.send(request).await?;
        if status == StatusCode::OK {
            let parsed: Result<TokenResponse, _> = serde_json::from_slice(&body);
            return parsed
                .map(|response| Zeroizing::new(response.id_token))
                .map_err(|_| self.problem("sent no ID token"));
        }
        let error: Result<TokenError, _> = serde_json::from_slice(&body);
        Err(match error {
            Ok(TokenError { error }) if error == "invalid_grant" => {
                refused("the code is invalid, has expired or was used before; log in again")
            }
            Ok(TokenError { error }) => self.problem(&format!(
                "refused the request for a token with `{}`; check `client` and `secret-file` in the section [oidc]",
                name_of(&error)
            )),
            Err(_) => self.problem(&format!("answered the request for a token with {status}")),
        })
    }

    /// Returns the claims of a token whose signature is valid. Reads the keys of the provider again, once, if
    /// the token has an unknown key.
    async fn verified(
        &self,
        metadata: &Metadata,
        token: &str,
    ) -> Result<id_token::Claims, Problem> {
        let token = IdToken::parse(token).map_err(token_problem)?;
        let known = {
            let keys = locked(&self.keys);
            let is_recent = keys.read.is_some_and(|read| read.elapsed() < KEYS_TIME);
            is_recent.then(|| keys.known.clone())
        };
        let verified = match known {
            Some(known) => match token.verified(&known) {
                Err(TokenFault::UnknownKey) if self.may_refetch() => {
                    token.verified(&self.read_keys(metadata).await?)
                }
                verified => verified,
            },
            None => token.verified(&self.read_keys(metadata).await?),
        };
        verified.map_err(token_problem)
    }

    /// Counts a further reading of the keys. Returns `false` after too many.
    fn may_refetch(&self) -> bool {
        locked(&self.keys).refetches.take((), Instant::now()).is_ok()
    }

    /// Reads the keys of the provider.
    async fn read_keys(&self, metadata: &Metadata) -> Result<Vec<Jwk>, Problem> {
        let body = self.get(&metadata.jwks_uri).await?;
        let read = id_token::keys(&body);
        let read = read.ok_or_else(|| self.problem("sent no valid list of keys"))?;
        let mut keys = locked(&self.keys);
        (keys.known, keys.read) = (read.clone(), Some(Instant::now()));
        Ok(read)
    }

    /// Returns the addresses of the provider.
    async fn metadata(&self) -> Result<Metadata, Problem> {
        let known = locked(&self.metadata).clone();
        if let Some((_, metadata)) = known.filter(|(read, _)| read.elapsed() < METADATA_TIME) {
            return Ok(metadata);
        }
        let body = self.get(&Metadata::address(&self.config.issuer)).await?;
        let read = Metadata::read(&body, &self.config.issuer);
        let read = read.map_err(|fault| self.problem(&fault.to_string()))?;
        *locked(&self.metadata) = Some((Instant::now(), read.clone()));
        Ok(read)
    }

    async fn get(&self, address: &str) -> Result<Bytes, Problem> {
        let request = Request::get(address).header(ACCEPT, "application/json").body(Bytes::new());
        let request = request.map_err(|_| Problem::internal("an address is invalid"))?;
        let (status, body) = self.send(request).await?;
        if status == StatusCode::OK {
            return Ok(body);
        }
        Err(self.problem(&format!("answered with {status}; check `issuer` in the section [oidc]")))
    }

    async fn send(&self, request: Request<Bytes>) -> Result<(StatusCode, Bytes), Problem> {
        let busy = |_| self.problem("is busy with other logins; try again").retry_after(5);
        let _request = self.requests.try_acquire().map_err(busy)?;
        self.client.send(request).await.map_err(|error| {
            tracing::warn!(%error, "the identity provider did not answer as expected");
            let problem = self.problem(&error.to_string());
            match error {
                FetchError::Slow | FetchError::Unreachable | FetchError::Broken => {
                    problem.retry_after(10)
                }
                FetchError::Redirect
                | FetchError::TooLarge
                | FetchError::Certificate
                | FetchError::Address => problem,
            }
        })
    }

    fn problem(&self, what: &str) -> Problem {
        let detail = format!("the identity provider {} {what}", self.config.issuer);
        Problem::new(ProblemKind::PROVIDER, detail)
    }
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Returns the problem of a login that the person can start again.
pub(super) fn refused(detail: impl Into<String>) -> Problem {
    Problem::new(ProblemKind::LOGIN_REFUSED, detail)
}

fn token_problem(fault: TokenFault) -> Problem {
    refused(format!("the ID token {fault}"))
}

/// Returns the name of an error of the provider, without characters that a name does not have.
fn name_of(error: &str) -> String {
    let is_plain = |c: &char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '.');
    error.chars().filter(is_plain).take(64).collect()
}

/// Returns the credentials of a client (RFC 6749, section 2.3.1).
fn basic(client: &str, secret: &str) -> Result<HeaderValue, Problem> {
    let (client, secret) = (web::encoded(client), web::encoded(secret));
    let pair = Zeroizing::new(format!("{}:{}", client.as_str(), secret.as_str()));
    let value = Zeroizing::new(format!("Basic {}", STANDARD.encode(pair.as_bytes())));
    let mut value = HeaderValue::from_str(&value)
        .map_err(|_| Problem::internal("the credentials of the client are invalid"))?;
    value.set_sensitive(true);
    Ok(value)
}

/// Reads the secret of the client, which no other user can read.
fn read_secret(path: &Path) -> Result<Zeroizing<String>, OidcError> {
    let failed = |source| OidcError::ReadSecret { path: path.to_owned(), source };
    let file = std::fs::File::open(path).map_err(failed)?;
    if file.metadata().map_err(failed)?.mode() & 0o077 != 0 {
        return Err(OidcError::ReadableSecret(path.to_owned()));
    }
    let mut text = Zeroizing::new(String::new());
    file.take(MAX_SECRET + 1).read_to_string(&mut text).map_err(failed)?;
    let secret = Zeroizing::new(text.trim().to_owned());
    let is_valid = !secret.is_empty()
        && u64::try_from(text.len()).is_ok_and(|length| length <= MAX_SECRET)
        && !secret.contains(char::is_control);
    if is_valid { Ok(secret) } else { Err(OidcError::NoSecret(path.to_owned())) }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    #[test]
    fn f17_secret_of_the_client_is_read_only_from_a_private_file() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("secret");
        assert!(matches!(read_secret(&path), Err(OidcError::ReadSecret { .. })));
        let write = |text: &str, mode| {
            std::fs::write(&path, text).unwrap();
            std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode)).unwrap();
        };
        write("s3cret\n", 0o640);
        assert!(matches!(read_secret(&path), Err(OidcError::ReadableSecret(_))));
        write("s3cret\n", 0o600);
        assert_eq!(read_secret(&path).unwrap().as_str(), "s3cret", "control");
        for text in ["", " \n", "a\nb", &"a".repeat(5000)] {
            write(text, 0o600);
            assert!(matches!(read_secret(&path), Err(OidcError::NoSecret(_))), "{text}");
        }
    }

    #[test]
    fn credentials_of_a_client_are_encoded_and_not_logged() {
        let value = basic("a:b", "c d").unwrap();
        assert!(value.is_sensitive());
        let text = value.to_str().unwrap().strip_prefix("Basic ").unwrap().to_owned();
        assert_eq!(STANDARD.decode(text).unwrap(), b"a%3Ab:c%20d");
        assert_eq!(name_of("access_denied<script>"), "access_deniedscript");
    }
}
