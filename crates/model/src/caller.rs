//! The caller of an operation: its principal, its tenant and its session.
//!
//! These types hold names, not proofs: the code that creates a [`Caller`] has authenticated it.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::net::by_text;

/// The caller of an operation: principal, tenant and session.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Caller {
    pub principal: Principal,
    pub tenant: TenantId,
    /// The session of the caller; `None` on a command line, which has no sessions.
    pub session: Option<SessionId>,
    /// The client that the server authenticated, such as the holder of a token; `None` on a command line
    /// and on standard streams.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub client: Option<ClientId>,
}

impl Caller {
    /// Returns the caller for a user of this machine, with the tenant `local`.
    pub fn local(uid: u32) -> Self {
        let (principal, tenant) = (Principal::user(uid), TenantId::local());
        Self { principal, tenant, session: None, client: None }
    }
}

/// An authenticated identity, written `KIND:NAME`, for example `user:1000` or `service:ci`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Principal {
    kind: PrincipalKind,
    name: String,
}

/// The kind of a principal.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum PrincipalKind {
    /// A user of this machine, identified by the user id.
    User,
    /// A person known to an identity provider: issuer and subject, never an email address.
    Person,
    /// A program that has its own token.
    Service,
    /// An agent that works on behalf of another principal.
    Agent,
    /// A schedule that starts work at given times.
    Schedule,
}

/// The reason why a text is not a valid principal.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PrincipalError {
    #[error(
        "invalid principal; write KIND:NAME, KIND one of user, person, service, agent, schedule"
    )]
    Kind,
    #[error("invalid user principal; NAME must be the user id, without leading zeros")]
    User,
    #[error("invalid principal; NAME must be 1 to {MAX_PRINCIPAL} visible ASCII characters")]
    Name,
}

const MAX_PRINCIPAL: usize = 512; // an OpenID issuer and a subject of at most 255 characters

impl PrincipalKind {
    pub const ALL: [Self; 5] =
        [Self::User, Self::Person, Self::Service, Self::Agent, Self::Schedule];

    pub const fn name(self) -> &'static str {
        match self {
            Self::User => "user",
            Self::Person => "person",
            Self::Service => "service",
            Self::Agent => "agent",
            Self::Schedule => "schedule",
        }
    }
}

impl Principal {
    /// Returns the principal of a user of this machine.
    pub fn user(uid: u32) -> Self {
        Self { kind: PrincipalKind::User, name: uid.to_string() }
    }

    pub fn new(kind: PrincipalKind, name: &str) -> Result<Self, PrincipalError> {
        if kind == PrincipalKind::User {
            let uid: u32 = name.parse().map_err(|_| PrincipalError::User)?;
            let same = Self::user(uid);
            return if same.name == name { Ok(same) } else { Err(PrincipalError::User) };
        }
        let visible = name.bytes().all(|byte| byte.is_ascii_graphic());
        if name.is_empty() || name.len() > MAX_PRINCIPAL || !visible {
            return Err(PrincipalError::Name);
        }
        Ok(Self { kind, name: name.to_owned() })
    }

    pub const fn kind(&self) -> PrincipalKind {
        self.kind
    }

    /// Returns the name of the principal without its kind.
    pub fn name(&self) -> &str {
        &self.name
    }
}

impl FromStr for Principal {
    type Err = PrincipalError;

    fn from_str(text: &str) -> Result<Self, PrincipalError> {
        let (kind, name) = text.split_once(':').ok_or(PrincipalError::Kind)?;
        let kind = PrincipalKind::ALL.into_iter().find(|known| known.name() == kind);
        Self::new(kind.ok_or(PrincipalError::Kind)?, name)
    }
}

impl fmt::Display for Principal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.kind.name(), self.name)
    }
}

/// The owner of stored data; also the name of the directory that holds the data.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TenantId(String);

/// The reason why a text is not a valid tenant.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error(
    "invalid tenant; use 1 to {MAX_TENANT} characters of a-z, 0-9 and `-`, and do not start with `-`"
)]
pub struct TenantIdError;

const MAX_TENANT: usize = 64;

impl TenantId {
    /// Returns the tenant `local`, the only one on a machine without a server; its data is directly
    /// in Belljar's home.
    pub fn local() -> Self {
        Self("local".to_owned())
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }

    pub fn is_local(&self) -> bool {
        self.0 == "local"
    }
}

impl Default for TenantId {
    fn default() -> Self {
        Self::local()
    }
}

impl FromStr for TenantId {
    type Err = TenantIdError;

    fn from_str(text: &str) -> Result<Self, TenantIdError> {
        let plain = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
        let fits = (1..=MAX_TENANT).contains(&text.len());
        if fits && !text.starts_with('-') && text.bytes().all(plain) {
            Ok(Self(text.to_owned()))
        } else {
            Err(TenantIdError)
        }
    }
}

impl fmt::Display for TenantId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.0)
    }
}

/// The id of a client's session: 128 random bits that the server chose, written in hexadecimal.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SessionId(u128);

/// The reason why a text is not a valid session id.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("invalid session id; it must be 32 lower-case hexadecimal digits")]
pub struct SessionIdError;

impl SessionId {
    /// Creates a session id from random bytes of the kernel.
    pub const fn new(random: [u8; 16]) -> Self {
        Self(u128::from_be_bytes(random))
    }
}

impl FromStr for SessionId {
    type Err = SessionIdError;

    fn from_str(text: &str) -> Result<Self, SessionIdError> {
        let digit = |byte: u8| matches!(byte, b'0'..=b'9' | b'a'..=b'f');
        if text.len() != 32 || !text.bytes().all(digit) {
            return Err(SessionIdError);
        }
        u128::from_str_radix(text, 16).map(Self).map_err(|_| SessionIdError)
    }
}

impl fmt::Display for SessionId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:032x}", self.0)
    }
}

/// The id of a client that has its own token. All sessions of the client have the same id.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ClientId(String);

/// The reason why a text is not a valid client id.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("invalid client id; use 1 to {MAX_CLIENT} characters of a-z, 0-9 and `-`")]
pub struct ClientIdError;

const MAX_CLIENT: usize = 64;

impl ClientId {
    /// Creates the id of the holder of a token from a digest of the token.
    pub fn of_token(digest: [u8; 8]) -> Self {
        Self(format!("token-{:016x}", u64::from_be_bytes(digest)))
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromStr for ClientId {
    type Err = ClientIdError;

    fn from_str(text: &str) -> Result<Self, ClientIdError> {
        let plain = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
        let fits = (1..=MAX_CLIENT).contains(&text.len());
        if fits && text.bytes().all(plain) { Ok(Self(text.to_owned())) } else { Err(ClientIdError) }
    }
}

impl fmt::Display for ClientId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.0)
    }
}

by_text!(Principal, TenantId, SessionId, ClientId);

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn principal_survives_a_round_trip_through_its_text() {
        assert_eq!(Principal::user(1000).to_string(), "user:1000");
        for text in ["user:0", "person:https://id.example#42", "service:ci", "schedule:a:b"] {
            assert_eq!(text.parse::<Principal>().unwrap().to_string(), text);
        }
    }

    #[test]
    fn principal_with_an_unknown_kind_or_an_invalid_name_is_refused() {
        let check =
            |text: &str, expect| assert_eq!(text.parse::<Principal>(), Err(expect), "{text}");
        for text in ["", "ada", "User:1", "root:1", ":x"] {
            check(text, PrincipalError::Kind);
        }
        for text in ["user:", "user:ada", "user:01", "user:+1", "user:-1", "user:4294967296"] {
            check(text, PrincipalError::User);
        }
        let long = format!("service:{}", "a".repeat(513));
        for text in ["service:", "agent:a b", "agent:a\n", "person:\u{e9}", &long] {
            check(text, PrincipalError::Name);
        }
    }

    #[test]
    fn tenant_is_safe_as_a_directory_name() {
        for text in ["local", "a", "0", "team-7", "a-", &"a".repeat(64)] {
            assert_eq!(text.parse::<TenantId>().unwrap().as_str(), text);
        }
        for text in ["", "-a", "A", "a_b", ".", "..", "a/b", "a.b", "\u{e9}", &"a".repeat(65)] {
            assert_eq!(text.parse::<TenantId>(), Err(TenantIdError), "{text}");
        }
        assert!(TenantId::default().is_local());
    }

    #[test]
    fn client_id_survives_a_round_trip_through_its_text() {
        let id = ClientId::of_token([1, 2, 3, 4, 5, 6, 7, 0xff]);
        assert_eq!(id.to_string(), "token-01020304050607ff");
        assert_eq!(id.as_str().parse(), Ok(id));
        for text in ["", "A", "a b", "a\n", "\u{e9}", &"a".repeat(65)] {
            assert_eq!(text.parse::<ClientId>(), Err(ClientIdError), "{text}");
        }
    }

    #[test]
    fn session_id_is_32_hexadecimal_digits() {
        let id = SessionId::new([0x0f; 16]);
        assert_eq!(id.to_string(), "0f".repeat(16));
        assert_eq!(id.to_string().parse(), Ok(id));
        for text in ["", "0F", &"0F".repeat(16), &"g".repeat(32), &"0".repeat(33)] {
            assert_eq!(text.parse::<SessionId>(), Err(SessionIdError), "{text}");
        }
    }

    #[test]
    fn caller_survives_a_round_trip_and_refuses_an_unknown_field() {
        let caller = Caller { session: Some(SessionId::new([1; 16])), ..Caller::local(1000) };
        let value = serde_json::to_value(&caller).unwrap();
        let session = "01".repeat(16);
        let expect = json!({ "principal": "user:1000", "tenant": "local", "session": session });
        assert_eq!(value, expect);
        assert_eq!(serde_json::from_value::<Caller>(value).unwrap(), caller);
        let more = json!({ "principal": "user:1", "tenant": "local", "role": "owner" });
        assert!(serde_json::from_value::<Caller>(more).is_err());
    }

    #[test]
    fn caller_without_a_tenant_is_refused_with_the_field_name() {
        let error = serde_json::from_value::<Caller>(json!({ "principal": "user:1" })).unwrap_err();
        assert_eq!(error.to_string(), "missing field `tenant`");
    }
}
