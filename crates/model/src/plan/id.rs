//! The names of tasks, inputs, tiers and labels.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use crate::net::by_text;

const MAX_LENGTH: usize = 63;

/// The reason why a text is not a valid name of a task, an input, a tier or a label.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error(
    "invalid name; use 1 to {MAX_LENGTH} lower-case letters, digits, `-` and `_`, beginning with a letter or a digit"
)]
pub struct IdError;

fn is_valid(text: &str) -> bool {
    let is_plain = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
    text.len() <= MAX_LENGTH
        && text.bytes().next().is_some_and(is_plain)
        && text.bytes().all(|byte| is_plain(byte) || matches!(byte, b'-' | b'_'))
}

macro_rules! id {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(Arc<str>);

        impl $name {
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl FromStr for $name {
            type Err = IdError;

            fn from_str(text: &str) -> Result<Self, IdError> {
                is_valid(text).then(|| Self(text.into())).ok_or(IdError)
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }

        by_text!($name);
    };
}

id!(
    /// The id of a task in its plan.
    TaskId
);
id!(
    /// The name of an input of a plan, without `input.`.
    InputName
);
id!(
    /// The name of a model tier, for example `cheap`; `[tier.NAME]` in `belljar.toml` describes it.
    TierName
);
id!(
    /// A label that states where data comes from, for example `untrusted`.
    Label
);
