//! Holds what was signed against what is in the log: the head's two slots and checkpoints from
//! elsewhere.

use std::path::PathBuf;

use super::finding::{Code, Findings, Location, Severity};
use super::roots::Roots;
use super::rotations::Rotations;
use crate::checkpoint::{self, Checkpoint, CheckpointError};
use crate::head::{Head, Slot};
use crate::note::{Note, NoteError, VerifyingKey};

/// Everything that signed statements are held against.
#[derive(Debug)]
pub(super) struct Judge<'a> {
    pub(super) roots: &'a Roots,
    pub(super) rotations: &'a Rotations,
    /// The keys whose word counts.
    pub(super) trusted: &'a [VerifyingKey],
    /// `None` when the start of the log does not tell.
    pub(super) origin: Option<&'a str>,
    /// The index behind the last event, damaged ones included; `None` when the log cannot be read.
    pub(super) events: Option<u64>,
    pub(super) log: PathBuf,
    pub(super) head: PathBuf,
}

/// What a signed statement is worth.
struct Wrong {
    code: Code,
    text: String,
    /// It is the log that does not fit; else it is the statement.
    is_log: bool,
}

/// How the log is not what was signed.
enum Differs {
    Shorter,
    Rewritten,
}

impl Judge<'_> {
    /// Judges the head; the number of events that it vouches for, if it can be trusted.
    pub(super) fn head(&self, slots: Option<&[Slot; 2]>, found: &mut Findings) -> Option<u64> {
        let at = || Location::File(self.head.clone());
        let slots = slots.map_or(&[] as &[Slot], <[Slot; 2]>::as_slice);
        let mut heads: Vec<&Head> = slots.iter().filter_map(whole).collect();
        heads.sort_by_key(|head| std::cmp::Reverse(head.generation));
        let damaged = slots.contains(&Slot::Damaged);
        let Some(newest) = heads.first() else {
            let (code, text) = match damaged {
                true => (Code::HeadDamaged, "Both halves of the head are damaged"),
                false => (Code::HeadMissing, "The head is gone"),
            };
            let text = format!(
                "{text}: nothing on this machine vouches for the {} events of the log. Compare it \
                 with a checkpoint from elsewhere before it is continued.",
                self.count()
            );
            // Beginning a ledger may have been cut short.
            let severity =
                if self.count() > 0 || damaged { Severity::Damage } else { Severity::Warning };
            found.add_since(severity, code, at(), None, text);
            return None;
        };
        if damaged {
            let text = "One half of the head is damaged; the other is whole and counts. The next \
                        recording writes over it.";
            found.warn(Code::HeadSlotDamaged, at(), text.to_owned());
        }
        // The older half may be by a key that the trusted one replaced.
        let of_ledger = self.rotations.keys();
        let vouch_older = |older| self.vouch_head(older, of_ledger);
        let older = heads.get(1).filter(|older| vouch_older(older).is_ok());
        match self.vouch_head(newest, self.trusted) {
            Ok(signer) => {
                if self.is_retired(signer, newest.frontier.size()) {
                    let text = "The head is signed by a key that was exchanged before. Unless the \
                                exchange is under way, somebody uses the old key.";
                    found.warn(Code::HeadRetiredKey, at(), text.to_owned());
                }
                if let (Some(second), None) = (heads.get(1), older)
                    && let Err(wrong) = vouch_older(second)
                    && self.rotations.are_certain()
                {
                    self.tell(wrong, at(), None, found);
                }
                Some(newest.frontier.size())
            }
            // What is missing is reported, and may be what introduced that key.
            Err(wrong) if wrong.code == Code::HeadUnknownKey && !self.rotations.are_certain() => {
                let size = newest.frontier.size();
                if self.events.is_some_and(|events| size > events) {
                    self.tell(self.shorter(size), at(), None, found);
                }
                None
            }
            Err(wrong) => {
                let since = older.map(|older| older.frontier.size());
                self.tell(wrong, at(), since, found);
                None
            }
        }
    }

    /// Judges a checkpoint from elsewhere; the number of events that it anchors.
    pub(super) fn checkpoint(
        &self,
        text: &str,
        at: Location,
        since: Option<u64>,
        found: &mut Findings,
    ) -> Option<u64> {
        match self.vouch(text) {
            Ok((checkpoint, signer)) => {
                if self.is_retired(signer, checkpoint.size()) {
                    let text = "The checkpoint is signed by a key that had been exchanged when it \
                                was made: somebody used the old key.";
                    found.warn(Code::HeadRetiredKey, at, text.to_owned());
                }
                // Behind damage nothing was compared.
                Some(checkpoint.size()).filter(|size| self.roots.at(*size).is_some())
            }
            Err(wrong) => {
                self.tell(wrong, at, since, found);
                None
            }
        }
    }

    fn tell(&self, wrong: Wrong, at: Location, since: Option<u64>, found: &mut Findings) {
        let at = if wrong.is_log { Location::File(self.log.clone()) } else { at };
        if wrong.code == Code::LogTruncated {
            // What was cut off came behind the last that is there.
            found.add(Severity::Damage, wrong.code, at, wrong.text);
            return;
        }
        let since = since.and_then(|size| self.roots.at(size)?.time);
        found.add_since(Severity::Damage, wrong.code, at, since, wrong.text);
    }

    fn count(&self) -> u64 {
        self.events.unwrap_or(0)
    }

    fn is_retired(&self, signer: &VerifyingKey, size: u64) -> bool {
        self.rotations.retired(signer).is_some_and(|last| size > last)
    }

    fn vouch_head<'k>(
        &self,
        head: &Head,
        keys: &'k [VerifyingKey],
    ) -> Result<&'k VerifyingKey, Wrong> {
        let wrong = |code, text: &str| Wrong { code, text: text.to_owned(), is_log: false };
        let opened = checkpoint::open(&head.note, keys);
        let (checkpoint, signer) = opened.map_err(|error| match error {
            CheckpointError::Note(NoteError::NoKnownKey) => wrong(
                Code::HeadUnknownKey,
                "The head is signed by a key that the trusted key does not lead to: the ledger was \
                 made anew or its key was exchanged by somebody else.",
            ),
            CheckpointError::Note(_)
            | CheckpointError::Lines
            | CheckpointError::Line
            | CheckpointError::Size { .. }
            | CheckpointError::Root { .. }
            | CheckpointError::Origin { .. } => {
                wrong(Code::HeadForged, &format!("The head was not signed as it is: {error}."))
            }
        })?;
        if self.origin.is_some_and(|origin| origin != checkpoint.origin()) {
            let code = Code::LogOfAnotherLedger;
            let text = "The log is not of the ledger that the head vouches for.".to_owned();
            return Err(Wrong { code, text, is_log: true });
        }
        let fits =
            checkpoint.size() == head.frontier.size() && checkpoint.root() == head.frontier.root();
        if !fits {
            return Err(wrong(
                Code::HeadContradicts,
                "The head's own figures are not those that it has signed.",
            ));
        }
        self.compare(&checkpoint).map_err(|how| self.log_differs(&how, &checkpoint))?;
        let same = self
            .roots
            .at(checkpoint.size())
            .is_none_or(|at| at.end == Some(head.end) && at.own == head.own);
        if !same {
            return Err(wrong(
                Code::HeadContradicts,
                "The head's own figures do not fit the log, though its signature does.",
            ));
        }
        Ok(signer)
    }

    fn vouch(&self, text: &str) -> Result<(Checkpoint, &VerifyingKey), Wrong> {
        let wrong = |code, text: String| Wrong { code, text, is_log: false };
        let malformed = |error: &CheckpointError| {
            wrong(Code::CheckpointMalformed, format!("This is no signed checkpoint: {error}."))
        };
        let note = Note::parse(text).map_err(|error| malformed(&CheckpointError::Note(error)))?;
        let claimed = Checkpoint::parse(note.text()).map_err(|error| malformed(&error))?;
        if self.origin.is_some_and(|origin| origin != claimed.origin()) {
            return Err(wrong(
                Code::CheckpointOfAnotherLedger,
                format!("The checkpoint is of another ledger: {}.", claimed.origin()),
            ));
        }
        let opened = checkpoint::open(text, self.trusted);
        let (checkpoint, signer) = opened.map_err(|error| match error {
            CheckpointError::Note(NoteError::NoKnownKey) | CheckpointError::Origin { .. } => wrong(
                Code::CheckpointUnknownKey,
                "The checkpoint is signed by a key that the trusted key does not lead to."
                    .to_owned(),
            ),
            CheckpointError::Note(_)
            | CheckpointError::Lines
            | CheckpointError::Line
            | CheckpointError::Size { .. }
            | CheckpointError::Root { .. } => {
                wrong(Code::CheckpointForged, format!("The checkpoint is forged: {error}."))
            }
        })?;
        self.compare(&checkpoint).map_err(|how| match how {
            Differs::Shorter => Wrong {
                code: Code::CheckpointAhead,
                text: format!(
                    "The checkpoint is of {} events, and the log has {}: it was cut short, or an \
                     older copy was put in its place.",
                    checkpoint.size(),
                    self.count()
                ),
                is_log: false,
            },
            Differs::Rewritten => Wrong {
                code: Code::CheckpointForked,
                text: format!(
                    "The log's first {} events are not those of the checkpoint, which its key \
                     signed: the log was rewritten, or there are two of it.",
                    checkpoint.size()
                ),
                is_log: false,
            },
        })?;
        Ok((checkpoint, signer))
    }

    /// Whether the log is what was signed, as far as it can be read.
    fn compare(&self, checkpoint: &Checkpoint) -> Result<(), Differs> {
        let size = checkpoint.size();
        if self.events.is_some_and(|events| size > events) {
            return Err(Differs::Shorter);
        }
        match self.roots.at(size) {
            Some(at) if at.root != checkpoint.root() => Err(Differs::Rewritten),
            // Not known behind damage, which is reported by itself.
            Some(_) | None => Ok(()),
        }
    }

    fn log_differs(&self, how: &Differs, checkpoint: &Checkpoint) -> Wrong {
        let size = checkpoint.size();
        match how {
            Differs::Shorter => self.shorter(size),
            Differs::Rewritten => Wrong {
                code: Code::LogRewritten,
                text: format!(
                    "The log's {size} events are not those that were signed: some were changed, \
                     exchanged or put in another order, and the log was written anew around them. \
                     Compare it with a copy."
                ),
                is_log: true,
            },
        }
    }

    fn shorter(&self, size: u64) -> Wrong {
        let events = self.count();
        let text = format!(
            "The head vouches for {size} events, and the log has {events}: the events from {events} \
             to {} are missing. Look for a copy of the log that has them.",
            size.saturating_sub(1)
        );
        Wrong { code: Code::LogTruncated, text, is_log: true }
    }
}

fn whole(slot: &Slot) -> Option<&Head> {
    match slot {
        Slot::Whole(head) => Some(head),
        Slot::Blank | Slot::Damaged => None,
    }
}
