//! `belljar ui` at a real terminal.

use std::num::NonZeroU16;

use belljar_testkit::{Lab, Terminal, eventually_shows};

use super::{state, up};
use crate::lab;

/// A `belljar ui` process and its terminal.
struct Ui {
    terminal: Terminal,
}

impl Ui {
    fn start(lab: &Lab) -> Self {
        let program = lab.belljar(["ui"]).env("TERM", "xterm-256color").without_env("NO_COLOR");
        Self { terminal: Terminal::start(program, 24, 80) }
    }

    /// Returns the text on the screen.
    fn screen(&mut self) -> String {
        let size = |count| NonZeroU16::new(count).expect("a size");
        let mut shown = vt100::Parser::new(size(24), size(80), 0);
        shown.process(self.terminal.look());
        shown.screen().contents()
    }

    /// Waits until the screen contains a text.
    #[track_caller]
    fn shows(&mut self, text: &str) {
        let expected = format!("the screen shows {text:?}");
        eventually_shows(&expected, || self.screen(), |page| page.contains(text));
    }
}

#[test]
fn ui_lists_starts_stops_and_attaches_to_boxes_by_keys() {
    let lab = lab();
    let mut ui = Ui::start(&lab);
    ui.shows("no boxes");
    up(&lab, "alpha", "echo box > mine");
    up(&lab, "beta", "true");
    lab.belljar(["stop", "--now", "beta"]).succeed();
    ui.shows("> alpha");
    ui.shows("2 boxes, 1 running");
    ui.terminal.types("j");
    ui.shows("> beta");
    ui.terminal.types("s");
    ui.shows("2 running");
    assert_eq!(state(&lab, "beta"), "running");
    ui.terminal.types("l");
    ui.shows("press any key to return");
    ui.terminal.types(" ");
    ui.shows("> beta");
    // The key that stops a box asks for confirmation.
    ui.terminal.types("t");
    ui.shows("run `belljar stop beta`? press y");
    ui.terminal.types("n");
    ui.shows("enter a attach");
    assert_eq!(state(&lab, "beta"), "running");
    ui.terminal.types("ty");
    ui.shows("1 running");
    assert_eq!(state(&lab, "beta"), "stopped");
    ui.terminal.types("\x1b[A\r");
    // The attached screen shows only the output of the box, nothing of the list.
    let expected = "the screen of the box";
    eventually_shows(expected, || ui.screen(), |page| page.trim() == "ready");
    ui.terminal.types("\x1d");
    ui.shows("> alpha");
    ui.terminal.types("q");
    assert_eq!(ui.terminal.end().0.code(), Some(0));
    lab.belljar(["stop", "--now", "alpha"]).succeed();
    let mut ui = Ui::start(&lab);
    ui.shows("1 to review");
    ui.terminal.types("i");
    ui.shows("review     waits for review");
    ui.terminal.types(" ");
    ui.shows("> alpha");
    ui.terminal.types("q");
    assert_eq!(ui.terminal.end().0.code(), Some(0));
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
