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
        shown.process(self.terminal.read_available());
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
    ui.terminal.type_keys("j");
    ui.shows("> beta");
    ui.terminal.type_keys("s");
    ui.shows("2 running");
    assert_eq!(state(&lab, "beta"), "running");
    ui.terminal.type_keys("l");
    ui.shows("press any key to return");
    ui.terminal.type_keys(" ");
    ui.shows("> beta");
    // The key that stops a box asks for confirmation.
    ui.terminal.type_keys("t");
    ui.shows("run `belljar stop beta`? press y");
    ui.terminal.type_keys("n");
    ui.shows("enter a attach");
    assert_eq!(state(&lab, "beta"), "running");
    ui.terminal.type_keys("ty");
    ui.shows("1 running");
    assert_eq!(state(&lab, "beta"), "stopped");
    ui.terminal.type_keys("\x1b[A\r");
    // The attached screen shows only the output of the box, nothing of the list.
    let expected = "the screen of the box";
    eventually_shows(expected, || ui.screen(), |page| page.trim() == "ready");
    ui.terminal.type_keys("\x1d");
    ui.shows("> alpha");
    ui.terminal.type_keys("q");
    assert_eq!(ui.terminal.end().0.code(), Some(0));
    lab.belljar(["stop", "--now", "alpha"]).succeed();
    let mut ui = Ui::start(&lab);
    ui.shows("1 to review");
    ui.terminal.type_keys("i");
    ui.shows("review     waits for review");
    ui.terminal.type_keys(" ");
    ui.shows("> alpha");
    ui.terminal.type_keys("q");
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
        let before = terminal.wait_for("\r\n");
        let mut page = terminal.wait_for("> alpha");
        terminal.type_keys("?");
        page.push_str(&terminal.wait_for("quit"));
        terminal.type_keys("q");
        page.push_str(&terminal.wait_for("\x1b[?1049l"));
        assert_eq!(page.contains("\x1b[2m"), coloured, "{page:?}");
        assert_eq!(terminal.wait_for("\r\n"), before);
        terminal.type_keys("\r");
        terminal.end();
    }
    lab.belljar(["ui"]).run().fails_with(2, "ui needs a terminal");
}
