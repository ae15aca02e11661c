//! Tests of tasks that agents carry out: real drivers, hosts, boxes and repositories. The agents are shell
//! scripts, and in [`real`] the programs of vendors.

mod attacks;
mod real;

use std::fs;
use std::path::PathBuf;

use belljar_engine::error::ErrorKind;
use belljar_engine::runs::host;
use belljar_engine::runs::machine::Outcome;
use belljar_engine::runs::view::RunView;
use belljar_engine::runs::{agent_work, control, driver, rerun};
use belljar_model::RunId;
use belljar_testkit::{
    Authority, Reply, Upstream, commit, eventually, git, git_command, write_file,
};
use serde_json::Value;

use crate::plan_runs::{
    GO, events, finish, kill_driver, kill_holder, output, release, run, start, starts, task,
    try_submit, wait_for_program,
};
use crate::test_engine::TestEngine;

/// A script of an agent that writes a file and commits it.
const COMMIT: &str = "echo fixed > fix.txt; git add fix.txt; git commit -q -m Fix; echo All done.";

/// Creates an engine whose workspace is a repository with one commit on `main`.
fn engine() -> TestEngine {
    let engine = TestEngine::new();
    let repo = engine.lab.workspace();
    git(&repo, &["init", "-q", "-b", "main"]);
    write_file(&repo, "README.md", "hello\n");
    commit(&repo, "Begin");
    engine
}

/// Defines the user's agent `name`, whose task is a shell script.
fn define(engine: &TestEngine, name: &str, script: &str) {
    define_with(engine, name, &format!("[task]\nargv = [\"bash\", \"-c\", '''{script}''']\n"));
}

fn define_with(engine: &TestEngine, name: &str, more: &str) {
    let dir = engine.lab.home().join(".config/belljar/agents");
    fs::create_dir_all(&dir).unwrap();
    fs::write(dir.join(format!("{name}.toml")), format!("program = \"bash\"\n{more}")).unwrap();
}

/// Returns a plan with one task of the agent `own`.
fn plan(more: &str) -> String {
    format!("[task.fix]\ndo = {{ agent = 'own', prompt = 'Fix it.' }}\n{more}")
}

/// Runs a plan with one task of an agent that is a shell script.
#[track_caller]
fn run_script(engine: &TestEngine, script: &str, more: &str) -> RunView {
    define(engine, "own", script);
    run(engine, &plan(more))
}

/// Returns the output of an agent task.
#[track_caller]
fn made(engine: &TestEngine, view: &RunView, task: &str) -> Value {
    serde_json::from_str(&output(engine, view, task)).unwrap()
}

#[track_caller]
fn reason(view: &RunView, name: &str) -> String {
    task(view, name).reason.clone().unwrap_or_else(|| panic!("no reason: {view:#?}"))
}

/// Returns the names and commits of all references of the user's repository.
fn references(engine: &TestEngine) -> Vec<String> {
    let format = "--format=%(refname) %(objectname)";
    let all = git(&engine.lab.workspace(), &["for-each-ref", format]);
    all.lines().map(str::to_owned).collect()
}

/// Returns the directories that agents leave behind in their box runs.
fn leftovers(engine: &TestEngine) -> Vec<PathBuf> {
    let dirs = engine.runs().into_iter().flat_map(|run| [run.join("repo"), run.join("home")]);
    dirs.filter(|dir| dir.exists()).collect()
}

// ---- Results

#[test]
fn commits_of_an_agent_become_a_reference_and_no_branch_of_the_user_moves() {
    let engine = engine();
    let repo = engine.lab.workspace();
    engine.lab.write("issue.md", "It is broken.");
    let before = references(&engine);
    let script = format!(
        "cat > prompt.txt; cat /run/task/in/input.issue >> prompt.txt; git branch --show-current > branch.txt; \
         echo own > ~/note; {COMMIT}; echo later > later.txt"
    );
    define(&engine, "own", &script);
    let text = r#"
        [run]
        input.issue = { file = "issue.md", labels = ["untrusted"] }
        [task.fix]
        do = { agent = "own", prompt = "Fix it.", base = "main" }
        data = ["input.issue"]
        done = ["all tests pass"]
    "#;
    let view = run(&engine, text);
    assert_eq!(view.outcome, Some(Outcome::Succeeded), "{view:#?}");
    let made = made(&engine, &view, "fix");
    let reference = format!("refs/belljar/{}/fix", view.run);
    assert_eq!(made["reference"], reference.as_str());
    assert_eq!(made["base"], git(&repo, &["rev-parse", "main"]).as_str());
    assert_eq!(made["commit"], git(&repo, &["rev-parse", &reference]).as_str());
    assert_eq!(made["message"], "All done.");
    let counts = ["commits", "files", "added", "removed"].map(|key| made[key].as_u64());
    // The second commit has the files that the agent did not commit.
    let lines = git(&repo, &["diff", "--numstat", "main", &reference]);
    let lines = lines.lines().map(|line| line.split('\t').next().unwrap().parse::<u64>().unwrap());
    assert_eq!(counts, [Some(2), Some(4), Some(lines.sum()), Some(0)], "{made:#}");
    assert_eq!(made["uncommitted"], true);
    let shown = |file: &str| git(&repo, &["show", &format!("{reference}:{file}")]);
    assert_eq!(shown("fix.txt"), "fixed");
    assert_eq!(shown("later.txt"), "later");
    assert_eq!(shown("branch.txt"), "main");
    let prompt = shown("prompt.txt");
    for part in ["Fix it.\n", "- /run/task/in/input.issue (untrusted)\n", "- all tests pass\n"] {
        assert!(prompt.contains(part), "{part}: {prompt}");
    }
    assert!(prompt.ends_with("It is broken."), "{prompt}");
    let after = references(&engine);
    assert_eq!(after.len(), before.len() + 1, "{after:?}");
    assert!(before.iter().all(|reference| after.contains(reference)), "{after:?}");
    assert_eq!(git(&repo, &["status", "--porcelain"]), "?? issue.md");
    assert_eq!(leftovers(&engine), Vec::<PathBuf>::new());
    let ended = &events(&engine, view.run, "task.ended")[0];
    let labels = ended["fields"]["labels"].to_string();
    assert!(labels.contains("untrusted") && labels.contains("model"), "{ended}");
}

#[test]
fn instances_of_an_agent_task_work_at_the_same_time_in_clones_of_their_own() {
    let engine = engine();
    let repo = engine.lab.workspace();
    define(
        &engine,
        "own",
        "cp /run/task/in/item.json item; count=$(ls | wc -l); echo $count > count; cat > /dev/null",
    );
    let text = plan("for_each = { values = ['one', 'two'] }");
    let view = run(&engine, &text);
    assert_eq!(view.outcome, Some(Outcome::Succeeded), "{view:#?}");
    for (number, item) in ["\"one\"", "\"two\""].iter().enumerate() {
        let reference = format!("refs/belljar/{}/fix.{number}", view.run);
        assert_eq!(git(&repo, &["show", &format!("{reference}:item")]), *item);
        assert_eq!(git(&repo, &["show", &format!("{reference}:count")]), "2");
        assert_eq!(made(&engine, &view, &format!("fix[{number}]"))["files"], 2);
    }
}

#[test]
fn agent_starts_from_the_branch_of_a_task_or_of_the_task_that_a_choice_names() {
    let engine = engine();
    let repo = engine.lab.workspace();
    define(&engine, "own", "cat /run/task/in/item.json > made; cat > /dev/null");
    define(&engine, "more", "cat made > seen; cat > /dev/null");
    let text = r#"
        [task.fix]
        do = { agent = "own", prompt = "Fix it." }
        for_each = { values = ["one", "two"] }
        [task.pick]
        do = { stub = "fix[1]" }
        data = ["fix"]
        output = "choice"
        [task.review]
        do = { agent = "more", prompt = "Go on.", base = "task:pick" }
        needs = ["pick"]
        [task.again]
        do = { agent = "more", prompt = "Go on.", base = "task:review" }
        needs = ["review"]
    "#;
    let view = run(&engine, text);
    assert_eq!(view.outcome, Some(Outcome::Failed), "the last agent changes nothing: {view:#?}");
    assert_eq!(git(&repo, &["show", &format!("refs/belljar/{}/review:seen", view.run)]), "\"two\"");
    assert_eq!(made(&engine, &view, "review")["base"], made(&engine, &view, "fix[1]")["commit"]);
    assert!(reason(&view, "again").starts_with("no_change: "), "{view:#?}");
}

// ---- Failures

#[test]
fn agent_that_changes_nothing_fails_once_with_the_reason_no_change() {
    let engine = engine();
    let view = run_script(&engine, "cat; echo I looked at it.", "attempts = 3");
    assert_eq!(view.outcome, Some(Outcome::Failed), "{view:#?}");
    assert!(reason(&view, "fix").starts_with("no_change: the agent made no commit"), "{view:#?}");
    assert_eq!(starts(&engine, view.run, "fix"), 1);
    assert_eq!(references(&engine).len(), 1);
}

#[test]
fn reason_of_a_failed_attempt_is_in_the_prompt_of_the_next_one() {
    let engine = engine();
    let script = format!(
        "cat > prompt; if [ $BELLJAR_ATTEMPT = 1 ]; then echo 'no idea' >&2; exit 7; fi; {COMMIT}"
    );
    let view = run_script(&engine, &script, "attempts = 2\nbackoff = '1s'");
    assert_eq!(view.outcome, Some(Outcome::Succeeded), "{view:#?}");
    assert_eq!(starts(&engine, view.run, "fix"), 2);
    let prompt = format!("refs/belljar/{}/fix:prompt", view.run);
    let prompt = git(&engine.lab.workspace(), &["show", &prompt]);
    assert!(prompt.starts_with("Fix it.\n"), "{prompt}");
    let kept = format!("refs/belljar/{}/fix.failed-1", view.run);
    let end = format!("> exit: exit status 7; its commits are at {kept}: no idea");
    assert!(prompt.ends_with(&format!("The reason was:\n{end}")), "{prompt}");
}

#[test]
fn agent_that_exceeds_its_time_is_killed_and_its_commits_are_no_result_but_kept() {
    let engine = engine();
    let repo = engine.lab.workspace();
    let script = format!("{COMMIT}; echo more > more.txt; sleep 1000");
    let view = run_script(&engine, &script, "box = { timeout = '5s' }");
    assert_eq!(view.outcome, Some(Outcome::Failed), "{view:#?}");
    let reason = reason(&view, "fix");
    let kept = format!("refs/belljar/{}/fix.failed-1", view.run);
    assert!(reason.starts_with("timeout: "), "{view:#?}");
    assert!(reason.contains(&format!("; its commits are at {kept}")), "{reason}");
    assert_eq!(git(&repo, &["show", &format!("{kept}:fix.txt")]), "fixed");
    assert_eq!(git(&repo, &["show", &format!("{kept}:more.txt")]), "more");
    assert_eq!(references(&engine).len(), 2, "the task has no branch");
    assert_eq!(leftovers(&engine), Vec::<PathBuf>::new());
}

#[test]
fn commits_of_all_attempts_of_an_agent_are_kept() {
    let engine = engine();
    let repo = engine.lab.workspace();
    // The first attempt is rejected, the second fails, and the third succeeds.
    let script = "cat > /dev/null; echo $BELLJAR_ATTEMPT > made; git add made; git commit -q -m Made; \
                  [ $BELLJAR_ATTEMPT != 2 ]";
    let check = "check = [{ command = ['grep', '-v', '1', 'made'] }]";
    let view = run_script(&engine, script, &format!("attempts = 3\nbackoff = '1s'\n{check}"));
    assert_eq!(view.outcome, Some(Outcome::Succeeded), "{view:#?}");
    for (name, attempt) in [("fix.failed-1", "1"), ("fix.failed-2", "2"), ("fix", "3")] {
        let made = format!("refs/belljar/{}/{name}:made", view.run);
        assert_eq!(git(&repo, &["show", &made]), attempt, "{name}");
    }
    assert_eq!(references(&engine).len(), 4);
}

#[test]
fn attempts_and_repetitions_start_from_the_commit_of_the_submission() {
    let engine = engine();
    let repo = engine.lab.workspace();
    let first = git(&repo, &["rev-parse", "main"]);
    let script = format!("{GO}; cat > /dev/null; ls > seen; [ $BELLJAR_ATTEMPT = 2 ]");
    for base in ["main", "HEAD"] {
        git(&repo, &["reset", "-q", "--hard", &first]);
        define(&engine, "own", &script);
        let plan = format!(
            "[task.fix]\ndo = {{ agent = 'own', prompt = 'Fix it.', base = '{base}' }}\nattempts = 2\nbackoff = '1s'"
        );
        let run = start(&engine, &plan);
        let box_run = wait_for_program(&engine, run, "fix");
        write_file(&repo, "later.md", "a later commit of the user\n");
        commit(&repo, "Later");
        release(&engine, run, box_run);
        let view = finish(&engine, run);
        assert_eq!(view.outcome, Some(Outcome::Succeeded), "{view:#?}");
        let seen = |run: RunId| git(&repo, &["show", &format!("refs/belljar/{run}/fix:seen")]);
        assert_eq!(made(&engine, &view, "fix")["base"], first.as_str(), "{base}");
        assert_eq!(seen(run), "README.md\nseen");
        let (config, _) = engine.state.load_config(None).unwrap();
        let from = "fix".parse().unwrap();
        let again = rerun::rerun(&engine.state, &config, run, &from).unwrap().run;
        driver::wake(&engine.state).unwrap();
        let box_run = wait_for_program(&engine, again, "fix");
        release(&engine, again, box_run);
        let view = finish(&engine, again);
        assert_eq!(made(&engine, &view, "fix")["base"], first.as_str(), "{base}");
        // Control: a new submission starts from the new commit.
        define(&engine, "own", "cat > /dev/null; ls > seen");
        let new = run_plan(&engine, &plan);
        assert_eq!(seen(new), "README.md\nlater.md\nseen");
    }
}

#[test]
fn work_of_a_running_agent_can_be_read_until_its_box_ends() {
    let engine = engine();
    define(&engine, "own", &format!("{COMMIT}; echo more > more.txt; {GO}; cat > /dev/null"));
    let run = start(&engine, &plan(""));
    let box_run = wait_for_program(&engine, run, "fix");
    let work = agent_work::read(&engine.state, box_run).unwrap().expect("changes");
    let files: Vec<String> =
        work.files.iter().map(|file| file.path.to_string_lossy().into_owned()).collect();
    assert_eq!(files, ["fix.txt", "more.txt"]);
    assert_eq!((work.commit_count, work.uncommitted), (2, true));
    drop(work);
    release(&engine, run, box_run);
    let view = finish(&engine, run);
    assert_eq!(view.outcome, Some(Outcome::Succeeded), "the agent goes on: {view:#?}");
    assert_eq!(made(&engine, &view, "fix")["files"], 2);
    let error = agent_work::read(&engine.state, box_run).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::WrongState, "{error:#}");
}

/// Carries out a plan and returns its run.
#[track_caller]
fn run_plan(engine: &TestEngine, text: &str) -> RunId {
    let view = run(engine, text);
    assert_eq!(view.outcome, Some(Outcome::Succeeded), "{view:#?}");
    view.run
}

#[test]
fn agent_whose_model_does_not_answer_fails_with_the_reason_unavailable() {
    let (engine, authority) = (engine(), Authority::new());
    let upstream = Upstream::tls(&authority, &["api.example.com"], |_| Reply::new(529, "busy"));
    let rule = format!("host = \"api.example.com\"\nconnect = \"{}\"\n", upstream.address());
    engine.lab.configure_for(&authority, &format!("[[template.default.allow]]\n{rule}"));
    let script = "cat > /dev/null; curl -sSf https://api.example.com/v1/messages; exit 1";
    let more = format!("[task]\nargv = [\"bash\", \"-c\", '''{script}''']\n");
    define_with(&engine, "own", &format!("allow = [\"api.example.com\"]\n{more}"));
    let view = run(&engine, &plan(""));
    assert_eq!(view.outcome, Some(Outcome::Failed), "{view:#?}");
    let reason = reason(&view, "fix");
    let expected = "unavailable: status 529 to GET https://api.example.com/v1/messages";
    assert!(reason.starts_with(expected), "{reason}");
    assert_eq!(upstream.received().len(), 1);
}

#[test]
fn submission_refuses_an_agent_that_cannot_run_and_a_repository_without_the_base() {
    let engine = engine();
    define_with(&engine, "silent", "");
    define_with(&engine, "keyless", "secrets = [\"openai\"]\n[task]\nargv = [\"bash\"]\n");
    define(&engine, "own", COMMIT);
    let dir = engine.lab.home().join(".config/belljar/agents");
    let absent = "program = \"no-such-program\"\ninstall = \"get it\"\n[task]\nargv = [\"x\"]\n";
    fs::write(dir.join("absent.toml"), absent).unwrap();
    for (what, expected) in [
        ("agent = 'silent'", "agent silent cannot run tasks; add `[task]`"),
        ("agent = 'keyless'", "agent keyless has no credentials: none of the secrets openai"),
        ("agent = 'absent'", "cannot find the program `no-such-program` in your PATH"),
        ("agent = 'own', base = 'nowhere'", "has no branch, tag or commit \"nowhere\""),
        ("agent = 'own', repo = '/'", "`repo`: / is not in a git repository; run `git init`"),
    ] {
        let text = format!("[task.fix]\ndo = {{ {what}, prompt = 'x' }}");
        let error = try_submit(&engine, &text, None).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Invalid, "{what}: {error:#}");
        let error = format!("{error:#}");
        assert!(error.starts_with("task `fix`") && error.contains(expected), "{what}: {error}");
    }
    let missing = "[task.fix]\ndo = { agent = 'own', prompt_file = 'fix.md' }";
    let error = format!("{:#}", try_submit(&engine, missing, None).unwrap_err());
    assert!(error.contains("task `fix`: cannot read"), "{error}");
    engine.lab.write("fix.md", "From a file.");
    let view = run(&engine, missing);
    assert_eq!(view.outcome, Some(Outcome::Succeeded), "control: {view:#?}");
}

// ---- Crashes

/// Starts a plan whose agent waits for its first attempt to be released, and then commits.
#[track_caller]
fn start_waiting(engine: &TestEngine) -> (RunId, RunId) {
    define(engine, "own", &format!("{GO}; cat > prompt; {COMMIT}"));
    let run = start(engine, &plan(""));
    (run, wait_for_program(engine, run, "fix"))
}

#[test]
fn cancelled_agent_is_killed_and_its_commits_are_not_taken() {
    let engine = engine();
    define(&engine, "own", &format!("{COMMIT}; {GO}"));
    let run = start(&engine, &plan(""));
    let box_run = wait_for_program(&engine, run, "fix");
    control::cancel(&engine.state, run, None).unwrap();
    let view = finish(&engine, run);
    assert_eq!(view.outcome, Some(Outcome::Cancelled), "{view:#?}");
    assert!(!host::is_running(&engine.state, box_run));
    assert_eq!(references(&engine).len(), 1);
    assert_eq!(leftovers(&engine), Vec::<PathBuf>::new());
}

#[test]
fn h11_agent_goes_on_without_a_driver_and_is_adopted_by_the_next_one() {
    let engine = engine();
    let (run, box_run) = start_waiting(&engine);
    kill_driver(&engine);
    assert!(host::is_running(&engine.state, box_run), "the host outlives the driver");
    driver::wake(&engine.state).unwrap();
    eventually("another driver opens the run", || events(&engine, run, "driver.opened").len() == 2);
    release(&engine, run, box_run);
    let view = finish(&engine, run);
    assert_eq!(view.outcome, Some(Outcome::Succeeded), "{view:#?}");
    assert_eq!(starts(&engine, run, "fix"), 1);
    assert_eq!(task(&view, "fix").box_run, Some(box_run));
    assert_eq!(made(&engine, &view, "fix")["files"], 2);
}

#[test]
fn h11_agent_whose_host_is_killed_dies_and_is_repeated_in_a_new_clone() {
    let engine = engine();
    let (run, box_run) = start_waiting(&engine);
    kill_holder(&engine, &format!("runs/{box_run}/lock"));
    let view = finish(&engine, run);
    assert_eq!(view.outcome, Some(Outcome::Succeeded), "{view:#?}");
    assert_eq!(task(&view, "fix").attempt, 2);
    assert_ne!(task(&view, "fix").box_run, Some(box_run));
    assert_eq!(events(&engine, run, "task.ended")[0]["fields"]["result"], "lost");
    assert_eq!(references(&engine).len(), 2);
    assert_eq!(leftovers(&engine), Vec::<PathBuf>::new());
}

#[test]
fn h11_commits_of_an_agent_that_ended_without_a_driver_are_taken() {
    let engine = engine();
    let (run, box_run) = start_waiting(&engine);
    kill_driver(&engine);
    release(&engine, run, box_run);
    eventually("the host ends", || !host::is_running(&engine.state, box_run));
    driver::wake(&engine.state).unwrap();
    let view = finish(&engine, run);
    assert_eq!(view.outcome, Some(Outcome::Succeeded), "{view:#?}");
    assert_eq!(starts(&engine, run, "fix"), 1);
    assert_eq!(references(&engine).len(), 2);
}
