use std::fmt::Write as _;

use proptest::prelude::*;
use serde_json::json;

use super::*;

/// Checks the only fault of a plan: its line and its reason.
#[track_caller]
fn refused(text: &str, expect: &str) {
    assert_eq!(parse(text).unwrap_err(), format!("p.toml:{expect}"));
}

/// Checks the fault of one additional line in a task.
#[track_caller]
fn line_refused(line: &str, expect: &str) {
    let text = format!("[task.a]\ndo = {{ stub = 1 }}\n{line}\n");
    refused(&text, &format!("3: task `a`: {expect}"));
}

/// Checks the fault of a `do` table.
#[track_caller]
fn executor_refused(text: &str, expect: &str) {
    refused(&format!("[task.a]\ndo = {{ {text} }}\n"), &format!("2: task `a`: {expect}"));
}

#[test]
fn example_plan_has_all_its_values() {
    let plan = parse(EXAMPLE).unwrap();
    assert_eq!((plan.name.as_str(), plan.template.as_str()), ("p", "agents"));
    assert_eq!(plan.budget.time, Some(Duration::from_secs(7200)));
    assert_eq!((plan.budget.boxes, plan.budget.tokens), (Some(3), Some(400_000)));
    let input = &plan.inputs[&"issue".parse().unwrap()];
    assert_eq!(input.content, Text::File("issue.md".into()));
    assert_eq!(input.labels, ["untrusted".parse().unwrap()]);
    let ids: Vec<&str> = plan.tasks.iter().map(|task| task.id.as_str()).collect();
    assert_eq!(ids, ["triage", "fix", "pick", "merge"]);
    let [triage, fix, pick, merge] = plan.tasks.as_slice() else { panic!("four tasks") };
    assert_eq!((triage.attempts, triage.output.max.as_u64()), (2, 64 << 10));
    assert_eq!(triage.output.schema.as_deref(), Some(std::path::Path::new("triage.json")));
    assert_eq!((fix.output.kind, fix.on_crash), (OutputKind::Branch, OnCrash::Evidence));
    assert_eq!(fix.backoff, Duration::from_secs(2));
    let when = fix.when.as_ref().unwrap();
    assert_eq!((when.of.as_str(), when.at.as_str()), ("triage", "/severity"));
    assert_eq!(when.test, Test::In(vec![json!("high"), json!("medium")]));
    assert_eq!(fix.for_each, Some(ForEach::Values(vec![json!("minimal"), json!("thorough")])));
    assert_eq!(fix.overrides.timeout.unwrap().0, Some(Duration::from_secs(300)));
    assert_eq!(pick.data, [Edge { from: Source::Task(id("fix")), optional: true }]);
    let Executor::Approval { apply, deadline, .. } = &merge.executor else { panic!("approval") };
    assert_eq!((apply.as_ref(), *deadline), (Some(&id("pick")), Duration::from_secs(86_400)));
}

#[test]
fn name_of_a_plan_comes_from_run_or_from_its_file() {
    let text = stubs(1, |_| Vec::new());
    for (file, expect) in [
        ("fix-login.toml", "fix-login"),
        ("/a/b/Fix Login.v2.toml", "fix-login-v2"),
        ("-", "plan"),
        ("é.toml", "plan"),
    ] {
        assert_eq!(Plan::parse(&text, file).unwrap().name, expect, "{file}");
    }
    assert_eq!(parse(&format!("[run]\nname = \"x-1\"\n{text}")).unwrap().name, "x-1");
    refused(
        &format!("[run]\nname = \"../x\"\n{text}"),
        "2: `name = \"../x\"`: invalid name; use 1 to 63 lower-case letters, digits, `-` and `_`, beginning with a letter or a digit",
    );
}

#[test]
fn format_follows_the_extension_and_else_the_first_character() {
    let (json, toml) = (r#" {"task": {"a": {"do": {"stub": 1}}}}"#, "[task.a]\ndo.stub = 1\n");
    for (text, file, is_valid) in [
        (json, "-", true),
        (toml, "-", true),
        (json, "x.json", true),
        (toml, "x.toml", true),
        (json, "plan", true),
        (json, "x.toml", false),
        (toml, "x.json", false),
    ] {
        assert_eq!(Plan::parse(text, file).is_ok(), is_valid, "{file}");
    }
}

#[test]
fn unknown_and_missing_keys_are_refused_with_their_line() {
    refused("[tsak.a]\n", "1: unknown key `tsak`; did you mean `task`?");
    refused("", "1: the plan has no tasks; write `[task.NAME]` with `do`");
    refused("task = 3", "1: `task = 3`: must be a table");
    refused("[task.a]\n", "1: task `a`: `do` is missing; it names what carries out the task");
    line_refused("attempt = 2", "unknown key `attempt`; did you mean `attempts`?");
    line_refused("foreach = 2", "unknown key `foreach`; did you mean `for_each`?");
    let keys = "do, data, needs, output, when, for_each, attempts, backoff, on_crash, done, check, box, budget, labels";
    line_refused("colour = 2", &format!("unknown key `colour`; the keys are {keys}"));
    executor_refused("stub = 1, dealy = '1s'", "unknown key `dealy`; did you mean `delay`?");
    refused(
        "[task.'A b']\ndo = { stub = 1 }",
        "1: task `A b`: invalid name; use 1 to 63 lower-case letters, digits, `-` and `_`, beginning with a letter or a digit",
    );
    refused(
        "[run]\ninput.x = { path = 'x' }\n[task.a]\ndo.stub = 1",
        "2: input `x`: unknown key `path`; the keys are file, text, labels\np.toml:2: input `x`: `text` or `file` is missing",
    );
}

#[test]
fn tools_of_a_model_task_have_bounds_and_permissions() {
    let model = |more: &str| {
        let text = format!("[task.a]\ndo = {{ model = 'cheap', prompt = 'x'{more} }}\n");
        let Executor::Model { tools, overflow, .. } =
            parse(&text).unwrap().tasks.remove(0).executor
        else {
            panic!("not a model task")
        };
        (tools, overflow)
    };
    assert_eq!(model(""), (None, Overflow::Refuse));
    let (tools, overflow) = model(
        ", tools = ['write', 'shell'], turns = 9, workspace = 'src', overlay = true, deny = ['Bash(rm:*)'], overflow = 'cut'",
    );
    let tools = tools.unwrap();
    assert_eq!(tools.names, [ModelTool::Shell, ModelTool::Write]);
    let workspace = TaskWorkspace { directory: "src".into(), overlay: true };
    assert_eq!((tools.turns, &tools.workspace), (9, &Some(workspace)));
    assert_eq!(tools.deny, ["Bash(rm:*)".parse().unwrap()]);
    assert_eq!(overflow, Overflow::Cut);
    let (tools, _) = model(", tools = ['read']");
    assert_eq!(tools.map(|tools| tools.turns), Some(MAX_TURNS));
}

#[test]
fn invalid_executor_is_refused_with_its_line() {
    executor_refused(
        "command = ['true'], agent = 'claude'",
        "`do = { command = ['true'], agent = 'claude' }`: two executors, `command` and `agent`; a task has one",
    );
    executor_refused(
        "fail = 'x'",
        "`do = { fail = 'x' }`: no executor; write one of command, code, agent, model, approval, stub",
    );
    executor_refused(
        "command = 'true'",
        "`command = 'true'`: must be a list of the program and its arguments; no shell runs it",
    );
    executor_refused(
        "command = []",
        "`command = []`: the program is missing; write its name as the first word",
    );
    executor_refused("command = ['']", "`command = ['']`: the name of the program is empty");
    executor_refused("command = [1]", "`command = 1`: must be a text");
    executor_refused(
        "command = ['x'], overlay = true",
        "`overlay = true`: only possible together with `workspace`",
    );
    executor_refused("model = 'cheap'", "`prompt` or `prompt_file` is missing");
    for (more, expect) in [
        (
            "tools = ['sudo']",
            "`tools = 'sudo'`: unknown tool `sudo`; the tools are shell, read, write, edit, glob, grep, fetch, execute_code",
        ),
        ("tools = []", "`tools = []`: the list is empty; name a tool or remove the key"),
        ("tools = ['read', 'glob', 'read']", "`tools`: `read` is listed twice"),
        ("tools = 'read'", "`tools = 'read'`: must be a list"),
        ("turns = 3", "`turns = 3`: only possible together with `tools`"),
        ("workspace = '.'", "`workspace = '.'`: only possible together with `tools`"),
        ("deny = ['Bash']", "`deny = ['Bash']`: only possible together with `tools`"),
        ("tools = ['read'], turns = 51", "`turns = 51`: must be a whole number from 1 to 50"),
        ("tools = ['read'], turns = 0", "`turns = 0`: must be a whole number from 1 to 50"),
        (
            "tools = ['read', 'edit'], workspace = '.'",
            "`tools = ['read', 'edit']`: `edit` changes files; add `overlay = true`",
        ),
        (
            "tools = ['read'], overlay = true",
            "`overlay = true`: only possible together with `workspace`",
        ),
        (
            "tools = ['shell'], deny = ['Net(x.example)']",
            "`deny = 'Net(x.example)'`: hosts are denied by the box; write `box = { deny = [\"HOST\"] }`",
        ),
        (
            "tools = ['shell'], deny = ['rm']",
            "`deny = 'rm'`: invalid permission; write Read(path), Edit(path), Bash(command), Net(host) or Tool(name)",
        ),
        ("overflow = 'drop'", "`overflow = 'drop'`: must be \"refuse\" or \"cut\""),
    ] {
        executor_refused(&format!("model = 'cheap', prompt = 'x', {more}"), expect);
    }
    executor_refused(
        "code = 'x', code_file = 'y'",
        "`code_file = 'y'`: `code` is already given; remove one of them",
    );
    executor_refused(
        "agent = 'claude', prompt = 'x', base = '--upload-pack=x'",
        "`base = '--upload-pack=x'`: must be a branch, a commit or `task:ID`",
    );
    executor_refused(
        "approval = 'x', deadline = '31d'",
        "`deadline = '31d'`: must be from 1s to 30d",
    );
    executor_refused("approval = ' '", "`approval = ' '`: the text is empty");
    executor_refused("stub = 1, delay = '8d'", "`delay = '8d'`: must be at most 7d");
    executor_refused("stub = 1979-05-27", "`stub`: JSON has no dates; write the date as a text");
    refused(
        "[task.a]\ndo = 'true'",
        "2: task `a`: `do = 'true'`: must be a table, for example `{ command = [\"true\"] }`",
    );
}

#[test]
fn invalid_value_of_a_task_is_refused_with_its_line() {
    line_refused("attempts = 0", "`attempts = 0`: must be a whole number from 1 to 10");
    line_refused("attempts = 11", "`attempts = 11`: must be a whole number from 1 to 10");
    line_refused("attempts = '2'", "`attempts = '2'`: must be a whole number from 1 to 10");
    line_refused("backoff = '6m'", "`backoff = '6m'`: must be at most 5m");
    line_refused("on_crash = 'x'", "`on_crash = 'x'`: must be one of evidence, rerun, ask");
    line_refused(
        "output = 'yaml'",
        "`output = 'yaml'`: must be one of text, json, bytes, branch, choice",
    );
    line_refused("output = { max = '65MiB' }", "`max = '65MiB'`: must be at most 64MiB");
    line_refused(
        "output = { type = 'text', schema = 'x' }",
        "`schema = 'x'`: only possible with `type = \"json\"`",
    );
    line_refused("box = { timeout = '8d' }", "`timeout` of `box`: at most 7d");
    line_refused("box = { timeout = 'none' }", "`timeout` of `box`: at most 7d");
    line_refused("box = { memroy = 1 }", "`box`: unknown key `memroy`; did you mean `memory`?");
    line_refused(
        "box = { memory = '2 gigs' }",
        "`box`: `memory = '2 gigs'`: invalid size; write for example \"512MiB\" or \"2GiB\"",
    );
    line_refused(
        "budget = { boxes = 2 }",
        "`boxes = 2`: only the budget of the run can have `boxes`",
    );
    line_refused(
        "budget = { money = 5 }",
        "`money = 5`: invalid amount of money; write for example \"5 USD\" or \"$0.50\"",
    );
    line_refused("data = 'a'", "`data = 'a'`: must be a list");
    line_refused("data = ['b', 'b?']", "`data = 'b?'`: named twice");
    line_refused(
        "needs = ['input.x']",
        "`needs = 'input.x'`: an input is data; write it into `data`",
    );
    line_refused(
        "data = ['input.x?']",
        "`data = 'input.x?'`: an input always exists; remove the `?`",
    );
    line_refused(
        "when = { of = 'b', equals = 1, exists = true }",
        "`when = { of = 'b', equals = 1, exists = true }`: write exactly one of `equals`, `in` and `exists`",
    );
    line_refused(
        "when = { at = '/x', exists = true }",
        "`when = { at = '/x', exists = true }`: `of` is missing; it names the task whose output counts",
    );
    line_refused("for_each = { values = [] }", "`for_each = { values = [] }`: `values` is empty");
    line_refused(
        "for_each = { of = 'b', max = 1001 }",
        "`max = 1001`: must be a whole number from 1 to 1000",
    );
    line_refused(
        "for_each = { values = [1], of = 'b' }",
        "`for_each = { values = [1], of = 'b' }`: `values` cannot be combined with `of`, `at` and `max`",
    );
    line_refused(
        "check = [{ schema = 'x', command = ['y'] }]",
        "`check = { schema = 'x', command = ['y'] }`: write exactly one of `schema`, `command`, `model` and `verify`",
    );
    line_refused(
        "check = [{ schema = 'x', prompt = 'y' }]",
        "`check = { schema = 'x', prompt = 'y' }`: only a check by a model has a prompt",
    );
    line_refused(
        "check = [{ verify = ['x'], prompt = 'y' }]",
        "`check = { verify = ['x'], prompt = 'y' }`: only a check by a model has a prompt",
    );
    line_refused("check = [{ model = 'cheap' }]", "`prompt` or `prompt_file` is missing");
    let checks = "{schema='x'},".repeat(9);
    let error = parse(&format!("[task.a]\ndo.stub = 1\ncheck = [{checks}]")).unwrap_err();
    assert!(error.ends_with("9 entries; at most 8 are possible"), "{error}");
}

#[test]
fn h14_foreign_ids_and_single_instances_are_refused() {
    for foreign in ["06gy9/fix", "other.fix", "task:fix", "../fix"] {
        let expect =
            format!("`needs = '{foreign}'`: a plan can name its own tasks only, by their ids");
        line_refused(&format!("needs = ['{foreign}']"), &expect);
    }
    line_refused(
        "needs = ['fix[0]']",
        "`needs = 'fix[0]'`: an instance cannot be named; write the id of the task, `fix`",
    );
    // The control: the same edge with the id of a task of the plan.
    assert!(parse("[task.a]\ndo.stub = 1\n[task.b]\ndo.stub = 1\nneeds = ['a']\n").is_ok());
}

/// A function that builds a plan of a given size.
type Build<'a> = &'a dyn Fn(usize) -> String;

#[test]
fn h14_oversized_plans_are_refused() {
    const FRAME: &str = "\n[task.a]\ndo.stub = 1\n";
    let edges = |count: usize| {
        let ids: String = (0..count).map(|at| format!("'t{at}',")).collect();
        format!("[task.a]\ndo.stub = 1\ndata = [{ids}]\n")
    };
    let values = |count: usize| {
        let values = "1,".repeat(count);
        format!("[task.a]\ndo.stub = 1\nfor_each = {{ values = [{values}] }}\n")
    };
    let text = |length: usize| format!("[task.a]\ndo = {{ stub = '{}' }}\n", "x".repeat(length));
    let prompt = |length: usize| {
        let prompt = "x".repeat(length);
        format!("[task.a]\ndo = {{ model = 'cheap', prompt = '{prompt}' }}\n")
    };
    let item = |length: usize| {
        let item = "x".repeat(length);
        format!("[task.a]\ndo.stub = 1\nfor_each = {{ values = ['{item}'] }}\n")
    };
    let file = |length: usize| format!("#{}{FRAME}", "x".repeat(length - FRAME.len() - 1));
    let tasks = |count: usize| stubs(count, |_| Vec::new());
    let cases: [(Build<'_>, usize, &str); 7] = [
        (&edges, 1_000, "1001 entries; at most 1000 are possible"),
        (&values, 1_000, "1001 entries; at most 1000 are possible"),
        (&text, (64 << 10) - 2, "longer than 64 KiB; write it into a file"),
        (&prompt, 64 << 10, "longer than 64 KiB; write it into a file"),
        (&item, (64 << 10) - 2, "longer than 64 KiB; write it into a file"),
        (&file, 4 << 20, "the file is larger than 4 MiB"),
        (&tasks, 10_000, "10001 tasks; at most 10000 are possible"),
    ];
    for (build, limit, expect) in cases {
        assert_eq!(parse(&build(limit)).err(), None, "{expect}");
        let error = parse(&build(limit + 1)).unwrap_err();
        assert!(error.contains(expect), "{error}");
    }
}

#[test]
fn duplicate_ids_are_refused_in_both_formats() {
    refused(
        "[task.a]\ndo.stub = 1\n\n[task.a]\ndo.stub = 2\n",
        "4: duplicate key `a`\np.toml:5: duplicate key `stub`",
    );
    let json = "{\"task\": {\n\"a\": {\"do\": {\"stub\": 1}},\n\"a\": {\"do\": {\"stub\": 2}}}}";
    let error = Plan::parse(json, "-").unwrap_err();
    assert_eq!(error.to_string(), "-:3: duplicate key `a`");
}

#[test]
fn at_most_twenty_faults_are_listed_and_the_rest_is_counted() {
    let mut text = String::new();
    for at in 0..50 {
        writeln!(text, "[task.t{at}]\ndo.stub = 1\nattempts = 99").unwrap();
    }
    let faults = Plan::parse(&text, "p.toml").unwrap_err();
    assert_eq!((faults.list().len(), faults.more()), (20, 30));
    let lines: Vec<usize> = faults.list().iter().map(|fault| fault.line).collect();
    assert_eq!(lines, (1..=20).map(|at| at * 3).collect::<Vec<_>>());
    assert!(faults.to_string().ends_with("\nand 30 more"), "{faults}");
}

#[test]
fn faults_quote_at_most_a_short_line_and_no_control_characters() {
    let text = format!("{{\"task\": {{\"a\\u001b[2J\": 1, \"b{}\": 2}}}}", "b".repeat(10_000));
    let faults = Plan::parse(&text, "x\u{1b}.json").unwrap_err().to_string();
    assert!(!faults.contains('\u{1b}') && faults.len() < 1_000, "{faults}");
    let text = "[task.a]\ndo.stub = 1\nattempts = \"\u{202e}\"\n";
    assert!(parse(text).unwrap_err().contains(r"\u{202e}"));
}

#[test]
fn null_in_json_means_that_the_key_is_missing() {
    let text = r#"{"run": null, "task": {"a": {"do": {"stub": null, "fail": null}, "when": null,
        "box": {"memory": "1GiB", "env": null}}}}"#;
    let plan = Plan::parse(text, "-").unwrap();
    let expect = Executor::Stub { output: Json::Null, delay: Duration::ZERO, fail: None };
    assert_eq!((&plan.tasks[0].executor, &plan.tasks[0].when), (&expect, &None));
    assert!(plan.tasks[0].overrides.memory.is_some());
}

#[test]
fn faults_of_json_quote_json() {
    let error =
        Plan::parse("{\"task\": {\"a\": {\"do\": {\"stub\": 1},\n \"attempts\": 99}}}", "-");
    let expect = "-:2: task `a`: `\"attempts\": 99`: must be a whole number from 1 to 10";
    assert_eq!(error.unwrap_err().to_string(), expect);
}

#[test]
fn h14_deeply_nested_toml_is_refused_without_a_stack_overflow() {
    let lists = format!("[task.a]\ndo.stub = {}", "[".repeat(100_000));
    let keys = format!("{}stub = 1", "a.".repeat(100_000));
    let tables = format!("[task.a]\ndo.stub = {}", "{a=".repeat(100_000));
    for text in [lists, keys, tables] {
        assert!(parse(&text).is_err());
    }
    let deep = format!("[task.a]\ndo.stub = {}1{}", "[".repeat(70), "]".repeat(70));
    assert!(parse(&deep).unwrap_err().contains("nested more than 64 levels"));
    let flat = format!("[task.a]\ndo.stub = {}1{}", "[".repeat(50), "]".repeat(50));
    assert!(parse(&flat).is_ok());
}

/// Data that TOML and JSON can both express.
fn data() -> impl Strategy<Value = Json> {
    let leaf = prop_oneof![
        any::<bool>().prop_map(Json::from),
        any::<i64>().prop_map(Json::from),
        (-1e6..1e6).prop_map(Json::from),
        ".{0,12}".prop_map(Json::from),
    ];
    leaf.prop_recursive(3, 12, 4, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Json::from),
            prop::collection::btree_map("[a-z.\" ]{1,5}", inner, 0..4)
                .prop_map(|map| Json::Object(map.into_iter().collect())),
        ]
    })
}

fn executor() -> impl Strategy<Value = Json> {
    prop_oneof![
        prop::collection::vec("[ -~]{1,8}", 1..4).prop_map(|argv| json!({ "command": argv })),
        ".{0,20}".prop_map(|code| json!({ "code": code })),
        ".{0,20}".prop_map(|text| json!({ "agent": "claude", "prompt": text, "base": "task:t0" })),
        (".{0,20}", 1_u32..9).prop_map(|(text, tokens)| {
            json!({ "model": "cheap", "escalate": ["capable"], "prompt": text, "max_tokens": tokens })
        }),
        "[a-z]{1,20}".prop_map(|text| json!({ "approval": text, "clears": ["model"] })),
        (data(), 0_u32..9).prop_map(|(data, delay)| {
            json!({ "stub": data, "delay": format!("{delay}s") })
        }),
    ]
}

fn task() -> impl Strategy<Value = Json> {
    let keys = [
        executor().prop_map(|it| ("do", it)).boxed(),
        prop::collection::btree_set("t[0-9][?]?|input[.]i", 0..1)
            .prop_map(|it| ("data", json!(it)))
            .boxed(),
        (1_u32..=10).prop_map(|it| ("attempts", json!(it))).boxed(),
        data().prop_map(|it| ("when", json!({ "of": "t1", "at": "/a~1b", "equals": it }))).boxed(),
        prop::collection::vec(data(), 1..4)
            .prop_map(|it| ("for_each", json!({ "values": it })))
            .boxed(),
        (1_u32..9).prop_map(|it| ("box", json!({ "cpus": 0.5, "pids": it, "allow": [] }))).boxed(),
        (1_u32..9).prop_map(|it| ("budget", json!({ "tokens": it, "money": "$1" }))).boxed(),
    ];
    let [executor, rest @ ..] = keys;
    let rest = rest.map(prop::option::of);
    (executor, rest).prop_map(|(executor, rest)| {
        let all = std::iter::once(executor).chain(rest.into_iter().flatten());
        Json::Object(all.map(|(key, value)| (key.to_owned(), value)).collect())
    })
}

fn plan() -> impl Strategy<Value = Json> {
    let tasks = prop::collection::btree_map("t[0-9]", task(), 1..5);
    (tasks, ".{0,9}").prop_map(|(tasks, text)| {
        let input = json!({ "i": { "text": text, "labels": ["untrusted"] } });
        json!({ "run": { "name": "n", "input": input, "answer": "t0" }, "task": tasks })
    })
}

proptest! {
    #[test]
    fn toml_and_json_of_one_plan_are_equal(plan in plan()) {
        let json = serde_json::to_string_pretty(&plan).unwrap();
        let toml = toml::to_string(&plan).unwrap();
        let from_json = Plan::parse(&json, "x.json").map_err(|it| it.to_string());
        let from_toml = Plan::parse(&toml, "x.toml").map_err(|it| it.to_string());
        prop_assert!(from_json.is_ok(), "{json}\n{from_json:?}");
        prop_assert_eq!(from_json, from_toml);
    }

    #[test]
    fn h14_arbitrary_bytes_never_panic(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        let text = String::from_utf8_lossy(&bytes);
        for file in ["-", "x.json", "x.toml"] {
            // Returns a plan or faults; both are fine.
            drop(Plan::parse(&text, file));
        }
    }

    #[test]
    fn h14_damaged_plans_never_panic(
        plan in plan(), cut in any::<prop::sample::Index>(), insert in "[\\[\\]{}\",:=.\n0-9a-z]{0,6}",
    ) {
        let json = serde_json::to_string(&plan).unwrap();
        let toml = toml::to_string(&plan).unwrap();
        for (mut text, file) in [(json, "x.json"), (toml, "x.toml")] {
            let at = text.floor_char_boundary(cut.index(text.len()));
            text.insert_str(at, &insert);
            if let Ok(plan) = Plan::parse(&text, file) {
                drop(plan.check(&ceiling()));
            }
            drop(Plan::parse(&text[..at], file));
        }
    }
}
