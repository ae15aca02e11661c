//! Tokens that an upstream gives out in a response: the box gets a new placeholder, the vault keeps the
//! token (B10).

use std::sync::Arc;

use belljar_model::net::{Capture, CaptureFrom, Scheme, SecretName, Target};
use http::header::CONTENT_LENGTH;
use http::request::Parts;
use http::{HeaderMap, HeaderName, HeaderValue, StatusCode};
use zeroize::Zeroizing;

use super::json::{self, JsonError};
use super::placeholder::NoRandom;
use super::sent::{Lasting, Travelled};
use super::value::{Value, ValueError};
use super::{Secret, Vault};
use crate::rules::Permit;

/// A response in which a token is looked for is at most this long.
pub const MAX_CAPTURED_BODY: usize = 1 << 20;

/// What to look for in the response to one request.
#[derive(Debug, Clone)]
pub struct Captures {
    target: Target,
    rules: Vec<(usize, Capture)>,
}

/// A token that was taken out of a response.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Captured {
    pub name: SecretName,
    /// `json:/POINTER` or `header:NAME`.
    pub place: String,
}

/// Why a response must not reach the box.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CaptureError {
    #[error(
        "a token for {name} was expected in the response, but it is no JSON that can be looked into"
    )]
    NotJson { name: SecretName, source: JsonError },
    #[error("the token for {name} in the response cannot be kept")]
    Value { name: SecretName, source: ValueError },
    #[error("a response with a token for {name} came without its body")]
    NoBody { name: SecretName },
    #[error("make a placeholder for {name}")]
    Random { name: SecretName, source: NoRandom },
    #[error("the placeholder for {name} cannot stand in the response")]
    Unfit { name: SecretName },
}

impl Captures {
    /// Whether the body of the response has to be collected, decoded, at most [`MAX_CAPTURED_BODY`] bytes.
    pub fn needs_body(&self) -> bool {
        self.rules.iter().any(|(_, capture)| matches!(capture.from, CaptureFrom::Json(_)))
    }
}

impl Vault {
    /// What to look for in the response to a permitted request; `None` if nothing.
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
            .filter(|(_, capture)| capture.path.matches(path))
            .map(|(at, capture)| (at, capture.clone()))
            .collect();
        (!rules.is_empty()).then(|| Captures { target: target.clone(), rules })
    }

    /// Takes tokens out of a response. After an error the response must not be passed on.
    pub fn capture(
        &self,
        captures: &Captures,
        status: StatusCode,
        headers: &mut HeaderMap,
        mut body: Option<&mut Vec<u8>>,
    ) -> Result<Vec<Captured>, CaptureError> {
        let mut found = Vec::new();
        let mut kept = Vec::new();
        for (at, capture) in &captures.rules {
            let Some(secret) = self.secrets.get(*at) else { continue };
            let taker = Taker { vault: self, at: *at, secret };
            let tokens = match &capture.from {
                CaptureFrom::Header(name) => taker.header(name, headers)?,
                CaptureFrom::Json(pointer) => {
                    let name = secret.decl.name.clone();
                    let body = body.as_deref_mut().ok_or(CaptureError::NoBody { name })?;
                    taker.json(pointer, status, body)?.into_iter().collect()
                }
            };
            if !tokens.is_empty() {
                let place = match &capture.from {
                    CaptureFrom::Header(name) => format!("header:{name}"),
                    CaptureFrom::Json(pointer) => format!("json:{pointer}"),
                };
                found.push(Captured { name: secret.decl.name.clone(), place });
            }
            kept.extend(tokens);
        }
        if !kept.is_empty() {
            // A server may say the same token in a second place, now or later.
            let scrubber = self.remember(&captures.target, kept);
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

/// Takes tokens of one secret.
struct Taker<'a> {
    vault: &'a Vault,
    at: usize,
    secret: &'a Secret,
}

impl Taker<'_> {
    fn json(
        &self,
        pointer: &str,
        status: StatusCode,
        body: &mut Vec<u8>,
    ) -> Result<Option<Travelled>, CaptureError> {
        let found = match json::find(body, pointer) {
            Ok(found) => found,
            // Whoever asks may choose the form of the answer, so that what cannot be looked into could
            // hold the token in another form. Of an error nothing is expected.
            Err(JsonError::Malformed) if !status.is_success() || body.is_empty() => {
                return Ok(None);
            }
            Err(source) => return Err(CaptureError::NotJson { name: self.name(), source }),
        };
        let Some(found) = found.filter(|found| !found.text.is_empty()) else { return Ok(None) };
        let (token, placeholder) = self.keep(&Zeroizing::new(found.text))?;
        let unfit = || CaptureError::Unfit { name: self.name() };
        *body = json::replace(body, &found.span, &placeholder).ok_or_else(unfit)?;
        Ok(Some(token))
    }

    fn header(&self, name: &str, headers: &mut HeaderMap) -> Result<Vec<Travelled>, CaptureError> {
        let unfit = || CaptureError::Unfit { name: self.name() };
        let header = HeaderName::from_bytes(name.as_bytes()).map_err(|_| unfit())?;
        let mut tokens = Vec::new();
        for value in headers.get_all(&header) {
            let text = value.to_str().map_err(|_| unfit())?;
            tokens.push(self.keep(text)?);
        }
        headers.remove(&header);
        for (_, placeholder) in &tokens {
            let value = HeaderValue::from_str(placeholder).map_err(|_| unfit())?;
            headers.append(header.clone(), value);
        }
        Ok(tokens.into_iter().map(|(token, _)| token).collect())
    }

    /// Keeps a token; it and its placeholder.
    fn keep(&self, text: &str) -> Result<(Travelled, String), CaptureError> {
        let value = Value::new(Zeroizing::new(text.as_bytes().to_vec())).map(Arc::new);
        let value = value.map_err(|source| CaptureError::Value { name: self.name(), source })?;
        let held = self.vault.hold(self.at, &self.secret.decl.shape, Arc::clone(&value));
        let placeholder =
            held.map_err(|source| CaptureError::Random { name: self.name(), source })?;
        Ok((self.secret.travelled(value, Lasting::Token), placeholder))
    }

    fn name(&self) -> SecretName {
        self.secret.decl.name.clone()
    }
}
