//! One version of a skill, named by the hash of its content.

use std::fmt;
use std::str::FromStr;

use belljar_model::code::SkillName;
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

use super::{Draft, MAX_CODE, MAX_DESCRIPTION, SkillError, Wants};
use belljar_wire::Dialect;

/// The SHA-256 hash of a skill version's content, as 64 lower-case hexadecimal digits.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Version(String);

/// The error for a text that is not a version hash.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("invalid skill version; it must be 64 lower-case hexadecimal digits")]
pub struct VersionError;

impl Version {
    /// The minimum number of digits of a version prefix.
    pub const SHORTEST: usize = 6;

    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Returns the first 12 digits of the version hash, for display.
    pub fn short(&self) -> &str {
        self.0.get(..12).unwrap_or(&self.0)
    }
}

impl FromStr for Version {
    type Err = VersionError;

    fn from_str(text: &str) -> Result<Self, VersionError> {
        let digit = |byte: u8| byte.is_ascii_digit() || matches!(byte, b'a'..=b'f');
        if text.len() == 64 && text.bytes().all(digit) {
            Ok(Self(text.to_owned()))
        } else {
            Err(VersionError)
        }
    }
}

impl TryFrom<String> for Version {
    type Error = VersionError;

    fn try_from(text: String) -> Result<Self, VersionError> {
        text.parse()
    }
}

impl From<Version> for String {
    fn from(version: Version) -> Self {
        version.0
    }
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.0)
    }
}

/// One version of a skill with its content.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Skill {
    pub name: SkillName,
    pub version: Version,
    pub description: String,
    pub code: String,
    pub language: Dialect,
    pub wants: Wants,
}

/// The content of a skill version's file; the file name is its hash.
///
/// The order of the fields is part of the format.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Content {
    code: String,
    description: String,
    language: Dialect,
    wants: Wants,
}

impl Skill {
    /// Creates a skill version from a draft and adds the requests of its first comment.
    pub(super) fn new(name: &SkillName, draft: Draft) -> Result<Self, SkillError> {
        let Draft { description, code, language, wants } = draft;
        if code.trim().is_empty() {
            return Err(SkillError::NoCode);
        }
        if code.len() > MAX_CODE {
            return Err(SkillError::TooLong { length: code.len() });
        }
        if description.chars().count() > MAX_DESCRIPTION {
            return Err(SkillError::Description);
        }
        let from_comment = Wants::of_comment(&code).map_err(SkillError::Wants)?;
        let wants = wants.and(from_comment);
        wants.check().map_err(SkillError::Wants)?;
        let content = Content { code, description, language, wants };
        let damaged = |what: String| SkillError::Damaged { name: name.clone(), what };
        let bytes = serde_json::to_vec(&content).map_err(|error| damaged(error.to_string()))?;
        Ok(Self::of(name.clone(), hash(&bytes), content))
    }

    fn of(name: SkillName, version: Version, content: Content) -> Self {
        let Content { code, description, language, wants } = content;
        Self { name, version, description, code, language, wants }
    }

    /// Returns the content of the skill version's file.
    pub(super) fn bytes(&self) -> Result<Vec<u8>, serde_json::Error> {
        let content = Content {
            code: self.code.clone(),
            description: self.description.clone(),
            language: self.language,
            wants: self.wants.clone(),
        };
        serde_json::to_vec(&content)
    }

    /// Parses the file of a skill version. A file whose hash differs from its name is damaged.
    pub(super) fn parse(name: &SkillName, version: &Version, bytes: &[u8]) -> Result<Self, String> {
        if hash(bytes) != *version {
            return Err(format!(
                "the content of version {} does not match its hash",
                version.short()
            ));
        }
        let content = serde_json::from_slice(bytes).map_err(|error| error.to_string())?;
        Ok(Self::of(name.clone(), version.clone(), content))
    }
}

impl Draft {
    /// Returns the version that saving this draft would create.
    pub fn version(&self, name: &SkillName) -> Result<Skill, SkillError> {
        Skill::new(name, self.clone())
    }
}

fn hash(bytes: &[u8]) -> Version {
    Version(hex::encode(Sha256::digest(bytes)))
}
