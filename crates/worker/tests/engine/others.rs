//! Jobs that are not for the engine.

use std::io::Read as _;

use belljar_wire::{Job, Program};

use super::worker::Worker;

fn become_it(program: Program) -> (Option<i32>, String) {
    let mut worker = Worker::start();
    worker.send(&Job::Program(program));
    let mut output = String::new();
    worker.output.read_to_string(&mut output).unwrap();
    (worker.child.wait().unwrap().code(), output)
}

fn program(argv: &[&str]) -> Program {
    Program {
        argv: argv.iter().map(|&part| part.to_owned()).collect(),
        env: Vec::new(),
        files: Vec::new(),
        workdir: None,
        stdin: None,
    }
}

#[test]
fn a_worker_becomes_another_program_with_its_files_and_its_input() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("deep/script.sh");
    let mut job = program(&["sh", file.to_str().unwrap(), "argument"]);
    job.files = vec![(
        file.to_str().unwrap().to_owned(),
        "echo \"$1 $MINE $(pwd) $(stat -c %a \"$0\")\"; cat; exit 3".to_owned(),
    )];
    job.env = vec![("MINE".to_owned(), "value".to_owned())];
    job.workdir = Some("/".to_owned());
    job.stdin = Some("its input".to_owned());
    assert_eq!(become_it(job), (Some(3), "argument value / 600\nits input".to_owned()));
}

#[test]
fn a_program_without_input_reads_nothing() {
    assert_eq!(become_it(program(&["cat"])), (Some(0), String::new()));
}

#[test]
fn a_program_that_is_not_there_ends_as_a_shell_would_say_it() {
    assert_eq!(become_it(program(&["no-such-program-here"])).0, Some(127));
    assert_eq!(become_it(program(&[])).0, Some(126));
    assert_eq!(become_it(program(&["/"])).0, Some(126));
}

#[test]
fn a_worker_that_gets_no_job_ends_in_peace() {
    let mut worker = Worker::start();
    worker.hang_up();
    assert!(worker.next().is_none());
    assert!(worker.child.wait().unwrap().success());
}
