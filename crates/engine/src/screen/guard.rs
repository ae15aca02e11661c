//! Stands between a box and the operator's terminal.
//!
//! Programs need colours, cursors and titles. They do not need to write the clipboard, to ask the
//! terminal for answers that it types back as input, or to talk to it in strings that only some
//! terminals understand. Those sequences are dropped; everything else passes byte by byte.
//!
//! ```text
//! Ground ─ESC─▶ Escape ─[─▶ Csi ─final─▶ Ground
//!                  └─] P X ^ _─▶ String ─BEL, ESC \─▶ Ground
//! ```

/// The state of one stream. A sequence may be split anywhere between two chunks.
#[derive(Debug, Default)]
pub struct Guard {
    state: State,
    /// The sequence so far, held back until it is known to be harmless.
    held: Vec<u8>,
    /// Continuation bytes that the UTF-8 character before still needs.
    awaited: u8,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum State {
    #[default]
    Ground,
    /// After the first byte of a C1 control in UTF-8.
    C1,
    Escape,
    /// After `ESC %`, which would leave UTF-8.
    Charset,
    Csi,
    /// An operating system command: kept while short, then judged by its number.
    Osc,
    OscEscape,
    /// A string that is never passed on.
    Dropped,
    DroppedEscape,
}

const ESC: u8 = 0x1b;
const BEL: u8 = 0x07;
/// Asks some terminals to type an answer.
const ENQUIRY: u8 = 0x05;
const CANCEL: [u8; 2] = [0x18, 0x1a];
/// First byte of U+0080 to U+009F, which some terminals take for the 8-bit controls.
const C1_LEAD: u8 = 0xc2;
/// Longer commands are not titles or links any more.
const MAX_HELD: usize = 4096;

/// Operating system commands that only change how things look: title, colours, working directory,
/// links, shell marks. Not 52 (clipboard), not 50 (fonts), not what terminals add of their own.
const HARMLESS_OSC: [&[u8]; 14] = [
    b"0", b"1", b"2", b"4", b"7", b"8", b"10", b"11", b"12", b"104", b"110", b"111", b"112", b"133",
];

impl Guard {
    /// Appends to `out` what of `chunk` may reach the terminal.
    pub fn pass(&mut self, chunk: &[u8], out: &mut Vec<u8>) {
        for byte in chunk {
            self.step(*byte, out);
        }
    }

    fn step(&mut self, byte: u8, out: &mut Vec<u8>) {
        if CANCEL.contains(&byte) && self.state != State::Ground {
            self.drop_held(State::Ground);
            return;
        }
        match self.state {
            State::Ground => match byte {
                ESC => self.hold(byte, State::Escape),
                C1_LEAD => self.hold(byte, State::C1),
                ENQUIRY => {}
                // Some terminals take a control in eight bits for what it was before UTF-8.
                0x80..=0x9f if self.awaited == 0 => {}
                _ => {
                    self.awaited = awaited_after(byte, self.awaited);
                    out.push(byte);
                }
            },
            State::C1 => match byte {
                0x80..=0x9f => self.drop_held(State::Ground),
                0xa0..=0xbf => self.release(byte, out),
                _ => self.drop_and_step(byte, out), // a first byte without its second
            },
            State::Escape => match byte {
                b'[' => self.hold(byte, State::Csi),
                b']' => self.hold(byte, State::Osc),
                b'P' | b'X' | b'^' | b'_' => self.drop_held(State::Dropped),
                ESC => self.drop_held(State::Ground),
                b'Z' => self.drop_held(State::Ground), // asks what the terminal is
                b'%' => self.drop_held(State::Charset),
                0x80.. => self.drop_and_step(byte, out),
                _ => self.release(byte, out),
            },
            State::Charset => self.drop_held(State::Ground),
            State::Csi => match byte {
                0x40..=0x7e if self.asks(byte) => self.drop_held(State::Ground),
                0x40..=0x7e => self.release(byte, out),
                ESC | 0x80.. => self.drop_and_step(byte, out),
                _ => self.hold_on(byte),
            },
            State::Osc => match byte {
                BEL => self.judge(&[byte], out),
                ESC => self.state = State::OscEscape,
                _ => self.hold_on(byte),
            },
            State::OscEscape => match byte {
                b'\\' => self.judge(b"\x1b\\", out),
                _ => self.drop_held(State::Ground),
            },
            State::Dropped => match byte {
                BEL => self.state = State::Ground,
                ESC => self.state = State::DroppedEscape,
                _ => {}
            },
            State::DroppedEscape => {
                self.state = if byte == b'\\' { State::Ground } else { State::Dropped };
            }
        }
    }

    /// Whether a control sequence makes the terminal type something that it did not get from the
    /// person: window titles (`t` 20, 21). Cursor reports are needed by editors and carry no text.
    fn asks(&self, last: u8) -> bool {
        let parameters = self.held.get(2..).unwrap_or_default();
        last == b't' && matches!(parameters.split(|byte| *byte == b';').next(), Some(b"20" | b"21"))
    }

    /// Passes a finished operating system command if it is one of the harmless, and not a question.
    fn judge(&mut self, end: &[u8], out: &mut Vec<u8>) {
        let body = self.held.get(2..).unwrap_or_default();
        let mut parts = body.split(|byte| *byte == b';');
        let harmless = parts.next().is_some_and(|number| HARMLESS_OSC.contains(&number));
        let text = std::str::from_utf8(body).is_ok_and(|text| !text.chars().any(char::is_control));
        if harmless && text && !parts.any(|part| part == b"?") {
            out.append(&mut self.held);
            out.extend_from_slice(end);
        }
        self.drop_held(State::Ground);
    }

    /// Gives up the sequence; the byte begins anew.
    fn drop_and_step(&mut self, byte: u8, out: &mut Vec<u8>) {
        self.drop_held(State::Ground);
        self.step(byte, out);
    }

    fn hold(&mut self, byte: u8, next: State) {
        self.held.push(byte);
        self.state = next;
    }

    /// Keeps collecting, up to a length that no honest sequence has.
    fn hold_on(&mut self, byte: u8) {
        if self.held.len() >= MAX_HELD {
            let next = if self.state == State::Osc { State::Dropped } else { State::Ground };
            self.drop_held(next);
        } else {
            self.held.push(byte);
        }
    }

    fn drop_held(&mut self, next: State) {
        self.held.clear();
        self.state = next;
    }

    fn release(&mut self, byte: u8, out: &mut Vec<u8>) {
        out.append(&mut self.held);
        out.push(byte);
        self.state = State::Ground;
    }
}

/// How many continuation bytes are still to come after this byte.
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

    /// The same whatever way the bytes are cut into chunks.
    #[track_caller]
    fn check(input: &[u8], expect: &[u8]) {
        for cut in 0..=input.len() {
            let mut guard = Guard::default();
            let mut out = Vec::new();
            guard.pass(&input[..cut], &mut out);
            guard.pass(&input[cut..], &mut out);
            assert_eq!(
                out.escape_ascii().to_string(),
                expect.escape_ascii().to_string(),
                "cut at {cut}"
            );
        }
    }

    #[test]
    fn what_programs_need_passes() {
        check(b"plain\r\n\ttext", b"plain\r\n\ttext");
        check(b"\x1b[1;31mred\x1b[0m", b"\x1b[1;31mred\x1b[0m");
        check(b"\x1b[?1049h\x1b[2J\x1b[6n", b"\x1b[?1049h\x1b[2J\x1b[6n");
        check(b"\x1b]0;title\x07", b"\x1b]0;title\x07");
        check(b"\x1b]8;;http://x\x1b\\link", b"\x1b]8;;http://x\x1b\\link");
        check("žluťoučký – ©".as_bytes(), "žluťoučký – ©".as_bytes());
        check(b"\x1b7\x1b8\x1b(B", b"\x1b7\x1b8\x1b(B");
    }

    #[test]
    fn d18_what_reaches_past_the_screen_does_not() {
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
    fn a_sequence_that_never_ends_is_not_kept() {
        let mut guard = Guard::default();
        let mut out = Vec::new();
        guard.pass(b"\x1b]0;", &mut out);
        guard.pass(&vec![b'x'; 1 << 20], &mut out);
        assert!(guard.held.len() <= MAX_HELD);
        assert!(out.is_empty());
    }
}
