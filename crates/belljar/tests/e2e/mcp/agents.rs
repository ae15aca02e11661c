//! Real coding agents with a scripted model: the model calls `execute_code` through the agent and gets the
//! result. `belljar mcp install` writes the settings of the agents.

use std::fs;

use belljar_testkit::{Lab, Model, Program};
use serde_json::{Value, json};

use super::installed;
use crate::lab;

/// A program whose result cannot be guessed.
const CODE: &str = "const words: string[] = ['see', 'everything']; console.log('heard', words.length); export default { sum: 6 * 7, words: words.map((word) => word.toUpperCase()) };";

/// Returns the installed program of a coding agent, started in the project directory.
fn agent(lab: &Lab, name: &str) -> Program {
    lab.program(installed("agents").join("node_modules/.bin").join(name)).cwd(lab.workspace())
}

/// Asserts that the model received the result of the program, and that exactly one run was recorded.
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
    let output = agent(&lab, "claude")
        .args(["-p", "Compute it.", "--output-format", "json"])
        .args(["--allowedTools", "mcp__belljar__execute_code"])
        .env("ANTHROPIC_BASE_URL", model.url())
        .env("ANTHROPIC_API_KEY", "scripted")
        .env("CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC", "1")
        .env("DISABLE_AUTOUPDATER", "1")
        .env("ENABLE_TOOL_SEARCH", "false")
        .succeed();
    let output: Value = serde_json::from_str(&output).expect("JSON");
    assert_eq!(
        (&output["result"], &output["is_error"]),
        (&json!("The end."), &json!(false)),
        "{output}"
    );
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
    let output = agent(&lab, "codex")
        .args(["exec", "--skip-git-repo-check", "--json"])
        .args(["-c", "mcp_servers.belljar.default_tools_approval_mode=\"approve\""])
        .arg("Compute it.")
        .env("SCRIPTED_KEY", "scripted")
        .succeed();
    let events: Vec<Value> =
        output.lines().filter_map(|line| serde_json::from_str(line).ok()).collect();
    let last = events.iter().rfind(|event| event["item"]["type"] == "agent_message");
    assert_eq!(last.expect("a message of the agent")["item"]["text"], "The end.", "{output}");
    assert_ran(&lab, &model);
}
