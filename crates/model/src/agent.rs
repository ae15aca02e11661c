//! Agents as data: which program it is, what it needs, and how it is told things.
//!
//! Those that come with Belljar and those that a user adds are files of the same form:
//!
//! ```toml
//! title = "Some Agent"
//! program = "some-agent"                    # looked for on the PATH of whoever starts the box
//! install = "npm install -g some-agent"     # said when it is not found
//! start = ["--quiet"]                       # arguments of the first start
//! again = ["--continue"]                    # instead of them when a stopped box is started
//! skip-all = ["--yes"]                      # in addition, when it is to work without asking
//! env = ["NO_UPDATE=1"]
//! allow = ["anthropic"]                     # as --allow takes them
//! secrets = ["anthropic"]                   # each that is set is given
//! copy = [".some-agent/AGENTS.md"]          # of the user's home, into a new box; `/**` for a directory
//!
//! [settings]                                # its managed settings: read-only, written for every start
//! language = "claude"                       # how permissions are written: claude, codex, gemini, opencode
//! path = "/etc/some-agent/settings.json"
//! content = "{}"
//!
//! [[home]]                                  # first contents of the home of a new box
//! path = ".some-agent/config.json"
//! content = "{}"
//!
//! [[file]]                                  # read-only, for every start; {{placeholder:NAME}} is filled in
//! path = "/home/user/.some-agent/auth.json"
//! content = '{"key": "{{placeholder:openai}}"}'
//! secret = "openai"                         # only if this secret is given
//!
//! [login]                                   # a token file that `belljar agent login` takes into the vault
//! file = ".some-agent/token.json"
//! secret = "some-login"
//! refresh = "/refresh_token"                # JSON pointers
//! access = "/access_token"
//! expires = "/expires_at"
//! keep = ["/account"]                      # what else of the file the box is shown
//!
//! [secret.some-login]                       # as in belljar.toml
//! hosts = ["api.example.com"]
//! ```

use std::fmt;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use serde::Serialize;

use crate::env::EnvVar;
use crate::net::{Allow, ChoiceError, SecretDecl, SecretName, by_text};

/// What Belljar knows of one agent.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Agent {
    pub name: AgentName,
    /// Its name for people.
    pub title: String,
    pub program: String,
    /// How one gets it.
    pub install: Option<String>,
    pub start: Vec<String>,
    pub again: Vec<String>,
    pub skip_all: Vec<String>,
    pub env: Vec<EnvVar>,
    pub allow: Vec<Allow>,
    /// Each that is set is given to the box.
    pub secrets: Vec<SecretName>,
    /// Paths in the user's home; a last `/**` means a directory with all that is in it.
    pub copy: Vec<PathBuf>,
    pub settings: Option<Settings>,
    /// First contents of the home.
    pub home: Vec<Given>,
    /// Read-only, for every start.
    pub files: Vec<Given>,
    pub login: Option<Login>,
    /// The secrets that it brings along.
    pub declared: Vec<SecretDecl>,
}

/// The managed settings of an agent.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Settings {
    pub language: Language,
    pub path: PathBuf,
    /// What they always say.
    pub content: String,
}

/// A file that is written for an agent.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Given {
    /// Absolute inside the box, or relative to its home.
    pub path: PathBuf,
    pub content: String,
    /// Only if the box has this secret.
    pub secret: Option<SecretName>,
}

/// A login by OAuth: where the agent keeps its tokens, and what is what in there.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Login {
    /// In the user's home, and in that of the box.
    pub file: PathBuf,
    /// What the refresh token is called in the vault.
    pub secret: SecretName,
    /// RFC 6901.
    pub refresh: String,
    pub access: String,
    /// Milliseconds since 1970, made to be far away.
    pub expires: Option<String>,
    /// A time in RFC 3339, made to be now at every start.
    pub renewed: Option<String>,
    /// Tokens that say who somebody is; they lose their signature.
    pub identity: Vec<String>,
    /// What else of the file a box is shown.
    pub keep: Vec<String>,
}

/// In which words an agent's settings speak of permissions.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Language {
    Claude,
    Codex,
    Gemini,
    Opencode,
}

impl FromStr for Language {
    type Err = ChoiceError;

    fn from_str(text: &str) -> Result<Self, ChoiceError> {
        Ok(match text {
            "claude" => Self::Claude,
            "codex" => Self::Codex,
            "gemini" => Self::Gemini,
            "opencode" => Self::Opencode,
            _ => return Err(ChoiceError::of(&["claude", "codex", "gemini", "opencode"])),
        })
    }
}

/// The name of an agent: small letters, digits and `-`; also the name of its file.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct AgentName(String);

/// Why a text is not an agent's name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("an agent's name has 1 to 40 small letters, digits and `-`, and begins with a letter")]
pub struct AgentNameError;

impl AgentName {
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromStr for AgentName {
    type Err = AgentNameError;

    fn from_str(text: &str) -> Result<Self, AgentNameError> {
        let first = text.bytes().next().is_some_and(|byte| byte.is_ascii_lowercase());
        let plain = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-';
        if first && text.len() <= 40 && text.bytes().all(plain) {
            Ok(Self(text.to_owned()))
        } else {
            Err(AgentNameError)
        }
    }
}

impl fmt::Display for AgentName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.0)
    }
}

impl AsRef<Path> for AgentName {
    fn as_ref(&self) -> &Path {
        Path::new(&self.0)
    }
}

by_text!(AgentName);
