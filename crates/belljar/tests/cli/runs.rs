//! Runs of plans on the command line: submissions, lists, pages and wrong input.

use std::fs;

use belljar_testkit::Lab;

use crate::{entry, lab, program, transcript};

const PLAN: &str = r#"[run]
budget = { boxes = 2, time = "1h" }
answer = "last"
[task.first]
do = { stub = { severity = "high" } }
[task.each]
do = { stub = "item" }
for_each = { values = ["a", "b"] }
needs = ["first"]
[task.never]
do = { stub = 1 }
when = { of = "first", at = "/severity", equals = "low" }
needs = ["first"]
[task.bad]
do = { stub = 1, fail = "broken on purpose" }
[task.after]
do = { stub = 1 }
needs = ["bad"]
[task.last]
do = { stub = "the end" }
data = ["each"]
"#;

/// Writes a plan to the directory of the lab.
fn write(lab: &Lab, name: &str, text: &str) {
    fs::write(lab.dir().join(name), text).unwrap();
}

/// Replaces durations such as `0s` and `1m02s` with the spaces before them, because a loaded machine is slow.
fn without_durations(text: &str) -> String {
    let is_duration = |word: &str| {
        let word = word.strip_suffix('s').unwrap_or("x");
        word.bytes().all(|byte| byte.is_ascii_digit() || byte == b'm') && !word.is_empty()
    };
    let mut out = String::new();
    for line in text.split_inclusive('\n') {
        for word in line.split_inclusive(' ') {
            let bare = word.trim_end();
            if is_duration(bare) {
                let start = out.trim_end_matches(' ').len();
                out.truncate(start);
                out.push_str(" [SPAN]");
                out.push_str(&word[bare.len()..]);
            } else {
                out.push_str(word);
            }
        }
    }
    out
}

/// Returns the id of the run that a submission reports.
fn submit(lab: &Lab, name: &str) -> String {
    let text = program(lab, &format!("submit LAB/{name} --json")).succeed();
    let line: serde_json::Value = serde_json::from_str(&text).unwrap();
    line["run"].as_str().unwrap().to_owned()
}

#[test]
fn submitted_plan_is_listed_shown_and_its_outputs_are_printed() {
    let lab = lab();
    write(&lab, "demo.toml", PLAN);
    let submitted = transcript(&lab, &["submit LAB/demo.toml"]);
    let watched = program(&lab, "watch demo").run();
    assert_eq!(watched.code(), 0, "{}", watched.err());
    assert!(watched.out().trim_end().ends_with("Z  run      succeeded"), "{}", watched.out());
    let commands = [
        "runs --all",
        "runs --all --purpose plan",
        "runs show demo",
        "runs show demo/bad",
        "runs output demo/last",
        "runs output demo/each[1]",
        "runs output demo/bad",
        "runs show demo/last --json",
        "runs --all --json",
        "cancel demo",
        "cancel demo/bad",
        "runs settle demo/bad --rerun",
        "logs demo/bad",
        "resume",
        "runs --all --pending",
    ];
    let text = format!("{submitted}\n{}", transcript(&lab, &commands));
    insta::assert_snapshot!("runs_shown", without_durations(&text));
}

#[test]
fn dry_run_shows_what_would_be_started_and_starts_nothing() {
    let lab = lab();
    lab.configure(
        "[template.web]\nallow = ['example.org']\nask = ['ask.example.org']\nsecrets = ['token']\n[secret.token]\nhosts = ['example.org']\n",
    );
    write(
        &lab,
        "web.toml",
        "[run]\ntemplate = 'web'\n[task.fetch]\ndo.command = ['curl', 'https://example.org']\n[task.read]\ndo.command = ['cat']\ndata = ['fetch']\nbox.net = 'none'\n",
    );
    let commands = [
        "submit LAB/web.toml --dry-run",
        "submit LAB/web.toml --dry-run --json",
        "runs --all",
        "resume",
    ];
    insta::assert_snapshot!("runs_dry_run", transcript(&lab, &commands));
}

#[test]
fn wrong_input_to_the_commands_on_runs_exits_with_2() {
    let lab = lab();
    write(&lab, "empty.toml", "");
    write(&lab, "wrong.toml", "[task.a]\ndo.stub = 1\nneeds = ['b']\n[task.c]\n");
    let commands = [
        "submit LAB/empty.toml",
        "submit LAB/missing.toml",
        "submit LAB/wrong.toml",
        "submit LAB/wrong.toml --json",
        "submit LAB/wrong.toml --key ''",
        "submit LAB/wrong.toml --dry-run --watch",
        "submit",
        "watch missing",
        "cancel missing",
        "cancel missing/task",
        "cancel missing/UPPER",
        "runs show missing",
        "runs show /task",
        "runs output missing",
        "runs settle missing/task",
        "runs settle missing/task --rerun --failed",
        "runs settle missing/task --rerun",
        "runs rerun missing --from a",
        "runs rerun missing",
        "runs --all show missing",
        "logs missing/task",
        "resume now",
    ];
    let text = transcript(&lab, &commands);
    assert_eq!(text.matches("[exit 2]").count(), commands.len(), "{text}");
    insta::assert_snapshot!("runs_wrong_input", text);
}

#[test]
fn submission_from_standard_input_is_carried_out() {
    let lab = lab();
    let mut text = String::new();
    for input in ["[run]\nname = 'piped'\n[task.a]\ndo.stub = 'out'\n", "", "[task.a]\n"] {
        let ended = program(&lab, "submit -").input(input).run();
        text.push_str(&entry(&lab, "submit -", &ended));
    }
    program(&lab, "watch piped").succeed();
    text.push_str(&transcript(&lab, &["runs output piped/a"]));
    insta::assert_snapshot!("runs_stdin", text);
}

#[test]
fn second_submission_with_a_key_reports_the_first_run() {
    let lab = lab();
    write(&lab, "one.toml", "[task.a]\ndo.stub = 1\n");
    write(&lab, "two.toml", "[task.a]\ndo.stub = 2\n");
    let run = |name: &str| {
        let ended = program(&lab, &format!("submit LAB/{name} --key k --json")).run();
        (ended.code(), ended.out(), ended.err())
    };
    let (code, first, _) = run("one.toml");
    assert_eq!(code, 0);
    assert_eq!(run("one.toml").1, first);
    let (code, _, error) = run("two.toml");
    assert_eq!(code, 1);
    assert!(error.contains("has this submission key and another plan"), "{error}");
    program(&lab, "watch one").succeed();
}

#[test]
fn prefix_of_two_runs_is_ambiguous_and_a_longer_prefix_finds_one() {
    let lab = lab();
    write(&lab, "one.toml", "[task.a]\ndo.stub = 1\n");
    let (first, second) = (submit(&lab, "one.toml"), submit(&lab, "one.toml"));
    let common = first.bytes().zip(second.bytes()).take_while(|(one, other)| one == other).count();
    assert!(common >= 4, "{first} {second}");
    for command in ["runs show", "watch", "cancel"] {
        let ended = program(&lab, &format!("{command} {}", &first[..common])).run();
        ended.fails_with(2, "is ambiguous (2 matches); use a longer prefix");
    }
    for run in [&first, &second] {
        program(&lab, &format!("watch {}", &run[..=common])).succeed();
    }
    let shown = program(&lab, "runs show one --json").succeed();
    assert!(shown.contains(&second), "the name is that of the newest run: {shown}");
}

#[test]
fn budget_of_all_runs_is_shown_and_a_submission_says_that_it_is_used_up() {
    let lab = lab();
    write(&lab, "demo.toml", "[task.a]\ndo = { command = ['true'] }\n");
    lab.configure(
        "[tenant.local]\nbudget = { calls = 0, time = '1h', boxes = 2, period = 'day' }\n",
    );
    let used_up = "the budget of tenant local is used up (0 calls); it is renewed at ";
    let submitted = program(&lab, "submit LAB/demo.toml").succeed();
    assert!(submitted.contains(&format!("\n  stops    tasks in boxes: {used_up}")), "{submitted}");
    let watched = program(&lab, "watch demo").run();
    assert_eq!(watched.code(), 1, "{}", watched.out());
    assert!(watched.out().trim_end().ends_with("over budget"), "{}", watched.out());
    let shown = program(&lab, "runs show demo").succeed();
    assert!(shown.contains(used_up), "{shown}");
    let budget = program(&lab, "runs budget").succeed();
    assert!(budget.starts_with("tenant local: day since "), "{budget}");
    for line in ["calls   0 of 0", "tokens  0, no limit", "time    0s of 1h00m", "boxes   0 of 2"] {
        assert!(budget.contains(&format!("\n  {line}\n")), "{budget}");
    }
    let json = program(&lab, "runs budget --json").succeed();
    let json: serde_json::Value = serde_json::from_str(&json).unwrap();
    assert_eq!((&json["tenant"], &json["period"]), (&"local".into(), &"day".into()));
    assert_eq!(json["used_up"], serde_json::json!(["calls"]));
    let boxes = serde_json::json!({ "limit": 2, "used": 0, "reserved": 0, "remaining": 2 });
    assert_eq!(json["units"]["boxes"], boxes);
    assert_eq!(json["renews"].as_u64().unwrap() - json["since"].as_u64().unwrap(), 86_400_000);
    let ended = program(&lab, "--config x.toml runs budget").run();
    assert_eq!(ended.code(), 2);
    assert!(ended.err().contains("omit --config"), "{}", ended.err());
    lab.configure("[tenant.local]\nbudget = { token = 1 }\n");
    let ended = program(&lab, "runs budget").run();
    assert_eq!(ended.code(), 2);
    let expect = "belljar.toml:2: unknown key `token`; did you mean `tokens`?";
    assert!(ended.err().contains(expect), "{}", ended.err());
}
