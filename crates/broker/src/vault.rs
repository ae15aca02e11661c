//! Secrets: sealed on disk, and in a request only where and when they may be.
//!
//! The box has placeholders. [`Vault::plan`] looks for them in a request and says which secrets would go
//! where, or that something is wrong; [`Vault::inject`] puts the values in once that is on record. What
//! went toward a host is taken out of everything that comes back from it.
//!
//! **Invariant:** no function of this module gives a value to whoever calls it. They leave in requests.

mod capture;
mod held;
mod inject;
mod json;
mod misuse;
mod oauth2;
mod percent;
mod placeholder;
mod plan;
mod private;
pub mod sealed;
mod sent;
mod sign;
mod spot;
pub mod store;
mod value;

pub use capture::{CaptureError, Captured, Captures, MAX_CAPTURED_BODY};
pub use inject::{InjectError, Injected};
pub use misuse::{Misuse, MisuseKind};
pub use oauth2::{Due, Fetched, RefreshError, Renewal, TokenRequest};
pub use placeholder::NoRandom;
pub use plan::{BodyNeed, MAX_BUFFERED, Plan, Used};
pub use private::NotPrivate;
pub use sign::sigv4::SigV4Error;
pub use value::{KindError, MAX_VALUE, MIN_VALUE, Value, ValueError};

use std::sync::{Arc, PoisonError, RwLock};

use belljar_model::net::{MessagePart, SecretDecl, SecretKind, SecretName, Shape, Slot, Target};
use zeroize::Zeroizing;

use self::held::{Held, Placeholder, Stands};
use self::oauth2::Token;
use self::placeholder::Random;
use self::sealed::Key;
use self::sent::{Lasting, Sent, Travelled};
use self::sign::sigv4::Keys;
use crate::scrub::{Finder, Scrubber};

/// The secrets of one box.
#[derive(Debug)]
pub struct Vault {
    secrets: Vec<Secret>,
    /// The names of the same, in the same order.
    names: Vec<String>,
    held: RwLock<Arc<Held>>,
    sent: Sent,
    random: Random,
    /// What seals a refresh token that took the place of another.
    key: Option<Key>,
}

/// One secret, with what it may be used for.
#[derive(Debug)]
struct Secret {
    decl: SecretDecl,
    value: Arc<Value>,
    /// What a client shows beside a refresh token.
    client_secret: Option<Arc<Value>>,
    /// The access token of an `oauth2`.
    token: Token,
}

/// Why there is no vault for a box.
#[derive(Debug, thiserror::Error)]
pub enum VaultError {
    #[error("the secret {name} is not set; `belljar secret set {name}`")]
    NoValue { name: SecretName },
    #[error("the secret {name} is declared twice")]
    Twice { name: SecretName },
    #[error("the secret {name} may not stand in {slot}")]
    Slot { name: SecretName, slot: Slot },
    #[error("the secret {name} is of no use")]
    Kind { name: SecretName, source: KindError },
    #[error("make placeholders")]
    Random(#[from] NoRandom),
}

impl Vault {
    /// For these secrets with these values. Of `values`, also those that another secret names.
    pub fn new(
        decls: Vec<SecretDecl>,
        values: Vec<(SecretName, Value)>,
    ) -> Result<Self, VaultError> {
        Self::with_random(decls, values, placeholder::system)
    }

    fn with_random(
        decls: Vec<SecretDecl>,
        values: Vec<(SecretName, Value)>,
        random: Random,
    ) -> Result<Self, VaultError> {
        let values: Vec<(SecretName, Arc<Value>)> =
            values.into_iter().map(|(name, value)| (name, Arc::new(value))).collect();
        let value_of = |name: &SecretName| {
            let found = values.iter().find(|(own, _)| own == name);
            let none = || VaultError::NoValue { name: name.clone() };
            found.map(|(_, value)| Arc::clone(value)).ok_or_else(none)
        };
        let mut secrets: Vec<Secret> = Vec::new();
        for decl in decls {
            let name = decl.name.clone();
            if secrets.iter().any(|secret| secret.decl.name == name) {
                return Err(VaultError::Twice { name });
            }
            // What was parsed is legal; this is for what was put together in another way (B03).
            let is_legal = |slot: &&Slot| slot.to_string().parse::<Slot>().as_ref() == Ok(*slot);
            if let Some(slot) = decl.slots.iter().find(|slot| !is_legal(slot)) {
                return Err(VaultError::Slot { name, slot: slot.clone() });
            }
            let value = value_of(&name)?;
            value.check(&decl.kind).map_err(|source| VaultError::Kind { name, source })?;
            let client_secret = match &decl.kind {
                SecretKind::OAuth2 { client_secret: Some(other), .. } => Some(value_of(other)?),
                SecretKind::OAuth2 { .. }
                | SecretKind::Token
                | SecretKind::SigV4 { .. }
                | SecretKind::Hmac { .. } => None,
            };
            secrets.push(Secret { decl, value, client_secret, token: Token::default() });
        }
        let names: Vec<String> =
            secrets.iter().map(|secret| secret.decl.name.to_string()).collect();
        let mut held = Held::new(Vec::new(), &names);
        for (at, secret) in secrets.iter().enumerate() {
            for (shape, stands) in secret.placeholders() {
                let text = held.mint(&shape, random)?;
                held = held.with(Placeholder { text, secret: at, stands }, &names);
            }
        }
        let held = RwLock::new(Arc::new(held));
        Ok(Self { secrets, names, held, sent: Sent::default(), random, key: None })
    }

    /// Lets refresh tokens be sealed anew, by what is known of when they were set. Where there is
    /// none, the key is wiped.
    pub fn renewing(mut self, key: Option<Key>, set_at: &[(SecretName, u64)]) -> Self {
        for secret in self.secrets.iter().filter(|secret| secret.is_renewed()) {
            let own = set_at.iter().find(|(name, _)| *name == secret.decl.name);
            own.iter().for_each(|(_, at)| secret.token.set_at(*at));
        }
        self.key = key.filter(|_| self.secrets.iter().any(Secret::is_renewed));
        self
    }

    /// What the box gets: the secret, the variable that it is found in, and the placeholder.
    pub fn placeholders(&self) -> Vec<(SecretName, Option<String>, String)> {
        let of = |placeholder: &Placeholder| {
            let secret = self.secrets.get(placeholder.secret)?;
            let variable = secret.variable(&placeholder.stands)?;
            Some((secret.decl.name.clone(), variable, placeholder.text.clone()))
        };
        self.held().all().iter().filter_map(of).collect()
    }

    /// Finds any placeholder of this box, in any encoding. Another one after each capture.
    pub fn finder(&self) -> Finder {
        self.held().finder().clone()
    }

    /// Takes all out of a response that was ever put into requests to this host.
    pub fn scrubber(&self, target: &Target) -> Scrubber {
        self.sent.scrubber(target)
    }

    fn remember(&self, target: &Target, values: Vec<Travelled>) -> Scrubber {
        self.sent.add(target, values)
    }

    fn held(&self) -> Arc<Held> {
        Arc::clone(&self.held.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// A new placeholder for a value that came from outside.
    fn hold(&self, secret: usize, shape: &Shape, value: Arc<Value>) -> Result<String, NoRandom> {
        let mut held = self.held.write().unwrap_or_else(PoisonError::into_inner);
        let text = held.mint(shape, self.random)?;
        let new = Placeholder { text: text.clone(), secret, stands: Stands::Captured(value) };
        *held = Arc::new(held.with(new, &self.names));
        Ok(text)
    }
}

impl Secret {
    /// What stands for it, and in which shape.
    fn placeholders(&self) -> Vec<(Shape, Stands)> {
        let shape = self.decl.shape.clone();
        match self.decl.kind {
            SecretKind::Token | SecretKind::OAuth2 { .. } => vec![(shape, Stands::Own)],
            SecretKind::Hmac { .. } => vec![(shape, Stands::Key)],
            SecretKind::SigV4 { .. } => {
                let secret = "{40}".parse().unwrap_or_else(|_| Shape::default());
                vec![(shape, Stands::AccessId), (secret, Stands::Key)]
            }
        }
    }

    /// The variable that the box finds a placeholder in; nothing for what it got in another way.
    fn variable(&self, stands: &Stands) -> Option<Option<String>> {
        let env = self.decl.env.clone();
        let is_pair = matches!(self.decl.kind, SecretKind::SigV4 { .. });
        match stands {
            Stands::Captured(_) => None,
            Stands::Own => Some(env),
            // As every program looks for them.
            Stands::AccessId => Some(env.or_else(|| Some("AWS_ACCESS_KEY_ID".to_owned()))),
            Stands::Key if is_pair => Some(Some("AWS_SECRET_ACCESS_KEY".to_owned())),
            Stands::Key => Some(env),
        }
    }

    /// Whether a code is made over the body.
    fn signs_body(&self) -> bool {
        matches!(&self.decl.kind, SecretKind::Hmac { message, .. } if message.has(&MessagePart::Body))
    }

    fn travelled(&self, value: Arc<Value>, kind: Lasting) -> Travelled {
        Travelled { name: self.decl.name.to_string(), value, kind }
    }

    /// What a signed request shows of a pair of keys that is a secret: the token of a session. The id
    /// of a key is none, and to look for it would forbid ranges of large objects.
    fn travelling(&self) -> Option<Travelled> {
        let session = Keys::parse(&self.value)?.session?;
        let value = Value::new(Zeroizing::new(session.as_bytes().to_vec())).ok()?;
        Some(self.travelled(Arc::new(value), Lasting::Secret))
    }
}

#[cfg(test)]
mod tests;
