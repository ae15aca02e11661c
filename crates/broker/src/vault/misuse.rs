//! Uses of placeholders that are typical of an attack.

use belljar_model::net::SecretName;

/// Why a request is refused with an alarm; contains no value and no placeholder.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{detail}")]
pub struct Misuse {
    pub kind: MisuseKind,
    pub secret: SecretName,
    pub detail: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MisuseKind {
    /// A placeholder in plain HTTP.
    PlainHttp,
    /// A placeholder in a request to a host that its secret is not bound to.
    OtherHost,
    /// A placeholder in a request that no rule adds its secret to.
    NotGranted,
    /// A placeholder outside the slots of its secret.
    Elsewhere,
    /// A duplicate placeholder, or a placeholder next to another credential.
    Repeated,
    /// Another credential in place of the operator's secret.
    OwnCredential,
}

impl MisuseKind {
    /// Returns the name of the alarm in the ledger.
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
