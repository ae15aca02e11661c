//! The character cells of a box's screen, and the drawing of these cells for viewers.

use std::num::NonZeroU16;

use vt100::{Callbacks, Parser};

use super::protocol::{MAX_REPLY, Size};

/// The maximum number of lines in the scrollback buffer.
const MAX_SCROLLBACK: usize = 10_000;

/// The control character that cancels an incomplete escape sequence.
const CANCEL: &[u8] = b"\x18";

/// The content of a box's terminal.
pub(super) struct ScreenBuffer {
    terminal: Parser<TerminalEvents>,
    /// A counter that increases with every change of the content.
    pub(super) version: u64,
}

/// The content of one viewer's terminal.
pub(super) struct View {
    /// The content that was drawn for the viewer.
    shown: Parser,
    /// The number of lines that the viewer has scrolled back.
    scroll_offset: usize,
    /// The version of the screen that was last drawn. `None` if the viewer must be drawn again.
    version: Option<u64>,
    /// The number of bells of the box when the viewer was last drawn.
    bells: u64,
    /// Whether the content of the viewer's terminal is unknown, so that the whole screen must be drawn.
    needs_clear: bool,
    /// The row, the column and the visibility of the cursor in the viewer's terminal, if they are known.
    cursor: Option<(u16, u16, bool)>,
}

/// Events of the program that are not drawn as cells: queries to the terminal, and bells.
#[derive(Default)]
struct TerminalEvents {
    /// The terminal's replies to queries, as the program will read them.
    replies: Vec<u8>,
    bells: u64,
}

impl Callbacks for TerminalEvents {
    fn audible_bell(&mut self, _: &mut vt100::Screen) {
        self.bells = self.bells.wrapping_add(1);
    }

    /// Replies to common queries of programs, in the way of a simple terminal.
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
        let reply = match (first, second, last, parameter) {
            (None, None, 'n', 5) => "\x1b[0n".to_owned(),
            (None, None, 'n', 6) => format!("\x1b[{row};{column}R"),
            (Some(b'?'), None, 'n', 6) => format!("\x1b[?{row};{column}R"),
            (None, None, 'c', 0) => "\x1b[?62;22c".to_owned(),
            (Some(b'>'), None, 'c', 0) => "\x1b[>1;10;0c".to_owned(),
            (None, None, 't', 18) => format!("\x1b[8;{rows};{columns}t"),
            (Some(b'?'), Some(b'$'), 'p', mode) => format!("\x1b[?{mode};0$y"),
            _ => return,
        };
        if self.replies.len() + reply.len() <= MAX_REPLY {
            self.replies.extend_from_slice(reply.as_bytes());
        }
    }
}

impl ScreenBuffer {
    pub(super) fn new(size: Size) -> Self {
        let (rows, columns) = dimensions(size);
        let events = TerminalEvents::default();
        let terminal = Parser::new_with_callbacks(rows, columns, MAX_SCROLLBACK, events);
        Self { terminal, version: 0 }
    }

    /// Interprets output of the box. Returns the terminal's replies to queries in the output.
    pub(super) fn write(&mut self, output: &[u8]) -> Vec<u8> {
        self.terminal.process(output);
        self.version += 1;
        std::mem::take(&mut self.terminal.callbacks_mut().replies)
    }

    /// Cancels an incomplete escape sequence after some output was dropped.
    pub(super) fn skip(&mut self) {
        self.write(CANCEL);
    }

    pub(super) fn resize(&mut self, size: Size) {
        let (rows, columns) = dimensions(size);
        self.terminal.set_size(rows, columns);
        self.version += 1;
    }

    /// Returns the bytes that bring a viewer's terminal up to date. They are empty if the terminal is
    /// current.
    pub(super) fn draw(&mut self, view: &mut View) -> Vec<u8> {
        let is_frozen = view.scroll_offset > 0 && !view.needs_clear && view.version.is_some();
        if view.version == Some(self.version) || is_frozen {
            return Vec::new();
        }
        let mut out = String::new();
        let (rows, columns) = self.terminal.screen().size();
        if view.needs_clear || view.shown.screen().size() != (rows, columns) {
            view.shown.set_size(rows, columns);
            view.cursor = None;
            out.push_str("\x1b[m\x1b[2J");
            view.shown.process(out.as_bytes());
        }
        let from = out.len();
        self.terminal.screen_mut().set_scrollback(view.scroll_offset);
        let screen = self.terminal.screen();
        view.scroll_offset = screen.scrollback();
        for (index, row) in screen.rows_diff(view.shown.screen(), 0, columns.get()).enumerate() {
            if !row.is_empty() {
                out.push_str(&format!("\x1b[{};1H\x1b[m{row}", index + 1));
            }
        }
        if view.scroll_offset > 0 {
            out.push_str(&scroll_marker(
                view.scroll_offset,
                screen.scrollback_len(),
                columns.get(),
            ));
        }
        let has_drawn = out.len() > from;
        if has_drawn {
            view.cursor = None;
        }
        out.push_str(&move_cursor(screen, view));
        out.push_str(&screen.input_mode_diff(view.shown.screen()));
        self.terminal.screen_mut().set_scrollback(0);
        view.shown.process(out.get(from..).unwrap_or_default().as_bytes());
        let bells = self.terminal.callbacks().bells;
        if view.bells != bells && view.version.is_some() {
            out.push('\x07');
        }
        (view.bells, view.version, view.needs_clear) = (bells, Some(self.version), false);
        out.into_bytes()
    }
}

impl View {
    pub(super) fn new() -> Self {
        let (rows, columns) = dimensions(Size::DEFAULT);
        let shown = Parser::new(rows, columns, 0);
        let (version, cursor) = (None, None);
        Self { shown, scroll_offset: 0, version, bells: 0, needs_clear: true, cursor }
    }

    /// Requests that the whole screen is drawn again, since the viewer's terminal was cleared or resized.
    pub(super) fn redraw(&mut self) {
        (self.needs_clear, self.version) = (true, None);
    }

    /// Scrolls the view back by a number of lines, or forward if the number is negative. `None` shows the
    /// newest lines.
    pub(super) fn scroll(&mut self, lines: Option<i32>) {
        let distance = usize::try_from(lines.unwrap_or(0).unsigned_abs()).unwrap_or(0);
        self.scroll_offset = match lines {
            None => 0,
            Some(lines) if lines > 0 => {
                self.scroll_offset.saturating_add(distance).min(MAX_SCROLLBACK)
            }
            Some(_) => self.scroll_offset.saturating_sub(distance),
        };
        self.version = None;
    }

    /// Returns whether the viewer's terminal differs from the screen and must be drawn.
    pub(super) fn is_stale(&self, buffer: &ScreenBuffer) -> bool {
        self.version.is_none_or(|version| version != buffer.version && self.scroll_offset == 0)
    }
}

/// Returns the escape sequences that move, show or hide a viewer's cursor. They are empty if the cursor is
/// already correct.
fn move_cursor(screen: &vt100::Screen, view: &mut View) -> String {
    let (row, column) = screen.cursor_position();
    let (_, columns) = screen.size();
    let is_visible = !screen.hide_cursor() && view.scroll_offset == 0;
    let target = (row + 1, column.saturating_add(1).min(columns.get()), is_visible);
    if view.cursor == Some(target) {
        return String::new();
    }
    view.cursor = Some(target);
    let end = if is_visible { 'h' } else { 'l' };
    format!("\x1b[m\x1b[{};{}H\x1b[?25{end}", target.0, target.1)
}

/// Returns the escape sequences that show the scroll position in the upper right corner, such as `[50/93]`.
fn scroll_marker(offset: usize, total: usize, columns: u16) -> String {
    let text = format!("[{offset}/{total}]");
    let width = u16::try_from(text.len()).unwrap_or(u16::MAX);
    match columns.checked_sub(width) {
        Some(before) => format!("\x1b[1;{}H\x1b[0;7m{text}\x1b[m", before + 1),
        None => String::new(),
    }
}

/// Returns the clamped numbers of rows and columns of a size.
pub(super) fn dimensions(size: Size) -> (NonZeroU16, NonZeroU16) {
    let Size { rows, columns } = size.clamped();
    (NonZeroU16::MIN.saturating_add(rows - 1), NonZeroU16::MIN.saturating_add(columns - 1))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::screen::guard::Guard;

    /// The terminal of a person, behind the guard that filters its input.
    struct TestViewer {
        guard: Guard,
        terminal: Parser,
        view: View,
    }

    impl TestViewer {
        fn new(rows: u16, columns: u16) -> Self {
            let (rows, columns) = dimensions(Size { rows, columns });
            let terminal = Parser::new(rows, columns, 0);
            Self { guard: Guard::default(), terminal, view: View::new() }
        }

        /// Draws the screen in the terminal of the viewer. Returns the number of bytes that were drawn.
        fn update(&mut self, buffer: &mut ScreenBuffer) -> usize {
            let drawn = buffer.draw(&mut self.view);
            let mut passed = Vec::new();
            self.guard.pass(&drawn, &mut passed);
            assert_eq!(passed, drawn, "the guard passes every byte that is drawn");
            self.terminal.process(&passed);
            drawn.len()
        }

        /// Checks that the terminal of the viewer shows the screen of the box in its upper left corner.
        #[track_caller]
        fn assert_shows(&self, buffer: &ScreenBuffer) {
            let (shown, expected) = (self.terminal.screen(), buffer.terminal.screen());
            let rows = |screen: &vt100::Screen| -> Vec<String> {
                screen.rows_formatted(0, expected.size().1.get() - 1).collect()
            };
            let all = rows(shown);
            let all = all.get(..usize::from(expected.size().0.get())).unwrap();
            assert_eq!(all, rows(expected));
            assert_eq!(shown.hide_cursor(), expected.hide_cursor());
            assert_eq!(shown.bracketed_paste(), expected.bracketed_paste());
            assert_eq!(shown.mouse_protocol_mode(), expected.mouse_protocol_mode());
        }
    }

    const SIZE: Size = Size { rows: 8, columns: 20 };

    #[test]
    fn draw_shows_the_screen_in_the_upper_left_corner_of_a_larger_terminal() {
        let mut buffer = ScreenBuffer::new(SIZE);
        let mut viewer = TestViewer::new(30, 100);
        buffer.write("a line that is longer than the screen is wide\r\n".as_bytes());
        buffer.write("žluť 漢字 \x1b[31mred\x1b[0m\x1b[?2004h".as_bytes());
        viewer.update(&mut buffer);
        viewer.assert_shows(&buffer);
        let first = viewer.terminal.screen().rows(0, 100).next().unwrap();
        assert_eq!(first.trim_end(), "a line that is longe");
    }

    #[test]
    fn draw_returns_only_the_changes_since_the_last_drawing() {
        let mut buffer = ScreenBuffer::new(SIZE);
        let mut viewer = TestViewer::new(8, 20);
        buffer.write(b"0123456789abcdef\r\n0123456789abcdef\r\n");
        let all = viewer.update(&mut buffer);
        buffer.write(b"x");
        let changed = viewer.update(&mut buffer);
        assert!(changed < 40 && all > 40, "{changed} of {all} bytes");
        assert_eq!(viewer.update(&mut buffer), 0, "no bytes without a change");
        viewer.assert_shows(&buffer);
    }

    #[test]
    fn write_returns_bounded_replies_to_common_terminal_queries_only() {
        let mut buffer = ScreenBuffer::new(SIZE);
        assert_eq!(buffer.write(b"\x1b[3;4H\x1b[6n"), b"\x1b[3;4R");
        assert_eq!(buffer.write(b"\x1b[5n\x1b[c"), b"\x1b[0n\x1b[?62;22c");
        assert_eq!(buffer.write(b"\x1b[18t"), b"\x1b[8;8;20t");
        assert_eq!(buffer.write(b"\x1b[21t\x1b]52;c;?\x07\x1bP$qm\x1b\\\x05"), b"");
        let many = buffer.write(&b"\x1b[6n".repeat(10_000));
        assert!(many.len() <= MAX_REPLY, "{}", many.len());
    }

    #[test]
    fn view_that_is_scrolled_back_stays_unchanged_until_it_returns_to_the_newest_lines() {
        let mut buffer = ScreenBuffer::new(SIZE);
        let mut viewer = TestViewer::new(8, 20);
        for line in 0..100 {
            buffer.write(format!("line {line}\r\n").as_bytes());
        }
        viewer.update(&mut buffer);
        viewer.view.scroll(Some(50));
        viewer.update(&mut buffer);
        let contents = viewer.terminal.screen().contents();
        assert!(contents.contains("line 44\n") && contents.contains("[50/93]"), "{contents}");
        buffer.write(b"more\r\n");
        assert_eq!(viewer.update(&mut buffer), 0);
        viewer.view.scroll(None);
        viewer.update(&mut buffer);
        viewer.assert_shows(&buffer);
        viewer.view.scroll(Some(i32::MAX));
        viewer.update(&mut buffer);
        assert!(viewer.terminal.screen().contents().starts_with("line 0"));
    }

    proptest! {
        #[test]
        fn d18_all_viewers_see_the_same_cells_for_any_output_of_a_box(
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
            let mut buffer = ScreenBuffer::new(SIZE);
            let (mut early, mut late) = (TestViewer::new(12, 30), TestViewer::new(12, 30));
            let mut sizes = sizes.into_iter();
            for (index, piece) in pieces.iter().enumerate() {
                buffer.write(piece);
                if index % 7 == 6 && let Some((rows, columns)) = sizes.next() {
                    buffer.resize(Size { rows, columns });
                }
                early.update(&mut buffer);
            }
            late.update(&mut buffer);
            early.update(&mut buffer);
            early.assert_shows(&buffer);
            late.assert_shows(&buffer);
        }
    }
}
