//! Translates permissions into the settings of each agent, for rules that the box cannot enforce.

use std::fmt::Write as _;

use anyhow::Context as _;
use belljar_model::agent::{Language, Settings};
use belljar_model::permission::{Permission, Permissions, Verdict};
use serde_json::{Map, Value, json};
use toml_edit::DocumentMut;

/// Returns the managed settings file of an agent, and the rules that its settings cannot express.
pub(super) fn write(
    settings: &Settings,
    permissions: &Permissions,
) -> anyhow::Result<(Vec<u8>, Vec<String>)> {
    let text = match settings.language {
        Language::Codex => codex(&settings.content, permissions)?,
        Language::Claude => json_text(&settings.content, |object| claude(object, permissions))?,
        Language::Gemini => json_text(&settings.content, |object| gemini(object, permissions))?,
        Language::Opencode => opencode(&settings.content, permissions)?,
    };
    let is_unsupported = |(_, rule): &(Verdict, &Permission)| !can_express(settings.language, rule);
    let unsupported = permissions.iter().filter(is_unsupported);
    let unsupported = unsupported.map(|(verdict, rule)| format!("{} {rule}", verdict.name()));
    Ok((text.into_bytes(), unsupported.collect()))
}

/// Returns whether the agent's settings can express a permission.
///
/// Always true for network rules, because the broker enforces them and the agent need not know them.
pub fn can_express(language: Language, permission: &Permission) -> bool {
    match (language, permission) {
        (_, Permission::Net(_)) | (Language::Claude | Language::Opencode, _) => true,
        (Language::Gemini, rule) => matches!(rule, Permission::Bash(_) | Permission::Tool(_)),
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
    serde_json::from_str(content)
        .context("`content` in the settings of the agent is not a JSON object")
}

fn claude(settings: &mut Map<String, Value>, permissions: &Permissions) {
    let list = |list: &[Permission]| list.iter().filter_map(claude_rule).collect::<Vec<_>>();
    let mode = if permissions.skips_all() { "bypassPermissions" } else { "default" };
    let rules = json!({
        "defaultMode": mode,
        "allow": list(&permissions.allow),
        "deny": list(&permissions.deny),
        "ask": list(&permissions.ask),
    });
    settings.insert("permissions".to_owned(), rules);
    settings.insert("skipDangerousModePermissionPrompt".to_owned(), Value::Bool(true));
}

/// Returns a permission as a rule of Claude Code, or `None` for a network rule.
fn claude_rule(permission: &Permission) -> Option<String> {
    let absolute = |text: String| {
        let rest = text.strip_prefix("./").or_else(|| text.strip_prefix('/'));
        rest.map(|rest| format!("//workspace/{rest}")).unwrap_or(text)
    };
    match permission {
        Permission::Read(files) => Some(format!("Read({})", absolute(files.to_string()))),
        Permission::Edit(files) => Some(format!("Edit({})", absolute(files.to_string()))),
        Permission::Bash(command) if command == "*" => Some("Bash".to_owned()),
        Permission::Bash(command) => Some(format!("Bash({command})")),
        Permission::Tool(name) => Some(name.clone()),
        Permission::Net(_) => None,
    }
}

fn codex(content: &str, permissions: &Permissions) -> anyhow::Result<String> {
    let policy = if permissions.skips_all() { "never" } else { "on-request" };
    let mut settings: DocumentMut =
        content.parse().context("`content` in the settings of the agent is not valid TOML")?;
    settings.insert("approval_policy", toml_edit::value(policy));
    Ok(settings.to_string())
}

fn gemini(settings: &mut Map<String, Value>, permissions: &Permissions) {
    let list = |list: &[Permission]| list.iter().filter_map(gemini_rule).collect::<Vec<_>>();
    let tools = settings.entry("tools").or_insert_with(|| json!({}));
    if let Some(tools) = tools.as_object_mut() {
        tools.insert("exclude".to_owned(), json!(list(&permissions.deny)));
        tools.insert("allowed".to_owned(), json!(list(&permissions.allow)));
    }
}

/// Returns a permission as a tool rule of Gemini CLI, or `None` if Gemini CLI cannot express it.
fn gemini_rule(permission: &Permission) -> Option<String> {
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

/// Writes the settings of opencode. The last matching rule applies there, so `deny` rules come last.
fn opencode(content: &str, permissions: &Permissions) -> anyhow::Result<String> {
    let usual = if permissions.skips_all() { "allow" } else { "ask" };
    let mut rules = String::new();
    for (tool, first) in [("read", "allow"), ("edit", usual), ("bash", usual)] {
        write!(rules, "{tool:?}: {{\"*\": {first:?}")?;
        for (list, action) in
            [(&permissions.allow, "allow"), (&permissions.ask, "ask"), (&permissions.deny, "deny")]
        {
            for pattern in list.iter().filter_map(|rule| opencode_pattern(rule, tool)) {
                write!(rules, ", {}: {action:?}", serde_json::to_string(&pattern)?)?;
            }
        }
        rules.push_str("}, ");
    }
    for (verdict, permission) in permissions.iter() {
        if let Permission::Tool(name) = permission {
            write!(rules, "{}: {:?}, ", serde_json::to_string(name)?, verdict.name())?;
        }
    }
    let outside = if permissions.skips_all() { "allow" } else { "ask" };
    write!(rules, "\"external_directory\": {outside:?}")?;
    let mut text = serde_json::to_string(&object(content)?)?;
    text.pop(); // the closing brace
    let comma = if text.len() > 1 { ", " } else { "" };
    Ok(format!("{text}{comma}\"permission\": {{{rules}}}}}\n"))
}

/// Returns the pattern of a permission for a tool of opencode, or `None` if it is for another tool.
fn opencode_pattern(permission: &Permission, tool: &str) -> Option<String> {
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
        let (text, unsupported) = write(&settings, rules).unwrap();
        (String::from_utf8(text).unwrap(), unsupported)
    }

    #[test]
    fn settings_of_claude_contain_all_permissions_except_network_rules() {
        let (text, unsupported) =
            written(Language::Claude, r#"{"sandbox": {"enabled": false}}"#, &rules());
        let settings: Value = serde_json::from_str(&text).unwrap();
        assert_eq!(settings["sandbox"]["enabled"], false);
        let deny = json!(["Read(//workspace/.env)", "Edit(ci/**)", "Bash(rm -rf *)"]);
        assert_eq!(settings["permissions"]["deny"], deny);
        assert_eq!(settings["permissions"]["ask"], json!(["Bash(git push:*)"]));
        assert_eq!(settings["permissions"]["allow"], json!(["WebSearch"]));
        assert_eq!(settings["permissions"]["defaultMode"], "default");
        assert!(unsupported.is_empty());
        let (text, _) = written(Language::Claude, "", &Permissions::default());
        assert!(text.contains("bypassPermissions"), "{text}");
    }

    #[test]
    fn settings_of_other_agents_contain_supported_rules_and_report_the_rest() {
        let content = "approval_policy = \"never\"\n[x]\ny = 1 # why\n";
        let (text, unsupported) = written(Language::Codex, content, &rules());
        assert_eq!(text, "approval_policy = \"on-request\"\n[x]\ny = 1 # why\n");
        let (text, _) = written(Language::Codex, "[x]\ny = 1\n", &Permissions::default());
        assert_eq!(text, "approval_policy = \"never\"\n[x]\ny = 1\n");
        assert_eq!(unsupported.len(), 5, "{unsupported:?}");
        let (text, unsupported) =
            written(Language::Gemini, r#"{"tools": {"sandbox": false}}"#, &rules());
        let settings: Value = serde_json::from_str(&text).unwrap();
        assert_eq!(settings["tools"]["exclude"], json!(["run_shell_command(rm -rf)"]));
        assert_eq!(settings["tools"]["sandbox"], false);
        assert_eq!(unsupported, ["deny Read(/.env)", "deny Edit(ci/**)"]);
        let (text, unsupported) = written(Language::Opencode, r#"{"share": "disabled"}"#, &rules());
        let settings: Value = serde_json::from_str(&text).unwrap();
        assert_eq!(settings["permission"]["bash"]["rm -rf *"], "deny");
        assert_eq!(settings["permission"]["edit"]["ci/*"], "deny");
        let (star, deny) = (text.find("\"*\": \"ask\""), text.find("rm -rf"));
        assert!(star < deny && star.is_some(), "{text}");
        assert!(unsupported.is_empty());
    }
}
