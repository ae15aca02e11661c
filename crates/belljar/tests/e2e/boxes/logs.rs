//! `belljar logs`: stored and followed output of a box.

use belljar_testkit::Terminal;

use super::up;
use crate::lab;

#[test]
fn logs_prints_the_output_of_a_stopped_box_and_tail_limits_it() {
    let lab = lab();
    up(&lab, "task", "echo one; echo two >&2");
    let log = lab.belljar(["logs", "task"]).succeed();
    assert_eq!(log, "one\ntwo\nready");
    assert_eq!(lab.belljar(["logs", "task", "--tail", "2"]).succeed(), "two\nready");
    let raw = lab.belljar(["logs", "task", "--raw"]).succeed();
    assert_eq!(raw, "one\r\ntwo\r\nready\r");
    assert_eq!(lab.belljar(["logs", "task", "--tail", "0"]).succeed(), "");
    lab.belljar(["stop", "--now", "task"]).succeed();
    assert_eq!(lab.belljar(["logs", "task", "--follow"]).succeed(), raw);
    lab.belljar(["logs", "none"]).run().fails_with(2, "there is no box none");
}

#[test]
fn logs_follow_prints_all_output_until_the_box_ends() {
    let lab = lab();
    let script = "echo first; read; seq 200000; echo last";
    lab.belljar(["up", "task", "--", "bash", "-c", script]).succeed();
    let follower = lab.belljar(["logs", "task", "--follow"]).start();
    follower.wait_for_output("first");
    // The program waits for a key, which an attached viewer types.
    let mut viewer = Terminal::start(lab.belljar(["attach", "task"]), 24, 80);
    viewer.type_keys("\r");
    let ended = follower.wait();
    let output = ended.expect(0);
    assert!(output.ends_with("199999\r\n200000\r\nlast\r"), "{}", &output[output.len() - 100..]);
    assert_eq!(output.matches("\r\n123456\r\n").count(), 1);
    viewer.end();
}

/// A full-screen program in Python. It enters the alternate screen, switches the mouse on, asks the terminal
/// three questions, draws at the size of its terminal, and leaves everything on.
const FULL_SCREEN: &str = r#"
import os, sys, time, tty
print("before", flush=True)
tty.setraw(0)
sys.stdout.write("\x1b[?1049h\x1b[?1000h\x1b[?1006h\x1b[?2004h\x1b[>1u\x1b[6n\x1b[c\x1b]11;?\x07\x1b[H")
sys.stdout.write("\x1b[20;70Hcorner\x1b[1;1H\x1b[31mmenu\x1b[m\x1b]0;ready\x07")
sys.stdout.flush()
time.sleep(1000)
"#;

#[test]
fn logs_of_a_full_screen_program_leave_the_modes_of_the_terminal_unchanged() {
    let lab = lab();
    lab.belljar(["up", "task", "--", "python3", "-c", FULL_SCREEN]).succeed();
    let recorded = || lab.belljar(["logs", "task", "--raw"]).succeed();
    let has = |text: &[u8], part: &str| text.windows(part.len()).any(|it| it == part.as_bytes());
    belljar_testkit::eventually("the program has drawn", || recorded().contains("]0;ready"));
    for args in [&["logs", "task"][..], &["logs", "task", "--tail", "50"]] {
        let (status, shown) = Terminal::start(lab.belljar(args), 24, 80).end();
        assert!(status.success());
        let text = String::from_utf8(shown).unwrap();
        assert!(
            text.contains("before") && text.contains("menu") && text.contains("corner"),
            "{text}"
        );
        assert!(text.contains("\x1b[31mmenu"), "a terminal gets colours: {text:?}");
        let sequences = text.split('\x1b').skip(1);
        for sequence in sequences {
            let is_colour =
                sequence.trim_start_matches(|it: char| "[;".contains(it) || it.is_ascii_digit());
            assert!(is_colour.starts_with('m'), "{sequence:?} of {text:?}");
        }
    }
    // A pipe gets text without colours. Control: the recorded bytes have the sequences.
    let piped = lab.belljar(["logs", "task"]).succeed();
    assert!(piped.starts_with("before\nmenu\n") && piped.ends_with("corner"), "{piped:?}");
    for sequence in ["\x1b[?1049h", "\x1b[?1000h", "\x1b[6n", "\x1b]11;?"] {
        assert!(recorded().contains(sequence), "{sequence:?}");
    }
    let (status, refused) = Terminal::start(lab.belljar(["logs", "task", "--raw"]), 24, 80).end();
    assert_eq!(status.code(), Some(2));
    assert!(has(&refused, "--raw > FILE"), "{}", String::from_utf8_lossy(&refused));
    // The output that follows is filtered as well, until the box ends.
    let mut follower = Terminal::start(lab.belljar(["logs", "task", "--follow"]), 24, 80);
    follower.wait_for("corner");
    lab.belljar(["stop", "--now", "task"]).succeed();
    let (_, followed) = follower.end();
    assert!(!has(&followed, "\x1b[?") && !has(&followed, "\x1b[6n"), "{followed:?}");
    lab.belljar(["down", "task"]).succeed();
}

#[test]
fn logs_are_drawn_at_the_size_that_an_attached_terminal_gave_to_the_program() {
    let lab = lab();
    let script = r#"
import os, signal, sys, time
def draw(*_):
    columns, rows = os.get_terminal_size()
    sys.stdout.write(f"\x1b[?1049h\x1b[{rows};1H" + "x" * columns + f"\x1b[1;1H{rows} rows")
    sys.stdout.flush()
signal.signal(signal.SIGWINCH, draw)
draw()
while True: time.sleep(1000)
"#;
    lab.belljar(["up", "task", "--", "python3", "-c", script]).succeed();
    let mut viewer = Terminal::start(lab.belljar(["attach", "task"]), 40, 120);
    viewer.wait_for("40 rows");
    let bar = "x".repeat(120);
    belljar_testkit::eventually("the log has the last picture", || {
        lab.belljar(["logs", "task"]).succeed().lines().any(|line| line == bar)
    });
    lab.belljar(["stop", "--now", "task"]).succeed();
    viewer.end();
    lab.belljar(["down", "task"]).succeed();
}
