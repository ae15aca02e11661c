//! Finds the forms of all values in bytes, fast where there are none.
//!
//! Every form has at least eight bytes when nothing in it is escaped. Of each window of so many bytes
//! the last four are looked up in a small set of bits that holds all runs of four from the beginnings of
//! the forms; if they are not there, none of the places that the run could belong to begins a form,
//! and the search goes on behind them. A form with an escape in its window is found from the escape:
//! only one that stands for a character in some form's window has the places before it looked at. The
//! answers depend on [`verify`] alone: all else only skips places where it would say no.

use std::ops::Range;

use super::forms::{Form, Unit, forms, plain_form};
use super::spell::{escapes, opens_escape, read, skip_breaks};

/// The shortest value that is looked for. Of a shorter one any text has occurrences by accident, and
/// replacing those would tell what it is (B09).
pub const MIN_VALUE: usize = 8;

/// Line breaks are looked for only after so many units, else every line end that happens to follow the
/// first letter of a form would be held back.
const UNITS_BEFORE_BREAK: usize = MAX_WINDOW;

/// So many bytes of a value at the end of the bytes count as the value, although the rest is missing
/// (B07). Fewer must not: that would let the box guess a value piece by piece (B09).
const CUT_VALUE: usize = 16;

/// The longest window. A longer one skips more at once, but has more places before each escape.
const MAX_WINDOW: usize = 12;
const GRAM: usize = 4;
/// How far to look at once; a bound, because the search begins anew after each find.
const BLOCK: usize = 8 * 1024;

/// What follows after the bytes at hand.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Rest {
    /// Perhaps more.
    Open,
    /// Perhaps more, but the first form that is there is enough, however long it may become.
    OpenOrFound,
    /// Nothing.
    End,
    /// Nothing, and the beginning of a value at the end counts as one.
    EndOrCut,
}

/// The first place that matters.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Next {
    /// No form begins anywhere.
    Clean,
    /// A form of `secret`, the longest one that begins here.
    Found { at: usize, end: usize, secret: usize },
    /// Perhaps a form begins here; only the bytes that follow can tell.
    Pending { at: usize },
}

impl Next {
    fn place(&self) -> Option<usize> {
        match self {
            Self::Clean => None,
            Self::Found { at, .. } | Self::Pending { at } => Some(*at),
        }
    }
}

/// All forms of some values, ready to be searched for.
pub(super) struct Search {
    forms: Vec<Form>,
    /// So many bytes of each form are in `grams`.
    window: usize,
    /// Runs of four bytes at any place of a form's window.
    grams: Bits,
    /// The first four bytes of a form.
    starts: Bits,
    /// The first two bytes of a form.
    pairs: Bits,
    /// The forms by each of their possible first bytes, as places in `forms`.
    by_first: Vec<Vec<usize>>,
    /// The forms whose first character is beyond ASCII.
    wide: Vec<usize>,
    /// The ASCII characters in the window of any form.
    early: Bits,
    /// Whether any form has others there.
    wide_early: bool,
}

impl Search {
    pub(super) fn new(values: &[&[u8]]) -> Self {
        let values = values.iter().enumerate();
        Self::of(values.flat_map(|(secret, value)| forms(secret, value)).collect())
    }

    /// Of the plain forms only.
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
        for unit in form.units.iter().take(self.window) {
            (0..128).filter(|&code| unit.accepts(code)).for_each(|code| self.early.set_code(code));
            self.wide_early |= (128..256).any(|code| unit.accepts(code)) || !unit.is_one_byte();
        }
    }

    /// The first place from `from` on at which a form begins, or may begin.
    pub(super) fn next(&self, text: &[u8], from: usize, rest: Rest) -> Next {
        if self.forms.is_empty() {
            return Next::Clean;
        }
        // From here on there is no whole window.
        let tail = text.len().saturating_sub(self.window - 1);
        let mut pos = from;
        while pos < tail {
            let stop = tail.min(pos + BLOCK);
            let escaped = self.by_escapes(text, pos..stop, rest);
            let until = escaped.as_ref().and_then(Next::place).unwrap_or(stop);
            if let Some(next) = self.by_windows(text, pos..until, rest).or(escaped) {
                return next;
            }
            pos = stop;
        }
        let mut tail = pos..text.len();
        tail.find_map(|at| self.at(text, at, rest)).unwrap_or(Next::Clean)
    }

    /// The first of `places` where a form begins that has no escape in its window. Others may be told
    /// as well, but none that is not one.
    #[inline(never)]
    fn by_windows(&self, text: &[u8], places: Range<usize>, rest: Rest) -> Option<Next> {
        let last = self.window - GRAM;
        let mut pos = places.start;
        while pos < places.end {
            let gram = gram(text, pos + last)?;
            let next = pos + last + 1;
            if self.grams.has(self.grams.hash(gram)) {
                // Any of the places to which the run of bytes can belong.
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

    /// The first of `places` where a form begins that has an escape in its window.
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

    /// Whether what the escape stands for, or may stand for, is in the window of some form.
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

    /// Looks at one place.
    #[inline(never)]
    fn at(&self, text: &[u8], at: usize, rest: Rest) -> Option<Next> {
        match text.get(at) {
            Some(&byte) if opens_escape(byte) => self.escaped(text, at, rest),
            _ => self.close(text, at, rest),
        }
    }

    /// Looks at one place where no escape opens.
    fn close(&self, text: &[u8], at: usize, rest: Rest) -> Option<Next> {
        let &first = text.get(at)?;
        if !self.may_begin(u32::from(first), text, at + 1) {
            return None;
        }
        let mut best = Best::default();
        self.try_all(self.beginning(first.into()), text, at, rest, &mut best);
        best.next(at, rest)
    }

    /// Looks at one place where an escape opens.
    fn escaped(&self, text: &[u8], at: usize, rest: Rest) -> Option<Next> {
        let &first = text.get(at)?;
        let mut best = Best::default();
        let mut read = |code: u32, end: usize| {
            if self.may_begin(code, text, end) {
                self.try_all(self.beginning(code), text, at, rest, &mut best);
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

    /// The forms that begin with this character.
    fn beginning(&self, code: u32) -> &[usize] {
        let byte = usize::try_from(code).ok();
        byte.and_then(|byte| self.by_first.get(byte)).unwrap_or(&self.wide)
    }

    /// Whether a form may begin with the character `code`, followed by what stands at `then`. Only says
    /// no when that is sure, by the first two characters of all forms.
    fn may_begin(&self, code: u32, text: &[u8], then: usize) -> bool {
        let Some(first) = u8::try_from(code).ok().filter(u8::is_ascii) else {
            // Beyond ASCII a character is not its first byte.
            return self.wide_early;
        };
        let pair = |second: u8| self.pairs.has(u16::from_le_bytes([first, second]).into());
        match text.get(then) {
            None => !self.beginning(code).is_empty(),
            Some(&second) if !opens_escape(second) => pair(second),
            Some(&second) => {
                let mut may = pair(second);
                let cut = escapes(text, then, |code, _| {
                    may |= match u8::try_from(code) {
                        Ok(second) if second.is_ascii() => pair(second),
                        _ => self.wide_early,
                    };
                });
                may || cut && !self.beginning(code).is_empty()
            }
        }
    }

    fn try_all(&self, list: &[usize], text: &[u8], at: usize, rest: Rest, best: &mut Best) {
        for form in list.iter().filter_map(|&index| self.forms.get(index)) {
            let seen = verify(form, text, at);
            if let Some(end) = seen.end {
                best.offer(end, form.secret);
            }
            if let Some(units) = seen.cut {
                best.pending = true;
                if rest == Rest::EndOrCut && form.told(units) >= CUT_VALUE {
                    best.offer(text.len(), form.secret);
                }
            }
        }
    }
}

#[cfg(test)]
impl Search {
    /// What begins at `at`, by trying every form: the reference for all that is fast here.
    pub(super) fn brute(&self, text: &[u8], at: usize) -> Option<(usize, usize)> {
        let all: Vec<usize> = (0..self.forms.len()).collect();
        let mut best = Best::default();
        self.try_all(&all, text, at, Rest::EndOrCut, &mut best);
        best.found
    }
}

/// The longest form at one place, and whether more bytes could make a longer one.
#[derive(Default)]
struct Best {
    found: Option<(usize, usize)>,
    pending: bool,
}

impl Best {
    fn offer(&mut self, end: usize, secret: usize) {
        // Of equals the one that was given first; which that is must not depend on the order here.
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

/// What was seen of one form at one place.
struct Seen {
    /// Where it ends, if it is there; the longest reading.
    end: Option<usize>,
    /// After how many units the bytes stopped, if they stopped within it.
    cut: Option<usize>,
}

/// Reads `form` at `at`. Nearly always each unit has one reading; when there are more, all of them
/// are followed, so the work is bounded by units times bytes.
fn verify(form: &Form, text: &[u8], at: usize) -> Seen {
    let mut seen = Seen { end: None, cut: None };
    let mut place = at;
    for (index, &unit) in form.units.iter().enumerate() {
        if form.wraps() && index >= UNITS_BEFORE_BREAK {
            match skip_breaks(text, place) {
                Some(next) => place = next,
                None => return Seen { end: None, cut: Some(index) },
            }
        }
        match text.get(place) {
            Some(&byte) if !opens_escape(byte) && unit.is_one_byte() => {
                if !unit.accepts_raw(byte) {
                    return seen;
                }
                place += 1;
                continue;
            }
            _ => {}
        }
        let ends = read(unit, text, place);
        if ends.cut {
            seen.cut = Some(index);
        }
        match ends.as_slice() {
            [] => return seen,
            [next] => place = *next,
            several => return verify_all(form, text, index + 1, several.to_vec(), seen.cut),
        }
    }
    seen.end = Some(place);
    seen
}

/// As [`verify`] from unit `from` on, at several places at once.
fn verify_all(
    form: &Form,
    text: &[u8],
    from: usize,
    mut places: Vec<usize>,
    mut cut: Option<usize>,
) -> Seen {
    for (index, &unit) in form.units.iter().enumerate().skip(from) {
        let mut next = Vec::new();
        for &place in &places {
            let place = if form.wraps() && index >= UNITS_BEFORE_BREAK {
                skip_breaks(text, place).unwrap_or(text.len())
            } else {
                place
            };
            let ends = read(unit, text, place);
            if ends.cut {
                cut = Some(index);
            }
            next.extend_from_slice(ends.as_slice());
        }
        next.sort_unstable();
        next.dedup();
        places = next;
        if places.is_empty() {
            break;
        }
    }
    Seen { end: places.last().copied(), cut }
}

fn gram(text: &[u8], at: usize) -> Option<[u8; GRAM]> {
    text.get(at..)?.first_chunk().copied()
}

/// A set of small numbers.
struct Bits {
    words: Vec<u64>,
    shift: u32,
}

impl Bits {
    /// Room for `size` numbers, which is a power of two.
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

/// Calls `with` for every way to choose one byte at each place.
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
