//! The verdict of an attack, and the checks that lead to it.
//!
//! A trial counts its checks and ends at the first failed one. The verdict shows whether the box failed
//! ([`Verdict::Broken`]) or the attack itself ([`Verdict::ControlFailed`]).

use std::fmt::Display;
use std::io;

use crate::lab::Lab;

/// An attack of the threat model and the function that tries it.
#[derive(Debug)]
pub struct Attack {
    /// The identifier of the attack in `docs/threat-model.md`.
    pub id: &'static str,
    pub title: &'static str,
    pub(crate) trial: fn(&Lab) -> Trial,
}

/// The verdict about an attack: whether the box withstood it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Verdict {
    /// The box refused every operation, and each operation succeeded without the defence.
    /// `unproven` names the controls for which this user lacks a permission.
    Held { checks: u32, detail: String, unproven: Vec<String> },
    /// The box allowed an operation, or refused it with an unexpected error.
    Broken { what: String },
    /// The attack proves nothing: its operation fails even without the defence.
    ControlFailed { what: String },
    /// The box refused every operation, but a known risk remains.
    Residual { checks: u32, why: String },
    /// The attack does not apply to this machine.
    NotHere { why: String },
}

/// The verdict of a completed attack (`Ok`), or the verdict that ended it early (`Err`).
pub(crate) type Trial = Result<Verdict, Verdict>;

/// The result of one step of an attack, or the verdict that ends the attack. An error ends the
/// trial.
pub(crate) type Step<T = ()> = Result<T, Verdict>;

impl Attack {
    /// Runs the attack in a test environment and returns its verdict.
    pub fn run(&self, lab: &Lab) -> Verdict {
        match (self.trial)(lab) {
            Ok(verdict) | Err(verdict) => verdict,
        }
    }
}

impl Verdict {
    /// Returns whether the box did not withstand the attack, or its control failed.
    ///
    /// An attack that does not apply to this machine is not a failure, but it proves nothing.
    pub fn is_failure(&self) -> bool {
        match self {
            Self::Broken { .. } | Self::ControlFailed { .. } => true,
            Self::Held { .. } | Self::Residual { .. } | Self::NotHere { .. } => false,
        }
    }
}

/// The number of checks of one attack, and its notes.
#[derive(Debug, Default)]
pub(crate) struct Checks {
    count: u32,
    notes: Vec<String>,
    unproven: Vec<String>,
}

impl Checks {
    /// Requires that an operation succeeds without the defence; otherwise the attack proves
    /// nothing.
    pub(crate) fn control(&mut self, possible: bool, what: impl Display) -> Step {
        self.count += 1;
        if possible { Ok(()) } else { Err(Verdict::ControlFailed { what: what.to_string() }) }
    }

    /// Requires that the box withstood the operation; `otherwise` describes the failure.
    pub(crate) fn holds(&mut self, held: bool, otherwise: impl Display) -> Step {
        self.count += 1;
        if held { Ok(()) } else { Err(Verdict::Broken { what: otherwise.to_string() }) }
    }

    /// Requires that the operation `act` has the exact result `want`.
    pub(crate) fn exactly(&mut self, act: impl Display, got: &str, want: &str) -> Step {
        self.holds(got == want, format_args!("{act}: got `{got}`, expected `{want}`"))
    }

    /// Requires that the operation `act` has one of the results in `want`.
    pub(crate) fn one_of(&mut self, act: impl Display, got: &str, want: &[&str]) -> Step {
        let otherwise = format!("{act}: got `{got}`, expected one of {want:?}");
        self.holds(want.contains(&got), otherwise)
    }

    /// Adds a note to the verdict of the attack.
    pub(crate) fn note(&mut self, note: impl Display) {
        self.notes.push(note.to_string());
    }

    /// Records that this user is not permitted to run a control experiment: a note, and a skip in
    /// tests.
    pub(crate) fn unproven(&mut self, what: impl Display) {
        self.unproven.push(what.to_string());
        self.note(what);
    }

    /// Ends the attack with [`Verdict::Held`]: the box withstood it.
    pub(crate) fn held(self) -> Trial {
        let Self { count, notes, unproven } = self;
        Ok(Verdict::Held { checks: count, detail: notes.join("; "), unproven })
    }

    /// Ends the attack with [`Verdict::Residual`]: the box withstood it, but a known risk remains.
    pub(crate) fn residual(self, why: &str) -> Trial {
        Ok(Verdict::Residual { checks: self.count, why: why.to_owned() })
    }
}

/// Returns the verdict for a failure of the test environment, as opposed to a failure of the box.
pub(crate) fn fault(what: impl Display) -> Verdict {
    Verdict::ControlFailed { what: what.to_string() }
}

/// Turns an I/O error of the test environment into a verdict that names the failed operation.
/// `what` starts with a verb.
pub(crate) trait During<T> {
    fn during(self, what: impl Display) -> Step<T>;
}

impl<T> During<T> for io::Result<T> {
    fn during(self, what: impl Display) -> Step<T> {
        self.map_err(|error| fault(format_args!("cannot {what}: {error}")))
    }
}
