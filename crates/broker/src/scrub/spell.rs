//! The spellings of one character: as it is, or as an escape of URLs, JSON, scripts or HTML.
//!
//! The functions read bytes from one position on and return where the character ends. They also
//! report if the input ends within a possible escape, so that the caller can wait for more.

use super::forms::Unit;

/// The maximum number of backslashes of an escape; seven is JSON within JSON within JSON.
const MAX_BACKSLASHES: usize = 8;
/// The maximum number of digits of an escape, including zeros at its start.
const MAX_DIGITS: usize = 16;

/// Returns whether an escape can start with this byte.
pub(super) fn opens_escape(byte: u8) -> bool {
    matches!(byte, b'%' | b'\\' | b'&')
}

/// The offsets at which a character ends, one for each way to decode it.
#[derive(Default)]
pub(super) struct Ends {
    at: [usize; 16],
    len: usize,
    /// Whether the input ended within another way to decode the character.
    pub(super) cut: bool,
}

impl Ends {
    fn push(&mut self, end: usize) {
        if self.as_slice().contains(&end) {
            return;
        }
        // A unit has fewer readings than slots: one raw, eight of backslashes, three of octal digits,
        // two of `%`.
        if let Some(slot) = self.at.get_mut(self.len) {
            *slot = end;
            self.len += 1;
        }
    }

    pub(super) fn as_slice(&self) -> &[usize] {
        self.at.get(..self.len).unwrap_or_default()
    }
}

/// Compares the text at `pos` with one character and returns the possible ends of the character.
pub(super) fn read(unit: Unit, text: &[u8], pos: usize) -> Ends {
    let mut ends = Ends::default();
    let Some(&byte) = text.get(pos) else {
        ends.cut = true;
        return ends;
    };
    if unit.accepts_raw(byte) {
        ends.push(pos + 1);
    }
    if let Unit::Char(char) = unit {
        read_bytes(char, text, pos, &mut ends);
    }
    if opens_escape(byte) {
        let cut = escapes(text, pos, |code, end| {
            if unit.accepts(code) {
                ends.push(end);
            }
        });
        ends.cut |= cut;
    }
    ends
}

/// Skips one line break and the spaces that continue a folded line, raw or escaped, at `pos`; `None`
/// if the input ends within them.
pub(super) fn skip_breaks(text: &[u8], mut pos: usize) -> Option<usize> {
    const MAX_INDENT: usize = 8;
    let mut last = None;
    // At most two characters; encoders do not write more per line break. An empty line is none.
    for _ in 0..2 {
        let &byte = text.get(pos)?;
        if matches!(byte, b'\r' | b'\n') {
            if last == Some(byte) || last == Some(b'\n') {
                break;
            }
            last = Some(byte);
            pos += 1;
        } else if last.is_some() {
            break;
        } else if opens_escape(byte) {
            let mut next = pos;
            let cut = escapes(text, pos, |code, end| {
                if code == 10 || code == 13 {
                    next = end;
                }
            });
            if next == pos {
                return if cut { None } else { Some(pos) };
            }
            pos = next;
        } else {
            return Some(pos);
        }
    }
    for _ in 0..MAX_INDENT {
        match text.get(pos)? {
            b' ' | b'\t' if last.is_some() => pos += 1,
            _ => break,
        }
    }
    Some(pos)
}

/// Skips one character of any kind, raw or escaped; `None` if the input ends within it. Returns an
/// error at a character that usually follows a value in text.
pub(super) fn skip_any(text: &[u8], pos: usize) -> Option<Result<usize, Delimiter>> {
    let is_delimiter =
        |code: u32| u8::try_from(code).is_ok_and(|byte| byte <= b' ' || b"\"'<>`".contains(&byte));
    let &byte = text.get(pos)?;
    if !opens_escape(byte) {
        return Some(if is_delimiter(byte.into()) { Err(Delimiter) } else { Ok(pos + 1) });
    }
    let mut read = None;
    let cut = escapes(text, pos, |code, end| {
        read.get_or_insert((code, end));
    });
    match read {
        Some((code, _)) if is_delimiter(code) => Some(Err(Delimiter)),
        Some((_, end)) => Some(Ok(end)),
        None if cut => None,
        None if byte == b'&' => Some(Err(Delimiter)),
        None => Some(Ok(pos + 1)),
    }
}

/// Returns a text with its escapes replaced by their characters, if those are single bytes.
pub(super) fn decoded(text: &[u8]) -> Vec<u8> {
    let (mut out, mut pos) = (Vec::with_capacity(text.len()), 0);
    while let Some(&byte) = text.get(pos) {
        let mut read = None;
        escapes(text, pos, |code, end| read = read.or(u8::try_from(code).ok().zip(Some(end))));
        let (byte, next) = read.unwrap_or((byte, pos + 1));
        out.push(byte);
        pos = next;
    }
    out
}

/// A character that usually follows a value in text: white space, a quote, or a bracket of HTML.
pub(super) struct Delimiter;

/// Compares the text with the bytes of a character outside ASCII, each of them raw or escaped.
fn read_bytes(char: char, text: &[u8], mut pos: usize, ends: &mut Ends) {
    for wanted in char.encode_utf8(&mut [0; 4]).bytes() {
        let Some(&byte) = text.get(pos) else {
            ends.cut = true;
            return;
        };
        if byte == wanted {
            pos += 1;
            continue;
        }
        let mut next = pos;
        if opens_escape(byte) {
            let cut = escapes(text, pos, |code, end| {
                if code == u32::from(wanted) {
                    next = end;
                }
            });
            ends.cut |= cut && next == pos;
        }
        if next == pos {
            return;
        }
        pos = next;
    }
    ends.push(pos);
}

/// Calls `found` for every character that an escape at `pos` can represent, with the end of the
/// escape. Returns true if the input ends within the escape.
pub(super) fn escapes(text: &[u8], pos: usize, mut found: impl FnMut(u32, usize)) -> bool {
    match text.get(pos) {
        Some(b'%') => percent(text, pos + 1, &mut found),
        Some(b'\\') => backslash(text, pos, &mut found),
        Some(b'&') => entity(text, pos + 1, &mut found),
        _ => false,
    }
}

/// Decodes a percent escape such as `%41`, or `%2541` from double encoding.
fn percent(text: &[u8], pos: usize, found: &mut impl FnMut(u32, usize)) -> bool {
    let once = hex_digits::<2>(text, pos);
    if let Digits::Whole(code) = once {
        found(code, pos + 2);
        if code == u32::from(b'%') {
            let twice = hex_digits::<2>(text, pos + 2);
            if let Digits::Whole(code) = twice {
                found(code, pos + 4);
            }
            return matches!(twice, Digits::Cut);
        }
    }
    matches!(once, Digits::Cut)
}

/// Decodes a backslash escape: `\n`, `\/`, `\101`, `\x41`, `\u0041`, `\u{41}`, `\U00000041` or a
/// surrogate pair; the backslash can itself be escaped.
fn backslash(text: &[u8], pos: usize, found: &mut impl FnMut(u32, usize)) -> bool {
    let rest = text.get(pos..).unwrap_or_default();
    let run = rest.iter().take(MAX_BACKSLASHES + 1).take_while(|&&b| b == b'\\').count();
    for end in 2..=run.min(MAX_BACKSLASHES) {
        found(u32::from(b'\\'), pos + end);
    }
    if run > MAX_BACKSLASHES {
        return false;
    }
    let letter = pos + run;
    let Some(&byte) = text.get(letter) else { return true };
    let code = match byte {
        b'u' | b'x' if text.get(letter + 1) == Some(&b'{') => {
            return braces(text, letter + 2, found);
        }
        b'u' | b'x' if text.get(letter + 1).is_none() => return true,
        b'u' => return unicode(text, letter + 1, found),
        b'U' => {
            let digits = hex_digits::<8>(text, letter + 1);
            if let Digits::Whole(code) = digits {
                found(code, letter + 9);
            }
            return matches!(digits, Digits::Cut);
        }
        b'0'..=b'7' => return octal(text, letter, found),
        b'x' => {
            let digits = hex_digits::<2>(text, letter + 1);
            if let Digits::Whole(code) = digits {
                found(code, letter + 3);
            }
            return matches!(digits, Digits::Cut);
        }
        b'n' => b'\n',
        b'r' => b'\r',
        b't' => b'\t',
        b'b' => 8,
        b'f' => 12,
        _ if byte.is_ascii_punctuation() => byte,
        _ => return false,
    };
    found(u32::from(code), letter + 1);
    false
}

/// Decodes one to three octal digits after a backslash.
fn octal(text: &[u8], pos: usize, found: &mut impl FnMut(u32, usize)) -> bool {
    let mut code = 0;
    for end in pos..pos + 3 {
        match text.get(end).map(|&byte| char::from(byte).to_digit(8)) {
            Some(Some(digit)) => code = code * 8 + digit,
            Some(None) => return false,
            None => return true,
        }
        found(code, end + 1);
    }
    false
}

/// Decodes hexadecimal digits up to a closing brace.
fn braces(text: &[u8], pos: usize, found: &mut impl FnMut(u32, usize)) -> bool {
    let mut code = 0_u32;
    for end in pos..=pos + MAX_DIGITS {
        match text.get(end) {
            None => return true,
            Some(b'}') => {
                if end > pos {
                    found(code, end + 1);
                }
                return false;
            }
            Some(&byte) => match char::from(byte).to_digit(16) {
                Some(digit) => code = code.saturating_mul(16).saturating_add(digit),
                None => return false,
            },
        }
    }
    false
}

/// Decodes the four digits after `\u`, and the second half of a surrogate pair.
fn unicode(text: &[u8], pos: usize, found: &mut impl FnMut(u32, usize)) -> bool {
    let code = match hex_digits::<4>(text, pos) {
        Digits::Whole(code) => code,
        Digits::Cut => return true,
        Digits::None => return false,
    };
    if !(0xd800..0xdc00).contains(&code) {
        found(code, pos + 4);
        return false;
    }
    let mut next = pos + 4;
    while text.get(next) == Some(&b'\\') && next < pos + 4 + MAX_BACKSLASHES {
        next += 1;
    }
    match text.get(next) {
        None => true,
        Some(b'u') if next > pos + 4 => match hex_digits::<4>(text, next + 1) {
            Digits::Whole(low @ 0xdc00..0xe000) => {
                found(0x10000 + ((code - 0xd800) << 10) + (low - 0xdc00), next + 5);
                false
            }
            Digits::Whole(_) | Digits::None => false,
            Digits::Cut => true,
        },
        Some(_) => false,
    }
}

/// Decodes an HTML entity: `&#65;`, `&#x41;`, or a named entity of an ASCII character.
fn entity(text: &[u8], pos: usize, found: &mut impl FnMut(u32, usize)) -> bool {
    match text.get(pos) {
        None => true,
        Some(b'#') => match text.get(pos + 1) {
            None => true,
            Some(b'x' | b'X') => numeric_entity(text, pos + 2, 16, found),
            Some(_) => numeric_entity(text, pos + 1, 10, found),
        },
        Some(_) => named_entity(text, pos, found),
    }
}

fn numeric_entity(text: &[u8], pos: usize, radix: u32, found: &mut impl FnMut(u32, usize)) -> bool {
    let mut code = 0_u32;
    let mut end = pos;
    while let Some(digit) = text.get(end).and_then(|&b| char::from(b).to_digit(radix)) {
        code = code.saturating_mul(radix).saturating_add(digit);
        end += 1;
        if end > pos + MAX_DIGITS {
            return false;
        }
    }
    match text.get(end) {
        None => {
            if end > pos {
                found(code, end);
            }
            true
        }
        Some(b';') if end > pos => {
            found(code, end + 1);
            false
        }
        // Browsers accept a missing semicolon.
        Some(_) if end > pos => {
            found(code, end);
            false
        }
        Some(_) => false,
    }
}

fn named_entity(text: &[u8], pos: usize, found: &mut impl FnMut(u32, usize)) -> bool {
    let rest = text.get(pos..).unwrap_or_default();
    let mut cut = false;
    let first = rest.first().copied().unwrap_or_default();
    if !first.is_ascii_alphabetic() {
        return rest.is_empty();
    }
    for (name, byte) in NAMES {
        // Most ampersands start no entity, and there are many of them.
        if name.as_bytes().first() != Some(&first) {
            continue;
        }
        if rest.starts_with(name.as_bytes()) {
            found(u32::from(*byte), pos + name.len());
        } else if name.as_bytes().starts_with(rest) {
            cut = true;
        }
    }
    cut
}

enum Digits {
    Whole(u32),
    /// The input ends within the hexadecimal digits of an escape.
    Cut,
    None,
}

fn hex_digits<const N: usize>(text: &[u8], pos: usize) -> Digits {
    let mut code = 0;
    for index in 0..N {
        match text.get(pos + index).map(|&b| char::from(b).to_digit(16)) {
            Some(Some(digit)) => code = code << 4 | digit,
            Some(None) => return Digits::None,
            None => return Digits::Cut,
        }
    }
    Digits::Whole(code)
}

/// The named entities of HTML for ASCII characters, in their usual spelling.
const NAMES: &[(&str, u8)] = &[
    ("Hat;", b'^'),
    ("NewLine;", b'\n'),
    ("Tab;", b'\t'),
    ("amp;", b'&'),
    ("apos;", b'\''),
    ("ast;", b'*'),
    ("bsol;", b'\\'),
    ("colon;", b':'),
    ("comma;", b','),
    ("commat;", b'@'),
    ("dollar;", b'$'),
    ("equals;", b'='),
    ("excl;", b'!'),
    ("grave;", b'`'),
    ("gt;", b'>'),
    ("lbrace;", b'{'),
    ("lbrack;", b'['),
    ("lcub;", b'{'),
    ("lowbar;", b'_'),
    ("lpar;", b'('),
    ("lsqb;", b'['),
    ("lt;", b'<'),
    ("num;", b'#'),
    ("percnt;", b'%'),
    ("period;", b'.'),
    ("plus;", b'+'),
    ("quest;", b'?'),
    ("quot;", b'"'),
    ("rbrace;", b'}'),
    ("rbrack;", b']'),
    ("rcub;", b'}'),
    ("rpar;", b')'),
    ("rsqb;", b']'),
    ("semi;", b';'),
    ("sol;", b'/'),
    ("verbar;", b'|'),
    ("vert;", b'|'),
];
