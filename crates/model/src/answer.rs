//! Who may answer a question, beyond the rights of a role.

use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::role::Role;

/// What a rule or a gate demands of the person who answers its question. The default demands nothing.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AnswerTerms {
    /// Written `approver = "operator"`: the person must have the role operator, admin or owner.
    #[serde(default)]
    pub operator: bool,
    /// Written `two_people = true`: the person must be another one than the person who asks.
    #[serde(default)]
    pub two_people: bool,
}

/// Why a person may not answer a question.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum AnswerTermsError {
    #[error("only a person with the role operator, admin or owner can answer this question")]
    NoOperator,
    #[error(
        "this question needs a second person: somebody else than the owner of the run or the box must answer"
    )]
    SamePerson,
}

/// A text is not a value of `approver`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("write `operator`")]
pub struct ApproverError;

/// The value of `approver`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OperatorOnly;

impl FromStr for OperatorOnly {
    type Err = ApproverError;

    fn from_str(text: &str) -> Result<Self, ApproverError> {
        if text == AnswerTerms::OPERATOR { Ok(Self) } else { Err(ApproverError) }
    }
}

impl AnswerTerms {
    /// The value of `approver` that demands an operator.
    pub const OPERATOR: &str = "operator";

    /// Returns whether nothing is demanded.
    pub const fn is_empty(&self) -> bool {
        !self.operator && !self.two_people
    }

    /// Returns the demands of both.
    #[must_use]
    pub const fn and(self, other: Self) -> Self {
        Self {
            operator: self.operator || other.operator,
            two_people: self.two_people || other.two_people,
        }
    }

    /// Checks that a person with this role may answer. `is_requester` tells whether the run or the box that
    /// asks belongs to this person.
    pub const fn check(self, role: Role, is_requester: bool) -> Result<(), AnswerTermsError> {
        let is_operator = match role {
            Role::Owner | Role::Admin | Role::Operator => true,
            Role::Member | Role::Auditor => false,
        };
        if self.operator && !is_operator {
            return Err(AnswerTermsError::NoOperator);
        }
        if self.two_people && is_requester {
            return Err(AnswerTermsError::SamePerson);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn terms_demand_an_operator_a_second_person_or_both() {
        let terms = |operator, two_people| AnswerTerms { operator, two_people };
        let (no_operator, same) = (AnswerTermsError::NoOperator, AnswerTermsError::SamePerson);
        for (terms, role, is_requester, expect) in [
            (terms(false, false), Role::Member, true, Ok(())),
            (terms(true, false), Role::Member, false, Err(no_operator)),
            (terms(true, false), Role::Operator, true, Ok(())),
            (terms(false, true), Role::Owner, true, Err(same)),
            (terms(false, true), Role::Member, false, Ok(())),
            (terms(true, true), Role::Member, true, Err(no_operator)),
            (terms(true, true), Role::Admin, true, Err(same)),
            (terms(true, true), Role::Admin, false, Ok(())),
        ] {
            assert_eq!(terms.check(role, is_requester), expect, "{terms:?} {role} {is_requester}");
        }
        assert_eq!(terms(true, false).and(terms(false, true)), terms(true, true));
    }
}
