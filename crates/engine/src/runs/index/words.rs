//! The words of an index: names, principals and templates, each stored once.

use std::cell::RefCell;
use std::collections::HashMap;
use std::sync::Arc;

use memchr::memmem;

/// Separates words. No word contains it.
const SEPARATOR: char = '\n';

/// The number of words with a text from which words are compared one by one, when a run is compared.
const MANY: usize = 4096;

/// A word of an index.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct Word(u32);

/// All words of an index.
#[derive(Debug, Default)]
pub(super) struct Words {
    known: HashMap<Arc<str>, Word>,
    exact: Vec<Arc<str>>,
    /// All words in lower case, each followed by the separator.
    text: String,
    /// The ends of the words in the text, with their separators.
    ends: Vec<usize>,
}

impl Words {
    /// Returns the word of a text.
    pub(super) fn add(&mut self, text: &str) -> Word {
        if let Some(known) = self.known.get(text) {
            return *known;
        }
        let word = Word(u32::try_from(self.ends.len()).unwrap_or(u32::MAX));
        self.text.extend(text.chars().map(|c| match c {
            SEPARATOR => ' ',
            c => c.to_ascii_lowercase(),
        }));
        self.text.push(SEPARATOR);
        self.ends.push(self.text.len());
        let exact: Arc<str> = text.into();
        self.exact.push(Arc::clone(&exact));
        self.known.insert(exact, word);
        word
    }

    /// Returns the word of a text, if the index has it.
    pub(super) fn find(&self, text: &str) -> Option<Word> {
        self.known.get(text).copied()
    }

    /// Returns a word as it was added.
    pub(super) fn exact(&self, word: Word) -> &str {
        let at = usize::try_from(word.0).unwrap_or(usize::MAX);
        self.exact.get(at).map_or("", |text| text)
    }

    /// Returns a word in lower case.
    pub(super) fn text(&self, word: Word) -> &str {
        let at = usize::try_from(word.0).unwrap_or(usize::MAX);
        let start = at.checked_sub(1).and_then(|at| self.ends.get(at)).copied().unwrap_or(0);
        let end = self.ends.get(at).map_or(start, |end| end.saturating_sub(1));
        self.text.get(start..end).unwrap_or_default()
    }

    /// Returns the words that contain a text in lower case.
    pub(super) fn containing(&self, text: &str) -> Containing<'_> {
        let finder = memmem::Finder::new(text.as_bytes()).into_owned();
        let mut found = Set::default();
        let (mut at, mut count) = (0, 0);
        while let Some(next) = self.text.as_bytes().get(at..).and_then(|rest| finder.find(rest)) {
            let word = self.ends.partition_point(|end| *end <= at + next);
            found.add(word);
            count += 1;
            let Some(end) = self.ends.get(word) else { break };
            at = *end;
            if count == MANY {
                let compared = RefCell::default();
                return Containing { words: self, finder, found: None, compared };
            }
        }
        Containing { words: self, finder, found: Some(found), compared: RefCell::default() }
    }
}

/// The words that contain a text.
pub(super) struct Containing<'w> {
    words: &'w Words,
    finder: memmem::Finder<'static>,
    /// The words; `None` if they are many.
    found: Option<Set>,
    /// The words that were compared, and those of them that contain the text.
    compared: RefCell<(Set, Set)>,
}

impl Containing<'_> {
    pub(super) fn has(&self, word: Word) -> bool {
        let at = usize::try_from(word.0).unwrap_or(usize::MAX);
        if let Some(found) = &self.found {
            return found.has(at);
        }
        let mut compared = self.compared.borrow_mut();
        if !compared.0.has(at) {
            compared.0.add(at);
            if self.finder.find(self.words.text(word).as_bytes()).is_some() {
                compared.1.add(at);
            }
        }
        compared.1.has(at)
    }
}

/// A set of numbers.
#[derive(Debug, Default)]
struct Set(Vec<u64>);

impl Set {
    fn add(&mut self, number: usize) {
        let (place, bit) = (number / 64, number % 64);
        if self.0.len() <= place {
            self.0.resize(place + 1, 0);
        }
        if let Some(bits) = self.0.get_mut(place) {
            *bits |= 1 << bit;
        }
    }

    fn has(&self, number: usize) -> bool {
        self.0.get(number / 64).is_some_and(|bits| bits >> (number % 64) & 1 == 1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_with_a_text_are_the_same_if_they_are_few_or_many() {
        for count in [10, MANY * 2] {
            let mut words = Words::default();
            let all: Vec<(String, Word)> = (0..count)
                .map(|number| format!("Fix-{number}\n{}", number % 3))
                .map(|text| (text.clone(), words.add(&text)))
                .collect();
            assert_eq!(words.add("Fix-1\n1"), all[1].1, "a word is stored once");
            assert_eq!((words.find("fix-1\n1"), words.exact(all[1].1)), (None, "Fix-1\n1"));
            for text in ["fix", "fix-7", "-1 1", "1 1fix", "none", " 2"] {
                let found = words.containing(text);
                for (word, id) in &all {
                    let expected = word.to_lowercase().replace('\n', " ").contains(text);
                    assert_eq!(found.has(*id), expected, "{word:?} {text:?}");
                }
            }
        }
    }
}
