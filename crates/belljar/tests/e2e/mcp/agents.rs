//! Agents as people have them, without a model: one that is scripted calls `execute_code` through the
//! agent, and hears what came of it. The agents' settings are written by `belljar mcp install`.

use std::fs;

use belljar_testkit::{Lab, Model, Program};
use serde_json::{Value, json};

use super::installed;
use crate::lab;

/// What the program computes nobody would guess.
const CODE: &str = "const words: string[] = ['see', 'everything']; console.log('heard', words.length); export default { sum: 6 * 7, words: words.map((word) => word.toUpperCase()) };";

fn agent(lab: &Lab, name: &str) -> Program {
    lab.program(installed("agents").join("node_modules/.bin").join(name)).cwd(lab.workspace())
}

/// Insists that the model was told what the program gave, and that it ran in a box of its own.
#[track_caller]
fn assert_ran(lab: &Lab, model: &Model) {
    let results = model.results();
    assert_eq!(results.len(), 1, "{results:?}");
    assert!(results[0].contains("42") && results[0].contains("EVERYTHING"), "{results:?}");
    assert!(results[0].contains("heard 2"), "{results:?}");
    let log = lab.belljar(["ledger", "log", "--json", "--kind", "run.ended"]).succeed();
    assert_eq!(log.lines().count(), 1, "{log}");
    lab.belljar(["ledger", "verify"]).succeed();
}

#[test]
fn claude_code_runs_a_program_over_mcp_and_gets_its_result() {
    let lab = lab();
    let model =
        Model::calling("belljar", "execute_code", vec![json!({ "code": CODE })], "The end.");
    lab.belljar(["mcp", "install", "claude", "--yes"]).succeed();
    let said = agent(&lab, "claude")
        .args(["-p", "Compute it.", "--output-format", "json"])
        .args(["--allowedTools", "mcp__belljar__execute_code"])
        .env("ANTHROPIC_BASE_URL", model.url())
        .env("ANTHROPIC_API_KEY", "scripted")
        .env("CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC", "1")
        .env("DISABLE_AUTOUPDATER", "1")
        .env("ENABLE_TOOL_SEARCH", "false")
        .succeed();
    let said: Value = serde_json::from_str(&said).expect("JSON");
    assert_eq!((&said["result"], &said["is_error"]), (&json!("The end."), &json!(false)), "{said}");
    assert_ran(&lab, &model);
}

#[test]
fn codex_runs_a_program_over_mcp_and_gets_its_result() {
    let lab = lab();
    let model =
        Model::calling("belljar", "execute_code", vec![json!({ "code": CODE })], "The end.");
    let settings = lab.home().join(".codex/config.toml");
    fs::create_dir_all(settings.parent().unwrap()).unwrap();
    let provider = format!(
        "model = \"scripted\"\nmodel_provider = \"scripted\"\n\n[model_providers.scripted]\nname = \"scripted\"\nbase_url = \"{}/v1\"\nenv_key = \"SCRIPTED_KEY\"\nwire_api = \"responses\"\n",
        model.url()
    );
    fs::write(&settings, provider).unwrap();
    lab.belljar(["mcp", "install", "codex", "--yes"]).succeed();
    let said = agent(&lab, "codex")
        .args(["exec", "--skip-git-repo-check", "--json"])
        .args(["-c", "mcp_servers.belljar.default_tools_approval_mode=\"approve\""])
        .arg("Compute it.")
        .env("SCRIPTED_KEY", "scripted")
        .succeed();
    let events: Vec<Value> =
        said.lines().filter_map(|line| serde_json::from_str(line).ok()).collect();
    let last = events.iter().rfind(|event| event["item"]["type"] == "agent_message");
    assert_eq!(last.expect("words")["item"]["text"], "The end.", "{said}");
    assert_ran(&lab, &model);
}
