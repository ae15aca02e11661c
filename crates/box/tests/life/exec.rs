//! Tests of exec and pause: programs that start in a running box and end with it.

use std::fs::{self, File};
use std::io::Write;

use belljar_box::view::HOME;
use belljar_box::{ExecEnd, ExecError, ExecStreams, Program, Request};

use crate::fixture::{Fixture, Output, eventually, line, output_of, program};

#[test]
fn exec_process_has_its_own_streams_variables_and_exit_status() {
    let fixture = Fixture::new();
    let mut sandbox = fixture.start(&fixture.request());
    let spec = Program {
        env: vec![("MORE".into(), "process".into())],
        ..program(&["sh", "-c", "cat; echo $FROM $MORE; echo no >&2; exit 7"])
    };
    let mut process = sandbox.channel.exec(&spec).unwrap();
    let Some(ExecStreams::Pipes { input, output, error }) = process.streams.take() else {
        panic!()
    };
    assert!(!process.is_over());
    File::from(input).write_all(b"hello\n").unwrap();
    assert_eq!(crate::fixture::all(output), "hello\nthe box process\n");
    assert_eq!(crate::fixture::all(error), "no\n");
    assert_eq!(process.wait().unwrap(), ExecEnd { exit: Some(7), signal: None });
    assert_eq!(
        process.wait().unwrap(),
        ExecEnd { exit: Some(7), signal: None },
        "wait can be repeated"
    );
    process.signal(15).unwrap();
    let overriding =
        Program { env: vec![("FROM".into(), "me".into())], ..program(&["printenv", "FROM"]) };
    assert_eq!(output_of(sandbox.channel.exec(&overriding).unwrap()).out, "me\n");
    assert_eq!(sandbox.close().exit, Some(0));
}

#[test]
fn exec_process_gets_a_terminal_and_signals() {
    let fixture = Fixture::new();
    let sandbox = fixture.start(&fixture.request());
    let spec =
        Program { terminal: Some((33, 101)), ..program(&["sh", "-c", "tty; stty size; cat"]) };
    let mut process = sandbox.channel.exec(&spec).unwrap();
    let Some(ExecStreams::Terminal(master)) = process.streams.take() else { panic!() };
    let mut terminal = File::from(master);
    assert_eq!(line(&mut terminal).trim_end(), "/dev/pts/0");
    assert_eq!(line(&mut terminal).trim_end(), "33 101");
    // Wait until `cat` runs: the line appears once as echo and once as the output of `cat`.
    terminal.write_all(b"there\n").unwrap();
    assert_eq!(
        [line(&mut terminal), line(&mut terminal)].map(|it| it.trim_end().to_owned()),
        ["there"; 2]
    );
    terminal.write_all(b"\x03").unwrap();
    let ended = process.wait().unwrap();
    assert!(ended.signal == Some(2) || ended.exit == Some(130), "{ended:?}");

    let sleeper = sandbox.spawn(&["sleep", "1000"]);
    sleeper.signal(15).unwrap();
    assert_eq!(sleeper.wait().unwrap(), ExecEnd { exit: None, signal: Some(15) });
}

#[test]
fn exec_returns_the_cause_if_a_program_cannot_start() {
    let fixture = Fixture::new();
    let sandbox = fixture.start(&fixture.request());
    let exec = |spec: &Program| sandbox.channel.exec(spec).unwrap_err();
    assert!(matches!(exec(&program(&["no-such-program"])), ExecError::NotFound));
    assert!(matches!(exec(&program(&["/etc/passwd"])), ExecError::NotExecutable(_)));
    assert!(matches!(exec(&program(&[])), ExecError::NotFound));
    let nowhere = Program { workdir: Some("/nowhere".into()), ..program(&["true"]) };
    assert!(matches!(exec(&nowhere), ExecError::Workdir(_)));
    let long = "x".repeat(200_000);
    assert!(matches!(exec(&program(&["echo", &long])), ExecError::TooLong));
    let fits = "x".repeat(120_000);
    assert_eq!(sandbox.run(&["printf", "%s", &fits]).out, fits);
}

#[test]
fn exec_and_pause_fail_after_the_box_has_ended() {
    let fixture = Fixture::new();
    let mut sandbox = fixture.start(&fixture.request());
    let process = sandbox.spawn(&["sleep", "1000"]);
    sandbox.close();
    assert_eq!(process.wait().unwrap(), ExecEnd { exit: None, signal: Some(9) });
    assert!(matches!(sandbox.channel.exec(&program(&["true"])), Err(ExecError::Gone)));
    assert!(sandbox.channel.pause().is_err());
}

#[test]
fn exec_works_from_eight_threads_at_once() {
    let fixture = Fixture::new();
    let sandbox = fixture.start(&fixture.request());
    std::thread::scope(|scope| {
        for worker in 0..8 {
            let sandbox = &sandbox;
            scope.spawn(move || {
                for turn in 0..10 {
                    let text = format!("{worker} {turn}");
                    let want = Output {
                        out: text.clone(),
                        err: String::new(),
                        exit: Some(0),
                        signal: None,
                    };
                    assert_eq!(sandbox.run(&["printf", "%s", &text]), want);
                }
            });
        }
    });
}

#[test]
fn paused_box_does_not_run_until_the_pause_is_dropped() {
    let fixture = Fixture::new();
    let request = Request { home: fixture.home("home"), ..fixture.request() };
    let sandbox = fixture.start(&request);
    let count = "trap '' TERM INT HUP; n=0; while :; do n=$((n + 1)); echo $n > ~/count; done";
    let counter = sandbox.channel.exec(&with_home(&["sh", "-c", count])).unwrap();
    let now = || fs::read_to_string(fixture.path("home/count")).unwrap_or_default();
    eventually("the counter runs", || now().len() > 2);

    let elsewhere = Fixture::new();
    let other = elsewhere.start(&elsewhere.request());
    let paused = sandbox.channel.pause().unwrap();
    let before = now();
    let joined = std::thread::scope(|scope| {
        let late = scope.spawn(|| sandbox.run(&["echo", "late"]));
        // Control: ten programs start and end in another box, which is not paused.
        for _ in 0..10 {
            assert_eq!(other.run(&["true"]).exit, Some(0));
        }
        assert_eq!(now(), before);
        assert!(!late.is_finished(), "exec waits while the box is paused");
        drop(paused);
        late.join().unwrap()
    });
    assert_eq!(joined.out, "late\n");
    eventually("the counter runs again", || now() != before && !now().is_empty());
    drop(sandbox.channel.pause().unwrap());
    counter.signal(9).unwrap();
    assert_eq!(counter.wait().unwrap(), ExecEnd { exit: None, signal: Some(9) });
}

fn with_home(argv: &[&str]) -> Program {
    Program { env: vec![("HOME".into(), HOME.into())], ..program(argv) }
}

#[test]
fn pause_stops_a_box_that_forks_constantly() {
    let fixture = Fixture::new();
    let sandbox = fixture.start(&fixture.request());
    let busy = "while :; do /bin/true; done";
    let busy: Vec<_> = (0..4).map(|_| sandbox.spawn(&["sh", "-c", busy])).collect();
    for _ in 0..20 {
        drop(sandbox.channel.pause().unwrap());
    }
    for process in busy {
        assert!(!process.is_over());
        process.signal(9).unwrap();
    }
}

#[test]
fn exec_above_64_processes_is_refused_until_one_ends() {
    let fixture = Fixture::new();
    let sandbox = fixture.start(&fixture.request());
    let mut processes: Vec<_> = (0..64).map(|_| sandbox.spawn(&["sleep", "1000"])).collect();
    let refused = sandbox.channel.exec(&program(&["true"])).unwrap_err();
    assert!(matches!(refused, ExecError::Refused { .. }), "{refused}");
    let leaving = processes.pop().unwrap();
    leaving.signal(9).unwrap();
    leaving.wait().unwrap();
    assert_eq!(sandbox.run(&["true"]).exit, Some(0));
}
