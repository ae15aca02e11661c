//! The cells of a screen, and how they are drawn for those who look.

use std::num::NonZeroU16;

use vt100::{Callbacks, Parser};

use super::protocol::{MAX_ANSWER, Size};

/// So many lines that scrolled away can still be looked at.
const SCROLL_BACK: usize = 10_000;

/// Ends whatever sequence was begun.
const CANCEL: &[u8] = b"\x18";

/// What the terminal of a box would show.
pub(super) struct ScreenBuffer {
    terminal: Parser<Asked>,
    /// Changes with everything that is written.
    pub(super) age: u64,
}

/// What one viewer's terminal shows.
pub(super) struct View {
    shown: Parser,
    /// How many lines back it looks.
    back: usize,
    age: Option<u64>,
    bells: u64,
    /// Nothing that is on it is ours.
    is_blank: bool,
    cursor: Option<(u16, u16, bool)>,
}

/// What the program said that is not drawn.
#[derive(Default)]
struct Asked {
    answers: Vec<u8>,
    bells: u64,
}

impl Callbacks for Asked {
    fn audible_bell(&mut self, _: &mut vt100::Screen) {
        self.bells = self.bells.wrapping_add(1);
    }

    /// Answers what programs ask every terminal, in the words of one that can little.
    fn unhandled_csi(
        &mut self,
        screen: &mut vt100::Screen,
        first: Option<u8>,
        second: Option<u8>,
        parameters: &[&[u16]],
        last: char,
    ) {
        let parameter = parameters.first().and_then(|values| values.first()).copied().unwrap_or(0);
        let (row, column) = screen.cursor_position();
        let (rows, columns) = screen.size();
        let (row, column) = (row + 1, column.saturating_add(1).min(columns.get()));
        let answer = match (first, second, last, parameter) {
            (None, None, 'n', 5) => "\x1b[0n".to_owned(),
            (None, None, 'n', 6) => format!("\x1b[{row};{column}R"),
            (Some(b'?'), None, 'n', 6) => format!("\x1b[?{row};{column}R"),
            (None, None, 'c', 0) => "\x1b[?62;22c".to_owned(),
            (Some(b'>'), None, 'c', 0) => "\x1b[>1;10;0c".to_owned(),
            (None, None, 't', 18) => format!("\x1b[8;{rows};{columns}t"),
            (Some(b'?'), Some(b'$'), 'p', mode) => format!("\x1b[?{mode};0$y"),
            _ => return,
        };
        if self.answers.len() + answer.len() <= MAX_ANSWER {
            self.answers.extend_from_slice(answer.as_bytes());
        }
    }
}

impl ScreenBuffer {
    pub(super) fn new(size: Size) -> Self {
        let (rows, columns) = counts(size);
        let terminal = Parser::new_with_callbacks(rows, columns, SCROLL_BACK, Asked::default());
        Self { terminal, age: 0 }
    }

    /// Takes what the box wrote; what its terminal answers.
    pub(super) fn write(&mut self, output: &[u8]) -> Vec<u8> {
        self.terminal.process(output);
        self.age += 1;
        std::mem::take(&mut self.terminal.callbacks_mut().answers)
    }

    /// Goes on after something that was skipped, as if a new sequence began.
    pub(super) fn skip(&mut self) {
        self.write(CANCEL);
    }

    pub(super) fn resize(&mut self, size: Size) {
        let (rows, columns) = counts(size);
        self.terminal.set_size(rows, columns);
        self.age += 1;
    }

    /// What turns what a viewer sees into what is there. Empty: it is that already.
    pub(super) fn draw(&mut self, view: &mut View) -> Vec<u8> {
        let is_frozen = view.back > 0 && !view.is_blank && view.age.is_some();
        if view.age == Some(self.age) || is_frozen {
            return Vec::new();
        }
        let mut out = String::new();
        let (rows, columns) = self.terminal.screen().size();
        if view.is_blank || view.shown.screen().size() != (rows, columns) {
            view.shown.set_size(rows, columns);
            view.cursor = None;
            out.push_str("\x1b[m\x1b[2J");
            view.shown.process(out.as_bytes());
        }
        let from = out.len();
        self.terminal.screen_mut().set_scrollback(view.back);
        let screen = self.terminal.screen();
        view.back = screen.scrollback();
        for (index, row) in screen.rows_diff(view.shown.screen(), 0, columns.get()).enumerate() {
            if !row.is_empty() {
                out.push_str(&format!("\x1b[{};1H\x1b[m{row}", index + 1));
            }
        }
        if view.back > 0 {
            out.push_str(&mark(view.back, screen.scrollback_len(), columns.get()));
        }
        let drew = out.len() > from;
        if drew {
            view.cursor = None;
        }
        out.push_str(&cursor(screen, view));
        out.push_str(&screen.input_mode_diff(view.shown.screen()));
        self.terminal.screen_mut().set_scrollback(0);
        view.shown.process(out.get(from..).unwrap_or_default().as_bytes());
        let bells = self.terminal.callbacks().bells;
        if view.bells != bells && view.age.is_some() {
            out.push('\x07');
        }
        (view.bells, view.age, view.is_blank) = (bells, Some(self.age), false);
        out.into_bytes()
    }
}

impl View {
    pub(super) fn new() -> Self {
        let (rows, columns) = counts(Size::USUAL);
        let shown = Parser::new(rows, columns, 0);
        Self { shown, back: 0, age: None, bells: 0, is_blank: true, cursor: None }
    }

    /// Nothing that was drawn is there any more.
    pub(super) fn redraw(&mut self) {
        (self.is_blank, self.age) = (true, None);
    }

    /// Looks further back, or less far; none: at what is there now.
    pub(super) fn scroll(&mut self, lines: Option<i32>) {
        let distance = usize::try_from(lines.unwrap_or(0).unsigned_abs()).unwrap_or(0);
        self.back = match lines {
            None => 0,
            Some(lines) if lines > 0 => self.back.saturating_add(distance).min(SCROLL_BACK),
            Some(_) => self.back.saturating_sub(distance),
        };
        self.age = None;
    }

    /// Whether there is something to draw.
    pub(super) fn is_stale(&self, canvas: &ScreenBuffer) -> bool {
        self.age.is_none_or(|age| age != canvas.age && self.back == 0)
    }
}

/// Where the cursor is and whether it is seen, if a viewer has it elsewhere.
fn cursor(screen: &vt100::Screen, view: &mut View) -> String {
    let (row, column) = screen.cursor_position();
    let (_, columns) = screen.size();
    let is_seen = !screen.hide_cursor() && view.back == 0;
    let wanted = (row + 1, column.saturating_add(1).min(columns.get()), is_seen);
    if view.cursor == Some(wanted) {
        return String::new();
    }
    view.cursor = Some(wanted);
    let end = if is_seen { 'h' } else { 'l' };
    format!("\x1b[m\x1b[{};{}H\x1b[?25{end}", wanted.0, wanted.1)
}

/// Says in the corner how far back a view is.
fn mark(back: usize, all: usize, columns: u16) -> String {
    let text = format!("[{back}/{all}]");
    let width = u16::try_from(text.len()).unwrap_or(u16::MAX);
    match columns.checked_sub(width) {
        Some(before) => format!("\x1b[1;{}H\x1b[0;7m{text}\x1b[m", before + 1),
        None => String::new(),
    }
}

fn counts(size: Size) -> (NonZeroU16, NonZeroU16) {
    let Size { rows, columns } = size.sane();
    (NonZeroU16::MIN.saturating_add(rows - 1), NonZeroU16::MIN.saturating_add(columns - 1))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::screen::guard::Guard;

    /// A person's terminal, with the guard before it.
    struct Watcher {
        guard: Guard,
        terminal: Parser,
        view: View,
    }

    impl Watcher {
        fn new(rows: u16, columns: u16) -> Self {
            let (rows, columns) = counts(Size { rows, columns });
            let terminal = Parser::new(rows, columns, 0);
            Self { guard: Guard::default(), terminal, view: View::new() }
        }

        fn look(&mut self, canvas: &mut ScreenBuffer) -> usize {
            let drawn = canvas.draw(&mut self.view);
            let mut passed = Vec::new();
            self.guard.pass(&drawn, &mut passed);
            assert_eq!(passed, drawn, "nothing is drawn that the guard would stop");
            self.terminal.process(&passed);
            drawn.len()
        }

        #[track_caller]
        fn sees(&self, canvas: &ScreenBuffer) {
            let (theirs, ours) = (self.terminal.screen(), canvas.terminal.screen());
            let rows = |screen: &vt100::Screen| -> Vec<String> {
                screen.rows_formatted(0, ours.size().1.get() - 1).collect()
            };
            let all = rows(theirs);
            let all = all.get(..usize::from(ours.size().0.get())).unwrap();
            assert_eq!(all, rows(ours));
            assert_eq!(theirs.hide_cursor(), ours.hide_cursor());
            assert_eq!(theirs.bracketed_paste(), ours.bracketed_paste());
            assert_eq!(theirs.mouse_protocol_mode(), ours.mouse_protocol_mode());
        }
    }

    const SIZE: Size = Size { rows: 8, columns: 20 };

    #[test]
    fn a_larger_terminal_shows_the_same_in_its_corner() {
        let mut canvas = ScreenBuffer::new(SIZE);
        let mut watcher = Watcher::new(30, 100);
        canvas.write("a line that is longer than the screen is wide\r\n".as_bytes());
        canvas.write("žluť 漢字 \x1b[31mred\x1b[0m\x1b[?2004h".as_bytes());
        watcher.look(&mut canvas);
        watcher.sees(&canvas);
        let first = watcher.terminal.screen().rows(0, 100).next().unwrap();
        assert_eq!(first.trim_end(), "a line that is longe");
    }

    #[test]
    fn only_what_changed_is_drawn() {
        let mut canvas = ScreenBuffer::new(SIZE);
        let mut watcher = Watcher::new(8, 20);
        canvas.write(b"0123456789abcdef\r\n0123456789abcdef\r\n");
        let all = watcher.look(&mut canvas);
        canvas.write(b"x");
        let little = watcher.look(&mut canvas);
        assert!(little < 40 && all > 40, "{little} of {all} bytes");
        assert_eq!(watcher.look(&mut canvas), 0, "and nothing for nothing");
        watcher.sees(&canvas);
    }

    #[test]
    fn questions_are_answered_and_nothing_else_is() {
        let mut canvas = ScreenBuffer::new(SIZE);
        assert_eq!(canvas.write(b"\x1b[3;4H\x1b[6n"), b"\x1b[3;4R");
        assert_eq!(canvas.write(b"\x1b[5n\x1b[c"), b"\x1b[0n\x1b[?62;22c");
        assert_eq!(canvas.write(b"\x1b[18t"), b"\x1b[8;8;20t");
        assert_eq!(canvas.write(b"\x1b[21t\x1b]52;c;?\x07\x1bP$qm\x1b\\\x05"), b"");
        let many = canvas.write(&b"\x1b[6n".repeat(10_000));
        assert!(many.len() <= MAX_ANSWER, "{}", many.len());
    }

    #[test]
    fn who_looks_back_stays_there_until_they_return() {
        let mut canvas = ScreenBuffer::new(SIZE);
        let mut watcher = Watcher::new(8, 20);
        for line in 0..100 {
            canvas.write(format!("line {line}\r\n").as_bytes());
        }
        watcher.look(&mut canvas);
        watcher.view.scroll(Some(50));
        watcher.look(&mut canvas);
        let back = watcher.terminal.screen().contents();
        assert!(back.contains("line 44\n") && back.contains("[50/93]"), "{back}");
        canvas.write(b"more\r\n");
        assert_eq!(watcher.look(&mut canvas), 0);
        watcher.view.scroll(None);
        watcher.look(&mut canvas);
        watcher.sees(&canvas);
        watcher.view.scroll(Some(i32::MAX));
        watcher.look(&mut canvas);
        assert!(watcher.terminal.screen().contents().starts_with("line 0"));
    }

    proptest! {
        #[test]
        fn d18_whatever_a_box_writes_every_viewer_sees_the_same_cells(
            pieces in proptest::collection::vec(
                prop_oneof![
                    proptest::collection::vec(any::<u8>(), 0..40),
                    "[a-z\u{4e00}-\u{4eff}\u{300}]{0,30}".prop_map(String::into_bytes),
                    "\u{1b}\\[[0-9;?]{0,6}[@-~]".prop_map(String::into_bytes),
                    Just(b"\r\n".to_vec()),
                ],
                0..30,
            ),
            sizes in proptest::collection::vec((2_u16..12, 2_u16..30), 0..3),
        ) {
            let mut canvas = ScreenBuffer::new(SIZE);
            let (mut early, mut late) = (Watcher::new(12, 30), Watcher::new(12, 30));
            let mut sizes = sizes.into_iter();
            for (index, piece) in pieces.iter().enumerate() {
                canvas.write(piece);
                if index % 7 == 6 && let Some((rows, columns)) = sizes.next() {
                    canvas.resize(Size { rows, columns });
                }
                early.look(&mut canvas);
            }
            late.look(&mut canvas);
            early.look(&mut canvas);
            early.sees(&canvas);
            late.sees(&canvas);
        }
    }
}
