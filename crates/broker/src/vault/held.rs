//! The placeholders of one box: what each stands for, and a search for all of them at once.

use std::collections::HashMap;
use std::sync::Arc;

use super::placeholder::{self, NoRandom, Random};
use super::value::Value;
use crate::scrub::Finder;
use belljar_model::net::Shape;

/// What a placeholder stands for.
#[derive(Debug, Clone)]
pub(super) enum Stands {
    /// The value of its secret: a token, or the access token that was fetched with it.
    Own,
    /// A token that was captured from a response.
    Captured(Arc<Value>),
    /// The access key id of a pair of AWS keys.
    AccessId,
    /// A key that never travels, so that its placeholder has no business in a request.
    Key,
}

/// One placeholder.
#[derive(Debug, Clone)]
pub(super) struct Placeholder {
    pub(super) text: String,
    /// The place of its secret in the vault.
    pub(super) secret: usize,
    pub(super) stands: Stands,
}

/// All placeholders of a box at one moment.
#[derive(Debug)]
pub(super) struct Held {
    all: Vec<Placeholder>,
    by_text: HashMap<String, usize>,
    finder: Finder,
}

/// Captured tokens that are known at once, of one secret. An older one is forgotten, and then its
/// placeholder is worth nothing.
pub(super) const MAX_CAPTURED: usize = 16;

impl Held {
    /// `names` are those of the secrets, for who asks what was found.
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

    /// The same with one more captured token.
    pub(super) fn with(&self, new: Placeholder, names: &[String]) -> Self {
        let is_old =
            |it: &Placeholder| it.secret == new.secret && matches!(it.stands, Stands::Captured(_));
        let mut all = self.all.clone();
        if all.iter().filter(|it| is_old(it)).count() >= MAX_CAPTURED
            && let Some(oldest) = all.iter().position(is_old)
        {
            all.remove(oldest);
        }
        all.push(new);
        Self::new(all, names)
    }

    /// A new text that stands for nothing yet.
    pub(super) fn mint(&self, shape: &Shape, random: Random) -> Result<String, NoRandom> {
        loop {
            let text = placeholder::mint(shape, random)?;
            if self.get(&text).is_none() {
                return Ok(text);
            }
        }
    }
}
