//! How an attack is judged.
//!
//! A trial counts what it checked. It ends early with the first thing that is not as it must be, and
//! says whether that was the box ([`Verdict::Broken`]) or the attack itself ([`Verdict::ControlFailed`]).

use std::fmt::Display;
use std::io;

use crate::lab::Lab;

/// One row of the table: a threat and how it is tried.
#[derive(Debug)]
pub struct Attack {
    /// As in `docs/threat-model.md`.
    pub id: &'static str,
    pub title: &'static str,
    pub(crate) trial: fn(&Lab) -> Trial,
}

/// What came of an attack.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Verdict {
    /// Every act was refused as it must be, and every control showed that it could have succeeded.
    /// Where this user lacks a right that a control needs, `unproven` names those controls.
    Held { checks: u32, detail: String, unproven: Vec<String> },
    /// The box let something through, or refused it in another way than it promises.
    Broken { what: String },
    /// The attack proves nothing: its act does not even succeed where it may.
    ControlFailed { what: String },
    /// What can be stopped was; the rest is a risk that remains, said in words.
    Residual { checks: u32, why: String },
    /// The attack does not concern this machine.
    NotHere { why: String },
}

/// The end of a trial that came to its end, or the verdict that ended it early.
pub(crate) type Trial = Result<Verdict, Verdict>;

/// A step of a trial: goes on, or ends it.
pub(crate) type Step<T = ()> = Result<T, Verdict>;

impl Attack {
    pub fn run(&self, lab: &Lab) -> Verdict {
        match (self.trial)(lab) {
            Ok(verdict) | Err(verdict) => verdict,
        }
    }
}

impl Verdict {
    /// Whether the promise of the row is broken or was not put to the test. A row that does not concern
    /// this machine is no failure, but it proves nothing either.
    pub fn is_failure(&self) -> bool {
        match self {
            Self::Broken { .. } | Self::ControlFailed { .. } => true,
            Self::Held { .. } | Self::Residual { .. } | Self::NotHere { .. } => false,
        }
    }
}

/// The checks of one trial.
#[derive(Debug, Default)]
pub(crate) struct Checks {
    count: u32,
    notes: Vec<String>,
    unproven: Vec<String>,
}

impl Checks {
    /// The act must be possible where nothing forbids it; else the row proves nothing.
    pub(crate) fn control(&mut self, possible: bool, what: impl Display) -> Step {
        self.count += 1;
        if possible { Ok(()) } else { Err(Verdict::ControlFailed { what: what.to_string() }) }
    }

    /// The box must hold.
    pub(crate) fn holds(&mut self, held: bool, otherwise: impl Display) -> Step {
        self.count += 1;
        if held { Ok(()) } else { Err(Verdict::Broken { what: otherwise.to_string() }) }
    }

    /// The box must answer exactly this.
    pub(crate) fn exactly(&mut self, act: impl Display, got: &str, want: &str) -> Step {
        self.holds(got == want, format_args!("{act}: `{got}`, and it must be `{want}`"))
    }

    /// The box must answer one of these.
    pub(crate) fn one_of(&mut self, act: impl Display, got: &str, want: &[&str]) -> Step {
        let otherwise = format!("{act}: `{got}`, and it must be one of {want:?}");
        self.holds(want.contains(&got), otherwise)
    }

    /// Something to say about a row that held.
    pub(crate) fn note(&mut self, note: impl Display) {
        self.notes.push(note.to_string());
    }

    /// A control that this user has not the right to make. It is a note, and a skip of the test.
    pub(crate) fn unproven(&mut self, what: impl Display) {
        self.unproven.push(what.to_string());
        self.note(what);
    }

    pub(crate) fn held(self) -> Trial {
        let Self { count, notes, unproven } = self;
        Ok(Verdict::Held { checks: count, detail: notes.join("; "), unproven })
    }

    pub(crate) fn residual(self, why: &str) -> Trial {
        Ok(Verdict::Residual { checks: self.count, why: why.to_owned() })
    }
}

/// A fault of the lab, as opposed to one of the box.
pub(crate) fn fault(what: impl Display) -> Verdict {
    Verdict::ControlFailed { what: what.to_string() }
}

/// Says what was being done when an operation of the lab failed.
pub(crate) trait During<T> {
    fn during(self, what: impl Display) -> Step<T>;
}

impl<T> During<T> for io::Result<T> {
    fn during(self, what: impl Display) -> Step<T> {
        self.map_err(|error| fault(format_args!("{what}: {error}")))
    }
}
