//! The page of all boxes at a real terminal.

use std::num::NonZeroU16;

use belljar_testkit::{Lab, Terminal, eventually_shows};

use super::{state, up};
use crate::lab;

/// A person before the page.
struct Person {
    terminal: Terminal,
}

impl Person {
    fn starts(lab: &Lab) -> Self {
        let program = lab.belljar(["ui"]).env("TERM", "xterm-256color").without_env("NO_COLOR");
        Self { terminal: Terminal::start(program, 24, 80) }
    }

    fn screen(&mut self) -> String {
        let size = |count| NonZeroU16::new(count).expect("a size");
        let mut shown = vt100::Parser::new(size(24), size(80), 0);
        shown.process(self.terminal.look());
        shown.screen().contents()
    }

    #[track_caller]
    fn sees(&mut self, text: &str) {
        let what = format!("the page shows {text:?}");
        eventually_shows(&what, || self.screen(), |page| page.contains(text));
    }
}

#[test]
fn ui_lists_starts_stops_and_attaches_boxes_by_keys() {
    let lab = lab();
    let mut early = Person::starts(&lab);
    early.sees("no boxes");
    up(&lab, "alpha", "echo box > mine");
    up(&lab, "beta", "true");
    lab.belljar(["stop", "--now", "beta"]).succeed();
    early.sees("> alpha");
    early.sees("2 boxes, 1 running");
    early.terminal.types("j");
    early.sees("> beta");
    early.terminal.types("s");
    early.sees("2 running");
    assert_eq!(state(&lab, "beta"), "running");
    early.terminal.types("l");
    early.sees("any key goes back");
    early.terminal.types(" ");
    early.sees("> beta");
    // What ends a box is asked about first.
    early.terminal.types("t");
    early.sees("belljar stop beta? y does it");
    early.terminal.types("n");
    early.sees("enter a attach");
    assert_eq!(state(&lab, "beta"), "running");
    early.terminal.types("ty");
    early.sees("1 running");
    assert_eq!(state(&lab, "beta"), "stopped");
    early.terminal.types("\x1b[A\r");
    // Its screen and nothing else: what was printed before the page can show on the way there.
    let what = "the screen of the box";
    eventually_shows(what, || early.screen(), |page| page.trim() == "ready");
    early.terminal.types("\x1d");
    early.sees("> alpha");
    early.terminal.types("q");
    assert_eq!(early.terminal.end().0.code(), Some(0));
    lab.belljar(["stop", "--now", "alpha"]).succeed();
    let mut late = Person::starts(&lab);
    late.sees("1 to review");
    late.terminal.types("i");
    late.sees("review     waits for review");
    late.terminal.types(" ");
    late.sees("> alpha");
    late.terminal.types("q");
    assert_eq!(late.terminal.end().0.code(), Some(0));
}

#[test]
fn ui_restores_the_terminal_and_respects_no_color() {
    let lab = lab();
    up(&lab, "alpha", "true");
    let script = r#"stty -g; "$BELLJAR" ui; stty -g; read"#;
    let program = || lab.program("bash").args(["-c", script]).env("TERM", "xterm-256color");
    for (program, coloured) in
        [(program().without_env("NO_COLOR"), true), (program().env("NO_COLOR", "1"), false)]
    {
        let mut terminal = Terminal::start(program, 24, 80);
        let before = terminal.sees("\r\n");
        let mut page = terminal.sees("> alpha");
        terminal.types("?");
        page.push_str(&terminal.sees("quit"));
        terminal.types("q");
        page.push_str(&terminal.sees("\x1b[?1049l"));
        assert_eq!(page.contains("\x1b[2m"), coloured, "{page:?}");
        assert_eq!(terminal.sees("\r\n"), before);
        terminal.types("\r");
        terminal.end();
    }
    lab.belljar(["ui"]).run().complains(2, "ui needs a terminal");
}
