//! `belljar exec` and `belljar shell`: streams, exit codes, terminals and ledger events.

use std::fs;

use belljar_testkit::{Terminal, eventually};
use rustix::process::Signal;

use super::{state, up};
use crate::lab;

#[test]
fn exec_runs_a_program_in_the_box_and_returns_its_exit_code() {
    let lab = lab();
    up(&lab, "task", "echo made > mine");
    let exec = |args: &[&str]| lab.belljar(["exec", "task"]).args(args);
    let sh = |script: &str| exec(&["--", "sh", "-c", script]);
    assert_eq!(sh("cat mine; pwd; echo $BELLJAR_RUN | wc -w").succeed(), "made\n/workspace\n1");
    assert_eq!(sh("exit 3").run().code(), 3);
    assert_eq!(sh("kill -9 $$").run().code(), 137);
    let both = sh("echo out; echo err >&2").run();
    assert_eq!((both.out().as_str(), both.err().as_str()), ("out", "err"));
    exec(&["--", "no-such-program"]).run().fails_with(127, "no-such-program");
    exec(&["--", "/etc"]).run().fails_with(126, "/etc");
    let in_tmp = exec(&["--workdir", "/tmp", "--env", "A=b", "--", "sh", "-c", "pwd; echo $A"]);
    assert_eq!(in_tmp.succeed(), "/tmp\nb");
    exec(&["--workdir", "/no-such", "--", "pwd"]).run().fails_with(2, "working directory");
    exec(&[]).run().fails_with(2, "CMD");
    lab.belljar(["exec", "none", "--", "true"]).run().fails_with(2, "there is no box none");
    lab.belljar(["stop", "--now", "task"]).succeed();
    exec(&["--", "true"]).run().fails_with(2, "belljar start task");
}

#[test]
fn shell_opens_a_shell_in_the_box_that_also_reads_piped_commands() {
    let lab = lab();
    up(&lab, "task", "echo made > mine");
    let program = lab.belljar(["shell", "task", "--env", "A=b"]).env("TERM", "xterm");
    let mut terminal = Terminal::start(program, 30, 100);
    terminal.type_keys("cat mine; echo A=$A; exit 5\r");
    terminal.wait_for("made\r\nA=b\r\n");
    assert_eq!(terminal.end().0.code(), Some(5));
    // Without a terminal the shell reads commands from its standard input.
    let piped = lab.belljar(["shell", "task"]).input("pwd").run();
    assert_eq!(piped.expect(0), "/workspace");
}

#[test]
fn exec_passes_20_mb_through_standard_streams_unchanged() {
    let lab = lab();
    up(&lab, "task", "true");
    let bytes: Vec<u8> =
        (0..20_000_000_u32).map(|at| at.wrapping_mul(2_654_435_761).to_le_bytes()[3]).collect();
    let copied = lab.belljar(["exec", "task", "--", "cat"]).input(bytes.clone()).run();
    assert_eq!(copied.code(), 0, "{}", copied.err());
    assert!(copied.stdout == bytes, "received {} bytes", copied.stdout.len());
    // exec waits neither for unread input nor for background processes.
    let unread = lab.belljar(["exec", "task", "--", "head", "-c", "3"]).input(bytes).run();
    assert_eq!(unread.stdout.len(), 3);
    let background =
        lab.belljar(["exec", "task", "--", "sh", "-c", "sleep 1000 & echo done"]).run();
    assert_eq!(background.expect(0), "done");
}

#[test]
fn exec_gives_the_program_a_terminal_when_the_caller_has_one() {
    let lab = lab();
    up(&lab, "task", "true");
    let program = lab.belljar(["exec", "task", "--", "bash", "--norc"]).env("TERM", "xterm");
    let mut terminal = Terminal::start(program, 30, 100);
    terminal.type_keys("PS1='<pro''mpt>'\r");
    terminal.wait_for("<prompt>");
    terminal.type_keys("tty; stty size; echo term=$TERM\r");
    terminal.wait_for("/dev/pts/");
    terminal.wait_for("30 100\r\nterm=xterm\r\n");
    terminal.resize(20, 60);
    terminal.type_keys(
        "until [ \"$(stty size)\" = '20 60' ]; do sleep 0.1; done; echo it fi''ts; cat\r",
    );
    terminal.wait_for("it fits\r\n");
    terminal.type_keys("there and back\r");
    terminal.wait_for("there and back\r\nthere and back\r\n"); // cat reads the keyboard
    terminal.type_keys("\x03");
    terminal.wait_for("<prompt>"); // keys before the prompt would be discarded
    terminal.type_keys("echo code $?\r");
    terminal.wait_for("code 130\r\n");
    terminal.type_keys("printf 'a\\e]52;c;ZXZpbA==\\ab\\n'; exit 5\r");
    terminal.wait_for("ab\r\n");
    let (status, all) = terminal.end();
    assert_eq!(status.code(), Some(5));
    assert!(
        !all.windows(5).any(|window| window == b"\x1b]52;"),
        "the control sequence does not reach the terminal"
    );
    let piped = lab.belljar(["exec", "task", "--tty", "--", "tty"]).succeed();
    assert!(piped.starts_with("/dev/pts/"), "{piped}");
    let declined = lab.belljar(["exec", "task", "--no-tty", "--", "tty"]);
    assert_eq!(Terminal::start(declined, 24, 80).end().0.code(), Some(1));
}

#[test]
fn exec_program_ends_when_its_client_or_its_box_ends() {
    let lab = lab();
    up(&lab, "task", "true");
    let start_waiting = |name: &str| {
        let script = format!(
            "trap 'echo ended > {name}; exit' HUP TERM; echo up; exec >/dev/null 2>&1; while :; do sleep 0.1; done"
        );
        let live = lab.belljar(["exec", "task", "--", "bash", "-c", &script]).start();
        live.wait_for_output("up");
        live
    };
    let has = |name: &str| lab.belljar(["exec", "task", "--", "cat", name]).run().code() == 0;
    let killed = start_waiting("killed");
    killed.signal(Signal::KILL);
    eventually("the program has ended", || has("killed"));
    let terminated = start_waiting("terminated");
    terminated.signal(Signal::TERM);
    assert_eq!(terminated.wait().code(), 0);
    assert!(has("terminated"));
    let last = start_waiting("last");
    lab.belljar(["stop", "--now", "task"]).succeed();
    assert!([125, 137].contains(&last.wait().code()), "exec reports that the box ended");
    assert_eq!(state(&lab, "task"), "stopped");
}

#[test]
fn b16_exec_is_recorded_before_the_start_without_arguments_or_values() {
    let lab = lab();
    up(&lab, "task", "true");
    let secret = "hunter2-in-an-argument";
    let args = ["exec", "task", "--env", "TOKEN=hunter2-in-a-variable", "--", "echo", secret];
    lab.belljar(args).succeed();
    let log = lab.belljar(["ledger", "log", "--json"]).succeed();
    let line = log.lines().find(|line| line.contains("box.exec")).expect("an entry");
    assert!(line.contains("TOKEN"), "{line}");
    assert!(!log.contains("hunter2"), "{log}");
    lab.belljar(["ledger", "verify"]).succeed();
    // Without a ledger exec refuses to start the program.
    let ledger = lab.state().join("ledger");
    let aside = lab.state().join("aside");
    fs::rename(&ledger, &aside).unwrap();
    let refused = lab.belljar(["exec", "task", "--", "touch", "started"]).run();
    assert_eq!(refused.code(), 125, "{}", refused.err());
    fs::remove_dir_all(&ledger).ok();
    fs::rename(&aside, &ledger).unwrap();
    assert_eq!(lab.belljar(["exec", "task", "--", "ls", "started"]).run().code(), 2);
}
