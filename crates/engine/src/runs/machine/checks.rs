//! The results of single checks, for people and for the ledger. They change no state.

use std::fmt;
use std::str::FromStr;

use belljar_model::RunId;
use belljar_model::plan::Check;

use super::types::names;

/// The maximum number of bytes of the name of a model. The name comes from a server.
const MAX_MODEL: usize = 200;

names! {
    /// The kind of a check, by the key that its plan uses.
    CheckKind {
        Schema = "schema",
        Command = "command",
        /// A model judges the output.
        Model = "model",
        /// A command confirms or refutes the output, or cannot decide.
        Verify = "verify",
    }
}

names! {
    /// The outcome of one check. Only `passed` and `confirmed` let an output pass.
    CheckOutcome {
        Passed = "passed",
        Rejected = "rejected",
        /// The judge gave no usable verdict.
        NoVerdict = "no_verdict",
        Confirmed = "confirmed",
        Refuted = "refuted",
        Undecided = "undecided",
    }
}

impl CheckOutcome {
    /// Returns whether the output passes the check.
    pub const fn passes(self) -> bool {
        match self {
            Self::Passed | Self::Confirmed => true,
            Self::Rejected | Self::NoVerdict | Self::Refuted | Self::Undecided => false,
        }
    }
}

impl CheckKind {
    /// Returns the kind of a check of a plan.
    pub const fn of(check: &Check) -> Self {
        match check {
            Check::Schema(_) => Self::Schema,
            Check::Command(_) => Self::Command,
            Check::Model { .. } => Self::Model,
            Check::Verify(_) => Self::Verify,
        }
    }

    /// Returns the outcome of a check that could not be carried out. The output does not pass.
    pub const fn without_result(self) -> CheckOutcome {
        match self {
            Self::Schema | Self::Command => CheckOutcome::Rejected,
            Self::Model => CheckOutcome::NoVerdict,
            Self::Verify => CheckOutcome::Undecided,
        }
    }
}

/// The result of one check of an output.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CheckResult {
    /// The number of the check in the plan, from 0.
    pub check: u32,
    pub kind: CheckKind,
    pub outcome: CheckOutcome,
    /// The model that judged, as the broker observed it.
    pub model: Option<String>,
}

impl CheckResult {
    /// Returns a result. A long name of a model is cut.
    pub fn new(check: u32, kind: CheckKind, outcome: CheckOutcome, model: Option<&str>) -> Self {
        let cut = |model: &str| {
            model.get(..model.floor_char_boundary(MAX_MODEL)).unwrap_or_default().to_owned()
        };
        Self { check, kind, outcome, model: model.map(cut).filter(|model| !model.is_empty()) }
    }
}

/// The form in the ledger: `CHECK KIND OUTCOME`, and the name of the model after another space.
impl fmt::Display for CheckResult {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {} {}", self.check, self.kind.name(), self.outcome.name())?;
        self.model.as_ref().map_or(Ok(()), |model| write!(f, " {model}"))
    }
}

/// A text is not the result of a check that this version knows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("invalid result of a check")]
pub struct CheckResultError;

impl FromStr for CheckResult {
    type Err = CheckResultError;

    fn from_str(text: &str) -> Result<Self, CheckResultError> {
        let mut parts = text.splitn(4, ' ');
        let mut next = || parts.next().ok_or(CheckResultError);
        let check = next()?.parse().map_err(|_| CheckResultError)?;
        let kind = CheckKind::named(next()?).ok_or(CheckResultError)?;
        let outcome = CheckOutcome::named(next()?).ok_or(CheckResultError)?;
        Ok(Self::new(check, kind, outcome, parts.next()))
    }
}

/// What the checks of one output did.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Checks {
    /// The runs of their boxes.
    pub boxes: Vec<RunId>,
    /// The results of the checks that ended, in their order.
    pub results: Vec<CheckResult>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn check_result_survives_a_round_trip_and_other_texts_are_refused() {
        for kind in CheckKind::ALL {
            for outcome in CheckOutcome::ALL {
                for model in [None, Some("claude-sonnet-4-5"), Some("two words  x")] {
                    let result = CheckResult::new(7, *kind, *outcome, model);
                    assert_eq!(result.to_string().parse(), Ok(result));
                }
            }
        }
        for wrong in ["", "0", "0 model", "x model passed", "0 vote passed", "0 model perhaps"] {
            assert_eq!(wrong.parse::<CheckResult>(), Err(CheckResultError), "{wrong}");
        }
    }

    #[test]
    fn check_without_a_result_never_passes_whatever_its_kind() {
        for kind in CheckKind::ALL {
            assert!(!kind.without_result().passes(), "{kind:?}");
        }
        let passing: Vec<&str> =
            CheckOutcome::ALL.iter().filter(|it| it.passes()).map(|it| it.name()).collect();
        assert_eq!(passing, ["passed", "confirmed"]);
    }

    #[test]
    fn long_name_of_a_model_is_cut_at_a_character() {
        let model = "é".repeat(MAX_MODEL);
        let result = CheckResult::new(0, CheckKind::Model, CheckOutcome::Passed, Some(&model));
        assert_eq!(result.model.map(|model| model.len()), Some(MAX_MODEL));
    }
}
