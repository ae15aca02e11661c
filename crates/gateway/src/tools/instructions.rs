//! Creates the instructions for a model that writes programs.

use belljar_engine::programs::{Language, Programs};
use belljar_engine::skills::{SkillState, Skills};

/// Returns the short instructions for a model, for the response to `initialize`.
pub(super) fn brief(programs: &Programs) -> String {
    let apis = names(programs);
    let apis = if apis.is_empty() { "none".to_owned() } else { apis.join(", ") };
    format!(
        "Belljar runs programs in sealed boxes. Prefer one program with execute_code over many tool calls: it can loop, filter and combine, and only its result comes back. Declared services: {apis}. Call get_instructions once before the first program."
    )
}

/// Returns the complete instructions for a model that uses the tools.
pub(super) fn full(programs: &Programs, skills: &Skills) -> String {
    let mut text = include_str!("instructions.md").to_owned();
    text.push_str(&format!("\n## Languages here\n{}\n", Language::installed_names().join(", ")));
    if let Ok(config) = programs.config() {
        let code = config.code();
        text.push_str(&format!(
            "\n## Limits\nThe default timeout of a program is {} s; `timeout` sets another (1 to {} s). Each output stream is limited to {}.\n",
            code.timeout.as_secs(),
            code.max_timeout.as_secs(),
            code.output
        ));
        text.push_str("\n## Services\n");
        for api in config.apis().values() {
            let about = api.description.as_deref().unwrap_or("(not described)");
            text.push_str(&format!("- `apis.{}`: {about}\n", api.name.identifier()));
        }
        if config.apis().is_empty() {
            text.push_str("No service is declared, so programs have no network access.\n");
        }
        if !config.servers().is_empty() {
            let servers: Vec<&str> = config.servers().keys().map(|name| name.as_str()).collect();
            text.push_str(&format!(
                "\n## Other servers\n{}: find their functions with search_tools.\n",
                servers.join(", ")
            ));
        }
    }
    let skills = skills.list().unwrap_or_default();
    if !skills.is_empty() {
        text.push_str("\n## Skills\n");
        for info in skills {
            if let SkillState::Active { skill, .. } = &info.state {
                text.push_str(&format!("- `skill:{}`: {}\n", info.name, skill.description));
            }
        }
    }
    text
}

fn names(programs: &Programs) -> Vec<String> {
    let config = programs.config();
    config.map_or_else(
        |_| Vec::new(),
        |config| config.apis().keys().map(ToString::to_string).collect(),
    )
}
