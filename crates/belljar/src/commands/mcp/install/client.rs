//! The paths of the settings files of MCP clients, and the format of a server entry in each of them.

use crate::scope::host;
use std::path::PathBuf;

use serde_json::{Map, Value, json};

use super::{ServerCommand, json, toml};
use crate::cli::mcp::Client;
use belljar_engine::error::{EngineError, invalid};
use belljar_engine::store::durable::Links;

/// The way in which a client connects to Belljar.
#[derive(Debug)]
pub(super) enum ServerEntry {
    /// The client starts Belljar and uses its standard input and output.
    Command(ServerCommand),
    /// The client connects to this URL.
    Http(String),
}

/// The settings file of a client.
#[derive(Debug)]
pub(super) struct SettingsFile {
    pub(super) file: PathBuf,
    pub(super) links: Links,
}

impl SettingsFile {
    /// Returns the path of the settings file of a client.
    pub(super) fn find(client: Client) -> Result<Self, EngineError> {
        let dir =
            |name: &str| std::env::var_os(name).map(PathBuf::from).filter(|dir| dir.is_absolute());
        let home = host().user_home().ok_or_else(|| {
            invalid("cannot find the settings of the client, because HOME is not set")
        });
        let file = match client {
            // The user scope of Claude Code, which applies to all projects.
            Client::Claude => match dir("CLAUDE_CONFIG_DIR") {
                Some(dir) => dir.join(".claude.json"),
                None => home?.join(".claude.json"),
            },
            Client::Codex => match dir("CODEX_HOME") {
                Some(dir) => dir.join("config.toml"),
                None => home?.join(".codex/config.toml"),
            },
            Client::Gemini => home?.join(".gemini/settings.json"),
            Client::Opencode => {
                let base = match dir("XDG_CONFIG_HOME") {
                    Some(dir) => dir,
                    None => home?.join(".config"),
                };
                let with_comments = base.join("opencode/opencode.jsonc");
                if with_comments.exists() {
                    with_comments
                } else {
                    base.join("opencode/opencode.json")
                }
            }
            Client::Vscode => {
                let current_dir =
                    std::env::current_dir().map_err(|error| invalid(error.to_string()))?;
                return Ok(Self {
                    file: current_dir.join(".vscode/mcp.json"),
                    links: Links::Refuse,
                });
            }
        };
        Ok(Self { file, links: Links::Follow })
    }
}

/// The server entry for the settings of one client.
#[derive(Debug)]
pub(super) struct ClientSettings {
    client: Client,
    /// The keys under which the entry is stored, in JSON or in TOML.
    path: [&'static str; 2],
    value: Value,
    /// Whether the settings need an input that asks the user for the token (VS Code).
    asks_for_token: bool,
}

impl ClientSettings {
    /// Creates the entry in the format of a client.
    pub(super) fn new(client: Client, entry: &ServerEntry) -> Self {
        let (path, value) = match client {
            Client::Claude => (["mcpServers", "belljar"], claude(entry)),
            Client::Codex => (["mcp_servers", "belljar"], codex(entry)),
            Client::Gemini => (["mcpServers", "belljar"], gemini(entry)),
            Client::Opencode => (["mcp", "belljar"], opencode(entry)),
            Client::Vscode => (["servers", "belljar"], vscode(entry)),
        };
        let asks_for_token = client == Client::Vscode && matches!(entry, ServerEntry::Http(_));
        Self { client, path, value, asks_for_token }
    }

    /// Returns the product name of the client.
    pub(super) const fn client_name(&self) -> &'static str {
        match self.client {
            Client::Claude => "Claude Code",
            Client::Codex => "Codex",
            Client::Gemini => "Gemini CLI",
            Client::Opencode => "opencode",
            Client::Vscode => "VS Code",
        }
    }

    /// Returns the text of a new settings file that has only this entry.
    pub(super) fn new_file(&self) -> String {
        self.insert_into("").unwrap_or_default()
    }

    /// Returns the text of a settings file with this entry added or replaced.
    pub(super) fn insert_into(&self, text: &str) -> Result<String, String> {
        let text = if self.client == Client::Codex {
            toml::set(text, self.path, &self.value)?
        } else {
            json::set(text, &self.path, &self.value)?
        };
        if self.asks_for_token {
            return json::set(&text, &["inputs"], &token_inputs(&text));
        }
        Ok(text)
    }
}

/// Returns the entry for Claude Code.
fn claude(entry: &ServerEntry) -> Value {
    match entry {
        ServerEntry::Command(command) => stdio(json!({ "type": "stdio" }), command, "env"),
        ServerEntry::Http(url) => json!({
            "type": "http",
            "url": url,
            "headers": { "Authorization": "Bearer ${BELLJAR_TOKEN}" },
        }),
    }
}

/// Returns the entry for Codex.
fn codex(entry: &ServerEntry) -> Value {
    match entry {
        ServerEntry::Command(command) => stdio(json!({}), command, "env"),
        ServerEntry::Http(url) => json!({ "url": url, "bearer_token_env_var": "BELLJAR_TOKEN" }),
    }
}

/// Returns the entry for Gemini CLI.
fn gemini(entry: &ServerEntry) -> Value {
    match entry {
        ServerEntry::Command(command) => stdio(json!({}), command, "env"),
        ServerEntry::Http(url) => json!({
            "httpUrl": url,
            "headers": { "Authorization": "Bearer ${BELLJAR_TOKEN}" },
        }),
    }
}

/// Returns the entry for opencode.
fn opencode(entry: &ServerEntry) -> Value {
    match entry {
        ServerEntry::Command(command) => {
            let mut value = json!({ "type": "local", "command": command.words, "enabled": true });
            variables(&mut value, "environment", command);
            value
        }
        ServerEntry::Http(url) => json!({
            "type": "remote",
            "url": url,
            "enabled": true,
            "headers": { "Authorization": "Bearer {env:BELLJAR_TOKEN}" },
        }),
    }
}

/// Returns the entry for VS Code, which asks the user for the token once and stores it.
fn vscode(entry: &ServerEntry) -> Value {
    match entry {
        ServerEntry::Command(command) => stdio(json!({ "type": "stdio" }), command, "env"),
        ServerEntry::Http(url) => json!({
            "type": "http",
            "url": url,
            "headers": { "Authorization": "Bearer ${input:belljar-token}" },
        }),
    }
}

/// Returns the list `inputs` of the settings of VS Code, with the input for the token added.
fn token_inputs(text: &str) -> Value {
    let settings = serde_json::from_str::<Value>(text).ok();
    let existing =
        settings.as_ref().and_then(|settings| settings.get("inputs")).and_then(Value::as_array);
    let mut inputs = existing.cloned().unwrap_or_default();
    if !inputs.iter().any(|input| input.get("id").is_some_and(|id| id == "belljar-token")) {
        inputs.push(json!({
            "type": "promptString",
            "id": "belljar-token",
            "description": "Token of belljar mcp --http",
            "password": true,
        }));
    }
    Value::Array(inputs)
}

/// Adds the keys `command` and `args` of a server that the client starts without a shell.
fn stdio(mut value: Value, command: &ServerCommand, env: &str) -> Value {
    let (program, args) = match command.words.split_first() {
        Some((program, args)) => (program.as_str(), args),
        None => ("belljar", &[][..]),
    };
    if let Value::Object(object) = &mut value {
        object.insert("command".to_owned(), program.into());
        object.insert("args".to_owned(), args.into());
    }
    variables(&mut value, env, command);
    value
}

/// Adds the environment variables of the command under `key`, if there are any.
fn variables(value: &mut Value, key: &str, command: &ServerCommand) {
    let env: Map<String, Value> =
        command.env.iter().map(|(name, value)| (name.clone(), value.as_str().into())).collect();
    if let (Value::Object(object), false) = (value, env.is_empty()) {
        object.insert(key.to_owned(), Value::Object(env));
    }
}
