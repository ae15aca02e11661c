//! The network policy of a box: host names, rules, secrets and budgets.
//!
//! Every type is parsed from text and checked once. The broker decides on these values only. A value
//! that is read back from a frame or a file is parsed and checked again.

mod budget;
mod host;
mod marks;
mod model_server;
mod pattern;
mod policy;
mod preset;
mod private;
mod range;
mod rate;
mod request;
mod rule;
mod secret;
mod shape;
mod signer;
mod slot;
mod suffix;
mod web;

pub use budget::{Budget, MicroUsd, MoneyError};
pub use host::{HOST_NAME, Hostname, HostnameError, Target, TargetError, authority};
pub use marks::{RemovedGrants, RuleMarks};
pub use model_server::{ModelFamily, ModelServer, TokenPrice};
pub use pattern::{HostPattern, HostPatternError, PathPattern, PathPatternError, percent_decoded};
pub use policy::{Policy, Proxy, ProxyError};
pub use preset::{Preset, PresetError, PresetName, preset};
pub use private::PrivateTarget;
pub use range::{Range, embedded, has_private_names, is_metadata_name, is_private_name, range};
pub use rate::{Rate, RateError, RuleLimits};
pub use request::{RequestLine, RequestLineError, UrlFault};
pub(crate) use rule::is_this_machine;
pub use rule::{Allow, AllowError, HttpRule, Rule, RuleError, RuleTarget, TcpRule};
pub use secret::{
    Capture, CaptureError, CaptureFrom, SecretDecl, SecretDeclError, SecretName, SecretNameError,
};
pub use shape::{Shape, ShapeError, ShapePart};
pub use signer::{
    ChoiceError, ClientAuth, Grant, HmacAlgorithm, HmacEncoding, MessageError, MessagePart,
    SecretKind, SignedMessage, TokenBody, TokenUrl, TokenUrlError,
};
pub use slot::{Slot, SlotError, header_name, json_pointer};
pub use web::{Method, MethodError, Scheme, SchemeError, Tls, TlsError};

/// Implements serde traits that write a type as its `Display` text and read it with `FromStr`.
macro_rules! by_text {
    ($($name:ty),+ $(,)?) => {$(
        impl serde::Serialize for $name {
            fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.collect_str(self)
            }
        }

        impl<'de> serde::Deserialize<'de> for $name {
            fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                crate::text::parse(deserializer)
            }
        }
    )+};
}
pub(crate) use by_text;

#[cfg(test)]
mod tests;
