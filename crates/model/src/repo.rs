//! The user's repository from which the private clone of a box was made.

use std::path::PathBuf;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::record::path_bytes;

/// The source repository of a private clone and the commits where the box started.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RepoAt {
    /// The user's checkout, or the repository directory if it is bare.
    #[serde(with = "path_bytes")]
    pub path: PathBuf,
    /// The directory that holds the objects and branches of the repository.
    #[serde(with = "path_bytes")]
    pub git_dir: PathBuf,
    /// The user's commit at which the clone was made; `None` in a repository without commits.
    pub from: Option<String>,
    /// The first commit of the box: `from`, or a commit on top of it with uncommitted changes.
    pub base: Option<String>,
    /// The branch that was checked out for the box.
    pub branch: String,
    /// The author of commits in the box.
    pub identity: Identity,
}

/// The author of a commit: name and email address.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, try_from = "RawIdentity")]
pub struct Identity {
    name: String,
    email: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawIdentity {
    name: String,
    email: String,
}

/// The reason why a name and an email address are not a valid author.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum IdentityError {
    #[error("invalid author; write a name and an e-mail address: `Ada Lovelace <ada@example.org>`")]
    Missing,
    #[error("the name and the e-mail address cannot contain `<`, `>` or control characters")]
    Forbidden,
}

impl Identity {
    pub fn new(name: &str, email: &str) -> Result<Self, IdentityError> {
        let (name, email) = (name.trim(), email.trim());
        // Git strips these characters, so a name without any others would become empty.
        let is_crud = |c: char| c.is_ascii_punctuation() || c.is_whitespace();
        if name.chars().all(is_crud) || email.is_empty() {
            return Err(IdentityError::Missing);
        }
        let bad = |c: char| c.is_control() || matches!(c, '<' | '>');
        if name.chars().chain(email.chars()).any(bad) {
            return Err(IdentityError::Forbidden);
        }
        Ok(Self { name: name.to_owned(), email: email.to_owned() })
    }

    pub fn name(&self) -> &str {
        &self.name
    }

    pub fn email(&self) -> &str {
        &self.email
    }
}

/// Parses the form that git writes: `Name <address>`.
impl FromStr for Identity {
    type Err = IdentityError;

    fn from_str(text: &str) -> Result<Self, IdentityError> {
        let (name, email) = text.trim().split_once('<').ok_or(IdentityError::Missing)?;
        Self::new(name, email.strip_suffix('>').ok_or(IdentityError::Missing)?)
    }
}

impl std::fmt::Display for Identity {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} <{}>", self.name, self.email)
    }
}

impl TryFrom<RawIdentity> for Identity {
    type Error = IdentityError;

    fn try_from(raw: RawIdentity) -> Result<Self, IdentityError> {
        Self::new(&raw.name, &raw.email)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn git_identity_is_one_line_in_the_form_of_git() {
        let ada: Identity = "Ada Lovelace <ada@example.org>".parse().unwrap();
        assert_eq!((ada.name(), ada.email()), ("Ada Lovelace", "ada@example.org"));
        assert_eq!(ada.to_string().parse(), Ok(ada));
        for text in ["", "Ada", "<a@b>", "Ada <>", "... <a@b>"] {
            assert_eq!(text.parse::<Identity>(), Err(IdentityError::Missing), "{text}");
        }
        for (name, email) in [("A\nb", "c"), ("A<b", "c"), ("A", "c\u{7}d"), ("A", "c>d")] {
            assert_eq!(Identity::new(name, email), Err(IdentityError::Forbidden));
        }
    }

    #[test]
    fn stored_git_identity_survives_a_round_trip_and_is_refused_if_incomplete() {
        let at = RepoAt {
            path: "/src".into(),
            git_dir: "/src/.git".into(),
            from: Some("1".repeat(40)),
            base: None,
            branch: "main".into(),
            identity: Identity::new("Ada", "a@b").unwrap(),
        };
        let text = serde_json::to_string(&at).unwrap();
        assert_eq!(serde_json::from_str::<RepoAt>(&text).unwrap(), at);
        let more = text.replacen('{', "{\"x\":1,", 1);
        assert!(serde_json::from_str::<RepoAt>(&more).is_err());
        let bad = text.replace("\"Ada\"", "\"\"");
        assert!(serde_json::from_str::<RepoAt>(&bad).is_err());
    }
}
