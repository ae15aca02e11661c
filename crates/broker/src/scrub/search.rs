//! Finds the forms of all values in bytes, fast where there are none.
//!
//! Every form has at least eight bytes when nothing in it is escaped. Of each window of eight bytes the
//! last four are looked up in a small set of bits that holds all runs of four from the first eight bytes
//! of any form; if they are not there, none of the five places that the run could belong to begins a
//! form, and the search goes on five bytes further. Only around bytes that open an escape, at the
//! end of the bytes, and where the set says "perhaps", a place is looked at by itself. The
//! answers depend on [`verify`] alone: all else only skips places where it would say no.

use super::forms::{Form, Unit, forms, plain_form};
use super::spell::{escapes, opens_escape, read, skip_breaks};

/// The shortest value that is looked for. Of a shorter one any text has occurrences by accident, and
/// replacing those would tell what it is (B09).
pub const MIN_VALUE: usize = 8;

/// Line breaks are looked for only after so many units, else every line end that happens to follow the
/// first letter of a form would be held back.
const UNITS_BEFORE_BREAK: usize = 8;

/// So many bytes of a value at the end of the bytes count as the value, although the rest is missing
/// (B07). Fewer must not: that would let the box guess a value piece by piece (B09).
const CUT_VALUE: usize = 16;

const WINDOW: usize = MIN_VALUE;
const GRAM: usize = 4;
const STEP: usize = WINDOW - GRAM + 1;
/// How far to look for the next escape at once; a bound, because the search begins anew after each find.
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

/// All forms of some values, ready to be searched for.
pub(super) struct Search {
    forms: Vec<Form>,
    /// Runs of four bytes at any place of the first eight of a form.
    grams: Bits,
    /// The first four bytes of a form.
    starts: Bits,
    /// The first two bytes of a form.
    pairs: Bits,
    /// The forms by each of their possible first bytes, as places in `forms`.
    by_first: Vec<Vec<usize>>,
    /// The forms whose first character is beyond ASCII.
    wide: Vec<usize>,
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
        let size = (forms.len() * 1024).next_power_of_two().clamp(1 << 13, 1 << 20);
        let mut search = Self {
            grams: Bits::new(size),
            starts: Bits::new(size),
            pairs: Bits::new(1 << 16),
            by_first: vec![Vec::new(); 256],
            wide: Vec::new(),
            forms: Vec::new(),
        };
        for (index, form) in forms.iter().enumerate() {
            search.index(index, form);
        }
        search.forms = forms;
        search
    }

    fn index(&mut self, index: usize, form: &Form) {
        let raw = form.raw_prefix(WINDOW);
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
    }

    /// The first place from `from` on at which a form begins, or may begin.
    pub(super) fn next(&self, text: &[u8], from: usize, rest: Rest) -> Next {
        if self.forms.is_empty() {
            return Next::Clean;
        }
        let mut pos = from;
        while pos < text.len() {
            let block = text.get(pos..text.len().min(pos + BLOCK)).unwrap_or_default();
            let escape = memchr::memchr3(b'%', b'\\', b'&', block).map(|index| pos + index);
            let limit = escape.unwrap_or(pos + block.len());
            // Windows without an escape.
            while let Some(window) = text.get(pos..limit).and_then(<[u8]>::first_chunk::<WINDOW>) {
                let [_, _, _, _, gram @ ..] = *window;
                if self.grams.has(self.grams.hash(gram))
                    && let Some(next) = self.near(text, pos, rest)
                {
                    return next;
                }
                pos += STEP;
            }
            // The places close before an escape and the escape itself, or before the end.
            let until = match escape {
                Some(escape) => escape + 1,
                None if limit == text.len() => limit,
                None => continue,
            };
            while pos < until {
                if let Some(next) = self.close(text, pos, rest) {
                    return next;
                }
                pos += 1;
            }
        }
        Next::Clean
    }

    /// Looks at the places to which the run of bytes in the set can belong.
    fn near(&self, text: &[u8], pos: usize, rest: Rest) -> Option<Next> {
        (pos..pos + STEP).find_map(|at| {
            let &start = text.get(at..)?.first_chunk::<GRAM>()?;
            let perhaps = self.starts.has(self.starts.hash(start));
            perhaps.then(|| self.close(text, at, rest)).flatten()
        })
    }

    /// Looks at one place.
    fn close(&self, text: &[u8], at: usize, rest: Rest) -> Option<Next> {
        let &first = text.get(at)?;
        let candidates = self.by_first.get(usize::from(first))?;
        if opens_escape(first) {
            return self.escaped(text, at, rest);
        }
        if candidates.is_empty() {
            return None;
        }
        if let Some(&second) = text.get(at + 1)
            && !opens_escape(second)
            && !self.pairs.has(u16::from_le_bytes([first, second]).into())
        {
            return None;
        }
        let mut best = Best::default();
        self.try_all(candidates, text, at, rest, &mut best);
        best.next(at, rest)
    }

    /// Looks at one place where an escape opens.
    fn escaped(&self, text: &[u8], at: usize, rest: Rest) -> Option<Next> {
        let mut best = Best::default();
        let of = |code: u32| {
            let byte = usize::try_from(code).ok();
            byte.and_then(|byte| self.by_first.get(byte)).unwrap_or(&self.wide)
        };
        if let Some(&first) = text.get(at) {
            self.try_all(of(first.into()), text, at, rest, &mut best);
        }
        let cut = escapes(text, at, |code, _| {
            self.try_all(of(code), text, at, rest, &mut best);
            if (0x80..0x100).contains(&code) {
                self.try_all(&self.wide, text, at, rest, &mut best);
            }
        });
        best.pending |= cut;
        best.next(at, rest)
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
