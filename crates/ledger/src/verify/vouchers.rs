//! Checks signed statements against the log: the two slots of the head, and given checkpoints.

use std::path::PathBuf;

use super::finding::{Code, Findings, Location, Severity};
use super::roots::Roots;
use super::rotations::Rotations;
use crate::checkpoint::{self, Checkpoint, CheckpointError};
use crate::head::{Head, Slot};
use crate::note::{Note, NoteError, VerifyingKey};

/// The data that signed statements are checked against.
#[derive(Debug)]
pub(super) struct StatementChecker<'a> {
    pub(super) roots: &'a Roots,
    pub(super) rotations: &'a Rotations,
    /// The trusted keys.
    pub(super) trusted: &'a [VerifyingKey],
    /// The origin of the log; `None` if its header is damaged.
    pub(super) origin: Option<&'a str>,
    /// The index after the last event, including damaged ones; `None` if the log cannot be read.
    pub(super) events: Option<u64>,
    pub(super) log: PathBuf,
    pub(super) head: PathBuf,
}

/// A fault of a signed statement or of the log.
struct Wrong {
    code: Code,
    text: String,
    /// Whether the log is at fault instead of the statement.
    is_log: bool,
}

/// How the log differs from a signed checkpoint.
enum Differs {
    Shorter,
    Rewritten,
}

impl StatementChecker<'_> {
    /// Checks the head and returns the number of events that it covers, if it can be trusted.
    pub(super) fn head(&self, slots: Option<&[Slot; 2]>, found: &mut Findings) -> Option<u64> {
        let at = || Location::File(self.head.clone());
        let slots = slots.map_or(&[] as &[Slot], <[Slot; 2]>::as_slice);
        let mut heads: Vec<&Head> = slots.iter().filter_map(whole).collect();
        heads.sort_by_key(|head| std::cmp::Reverse(head.generation));
        let damaged = slots.contains(&Slot::Damaged);
        let Some(newest) = heads.first() else {
            let (code, text) = match damaged {
                true => (Code::HeadDamaged, "Both slots of the head are damaged"),
                false => (Code::HeadMissing, "The head is missing"),
            };
            let text = format!(
                "{text}: the {} events of the log cannot be verified on this host. Compare the \
                 log with a checkpoint from elsewhere before you continue it.",
                self.count()
            );
            // The creation of the ledger can have been interrupted.
            let severity =
                if self.count() > 0 || damaged { Severity::Damage } else { Severity::Warning };
            found.add_since(severity, code, at(), None, text);
            return None;
        };
        if damaged {
            let text = "One slot of the head is damaged; the other one is intact. The next \
                        recorded event overwrites the damaged slot.";
            found.warn(Code::HeadSlotDamaged, at(), text.to_owned());
        }
        // The older slot can be signed by a key that the trusted key replaced.
        let of_ledger = self.rotations.keys();
        let vouch_older = |older| self.vouch_head(older, of_ledger);
        let older = heads.get(1).filter(|older| vouch_older(older).is_ok());
        match self.vouch_head(newest, self.trusted) {
            Ok(signer) => {
                if self.is_retired(signer, newest.frontier.size()) {
                    let text = "The head is signed by a key that was rotated before. Unless a \
                                rotation is in progress, the old key was misused.";
                    found.warn(Code::HeadRetiredKey, at(), text.to_owned());
                }
                if let (Some(second), None) = (heads.get(1), older)
                    && let Err(wrong) = vouch_older(second)
                    && self.rotations.are_certain()
                {
                    self.report(wrong, at(), None, found);
                }
                Some(newest.frontier.size())
            }
            // Missing events are reported, and can include the rotation to that key.
            Err(wrong) if wrong.code == Code::HeadUnknownKey && !self.rotations.are_certain() => {
                let size = newest.frontier.size();
                if self.events.is_some_and(|events| size > events) {
                    self.report(self.shorter(size), at(), None, found);
                }
                None
            }
            Err(wrong) => {
                let since = older.map(|older| older.frontier.size());
                self.report(wrong, at(), since, found);
                None
            }
        }
    }

    /// Checks a given checkpoint and returns the number of events that it covers.
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
                    let text = "The checkpoint is signed by a key that had been rotated before: \
                                the old key was misused.";
                    found.warn(Code::HeadRetiredKey, at, text.to_owned());
                }
                // Events after damage were not compared.
                Some(checkpoint.size()).filter(|size| self.roots.at(*size).is_some())
            }
            Err(wrong) => {
                self.report(wrong, at, since, found);
                None
            }
        }
    }

    fn report(&self, wrong: Wrong, at: Location, since: Option<u64>, found: &mut Findings) {
        let at = if wrong.is_log { Location::File(self.log.clone()) } else { at };
        if wrong.code == Code::LogTruncated {
            // The removed events came after the last one in the log.
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
                "The head is signed by a key that the trusted key does not endorse: the ledger \
                 was rewritten, or its key was replaced without permission.",
            ),
            CheckpointError::Note(_)
            | CheckpointError::Lines
            | CheckpointError::Line
            | CheckpointError::Size { .. }
            | CheckpointError::Root { .. }
            | CheckpointError::Origin { .. } => {
                wrong(Code::HeadForged, &format!("The head does not match its signature: {error}."))
            }
        })?;
        if self.origin.is_some_and(|origin| origin != checkpoint.origin()) {
            let code = Code::LogOfAnotherLedger;
            let text = "The log belongs to another ledger than the head.".to_owned();
            return Err(Wrong { code, text, is_log: true });
        }
        let fits =
            checkpoint.size() == head.frontier.size() && checkpoint.root() == head.frontier.root();
        if !fits {
            return Err(wrong(
                Code::HeadContradicts,
                "The unsigned numbers of the head differ from its signed checkpoint.",
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
                "The unsigned numbers of the head do not match the log, although its signed \
                 checkpoint does.",
            ));
        }
        Ok(signer)
    }

    fn vouch(&self, text: &str) -> Result<(Checkpoint, &VerifyingKey), Wrong> {
        let wrong = |code, text: String| Wrong { code, text, is_log: false };
        let malformed = |error: &CheckpointError| {
            wrong(
                Code::CheckpointMalformed,
                format!(
                    "The given file is not a signed checkpoint: \
                                                      {error}."
                ),
            )
        };
        let note = Note::parse(text).map_err(|error| malformed(&CheckpointError::Note(error)))?;
        let claimed = Checkpoint::parse(note.text()).map_err(|error| malformed(&error))?;
        if self.origin.is_some_and(|origin| origin != claimed.origin()) {
            return Err(wrong(
                Code::CheckpointOfAnotherLedger,
                format!("The checkpoint belongs to another ledger: {}.", claimed.origin()),
            ));
        }
        let opened = checkpoint::open(text, self.trusted);
        let (checkpoint, signer) = opened.map_err(|error| match error {
            CheckpointError::Note(NoteError::NoKnownKey) | CheckpointError::Origin { .. } => wrong(
                Code::CheckpointUnknownKey,
                "The checkpoint is signed by a key that the trusted key does not endorse."
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
                    "The checkpoint has {} events, but the log has {}: the log was truncated or \
                     replaced by an older copy.",
                    checkpoint.size(),
                    self.count()
                ),
                is_log: false,
            },
            Differs::Rewritten => Wrong {
                code: Code::CheckpointForked,
                text: format!(
                    "The first {} events of the log are not those of the signed checkpoint: the \
                     log was rewritten, or two versions of it exist.",
                    checkpoint.size()
                ),
                is_log: false,
            },
        })?;
        Ok((checkpoint, signer))
    }

    /// Checks whether the log matches a checkpoint, as far as the log can be read.
    fn compare(&self, checkpoint: &Checkpoint) -> Result<(), Differs> {
        let size = checkpoint.size();
        if self.events.is_some_and(|events| size > events) {
            return Err(Differs::Shorter);
        }
        match self.roots.at(size) {
            Some(at) if at.root != checkpoint.root() => Err(Differs::Rewritten),
            // Unknown after damage, which is reported on its own.
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
                    "The {size} events of the log are not the signed ones: some were changed, \
                     replaced or reordered, and the log was rewritten. Compare it with a copy."
                ),
                is_log: true,
            },
        }
    }

    fn shorter(&self, size: u64) -> Wrong {
        let events = self.count();
        let text = format!(
            "The signed head has {size} events, but the log has {events}: the events from \
             {events} to {} are missing. Look for a copy of the log that has them.",
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
