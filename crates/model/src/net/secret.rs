//! What a secret is for. Its value is nowhere in here: only the broker holds values.

use std::collections::BTreeSet;
use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use super::budget::Budget;
use super::by_text;
use super::host::Target;
use super::pattern::{HostPattern, PathPattern, PathPatternError};
use super::shape::Shape;
use super::signer::Kind;
use super::slot::{Slot, SlotError, header_name, json_pointer};
use super::web::Method;

/// The name of a secret: small letters, digits, `-` and `_`; it is also the name of a file.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SecretName(String);

/// Why a text is not a secret's name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error(
    "a secret's name has 1 to 64 small letters, digits, `-` and `_`, and begins with a letter or digit"
)]
pub struct SecretNameError;

impl SecretName {
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromStr for SecretName {
    type Err = SecretNameError;

    fn from_str(text: &str) -> Result<Self, SecretNameError> {
        let small = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
        let first = text.bytes().next().is_some_and(small);
        let rest = text.bytes().all(|byte| small(byte) || matches!(byte, b'-' | b'_'));
        if first && rest && text.len() <= 64 {
            Ok(Self(text.to_owned()))
        } else {
            Err(SecretNameError)
        }
    }
}

impl fmt::Display for SecretName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.0)
    }
}

impl AsRef<str> for SecretName {
    fn as_ref(&self) -> &str {
        &self.0
    }
}

/// A token in a response that must not reach the box: `/oauth/token json:/access_token`. The box gets
/// a new placeholder in its place, which is good where the secret itself is.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Capture {
    /// Responses to requests for these paths.
    pub path: PathPattern,
    pub from: CaptureFrom,
}

/// Where in a response a token stands.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum CaptureFrom {
    /// RFC 6901.
    Json(String),
    /// In small letters.
    Header(String),
}

/// Why a text is not a capture.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum CaptureError {
    #[error("write a path and a place, for example \"/oauth/token json:/access_token\"")]
    Malformed,
    #[error(transparent)]
    Path(PathPatternError),
    #[error(transparent)]
    From(SlotError),
}

impl FromStr for Capture {
    type Err = CaptureError;

    fn from_str(text: &str) -> Result<Self, CaptureError> {
        let (path, from) = text.split_once(' ').ok_or(CaptureError::Malformed)?;
        let path = path.parse().map_err(CaptureError::Path)?;
        let from = match from.split_once(':').ok_or(CaptureError::Malformed)? {
            ("json", pointer) => json_pointer(pointer).map(CaptureFrom::Json),
            ("header", name) => header_name(name).map(CaptureFrom::Header),
            _ => return Err(CaptureError::Malformed),
        };
        Ok(Self { path, from: from.map_err(CaptureError::From)? })
    }
}

impl fmt::Display for Capture {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.from {
            CaptureFrom::Json(pointer) => write!(f, "{} json:{pointer}", self.path),
            CaptureFrom::Header(name) => write!(f, "{} header:{name}", self.path),
        }
    }
}

by_text!(SecretName, Capture);

/// Where a secret may go and what stands for it in the box.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SecretDecl {
    pub name: SecretName,
    /// Never empty.
    pub hosts: Vec<HostPattern>,
    /// Never empty.
    pub slots: Vec<Slot>,
    /// `None`: all that the rule allows.
    pub methods: Option<BTreeSet<Method>>,
    pub paths: Option<Vec<PathPattern>>,
    pub shape: Shape,
    /// The variable in which the box finds the placeholder.
    pub env: Option<String>,
    pub kind: Kind,
    pub captures: Vec<Capture>,
    pub budget: Budget,
}

/// Why a declaration makes no sense.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SecretDeclError {
    #[error("`hosts` is missing: a secret goes to the hosts that are named and no others")]
    NoHosts,
    #[error("`slots` is empty: the secret could stand nowhere")]
    NoSlots,
    #[error("`methods` is empty: the secret could never be used; leave it out to allow all")]
    NoMethods,
    #[error("`paths` is empty: the secret could never be used; leave it out to allow all")]
    NoPaths,
    #[error("`env = \"{0}\"` is not the name of a variable")]
    Env(String),
}

impl SecretDecl {
    /// The secrets whose values it is made of: its own, and what a client shows beside it.
    pub fn needs(&self) -> impl Iterator<Item = &SecretName> {
        let other = match &self.kind {
            Kind::OAuth2 { client_secret, .. } => client_secret.as_ref(),
            Kind::Token | Kind::SigV4 { .. } | Kind::Hmac { .. } => None,
        };
        std::iter::once(&self.name).chain(other)
    }

    /// A token for these hosts, in the `Authorization` header.
    pub fn token(name: SecretName, hosts: Vec<HostPattern>) -> Self {
        Self {
            name,
            hosts,
            slots: vec![Slot::Header("authorization".to_owned())],
            methods: None,
            paths: None,
            shape: Shape::default(),
            env: None,
            kind: Kind::Token,
            captures: Vec::new(),
            budget: Budget::default(),
        }
    }

    /// Whether it may go to this host.
    pub fn is_for(&self, target: &Target) -> bool {
        self.hosts.iter().any(|host| host.matches(target))
    }

    /// Whether it may go along with a request.
    ///
    /// `is_path` tells whether a pattern allows the request's path, in every way that a server may read it.
    pub fn covers(
        &self,
        target: &Target,
        method: &Method,
        is_path: impl Fn(&PathPattern) -> bool,
    ) -> bool {
        self.is_for(target)
            && self.methods.as_ref().is_none_or(|methods| methods.contains(method))
            && self.paths.as_ref().is_none_or(|paths| paths.iter().any(is_path))
    }

    /// Refuses what could never work.
    pub fn check(&self) -> Result<(), SecretDeclError> {
        if self.hosts.is_empty() {
            return Err(SecretDeclError::NoHosts);
        }
        if self.slots.is_empty() {
            return Err(SecretDeclError::NoSlots);
        }
        if self.methods.as_ref().is_some_and(BTreeSet::is_empty) {
            return Err(SecretDeclError::NoMethods);
        }
        if self.paths.as_ref().is_some_and(Vec::is_empty) {
            return Err(SecretDeclError::NoPaths);
        }
        let Some(env) = &self.env else { return Ok(()) };
        match crate::env::EnvVar::new(env, None) {
            Ok(_) => Ok(()),
            Err(_) => Err(SecretDeclError::Env(env.clone())),
        }
    }
}
