//! Uses of placeholders that are typical of an attack.

use belljar_model::net::SecretName;

/// The reason why a request is refused with an alarm; contains no value and no placeholder.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{detail}")]
pub struct Misuse {
    pub kind: MisuseKind,
    pub secret: SecretName,
    pub detail: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MisuseKind {
    /// The request has a placeholder, but is plain HTTP.
    PlainHttp,
    /// The request has a placeholder, but goes to a host that its secret is not bound to.
    OtherHost,
    /// The request has a placeholder, but no rule allows to insert its secret.
    NotGranted,
    /// The request has a placeholder outside the slots of its secret.
    Elsewhere,
    /// The request has a placeholder twice, or next to another credential.
    Repeated,
    /// The request has another credential in place of the operator's secret.
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
