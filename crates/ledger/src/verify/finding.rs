//! What a verifier has to say: each finding has a stable name, a place and a plain sentence.

use std::fmt;
use std::path::{Path, PathBuf};

/// Something that is not as it should be.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Finding {
    pub severity: Severity,
    pub code: Code,
    pub at: Location,
    /// When the last event was recorded that is certainly good, in nanoseconds since 1970.
    pub since: Option<u64>,
    /// What is wrong and what to do about it.
    pub text: String,
}

/// How bad it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Severity {
    /// Worth knowing; nothing is wrong.
    Note,
    /// Something should be done, but the record itself is whole.
    Warning,
    /// The record is not what it was, or cannot be shown to be.
    Damage,
}

/// Where it is.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Location {
    /// An event, and where it begins in this log.
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
    /// A checkpoint from elsewhere, by its place among those that were given.
    Checkpoint(usize),
    /// A key from elsewhere.
    Key,
}

macro_rules! codes {
    ($( $name:ident $text:literal )+) => {
        /// The name of what was found; it stays the same from version to version.
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
    /// The file that it is in, unless it came from elsewhere.
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
            Self::Checkpoint(place) => write!(f, "checkpoint {} of those given", place + 1),
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

/// What was found so far.
#[derive(Debug, Default)]
pub(super) struct Findings {
    all: Vec<Finding>,
    left_out: u64,
    /// When the last event was recorded before anything was wrong with the log.
    good: Option<u64>,
    log_is_damaged: bool,
}

/// More than anybody reads. A file full of rubbish must not fill the memory too.
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
        // Of each severity, so that no number of warnings hides damage.
        let alike = self.all.iter().filter(|finding| finding.severity == severity).count();
        if alike < MAX {
            let since = since.filter(|_| severity == Severity::Damage);
            self.all.push(Finding { severity, code, at, since, text });
            return self.all.len() - 1;
        }
        self.left_out += 1;
        usize::MAX
    }

    /// The same about the log: what comes later is no more certainly good.
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

    /// An event was read that was recorded then.
    pub(super) const fn saw(&mut self, time: u64) {
        if !self.log_is_damaged {
            self.good = Some(time);
        }
    }

    /// What looked like a loss turned out to be something else.
    pub(super) fn turn_into(&mut self, place: usize, code: Code, text: String) {
        if let Some(finding) = self.all.get_mut(place) {
            finding.code = code;
            finding.text = text;
        }
    }

    /// All of them, the worst first, and how many more there were.
    pub(super) fn finish(mut self) -> (Vec<Finding>, u64) {
        self.all.sort_by_key(|finding| std::cmp::Reverse(finding.severity));
        (self.all, self.left_out)
    }
}
