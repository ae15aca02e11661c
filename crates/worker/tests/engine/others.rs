//! Jobs that run another program instead of JavaScript.

use std::io::Read as _;

use belljar_wire::{Job, Program};

use super::worker::Worker;

fn run_program(program: Program) -> (Option<i32>, String) {
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
fn program_job_gets_its_files_environment_and_input() {
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
    assert_eq!(run_program(job), (Some(3), "argument value / 600\nits input".to_owned()));
}

#[test]
fn program_job_without_input_reads_end_of_file() {
    assert_eq!(run_program(program(&["cat"])), (Some(0), String::new()));
}

#[test]
fn program_job_exits_with_127_if_the_program_is_missing_and_126_if_it_cannot_be_executed() {
    assert_eq!(run_program(program(&["no-such-program-here"])).0, Some(127));
    assert_eq!(run_program(program(&[])).0, Some(126));
    assert_eq!(run_program(program(&["/"])).0, Some(126));
}

#[test]
fn worker_without_a_job_exits_successfully() {
    let mut worker = Worker::start();
    worker.close_input();
    assert!(worker.next().is_none());
    assert!(worker.child.wait().unwrap().success());
}
