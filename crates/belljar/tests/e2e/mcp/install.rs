//! `belljar mcp install`: adds Belljar to the settings of a client and changes nothing else.

use std::fs;
use std::os::unix::fs::{PermissionsExt as _, symlink};

use belljar_testkit::{Lab, Program, Terminal};
use serde_json::{Value, json};

use crate::lab;

/// Returns the command `belljar mcp install` with these arguments.
fn install(lab: &Lab, args: &[&str]) -> Program {
    lab.belljar(["mcp", "install"]).args(args)
}

/// Returns the path of the program that `belljar mcp install` writes into settings.
fn installed_command(lab: &Lab) -> String {
    lab.belljar(["mcp", "install", "claude", "--print"])
        .succeed()
        .lines()
        .find_map(|line| {
            Some(line.trim().strip_prefix("\"command\": ")?.trim_end_matches(',').to_owned())
        })
        .map(|text| serde_json::from_str(&text).expect("a string"))
        .expect("a command")
}

/// Reads a JSON file of the home directory.
fn read_json(lab: &Lab, file: &str) -> Value {
    let text = fs::read_to_string(lab.home().join(file)).expect("settings");
    serde_json::from_str(&text).expect("JSON")
}

#[test]
fn mcp_install_writes_an_entry_in_the_format_of_each_client() {
    let lab = lab();
    let own = installed_command(&lab);
    assert!(own.starts_with('/'), "{own}");
    let env = json!({ "BELLJAR_HOME": lab.state() });
    for client in ["claude", "codex", "gemini", "opencode"] {
        install(&lab, &[client, "--yes"]).succeed();
    }
    install(&lab, &["vscode", "--yes"]).cwd(lab.workspace()).succeed();
    let stdio = json!({ "type": "stdio", "command": own, "args": ["mcp"], "env": env });
    assert_eq!(read_json(&lab, ".claude.json")["mcpServers"]["belljar"], stdio);
    let gemini = json!({ "command": own, "args": ["mcp"], "env": env });
    assert_eq!(read_json(&lab, ".gemini/settings.json")["mcpServers"]["belljar"], gemini);
    let local =
        json!({ "type": "local", "command": [own, "mcp"], "enabled": true, "environment": env });
    assert_eq!(read_json(&lab, ".config/opencode/opencode.json")["mcp"]["belljar"], local);
    let codex = fs::read_to_string(lab.home().join(".codex/config.toml")).unwrap();
    assert!(codex.starts_with("[mcp_servers.belljar]\n"), "{codex}");
    assert!(codex.contains("args = [\"mcp\"]\n") && codex.contains(&own), "{codex}");
    let vscode = fs::read_to_string(lab.workspace().join(".vscode/mcp.json")).unwrap();
    let vscode: Value = serde_json::from_str(&vscode).unwrap();
    assert_eq!(vscode["servers"]["belljar"], stdio);
}

#[test]
fn mcp_install_for_http_names_the_token_variable_and_not_its_value() {
    let lab = lab();
    let url = "http://127.0.0.1:7070/mcp";
    for (client, expect) in [
        ("claude", "Bearer ${BELLJAR_TOKEN}"),
        ("codex", "bearer_token_env_var = \"BELLJAR_TOKEN\""),
        ("gemini", "\"httpUrl\": \"http://127.0.0.1:7070/mcp\""),
        ("opencode", "Bearer {env:BELLJAR_TOKEN}"),
        ("vscode", "${input:belljar-token}"),
    ] {
        let token = "token-that-must-not-be-printed";
        let output = install(&lab, &[client, "--print", "--http", url])
            .env("BELLJAR_TOKEN", token)
            .succeed();
        assert!(output.contains(expect) && output.contains(url), "{client}: {output}");
        assert!(!output.contains(token), "{client}: {output}");
    }
    for url in ["127.0.0.1:7070", "file:///etc/passwd", "http://a b"] {
        install(&lab, &["claude", "--print", "--http", url])
            .run()
            .fails_with(2, "is not a valid URL");
    }
}

#[test]
fn mcp_install_keeps_existing_settings_unchanged() {
    let lab = lab();
    let file = lab.home().join(".claude.json");
    let before = "{\n\t\"numStartups\": 1e2,\n\t\"mcpServers\": {\n\t\t\"other\": {\"command\":\"x\"}\n\t},\n\t\"last\": [1,\n2]\n}\n";
    fs::write(&file, before).unwrap();
    fs::set_permissions(&file, fs::Permissions::from_mode(0o640)).unwrap();
    let output = install(&lab, &["claude", "--yes"]).succeed();
    assert!(
        output.contains("+ \t\t\"belljar\": {") || output.contains("+ \\t\\t\"belljar\": {"),
        "{output}"
    );
    let after = fs::read_to_string(&file).unwrap();
    assert!(after.starts_with(&before[..before.find("\n\t},").unwrap()]), "{after}");
    assert!(after.ends_with("\n\t},\n\t\"last\": [1,\n2]\n}\n"), "{after}");
    assert_eq!(file.metadata().unwrap().permissions().mode() & 0o777, 0o640);
    let backup = lab.home().join(".claude.json.before-belljar");
    assert_eq!(fs::read_to_string(&backup).unwrap(), before);
    // A second installation changes neither the settings nor the backup.
    install(&lab, &["claude"]).run().fails_with(0, "already has this entry");
    assert_eq!(fs::read_to_string(&file).unwrap(), after);
    let codex = lab.home().join(".codex/config.toml");
    fs::create_dir_all(codex.parent().unwrap()).unwrap();
    fs::write(&codex, "# mine\nmodel = 'x'\n[mcp_servers.other]\ncommand = 'y' # keep\n").unwrap();
    install(&lab, &["codex", "--yes"]).succeed();
    let text = fs::read_to_string(&codex).unwrap();
    assert!(text.starts_with("# mine\nmodel = 'x'\n[mcp_servers.other]\ncommand = 'y' # keep\n\n[mcp_servers.belljar]\n"), "{text}");
    install(&lab, &["codex"]).run().fails_with(0, "already has this entry");
}

#[test]
fn mcp_install_writes_nothing_without_confirmation_or_into_json_with_comments() {
    let lab = lab();
    let file = lab.home().join(".gemini/settings.json");
    install(&lab, &["gemini"]).run().fails_with(2, "nothing was written");
    assert!(!file.exists());
    install(&lab, &["gemini", "--print"]).succeed();
    assert!(!file.exists());
    fs::create_dir_all(file.parent().unwrap()).unwrap();
    let text = "{\n  // mine\n  \"theme\": \"x\",\n}\n";
    fs::write(&file, text).unwrap();
    let ended = install(&lab, &["gemini", "--yes"]).run();
    ended.fails_with(2, "not plain JSON");
    assert!(ended.out().contains("\"belljar\""), "the entry is printed: {}", ended.out());
    assert_eq!(fs::read_to_string(&file).unwrap(), text);
    let script = r#""$BELLJAR" mcp install claude; echo "ended $?""#;
    let mut terminal = Terminal::start(lab.program("bash").args(["-c", script]), 24, 200);
    terminal.wait_for("write these changes? [y/N] ");
    terminal.type_keys("y\r");
    terminal.wait_for("ended 0");
    terminal.end();
    assert!(lab.home().join(".claude.json").exists());
}

#[test]
fn f15_mcp_install_keeps_paths_with_spaces_and_quotes_as_one_argument() {
    let lab = lab();
    let odd_dir = lab.dir().join("it's \"odd\" $(touch x); dir");
    fs::create_dir(&odd_dir).unwrap();
    let config = odd_dir.join("belljar.toml");
    fs::write(&config, "").unwrap();
    let config = config.to_str().unwrap();
    let args = ["mcp", "install", "--yes", "claude", "--", "--workspace", "a b; c"];
    lab.belljar(["--config", config]).args(args).succeed();
    let expect = json!(["--config", config, "mcp", "--workspace", "a b; c"]);
    assert_eq!(read_json(&lab, ".claude.json")["mcpServers"]["belljar"]["args"], expect);
    lab.belljar(["--config", config, "mcp", "install", "--yes", "codex"]).succeed();
    let codex = fs::read_to_string(lab.home().join(".codex/config.toml")).unwrap();
    let read = "import sys,tomllib,json; print(json.dumps(tomllib.load(sys.stdin.buffer)['mcp_servers']['belljar']['args']))";
    let args = lab.program("/usr/bin/python3").args(["-c", read]).input(codex).succeed();
    assert_eq!(serde_json::from_str::<Value>(&args).unwrap(), json!(["--config", config, "mcp"]));
}

#[test]
fn f15_mcp_install_does_not_follow_links_in_a_project() {
    let lab = lab();
    let elsewhere = lab.dir().join("elsewhere");
    fs::create_dir(&elsewhere).unwrap();
    symlink(&elsewhere, lab.workspace().join(".vscode")).unwrap();
    let install = || install(&lab, &["vscode", "--yes"]).cwd(lab.workspace()).run();
    install().fails_with(1, "is a symbolic link");
    assert!(fs::read_dir(&elsewhere).unwrap().next().is_none());
    fs::remove_file(lab.workspace().join(".vscode")).unwrap();
    fs::create_dir(lab.workspace().join(".vscode")).unwrap();
    let target = elsewhere.join("file");
    fs::write(&target, "{}").unwrap();
    symlink(&target, lab.workspace().join(".vscode/mcp.json")).unwrap();
    assert_eq!(install().code(), 1);
    assert_eq!(fs::read_to_string(&target).unwrap(), "{}");
    fs::remove_file(lab.workspace().join(".vscode/mcp.json")).unwrap();
    install().expect(0);
    // A link in the home directory is the user's own: its target is written and the link is kept.
    let own = elsewhere.join("claude.json");
    fs::write(&own, "{}").unwrap();
    symlink(&own, lab.home().join(".claude.json")).unwrap();
    lab.belljar(["mcp", "install", "claude", "--yes"]).succeed();
    assert!(fs::read_to_string(&own).unwrap().contains("belljar"));
    assert!(lab.home().join(".claude.json").is_symlink());
}
