//! Where each client keeps its settings, and what an MCP server looks like in them.

use crate::scope::host;
use std::path::PathBuf;

use serde_json::{Map, Value, json};

use super::{Command, json, toml};
use crate::cli::mcp::Client;
use belljar_engine::error::{EngineError, invalid};
use belljar_engine::store::durable::Links;

/// How the client reaches us.
#[derive(Debug)]
pub(super) enum Entry {
    Command(Command),
    Http(String),
}

/// The file of a client.
#[derive(Debug)]
pub(super) struct Place {
    pub(super) file: PathBuf,
    pub(super) links: Links,
}

impl Place {
    pub(super) fn of(client: Client) -> Result<Self, EngineError> {
        let dir =
            |name: &str| std::env::var_os(name).map(PathBuf::from).filter(|dir| dir.is_absolute());
        let home = host().user_home().ok_or_else(|| invalid("HOME is not set"));
        let file = match client {
            // The user's own scope: every project sees it.
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
                let here = std::env::current_dir().map_err(|error| invalid(error.to_string()))?;
                return Ok(Self { file: here.join(".vscode/mcp.json"), links: Links::Refuse });
            }
        };
        Ok(Self { file, links: Links::Follow })
    }
}

/// What belongs into a client's settings.
#[derive(Debug)]
pub(super) struct Settings {
    client: Client,
    /// Where it belongs: a member of a JSON text, or a table of a TOML text.
    path: [&'static str; 2],
    value: Value,
    /// Whether the client has to ask for the token.
    asks: bool,
}

impl Settings {
    pub(super) fn of(client: Client, entry: &Entry) -> Self {
        let (path, value) = match client {
            Client::Claude => (["mcpServers", "belljar"], claude(entry)),
            Client::Codex => (["mcp_servers", "belljar"], codex(entry)),
            Client::Gemini => (["mcpServers", "belljar"], gemini(entry)),
            Client::Opencode => (["mcp", "belljar"], opencode(entry)),
            Client::Vscode => (["servers", "belljar"], vscode(entry)),
        };
        let asks = client == Client::Vscode && matches!(entry, Entry::Http(_));
        Self { client, path, value, asks }
    }

    pub(super) const fn client_name(&self) -> &'static str {
        match self.client {
            Client::Claude => "Claude Code",
            Client::Codex => "Codex",
            Client::Gemini => "Gemini CLI",
            Client::Opencode => "opencode",
            Client::Vscode => "VS Code",
        }
    }

    /// The settings of somebody who has no others.
    pub(super) fn whole(&self) -> String {
        self.within("").unwrap_or_default()
    }

    /// The text with us in it.
    pub(super) fn within(&self, text: &str) -> Result<String, String> {
        let text = if self.client == Client::Codex {
            toml::set(text, self.path, &self.value)?
        } else {
            json::set(text, &self.path, &self.value)?
        };
        if self.asks {
            return json::set(&text, &["inputs"], &questions(&text));
        }
        Ok(text)
    }
}

fn claude(entry: &Entry) -> Value {
    match entry {
        Entry::Command(command) => stdio(json!({ "type": "stdio" }), command, "env"),
        Entry::Http(url) => json!({
            "type": "http",
            "url": url,
            "headers": { "Authorization": "Bearer ${BELLJAR_TOKEN}" },
        }),
    }
}

fn codex(entry: &Entry) -> Value {
    match entry {
        Entry::Command(command) => stdio(json!({}), command, "env"),
        Entry::Http(url) => json!({ "url": url, "bearer_token_env_var": "BELLJAR_TOKEN" }),
    }
}

fn gemini(entry: &Entry) -> Value {
    match entry {
        Entry::Command(command) => stdio(json!({}), command, "env"),
        Entry::Http(url) => json!({
            "httpUrl": url,
            "headers": { "Authorization": "Bearer ${BELLJAR_TOKEN}" },
        }),
    }
}

fn opencode(entry: &Entry) -> Value {
    match entry {
        Entry::Command(command) => {
            let mut value = json!({ "type": "local", "command": command.words, "enabled": true });
            variables(&mut value, "environment", command);
            value
        }
        Entry::Http(url) => json!({
            "type": "remote",
            "url": url,
            "enabled": true,
            "headers": { "Authorization": "Bearer {env:BELLJAR_TOKEN}" },
        }),
    }
}

/// VS Code asks for the token once and keeps it itself.
fn vscode(entry: &Entry) -> Value {
    match entry {
        Entry::Command(command) => stdio(json!({ "type": "stdio" }), command, "env"),
        Entry::Http(url) => json!({
            "type": "http",
            "url": url,
            "headers": { "Authorization": "Bearer ${input:belljar-token}" },
        }),
    }
}

/// The questions of VS Code's settings, with ours among them.
fn questions(text: &str) -> Value {
    let before = serde_json::from_str::<Value>(text).ok();
    let before = before.as_ref().and_then(|before| before.get("inputs")).and_then(Value::as_array);
    let mut inputs = before.cloned().unwrap_or_default();
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

/// The program and its arguments apart, as most clients have them: words, never a line for a shell.
fn stdio(mut value: Value, command: &Command, env: &str) -> Value {
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

fn variables(value: &mut Value, key: &str, command: &Command) {
    let env: Map<String, Value> =
        command.env.iter().map(|(name, value)| (name.clone(), value.as_str().into())).collect();
    if let (Value::Object(object), false) = (value, env.is_empty()) {
        object.insert(key.to_owned(), Value::Object(env));
    }
}
