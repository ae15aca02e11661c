//! `belljar watch` on real terminals of 80 and 120 columns.

use std::num::NonZeroU16;

use belljar_testkit::{Terminal, eventually_shows};

use super::{WAIT, release, show, submit, wait_for_program};
use crate::lab;

/// A `belljar watch` process and its terminal.
struct Watch {
    terminal: Terminal,
    columns: u16,
}

const ROWS: u16 = 10;

impl Watch {
    fn start(lab: &belljar_testkit::Lab, run: &str, columns: u16) -> Self {
        let program =
            lab.belljar(["watch", run]).env("TERM", "xterm-256color").env("NO_COLOR", "1");
        Self { terminal: Terminal::start(program, ROWS, columns), columns }
    }

    /// Returns the text on the screen. Durations and ids are replaced.
    fn screen(&mut self) -> String {
        let size = |count| NonZeroU16::new(count).expect("a size");
        let mut shown = vt100::Parser::new(size(ROWS), size(self.columns), 0);
        shown.process(self.terminal.read_available());
        shown.screen().contents()
    }

    #[track_caller]
    fn shows(&mut self, text: &str) -> String {
        let expected = format!("the screen shows {text:?}");
        eventually_shows(&expected, || self.screen(), |page| page.contains(text));
        self.screen()
    }
}

/// Replaces durations such as `12s` by `[T]`, with the spaces before them.
fn without_durations(page: &str) -> String {
    let is_duration = |word: &str| {
        let number = word.strip_suffix('s').unwrap_or("x");
        !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit() || byte == b'm')
    };
    let line = |line: &str| {
        let mut out = String::new();
        for (place, word) in line.split(' ').enumerate() {
            match is_duration(word) {
                true => {
                    out.truncate(out.trim_end().len());
                    out.push_str(" [T]");
                }
                false => {
                    out.push_str(if place == 0 { "" } else { " " });
                    out.push_str(word);
                }
            }
        }
        out
    };
    page.lines().map(line).collect::<Vec<_>>().join("\n")
}

/// The second line of the task `fix` clears the screen and sets the title of a terminal.
const PLAN: &str = r#"
    [run]
    budget = { boxes = 2, time = "1h" }
    [task.triage]
    do = { stub = { severity = "high" } }
    [task.fix]
    do.command = ["sh", "-c", 'echo waiting >&2; printf "\033[2J\033]0;owned\007hidden\n" >&2; until [ -e /run/task/in/go ]; do sleep 0.02; done; cat']
    data = ["triage"]
    [task.broken]
    do.command = ["sh", "-c", "echo cannot compile >&2; exit 3"]
    [task.check-the-whole-result]
    do.command = ["cat"]
    data = ["fix"]
"#;

#[test]
fn f13_watch_at_80_and_120_columns_shows_the_tasks_and_no_escape_sequence_of_a_task() {
    const TITLE: &str = "\x1b]0;owned";
    let lab = lab();
    let run = submit(&lab, "fix-login.toml", PLAN);
    let box_run = wait_for_program(&lab, &run, "fix");
    for columns in [80, 120] {
        let mut watch = Watch::start(&lab, &run, columns);
        watch.shows("exit status 3");
        watch.shows("]0;owned");
        watch.terminal.type_keys("j");
        let page = watch.shows("> ▶ fix").replace(&run, "[RUN]");
        insta::assert_snapshot!(format!("watch_{columns}"), without_durations(&page));
        assert!(!watch.terminal.text().contains(TITLE));
        watch.terminal.type_keys("\r");
        watch.shows("press any key to return");
        assert!(!watch.terminal.text().contains(TITLE));
        watch.terminal.type_keys(" ");
        watch.shows("> ▶ fix");
        watch.terminal.type_keys("q");
        let (status, all) = watch.terminal.end();
        assert_eq!(status.code(), Some(0));
        assert!(String::from_utf8_lossy(&all).contains("the run continues"));
    }
    let log = lab.belljar(["logs", "--raw", &format!("{run}/fix")]);
    assert!(log.succeed().contains(TITLE), "control: the log has the sequence");
    let mut watch = Watch::start(&lab, &run, 80);
    watch.shows("]0;owned");
    release(&lab, &run, &box_run);
    let (status, screen) = watch.terminal.end();
    let screen = String::from_utf8_lossy(&screen).into_owned();
    assert_eq!(status.code(), Some(1), "{screen}");
    let (_, after) = screen.rsplit_once("\x1b[?1049l").unwrap();
    assert!(after.contains("fix-login  failed in "), "{after}");
    assert!(after.contains("✓ check-the-whole-res…"), "{after}");
}

#[test]
fn watch_cancels_the_selected_task_after_a_confirmation() {
    let lab = lab();
    let plan = format!(
        "[run]\nanswer = 'b'\n[task.a]\ndo.command = ['sh', '-c', '{WAIT}']\n[task.b]\ndo.command = ['sh', '-c', '{WAIT}']\n"
    );
    let run = submit(&lab, "two.toml", &plan);
    let boxes = ["a", "b"].map(|task| wait_for_program(&lab, &run, task));
    let mut watch = Watch::start(&lab, &run, 80);
    watch.shows("> ▶ a");
    watch.terminal.type_keys("c");
    watch.shows("y confirms");
    watch.terminal.type_keys("n");
    watch.shows("q leave");
    assert_eq!(show(&lab, &format!("{run}/a"))["state"], "running");
    watch.terminal.type_keys("cy");
    watch.shows("> ✗ a");
    release(&lab, &run, &boxes[1]);
    assert_eq!(watch.terminal.end().0.code(), Some(0), "the answer of the run is done");
    assert_eq!(show(&lab, &format!("{run}/a"))["state"], "cancelled");
}
