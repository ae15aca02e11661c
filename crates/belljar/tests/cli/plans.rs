//! `belljar plan`: the summary, the tree, the flowchart and the faults of plans.

use std::fs;
use std::path::Path;

use crate::{entry, lab, program, transcript};

const PLAN: &str = r#"[run]
template = "agents"
budget = { money = "5 USD", tokens = 400000, calls = 300, time = "2h", boxes = 3 }
input.issue = { file = "issue.md", labels = ["untrusted"] }
answer = "pick"
[task.triage]
do = { model = "cheap", escalate = ["capable"], prompt = "Name area and severity." }
data = ["input.issue"]
output = { type = "json", schema = "triage.json", max = "64 KiB" }
[task.fix]
do = { agent = "claude", base = "main", prompt_file = "fix.md" }
data = ["triage", "input.issue"]
when = { of = "triage", at = "/severity", in = ["high", "medium"] }
for_each = { values = ["minimal", "thorough"] }
[task.lint]
do = { command = ["cargo", "clippy"], workspace = "." }
needs = ["triage"]
check = [{ verify = ["prove"] }, { model = "capable", prompt = "Is it clean?" }]
[task.pick]
do = { model = "capable", prompt = "Choose one branch." }
data = ["fix?"]
output = { type = "choice" }
[task.end]
do = { approval = "Take the chosen fix?", apply = "pick", deadline = "24h" }
needs = ["pick", "lint"]
"#;

const CONFIG: &str = r#"[template.agents]
memory = "1GiB"
[tier.cheap]
provider = "anthropic"
model = "claude-haiku-4-5"
secret = "anthropic"
price = { input = "1 USD", output = "5 USD" }
[tier.capable]
provider = "anthropic"
model = "claude-sonnet-4-5"
secret = "anthropic"
price = { input = "3 USD", output = "15 USD" }
"#;

#[test]
fn valid_plan_is_summarised_and_shown() {
    let lab = lab();
    lab.configure(CONFIG);
    fs::write(lab.dir().join("fix-login.toml"), PLAN).unwrap();
    let commands = [
        "plan check LAB/fix-login.toml",
        "plan check LAB/fix-login.toml --json",
        "plan show LAB/fix-login.toml",
        "plan show LAB/fix-login.toml --mermaid",
    ];
    let text = transcript(&lab, &commands);
    assert!(text.lines().all(|line| line.contains("{\"") || line.chars().count() <= 80), "{text}");
    insta::assert_snapshot!("plans_shown", text);
}

#[test]
fn all_faults_of_a_plan_are_reported_with_file_and_line() {
    let lab = lab();
    lab.configure(CONFIG);
    let mut text = String::new();
    for (name, content) in [
        ("syntax.toml", "[task.a\n"),
        ("empty.toml", ""),
        (
            "values.toml",
            "[run]\ntempalte = \"x\"\n[task.a]\nattempts = 11\nneeds = [\"other/b\"]\n[task.b]\ndo = { command = [\"true\"], stub = 1 }\n[task.c]\ndo = { agent = \"claude\" }\n",
        ),
        (
            "values.json",
            "{\"task\": {\n  \"a\": {\"do\": {\"stub\": 1}, \"attempts\": \"two\"},\n  \"a\": {\"do\": {\"stub\": 2}}\n}}\n",
        ),
        (
            "names.toml",
            "[run]\ntemplate = \"agent\"\nanswer = \"x\"\n[task.a]\ndo = { model = \"chaep\", prompt = \"\" }\nneeds = [\"bb\"]\n[task.b]\ndo = { agent = \"cluade\", prompt = \"\" }\n",
        ),
        (
            "cycle.toml",
            "[task.a]\ndo.stub = 1\nneeds = [\"c\"]\n[task.b]\ndo.stub = 1\nneeds = [\"a\"]\n[task.c]\ndo.stub = 1\nneeds = [\"b\"]\n",
        ),
        (
            "grants.toml",
            "[task.a]\ndo.command = [\"true\"]\nbox = { memory = \"1TiB\" }\n[task.b]\ndo.command = [\"true\"]\nbox = { net = \"full\" }\n[task.c]\ndo.command = [\"true\"]\nbox = { mode = \"direct\" }\n",
        ),
        (
            "budget.toml",
            "[run]\nbudget = { money = \"1 USD\" }\n[task.a]\ndo.stub = 1\nbudget = { money = \"2 USD\" }\n",
        ),
    ] {
        fs::write(lab.dir().join(name), content).unwrap();
        text.push_str(&content.lines().map(|line| format!("> {line}\n")).collect::<String>());
        text.push_str(&transcript(&lab, &[&format!("plan check LAB/{name}")]));
        text.push('\n');
    }
    fs::write(lab.dir().join("binary.toml"), b"a\n\xff").unwrap();
    let commands = [
        "plan check LAB/names.toml --json",
        "plan show LAB/cycle.toml",
        "plan check LAB/binary.toml",
        "plan check LAB/missing.toml",
    ];
    text.push_str(&transcript(&lab, &commands));
    insta::assert_snapshot!("plans_faults", text);
}

#[test]
fn goal_that_no_model_can_be_asked_about_is_refused_with_the_next_step() {
    let lab = lab();
    let mut text = transcript(&lab, &["plan 'fix the login'"]);
    lab.configure(CONFIG);
    let commands = [
        "plan",
        "plan 'fix the login'",
        "plan 'fix the login' --tier local",
        "plan 'fix the login' --template web",
        "plan --goal ''",
        "plan --goal check",
        "plan sohw",
        "plan sohw LAB/x.toml",
        "plan 'fix the login' --attempts 4",
        "plan 'fix the login' --budget boxes=1",
        "plan 'fix the login' --budget money=1",
        "plan 'fix the login' --output LAB/x.toml",
        "plan 'fix the login' --output x.json",
        "plan 'fix the login' --force",
        "plan 'fix the login' --submit",
        "plan 'fix the login' check LAB/x.toml",
        "plan --config LAB/missing.toml check LAB/x.toml",
    ];
    text.push('\n');
    text.push_str(&transcript(&lab, &commands));
    insta::assert_snapshot!("plans_goal_errors", text);
}

#[test]
fn more_than_twenty_faults_are_counted() {
    let lab = lab();
    let text: String = (0..25).map(|at| format!("[task.t{at}]\n")).collect();
    fs::write(lab.dir().join("many.toml"), text).unwrap();
    let ended = program(&lab, "plan check LAB/many.toml").run();
    let errors = String::from_utf8_lossy(&ended.stderr).into_owned();
    assert_eq!((ended.code(), errors.lines().count()), (2, 21), "{errors}");
    assert!(errors.ends_with("belljar: and 5 more\n"), "{errors}");
}

#[test]
fn plan_from_standard_input_is_toml_or_json() {
    let lab = lab();
    let mut text = String::new();
    for input in
        ["[task.a]\ndo.stub = 1\n", "{\"task\": {\"a\": {\"do\": {\"stub\": 1}}}}\n", "[task.a]\n"]
    {
        let ended = program(&lab, "plan check -").input(input).run();
        text.push_str(&entry(&lab, "plan check -", &ended));
    }
    insta::assert_snapshot!("plans_stdin", text);
}

#[test]
fn plans_in_the_examples_are_valid() {
    let lab = lab();
    lab.configure(CONFIG);
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/plans");
    let mut count = 0;
    for file in fs::read_dir(&directory).unwrap() {
        let file = file.unwrap().path();
        if file.is_dir() {
            continue; // files that the plans refer to
        }
        for command in ["check", "show"] {
            let ended = lab.belljar(["plan", command, &file.display().to_string()]).run();
            let errors = String::from_utf8_lossy(&ended.stderr).into_owned();
            assert_eq!((ended.code(), errors.as_str()), (0, ""), "{}", file.display());
        }
        count += 1;
    }
    assert_eq!(count, 5);
}
