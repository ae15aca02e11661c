//! The forms in which a response can contain a value: plain, base64 at each offset, hex.
//!
//! A form is a sequence of units. A unit is one character with all its equivalents, such as both
//! cases of a hex digit. The escapes of a character are handled by [`super::spell`], so any mix of
//! escapes within any form is found.

use zeroize::{DefaultIsZeroes, Zeroize as _};

/// One character of an encoded value.
#[derive(Clone, Copy)]
pub(super) enum Unit {
    /// Exactly this byte.
    Byte(u8),
    /// A character outside ASCII, which has more than one byte.
    Char(char),
    /// A base64 digit (of either alphabet) whose bits under `mask` equal `value`.
    Sextet { mask: u8, value: u8 },
    /// A hexadecimal digit, in upper or lower case.
    Nibble(u8),
}

impl Default for Unit {
    fn default() -> Self {
        Self::Byte(0)
    }
}

impl DefaultIsZeroes for Unit {}

impl Unit {
    /// Returns whether an escape for the code point `code` matches this character.
    pub(super) fn accepts(self, code: u32) -> bool {
        match self {
            Self::Byte(byte) => code == u32::from(byte),
            Self::Char(char) => code == u32::from(char),
            Self::Sextet { mask, value } => {
                u8::try_from(code).ok().and_then(sextet).is_some_and(|bits| bits & mask == value)
            }
            Self::Nibble(value) => {
                char::from_u32(code).and_then(|c| c.to_digit(16)) == Some(u32::from(value))
            }
        }
    }

    /// Returns whether a byte that is not escaped matches this character.
    pub(super) fn accepts_raw(self, byte: u8) -> bool {
        match self {
            // URL-encoded forms write a space as a plus sign.
            Self::Byte(b' ') => byte == b' ' || byte == b'+',
            Self::Byte(own) => own == byte,
            Self::Char(_) => false,
            Self::Sextet { .. } | Self::Nibble(_) => self.accepts(u32::from(byte)),
        }
    }

    /// Returns whether the character is a single byte if it is not escaped.
    pub(super) fn is_one_byte(self) -> bool {
        !matches!(self, Self::Char(_))
    }

    /// Appends the possible values of each byte of the character, without escapes.
    fn raw(self, out: &mut Vec<Vec<u8>>) {
        match self {
            Self::Char(char) => out.extend(char.encode_utf8(&mut [0; 4]).bytes().map(|b| vec![b])),
            Self::Byte(_) | Self::Sextet { .. } | Self::Nibble(_) => {
                out.push((0..=u8::MAX).filter(|&byte| self.accepts_raw(byte)).collect());
            }
        }
    }
}

/// One encoding of one secret value, for example plain, hexadecimal or base64.
pub(super) struct Form {
    pub(super) units: Vec<Unit>,
    /// Index of the value.
    pub(super) secret: usize,
    kind: Kind,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Plain,
    Base64,
    Hex,
}

impl Drop for Form {
    fn drop(&mut self) {
        self.units.zeroize();
    }
}

impl Form {
    /// Returns how many bytes of the secret value the first `units` characters of the encoding
    /// contain.
    pub(super) fn value_bytes(&self, units: usize) -> usize {
        match self.kind {
            Kind::Plain => units,
            Kind::Base64 => units * 3 / 4,
            Kind::Hex => units / 2,
        }
    }

    /// Returns whether line breaks can occur within the encoding, as in base64.
    pub(super) fn wraps(&self) -> bool {
        self.kind != Kind::Plain
    }

    /// Returns the possible values of each of the first `count` bytes of the encoding, without
    /// escapes.
    pub(super) fn raw_prefix(&self, count: usize) -> Vec<Vec<u8>> {
        let mut raw = Vec::new();
        for unit in self.units.iter().take(count) {
            unit.raw(&mut raw);
        }
        raw.truncate(count);
        raw
    }
}

/// Returns the unencoded form of a secret value.
pub(super) fn plain_form(secret: usize, value: &[u8]) -> Form {
    Form { units: plain(value), secret, kind: Kind::Plain }
}

/// Returns all encodings of a secret value that the search recognizes.
pub(super) fn forms(secret: usize, value: &[u8]) -> Vec<Form> {
    let form = |units, kind| Form { units, secret, kind };
    let mut forms = vec![plain_form(secret, value)];
    if !value.is_ascii() {
        // Programs that read headers as Latin-1 turn every byte into one character.
        forms.push(form(value.iter().map(|&b| of_char(char::from(b))).collect(), Kind::Plain));
    }
    forms.extend((0..3).map(|offset| form(base64(value, offset), Kind::Base64)));
    forms.push(form(hex(value), Kind::Hex));
    forms
}

fn plain(value: &[u8]) -> Vec<Unit> {
    match std::str::from_utf8(value) {
        Ok(text) => text.chars().map(of_char).collect(),
        Err(_) => value.iter().copied().map(Unit::Byte).collect(),
    }
}

fn of_char(char: char) -> Unit {
    match u8::try_from(char) {
        Ok(byte) if byte.is_ascii() => Unit::Byte(byte),
        _ => Unit::Char(char),
    }
}

/// Returns the base64 digits of `value` after `offset` unknown bytes. Digits at the ends also
/// contain bits of neighbouring bytes, so only the bits of the value are compared.
fn base64(value: &[u8], offset: usize) -> Vec<Unit> {
    let mut units: Vec<(u8, u8)> = Vec::new();
    let (from, to) = (offset * 8, (offset + value.len()) * 8);
    let first = from / 6;
    for bit in from..to {
        if bit / 6 - first == units.len() {
            units.push((0, 0));
        }
        let byte = value.get(bit / 8 - offset).copied().unwrap_or(0);
        let set = byte >> (7 - bit % 8) & 1;
        if let Some((mask, bits)) = units.last_mut() {
            *mask |= 1 << (5 - bit % 6);
            *bits |= set << (5 - bit % 6);
        }
    }
    units.iter().map(|&(mask, value)| Unit::Sextet { mask, value }).collect()
}

fn hex(value: &[u8]) -> Vec<Unit> {
    value.iter().flat_map(|&byte| [Unit::Nibble(byte >> 4), Unit::Nibble(byte & 15)]).collect()
}

/// Returns the value of a base64 digit in either alphabet.
fn sextet(digit: u8) -> Option<u8> {
    match digit {
        b'A'..=b'Z' => Some(digit - b'A'),
        b'a'..=b'z' => Some(digit - b'a' + 26),
        b'0'..=b'9' => Some(digit - b'0' + 52),
        b'+' | b'-' => Some(62),
        b'/' | b'_' => Some(63),
        _ => None,
    }
}
