//! `belljar run` on a terminal: a shell in a box behaves like a shell on the host.

use belljar_testkit::{Lab, ProcessTree, Terminal};

use crate::lab;

const CTRL_C: &str = "\x03";
const CTRL_D: &str = "\x04";
const CTRL_Z: &str = "\x1a";

/// Starts a shell in a box on a terminal of 30 rows and 100 columns, with the prompt `<prompt>`.
fn shell(lab: &Lab) -> Terminal {
    let program = lab.belljar(["run", "--", "bash", "--norc"]).env("TERM", "xterm-256color");
    let mut terminal = Terminal::start(program, 30, 100);
    // The terminal echoes its input, so the typed command must not contain the expected output.
    terminal.type_keys("PS1='<pro''mpt>'\r");
    terminal.wait_for("<prompt>");
    terminal
}

/// Runs one command in the shell and returns its output.
#[track_caller]
fn run_command(terminal: &mut Terminal, command: &str) -> String {
    terminal.type_keys(&format!("{command}\r"));
    terminal.wait_for("\r\n"); // the end of the echo
    let output = terminal.wait_for("<prompt>").replace("\r\n", "\n");
    let visible = output.replace("\x1b[?2004l", "").replace("\x1b[?2004h", "").replace('\r', "");
    visible.trim_end().to_owned()
}

#[test]
fn shell_in_a_box_has_its_own_terminal_of_the_callers_size() {
    let lab = lab();
    let mut terminal = shell(&lab);
    assert_eq!(run_command(&mut terminal, "tty"), "/dev/pts/0");
    assert_eq!(run_command(&mut terminal, "stty size"), "30 100");
    assert_eq!(run_command(&mut terminal, "echo $TERM"), "xterm-256color");
    assert_eq!(run_command(&mut terminal, "ls /dev/pts"), "0  ptmx");
    assert_eq!(run_command(&mut terminal, "echo > /dev/tty && echo $?"), "\n0");
    terminal.type_keys("exit 3\r");
    assert_eq!(terminal.end().0.code(), Some(3));
}

#[test]
fn shell_in_a_box_has_job_control() {
    let lab = lab();
    let mut terminal = shell(&lab);
    assert!(run_command(&mut terminal, "sleep 1000 &").starts_with("[1] "));
    assert!(run_command(&mut terminal, "jobs").starts_with("[1]+  Running"));
    assert!(run_command(&mut terminal, "kill %1; wait %1; echo $?").ends_with("143"));
    // A background job must not read the keyboard.
    run_command(&mut terminal, "cat &");
    assert!(run_command(&mut terminal, "wait %1; jobs").contains("Stopped"));
    continue_cat(&mut terminal);
    terminal.type_keys(CTRL_Z);
    assert!(terminal.wait_for("<prompt>").contains("Stopped"));
    continue_cat(&mut terminal);
    terminal.type_keys(CTRL_C);
    terminal.wait_for("<prompt>");
    assert_eq!(run_command(&mut terminal, "echo $?; jobs"), "130");
    terminal.type_keys(CTRL_D);
    assert_eq!(terminal.end().0.code(), Some(0));
}

/// Continues a stopped `cat` in the foreground and waits until it echoes a line.
fn continue_cat(terminal: &mut Terminal) {
    terminal.type_keys("fg\r");
    terminal.wait_for("cat\r\n");
    terminal.type_keys("ping\r");
    terminal.wait_for("ping\r\nping\r\n");
}

#[test]
fn terminal_resize_reaches_programs_in_the_box() {
    let lab = lab();
    let mut terminal = shell(&lab);
    terminal.type_keys(
        "python3 -qc 'import os, signal
signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGWINCH]); print(\"wai\" + \"ting\", flush=True)
signal.sigwait([signal.SIGWINCH]); print(os.get_terminal_size())'\r",
    );
    terminal.wait_for("waiting");
    terminal.resize(41, 132);
    terminal.wait_for("columns=132, lines=41");
    terminal.wait_for("<prompt>");
    assert_eq!(run_command(&mut terminal, "stty size"), "41 132");
}

#[test]
fn control_keys_send_signals_or_end_of_input_to_the_program() {
    let lab = lab();
    for (keys, code) in [(CTRL_C, Some(130)), (CTRL_D, Some(0)), ("\x1c", Some(131))] {
        let mut terminal = Terminal::start(lab.bash("echo rea''dy; exec cat"), 24, 80);
        terminal.wait_for("ready\r\n"); // a key that is typed earlier reaches no process
        terminal.type_keys("there and back\r");
        terminal.wait_for("there and back\r\nthere and back\r\n");
        terminal.type_keys(keys);
        assert_eq!(terminal.end().0.code(), code, "{keys:?}");
    }
}

#[test]
fn run_restores_the_terminal_settings_after_the_program_ends() {
    let lab = lab();
    for script in ["stty raw -echo; exit 0", "stty raw -echo; kill -9 $$", "no-such-program"] {
        // The script waits for a key before and after the box, so that the settings can be read.
        let both = format!(r#"stty -g; read; "$BELLJAR" run -- bash -c '{script}'; stty -g; read"#);
        let mut terminal = Terminal::start(lab.program("bash").args(["-c", &both]), 24, 80);
        let before = terminal.wait_for("\r\n");
        let settings = terminal.settings();
        terminal.type_keys("\r");
        let rest = loop {
            let line = terminal.wait_for("\r\n");
            if line.contains(&before) {
                break line;
            }
        };
        assert_eq!(rest, before, "{script}");
        assert_eq!(terminal.settings().local_modes, settings.local_modes, "{script}");
        assert_eq!(terminal.settings().input_modes, settings.input_modes, "{script}");
        assert_eq!(terminal.settings().output_modes, settings.output_modes, "{script}");
        terminal.type_keys("\r");
        terminal.end();
    }
}

#[test]
fn run_passes_colours_and_removes_clipboard_sequences() {
    let lab = lab();
    let script = r"printf 'a\e[31mred\e[0m\e]52;c;ZXZpbA==\ab\e]0;title\ac\n'";
    for tty in ["--tty", "--no-tty"] {
        let program = lab.belljar(["run", tty, "--", "bash", "-c", script]);
        let (status, screen) = Terminal::start(program, 24, 80).end();
        assert_eq!(status.code(), Some(0));
        let screen = String::from_utf8(screen).unwrap();
        assert_eq!(screen, "a\x1b[31mred\x1b[0mb\x1b]0;title\x07c\r\n", "{tty}");
    }
}

#[test]
fn run_tty_options_force_or_disable_a_terminal() {
    let lab = lab();
    let script = "tty; [ -t 1 ] || echo pipe";
    let program = lab.belljar(["run", "--no-tty", "--", "bash", "-c", script]);
    assert!(Terminal::start(program, 24, 80).end().1.ends_with(b"pipe\r\n"));
    let program = lab.belljar(["run", "--tty", "--", "tty"]);
    assert_eq!(program.succeed().trim_end(), "/dev/pts/0");
}

#[test]
fn run_writes_all_terminal_output_before_it_exits() {
    let lab = lab();
    let program = lab.belljar(["run", "--", "seq", "20000"]);
    let (status, screen) = Terminal::start(program, 24, 80).end();
    assert_eq!(status.code(), Some(0));
    let expect: String = (1..=20000).map(|n| format!("{n}\r\n")).collect();
    assert!(screen == expect.as_bytes(), "{} bytes", screen.len());
}

#[test]
fn closing_the_terminal_ends_all_processes_of_the_box() {
    let lab = lab();
    let mut terminal = Terminal::start(
        lab.belljar(["run", "--", "bash", "-c", "echo rea''dy; sleep 1000"]),
        24,
        80,
    );
    terminal.wait_for("ready");
    let family = ProcessTree::watch(terminal.pid());
    terminal.close_terminal();
    assert!(family.wait_until_gone() >= 2);
}
