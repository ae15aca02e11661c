//! Checks that each signing key of the ledger is endorsed by the key before it.

use super::finding::{Code, Findings, Location};
use crate::anchor::endorsed;
use crate::entry::EntryView;
use crate::field::Raw;
use crate::note::VerifyingKey;

/// All keys of the ledger in the order of the log.
#[derive(Debug, Default)]
pub(super) struct Rotations {
    keys: Vec<VerifyingKey>,
    steps: Vec<Rotation>,
    /// Whether events are missing, and with them perhaps a rotation.
    is_uncertain: bool,
}

/// One key that endorsed another.
#[derive(Debug)]
struct Rotation {
    old: VerifyingKey,
    new: VerifyingKey,
    /// The number of events of the log after the batch of the rotation.
    size: u64,
}

const MAX: usize = 1000;

impl Rotations {
    /// Starts with the first key, if it is known from outside the log.
    pub(super) fn new(first: Option<VerifyingKey>) -> Self {
        Self { keys: first.into_iter().collect(), steps: Vec::new(), is_uncertain: false }
    }

    /// Notes that events are missing, so that an unknown key can still belong to the ledger.
    pub(super) const fn doubt(&mut self) {
        self.is_uncertain = true;
    }

    pub(super) const fn are_certain(&self) -> bool {
        !self.is_uncertain
    }

    pub(super) fn keys(&self) -> &[VerifyingKey] {
        &self.keys
    }

    /// Returns the keys that endorsements lead to from `root`, starting with `root` itself.
    ///
    /// The result is empty if `root` is not a key of this ledger. A key that only keys older than
    /// `root` endorsed is not included: an older key can be stolen.
    pub(super) fn from(&self, root: &VerifyingKey) -> Vec<VerifyingKey> {
        let mut trusted: Vec<VerifyingKey> =
            self.keys.iter().filter(|key| *key == root).cloned().collect();
        for Rotation { old, new, .. } in &self.steps {
            if trusted.contains(old) {
                trusted.push(new.clone());
            }
        }
        trusted
    }

    /// Returns the size up to which this key signed the log; `None` if the key is in use.
    pub(super) fn retired(&self, key: &VerifyingKey) -> Option<u64> {
        self.steps.iter().find(|rotation| rotation.old == *key).map(|rotation| rotation.size)
    }

    /// Adds the rotation of a `key.rotated` event if it is valid.
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
                    let text = "The signing key is rotated here by a key that had already been \
                                rotated. Unless two rotations ran at once, the old key was \
                                misused.";
                    found.warn(Code::RotationByRetiredKey, at(), text.to_owned());
                }
                if self.keys.is_empty() {
                    self.keys.push(old.clone());
                }
                self.keys.push(new.clone());
                self.steps.push(Rotation { old, new, size });
            }
            Err(why) => {
                let text = format!(
                    "A rotation of the signing key is recorded here, but {why}. Do not trust \
                     signatures of the new key."
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
            return Err("the event does not have two keys and an endorsement");
        };
        if self.keys.len() >= MAX {
            return Err("there are too many rotations");
        }
        if !self.keys.is_empty() && !self.keys.contains(&old) {
            return Err("the old key does not belong to this ledger");
        }
        if old.name() != new.name() || self.keys.contains(&new) {
            return Err("the new key belongs to another ledger or was used before");
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

    /// A key is rotated because it was stolen; then the thief endorses their own key with it.
    #[test]
    fn h03_rotation_by_a_stolen_retired_key_is_not_trusted() {
        let key = |seed| SigningKey::generate("belljar/x", [seed; 32]).unwrap();
        let (stolen, successor, of_thief) = (key(1), key(2), key(3));
        let mut rotations = Rotations::new(Some(stolen.verifying()));
        assert_eq!(rotate(&mut rotations, &stolen, &successor), 0);
        assert_eq!(
            rotate(&mut rotations, &stolen, &of_thief),
            1,
            "use of a retired key is \
                                                                   reported"
        );
        assert_eq!(rotations.from(&successor.verifying()), [successor.verifying()]);
        let all = [stolen.verifying(), successor.verifying(), of_thief.verifying()];
        assert_eq!(
            rotations.from(&stolen.verifying()),
            all,
            "trust in the stolen key includes \
                                                              the thief's key"
        );
        assert_eq!(rotations.from(&key(9).verifying()), []);
    }
}
