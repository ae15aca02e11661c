//! Declarations of secrets. The values are not in this crate: only the broker holds them.

use std::collections::BTreeSet;
use std::fmt;
use std::str::FromStr;

use serde::ser::{SerializeStruct as _, Serializer};
use serde::{Deserialize, Serialize};

use super::budget::Budget;
use super::by_text;
use super::host::Target;
use super::pattern::{HostPattern, PathPattern, PathPatternError};
use super::shape::Shape;
use super::signer::SecretKind;
use super::slot::{Slot, SlotError, header_name, json_pointer};
use super::web::Method;
use crate::plan::Label;

/// The name of a secret: lower-case letters, digits, `-` and `_`; also the name of its file.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SecretName(String);

/// The reason why a text is not a valid secret name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error(
    "invalid secret name; use 1 to 64 characters of a-z, 0-9, `-` and `_`, and start with a letter or digit"
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

/// A token in a response that must not reach the box, written `/oauth/token json:/access_token`.
///
/// The box gets a new placeholder instead, which is valid in the same requests as the secret.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Capture {
    /// The paths of the requests whose responses contain the token.
    pub path: PathPattern,
    pub from: CaptureFrom,
}

/// The location of a token in a response: a JSON pointer or a header.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum CaptureFrom {
    /// The token is in the response body, at this JSON pointer (RFC 6901).
    Json(String),
    /// The token is in the response header with this name, in lower case.
    Header(String),
}

/// The reason why a text is not a valid capture.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum CaptureError {
    #[error(
        "invalid capture; write a path and a location, for example \"/oauth/token json:/access_token\""
    )]
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

/// The declaration of a secret: its hosts, its slots in requests, and its placeholder.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct SecretDecl {
    pub name: SecretName,
    /// The hosts that can receive the secret; never empty.
    pub hosts: Vec<HostPattern>,
    /// The parts of a request that can hold the secret; never empty.
    pub slots: Vec<Slot>,
    /// The HTTP methods of requests that can carry the secret; `None` means all that the rule
    /// allows.
    pub methods: Option<BTreeSet<Method>>,
    pub paths: Option<Vec<PathPattern>>,
    pub shape: Shape,
    /// The environment variable of the box that holds the placeholder.
    pub env: Option<String>,
    pub kind: SecretKind,
    pub captures: Vec<Capture>,
    pub budget: Budget,
    /// The labels that remove the secret from the box of a task.
    #[serde(default)]
    pub deny_when: BTreeSet<Label>,
}

/// The JSON of a declaration is hashed as a part of the policy in `run.created`, and must not change for
/// secrets without `deny_when`. Binary formats need every field.
impl Serialize for SecretDecl {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let Self {
            name,
            hosts,
            slots,
            methods,
            paths,
            shape,
            env,
            kind,
            captures,
            budget,
            deny_when,
        } = self;
        let is_omitted = serializer.is_human_readable() && deny_when.is_empty();
        let count = if is_omitted { 10 } else { 11 };
        let mut fields = serializer.serialize_struct("SecretDecl", count)?;
        fields.serialize_field("name", name)?;
        fields.serialize_field("hosts", hosts)?;
        fields.serialize_field("slots", slots)?;
        fields.serialize_field("methods", methods)?;
        fields.serialize_field("paths", paths)?;
        fields.serialize_field("shape", shape)?;
        fields.serialize_field("env", env)?;
        fields.serialize_field("kind", kind)?;
        fields.serialize_field("captures", captures)?;
        fields.serialize_field("budget", budget)?;
        match is_omitted {
            true => fields.skip_field("deny_when")?,
            false => fields.serialize_field("deny_when", deny_when)?,
        }
        fields.end()
    }
}

/// The reason why the declaration of a secret is invalid.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SecretDeclError {
    #[error("`hosts` is missing; list the hosts that may get the secret")]
    NoHosts,
    #[error("`slots` is empty, so no request could carry the secret; leave it out for the default")]
    NoSlots,
    #[error("`methods` is empty, so no request could carry the secret; leave it out to allow all")]
    NoMethods,
    #[error("`paths` is empty, so no request could carry the secret; leave it out to allow all")]
    NoPaths,
    #[error("`env = \"{0}\"` is not a valid variable name")]
    Env(String),
}

impl SecretDecl {
    /// Returns the names of the secrets whose values are needed: this one, and its client secret if
    /// any.
    pub fn needs(&self) -> impl Iterator<Item = &SecretName> {
        let other = match &self.kind {
            SecretKind::OAuth2 { client_secret, .. } => client_secret.as_ref(),
            SecretKind::Token | SecretKind::SigV4 { .. } | SecretKind::Hmac { .. } => None,
        };
        std::iter::once(&self.name).chain(other)
    }

    /// Returns the declaration of a token that is sent to these hosts in the `Authorization`
    /// header.
    pub fn token(name: SecretName, hosts: Vec<HostPattern>) -> Self {
        Self {
            name,
            hosts,
            slots: vec![Slot::Header("authorization".to_owned())],
            methods: None,
            paths: None,
            shape: Shape::default(),
            env: None,
            kind: SecretKind::Token,
            captures: Vec::new(),
            budget: Budget::default(),
            deny_when: BTreeSet::new(),
        }
    }

    /// Returns whether this host can receive the secret.
    pub fn is_for(&self, target: &Target) -> bool {
        self.hosts.iter().any(|host| host.matches(target))
    }

    /// Returns whether a request can carry the secret.
    ///
    /// `is_path` returns whether a pattern allows the path of the request in every possible reading.
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

    /// Returns an error if the declaration of the secret could never be used.
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
