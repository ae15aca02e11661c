//! End-to-end tests of `belljar skill` and `belljar api`.

use std::fs;

use belljar_code::skill::{Author, Draft, Skills, Wants};
use belljar_testkit::{Authority, Lab, Program, Upstream};
use belljar_wire::Dialect;
use serde_json::Value;

use crate::lab;

/// Returns the command `belljar skill` with these arguments.
fn skill(lab: &Lab, args: &[&str]) -> Program {
    lab.belljar(["skill"]).args(args)
}

/// Returns the command `belljar api` with these arguments.
fn api(lab: &Lab, args: &[&str]) -> Program {
    lab.belljar(["api"]).args(args)
}

/// Runs a command that must succeed and returns the JSON objects that it writes, one per line.
fn objects(program: Program) -> Vec<Value> {
    let out = program.succeed();
    out.lines().map(|line| serde_json::from_str(line).expect("an object")).collect()
}

/// Returns the events of a kind in the ledger.
fn events(lab: &Lab, kind: &str) -> Vec<Value> {
    objects(lab.belljar(["ledger", "log", "--json", "--kind", kind]))
}

/// Saves a skill in the name of a model, without an MCP server.
fn save_as_model(lab: &Lab, name: &str, draft: Draft) {
    let skills = Skills::open(&lab.state()).unwrap();
    let author = Author::Caller { client: "test".to_owned(), session: String::new() };
    skills.save(&name.parse().unwrap(), draft, &author).unwrap();
}

/// Returns a skill in TypeScript that declares its hosts only in its code.
fn draft(code: &str, description: &str) -> Draft {
    Draft {
        description: description.to_owned(),
        code: code.to_owned(),
        language: Dialect::Ts,
        wants: Wants::default(),
    }
}

#[test]
fn skill_is_saved_shown_edited_run_and_removed() {
    let lab = lab();
    let file = lab.write("double.ts", "export default (n: number): number => n * 2;\n");
    let file = file.to_str().unwrap();
    skill(&lab, &["save", "double", file, "--description", "Doubles"]).succeed();
    assert_eq!(skill(&lab, &["run", "double", "--input", "21"]).succeed().trim(), "42");
    skill(&lab, &["edit", "double", "--search", "* 2", "--replace", "* 3"]).succeed();
    assert_eq!(skill(&lab, &["run", "double", "--input", "7"]).succeed().trim(), "21");
    let shown = &objects(skill(&lab, &["show", "double", "--json"]))[0];
    assert_eq!(shown["code"], "export default (n: number): number => n * 3;\n");
    let history = objects(skill(&lab, &["history", "double", "--json"]));
    assert_eq!((history.len(), &history[1]["is_active"]), (2, &Value::Bool(true)));
    // The first version is activated again by a prefix of its hash.
    let first = history[0]["version"].as_str().unwrap();
    skill(&lab, &["approve", "double", &first[..10], "-y"]).succeed();
    assert_eq!(skill(&lab, &["run", "double", "--input", "7"]).succeed().trim(), "14");
    skill(&lab, &["rm", "double", "-y"]).succeed();
    assert!(skill(&lab, &["list"]).succeed().is_empty());
    assert_eq!(events(&lab, "skill.saved").len(), 2);
    assert_eq!(events(&lab, "skill.approved").len(), 1);
    assert_eq!(events(&lab, "skill.removed")[0]["fields"]["forgotten"], true);
    lab.belljar(["ledger", "verify"]).succeed();
}

#[test]
fn skill_commands_report_invalid_arguments_with_exit_code_2() {
    let lab = lab();
    let file = lab.write("a.ts", "1\n");
    let file = file.to_str().unwrap();
    skill(&lab, &["save", "a", file]).succeed();
    skill(&lab, &["show", "none"]).run().fails_with(2, "there is no skill `none`");
    skill(&lab, &["save", "../a", file]).run().fails_with(2, "invalid name");
    skill(&lab, &["save", "a", "/no/such/file"]).run().fails_with(2, "/no/such/file");
    skill(&lab, &["edit", "a", "--search", "x", "--replace", "y"])
        .run()
        .fails_with(2, "was not found in the code");
    skill(&lab, &["edit", "a", "--search", "x", "--search", "y", "--replace", "z"])
        .run()
        .fails_with(2, "--replace");
    skill(&lab, &["run", "a", "--input", "{"]).run().fails_with(2, "--input is not valid JSON");
    skill(&lab, &["approve", "a"]).run().fails_with(2, "no version of skill a waits");
    skill(&lab, &["rm", "a"]).run().fails_with(2, "-y");
    assert_eq!(skill(&lab, &["list"]).succeed().lines().count(), 1, "the skill was not removed");
}

#[test]
fn f10_skill_saved_by_a_model_waits_for_approval_of_the_operator() {
    let lab = lab();
    let code = "/** @hosts api.example.com */\nexport default 1";
    save_as_model(&lab, "spy", draft(code, "Harmless"));
    skill(&lab, &["run", "spy"])
        .run()
        .fails_with(2, "waits for approval: it requests host api.example.com");
    let listed = skill(&lab, &["list"]).succeed();
    assert!(listed.contains("waits") && listed.contains("host api.example.com"), "{listed}");
    // Without a terminal the command cannot ask, so it approves nothing.
    skill(&lab, &["approve", "spy"]).run().fails_with(2, "was not approved");
    skill(&lab, &["run", "spy"]).run().fails_with(2, "waits for approval");
    skill(&lab, &["approve", "spy", "-y"]).succeed();
    let state = &objects(skill(&lab, &["list", "--json"]))[0]["state"];
    assert_eq!(state, "active", "control");
    assert_eq!(events(&lab, "skill.approved")[0]["fields"]["wants"][0], "host api.example.com");
}

#[test]
fn f10_skill_reaches_only_its_declared_hosts() {
    let lab = lab();
    let authority = Authority::new();
    let upstream = Upstream::echo(&authority, &["a.example.com", "b.example.com"]);
    let (address, mut rules) = (upstream.address(), String::new());
    for name in ["a", "b"] {
        rules.push_str(&format!(
            "[[api.{name}.allow]]\nhost = '{name}.example.com'\nconnect = '{address}'\n"
        ));
    }
    lab.configure_for(&authority, &rules);
    let code = "/** @hosts a.example.com */\nexport default async (host: string) => (await fetch(`https://${host}.example.com/`)).status";
    let file = lab.write("reach.ts", code);
    skill(&lab, &["save", "reach", file.to_str().unwrap()]).succeed();
    assert_eq!(skill(&lab, &["run", "reach", "--input", "\"a\""]).succeed().trim(), "200");
    let ended = skill(&lab, &["run", "reach", "--input", "\"b\""]).run();
    assert_eq!(ended.code(), 1, "{}", ended.err());
    let seen = upstream.received();
    assert!(seen.iter().all(|it| it.sni.as_deref() == Some("a.example.com")), "{seen:?}");
}

#[test]
fn f13_g02_skill_and_api_commands_escape_control_characters_chosen_by_a_model() {
    let lab = lab();
    let hostile = "\u{1b}]0;owned\u{7}\u{1b}[2J\u{202e}\u{200b}";
    let code = format!("/** @hosts a.example */ // {hostile}\nexport default '{hostile}'");
    save_as_model(&lab, "nasty", draft(&code, hostile));
    let document = format!(
        "{{\"openapi\":\"3.0.0\",\"paths\":{{\"/x\":{{\"get\":{{\"operationId\":\"a/b\",\"summary\":{hostile:?}}}}}}}}}"
    );
    let document = document.replace("\\u{1b}", "\\u001b").replace("\\u{7}", "\\u0007");
    let document = document.replace("\\u{202e}", "\\u202e").replace("\\u{200b}", "\\u200b");
    let file = lab.write("x.json", document);
    let config = lab.home().join(".config/belljar/belljar.toml");
    api(
        &lab,
        &[
            "add",
            "x",
            "--host",
            "x.example",
            "--openapi",
            file.to_str().unwrap(),
            "--description",
            hostile,
            "-y",
        ],
    )
    .succeed();
    assert!(fs::read_to_string(config).unwrap().contains("[api.x]"), "control");
    skill(&lab, &["approve", "nasty", "-y"]).succeed();
    let outputs = [
        skill(&lab, &["list"]).run(),
        skill(&lab, &["list", "--json"]).run(),
        skill(&lab, &["show", "nasty"]).run(),
        skill(&lab, &["history", "nasty"]).run(),
        api(&lab, &["list"]).run(),
        api(&lab, &["show", "x"]).run(),
        api(&lab, &["show", "x", "--operation", "a.b"]).run(),
        api(&lab, &["show", "x", "--types"]).run(),
        api(&lab, &["show", "x", "--operation", hostile]).run(),
        lab.belljar(["ledger", "log"]).run(),
    ];
    for ended in outputs {
        let text = format!("{}{}", ended.out(), ended.err());
        assert!(!text.is_empty());
        let is_unsafe =
            |c: char| c.is_control() && c != '\n' || matches!(c, '\u{202e}' | '\u{200b}');
        assert_eq!(text.chars().find(|c| is_unsafe(*c)), None, "{text:?}");
    }
}

#[test]
fn api_add_appends_a_section_and_keeps_the_rest_of_the_file() {
    let lab = lab();
    let before = "# mine\n[template.x] # as it was\nmemory = '1GiB'";
    let file = lab.configure(before);
    // Without a terminal the command cannot ask, so it writes nothing.
    api(&lab, &["add", "forge", "--host", "forge.example"])
        .run()
        .fails_with(2, "nothing was written");
    assert_eq!(fs::read_to_string(&file).unwrap(), before);
    api(&lab, &["add", "forge", "--host", "forge.example", "--restrict", "DELETE", "-y"]).succeed();
    let text = fs::read_to_string(&file).unwrap();
    let section =
        "\n\n[api.forge]\nhosts = [\"forge.example\"]\nrestricted-methods = [\"DELETE\"]\n";
    assert_eq!(text, format!("{before}{section}"));
    api(&lab, &["add", "forge", "--host", "x.example", "-y"]).run().fails_with(2, "already");
    api(&lab, &["add", "b", "-y"]).run().fails_with(2, "--host or --allow");
    api(&lab, &["add", "b", "--host", "b.example", "--secret", "nope", "-y"])
        .run()
        .fails_with(2, "no secret `nope`");
    api(&lab, &["add", "b", "--openapi", "https://x.example/y.json", "-y"])
        .run()
        .fails_with(2, "needs a file");
    let yaml = lab.write("y.yaml", "openapi: 3.0.0\ninfo: {}\n");
    api(&lab, &["add", "b", "--host", "b.example", "--openapi", yaml.to_str().unwrap(), "-y"])
        .run()
        .fails_with(2, "looks like YAML");
    assert_eq!(fs::read_to_string(&file).unwrap(), text, "refused commands write nothing");
    let listed = &objects(api(&lab, &["list", "--json"]))[0];
    assert_eq!((&listed["name"], &listed["restricted"][0]), (&"forge".into(), &"DELETE".into()));
    assert_eq!(events(&lab, "api.added")[0]["fields"]["allow"][0], "forge.example");
    api(&lab, &["show", "none"]).run().fails_with(2, "there is no api `none`; the apis are forge");
}

#[test]
fn c08_api_add_refuses_to_write_the_file_of_a_project() {
    let lab = lab();
    let project = lab.write("belljar.toml", "[template.x]\nmemory = '1GiB'\n");
    let file = project.to_str().unwrap();
    let add = ["--config", file, "api", "add", "a", "--host", "a.example", "-y"];
    lab.belljar(add).cwd(lab.workspace()).run().fails_with(2, "is the file of a project");
    lab.belljar(add).cwd(lab.home()).succeed();
    assert!(fs::read_to_string(project).unwrap().contains("[api.a]"), "control");
}
