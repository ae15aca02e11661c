//! Secrets: sealed on disk, and added to a request only in the declared places.
//!
//! The box has placeholders. [`Vault::plan`] searches a request for them and plans which secrets go
//! where, or reports misuse. [`Vault::inject`] adds the values after the use is recorded. The
//! values of a secret are removed from all responses of the hosts that it is bound to.
//!
//! **Invariant:** no function of this module returns a value to its caller. Values leave the vault
//! in requests only.

mod armed;
mod capture;
mod inject;
mod json;
mod misuse;
mod oauth2;
mod percent;
mod placeholder;
mod placeholder_set;
mod plan;
mod private;
pub mod sealed;
mod sign;
mod spot;
pub mod store;
mod value;

pub use armed::TooManyTokens;
pub use capture::{CaptureError, Captured, Captures, MAX_CAPTURED_BODY};
pub use inject::{InjectError, Injected};
pub use misuse::{Misuse, MisuseKind};
pub use oauth2::{Due, Fetched, RefreshError, Renewal, TokenRequest};
pub use placeholder::NoRandom;
pub use placeholder_set::BodyGuard;
pub use plan::{BodyNeed, MAX_BUFFERED, Plan, Used};
pub use private::NotPrivate;
pub use sign::sigv4::SigV4Error;
pub use value::{KindError, MAX_VALUE, MIN_VALUE, Value, ValueError};

use std::sync::{Arc, PoisonError, RwLock};

use belljar_model::net::{
    MessagePart, Scheme, SecretDecl, SecretKind, SecretName, Shape, Slot, Target,
};
use zeroize::Zeroizing;

use self::armed::Armed;
use self::oauth2::Token;
use self::placeholder::Random;
use self::placeholder_set::{Meaning, Placeholder, PlaceholderSet};
use self::sealed::Key;
use self::sign::sigv4::Keys;
use crate::scrub::{Finder, Scrubber};

/// The secrets of one box with their values and placeholders, in the memory of the broker.
#[derive(Debug)]
pub struct Vault {
    secrets: Vec<Secret>,
    /// The names of the secrets, in the same order as the secrets.
    names: Vec<String>,
    placeholder_set: RwLock<Arc<PlaceholderSet>>,
    armed: Armed,
    random: Random,
    /// The vault key that encrypts renewed refresh tokens.
    key: Option<Key>,
}

/// One secret of a box with its declaration and value.
#[derive(Debug)]
struct Secret {
    decl: SecretDecl,
    value: Arc<Value>,
    /// The client secret that is sent to the token server with a refresh token.
    client_secret: Option<Arc<Value>>,
    /// The access token of an `oauth2` secret.
    token: Token,
}

/// The reason why the secrets of a box cannot be prepared.
#[derive(Debug, thiserror::Error)]
pub enum VaultError {
    #[error("the secret {name} is not set; set it with `belljar secret set {name}`")]
    NoValue { name: SecretName },
    #[error("the secret {name} is declared twice")]
    Twice { name: SecretName },
    #[error("the secret {name} cannot be used in {slot}")]
    Slot { name: SecretName, slot: Slot },
    #[error("the secret {name} does not fit its declaration")]
    Kind { name: SecretName, source: KindError },
    #[error("cannot create placeholders")]
    Random(#[from] NoRandom),
}

impl Vault {
    /// Creates the vault of a box with these secrets and their values. `values` also contains the
    /// values of secrets that another secret names.
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
            // Parsed slots are valid; this check is for declarations that were built in code (B03).
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
        let mut placeholder_set = PlaceholderSet::new(Vec::new(), &names);
        for (at, secret) in secrets.iter().enumerate() {
            for (shape, meaning) in secret.placeholders() {
                let text = placeholder_set.mint(&shape, random)?;
                placeholder_set =
                    placeholder_set.with(Placeholder { text, secret: at, meaning }, &names);
            }
        }
        let placeholder_set = RwLock::new(Arc::new(placeholder_set));
        let armed = secrets.iter().enumerate();
        let armed =
            armed.flat_map(|(at, secret)| secret.armed().into_iter().map(move |it| (at, it)));
        let armed = Armed::new(armed.collect());
        Ok(Self { secrets, names, placeholder_set, armed, random, key: None })
    }

    /// Sets the vault key and the storage times that are needed to seal renewed refresh tokens.
    /// Drops the key if no secret can be renewed.
    pub fn renewing(mut self, key: Option<Key>, set_at: &[(SecretName, u64)]) -> Self {
        for secret in self.secrets.iter().filter(|secret| secret.is_renewed()) {
            let own = set_at.iter().find(|(name, _)| *name == secret.decl.name);
            own.iter().for_each(|(_, at)| secret.token.set_at(*at));
        }
        self.key = key.filter(|_| self.secrets.iter().any(Secret::is_renewed));
        self
    }

    /// Returns the placeholders for the box, each with its secret and its environment variable.
    pub fn placeholders(&self) -> Vec<(SecretName, Option<String>, String)> {
        let of = |placeholder: &Placeholder| {
            let secret = self.secrets.get(placeholder.secret)?;
            let variable = secret.variable(&placeholder.meaning)?;
            Some((secret.decl.name.clone(), variable, placeholder.text.clone()))
        };
        self.placeholder_set().all().iter().filter_map(of).collect()
    }

    /// Returns a finder for all placeholders of this box in any encoding. It becomes outdated with
    /// each captured token.
    pub fn finder(&self) -> Finder {
        self.placeholder_set().finder().clone()
    }

    /// Returns the guard for request bodies to this host. Placeholders of secrets that are bound to
    /// the host are masked if the connection uses TLS; all others stop the request.
    pub fn body_guard(&self, scheme: Scheme, target: &Target) -> BodyGuard {
        self.placeholder_set().guard(self.masked(scheme, target))
    }

    /// Returns the indices of the secrets whose placeholders are masked in request bodies.
    fn masked(&self, scheme: Scheme, target: &Target) -> Vec<usize> {
        let is_masked = |secret: &Secret| scheme == Scheme::Https && secret.decl.is_for(target);
        let secrets = self.secrets.iter().enumerate();
        secrets.filter(|(_, secret)| is_masked(secret)).map(|(at, _)| at).collect()
    }

    /// Returns a scrubber for responses of this host. It removes the values of all secrets that are bound to
    /// the host.
    pub fn scrubber(&self, target: &Target) -> Scrubber {
        let bound = self.secrets.iter().enumerate().filter(|(_, it)| it.is_bound_to(target));
        self.armed.scrubber(bound.map(|(at, _)| at).collect(), &self.names)
    }

    /// Arms a token of a secret, so that it is removed from responses like the secret.
    fn arm(&self, secret: usize, token: &Arc<Value>) -> Result<(), TooManyTokens> {
        self.armed.add(secret, token, &self.names)
    }

    fn placeholder_set(&self) -> Arc<PlaceholderSet> {
        Arc::clone(&self.placeholder_set.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// Creates a placeholder for a token that was captured from a response.
    fn add_captured(
        &self,
        secret: usize,
        shape: &Shape,
        value: Arc<Value>,
    ) -> Result<String, NoRandom> {
        let mut placeholder_set =
            self.placeholder_set.write().unwrap_or_else(PoisonError::into_inner);
        let text = placeholder_set.mint(shape, self.random)?;
        let new = Placeholder { text: text.clone(), secret, meaning: Meaning::Captured(value) };
        *placeholder_set = Arc::new(placeholder_set.with(new, &self.names));
        Ok(text)
    }
}

impl Secret {
    /// Returns the placeholders that this secret needs: the shape and the meaning of each.
    fn placeholders(&self) -> Vec<(Shape, Meaning)> {
        let shape = self.decl.shape.clone();
        match self.decl.kind {
            SecretKind::Token | SecretKind::OAuth2 { .. } => vec![(shape, Meaning::Own)],
            SecretKind::Hmac { .. } => vec![(shape, Meaning::Key)],
            SecretKind::SigV4 { .. } => {
                let secret = "{40}".parse().unwrap_or_else(|_| Shape::default());
                vec![(shape, Meaning::AccessId), (secret, Meaning::Key)]
            }
        }
    }

    /// Returns the environment variable of a placeholder; outer `None` for a placeholder that the
    /// box does not get.
    fn variable(&self, meaning: &Meaning) -> Option<Option<String>> {
        let env = self.decl.env.clone();
        let is_pair = matches!(self.decl.kind, SecretKind::SigV4 { .. });
        match meaning {
            Meaning::Captured(_) => None,
            Meaning::Own => Some(env),
            // The variable names that all AWS programs use.
            Meaning::AccessId => Some(env.or_else(|| Some("AWS_ACCESS_KEY_ID".to_owned()))),
            Meaning::Key if is_pair => Some(Some("AWS_SECRET_ACCESS_KEY".to_owned())),
            Meaning::Key => Some(env),
        }
    }

    /// Returns whether the signature of this secret covers the request body.
    fn signs_body(&self) -> bool {
        matches!(&self.decl.kind, SecretKind::Hmac { message, .. } if message.has(&MessagePart::Body))
    }

    /// Returns whether responses of this host are searched for the values of this secret: the hosts
    /// that can receive it, and its token server.
    fn is_bound_to(&self, target: &Target) -> bool {
        let is_token_server = matches!(
            &self.decl.kind,
            SecretKind::OAuth2 { token_url, .. } if token_url.target == *target
        );
        self.decl.is_for(target) || is_token_server
    }

    /// Returns the values that are removed from responses from the start. The id of an AWS key pair
    /// is not secret.
    fn armed(&self) -> Vec<Arc<Value>> {
        let value = |bytes: &[u8]| Value::new(Zeroizing::new(bytes.to_vec())).map(Arc::new).ok();
        match &self.decl.kind {
            SecretKind::Token | SecretKind::Hmac { .. } => vec![Arc::clone(&self.value)],
            SecretKind::OAuth2 { .. } => [Some(&self.value), self.client_secret.as_ref()]
                .into_iter()
                .flatten()
                .cloned()
                .collect(),
            SecretKind::SigV4 { .. } => Keys::parse(&self.value).map_or_else(Vec::new, |keys| {
                let session = keys.session.and_then(|session| value(session.as_bytes()));
                value(keys.secret).into_iter().chain(session).collect()
            }),
        }
    }
}

#[cfg(test)]
mod tests;
