//! Errors that depend on the state of boxes, runs, clones, secrets and files.

use std::fs;

use belljar_testkit::Lab;

use crate::{lab, transcript};

/// Creates a repository with one commit in the project directory of the test.
fn repository(lab: &Lab) {
    let identity = "-c user.name=Ada -c user.email=ada@example.com";
    let script = format!("git init -qb main . && git add . && git {identity} commit -qm first");
    lab.program("bash").args(["-c", &script]).succeed();
}

#[test]
fn commands_refuse_a_box_that_is_running_or_stopped() {
    let lab = lab();
    insta::assert_snapshot!(transcript(
        &lab,
        &[
            "up task --no-workspace -- sleep 1000",
            "up task --no-workspace -- sleep 1000",
            "start task",
            "reset task",
            "snapshot task first",
            "snapshot task first",
            "fork task task",
            "fork task@second copy",
            "fork task@../.. copy",
            "exec task -- no-such-program",
            "attach task",
            "approve task:1",
            "apply task --branch",
            "diff task",
            "stop task",
            "stop task",
            "exec task -- true",
            "attach task",
            "network task none",
            "restore task",
            "down task",
            "down task",
            "restore task --as other",
            "restore task --as other",
        ]
    ));
}

#[test]
fn commands_that_need_a_confirmation_refuse_without_a_terminal() {
    let lab = lab();
    lab.write("program.ts", "export default 1;\n");
    lab.write(
        "openapi.json",
        r#"{"openapi":"3.0.0","info":{"title":"Shop","version":"1"},"paths":{}}"#,
    );
    insta::assert_snapshot!(transcript(
        &lab,
        &[
            "run --name changed -- sh -c 'echo x > new'",
            "apply changed",
            "discard changed",
            "skill save tidy LAB/project/program.ts",
            "skill rm tidy",
            "skill approve tidy",
            "api add shop --openapi LAB/project/openapi.json",
            "ledger redact 00000000 --reason mistake",
            "ledger key rotate",
            "secret rm missing",
            "gc",
        ]
    ));
}

#[test]
fn commands_on_clones_report_repositories_and_branches_that_cannot_be_used() {
    let lab = lab();
    lab.write("file.txt", "text\n");
    insta::assert_snapshot!(
        "without_a_repository",
        transcript(
            &lab,
            &[
                "up task --repo . -- true",
                "up task --repo LAB/missing -- true",
                "up task --repo LAB/project/file.txt -- true",
            ]
        )
    );
    repository(&lab);
    insta::assert_snapshot!(
        "with_a_repository",
        transcript(
            &lab,
            &[
                "up task --repo . --branch missing -- true",
                "up task --repo . -- sleep 1000",
                "apply task --theirs file.txt",
                "apply task -- file.txt",
                "exec task -- sh -c 'echo more >> file.txt && git commit -qam more'",
                "apply task --branch 'not valid' --yes",
                "apply task --branch main --yes",
                "down task",
                "reset task",
                "apply task --branch new --yes",
                "stop task",
                "down task",
            ]
        )
    );
}

#[test]
fn commands_report_damaged_files_of_the_state_directory() {
    let lab = lab();
    let prepared = transcript(&lab, &["up task --no-workspace -- true", "run --name done -- true"]);
    assert!(!prepared.contains("[exit"), "{prepared}");
    fs::write(lab.state().join("boxes/task/box.json"), "{\"version\":").unwrap();
    insta::assert_snapshot!(
        "damaged_box",
        transcript(&lab, &["status task", "list", "start task", "down task"])
    );
    fs::write(lab.state().join("layout.json"), "{").unwrap();
    insta::assert_snapshot!("damaged_layout", transcript(&lab, &["list"]));
    fs::write(lab.state().join("layout.json"), "{\"version\":999}").unwrap();
    insta::assert_snapshot!("newer_layout", transcript(&lab, &["list", "run -- true"]));
}

#[test]
fn ledger_commands_report_files_that_are_not_what_their_option_needs() {
    let lab = lab();
    fs::write(lab.dir().join("binary"), b"\xff\xfe").unwrap();
    lab.write("text", "text\n");
    insta::assert_snapshot!(transcript(
        &lab,
        &[
            "run --name done -- true",
            "ledger verify --checkpoint LAB/binary",
            "ledger verify --key rubbish",
            "ledger verify-receipt LAB/binary",
            "ledger verify-receipt LAB/project/text",
            "ledger verify-receipt LAB/missing",
            "ledger verify-proof LAB/project/text",
            "ledger get 0000",
            "ledger get rubbish",
            "ledger get 00000000",
            "ledger replay done --step",
            "ledger receipt missing",
            "ledger import-trace LAB/project/text",
            "ledger consistency 5 2",
        ]
    ));
}
