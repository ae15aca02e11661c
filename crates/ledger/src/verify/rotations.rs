//! Follows the signing key from exchange to exchange.

use super::finding::{Code, Findings, Place};
use crate::anchor::endorsed;
use crate::entry::EntryView;
use crate::field::Raw;
use crate::note::VerifyingKey;

/// Every key of the ledger, as its log introduces them.
#[derive(Debug, Default)]
pub(super) struct Rotations {
    keys: Vec<VerifyingKey>,
    /// For each exchange, how many events the log had after its batch.
    sizes: Vec<u64>,
    /// Events are missing, and with them perhaps an exchange.
    is_uncertain: bool,
}

const MAX: usize = 10_000;

impl Rotations {
    /// The first key, if one is known from outside the log.
    pub(super) fn new(first: Option<VerifyingKey>) -> Self {
        Self { keys: first.into_iter().collect(), sizes: Vec::new(), is_uncertain: false }
    }

    /// Events are missing: a key that is not known here may be one of the ledger's all the same.
    pub(super) const fn doubt(&mut self) {
        self.is_uncertain = true;
    }

    pub(super) const fn are_certain(&self) -> bool {
        !self.is_uncertain
    }

    pub(super) fn keys(&self) -> &[VerifyingKey] {
        &self.keys
    }

    /// The keys that this one leads to, itself first. Empty: it is none of this ledger's.
    pub(super) fn from(&self, root: &VerifyingKey) -> &[VerifyingKey] {
        let start = self.keys.iter().position(|key| key == root);
        start.and_then(|start| self.keys.get(start..)).unwrap_or_default()
    }

    /// Up to which size the log was still signed by this key; `None`: it is in use.
    pub(super) fn retired(&self, key: &VerifyingKey) -> Option<u64> {
        let place = self.keys.iter().position(|known| known == key)?;
        self.sizes.get(place).copied()
    }

    /// Takes over what a `key.rotated` says, if it is true.
    pub(super) fn follow(
        &mut self,
        view: &EntryView<'_>,
        at: impl FnOnce() -> Place,
        size: u64,
        found: &mut Findings,
    ) {
        match self.endorsed(view) {
            Ok((old, new)) => {
                if self.keys.is_empty() {
                    self.keys.push(old);
                }
                self.keys.push(new);
                self.sizes.push(size);
            }
            Err(why) => {
                let text = format!(
                    "An exchange of the signing key is recorded here, but {why}: signatures of the \
                     new key are not to be trusted."
                );
                found.damage(Code::RotationInvalid, at(), text);
            }
        }
    }

    fn endorsed(&self, view: &EntryView<'_>) -> Result<(VerifyingKey, VerifyingKey), &'static str> {
        let (mut old, mut new, mut endorsement) = (None, None, None);
        view.walk(|name, value| match (name, value) {
            ("old", Raw::Text(text)) => old = text.parse::<VerifyingKey>().ok(),
            ("new", Raw::Text(text)) => new = text.parse::<VerifyingKey>().ok(),
            ("endorsement", Raw::Bytes(bytes)) => endorsement = Some(bytes),
            _ => {}
        });
        let (Some(old), Some(new), Some(endorsement)) = (old, new, endorsement) else {
            return Err("it does not name two keys and an endorsement");
        };
        if self.keys.len() >= MAX {
            return Err("it was exchanged more often than anybody does");
        }
        if !self.keys.is_empty() && !self.keys.contains(&old) {
            return Err("the old key is none of this ledger's");
        }
        if old.name() != new.name() || self.keys.contains(&new) {
            return Err("the new key is that of another ledger, or was in use before");
        }
        if !old.verify_bytes(&endorsed(&new), endorsement) {
            return Err("the old key did not endorse the new one");
        }
        Ok((old, new))
    }
}
