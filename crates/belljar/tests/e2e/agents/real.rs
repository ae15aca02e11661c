//! Agents as people have them, unmodified, each in a box with a private clone, against a model that is
//! scripted and answers for the vendor's own host. The packages come from npm; `cargo xtask test`
//! installs them.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use belljar_testkit::{Authority, Canary, Lab, Model};
use serde_json::{Value, json};

use super::object;
use crate::lab;

/// What every agent is told to run: it leaves a file, and all that it can see of keys.
const COMMAND: &str = "echo ran > by-command.txt; (env; cat /proc/*/environ /proc/*/cmdline; \
                       cat /etc/*/*.json /etc/*/*.toml) > ~/seen 2>/dev/null; echo the command ran";

/// What must be on record in the end.
const KINDS: [&str; 7] = [
    "secret.set",
    "run.created",
    "run.exec",
    "request.decided",
    "secret.used",
    "run.ended",
    "workspace.applied",
];

/// One agent and how it is driven.
struct Case {
    agent: &'static str,
    host: &'static str,
    secret: &'static str,
    variable: &'static str,
    calls: Vec<(&'static str, Value)>,
    command: &'static [&'static str],
}

/// Where the agents were installed.
fn bin() -> PathBuf {
    let target = Path::new(env!("CARGO_TARGET_TMPDIR")).parent().expect("a target directory");
    let dir = target.join("clients/agents/node_modules/.bin");
    assert!(dir.is_dir(), "no {}: `cargo xtask test` installs it", dir.display());
    dir
}

fn git(lab: &Lab, args: &[&str]) -> String {
    let who = ["-c", "user.name=Test", "-c", "user.email=test@example.com"];
    lab.program("git").args(who).args(args).succeed()
}

/// Agents are large, and several may start at once on a small machine.
#[track_caller]
fn wait_for_the_end(lab: &Lab) {
    let until = Instant::now() + Duration::from_secs(240);
    loop {
        let status = lab.belljar(["status", "task", "--json"]).succeed();
        if object(&status)["state"] == "stopped" {
            return;
        }
        assert!(Instant::now() < until, "{status}\n{}", log(lab));
        std::thread::sleep(Duration::from_millis(100));
    }
}

fn log(lab: &Lab) -> String {
    let log = fs::read(lab.state().join("boxes/task/output.log")).unwrap_or_default();
    String::from_utf8_lossy(&log).into_owned()
}

/// Every file beneath a directory that is no link.
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

#[track_caller]
fn drive(case: Case) {
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
    let path = format!("{}:/usr/local/bin:/usr/bin:/bin", bin().display());
    let up = lab.belljar(["up", "task", "--agent", agent, "--repo", ".", "--no-tty", "--"]);
    up.args(command).env("PATH", path).succeed();
    wait_for_the_end(&lab);
    // It did both, and the model heard of it.
    let results = model.results();
    assert_eq!(results.len(), 2, "{results:?}\n{}", log(&lab));
    assert!(results[0].contains("the command ran"), "{results:?}\n{}", log(&lab));
    assert!(log(&lab).contains("The end."), "{}", log(&lab));
    // The vendor's host saw the real key, with every question.
    let asked = model.received().into_iter().filter(|it| it.method == "POST");
    let has_key = |it: &belljar_testkit::Received| {
        it.headers.iter().any(|(_, value)| value.contains(canary.value()))
    };
    assert!(asked.clone().count() >= 3 && asked.clone().all(|it| has_key(&it)), "{}", log(&lab));
    // Nothing in the box ever had it. That the search would find it: it finds the placeholder.
    let dir = lab.state().join("boxes/task");
    let seen = fs::read_to_string(dir.join("home/seen")).unwrap_or_default();
    assert!(seen.contains(&format!("{variable}=")), "{seen}");
    let kept = files(&dir);
    assert!(kept.iter().any(|file| file.ends_with("home/seen")) && kept.len() > 10, "{kept:?}");
    for file in kept {
        let spelling = canary.found_in(&fs::read(&file).unwrap());
        assert_eq!(spelling, None, "the key is in {}", file.display());
    }
    // The change is looked at and taken over as a branch; nothing else of the user's changed.
    let diff = lab.belljar(["diff", "task"]).succeed();
    assert!(diff.contains("by-command.txt") && diff.contains("by-edit.txt"), "{diff}");
    lab.belljar(["apply", "task", "--branch", "--yes"]).succeed();
    assert_eq!(git(&lab, &["show", "belljar/task:by-edit.txt"]).trim(), "edited");
    assert_eq!(git(&lab, &["show", "belljar/task:by-command.txt"]).trim(), "ran");
    assert_eq!(git(&lab, &["status", "--porcelain"]), "");
    recorded(&lab, secret, &canary);
}

/// Each step is in the ledger, and no key.
#[track_caller]
fn recorded(lab: &Lab, secret: &str, canary: &Canary) {
    let log = lab.belljar(["ledger", "log", "--json"]).succeed();
    for kind in KINDS {
        assert!(log.lines().any(|line| object(line)["kind"] == kind), "no {kind}: {log}");
    }
    assert!(log.contains(secret));
    assert_eq!(canary.found_in(log.as_bytes()), None);
    lab.belljar(["ledger", "verify"]).succeed();
}

#[test]
fn claude_code_works_in_a_box_without_its_real_api_key() {
    let edit = json!({"file_path": "/workspace/by-edit.txt", "content": "edited\n"});
    drive(Case {
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
    drive(Case {
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
    drive(Case {
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
