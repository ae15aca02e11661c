//! Unmodified agents, each in a box with a private clone, against a scripted model on the vendor's
//! host name. The packages come from npm; `cargo xtask test` installs them.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use belljar_testkit::{Authority, Canary, Lab, Model, Terminal};
use serde_json::{Value, json};

use super::parse_object;
use crate::lab;

/// The command that every agent runs: it writes a file, and all variables and settings it can read. It
/// also prints the placeholder, which the agent then repeats in every request to its model.
const COMMAND: &str = "echo ran > by-command.txt; (env; cat /proc/*/environ /proc/*/cmdline; \
                       cat /etc/*/*.json /etc/*/*.toml) > ~/seen 2>/dev/null; env | grep API_KEY; echo the command ran";

/// The event kinds that the ledger must contain at the end.
const KINDS: [&str; 8] = [
    "secret.masked",
    "secret.set",
    "run.created",
    "run.exec",
    "request.decided",
    "secret.used",
    "run.ended",
    "workspace.applied",
];

/// An agent, its secret, the tool calls of the model and the command that starts it.
struct Case {
    agent: &'static str,
    host: &'static str,
    secret: &'static str,
    variable: &'static str,
    calls: Vec<(&'static str, Value)>,
    command: &'static [&'static str],
}

/// Returns the directory of the installed agent programs.
fn agents_dir() -> PathBuf {
    let target = Path::new(env!("CARGO_TARGET_TMPDIR")).parent().expect("a target directory");
    let dir = target.join("clients/agents/node_modules/.bin");
    assert!(dir.is_dir(), "no {}: `cargo xtask test` installs it", dir.display());
    dir
}

/// Runs git in the workspace and returns its output.
fn git(lab: &Lab, args: &[&str]) -> String {
    let author = ["-c", "user.name=Test", "-c", "user.email=test@example.com"];
    lab.program("git").args(author).args(args).succeed()
}

/// Waits up to 240 s until the box has stopped, because agents start slowly on a small machine.
#[track_caller]
fn wait_until_stopped(lab: &Lab) {
    let deadline = Instant::now() + Duration::from_secs(240);
    loop {
        let status = lab.belljar(["status", "task", "--json"]).succeed();
        if parse_object(&status)["state"] == "stopped" {
            return;
        }
        assert!(Instant::now() < deadline, "{status}\n{}", log(lab));
        std::thread::sleep(Duration::from_millis(100));
    }
}

/// Returns the output of the agent in the box `task`.
fn log(lab: &Lab) -> String {
    let log = fs::read(lab.state().join("boxes/task/output.log")).unwrap_or_default();
    String::from_utf8_lossy(&log).into_owned()
}

/// Returns all regular files below a directory.
fn files(dir: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(dir).into_iter().flatten().flatten() {
        let kind = entry.file_type().expect("a kind");
        if kind.is_dir() {
            found.extend(files(&entry.path()));
        } else if kind.is_file() {
            found.push(entry.path());
        }
    }
    found
}

/// Runs an agent in a box and checks the tool results, the use of the secret, and the changes.
#[track_caller]
fn check_agent(case: Case) {
    let (lab, authority, canary) = (lab(), Authority::new(), Canary::new());
    let Case { agent, host, secret, variable, calls, command } = case;
    let model = Model::answering(&authority, &[host], calls, "The end.");
    lab.configure_for(
        &authority,
        &format!(
            "[[template.default.allow]]\nhost = {host:?}\nconnect = \"{}\"\n",
            model.address()
        ),
    );
    lab.belljar(["secret", "set", secret]).input(canary.value()).succeed();
    git(&lab, &["init", "-q", "-b", "main"]);
    lab.write("README.md", "hello\n");
    git(&lab, &["add", "."]);
    git(&lab, &["commit", "-q", "-m", "first"]);
    let path = format!("{}:/usr/local/bin:/usr/bin:/bin", agents_dir().display());
    let up = lab.belljar(["up", "task", "--agent", agent, "--repo", ".", "--no-tty", "--"]);
    up.args(command).env("PATH", path).succeed();
    wait_until_stopped(&lab);
    // The agent made both tool calls, and the model received their results.
    let results = model.results();
    assert_eq!(results.len(), 2, "{results:?}\n{}", log(&lab));
    assert!(results[0].contains("the command ran"), "{results:?}\n{}", log(&lab));
    let masked = format!("{variable}=[belljar:{secret}]");
    assert!(results[0].contains(&masked), "{results:?}");
    assert!(log(&lab).contains("The end."), "{}", log(&lab));
    // Every request to the vendor's host had the real key.
    let requests = model.received().into_iter().filter(|it| it.method == "POST");
    let has_key = |it: &belljar_testkit::Received| {
        it.headers.iter().any(|(_, value)| value.contains(canary.value()))
    };
    assert!(
        requests.clone().count() >= 3 && requests.clone().all(|it| has_key(&it)),
        "{}",
        log(&lab)
    );
    // The key is in no file of the box. Control: the searched files include the environment.
    let dir = lab.state().join("boxes/task");
    let seen = fs::read_to_string(dir.join("home/seen")).unwrap_or_default();
    assert!(seen.contains(&format!("{variable}=")), "{seen}");
    let kept = files(&dir);
    assert!(kept.iter().any(|file| file.ends_with("home/seen")) && kept.len() > 10, "{kept:?}");
    for file in kept {
        let spelling = canary.found_in(&fs::read(&file).unwrap());
        assert_eq!(spelling, None, "the key is in {}", file.display());
    }
    // The changes are applied as a branch, and the user's checkout is unchanged.
    let diff = lab.belljar(["diff", "task"]).succeed();
    assert!(diff.contains("by-command.txt") && diff.contains("by-edit.txt"), "{diff}");
    lab.belljar(["apply", "task", "--branch", "--yes"]).succeed();
    assert_eq!(git(&lab, &["show", "belljar/task:by-edit.txt"]).trim(), "edited");
    assert_eq!(git(&lab, &["show", "belljar/task:by-command.txt"]).trim(), "ran");
    assert_eq!(git(&lab, &["status", "--porcelain"]), "");
    assert_recorded(&lab, secret, &canary);
}

/// Asserts that the ledger has an event for each step and does not contain the key.
#[track_caller]
fn assert_recorded(lab: &Lab, secret: &str, canary: &Canary) {
    let log = lab.belljar(["ledger", "log", "--json"]).succeed();
    for kind in KINDS {
        assert!(log.lines().any(|line| parse_object(line)["kind"] == kind), "no {kind}: {log}");
    }
    assert!(log.contains(secret));
    assert_eq!(canary.found_in(log.as_bytes()), None);
    lab.belljar(["ledger", "verify"]).succeed();
}

#[test]
fn claude_code_works_in_a_box_without_its_real_api_key() {
    let edit = json!({"file_path": "/workspace/by-edit.txt", "content": "edited\n"});
    check_agent(Case {
        agent: "claude",
        host: "api.anthropic.com",
        secret: "anthropic",
        variable: "ANTHROPIC_API_KEY",
        calls: vec![
            ("Bash", json!({"command": COMMAND, "description": "look around"})),
            ("Write", edit),
        ],
        command: &["sh", "-c", "claude -p 'Do it.' --output-format json < /dev/null"],
    });
}

#[test]
fn codex_works_in_a_box_without_its_real_api_key() {
    let patch = "apply_patch <<'END'\n*** Begin Patch\n*** Add File: by-edit.txt\n+edited\n*** End Patch\nEND\n";
    check_agent(Case {
        agent: "codex",
        host: "api.openai.com",
        secret: "openai",
        variable: "OPENAI_API_KEY",
        calls: vec![
            ("exec_command", json!({"cmd": COMMAND})),
            ("exec_command", json!({"cmd": patch})),
        ],
        command: &["sh", "-c", "codex exec -m gpt-5 --json 'Do it.' < /dev/null"],
    });
}

#[test]
fn gemini_works_in_a_box_without_its_real_api_key() {
    let edit = json!({"file_path": "/workspace/by-edit.txt", "content": "edited\n"});
    check_agent(Case {
        agent: "gemini",
        host: "generativelanguage.googleapis.com",
        secret: "gemini",
        variable: "GEMINI_API_KEY",
        calls: vec![
            ("run_shell_command", json!({"command": COMMAND, "description": "look around"})),
            ("write_file", edit),
        ],
        command: &[
            "sh",
            "-c",
            "gemini -m gemini-2.5-flash --yolo --output-format json -p 'Do it.' < /dev/null",
        ],
    });
}

/// Returns the rendered output of the box `task` when it has this text, which can take long on a small machine.
#[track_caller]
fn wait_for_screen(lab: &Lab, text: &str) -> String {
    let deadline = Instant::now() + Duration::from_secs(240);
    loop {
        let shown = lab.belljar(["logs", "task"]).run().out();
        if shown.contains(text) {
            return shown;
        }
        assert!(Instant::now() < deadline, "no {text:?} on the screen:\n{shown}");
        std::thread::sleep(Duration::from_millis(200));
    }
}

#[test]
fn claude_code_starts_without_questions_and_continues_only_a_conversation() {
    let (lab, authority) = (lab(), Authority::new());
    let host = "api.anthropic.com";
    let model = Model::answering(&authority, &[host], Vec::new(), "The answer of the model.");
    let connect = model.address();
    lab.configure_for(
        &authority,
        &format!("[[template.default.allow]]\nhost = {host:?}\nconnect = \"{connect}\"\n"),
    );
    lab.belljar(["secret", "set", "anthropic"])
        .input("sk-ant-api03-a-real-key-0123456789")
        .succeed();
    let path = format!("{}:/usr/local/bin:/usr/bin:/bin", agents_dir().display());
    let belljar = |args: &[&str]| lab.belljar(args).env("PATH", &path);
    let program = || {
        let status = parse_object(&lab.belljar(["status", "task", "--json"]).succeed());
        let words = status["run"]["argv"].as_array().unwrap().len();
        (status["state"].as_str().unwrap().to_owned(), words)
    };
    belljar(&["up", "task", "--agent", "claude"]).succeed();
    // The prompt appears at once: Claude Code does not ask whether it may use the key.
    let shown = wait_for_screen(&lab, "❯");
    assert!(!shown.contains("API key") && !shown.contains("recommended"), "{shown}");
    // Without a conversation, the box starts again without `--continue`, which would exit.
    belljar(&["stop", "--now", "task"]).succeed();
    fs::remove_file(lab.state().join("boxes/task/output.log")).unwrap();
    belljar(&["start", "task"]).succeed();
    let shown = wait_for_screen(&lab, "❯");
    assert!(!shown.contains("API key"), "the placeholder of each start is approved:\n{shown}");
    assert_eq!(program(), ("running".to_owned(), 1));
    // With a conversation, the box continues it.
    let mut terminal = Terminal::start(belljar(&["attach", "task"]), 40, 120);
    terminal.wait_for("❯");
    terminal.type_keys("Say something.");
    terminal.wait_for("something.");
    terminal.type_keys("\r");
    wait_for_screen(&lab, "The answer of the model.");
    belljar(&["stop", "--now", "task"]).succeed();
    terminal.end();
    belljar(&["start", "task"]).succeed();
    assert_eq!(program(), ("running".to_owned(), 2));
    belljar(&["stop", "--now", "task"]).succeed();
}
