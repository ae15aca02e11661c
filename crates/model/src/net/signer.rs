//! Kinds of secrets, including keys that the broker uses for signing and never sends.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use super::by_text;
use super::host::{Target, TargetError, split_port};
use super::secret::SecretName;

/// The kind of a secret, which decides how the broker uses it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum SecretKind {
    /// The secret is a text that replaces its placeholder.
    #[default]
    Token,
    /// The secret is a pair of AWS keys, `ID:SECRET`, with which the broker signs requests again.
    SigV4 {
        /// The AWS region; by default from the host name or from the box's own signature.
        region: Option<String>,
        service: Option<String>,
    },
    /// The secret is a key for a message authentication code (HMAC) of the request.
    Hmac {
        /// The name of the header that gets the authentication code, in lower case.
        header: String,
        algorithm: HmacAlgorithm,
        encoding: HmacEncoding,
        /// The text before the authentication code in the header, for example `sha256=`.
        prefix: String,
        message: SignedMessage,
        /// The name of the header that gets the time of `{timestamp}` in seconds, in lower case.
        timestamp_header: Option<String>,
    },
    /// The secret is a refresh token or client secret, with which the broker fetches access tokens.
    OAuth2 {
        token_url: TokenUrl,
        grant: Grant,
        client_id: Option<String>,
        /// The name of the client secret, for clients that need one to refresh tokens.
        client_secret: Option<SecretName>,
        auth: ClientAuth,
        body: TokenBody,
        scope: Option<String>,
    },
}

impl SecretKind {
    pub const NAMES: [&str; 4] = ["token", "sigv4", "hmac", "oauth2"];

    /// Returns the name of the secret's kind in `belljar.toml`.
    pub const fn name(&self) -> &'static str {
        match self {
            Self::Token => "token",
            Self::SigV4 { .. } => "sigv4",
            Self::Hmac { .. } => "hmac",
            Self::OAuth2 { .. } => "oauth2",
        }
    }
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum HmacAlgorithm {
    Sha1,
    #[default]
    Sha256,
    Sha512,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum HmacEncoding {
    #[default]
    Hex,
    Base64,
}

/// The OAuth grant by which an access token is requested (RFC 6749 §6, §4.4).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Grant {
    #[default]
    RefreshToken,
    ClientCredentials,
}

/// How a client authenticates to the token server (RFC 6749 §2.3.1).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ClientAuth {
    #[default]
    Body,
    Basic,
}

/// The format of a request to the token server: a form as in RFC 6749, or JSON for some servers.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum TokenBody {
    #[default]
    Form,
    Json,
}

/// The error for a text that is not one of a few choices, which lists the choices.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("invalid choice; write one of {}", .0.join(", "))]
pub struct ChoiceError(&'static [&'static str]);

impl ChoiceError {
    /// Creates the error for a text that is not one of these names.
    pub(crate) const fn of(names: &'static [&'static str]) -> Self {
        Self(names)
    }
}

/// Returns the choice with this name, or an error that lists the names.
fn choose<T: Copy>(
    text: &str,
    names: &'static [&'static str],
    choices: &[T],
) -> Result<T, ChoiceError> {
    let place = names.iter().position(|name| *name == text);
    place.and_then(|place| choices.get(place)).copied().ok_or(ChoiceError(names))
}

impl FromStr for HmacAlgorithm {
    type Err = ChoiceError;

    fn from_str(text: &str) -> Result<Self, ChoiceError> {
        choose(text, &["sha1", "sha256", "sha512"], &[Self::Sha1, Self::Sha256, Self::Sha512])
    }
}

impl FromStr for HmacEncoding {
    type Err = ChoiceError;

    fn from_str(text: &str) -> Result<Self, ChoiceError> {
        choose(text, &["hex", "base64"], &[Self::Hex, Self::Base64])
    }
}

impl FromStr for Grant {
    type Err = ChoiceError;

    fn from_str(text: &str) -> Result<Self, ChoiceError> {
        let names = &["refresh-token", "client-credentials"];
        choose(text, names, &[Self::RefreshToken, Self::ClientCredentials])
    }
}

impl FromStr for ClientAuth {
    type Err = ChoiceError;

    fn from_str(text: &str) -> Result<Self, ChoiceError> {
        choose(text, &["body", "basic"], &[Self::Body, Self::Basic])
    }
}

impl FromStr for TokenBody {
    type Err = ChoiceError;

    fn from_str(text: &str) -> Result<Self, ChoiceError> {
        choose(text, &["form", "json"], &[Self::Form, Self::Json])
    }
}

/// The text that a message authentication code covers: `{timestamp}.{body}`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SignedMessage(Vec<MessagePart>);

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum MessagePart {
    Literal(String),
    Method,
    Host,
    Path,
    Query,
    Timestamp,
    Body,
}

/// The reason why a text is not a valid message format.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum MessageError {
    #[error(
        "unknown placeholder; use {{method}}, {{host}}, {{path}}, {{query}}, {{timestamp}} or {{body}}"
    )]
    Unknown,
    #[error(
        "the message must contain a part of the request, or its code would be valid for every request"
    )]
    Nothing,
}

impl SignedMessage {
    pub fn parts(&self) -> &[MessagePart] {
        &self.0
    }

    pub fn has(&self, part: &MessagePart) -> bool {
        self.0.contains(part)
    }
}

const WORDS: [(&str, MessagePart); 6] = [
    ("{method}", MessagePart::Method),
    ("{host}", MessagePart::Host),
    ("{path}", MessagePart::Path),
    ("{query}", MessagePart::Query),
    ("{timestamp}", MessagePart::Timestamp),
    ("{body}", MessagePart::Body),
];

impl Default for SignedMessage {
    fn default() -> Self {
        Self(vec![MessagePart::Body])
    }
}

impl FromStr for SignedMessage {
    type Err = MessageError;

    fn from_str(text: &str) -> Result<Self, MessageError> {
        let mut parts = Vec::new();
        let mut rest = text;
        while !rest.is_empty() {
            let word = WORDS.iter().find(|(word, _)| rest.starts_with(word));
            if let Some((word, part)) = word {
                parts.push(part.clone());
                rest = rest.get(word.len()..).unwrap_or_default();
                continue;
            }
            let (literal, after) = rest.split_at(rest.find('{').unwrap_or(rest.len()));
            if literal.is_empty() || literal.contains('}') {
                return Err(MessageError::Unknown);
            }
            parts.push(MessagePart::Literal(literal.to_owned()));
            rest = after;
        }
        let says = |part: &MessagePart| {
            !matches!(part, MessagePart::Literal(_) | MessagePart::Timestamp | MessagePart::Host)
        };
        if !parts.iter().any(says) {
            return Err(MessageError::Nothing);
        }
        Ok(Self(parts))
    }
}

impl fmt::Display for SignedMessage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|part| {
            f.write_str(match part {
                MessagePart::Literal(text) => text,
                MessagePart::Method => "{method}",
                MessagePart::Host => "{host}",
                MessagePart::Path => "{path}",
                MessagePart::Query => "{query}",
                MessagePart::Timestamp => "{timestamp}",
                MessagePart::Body => "{body}",
            })
        })
    }
}

/// The `https` address of the server that issues access tokens.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TokenUrl {
    pub target: Target,
    pub port: u16,
    /// The path of the URL, which begins with `/`.
    pub path: String,
}

/// The reason why a text is not a valid URL of a token server.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum TokenUrlError {
    #[error("the URL of a token server must begin with https://")]
    Scheme,
    #[error(transparent)]
    Target(TargetError),
    #[error("invalid port; write a number from 1 to 65535")]
    Port,
    #[error("the path of a token URL must have plain characters, without query and fragment")]
    Path,
}

impl FromStr for TokenUrl {
    type Err = TokenUrlError;

    fn from_str(text: &str) -> Result<Self, TokenUrlError> {
        let rest = text.strip_prefix("https://").ok_or(TokenUrlError::Scheme)?;
        let (authority, path) = rest.split_at(rest.find('/').unwrap_or(rest.len()));
        let path = if path.is_empty() { "/" } else { path };
        let plain = |b: u8| b.is_ascii_alphanumeric() || b"/-._~!$&'()*+,=:@".contains(&b);
        let dots = path.split('/').any(|segment| matches!(segment, "." | ".."));
        if !path.bytes().all(plain) || dots {
            return Err(TokenUrlError::Path);
        }
        let (target, port) = split_port(authority).map_err(|()| TokenUrlError::Port)?;
        Ok(Self {
            target: target.parse().map_err(TokenUrlError::Target)?,
            port: port.unwrap_or(443),
            path: path.to_owned(),
        })
    }
}

impl fmt::Display for TokenUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.port {
            443 => write!(f, "https://{}{}", self.target, self.path),
            port => write!(f, "https://{}:{port}{}", self.target, self.path),
        }
    }
}

by_text!(SignedMessage, TokenUrl);
