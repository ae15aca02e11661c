//! Replaces placeholders in a request by the real values, and masks those outside of slots.
//!
//! **Invariant:** only [`Vault::inject`] lets a value out of the vault. It needs a [`Permit`] for
//! the request and a [`Recorded`] for its use.

use std::collections::BTreeSet;
use std::sync::Arc;

use belljar_model::net::{Scheme, SecretKind, SecretName};
use http::header::{CONTENT_LENGTH, HOST};
use http::request::Parts;
use http::{HeaderName, HeaderValue};
use zeroize::{Zeroize as _, Zeroizing};

use super::json;
use super::placeholder_set::Meaning;
use super::plan::{Place, Plan, Use, Used, names};
use super::sign::sigv4::{self, Keys, SigV4Error};
use super::sign::{Stamp, hmac};
use super::spot::{self, Spot};
use super::value::Value;
use super::{Secret, Vault};
use crate::record::Recorded;
use crate::rules::Permit;
use crate::scrub::Scrubber;

/// The values that were inserted into a request, and the scrubber for its response.
#[derive(Debug)]
#[must_use]
pub struct Injected {
    pub used: Vec<Used>,
    pub names: BTreeSet<SecretName>,
    /// The scrubber that removes the values of all secrets that are bound to this host.
    pub scrubber: Scrubber,
}

/// The reason why a secret could not be inserted into a request. It must not be sent.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum InjectError {
    #[error("cannot insert secrets: the plan was made for another request")]
    OtherRequest,
    #[error("the request changed after it was planned, so {name} cannot be added")]
    Changed { name: SecretName },
    #[error("the value of the secret {name} contains bytes that are invalid in {slot}")]
    Unfit { name: SecretName, slot: String },
    #[error("there is no access token for the secret {name} yet")]
    NoToken { name: SecretName },
    #[error("the request cannot be signed with the secret {name}")]
    SigV4 { name: SecretName, source: SigV4Error },
    #[error("the request body that {name} must be added to or must sign is missing")]
    NoBody { name: SecretName },
}

impl Vault {
    /// Inserts the planned secrets into a request that was permitted and recorded.
    pub fn inject(
        &self,
        permit: &Permit,
        _recorded: &Recorded,
        plan: Plan,
        parts: &mut Parts,
        mut body: Option<&mut Vec<u8>>,
    ) -> Result<Injected, InjectError> {
        if plan.target != *permit.target() || permit.scheme() != Scheme::Https && !plan.is_empty() {
            return Err(InjectError::OtherRequest);
        }
        let used = plan.uses(self).collect();
        // Signatures come last, because they cover the other values.
        let (slots, signed): (Vec<&Use>, Vec<&Use>) =
            plan.uses.iter().partition(|used| matches!(used.place, Place::Slot(..)));
        for used in slots {
            let step = Step { permit, plan: &plan, secret: self.secret_of(used)? };
            if let Place::Slot(_, spot) = &used.place {
                let value = self.value_of(used, step.secret, plan.now)?;
                step.fill(spot, &value, parts, body.as_deref_mut())?;
            }
        }
        if let Some(body) = body.as_deref_mut().filter(|_| !plan.masked.is_empty()) {
            self.mask(permit, &plan, parts, body);
        }
        for used in signed {
            let step = Step { permit, plan: &plan, secret: self.secret_of(used)? };
            let body = body.as_deref().map(Vec::as_slice);
            match &used.place {
                Place::Slot(..) => {}
                Place::SigV4(scope) => step.sigv4(scope, parts, body)?,
                Place::Hmac => step.hmac(parts, body)?,
            }
        }
        let names = names(self, plan.uses);
        Ok(Injected { used, names, scrubber: self.scrubber(permit.target()) })
    }

    /// Masks the placeholders that are left in a buffered body after its slots were filled.
    fn mask(&self, permit: &Permit, plan: &Plan, parts: &mut Parts, body: &mut Vec<u8>) {
        let guard = plan.placeholders.guard(self.masked(permit.scheme(), permit.target()));
        let Some(masked) = guard.masked.map(|it| it.text(body).into_owned()) else { return };
        let mut old = std::mem::replace(body, masked);
        old.zeroize(); // it can contain the value of a slot
        if parts.headers.contains_key(CONTENT_LENGTH) {
            parts.headers.insert(CONTENT_LENGTH, HeaderValue::from(body.len()));
        }
    }

    fn secret_of(&self, used: &Use) -> Result<&Secret, InjectError> {
        self.secrets.get(used.secret).ok_or(InjectError::OtherRequest)
    }

    fn value_of(
        &self,
        used: &Use,
        secret: &Secret,
        now: std::time::SystemTime,
    ) -> Result<Arc<Value>, InjectError> {
        let name = || secret.decl.name.clone();
        match (&used.meaning, &secret.decl.kind) {
            (Meaning::Captured(value), _) => Ok(Arc::clone(value)),
            (Meaning::Own, SecretKind::Token) => Ok(Arc::clone(&secret.value)),
            (Meaning::Own, SecretKind::OAuth2 { .. }) => {
                secret.token.current(now).ok_or_else(|| InjectError::NoToken { name: name() })
            }
            (Meaning::Own, SecretKind::SigV4 { .. } | SecretKind::Hmac { .. })
            | (Meaning::AccessId | Meaning::Key, _) => {
                Err(InjectError::Unfit { name: name(), slot: "a slot".to_owned() })
            }
        }
    }
}

/// The insertion of one secret into a request.
struct Step<'a> {
    permit: &'a Permit,
    plan: &'a Plan,
    secret: &'a Secret,
}

impl Step<'_> {
    fn fill(
        &self,
        spot: &Spot,
        value: &Value,
        parts: &mut Parts,
        body: Option<&mut Vec<u8>>,
    ) -> Result<(), InjectError> {
        match spot {
            Spot::Header { name, form } => {
                let known = |text: &str| self.plan.placeholders.get(text).map(drop);
                let now = parts.headers.get(name).and_then(|value| spot::in_header(value, known));
                if now.is_none_or(|(now, ())| now != *form) {
                    return Err(self.changed());
                }
                let header = form.fill(value.expose()).ok_or_else(|| self.unfit(name.as_str()))?;
                parts.headers.insert(name, header);
            }
            Spot::Query { name } => {
                let known = |(key, value): (&str, &str)| {
                    key == name && self.plan.placeholders.get(&spot::decoded(value)).is_some()
                };
                if !spot::parameters(&parts.uri).any(known) {
                    return Err(self.changed());
                }
                let uri = spot::with_parameter(&parts.uri, name, value.expose());
                parts.uri = uri.ok_or_else(|| self.unfit(name))?;
            }
            Spot::Json { pointer } => {
                let body = body.ok_or_else(|| self.no_body())?;
                self.fill_json(pointer, value, body)?;
                if parts.headers.contains_key(CONTENT_LENGTH) {
                    parts.headers.insert(CONTENT_LENGTH, HeaderValue::from(body.len()));
                }
            }
        }
        Ok(())
    }

    fn fill_json(
        &self,
        pointer: &str,
        value: &Value,
        body: &mut Vec<u8>,
    ) -> Result<(), InjectError> {
        let found = json::find(body, pointer).ok().flatten().ok_or_else(|| self.changed())?;
        if self.plan.placeholders.get(&found.text).is_none() {
            return Err(self.changed());
        }
        let text = std::str::from_utf8(value.expose()).map_err(|_| self.unfit(pointer))?;
        let filled = json::replace(body, &found.span, text).ok_or_else(|| self.unfit(pointer))?;
        let mut old = std::mem::replace(body, filled);
        old.zeroize(); // it can contain the value of another slot
        Ok(())
    }

    fn sigv4(
        &self,
        scope: &sigv4::Scope,
        parts: &mut Parts,
        body: Option<&[u8]>,
    ) -> Result<(), InjectError> {
        let Some(keys) = Keys::parse(&self.secret.value) else {
            return Err(self.unfit("authorization"));
        };
        let host = self.host();
        if parts.headers.contains_key(HOST) {
            let value = HeaderValue::from_str(&host).map_err(|_| self.unfit("host"))?;
            parts.headers.insert(HOST, value);
        }
        let request = sigv4::Request {
            method: parts.method.as_str(),
            path: parts.uri.path(),
            query: parts.uri.query().unwrap_or_default(),
            host: &host,
            body,
        };
        let stamp = Stamp::at(self.plan.now);
        sigv4::sign(&keys, scope, &stamp, &request, &mut parts.headers)
            .map_err(|source| InjectError::SigV4 { name: self.name(), source })
    }

    fn hmac(&self, parts: &mut Parts, body: Option<&[u8]>) -> Result<(), InjectError> {
        let SecretKind::Hmac { header, algorithm, encoding, prefix, message, timestamp_header } =
            &self.secret.decl.kind
        else {
            return Err(self.changed());
        };
        if self.secret.signs_body() && body.is_none() {
            return Err(self.no_body());
        }
        let timestamp = hmac::timestamp(self.plan.now);
        let host = self.host();
        let request = hmac::Request {
            method: parts.method.as_str(),
            host: &host,
            path: parts.uri.path(),
            query: parts.uri.query().unwrap_or_default(),
            body: body.unwrap_or_default(),
            timestamp: &timestamp,
        };
        let code = hmac::code(&self.secret.value, *algorithm, *encoding, message, &request);
        let code = Zeroizing::new(format!("{prefix}{code}"));
        self.set(parts, header, &code)?;
        timestamp_header.as_ref().map_or(Ok(()), |header| self.set(parts, header, &timestamp))
    }

    fn set(&self, parts: &mut Parts, name: &str, value: &str) -> Result<(), InjectError> {
        let header = HeaderName::from_bytes(name.as_bytes()).map_err(|_| self.unfit(name))?;
        let mut value = HeaderValue::from_str(value).map_err(|_| self.unfit(name))?;
        value.set_sensitive(true);
        parts.headers.insert(header, value);
        Ok(())
    }

    /// Returns the value of the request's `Host` header.
    fn host(&self) -> String {
        let target = self.permit.target();
        match self.permit.port() {
            port if port == self.permit.scheme().port() => target.to_string(),
            port => format!("{target}:{port}"),
        }
    }

    fn name(&self) -> SecretName {
        self.secret.decl.name.clone()
    }

    fn changed(&self) -> InjectError {
        InjectError::Changed { name: self.name() }
    }

    fn unfit(&self, slot: &str) -> InjectError {
        InjectError::Unfit { name: self.name(), slot: slot.to_owned() }
    }

    fn no_body(&self) -> InjectError {
        InjectError::NoBody { name: self.name() }
    }
}
