//! Permissions in the words of each agent: what the box cannot keep is said here, as advice.

use std::fmt::Write as _;

use anyhow::Context as _;
use belljar_model::agent::{Language, Settings};
use belljar_model::permission::{Permission, Permissions, Verdict};
use serde_json::{Map, Value, json};
use toml_edit::DocumentMut;

/// The managed settings of an agent, and the rules that it has no words for.
pub(super) fn write(
    settings: &Settings,
    permissions: &Permissions,
) -> anyhow::Result<(Vec<u8>, Vec<String>)> {
    let text = match settings.language {
        Language::Codex => codex(&settings.content, permissions)?,
        Language::Claude => json_text(&settings.content, |it| claude(it, permissions))?,
        Language::Gemini => json_text(&settings.content, |it| gemini(it, permissions))?,
        Language::Opencode => opencode(&settings.content, permissions)?,
    };
    let mute = |(_, it): &(Verdict, &Permission)| !speaks_of(settings.language, it);
    let mute =
        permissions.iter().filter(mute).map(|(verdict, it)| format!("{} {it}", verdict.name()));
    Ok((text.into_bytes(), mute.collect()))
}

/// Whether the agent's settings have words for it. Hosts are never its business: the broker keeps them.
pub fn speaks_of(language: Language, permission: &Permission) -> bool {
    match (language, permission) {
        (_, Permission::Net(_)) | (Language::Claude | Language::Opencode, _) => true,
        (Language::Gemini, it) => matches!(it, Permission::Bash(_) | Permission::Tool(_)),
        (Language::Codex, _) => false,
    }
}

fn json_text(content: &str, add: impl FnOnce(&mut Map<String, Value>)) -> anyhow::Result<String> {
    let mut object = object(content)?;
    add(&mut object);
    Ok(serde_json::to_string_pretty(&object)?)
}

fn object(content: &str) -> anyhow::Result<Map<String, Value>> {
    let content = if content.trim().is_empty() { "{}" } else { content };
    serde_json::from_str(content).context("`content` of the agent's settings is not a JSON object")
}

fn claude(settings: &mut Map<String, Value>, permissions: &Permissions) {
    let list = |list: &[Permission]| list.iter().filter_map(in_claudes_words).collect::<Vec<_>>();
    let mode = if permissions.skips_all() { "bypassPermissions" } else { "default" };
    let said = json!({
        "defaultMode": mode,
        "allow": list(&permissions.allow),
        "deny": list(&permissions.deny),
        "ask": list(&permissions.ask),
    });
    settings.insert("permissions".to_owned(), said);
    settings.insert("skipDangerousModePermissionPrompt".to_owned(), Value::Bool(true));
}

fn in_claudes_words(permission: &Permission) -> Option<String> {
    let from_the_top = |text: String| {
        let rest = text.strip_prefix("./").or_else(|| text.strip_prefix('/'));
        rest.map(|rest| format!("//workspace/{rest}")).unwrap_or(text)
    };
    match permission {
        Permission::Read(files) => Some(format!("Read({})", from_the_top(files.to_string()))),
        Permission::Edit(files) => Some(format!("Edit({})", from_the_top(files.to_string()))),
        Permission::Bash(command) if command == "*" => Some("Bash".to_owned()),
        Permission::Bash(command) => Some(format!("Bash({command})")),
        Permission::Tool(name) => Some(name.clone()),
        Permission::Net(_) => None,
    }
}

fn codex(content: &str, permissions: &Permissions) -> anyhow::Result<String> {
    let policy = if permissions.skips_all() { "never" } else { "on-request" };
    let mut settings: DocumentMut =
        content.parse().context("`content` of the agent's settings is not TOML")?;
    settings.insert("approval_policy", toml_edit::value(policy));
    Ok(settings.to_string())
}

fn gemini(settings: &mut Map<String, Value>, permissions: &Permissions) {
    let list = |list: &[Permission]| list.iter().filter_map(in_geminis_words).collect::<Vec<_>>();
    let tools = settings.entry("tools").or_insert_with(|| json!({}));
    if let Some(tools) = tools.as_object_mut() {
        tools.insert("exclude".to_owned(), json!(list(&permissions.deny)));
        tools.insert("allowed".to_owned(), json!(list(&permissions.allow)));
    }
}

fn in_geminis_words(permission: &Permission) -> Option<String> {
    match permission {
        Permission::Bash(command) => {
            let start = command.trim_end_matches('*').trim_end_matches([':', ' ']);
            let whole = "run_shell_command".to_owned();
            Some(if start.is_empty() { whole } else { format!("{whole}({start})") })
        }
        Permission::Tool(name) => Some(name.clone()),
        Permission::Read(_) | Permission::Edit(_) | Permission::Net(_) => None,
    }
}

/// The last rule that fits wins, so the order counts: what is denied comes last.
fn opencode(content: &str, permissions: &Permissions) -> anyhow::Result<String> {
    let usual = if permissions.skips_all() { "allow" } else { "ask" };
    let mut said = String::new();
    for (tool, first) in [("read", "allow"), ("edit", usual), ("bash", usual)] {
        write!(said, "{tool:?}: {{\"*\": {first:?}")?;
        for (list, word) in
            [(&permissions.allow, "allow"), (&permissions.ask, "ask"), (&permissions.deny, "deny")]
        {
            for pattern in list.iter().filter_map(|it| in_opencodes_words(it, tool)) {
                write!(said, ", {}: {word:?}", serde_json::to_string(&pattern)?)?;
            }
        }
        said.push_str("}, ");
    }
    for (verdict, permission) in permissions.iter() {
        if let Permission::Tool(name) = permission {
            write!(said, "{}: {:?}, ", serde_json::to_string(name)?, verdict.name())?;
        }
    }
    let outside = if permissions.skips_all() { "allow" } else { "ask" };
    write!(said, "\"external_directory\": {outside:?}")?;
    let mut text = serde_json::to_string(&object(content)?)?;
    text.pop(); // the closing brace
    let comma = if text.len() > 1 { ", " } else { "" };
    Ok(format!("{text}{comma}\"permission\": {{{said}}}}}\n"))
}

fn in_opencodes_words(permission: &Permission, tool: &str) -> Option<String> {
    match (permission, tool) {
        (Permission::Read(files), "read") | (Permission::Edit(files), "edit") => {
            let text = files.to_string();
            let path = text.trim_start_matches("./").trim_start_matches('/');
            Some(path.replace("**", "*"))
        }
        (Permission::Bash(command), "bash") => Some(command.replace(":*", " *")),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rules() -> Permissions {
        let list = |texts: &[&str]| texts.iter().map(|text| text.parse().unwrap()).collect();
        Permissions {
            deny: list(&["Read(/.env)", "Edit(ci/**)", "Bash(rm -rf *)", "Net(x.example)"]),
            ask: list(&["Bash(git push:*)"]),
            allow: list(&["Tool(WebSearch)"]),
            skip_all: None,
        }
    }

    fn written(language: Language, content: &str, rules: &Permissions) -> (String, Vec<String>) {
        let settings = Settings { language, path: "/etc/x".into(), content: content.to_owned() };
        let (text, mute) = write(&settings, rules).unwrap();
        (String::from_utf8(text).unwrap(), mute)
    }

    #[test]
    fn claude_is_told_in_its_own_words() {
        let (text, mute) =
            written(Language::Claude, r#"{"sandbox": {"enabled": false}}"#, &rules());
        let said: Value = serde_json::from_str(&text).unwrap();
        assert_eq!(said["sandbox"]["enabled"], false);
        let deny = json!(["Read(//workspace/.env)", "Edit(ci/**)", "Bash(rm -rf *)"]);
        assert_eq!(said["permissions"]["deny"], deny);
        assert_eq!(said["permissions"]["ask"], json!(["Bash(git push:*)"]));
        assert_eq!(said["permissions"]["allow"], json!(["WebSearch"]));
        assert_eq!(said["permissions"]["defaultMode"], "default");
        assert!(mute.is_empty());
        let (text, _) = written(Language::Claude, "", &Permissions::default());
        assert!(text.contains("bypassPermissions"), "{text}");
    }

    #[test]
    fn the_others_are_told_what_they_understand_and_the_rest_is_said() {
        let content = "approval_policy = \"never\"\n[x]\ny = 1 # why\n";
        let (text, mute) = written(Language::Codex, content, &rules());
        assert_eq!(text, "approval_policy = \"on-request\"\n[x]\ny = 1 # why\n");
        let (text, _) = written(Language::Codex, "[x]\ny = 1\n", &Permissions::default());
        assert_eq!(text, "approval_policy = \"never\"\n[x]\ny = 1\n");
        assert_eq!(mute.len(), 5, "{mute:?}");
        let (text, mute) = written(Language::Gemini, r#"{"tools": {"sandbox": false}}"#, &rules());
        let said: Value = serde_json::from_str(&text).unwrap();
        assert_eq!(said["tools"]["exclude"], json!(["run_shell_command(rm -rf)"]));
        assert_eq!(said["tools"]["sandbox"], false);
        assert_eq!(mute, ["deny Read(/.env)", "deny Edit(ci/**)"]);
        let (text, mute) = written(Language::Opencode, r#"{"share": "disabled"}"#, &rules());
        let said: Value = serde_json::from_str(&text).unwrap();
        assert_eq!(said["permission"]["bash"]["rm -rf *"], "deny");
        assert_eq!(said["permission"]["edit"]["ci/*"], "deny");
        let (star, deny) = (text.find("\"*\": \"ask\""), text.find("rm -rf"));
        assert!(star < deny && star.is_some(), "{text}");
        assert!(mute.is_empty());
    }
}
