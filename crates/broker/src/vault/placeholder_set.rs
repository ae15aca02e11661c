//! The placeholders of one box: what each one represents, and a search for all of them at once.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use super::placeholder::{self, NoRandom, Random};
use super::value::Value;
use crate::scrub::{Finder, Scrubber};
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
    /// The names of the secrets by index.
    names: Vec<String>,
    finder: Finder,
    /// The guards of request bodies that are in use, by the indices of the secrets that they mask.
    guards: Mutex<HashMap<Vec<usize>, BodyGuard>>,
}

/// The searches of a request body for placeholders.
#[derive(Debug, Clone)]
pub struct BodyGuard {
    /// The placeholders that stop the request.
    pub refused: Finder,
    /// The placeholders that are replaced by the name of their secret; `None` if there are none.
    pub masked: Option<Scrubber>,
}

/// The maximum number of captured tokens that are kept per secret. The oldest is forgotten, and its
/// placeholder becomes useless.
pub(super) const MAX_CAPTURED: usize = 16;

const LONG_ENOUGH: &str = "a shape has at least 20 characters";

/// Returns the placeholders of some secrets, each with the name of its secret.
fn values<'a>(
    all: &'a [Placeholder],
    names: &[String],
    is_wanted: impl Fn(usize) -> bool,
) -> Vec<(String, &'a [u8])> {
    let name = |at: usize| names.get(at).cloned().unwrap_or_default();
    let wanted = all.iter().filter(|it| is_wanted(it.secret));
    wanted.map(|it| (name(it.secret), it.text.as_bytes())).collect()
}

impl PlaceholderSet {
    /// Creates the set of placeholders; `names` are the names of the secrets by index.
    pub(super) fn new(all: Vec<Placeholder>, names: &[String]) -> Self {
        let finder = Finder::new(&values(&all, names, |_| true)).expect(LONG_ENOUGH);
        let by_text = all.iter().enumerate().map(|(at, it)| (it.text.clone(), at)).collect();
        Self { all, by_text, names: names.to_vec(), finder, guards: Mutex::default() }
    }

    /// Returns the guard of request bodies that masks the placeholders of these secrets and refuses
    /// all others.
    pub(super) fn guard(&self, masked: Vec<usize>) -> BodyGuard {
        if masked.is_empty() {
            return BodyGuard { refused: self.finder.clone(), masked: None };
        }
        let mut guards = self.guards.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(guard) = guards.get(&masked) {
            return guard.clone();
        }
        let of = |is_masked: bool| {
            values(&self.all, &self.names, |secret| masked.contains(&secret) == is_masked)
        };
        let refused = Finder::new(&of(false)).expect(LONG_ENOUGH);
        let scrubber = Scrubber::new(&of(true)).expect(LONG_ENOUGH);
        let guard = BodyGuard { refused, masked: Some(scrubber) };
        guards.insert(masked, guard.clone());
        guard
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
