//! The placeholders of one box: what each one represents, and a search for all of them at once.

use std::collections::HashMap;
use std::sync::Arc;

use super::placeholder::{self, NoRandom, Random};
use super::value::Value;
use crate::scrub::Finder;
use belljar_model::net::Shape;

/// The kind of value that a placeholder represents.
#[derive(Debug, Clone)]
pub(super) enum Meaning {
    /// The placeholder represents the value of its secret: a token, or the access token that was
    /// fetched with it.
    Own,
    /// The placeholder represents a token that was captured from a response.
    Captured(Arc<Value>),
    /// The placeholder represents the access key id of an AWS key pair.
    AccessId,
    /// The placeholder represents a signing key, which is never sent, so it must not appear in a
    /// request.
    Key,
}

/// One placeholder.
#[derive(Debug, Clone)]
pub(super) struct Placeholder {
    pub(super) text: String,
    /// The index of the placeholder's secret in the vault.
    pub(super) secret: usize,
    pub(super) meaning: Meaning,
}

/// All placeholders of a box at one point in time.
#[derive(Debug)]
pub(super) struct PlaceholderSet {
    all: Vec<Placeholder>,
    by_text: HashMap<String, usize>,
    finder: Finder,
}

/// The maximum number of captured tokens that are kept per secret. The oldest is forgotten, and its
/// placeholder becomes useless.
pub(super) const MAX_CAPTURED: usize = 16;

impl PlaceholderSet {
    /// Creates the set of placeholders; `names` are the names of the secrets by index.
    pub(super) fn new(all: Vec<Placeholder>, names: &[String]) -> Self {
        let name = |at: usize| names.get(at).cloned().unwrap_or_default();
        let values: Vec<(String, &[u8])> =
            all.iter().map(|it| (name(it.secret), it.text.as_bytes())).collect();
        let finder = Finder::new(&values).expect("a shape has at least 20 characters");
        let by_text = all.iter().enumerate().map(|(at, it)| (it.text.clone(), at)).collect();
        Self { all, by_text, finder }
    }

    pub(super) fn get(&self, text: &str) -> Option<&Placeholder> {
        self.by_text.get(text).and_then(|at| self.all.get(*at))
    }

    pub(super) const fn finder(&self) -> &Finder {
        &self.finder
    }

    pub(super) fn all(&self) -> &[Placeholder] {
        &self.all
    }

    /// Returns a copy of the set with one more captured token.
    pub(super) fn with(&self, new: Placeholder, names: &[String]) -> Self {
        let is_old = |it: &Placeholder| {
            it.secret == new.secret && matches!(it.meaning, Meaning::Captured(_))
        };
        let mut all = self.all.clone();
        if all.iter().filter(|it| is_old(it)).count() >= MAX_CAPTURED
            && let Some(oldest) = all.iter().position(is_old)
        {
            all.remove(oldest);
        }
        all.push(new);
        Self::new(all, names)
    }

    /// Creates a random placeholder that is not used yet.
    pub(super) fn mint(&self, shape: &Shape, random: Random) -> Result<String, NoRandom> {
        loop {
            let text = placeholder::mint(shape, random)?;
            if self.get(&text).is_none() {
                return Ok(text);
            }
        }
    }
}
