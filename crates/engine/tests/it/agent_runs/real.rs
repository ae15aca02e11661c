//! Unmodified agents carry out a task of a plan, against a scripted model on the vendor's host name. The
//! packages come from npm; `cargo xtask test` installs them.

use std::path::Path;
use std::time::{Duration, Instant};

use belljar_engine::runs::view;
use belljar_engine::secrets::Secrets;
use belljar_testkit::{Canary, Model, Received};
use serde_json::json;
use zeroize::Zeroizing;

use super::*;

/// The command that every agent runs: it writes all variables, arguments and settings that it can read.
const COMMAND: &str = "(env; cat /proc/*/environ /proc/*/cmdline; cat /etc/*/*.json /etc/*/*.toml \
                       ~/.*/*.json ~/.*/*.toml) > seen.txt 2>/dev/null; echo the command ran";

/// An agent, its vendor and the tool calls of the model.
struct Case {
    agent: &'static str,
    host: &'static str,
    secret: &'static str,
    variable: &'static str,
    calls: Vec<(&'static str, Value)>,
}

fn claude() -> Case {
    let edit = json!({"file_path": "/workspace/by-edit.txt", "content": "edited\n"});
    Case {
        agent: "claude",
        host: "api.anthropic.com",
        secret: "anthropic",
        variable: "ANTHROPIC_API_KEY",
        calls: vec![
            ("Bash", json!({"command": COMMAND, "description": "look around"})),
            ("Write", edit),
        ],
    }
}

fn codex() -> Case {
    let patch = "apply_patch <<'END'\n*** Begin Patch\n*** Add File: by-edit.txt\n+edited\n*** End Patch\nEND\n";
    Case {
        agent: "codex",
        host: "api.openai.com",
        secret: "openai",
        variable: "OPENAI_API_KEY",
        calls: vec![
            ("exec_command", json!({"cmd": COMMAND})),
            ("exec_command", json!({"cmd": patch})),
        ],
    }
}

fn gemini() -> Case {
    let edit = json!({"file_path": "/workspace/by-edit.txt", "content": "edited\n"});
    Case {
        agent: "gemini",
        host: "generativelanguage.googleapis.com",
        secret: "gemini",
        variable: "GEMINI_API_KEY",
        calls: vec![
            ("run_shell_command", json!({"command": COMMAND, "description": "look around"})),
            ("write_file", edit),
        ],
    }
}

/// Creates an engine with a repository that finds the installed agents.
fn engine_with_agents() -> TestEngine {
    let target = Path::new(env!("CARGO_TARGET_TMPDIR")).parent().expect("a target directory");
    let dir = target.join("clients/agents/node_modules/.bin");
    assert!(dir.is_dir(), "no {}: `cargo xtask test` installs it", dir.display());
    let path = format!("{}:/usr/local/bin:/usr/bin:/bin", dir.display());
    let engine = TestEngine::with_variables(&[("PATH", &path)]);
    let repo = engine.lab.workspace();
    git(&repo, &["init", "-q", "-b", "main"]);
    write_file(&repo, "README.md", "hello\n");
    commit(&repo, "Begin");
    // The scripted model knows only the tools that Codex has with this model. Otherwise the file is the
    // built-in one.
    let codex = Path::new(env!("CARGO_MANIFEST_DIR")).join("agents/codex.toml");
    let codex = fs::read_to_string(codex).unwrap();
    let with_model = codex.replacen("\"exec\", ", "\"exec\", \"-m\", \"gpt-5\", ", 1);
    assert_ne!(codex, with_model);
    let agents = engine.lab.home().join(".config/belljar/agents");
    fs::create_dir_all(&agents).unwrap();
    fs::write(agents.join("codex.toml"), with_model).unwrap();
    engine
}

/// Starts the scripted model of each vendor, and stores a key for each. Returns the models and the keys.
fn serve(engine: &TestEngine, authority: &Authority, cases: &[&Case]) -> Vec<(Model, Canary)> {
    // Without a name of a model, Gemini CLI first asks another model which one to use.
    let mut config = "[template.default]\nenv = [\"GEMINI_MODEL=gemini-2.5-flash\"]\n".to_owned();
    let mut served = Vec::new();
    for case in cases {
        let model = Model::answering(authority, &[case.host], case.calls.clone(), "The end.");
        let (host, connect) = (case.host, model.address());
        config.push_str(&format!(
            "[[template.default.allow]]\nhost = {host:?}\nconnect = \"{connect}\"\n"
        ));
        served.push((model, Canary::new()));
    }
    engine.lab.configure_for(authority, &config);
    let secrets = Secrets::open(&engine.state).unwrap();
    let writer = secrets.writer().unwrap();
    for (case, (_, canary)) in cases.iter().zip(&served) {
        let value = Zeroizing::new(canary.value().as_bytes().to_vec());
        writer.set(&case.secret.parse().unwrap(), value).unwrap();
    }
    served
}

/// Waits up to 5 minutes until a run has ended, because agents start slowly on a small machine.
#[track_caller]
fn finish_slowly(engine: &TestEngine, run: RunId) -> RunView {
    let deadline = Instant::now() + Duration::from_secs(300);
    while view::run(&engine.state, run).unwrap().outcome.is_none() {
        assert!(Instant::now() < deadline, "{:#?}", view::run(&engine.state, run));
        std::thread::sleep(Duration::from_millis(100));
    }
    finish(engine, run)
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

/// Asserts that an agent made both tool calls with the real key, and that the key was not in its box.
#[track_caller]
fn check_work(engine: &TestEngine, view: &RunView, case: &Case, (model, canary): &(Model, Canary)) {
    let repo = engine.lab.workspace();
    let results = model.results();
    assert_eq!(results.len(), 2, "{results:?}\n{view:#?}");
    assert!(results[0].contains("the command ran"), "{results:?}");
    let requests = model.received().into_iter().filter(|it| it.method == "POST");
    let has_key =
        |it: &Received| it.headers.iter().any(|(_, value)| value.contains(canary.value()));
    assert!(requests.clone().count() >= 3 && requests.clone().all(|it| has_key(&it)));
    let name = case.agent;
    let made = made(engine, view, name);
    let reference = format!("refs/belljar/{}/{name}", view.run);
    assert_eq!(made["commit"], git(&repo, &["rev-parse", &reference]).as_str());
    assert_eq!(made["message"], "The end.", "{made:#}");
    let shown = |file: &str| git(&repo, &["show", &format!("{reference}:{file}")]);
    assert_eq!(shown("by-edit.txt"), "edited");
    // The key is not in the box. Control: the searched text includes the environment of the agent.
    let seen = shown("seen.txt");
    assert!(seen.contains(&format!("{}=", case.variable)), "{seen}");
    assert_eq!(canary.found_in(seen.as_bytes()), None);
    let kept = files(&engine.lab.state());
    assert!(kept.iter().any(|file| file.ends_with("result.json")), "{kept:?}");
    for file in kept {
        let spelling = canary.found_in(&fs::read(&file).unwrap());
        assert_eq!(spelling, None, "the key is in {}", file.display());
    }
}

/// Runs a plan with one task of an agent.
#[track_caller]
fn check_agent(case: &Case) {
    let (engine, authority) = (engine_with_agents(), Authority::new());
    let served = serve(&engine, &authority, &[case]);
    let before = references(&engine);
    let agent = case.agent;
    let text = format!(
        "[task.{agent}]\ndo = {{ agent = '{agent}', prompt = 'Do it.', base = 'main' }}\ndone = ['both files exist']"
    );
    let view = finish_slowly(&engine, start(&engine, &text));
    assert_eq!(view.outcome, Some(Outcome::Succeeded), "{view:#?}");
    check_work(&engine, &view, case, &served[0]);
    // The prompt reached the model, and no branch of the user moved.
    let received = served[0].0.received();
    let bodies = received.iter().map(|it| String::from_utf8_lossy(&it.body).into_owned());
    assert!(bodies.into_iter().any(|it| it.contains("Do it.") && it.contains("both files exist")));
    assert_eq!(references(&engine).len(), before.len() + 1);
    assert_eq!(git(&engine.lab.workspace(), &["status", "--porcelain"]), "");
    let used = engine.events().into_iter().filter(|event| event["kind"] == "secret.used");
    assert!(used.count() >= 3);
}

#[test]
fn claude_code_carries_out_a_task_without_its_real_api_key() {
    check_agent(&claude());
}

#[test]
fn codex_carries_out_a_task_without_its_real_api_key() {
    check_agent(&codex());
}

#[test]
fn gemini_cli_carries_out_a_task_without_its_real_api_key() {
    check_agent(&gemini());
}

#[test]
fn example_plan_with_two_agents_returns_two_branches() {
    let (engine, authority) = (engine_with_agents(), Authority::new());
    let cases = [claude(), codex()];
    let served = serve(&engine, &authority, &cases.each_ref());
    let plans = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/plans");
    let text = fs::read_to_string(plans.join("two-agents.toml")).unwrap();
    engine.lab.write("bug.md", "The greeting is wrong.");
    let view = finish_slowly(&engine, start(&engine, &text));
    assert_eq!(view.outcome, Some(Outcome::Succeeded), "{view:#?}");
    for (case, served) in cases.iter().zip(&served) {
        check_work(&engine, &view, case, served);
    }
    let compared = output(&engine, &view, "compare");
    for case in &cases {
        let reference = format!("refs/belljar/{}/{}", view.run, case.agent);
        assert!(compared.contains(&reference), "{compared}");
    }
    // Both agents worked at the same time.
    let order: Vec<String> = engine
        .events()
        .into_iter()
        .filter(|event| event["run"] == view.run.to_string().as_str())
        .map(|event| event["kind"].as_str().unwrap_or_default().to_owned())
        .filter(|kind| kind == "task.started" || kind == "task.ended")
        .collect();
    assert_eq!(order[..2], ["task.started", "task.started"], "{order:?}");
}
