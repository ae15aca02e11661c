//! `belljar attach` at real terminals: the screen of a box for one or several viewers.

use std::fs;
use std::num::NonZeroU16;

use belljar_testkit::{Lab, Terminal, eventually};
use rustix::process::{Pid, Signal};

use super::{descendant_pid, state, status, supervisor_pid};
use crate::lab;

const CTRL_C: &str = "\x03";
/// Ctrl-], the default key that detaches.
const DETACH: &str = "\x1d";

/// A `belljar attach` process with its own terminal.
struct Viewer {
    terminal: Terminal,
    rows: u16,
    columns: u16,
}

impl Viewer {
    fn attach(lab: &Lab, name: &str, rows: u16, columns: u16) -> Self {
        Self::with(lab, &["attach", name], rows, columns)
    }

    fn with(lab: &Lab, args: &[&str], rows: u16, columns: u16) -> Self {
        let program = lab.belljar(args).env("TERM", "xterm-256color");
        Self { terminal: Terminal::start(program, rows, columns), rows, columns }
    }

    /// Returns the screen of the viewer's terminal.
    fn screen(&mut self) -> vt100::Screen {
        let size = |count| NonZeroU16::new(count).expect("a size");
        let mut shown = vt100::Parser::new(size(self.rows), size(self.columns), 0);
        shown.process(self.terminal.read_available());
        shown.screen().clone()
    }

    /// Waits until the screen contains a text.
    #[track_caller]
    fn shows(&mut self, text: &str) {
        let mut last = String::new();
        eventually(&format!("the screen shows {text:?}"), || {
            last = self.screen().contents();
            last.contains(text)
        });
    }

    /// Types a command in the shell of the box and waits until the screen shows its output.
    ///
    /// Two single quotes inside a word of the command keep the typed text different from the output.
    #[track_caller]
    fn runs(&mut self, command: &str, output: &str) {
        self.terminal.type_keys(&format!("{command}\r"));
        self.shows(output);
    }

    /// Waits until the terminal of the box has a size, given as rows and columns.
    #[track_caller]
    fn has_size(&mut self, size: &str) {
        let wait = format!("clear; until [ \"$(stty size)\" = '{size}' ]; do sleep 0.1; done");
        let output = format!("it is {size}");
        self.runs(&format!("{wait}; echo it i''s {size}"), &output);
    }

    /// Types the detach key and returns all output, after checking that the command succeeded.
    #[track_caller]
    fn detaches(mut self) -> String {
        self.terminal.type_keys(DETACH);
        let (status, all) = self.terminal.end();
        let all = String::from_utf8_lossy(&all).into_owned();
        assert_eq!(status.code(), Some(0), "{all:?}");
        assert!(all.contains("connects again"), "{all:?}");
        all
    }
}

/// Creates a box whose program is an interactive shell.
fn up_with_shell(lab: &Lab, name: &str) {
    lab.belljar(["up", name, "--", "bash", "--norc"]).succeed();
}

#[test]
fn attach_restores_screen_colours_and_cursor_after_detach() {
    let lab = lab();
    up_with_shell(&lab, "task");
    let mut first = Viewer::attach(&lab, "task", 24, 80);
    first.runs("PS1='<pro''mpt>'", "<prompt>");
    first.runs(r"printf '\e[2J\e[5;7H\e[1;31mred\e[0m and pla''in\e[10;3H'", "red and plain");
    first.runs("echo la''st", "last");
    let before = first.screen();
    let output = first.detaches();
    assert!(output.contains("detached from box task"), "{output:?}");
    assert_eq!(state(&lab, "task"), "running");

    let mut again = Viewer::attach(&lab, "task", 24, 80);
    again.shows("last");
    let after = again.screen();
    assert_eq!(after.contents_formatted(), before.contents_formatted());
    assert_eq!(after.cursor_position(), before.cursor_position());
    assert_eq!(after.bracketed_paste(), before.bracketed_paste());
    again.runs("echo still he''re", "still here");
    again.detaches();
}

#[test]
fn box_terminal_has_the_size_of_the_smallest_attached_viewer() {
    let lab = lab();
    up_with_shell(&lab, "task");
    let mut large = Viewer::attach(&lab, "task", 30, 100);
    large.runs("stty size", "30 100");
    let mut small = Viewer::attach(&lab, "task", 20, 60);
    small.runs("stty size", "20 60");
    large.shows("20 60");
    small.runs("echo from the sm''all one", "from the small one");
    large.shows("from the small one");
    large.runs("echo from the la''rge one", "from the large one");
    small.shows("from the large one");
    small.detaches();
    large.has_size("30 100");
    // The user makes the window smaller.
    large.terminal.resize(10, 40);
    (large.rows, large.columns) = (10, 40);
    large.has_size("10 40");
    large.detaches();
}

#[test]
fn attach_read_only_ignores_typed_keys() {
    let lab = lab();
    up_with_shell(&lab, "task");
    let mut typist = Viewer::attach(&lab, "task", 24, 80);
    let mut watcher = Viewer::with(&lab, &["attach", "task", "--read-only"], 24, 80);
    typist.runs("echo se''en", "seen");
    watcher.shows("seen");
    watcher.terminal.type_keys("echo ty''ped\r");
    watcher.terminal.type_keys(CTRL_C);
    typist.runs("echo aft''er", "after");
    watcher.shows("after");
    assert!(!watcher.screen().contents().contains("typed"));
    watcher.detaches();
    typist.detaches();
}

#[test]
fn attach_passes_keys_to_the_program_until_the_detach_keys_are_typed() {
    let lab = lab();
    up_with_shell(&lab, "task");
    let keys = ["attach", "task", "--detach-keys", "ctrl-p,ctrl-q"];
    let mut viewer = Viewer::with(&lab, &keys, 24, 80);
    viewer.runs(r"PS1='<\#>'", "<2>");
    viewer.runs("echo rea''dy; cat", "ready");
    viewer.runs("there and ba''ck", "there and ba''ck\nthere and ba''ck"); // cat reads the keyboard
    viewer.terminal.type_keys(CTRL_C);
    viewer.shows("<3>"); // keys before the prompt would be discarded
    viewer.runs("echo sta''tus $?", "status 130");
    // The default detach key and an incomplete sequence of detach keys reach the program.
    viewer.terminal.type_keys("\x16\x1d");
    viewer.shows("^]");
    viewer.terminal.type_keys("\x10");
    viewer.terminal.type_keys("\x10\x11");
    assert_eq!(viewer.terminal.end().0.code(), Some(0));
    lab.belljar(["attach", "task", "--detach-keys", "escape"]).run().fails_with(2, "detach-keys");
}

#[test]
fn attach_returns_the_exit_code_of_the_box_and_restores_the_terminal() {
    let lab = lab();
    up_with_shell(&lab, "task");
    let script = r#"stty -g; "$BELLJAR" attach task; echo "code $?"; stty -g; read"#;
    let mut terminal = Terminal::start(lab.program("bash").args(["-c", script]), 24, 80);
    let before = terminal.wait_for("\r\n");
    terminal.wait_for("\x1b[?1049h");
    terminal.type_keys("exit 3\r");
    terminal.wait_for("\x1b[?1049l");
    terminal.wait_for("box task stopped");
    terminal.wait_for("code 3\r\n");
    assert_eq!(terminal.wait_for("\r\n"), before, "the settings of the terminal");
    terminal.type_keys("\r");
    terminal.end();
    lab.belljar(["attach", "task"]).run().fails_with(2, "attach needs a terminal");
    let refused = Viewer::attach(&lab, "task", 24, 80).terminal.end();
    assert_eq!(refused.0.code(), Some(2));
    assert!(String::from_utf8_lossy(&refused.1).contains("belljar start task"));
}

#[test]
fn attach_refuses_a_box_without_a_terminal() {
    let lab = lab();
    lab.belljar(["up", "task", "--no-tty", "--", "sleep", "1000"]).succeed();
    let (status, output) = Viewer::attach(&lab, "task", 24, 80).terminal.end();
    assert_eq!(status.code(), Some(2));
    assert!(String::from_utf8_lossy(&output).contains("no terminal"));
}

#[test]
fn d18_attach_and_logs_send_no_hostile_control_sequences_to_the_terminal() {
    let lab = lab();
    let hostile = r"printf 'a\e]52;c;ZXZpbA==\ab\e[21t\eP$q\e\\c\e]0;evil\a\x9b21t\e[6n\e[>c\e_G\e\\\e[?1004h'";
    let script = format!("{hostile}; echo do''ne; exec sleep 1000");
    lab.belljar(["up", "task", "--", "bash", "-c", &script]).succeed();
    let mut viewer = Viewer::attach(&lab, "task", 24, 80);
    viewer.shows("done");
    let all = viewer.terminal.read_available().to_vec();
    let has = |needle: &[u8]| all.windows(needle.len()).any(|window| window == needle);
    for needle in [&b"\x1b]"[..], b"\x1bP", b"\x1b_", b"\x9b", b"[6n", b"[>c", b"[21t", b"1004"] {
        assert!(
            !has(needle),
            "{:?} in {:?}",
            needle.escape_ascii().to_string(),
            all.escape_ascii().to_string()
        );
    }
    viewer.detaches();
    // Control: the box wrote the control sequences to its log.
    let log = fs::read(lab.state().join("boxes/task/output.log")).unwrap();
    assert!(log.windows(4).any(|window| window == b"]52;"), "the log has the sequence");
    let shown = lab.belljar(["logs", "task"]);
    let (_, shown) = Terminal::start(shown, 24, 80).end();
    assert!(
        !shown.windows(4).any(|window| window == b"]52;"),
        "`belljar logs` removes the sequence on a terminal"
    );
}

#[test]
fn terminal_queries_of_a_program_are_answered_without_a_viewer() {
    let lab = lab();
    let script = r#"
import os, sys, termios, tty
tty.setraw(0)
sys.stdout.write("\x1b[3;5H\x1b[6n\x1b[c"); sys.stdout.flush()
got = b""
while not (got.count(b"R") and got.endswith(b"c")): got += os.read(0, 100)
print("answer", repr(got), flush=True)
os.read(0, 1)
"#;
    lab.belljar(["up", "task", "--", "python3", "-c", script]).succeed();
    let log = lab.state().join("boxes/task/output.log");
    eventually("the program received the cursor position", || {
        fs::read_to_string(&log).is_ok_and(|text| text.contains(r"\x1b[3;5R"))
    });
}

#[test]
fn d16_stopped_viewer_does_not_block_the_box_or_other_viewers() {
    let lab = lab();
    let script = "read; yes 'some words that are repeated' | head -c 100000000; echo do''ne; exec sleep 1000";
    lab.belljar(["up", "task", "--", "bash", "-c", script]).succeed();
    let mut stopped = Viewer::attach(&lab, "task", 24, 80);
    let mut awake = Viewer::attach(&lab, "task", 24, 80);
    awake.terminal.type_keys("x");
    stopped.shows("x");
    let pid = Pid::from_raw(stopped.terminal.pid()).unwrap();
    rustix::process::kill_process(pid, Signal::STOP).unwrap();
    awake.terminal.type_keys("\r");
    awake.shows("done");
    assert_eq!(state(&lab, "task"), "running", "the supervisor answers other commands");
    rustix::process::kill_process(pid, Signal::CONT).unwrap();
    stopped.shows("done");
    assert_eq!(stopped.screen().contents(), awake.screen().contents());
    let kept: u64 = ["output.log", "output.log.1"]
        .iter()
        .filter_map(|name| fs::metadata(lab.state().join("boxes/task").join(name)).ok())
        .map(|meta| meta.len())
        .sum();
    assert!(kept < 10 << 20, "the log is bounded: {kept}");
}

#[test]
fn d16_program_that_reads_no_input_does_not_block_viewers_or_stop() {
    let lab = lab();
    let script = "stty raw -echo; echo rea''dy; exec sleep 1000";
    lab.belljar(["up", "task", "--", "bash", "-c", script]).succeed();
    let mut viewer = Viewer::attach(&lab, "task", 24, 80);
    viewer.shows("ready");
    for _ in 0..64 {
        viewer.terminal.type_keys(&"k".repeat(8192));
    }
    let mut other = Viewer::attach(&lab, "task", 24, 80);
    other.shows("ready");
    other.detaches();
    viewer.detaches();
    lab.belljar(["stop", "--now", "task"]).succeed();
    assert_eq!(state(&lab, "task"), "stopped");
}

#[test]
fn killed_viewer_does_not_affect_the_box_or_later_viewers() {
    let lab = lab();
    up_with_shell(&lab, "task");
    let mut one = Viewer::attach(&lab, "task", 20, 60);
    one.runs("echo he''re", "here");
    let pid = Pid::from_raw(one.terminal.pid()).unwrap();
    rustix::process::kill_process(pid, Signal::KILL).unwrap();
    one.terminal.end();
    let mut two = Viewer::attach(&lab, "task", 30, 100);
    two.has_size("30 100");
    // Closing the window of a viewer has the same effect.
    two.terminal.close_terminal();
    let mut three = Viewer::attach(&lab, "task", 25, 90);
    three.has_size("25 90");
    three.detaches();
}

#[test]
fn killed_screen_process_is_replaced_while_the_box_keeps_running() {
    let lab = lab();
    up_with_shell(&lab, "task");
    let mut viewer = Viewer::attach(&lab, "task", 24, 80);
    viewer.runs("echo bef''ore", "before");
    let screen = descendant_pid(supervisor_pid(&lab, "task"), "belljar-screen");
    rustix::process::kill_process(Pid::from_raw(screen).unwrap(), Signal::KILL).unwrap();
    // Output that the box wrote in that moment is lost on the screen, but not in the log.
    eventually("a new screen process shows output", || {
        viewer.terminal.type_keys("echo aft''er\r");
        viewer.screen().contents().contains("after")
    });
    assert_ne!(descendant_pid(supervisor_pid(&lab, "task"), "belljar-screen"), screen);
    viewer.detaches();
}

#[test]
fn a33_screen_process_has_no_capabilities_and_a_seccomp_filter() {
    let lab = lab();
    up_with_shell(&lab, "task");
    let mut viewer = Viewer::attach(&lab, "task", 24, 80);
    viewer.runs("echo he''re", "here"); // the screen process serves viewers, so its lockdown is complete
    let screen = descendant_pid(supervisor_pid(&lab, "task"), "belljar-screen");
    let status = fs::read_to_string(format!("/proc/{screen}/status")).unwrap();
    let field = |name: &str| {
        let line = status.lines().find_map(|line| line.strip_prefix(name)).expect(name);
        line.trim_start_matches(':').split_whitespace().map(str::to_owned).collect::<Vec<_>>()
    };
    for set in ["CapInh", "CapPrm", "CapEff", "CapAmb"] {
        assert_eq!(field(set), ["0000000000000000"], "{set}");
    }
    assert_eq!(field("NoNewPrivs"), ["1"]);
    assert_eq!(field("Seccomp"), ["2"]);
    if belljar_testkit::is_root() {
        assert!(field("Uid").iter().all(|uid| uid.parse::<u32>().unwrap() >> 24 == 0x71));
    }
    viewer.detaches();
}

#[test]
fn attach_scrolls_back_to_earlier_lines_with_alt_page_up() {
    let lab = lab();
    up_with_shell(&lab, "task");
    let mut viewer = Viewer::attach(&lab, "task", 24, 80);
    viewer.runs("seq -f 'line %''g' 200", "line 200");
    assert!(!viewer.screen().contents().contains("line 150\n"));
    for _ in 0..4 {
        viewer.terminal.type_keys("\x1b[5;3~"); // Alt and Page Up
        viewer.shows("/"); // the mark of the scroll position
    }
    viewer.shows("line 150\n");
    viewer.runs("echo ba''ck", "back");
    assert!(!viewer.screen().contents().contains("line 150\n"));
    viewer.detaches();
}

#[test]
fn attach_works_inside_tmux_with_full_screen_programs_and_resize() {
    let lab = lab();
    up_with_shell(&lab, "task");
    let socket = lab.dir().join("tmux");
    let tmux = |args: &[&str]| {
        lab.program("tmux").arg("-S").arg(&socket).args(["-f", "/dev/null"]).args(args)
    };
    let shown = || tmux(&["capture-pane", "-p", "-t", "s"]).succeed();
    let sees = |text: &str| {
        eventually(&format!("tmux shows {text:?}"), || shown().contains(text));
    };
    tmux(&["new-session", "-d", "-s", "s", "-x", "90", "-y", "30", "bash", "--norc"]).succeed();
    let types = |keys: &str| drop(tmux(&["send-keys", "-t", "s", "-l", keys]).succeed());
    let key = |name: &str| drop(tmux(&["send-keys", "-t", "s", name]).succeed());
    types(r#"PS1='out''side>'; "$BELLJAR" attach task"#);
    key("Enter");
    sees("bash-");
    types("PS1='ins''ide>'; stty size");
    key("Enter");
    sees("30 90\ninside>");
    types(r"printf '\e[?1049h\e[2J\e[3;3H\e[44mfull scr''een\e[0m'; read; printf '\e[?1049l'");
    key("Enter");
    sees("\n\n  full screen");
    key("C-]");
    sees("detached from box task");
    types(r#""$BELLJAR" attach task"#);
    key("Enter");
    sees("\n\n  full screen");
    tmux(&["resize-window", "-t", "s", "-x", "70", "-y", "20"]).succeed();
    key("Enter");
    types("until [ \"$(stty size)\" = '20 70' ]; do sleep 0.1; done; echo it fi''ts");
    key("Enter");
    sees("it fits");
    key("C-]");
    sees("outside>");
    tmux(&["kill-server"]).succeed();
    assert_eq!(status(&lab, "task")["state"], "running");
}
