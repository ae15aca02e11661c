//! The definition of an agent: its program, arguments, settings, files and secrets.
//!
//! The agents in Belljar and the agents that a user adds are files of the same form:
//!
//! ```toml
//! title = "Some Agent"
//! program = "some-agent"                    # searched on the PATH of the user who starts the box
//! install = "npm install -g some-agent"     # shown when the program is not found
//! start = ["--quiet"]                       # arguments of the first start
//! again = ["--continue"]                    # arguments for the later starts of a stopped box
//! again-needs = ".some-agent/chats"         # `again` only if this path of the box's home has content
//! skip-all = ["--yes"]                      # added when the agent must work without asking
//! env = ["NO_UPDATE=1"]
//! allow = ["anthropic"]                     # same form as --allow
//! secrets = ["anthropic"]                   # given to the box if they are set
//! copy = [".some-agent/AGENTS.md"]          # from the user's home into a new box; `/**`: a directory
//!
//! [task]                                    # how a plan runs the agent without a person
//! argv = ["some-agent", "--print"]          # reads the prompt from standard input; output: the last message
//!
//! [settings]                                # managed settings: read-only, written at every start
//! language = "claude"                       # format of permissions: claude, codex, gemini, opencode
//! path = "/etc/some-agent/settings.json"
//! content = "{}"
//!
//! [[home]]                                  # initial file in the home of a new box
//! path = ".some-agent/config.json"
//! content = "{}"
//!
//! [[file]]                                  # read-only, every start; {{placeholder:NAME}} is replaced
//! path = "/home/user/.some-agent/auth.json"
//! content = '{"key": "{{placeholder:openai}}"}'
//! secret = "openai"                         # written only if the box has this secret
//!
//! [login]                                   # a token file that `belljar agent login` stores in the vault
//! file = ".some-agent/token.json"
//! secret = "some-login"
//! refresh = "/refresh_token"                # JSON pointers
//! access = "/access_token"
//! expires = "/expires_at"
//! keep = ["/account"]                      # other values of the file that the box can see
//!
//! [secret.some-login]                       # same form as in belljar.toml
//! hosts = ["api.example.com"]
//! ```

use std::fmt;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use serde::Serialize;

use crate::env::EnvVar;
use crate::net::{Allow, ChoiceError, SecretDecl, SecretName, by_text};

/// The definition of one agent, as read from its file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Agent {
    pub name: AgentName,
    /// The name of the agent that is shown to users.
    pub title: String,
    pub program: String,
    /// The command that installs the program of the agent.
    pub install: Option<String>,
    pub start: Vec<String>,
    pub again: Vec<String>,
    /// A path in the home of the box. Unless it is a file or a directory that is not empty, a later start
    /// uses `start`.
    pub again_needs: Option<PathBuf>,
    pub skip_all: Vec<String>,
    pub env: Vec<EnvVar>,
    pub allow: Vec<Allow>,
    /// The secrets of the agent; the box gets those that are set.
    pub secrets: Vec<SecretName>,
    /// Paths in the user's home directory that are copied into the box; a final `/**` means a
    /// directory with all its contents.
    pub copy: Vec<PathBuf>,
    /// How a task of a plan runs the agent; without it, plans cannot use the agent.
    pub task: Option<AgentTask>,
    pub settings: Option<Settings>,
    /// The files that are written into the home directory of a new box.
    pub home: Vec<AgentFile>,
    /// The read-only files that are written at every start of the box.
    pub files: Vec<AgentFile>,
    pub login: Option<Login>,
    /// The secrets that the definition file of the agent declares.
    pub declared: Vec<SecretDecl>,
}

/// How a task of a plan runs an agent.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct AgentTask {
    /// The program and its arguments. The program reads the prompt from standard input, works without
    /// questions, writes its last message to standard output, and exits with status 0 if it succeeded.
    pub argv: Vec<String>,
}

/// The settings file that Belljar writes for an agent.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Settings {
    pub language: Language,
    pub path: PathBuf,
    /// The text of the settings that does not depend on the permissions of the box.
    pub content: String,
}

/// A file that Belljar writes into the box of an agent.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct AgentFile {
    /// The path of the file: absolute in the box, or relative to the home directory of the box.
    pub path: PathBuf,
    pub content: String,
    /// The secret without which the file is not written.
    pub secret: Option<SecretName>,
}

/// An OAuth login: the agent's token file and the JSON pointers of its fields.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Login {
    /// Path of the token file, relative to the user's home and to the home of the box.
    pub file: PathBuf,
    /// Name of the refresh token in the vault.
    pub secret: SecretName,
    /// JSON pointer (RFC 6901) of the refresh token.
    pub refresh: String,
    pub access: String,
    /// JSON pointer of the expiry in milliseconds since 1970; the box sees a time far in the future.
    pub expires: Option<String>,
    /// JSON pointer of the last renewal (RFC 3339); the box sees the time of its start.
    pub renewed: Option<String>,
    /// JSON pointers of identity tokens; the box sees them without their signature.
    pub identity: Vec<String>,
    /// JSON pointers of other values that the box can see.
    pub keep: Vec<String>,
}

/// The format in which an agent's settings express permissions.
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

/// The name of an agent: lower-case letters, digits and `-`; also the name of its file.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct AgentName(String);

/// The reason why a text is not a valid agent name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("invalid agent name; use 1 to 40 characters of a-z, 0-9 and `-`, and start with a letter")]
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
