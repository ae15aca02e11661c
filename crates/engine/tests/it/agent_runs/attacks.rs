//! Attacks by an agent: on the repository of the user, and on the limits that its plan fixed.

use std::os::unix::fs::PermissionsExt as _;
use std::process::Command;

use super::*;

/// A script that makes every git command in the current repository create files in the directory `MARKS`.
fn plant_programs(marks: &str) -> String {
    format!(
        "git config core.fsmonitor 'touch {marks}/fsmonitor;:'; \
         git config filter.evil.clean \"sh -c 'touch {marks}/clean; cat'\"; \
         echo '*.txt filter=evil' > .gitattributes; \
         mkdir -p .git/hooks; \
         for hook in post-checkout reference-transaction post-index-change; do \
           printf '#!/bin/sh\\ntouch {marks}/hook\\n' > .git/hooks/$hook; chmod +x .git/hooks/$hook; \
         done; echo planted > a.txt"
    )
}

#[test]
fn c02_c03_repository_of_an_agent_starts_no_program_on_the_host() {
    let engine = engine();
    let marks = engine.lab.dir().join("marks");
    fs::create_dir(&marks).unwrap();
    fs::set_permissions(&marks, fs::Permissions::from_mode(0o777)).unwrap();
    let found = || fs::read_dir(&marks).unwrap().count();
    let script = plant_programs(&marks.display().to_string());
    // Control: plain git in a repository with these settings starts the programs.
    let copy = engine.lab.dir().join("copy");
    git(engine.lab.dir(), &["clone", "-q", "project", "copy"]);
    let planted = Command::new("bash").args(["-c", &script]).current_dir(&copy).status().unwrap();
    assert!(planted.success());
    git_command(&copy, &["add", "-A"]).output().unwrap();
    assert!(found() >= 2, "plain git starts the programs");
    fs::read_dir(&marks).unwrap().for_each(|mark| fs::remove_file(mark.unwrap().path()).unwrap());
    let view = run_script(&engine, &format!("cat > /dev/null; {script}"), "");
    assert_eq!(view.outcome, Some(Outcome::Succeeded), "{view:#?}");
    assert_eq!(found(), 0);
    let made = made(&engine, &view, "fix");
    let changed = made["changed"].as_array().unwrap();
    let risky =
        |path: &str| changed.iter().any(|file| file["path"] == path && !file["risky"].is_null());
    assert!(risky(".gitattributes") && !risky("a.txt"), "{made:#}");
}

#[test]
fn c04_c10_objects_of_an_agent_that_would_harm_a_checkout_are_refused() {
    let engine = engine();
    let tree = |name: &str| {
        format!(
            "cat > /dev/null; blob=$(echo x | git hash-object -w --stdin); \
             tree=$(printf '100644 blob %s\\t{name}\\n' $blob | git mktree); \
             git update-ref HEAD $(git commit-tree $tree -p HEAD -m Planted); git read-tree HEAD; rm -f *"
        )
    };
    let view = run_script(&engine, &tree(".git"), "");
    assert_eq!(view.outcome, Some(Outcome::Failed), "{view:#?}");
    assert!(reason(&view, "fix").starts_with("invalid: "), "{view:#?}");
    assert_eq!(references(&engine).len(), 1);
    let view = run_script(&engine, &tree("plain"), "");
    assert_eq!(view.outcome, Some(Outcome::Succeeded), "control: {view:#?}");
    assert_eq!(references(&engine).len(), 2);
}

#[test]
fn h14_agent_has_the_rules_that_its_file_had_when_the_plan_was_submitted() {
    let (engine, authority) = (engine(), Authority::new());
    let hosts = ["one.example.com", "two.example.com"];
    let upstream = Upstream::tls(&authority, &hosts, |_| Reply::new(200, "answer"));
    engine.lab.configure_for(&authority, "");
    let rule = |host: &str| {
        let connect = upstream.address();
        format!("allow = [{{ host = \"{host}\", connect = \"{connect}\" }}]\n")
    };
    let script = format!(
        "{GO}; cat > /dev/null; \
         for host in one two; do curl -sS https://$host.example.com/ > $host.txt 2> /dev/null; done; true"
    );
    let task_of = |script: &str| format!("[task]\nargv = [\"bash\", \"-c\", '''{script}''']\n");
    define_with(&engine, "own", &format!("{}{}", rule("one.example.com"), task_of(&script)));
    let gate = format!("[task.gate]\ndo = {{ command = ['bash', '-c', \"{GO}\"] }}\n");
    let run = start(&engine, &format!("{gate}{}needs = ['gate']\n", plan("")));
    let gate = wait_for_program(&engine, run, "gate");
    // The file of the agent changes before its task starts.
    let other = "echo changed > other.txt; cat > /dev/null";
    define_with(&engine, "own", &format!("{}{}", rule("two.example.com"), task_of(other)));
    release(&engine, run, gate);
    let box_run = wait_for_program(&engine, run, "fix");
    release(&engine, run, box_run);
    let view = finish(&engine, run);
    assert_eq!(view.outcome, Some(Outcome::Succeeded), "{view:#?}");
    let shown = |file: &str| {
        let name = format!("refs/belljar/{run}/fix:{file}");
        git(&engine.lab.workspace(), &["show", &name])
    };
    assert_eq!((shown("one.txt").as_str(), shown("two.txt").as_str()), ("answer", ""));
    let received = upstream.received();
    assert_eq!(received.len(), 1, "{received:?}");
}
