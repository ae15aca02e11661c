//! Captures tokens from responses: the box gets a new placeholder, and the vault keeps the token
//! (B10).

use std::sync::Arc;

use belljar_model::net::{Capture, CaptureFrom, Scheme, SecretName, Target};
use http::header::CONTENT_LENGTH;
use http::request::Parts;
use http::{HeaderMap, HeaderName, HeaderValue, StatusCode};
use zeroize::Zeroizing;

use super::json::{self, JsonError};
use super::placeholder::NoRandom;
use super::value::{Value, ValueError};
use super::{Secret, TooManyTokens, Vault};
use crate::rules::Permit;

/// The maximum size of a response body that is searched for a token.
pub const MAX_CAPTURED_BODY: usize = 1 << 20;

/// The tokens that must be captured from the response of one request.
#[derive(Debug, Clone)]
pub struct Captures {
    target: Target,
    rules: Vec<(usize, Capture)>,
}

/// A token that was captured from a response.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Captured {
    pub name: SecretName,
    /// The place in the response where the token was found: `json:/POINTER` or `header:NAME`.
    pub place: String,
}

/// The reason why a response with a token must not reach the box.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CaptureError {
    #[error("a token for {name} was expected in the response, but the body is not valid JSON")]
    NotJson { name: SecretName, source: JsonError },
    #[error("the token for {name} in the response cannot be used as a secret")]
    Value { name: SecretName, source: ValueError },
    #[error("a response with a token for {name} has no body")]
    NoBody { name: SecretName },
    #[error("cannot create a placeholder for {name}")]
    Random { name: SecretName, source: NoRandom },
    #[error("the token for {name} in the response cannot be used")]
    TooMany { name: SecretName, source: TooManyTokens },
    #[error("the placeholder for {name} cannot be inserted into the response")]
    Unfit { name: SecretName },
}

impl Captures {
    /// Returns whether the response body must be collected and decoded, at most
    /// [`MAX_CAPTURED_BODY`] bytes.
    pub fn needs_body(&self) -> bool {
        self.rules.iter().any(|(_, capture)| matches!(capture.from, CaptureFrom::Json(_)))
    }
}

impl Vault {
    /// Returns which tokens must be captured from the response of a permitted request; `None` if
    /// there are none.
    pub fn captures(&self, permit: &Permit, parts: &Parts) -> Option<Captures> {
        let path = parts.uri.path();
        let (target, rule) = (permit.target(), permit.secrets());
        let of_request = |secret: &Secret| {
            permit.scheme() == Scheme::Https
                && rule.contains(&secret.decl.name)
                && secret.decl.is_for(target)
        };
        let indexed = self.secrets.iter().enumerate().filter(|(_, secret)| of_request(secret));
        let rules: Vec<(usize, Capture)> = indexed
            .flat_map(|(at, secret)| secret.decl.captures.iter().map(move |it| (at, it)))
            .filter(|(_, capture)| capture.path.matches_leniently(path))
            .map(|(at, capture)| (at, capture.clone()))
            .collect();
        (!rules.is_empty()).then(|| Captures { target: target.clone(), rules })
    }

    /// Replaces tokens in a response with placeholders and returns the captured tokens. After an
    /// error, the response must not reach the box.
    pub fn capture(
        &self,
        captures: &Captures,
        status: StatusCode,
        headers: &mut HeaderMap,
        mut body: Option<&mut Vec<u8>>,
    ) -> Result<Vec<Captured>, CaptureError> {
        let mut found = Vec::new();
        for (at, capture) in &captures.rules {
            let Some(secret) = self.secrets.get(*at) else { continue };
            let capturer = Capturer { vault: self, at: *at, secret };
            let is_found = match &capture.from {
                CaptureFrom::Header(name) => capturer.header(name, headers)?,
                CaptureFrom::Json(pointer) => {
                    let name = secret.decl.name.clone();
                    let body = body.as_deref_mut().ok_or(CaptureError::NoBody { name })?;
                    capturer.json(pointer, status, body)?
                }
            };
            if is_found {
                let place = match &capture.from {
                    CaptureFrom::Header(name) => format!("header:{name}"),
                    CaptureFrom::Json(pointer) => format!("json:{pointer}"),
                };
                found.push(Captured { name: secret.decl.name.clone(), place });
            }
        }
        if !found.is_empty() {
            // A server can repeat the same token elsewhere in the response.
            let scrubber = self.scrubber(&captures.target);
            *headers = scrubber.headers(headers);
            if let Some(body) = body.as_deref_mut() {
                *body = scrubber.text(body).into_owned();
            }
        }
        if let Some(body) = body
            && headers.contains_key(CONTENT_LENGTH)
        {
            headers.insert(CONTENT_LENGTH, HeaderValue::from(body.len()));
        }
        Ok(found)
    }
}

/// Captures the tokens of one secret in responses.
struct Capturer<'a> {
    vault: &'a Vault,
    at: usize,
    secret: &'a Secret,
}

impl Capturer<'_> {
    fn json(
        &self,
        pointer: &str,
        status: StatusCode,
        body: &mut Vec<u8>,
    ) -> Result<bool, CaptureError> {
        let found = match json::find(body, pointer) {
            Ok(found) => found,
            // The client can choose the format of the response, so a body that is not JSON could
            // contain the token in another format. An error response contains no token.
            Err(JsonError::Malformed) if !status.is_success() || body.is_empty() => {
                return Ok(false);
            }
            Err(source) => return Err(CaptureError::NotJson { name: self.name(), source }),
        };
        let Some(found) = found.filter(|found| !found.text.is_empty()) else { return Ok(false) };
        let placeholder = self.store(&Zeroizing::new(found.text))?;
        let unfit = || CaptureError::Unfit { name: self.name() };
        *body = json::replace(body, &found.span, &placeholder).ok_or_else(unfit)?;
        Ok(true)
    }

    fn header(&self, name: &str, headers: &mut HeaderMap) -> Result<bool, CaptureError> {
        let unfit = || CaptureError::Unfit { name: self.name() };
        let header = HeaderName::from_bytes(name.as_bytes()).map_err(|_| unfit())?;
        let mut tokens = Vec::new();
        for value in headers.get_all(&header) {
            let text = value.to_str().map_err(|_| unfit())?;
            tokens.push(self.store(text)?);
        }
        headers.remove(&header);
        for placeholder in &tokens {
            let value = HeaderValue::from_str(placeholder).map_err(|_| unfit())?;
            headers.append(header.clone(), value);
        }
        Ok(!tokens.is_empty())
    }

    /// Stores and arms a captured token, and returns its new placeholder.
    fn store(&self, text: &str) -> Result<String, CaptureError> {
        let value = Value::new(Zeroizing::new(text.as_bytes().to_vec())).map(Arc::new);
        let value = value.map_err(|source| CaptureError::Value { name: self.name(), source })?;
        let armed = self.vault.arm(self.at, &value);
        armed.map_err(|source| CaptureError::TooMany { name: self.name(), source })?;
        let held = self.vault.add_captured(self.at, &self.secret.decl.shape, Arc::clone(&value));
        held.map_err(|source| CaptureError::Random { name: self.name(), source })
    }

    fn name(&self) -> SecretName {
        self.secret.decl.name.clone()
    }
}
