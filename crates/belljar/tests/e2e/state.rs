//! State and configuration: `runs`, `discard`, `template`, `completions`, `man` and the state directory.

use std::fs;
use std::path::{Path, PathBuf};

use belljar_testkit::{Lab, Program};
use serde_json::Value;

use crate::lab;

/// Runs a command that must succeed and returns the JSON objects that it writes, one per line.
#[track_caller]
fn objects(program: Program) -> Vec<Value> {
    let out = program.succeed();
    out.lines().map(|line| serde_json::from_str(line).expect("one object per line")).collect()
}

/// Runs a program that changes one file and returns the id of the run.
#[track_caller]
fn run_with_change(lab: &Lab, options: &[&str]) -> String {
    let result = lab.json(options, "echo x >> f").run().result();
    result["run"].as_str().expect("an id").to_owned()
}

// ---- A full disk

#[test]
fn run_on_a_full_disk_reports_it_and_runs_can_still_be_listed() {
    let lab = lab();
    let script = "mount -t tmpfs -o size=1m,mode=700 none \"$BELLJAR_HOME\"
        run() { \"$BELLJAR\" run -- true 2>&1; echo \"$1: exit $?\"; }
        run before
        head -c 2m /dev/zero > \"$BELLJAR_HOME/ballast\" 2> /dev/null && exit 9
        run full
        \"$BELLJAR\" runs --all > /dev/null; echo \"runs: exit $?\"
        rm \"$BELLJAR_HOME/ballast\"
        run after";
    let own_user = if belljar_testkit::is_root() { &[][..] } else { &["--map-root-user"] };
    let unshare = lab.program("unshare").arg("--mount").args(own_user);
    let output = unshare.args(["sh", "-c", script]).succeed();
    let part = |from: &str, to: &str| {
        let rest = output.split_once(from).map_or(output.as_str(), |(_, rest)| rest);
        rest.split_once(to).map(|(part, _)| part.to_owned()).unwrap_or_default()
    };
    let full = part("before: exit", "runs: exit");
    assert!(full.contains("full: exit 125"), "{output}");
    assert!(full.contains("No space left on device"), "{output}");
    assert!(full.contains("make room on the disk of"), "{output}");
    assert!(full.contains("BELLJAR_HOME"), "{output}");
    assert!(output.contains("runs: exit 0"), "{output}");
    // Controls: with free space the message is not printed. A plain user cannot build a box in this mount
    // namespace, so the exit code is checked only as root.
    for part in [part("", "before: exit"), part("runs: exit", "after: exit")] {
        assert!(!part.contains("make room"), "{output}");
    }
    if belljar_testkit::is_root() {
        assert!(output.contains("before: exit 0") && output.contains("after: exit 0"), "{output}");
    }
}

// ---- Runs

#[test]
fn runs_lists_runs_newest_first_with_reason_and_review() {
    let lab = lab();
    lab.bash("exit 3").run().expect(3);
    lab.belljar(["run", "--name", "second", "--timeout", "100ms", "--", "sleep", "1000"]).run();
    run_with_change(&lab, &[]);
    let listed = objects(lab.belljar(["runs", "--json"]));
    let reasons: Vec<&Value> = listed.iter().map(|run| &run["result"]["reason"]).collect();
    assert_eq!(reasons, ["exited", "timeout", "exited"]);
    assert_eq!(listed[1]["name"], "second");
    assert_eq!(listed[1]["argv"], serde_json::json!(["sleep", "1000"]));
    assert_eq!(
        (&listed[2]["result"]["exit"], &listed[2]["state"]),
        (&3.into(), &"finished".into())
    );
    let reviews: Vec<&Value> = listed.iter().map(|run| &run["review"]).collect();
    assert_eq!(reviews, ["pending", "none", "none"]);
    let text = lab.belljar(["runs"]).succeed();
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!(lines.len(), 3, "{text}");
    assert!(lines[0].contains("waits for review"), "{text}");
    assert!(lines[1].contains("second") && lines[1].contains("sleep 1000"), "{text}");
}

#[test]
fn runs_lists_only_runs_of_the_current_directory_without_all() {
    let lab = lab();
    let other = lab.dir().join("other");
    fs::create_dir(&other).unwrap();
    run_with_change(&lab, &[]);
    lab.bash("true").cwd(&other).succeed();
    let count = |args: &[&str], dir: &Path| objects(lab.belljar(args).cwd(dir)).len();
    assert_eq!(count(&["runs", "--json"], &lab.workspace()), 1);
    assert_eq!(count(&["runs", "--json"], &other), 1);
    assert_eq!(count(&["runs", "--json", "--all"], &other), 2);
    assert_eq!(count(&["runs", "--json", "--all", "--pending"], &other), 1);
    assert_eq!(count(&["runs", "--json", "--pending"], &other), 0);
    // A new directory under the same path does not get the runs of the old one.
    fs::rename(lab.workspace(), lab.dir().join("moved")).unwrap();
    fs::create_dir(lab.workspace()).unwrap();
    assert_eq!(count(&["runs", "--json"], &lab.workspace()), 0);
    assert_eq!(count(&["runs", "--json"], &lab.dir().join("moved")), 1);
}

#[test]
fn two_runs_on_one_workspace_do_not_see_each_others_changes() {
    let lab = lab();
    lab.write("f", "host\n");
    let script = "echo $0 >> f; touch made-by-$0; echo ready; read; cat f; ls";
    let start = |name: &str| {
        let live = lab.belljar(["run", "--", "bash", "-c", script, name]).open_input().start();
        live.wait_for_output("ready");
        live
    };
    let (first, second) = (start("first"), start("second"));
    let running = objects(lab.belljar(["runs", "--json"]));
    assert!(running.iter().all(|run| run["state"] == "running"), "{running:?}");
    assert_eq!(first.wait().expect(0), "ready\nhost\nfirst\nf\nmade-by-first");
    assert_eq!(second.wait().expect(0), "ready\nhost\nsecond\nf\nmade-by-second");
    assert_eq!(objects(lab.belljar(["runs", "--json", "--pending"])).len(), 2);
    assert_eq!(fs::read_to_string(lab.workspace().join("f")).unwrap(), "host\n");
}

#[test]
fn discard_refuses_a_run_that_is_still_running() {
    let lab = lab();
    let live = lab.bash("echo x > f; echo ready; read; exit 0").open_input().start();
    live.wait_for_output("ready");
    let id = lab.run_dir().file_name().unwrap().to_str().unwrap().to_owned();
    lab.belljar(["discard", "--yes", &id]).run().fails_with(2, "still running");
    live.wait().expect(0);
    lab.belljar(["discard", "--yes", &id]).run().fails_with(0, "discarded");
}

#[test]
fn h12_run_with_a_damaged_record_is_listed_and_its_changes_can_be_reviewed() {
    let lab = lab();
    lab.write("f", "host\n");
    let damage = |text: &str| {
        lab.bash("echo box > f").succeed();
        let dir = lab.runs().pop().unwrap();
        fs::write(dir.join("run.json"), text).unwrap();
        (dir.file_name().unwrap().to_str().unwrap().to_owned(), dir)
    };
    let (discarded, _) = damage("{");
    lab.belljar(["discard", "--yes", &discarded]).run().fails_with(0, "discarded the changes");
    let (id, dir) = damage("");
    let listed = lab.belljar(["runs"]).succeed();
    assert!(
        listed.contains("is damaged") && listed.contains(&format!("belljar diff {id}")),
        "{listed}"
    );
    let found = objects(lab.belljar(["runs", "--json"]));
    assert!(
        found.iter().any(|run| run["id"] == id.as_str() && run["why"].is_string()),
        "{found:?}"
    );
    let diff = lab.belljar(["diff", &id[..12]]).succeed();
    assert!(diff.contains("-host") && diff.contains("+box"), "{diff}");
    // A change on the host after the run is still noticed.
    lab.write("f", "changed later\n");
    lab.belljar(["apply", "--yes", &id]).run().fails_with(1, "nothing was applied");
    lab.belljar(["apply", "--yes", "--theirs", "f", &id]).run().fails_with(0, "damaged");
    assert_eq!(fs::read_to_string(lab.workspace().join("f")).unwrap(), "box\n");
    let listed = lab.belljar(["runs"]).succeed();
    assert!(!listed.contains("damaged"), "the record is written again: {listed}");
    // Without the ledger, the error says where the changes are.
    fs::write(dir.join("run.json"), "").unwrap();
    fs::rename(lab.state().join("ledger"), lab.dir().join("ledger")).unwrap();
    let upper = dir.join("upper").display().to_string();
    lab.belljar(["diff", &id]).run().fails_with(1, &upper);
}

#[test]
fn gc_removes_files_that_apply_replaced_only_when_they_are_old() {
    let lab = lab();
    lab.write("f", "host\n");
    lab.bash("echo box > f").succeed();
    lab.belljar(["apply", "--yes"]).succeed();
    let trash = lab.run_dir().join("trash");
    let count = || fs::read_dir(&trash).map_or(0, Iterator::count);
    assert_eq!(count(), 1);
    lab.belljar(["gc"]).succeed();
    assert_eq!(count(), 1, "the file is not old");
    let dry = lab.belljar(["gc", "--dry-run", "--older-than", "0s"]).succeed();
    assert!(dry.contains("would remove the files that `belljar apply"), "{dry}");
    assert_eq!(count(), 1);
    lab.belljar(["gc", "--older-than", "0s"]).succeed();
    assert_eq!(count(), 0);
    let dry = lab.belljar(["gc", "--dry-run", "--older-than", "0s"]).succeed();
    assert!(!dry.contains("belljar apply"), "control: {dry}");
}

// ---- The state directory

#[test]
fn run_names_an_unusable_state_directory() {
    let lab = lab();
    let file = lab.write("file", "");
    for path in [Path::new("/proc/belljar"), &file, &file.join("beneath")] {
        let ended = lab.bash("true").env("BELLJAR_HOME", path).run();
        ended.fails_with(1, &format!("open the state directory {}", path.display()));
    }
    lab.bash("true").env("BELLJAR_HOME", "relative").run().fails_with(2, "absolute");
}

#[test]
fn state_directory_defaults_to_xdg_state_home_or_the_home_directory() {
    let lab = lab();
    let run = || lab.bash("true").without_env("BELLJAR_HOME");
    run().succeed();
    assert!(lab.home().join(".local/state/belljar/runs").is_dir());
    let xdg = lab.dir().join("xdg");
    run().env("XDG_STATE_HOME", &xdg).succeed();
    assert!(xdg.join("belljar/runs").is_dir());
    run().without_env("HOME").run().fails_with(2, "neither BELLJAR_HOME nor HOME");
    lab.bash("true").without_env("HOME").succeed();
}

// ---- Configuration

/// Writes the operator's configuration file and returns its path.
fn write_operator_config(lab: &Lab, text: &str) -> PathBuf {
    let file = lab.home().join(".config/belljar/belljar.toml");
    fs::create_dir_all(file.parent().unwrap()).unwrap();
    fs::write(&file, text).unwrap();
    file
}

#[test]
fn run_uses_templates_of_the_operators_configuration() {
    let lab = lab();
    write_operator_config(
        &lab,
        "[template.small]\nmemory = \"64MiB\"\nenv = [\"FROM=template\"]\nuser = 0\n",
    );
    let ended = lab.json(&["--template", "small", "--pids", "99"], "echo $FROM; id -u").run();
    assert!(ended.expect(0).starts_with("template\n0\n"));
    let limits = &ended.result()["limits"];
    assert_eq!((&limits["memory"], &limits["pids"]), (&"64MiB".into(), &99.into()));
    let names: Vec<Value> = objects(lab.belljar(["template", "list", "--json"]));
    assert_eq!(
        names.iter().map(|template| &template["name"]).collect::<Vec<_>>(),
        ["default", "small"]
    );
    let shown = lab.belljar(["template", "show", "small"]).succeed();
    assert!(shown.contains("memory = \"64MiB\"") && shown.contains("disk = \"2GiB\""), "{shown}");
    lab.belljar(["template", "show", "large"])
        .run()
        .fails_with(2, "known templates: default, small");
    // The output is a valid configuration file.
    let copy = lab.write("copy.toml", shown);
    lab.belljar(["template", "check"]).arg(copy).succeed();
}

#[test]
fn config_option_replaces_the_operators_configuration_file() {
    let lab = lab();
    write_operator_config(&lab, "[template.default]\nmemory = \"64MiB\"\n");
    let other = lab.dir().join("other.toml");
    fs::write(&other, "[template.default]\nmemory = \"96MiB\"\n").unwrap();
    let other = other.to_str().unwrap();
    for args in [["--config", other, "run", "--json"], ["run", "--config", other, "--json"]] {
        let result = lab.belljar(args).args(["--", "true"]).run().result();
        assert_eq!(result["limits"]["memory"], "96MiB");
    }
    let missing = lab.belljar(["--config", "/no/such.toml", "run", "--", "true"]).run();
    missing.fails_with(2, "/no/such.toml");
}

#[test]
fn configuration_errors_are_reported_with_file_line_and_key() {
    let lab = lab();
    for (text, line, about) in [
        ("[template.a]\nmemroy = \"1GiB\"\n", 2, "unknown key `memroy`; did you mean `memory`?"),
        ("\n[template.a]\n\nmemory = \"much\"\n", 4, "`memory = \"much\"`: invalid size"),
        ("[template.a\n", 1, ""),
        ("[template.a]\nmemory = \"1KiB\"\n", 2, "must be at least 16MiB"),
        (
            "[template.a]\nweaken = [\"cgroup\"]\nrequire = [\"cgroup\"]\n",
            3,
            "both required and weakened",
        ),
    ] {
        let file = write_operator_config(&lab, text);
        for args in [&["run", "--", "true"][..], &["template", "list"], &["template", "check"]] {
            let ended = lab.belljar(args).run();
            ended.fails_with(2, &format!("{}:{line}: ", file.display()));
            ended.fails_with(2, about);
        }
    }
}

// ---- Shells and the manual

#[test]
fn completion_scripts_have_valid_syntax_for_bash_zsh_and_fish() {
    let lab = lab();
    for (shell, check) in
        [("bash", ["bash", "-n"]), ("zsh", ["zsh", "-n"]), ("fish", ["fish", "-n"])]
    {
        let script = lab.belljar(["completions", shell]).succeed();
        assert!(script.contains("--no-workspace") || script.contains("no-workspace"), "{shell}");
        let file = lab.write(shell, script);
        let [program, flag] = check;
        let ended = lab.program(program).arg(flag).arg(file).run();
        assert_eq!((ended.code(), ended.err()), (0, String::new()), "{shell}");
    }
    lab.belljar(["completions", "cmd.exe"]).run().fails_with(2, "cmd.exe");
}

#[test]
fn bash_completion_completes_an_option_of_run() {
    let lab = lab();
    let script = r#"source <("$BELLJAR" completions bash)
        COMP_WORDS=(belljar run --no-w); COMP_CWORD=2; _belljar belljar --no-w run; echo "${COMPREPLY[@]}""#;
    assert_eq!(lab.program("bash").args(["-c", script]).succeed(), "--no-workspace");
}

#[test]
fn man_page_renders_without_warnings() {
    let lab = lab();
    let file = lab.write("belljar.1", lab.belljar(["man"]).succeed());
    let ended = lab.program("man").args(["--warnings", "-l"]).arg(file).env("MANWIDTH", "80").run();
    let page = ended.expect(0);
    assert_eq!(ended.err(), "");
    for word in ["NAME", "SYNOPSIS", "run", "discard"] {
        assert!(page.contains(word), "{word}: {page}");
    }
}

#[test]
fn help_and_version_options_print_usage_and_version() {
    let lab = lab();
    assert!(lab.belljar(["--version"]).succeed().starts_with("belljar 0."));
    for command in ["run", "diff", "apply", "discard", "runs", "doctor", "template"] {
        let help = lab.belljar([command, "--help"]).succeed();
        assert!(help.contains("Usage: belljar"), "{help}");
    }
    assert_eq!(lab.belljar([] as [&str; 0]).run().code(), 2);
}

#[test]
fn list_commands_exit_with_0_when_their_reader_closes_the_pipe() {
    let lab = lab();
    run_with_change(&lab, &[]);
    for command in ["runs", "template list", "completions bash", "man"] {
        let script =
            format!(r#""$BELLJAR" {command} 2> err | true; echo ${{PIPESTATUS[0]}}; cat err"#);
        assert_eq!(lab.program("bash").args(["-c", &script]).succeed(), "0", "{command}");
    }
}
