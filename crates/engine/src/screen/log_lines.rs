//! Renders the recorded output of a terminal as lines of text, as a person would have seen them.
//!
//! The output is interpreted on a screen of the size that the box's terminal had. A line is complete when it
//! leaves the screen at its top. The result has text, line breaks and colours, and no other escape sequence.

use vt100::capture::{
    BasicFormattedCaptureRange, BasicFormattedCaptureState, basic_formatted_to_plain,
};
use vt100::{Callbacks, Parser, Screen};

use super::buffer::dimensions;
use super::protocol::Size;

/// The number of lines above the screen that can return to the screen when its height grows.
const SCROLLBACK: usize = 400;

/// Returns the bytes that a supervisor writes to the log before the first output of a run: they end what an
/// earlier run left open, such as the alternate screen.
pub(crate) fn start_of_run() -> Vec<u8> {
    let mut bytes = b"\x18\x1b[?47l\x1b7\x1b[r\x1b8\x1b[m".to_vec();
    bytes.extend(size_mark(Size::DEFAULT));
    bytes
}

/// Returns the bytes that a supervisor writes to the log when the size of the box's terminal changes.
pub(crate) fn size_mark(size: Size) -> Vec<u8> {
    let Size { rows, columns } = size.clamped();
    format!("\x1b[8;{rows};{columns}t").into_bytes()
}

/// The renderer of one log.
pub(super) struct LogLines {
    terminal: Parser<Scrolled>,
}

/// The lines that have left the screen.
#[derive(Default)]
struct Scrolled {
    text: String,
    state: BasicFormattedCaptureState,
}

impl Callbacks for Scrolled {
    fn on_scroll(&mut self, row: vt100::capture::RowContents<'_>, is_alternate: bool) {
        if !is_alternate {
            row.write_formatted_basic(&mut self.text, &mut self.state).ok(); // a string accepts all text
        }
    }

    /// Follows the size marks of the supervisor. A program can write them too, which changes its own log.
    fn resize(&mut self, screen: &mut Screen, (rows, columns): (u16, u16)) {
        let (rows, columns) = dimensions(Size { rows, columns });
        screen.set_size(rows, columns);
    }
}

impl LogLines {
    pub(super) fn new() -> Self {
        let (rows, columns) = dimensions(Size::DEFAULT);
        let scrolled = Scrolled::default();
        Self { terminal: Parser::new_with_callbacks(rows, columns, SCROLLBACK, scrolled) }
    }

    /// Interprets the next part of the log.
    pub(super) fn write(&mut self, output: &[u8]) {
        self.terminal.process(output);
    }

    /// Returns all lines. The last ones are those on the screen, and a full-screen program's last picture.
    pub(super) fn finish(mut self, has_colours: bool) -> String {
        let screen = self.terminal.screen();
        let picture = screen.alternate_screen().then(|| screen.contents_formatted_basic());
        self.terminal.process(b"\x18\x1b[?47l");
        let (screen, scrolled) = self.terminal.screen_and_callbacks_mut();
        let Scrolled { mut text, mut state } = std::mem::take(scrolled);
        let all = BasicFormattedCaptureRange::Full(&mut state);
        screen.write_contents_formatted_basic(&mut text, all).ok(); // a string accepts all text
        let mut shown = lines_of(&text, has_colours);
        shown.push_str(&lines_of(&picture.unwrap_or_default(), has_colours));
        shown
    }
}

/// Returns the lines of a captured text without empty lines at the end, and without colours if they are not
/// wanted.
fn lines_of(text: &str, has_colours: bool) -> String {
    let plain = |line: &str| -> String { basic_formatted_to_plain(line).collect() };
    let lines = text.lines().map(|line| if has_colours { line.to_owned() } else { plain(line) });
    let lines: Vec<String> = lines.map(|line| line.trim_end().to_owned()).collect();
    let last = lines.iter().rposition(|line| !plain(line).trim().is_empty());
    let Some(lines) = last.and_then(|last| lines.get(..=last)) else { return String::new() };
    let end = if has_colours { "\x1b[m\n" } else { "\n" };
    format!("{}{end}", lines.join("\n"))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn render(output: &str) -> String {
        let mut lines = LogLines::new();
        lines.write(output.as_bytes());
        lines.finish(false)
    }

    #[test]
    fn log_lines_of_plain_output_are_its_lines() {
        assert_eq!(render(""), "");
        assert_eq!(render("one\r\ntwo\r\n\r\nlast"), "one\ntwo\n\nlast\n");
        let many: String = (0..5000).map(|line| format!("line {line}\r\n")).collect();
        assert_eq!(render(&many), many.replace('\r', ""));
        let long = "x".repeat(200);
        assert_eq!(render(&format!("{long}\r\nshort\r\n")), format!("{long}\nshort\n"));
    }

    #[test]
    fn log_lines_show_the_last_state_of_lines_that_a_program_drew_again() {
        assert_eq!(render("10 %\r20 %\r100 %\r\ndone\r\n"), "100 %\ndone\n");
        let menu = "first\r\nsecond\r\n\x1b[2A\x1b[JFIRST\r\nSECOND\r\n";
        assert_eq!(render(menu), "FIRST\nSECOND\n");
    }

    #[test]
    fn log_lines_show_the_last_picture_of_a_full_screen_program() {
        let left = "before\r\n\x1b[?1049h\x1b[?1000h\x1b[6nfull\x1b[3;3Hscreen\x1b[?1049lafter\r\n";
        assert_eq!(render(left), "before\nafter\n");
        let killed = "before\r\n\x1b[?1049h\x1b[H\x1b[6nfull\x1b[3;3Hscreen";
        assert_eq!(render(killed), "before\nfull\n\n  screen\n");
        // The next run begins on the main screen.
        let next = format!("{killed}{}next\r\n", String::from_utf8(start_of_run()).unwrap());
        assert_eq!(render(&next), "before\nnext\n");
    }

    #[test]
    fn log_lines_are_drawn_at_the_recorded_size() {
        let mark = String::from_utf8(size_mark(Size { rows: 50, columns: 120 })).unwrap();
        let line = "y".repeat(110);
        let drawn = format!("{mark}\x1b[?1049h\x1b[45;1H{line}\x1b[46;1Hbelow");
        assert!(render(&drawn).ends_with(&format!("\n{line}\nbelow\n")), "{}", render(&drawn));
    }

    proptest! {
        #[test]
        fn d18_log_lines_of_any_output_have_text_and_colours_only(
            pieces in proptest::collection::vec(
                prop_oneof![
                    proptest::collection::vec(any::<u8>(), 0..40),
                    "\u{1b}\\[[0-9;?]{0,6}[@-~]".prop_map(String::into_bytes),
                    Just(b"\r\n\x1b[?1049h\x1b[31m".to_vec()),
                ],
                0..30,
            ),
        ) {
            let mut lines = LogLines::new();
            let mut coloured = LogLines::new();
            for piece in &pieces {
                lines.write(piece);
                coloured.write(piece);
            }
            let plain = lines.finish(false);
            prop_assert!(plain.chars().all(|it| it == '\n' || !it.is_control()), "{plain:?}");
            let coloured = coloured.finish(true);
            let mut guarded = Vec::new();
            crate::screen::guard::Guard::with_colours().pass(coloured.as_bytes(), &mut guarded);
            prop_assert_eq!(String::from_utf8(guarded).unwrap(), coloured);
        }
    }
}
