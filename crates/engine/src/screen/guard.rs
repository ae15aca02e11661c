//! Filters the terminal output of a box before it reaches the operator's terminal.
//!
//! Programs need colours, cursors and titles. They do not need to write to the clipboard, to send queries
//! whose replies the terminal types as input, or to send strings that only some terminals understand. The
//! guard drops those escape sequences. All other bytes pass unchanged.
//!
//! ```text
//! Ground ─ESC─▶ Escape ─[─▶ Csi ─final─▶ Ground
//!                  └─] P X ^ _─▶ String ─BEL, ESC \─▶ Ground
//! ```

/// Removes harmful escape sequences from one output stream. A sequence may be split between two chunks.
#[derive(Debug, Default)]
pub struct Guard {
    state: GuardState,
    /// The escape sequence so far, which is held back until it is known to be harmless.
    held: Vec<u8>,
    /// The number of continuation bytes that complete the current UTF-8 character.
    awaited: u8,
}

/// The position of a [`Guard`] in the syntax of escape sequences.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum GuardState {
    /// Outside of any escape sequence.
    #[default]
    Ground,
    /// After the first byte of a C1 control character in UTF-8.
    C1,
    /// After `ESC`.
    Escape,
    /// After `ESC %`, which selects another character set than UTF-8.
    Charset,
    /// Inside of a control sequence, after `ESC [`.
    Csi,
    /// Inside of an operating system command, after `ESC ]`. Its number decides whether it passes.
    Osc,
    /// After `ESC` inside of an operating system command.
    OscEscape,
    /// Inside of a string that is dropped.
    Dropped,
    /// After `ESC` inside of a string that is dropped.
    DroppedEscape,
}

const ESC: u8 = 0x1b;
const BEL: u8 = 0x07;
/// The control character ENQ, to which some terminals reply.
const ENQUIRY: u8 = 0x05;
/// The control characters that cancel an escape sequence.
const CANCEL: [u8; 2] = [0x18, 0x1a];
/// The first UTF-8 byte of U+0080 to U+009F, which some terminals treat as 8-bit control characters.
const C1_LEAD: u8 = 0xc2;
/// The maximum length of an escape sequence that is held back. Longer sequences are dropped.
const MAX_HELD: usize = 4096;

/// The numbers of operating system commands that only change the display: title, colours, working
/// directory, links, shell marks. The clipboard (52), fonts (50) and vendor commands are not among them.
const HARMLESS_OSC: [&[u8]; 14] = [
    b"0", b"1", b"2", b"4", b"7", b"8", b"10", b"11", b"12", b"104", b"110", b"111", b"112", b"133",
];

impl Guard {
    /// Appends the bytes of `chunk` that may reach the terminal to `out`.
    pub fn pass(&mut self, chunk: &[u8], out: &mut Vec<u8>) {
        for byte in chunk {
            self.step(*byte, out);
        }
    }

    /// Processes one byte of the stream.
    fn step(&mut self, byte: u8, out: &mut Vec<u8>) {
        if CANCEL.contains(&byte) && self.state != GuardState::Ground {
            self.drop_held(GuardState::Ground);
            return;
        }
        match self.state {
            GuardState::Ground => match byte {
                ESC => self.hold(byte, GuardState::Escape),
                C1_LEAD => self.hold(byte, GuardState::C1),
                ENQUIRY => {}
                // Some terminals treat this byte as an 8-bit control character.
                0x80..=0x9f if self.awaited == 0 => {}
                _ => {
                    self.awaited = awaited_after(byte, self.awaited);
                    out.push(byte);
                }
            },
            GuardState::C1 => match byte {
                0x80..=0x9f => self.drop_held(GuardState::Ground),
                0xa0..=0xbf => self.release(byte, out),
                _ => self.drop_and_step(byte, out), // an incomplete UTF-8 sequence
            },
            GuardState::Escape => match byte {
                b'[' => self.hold(byte, GuardState::Csi),
                b']' => self.hold(byte, GuardState::Osc),
                b'P' | b'X' | b'^' | b'_' => self.drop_held(GuardState::Dropped),
                ESC => self.drop_held(GuardState::Ground),
                b'Z' => self.drop_held(GuardState::Ground), // a query for the terminal's type
                b'%' => self.drop_held(GuardState::Charset),
                0x80.. => self.drop_and_step(byte, out),
                _ => self.release(byte, out),
            },
            GuardState::Charset => self.drop_held(GuardState::Ground),
            GuardState::Csi => match byte {
                0x40..=0x7e if self.is_title_query(byte) => self.drop_held(GuardState::Ground),
                0x40..=0x7e => self.release(byte, out),
                ESC | 0x80.. => self.drop_and_step(byte, out),
                _ => self.hold_more(byte),
            },
            GuardState::Osc => match byte {
                BEL => self.finish_osc(&[byte], out),
                ESC => self.state = GuardState::OscEscape,
                _ => self.hold_more(byte),
            },
            GuardState::OscEscape => match byte {
                b'\\' => self.finish_osc(b"\x1b\\", out),
                _ => self.drop_held(GuardState::Ground),
            },
            GuardState::Dropped => match byte {
                BEL => self.state = GuardState::Ground,
                ESC => self.state = GuardState::DroppedEscape,
                _ => {}
            },
            GuardState::DroppedEscape => {
                self.state = if byte == b'\\' { GuardState::Ground } else { GuardState::Dropped };
            }
        }
    }

    /// Returns whether a control sequence makes the terminal type the window title (`t` 20, 21), which a
    /// program can choose. Queries for the cursor position are allowed: editors need them, and the reply
    /// has no text.
    fn is_title_query(&self, last: u8) -> bool {
        let parameters = self.held.get(2..).unwrap_or_default();
        last == b't' && matches!(parameters.split(|byte| *byte == b';').next(), Some(b"20" | b"21"))
    }

    /// Passes a complete operating system command if it is harmless and not a query, or drops it.
    fn finish_osc(&mut self, end: &[u8], out: &mut Vec<u8>) {
        let body = self.held.get(2..).unwrap_or_default();
        let mut parts = body.split(|byte| *byte == b';');
        let is_harmless = parts.next().is_some_and(|number| HARMLESS_OSC.contains(&number));
        let is_text =
            std::str::from_utf8(body).is_ok_and(|text| !text.chars().any(char::is_control));
        if is_harmless && is_text && !parts.any(|part| part == b"?") {
            out.append(&mut self.held);
            out.extend_from_slice(end);
        }
        self.drop_held(GuardState::Ground);
    }

    /// Drops the current escape sequence and processes the byte as the first one after it.
    fn drop_and_step(&mut self, byte: u8, out: &mut Vec<u8>) {
        self.drop_held(GuardState::Ground);
        self.step(byte, out);
    }

    /// Holds back a byte of an escape sequence and changes the state.
    fn hold(&mut self, byte: u8, next: GuardState) {
        self.held.push(byte);
        self.state = next;
    }

    /// Holds back a further byte of the current escape sequence. A sequence that is too long is dropped.
    fn hold_more(&mut self, byte: u8) {
        if self.held.len() >= MAX_HELD {
            let next = if self.state == GuardState::Osc {
                GuardState::Dropped
            } else {
                GuardState::Ground
            };
            self.drop_held(next);
        } else {
            self.held.push(byte);
        }
    }

    /// Drops the bytes that are held back and changes the state.
    fn drop_held(&mut self, next: GuardState) {
        self.held.clear();
        self.state = next;
    }

    /// Passes the current escape sequence with its last byte.
    fn release(&mut self, byte: u8, out: &mut Vec<u8>) {
        out.append(&mut self.held);
        out.push(byte);
        self.state = GuardState::Ground;
    }
}

/// Returns the number of UTF-8 continuation bytes that must follow `byte`.
fn awaited_after(byte: u8, awaited: u8) -> u8 {
    match byte {
        0xc3..=0xdf => 1,
        0xe0..=0xef => 2,
        0xf0..=0xf4 => 3,
        0x80..=0xbf => awaited.saturating_sub(1),
        _ => 0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
        check(b"plain\r\n\ttext", b"plain\r\n\ttext");
        check(b"\x1b[1;31mred\x1b[0m", b"\x1b[1;31mred\x1b[0m");
        check(b"\x1b[?1049h\x1b[2J\x1b[6n", b"\x1b[?1049h\x1b[2J\x1b[6n");
        check(b"\x1b]0;title\x07", b"\x1b]0;title\x07");
        check(b"\x1b]8;;http://x\x1b\\link", b"\x1b]8;;http://x\x1b\\link");
        check("žluťoučký – ©".as_bytes(), "žluťoučký – ©".as_bytes());
        check(b"\x1b7\x1b8\x1b(B", b"\x1b7\x1b8\x1b(B");
    }

    #[test]
    fn d18_guard_drops_clipboard_access_queries_and_device_strings() {
        check(b"a\x1b]52;c;ZXZpbA==\x07b", b"ab");
        check(b"a\x1b]52;c;ZXZpbA==\x1b\\b", b"ab");
        check(b"a\x1bP$qm\x1b\\b", b"ab");
        check(b"a\x1b_Gpayload\x1b\\b", b"ab");
        check(b"a\x1b[21tb", b"ab");
        check(b"a\x1b]10;?\x07b", b"ab");
        check(b"a\x05b", b"ab");
        check(b"a\xc2\x9b21tb", b"a21tb");
        check(b"a\x1bZb", b"ab");
        check(b"\x1b\xc2\x9d52;c;ZXZpbA==\x07", b"52;c;ZXZpbA==\x07");
        check(b"\x1b[\xc2\x9d52;c;ZXZpbA==\x07", b"52;c;ZXZpbA==\x07");
        check(b"\x1b]0;x\xc2\x9c\xc2\x9d52;c;ZXZpbA==\x07", b"");
        check(b"\x1b%@\x9d52;c;ZXZpbA==\x07", b"52;c;ZXZpbA==\x07");
        check(b"a\x9d52;c;x\x07", b"a52;c;x\x07");
        check(b"a\x1b]52;c;never ending", b"a");
    }

    #[test]
    fn guard_drops_an_endless_escape_sequence_and_bounds_its_memory() {
        let mut guard = Guard::default();
        let mut out = Vec::new();
        guard.pass(b"\x1b]0;", &mut out);
        guard.pass(&vec![b'x'; 1 << 20], &mut out);
        assert!(guard.held.len() <= MAX_HELD);
        assert!(out.is_empty());
    }
}
