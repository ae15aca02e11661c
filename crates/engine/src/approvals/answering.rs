//! Who may answer a question: the demands of its rule, and the rights of the person who answers.

use std::fmt;

use belljar_model::answer::AnswerTerms;
use belljar_model::caller::Principal;
use belljar_model::role::Role;

use crate::error::{EngineError, ErrorKind, WithKind as _};

/// What is demanded of the person who answers a question.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AnswerRule {
    pub terms: AnswerTerms,
    /// The principal that the box or the run belongs to. `None` for a skill.
    pub requester: Option<Principal>,
}

impl AnswerRule {
    /// Checks that a person may answer.
    pub fn check(&self, person: &Answerer<'_>) -> Result<(), EngineError> {
        let is_requester = self.requester.as_ref().is_some_and(person.owns);
        self.terms.check(person.role, is_requester).kind(ErrorKind::Refused)
    }
}

/// The rights of the person who answers.
#[derive(Clone, Copy)]
pub struct Answerer<'a> {
    pub role: Role,
    /// Returns whether the objects of a principal belong to the person.
    pub owns: &'a dyn Fn(&Principal) -> bool,
}

impl fmt::Debug for Answerer<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Answerer").field("role", &self.role).finish_non_exhaustive()
    }
}
