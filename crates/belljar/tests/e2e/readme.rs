//! The settings in the README work unchanged.

use std::path::Path;

use belljar_testkit::Mcp;
use serde_json::Value;

use crate::{bin_dir, lab};

/// Returns the first code block of a language after a heading.
fn block<'a>(text: &'a str, heading: &str, language: &str) -> &'a str {
    let (_, after) = text.split_once(heading).expect("the heading");
    let (_, block) = after.split_once(&format!("```{language}\n")).expect("a block");
    block.split_once("```").expect("the end of the block").0
}

#[test]
fn readme_mcp_settings_start_a_server_that_runs_programs() {
    let readme = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../README.md");
    let readme = std::fs::read_to_string(readme).unwrap();
    let settings: Value = serde_json::from_str(block(&readme, "(\"code mode\")", "json")).unwrap();
    let server = &settings["mcpServers"]["belljar"];
    let command = server["command"].as_str().unwrap();
    let args = server["args"].as_array().unwrap().iter().map(|arg| arg.as_str().unwrap());
    // The command is found by its name alone, as after `cargo install`.
    let lab = lab();
    let client = Mcp::start(lab.program(bin_dir(&lab).join(command)).args(args));
    let answer = client.run("const n: number = 6 * 7; n");
    assert_eq!(answer["result"], 42, "{answer}");
    client.end();
}
