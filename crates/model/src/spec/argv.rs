//! A program and its arguments.

use std::ffi::{OsStr, OsString};

use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::text::OsText;

/// A program and its arguments, as execve(2) takes them: at least one word, and no NUL bytes.
///
/// In JSON a list, in which each word is a string, or a list of bytes if it is not UTF-8.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Argv(Vec<OsString>);

/// The reason why a list of words is not a valid program with arguments.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum ArgvError {
    #[error("the program is missing; write its name as the first word")]
    NoProgram,
    #[error("a program and its arguments cannot contain a NUL byte")]
    Nul,
}

impl Argv {
    pub fn new(words: impl IntoIterator<Item = impl Into<OsString>>) -> Result<Self, ArgvError> {
        let words: Vec<OsString> = words.into_iter().map(Into::into).collect();
        if words.is_empty() {
            return Err(ArgvError::NoProgram);
        }
        if words.iter().any(|word| word.as_encoded_bytes().contains(&0)) {
            return Err(ArgvError::Nul);
        }
        Ok(Self(words))
    }

    /// Returns the program and its arguments as a list that is never empty.
    pub fn words(&self) -> &[OsString] {
        &self.0
    }

    pub fn program(&self) -> &OsStr {
        self.0.first().map_or(OsStr::new(""), OsString::as_os_str)
    }

    pub fn into_words(self) -> Vec<OsString> {
        self.0
    }
}

impl Serialize for Argv {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(self.0.iter().map(OsText))
    }
}

impl<'de> Deserialize<'de> for Argv {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let words = Vec::<OsText<OsString>>::deserialize(deserializer)?;
        Self::new(words.into_iter().map(|OsText(word)| word)).map_err(serde::de::Error::custom)
    }
}
