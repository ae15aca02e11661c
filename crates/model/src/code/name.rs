//! Names of services, tool servers and skills, which programs use as identifiers.

use std::fmt;
use std::str::FromStr;

use crate::net::by_text;

/// The reason why a text is not a valid name of a service, server or skill.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum CodeNameError {
    #[error(
        "invalid name; use 1 to 64 characters of a-z, 0-9, `-` and `_`, and start with a letter"
    )]
    Form,
    #[error("the name is reserved in JavaScript programs; choose another name")]
    Taken,
}

const MAX: usize = 64;

/// The names of members that every JavaScript object has, or that would make it look like a
/// promise.
const TAKEN: [&str; 3] = ["constructor", "prototype", "then"];

fn check(text: &str) -> Result<(), CodeNameError> {
    let first = text.bytes().next().is_some_and(|byte| byte.is_ascii_lowercase());
    let legal = |byte: u8| {
        byte.is_ascii_lowercase() || byte.is_ascii_digit() || matches!(byte, b'-' | b'_')
    };
    if !first || text.len() > MAX || !text.bytes().all(legal) {
        return Err(CodeNameError::Form);
    }
    if TAKEN.contains(&text) { Err(CodeNameError::Taken) } else { Ok(()) }
}

macro_rules! name {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(String);

        impl $name {
            pub fn as_str(&self) -> &str {
                &self.0
            }

            /// Returns the name as a JavaScript program writes it: `my-api` becomes `my_api`.
            pub fn identifier(&self) -> String {
                self.0.replace('-', "_")
            }
        }

        impl FromStr for $name {
            type Err = CodeNameError;

            fn from_str(text: &str) -> Result<Self, CodeNameError> {
                check(text).map(|()| Self(text.to_owned()))
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.pad(&self.0)
            }
        }

        impl AsRef<str> for $name {
            fn as_ref(&self) -> &str {
                &self.0
            }
        }

        by_text!($name);
    };
}

name! {
    /// The name of a declared service: `github` in `[api.github]` and `apis.github`.
    ApiName
}
name! {
    /// The name of a tool server: `files` in `[mcp.files]` and `tools.files`.
    ServerName
}
name! {
    /// The name of a skill, which is also the name of its directory.
    SkillName
}
