//! `model` tasks with tools: a scripted model makes real calls in a real box, through the real broker.

use std::fmt::Write as _;
use std::fs;
use std::process::Command;

use belljar_engine::review;
use belljar_engine::runs::host;
use belljar_engine::runs::machine::Outcome;
use belljar_engine::runs::view::RunView;
use belljar_model::Review;
use belljar_testkit::{Reply, Upstream};
use serde_json::{Value, json};

use super::{Lab, answer, body};
use crate::plan_code::{events, output, reason, run, task, try_submit};
use crate::test_engine::TestEngine;

const ALL: &str = "['shell', 'read', 'write', 'edit', 'glob', 'grep', 'fetch', 'execute_code']";

/// Returns an answer with calls of tools.
pub(super) fn calls(calls: &[(&str, Value)]) -> Reply {
    let usage = json!({"input_tokens": 7, "output_tokens": 2});
    let mut stream = vec![
        json!({"type": "message_start", "message": {"model": "answering-model", "usage": usage}}),
    ];
    for (index, (name, arguments)) in calls.iter().enumerate() {
        let block =
            json!({"type": "tool_use", "id": format!("id_{index}"), "name": name, "input": {}});
        stream.push(json!({"type": "content_block_start", "index": index, "content_block": block}));
        let delta = json!({"type": "input_json_delta", "partial_json": arguments.to_string()});
        stream.push(json!({"type": "content_block_delta", "index": index, "delta": delta}));
    }
    let delta = json!({"stop_reason": "tool_use"});
    stream.push(json!({"type": "message_delta", "delta": delta, "usage": usage}));
    stream.push(json!({"type": "message_stop"}));
    let text: String = stream.iter().map(|event| format!("data: {event}\n\n")).collect();
    Reply::new(200, text).header("content-type", "text/event-stream")
}

/// Returns the results of tools in the last request.
fn results(lab: &Lab) -> Vec<String> {
    let requests = lab.requests();
    let body = body(requests.last().unwrap());
    let last = body["messages"].as_array().unwrap().last().unwrap().clone();
    let content = last["content"].as_array().unwrap().clone();
    content.iter().map(|it| it["content"].as_str().unwrap().to_owned()).collect()
}

/// Runs a task with these calls in one turn and the answer `done` in the next one.
#[track_caller]
fn use_tools(lab: &Lab, more: &str) -> (RunView, Vec<String>) {
    let plan = format!("[task.a]\ndo = {{ model = 'cheap', prompt = 'x', {more} }}");
    let view = run(&lab.engine, &plan);
    assert_eq!(view.outcome, Some(Outcome::Succeeded), "{view:#?}");
    assert_eq!(output(&lab.engine, &view, "a"), "done");
    (view, results(lab))
}

#[test]
fn every_tool_works_in_the_box_and_changes_wait_for_review() {
    let lab = Lab::new(vec![
        calls(&[
            ("write", json!({"path": "new.txt", "content": "made\n"})),
            ("edit", json!({"path": "old.txt", "old": "before", "new": "after"})),
            ("read", json!({"path": "old.txt"})),
            ("glob", json!({"pattern": "*.txt"})),
            ("grep", json!({"pattern": "mad."})),
            ("shell", json!({"command": "pwd; cat new.txt; cat /run/task/in/input.x"})),
            ("execute_code", json!({"code": "export default [1, 2].map((n: number) => n * 2);"})),
            ("fetch", json!({"url": "https://models.example.com/page"})),
        ]),
        answer("done"),
    ]);
    lab.engine.lab.write("old.txt", "before\n");
    let plan = format!(
        "[run]\ninput.x = {{ text = 'the input' }}\n[task.a]\ndo = {{ model = 'cheap', prompt = 'x', tools = {ALL}, workspace = '.', overlay = true }}\ndata = ['input.x']"
    );
    let view = run(&lab.engine, &plan);
    assert_eq!(view.outcome, Some(Outcome::Succeeded), "{view:#?}");
    let results = results(&lab);
    assert_eq!(
        results[..7],
        [
            "wrote 5 bytes",
            "replaced 1 times",
            "after\n",
            "new.txt\nold.txt",
            "new.txt:1:made\n",
            "exit status 0\n/workspace\nmade\nthe input",
            "result: [2,4]",
        ]
    );
    // The rule of the tier allows questions only.
    assert!(results[7].starts_with("error: "), "{results:?}");
    // The files of the user are unchanged; the changes wait.
    let workspace = lab.engine.lab.workspace();
    assert_eq!(fs::read_to_string(workspace.join("old.txt")).unwrap(), "before\n");
    assert!(!workspace.join("new.txt").exists());
    let id = task(&view, "a").box_run.unwrap();
    let held = review::find(&lab.engine.state, &workspace, Some(&id.to_string())).unwrap();
    assert_eq!(held.record.review, Review::Pending);
    let upper = lab.engine.state.store().layout().run(id).join("upper");
    assert_eq!(fs::read_to_string(upper.join("new.txt")).unwrap(), "made\n");
    // Each request is in the ledger.
    assert!(lab.box_events(&view, "a", "model.called").len() >= 2);
}

#[test]
fn tools_without_a_workspace_use_an_empty_directory_and_read_only_files_cannot_change() {
    let call = calls(&[
        ("shell", json!({"command": "ls -A | wc -l; echo x > f && cat f"})),
        ("no_such_tool", json!({})),
        ("read", json!({"wrong": true})),
    ]);
    let lab = Lab::new(vec![call.clone(), answer("done")]);
    let (view, results) = use_tools(&lab, "tools = ['shell', 'read']");
    assert_eq!(results[0], "exit status 0\n0\nx\n");
    assert!(results[1].contains("there is no tool `no_such_tool`"), "{results:?}");
    assert!(results[2].contains("the arguments are not valid"), "{results:?}");
    let lines = host::tail(&lab.engine.state, task(&view, "a").box_run.unwrap(), 10);
    assert!(lines.iter().any(|line| line.starts_with("turn 1: shell ")), "{lines:?}");
    let lab = Lab::new(vec![call, answer("done")]);
    let (_, results) = use_tools(&lab, "tools = ['shell', 'read'], workspace = '.'");
    assert!(results[0].contains("Read-only file system"), "{results:?}");
}

#[test]
fn endless_calls_fail_as_turns_after_the_last_request() {
    let lab = Lab::new(vec![calls(&[("shell", json!({"command": "true"}))])]);
    let plan = "[task.a]\ndo = { model = 'cheap', prompt = 'x', tools = ['shell'], turns = 4 }\nattempts = 2";
    let view = run(&lab.engine, plan);
    assert_eq!(view.outcome, Some(Outcome::Failed), "{view:#?}");
    assert!(reason(&view, "a").starts_with("turns: "), "{view:#?}");
    assert_eq!(lab.requests().len(), 4, "the failure is final");
}

#[test]
fn processes_that_multiply_end_the_task_and_deep_recursion_is_an_error_of_its_call() {
    // Every process forks for ever. A shell would pause after forks that failed.
    let bomb = "exec python3 -c '\nimport os\nwhile True:\n    try: os.fork()\n    except BlockingIOError: pass'";
    let recursion = "echo 'sh ./again; exit 9' > again; sh ./again";
    let plan =
        "[task.a]\ndo = { model = 'cheap', prompt = 'x', tools = ['shell'] }\nbox = { pids = 64 }";
    let started = |command: &str| {
        let lab = Lab::new(vec![
            calls(&[("shell", json!({ "command": command }))]),
            calls(&[("shell", json!({"command": "echo still here"}))]),
            answer("done"),
        ]);
        let view = run(&lab.engine, plan);
        (lab, view)
    };
    let (lab, view) = started(bomb);
    assert_eq!(view.outcome, Some(Outcome::Failed), "{view:#?}");
    assert!(reason(&view, "a").starts_with("limit: the box started more processes"), "{view:#?}");
    assert_eq!(lab.requests().len(), 1);
    let (lab, view) = started(recursion);
    assert_eq!(view.outcome, Some(Outcome::Succeeded), "{view:#?}");
    assert_eq!(results(&lab), ["exit status 0\nstill here\n"]);
    let first = &body(&lab.requests()[1])["messages"][2]["content"][0]["content"];
    assert!(first.as_str().unwrap().starts_with("exit status 9\n"), "{first}");
}

#[test]
fn flood_of_output_loses_its_middle_and_the_log_says_it() {
    let flood = "head -c 500000 /dev/zero | tr '\\0' x > f; cat f; echo the end";
    let lab = Lab::new(vec![
        calls(&[("shell", json!({ "command": flood })), ("read", json!({"path": "f"}))]),
        answer("done"),
    ]);
    let (view, results) = use_tools(&lab, "tools = ['shell', 'read']");
    for result in &results {
        assert!(result.len() <= 64 << 10, "{}", result.len());
        assert!(result.contains("bytes are left out here"), "{result}");
    }
    assert!(results[0].ends_with("the end\n"));
    let lines = host::tail(&lab.engine.state, task(&view, "a").box_run.unwrap(), 10);
    assert!(lines.iter().any(|line| line.contains("cut from 500000 to")), "{lines:?}");
}

#[test]
fn g10_permissions_of_a_model_are_advice_for_commands_and_enforced_by_the_box_for_files() {
    let changes = calls(&[
        ("shell", json!({"command": "git status; rm ci/f"})),
        ("write", json!({"path": "ci/new", "content": "x"})),
        ("write", json!({"path": "docs/new", "content": "x"})),
        // Another spelling of a denied command is not found by its pattern, but the kernel refuses it.
        ("shell", json!({"command": "\\r\\m ci/f; echo x >> ci/f"})),
        ("execute_code", json!({"code": "Deno.writeTextFileSync('ci/f', 'x')"})),
        ("shell", json!({"command": "cat .env"})),
        ("shell", json!({"command": "echo x > src && cat src"})),
    ]);
    let tools = format!("tools = {ALL}, workspace = '.', overlay = true");
    for deny in [true, false] {
        let lab = Lab::new(vec![changes.clone(), answer("done")]);
        lab.engine.lab.write("ci/f", "kept");
        lab.engine.lab.write("docs/f", "kept");
        lab.engine.lab.write(".env", "KEY=1");
        let rules = if deny {
            // The rules of the project and those of the plan add up.
            lab.engine
                .lab
                .write("belljar.toml", "[permissions]\ndeny = ['Edit(ci/**)', 'Read(.env)']\n");
            ", deny = ['Bash(rm:*)', 'Edit(docs/**)']"
        } else {
            ""
        };
        let (view, results) = use_tools(&lab, &format!("{tools}{rules}"));
        assert!(results[6].ends_with("\nx\n"), "control: {results:?}");
        if deny {
            assert!(results[0].contains("denied by the rule `Bash(rm:*)`"), "{results:?}");
            assert!(results[1].contains("denied by the rule `Edit(ci/**)`"), "{results:?}");
            assert!(results[2].contains("denied by the rule `Edit(docs/**)`"), "{results:?}");
            assert!(results[3].contains("Read-only file system"), "{results:?}");
            assert!(results[4].starts_with("error: "), "{results:?}");
            assert!(results[5].contains("Permission denied"), "{results:?}");
        } else {
            // Control: without rules, all of it works.
            assert_eq!(
                (results[1].as_str(), results[2].as_str()),
                ("wrote 1 bytes", "wrote 1 bytes")
            );
            assert!(results[3].starts_with("exit status 0"), "{results:?}");
            assert!(results[4].starts_with("result: "), "{results:?}");
            assert!(results[5].contains("KEY=1"), "{results:?}");
        }
        drop(view);
    }
}

#[test]
fn g10_tools_of_a_model_reach_neither_files_nor_hosts_outside_the_box() {
    let outside = tempfile::tempdir().unwrap();
    let secret = outside.path().join("secret");
    fs::write(&secret, "of the host").unwrap();
    let other = Upstream::plain(|_| Reply::new(200, "reached"));
    let port = other.address().port();
    let path = secret.display().to_string();
    let steal = format!("cat {path} || cat /proc/1/root{path}; echo x > {path}");
    let code = format!(
        "let found = ''; try {{ found = Deno.readTextFileSync('{path}'); }} catch {{}} export default found;"
    );
    let lab = Lab::new(vec![
        calls(&[
            ("shell", json!({ "command": steal })),
            ("read", json!({ "path": path })),
            ("write", json!({ "path": path, "content": "changed" })),
            ("execute_code", json!({ "code": code })),
            ("fetch", json!({"url": format!("http://127.0.0.1:{port}/")})),
            ("fetch", json!({"url": format!("http://other.example.com:{port}/")})),
            ("shell", json!({"command": "env; cat /proc/$PPID/environ"})),
        ]),
        answer("done"),
    ]);
    let (_, results) = use_tools(&lab, &format!("tools = {ALL}, workspace = '.', overlay = true"));
    // Control: outside of the box, the same command reads the file.
    let control = Command::new("sh").arg("-c").arg(format!("cat {path}")).output().unwrap();
    assert_eq!(control.stdout, b"of the host");
    assert!(!results.join("\n").contains("of the host"), "{results:?}");
    assert_eq!(fs::read_to_string(&secret).unwrap(), "of the host");
    assert!(results[4].starts_with("error: ") && results[5].starts_with("error: "), "{results:?}");
    assert!(other.received().is_empty());
    // The box has a placeholder of the key only, which is not sent back.
    assert!(results[6].contains("MODEL_KEY=[placeholder of the key]"), "{results:?}");
    assert!(!results[6].contains(super::KEY), "{results:?}");
}

#[test]
fn tools_reach_the_hosts_of_the_template_and_each_request_is_recorded() {
    let page = Upstream::plain(|_| Reply::new(200, "a page"));
    let fetch = |host: &str| ("fetch", json!({"url": format!("http://{host}/x")}));
    let lab = Lab::new(vec![
        calls(&[fetch("page.example.com"), fetch("other.example.com")]),
        answer("done"),
    ]);
    let file = lab.engine.lab.home().join(".config/belljar/belljar.toml");
    let mut config = fs::read_to_string(&file).unwrap();
    write!(
        config,
        "[template.default]\nnet = \"restricted\"\n[[template.default.allow]]\nhost = \"page.example.com\"\nport = 80\nconnect = \"{}\"\n",
        page.address()
    )
    .unwrap();
    fs::write(&file, config).unwrap();
    let (view, results) = use_tools(&lab, "tools = ['fetch']");
    assert_eq!(results[0], "status 200 OK\na page");
    assert!(results[1].starts_with("error: "), "{results:?}");
    assert_eq!(page.received().len(), 1);
    let decided = lab.box_events(&view, "a", "request.decided");
    assert_eq!(decided.len(), 4, "two questions and two pages: {decided:?}");
}

#[test]
fn input_over_the_window_of_a_tier_fails_as_too_long_or_is_cut_by_the_plan() {
    let chunks = [
        json!({"model": "m", "choices": [{"index": 0, "delta": {"content": "read"}, "finish_reason": "stop"}]}),
        json!({"model": "m", "choices": [], "usage": {"prompt_tokens": 5, "completion_tokens": 3}}),
    ];
    let text: String = chunks.iter().map(|chunk| format!("data: {chunk}\n\n")).collect();
    let reply =
        Reply::new(200, text + "data: [DONE]\n\n").header("content-type", "text/event-stream");
    let upstream = Upstream::plain(move |_| reply.clone());
    let engine = TestEngine::new();
    engine.lab.configure(&format!(
        "[tier.local]\nprovider = 'openai-chat'\nmodel = 'm'\nurl = 'http://localhost:{}/v1'\ncontext-window = 4000\n",
        upstream.address().port()
    ));
    engine.lab.write("long.txt", "z".repeat(30_000));
    let plan = |more: &str| {
        format!(
            "[run]\ninput.long = {{ file = 'long.txt' }}\n[task.a]\ndo = {{ model = 'local', prompt = 'x'{more} }}\ndata = ['input.long']"
        )
    };
    let view = run(&engine, &plan(""));
    assert!(reason(&view, "a").starts_with("too_long: the prompt and the inputs"), "{view:#?}");
    assert!(upstream.received().is_empty());
    let view = run(&engine, &plan(", overflow = 'cut'"));
    assert_eq!(view.outcome, Some(Outcome::Succeeded), "{view:#?}");
    assert_eq!(output(&engine, &view, "a"), "read");
    let lines = host::tail(&engine.state, task(&view, "a").box_run.unwrap(), 10);
    assert!(lines.iter().any(|line| line.contains("was cut from 30000 to")), "{lines:?}");
    assert!(String::from_utf8_lossy(&upstream.received()[0].body).contains("are left out here"));
    assert_eq!(events(&engine, view.run, "task.ended").len(), 1);
}

#[test]
fn tools_that_the_plan_format_does_not_know_are_refused_when_the_plan_is_submitted() {
    let lab = Lab::new(vec![answer("x")]);
    let (config, _) = lab.engine.state.load_config(None).unwrap();
    let ceiling = belljar_engine::runs::plans::ceiling(lab.engine.state.host(), &config).unwrap();
    let plan = "[task.a]\ndo = { model = 'cheap', prompt = 'x', tools = ['sudo'] }";
    let faults = belljar_engine::runs::plans::check(plan, "plan.toml", &ceiling).unwrap_err();
    assert!(faults.to_string().contains("plan.toml:2: "), "{faults}");
    assert!(faults.to_string().contains("unknown tool `sudo`"), "{faults}");
    assert!(try_submit(&lab.engine, "[task.a]\ndo = { stub = 1 }").is_ok(), "control");
}
