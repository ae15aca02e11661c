//! Filters the terminal output of a box before it reaches the operator's terminal.
//!
//! Programs need colours, cursors and titles. They do not need to write to the clipboard, to print, to read
//! the screen, or to make the terminal type text. The guard parses the output as a terminal does and writes
//! it anew: text as complete UTF-8 characters, and each escape sequence that `super::allowed` names, with
//! its parameters as decimal numbers. Everything else is dropped.
//!
//! **Invariant:** the output is a series of complete characters and complete, allowed escape sequences. So a
//! terminal never interprets a byte in another state than the guard does.
//!
//! ```text
//! Ground ─ESC─▶ Escape ─[─▶ Csi ─final─▶ Ground
//!                  ├─]─▶ Osc ─BEL, ESC \─▶ Ground
//!                  └─P X ^ _ k─▶ Dropped ─BEL, ESC \─▶ Ground
//! ```
//!
//! As in ECMA-48 terminals, `ESC` begins a new sequence in every state, CAN and SUB cancel the current one,
//! and other control characters act at once and do not change the state.

use super::allowed::{self, ControlSequence};

/// Removes harmful escape sequences from one output stream. A sequence may be split between two chunks.
#[derive(Debug, Default)]
pub struct Guard {
    passes: Passes,
    state: GuardState,
    /// The bytes of the current character or escape sequence, without `ESC` and the introducer.
    held: Vec<u8>,
}

/// The escape sequences that a [`Guard`] passes, besides those that are never allowed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Passes {
    /// Everything that a program needs to draw.
    #[default]
    Drawing,
    /// Colours and other attributes of text.
    Colours,
    /// No escape sequence.
    Text,
}

/// The position of a [`Guard`] in the syntax of escape sequences.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum GuardState {
    /// Outside of any escape sequence. `held` has the beginning of a UTF-8 character.
    #[default]
    Ground,
    /// After `ESC`. `held` has the intermediate bytes.
    Escape,
    /// Inside of a control sequence, after `ESC [`. `held` has the bytes of its body.
    Csi,
    /// Inside of an operating system command, after `ESC ]`. `held` has its text.
    Osc,
    /// After `ESC` inside of an operating system command.
    OscEscape,
    /// Inside of a control sequence that is dropped.
    DroppedCsi,
    /// Inside of a string that is dropped.
    Dropped,
}

const ESC: u8 = 0x1b;
const BEL: u8 = 0x07;
const DELETE: u8 = 0x7f;
/// The control characters that cancel an escape sequence.
const CANCEL: [u8; 2] = [0x18, 0x1a];
/// The maximum length of an escape sequence that is held back. Longer sequences are dropped.
const MAX_HELD: usize = 4096;
/// The text that replaces an invalid UTF-8 sequence.
const REPLACEMENT: &[u8] = "\u{fffd}".as_bytes();

impl Guard {
    /// Creates a guard that passes text and its colours only: nothing moves the cursor to another line,
    /// changes a mode of the terminal or makes the terminal answer.
    pub fn with_colours() -> Self {
        Self { passes: Passes::Colours, ..Self::default() }
    }

    /// Creates a guard that passes text only.
    pub fn text_only() -> Self {
        Self { passes: Passes::Text, ..Self::default() }
    }

    /// Appends the bytes of `chunk` that may reach the terminal to `out`.
    pub fn pass(&mut self, mut chunk: &[u8], out: &mut Vec<u8>) {
        while let Some((byte, rest)) = chunk.split_first() {
            if self.state == GuardState::Ground && self.held.is_empty() {
                let is_plain = |byte: &u8| matches!(byte, b' '..=b'~');
                let plain = chunk.iter().take_while(|byte| is_plain(byte)).count();
                let (text, after) = chunk.split_at(plain);
                if !text.is_empty() {
                    out.extend_from_slice(text);
                    chunk = after;
                    continue;
                }
            }
            self.step(*byte, out);
            chunk = rest;
        }
    }

    /// Processes one byte of the stream.
    fn step(&mut self, byte: u8, out: &mut Vec<u8>) {
        match (self.state, byte) {
            (GuardState::Ground, _) if !self.held.is_empty() => self.continue_character(byte, out),
            (GuardState::Osc, ESC) => self.state = GuardState::OscEscape,
            (_, ESC) => self.enter(GuardState::Escape),
            (GuardState::Osc, BEL) => self.finish_osc(b"\x07", out),
            (GuardState::Dropped, BEL) => self.enter(GuardState::Ground),
            (_, byte) if CANCEL.contains(&byte) => self.enter(GuardState::Ground),
            // Terminals ignore control characters in strings.
            (GuardState::Osc | GuardState::OscEscape | GuardState::Dropped, 0..=0x1f | DELETE) => {}
            (_, 0..=0x1f | DELETE) => {
                let is_text = matches!(byte, b'\x08' | b'\t' | b'\n' | b'\r');
                if is_text || self.passes == Passes::Drawing && allowed::control(byte) {
                    out.push(byte);
                }
            }
            (GuardState::Ground, b' '..=b'~') => out.push(byte),
            (GuardState::Ground, 0x80..) => self.continue_character(byte, out),
            (GuardState::OscEscape, b'\\') => self.finish_osc(b"\x1b\\", out),
            (GuardState::OscEscape, _) => {
                self.enter(GuardState::Escape);
                self.step(byte, out);
            }
            (GuardState::Osc, _) => self.hold(byte, GuardState::Dropped),
            (GuardState::Dropped, _) => {}
            // A character that is not ASCII ends an escape sequence.
            (GuardState::Escape | GuardState::Csi | GuardState::DroppedCsi, 0x80..) => {
                self.enter(GuardState::Ground);
                self.step(byte, out);
            }
            (GuardState::Escape, b' '..=b'/') => self.hold(byte, GuardState::Escape),
            (GuardState::Escape, _) => self.finish_escape(byte, out),
            (GuardState::Csi, b' '..=b'?') => self.hold(byte, GuardState::DroppedCsi),
            (GuardState::Csi, _) => self.finish_control_sequence(byte, out),
            (GuardState::DroppedCsi, b' '..=b'?') => {}
            (GuardState::DroppedCsi, _) => self.enter(GuardState::Ground),
        }
    }

    /// Adds a byte to the current UTF-8 character, and passes the character when it is complete.
    ///
    /// The characters U+0080 to U+009F are dropped, because some terminals obey them as 8-bit controls.
    fn continue_character(&mut self, byte: u8, out: &mut Vec<u8>) {
        if self.held.is_empty() {
            match byte {
                0xc2..=0xf4 => self.held.push(byte),
                0x80..=0x9f => {} // an 8-bit control in terminals without UTF-8
                _ => out.extend_from_slice(REPLACEMENT),
            }
            return;
        }
        self.held.push(byte);
        match std::str::from_utf8(&self.held) {
            Ok(text) => {
                if !text.chars().any(char::is_control) {
                    out.extend_from_slice(&self.held);
                }
                self.held.clear();
            }
            Err(error) if error.error_len().is_none() => {} // incomplete so far
            Err(_) => {
                // The byte is not a part of the character, so process it as the first one after it.
                self.held.clear();
                out.extend_from_slice(REPLACEMENT);
                self.step(byte, out);
            }
        }
    }

    /// Processes the final byte of an escape sequence without parameters.
    fn finish_escape(&mut self, last: u8, out: &mut Vec<u8>) {
        let next = match (self.held.as_slice(), last) {
            (b"", b'[') => GuardState::Csi,
            (b"", b']') => GuardState::Osc,
            // `ESC k` begins a title in screen and tmux.
            (b"", b'P' | b'X' | b'^' | b'_' | b'k') => GuardState::Dropped,
            (between, last) => {
                if self.passes == Passes::Drawing && allowed::escape(between, last) {
                    out.push(ESC);
                    out.extend_from_slice(between);
                    out.push(last);
                }
                GuardState::Ground
            }
        };
        self.enter(next);
    }

    /// Passes a complete control sequence if it is allowed, or drops it.
    fn finish_control_sequence(&mut self, last: u8, out: &mut Vec<u8>) {
        let sequence = ControlSequence::parse(&self.held, last).and_then(ControlSequence::allowed);
        let passes = |sequence: &ControlSequence| match self.passes {
            Passes::Drawing => true,
            Passes::Colours => sequence.is_colour(),
            Passes::Text => false,
        };
        if let Some(sequence) = sequence.filter(passes) {
            sequence.write(out);
        }
        self.enter(GuardState::Ground);
    }

    /// Passes a complete operating system command if it is allowed, or drops it.
    fn finish_osc(&mut self, end: &[u8], out: &mut Vec<u8>) {
        let text = std::str::from_utf8(&self.held).ok().and_then(allowed::command);
        if let Some(text) = text.filter(|_| self.passes == Passes::Drawing) {
            out.extend_from_slice(b"\x1b]");
            out.extend_from_slice(text.as_bytes());
            out.extend_from_slice(end);
        }
        self.enter(GuardState::Ground);
    }

    /// Drops the bytes that are held back and changes the state.
    fn enter(&mut self, next: GuardState) {
        self.held.clear();
        self.state = next;
    }

    /// Holds back a byte of the current sequence. If the sequence is too long, drops it and changes the state.
    fn hold(&mut self, byte: u8, too_long: GuardState) {
        if self.held.len() >= MAX_HELD {
            self.enter(too_long);
        } else {
            self.held.push(byte);
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Returns the output of a guard for an input.
    fn filtered(input: &[u8]) -> Vec<u8> {
        let mut out = Vec::new();
        Guard::default().pass(input, &mut out);
        out
    }

    /// Checks the output of the guard for an input that is split into two chunks at every position.
    #[track_caller]
    fn check(input: &[u8], expected: &[u8]) {
        for split in 0..=input.len() {
            let mut guard = Guard::default();
            let mut out = Vec::new();
            guard.pass(&input[..split], &mut out);
            guard.pass(&input[split..], &mut out);
            assert_eq!(
                out.escape_ascii().to_string(),
                expected.escape_ascii().to_string(),
                "split at {split}"
            );
        }
    }

    #[test]
    fn guard_passes_text_colours_cursor_movement_titles_and_links() {
        for unchanged in [
            &b"plain\r\n\ttext\x07\x08"[..],
            b"\x1b[1;31mred\x1b[0m\x1b[m\x1b[38;2;1;2;3m\x1b[4:3m\x1b[;H",
            b"\x1b[?1049h\x1b[2J\x1b[6n\x1b[?25l\x1b[?1006;1000h\x1b[?2026$p",
            b"\x1b[22;0;0t\x1b[18t\x1b[>4;2m\x1b[>1u\x1b[<u\x1b[c\x1b[>c\x1b[2 q\x1b[!p\x1b[4l",
            b"\x1b]0;title\x07\x1b]4;1;rgb:ff/00/00\x1b\\\x1b]104\x07\x1b]133;A\x07",
            b"\x1b]8;;http://x\x1b\\link\x1b]8;;\x1b\\",
            "žluťoučký – © 漢字 🎉\u{a0}".as_bytes(),
            b"\x1b7\x1b8\x1b(B\x1b)0\x1b=\x1b>\x1bM\x1bc\x0e\x0f",
        ] {
            check(unchanged, unchanged);
        }
    }

    #[test]
    fn d18_guard_for_logs_passes_text_and_colours_only() {
        let log = b"\x1b[?1049h\x1b[31mred\x1b[m\x1b[2;2H\x1b[6n\x1b[?1000h\x1b]0;t\x07\x1b[>4;2m\x07 a\tb\r\n";
        let pass = |mut guard: Guard| {
            let mut out = Vec::new();
            guard.pass(log, &mut out);
            String::from_utf8(out).unwrap()
        };
        assert_eq!(pass(Guard::with_colours()), "\x1b[31mred\x1b[m a\tb\r\n");
        assert_eq!(pass(Guard::text_only()), "red a\tb\r\n");
    }

    #[test]
    fn d18_guard_drops_clipboard_access_queries_and_device_strings() {
        check(b"a\x1b]52;c;ZXZpbA==\x07b", b"ab");
        check(b"a\x1b]52;c;ZXZpbA==\x1b\\b", b"ab");
        check(b"a\x1bP$qm\x1b\\b", b"ab");
        check(b"a\x1b_Gpayload\x1b\\b", b"ab");
        check(b"a\x1bktitle\x1b\\b", b"ab");
        check(b"a\x1b[21tb", b"ab");
        check(b"a\x1b]10;?\x07b", b"ab");
        check(b"a\x1b]4;1;?\x07b\x1b]7;file:///etc\x07", b"ab");
        check(b"a\x1b]8;;file:///usr/bin/evil\x07b\x1b]8;;\x07", b"ab\x1b]8;;\x07");
        check(b"a\x05b", b"ab");
        check(b"a\xc2\x9b21tb", b"a21tb");
        check(b"a\x1bZb", b"ab");
        check(b"\x1b\xc2\x9d52;c;ZXZpbA==\x07", b"52;c;ZXZpbA==\x07");
        check(b"\x1b[\xc2\x9d52;c;ZXZpbA==\x07", b"52;c;ZXZpbA==\x07");
        check(b"\x1b]0;x\xc2\x9c\xc2\x9d52;c;ZXZpbA==\x07", b"");
        check(b"\x1b%@\x9d52;c;ZXZpbA==\x07", b"52;c;ZXZpbA==\x07");
        check(b"a\x9d52;c;x\x07", b"a52;c;x\x07");
        check(b"a\x1b]52;c;never ending", b"a");
        check(b"\x1b[?46h\x1b[5i\x1b[?2l\x1b[?1;46;2;25h\x1b[1*y\x1b[8;9;9t\x1b G", b"\x1b[?1;25h");
    }

    #[test]
    fn d18_guard_keeps_its_state_at_control_characters_inside_of_a_sequence() {
        check(b"a\x1b\0]52;c;ZXZpbA==\x07b", b"ab");
        check(b"a\x1b\x7f]52;c;ZXZpbA==\x07b", b"ab");
        check(b"a\x1b\r]52;c;ZXZpbA==\x07b", b"a\rb");
        check(b"a\x1b]\x005\x7f2;c;ZXZpbA==\x07b", b"ab");
        check(b"a\x1b]0;\x1b\0]52;c;ZXZpbA==\x07b", b"ab");
        check(b"a\x1b\0P$qm\x1b\0\\b", b"ab");
        check(b"a\x1b\x7fPtmux;\x1b\x1b]52;c;ZXZpbA==\x07\x1b\\b", b"ab");
        check(b"a\x1b\0Zb\x1b\x1bZ", b"ab");
        check(b"a\x1b\0\x1b]52;c;ZXZpbA==\x07b", b"ab");
        check(b"\x1b\x18]52;c;ZXZpbA==\x07", b"]52;c;ZXZpbA==\x07");
        check(b"\x1b[\x003\n1m", b"\n\x1b[31m");
    }

    #[test]
    fn d18_guard_compares_parameters_as_numbers() {
        for query in ["021", "\x0021", "2\x001", "20", "000020;1", "21;", "65557", ":21", "0"] {
            check(format!("a\x1b[{query}tb").as_bytes(), b"ab");
        }
        check(b"a\x1b]052;c;ZXZpbA==\x07b\x1b]+52;c;\x07\x1b] 52;c;\x07", b"ab");
        check(b"a\x1b]010;?\x07b\x1b]0010;red\x07", b"ab\x1b]10;red\x07");
        check(b"\x1b[0031m\x1b[018t", b"\x1b[31m\x1b[18t");
    }

    #[test]
    fn d18_guard_passes_complete_valid_utf8_only() {
        check(b"\xe0\x82\x9d52;c;x\x07", "\u{fffd}52;c;x\x07".as_bytes());
        check(b"\xe2\x9d\x1b]52;c;x\x07.", "\u{fffd}.".as_bytes());
        check(b"\xe2\x9d", b"");
        check(b"\xff\xc0\xafx\xf5", "\u{fffd}\u{fffd}\u{fffd}x\u{fffd}".as_bytes());
    }

    #[test]
    fn guard_drops_an_endless_escape_sequence_and_bounds_its_memory() {
        for begin in [&b"\x1b]0;"[..], b"\x1b[", b"\x1b", b"\x1bP"] {
            let mut guard = Guard::default();
            let mut out = Vec::new();
            guard.pass(begin, &mut out);
            guard.pass(&vec![b'/'; 1 << 20], &mut out);
            assert!(guard.held.len() <= MAX_HELD);
            assert!(out.is_empty());
        }
    }

    /// A terminal that checks each of its actions against the allow-list.
    #[derive(Default)]
    struct TestTerminal {
        /// The actions that are not allowed.
        refused: Vec<String>,
        /// The characters that were printed.
        text: String,
    }

    impl TestTerminal {
        /// Returns a terminal that has received `bytes` and then the character `.`.
        fn after(bytes: &[u8]) -> Self {
            let mut terminal = Self::default();
            let mut parser = vte::Parser::new();
            parser.advance(&mut terminal, bytes);
            parser.advance(&mut terminal, b".");
            terminal
        }
    }

    impl vte::Perform for TestTerminal {
        fn print(&mut self, character: char) {
            self.text.push(character);
        }

        fn execute(&mut self, byte: u8) {
            if !allowed::control(byte) {
                self.refused.push(format!("control {byte:#x}"));
            }
        }

        fn hook(&mut self, _: &vte::Params, _: &[u8], _: bool, action: char) {
            self.refused.push(format!("device control string {action}"));
        }

        fn osc_dispatch(&mut self, parameters: &[&[u8]], _: bool) {
            let text = String::from_utf8_lossy(&parameters.join(&b';')).into_owned();
            let is_clipboard = text.trim_start_matches('0').starts_with("52");
            if is_clipboard || allowed::command(&text).as_ref() != Some(&text) {
                self.refused.push(format!("command {text}"));
            }
        }

        fn csi_dispatch(&mut self, all: &vte::Params, between: &[u8], ignored: bool, last: char) {
            let parameters: Vec<Vec<u16>> = all.iter().map(<[u16]>::to_vec).collect();
            let is_title_query = last == 't' && matches!(parameters[0][0], 20 | 21);
            let numbers = parameters.iter().map(|parameter| {
                parameter.iter().map(u16::to_string).collect::<Vec<_>>().join(":")
            });
            let (prefix, between) = match between {
                [prefix @ b'<'..=b'?', between @ ..] => (&[*prefix][..], between),
                between => (&b""[..], between),
            };
            let numbers = numbers.collect::<Vec<_>>().join(";");
            let body = [prefix, numbers.as_bytes(), between].concat();
            let last = u8::try_from(last).unwrap();
            let sequence = ControlSequence::parse(&body, last).and_then(ControlSequence::allowed);
            if ignored || is_title_query || sequence.is_none() {
                self.refused.push(format!("control sequence {}", body.escape_ascii()));
            }
        }

        fn esc_dispatch(&mut self, between: &[u8], ignored: bool, last: u8) {
            // `ESC \` ends a command, which was judged already.
            let is_end = between.is_empty() && last == b'\\';
            if ignored || !is_end && !allowed::escape(between, last) {
                self.refused.push(format!("escape {} {last:#x}", between.escape_ascii()));
            }
        }
    }

    #[test]
    fn d18_terminal_of_the_tests_refuses_unfiltered_attacks() {
        for attack in [
            &b"\x1b\0]52;c;ZXZpbA==\x07"[..],
            b"\x1b[021t",
            b"\x1b[\x0021t",
            b"\x1bZ",
            b"\x1bP$qm\x1b\\",
            b"\x1b[?46h",
            b"\x05",
        ] {
            assert!(!TestTerminal::after(attack).refused.is_empty(), "{}", attack.escape_ascii());
        }
    }

    /// Returns a strategy for output of a box: pieces of escape sequences with other bytes between them.
    fn hostile_output() -> impl Strategy<Value = Vec<u8>> {
        let piece = prop_oneof![
            4 => proptest::sample::select(vec![
                &b"\x1b"[..], b"\x1b]", b"\x1b[", b"\x1bP", b"\x1b\\", b"]", b"[", b"\x07", b"\0", b"\x7f",
                b"\x18", b"\x1a", b"52;c;x", b"21t", b"20t", b"0;title", b"?", b";", b":", b"0", b"4", b"5i",
                b"Z", b"c", b"n", b"h", b"m", b"$p", b"P$qm", b"\xc2", b"\x9b", b"\x9d", b"\x9c", b"\xe2",
                b"\xc2\x9b", "\u{9d}".as_bytes(), "é漢".as_bytes(), b"%", b" G", b"#", b"(", b"\x0e",
            ]).prop_map(<[u8]>::to_vec),
            1 => proptest::collection::vec(any::<u8>(), 0..4),
            1 => "\u{1b}\\[[<=>?]?[0-9:;]{0,6}[ -/]{0,2}[@-~]".prop_map(String::into_bytes),
            1 => "\u{1b}\\][0-9]{0,3};[ -~]{0,6}\u{7}".prop_map(String::into_bytes),
        ];
        proptest::collection::vec(piece, 0..24).prop_map(|pieces| pieces.concat())
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(4096))]

        #[test]
        fn d18_terminal_gets_only_allowed_actions_for_any_output_of_a_box(
            bytes in hostile_output(),
            split in any::<proptest::sample::Index>(),
        ) {
            let out = filtered(&bytes);
            let mut guard = Guard::default();
            let mut split_out = Vec::new();
            let (first, second) = bytes.split_at(split.index(bytes.len() + 1));
            guard.pass(first, &mut split_out);
            guard.pass(second, &mut split_out);
            prop_assert_eq!(&out, &split_out, "chunks do not matter");
            prop_assert_eq!(&filtered(&out), &out, "all of the output is allowed");
            let terminal = TestTerminal::after(&out);
            prop_assert!(terminal.refused.is_empty(), "{:?}", terminal.refused);
            prop_assert!(terminal.text.ends_with('.'), "the terminal is outside of a sequence");
        }
    }
}
