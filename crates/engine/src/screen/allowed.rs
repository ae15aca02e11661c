//! Decides which control characters and escape sequences may reach the operator's terminal.
//!
//! Pure: no I/O and no state. A sequence passes only if a table below names it. The tables have what editors,
//! shells and full-screen programs use to draw, and queries whose reply consists of numbers. They do not have
//! anything that writes the clipboard, a file or the printer, reads the screen or the title, resizes or moves
//! the window, locks the keyboard, or changes how later bytes are parsed (VT52 mode, 8-bit controls, other
//! character encodings).

/// The maximum number of parameters of a control sequence. Terminals ignore more than that.
const MAX_PARAMETERS: usize = 32;

/// A parsed control sequence: `ESC [ prefix parameters intermediates last`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct ControlSequence {
    /// The private prefix: `<`, `=`, `>` or `?`.
    prefix: Option<u8>,
    /// The parameters with their subparameters. A number that was left out is `None`.
    parameters: Vec<Vec<Option<u16>>>,
    /// The bytes between the parameters and the final byte.
    between: Vec<u8>,
    last: u8,
}

/// Returns whether a control character may reach the terminal: BEL, BS, HT, LF, VT, FF, CR, SO and SI.
pub(super) const fn control(byte: u8) -> bool {
    matches!(byte, 0x07..=0x0f)
}

/// Returns whether an escape sequence without parameters may reach the terminal.
pub(super) const fn escape(between: &[u8], last: u8) -> bool {
    match (between, last) {
        // Save and restore the cursor, move it by one line, set a tab, keypad modes, full reset.
        (b"", b'6' | b'7' | b'8' | b'9' | b'D' | b'E' | b'H' | b'M' | b'=' | b'>' | b'c') => true,
        // The character sets ASCII, line drawing and British.
        (b"(" | b")" | b"*" | b"+", b'0' | b'A' | b'B') => true,
        // Line sizes, and the test pattern.
        (b"#", b'3' | b'4' | b'5' | b'6' | b'8') => true,
        _ => false,
    }
}

/// Returns an operating system command in its canonical form if it may reach the terminal.
///
/// Allowed are titles, colours, links to web pages and shell marks. The working directory (7) is not allowed:
/// a path of the box means another directory on the host.
pub(super) fn command(text: &str) -> Option<String> {
    let (number, body) = match text.split_once(';') {
        Some((number, body)) => (number, Some(body)),
        None => (text, None),
    };
    if number.is_empty() || !number.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    let number: u16 = number.parse().ok()?;
    let is_colour = |text: &str| text.bytes().all(|byte| is_colour_byte(byte) || byte == b';');
    let is_list = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit() || byte == b';');
    let is_allowed = match (number, body) {
        (0..=2, Some(title)) => !title.chars().any(char::is_control),
        (4 | 10..=12, Some(colours)) => is_colour(colours),
        (8, Some(link)) => is_web_link(link),
        (104 | 110..=112, None) => true,
        (104 | 110..=112, Some(colours)) => is_list(colours),
        (133, Some(mark)) => is_shell_mark(mark),
        _ => false,
    };
    is_allowed.then(|| match body {
        Some(body) => format!("{number};{body}"),
        None => number.to_string(),
    })
}

/// Returns whether a byte occurs in the specification of a colour. A query (`?`) is not a colour.
const fn is_colour_byte(byte: u8) -> bool {
    byte.is_ascii_alphanumeric()
        || matches!(byte, b'#' | b':' | b'/' | b'.' | b',' | b'%' | b' ' | b'-')
}

/// Returns whether the body of a link command ends a link or begins one to a web page.
///
/// Other schemes start programs of the host, and files of the box are not on the host.
fn is_web_link(body: &str) -> bool {
    let Some((parameters, target)) = body.split_once(';') else { return false };
    let is_web = ["http://", "https://"].iter().any(|scheme| target.starts_with(scheme));
    let is_printable = |byte: u8| matches!(byte, b'!'..=b'~');
    parameters.bytes().all(is_printable)
        && (target.is_empty() || is_web && target.bytes().all(is_printable))
}

/// Returns whether the body of command 133 marks a prompt, an input or an output, with simple options.
fn is_shell_mark(body: &str) -> bool {
    let is_simple = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b';' | b'=' | b'_');
    matches!(body.as_bytes(), [b'A'..=b'D'] | [b'A'..=b'D', b';', ..])
        && body.bytes().all(is_simple)
}

/// Returns whether a program may set a mode of the DEC family (`CSI ? number h`), or ask for its value.
const fn private_mode(number: u16) -> bool {
    matches!(
        number,
        1 | 3..=9                       // cursor keys, columns, scrolling, reverse, origin, wrap, repeat, mouse
        | 12 | 25                       // blinking and visible cursor
        | 45 | 47 | 66 | 69             // reverse wrap, alternate screen, keypad, left and right margins
        | 1000 | 1002..=1007 | 1015 | 1016 // mouse and focus reports
        | 1034 | 1036 | 1039            // how Alt and Meta are sent
        | 1047..=1049                   // alternate screen
        | 2004 | 2026 | 2027 | 2031 | 2048 // paste marks, atomic updates, graphemes, colour scheme, size
    )
}

impl ControlSequence {
    /// Returns whether the sequence sets colours or other attributes of text (SGR).
    pub(super) fn is_colour(&self) -> bool {
        self.prefix.is_none() && self.between.is_empty() && self.last == b'm'
    }

    /// Parses the bytes between `ESC [` and the final byte; `None` if they are malformed.
    pub(super) fn parse(body: &[u8], last: u8) -> Option<Self> {
        let prefix = body.first().copied().filter(|byte| matches!(byte, b'<'..=b'?'));
        let rest = body.get(usize::from(prefix.is_some())..)?;
        let end = rest.iter().position(|byte| matches!(byte, b' '..=b'/')).unwrap_or(rest.len());
        let (numbers, between) = rest.split_at(end);
        if !between.iter().all(|byte| matches!(byte, b' '..=b'/')) {
            return None;
        }
        let number = |digits: &[u8]| match digits {
            [] => Some(None),
            digits => std::str::from_utf8(digits).ok()?.parse().ok().map(Some),
        };
        let parameter = |text: &[u8]| text.split(|byte| *byte == b':').map(number).collect();
        let parameters: Option<Vec<Vec<Option<u16>>>> = match numbers {
            [] => Some(Vec::new()),
            numbers => numbers.split(|byte| *byte == b';').map(parameter).collect(),
        };
        let parameters = parameters?;
        let count: usize = parameters.iter().map(Vec::len).sum();
        let between = between.to_vec();
        (count <= MAX_PARAMETERS).then_some(Self { prefix, parameters, between, last })
    }

    /// Returns the sequence if it may reach the terminal, without modes that may not be set.
    pub(super) fn allowed(mut self) -> Option<Self> {
        let has_subparameters = self.parameters.iter().any(|parameter| parameter.len() > 1);
        if has_subparameters && !(self.last == b'm' && self.between.is_empty()) {
            return None;
        }
        let first = self.number(0);
        let count = self.parameters.len();
        let is_allowed = match (self.prefix, self.between.as_slice(), self.last) {
            // Move the cursor, insert, erase, repeat, scroll, set tabs, margins, colours and attributes.
            (None, b"", b'@'..=b'M' | b'P' | b'S' | b'X' | b'Z' | b'`' | b'a' | b'b') => true,
            (None, b"", b'd'..=b'g' | b'm' | b'r' | b's' | b'u') => true,
            (None, b"", b'T') => count <= 1, // five parameters begin mouse tracking
            (None, b" ", b'@' | b'A' | b'q') => true,
            (None, b"\"", b'q') => true,
            (None, b"'", b'}' | b'~') => true,
            (None, b"#", b'{' | b'}' | b'p' | b'q') => true,
            (None, b"!", b'p') => true,
            (Some(b'?'), b"", b'J' | b'K') => true,
            (Some(b'?'), b"", b'W') => first == 5,
            (Some(b'?'), b"", b'c') => true, // the shape of the cursor of the Linux console
            // Device attributes; status and position of the cursor; the reply has numbers only.
            (None | Some(b'>'), b"", b'c') => true,
            (None, b"", b'n') => count == 1 && matches!(first, 5 | 6),
            (Some(b'?'), b"", b'n') => count == 1 && matches!(first, 6 | 996),
            // How keys are sent.
            (Some(b'>' | b'?'), b"", b'm') | (Some(b'>'), b"", b'n') => true,
            (Some(b'<' | b'=' | b'>' | b'?'), b"", b'u') => true,
            // The size of the window in pixels, of a character and in characters; save and restore the title.
            (None, b"", b't') => matches!(first, 14 | 16 | 18 | 22 | 23),
            (Some(b'?'), b"$", b'p') => count == 1 && private_mode(first),
            (None, b"$", b'p') => count == 1 && matches!(first, 4 | 20),
            (Some(b'?'), b"", b'h' | b'l' | b'r' | b's') => self.keep_modes(private_mode),
            (None, b"", b'h' | b'l') => self.keep_modes(|mode| matches!(mode, 4 | 20)),
            _ => false,
        };
        is_allowed.then_some(self)
    }

    /// Returns a parameter as a number; one that was left out is 0.
    fn number(&self, index: usize) -> u16 {
        self.parameters.get(index).and_then(|parameter| *parameter.first()?).unwrap_or(0)
    }

    /// Removes all modes that `is_allowed` refuses, and returns whether a mode is left.
    fn keep_modes(&mut self, is_allowed: impl Fn(u16) -> bool) -> bool {
        self.parameters.retain(|mode| matches!(mode.as_slice(), [Some(mode)] if is_allowed(*mode)));
        !self.parameters.is_empty()
    }

    /// Appends the bytes of the sequence to `out`.
    pub(super) fn write(&self, out: &mut Vec<u8>) {
        let number = |number: &Option<u16>| number.map_or_else(String::new, |it| it.to_string());
        let parameter =
            |parts: &Vec<Option<u16>>| parts.iter().map(number).collect::<Vec<_>>().join(":");
        let parameters: Vec<String> = self.parameters.iter().map(parameter).collect();
        out.extend_from_slice(b"\x1b[");
        out.extend(self.prefix);
        out.extend_from_slice(parameters.join(";").as_bytes());
        out.extend_from_slice(&self.between);
        out.push(self.last);
    }
}
