//! Findings of the verifier, each with a stable code, a location and a sentence for people.

use std::fmt;
use std::path::{Path, PathBuf};

/// A fault or remark about the ledger.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Finding {
    pub severity: Severity,
    pub code: Code,
    pub at: Location,
    /// The time of the last certainly good event, in nanoseconds since 1970.
    pub since: Option<u64>,
    /// The fault and the recommended action.
    pub text: String,
}

/// The severity of a finding.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Severity {
    /// Information; no fault.
    Note,
    /// An action is recommended, but the recorded events are intact.
    Warning,
    /// Recorded events were changed or lost, or cannot be verified.
    Damage,
}

/// The location of a finding.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Location {
    /// An event, and its offset in the log.
    Event {
        index: u64,
        log: PathBuf,
        offset: u64,
    },
    Byte {
        file: PathBuf,
        offset: u64,
    },
    File(PathBuf),
    /// A given checkpoint, by its position in the list of given ones.
    Checkpoint(usize),
    /// The given key.
    Key,
}

macro_rules! codes {
    ($( $name:ident $text:literal )+) => {
        /// The name of a kind of finding; it is stable across versions.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum Code {
            $( $name, )+
        }

        impl Code {
            pub const ALL: &[Self] = &[$( Self::$name ),+];

            pub const fn name(self) -> &'static str {
                match self {
                    $( Self::$name => $text, )+
                }
            }
        }
    };
}

codes! {
    LogMissing "log-missing"
    LogForeign "log-foreign"
    LogNewer "log-newer"
    LogHeaderDamaged "log-header-damaged"
    LogOfAnotherLedger "log-of-another-ledger"
    LogUnfinished "log-unfinished"
    LogBusy "log-busy"
    LogTruncated "log-truncated"
    LogRewritten "log-rewritten"
    LogUnsigned "log-unsigned"
    BatchDamaged "batch-damaged"
    BatchMissing "batch-missing"
    BatchRepeated "batch-repeated"
    BatchReordered "batch-reordered"
    EventMalformed "event-malformed"
    EventMissing "event-missing"
    EventRepeated "event-repeated"
    EventReordered "event-reordered"
    EventUnchained "event-unchained"
    CauseAfterEffect "cause-after-effect"
    RunWithoutStart "run-without-start"
    RunRepeated "run-repeated"
    ClockWentBack "clock-went-back"
    HeadMissing "head-missing"
    HeadDamaged "head-damaged"
    HeadSlotDamaged "head-slot-damaged"
    HeadContradicts "head-contradicts"
    HeadForged "head-forged"
    HeadUnknownKey "head-unknown-key"
    HeadRetiredKey "head-retired-key"
    KeyMissing "key-missing"
    KeyDamaged "key-damaged"
    KeyMismatch "key-mismatch"
    KeyExposed "key-exposed"
    KeyNotOfLedger "key-not-of-ledger"
    KeysMissing "keys-missing"
    KeysDamaged "keys-damaged"
    KeysContradict "keys-contradict"
    RotationInvalid "rotation-invalid"
    RotationByRetiredKey "rotation-by-retired-key"
    RotationUnfinished "rotation-unfinished"
    CheckpointMalformed "checkpoint-malformed"
    CheckpointForged "checkpoint-forged"
    CheckpointUnknownKey "checkpoint-unknown-key"
    CheckpointOfAnotherLedger "checkpoint-of-another-ledger"
    CheckpointAhead "checkpoint-ahead"
    CheckpointForked "checkpoint-forked"
    SaltsMissing "salts-missing"
    SaltsDamaged "salts-damaged"
    SaltsUnfinished "salts-unfinished"
    SaltDamaged "salt-damaged"
    SaltMissing "salt-missing"
    SaltUnnamed "salt-unnamed"
    BodyMissing "body-missing"
    BodyDamaged "body-damaged"
    BodyContradicts "body-contradicts"
    BodyUnnamed "body-unnamed"
    RedactionUnfinished "redaction-unfinished"
    DerivedContradicts "derived-contradicts"
}

impl Location {
    /// Returns the file of the location, unless it is a given checkpoint or key.
    pub fn file(&self) -> Option<&Path> {
        match self {
            Self::Event { log, .. } => Some(log),
            Self::Byte { file, .. } | Self::File(file) => Some(file),
            Self::Checkpoint(_) | Self::Key => None,
        }
    }
}

impl fmt::Display for Location {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Event { index, log, offset } => {
                write!(f, "event {index} (byte {offset} of {})", log.display())
            }
            Self::Byte { file, offset } => write!(f, "byte {offset} of {}", file.display()),
            Self::File(file) => write!(f, "{}", file.display()),
            Self::Checkpoint(place) => write!(f, "checkpoint {} of the given ones", place + 1),
            Self::Key => f.write_str("the given key"),
        }
    }
}

impl fmt::Display for Code {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl fmt::Display for Severity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Note => "note",
            Self::Warning => "warning",
            Self::Damage => "damage",
        })
    }
}

/// The findings so far.
#[derive(Debug, Default)]
pub(super) struct Findings {
    all: Vec<Finding>,
    left_out: u64,
    /// The time of the last event before the first damage of the log.
    good: Option<u64>,
    log_is_damaged: bool,
}

/// The limit on findings of one severity, so that a corrupt file cannot exhaust memory.
const MAX: usize = 1000;

impl Findings {
    pub(super) fn add(
        &mut self,
        severity: Severity,
        code: Code,
        at: Location,
        text: String,
    ) -> usize {
        self.add_since(severity, code, at, self.good, text)
    }

    pub(super) fn add_since(
        &mut self,
        severity: Severity,
        code: Code,
        at: Location,
        since: Option<u64>,
        text: String,
    ) -> usize {
        // The limit is per severity, so that warnings cannot hide damage.
        let alike = self.all.iter().filter(|finding| finding.severity == severity).count();
        if alike < MAX {
            let since = since.filter(|_| severity == Severity::Damage);
            self.all.push(Finding { severity, code, at, since, text });
            return self.all.len() - 1;
        }
        self.left_out += 1;
        usize::MAX
    }

    /// Adds damage of the log; later events are no longer certainly good.
    pub(super) fn damage(&mut self, code: Code, at: Location, text: String) -> usize {
        let place = self.add(Severity::Damage, code, at, text);
        self.log_is_damaged = true;
        place
    }

    pub(super) fn note(&mut self, code: Code, at: Location, text: String) {
        self.add(Severity::Note, code, at, text);
    }

    pub(super) fn warn(&mut self, code: Code, at: Location, text: String) {
        self.add(Severity::Warning, code, at, text);
    }

    /// Notes the time of an event that was read.
    pub(super) const fn note_time(&mut self, time: u64) {
        if !self.log_is_damaged {
            self.good = Some(time);
        }
    }

    /// Replaces a finding that has turned out to be something else.
    pub(super) fn turn_into(&mut self, place: usize, code: Code, text: String) {
        if let Some(finding) = self.all.get_mut(place) {
            finding.code = code;
            finding.text = text;
        }
    }

    /// Returns all findings, worst first, and the number of findings beyond the limit.
    pub(super) fn finish(mut self) -> (Vec<Finding>, u64) {
        self.all.sort_by_key(|finding| std::cmp::Reverse(finding.severity));
        (self.all, self.left_out)
    }
}
