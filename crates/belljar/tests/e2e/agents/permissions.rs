//! Permissions: the box enforces them against every program, and the others are shown as advice.

use std::fs;

use belljar_testkit::{Lab, eventually};

use super::{define_own_agent, parse_object, path_with_agent};
use crate::lab;

/// Runs a script as the program of a named box and returns its output.
#[track_caller]
fn run_in_box(lab: &Lab, name: &str, script: &str) -> String {
    let up = ["up", name, "--no-tty", "--", "sh", "-c", script];
    lab.belljar(up).succeed();
    eventually("the box has ended", || {
        let status = lab.belljar(["status", name, "--json"]).succeed();
        parse_object(&status)["state"] == "stopped"
    });
    fs::read_to_string(lab.state().join("boxes").join(name).join("output.log")).unwrap()
}

#[test]
fn b20_files_with_a_read_deny_rule_are_unreadable_in_the_box() {
    let lab = lab();
    lab.write(".env", "KEY=hunter2");
    lab.write("deep/er/.env", "KEY=hunter2");
    lab.write("keys/one", "hunter2");
    lab.write("plain", "seen");
    let script = "cat .env deep/er/.env keys/one plain; ls keys; grep -rs hunter2 . && echo found; \
                  rm -f .env; mv keys elsewhere; mv deep moved; cat moved/er/.env; echo end";
    let without = run_in_box(&lab, "control", script);
    assert!(without.contains("hunter2") && without.contains("found"), "{without}");
    lab.configure("[permissions]\ndeny = [\"Read(.env)\", \"Read(/keys)\"]\n");
    let with = run_in_box(&lab, "task", script);
    assert!(!with.contains("hunter2") && with.contains("seen") && with.contains("end"), "{with}");
    assert_eq!(fs::read_to_string(lab.workspace().join(".env")).unwrap(), "KEY=hunter2");
    let run = lab.bash(script).run();
    assert!(!run.out().contains("hunter2") && run.out().contains("seen"), "{}", run.out());
}

#[test]
fn c01_files_with_an_edit_deny_rule_are_read_only_in_the_box() {
    let lab = lab();
    lab.write("ci/run.sh", "theirs");
    lab.write("src/main", "theirs");
    let script = "echo mine > ci/run.sh; echo mine > ci/new; mv ci away; rm -r ci; \
                  echo mine > src/main; cat ci/run.sh src/main";
    let without = run_in_box(&lab, "control", script);
    assert!(!without.contains("theirs"), "{without}");
    lab.configure("[permissions]\ndeny = [\"Edit(ci/**)\"]\n");
    let with = run_in_box(&lab, "task", script);
    assert!(with.contains("theirs") && with.contains("mine"), "{with}");
}

#[test]
fn b21_agent_cannot_change_or_remove_its_managed_settings() {
    let lab = lab();
    define_own_agent(
        &lab,
        "[settings]\nlanguage = \"claude\"\npath = \"/etc/own/settings.json\"\ncontent = '{\"mark\": 7}'\n",
    );
    lab.configure("[permissions]\ndeny = [\"Bash(rm *)\"]\n");
    let script = "f=/etc/own/settings.json; echo x > $f; rm -f $f; mv $f ~/; mv /etc/own /etc/gone; \
                  chmod 666 $f; ln -sf /dev/null $f; umount $f; cat $f; echo end";
    let up = ["up", "task", "--no-tty", "--agent", "own", "--", "sh", "-c", script];
    lab.belljar(up).env("PATH", path_with_agent(&lab)).succeed();
    let log = || fs::read_to_string(lab.state().join("boxes/task/output.log")).unwrap_or_default();
    eventually("the script has ended", || log().contains("end"));
    assert!(log().contains("\"mark\": 7") && log().contains("Bash(rm *)"), "{}", log());
}

#[test]
fn c08_project_config_can_add_only_deny_permissions() {
    let lab = lab();
    for text in
        ["skip-all = true", "allow = [\"Net(evil.example)\"]", "ask = [\"Net(evil.example)\"]"]
    {
        lab.write("belljar.toml", format!("[permissions]\n{text}\n"));
        let up = lab.belljar(["up", "task", "--", "true"]).run();
        up.fails_with(2, "a project may only set `deny`");
    }
    lab.write("belljar.toml", "[permissions]\ndeny = [\"Read(/secret)\"]\n");
    lab.write("secret", "hunter2");
    let output = run_in_box(&lab, "task", "cat secret; echo end");
    assert!(!output.contains("hunter2") && output.contains("end"), "{output}");
}

#[test]
fn g10_policy_explain_shows_which_component_enforces_each_permission() {
    let lab = lab();
    lab.configure(
        "[permissions]\ndeny = [\"Read(.env)\", \"Edit(ci/**)\", \"Bash(rm -rf *)\", \"Net(gist.github.com)\"]\n\
         ask = [\"Net(api.github.com)\"]\nallow = [\"Tool(WebSearch)\"]\n",
    );
    lab.write(".env", "x");
    let out = lab.belljar(["policy", "explain", "--agent", "codex", "--json"]).succeed();
    let enforced_by = |permission: &str| -> Vec<String> {
        let found = out.lines().map(parse_object).find(|it| it["permission"] == permission);
        let found = found.unwrap_or_else(|| panic!("{permission}: {out}"));
        let kept = found["kept"].as_array().unwrap().clone();
        kept.iter().map(|kept| kept["by"].as_str().unwrap().to_owned()).collect()
    };
    assert_eq!(enforced_by("Read(.env)"), ["box", "advice"]);
    assert_eq!(enforced_by("Edit(ci/**)"), ["box", "apply", "advice"]);
    assert_eq!(enforced_by("Bash(rm -rf *)"), ["advice"]);
    assert_eq!(enforced_by("Net(gist.github.com)"), ["broker"]);
    assert_eq!(enforced_by("Net(api.github.com)"), ["broker"]);
    assert_eq!(enforced_by("Tool(WebSearch)"), ["advice"]);
    let text = lab.belljar(["policy", "explain", "--agent", "codex"]).succeed();
    assert!(text.contains("matching paths in this workspace now: 1"), "{text}");
    assert!(text.contains("the agent does not know it"), "{text}");
    lab.belljar(["policy", "explain", "--template", "x"])
        .run()
        .fails_with(2, "unknown template \"x\"");
    // A Bash rule is only advice: another command has the same effect.
    lab.configure("[permissions]\ndeny = [\"Bash(rm *)\"]\n");
    lab.write("victim", "x");
    let output = run_in_box(&lab, "task", "find victim -delete; ls");
    assert!(!output.contains("victim"), "{output}");
    assert!(lab.workspace().join("victim").exists(), "the box limits what a command can do");
}

#[test]
fn c01_changes_to_paths_with_an_edit_deny_rule_are_not_applied_from_runs() {
    for mode in ["overlay", "direct"] {
        let lab = lab();
        let rules = lab.configure("[permissions]\ndeny = [\"Edit(secret/**)\"]\n");
        let rules = rules.to_str().unwrap();
        let script = "mkdir -p secret; echo evil > secret/new.txt; echo fine > added.txt";
        let run = ["--config", rules, "run", "--mode", mode, "--", "sh", "-c", script];
        lab.belljar(run).run();
        lab.belljar(["--config", rules, "apply", "--yes", "--include-executable", "**"]).run();
        assert!(
            lab.workspace().join("added.txt").exists(),
            "control: other changes are applied ({mode})"
        );
        assert!(!lab.workspace().join("secret/new.txt").exists(), "{mode}");
    }
}

#[test]
fn c01_direct_mode_rereads_permissions_before_it_applies_changes() {
    for (rules, is_applied) in [("", true), ("[permissions]\ndeny = [\"Edit(kept/**)\"]\n", false)]
    {
        let lab = lab();
        lab.configure("");
        let script =
            "mkdir kept; echo new > kept/file.txt; echo fine > added.txt; echo ready; read -r line";
        let run = lab.belljar(["run", "--mode", "direct", "--", "sh", "-c", script]);
        let run = run.open_input().start();
        run.wait_for_output("ready");
        lab.configure(rules);
        let ended = run.wait();
        assert!(lab.workspace().join("added.txt").exists(), "control: {}", ended.err());
        assert_eq!(lab.workspace().join("kept/file.txt").exists(), is_applied, "{}", ended.err());
        let is_reported = ended.err().contains("held back: kept/file.txt");
        assert_eq!(is_reported, !is_applied, "{}", ended.err());
    }
}
