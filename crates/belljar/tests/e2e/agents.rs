//! Agents in named boxes: their programs, logins and permissions.

mod login;
mod permissions;
mod real;

use std::fs;

use belljar_testkit::Lab;
use serde_json::Value;

use crate::lab;

/// Defines the user's own agent `own`, whose program is a script in the lab's home.
fn define_own_agent(lab: &Lab, more: &str) {
    let bin = lab.home().join("tools/bin");
    fs::create_dir_all(&bin).unwrap();
    let program = bin.join("own-agent");
    fs::write(&program, "#!/bin/sh\necho \"at work: $*\"\nexec sleep 1000\n").unwrap();
    let mode = std::os::unix::fs::PermissionsExt::from_mode(0o755);
    fs::set_permissions(&program, mode).unwrap();
    let dir = lab.home().join(".config/belljar/agents");
    fs::create_dir_all(&dir).unwrap();
    let text = format!("title = \"Our own\"\nprogram = \"own-agent\"\n{more}");
    fs::write(dir.join("own.toml"), text).unwrap();
}

/// Returns a `PATH` that contains the program of the agent `own`.
fn path_with_agent(lab: &Lab) -> String {
    format!("{}:/usr/bin:/bin", lab.home().join("tools/bin").display())
}

/// Parses one JSON object.
fn parse_object(text: &str) -> Value {
    serde_json::from_str(text).unwrap_or_else(|error| panic!("{error}: {text}"))
}

#[test]
fn agent_list_names_built_in_agents_and_agent_show_reports_installed_parts() {
    let lab = lab();
    let list = lab.belljar(["agent", "list", "--json"]).succeed();
    let names: Vec<String> =
        list.lines().map(|line| parse_object(line)["name"].as_str().unwrap().to_owned()).collect();
    assert_eq!(names, ["aider", "claude", "codex", "gemini", "opencode"]);
    define_own_agent(&lab, "secrets = [\"openai\"]\ncopy = [\".own/notes.md\"]\n");
    fs::create_dir(lab.home().join(".own")).unwrap();
    fs::write(lab.home().join(".own/notes.md"), "be kind").unwrap();
    lab.belljar(["secret", "set", "openai"]).input("the-key-of-openai-12345").succeed();
    let show = lab
        .belljar(["agent", "show", "own", "--json"])
        .env("PATH", path_with_agent(&lab))
        .succeed();
    let installed = &parse_object(&show)["here"];
    assert!(installed["program"].as_str().unwrap().ends_with("tools/bin/own-agent"), "{show}");
    assert_eq!(installed["secrets"][0]["is_set"], true, "{show}");
    assert_eq!(installed["copied"][0], ".own/notes.md", "{show}");
    assert!(!show.contains("be kind") && !show.contains("12345"), "{show}");
    lab.belljar(["agent", "show", "nobody"]).run().fails_with(2, "known agents: aider, claude");
}

#[test]
fn up_with_an_agent_starts_its_program_and_creates_its_home_files_once() {
    let lab = lab();
    define_own_agent(
        &lab,
        "start = [\"first\"]\nagain = [\"again\"]\nenv = [\"OWN=1\"]\n\
         [settings]\nlanguage = \"claude\"\npath = \"/etc/own/settings.json\"\n\
         [[home]]\npath = \".own/config\"\ncontent = \"theirs\"\n",
    );
    let up = lab.belljar(["up", "task", "--agent", "own"]).env("PATH", path_with_agent(&lab)).run();
    up.expect(0);
    let log = || fs::read_to_string(lab.state().join("boxes/task/output.log")).unwrap_or_default();
    belljar_testkit::eventually("the agent runs", || log().contains("at work: first"));
    let config = lab.state().join("boxes/task/home/.own/config");
    assert_eq!(fs::read_to_string(&config).unwrap(), "theirs");
    fs::write(&config, "changed").unwrap();
    lab.belljar(["stop", "--now", "task"]).succeed();
    lab.belljar(["start", "task"]).env("PATH", path_with_agent(&lab)).succeed();
    belljar_testkit::eventually("the agent runs again", || log().contains("at work: again"));
    assert_eq!(fs::read_to_string(&config).unwrap(), "changed");
    lab.belljar(["stop", "--now", "task"]).succeed();
    let refused = lab.belljar(["up", "other", "--agent", "own"]).run();
    refused.fails_with(2, "cannot find the program `own-agent` in your PATH");
}
