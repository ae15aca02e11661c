//! Searches bytes for the forms of all values; fast where there are none.
//!
//! Every form has at least eight bytes without escapes. The last four bytes of each window are
//! looked up in a bit set, which contains all runs of four bytes from the starts of the forms. If
//! the run is missing, no form starts at any position that contains the run, and the search skips
//! them. A form with an escape in its window is found from the escape: the positions before an
//! escape are checked only if its character occurs in the window of a form. Only [`verify`] decides
//! about a match; everything else only skips positions where it would fail.

use std::ops::Range;

use super::forms::{Form, Unit, forms, plain_form};
use super::spell::{escapes, opens_escape, read, skip_any, skip_breaks};

/// The minimum length of a secret value in bytes. A shorter one occurs in ordinary text by
/// accident, and replacing it would reveal the value (B09).
pub const MIN_VALUE: usize = 8;

/// The number of matched characters after which input that ends with a line break is held back.
/// After fewer, it is held back only within a line of digits: the last character of ordinary text is
/// often the first one of some encoding, and must not wait for the next line.
const UNITS_BEFORE_BREAK: usize = 4;
/// The number of digits before a value that make a line of digits.
const DIGITS_BEFORE: usize = 16;

/// The minimum number of bytes of a truncated value that count as the value (B07). Fewer bytes would
/// let the box guess a value piece by piece (B09).
const MIN_TRUNCATED: usize = 16;

/// Longest window. A longer one skips more at once, but needs more checks before each escape.
const MAX_WINDOW: usize = 12;
const GRAM: usize = 4;
/// The number of bytes that are searched at once; limited, because the search restarts after each
/// match.
const BLOCK: usize = 8 * 1024;

/// What can follow after the searched text.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Rest {
    /// More input can follow, so an incomplete value at the end is kept back.
    Open,
    /// More input can follow, but the first complete value is reported even if it could become
    /// longer.
    OpenOrFound,
    /// No input follows.
    End,
    /// No input follows, and a truncated value at the end counts as a match.
    EndOrCut,
}

/// The next position where a value starts, or possibly starts.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Next {
    /// No value starts anywhere in the text.
    Clean,
    /// The longest encoded value that starts at this position, with its index.
    Found { at: usize, end: usize, secret: usize },
    /// An encoded value possibly starts at this position; more input is needed.
    Pending { at: usize },
}

impl Next {
    fn position(&self) -> Option<usize> {
        match self {
            Self::Clean => None,
            Self::Found { at, .. } | Self::Pending { at } => Some(*at),
        }
    }
}

/// A search index for all encodings of some secret values.
pub(super) struct Search {
    forms: Vec<Form>,
    /// The number of bytes at the start of each encoding that `grams` contains.
    window: usize,
    /// All runs of four bytes near the start of an encoding.
    grams: Bits,
    /// The first four bytes of each encoding.
    starts: Bits,
    /// The first two bytes of each encoding.
    pairs: Bits,
    /// The indices of `forms` by each possible first byte.
    by_first: Vec<Vec<usize>>,
    /// The indices of encodings whose first character is outside ASCII.
    wide: Vec<usize>,
    /// The ASCII characters that occur near the start of any encoding.
    early: Bits,
    /// Whether a character outside ASCII occurs near the start of any encoding.
    wide_early: bool,
}

impl Search {
    pub(super) fn new(values: &[&[u8]]) -> Self {
        let values = values.iter().enumerate();
        Self::of(values.flat_map(|(secret, value)| forms(secret, value)).collect())
    }

    /// Creates a search index for the unencoded values only.
    pub(super) fn plain(values: &[&[u8]]) -> Self {
        let values = values.iter().enumerate();
        Self::of(values.map(|(secret, value)| plain_form(secret, value)).collect())
    }

    fn of(forms: Vec<Form>) -> Self {
        let raw = forms.iter().map(|form| form.raw_prefix(MAX_WINDOW).len());
        let size = (forms.len() * 1024).next_power_of_two().clamp(1 << 13, 1 << 20);
        let mut search = Self {
            window: raw.min().unwrap_or(MAX_WINDOW),
            grams: Bits::new(size),
            starts: Bits::new((size / 8).max(1 << 13)),
            pairs: Bits::new(1 << 16),
            by_first: vec![Vec::new(); 256],
            wide: Vec::new(),
            early: Bits::new(128),
            wide_early: false,
            forms: Vec::new(),
        };
        for (index, form) in forms.iter().enumerate() {
            search.index(index, form);
        }
        search.forms = forms;
        search
    }

    fn index(&mut self, index: usize, form: &Form) {
        let raw = form.raw_prefix(self.window);
        for (offset, window) in raw.windows(GRAM).enumerate() {
            each(window, &mut |gram: [u8; GRAM]| {
                self.grams.set(self.grams.hash(gram));
                if offset == 0 {
                    self.starts.set(self.starts.hash(gram));
                }
            });
        }
        if let Some(pair) = raw.get(..2) {
            each(pair, &mut |pair: [u8; 2]| self.pairs.set(u16::from_le_bytes(pair).into()));
        }
        for &byte in raw.first().into_iter().flatten() {
            if let Some(list) = self.by_first.get_mut(usize::from(byte)) {
                list.push(index);
            }
        }
        if let Some(Unit::Char(_)) = form.units.first() {
            self.wide.push(index);
        }
        if form.wraps() {
            // An escaped line break can follow each of the first characters.
            [10, 13].into_iter().for_each(|code| self.early.set_code(code));
        }
        for unit in form.units.iter().take(self.window) {
            (0..128).filter(|&code| unit.accepts(code)).for_each(|code| self.early.set_code(code));
            self.wide_early |= (128..256).any(|code| unit.accepts(code)) || !unit.is_one_byte();
        }
    }

    /// Returns the first position at or after `from` where a value starts or possibly starts.
    pub(super) fn next(&self, text: &[u8], from: usize, rest: Rest) -> Next {
        if self.forms.is_empty() {
            return Next::Clean;
        }
        // After this position there is no complete window.
        let tail = text.len().saturating_sub(self.window - 1);
        let mut pos = from;
        while pos < tail {
            let stop = tail.min(pos + BLOCK);
            let escaped = self.by_escapes(text, pos..stop, rest);
            let until = escaped.as_ref().and_then(Next::position).unwrap_or(stop);
            let escaped = self.by_breaks(text, pos..until, rest).or(escaped);
            let until = escaped.as_ref().and_then(Next::position).unwrap_or(stop);
            if let Some(next) = self.by_windows(text, pos..until, rest).or(escaped) {
                return next;
            }
            pos = stop;
        }
        let mut tail = pos..text.len();
        tail.find_map(|at| self.at(text, at, rest)).unwrap_or(Next::Clean)
    }

    /// Returns the first position where a value without an escape near its start begins. Can also
    /// return other matches, but no false ones.
    #[inline(never)]
    fn by_windows(&self, text: &[u8], places: Range<usize>, rest: Rest) -> Option<Next> {
        let last = self.window - GRAM;
        let mut pos = places.start;
        while pos < places.end {
            let gram = gram(text, pos + last)?;
            let next = pos + last + 1;
            if self.grams.has(self.grams.hash(gram)) {
                // All positions that the run of bytes can belong to.
                let mut near = pos..next.min(places.end);
                let found = near.find_map(|at| {
                    let starts = self.starts.has(self.starts.hash(self::gram(text, at)?));
                    starts.then(|| self.at(text, at, rest)).flatten()
                });
                if found.is_some() {
                    return found;
                }
            }
            pos = next;
        }
        None
    }

    /// Returns the first position where a value with an escape near its start begins.
    #[inline(never)]
    fn by_escapes(&self, text: &[u8], places: Range<usize>, rest: Rest) -> Option<Next> {
        let reach = self.window - 1;
        let end = text.len().min(places.end + reach);
        let mut pos = places.start;
        for found in memchr::memchr3_iter(b'%', b'\\', b'&', text.get(pos..end)?) {
            let escape = places.start + found;
            if !self.is_early_escape(text, escape) {
                continue;
            }
            pos = pos.max(escape.saturating_sub(reach));
            while pos <= escape && pos < places.end {
                let next = self.at(text, pos, rest);
                if next.is_some() {
                    return next;
                }
                pos += 1;
            }
        }
        None
    }

    /// Returns the first position where a value with a line break near its start begins.
    #[inline(never)]
    fn by_breaks(&self, text: &[u8], places: Range<usize>, rest: Rest) -> Option<Next> {
        let reach = self.window - 1;
        let end = text.len().min(places.end + reach);
        let mut pos = places.start;
        for found in memchr::memchr2_iter(b'\r', b'\n', text.get(pos..end)?) {
            let line = places.start + found;
            let is_digit = |at: usize| text.get(at).is_some_and(|&byte| is_digit(byte));
            // A line of an encoding ends with a digit; escapes at its end are found by themselves.
            if line == 0 || !is_digit(line - 1) {
                continue;
            }
            pos = pos.max(line.saturating_sub(reach));
            while pos < line && pos < places.end {
                let next = self.at(text, pos, rest);
                if next.is_some() {
                    return next;
                }
                pos += 1;
            }
        }
        None
    }

    /// Returns whether an escape represents a character that occurs near the start of a value.
    fn is_early_escape(&self, text: &[u8], at: usize) -> bool {
        let mut early = false;
        let cut = escapes(text, at, |code, _| {
            early |= match u8::try_from(code) {
                Ok(byte) if byte.is_ascii() => self.early.has(byte.into()),
                _ => self.wide_early,
            };
        });
        early || cut
    }

    /// Checks one position.
    #[inline(never)]
    fn at(&self, text: &[u8], at: usize, rest: Rest) -> Option<Next> {
        match text.get(at) {
            Some(&byte) if opens_escape(byte) => self.escaped(text, at, rest),
            _ => self.unescaped(text, at, rest),
        }
    }

    /// Checks whether a value starts at a position without an escape.
    fn unescaped(&self, text: &[u8], at: usize, rest: Rest) -> Option<Next> {
        let &first = text.get(at)?;
        if !self.can_start(u32::from(first), text, at + 1) {
            return None;
        }
        let mut best = Best::default();
        self.try_all(self.starting_with(first.into()), text, at, rest, &mut best);
        best.next(at, rest)
    }

    /// Checks whether a value starts at a position with an escape.
    fn escaped(&self, text: &[u8], at: usize, rest: Rest) -> Option<Next> {
        let &first = text.get(at)?;
        let mut best = Best::default();
        let mut read = |code: u32, end: usize| {
            if self.can_start(code, text, end) {
                self.try_all(self.starting_with(code), text, at, rest, &mut best);
                if (0x80..0x100).contains(&code) {
                    self.try_all(&self.wide, text, at, rest, &mut best);
                }
            }
        };
        read(first.into(), at + 1);
        let cut = escapes(text, at, read);
        best.pending |= cut;
        best.next(at, rest)
    }

    /// Returns the indices of the encodings that start with this character.
    fn starting_with(&self, code: u32) -> &[usize] {
        let byte = usize::try_from(code).ok();
        byte.and_then(|byte| self.by_first.get(byte)).unwrap_or(&self.wide)
    }

    /// Returns whether a value can start with the character `code`, followed by the text at `then`.
    /// Compares the first two characters of all forms, so a true result is not certain.
    fn can_start(&self, code: u32, text: &[u8], then: usize) -> bool {
        let Some(first) = u8::try_from(code).ok().filter(u8::is_ascii) else {
            // A character outside ASCII differs from its first byte.
            return self.wide_early;
        };
        let pair = |second: u8| self.pairs.has(u16::from_le_bytes([first, second]).into());
        match text.get(then) {
            None | Some(b'\r' | b'\n') => !self.starting_with(code).is_empty(),
            Some(&second) if !opens_escape(second) => pair(second),
            Some(&second) => {
                let mut may = pair(second);
                let cut = escapes(text, then, |code, _| {
                    may |= match u8::try_from(code) {
                        Ok(b'\r' | b'\n') => true,
                        Ok(second) if second.is_ascii() => pair(second),
                        _ => self.wide_early,
                    };
                });
                may || cut && !self.starting_with(code).is_empty()
            }
        }
    }

    fn try_all(&self, list: &[usize], text: &[u8], at: usize, rest: Rest, best: &mut Best) {
        for form in list.iter().filter_map(|&index| self.forms.get(index)) {
            let matched = verify(form, text, at);
            if let Some(end) = matched.end {
                best.offer(end, form.secret);
            }
            if let Some(units) = matched.cut {
                best.pending = true;
                if rest == Rest::EndOrCut && form.value_bytes(units) >= MIN_TRUNCATED {
                    best.offer(text.len(), form.secret);
                }
            }
            if let Some((units, position)) = matched.short
                && matches!(rest, Rest::Open | Rest::EndOrCut)
                && form.value_bytes(units) >= MIN_TRUNCATED
            {
                let rest = skim(form, text, units, position);
                best.pending |= rest.is_cut;
                if form.value_bytes(units) >= needed(form.value_bytes(rest.units)) {
                    best.offer(rest.end, form.secret);
                }
            }
        }
    }
}

#[cfg(test)]
impl Search {
    /// Returns the match at `at` by trying every encoding; tests compare the fast search with it.
    pub(super) fn brute(&self, text: &[u8], at: usize) -> Option<(usize, usize)> {
        let all: Vec<usize> = (0..self.forms.len()).collect();
        let mut best = Best::default();
        self.try_all(&all, text, at, Rest::EndOrCut, &mut best);
        best.found
    }
}

/// The longest match at one position, and whether more bytes could make a longer one.
#[derive(Default)]
struct Best {
    found: Option<(usize, usize)>,
    pending: bool,
}

impl Best {
    fn offer(&mut self, end: usize, secret: usize) {
        // On a tie, the value with the lowest index wins, independent of the order of the forms.
        if self.found.is_none_or(|(best, other)| end > best || end == best && secret < other) {
            self.found = Some((end, secret));
        }
    }

    fn next(self, at: usize, rest: Rest) -> Option<Next> {
        let wait = match rest {
            Rest::Open => true,
            Rest::OpenOrFound => self.found.is_none(),
            Rest::End | Rest::EndOrCut => false,
        };
        if self.pending && wait {
            return Some(Next::Pending { at });
        }
        self.found.map(|(end, secret)| Next::Found { at, end, secret })
    }
}

/// The result of comparing one encoding of a value with the text at one position.
#[derive(Default)]
struct Match {
    /// The end of the longest match, if any.
    end: Option<usize>,
    /// The number of matched characters if the input ended within the value.
    cut: Option<usize>,
    /// The number of matched characters and the position after them if another character follows.
    short: Option<(usize, usize)>,
}

/// The text after a truncated value, up to the length of the value.
struct Skimmed {
    /// The number of characters from the start of the value.
    units: usize,
    end: usize,
    /// Whether the input ended.
    is_cut: bool,
}

/// Reads the text after a truncated value up to a delimiter or the length of the value.
fn skim(form: &Form, text: &[u8], mut units: usize, mut end: usize) -> Skimmed {
    while units < form.units.len() {
        match skip_any(text, end) {
            None => return Skimmed { units, end: text.len(), is_cut: true },
            Some(Err(_)) => break,
            Some(Ok(next)) => (units, end) = (units + 1, next),
        }
    }
    Skimmed { units, end, is_cut: false }
}

/// Returns how many bytes of a truncated value must be right in a text of `length` bytes: the largest
/// of 16, 24, 36, 54, … that is not above `length`.
///
/// The bytes between two of these numbers have no influence on the result. So a program that guesses
/// must guess all of them at once, and cannot confirm one byte after the other (B09).
fn needed(length: usize) -> usize {
    let mut needed = MIN_TRUNCATED;
    while needed + needed / 2 <= length {
        needed += needed / 2;
    }
    needed
}

/// Returns whether a byte is a digit of base64 or hex.
fn is_digit(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"+/-_".contains(&byte)
}

/// Returns whether the text before a position is a line of digits.
fn is_in_digits(text: &[u8], at: usize) -> bool {
    let before = at.checked_sub(DIGITS_BEFORE).and_then(|from| text.get(from..at));
    before.is_some_and(|before| before.iter().all(|&byte| is_digit(byte)))
}

/// Compares the text at position `at` with one encoding of a value. Almost always, each unit has
/// one reading. Otherwise all readings are followed, so the work is bounded by units times bytes.
fn verify(form: &Form, text: &[u8], at: usize) -> Match {
    let mut matched = Match::default();
    let mut position = at;
    for (index, &unit) in form.units.iter().enumerate() {
        if form.wraps() && index > 0 {
            match skip_breaks(text, position) {
                Some(next) => position = next,
                None if index >= UNITS_BEFORE_BREAK || position == text.len() => {
                    return Match { cut: Some(index), ..Match::default() };
                }
                None if is_in_digits(text, at) => {
                    return Match { cut: Some(index), ..Match::default() };
                }
                None => return matched,
            }
        }
        match text.get(position) {
            Some(&byte) if !opens_escape(byte) && unit.is_one_byte() => {
                if !unit.accepts_raw(byte) {
                    matched.short = Some((index, position));
                    return matched;
                }
                position += 1;
                continue;
            }
            _ => {}
        }
        let ends = read(unit, text, position);
        if ends.cut {
            matched.cut = Some(index);
        }
        match ends.as_slice() {
            [] => {
                matched.short = Some((index, position)).filter(|_| !ends.cut);
                return matched;
            }
            [next] => position = *next,
            several => return verify_all(form, text, index + 1, several.to_vec(), matched.cut),
        }
    }
    matched.end = Some(position);
    matched
}

/// Compares like [`verify`], but from character `from` on and at several positions at once.
fn verify_all(
    form: &Form,
    text: &[u8],
    from: usize,
    mut places: Vec<usize>,
    mut cut: Option<usize>,
) -> Match {
    let mut short = None;
    for (index, &unit) in form.units.iter().enumerate().skip(from) {
        let mut next = Vec::new();
        for &position in &places {
            let position = if form.wraps() {
                skip_breaks(text, position).unwrap_or(text.len())
            } else {
                position
            };
            let ends = read(unit, text, position);
            if ends.cut {
                cut = Some(index);
            }
            next.extend_from_slice(ends.as_slice());
        }
        next.sort_unstable();
        next.dedup();
        let before = std::mem::replace(&mut places, next);
        if places.is_empty() {
            short = before.last().map(|last| (index, *last)).filter(|_| cut.is_none());
            break;
        }
    }
    Match { end: places.last().copied(), cut, short }
}

fn gram(text: &[u8], at: usize) -> Option<[u8; GRAM]> {
    text.get(at..)?.first_chunk().copied()
}

/// A set of small numbers, stored as bits.
struct Bits {
    words: Vec<u64>,
    shift: u32,
}

impl Bits {
    /// Creates an empty set for `size` numbers, a power of two.
    fn new(size: usize) -> Self {
        Self { words: vec![0; size / 64], shift: 32 - size.trailing_zeros() }
    }

    fn hash(&self, gram: [u8; GRAM]) -> usize {
        // The usual multiplier of Fibonacci hashing; the upper bits are the mixed ones.
        let mixed = u32::from_le_bytes(gram).wrapping_mul(0x9e37_79b1) >> self.shift;
        usize::try_from(mixed).unwrap_or(usize::MAX)
    }

    fn has(&self, number: usize) -> bool {
        self.words.get(number / 64).is_some_and(|word| word >> (number % 64) & 1 == 1)
    }

    fn set_code(&mut self, code: u32) {
        if let Ok(number) = usize::try_from(code) {
            self.set(number);
        }
    }

    fn set(&mut self, number: usize) {
        if let Some(word) = self.words.get_mut(number / 64) {
            *word |= 1 << (number % 64);
        }
    }
}

/// Calls `with` for every combination of one byte per position.
fn each<const N: usize>(choices: &[Vec<u8>], with: &mut impl FnMut([u8; N])) {
    fn go<const N: usize>(
        choices: &[Vec<u8>],
        at: usize,
        made: &mut [u8; N],
        with: &mut impl FnMut([u8; N]),
    ) {
        match (choices.split_first(), made.get_mut(at)) {
            (Some((here, after)), Some(_)) => {
                for &byte in here {
                    if let Some(slot) = made.get_mut(at) {
                        *slot = byte;
                    }
                    go(after, at + 1, made, with);
                }
            }
            _ => with(*made),
        }
    }
    go(choices, 0, &mut [0; N], with);
}
