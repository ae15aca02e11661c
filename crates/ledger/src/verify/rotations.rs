//! Follows the signing key from exchange to exchange.

use super::finding::{Code, Findings, Location};
use crate::anchor::endorsed;
use crate::entry::EntryView;
use crate::field::Raw;
use crate::note::VerifyingKey;

/// Every key of the ledger, as its log introduces them.
#[derive(Debug, Default)]
pub(super) struct Rotations {
    keys: Vec<VerifyingKey>,
    exchanges: Vec<Exchange>,
    /// Events are missing, and with them perhaps an exchange.
    is_uncertain: bool,
}

/// One key that endorsed another.
#[derive(Debug)]
struct Exchange {
    old: VerifyingKey,
    new: VerifyingKey,
    /// How many events the log had after its batch.
    size: u64,
}

const MAX: usize = 1000;

impl Rotations {
    /// The first key, if one is known from outside the log.
    pub(super) fn new(first: Option<VerifyingKey>) -> Self {
        Self { keys: first.into_iter().collect(), exchanges: Vec::new(), is_uncertain: false }
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

    /// The keys that this one leads to by endorsement, itself first. Empty: it is none of this
    /// ledger's. A key that only an older one endorsed is not among them: that one may be stolen.
    pub(super) fn from(&self, root: &VerifyingKey) -> Vec<VerifyingKey> {
        let mut trusted: Vec<VerifyingKey> =
            self.keys.iter().filter(|key| *key == root).cloned().collect();
        for Exchange { old, new, .. } in &self.exchanges {
            if trusted.contains(old) {
                trusted.push(new.clone());
            }
        }
        trusted
    }

    /// Up to which size the log was still signed by this key; `None`: it is in use.
    pub(super) fn retired(&self, key: &VerifyingKey) -> Option<u64> {
        self.exchanges.iter().find(|exchange| exchange.old == *key).map(|exchange| exchange.size)
    }

    /// Takes over what a `key.rotated` says, if it is true.
    pub(super) fn follow(
        &mut self,
        view: &EntryView<'_>,
        at: impl FnOnce() -> Location,
        size: u64,
        found: &mut Findings,
    ) {
        match self.endorsed(view) {
            Ok((old, new)) => {
                if self.retired(&old).is_some() {
                    let text = "The signing key is exchanged here by one that had been exchanged \
                                before. Unless two exchanges were under way at once, somebody uses \
                                the old key.";
                    found.warn(Code::RotationByRetiredKey, at(), text.to_owned());
                }
                if self.keys.is_empty() {
                    self.keys.push(old.clone());
                }
                self.keys.push(new.clone());
                self.exchanges.push(Exchange { old, new, size });
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::entry::{Actor, Entry, Moment};
    use crate::event::{Event, KeyRotated};
    use crate::note::SigningKey;

    fn rotate(rotations: &mut Rotations, old: &SigningKey, new: &SigningKey) -> usize {
        let event = Event::from(KeyRotated {
            old: old.verifying().to_string(),
            new: new.verifying().to_string(),
            endorsement: old.sign_bytes(&endorsed(&new.verifying())).to_vec(),
        });
        let entry = Entry {
            kind: event.kind().to_owned(),
            run: None,
            sequence: 0,
            previous: None,
            actor: Actor::Operator,
            cause: None,
            moment: Moment { time: 1, uptime: 1, boot: [0; 16] },
            fields: event.fields(),
        };
        let bytes = entry.encode().unwrap();
        let mut found = Findings::default();
        let view = EntryView::parse(&bytes).unwrap();
        rotations.follow(&view, || Location::Key, 1, &mut found);
        found.finish().0.len()
    }

    /// A key is exchanged because it was stolen. The thief endorses one of their own with it.
    #[test]
    fn h03_a_stolen_key_leads_nobody_to_another_who_trusts_its_successor() {
        let key = |seed| SigningKey::generate("belljar/x", [seed; 32]).unwrap();
        let (stolen, successor, of_thief) = (key(1), key(2), key(3));
        let mut rotations = Rotations::new(Some(stolen.verifying()));
        assert_eq!(rotate(&mut rotations, &stolen, &successor), 0);
        assert_eq!(rotate(&mut rotations, &stolen, &of_thief), 1, "a retired key is told");
        assert_eq!(rotations.from(&successor.verifying()), [successor.verifying()]);
        let all = [stolen.verifying(), successor.verifying(), of_thief.verifying()];
        assert_eq!(rotations.from(&stolen.verifying()), all, "who trusts the stolen key trusts it");
        assert_eq!(rotations.from(&key(9).verifying()), []);
    }
}
