//! What a box does with placeholders that only an attacker would.

use belljar_model::net::SecretName;

/// Why a request is stopped: an alarm, without a value or placeholder in it.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{detail}")]
pub struct Misuse {
    pub kind: MisuseKind,
    pub secret: SecretName,
    pub detail: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MisuseKind {
    /// A placeholder in the clear.
    PlainHttp,
    /// A placeholder toward a host that its secret is not bound to.
    OtherHost,
    /// A placeholder in a request that its secret does not go along with.
    NotGranted,
    /// A placeholder in a place that is no slot.
    Elsewhere,
    /// A placeholder more than once, or beside another credential.
    Repeated,
    /// Another credential where one of ours belongs.
    OwnCredential,
}

impl MisuseKind {
    /// How the record calls it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::PlainHttp => "placeholder-in-clear",
            Self::OtherHost => "placeholder-to-other-host",
            Self::NotGranted => "placeholder-not-granted",
            Self::Elsewhere => "placeholder-elsewhere",
            Self::Repeated => "placeholder-repeated",
            Self::OwnCredential => "foreign-credential",
        }
    }
}
